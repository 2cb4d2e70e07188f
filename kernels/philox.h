/*
 * philox.h - the only source of randomness: Philox4x32-10 (Salmon et al., SC 2011), counter-based, in C and CUDA.
 *
 * The noise of a token is a pure function of (seed, index, token id). There is no generator state, so that the same
 * noise comes from the same seed in any batch, on the CPU and on a GPU. One evaluation serves four neighbouring ids.
 */
#ifndef HEARTH_PHILOX_H
#define HEARTH_PHILOX_H

#include <stdbool.h>

#include "kernels/fmath.h"

struct philox {
    uint32_t v[4];
};

QUANT_FN struct philox philox4x32(struct philox ctr, uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * ctr.v[0], b = (uint64_t)0xCD9E8D57u * ctr.v[2];
        struct philox next = {
            {(uint32_t)(b >> 32) ^ ctr.v[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ ctr.v[3] ^ k1, (uint32_t)a}};
        ctr = next;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return ctr;
}

/* The random words of ids 4 * group .. 4 * group + 3 at completion index `index`. */
QUANT_FN struct philox philox_group(uint64_t seed, uint32_t index, uint32_t group)
{
    struct philox ctr = {{group, index, 0, 0}};
    return philox4x32(ctr, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/*
 * A standard Gumbel variate, -log(-log u) with u = (n + 1/2) / 2^32. For u near 1, u itself is not exact in f32 but 1 -
 * u is, and the large variates, which let an unlikely token win, come from there. So that range uses log1p.
 */
QUANT_FN float philox_gumbel(uint32_t n)
{
    float e;
    if (n >= 0xB504F334u) { /* u >= sqrt(1/2) */
        float f = -fmaf((float)(~n), 2.3283064365386963e-10f, 1.1641532182693481e-10f);
        e = -fm_log1p_reduced(f);
    } else {
        e = -fm_log(fmaf((float)n, 2.3283064365386963e-10f, 1.1641532182693481e-10f));
    }
    return -fm_log(e);
}

/* An upper bound of philox_gumbel(n): lets a sampler reject a token without computing two logarithms. */
QUANT_FN float philox_gumbel_bound(uint32_t n)
{
    uint32_t m = ~n;
    int zeros = 0;
    if (m == 0)
        zeros = 32;
    else
#ifdef __CUDA_ARCH__
        zeros = __clz((int)m);
#else
        zeros = __builtin_clz(m);
#endif
    return (float)(zeros + 1) * 0.69315f; /* e = -log u >= 1 - u >= 2^-(zeros + 1) */
}

/* False for a temperature that is as 0: the best logit / temp would be so large that f32 rounds all noise away, and
 * neighbouring logits into one, or overflows; also where the best logit is infinite or NaN. */
QUANT_FN bool philox_decides(float best, float temp)
{
    const float least = 9.31322575e-10f; /* 2^-30: noise is at most 23, half a unit in the last place of 2^30 is 32 */
    return temp > least && fabsf(best) * least < temp;
}

QUANT_FN float philox_token_gumbel(uint64_t seed, uint32_t index, uint32_t id)
{
    return philox_gumbel(philox_group(seed, index, id >> 2).v[id & 3]);
}

#endif
