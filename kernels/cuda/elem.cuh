/* elem.cuh - functions on single elements, for kernels: the counterpart of kernels/cpu/elem.h. */
#ifndef HEARTH_CUDA_ELEM_CUH
#define HEARTH_CUDA_ELEM_CUH

#include <cuda_fp16.h>
#include <stdint.h>

extern "C" {
#include "kernels/op.h"
}

/* Maximum and minimum that propagate NaN, which fmaxf and fminf would drop: the logits of a model with NaN weights must
 * show it. */
__device__ static inline float max_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a > b || isnan(a) ? a : b;
#endif
}
__device__ static inline float min_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a < b || isnan(a) ? a : b;
#endif
}

/* f32 to fp16, saturating; NaN stays NaN. */
__device__ static inline __half half_sat(float v)
{
    return __float2half_rn(min_nan(max_nan(v, -65504.f), 65504.f));
}

/* cos and sin of pos * inv_freq. The specification computes the angle in double; here it is a pair of floats, reduced
 * by 2 pi in three parts: an absolute error of 2^-21 is small enough where Q and K are fp16. */
__device__ static inline void rope_sincos(float pos, float inv_freq, float *s, float *c)
{
    float a = pos * inv_freq, low = fmaf(pos, inv_freq, -a), k = rintf(a * 0.15915494309189535f);
    a = fmaf(-k, 6.28125f, a);
    a = fmaf(-k, 1.9350051879882812e-3f, a);
    a = fmaf(-k, 3.0199159819567e-7f, a) + low;
    *s = __sinf(a), *c = __cosf(a);
}

/* The specification's activations (kernels/cpu/elem.h) to f32 accuracy. */
__device__ static inline float act_sigmoid(float x)
{
    return 1.f / (1.f + __expf(-x));
}
__device__ static inline float act_gelu(float x)
{
    return x * act_sigmoid(fmaf(x * x, 0.044715f * 1.5957691216f, 1.5957691216f) * x);
}
__device__ static inline float glu_act(enum glu_kind glu,
                                       float gate) /* to be multiplied by up; without a gate, `gate` is up itself */
{
    if (glu == GLU_RELU2) {
        float x = max_nan(gate, 0.f);
        return x * x;
    }
    return glu == GLU_SWIGLU ? gate * act_sigmoid(gate) : act_gelu(gate);
}
/* glu_gated(), for kernels too. */
__host__ __device__ static inline bool has_gate(enum glu_kind glu)
{
    return glu == GLU_SWIGLU || glu == GLU_GEGLU || glu == GLU_OAI;
}
/* act(gate) * up, or GLU_OAI's combination; without a gate, `gate` is the up projection and `up` is 1. */
__device__ static inline float glu_of(enum glu_kind glu, float gate, float up)
{
    if (glu == GLU_OAI) {
        float g = min_nan(gate, 7.f), u = max_nan(min_nan(up, 7.f), -7.f);
        return g * act_sigmoid(1.702f * g) * (u + 1.f);
    }
    return glu_act(glu, gate) * up;
}
__device__ static inline float act_softcap(float x, float cap)
{
    return cap * tanhf(x / cap);
}

/* op_qkv.temperature, passed to kernels by value, and the factor of queries at a position. */
struct attend_temperature {
    float beta;
    uint32_t length;
};
static inline struct attend_temperature temperature_of(const struct op_qkv *op)
{
    return {op->temperature.beta, op->temperature.length};
}
__device__ static inline float temperature_at(const struct attend_temperature &t, uint32_t pos)
{
    return fmaf(t.beta, logf((float)(1 + pos / t.length)), 1.f);
}

#endif
