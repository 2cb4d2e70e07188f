/* project.c - a product into some columns of ACT_MIX: op_project, op.h. Thread: the device's, and the pool's inside
 * pool_run. */
#include "kernels/cpu/ops.h"

static void project_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    const struct op_project *op = p->op;
    struct device *d = p->d;
    uint32_t o0, o1, part = cpu_matmul_rows(p, item, &o0, &o1);
    float *y = d->mix + op->at + o0;
    for (uint32_t i = 0; i < part; i++)
        y += p->w->part[i].n_out;
    cpu_matmul(d, &p->w->part[part], p->w->n_in, p->x, o0, o1, y, d->d_mix, d->scratch[thread].v);
}

void cpu_project(struct device *d, const struct op_project *op)
{
    if (d->err.code || !cpu_fits(d, "d_mix", op->width, d->dims.d_mix) ||
        !cpu_fits(d, "columns of a projection", (uint64_t)op->at + op->w->n_out, op->width))
        return;
    cpu_norm_rows(d, &op->norm, NULL, d->batch.n_row);
    if (!cpu_matmul_begin(d, "project", op->w, &d->normed))
        return;
    d->d_mix = op->width;
    struct matmul_job p = cpu_matmul_job(d, op->w, &d->normed, op);
    pool_run(d->pool, p.n_item, project_item, &p);
}
