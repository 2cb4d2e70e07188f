/*
 * elem.h - the specification of operations on one element or one set of lanes; scalar, for the reference and for the
 * tails of the tuned variants.
 */
#ifndef HEARTH_CPU_ELEM_H
#define HEARTH_CPU_ELEM_H

#include "kernels/cpu/cpu.h"
#include "kernels/fmath.h"

/* Adds up the lanes' sums by a fixed tree; s is overwritten. */
static inline float lanes_sum(float *s)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            s[l] += s[l + half];
    return s[0];
}

/* NaN is propagated here and below: the logits of a model with NaN weights must show it. fm_exp(NaN) is e^88. */
static inline float elem_exp(float x)
{
    return isnan(x) ? x : fm_exp(x);
}

static inline float elem_sigmoid(float x)
{
    return 1.0f / (1.0f + elem_exp(-x));
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written with the sigmoid: (1 + tanh u) / 2 = sigmoid(2u). */
static inline float elem_gelu(float x)
{
    float u = fmaf(x * x, 0.044715f * 1.5957691216f, 1.5957691216f) * x;
    return x * elem_sigmoid(u);
}

static inline float elem_oai(float gate, float up)
{
    float g = gate > 7.0f ? 7.0f : gate, u = up > 7.0f ? 7.0f : up;
    u = u < -7.0f ? -7.0f : u;
    return g * elem_sigmoid(1.702f * g) * (u + 1.0f);
}

static inline float elem_glu(enum glu_kind kind, float gate, float up)
{
    switch (kind) {
    case GLU_SWIGLU:
        return gate * elem_sigmoid(gate) * up;
    case GLU_GEGLU:
        return elem_gelu(gate) * up;
    case GLU_GELU:
        return elem_gelu(up);
    case GLU_OAI:
        return elem_oai(gate, up);
    case GLU_RELU2:
        break;
    }
    float r = up < 0.0f ? 0.0f : up;
    return r * r;
}

/* cap * tanh(x / cap), with tanh u = 1 - 2 / (e^2u + 1). */
static inline float elem_softcap(float x, float cap)
{
    float u = x / cap;
    return cap * (1.0f - 2.0f / (elem_exp(u + u) + 1.0f));
}

/* Columns [j0, d_v) of one token of a delta net: updates S, then y = S^T q. */
static inline void elem_delta(float *restrict s, uint32_t d_k, uint32_t d_v, uint32_t j0, const float *restrict q,
                              const float *restrict k, const float *restrict v, float keep, float beta,
                              float *restrict y)
{
    float change[STATE_D_MAX];
    for (uint32_t j = j0; j < d_v; j++)
        change[j] = y[j] = 0.0f;
    for (uint32_t i = 0; i < d_k; i++) {
        float *row = s + (size_t)i * d_v, by = k[i];
        for (uint32_t j = j0; j < d_v; j++) {
            row[j] *= keep;
            change[j] += row[j] * by;
        }
    }
    for (uint32_t j = j0; j < d_v; j++)
        change[j] = (v[j] - change[j]) * beta;
    for (uint32_t i = 0; i < d_k; i++) {
        float *row = s + (size_t)i * d_v, by = k[i], of = q[i];
        for (uint32_t j = j0; j < d_v; j++) {
            row[j] += by * change[j];
            y[j] += row[j] * of;
        }
    }
}

/* Columns [j0, d_head) of one token of Mamba-2: updates S, then y = S^T c + skip x, which overwrites x. */
static inline void elem_mamba2(float *restrict s, uint32_t d_state, uint32_t d_head, uint32_t j0,
                               const float *restrict b, const float *restrict c, float keep, float length, float skip,
                               float *restrict x)
{
    float y[STATE_D_MAX];
    for (uint32_t j = j0; j < d_head; j++)
        y[j] = 0.0f;
    for (uint32_t i = 0; i < d_state; i++) {
        float *row = s + (size_t)i * d_head, by = length * b[i], of = c[i];
        for (uint32_t j = j0; j < d_head; j++) {
            row[j] = row[j] * keep + by * x[j];
            y[j] += row[j] * of;
        }
    }
    for (uint32_t j = j0; j < d_head; j++)
        x[j] = y[j] + skip * x[j];
}

static inline void elem_rope(enum rope_kind kind, const float *cs, uint32_t n_rot, float *v, uint32_t n_head,
                             uint32_t d_head)
{
    uint32_t pair = kind == ROPE_NORM ? 2 : 1, other = kind == ROPE_NORM ? 1 : n_rot / 2;
    for (uint32_t h = 0; h < n_head; h++, v += d_head)
        for (uint32_t i = 0; i < n_rot / 2; i++) {
            float c = cs[2 * i], s = cs[2 * i + 1], a = v[pair * i], b = v[pair * i + other];
            v[pair * i] = fmaf(a, c, -(b * s));
            v[pair * i + other] = fmaf(a, s, b * c);
        }
}

#endif
