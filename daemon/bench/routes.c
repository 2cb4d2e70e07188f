/*
 * routes.c - a mixture's routing on a GPU. Where two experts are nearly equal, the GPU may choose another one than the
 * CPU and then computes other logits, which is not an error of its kernels. So its choices are read and judged
 * separately, and the CPU that its logits are compared with follows them. See bench.h. Single-threaded.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/bench/bench.h"
#include "daemon/engine/selfcheck/choice.h"

/* Runs ops first .. first + n_op - 1 of the model's program over the rows of one sequence; the last n_out rows have
 * logits. */
static int run_ops(struct bench *b, const struct batch_seq *seq, uint32_t first, uint32_t n_op, uint32_t n_out)
{
    const struct program *p = &b->model->program;
    struct program part = program_of(b->model, p->op + first, n_op);
    uint32_t row[BATCH_SEQS_MAX];
    for (uint32_t i = 0; i < n_out; i++)
        row[i] = seq->n_row - n_out + i;
    struct batch batch = {.n_row = seq->n_row,
                          .n_seq = 1,
                          .n_out = n_out,
                          .token = b->token,
                          .seq = seq,
                          .out_row = row,
                          .n_group = b->n_group,
                          .invariant = b->prompts};
    memcpy(batch.kv, b->pool, sizeof batch.kv);
    b->last = b->be->step_run(b->dev, &batch, n_op == p->n_op ? p : &part);
    return bench_wait(b, 0, 0);
}

int bench_last_rows(struct bench *b, uint32_t n, uint32_t n_out, float *out)
{
    struct batch_seq seq = bench_seq(b, 0, 0, n, 0);
    int rc = run_ops(b, &seq, 0, b->model->program.n_op, n_out);
    return rc ? rc : b->be->act_read(b->dev, ACT_LOGITS, 0, n_out, out, &b->err);
}

/* --- the device's choices ---------------------------------------------------------------------------------- */

static size_t row_of(const struct bench_routes *t, uint32_t router, uint32_t row)
{
    return (size_t)router * t->n_row + row;
}

int bench_routes_read(struct bench_routes *t, struct bench *b, uint32_t n)
{
    const struct program *p = &b->model->program;
    int rc = 0;
    *t = (struct bench_routes){.n_row = n, .width = b->hp.d_model};
    for (uint32_t i = 0; i < p->n_op; i++)
        t->n_router += p->op[i].kind == OP_ROUTE;
    if (!t->n_router)
        return 0;
    t->chosen = malloc(row_of(t, t->n_router, 0) * BENCH_ROUTE * sizeof *t->chosen);
    t->x = malloc(row_of(t, t->n_router, 0) * t->width * sizeof *t->x);
    if (!t->chosen || !t->x)
        return err_set(&b->err, HEARTH_ENOMEM, "no memory for the choices of %u routers", t->n_router);
    for (uint32_t i = 0, router = 0; !rc && i < p->n_op; i++) {
        if (p->op[i].kind != OP_ROUTE)
            continue;
        struct batch_seq seq = bench_seq(b, 0, 0, n, 0); /* ending at a router leaves its choice readable */
        rc = run_ops(b, &seq, 0, i + 1, 0);
        for (uint32_t row = 0; !rc && row < n; row++)
            rc = b->be->act_read(b->dev, ACT_ROUTE, row, 1, t->chosen + row_of(t, router, row) * BENCH_ROUTE, &b->err);
        if (!rc)
            rc = b->be->act_read(b->dev, ACT_X, 0, n, t->x + row_of(t, router, 0) * t->width, &b->err);
        router++;
    }
    return rc;
}

void bench_routes_free(struct bench_routes *t)
{
    free(t->chosen);
    free(t->x);
    *t = (struct bench_routes){0};
}

/* --- the CPU follows them ---------------------------------------------------------------------------------- */

/* Judges a choice that differs from the CPU's. */
static void judge(struct bench_routes *t, const struct op_route *op, const float *w, const float *x, uint32_t router,
                  uint32_t row)
{
    struct choice_gap gap;
    bool near = choice_is_near(op, w, x, t->x + row_of(t, router, row) * t->width, &gap);
    t->differ++;
    t->margin = fmax(t->margin, gap.margin);
    if (!near && !t->wrong.code)
        err_set(
            &t->wrong, HEARTH_EINTERNAL,
            "token %u goes to other experts of router %u than on the CPU, where %.3g decides and logits are %.3g off",
            row, router, gap.margin, gap.off);
}

/* The CPU's step has just run a router, `op`: replaces the routing of its rows by the device's. `own` and `x` have room
 * for one row each. */
static int follow(struct bench_routes *t, struct bench *cpu, const struct op_route *op, uint32_t router, float *own,
                  float *x)
{
    size_t n_w = (size_t)op->w->n_in * op->w->n_out;
    float *w = malloc(n_w * sizeof *w);
    int rc = w ? 0 : err_set(&cpu->err, HEARTH_ENOMEM, "no memory for a router");
    if (!rc)
        dtype_get((int)op->w->part[0].type)->to_f32(op->w->part[0].data, w, n_w);
    for (uint32_t row = 0; !rc && row < t->n_row; row++) {
        const float *chosen = t->chosen + row_of(t, router, row) * BENCH_ROUTE;
        if ((rc = cpu->be->act_read(cpu->dev, ACT_ROUTE, row, 1, own, &cpu->err)) ||
            choice_same(own, chosen, op->n_used) || (rc = cpu->be->act_read(cpu->dev, ACT_X, row, 1, x, &cpu->err)))
            continue;
        judge(t, op, w, x, router, row);
        rc = cpu->be->act_write(cpu->dev, ACT_ROUTE, row, 1, 2 * op->n_used, chosen, &cpu->err);
    }
    free(w);
    return rc;
}

int bench_follow(struct bench_routes *t, struct bench *cpu, uint32_t n_out, float *out)
{
    const struct program *p = &cpu->model->program;
    struct batch_seq seq = bench_seq(cpu, 0, 0, t->n_row, 0);
    float own[BENCH_ROUTE], *x = malloc(t->width * sizeof *x);
    uint32_t first = 0, router = 0;
    int rc = x ? 0 : err_set(&cpu->err, HEARTH_ENOMEM, "no memory for a row");
    for (uint32_t i = 0; !rc && i < p->n_op; i++) {
        if (p->op[i].kind != OP_ROUTE)
            continue;
        if (!(rc = run_ops(cpu, &seq, first, i + 1 - first, 0)))
            rc = follow(t, cpu, &p->op[i].route, router++, own, x);
        first = i + 1;
    }
    if (!rc && !(rc = run_ops(cpu, &seq, first, p->n_op - first, n_out)))
        rc = cpu->be->act_read(cpu->dev, ACT_LOGITS, 0, n_out, out, &cpu->err);
    free(x);
    return rc;
}
