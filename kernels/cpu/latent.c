/*
 * latent.c - latent attention's ops: op_latent, which computes a token's single key; op_latent_q, which projects
 * queries into the latent space; and op_latent_out, which projects results back. See op.h. The attention itself is
 * cpu_attend.
 *
 * Thread: the device's, and the pool's inside pool_run.
 */
#include "kernels/cpu/ops.h"

#include <string.h>

/* A matrix product per head, of the head's own matrix and its own columns of the rows. */
struct by_head {
    struct device *d;
    const struct weight *w; /* n_expert matrices */
    const float *x;         /* input [n_row, n_expert, x_head]; the first n_in of a head's columns are used ... */
    const struct panel *px; /* ... or, where x is NULL, the same as a panel */
    uint32_t x_head;
    float *y; /* output [n_row, n_expert, y_head]; a head's columns from y_at on, n_out of them, are written */
    uint32_t y_head, y_at;
};

/* Floats of scratch that an item needs for its slice of the rows, besides the matmul's. */
static size_t slice_room(const struct device *d, const struct weight *w)
{
    return (size_t)d->batch.n_row * round_up(w->n_in, KB);
}

static void head_item(void *arg, uint32_t head, uint32_t thread)
{
    const struct by_head *b = arg;
    const struct weight *w = b->w;
    struct device *d = b->d;
    float *scratch = d->scratch[thread].v;
    struct panel slice = {scratch + matmul_scratch(w->n_in), d->batch.n_row, w->n_in};
    for (uint32_t r = 0; r < slice.n_row; r++)
        for (uint32_t k = 0; k < round_up(w->n_in, LANES); k++) {
            uint32_t col = head * b->x_head + k;
            float v = k >= w->n_in ? 0.0f
                      : b->x       ? b->x[(size_t)r * w->n_expert * b->x_head + col]
                                   : panel_row(b->px, r)[col / KB * panel_stride(b->px) + col % KB];
            panel_row(&slice, r)[k / KB * panel_stride(&slice) + k % KB] = v;
        }
    struct weight_part part = {.type = w->part[0].type, .n_out = w->n_out, .data = w->part[0].expert[head]};
    d->k->matmul(&part, w->n_in, &slice, 0, w->n_out, b->y + (size_t)head * b->y_head + b->y_at,
                 (size_t)w->n_expert * b->y_head, scratch);
}

static bool run_heads(struct by_head *b)
{
    for (uint32_t i = 0; i < b->d->n_thread; i++)
        if (!cpu_scratch(b->d, &b->d->scratch[i], matmul_scratch(b->w->n_in) + slice_room(b->d, b->w)))
            return false;
    pool_run(b->d->pool, b->w->n_expert, head_item, b);
    return true;
}

static bool is_per_head(struct device *d, const struct weight *w, uint32_t n_head, uint32_t n_in)
{
    if (w->role == WEIGHT_HEADS && w->n_part == 1 && w->n_expert == n_head && w->n_in == n_in && w->model == d->model)
        return true;
    cpu_fail(d, HEARTH_EPARAMS, "matrices of %u heads over %u columns, or another model's; there are %u of %u",
             (unsigned)w->n_expert, (unsigned)w->n_in, (unsigned)n_head, (unsigned)n_in);
    return false;
}

/* A product into plain rows [n_row, n_out]; the job's `op` is an array of their addresses by part. */
static void rows_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    float *const *to = p->op;
    uint32_t o0, o1, part = cpu_matmul_rows(p, item, &o0, &o1);
    cpu_matmul(p->d, &p->w->part[part], p->w->n_in, p->x, o0, o1, to[part] + o0, p->w->part[part].n_out,
               p->d->scratch[thread].v);
}

/* --- latent ---------------------------------------------------------------------------------------------- */

struct latent {
    struct device *d;
    const struct op_latent *op;
    const float *cs;   /* [n_row, n_rot] */
    const float *made; /* [n_row, d_latent] */
};

static void latent_row(void *arg, uint32_t row, uint32_t thread)
{
    const struct latent *l = arg;
    const struct op_latent *op = l->op;
    struct device *d = l->d;
    uint32_t n_rot = op->rope->n_rot, d_k = n_rot + op->d_c, n = op->w->part[0].n_out, pos = d->pos[row];
    const float *made = l->made + (size_t)row * n;
    float *kv = d->kv + (size_t)row * d_k, *key = d->kv + (size_t)(d->batch.n_row + row) * d_k;
    float *to = panel_row(&d->latent, row);
    (void)thread;
    if (op->q_norm)
        d->k->norm(op->q_norm, made, n, to, panel_stride(&d->latent));
    for (uint32_t i = 0; !op->q_norm && i < n; i++)
        to[i / KB * panel_stride(&d->latent) + i % KB] = made[i];
    memcpy(key, kv + op->d_c, n_rot * sizeof *key);
    d->k->rope(op->rope->kind, l->cs + (size_t)row * n_rot, n_rot, key, 1, n_rot);
    d->k->norm(&op->kv_norm, kv, op->d_c, key + n_rot, KB);
    const struct kv_pool *pool = d->batch.kv[op->group];
    uint32_t page = d->seq[d->seq_of[row]].pages[op->group][pos / KV_PAGE];
    cpu_kv_append(d, pool->desc.type, pool->base + page * pool->stride + op->layer * kv_layer_bytes(&pool->desc), key,
                  1, d_k, pos);
}

void cpu_latent(struct device *d, const struct op_latent *op)
{
    const struct weight *w = op->w;
    uint32_t d_k = op->rope->n_rot + op->d_c, n_row = d->batch.n_row;
    if (d->err.code || !cpu_kv_fits(d, op->layer, op->group, 1, 1, d_k, 0) || !cpu_fits(d, "d_kv", d_k, d->dims.d_kv) ||
        !cpu_fits(d, "d_latent", w->part[0].n_out, d->dims.d_latent))
        return;
    if (w->n_part != 2 || w->part[1].n_out != d_k || op->rope->kind == ROPE_NONE || op->rope->hadamard) {
        cpu_fail(d, HEARTH_EPARAMS, "latent attention's matrix of %u parts does not give keys of %u",
                 (unsigned)w->n_part, (unsigned)d_k);
        return;
    }
    struct latent l = {.d = d, .op = op, .cs = cpu_rope_table(d, op->rope)};
    cpu_norm_rows(d, &op->norm, NULL, n_row);
    if (!l.cs || !cpu_matmul_begin(d, "latent", w, &d->normed) ||
        !cpu_scratch(d, &d->gathered, (size_t)n_row * w->part[0].n_out))
        return;
    l.made = d->gathered.v;
    float *to[] = {d->gathered.v, d->kv};
    struct matmul_job p = cpu_matmul_job(d, w, &d->normed, to);
    pool_run(d->pool, p.n_item, rows_item, &p);
    d->latent.n_row = n_row;
    d->latent.n_col = w->part[0].n_out;
    pool_run(d->pool, n_row, latent_row, &l);
}

/* --- latent_q -------------------------------------------------------------------------------------------- */

struct latent_q {
    struct device *d;
    const struct op_latent_q *op;
    const float *cs;
    float *made; /* [n_row, n_head, d_nope + n_rot] */
};

/* Copies each head's rotary part to its place in the query and rotates it. */
static void turn_row(void *arg, uint32_t row, uint32_t thread)
{
    const struct latent_q *l = arg;
    const struct op_latent_q *op = l->op;
    struct device *d = l->d;
    uint32_t n_rot = op->rope->n_rot, d_made = op->d_nope + n_rot, d_k = n_rot + op->d_c;
    float *made = l->made + (size_t)row * op->n_head * d_made, *q = d->q + (size_t)row * op->n_head * d_k;
    (void)thread;
    if (!op->w)
        for (uint32_t i = 0; i < op->n_head * d_made; i++)
            made[i] = panel_row(&d->latent, row)[i / KB * panel_stride(&d->latent) + i % KB];
    for (uint32_t h = 0; h < op->n_head; h++)
        memcpy(q + h * d_k, made + h * d_made + op->d_nope, n_rot * sizeof *q);
    d->k->rope(op->rope->kind, l->cs + (size_t)row * n_rot, n_rot, q, op->n_head, d_k);
}

void cpu_latent_q(struct device *d, const struct op_latent_q *op)
{
    uint32_t n_rot = op->rope->n_rot, d_made = op->d_nope + n_rot, d_k = n_rot + op->d_c, n_row = d->batch.n_row;
    if (d->err.code || !is_per_head(d, op->absorb, op->n_head, op->d_nope) ||
        !cpu_fits(d, "d_q", (uint64_t)op->n_head * d_k, d->dims.d_q))
        return;
    uint32_t n_made = op->w ? op->w->n_out : d->latent.n_col;
    if (op->absorb->n_out != op->d_c || n_made != op->n_head * d_made) {
        cpu_fail(d, HEARTH_EPARAMS, "%u heads of %u, to be %u, of %u columns", (unsigned)op->n_head, (unsigned)d_made,
                 (unsigned)op->absorb->n_out, (unsigned)n_made);
        return;
    }
    struct latent_q l = {.d = d, .op = op, .cs = cpu_rope_table(d, op->rope)};
    if (!l.cs || !cpu_scratch(d, &d->gathered, (size_t)n_row * n_made))
        return;
    l.made = d->gathered.v;
    if (op->w) {
        if (!cpu_matmul_begin(d, "latent_q", op->w, &d->latent))
            return;
        struct matmul_job p = cpu_matmul_job(d, op->w, &d->latent, &l.made);
        pool_run(d->pool, p.n_item, rows_item, &p);
    }
    d->d_q = op->n_head * d_k;
    pool_run(d->pool, n_row, turn_row, &l);
    struct by_head b = {
        .d = d, .w = op->absorb, .x = l.made, .x_head = d_made, .y = d->q, .y_head = d_k, .y_at = n_rot};
    run_heads(&b);
}

/* --- latent_out ------------------------------------------------------------------------------------------ */

static void back_row(void *arg, uint32_t row, uint32_t thread)
{
    struct device *d = arg;
    const float *from = d->gathered.v + (size_t)row * d->att.n_col;
    float *to = panel_row(&d->att, row);
    (void)thread;
    for (uint32_t i = 0; i < d->att.n_col; i++)
        to[i / KB * panel_stride(&d->att) + i % KB] = from[i];
}

void cpu_latent_out(struct device *d, const struct op_latent_out *op)
{
    const struct weight *w = op->w;
    uint32_t n_head = w->n_expert;
    if (d->err.code || !is_per_head(d, w, n_head, n_head ? d->att.n_col / n_head : 0) ||
        !cpu_fits(d, "d_q", (uint64_t)n_head * w->n_out, d->dims.d_q) ||
        !cpu_scratch(d, &d->gathered, (size_t)d->batch.n_row * n_head * w->n_out))
        return;
    struct by_head b = {
        .d = d, .w = w, .px = &d->att, .x_head = w->n_in, .y = d->gathered.v, .y_head = w->n_out, .y_at = 0};
    if (!run_heads(&b))
        return;
    d->att.n_col = n_head * w->n_out;
    pool_run(d->pool, d->batch.n_row, back_row, d);
}
