/* state.c - see state.h. */
#include "kernels/cpu/state.h"

#include <string.h>

bool cpu_state_begin(struct device *d, const char *what, uint32_t group, uint32_t layer, uint64_t n, uint32_t n_mix,
                     uint32_t n_att)
{
    if (d->err.code)
        return false;
    const struct kv_desc *desc = group < d->batch.n_group ? &d->batch.kv[group]->desc : NULL;
    if (!desc || desc->d_state != n || layer >= desc->n_layer || d->d_mix != n_mix)
        cpu_fail(d, HEARTH_EPARAMS,
                 "%s of %u columns, layer %u of group %u, with a state of %llu: there are %u, and %u layers of %u",
                 what, (unsigned)n_mix, (unsigned)layer, (unsigned)group, (unsigned long long)n, (unsigned)d->d_mix,
                 desc ? (unsigned)desc->n_layer : 0, desc ? (unsigned)desc->d_state : 0);
    else if (cpu_fits(d, "d_q", n_att, d->dims.d_q))
        d->att.n_col = n_att;
    d->att.n_row = d->batch.n_row;
    return !d->err.code;
}

float *cpu_state_take(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, size_t first, size_t n)
{
    const struct kv_pool *pool = d->batch.kv[group];
    const struct batch_seq *q = &d->seq[seq];
    size_t at = layer * kv_layer_bytes(&pool->desc) + first * sizeof(float);
    float *to = (float *)(pool->base + q->pages[group][1] * pool->stride + at);
    if (!q->pos0)
        memset(to, 0, n * sizeof *to);
    else if (q->pages[group][0] != q->pages[group][1])
        memcpy(to, pool->base + q->pages[group][0] * pool->stride + at, n * sizeof *to);
    return to;
}

void cpu_state_give(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, size_t first, size_t n)
{
    const struct kv_pool *pool = d->batch.kv[group];
    const uint32_t *pages = d->seq[seq].pages[group];
    size_t at = layer * kv_layer_bytes(&pool->desc) + first * sizeof(float);
    memcpy(pool->base + pages[2] * pool->stride + at, pool->base + pages[1] * pool->stride + at, n * sizeof(float));
}

/* Convolves some consecutive rows. `state`, [n_tap - 1, n_channel], holds the inputs before them, and is updated. */
static void conv_rows(const struct state_conv *conv, float *state, uint32_t n_channel, uint32_t c0, uint32_t c1,
                      uint32_t n_row, const float *x, size_t ldx, float *y, size_t ldy)
{
    const float *in[STATE_TAPS_MAX];
    uint32_t taps = conv->n_tap, before = taps - 1;
    for (uint32_t r = 0; r < n_row; r++, y += ldy) {
        for (uint32_t k = 0; k < taps; k++)
            in[k] = r + k < before ? state + (size_t)(r + k) * n_channel : x + (r + k - before) * ldx;
        for (uint32_t c = c0; c < c1; c++) {
            const float *w = conv->w + (size_t)c * taps;
            float sum = conv->bias ? conv->bias[c] : 0.0f;
            for (uint32_t k = 0; k < taps; k++)
                sum += w[k] * in[k][c];
            y[c] = sum;
        }
    }
    for (uint32_t k = 0; k < before;
         k++) { /* ascending, so that rows of `state` are read before they are overwritten */
        const float *from =
            n_row + k < before ? state + (size_t)(n_row + k) * n_channel : x + (n_row + k - before) * ldx;
        memcpy(state + (size_t)k * n_channel + c0, from + c0, (c1 - c0) * sizeof *state);
    }
}

void cpu_conv_rows(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, const struct state_conv *conv,
                   uint32_t n_channel, uint32_t c0, uint32_t c1, const float *x, size_t ldx, float *y, size_t ldy)
{
    const struct batch_seq *q = &d->seq[seq];
    uint32_t n = q->n_within, before = conv->n_tap - 1;
    float *state = NULL;
    for (uint32_t k = before; k-- > 0;)
        state = cpu_state_take(d, seq, group, layer, (size_t)k * n_channel + c0, c1 - c0);
    state -= c0;
    if (n)
        conv_rows(conv, state, n_channel, c0, c1, n, x, ldx, y, ldy);
    for (uint32_t k = 0; n && k < before; k++)
        cpu_state_give(d, seq, group, layer, (size_t)k * n_channel + c0, c1 - c0);
    conv_rows(conv, state, n_channel, c0, c1, q->n_row - n, x + n * ldx, ldx, y + n * ldy, ldy);
}

void cpu_conv_silu(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, const struct state_conv *conv,
                   uint32_t n_channel, uint32_t c0, uint32_t c1, uint32_t at)
{
    const struct batch_seq *q = &d->seq[seq];
    float *y = d->convolved.v + (size_t)q->row0 * n_channel;
    cpu_conv_rows(d, seq, group, layer, conv, n_channel, c0, c1, d->mix + (size_t)q->row0 * d->d_mix + at, d->d_mix, y,
                  n_channel);
    float one[CHANNELS];
    for (uint32_t c = 0; c < CHANNELS; c++)
        one[c] = 1.0f;
    for (uint32_t r = 0; r < q->n_row; r++, y += n_channel)
        d->k->glu(GLU_SWIGLU, y + c0, one, y + c0, c1 - c0);
}
