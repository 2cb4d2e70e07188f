/*
 * tile16.cuh - the weights' layout on the GPU and the arithmetic on it: tiles of 16 rows x k-blocks of 256, by type.
 *
 * A tile is 16 rows of a matrix over all of K. A k-block is 256 k of a tile, in FRAGS fragments (1 for the small
 * types). A fragment is what a warp turns into mma.m16n8k16 A operands at once, and is a permutation of the file's bits
 * (int8 scales and Q8_0 have their sign bit flipped). Lane L = g << 2 | t of a warp works for rows g and g + 8.
 *
 * K is cut into K_SLICES slices, runs of whole k-blocks, as a function of the matrix alone: slice c has n/8 k-blocks,
 * and the first n%8 slices have one more. A row's sum is formed within a slice in k order and then over the slices in
 * order, however the slices are distributed: one warp taking one after the other, eight warps, or eight blocks. That is
 * why a row's bits depend neither on the batch nor on the grid. Fragments lie in the order in which eight warps, a
 * slice each, read them (t16_frag_at), so that a pipeline stage of the decode kernel is one contiguous copy.
 *
 * The form of a fragment and the operations on it are in the type's own file, quant/q5_k.cuh and its sisters, as struct
 * quant<DT_Q5_K> (below). There "half h" is row g (0) or g + 8 (1), and a plane is 512 bytes, 16 for each lane.
 */
#ifndef HEARTH_CUDA_GEMM_TILE16_CUH
#define HEARTH_CUDA_GEMM_TILE16_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/fastdiv.cuh"
#include "kernels/cuda/ptx.cuh"

enum { K_SLICES = 8 };

/* How often the loop over a fragment's halves is unrolled: fully for one n-tile, for fewer instructions; not for more,
 * for fewer registers. */
template <int NT> struct unroll {
    static constexpr int value = NT == 1 ? 2 : 1;
};

/* First k-block of slice c. */
__host__ __device__ static inline uint32_t t16_slice(uint32_t n_kblk, uint32_t c)
{
    uint32_t base = n_kblk / K_SLICES, rem = n_kblk % K_SLICES;
    return c * base + (c < rem ? c : rem);
}
/* Offset within a tile, in fragments, of fragment q of k-block r. */
__host__ __device__ static inline uint32_t t16_frag_at(uint32_t n_kblk, uint32_t per, uint32_t r, uint32_t q)
{
    uint32_t base = n_kblk / K_SLICES, rem = n_kblk % K_SLICES, big = rem * (base + 1);
    uint32_t c = r < big ? r / (base + 1) : rem + (r - big) / base;
    uint32_t step = r - t16_slice(n_kblk, c);
    return step < base ? (step * per + q) * K_SLICES + c : base * per * K_SLICES + q * rem + c;
}

/* The same with what a launcher has computed of n_kblk, without a division by it. */
struct t16_order {
    uint32_t base, rem;              /* k-blocks of a slice; slices that have one more */
    uint32_t base_magic, more_magic; /* fastdiv_magic() of base, if it is not 0, and of base + 1 */
};
static inline t16_order t16_order_of(uint32_t n_kblk)
{
    uint32_t base = n_kblk / K_SLICES;
    return {base, n_kblk % K_SLICES, base ? fastdiv_magic(base) : 0, fastdiv_magic(base + 1)};
}
__device__ static inline uint32_t t16_frag_at(const t16_order &o, uint32_t per, uint32_t r, uint32_t q)
{
    uint32_t big = o.rem * (o.base + 1),
             c = r < big ? fastdiv(r, o.more_magic) : o.rem + fastdiv(r - big, o.base_magic),
             step = r - c * o.base - min(c, o.rem);
    return step < o.base ? (step * per + q) * K_SLICES + c : o.base * per * K_SLICES + q * o.rem + c;
}

/* Walks the k-blocks in k order and gives their offsets, without a division for each. */
struct t16_walk {
    uint32_t base, rem, slice, step;
    __device__ explicit t16_walk(uint32_t n_kblk) : base(n_kblk / K_SLICES), rem(n_kblk % K_SLICES), slice(0), step(0)
    {
    }
    /* t16_frag_at() of the current k-block */
    __device__ uint32_t frag(uint32_t per, uint32_t q) const
    {
        return step < base ? (step * per + q) * K_SLICES + slice : base * per * K_SLICES + q * rem + slice;
    }
    __device__ void next()
    {
        if (++step == base + (slice < rem))
            step = 0, slice++;
    }
};

/* --- arithmetic ------------------------------------------------------------------------------------------------ */

__device__ static inline uint32_t lop_or(uint32_t w, uint32_t mask, uint32_t magic) /* (w & mask) | magic, one LOP3 */
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(w), "r"(mask), "r"(magic));
    return r;
}
__device__ static inline uint32_t h2fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__device__ static inline uint32_t h2mul(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ static inline uint32_t h2sub(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
/* a b - c, without a rounding before the difference */
__device__ static inline uint32_t h2fms(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("{ .reg .b32 n; neg.f16x2 n, %3; fma.rn.f16x2 %0, %1, %2, n; }" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__device__ static inline uint32_t h2of(float lo, float hi)
{
    uint32_t r;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
#else /* Turing converts one value at a time, with the same bits */
    asm("{ .reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b}; }"
        : "=r"(r)
        : "f"(lo), "f"(hi));
#endif
    return r;
}

/* acc += s * q, rows g and g + 8 by their own factors; always fused, so that every instantiation rounds alike. */
__device__ static inline void add_scaled(float *acc, const float *q, float sg, float sh)
{
    acc[0] = __fmaf_rn(sg, q[0], acc[0]), acc[1] = __fmaf_rn(sg, q[1], acc[1]);
    acc[2] = __fmaf_rn(sh, q[2], acc[2]), acc[3] = __fmaf_rn(sh, q[3], acc[3]);
}

/*
 * Activations of a k-block as a lane addresses them: its column's row of the prepared form (act.cuh), with `step`
 * halves from one n-tile of 8 columns to the next.
 */
struct xfrag {
    const __half *x, *sum;
    uint32_t step, sum_step;
    __device__ uint4 eight(int nt, uint32_t at) const
    {
        return *(const uint4 *)(x + nt * step + at);
    }
    __device__ uint2 four(int nt, uint32_t s, uint32_t t) const /* k 16s + 4t + 0..3 */
    {
        return *(const uint2 *)(x + nt * step + (s >> 2) * XFRAG_GROUP + (s & 3) * 16 + 4 * t);
    }
};

template <int NT> __device__ static inline void zero(float (&a)[NT][4])
{
#pragma unroll
    for (int n = 0; n < NT; n++)
        a[n][0] = a[n][1] = a[n][2] = a[n][3] = 0;
}

__device__ static inline void four_of(uint32_t *o, uint4 v)
{
    o[0] = v.x, o[1] = v.y, o[2] = v.z, o[3] = v.w;
}

__device__ static inline void two_of(uint32_t *o, uint2 v)
{
    o[0] = v.x, o[1] = v.y;
}

/* A six-bit integer as fp16 in both halves. */
__device__ static inline uint32_t six(uint32_t v)
{
    v &= 63;
    return h2sub((v | v << 16) | 0x64006400u, 0x64006400u);
}

/* Byte i of w, flipped sign, as a float: 2^23 + (v + 128) less 2^23 + 128. */
__device__ static inline float f32_of_i8(uint32_t w, int i)
{
    return __fadd_rn(__uint_as_float(__byte_perm(w, 0x4B000000u, 0x7440 | i)), -8388736.f);
}

__device__ static inline uint32_t both(float v)
{
    return h2of(v, v);
}
/* One half of v in both. As an operand of arithmetic on halves it costs no instruction, unlike a PRMT, since these can
 * take one half of a register twice. */
__device__ static inline uint32_t twice(uint32_t v, int half)
{
    uint32_t r;
    if (half)
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h}; }" : "=r"(r) : "r"(v));
    else
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l}; }" : "=r"(r) : "r"(v));
    return r;
}
__device__ static inline float low(uint32_t v)
{
    return __half2float(__ushort_as_half((uint16_t)v));
}

constexpr float TWO24 = 16777216; /* times a subnormal half: its bits */
constexpr float F16_MAX = 65504;

/* A small integer as a float without the conversion unit, which is slow. */
__device__ static inline float small_float(uint32_t q)
{
    return __uint_as_float(0x4b000000u | q) - 8388608.f;
}

/*
 * The scales (below) of a lane's rows g and g + 8, each as two halves whose product is 2^24 divided by the scale: that
 * may be beyond the range of one half.
 */
struct t16_row_scales {
    uint32_t g, h;

    __device__ static uint32_t scaled(uint32_t v, uint32_t by)
    {
        return h2mul(h2mul(v, twice(by, 0)), twice(by, 1));
    }
    __device__ uint32_t of_g(uint32_t v) const
    {
        return scaled(v, g);
    }
    __device__ uint32_t of_h(uint32_t v) const
    {
        return scaled(v, h);
    }
};
/* t16_row_scale_halves() returns these two halves for a scale of 2^e, -6 <= e <= 31; t16_row_scale() the scale. */
__device__ static inline uint32_t t16_row_scale_halves(int e)
{
    int first = min(24 - e, 15), second = 24 - e - first;
    return (uint32_t)(first + 15) << 10 | (uint32_t)(second + 15) << 26;
}
__device__ static inline float t16_row_scale(uint32_t halves)
{
    return __uint_as_float((127 + 24 + 2 * 15 - (halves >> 10 & 31) - (halves >> 26)) << 23);
}

/* --- the form of a type ---------------------------------------------------------------------------------------- */

/*
 * quant<T> is all that the GPU knows of a type; kernels use its members and have no switch on the type.
 *
 * Of the file's rows:  at(row, k), one weight as f32 (as dtype.h's to_f32; speed does not matter).
 * Of the fragment:     FRAGS per k-block, of FRAG_BYTES (a multiple of 16) each; frag_of(k), the one with element k;
 *                      pack(slice, tile, k-block, fragment, w), its w-th word, from the rows that the slice holds;
 *                      unpack(fragment, h, g, k, out), elements k .. k + 7 of a row as f32, bit-identical to at();
 *                      where EXPAND: expand(), eight rows as fp16 for cublaslt.cu's copies, faster than unpack().
 * Of its arithmetic:   mul<NT>(), a fragment times fp16 activations, sums in f32 (skinny.cuh);
 *                      where INT8: mul_int<M>(), the same times 16-bit integers as two planes of int8 (gemv.cuh);
 *                      where WGMMA: wg, the fragment as fp16 registers for wgmma, k ordered by WG_ORDER
 *                      (split_k.cuh).
 *
 * Nothing outside assumes what a weight is made of: scales per 32 or per 16 weights, mins (sums of activations are
 * available as xfrag.sum, IX_S32 and IX_S16), whether an integer sum fits, or "1024 + q" as the conversion from bits to
 * fp16 are each type's own matter. A codebook (IQ4_NL, MXFP4) is a table in which mul() looks nibbles up (__byte_perm),
 * as are its int8 values in mul_int(); an E8M0 scale is the exponent of an f32. A type may leave INT8 and WGMMA out:
 * skinny.cuh serves it then.
 *
 * A type without kernels of its own is `struct quant<T> : quant_expanded`: to_f32 turns its weights into fp16 once, as
 * they are uploaded, and it is multiplied as F16 (quant_has_kernels() tells which types those are).
 */
template <int T> struct quant;

struct quant_own {
    static constexpr bool OWN = true, INT8 = false, WGMMA = false, EXPAND = false;
    static constexpr bool COLS16 = false; /* whether gemm_skinny has a variant of 16 columns for it */
    static constexpr int WG_ORDER = 0;
    static constexpr bool WG_ROW_SCALES = false, WG_QUICK = false;
    __host__ __device__ static constexpr uint32_t frag_of(uint32_t)
    {
        return 0;
    }
};
struct quant_expanded {
    static constexpr bool OWN = false, INT8 = false, WGMMA = false, EXPAND = false;
    static constexpr uint32_t FRAGS = 0, FRAG_BYTES = 0;
    static constexpr int WG_ORDER = 0;
    static constexpr bool WG_ROW_SCALES = false, WG_QUICK = false;
};

/*
 * quant<T>::wg, for wgmma. A k-block's halves, 128 k each, are made of planes: PLANES per half, FRAG per fragment. A
 * plane is what a lane loads at once, and has PAIRS pairs of k16 steps. open(): the state of a fragment; plane(): its
 * p-th plane; word(): the wgmma fragments of a plane's v-th pair; step(): where the i-th step of that pair is in its
 * half, of which the plane is the p-th.
 *
 * Where ROW_SCALES, the fp16 weights of a row are divided by a power of two, the row's scale, by which its
 * sums are multiplied in the end, exactly. So factors of integers that are taken for subnormal halves, which are 2^24
 * times as large as those of integers, stay in the range of fp16. wg_row_scale_min() returns the smallest number that a
 * row's scale may be for a fragment; open() takes those of the lane's rows.
 * quant<T>::WG_ROW_SCALES: one of the type's structs has them.
 *
 * Where quant<T>::WG_QUICK, there is also quant<T>::wg_quick, with fewer instructions and more rounding, for steps
 * whose bits are free.
 */
struct wg_whole { /* a half is a plane, a k-block a fragment */
    static constexpr bool ROW_SCALES = false;
    enum { PLANES = 1, FRAG = 2, PAIRS = 4 };
    __device__ static constexpr int step(int, int v, int i)
    {
        return 2 * v + i;
    }
};

#endif
