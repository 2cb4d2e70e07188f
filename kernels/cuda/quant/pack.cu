/*
 * pack.cu - converts weights from the file's blocks to the fragments of T16 tiles (tile16.cuh, and each type's file)
 * and back, and computes the scales of their rows.
 *
 * A word of a fragment may hold bits of two rows that arrive in different slices of the upload (gate and up share
 * tiles), so words are or-ed into a zeroed buffer. Slices are packed in stream order, and within a slice each word is
 * written by one thread.
 */
#include "kernels/cuda/quant/quant.cuh"

/* Word w of fragment q of k-block r of a tile; bits of rows that are not in this slice are 0. */
__device__ static uint32_t pack_word(const slice &s, uint32_t tile, uint32_t r, uint32_t q, uint32_t w)
{
    uint32_t v;
    quant_visit(s.type, [&](auto type) { v = type.pack(s, tile, r, q, w); });
    return v;
}

/* Each block packs one k-block of a tile. */
__global__ void pack_tiles(slice s)
{
    uint32_t r = blockIdx.x, tile = s.tile0 + blockIdx.y, per = t16_frags(s.type), frag = t16_frag_bytes(s.type) / 4;
    uint32_t *out = (uint32_t *)(s.packed + (uint64_t)tile * s.n_kblk * per * frag * 4);
    for (uint32_t i = threadIdx.x; i < per * frag; i += blockDim.x) {
        uint32_t q = i / frag, w = i % frag, v = pack_word(s, tile, r, q, w);
        if (v)
            out[(uint64_t)t16_frag_at(s.n_kblk, per, r, q) * frag + w] |= v;
    }
}

/* The scales of a tile's rows, two lanes each. blockIdx.x: tile; blockIdx.y: expert. */
__global__ void tile_row_scales(wdev w)
{
    uint32_t tile = blockIdx.x, i = 0, row = threadIdx.x >> 1;
    while (i + 1 < w.n_part && !w.interleaved && tile >= w.part[i + 1].tile0)
        i++;
    const wpart &p = w.part[i];
    const uint8_t *r = w.packed + blockIdx.y * w.expert_bytes + p.off;
    float least = 0;
    quant_visit(p.type, [&](auto q) {
        if constexpr (q.WG_ROW_SCALES) {
            static_assert(q.FRAGS == 1);
            r += (uint64_t)(tile - p.tile0) * w.n_kblk * q.FRAG_BYTES;
            for (uint32_t k = threadIdx.x & 1; k < w.n_kblk; k += 2)
                least = fmaxf(least, q.wg_row_scale_min(r + k * q.FRAG_BYTES, row));
        }
    });
    least = fmaxf(least, __shfl_xor_sync(~0u, least, 1));
    int e = (int)((__float_as_uint(least) + 0x7fffff) >> 23) -
            127; /* 2^e is the smallest power of two that is not below it */
    if (!(threadIdx.x & 1))
        w.row_scale[((uint64_t)blockIdx.y * w.n_tile + tile) * 16 + row] = t16_row_scale_halves(min(max(e, -6), 31));
}

/* Each warp unpacks one k-block of a row, eight elements per lane. */
__global__ void unpack_rows(wdev w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld)
{
    uint32_t at = blockIdx.y * 16 + threadIdx.x / 32, k = blockIdx.x * 256 + threadIdx.x % 32 * 8, row = row0 + at,
             i = 0;
    if (at >= n || k >= w.n_in)
        return;
    while (i + 1 < w.n_part && row >= w.part[i + 1].row0)
        i++;
    const wpart &p = w.part[i];
    row -= p.row0;
    uint32_t tile = w.interleaved ? row / 8 : row / 16, h = w.interleaved ? i : row / 8 & 1;
    float v[8];
    unpack_eight(p.type, w.packed + p.off + (uint64_t)tile * w.n_kblk * t16_kblk_bytes(p.type), w.n_kblk, h, row & 7, k,
                 v);
    __half o[8];
    for (int j = 0; j < 8; j++)
        o[j] = half_sat(v[j]);
    __half *to = dst + (uint64_t)at * ld + k;
    if (k + 8 <= w.n_in && !((uintptr_t)to & 15))
        *(uint4 *)to = *(const uint4 *)o;
    else
        for (uint32_t j = 0; j < 8 && k + j < w.n_in; j++)
            to[j] = o[j];
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

int pack_plan(struct wdev *w, struct hearth_err *e)
{
    for (uint32_t i = 0; i < w->n_part; i++)
        if (!quant_has_kernels(w->part[i].type)) {
            const struct dtype_info *t = dtype_get(w->part[i].type);
            return err_set(e, HEARTH_EUNSUPPORTED, "weights of type %s: the GPU cannot multiply by them",
                           t ? t->name : "?");
        }
    w->interleaved = (w->role == WEIGHT_GATE_UP || w->role == WEIGHT_EXPERTS_UP) && w->n_part == 2 &&
                     w->part[0].type == w->part[1].type && w->part[0].n_out == w->part[1].n_out;
    w->n_tile = 0, w->packed_bytes = 0;
    for (uint32_t i = 0; i < w->n_part; i++) {
        struct wpart *p = &w->part[i];
        if (w->interleaved && i) {
            p->tile0 = 0, p->n_tile = w->n_tile, p->off = 0;
            break;
        }
        p->tile0 = w->n_tile;
        p->n_tile = w->interleaved ? (p->n_out + 7) / 8 : (p->n_out + 15) / 16;
        p->off = w->packed_bytes;
        w->n_tile += p->n_tile;
        w->packed_bytes += (uint64_t)p->n_tile * w->n_kblk * t16_kblk_bytes(p->type);
    }
    w->expert_bytes = w->packed_bytes;
    if (w->n_expert)
        w->packed_bytes *= w->n_expert;
    return 0;
}

void pack_rows(struct device *d, struct wdev *w, uint32_t part, uint32_t row0, uint32_t n, const uint8_t *raw,
               cudaStream_t st)
{
    const struct wpart &p = w->part[part];
    uint32_t rows = w->interleaved ? 8 : 16, tile0 = row0 / rows, tiles = (row0 + n + rows - 1) / rows - tile0;
    slice s = {raw,
               p.raw_row_bytes,
               row0,
               n,
               w->n_in,
               w->n_kblk,
               (uint32_t)p.type,
               tile0,
               w->interleaved ? part : 2u,
               w->packed + p.off};
    cuda_launch_on(d, st, false, 1, pack_tiles, dim3(w->n_kblk, tiles), 256, 0, s);
}

uint64_t row_scales_bytes(const struct device *d, const struct wdev *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->n_part; i++)
        any = any || has_row_scales(w->part[i].type);
    return d->cc == 90 && any
               ? ((uint64_t)w->n_tile * (w->n_expert ? w->n_expert : 1) + ROW_SCALES_PAD) * 16 * sizeof(uint32_t)
               : 0;
}

void pack_row_scales(struct device *d, struct wdev *w, cudaStream_t st)
{
    cuda_launch_on(d, st, false, 1, tile_row_scales, dim3(w->n_tile, w->n_expert ? w->n_expert : 1), 32, 0, *w);
}

void unpack_f16(struct device *d, const struct wdev *w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld)
{
    cuda_launch(d, unpack_rows, dim3(w->n_kblk, (n + 15) / 16), 512, 0, LAUNCH_PLAIN, *w, row0, n, dst, ld);
}
