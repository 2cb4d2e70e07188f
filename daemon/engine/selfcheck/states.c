/*
 * states.c - the self-check of the ops of layers with a recurrent state: when two do the same work, and what is
 * expected of one.
 *
 * For a product into ACT_MIX the reference computes sampled rows. The other ops it computes whole: slicing by head
 * would save little, as what heads share is small beside the states, and the whole is only some million multiply-adds.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/selfcheck/slice.h"

const uint32_t check_state_pages[CHECK_SEQS][2] = {{0, 3}, {1, 4}, {2, 5}};

void check_state(float *v, uint32_t n, uint32_t layer, uint32_t seq)
{
    check_input(v, n, CHECK_INPUT_STATE + layer, ACT_MIX, seq);
}

/* --- whether two ops do the same work on other numbers --------------------------------------------------- */

static bool same_conv(const struct state_conv *a, const struct state_conv *b)
{
    return a->n_tap == b->n_tap && !a->bias == !b->bias;
}

bool same_project(const struct op_project *a, const struct op_project *b)
{
    return same_weight(a->w, b->w) && same_norm(&a->norm, &b->norm) && a->at == b->at && a->width == b->width;
}

bool same_shortconv(const struct op_shortconv *a, const struct op_shortconv *b)
{
    return a->group == b->group && a->d_inner == b->d_inner && same_conv(&a->conv, &b->conv);
}

bool same_delta(const struct op_delta *a, const struct op_delta *b)
{
    return a->group == b->group && a->n_k == b->n_k && a->n_v == b->n_v && a->d_k == b->d_k && a->d_v == b->d_v &&
           a->tiled == b->tiled && a->paired == b->paired && same_conv(&a->conv, &b->conv) &&
           same_norm(&a->norm, &b->norm);
}

bool same_mamba2(const struct op_mamba2 *a, const struct op_mamba2 *b)
{
    return a->group == b->group && a->n_head == b->n_head && a->d_head == b->d_head && a->d_state == b->d_state &&
           a->n_group == b->n_group && a->norm_whole == b->norm_whole && same_conv(&a->conv, &b->conv) &&
           same_norm(&a->norm, &b->norm);
}

/* --- products --------------------------------------------------------------------------------------------- */

int reference_project(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    enum { EACH = SELFCHECK_ROWS / 3 };
    const struct op_project *op = &j->op->project;
    const struct weight *w = op->w;
    const float *gain = model_vector(r->m, op->norm.w);
    struct expect *x = j->want;
    struct op_project mine = *op;
    struct slice c = {.r = r};
    uint32_t total = 0, at = op->at, col[EACH];
    for (uint32_t p = 0; p < w->n_part; p++)
        total += w->part[p].n_out < EACH ? w->part[p].n_out : EACH;
    int rc = expect_new(x, j->b->n, total, e);
    for (uint32_t p = 0, k = 0; p < w->n_part && !rc; at += w->part[p++].n_out) {
        uint32_t n = w->part[p].n_out < EACH ? w->part[p].n_out : EACH;
        check_columns(col, n, w->part[p].n_out, j->i, j->b->n);
        for (uint32_t i = 0; i < n; i++)
            x->col[k++] = at + col[i];
        rc = slice_part(&c, w, p, col, n, e);
    }
    mine.w = &c.w, mine.at = 0, mine.width = total;
    if (rc || (rc = slice_load(&c, w, e)) || (rc = slice_norm(&c, &op->norm, w->n_in, &mine.norm, e)) ||
        (rc = reference_input(r, j->b, j->i, ACT_X, w->n_in, e)))
        goto out;
    struct op o = {.kind = OP_PROJECT, .project = mine};
    if ((rc = reference_op(r, j->b, &o, x->want, e)))
        goto out;
    for (uint32_t p = 0, k = 0; p < c.w.n_part; p++)
        for (uint32_t i = 0; i < c.w.part[p].n_out; i++, k++) {
            float size = slice_row_size(&c, p, i, gain);
            for (uint32_t row = 0; row < j->b->n; row++)
                x->scale[row * total + k] = size;
        }
out:
    slice_free(&c);
    return rc;
}

/* --- states ------------------------------------------------------------------------------------------------ */

/* Runs the op over the job's batch; its sequences start from the same states as the device's. */
static int run_states(struct reference *r, struct check_job *j, struct op *op, uint32_t layer, uint32_t n_state,
                      float *out, struct hearth_err *e)
{
    const struct check_batch *b = j->b;
    const struct kv_desc desc = {.n_layer = 1, .type = DT_F32, .n_page = CHECK_STATES, .d_state = n_state};
    struct batch_seq seq[CHECK_ROWS];
    struct check_pages pool = {0};
    uint32_t n_seq = 0, none = 0;
    uint8_t *fill = calloc(CHECK_STATES, kv_page_bytes(&desc));
    int rc = fill ? pages_open(&pool, r->be, r->d, &desc, e) : err_set(e, HEARTH_ENOMEM, "no memory for states");
    for (uint32_t s = 0; s < CHECK_SEQS && !rc; s++)
        check_state((float *)(fill + check_state_pages[s][0] * kv_page_bytes(&desc)), n_state, layer, s);
    if (rc || (rc = pages_upload(&pool, r->be, r->d, fill, e)) ||
        (rc = reference_input(r, b, j->i, ACT_MIX, op_columns(op, ACT_MIX), e)))
        goto out;
    for (uint32_t i = 0; i < b->n; i++) {
        if (!i || b->seq[i] != b->seq[i - 1])
            seq[n_seq++] = (struct batch_seq){.row0 = i, .pos0 = b->pos[i], .pages = {check_state_pages[b->seq[i]]}};
        seq[n_seq - 1].n_row++;
    }
    struct batch batch = {.n_row = b->n,
                          .n_seq = n_seq,
                          .token = b->token,
                          .seq = seq,
                          .out_row = &none,
                          .kv = {pool.kv},
                          .n_group = 1,
                          .invariant = INVARIANT_DECODE,
                          .once = true};
    struct program p = program_of(NULL, op, 1);
    if (!(rc = r->be->step_wait(r->d, r->be->step_run(r->d, &batch, &p), NULL, 0, e)))
        rc = r->be->act_read(r->d, ACT_ATT, 0, b->n, out, e);
out:
    pages_close(&pool, r->be, r->d);
    free(fill);
    return rc;
}

/* Expects all of the op's results; the greatest of a row's numbers is its magnitude. */
static int expect_states(struct reference *r, struct check_job *j, struct op *op, uint32_t layer, uint32_t n_state,
                         struct hearth_err *e)
{
    struct expect *x = j->want;
    uint32_t n = op_columns(op, ACT_ATT);
    int rc = expect_new(x, j->b->n, n, e);
    if (rc || (rc = run_states(r, j, op, layer, n_state, x->want, e)))
        return rc;
    for (uint32_t k = 0; k < n; k++)
        x->col[k] = k;
    for (uint32_t row = 0; row < j->b->n; row++) {
        float most = 0;
        for (uint32_t k = 0; k < n; k++)
            most = fmaxf(most, fabsf(x->want[row * n + k]));
        for (uint32_t k = 0; k < n; k++)
            x->scale[row * n + k] = most;
    }
    return 0;
}

static int conv_here(struct slice *c, struct state_conv *conv, uint32_t n_channel, struct hearth_err *e)
{
    int rc = slice_vector(c, model_vector(c->r->m, conv->w), n_channel * conv->n_tap, &conv->w, e);
    return rc ? rc : slice_vector(c, model_vector(c->r->m, conv->bias), n_channel, &conv->bias, e);
}

int reference_shortconv(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    struct op o = *j->op;
    struct op_shortconv *mine = &o.shortconv;
    uint32_t layer = mine->layer;
    struct slice c = {.r = r};
    mine->layer = mine->group = 0;
    int rc = conv_here(&c, &mine->conv, mine->d_inner, e);
    if (!rc)
        rc = expect_states(r, j, &o, layer, (mine->conv.n_tap - 1) * mine->d_inner, e);
    slice_free(&c);
    return rc;
}

int reference_delta(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    struct op o = *j->op;
    struct op_delta *mine = &o.delta;
    uint32_t layer = mine->layer, n = delta_channels(mine);
    struct slice c = {.r = r};
    mine->layer = mine->group = 0;
    int rc = conv_here(&c, &mine->conv, n, e);
    if (!rc && !(rc = slice_vector(&c, model_vector(r->m, mine->decay), mine->n_v, &mine->decay, e)) &&
        !(rc = slice_vector(&c, model_vector(r->m, mine->dt_bias), mine->n_v, &mine->dt_bias, e)) &&
        !(rc = slice_norm(&c, &j->op->delta.norm, mine->d_v, &mine->norm, e)))
        rc = expect_states(r, j, &o, layer, (mine->conv.n_tap - 1) * n + mine->n_v * mine->d_k * mine->d_v, e);
    slice_free(&c);
    return rc;
}

int reference_mamba2(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    struct op o = *j->op;
    struct op_mamba2 *mine = &o.mamba2;
    uint32_t layer = mine->layer, n = mamba2_channels(mine), inner = mine->n_head * mine->d_head;
    struct slice c = {.r = r};
    mine->layer = mine->group = 0;
    int rc = conv_here(&c, &mine->conv, n, e);
    if (!rc && !(rc = slice_vector(&c, model_vector(r->m, mine->decay), mine->n_head, &mine->decay, e)) &&
        !(rc = slice_vector(&c, model_vector(r->m, mine->dt_bias), mine->n_head, &mine->dt_bias, e)) &&
        !(rc = slice_vector(&c, model_vector(r->m, mine->skip), mine->n_head, &mine->skip, e)) &&
        !(rc = slice_norm(&c, &j->op->mamba2.norm, inner, &mine->norm, e)))
        rc = expect_states(r, j, &o, layer, (mine->conv.n_tap - 1) * n + inner * mine->d_state, e);
    slice_free(&c);
    return rc;
}
