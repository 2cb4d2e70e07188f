/* shortconv.c - LFM2's convolution between two gates: op_shortconv, op.h. Thread: the device's, and the pool's inside
 * pool_run. */
#include "kernels/cpu/state.h"

struct shortconv {
    struct device *d;
    const struct op_shortconv *op;
    uint32_t n_chunk; /* items per sequence */
};

/* Some channels of one sequence: in ACT_MIX b is overwritten by b * x, and x by the convolution's result. */
static void shortconv_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct shortconv *s = arg;
    const struct op_shortconv *op = s->op;
    struct device *d = s->d;
    uint32_t i = item / s->n_chunk, n = op->d_inner, c0 = item % s->n_chunk * CHANNELS;
    uint32_t c1 = n - c0 < CHANNELS ? n : c0 + CHANNELS;
    const struct batch_seq *q = &d->seq[i];
    float *mix = d->mix + (size_t)q->row0 * d->d_mix;
    (void)thread;
    for (uint32_t r = 0; r < q->n_row; r++)
        for (uint32_t c = c0; c < c1; c++) {
            float *b = mix + (size_t)r * d->d_mix;
            b[c] *= b[2 * n + c];
        }
    cpu_conv_rows(d, i, op->group, op->layer, &op->conv, n, c0, c1, mix, d->d_mix, mix + 2 * n, d->d_mix);
    for (uint32_t r = 0; r < q->n_row; r++) {
        const float *gate = mix + (size_t)r * d->d_mix + n, *y = gate + n;
        float *to = panel_row(&d->att, q->row0 + r) + c0 / KB * panel_stride(&d->att) + c0 % KB;
        for (uint32_t c = c0; c < c1; c++)
            to[c - c0] = gate[c] * y[c];
    }
}

void cpu_shortconv(struct device *d, const struct op_shortconv *op)
{
    uint32_t n = op->d_inner;
    if (d->err.code || !cpu_fits(d, "taps of a convolution", op->conv.n_tap > 1 ? op->conv.n_tap : 0, STATE_TAPS_MAX) ||
        !cpu_state_begin(d, "shortconv", op->group, op->layer, (uint64_t)(op->conv.n_tap - 1) * n, 3 * n, n))
        return;
    struct shortconv s = {d, op, (n + CHANNELS - 1) / CHANNELS};
    pool_run(d->pool, d->batch.n_seq * s.n_chunk, shortconv_item, &s);
}
