/* selfcheck.c - the order of the check, its steps on the device, and what counts as an error; see selfcheck.h. */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/clock.h"
#include "daemon/engine/selfcheck/selfcheck.h"

enum {
    DECODES = 2, /* the first batches decode: one row, and three rows of three sequences */
    BATCHES,     /* the last one has five rows of two sequences, as prompts are computed */
    SPARE = 2    /* pages of no sequence */
};

/* An error is measured against the value and against the magnitude of the terms of its sum. A GPU rounds normed
 * activations to fp16: 3e-4 of a sum's magnitude as a rule, and half a unit more for results stored in fp16. A product
 * of activations that are not rounded has the rounding of f32 sums alone; for prompts weights are rounded to fp16 too.
 * A CPU is exact but for the order of its sums. */
struct tolerance {
    double rounded, exact, prompt;
};
static const struct tolerance of_gpu = {2e-3, 5e-4, 2e-3}, of_cpu = {2e-5, 2e-5, 2e-5};

/* The pages of a layer group. */
struct check_kv {
    struct kv_desc desc;
    struct check_pages pool;
    uint64_t page_bytes;
    uint8_t *fill, *now; /* [CHECK_PAGES] the pages before the check, and after the device ran */
};

struct check {
    const struct model *m;
    const struct backend *be;
    struct device *d;
    const struct tolerance *tol;
    struct check_jobs *jobs;
    struct check_job *job;      /* [list.n][BATCHES] */
    struct reference *ref;      /* the reference that jobs_end returned */
    struct op_list list, whole; /* the different ops; a step of them */
    struct program all;         /* of whole */
    struct check_batch batch[BATCHES];
    struct check_kv kv[KV_GROUPS_MAX]; /* [n_group] */
    uint32_t n_group;
    float **out[BATCHES];   /* [list.n] each op's results, whole rows */
    float *logits[DECODES]; /* of the steps that ran op by op */
    double device_ms;
    char *failed;
};

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

/* --- set-up ---------------------------------------------------------------------------------------------- */

static void make_row(struct check *c, struct check_batch *b, uint32_t seq, uint32_t pos, uint32_t input_id,
                     int32_t token)
{
    static const uint32_t first_page[CHECK_SEQS] = {0, 18, 20};
    uint32_t row = b->n++;
    b->seq[row] = seq;
    b->input_id[row] = input_id;
    b->pos[row] = pos < c->m->hp.n_ctx ? pos : c->m->hp.n_ctx - 1;
    b->token[row] = token;
    for (uint32_t p = 0; p <= b->pos[row] / KV_PAGE; p++)
        b->pages[row][p] = (first_page[seq] + p) * 7 % CHECK_PAGES;
}

/* Sequence 0 is longer than a chunk of 256 of attention, where the context allows; sequence 1 begins a second page. The
 * prompts continue where sequences 2 and 0 end, so that no KV of before changes. */
static void make_batches(struct check *c)
{
    enum { DEEP = 277 };
    static const uint32_t pos[CHECK_SEQS] = {DEEP, 21, 2}, three[CHECK_SEQS] = {1, 0, 2};
    int32_t n = (int32_t)c->m->hp.n_vocab, token[CHECK_SEQS] = {n / 2, n - 1, 0};
    bool deep = c->m->hp.n_ctx > DEEP + 2;
    struct check_batch *p = &c->batch[DECODES];
    make_row(c, &c->batch[0], 0, pos[0], 0, token[0]);
    for (uint32_t i = 0; i < CHECK_SEQS; i++)
        make_row(c, &c->batch[1], three[i], pos[three[i]], three[i], token[three[i]]);
    p->prompt = true;
    for (uint32_t i = 0; i < CHECK_ROWS; i++)
        if (i < CHECK_ROWS - 2 || !deep)
            make_row(c, p, 2, pos[2] + 1 + i, CHECK_SEQS + i, (int32_t)i * 31 % n);
        else
            make_row(c, p, 0, DEEP + 1 + i - (CHECK_ROWS - 2), CHECK_SEQS + i, (int32_t)i * 31 % n);
}
static const uint32_t spare_kv[SPARE] = {21 * 7 % CHECK_PAGES, 22 * 7 % CHECK_PAGES};

static int make_states(struct check *c, struct check_kv *kv, struct hearth_err *e)
{
    uint64_t bytes = kv->page_bytes * kv->desc.n_page;
    kv->fill = calloc(1, bytes);
    kv->now = malloc(bytes);
    if (!kv->fill || !kv->now)
        return err_set(e, HEARTH_ENOMEM, "no memory for states to check");
    for (uint32_t s = 0; s < CHECK_SEQS; s++)
        for (uint32_t l = 0; l < kv->desc.n_layer; l++)
            check_state((float *)(kv->fill + check_state_pages[s][0] * kv->page_bytes + l * kv_layer_bytes(&kv->desc)),
                        kv->desc.d_state, l, s);
    int rc = pages_open(&kv->pool, c->be, c->d, &kv->desc, e);
    return rc ? rc : pages_upload(&kv->pool, c->be, c->d, kv->fill, e);
}

static int make_group(struct check *c, struct check_kv *kv, uint32_t n_layer, struct hearth_err *e)
{
    kv->desc.n_layer = n_layer ? n_layer : 1;
    kv->desc.n_page = kv->desc.d_state ? CHECK_STATES : CHECK_PAGES;
    kv->page_bytes = kv_page_bytes(&kv->desc);
    if (kv->desc.d_state)
        return make_states(c, kv, e);
    uint32_t n = kv->desc.n_layer * kv->desc.n_kv * KV_PAGE * (kv->desc.d_k + kv->desc.d_v);
    float *v = malloc((size_t)n * sizeof *v);
    kv->fill = malloc(kv->page_bytes * CHECK_PAGES);
    kv->now = malloc(kv->page_bytes * CHECK_PAGES);
    int rc = v && kv->fill && kv->now ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for KV to check");
    if (!rc) { /* every page is the first one, rotated by some blocks */
        check_input(v, n, CHECK_INPUT_KV, ACT_X, 0);
        dtype_get((int)kv->desc.type)->from_f32(v, kv->fill, n);
        uint64_t turn = dtype_get((int)kv->desc.type)->block_bytes * 37;
        for (uint32_t p = 1; p < CHECK_PAGES; p++) {
            uint8_t *to = kv->fill + p * kv->page_bytes;
            uint64_t at = turn * p % kv->page_bytes;
            memcpy(to, kv->fill + at, kv->page_bytes - at);
            memcpy(to + kv->page_bytes - at, kv->fill, at);
        }
        rc = pages_open(&kv->pool, c->be, c->d, &kv->desc, e);
    }
    free(v);
    return rc ? rc : pages_upload(&kv->pool, c->be, c->d, kv->fill, e);
}

static int make_kv(struct check *c, enum dtype type, struct hearth_err *e)
{
    struct kv_desc desc[KV_GROUPS_MAX];
    uint32_t n = model_kv_descs(c->m, type, desc);
    int rc = 0;
    for (; c->n_group < n && !rc; c->n_group++) {
        c->kv[c->n_group].desc = desc[c->n_group];
        rc = make_group(c, &c->kv[c->n_group], c->whole.n_layer[c->n_group], e);
    }
    return rc;
}

static int download(struct check *c, struct hearth_err *e)
{
    int rc = 0;
    for (uint32_t g = 0; g < c->n_group && !rc; g++)
        rc = pages_download(&c->kv[g].pool, c->be, c->d, c->kv[g].now, e);
    return rc;
}

static void check_fini(struct check *c)
{
    jobs_free(c->jobs);
    for (uint32_t i = 0; c->job && i < c->list.n * BATCHES; i++)
        for (int part = 0; part < 3; part++)
            expect_free(&c->job[i].want[part]);
    for (uint32_t i = 0; i < BATCHES; i++) {
        for (uint32_t k = 0; c->out[i] && k < c->list.n; k++)
            free(c->out[i][k]);
        free(c->out[i]);
    }
    free(c->job);
    op_list_free(&c->list);
    op_list_free(&c->whole);
    for (uint32_t i = 0; i < DECODES; i++)
        free(c->logits[i]);
    for (uint32_t g = 0; g < c->n_group; g++) {
        pages_close(&c->kv[g].pool, c->be, c->d);
        free(c->kv[g].fill);
        free(c->kv[g].now);
    }
}

/* Runs the program over the batch as a step, and waits. `once`: op by op, without capturing or replaying a graph. */
static int step(struct check *c, const struct check_batch *b, const struct program *p, bool once,
                const struct batch_sample *sample, struct sampled *out, struct hearth_err *e)
{
    struct batch_seq seq[CHECK_ROWS];
    uint32_t row[CHECK_ROWS], n_seq = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        row[i] = i;
        if (!i || b->seq[i] != b->seq[i - 1])
            seq[n_seq++] = (struct batch_seq){.row0 = i, .pos0 = b->pos[i], .freq_set = b->seq[i] % 2};
        seq[n_seq - 1].n_row++;
        for (uint32_t g = 0; g < c->n_group; g++) /* those of its last row, which include the other rows' pages */
            seq[n_seq - 1].pages[g] = c->kv[g].desc.d_state ? check_state_pages[b->seq[i]] : b->pages[i];
    }
    struct batch batch = {.n_row = b->n,
                          .n_seq = n_seq,
                          .n_out = b->n,
                          .token = b->token,
                          .seq = seq,
                          .out_row = row,
                          .n_group = c->n_group,
                          .invariant = b->prompt ? INVARIANT_PROMPT : INVARIANT_OFF,
                          .once = once};
    for (uint32_t g = 0; g < c->n_group; g++)
        batch.kv[g] = c->kv[g].pool.kv;
    if (sample)
        batch.sample = *sample;
    return c->be->step_wait(c->d, c->be->step_run(c->d, &batch, p), out, batch.sample.n, e);
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
        if (!(rc = write_inputs(c, i, b, room, e)) && !(rc = step(c, b, &one, true, NULL, NULL, e)))
            rc = c->be->act_read(c->d, op_writes(op), 0, b->n, c->out[batch][i], e);
        for (uint32_t k = 0; !rc && op->kind == OP_PROJECT && k < b->n * width_of(op); k++)
            if (k % width_of(op) - op->project.at >= op->project.w->n_out)
                c->out[batch][i][k] = 0; /* another op's columns */
    }
    free(room);
    return rc;
}

/* The step of a Q8_0 block that column k of a row of n is in. */
static double q8_0_step(const float *row, uint32_t n, uint32_t k)
{
    double most = 0;
    for (uint32_t i = k / 32 * 32; i < n && i < k / 32 * 32 + 32; i++)
        most = fmax(most, fabs((double)row[i]));
    return most / 127;
}

/* Compares a row's columns with the expected ones. blocks: both were rounded to Q8_0, which may have gone to either
 * side. */
static void compare(struct check *c, const char *what, const struct check_batch *b, const struct expect *x,
                    const float *got, uint32_t row, bool blocks)
{
    double tol = b->prompt ? c->tol->prompt : x->exact ? c->tol->exact : c->tol->rounded;
    for (uint32_t k = 0; k < x->n_col; k++) {
        double want = (double)x->want[row * x->n_col + k], have = (double)got[x->col[k]];
        double limit = tol * (fabs(want) + (double)x->scale[row * x->n_col + k]) + 1e-30;
        if (blocks)
            limit += q8_0_step(x->want + row * x->n_col, x->n_col, k);
        if (fabs(have - want) <= limit)
            continue;
        found(c, "%s, row %u of %u%s: column %u is %.6g, not %.6g (%.2g is allowed)", what, row, b->n,
              b->prompt ? " of prompts" : "", x->col[k], have, want, limit);
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
    for (uint32_t batch = 0; batch < BATCHES; batch++)
        for (size_t k = 0; k < (size_t)c->batch[batch].n * n; k++)
            if (!isfinite(c->out[batch][i][k])) {
                found(c, "%s, row %zu of %u: column %zu is not finite", what, k / n, c->batch[batch].n, k % n);
                return;
            }
    for (uint32_t k = 0; k < n; k++) /* sequence 0 is row 0 alone and row 1 of three */
        if (memcmp(&c->out[0][i][k], &c->out[1][i][n + k], sizeof(float))) {
            found(c, "%s: column %u is %.9g alone and %.9g in a batch of three", what, k, (double)c->out[0][i][k],
                  (double)c->out[1][i][n + k]);
            return;
        }
}

/* Compares the rest of a page, beside the appended positions, with its content of before: it must not change. */
static void compare_rest(struct check *c, struct check_kv *kv)
{
    const struct kv_desc *d = &kv->desc;
    for (uint32_t s = 0; s < CHECK_SEQS && d->d_state; s++) {
        uint64_t at = check_state_pages[s][1] * kv->page_bytes;
        memcpy(kv->fill + at, kv->now + at, kv->page_bytes);
    }
    for (uint32_t batch = 0; batch < BATCHES && !d->d_state; batch++)
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
    struct check_job *j = &c->job[i * BATCHES + batch];
    char what[96];
    op_describe(op, what);
    if (j->deferred) {
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
    if (batch == BATCHES - 1)
        compare_alone(c, i, what);
    return 0;
}

/* --- as one step------------------------------------------------------------------------------------------ */

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
        rc = step(c, b, &c->all, one_by_one, &sample, out, e);
    return rc ? rc : c->be->act_read(c->d, ACT_LOGITS, 0, b->n, logits, e);
}

/*
 * Compares the device's tokens, of which first[] has the first ones, with those that the reference samples from the
 * same logits. The noise is equal to the bit but a device's sums are not, so that once in a long while a threshold
 * falls between the two; only a difference at two indices is therefore a failure.
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

/* Runs the fast path twice, as a captured graph and as its replay: both must give the bits of the ops run one by
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

/* Whether sequence 0 has the bits that it has alone behind the first n ops of the step: it is row 0, and row 1 of
 * three. */
static int same_after(struct check *c, uint32_t n, bool *same, struct hearth_err *e)
{
    const struct op *last = &c->whole.op[n - 1];
    struct program first = program_of(c->m, c->whole.op, n);
    uint32_t width = width_of(last), at = last->kind == OP_PROJECT ? last->project.at : 0;
    uint32_t own = last->kind == OP_PROJECT ? last->project.w->n_out : width;
    float *out = malloc((size_t)CHECK_SEQS * width * sizeof *out), *alone = malloc(width * sizeof *alone);
    int rc = out && alone ? 0 : err_set(e, HEARTH_ENOMEM, "no memory for %u columns", width);
    for (uint32_t batch = 0; batch < DECODES && !rc; batch++)
        if (!(rc = step(c, &c->batch[batch], &first, true, NULL, NULL, e)))
            rc = c->be->act_read(c->d, op_writes(last), 0, c->batch[batch].n, batch ? out : alone, e);
    if (!rc)
        *same = !memcmp(alone + at, out + width + at, own * sizeof *out);
    free(out);
    free(alone);
    return rc;
}

/* Says of a step of one row and one of three, whose logits differ, where they begin to. */
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
    for (uint32_t batch = 0; batch < BATCHES && !rc; batch++)
        rc = run_ops(c, batch, e);
    if (rc || (rc = download(c, e)))
        return rc;
    c->device_ms += now_ms() - begun;
    c->ref = jobs_end(c->jobs);
    for (uint32_t i = 0; i < c->list.n && !rc; i++)
        for (uint32_t batch = 0; batch < BATCHES && !rc; batch++)
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
    rc = download(c, e);
    for (uint32_t g = 0; g < c->n_group && !rc; g++)
        rc = check_copies(c, &c->kv[g], e);
    return rc;
}

static int make_lists(struct check *c, struct hearth_err *e)
{
    int rc = ops_collect(&c->m->program, &c->list, &c->whole, e);
    if (rc)
        return rc;
    bool room = (c->job = calloc(c->list.n * BATCHES + 1, sizeof *c->job));
    for (uint32_t i = 0; i < BATCHES; i++)
        room &= !!(c->out[i] = calloc(c->list.n + 1, sizeof *c->out[i]));
    if (!room)
        return err_set(e, HEARTH_ENOMEM, "no memory to check %u ops", c->list.n);
    c->all = program_of(c->m, c->whole.op, c->whole.n);
    for (uint32_t i = 0; i < c->list.n * BATCHES; i++)
        c->job[i] = (struct check_job){.op = &c->list.op[i / BATCHES],
                                       .i = i / BATCHES,
                                       .b = &c->batch[i % BATCHES],
                                       .deferred = c->list.op[i / BATCHES].kind == OP_ATTEND};
    return 0;
}

int selfcheck_run(const struct model *m, const struct backend *ref, const struct device_params *params,
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
    make_batches(c);
    int rc = make_lists(c, e);
    if (!rc)
        rc = jobs_begin(&c->jobs, m, ref, params, info.kv_type, c->job, c->list.n * BATCHES, e);
    double opened = now_ms();
    if (!rc)
        rc = make_kv(c, info.kv_type, e);
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
