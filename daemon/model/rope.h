/*
 * rope.h - the rotary position embedding (RoPE) that a file specifies: its scaling, and the resulting frequencies.
 */
#ifndef HEARTH_ROPE_H
#define HEARTH_ROPE_H

#include <stdbool.h>
#include <stdint.h>

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONG /* longrope: a factor for each frequency, one set for short contexts, one for long ones */
};

struct rope_params {
    enum rope_scaling scaling;
    float base;
    float factor;               /* linear, YaRN: the ratio of the extended context to the original one */
    uint32_t original;          /* YaRN, longrope: the context in training before the extension; in tokens */
    float beta_fast, beta_slow; /* YaRN: rotations within the original context at the two ends of the ramp */
    float extrapolation;        /* YaRN: weight of the ramp (llama.cpp's yarn_ext_factor); normally 1 */
    bool exact_bounds;          /* YaRN: the ramp's ends are not rounded to whole dimensions */
    float scale;                /* multiplies cos and sin (the attention factor) */
    /* Sliding-window layers have frequencies of their own, without the factors in the file's tensors. */
    bool apart;
};

/* The parameters of RoPE with that base and no scaling, for sliding-window layers. */
struct rope_params rope_plain(float base);

/* YaRN's attention factor, by which cos and sin are multiplied, for contexts `factor` times as long. */
float rope_yarn_mscale(float factor, float mscale);
/* Longrope's attention factor, from the ratio of the contexts. */
float rope_long_scale(float factor, uint32_t original);

/* Fills freq[i], in radians per position, for the pairs i < n_rot / 2. `divide`: a divisor for each, or NULL. */
void rope_frequencies(const struct rope_params *p, uint32_t n_rot, const float *divide, float *freq);

#endif
