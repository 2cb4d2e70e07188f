/*
 * pack.cu - weights from the file's blocks into T16 units (tile16.cuh has the layout) and back, on the GPU.
 *
 * A word of a unit may hold bits of two rows that arrive in different slices of the upload (gate and up share tiles),
 * so words are or-ed into a zeroed buffer; slices are packed in stream order, and within a slice a word has one thread.
 */
#include "kernels/cuda/quant/dequant.cuh"
#include "kernels/cuda/gemm/tile16.cuh"
#include "kernels/cuda/quant/unpack.cuh"

/* The rows of a slice, as a tile's rows. */
struct slice {
    const uint8_t *raw;
    uint64_t row_bytes;
    uint32_t row0, n, n_in, n_kblk, type;
    uint32_t tile0;  /* first tile of the slice within the part */
    uint32_t side;   /* 0, 1: the part fills this half of every tile; 2: whole tiles */
    uint8_t *packed; /* the part's first tile */
    /* row g of half h of a tile, or NULL where it is not in this slice */
    __device__ const uint8_t *row(uint32_t tile, uint32_t h, uint32_t g) const
    {
        if (side < 2 && h != side)
            return NULL;
        uint32_t r = side < 2 ? tile * 8 + g : tile * 16 + h * 8 + g;
        return r >= row0 && r - row0 < n ? raw + (r - row0) * row_bytes : NULL;
    }
};

__device__ static inline uint32_t u16_at(const uint8_t *p)
{
    return *(const uint16_t *)p;
}

/* Low nibble and upper two bits of element k of a Q6_K block. */
__device__ static inline uint32_t q6_lo(const uint8_t *b, uint32_t k)
{
    return b[64 * (k / 128) + 32 * (k / 32 & 1) + k % 32] >> (k / 64 & 1) * 4 & 15;
}
__device__ static inline uint32_t q6_hi(const uint8_t *b, uint32_t k)
{
    return b[128 + 32 * (k / 128) + k % 32] >> 2 * (k / 32 & 3) & 3;
}

/* Two f16 scales of rows' blocks, `bytes` long, where the first exists. */
__device__ static inline uint32_t two_d(const uint8_t *row, uint32_t block, uint32_t bytes, uint32_t blocks)
{
    uint32_t v = 0;
    if (row && block < blocks)
        v = u16_at(row + (uint64_t)block * bytes);
    if (row && block + 1 < blocks)
        v |= u16_at(row + (uint64_t)(block + 1) * bytes) << 16;
    return v;
}

/* Word w of unit q of record r of a tile, as far as this slice knows it. */
__device__ static uint32_t pack_word(const slice &s, uint32_t tile, uint32_t r, uint32_t q, uint32_t w)
{
    uint32_t plane = w >> 7, h = plane >> 1, p = plane & 1, lane = w >> 2 & 31, g = lane >> 2, t = lane & 3, j = w & 3,
             v = 0;
    uint32_t planes = 512, n_in = s.n_in;
    switch (s.type) {
    case DT_Q4_K:
    case DT_Q5_K: {
        bool five = s.type == DT_Q5_K;
        uint32_t bytes = five ? 176 : 144, at = r * bytes, S = five ? 640 : 512;
        if (w < planes) {
            const uint8_t *b = s.row(tile, h, g);
            return b ? *(const uint32_t *)(b + at + (five ? 48 : 16) + 32 * t + 16 * p + 4 * j) : 0;
        }
        if (w < S) { /* fifth bits: word j = 2h + p of a lane */
            h = j >> 1, p = j & 1;
            const uint8_t *b = s.row(tile, h, g);
            for (uint32_t i = 0; b && i < 16; i++) { /* bit i / 4 of byte i % 4, and 4 further */
                uint32_t bits = b[at + 16 + 16 * p + i] >> 2 * t & 3, pos = 8 * (i & 3) + (i >> 2);
                v |= (bits & 1) << pos | bits >> 1 << (pos + 4); /* of sub-blocks 2t, 2t + 1 */
            }
            return v;
        }
        w -= S;
        if (w < 32) {
            uint32_t sc0, m0, sc1, m1;
            g = w >> 2, t = w & 3;
            const uint8_t *b = s.row(tile, 0, g), *c = s.row(tile, 1, g);
            if (b) {
                dq_scale_min(b + at + 4, 2 * t, &sc0, &m0), dq_scale_min(b + at + 4, 2 * t + 1, &sc1, &m1);
                v |= sc0 | sc1 << 6 | m0 << 24;
            }
            if (c) {
                dq_scale_min(c + at + 4, 2 * t, &sc0, &m0), dq_scale_min(c + at + 4, 2 * t + 1, &sc1, &m1);
                v |= sc0 << 12 | sc1 << 18 | m1 << 30;
            }
            return v;
        }
        w -= 32;
        if (w < 16) {
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t l = 2 * w + i, sc, m0, m1, e = 0;
                const uint8_t *b = s.row(tile, 0, l >> 2), *c = s.row(tile, 1, l >> 2);
                if (b) {
                    dq_scale_min(b + at + 4, 2 * (l & 3) + 1, &sc, &m1);
                    e |= m1;
                }
                if (c) {
                    dq_scale_min(c + at + 4, 2 * (l & 3), &sc, &m0),
                        dq_scale_min(c + at + 4, 2 * (l & 3) + 1, &sc, &m1);
                    e |= m0 << 6 | m1 >> 2 << 12;
                }
                v |= e << 16 * i;
            }
            return v;
        }
        w -= 16;
        const uint8_t *b = s.row(tile, w >> 3, w & 7);
        return b ? *(const uint32_t *)(b + at) : 0;
    }
    case DT_Q6_K: {
        uint32_t at = r * 210;
        if (w < planes) {
            const uint8_t *b = s.row(tile, h, g);
            for (uint32_t m = 0; b && m < 4; m++) {
                uint32_t k = 32 * (4 * p + j) + 4 * t + m;
                v |= q6_lo(b + at, k) << 8 * m | q6_lo(b + at, k + 16) << (8 * m + 4);
            }
            return v;
        }
        if (w < 768) {
            w -= 512;
            const uint8_t *b = s.row(tile, w >> 7, g);
            for (uint32_t i = 0; b && i < 8; i++) { /* element m = i & 3 of word 2j + (i >> 2) */
                uint32_t m = i & 3, k = 32 * (2 * j + (i >> 2)) + 4 * t + m, pos = 8 * m + 4 * (i >> 2);
                v |= q6_hi(b + at, k) << pos | q6_hi(b + at, k + 16) << (pos + 2);
            }
            return v;
        }
        if (w < 832) {
            w -= 768;
            const uint8_t *b = s.row(tile, w >> 5, w >> 2 & 7);
            return b ? (u16_at(b + at + 192 + 4 * (w & 3)) | u16_at(b + at + 194 + 4 * (w & 3)) << 16) ^ 0x80808080u
                     : 0;
        }
        w -= 832;
        for (uint32_t i = 0; i < 2; i++) {
            const uint8_t *b = s.row(tile, w >> 2, 2 * (w & 3) + i);
            v |= b ? u16_at(b + at + 208) << 16 * i : 0;
        }
        return v;
    }
    case DT_Q8_0: {
        if (w < planes) {
            uint32_t k = 256 * r + 128 * q + 16 * (4 * p + j) + 4 * t;
            const uint8_t *b = k < n_in ? s.row(tile, h, g) : NULL;
            if (b)
                b += k / 32 * 34 + 2 + k % 32;
            return b ? (u16_at(b) | u16_at(b + 2) << 16) ^ 0x80808080u : 0;
        }
        w -= planes;
        return two_d(s.row(tile, w >> 4, w >> 1 & 7), 8 * r + 4 * q + 2 * (w & 1), 34, n_in / 32);
    }
    case DT_Q4_0: {
        if (w < planes) {
            uint32_t k = 256 * r + 32 * (4 * p + j);
            const uint8_t *b = k < n_in ? s.row(tile, h, g) : NULL;
            for (uint32_t m = 0; b && m < 4; m++) { /* the byte holds elements 4t + m and 16 more */
                uint32_t c = b[k / 32 * 18 + 2 + 4 * t + m];
                v |= c << 8 * m;
            }
            return v;
        }
        w -= planes;
        return two_d(s.row(tile, w >> 5, w >> 2 & 7), 8 * r + 2 * (w & 3), 18, n_in / 32);
    }
    case DT_F32: {
        uint32_t k = 256 * r + 64 * t + 8 * q + 4 * p + j;
        const uint8_t *b = k < n_in ? s.row(tile, h, g) : NULL;
        return b ? ((const uint32_t *)b)[k] : 0;
    }
    default: { /* F16, BF16 */
        uint32_t k = 256 * r + 64 * t + 16 * q + 8 * p + 4 * (j >> 1) + (j & 1);
        const uint8_t *b = s.row(tile, h, g);
        v = b && k < n_in ? u16_at(b + 2 * k) : 0;
        return v | (b && k + 2 < n_in ? u16_at(b + 2 * k + 4) << 16 : 0);
    }
    }
}

/* A block a record of a tile. */
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

/* A warp a row and record, a lane eight elements. */
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
        switch (w->part[i].type) {
        case DT_F32:
        case DT_F16:
        case DT_BF16:
        case DT_Q4_0:
        case DT_Q8_0:
        case DT_Q4_K:
        case DT_Q5_K:
        case DT_Q6_K:
            break;
        default: {
            const struct dtype_info *t = dtype_get(w->part[i].type);
            return err_set(e, HEARTH_EUNSUPPORTED, "weights of type %s: the GPU cannot multiply by them",
                           t && t->name ? t->name : "?");
        }
        }
    w->interleaved = w->role == WEIGHT_GATE_UP && w->n_part == 2 && w->part[0].type == w->part[1].type &&
                     w->part[0].n_out == w->part[1].n_out;
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
    cuda_launch_on(d, st, false, pack_tiles, dim3(w->n_kblk, tiles), 256, 0, s);
}

void unpack_f16(struct device *d, const struct wdev *w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld)
{
    cuda_launch(d, unpack_rows, dim3(w->n_kblk, (n + 15) / 16), 512, 0, LAUNCH_PLAIN, *w, row0, n, dst, ld);
}
