/* selfcheck.c - the order of the check, and what counts as an error; see selfcheck.h. */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/clock.h"
#include "daemon/engine/selfcheck/selfcheck-internal.h"
static const struct tolerance of_gpu = {2e-3, 5e-4, 2e-3}, of_cpu = {2e-5, 2e-5, 2e-5};

static double now_ms(void)
{
    return 1e3 * engine_now();
}

/* Records a finding, unless there is one already. */
static void __attribute__((format(printf, 2, 3))) found(struct check *c, const char *fmt, ...)
{
    va_list ap;
    if (c->failed[0])
        return;
    va_start(ap, fmt);
    vsnprintf(c->failed, HEARTH_ERR_MSG, fmt, ap);
    va_end(ap);
}

/* Returns the number of columns of an op's result. */
static uint32_t width_of(const struct op *op)
{
    return op_columns(op, op_writes(op));
}

/* --- op by op -------------------------------------------------------------------------------------------- */

static int write_inputs(struct check *c, uint32_t i, const struct check_batch *b, float *room, struct hearth_err *e)
{
    const struct op *op = &c->list.op[i];
    int rc = 0;
    for (int a = 0; a < ACT_COUNT; a++)
        for (uint32_t row = 0; row < b->n && !rc && op_reads(op) & ACT_BIT(a); row++) {
            uint32_t n = check_width(op, (enum act)a);
            check_op_input(room, op, i, (enum act)a, b->input_id[row]);
            rc = c->be->act_write(c->d, (enum act)a, row, 1, n, room, e);
        }
    return rc;
}

/* Runs every op on its made-up input, as a step of its own. */
static int run_ops(struct check *c, uint32_t batch, struct hearth_err *e)
{
    const struct check_batch *b = &c->batch[batch];
    uint32_t widest = 1;
    for (uint32_t i = 0; i < c->list.n; i++)
        for (int a = 0; a < ACT_COUNT; a++)
            if (op_reads(&c->list.op[i]) & ACT_BIT(a) && check_width(&c->list.op[i], (enum act)a) > widest)
                widest = check_width(&c->list.op[i], (enum act)a);
    float *room = malloc(widest * sizeof *room);
    int rc = room ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for an activation of %u", widest);
    for (uint32_t i = 0; i < c->list.n && !rc; i++) {
        const struct op *op = &c->list.op[i];
        if (!(c->out[batch][i] = malloc((size_t)b->n * width_of(op) * sizeof(float)))) {
            rc = err_set(e, HEARTH_ENOMEM, "no memory for %u columns", width_of(op));
            break;
        }
        struct program one = program_of(c->m, op, 1);
        if (!(rc = write_inputs(c, i, b, room, e)) && !(rc = check_step_run(c, b, &one, true, NULL, NULL, e)))
            rc = c->be->act_read(c->d, op_writes(op), 0, b->n, c->out[batch][i], e);
        for (uint32_t k = 0; !rc && op->kind == OP_PROJECT && k < b->n * width_of(op); k++)
            if (k % width_of(op) - op->project.at >= op->project.w->n_out)
                c->out[batch][i][k] = 0; /* another op's columns */
    }
    free(room);
    return rc;
}

/* The quantisation step of the Q8_0 block that holds column k of a row of n. */
static double q8_0_step(const float *row, uint32_t n, uint32_t k)
{
    double most = 0;
    for (uint32_t i = k / 32 * 32; i < n && i < k / 32 * 32 + 32; i++)
        most = fmax(most, fabs((double)row[i]));
    return most / 127;
}

/* Compares a row's columns with the expected ones. `blocks`: both were rounded to Q8_0, and may have been rounded to
 * different sides. */
static void compare(struct check *c, const char *what, const struct check_batch *b, const struct expect *x,
                    const float *got, uint32_t row, bool blocks)
{
    static const char *const as[INVARIANCES] = {[INVARIANT_PROMPT] = " of prompts", [INVARIANT_BATCH] = " of a batch"};
    double tol = b->how ? c->tol->prompt : x->exact ? c->tol->exact : c->tol->rounded;
    for (uint32_t k = 0; k < x->n_col; k++) {
        double want = (double)x->want[row * x->n_col + k], have = (double)got[x->col[k]];
        double limit = tol * (fabs(want) + (double)x->scale[row * x->n_col + k]) + 1e-30;
        if (blocks)
            limit += q8_0_step(x->want + row * x->n_col, x->n_col, k);
        if (fabs(have - want) <= limit)
            continue;
        found(c, "%s, row %u of %u%s: column %u is %.6g, not %.6g (%.2g is allowed)", what, row, b->n,
              as[b->how] ? as[b->how] : "", x->col[k], have, want, limit);
        return;
    }
}

/* Compares K and, where the group has it, V at the positions where they were appended. */
static void compare_pages(struct check *c, const char *what, uint32_t group, uint32_t layer,
                          const struct check_batch *b, const struct expect x[3], const uint32_t head[3])
{
    const struct check_kv *kv = &c->kv[group];
    const struct kv_desc *d = &kv->desc;
    float v[1024]; /* the largest head that hparams.c accepts */
    for (uint32_t part = 1; part < (d->d_v ? 3 : 2); part++)
        for (uint32_t row = 0; row < b->n; row++) {
            char text[160];
            uint64_t at = kv_vector_at(d, layer, part == 2, head[part], b->pos[row]);
            const uint8_t *page = kv->now + b->pages[row][b->pos[row] / KV_PAGE] * kv->page_bytes;
            dtype_get((int)d->type)->to_f32(page + at, v, part == 1 ? d->d_k : d->d_v);
            snprintf(text, sizeof text, "%s: %s of KV head %u in its page", what, part == 1 ? "K" : "V", head[part]);
            compare(c, text, b, &x[part], v, row, d->type == DT_Q8_0);
        }
}

static void compare_alone(struct check *c, uint32_t i, const char *what)
{
    uint32_t n = width_of(&c->list.op[i]);
    for (uint32_t batch = 0; batch < c->n_batch; batch++)
        for (size_t k = 0; k < (size_t)c->batch[batch].n * n; k++)
            if (!isfinite(c->out[batch][i][k])) {
                found(c, "%s, row %zu of %u: column %zu is not finite", what, k / n, c->batch[batch].n, k % n);
                return;
            }
    for (uint32_t k = 0; k < n; k++) /* sequence 0 is row 0 of one and row 1 of three */
        if (memcmp(&c->out[0][i][k], &c->out[1][i][n + k], sizeof(float))) {
            found(c, "%s: column %u is %.9g alone and %.9g in a batch of three", what, k, (double)c->out[0][i][k],
                  (double)c->out[1][i][n + k]);
            return;
        }
}

/* Compares everything but the appended positions with its content before the step: it must not change. */
static void compare_rest(struct check *c, struct check_kv *kv)
{
    const struct kv_desc *d = &kv->desc;
    for (uint32_t s = 0; s < CHECK_SEQS && d->d_state; s++) {
        uint64_t at = check_state_pages[s][1] * kv->page_bytes;
        memcpy(kv->fill + at, kv->now + at, kv->page_bytes);
    }
    for (uint32_t batch = 0; batch < c->n_batch && !d->d_state; batch++)
        for (uint32_t row = 0; row < c->batch[batch].n; row++) {
            const struct check_batch *b = &c->batch[batch];
            uint64_t page = b->pages[row][b->pos[row] / KV_PAGE] * kv->page_bytes;
            for (uint32_t h = 0; h < 2 * d->n_layer * d->n_kv; h++) {
                bool v = h / d->n_kv % 2;
                uint64_t at = page + kv_vector_at(d, h / d->n_kv / 2, v, h % d->n_kv, b->pos[row]);
                memcpy(kv->fill + at, kv->now + at, dtype_bytes((int)d->type, v ? d->d_v : d->d_k));
            }
        }
    if (!memcmp(kv->fill, kv->now, kv->page_bytes * d->n_page))
        return;
    for (uint64_t k = 0; k < kv->page_bytes * d->n_page; k++)
        if (kv->fill[k] != kv->now[k]) {
            found(c, "%s: byte %llu of KV page %llu changed, which no row of the step owns",
                  d->d_state ? "states" : "qkv", (unsigned long long)(k % kv->page_bytes),
                  (unsigned long long)(k / kv->page_bytes));
            return;
        }
}

static int check_op(struct check *c, uint32_t i, uint32_t batch, struct hearth_err *e)
{
    const struct op *op = &c->list.op[i];
    const struct check_batch *b = &c->batch[batch];
    struct check_job *j = &c->job[i * EXPECTED + (batch < EXPECTED ? batch : EXPECTED - 1)];
    char what[96];
    op_describe(op, what);
    if (j->deferred && batch < EXPECTED) {
        j->kv = c->kv[op->attend.group].now;
        j->desc = &c->kv[op->attend.group].desc;
        j->rc = reference_run(c->ref, j, &j->err);
    }
    if (j->rc) {
        *e = j->err;
        return j->rc;
    }
    for (uint32_t row = 0; row < b->n; row++)
        compare(c, what, b, &j->want[0], c->out[batch][i] + (size_t)row * width_of(op), row, false);
    if (op->kind == OP_QKV && op->qkv.w->n_part > 1)
        compare_pages(c, what, op->qkv.group, op->qkv.layer, b, j->want, j->head);
    if (op->kind == OP_LATENT)
        compare_pages(c, what, op->latent.group, op->latent.layer, b, j->want, j->head);
    if (batch == c->n_batch - 1)
        compare_alone(c, i, what);
    return 0;
}

/* --- as one step ----------------------------------------------------------------------------------------- */

/* Sets the sampling parameters of the three sequences: one has every cut-off, one is greedy after penalties, one
 * samples from all tokens. */
static const struct sample_params sampling[CHECK_SEQS] = {
    {.temp = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f, .rep_penalty = 1, .seed = 7},
    {.temp = 0, .top_p = 1, .rep_penalty = 1.3f, .presence_penalty = 0.25f, .frequency_penalty = 0.5f, .seed = 8},
    {.temp = 1, .top_p = 1, .rep_penalty = 1, .seed = 9},
};
static const int32_t history[] = {0, 1, 1, 0, 1};
enum { N_HISTORY = sizeof history / sizeof *history, SAMPLE_INDEX = 3 };

/* Runs all ops as one step, and samples a token of each row. */
static int run_step(struct check *c, uint32_t batch, bool one_by_one, uint32_t index, float *logits,
                    struct sampled *out, struct hearth_err *e)
{
    const struct check_batch *b = &c->batch[batch];
    uint32_t slot[CHECK_SEQS], at[CHECK_SEQS];
    struct batch_sample sample = {.n = b->n, .slot = slot, .index = at};
    int rc = 0;
    for (uint32_t i = 0; i < b->n && !rc; i++) {
        slot[i] = SLOTS_MAX - 1 - b->seq[i];
        at[i] = index;
        rc = c->be->slot_set(c->d, slot[i], &sampling[b->seq[i]], history, N_HISTORY, c->m->hp.n_vocab, e);
    }
    if (!rc)
        rc = check_step_run(c, b, &c->all, one_by_one, &sample, out, e);
    return rc ? rc : c->be->act_read(c->d, ACT_LOGITS, 0, b->n, logits, e);
}

/*
 * Compares the device's tokens with those that the reference samples from the same logits; first[] gets the tokens of
 * the first index. The noise is bit-identical but a device's sums are not, so that very rarely a threshold falls
 * between the two; therefore only a difference at two indices counts as a failure.
 */
static int check_tokens(struct check *c, uint32_t batch, struct sampled *first, struct hearth_err *e)
{
    const struct check_batch *b = &c->batch[batch];
    struct sampled again[CHECK_SEQS], want[CHECK_SEQS], *got = first;
    bool wrong[CHECK_SEQS] = {true, true, true}, any = true;
    for (uint32_t index = SAMPLE_INDEX; index < SAMPLE_INDEX + 2 && any; index++, got = again) {
        double begun = now_ms();
        int rc = run_step(c, batch, true, index, c->logits[batch], got, e);
        c->device_ms += now_ms() - begun;
        if (rc || (rc = reference_sample(c->ref, b, c->logits[batch], sampling, history, N_HISTORY, index, want, e)))
            return rc;
        any = false;
        for (uint32_t row = 0; row < b->n; row++)
            any |= wrong[row] = wrong[row] && got[row].token != want[row].token;
    }
    for (uint32_t row = 0; row < b->n && any; row++)
        if (wrong[row])
            found(c, "sample (%u tokens), row %u of %u: token %u, not %u", c->m->hp.n_vocab, row, b->n,
                  again[row].token, want[row].token);
    return 0;
}

/* Runs the fast path twice, as a captured graph and as its replay: both must be bit-identical to the ops run one by
 * one. */
static int check_step(struct check *c, uint32_t batch, struct hearth_err *e)
{
    const struct check_batch *b = &c->batch[batch];
    uint32_t n_vocab = c->m->hp.n_vocab;
    size_t n = (size_t)b->n * n_vocab;
    struct sampled first[CHECK_SEQS], then[CHECK_SEQS];
    float *again = malloc(n * sizeof *again);
    c->logits[batch] = malloc(n * sizeof *again);
    int rc = again && c->logits[batch] ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for %u logits", n_vocab);
    if (!rc)
        rc = check_tokens(c, batch, first, e);
    double begun = now_ms();
    for (uint32_t turn = 0; turn < 2 && !rc && !c->failed[0]; turn++) {
        const char *how = turn ? "a replayed step" : "a whole step";
        if ((rc = run_step(c, batch, false, SAMPLE_INDEX, again, then, e)))
            break;
        bool same = !memcmp(again, c->logits[batch], n * sizeof *again);
        for (size_t k = 0; k < n && !same && !c->failed[0]; k++)
            if (memcmp(&again[k], &c->logits[batch][k], sizeof *again))
                found(c, "%s (%s, %s), row %zu of %u: logit %zu is %.9g, and %.9g one by one", how, c->m->hp.arch,
                      c->m->hp.type, k / n_vocab, b->n, k % n_vocab, (double)again[k], (double)c->logits[batch][k]);
        for (uint32_t row = 0; row < b->n; row++)
            if (then[row].token != first[row].token)
                found(c, "sample (%s, %u tokens), row %u of %u: token %u, and %u one by one", how, n_vocab, row, b->n,
                      then[row].token, first[row].token);
    }
    c->device_ms += now_ms() - begun;
    free(again);
    return rc;
}

static const uint32_t spare_kv[SPARE] = {21 * 7 % CHECK_PAGES, 22 * 7 % CHECK_PAGES};

/* Checks copies and clears of pages, in the order of submission. */
static int check_copies(struct check *c, struct check_kv *kv, struct hearth_err *e)
{
    double begun = now_ms();
    uint32_t n_page = kv->desc.n_page;
    const uint32_t states[SPARE] = {n_page - 2, n_page - 1}, *spare = kv->desc.d_state ? states : spare_kv;
    memcpy(kv->fill, kv->now, kv->page_bytes * n_page);
    c->be->kv_copy(c->d, kv->pool.kv, spare[0], 0);
    c->be->kv_clear(c->d, kv->pool.kv, spare[1]);
    memcpy(kv->fill + spare[0] * kv->page_bytes, kv->fill, kv->page_bytes);
    memset(kv->fill + spare[1] * kv->page_bytes, 0, kv->page_bytes);
    int rc = c->be->sync(c->d, e);
    if (!rc)
        rc = pages_download(&kv->pool, c->be, c->d, kv->now, e);
    c->device_ms += now_ms() - begun;
    for (uint32_t p = 0; p < n_page && !rc; p++)
        if (memcmp(kv->now + p * kv->page_bytes, kv->fill + p * kv->page_bytes, kv->page_bytes))
            found(c, "%s: page %u is not what it should be after it", p == spare[1] ? "kv_clear" : "kv_copy", p);
    return rc;
}

/* Whether sequence 0 has, after the first n ops of the step, the same bits in a batch of its own (row 0) as in the
 * batch of three (row 1). */
static int same_after(struct check *c, uint32_t n, bool *same, struct hearth_err *e)
{
    const struct op *last = &c->whole.op[n - 1];
    struct program first = program_of(c->m, c->whole.op, n);
    uint32_t width = width_of(last), at = last->kind == OP_PROJECT ? last->project.at : 0;
    uint32_t own = last->kind == OP_PROJECT ? last->project.w->n_out : width;
    float *out = malloc((size_t)CHECK_SEQS * width * sizeof *out), *alone = malloc(width * sizeof *alone);
    int rc = out && alone ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for %u columns", width);
    for (uint32_t batch = 0; batch < DECODES && !rc; batch++)
        if (!(rc = check_step_run(c, &c->batch[batch], &first, true, NULL, NULL, e)))
            rc = c->be->act_read(c->d, op_writes(last), 0, c->batch[batch].n, batch ? out : alone, e);
    if (!rc)
        *same = !memcmp(alone + at, out + width + at, own * sizeof *out);
    free(out);
    free(alone);
    return rc;
}

/* Reports, for a step of one row and one of three whose logits differ, after which op they first differ. */
static int name_apart(struct check *c, uint32_t column, float alone, float beside, struct hearth_err *e)
{
    char where[96] = "";
    bool same = true;
    int rc = 0;
    for (uint32_t n = 1; n <= c->whole.n && !rc && same; n++)
        if (!(rc = same_after(c, n, &same, e)) && !same)
            op_describe(&c->whole.op[n - 1], where);
    if (!rc)
        found(c, "a whole step (%s, %s): logit %u is %.9g alone and %.9g in a batch of three%s%s", c->m->hp.arch,
              c->m->hp.type, column, (double)alone, (double)beside, *where ? ", first apart after " : "", where);
    return rc;
}

static int run(struct check *c, struct hearth_err *e)
{
    int rc = 0;
    double begun = now_ms();
    /* the third batch is the last to run: it and the fourth write the same K and V, of which it is the third's that are
     * compared */
    static const uint32_t order[BATCHES] = {0, 1, EXPECTED, EXPECTED - 1};
    for (uint32_t i = 0; i < BATCHES && !rc; i++)
        if (order[i] < c->n_batch)
            rc = run_ops(c, order[i], e);
    if (rc || (rc = check_download(c, e)))
        return rc;
    c->device_ms += now_ms() - begun;
    c->ref = jobs_end(c->jobs);
    for (uint32_t i = 0; i < c->list.n && !rc; i++)
        for (uint32_t batch = 0; batch < c->n_batch && !rc; batch++)
            rc = check_op(c, i, batch, e);
    for (uint32_t g = 0; g < c->n_group; g++)
        compare_rest(c, &c->kv[g]);
    for (uint32_t batch = 0; batch < DECODES && !rc && !c->failed[0]; batch++)
        rc = check_step(c, batch, e);
    if (rc || c->failed[0])
        return rc;
    for (uint32_t k = 0; k < c->m->hp.n_vocab; k++)
        if (memcmp(&c->logits[0][k], &c->logits[1][c->m->hp.n_vocab + k], sizeof(float))) {
            if ((rc = name_apart(c, k, c->logits[0][k], c->logits[1][c->m->hp.n_vocab + k], e)))
                return rc;
            break;
        }
    rc = check_download(c, e);
    for (uint32_t g = 0; g < c->n_group && !rc; g++)
        rc = check_copies(c, &c->kv[g], e);
    return rc;
}

static int make_lists(struct check *c, struct hearth_err *e)
{
    int rc = ops_collect(&c->m->program, &c->list, &c->whole, e);
    if (rc)
        return rc;
    bool room = (c->job = calloc(c->list.n * EXPECTED + 1, sizeof *c->job));
    for (uint32_t i = 0; i < BATCHES; i++)
        room &= !!(c->out[i] = calloc(c->list.n + 1, sizeof *c->out[i]));
    if (!room)
        return err_set(e, HEARTH_ENOMEM, "no memory to check %u ops", c->list.n);
    c->all = program_of(c->m, c->whole.op, c->whole.n);
    for (uint32_t i = 0; i < c->list.n * EXPECTED; i++)
        c->job[i] = (struct check_job){.op = &c->list.op[i / EXPECTED],
                                       .i = i / EXPECTED,
                                       .b = &c->batch[i % EXPECTED],
                                       .deferred = c->list.op[i / EXPECTED].kind == OP_ATTEND};
    return 0;
}

int selfcheck_run(const struct model *m, const struct backend *ref, const struct device_params *params, bool batches,
                  struct selfcheck *out, struct hearth_err *e)
{
    struct device_info info;
    double begun = now_ms();
    struct check *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, HEARTH_ENOMEM, "no memory for the self-check");
    memset(out, 0, sizeof *out);
    m->be->info(m->dev, &info);
    c->m = m;
    c->be = m->be;
    c->d = m->dev;
    c->failed = out->failed;
    c->tol = info.gpu ? &of_gpu : &of_cpu;
    c->n_batch = batches ? BATCHES : EXPECTED;
    check_make_batches(c);
    int rc = make_lists(c, e);
    if (!rc)
        rc = jobs_begin(&c->jobs, m, ref, params, info.kv_type, c->job, c->list.n * EXPECTED, e);
    double opened = now_ms();
    if (!rc)
        rc = check_make_kv(c, info.kv_type, e);
    c->device_ms = now_ms() - opened;
    if (!rc)
        rc = run(c, e);
    out->n_op = c->list.n;
    out->device_ms = c->device_ms;
    check_fini(c);
    free(c);
    out->ms = now_ms() - begun;
    return rc;
}
