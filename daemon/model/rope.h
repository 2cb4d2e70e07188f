/*
 * rope.h - the rotary position embedding that a file asks for: its scaling, and the frequencies it comes to.
 */
#ifndef HEARTH_ROPE_H
#define HEARTH_ROPE_H

#include <stdbool.h>
#include <stdint.h>

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONG /* a factor for each frequency, for contexts within the original one and for longer ones */
};

struct rope_params {
    enum rope_scaling scaling;
    float base;
    float factor;               /* linear, YaRN: how much longer contexts are made */
    uint32_t original;          /* YaRN, longrope: the context that the model was trained with before; tokens */
    float beta_fast, beta_slow; /* YaRN: turns within the original context at the ends of the ramp */
    float extrapolation;        /* YaRN: how much of the ramp counts; 1 */
    bool exact_bounds;          /* YaRN: the ramp's ends are not rounded to whole dimensions */
    float scale;                /* multiplies cos and sin */
    /* Of sliding layers: theirs is not that of the others, whose factors in tensors are not for them either. */
    bool apart;
};

/* Of that base, without scaling, for sliding layers. */
struct rope_params rope_plain(float base);

/* YaRN's attention factor: what cos and sin are multiplied by for contexts `factor` times as long. */
float rope_yarn_mscale(float factor, float mscale);
/* Longrope's, from the ratio of the contexts. */
float rope_long_scale(float factor, uint32_t original);

/* freq[i], radians per position, of the pairs i < n_rot / 2. `divide`: what each is divided by, or NULL. */
void rope_frequencies(const struct rope_params *p, uint32_t n_rot, const float *divide, float *freq);

#endif
