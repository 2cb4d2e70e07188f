/* dequant.cu - rows of a matrix as fp16, for cublaslt.cu: from tiles, or from the file's own blocks. */
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/quant/quant.cuh"

__global__ void dequant_raw(wpart w, uint32_t n_in, uint32_t row0, __half *dst, uint32_t ld)
{
    uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n_in)
        dst[(uint64_t)blockIdx.y * ld + k] = half_sat(dq_at(w.type, w.raw + (row0 + blockIdx.y) * w.raw_row_bytes, k));
}

/* Where the requested rows of a part are, and where they go. */
struct tiles_job {
    const uint8_t *from;          /* the part's first record */
    uint32_t n_kblk, tile0, rows; /* rows of the part in a tile: 16, or 8 where gate and up share one */
    uint32_t half0, half1;        /* first and last half of a tile to expand: rows 0..7, rows 8..15 */
    uint32_t row0, n;             /* the rows of the part that are requested */
    __half *to;
    uint32_t ld;
};

/*
 * Expands a type that has expand() (EXPAND: Q4_K, Q6_K), one warp per record, in the order in which its lanes find the
 * bits: unpack_f16() reads one row at a time, and so reads every record sixteen times. Rows leave through shared
 * memory, 512 bytes at a time: what a lane holds is scattered over a row, and half-written sectors cost twice. Layout:
 * tile16.cuh.
 */
enum { DEQUANT_WARPS = 4 };
template <int TYPE> __global__ void __launch_bounds__(DEQUANT_WARPS * 32) dequant_tiles(tiles_job j)
{
    __shared__ uint4 rows[DEQUANT_WARPS][8][33];
    uint32_t kblk = blockIdx.x * DEQUANT_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (kblk >= j.n_kblk)
        return;
    uint4(*out)[33] = rows[threadIdx.x / 32];
    uint32_t tile = j.tile0 + blockIdx.y;
    const uint8_t *u = j.from + (uint64_t)tile * j.n_kblk * t16_kblk_bytes(TYPE) +
                       (uint64_t)t16_frag_at(j.n_kblk, 1, kblk, 0) * t16_frag_bytes(TYPE);
    for (uint32_t h = j.half0; h <= j.half1; h++) {
        /* 16-byte unit c of a row is at c ^ (c >> 3): lanes that write 128 bytes apart have no bank conflicts */
        quant<TYPE>::expand(u, h, lane, out);
        __syncwarp();
#pragma unroll
        for (uint32_t r = 0; r < 8; r++) {
            uint32_t row = tile * j.rows + (j.rows == 16 ? 8 * h : 0) + r - j.row0;
            if (row < j.n)
                ((uint4 *)(j.to + (uint64_t)row * j.ld + 256 * kblk))[lane] = out[r][lane ^ (lane >> 3)];
        }
        __syncwarp();
    }
}

template <int TYPE> static bool dequant_by_tiles(struct device *d, dim3 grid, const tiles_job &j)
{
    if constexpr (quant<TYPE>::EXPAND) {
        d->pdl_chain = false; /* the product of the last slice is a library kernel, without PDL */
        cuda_launch(d, dequant_tiles<TYPE>, grid, DEQUANT_WARPS * 32, 0, LAUNCH_PLAIN, j);
    }
    return quant<TYPE>::EXPAND;
}

/* False where the type has no expansion of its own. */
static bool dequant_part(struct device *d, const wdev *w, uint32_t i, uint32_t from, uint32_t n, __half *dst,
                         uint32_t ld)
{
    const wpart *p = &w->part[i];
    tiles_job j = {};
    j.from = w->packed + p->off, j.n_kblk = w->n_kblk;
    j.rows = w->interleaved ? 8 : 16;
    j.half0 = w->interleaved ? i : 0, j.half1 = w->interleaved ? i : 1;
    j.tile0 = from / j.rows, j.row0 = from, j.n = n;
    j.to = dst, j.ld = ld;
    dim3 grid((w->n_kblk + DEQUANT_WARPS - 1) / DEQUANT_WARPS, (from + n + j.rows - 1) / j.rows - j.tile0);
    switch (p->type) {
#define X(t, T, number) \
    case DT_##T:        \
        return dequant_by_tiles<DT_##T>(d, grid, j);
        QUANTS(X)
#undef X
    case DT_COUNT:
        break;
    }
    return false;
}

void dequant(struct device *d, const wdev *w, uint32_t row0, uint32_t n, __half *dst, uint32_t ld)
{
    for (uint32_t i = 0; i < w->n_part; i++) {
        const wpart *p = &w->part[i];
        uint32_t from = row0 > p->row0 ? row0 : p->row0,
                 to = row0 + n < p->row0 + p->n_out ? row0 + n : p->row0 + p->n_out;
        if (from >= to)
            continue;
        __half *at = dst + (uint64_t)(from - row0) * ld;
        d->pdl_chain = false;
        if (!w->packed)
            cuda_launch(d, dequant_raw, dim3((w->n_in + 255) / 256, to - from), 256, 0, LAUNCH_PLAIN, *p, w->n_in,
                        from - p->row0, at, ld);
        else if (!dequant_part(d, w, i, from - p->row0, to - from, at, ld))
            unpack_f16(d, w, from, to - from, at, ld);
    }
}
