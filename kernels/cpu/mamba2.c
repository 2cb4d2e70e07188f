/*
 * mamba2.c - Mamba-2's recurrence in F32: op_mamba2, op.h.
 *
 * A head's state is stored [d_state][d_head], so that the inner loop (elem_mamba2) runs over d_head independent
 * numbers; sums over d_state are in ascending order. The time step and the decay are computed in double and rounded
 * once. Thread: the device's, and the pool's inside pool_run.
 */
#include "kernels/cpu/state.h"

#include <math.h>

struct mamba2 {
    struct device *d;
    const struct op_mamba2 *op;
    uint32_t n_chunk, n_channel, d_inner;
};

/* The convolution of some channels of a sequence, and its activation. */
static void conv_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct mamba2 *t = arg;
    const struct op_mamba2 *op = t->op;
    uint32_t i = item / t->n_chunk, c0 = item % t->n_chunk * CHANNELS;
    uint32_t c1 = t->n_channel - c0 < CHANNELS ? t->n_channel : c0 + CHANNELS;
    (void)thread;
    cpu_conv_silu(t->d, i, op->group, op->layer, &op->conv, t->n_channel, c0, c1, t->d_inner);
}

/* All rows of one head of a sequence; y overwrites x. */
static void head_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct mamba2 *t = arg;
    const struct op_mamba2 *op = t->op;
    struct device *d = t->d;
    uint32_t i = item / op->n_head, head = item % op->n_head, of = head / (op->n_head / op->n_group);
    const struct batch_seq *seq = &d->seq[i];
    size_t size = (size_t)op->d_state * op->d_head, first = (size_t)(op->conv.n_tap - 1) * t->n_channel + head * size;
    float *s = cpu_state_take(d, i, op->group, op->layer, first, size);
    (void)thread;
    for (uint32_t r = seq->row0; r < seq->row0 + seq->n_row; r++) {
        float *in = d->convolved.v + (size_t)r * t->n_channel, *b = in + t->d_inner + (size_t)of * op->d_state;
        float dt = d->mix[(size_t)r * d->d_mix + t->d_inner + t->n_channel + head];
        double length = cpu_softplus((double)dt + (double)op->dt_bias[head]);
        d->k->mamba2(s, op->d_state, op->d_head, b, b + (size_t)op->n_group * op->d_state,
                     (float)exp((double)op->decay[head] * length), (float)length, op->skip[head],
                     in + (size_t)head * op->d_head);
        if (r + 1 == seq->row0 + seq->n_within)
            cpu_state_give(d, i, op->group, op->layer, first, size);
    }
}

/* The gate and the norm of one group of one row, or of the whole row. */
static void norm_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct mamba2 *t = arg;
    const struct op_mamba2 *op = t->op;
    struct device *d = t->d;
    uint32_t n = mamba2_norm_cols(op), each = t->d_inner / n, row = item / each, col = item % each * n;
    const float *z = d->mix + (size_t)row * d->d_mix + col;
    float *y = d->convolved.v + (size_t)row * t->n_channel + col, *to = panel_row(&d->att, row);
    struct norm norm = op->norm;
    (void)thread;
    norm.w += col;
    d->k->glu(GLU_SWIGLU, z, y, y, n);
    d->k->norm(&norm, y, n, y, KB);
    for (uint32_t j = 0; j < n; j++, col++)
        to[col / KB * panel_stride(&d->att) + col % KB] = y[j];
}

void cpu_mamba2(struct device *d, const struct op_mamba2 *op)
{
    uint64_t d_inner = (uint64_t)op->n_head * op->d_head, n = d_inner + 2 * (uint64_t)op->n_group * op->d_state;
    if (d->err.code)
        return;
    if (op->conv.n_tap < 2 || op->conv.n_tap > STATE_TAPS_MAX || !op->n_head || !op->n_group ||
        op->n_head % op->n_group || !op->d_state || !op->d_head || op->d_head > STATE_D_MAX ||
        n > UINT32_MAX / STATE_TAPS_MAX) {
        cpu_fail(d, HEARTH_EPARAMS, "Mamba-2 of %u heads of %u in %u groups, a state of %u, %u taps",
                 (unsigned)op->n_head, (unsigned)op->d_head, (unsigned)op->n_group, (unsigned)op->d_state,
                 (unsigned)op->conv.n_tap);
        return;
    }
    uint64_t state = (op->conv.n_tap - 1) * n + d_inner * op->d_state;
    if (!cpu_state_begin(d, "mamba2", op->group, op->layer, state, (uint32_t)(d_inner + n) + op->n_head,
                         (uint32_t)d_inner) ||
        !cpu_scratch(d, &d->convolved, (size_t)d->batch.n_row * n))
        return;
    struct mamba2 t = {d, op, (uint32_t)(n + CHANNELS - 1) / CHANNELS, (uint32_t)n, (uint32_t)d_inner};
    pool_run(d->pool, d->batch.n_seq * t.n_chunk, conv_item, &t);
    pool_run(d->pool, d->batch.n_seq * op->n_head, head_item, &t);
    pool_run(d->pool, d->batch.n_row * ((uint32_t)d_inner / mamba2_norm_cols(op)), norm_item, &t);
}
