/*
 * ref.c - computes the expected results of an op, from a reference backend and a few rows of its weights; see
 * selfcheck.h.
 *
 * The reference may be any backend and is used through its function table: it gets the op with a slice of the weight
 * that has only the sampled rows, and the same slices of the vectors. Norms are over the whole input and RoPE is over
 * whole heads, so those are never sliced.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/selfcheck/slice.h"

uint32_t check_hash(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

void check_input(float *v, uint32_t n, uint32_t op, enum act a, uint32_t input_id)
{
    uint32_t seed = check_hash(op << 16 | (uint32_t)a << 8 | (input_id + 1));
    /* Queries are large enough for attention to have peaks, the residual stream small enough not to hide a product. */
    float unit = a == ACT_Q ? 8.0f / 1024 : 1.0f / 1024;
    for (uint32_t i = 0; i < n; i++)
        v[i] = (float)((int32_t)(check_hash(seed + i) & 2047) - 1024) * unit;
}

/* Makes a valid route: n_used distinct experts below n_expert, and weights greater than 0. */
static void check_route(float *v, uint32_t n_used, uint32_t n_expert, uint32_t op, uint32_t input_id)
{
    uint32_t seed = check_hash(op << 16 | ACT_ROUTE << 8 | (input_id + 1)),
             step = 1 + check_hash(seed) % (n_expert / n_used);
    for (uint32_t k = 0; k < n_used; k++) {
        v[k] = (float)((seed % n_expert + k * step) % n_expert);
        v[n_used + k] = (float)(1 + (check_hash(seed + k) & 1023)) / 1024.0f;
    }
}

uint32_t check_width(const struct op *op, enum act a)
{
    return op->kind == OP_LATENT_OUT ? op->latent_out.w->n_expert * op->latent_out.w->n_in : op_columns(op, a);
}

void check_op_input(float *v, const struct op *op, uint32_t i, enum act a, uint32_t input_id)
{
    uint32_t n = check_width(op, a);
    if (a == ACT_ROUTE)
        check_route(v, n / 2, op_weight(op)->n_expert, i, input_id);
    else
        check_input(v, n, i, a, input_id);
}

void expect_free(struct expect *x)
{
    free(x->col);
    free(x->want);
    free(x->scale);
    memset(x, 0, sizeof *x);
}

int expect_new(struct expect *x, uint32_t n_row, uint32_t n_col, struct hearth_err *e)
{
    size_t n = (size_t)n_row * n_col;
    *x = (struct expect){.n_col = n_col,
                         .col = malloc(n_col * sizeof *x->col),
                         .want = malloc(n * sizeof *x->want),
                         .scale = malloc(n * sizeof *x->scale)};
    if (x->col && x->want && x->scale)
        return 0;
    return err_set(e, HEARTH_ENOMEM, "no memory to check %u columns", n_col);
}

/* --- pages ----------------------------------------------------------------------------------------------- */

int pages_open(struct check_pages *p, const struct backend *be, struct device *d, const struct kv_desc *desc,
               struct hearth_err *e)
{
    struct device_info info;
    be->info(d, &info);
    p->bytes = kv_page_bytes(desc) * desc->n_page;
    p->desc = *desc;
    p->apart = info.kv_apart && desc->type == DT_Q8_0;
    int rc = be->kv_new(d, desc, &p->kv, e);
    return rc ? rc : be->host_alloc(d, p->bytes, (void **)&p->room, e);
}

void pages_close(struct check_pages *p, const struct backend *be, struct device *d)
{
    if (p->room)
        be->host_free(d, p->room);
    if (p->kv)
        be->kv_free(d, p->kv);
    *p = (struct check_pages){0};
}

static int move(struct check_pages *p, const struct backend *be, struct device *d, bool put, struct hearth_err *e)
{
    uint32_t pages[CHECK_PAGES];
    void *at[CHECK_PAGES];
    for (uint32_t i = 0; i < p->desc.n_page; i++) {
        pages[i] = i;
        at[i] = p->room + i * (p->bytes / p->desc.n_page);
    }
    uint64_t ticket = put ? be->kv_load(d, p->kv, pages, (const void *const *)at, p->desc.n_page)
                          : be->kv_save(d, p->kv, pages, at, p->desc.n_page);
    return ticket ? be->kv_transfer_wait(d, ticket, e) : be->sync(d, e);
}

int pages_upload(struct check_pages *p, const struct backend *be, struct device *d, const uint8_t *from,
                 struct hearth_err *e)
{
    uint64_t page = p->bytes / p->desc.n_page;
    for (uint32_t i = 0; i < p->desc.n_page; i++)
        if (p->apart)
            kv_page_apart(&p->desc, from + i * page, p->room + i * page);
        else
            memcpy(p->room + i * page, from + i * page, page);
    return move(p, be, d, true, e);
}

int pages_download(struct check_pages *p, const struct backend *be, struct device *d, uint8_t *to, struct hearth_err *e)
{
    uint64_t page = p->bytes / p->desc.n_page;
    int rc = move(p, be, d, false, e);
    for (uint32_t i = 0; i < p->desc.n_page && !rc; i++)
        if (p->apart)
            kv_page_blocks(&p->desc, p->room + i * page, to + i * page);
        else
            memcpy(to + i * page, p->room + i * page, page);
    return rc;
}

/* --- the reference's device ------------------------------------------------------------------------------ */

int reference_open(struct reference *r, const struct model *m, const struct backend *be,
                   const struct device_params *params, enum dtype kv_type, struct hearth_err *e)
{
    struct workspace_dims dims = {.n_row = CHECK_ROWS, .n_out = CHECK_ROWS};
    uint32_t d_head = m->hp.d_head ? m->hp.d_head : 1; /* a model with only states has none */
    memset(r, 0, sizeof *r);
    r->m = m;
    r->be = be;
    r->desc.type = kv_type;
    int rc = be->open(&r->d, params, e);
    if (rc)
        return rc;
    model_workspace(m, &dims);
    if ((rc = be->reserve(r->d, &dims, e)) || (rc = reference_shape(r, 1, d_head, d_head, e)))
        reference_close(r);
    return rc;
}

int reference_shape(struct reference *r, uint32_t n_kv, uint32_t d_k, uint32_t d_v, struct hearth_err *e)
{
    if (r->pool.kv && r->desc.n_kv == n_kv && r->desc.d_k == d_k && r->desc.d_v == d_v)
        return 0;
    pages_close(&r->pool, r->be, r->d);
    free(r->page);
    r->desc = (struct kv_desc){
        .n_layer = 1, .n_kv = n_kv, .d_k = d_k, .d_v = d_v, .type = r->desc.type, .n_page = CHECK_PAGES};
    if (!(r->page = malloc(kv_page_bytes(&r->desc) * CHECK_PAGES)))
        return err_set(e, HEARTH_ENOMEM, "no memory for KV to check");
    return pages_open(&r->pool, r->be, r->d, &r->desc, e);
}

void reference_close(struct reference *r)
{
    if (!r->d)
        return;
    pages_close(&r->pool, r->be, r->d);
    r->be->close(r->d);
    free(r->page);
    memset(r, 0, sizeof *r);
}

/* Runs the op, or none, over the batch as a step and waits. For the reference every row is a sequence of its own; where
 * rows need earlier KV, it is copied into the pages. The op's matrices are slices and belong to no model. */
static int step(struct reference *r, const struct check_batch *b, const struct op *op,
                const struct batch_sample *sample, struct sampled *out, struct hearth_err *e)
{
    struct batch_seq seq[CHECK_ROWS];
    uint32_t row[CHECK_ROWS];
    for (uint32_t i = 0; i < b->n; i++) {
        seq[i] = (struct batch_seq){i, 1, b->pos[i], {b->pages[i]}, b->seq[i] % 2};
        row[i] = i;
    }
    struct batch batch = {.n_row = b->n,
                          .n_seq = b->n,
                          .n_out = b->n,
                          .token = b->token,
                          .seq = seq,
                          .out_row = row,
                          .kv = {r->pool.kv},
                          .n_group = 1,
                          .invariant = INVARIANT_DECODE,
                          .once = true};
    if (sample)
        batch.sample = *sample;
    struct program p = program_of(NULL, op, op ? 1 : 0);
    return r->be->step_wait(r->d, r->be->step_run(r->d, &batch, &p), out, batch.sample.n, e);
}

/* Runs the op and reads its results. */
int reference_op(struct reference *r, const struct check_batch *b, const struct op *op, float *out,
                 struct hearth_err *e)
{
    int rc = step(r, b, op, NULL, NULL, e);
    return rc ? rc : r->be->act_read(r->d, op_writes(op), 0, b->n, out, e);
}

int reference_input(struct reference *r, const struct check_batch *b, uint32_t i, enum act a, uint32_t n,
                    struct hearth_err *e)
{
    float *v = malloc((size_t)n * sizeof *v);
    int rc = v ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for an activation of %u", n);
    for (uint32_t row = 0; row < b->n && !rc; row++) {
        check_input(v, n, i, a, b->input_id[row]);
        rc = r->be->act_write(r->d, a, row, 1, n, v, e);
    }
    free(v);
    return rc;
}

/* Samples n of `total` columns: one from each of n equal stretches, the first and the last column among them, different
 * ones in each batch. */
void check_columns(uint32_t *col, uint32_t n, uint32_t total, uint32_t i, uint32_t n_row)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t lo = (uint32_t)((uint64_t)total * k / n), hi = (uint32_t)((uint64_t)total * (k + 1) / n);
        col[k] = lo + check_hash(i << 20 ^ n_row << 16 ^ k) % (hi - lo);
    }
    col[0] = 0;
    col[n - 1] = total - 1;
}

/* --- the ops --------------------------------------------------------------------------------------------- */

int reference_embed(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct check_batch *b = j->b;
    struct expect *x = j->want;
    struct weight w = *j->op->embed.w;
    struct op mine = *j->op;
    uint32_t n = w.n_in;
    w.dev = NULL;
    mine.embed.w = &w;
    int rc = r->be->weight_load(r->d, &w, e);
    if (rc || (rc = expect_new(x, b->n, n, e)))
        return rc;
    rc = reference_op(r, b, &mine, x->want, e);
    r->be->weight_free(r->d, &w);
    for (uint32_t k = 0; k < n; k++)
        x->col[k] = k;
    for (size_t k = 0; k < (size_t)b->n * n; k++)
        x->scale[k] = 0;
    x->exact = true;
    return rc;
}

void reference_rows(const struct kv_desc *desc, const uint8_t *pages, uint32_t layer, bool v, uint32_t head,
                    const struct check_batch *b, float *out)
{
    const struct dtype_info *t = dtype_get((int)desc->type);
    for (uint32_t row = 0; row < b->n; row++) {
        uint32_t d = v ? desc->d_v : desc->d_k;
        const uint8_t *page = pages + b->pages[row][b->pos[row] / KV_PAGE] * kv_page_bytes(desc);
        t->to_f32(page + kv_vector_at(desc, layer, v, head, b->pos[row]), out + (size_t)row * d, d);
    }
}

int reference_qkv(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_qkv *q = &j->op->qkv;
    const struct check_batch *b = j->b;
    struct expect *out = j->want;
    uint32_t i = j->i, *head = j->head;
    uint32_t parts = q->w->n_part, kinds = parts > 1 ? 3 : 1; /* with Q and K alone, values are K as projected */
    uint32_t n = q->d_head, d_q = q->n_head * n, d_kv = q->n_kv * n, first[3] = {0, d_q, d_q + d_kv};
    const uint32_t *cols[3];
    uint32_t gated[2 * 1024], both = q->gated ? 2 * n : n; /* rows of a head: its query, then its gate */
    struct op_qkv mine = *q;
    struct op op;
    struct norm q_norm, k_norm, v_norm;
    struct rope rope;
    struct slice c = {.r = r};
    /* The reference computes the sampled head of each part; of norms over all heads all of them, of which the sampled
     * one is compared. */
    bool all = q->whole_norms;
    uint32_t n_head = all ? q->n_head : 1, n_kv = all ? q->n_kv : 1, at[3] = {0, 0, 0};
    float *made = NULL; /* [b->n][n_head][n], the reference's queries */
    int rc = 0;
    if (2 * n > sizeof gated / sizeof *gated)
        return err_set(e, HEARTH_EUNSUPPORTED, "heads of %u are not checked", n);
    head[0] = check_hash(i * 8 + b->n) % q->n_head;
    head[1] = check_hash(i * 8 + b->n + 64) % q->n_kv;
    head[2] = parts == 2 ? head[1] : check_hash(i * 8 + b->n + 128) % q->n_kv;
    if (all)
        memcpy(at, head, sizeof at);
    if (!(made = malloc((size_t)b->n * n_head * n * sizeof *made)))
        return err_set(e, HEARTH_ENOMEM, "no memory for the queries of %u heads", n_head);
    rc = reference_shape(r, n_kv, n, n, e);
    for (uint32_t p = 0; p < kinds && !rc; p++) {
        if ((rc = expect_new(&out[p], b->n, n, e)))
            break;
        for (uint32_t k = 0; k < n; k++)
            out[p].col[k] = head[p] * n + k;
        cols[p] = out[p].col;
        for (uint32_t k = 0; k < both && p == 0; k++)
            gated[k] = head[0] * both + k;
        if (p < parts && all)
            slice_whole(&c, q->w, p);
        else if (p < parts)
            rc = slice_part(&c, q->w, p, p ? out[p].col : gated, p ? n : both, e);
    }
    mine.layer = mine.group = 0;
    mine.n_head = n_head, mine.n_kv = n_kv;
    mine.w = &c.w;
    if (rc || (rc = slice_load(&c, q->w, e)) || (rc = slice_norm(&c, &q->norm, q->w->n_in, &mine.norm, e)) ||
        (rc = all ? slice_vector(&c, model_vector(r->m, q->bias), q->w->n_out, &mine.bias, e)
                  : slice_bias(&c, q->bias, cols, first, n, &mine.bias, e)))
        goto out;
    if (q->q_norm && (rc = slice_norm(&c, q->q_norm, n_head * n, &q_norm, e)))
        goto out;
    if (q->k_norm && (rc = slice_norm(&c, q->k_norm, n_kv * n, &k_norm, e)))
        goto out;
    if (q->v_norm && (rc = slice_norm(&c, q->v_norm, n, &v_norm, e)))
        goto out;
    mine.v_norm = q->v_norm ? &v_norm : NULL;
    mine.q_norm = q->q_norm ? &q_norm : NULL;
    mine.k_norm = q->k_norm ? &k_norm : NULL;
    if (q->rope) {
        rope = *q->rope;
        mine.rope = &rope;
        uint32_t n_freq = rope.n_rot / 2 * (rope.n_set ? rope.n_set : 1);
        if ((rc = slice_vector(&c, model_vector(r->m, q->rope->inv_freq), n_freq, &rope.inv_freq, e)))
            goto out;
    }
    op = (struct op){.kind = OP_QKV, .qkv = mine};
    if ((rc = reference_input(r, b, i, ACT_X, q->w->n_in, e)) || (rc = reference_op(r, b, &op, made, e)) ||
        (rc = pages_download(&r->pool, r->be, r->d, r->page, e)))
        goto out;
    for (uint32_t row = 0; row < b->n; row++)
        memcpy(out[0].want + (size_t)row * n, made + ((size_t)row * n_head + at[0]) * n, n * sizeof *made);
    for (uint32_t p = 1; p < kinds; p++)
        reference_rows(&r->desc, r->page, 0, p == 2, at[p], b, out[p].want);
    for (uint32_t p = 0; p < kinds; p++) {
        float most = 0; /* the largest of the head, as RoPE mixes its columns */
        const struct norm *after = p == 0 ? q->q_norm : p == 1 ? q->k_norm : q->v_norm;
        const float *gain = after ? model_vector(r->m, after->w) : NULL;
        uint32_t part = p < parts ? p : 1;
        const float *in_gain = model_vector(r->m, q->norm.w);
        float rms = all && after ? slice_rms(&c, part, in_gain) : 0;
        /* After a norm of its own a head's columns are of the magnitude of its weights; after one over all heads those
         * of a head that is larger than others are larger. */
        for (uint32_t k = at[p] * n; k < (at[p] + 1) * n; k++) {
            float size = !after || rms > 0 ? slice_row_size(&c, part, k, in_gain) : 1;
            most = fmaxf(most, (rms > 0 ? size / rms : size) * (gain ? fabsf(gain[k]) : 1));
        }
        for (size_t k = 0; k < (size_t)b->n * n; k++)
            out[p].scale[k] = most;
        for (uint32_t k = 0; k < n && p; k++)
            out[p].col[k] = k; /* the page holds only this head */
    }
out:
    slice_free(&c);
    free(made);
    return rc;
}

/* Computes one query head over its keys and values, taken from the device's pages. */
int reference_attend(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct check_batch *b = j->b;
    const struct kv_desc *desc = j->desc;
    const uint8_t *kv = j->kv;
    struct expect *x = j->want;
    struct op_attend mine = j->op->attend;
    struct op op;
    struct slice c = {.r = r};
    const float *sinks = model_vector(r->m, mine.sinks);
    uint32_t i = j->i, n = mine.d_head, d_q = mine.n_head * n;
    uint32_t head = check_hash(i * 8 + b->n) % mine.n_head, from = head / (mine.n_head / mine.n_kv);
    uint32_t d_out = mine.d_latent ? mine.d_latent : n, kinds = mine.d_latent ? 1 : 2;
    uint64_t head_bytes = dtype_bytes((int)desc->type, (uint64_t)KV_PAGE * n);
    int rc = reference_shape(r, 1, n, mine.d_latent ? 0 : n, e);
    if (rc)
        return rc;
    for (uint32_t p = 0; p < CHECK_PAGES; p++)
        for (uint32_t v = 0; v < kinds; v++)
            memcpy(r->page + (p * kinds + v) * head_bytes,
                   kv + p * kv_page_bytes(desc) + kv_vector_at(desc, mine.layer, v, from, 0), head_bytes);
    float *in = malloc(2 * d_q * sizeof *in);
    rc = in ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for queries");
    if (rc || (rc = expect_new(x, b->n, d_out, e)) || (rc = pages_upload(&r->pool, r->be, r->d, r->page, e)))
        goto out;
    mine.layer = mine.group = 0;
    mine.n_head = mine.n_kv = 1;
    rc = slice_vector(&c, sinks ? sinks + head : NULL, 1, &mine.sinks, e);
    for (uint32_t row = 0; row < b->n && !rc; row++) {
        check_input(in, d_q, i, ACT_Q, b->input_id[row]);
        rc = r->be->act_write(r->d, ACT_Q, row, 1, n, in + head * n, e);
        if (rc || !mine.gated)
            continue;
        check_input(in, 2 * d_q, i, ACT_MIX, b->input_id[row]);
        rc = r->be->act_write(r->d, ACT_MIX, row, 1, 2 * n, in + head * 2 * n, e);
    }
    op = (struct op){.kind = OP_ATTEND, .attend = mine};
    if (!rc)
        rc = reference_op(r, b, &op, x->want, e);
    for (uint32_t k = 0; k < d_out; k++)
        x->col[k] = head * d_out + k;
    for (size_t k = 0; k < (size_t)b->n * d_out; k++)
        x->scale[k] = 1; /* the largest magnitude of the values */
out:
    slice_free(&c);
    free(in);
    return rc;
}

int reference_proj(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_proj *proj = &j->op->proj;
    const struct check_batch *b = j->b;
    const struct weight *w = proj->w;
    struct expect *x = j->want;
    bool few = w->n_out > SELFCHECK_ROWS && !proj->post_norm; /* a norm needs all columns */
    uint32_t i = j->i, n = few ? SELFCHECK_ROWS : w->n_out, zero = 0;
    struct op_proj mine = *proj;
    struct op op;
    struct norm post;
    struct slice c = {.r = r};
    float *in = malloc(w->n_out * sizeof *in), *some = calloc(n, sizeof *some);
    int rc = in && some ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for a row of %u", w->n_out);
    if (rc || (rc = expect_new(x, b->n, n, e)))
        goto out;
    check_columns(x->col, n, w->n_out, i, b->n);
    mine.w = &c.w;
    if ((rc = slice_part(&c, w, 0, x->col, n, e)) || (rc = slice_load(&c, w, e)) ||
        (rc = slice_bias(&c, proj->bias, (const uint32_t *const[3]){x->col}, &zero, n, &mine.bias, e)) ||
        (mine.post_norm && (rc = slice_norm(&c, proj->post_norm, n, &post, e))))
        goto out;
    if (mine.post_norm)
        mine.post_norm = &post;
    rc = reference_input(r, b, i, mine.in, w->n_in, e);
    for (uint32_t row = 0; row < b->n && !rc; row++) {
        check_input(in, w->n_out, i, ACT_X, b->input_id[row]);
        for (uint32_t k = 0; k < n; k++)
            some[k] = in[x->col[k]];
        rc = r->be->act_write(r->d, ACT_X, row, 1, n, some, e); /* the residual stream, as narrow as the sample */
    }
    op = (struct op){.kind = OP_PROJ, .proj = mine};
    if (rc || (rc = reference_op(r, b, &op, x->want, e)))
        goto out;
    for (uint32_t k = 0; k < n; k++) {
        float size = mine.post_norm ? fabsf(model_vector(r->m, proj->post_norm->w)[k]) : slice_row_size(&c, 0, k, NULL);
        if (mine.residual_scale != 0)
            size *= fabsf(mine.residual_scale);
        if (mine.x_scale != 0)
            size *= fabsf(mine.x_scale);
        for (uint32_t row = 0; row < b->n; row++)
            x->scale[row * n + k] = size;
    }
    x->exact = true;
out:
    slice_free(&c);
    free(in);
    free(some);
    return rc;
}

int reference_ffn_up(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_ffn_up *ffn = &j->op->ffn_up;
    const struct check_batch *b = j->b;
    const struct weight *w = ffn->w;
    struct expect *x = j->want;
    uint32_t i = j->i, d_ff = w->part[0].n_out, n = d_ff < SELFCHECK_ROWS ? d_ff : SELFCHECK_ROWS, first[2] = {0, d_ff};
    struct op_ffn_up mine = *ffn;
    struct op op;
    struct slice c = {.r = r};
    int rc = expect_new(x, b->n, n, e);
    if (rc)
        return rc;
    check_columns(x->col, n, d_ff, i, b->n);
    for (uint32_t p = 0; p < w->n_part && !rc; p++)
        rc = slice_part(&c, w, p, x->col, n, e);
    mine.w = &c.w;
    if (rc || (rc = slice_load(&c, w, e)) || (rc = slice_norm(&c, &mine.norm, w->n_in, &mine.norm, e)) ||
        (rc = slice_bias(&c, ffn->bias, (const uint32_t *const[3]){x->col, x->col}, first, n, &mine.bias, e)) ||
        (rc = slice_vector(&c, model_vector(r->m, ffn->row_gate), w->n_in, &mine.row_gate, e)))
        goto out;
    op = (struct op){.kind = OP_FFN_UP, .ffn_up = mine};
    if ((rc = reference_input(r, b, i, ACT_X, w->n_in, e)) || (rc = reference_op(r, b, &op, x->want, e)))
        goto out;
    const float *gain = model_vector(r->m, ffn->norm.w), *bias = model_vector(r->m, ffn->bias);
    for (uint32_t k = 0; k < n; k++) {
        float size = 2;
        for (uint32_t p = 0; p < w->n_part; p++)
            size *= slice_row_size(&c, p, k, gain) + (bias ? fabsf(bias[first[p] + x->col[k]]) : 0);
        for (uint32_t row = 0; row < b->n; row++)
            x->scale[row * n + k] = size;
    }
out:
    slice_free(&c);
    return rc;
}

int reference_head(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    const struct op_head *head = &j->op->head;
    const struct check_batch *b = j->b;
    const struct weight *w = head->w;
    struct expect *x = j->want;
    uint32_t i = j->i, n = w->n_out < SELFCHECK_ROWS ? w->n_out : SELFCHECK_ROWS, zero = 0;
    struct op_head mine = *head;
    struct op op;
    struct slice c = {.r = r};
    int rc = expect_new(x, b->n, n, e);
    if (rc)
        return rc;
    check_columns(x->col, n, w->n_out, i, b->n);
    mine.w = &c.w;
    if ((rc = slice_part(&c, w, 0, x->col, n, e)) || (rc = slice_load(&c, w, e)) ||
        (rc = slice_norm(&c, &mine.norm, w->n_in, &mine.norm, e)) ||
        (rc = slice_bias(&c, head->bias, (const uint32_t *const[3]){x->col}, &zero, n, &mine.bias, e)))
        goto out;
    op = (struct op){.kind = OP_HEAD, .head = mine};
    if ((rc = reference_input(r, b, i, ACT_X, w->n_in, e)) || (rc = reference_op(r, b, &op, x->want, e)))
        goto out;
    for (uint32_t k = 0; k < n; k++) {
        float size = fabsf(mine.scale) * slice_row_size(&c, 0, k, model_vector(r->m, head->norm.w));
        for (uint32_t row = 0; row < b->n; row++)
            x->scale[row * n + k] = size;
    }
out:
    slice_free(&c);
    return rc;
}

int reference_run(struct reference *r, struct check_job *j, struct hearth_err *e)
{
    memset(j->want, 0, sizeof j->want);
    switch (j->op->kind) {
#define X(KIND, name) \
    case OP_##KIND:   \
        return reference_##name(r, j, e);
        CHECKED_OPS(X)
#undef X
    default:
        return err_set(e, HEARTH_EUNSUPPORTED, "the op %s is not checked", op_name(j->op->kind));
    }
}

int reference_sample(struct reference *r, const struct check_batch *b, const float *logits,
                     const struct sample_params *p, const int32_t *history, uint32_t n_history, uint32_t index,
                     struct sampled *out, struct hearth_err *e)
{
    uint32_t slot[CHECK_SEQS], at[CHECK_SEQS];
    for (uint32_t i = 0; i < b->n; i++) {
        slot[i] = SLOTS_MAX - 1 - b->seq[i];
        at[i] = index;
        int rc = r->be->slot_set(r->d, slot[i], &p[b->seq[i]], history, n_history, r->m->hp.n_vocab, e);
        if (rc)
            return rc;
    }
    struct batch_sample sample = {.n = b->n, .slot = slot, .index = at};
    int rc = r->be->act_write(r->d, ACT_LOGITS, 0, b->n, r->m->hp.n_vocab, logits, e);
    return rc ? rc : step(r, b, NULL, &sample, out, e);
}
