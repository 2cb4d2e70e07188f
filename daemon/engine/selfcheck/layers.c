/*
 * layers.c - the self-check of ops that only some models' layers have: per-layer inputs, latent attention. Tells when
 * two ops do the same work, and computes what is expected of one.
 *
 * For latent attention the reference computes one head. The other ops it computes whole, as norms are over all of their
 * results.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/selfcheck/slice.h"

/* --- whether two ops do the same work on other numbers --------------------------------------------------- */

bool same_inputs(const struct op_inputs *a, const struct op_inputs *b)
{
    return same_weight(a->w, b->w) && same_weight(a->embed, b->embed) && same_norm(&a->norm, &b->norm) &&
           a->d_input == b->d_input && same_float(a->w_scale, b->w_scale) &&
           same_float(a->embed_scale, b->embed_scale) && same_float(a->scale, b->scale);
}

bool same_input_gate(const struct op_input_gate *a, const struct op_input_gate *b)
{
    return same_weight(a->w, b->w) && a->n_layer == b->n_layer;
}

bool same_latent(const struct op_latent *a, const struct op_latent *b)
{
    return a->group == b->group && a->d_c == b->d_c && same_norm(&a->norm, &b->norm) && same_weight(a->w, b->w) &&
           same_norm(a->q_norm, b->q_norm) && same_norm(&a->kv_norm, &b->kv_norm) && a->rope == b->rope;
}

bool same_latent_q(const struct op_latent_q *a, const struct op_latent_q *b)
{
    return a->n_head == b->n_head && a->d_nope == b->d_nope && a->d_c == b->d_c && !a->w == !b->w &&
           (!a->w || same_weight(a->w, b->w)) && same_weight(a->absorb, b->absorb) && a->rope == b->rope;
}

bool same_latent_out(const struct op_latent_out *a, const struct op_latent_out *b)
{
    return same_weight(a->w, b->w);
}

/* --- helpers ----------------------------------------------------------------------------------------------- */

/* Takes rows from .. from + n - 1 of a part as the next part of the slice. */
static int take_rows(struct slice *c, const struct weight *w, uint32_t part, uint32_t from, uint32_t n,
                     struct hearth_err *e)
{
    uint32_t *col = malloc(n * sizeof *col);
    if (!col)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u columns", n);
    for (uint32_t k = 0; k < n; k++)
        col[k] = from + k;
    int rc = slice_part(c, w, part, col, n, e);
    free(col);
    return rc;
}

/* Takes one head's matrix of a WEIGHT_HEADS, all of its rows, as a model with one head would have it. `list` stores its
 * address. */
static int take_head(struct slice *c, const struct weight *w, uint32_t head, const void **list, struct hearth_err *e)
{
    struct weight one = *w;
    one.part[0].data = w->part[0].expert[head];
    int rc = take_rows(c, &one, 0, 0, w->n_out, e);
    if (rc)
        return rc;
    *list = c->bytes[0];
    c->w.n_expert = 1;
    c->w.part[0].expert = list;
    return slice_load(c, w, e);
}

static int rope_here(struct slice *c, const struct rope *from, struct rope *to, struct hearth_err *e)
{
    *to = *from;
    return slice_vector(c, model_vector(c->r->m, from->inv_freq), from->n_rot / 2 * (from->n_set ? from->n_set : 1),
                        &to->inv_freq, e);
}

/* Writes columns at .. at + n - 1 of the n_all columns of the made-up input. */
static int input_columns(struct reference *r, struct check_job *j, enum act a, uint32_t n_all, uint32_t at, uint32_t n,
                         struct hearth_err *e)
{
    float *v = malloc(n_all * sizeof *v);
    int rc = v ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for an activation of %u", n_all);
    for (uint32_t row = 0; row < j->b->n && !rc; row++) {
        check_input(v, n_all, j->i, a, j->b->input_id[row]);
        rc = r->be->act_write(r->d, a, row, 1, n, v + at, e);
    }
    free(v);
    return rc;
}

/* Expects all columns from `at` on, with one magnitude for all. */
static void measure(struct expect *x, uint32_t rows, uint32_t at, float scale)
{
    for (uint32_t k = 0; k < x->n_col; k++)
        x->col[k] = at + k;
    for (size_t k = 0; k < (size_t)rows * x->n_col; k++)
        x->scale[k] = scale;
}

/* The greatest magnitude of a part's sums, and the greatest absolute weight of a norm. */
static float greatest_size(struct slice *c, uint32_t part, const float *gain)
{
    float most = 0;
    for (uint32_t k = 0; k < c->w.part[part].n_out; k++)
        most = fmaxf(most, slice_row_size(c, part, k, gain));
    return most;
}
static float greatest_gain(const struct reference *r, const struct norm *norm, uint32_t n)
{
    const float *w = model_vector(r->m, norm->w);
    float most = w ? 0 : 1;
    for (uint32_t k = 0; w && k < n; k++)
        most = fmaxf(most, fabsf(w[k]));
    return most;
}

/* --- per-layer inputs --------------------------------------------------------------------------------------- */

int reference_inputs(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_inputs *op = &j->op->inputs;
    struct op_inputs mine = *op;
    struct weight table = *op->embed;
    struct slice c = {.r = r};
    uint32_t n = op->w->n_out;
    table.dev = NULL, table.model = NULL;
    mine.w = &c.w, mine.embed = &table;
    int rc = r->be->weight_load(r->d, &table, e);
    if (rc)
        return rc;
    if ((rc = expect_new(j->want, j->b->n, n, e)) || (rc = take_rows(&c, op->w, 0, 0, n, e)) ||
        (rc = slice_load(&c, op->w, e)) || (rc = slice_norm(&c, &op->norm, op->d_input, &mine.norm, e)) ||
        (rc = reference_input(r, j->b, j->i, ACT_X, op->w->n_in, e)))
        goto out;
    struct op o = {.kind = OP_INPUTS, .inputs = mine};
    if (!(rc = reference_op(r, j->b, &o, j->want->want, e)))
        measure(j->want, j->b->n, 0, fabsf(op->scale) * greatest_gain(r, &op->norm, op->d_input));
out:
    slice_free(&c);
    r->be->weight_free(r->d, &table);
    return rc;
}

int reference_input_gate(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_input_gate *op = &j->op->input_gate;
    struct op_input_gate mine = *op;
    struct slice c = {.r = r};
    uint32_t n = op->w->n_out;
    mine.w = &c.w;
    int rc = expect_new(j->want, j->b->n, n, e);
    if (rc || (rc = take_rows(&c, op->w, 0, 0, n, e)) || (rc = slice_load(&c, op->w, e)) ||
        (rc = reference_input(r, j->b, j->i, ACT_X, op->w->n_in, e)) ||
        (rc = reference_input(r, j->b, j->i, ACT_INPUTS, n * op->n_layer, e)))
        goto out;
    struct op o = {.kind = OP_INPUT_GATE, .input_gate = mine};
    if (!(rc = reference_op(r, j->b, &o, j->want->want, e)))
        measure(j->want, j->b->n, 0, greatest_size(&c, 0, NULL));
out:
    slice_free(&c);
    return rc;
}

/* --- latent attention --------------------------------------------------------------------------------------- */

int reference_latent(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_latent *op = &j->op->latent;
    const struct weight *w = op->w;
    const float *gain = model_vector(r->m, op->norm.w);
    struct op_latent mine = *op;
    struct norm q_norm;
    struct rope rope;
    struct slice c = {.r = r};
    uint32_t n_q = w->part[0].n_out, n_key = w->part[1].n_out;
    mine.layer = mine.group = 0;
    mine.w = &c.w, mine.rope = &rope, mine.q_norm = op->q_norm ? &q_norm : NULL;
    j->head[1] = 0;
    int rc = reference_shape(r, 1, n_key, 0, e);
    if (rc || (rc = expect_new(&j->want[0], j->b->n, n_q, e)) || (rc = expect_new(&j->want[1], j->b->n, n_key, e)) ||
        (rc = take_rows(&c, w, 0, 0, n_q, e)) || (rc = take_rows(&c, w, 1, 0, n_key, e)) ||
        (rc = slice_load(&c, w, e)) || (rc = slice_norm(&c, &op->norm, w->n_in, &mine.norm, e)) ||
        (op->q_norm && (rc = slice_norm(&c, op->q_norm, n_q, &q_norm, e))) ||
        (rc = slice_norm(&c, &op->kv_norm, op->d_c, &mine.kv_norm, e)) || (rc = rope_here(&c, op->rope, &rope, e)) ||
        (rc = reference_input(r, j->b, j->i, ACT_X, w->n_in, e)))
        goto out;
    struct op o = {.kind = OP_LATENT, .latent = mine};
    if ((rc = reference_op(r, j->b, &o, j->want[0].want, e)) ||
        (rc = pages_download(&r->pool, r->be, r->d, r->page, e)))
        goto out;
    reference_rows(&r->desc, r->page, 0, false, 0, j->b, j->want[1].want);
    measure(&j->want[0], j->b->n, 0, op->q_norm ? greatest_gain(r, op->q_norm, n_q) : greatest_size(&c, 0, gain));
    measure(&j->want[1], j->b->n, 0, fmaxf(greatest_gain(r, &op->kv_norm, op->d_c), greatest_size(&c, 1, gain)));
out:
    slice_free(&c);
    return rc;
}

int reference_latent_q(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_latent_q *op = &j->op->latent_q;
    struct op_latent_q mine = *op;
    struct rope rope;
    struct slice c = {.r = r}, own = {.r = r};
    const void *list[1];
    uint32_t head = check_hash(j->i * 8 + j->b->n) % op->n_head, d_q = op->d_nope + op->rope->n_rot,
             n = op->rope->n_rot + op->d_c;
    mine.n_head = 1, mine.absorb = &own.w, mine.rope = &rope;
    int rc = expect_new(j->want, j->b->n, n, e);
    if (rc || (rc = take_head(&own, op->absorb, head, list, e)) || (rc = rope_here(&own, op->rope, &rope, e)))
        goto out;
    if (op->w) {
        mine.w = &c.w;
        rc = take_rows(&c, op->w, 0, head * d_q, d_q, e);
        if (rc || (rc = slice_load(&c, op->w, e)) || (rc = reference_input(r, j->b, j->i, ACT_LATENT, op->w->n_in, e)))
            goto out;
    } else if ((rc = input_columns(r, j, ACT_LATENT, op->n_head * d_q, head * d_q, d_q, e)))
        goto out;
    struct op o = {.kind = OP_LATENT_Q, .latent_q = mine};
    if ((rc = reference_op(r, j->b, &o, j->want->want, e)))
        goto out;
    float of_q = op->w ? greatest_size(&c, 0, NULL) : 1;
    measure(j->want, j->b->n, head * n, of_q * fmaxf(1, greatest_size(&own, 0, NULL)));
out:
    slice_free(&c);
    slice_free(&own);
    return rc;
}

int reference_latent_out(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct weight *w = j->op->latent_out.w;
    struct slice c = {.r = r};
    const void *list[1];
    uint32_t head = check_hash(j->i * 8 + j->b->n) % w->n_expert;
    int rc = expect_new(j->want, j->b->n, w->n_out, e);
    if (rc || (rc = take_head(&c, w, head, list, e)) ||
        (rc = input_columns(r, j, ACT_ATT, w->n_expert * w->n_in, head * w->n_in, w->n_in, e)))
        goto out;
    struct op o = {.kind = OP_LATENT_OUT, .latent_out = {.w = &c.w}};
    if (!(rc = reference_op(r, j->b, &o, j->want->want, e)))
        measure(j->want, j->b->n, head * w->n_out, greatest_size(&c, 0, NULL));
out:
    slice_free(&c);
    return rc;
}
