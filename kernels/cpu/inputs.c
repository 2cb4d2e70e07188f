/*
 * inputs.c - per-layer inputs (Gemma): op_inputs, which computes them for all layers at once, and op_input_gate, which
 * gates a layer's own; op.h.
 *
 * Thread: the device's, and the pool's inside pool_run.
 */
#include "kernels/cpu/ops.h"

struct inputs {
    struct device *d;
    const struct op_inputs *op;
    uint32_t id[BATCH_ROWS_MAX];
};

static void project_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    struct device *d = p->d;
    uint32_t o0, o1;
    cpu_matmul_rows(p, item, &o0, &o1);
    cpu_matmul(d, &p->w->part[0], p->w->n_in, p->x, o0, o1, d->inputs + o0, p->w->n_out, d->scratch[thread].v);
}

/* Finishes a row, for all layers: the projection's norm, plus the token's row of the table. */
static void add_item(void *arg, uint32_t row, uint32_t thread)
{
    const struct inputs *in = arg;
    const struct op_inputs *op = in->op;
    struct device *d = in->d;
    const struct weight_part *table = &op->embed->part[0];
    uint32_t n = op->w->n_out;
    float *y = d->inputs + (size_t)row * n, *own = d->scratch[thread].v;
    float embed_scale = op->embed_scale * weight_part_scale(table);
    dtype_get(table->type)->to_f32((const char *)table->data + in->id[row] * dtype_bytes(table->type, n), own, n);
    for (uint32_t i = 0; i < n; i++)
        y[i] *= op->w_scale;
    for (uint32_t i = 0; i < n; i += op->d_input)
        d->k->norm(&op->norm, y + i, op->d_input, y + i, KB);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (y[i] + own[i] * embed_scale) * op->scale;
}

void cpu_inputs(struct device *d, const struct op_inputs *op)
{
    static const struct norm none = {.kind = NORM_NONE};
    struct inputs in = {.d = d, .op = op};
    if (d->err.code || !cpu_fits(d, "d_inputs", op->w->n_out, d->dims.d_inputs))
        return;
    if (!op->d_input || op->w->n_out % op->d_input || op->embed->n_in != op->w->n_out ||
        op->embed->model != op->w->model) {
        cpu_fail(d, HEARTH_EPARAMS, "inputs of %u columns, %u a layer, beside a table of %u", (unsigned)op->w->n_out,
                 (unsigned)op->d_input, (unsigned)op->embed->n_in);
        return;
    }
    if (!cpu_token_ids(d, op->embed->n_out, in.id))
        return;
    cpu_norm_rows(d, &none, NULL, d->batch.n_row);
    if (!cpu_matmul_begin(d, "inputs", op->w, &d->normed))
        return;
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (!cpu_scratch(d, &d->scratch[i], op->w->n_out))
            return;
    d->d_inputs = op->w->n_out;
    struct matmul_job p = cpu_matmul_job(d, op->w, &d->normed, op);
    pool_run(d->pool, p.n_item, project_item, &p);
    pool_run(d->pool, d->batch.n_row, add_item, &in);
}

static void gate_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    const struct op_input_gate *op = p->op;
    struct device *d = p->d;
    uint32_t o0, o1, cols = cpu_tmp_cols(p->x->n_row);
    cpu_matmul_rows(p, item, &o0, &o1);
    float *scratch = d->scratch[thread].v, *gate = scratch + matmul_scratch(p->w->n_in);
    for (uint32_t o = o0, n; o < o1; o += n) {
        uint32_t room = KB - o % KB; /* columns to the end of the panel's block */
        n = o1 - o < cols ? o1 - o : cols;
        n = n < room ? n : room;
        cpu_matmul(d, &p->w->part[0], p->w->n_in, p->x, o, o + n, gate, n, scratch);
        for (uint32_t r = 0; r < p->x->n_row; r++)
            d->k->glu(GLU_GEGLU, gate + (size_t)r * n,
                      d->inputs + (size_t)r * d->d_inputs + op->layer * p->w->n_out + o,
                      panel_row(&d->ff, r) + o / KB * panel_stride(&d->ff) + o % KB, n);
    }
}

void cpu_input_gate(struct device *d, const struct op_input_gate *op)
{
    static const struct norm none = {.kind = NORM_NONE};
    const struct weight *w = op->w;
    if (d->err.code || !cpu_fits(d, "d_ff", w->n_out, d->dims.d_ff))
        return;
    if (w->n_part != 1 || op->layer >= op->n_layer || (uint64_t)w->n_out * op->n_layer != d->d_inputs) {
        cpu_fail(d, HEARTH_EPARAMS, "input_gate takes %u columns of layer %u of %u; there are %u of all",
                 (unsigned)w->n_out, (unsigned)op->layer, (unsigned)op->n_layer, (unsigned)d->d_inputs);
        return;
    }
    cpu_norm_rows(d, &none, NULL, d->batch.n_row);
    if (!cpu_matmul_begin(d, "input_gate", w, &d->normed))
        return;
    d->ff.n_row = d->batch.n_row;
    d->ff.n_col = w->n_out;
    struct matmul_job p = cpu_matmul_job(d, w, &d->normed, op);
    pool_run(d->pool, p.n_item, gate_item, &p);
}
