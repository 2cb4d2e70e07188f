/*
 * recur.cuh - what the kernels of a recurrence share: those for prompts (recur.cu), and those for decode steps of a
 * delta net (decode.cu), which are bit-identical.
 */
#ifndef HEARTH_CUDA_STATES_RECUR_CUH
#define HEARTH_CUDA_STATES_RECUR_CUH

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/states/states.cuh"

enum { CHUNK_LEAST = 32 /* rows of a sequence in a step from which on chunk.cu takes it */ };

struct recur_args {
    state_view state;
    struct state_conv conv;
    uint32_t n_channel, n_k, n_v, d_k, d_v;
    bool delta, tiled, paired;
    uint32_t chunks;  /* chunks of the step's sequences that go through chunk.cu */
    const float *mix; /* ACT_MIX; at_conv, at_gate and at_z are columns in it */
    uint32_t ldmix, at_conv, at_gate, at_z;
    float *made; /* [rows][ldmade]: the channels after the convolution, in which v is replaced by y; 2 n_v gates; n_k
                    products k . q */
    uint32_t ldmade, at_q, at_k, at_v;
    const float *decay, *dt_bias, *skip;
    struct norm norm;
    uint32_t norm_cols; /* columns of one norm */
    float unit_q;       /* 1 / sqrt(d_k), by which a delta net's q is multiplied */
    uint32_t span;      /* columns that a block of `finish` handles */
    act_buf out;
};

/* --- gates ------------------------------------------------------------------------------------------------------ */

/* log(1 + exp(x)) */
__device__ static inline float softplus(float x)
{
    return x > 20.f ? x : log1pf(expf(x));
}

/* Returns keep - 1, the relative loss of S in a row (at most 0), and the factor of S's change: with `delta` sigmoid(b),
 * else the step's length. One function for all kernels, never inlined, because library functions may be fused with the
 * code around them. */
__device__ static __noinline__ float2 gates_of(bool delta, float b, float x, float decay)
{
    float length = softplus(x);
    return make_float2(expm1f(__fmul_rn(decay, length)), delta ? __frcp_rn(__fadd_rn(1.f, expf(-b))) : length);
}
/* The places of a head's two inputs among the gates' columns; Mamba-2 has only one. */
__device__ static inline uint2 gates_at(const recur_args &a, uint32_t head)
{
    uint32_t each = a.n_v / a.n_k;
    if (a.paired)
        return make_uint2(head / each * 2 * each + head % each, head / each * 2 * each + each + head % each);
    return make_uint2(head, a.delta ? a.n_v + head : head);
}
__device__ static inline float2 head_gates(const recur_args &a, const float *mix, uint32_t head)
{
    uint2 at = gates_at(a, head);
    const float *g = mix + a.at_gate;
    return gates_of(a.delta, __ldcg(g + at.x), __fadd_rn(__ldcg(g + at.y), a.dt_bias[head]), a.decay[head]);
}

/* --- chunks ------------------------------------------------------------------------------------------------------ */

/* Whether a sequence's rows of this step go through chunk.cu. */
__device__ static inline bool in_chunks(const recur_args &a, uint32_t n_row)
{
    return a.chunks && n_row >= CHUNK_LEAST;
}

/* --- the convolution --------------------------------------------------------------------------------------------- */

/* Writes the convolution's state after n_row rows, for this block's share of the channels. */
__device__ static inline void leave_inputs(const recur_args &a, const float *from, float *to, uint32_t row0,
                                           uint32_t n_row, uint32_t share, uint32_t shares)
{
    uint32_t before = a.conv.n_tap - 1, c0 = (uint32_t)((uint64_t)a.n_channel * share / shares),
             c1 = (uint32_t)((uint64_t)a.n_channel * (share + 1) / shares);
    for (uint32_t c = c0 + threadIdx.x; c < c1; c += blockDim.x)
        for (uint32_t k = 0; k < before;
             k++) { /* ascending: inputs that are read here lie after those overwritten so far */
            uint32_t i = n_row + k;
            to[(uint64_t)k * a.n_channel + c] =
                i >= before ? __ldcg(a.mix + (uint64_t)(row0 + i - before) * a.ldmix + a.at_conv + c)
                : from      ? from[(uint64_t)i * a.n_channel + c]
                            : 0.f;
        }
}

/* --- the recurrence --------------------------------------------------------------------------------------------- */

/* Reads shared memory once more, so that the values need not stay in registers. */
__device__ static inline float4 read_again(const float *at)
{
    float4 f;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w)
                 : "r"(smem_of(at)));
    return f;
}

/* A quarter of a column of S: rows g NR .. g NR + NR - 1, in lane 8 g + column. */
template <int NR> struct column {
    float s[NR];

    /* Advances S by a row of the step. k_of and q_of point to the quarter's elements in shared memory, aligned to 16
     * bytes. Returns y, in all four lanes of a column. less: keep - 1. REREAD: k is read once more instead of kept in
     * registers. */
    template <bool DELTA, bool REREAD = false>
    __device__ inline float step(const float *k_of, const float *q_of, float v, float less, float gate, float kq)
    {
        float k[NR], sk[2] = {0, 0}, sq[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < NR; i += 4) {
            float4 kk = *(const float4 *)(k_of + i), qq = *(const float4 *)(q_of + i);
            k[i] = kk.x, k[i + 1] = kk.y, k[i + 2] = kk.z, k[i + 3] = kk.w;
            if (DELTA) {
                sk[0] = __fmaf_rn(s[i], kk.x, sk[0]), sk[1] = __fmaf_rn(s[i + 1], kk.y, sk[1]);
                sk[0] = __fmaf_rn(s[i + 2], kk.z, sk[0]), sk[1] = __fmaf_rn(s[i + 3], kk.w, sk[1]);
            }
            sq[0] = __fmaf_rn(s[i], qq.x, sq[0]), sq[1] = __fmaf_rn(s[i + 1], qq.y, sq[1]);
            sq[0] = __fmaf_rn(s[i + 2], qq.z, sq[0]), sq[1] = __fmaf_rn(s[i + 3], qq.w, sq[1]);
        }
        float change, a = __fadd_rn(sk[0], sk[1]), b = __fadd_rn(sq[0], sq[1]);
        if (DELTA)
            a = __fadd_rn(a, __shfl_xor_sync(~0u, a, 8));
        b = __fadd_rn(b, __shfl_xor_sync(~0u, b, 8));
        if (DELTA)
            a = __fadd_rn(a, __shfl_xor_sync(~0u, a, 16));
        b = __fadd_rn(b, __shfl_xor_sync(~0u, b, 16));
        change = __fmul_rn(gate, DELTA ? __fsub_rn(v, __fmaf_rn(less, a, a)) : v);
#pragma unroll
        for (int i = 0; i < NR; i += 4) {
            float4 f = REREAD ? read_again(k_of + i) : make_float4(k[i], k[i + 1], k[i + 2], k[i + 3]);
            s[i] = __fmaf_rn(f.x, change, __fmaf_rn(s[i], less, s[i]));
            s[i + 1] = __fmaf_rn(f.y, change, __fmaf_rn(s[i + 1], less, s[i + 1]));
            s[i + 2] = __fmaf_rn(f.z, change, __fmaf_rn(s[i + 2], less, s[i + 2]));
            s[i + 3] = __fmaf_rn(f.w, change, __fmaf_rn(s[i + 3], less, s[i + 3]));
        }
        return __fmaf_rn(kq, change, __fmaf_rn(less, b, b));
    }

    /* Loads from a head's S at `at`, [d_k, d_v]; NULL: zeros. */
    __device__ inline void load(const float *at, uint32_t first, uint32_t d_k, uint32_t col, uint32_t d_v)
    {
#pragma unroll
        for (int i = 0; i < NR; i++)
            s[i] = at && first + i < d_k && col < d_v ? __ldcg(at + (uint64_t)(first + i) * d_v + col) : 0.f;
    }
    __device__ inline void store(float *at, uint32_t first, uint32_t d_k, uint32_t col, uint32_t d_v) const
    {
#pragma unroll
        for (int i = 0; i < NR; i++)
            if (first + i < d_k && col < d_v)
                at[(uint64_t)(first + i) * d_v + col] = s[i];
    }
};

/* Places a vector's quarters so that the 16-byte loads of four lanes hit different banks. */
template <int NR> __device__ static inline uint32_t quarter_at(uint32_t i)
{
    return i / NR * (NR + 4) + i % NR;
}

/* 1 / sqrt(mean + eps) */
__device__ static inline float norm_factor(float mean, float eps)
{
    return __frcp_rn(__fsqrt_rn(__fadd_rn(mean, eps)));
}

/* Whether decode.cu's single kernel can run this decode step of a delta net; and its launch. */
bool delta_decodes(const struct device *d, const recur_args &a);
void delta_decode_run(struct device *d, const recur_args &a);

/* chunk.cu: returns the number of chunks of the step's sequences that go through it, and sets *others to the number of
 * the other sequences; and the launches that replace `prepare` and `scan` for the former. */
uint32_t delta_chunks(const struct device *d, const recur_args &a, uint32_t *others);
void delta_chunks_run(struct device *d, const recur_args &a);

#endif
