/*
 * tail.cuh - what follows the product q|k|v, head by head: bias, norm, RoPE and the rotation of KV, the temperature of
 * queries; and storing K and V. A warp does one head of a row, or each half of it one head: epilogue.cu's kernel does
 * the heads of a step, attention (attend/decode.cu) those of the item that it starts. Both are bit-identical.
 *
 * LANES: lanes per head, a warp or half of one; `lane` counts within these.
 */
#ifndef HEARTH_CUDA_GEMM_TAIL_CUH
#define HEARTH_CUDA_GEMM_TAIL_CUH

#include "kernels/cuda/gemm/rows.cuh"
#include "kernels/cuda/kv_q8.cuh"

struct qkv_epilogue_args {
    uint32_t n_head, n_kv, d_head, row0;
    float *gates; /* ACT_MIX, [rows][ldgates], where each head's query is followed by its gate; else NULL */
    uint32_t ldgates;
    const float *bias;
    struct norm norm[3]; /* of q, k, v; w NULL = none */
    uint32_t n_part;     /* parts of the product: 2, values are keys before norm and RoPE; 1, only queries */
    struct rope rope;
    struct attend_temperature temperature;
    __half *q;
    uint32_t ldq;
    kv_view kv;
    const step_dev *s;
    const uint32_t *kv_slot; /* of the op's layer group */
    bool q8;                 /* KV is of Q8_0 */
    float *x;                /* ACT_X */
    uint32_t ldx;
};
/* epilogue.cu: the tail of an op whose norms are of single heads. */
qkv_epilogue_args qkv_epilogue_args_of(struct device *d, const struct op_qkv *op);

/* A head in shared memory: its values, the sine and cosine of its rotations, and, where a warp has one head, its norm's
 * weights. It takes [3 d_head rounded up to fours] floats; for half a warp [2 d_head] rounded up likewise. */
struct head_room {
    float *v;
    float2 *turn;
    float *gain;
};
__device__ static inline head_room head_room_at(float *room, uint32_t d)
{
    uint32_t padded = (d + 3) & ~3u;
    return {room, (float2 *)(room + padded), room + 2 * padded};
}
/* The mask of the lanes that share the calling lane's head. */
template <uint32_t LANES> __device__ static inline uint32_t head_lanes()
{
    return LANES == 32 ? ~0u : 0xffffu << (threadIdx.x & 16);
}
/* f(0) + .. + f(d - 1), the same whatever LANES is. */
template <uint32_t LANES, class F> __device__ static inline float head_sum(uint32_t d, uint32_t lane, F f)
{
    float s[32 / LANES] = {};
#pragma unroll
    for (uint32_t k = 0; k < 32 / LANES; k++)
        for (uint32_t i = lane + k * LANES; i < d; i += 32)
            s[k] += f(i);
    if (LANES == 16)
        s[0] += s[32 / LANES - 1];
#pragma unroll
    for (uint32_t i = LANES / 2; i; i /= 2)
        s[0] += __shfl_xor_sync(head_lanes<LANES>(), s[0], i);
    return s[0];
}

__device__ static inline struct norm head_norm(const qkv_epilogue_args &a, uint32_t part)
{
    return part == 0 ? a.norm[0] : part == 1 ? a.norm[1] : a.norm[2];
}
__device__ static inline bool head_turns(const qkv_epilogue_args &a, uint32_t part)
{
    return part < 2 && a.rope.kind != ROPE_NONE;
}

/* Prepares what depends only on the step's rows, and the norm's weights: the rotations, so that both are ready before
 * the product is. part: 0 to 2, for q, k or v; d: a.d_head. */
template <uint32_t LANES = 32>
__device__ static inline void head_begin(const qkv_epilogue_args &a, uint32_t d, uint32_t part, uint32_t row,
                                         uint32_t at, uint32_t lane, const head_room &r)
{
    struct norm nm = head_norm(a, part);
    uint32_t half = a.rope.n_rot / 2;
    if (LANES == 32 && nm.w)
#pragma unroll 8
        for (uint32_t i = lane; i < d; i += 32)
            r.gain[i] = nm.w[i];
    if (head_turns(a, part)) {
        float pos = (float)at;
        const float *freq = rope_frequencies(a.rope, a.s, row);
#pragma unroll 1
        for (uint32_t i = lane; i < half; i += LANES) {
            float sn, cs;
            rope_sincos(pos, freq[i], &sn, &cs);
            r.turn[i] = make_float2(sn * a.rope.scale, cs * a.rope.scale);
        }
    }
}

/* Turns r.v, the product plus bias, into what attention reads. HADAMARD: KV of Q8_0 may be rotated. */
template <bool HADAMARD = true, uint32_t LANES = 32>
__device__ static inline void head_end(const qkv_epilogue_args &a, uint32_t d, uint32_t part, uint32_t at,
                                       uint32_t lane, const head_room &r)
{
    struct norm nm = head_norm(a, part);
    uint32_t half = a.rope.n_rot / 2;
    float *v = r.v;
    __syncwarp(head_lanes<LANES>());
    if (nm.w) {
        float mean = 0;
        if (nm.kind == NORM_LAYER)
            mean = head_sum<LANES>(d, lane, [&](uint32_t i) { return v[i]; }) / d;
        float squares = head_sum<LANES>(d, lane, [&](uint32_t i) { return (v[i] - mean) * (v[i] - mean); }),
              f = rsqrtf(squares / d + nm.eps);
        const float *gain = LANES == 32 ? r.gain : nm.w;
        for (uint32_t i = lane; i < d; i += LANES)
            v[i] = (v[i] - mean) * f * gain[i] + (nm.b ? nm.b[i] : 0.f);
    }
    __syncwarp(head_lanes<LANES>());
    if (head_turns(a, part)) {
        bool neox = a.rope.kind == ROPE_NEOX;
#pragma unroll 1
        for (uint32_t i = lane; i < half; i += LANES) {
            uint32_t p = neox ? i : 2 * i, q = neox ? i + half : 2 * i + 1;
            float sn = r.turn[i].x, cs = r.turn[i].y, x = v[p], y = v[q];
            v[p] = __fmaf_rn(x, cs, -__fmul_rn(y, sn)), v[q] = __fmaf_rn(x, sn, __fmul_rn(y, cs)); /* as items.cuh */
        }
        __syncwarp(head_lanes<LANES>());
        if (HADAMARD && a.rope.hadamard && lane < half / 8) { /* eight pairs per lane */
            float s[8], t[8];
            for (int i = 0; i < 8; i++) {
                uint32_t j = lane * 8 + i;
                float x = v[neox ? j : 2 * j], y = v[neox ? j + half : 2 * j + 1];
                s[i] = (x + y) * 0.25f, t[i] = (x - y) * 0.25f;
            }
            for (int k = 1; k < 8; k *= 2)
                for (int i = 0; i < 8; i++)
                    if (!(i & k)) {
                        float a0 = s[i], b0 = t[i];
                        s[i] = a0 + s[i | k], s[i | k] = a0 - s[i | k];
                        t[i] = b0 + t[i | k], t[i | k] = b0 - t[i | k];
                    }
            for (int i = 0; i < 8; i++) {
                uint32_t j = lane * 8 + i;
                v[neox ? j : 2 * j] = s[i], v[neox ? j + half : 2 * j + 1] = t[i];
            }
        }
        __syncwarp(head_lanes<LANES>());
    }
    if (part == 0 && a.temperature.beta != 0) {
        float by = temperature_at(a.temperature, at);
        for (uint32_t i = lane; i < d; i += LANES)
            v[i] *= by;
        __syncwarp(head_lanes<LANES>());
    }
}

/* Appends a row's K (part 1) or V (2) of a KV head at `slot`; NaN in V is signalled in ACT_X. */
template <uint32_t LANES = 32>
__device__ static inline void head_append(const qkv_epilogue_args &a, uint32_t d, uint32_t part, uint32_t row,
                                          uint32_t head, uint32_t slot, uint32_t lane, float *v)
{
    if (part == 2) {
        bool nan = false;
        for (uint32_t i = lane; i < d; i += LANES)
            if (isnan(v[i]) || (a.q8 && isinf(v[i])))
                nan = true, v[i] = 0;
        if (nan)
            value_is_nan(a.x + (uint64_t)row * a.ldx);
    }
    if (slot == NO_SLOT)
        return;
    if (a.q8) {
        uint8_t *tile = kv_q8_tile(a.kv, slot / KV_PAGE, head) + (part == 1 ? 0 : 2 * (uint64_t)a.kv.v_off);
        kv_q8_append(tile, d, slot, v, lane);
        return;
    }
    __half *out = part == 1 ? kv_k(a.kv, slot, head) : kv_v(a.kv, slot, head);
    for (uint32_t i = lane; i < d; i += LANES)
        out[i] = half_sat(v[i]);
}

#endif
