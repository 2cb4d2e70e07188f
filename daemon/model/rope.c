/* rope.c - see rope.h; the formulas are those of transformers (modeling_rope_utils.py). */
#include "daemon/model/rope.h"

#include <math.h>

struct rope_params rope_plain(float base)
{
    return (struct rope_params){.base = base, .factor = 1, .scale = 1, .apart = true};
}

float rope_yarn_mscale(float factor, float mscale)
{
    return factor <= 1 ? 1 : (float)(0.1 * (double)mscale * log((double)factor) + 1);
}

float rope_long_scale(float factor, uint32_t original)
{
    return factor <= 1 ? 1 : (float)sqrt(1 + log((double)factor) / log((double)original));
}

/* The (fractional) index of the pair that rotates `turns` times within the original context. */
static double pair_of(const struct rope_params *p, uint32_t n_rot, double turns)
{
    return n_rot * log((double)p->original / (turns * 2 * M_PI)) / (2 * log((double)p->base));
}

/* The weight of pair i's own frequency: 1 for pairs that rotate often within the original context, 0 for pairs that
 * hardly rotate there, whose positions are interpolated, and a linear ramp in between. */
static double kept(const struct rope_params *p, uint32_t n_rot, uint32_t i)
{
    double low = pair_of(p, n_rot, (double)p->beta_fast), high = pair_of(p, n_rot, (double)p->beta_slow);
    if (!p->exact_bounds) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, n_rot - 1.0);
    if (low == high)
        high += 0.001;
    return (1 - fmin(fmax((i - low) / (high - low), 0), 1)) * (double)p->extrapolation;
}

void rope_frequencies(const struct rope_params *p, uint32_t n_rot, const float *divide, float *freq)
{
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double own = pow((double)p->base, -2.0 * i / n_rot), keep = 1;
        if (p->scaling == ROPE_SCALING_LINEAR)
            keep = 0;
        else if (p->scaling == ROPE_SCALING_YARN)
            keep = kept(p, n_rot, i);
        double f = keep == 1 ? own : own / (double)p->factor * (1 - keep) + own * keep;
        freq[i] = (float)(f / (divide ? (double)divide[i] : 1));
    }
}
