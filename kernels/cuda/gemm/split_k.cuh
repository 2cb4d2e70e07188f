/*
 * split_k.cuh - what wgmma.cu and epilogue.cu hand each other: products as partial sums (pieces), and activations in
 * the order in which wgmma's fragments use them.
 *
 * A matrix is cut into groups of `rows` rows of tiles, and the records of all groups, one group after the other, are
 * dealt out to blocks in equal shares. A block stores its partial sum of each group that it has a share in; the kernel
 * that finishes the op adds a group's partial sums in the order of the blocks.
 */
#ifndef HEARTH_CUDA_GEMM_SPLIT_K_CUH
#define HEARTH_CUDA_GEMM_SPLIT_K_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/cuda/fastdiv.cuh"

/* Loads sixteen bytes, or zeros; without a branch, so that the code is executed, and therefore fetched, even where
 * there is nothing to load. */
__device__ static inline float4 load_if(bool there, const float *at)
{
    float4 f;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
                 "@p ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4]; }"
                 : "=&f"(f.x), "=&f"(f.y), "=&f"(f.z), "=&f"(f.w)
                 : "l"(at), "r"((int)there));
    return f;
}

struct partials_part {
    uint32_t group0, row0; /* first group; first row in the merged output */
};
struct partials {
    const float *p;                  /* [block][segs][cols][a group's rows]; NULL = none */
    uint32_t cols, log_rows, n_kblk; /* log_rows: log2 of a group's rows */
    uint32_t per;                    /* records that a block takes */
    uint32_t per_magic, kblk_magic;  /* fastdiv_magic() of per and n_kblk */
    uint32_t segs;                   /* groups that a block may have a share in */
    uint32_t n_part;
    uint32_t glu; /* > 0: gate and up share tiles, 8 rows each, and up's rows begin here in the merged output */
    float by;     /* factor of the product, bias included, where it is added to the residual stream */
    struct partials_part part[3];

    /* Where the partial sums of rows o .. o + 3 (o % 4 == 0) of the merged output are, for column col; it can be
     * computed before they are written. n is 0 where there is no product. */
    struct place {
        const float *first, *later;
        uint64_t step;
        int n; /* partial sums */
    };
    __device__ place at(uint32_t col, uint32_t o) const
    {
        uint32_t up = glu && o >= glu;
        if (!p)
            return {NULL, NULL, 0, 0};
        partials_part of = part[0]; /* constant indices only: otherwise the struct would be placed in local memory */
        of = n_part > 1 && o >= part[1].row0 ? part[1] : of;
        of = n_part > 2 && o >= part[2].row0 ? part[2] : of;
        uint32_t row = o - of.row0;
        if (glu) {
            row -= up * glu;
            row = (row & ~7u) * 2 + (row & 7) + up * 8;
        }
        uint32_t group = of.group0 + (row >> log_rows), piece = cols << log_rows, first = group * n_kblk,
                 b = fastdiv(first, per_magic), last = fastdiv(first + n_kblk - 1, per_magic),
                 seg = group - fastdiv(b * per, kblk_magic);
        const float *at = p + ((uint64_t)col << log_rows) + (row & ((1u << log_rows) - 1));
        uint64_t step = (uint64_t)segs * piece; /* later blocks begin with this group */
        return {at + (uint64_t)(b * segs + seg) * piece, at + (b + 1) * step, step, (int)(last - b + 1)};
    }
    /* Their sum, in the order of the blocks; zeros if not `real`. AT_ONCE loads are in flight together. */
    template <int AT_ONCE = 4> __device__ static float4 sum(const place &w, bool real = true)
    {
        int n = real ? w.n : 0;
        const float *at = w.later;
        float4 t = load_if(n > 0, w.first);
        int left = n - 1;
#pragma unroll 1
        do {
            float4 v[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                v[j] = load_if(j < left, at + j * w.step);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                t.x += v[j].x, t.y += v[j].y, t.z += v[j].z, t.w += v[j].w;
            left -= AT_ONCE, at += AT_ONCE * w.step;
        } while (left > 0);
        return t;
    }
    __device__ float4 four(uint32_t col, uint32_t o) const
    {
        return sum(at(col, o));
    }
};

/*
 * Offset, in halves, of element k of a row among `rows` rows: [record][half][8 k16 steps][2][rows][8]. Sixteen bytes of
 * a row are what the four lanes t of a quad read in half of a step; which k these are depends on the type's order:
 *   0 (Q4_K, Q5_K): step 2u + up of half p, piece c, lane t: k 64t + 32up + 16p + 4u + {c, c + 2}
 *   1 (Q6_K, Q4_0; eight.cuh for all types): step s of half p, piece c, lane t: k 128p + 16s + 4t + {c, c + 2}
 */
__host__ __device__ static inline uint32_t wg_at(uint32_t order, uint32_t rows, uint32_t row, uint32_t k)
{
    uint32_t c = k & 1, i = k >> 1 & 1, p, step, t;
    if (order == 0)
        t = k >> 6 & 3, p = k >> 4 & 1, step = (k >> 2 & 3) * 2 + (k >> 5 & 1);
    else
        t = k >> 2 & 3, p = k >> 7 & 1, step = k >> 4 & 7;
    return (((((k >> 8) * 2 + p) * 8 + step) * 2 + c) * rows + row) * 8 + 2 * t + i;
}

#endif
