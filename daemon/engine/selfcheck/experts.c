/*
 * experts.c - the self-check of the ops of a mixture of experts: when two do the same work, and what is expected of
 * one.
 *
 * The reference gets only the experts that the batch's rows are routed to, renumbered, with only the sampled rows. It
 * gets a router whole, because the choice depends on all of it.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/selfcheck/slice.h"

/* --- whether two ops do the same work on other numbers --------------------------------------------------- */

bool same_route(const struct op_route *a, const struct op_route *b)
{
    return same_weight(a->w, b->w) && same_norm(&a->norm, &b->norm) && !a->bias == !b->bias &&
           !a->select_bias == !b->select_bias && a->kind == b->kind && a->n_used == b->n_used &&
           a->n_group == b->n_group && a->n_group_used == b->n_group_used && a->group_best == b->group_best &&
           a->normalise == b->normalise && same_float(a->scale, b->scale) && !a->expert_scale == !b->expert_scale;
}

bool same_experts_up(const struct op_experts_up *a, const struct op_experts_up *b)
{
    return same_weight(a->w, b->w) && same_norm(&a->norm, &b->norm) && !a->bias == !b->bias && a->glu == b->glu &&
           a->n_used == b->n_used && a->latent == b->latent;
}

bool same_experts_down(const struct op_experts_down *a, const struct op_experts_down *b)
{
    return same_weight(a->w, b->w) && !a->bias == !b->bias && same_float(a->residual_scale, b->residual_scale) &&
           a->n_used == b->n_used && same_norm(a->post_norm, b->post_norm) && same_norm(a->aside_norm, b->aside_norm) &&
           !a->x_scale == !b->x_scale && a->latent == b->latent;
}

/* --- route ------------------------------------------------------------------------------------------------ */

/* Runs the op with `by`, [n_expert] or NULL, added to its logits, on top of its own bias. */
static int route_moved(struct reference *r, struct check_job *j, const struct op_route *op, const float *by, float *out,
                       struct hearth_err *e)
{
    const struct weight *w = op->w;
    struct slice c = {.r = r};
    struct op_route mine = *op;
    const float *bias = model_vector(r->m, op->bias);
    float *sum = malloc(w->n_out * sizeof *sum);
    int rc = sum ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for %u logits", w->n_out);
    c.w = *w;
    c.w.dev = NULL;
    c.w.model = NULL;
    mine.w = &c.w;
    for (uint32_t k = 0; !rc && k < w->n_out; k++)
        sum[k] = (bias ? bias[k] : 0.0f) + (by ? by[k] : 0.0f);
    if (!rc)
        rc = r->be->weight_load(r->d, &c.w, e);
    if (!rc && !(rc = slice_vector(&c, sum, w->n_out, &mine.bias, e)) &&
        !(rc = slice_vector(&c, model_vector(r->m, op->select_bias), w->n_out, &mine.select_bias, e)) &&
        !(rc = slice_vector(&c, model_vector(r->m, op->expert_scale), w->n_out, &mine.expert_scale, e)) &&
        !(rc = slice_norm(&c, &op->norm, w->n_in, &mine.norm, e)) &&
        !(rc = reference_input(r, j->b, j->i, ACT_X, w->n_in, e))) {
        struct op o = {.kind = OP_ROUTE, .route = mine};
        rc = reference_op(r, j->b, &o, out, e);
    }
    slice_free(&c);
    free(sum);
    return rc;
}

/* Where scores are so close that rounding may decide, another choice is just as good. Logits that are moved a little in
 * either direction show which choices these are. */
int reference_route(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    static const float little = 1e-4f;
    const struct op_route *op = &j->op->route;
    uint32_t n = 2 * op->n_used, rows = j->b->n;
    struct expect *x = j->want;
    float *by = malloc(op->w->n_out * sizeof *by), *moved = malloc((size_t)rows * n * sizeof *moved);
    int rc = by && moved ? expect_new(x, rows, n, e) : err_set(e, HEARTH_ENOMEM, "no memory to check a router");
    if (!rc)
        rc = route_moved(r, j, op, NULL, x->want, e);
    for (uint32_t k = 0; !rc && k < n; k++)
        x->col[k] = k;
    for (size_t k = 0; !rc && k < (size_t)rows * n; k++)
        x->scale[k] = 0;
    for (int way = -1; !rc && way <= 1; way += 2) {
        for (uint32_t k = 0; k < op->w->n_out; k++)
            by[k] = (float)way * little * ((float)(check_hash(k) & 1023) / 512.0f - 1);
        if ((rc = route_moved(r, j, op, by, moved, e)))
            break;
        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t k = 0; k < op->n_used; k++)
                if (moved[row * n + k] != x->want[row * n + k])
                    x->scale[row * n + k] = x->scale[row * n + op->n_used + k] = 1e20f;
    }
    x->exact = true;
    free(by);
    free(moved);
    return rc;
}

/* --- experts ---------------------------------------------------------------------------------------------- */

/* The experts that a batch is routed to, in the order of their first use, and the routes: as made up, and
 * renumbered. */
struct used {
    uint32_t n, id[CHECK_ROWS * EXPERTS_USED_MAX];
    float route[CHECK_ROWS][2 * EXPERTS_USED_MAX], mine[CHECK_ROWS][2 * EXPERTS_USED_MAX];
};

static void used_of(struct used *u, const struct check_job *j, uint32_t n_used)
{
    u->n = 0;
    for (uint32_t row = 0; row < j->b->n; row++) {
        check_op_input(u->route[row], j->op, j->i, ACT_ROUTE, j->b->input_id[row]);
        memcpy(u->mine[row], u->route[row], sizeof u->mine[row]);
        for (uint32_t k = 0; k < n_used; k++) {
            uint32_t id = (uint32_t)u->route[row][k], at = 0;
            while (at < u->n && u->id[at] != id)
                at++;
            u->id[at] = id;
            u->n += at == u->n;
            u->mine[row][k] = (float)at;
        }
    }
}

/* Takes rows col[0..n) of each used expert's part: row i of the k-th is row k n + i of the slice's part. */
static int slice_experts(struct slice *c, const void **list, const struct weight *from, const struct used *u,
                         uint32_t part, const uint32_t *col, uint32_t n, struct hearth_err *e)
{
    const struct weight_part *p = &from->part[part];
    uint64_t row_bytes = dtype_bytes((int)p->type, from->n_in);
    uint8_t *to = aligned_alloc(64, (row_bytes * n * u->n + 63) / 64 * 64);
    if (!to)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u rows of %u experts", n, u->n);
    c->bytes[c->w.n_part] = to;
    for (uint32_t k = 0; k < u->n; k++) {
        list[k] = to + k * n * row_bytes;
        for (uint32_t i = 0; i < n; i++)
            memcpy(to + (k * n + i) * row_bytes, (const uint8_t *)p->expert[u->id[k]] + col[i] * row_bytes, row_bytes);
    }
    float *scale = c->scale[c->w.n_part] = p->expert_scale ? malloc(u->n * sizeof *scale) : NULL;
    if (p->expert_scale && !scale)
        return err_set(e, HEARTH_ENOMEM, "no memory for factors of %u experts", u->n);
    for (uint32_t k = 0; scale && k < u->n; k++)
        scale[k] = p->expert_scale[u->id[k]];
    c->w.part[c->w.n_part++] = (struct weight_part){
        .type = p->type, .n_out = n, .data = to, .expert = list, .scale = p->scale, .expert_scale = scale};
    c->w.n_out += n;
    c->w.n_expert = u->n;
    return 0;
}

/* The same for biases, [n_part][n_expert][width]. */
static int slice_expert_bias(struct slice *c, const float *bias, const struct weight *from, const struct used *u,
                             const uint32_t *col, uint32_t n, const float **out, struct hearth_err *e)
{
    const float *host = model_vector(c->r->m, bias);
    uint32_t n_part = c->w.n_part, width = from->part[0].n_out;
    *out = NULL;
    if (!host)
        return 0;
    float *v = malloc((size_t)n_part * u->n * n * sizeof *v), *at = v;
    if (!v)
        return err_set(e, HEARTH_ENOMEM, "no memory for biases of experts");
    c->host[c->n_host++] = v;
    for (uint32_t p = 0; p < n_part; p++)
        for (uint32_t k = 0; k < u->n; k++)
            for (uint32_t i = 0; i < n; i++)
                *at++ = host[((size_t)p * from->n_expert + u->id[k]) * width + col[i]];
    return slice_vector(c, v, n_part * u->n * n, out, e);
}

static int write_route(struct reference *r, const struct check_batch *b, const struct used *u, uint32_t n_used,
                       struct hearth_err *e)
{
    int rc = 0;
    for (uint32_t row = 0; row < b->n && !rc; row++)
        rc = r->be->act_write(r->d, ACT_ROUTE, row, 1, 2 * n_used, u->mine[row], e);
    return rc;
}

int reference_experts_up(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    enum { EACH = 8 }; /* columns of an expert */
    const struct op_experts_up *op = &j->op->experts_up;
    const struct check_batch *b = j->b;
    const struct weight *w = op->w;
    struct expect *x = j->want;
    uint32_t d = w->part[0].n_out, n = d < EACH ? d : EACH, n_used = op->n_used, col[EACH];
    struct op_experts_up mine = *op;
    struct slice c = {.r = r};
    struct used u;
    const void **list = malloc((size_t)2 * CHECK_ROWS * EXPERTS_USED_MAX * sizeof *list);
    int rc = list ? expect_new(x, b->n, n_used * n, e) : err_set(e, HEARTH_ENOMEM, "no memory for a list of experts");
    if (rc)
        goto out;
    used_of(&u, j, n_used);
    check_columns(col, n, d, j->i, b->n);
    for (uint32_t p = 0; p < w->n_part && !rc; p++)
        rc = slice_experts(&c, list + p * CHECK_ROWS * EXPERTS_USED_MAX, w, &u, p, col, n, e);
    mine.w = &c.w;
    if (rc || (rc = slice_load(&c, w, e)) || (rc = slice_norm(&c, &op->norm, w->n_in, &mine.norm, e)) ||
        (rc = slice_expert_bias(&c, op->bias, w, &u, col, n, &mine.bias, e)) ||
        (rc = reference_input(r, b, j->i, op->latent ? ACT_MIX : ACT_X, w->n_in, e)) ||
        (rc = write_route(r, b, &u, n_used, e)))
        goto out;
    struct op o = {.kind = OP_EXPERTS_UP, .experts_up = mine};
    if ((rc = reference_op(r, b, &o, x->want, e)))
        goto out;
    const float *gain = model_vector(r->m, op->norm.w), *bias = c.n_host ? c.host[c.n_host - 1] : NULL;
    for (uint32_t row = 0; row < b->n; row++)
        for (uint32_t k = 0; k < n_used * n; k++) {
            uint32_t at = (uint32_t)u.mine[row][k / n] * n + k % n;
            float size = 2;
            for (uint32_t p = 0; p < w->n_part; p++)
                size *= slice_row_size(&c, p, at, gain) + (bias ? fabsf(bias[p * u.n * n + at]) : 0);
            x->scale[row * n_used * n + k] = size;
            x->col[k] = k / n * d + col[k % n];
        }
out:
    slice_free(&c);
    free(list);
    return rc;
}

int reference_experts_down(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    enum { EACH = 32 };
    const struct op_experts_down *op = &j->op->experts_down;
    const struct check_batch *b = j->b;
    const struct weight *w = op->w;
    struct expect *x = j->want;
    bool few = w->n_out > EACH && !op->post_norm; /* a norm needs all columns */
    uint32_t n = few ? EACH : w->n_out, n_used = op->n_used;
    struct norm post, aside;
    struct op_experts_down mine = *op;
    struct slice c = {.r = r};
    struct used u;
    const void **list = malloc((size_t)CHECK_ROWS * EXPERTS_USED_MAX * sizeof *list);
    float *in = malloc(w->n_out * sizeof *in), *some = malloc(n * sizeof *some);
    int rc =
        list && in && some ? expect_new(x, b->n, n, e) : err_set(e, HEARTH_ENOMEM, "no memory for a list of experts");
    if (rc)
        goto out;
    used_of(&u, j, n_used);
    check_columns(x->col, n, w->n_out, j->i, b->n);
    mine.w = &c.w;
    if ((rc = slice_experts(&c, list, w, &u, 0, x->col, n, e)) || (rc = slice_load(&c, w, e)) ||
        (rc = slice_expert_bias(&c, op->bias, w, &u, x->col, n, &mine.bias, e)) ||
        (rc = reference_input(r, b, j->i, ACT_EXPERTS, n_used * w->n_in, e)) || (rc = write_route(r, b, &u, n_used, e)))
        goto out;
    if ((op->post_norm && (rc = slice_norm(&c, op->post_norm, n, &post, e))) ||
        (op->aside_norm && (rc = slice_norm(&c, op->aside_norm, n, &aside, e))) ||
        (op->aside_norm && (rc = reference_input(r, b, j->i, ACT_ASIDE, n, e))))
        goto out;
    mine.post_norm = op->post_norm ? &post : NULL;
    mine.aside_norm = op->aside_norm ? &aside : NULL;
    for (uint32_t row = 0; row < b->n && !rc; row++) {
        check_input(in, w->n_out, j->i, ACT_X, b->input_id[row]);
        for (uint32_t k = 0; k < n; k++)
            some[k] = in[x->col[k]];
        rc = r->be->act_write(r->d, ACT_X, row, 1, n, some, e); /* the residual stream, as narrow as the sample */
    }
    struct op o = {.kind = OP_EXPERTS_DOWN, .experts_down = mine};
    if (rc || (rc = reference_op(r, b, &o, x->want, e)))
        goto out;
    const float *bias = c.n_host ? c.host[c.n_host - 1] : NULL;
    const struct norm *last = op->aside_norm ? op->aside_norm : op->post_norm;
    const float *gain = last ? model_vector(r->m, last->w) : NULL;
    float x_scale = op->x_scale != 0 ? fabsf(op->x_scale) : 1;
    for (uint32_t row = 0; row < b->n; row++)
        for (uint32_t k = 0; k < n; k++) {
            float size = 0;
            for (uint32_t i = 0; i < n_used && !last; i++) {
                uint32_t at = (uint32_t)u.mine[row][i] * n + k;
                size +=
                    fabsf(u.mine[row][n_used + i]) * (slice_row_size(&c, 0, at, NULL) + (bias ? fabsf(bias[at]) : 0));
            }
            size *= op->residual_scale != 0 ? fabsf(op->residual_scale) : 1;
            x->scale[row * n + k] = x_scale * (last ? gain ? fabsf(gain[k]) : 1 : size);
        }
    x->exact = !op->latent; /* ACT_ATT is fp16 */
out:
    slice_free(&c);
    free(list);
    free(in);
    free(some);
    return rc;
}
