/*
 * experts.c - the matrices of a mixture's experts: op_experts_up and op_experts_down, op.h.
 *
 * The rows of a step are sorted by expert, so that an expert's matrices are read once for all of its rows; each expert
 * gets its rows as a panel of their own. A row's products are bit-identical in any panel, and its results are added up
 * by ascending expert id, so that nothing depends on the other rows or on the order of the work.
 *
 * Thread: the device's, and the pool's inside pool_run.
 */
#include "kernels/cpu/ops.h"

#include <string.h>

/* The step's rows by expert. */
struct by_expert {
    struct device *d;
    const struct weight *w;
    const void *op;
    uint32_t n_used, n_active;                      /* experts per row; experts that have rows */
    uint32_t chunk, n_chunk;                        /* output rows per item; items per expert (up), or in all (down) */
    struct kblock *kb;                              /* k-blocks of the gathered rows, or NULL */
    uint32_t stride;                                /* floats per gathered row */
    uint32_t expert[EXPERTS_MAX];                   /* [n_active] ids of the experts that have rows, ascending */
    uint32_t first[EXPERTS_MAX + 1];                /* [n_active + 1] where an expert's entries in `at` begin */
    uint32_t at[BATCH_ROWS_MAX * EXPERTS_USED_MAX]; /* by expert: row * n_used + index among the row's experts */
};

static bool sort_rows(struct by_expert *b, struct device *d, const struct weight *w, uint32_t n_used, const void *op)
{
    uint32_t n = w->n_expert, count[EXPERTS_MAX + 1] = {0}, where[EXPERTS_MAX];
    b->op = op;
    b->d = d;
    b->w = w;
    b->n_used = n_used;
    b->n_active = 0;
    if (!n || !n_used || n_used > EXPERTS_USED_MAX || d->d_route != 2 * n_used) {
        cpu_fail(d, HEARTH_EPARAMS, "%u of %u experts a row, where %u were chosen", (unsigned)n_used, (unsigned)n,
                 (unsigned)d->d_route / 2);
        return false;
    }
    for (uint32_t r = 0; r < d->batch.n_row; r++)
        for (uint32_t k = 0; k < n_used; k++) {
            float id = d->route[(size_t)r * d->d_route + k];
            if (!(id >= 0 && id < (float)n)) {
                cpu_fail(d, HEARTH_EPARAMS, "row %u goes to expert %g of %u", (unsigned)r, (double)id, (unsigned)n);
                return false;
            }
            count[(uint32_t)id]++;
        }
    for (uint32_t e = 0, at = 0; e < n; at += count[e++]) {
        where[e] = at;
        if (!count[e])
            continue;
        b->expert[b->n_active] = e;
        b->first[b->n_active++] = at;
    }
    b->first[b->n_active] = d->batch.n_row * n_used;
    for (uint32_t i = 0; i < d->batch.n_row * n_used; i++)
        b->at[where[(uint32_t)d->route[(size_t)(i / n_used) * d->d_route + i % n_used]]++] = i;
    return true;
}

/* The gathered rows of the ith active expert. */
static struct panel panel_of(const struct by_expert *b, uint32_t i)
{
    return (struct panel){b->d->gathered.v + (size_t)b->first[i] * b->stride, b->first[i + 1] - b->first[i], b->w->n_in,
                          b->kb ? b->kb + (size_t)b->first[i] * (b->w->n_in / KBLOCK_LEN) : NULL};
}

/* Columns from k on, a multiple of KB, of the input row of an entry of `at`: a hidden row of ACT_EXPERTS, a latent row
 * of ACT_MIX, or a row of `normed`. */
static const float *columns_of(const struct by_expert *b, uint32_t at, uint32_t k)
{
    const struct device *d = b->d;
    const struct op_experts_up *up = b->op;
    uint32_t row = at / b->n_used;
    if (b->w->role == WEIGHT_EXPERTS_DOWN)
        return d->experts + (size_t)at * b->w->n_in + k;
    return up->latent ? d->mix + (size_t)row * b->w->n_in + k
                      : panel_row(&d->normed, row) + k / KB * panel_stride(&d->normed);
}

/* Copies an expert's rows into its panel, padded with zeros to whole lanes. */
static void gather_item(void *arg, uint32_t i, uint32_t thread)
{
    const struct by_expert *b = arg;
    struct panel p = panel_of(b, i);
    uint32_t n_in = b->w->n_in, pad = round_up(n_in, LANES);
    (void)thread;
    for (uint32_t r = 0; r < p.n_row; r++) {
        uint32_t at = b->at[b->first[i] + r];
        for (uint32_t k = 0, n; k < pad; k += n) {
            float *to = panel_row(&p, r) + k / KB * panel_stride(&p);
            n = pad - k < KB ? pad - k : KB;
            uint32_t real = n_in - k < n ? n_in - k : n;
            memcpy(to, columns_of(b, at, k), real * sizeof *to);
            for (uint32_t z = real; z < n; z++)
                to[z] = 0.0f;
        }
        if (p.kb)
            cpu_kblocks_of_row(b->d, &p, r);
    }
}

static bool gather(struct by_expert *b)
{
    b->stride = round_up(b->w->n_in, KB);
    if (!cpu_scratch(b->d, &b->d->gathered, (size_t)b->d->batch.n_row * b->n_used * b->stride))
        return false;
    b->kb = NULL;
    if (cpu_has_ints(b->w) && !(b->kb = cpu_kblocks_room(b->d, (size_t)b->d->batch.n_row * b->n_used, b->w->n_in)))
        return false;
    pool_run(b->d->pool, b->n_active, gather_item, b);
    return true;
}

/* --- up -------------------------------------------------------------------------------------------------- */

/* Computes some columns of one expert, gate and up together. */
static void up_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct by_expert *b = arg;
    const struct op_experts_up *op = b->op;
    const struct weight *w = b->w;
    struct device *d = b->d;
    uint32_t i = item / b->n_chunk, e = b->expert[i], d_ff = w->part[0].n_out, n_gate = w->n_part - 1;
    struct panel x = panel_of(b, i);
    struct weight_part gate_part = weight_part_of(&w->part[0], e), up_part = weight_part_of(&w->part[n_gate], e);
    uint32_t o0 = item % b->n_chunk * b->chunk, o1 = d_ff - o0 < b->chunk ? d_ff : o0 + b->chunk;
    uint32_t cols = cpu_tmp_cols(x.n_row);
    float *scratch = d->scratch[thread].v, *gate = scratch + matmul_scratch(w->n_in), *up = gate + TMP_FLOATS;
    const float *bias = op->bias ? op->bias + (size_t)e * d_ff : NULL;
    for (uint32_t o = o0, n; o < o1; o += n) {
        n = o1 - o < cols ? o1 - o : cols;
        if (n_gate)
            cpu_matmul(d, &gate_part, w->n_in, &x, o, o + n, gate, n, scratch);
        cpu_matmul(d, &up_part, w->n_in, &x, o, o + n, up, n, scratch);
        if (bias && n_gate)
            cpu_add_bias(gate, bias + o, x.n_row, n);
        if (bias)
            cpu_add_bias(up, bias + (size_t)n_gate * w->n_expert * d_ff + o, x.n_row, n);
        for (uint32_t r = 0; r < x.n_row; r++)
            d->k->glu(op->glu, gate + (size_t)r * n, up + (size_t)r * n,
                      d->experts + (size_t)b->at[b->first[i] + r] * d_ff + o, n);
    }
}

/* Normalises the residual stream, or, with `latent`, checks that ACT_MIX has the rows. Returns false and sets the
 * step's error on failure. */
static bool up_begin(struct device *d, const struct op_experts_up *op)
{
    const struct weight *w = op->w;
    if (!op->latent) {
        cpu_norm_rows(d, &op->norm, NULL, d->batch.n_row);
        return cpu_matmul_begin(d, "experts_up", w, &d->normed);
    }
    if (w->n_in == d->d_mix && w->model == d->model && op->norm.kind == NORM_NONE)
        return cpu_matmul_reserve(d, w->n_in);
    cpu_fail(
        d, HEARTH_EPARAMS,
        "experts_up multiplies %u columns in a latent space, after a norm or by another model's matrix; there are %u",
        (unsigned)w->n_in, (unsigned)d->d_mix);
    return false;
}

void cpu_experts_up(struct device *d, const struct op_experts_up *op)
{
    const struct weight *w = op->w;
    struct by_expert b; /* large, so not cleared: sort_rows() and gather() set what is used */
    if (d->err.code)
        return;
    uint32_t d_ff = w->part[0].n_out;
    if (w->role != WEIGHT_EXPERTS_UP || w->n_part != (glu_gated(op->glu) ? 2u : 1u) ||
        w->part[w->n_part - 1].n_out != d_ff) {
        cpu_fail(d, HEARTH_EPARAMS, "experts_up weight of %u parts does not suit its activation", (unsigned)w->n_part);
        return;
    }
    if (!sort_rows(&b, d, w, op->n_used, op) ||
        !cpu_fits(d, "d_experts", (uint64_t)op->n_used * d_ff, d->dims.d_experts))
        return;
    if (!up_begin(d, op) || !gather(&b))
        return;
    d->d_experts = op->n_used * d_ff;
    b.chunk = cpu_matmul_chunk(d, b.n_active * d_ff, w->n_in, (d->batch.n_row * op->n_used) / b.n_active);
    b.n_chunk = (d_ff + b.chunk - 1) / b.chunk;
    pool_run(d->pool, b.n_active * b.n_chunk, up_item, &b);
}

/* --- down ------------------------------------------------------------------------------------------------ */

/* Stores columns [o, o + n) of all rows' sums in a latent space to ACT_ATT. */
static void to_att(struct panel *att, const float *sum, uint32_t o, uint32_t n)
{
    for (uint32_t row = 0; row < att->n_row; row++)
        for (uint32_t c = 0; c < n; c++)
            panel_row(att, row)[(o + c) / KB * panel_stride(att) + (o + c) % KB] = sum[(size_t)row * n + c];
}

/* Computes some columns of all rows' results, over all experts, so that no other item adds to the same numbers. */
static void down_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct by_expert *b = arg;
    const struct op_experts_down *op = b->op;
    const struct weight *w = b->w;
    struct device *d = b->d;
    uint32_t n_row = d->batch.n_row, cols = cpu_tmp_cols(n_row);
    uint32_t o0 = item * b->chunk, o1 = w->n_out - o0 < b->chunk ? w->n_out : o0 + b->chunk;
    float *scratch = d->scratch[thread].v, *sum = scratch + matmul_scratch(w->n_in), *y = sum + TMP_FLOATS;
    for (uint32_t o = o0, n; o < o1; o += n) {
        n = o1 - o < cols ? o1 - o : cols;
        memset(sum, 0, (size_t)n_row * n * sizeof *sum);
        for (uint32_t i = 0; i < b->n_active; i++) {
            struct panel x = panel_of(b, i);
            struct weight_part part = weight_part_of(&w->part[0], b->expert[i]);
            cpu_matmul(d, &part, w->n_in, &x, o, o + n, y, n, scratch);
            if (op->bias)
                cpu_add_bias(y, op->bias + (size_t)b->expert[i] * w->n_out + o, x.n_row, n);
            for (uint32_t r = 0; r < x.n_row; r++) {
                uint32_t at = b->at[b->first[i] + r], row = at / b->n_used;
                float weight = d->route[(size_t)row * d->d_route + b->n_used + at % b->n_used];
                for (uint32_t c = 0; c < n; c++)
                    sum[(size_t)row * n + c] += weight * y[(size_t)r * n + c];
            }
        }
        if (op->latent) {
            to_att(&d->att, sum, o, n);
            continue;
        }
        float scale = op->residual_scale != 0.0f ? op->residual_scale : 1.0f;
        for (uint32_t row = 0; row < n_row; row++) {
            float *to = (op->post_norm ? d->y : d->x) + (size_t)row * d->d_model + o;
            for (uint32_t c = 0; c < n; c++) {
                float v = scale * sum[(size_t)row * n + c];
                to[c] = op->post_norm ? v : to[c] + v;
            }
            for (uint32_t c = 0; op->x_scale != 0.0f && !op->post_norm && c < n; c++)
                to[c] *= op->x_scale;
        }
    }
}

/* Finishes a row's result: post_norm, plus ACT_ASIDE and aside_norm where given, added to the residual stream. */
static void down_row(void *arg, uint32_t row, uint32_t thread)
{
    const struct by_expert *b = arg;
    const struct op_experts_down *op = b->op;
    struct device *d = b->d;
    size_t at = (size_t)row * d->d_model;
    float *y = d->y + at, *x = d->x + at;
    (void)thread;
    d->k->norm(op->post_norm, y, d->d_model, y, KB);
    for (uint32_t i = 0; op->aside_norm && i < d->d_model; i++)
        y[i] += d->aside[at + i];
    if (op->aside_norm)
        d->k->norm(op->aside_norm, y, d->d_model, y, KB);
    for (uint32_t i = 0; i < d->d_model; i++)
        x[i] += y[i];
    for (uint32_t i = 0; op->x_scale != 0.0f && i < d->d_model; i++)
        x[i] *= op->x_scale;
}

/* Reserves ACT_ATT for sums in a latent space; returns false and sets the step's error where that is not possible. */
static bool latent_begin(struct device *d, const struct op_experts_down *op)
{
    if (op->post_norm || op->aside_norm || op->residual_scale != 0.0f || op->x_scale != 0.0f) {
        cpu_fail(d, HEARTH_EPARAMS, "experts_down has a norm or a scale in a latent space");
        return false;
    }
    if (!cpu_fits(d, "d_q", op->w->n_out, d->dims.d_q))
        return false;
    d->att.n_row = d->batch.n_row;
    d->att.n_col = op->w->n_out;
    return true;
}

void cpu_experts_down(struct device *d, const struct op_experts_down *op)
{
    const struct weight *w = op->w;
    struct by_expert b; /* large, so not cleared: sort_rows() and gather() set what is used */
    if (d->err.code || !sort_rows(&b, d, w, op->n_used, op))
        return;
    if (w->role != WEIGHT_EXPERTS_DOWN || w->n_part != 1 || (!op->latent && w->n_out != d->d_model) ||
        (uint64_t)w->n_in * op->n_used != d->d_experts || w->model != d->model) {
        cpu_fail(
            d, HEARTH_EPARAMS,
            "experts_down gives %u columns of %u, or is another model's; there are %u, of %u hidden ones of %u experts",
            (unsigned)w->n_out, (unsigned)w->n_in, (unsigned)d->d_model, (unsigned)d->d_experts, (unsigned)op->n_used);
        return;
    }
    if (op->aside_norm && (!op->post_norm || d->d_aside != d->d_model)) {
        cpu_fail(d, HEARTH_EPARAMS, "experts_down adds to what is aside, of %u columns, without a norm or beside %u",
                 (unsigned)d->d_aside, (unsigned)d->d_model);
        return;
    }
    if ((op->latent && !latent_begin(d, op)) || !cpu_matmul_reserve(d, w->n_in) || !gather(&b))
        return;
    b.chunk = cpu_matmul_chunk(d, w->n_out, w->n_in, d->batch.n_row * op->n_used);
    b.n_chunk = (w->n_out + b.chunk - 1) / b.chunk;
    pool_run(d->pool, b.n_chunk, down_item, &b);
    if (op->post_norm)
        pool_run(d->pool, d->batch.n_row, down_row, &b);
}
