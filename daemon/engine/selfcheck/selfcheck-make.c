/* selfcheck-make.c - the batches and pages that a device is checked with, and the execution of a step over them; see
 * selfcheck.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/selfcheck/selfcheck-internal.h"

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

/* Sequence 0 is longer than one 256-key chunk of attention, where the context allows; sequence 1 begins a second page.
 * The prompts continue where sequences 2 and 0 end, so that no earlier KV changes. */
void check_make_batches(struct check *c)
{
    enum { DEEP = 277 };
    static const uint32_t pos[CHECK_SEQS] = {DEEP, 21, 2}, three[CHECK_SEQS] = {1, 0, 2};
    int32_t n = (int32_t)c->m->hp.n_vocab, token[CHECK_SEQS] = {n / 2, n - 1, 0};
    bool deep = c->m->hp.n_ctx > DEEP + 2;
    struct check_batch *p = &c->batch[DECODES];
    make_row(c, &c->batch[0], 0, pos[0], 0, token[0]);
    for (uint32_t i = 0; i < CHECK_SEQS; i++)
        make_row(c, &c->batch[1], three[i], pos[three[i]], three[i], token[three[i]]);
    p->how = INVARIANT_PROMPT;
    for (uint32_t i = 0; i < CHECK_ROWS; i++)
        if (i < CHECK_ROWS - 2 || !deep)
            make_row(c, p, 2, pos[2] + 1 + i, CHECK_SEQS + i, (int32_t)i * 31 % n);
        else
            make_row(c, p, 0, DEEP + 1 + i - (CHECK_ROWS - 2), CHECK_SEQS + i, (int32_t)i * 31 % n);
    c->batch[EXPECTED] = *p;
    c->batch[EXPECTED].how = INVARIANT_BATCH;
}

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
    if (!rc) { /* every page is the first one, rotated by a number of blocks */
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

int check_make_kv(struct check *c, enum dtype type, struct hearth_err *e)
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

int check_download(struct check *c, struct hearth_err *e)
{
    int rc = 0;
    for (uint32_t g = 0; g < c->n_group && !rc; g++)
        rc = pages_download(&c->kv[g].pool, c->be, c->d, c->kv[g].now, e);
    return rc;
}

void check_fini(struct check *c)
{
    jobs_free(c->jobs);
    for (uint32_t i = 0; c->job && i < c->list.n * EXPECTED; i++)
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

int check_step_run(struct check *c, const struct check_batch *b, const struct program *p, bool once,
                   const struct batch_sample *sample, struct sampled *out, struct hearth_err *e)
{
    struct batch_seq seq[CHECK_ROWS];
    uint32_t row[CHECK_ROWS], n_seq = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        row[i] = i;
        if (!i || b->seq[i] != b->seq[i - 1])
            seq[n_seq++] = (struct batch_seq){.row0 = i, .pos0 = b->pos[i], .freq_set = b->seq[i] % 2};
        seq[n_seq - 1].n_row++;
        for (uint32_t g = 0; g < c->n_group; g++) /* the pages of its last row, which include those of the other rows */
            seq[n_seq - 1].pages[g] = c->kv[g].desc.d_state ? check_state_pages[b->seq[i]] : b->pages[i];
    }
    struct batch batch = {.n_row = b->n,
                          .n_seq = n_seq,
                          .n_out = b->n,
                          .token = b->token,
                          .seq = seq,
                          .out_row = row,
                          .n_group = c->n_group,
                          .invariant = b->how,
                          .once = once};
    for (uint32_t g = 0; g < c->n_group; g++)
        batch.kv[g] = c->kv[g].pool.kv;
    if (sample)
        batch.sample = *sample;
    return c->be->step_wait(c->d, c->be->step_run(c->d, &batch, p), out, batch.sample.n, e);
}
