/*
 * delta.c - the gated delta net: op_delta, op.h, as a recurrence in F32.
 *
 * A head's state is stored [d_k][d_v], so that the inner loop (elem_delta) runs over d_v independent numbers; sums over
 * d_k are in ascending order. Gates are computed in double and rounded once. Thread: the device's, and the pool's
 * inside pool_run.
 */
#include "kernels/cpu/state.h"

#include <math.h>

struct delta {
    struct device *d;
    const struct op_delta *op;
    uint32_t n_chunk, n_channel;
};

/* The convolution of some channels of a sequence, and its activation. */
static void conv_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct delta *t = arg;
    const struct op_delta *op = t->op;
    uint32_t i = item / t->n_chunk, c0 = item % t->n_chunk * CHANNELS;
    uint32_t c1 = t->n_channel - c0 < CHANNELS ? t->n_channel : c0 + CHANNELS;
    (void)thread;
    cpu_conv_silu(t->d, i, op->group, op->layer, &op->conv, t->n_channel, c0, c1, 0);
}

/* x / sqrt(sum x^2 + 1e-6) * scale */
static void unit(const float *x, uint32_t n, float scale, float *y)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    float by = scale / sqrtf(sum + 1e-6f);
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * by;
}

/* A head's two gates, from the row's b and a: the decay of S, and beta, the strength of the delta rule's correction. */
static void gates(const struct op_delta *op, const float *ba, uint32_t head, float *keep, float *beta)
{
    uint32_t each = op->n_v / op->n_k, at = op->paired ? head / each * 2 * each + head % each : head;
    double length = cpu_softplus((double)ba[at + (op->paired ? each : op->n_v)] + (double)op->dt_bias[head]);
    *keep = (float)exp((double)op->decay[head] * length);
    *beta = (float)(1 / (1 + exp(-(double)ba[at])));
}

/* All rows of one head of a sequence. */
static void head_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct delta *t = arg;
    const struct op_delta *op = t->op;
    struct device *d = t->d;
    uint32_t i = item / op->n_v, head = item % op->n_v, n = t->n_channel, d_k = op->d_k, d_v = op->d_v;
    uint32_t of = op->tiled ? head % op->n_k : head / (op->n_v / op->n_k);
    const struct batch_seq *seq = &d->seq[i];
    size_t size = (size_t)d_k * d_v, first = (size_t)(op->conv.n_tap - 1) * n + head * size;
    float *s = cpu_state_take(d, i, op->group, op->layer, first, size);
    float q[STATE_D_MAX], k[STATE_D_MAX], y[STATE_D_MAX], scale = 1.0f / sqrtf((float)d_k);
    (void)thread;
    for (uint32_t r = seq->row0; r < seq->row0 + seq->n_row; r++) {
        const float *in = d->convolved.v + (size_t)r * n, *mix = d->mix + (size_t)r * d->d_mix + n;
        const float *z = mix + (size_t)head * d_v;
        float keep, beta, *to = panel_row(&d->att, r);
        gates(op, mix + (size_t)op->n_v * d_v, head, &keep, &beta);
        unit(in + (size_t)of * d_k, d_k, scale, q);
        unit(in + (size_t)(op->n_k + of) * d_k, d_k, 1.0f, k);
        d->k->delta(s, d_k, d_v, q, k, in + 2 * (size_t)op->n_k * d_k + (size_t)head * d_v, keep, beta, y);
        d->k->norm(&op->norm, y, d_v, y, KB);
        d->k->glu(GLU_SWIGLU, z, y, y, d_v);
        for (uint32_t j = 0, col = head * d_v; j < d_v; j++, col++)
            to[col / KB * panel_stride(&d->att) + col % KB] = y[j];
        if (r + 1 == seq->row0 + seq->n_within)
            cpu_state_give(d, i, op->group, op->layer, first, size);
    }
}

void cpu_delta(struct device *d, const struct op_delta *op)
{
    uint64_t n = 2 * (uint64_t)op->n_k * op->d_k + (uint64_t)op->n_v * op->d_v;
    if (d->err.code)
        return;
    if (op->conv.n_tap < 2 || op->conv.n_tap > STATE_TAPS_MAX || !op->n_k || !op->n_v || op->n_v % op->n_k ||
        !op->d_k || !op->d_v || op->d_k > STATE_D_MAX || op->d_v > STATE_NORM_MAX || n > UINT32_MAX / STATE_TAPS_MAX) {
        cpu_fail(d, HEARTH_EPARAMS, "a delta net of %u heads of %u on %u of %u, with %u taps", (unsigned)op->n_v,
                 (unsigned)op->d_v, (unsigned)op->n_k, (unsigned)op->d_k, (unsigned)op->conv.n_tap);
        return;
    }
    uint64_t state = (op->conv.n_tap - 1) * n + (uint64_t)op->n_v * op->d_k * op->d_v;
    uint32_t d_out = op->n_v * op->d_v;
    if (!cpu_state_begin(d, "delta", op->group, op->layer, state, (uint32_t)n + d_out + 2 * op->n_v, d_out) ||
        !cpu_scratch(d, &d->convolved, (size_t)d->batch.n_row * n))
        return;
    struct delta t = {d, op, (uint32_t)(n + CHANNELS - 1) / CHANNELS, (uint32_t)n};
    pool_run(d->pool, d->batch.n_seq * t.n_chunk, conv_item, &t);
    pool_run(d->pool, d->batch.n_seq * op->n_v, head_item, &t);
}
