/* run.c - sets up a model on a device for the benchmark, and runs single steps; see bench.h. Single-threaded. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/bench/bench.h"

#include "daemon/model/file.h"
#include "daemon/engine/core/device.h"

/* Distance between pages and between ids; a prime visits each residue of a count that it does not divide. */
enum { STRIDE = 7919 };

/* --- steps ----------------------------------------------------------------------------------------------- */

/* A sequence's pages in a pool of recurrent states: two that its steps alternate between, as in the engine, and one for
 * the saved state. */
enum { STATE_PAGES = 3, KEPT = 2 };
static uint32_t state_page(uint32_t seq, uint32_t which)
{
    return STATE_PAGES * seq + which;
}

struct batch_seq bench_seq(struct bench *b, uint32_t seq, uint32_t row0, uint32_t n_row, uint32_t pos0)
{
    struct batch_seq s = {.row0 = row0, .n_row = n_row, .pos0 = pos0};
    bool goes_on = !pos0 || pos0 == b->state[seq].now, again = pos0 == b->state[seq].kept;
    uint32_t from = goes_on ? b->state[seq].turn : KEPT;
    b->state[seq].pages[0] = goes_on || again ? state_page(seq, from) : UINT32_MAX; /* no page: the device refuses it */
    b->state[seq].pages[1] = state_page(seq, b->state[seq].turn ^= 1);
    b->state[seq].now = pos0 + n_row;
    for (uint32_t g = 0; g < b->n_group; g++)
        s.pages[g] = b->kv[g].d_state ? b->state[seq].pages : b->pages[seq];
    return s;
}

void bench_state_save(struct bench *b, uint32_t seq)
{
    for (uint32_t g = 0; g < b->n_group; g++)
        if (b->kv[g].d_state)
            b->be->kv_copy(b->dev, b->pool[g], state_page(seq, KEPT), state_page(seq, b->state[seq].turn));
    b->state[seq].kept = b->state[seq].now;
}

void bench_step(struct bench *b, const struct bench_part *part, uint32_t n_part, uint32_t n_out, const int32_t *token,
                bool sample, uint32_t index)
{
    struct batch_seq seq[BATCH_SEQS_MAX];
    uint32_t out_row[OUT_MAX], slot[BATCH_SEQS_MAX], at[BATCH_SEQS_MAX], row = 0;
    for (uint32_t i = 0; i < n_part; i++) {
        seq[i] = bench_seq(b, part[i].seq, row, part[i].n_row, part[i].pos0);
        row += part[i].n_row;
        out_row[i] = row - 1;
        slot[i] = i;
        at[i] = index;
    }
    struct batch batch = {.n_row = row,
                          .n_seq = n_part,
                          .n_out = n_out,
                          .token = token,
                          .seq = seq,
                          .out_row = out_row,
                          .n_group = b->n_group,
                          .invariant = row == n_part ? b->decodes : b->prompts};
    memcpy(batch.kv, b->pool, sizeof batch.kv);
    if (sample)
        batch.sample = (struct batch_sample){.n = n_out, .slot = slot, .index = at};
    uint64_t ticket = b->be->step_run(b->dev, &batch, &b->model->program);
    if (ticket != b->last + 1) /* the self-check ran steps in between, which have ended */
        b->done = ticket - 1;
    b->last = ticket;
}

int bench_wait(struct bench *b, uint32_t left, uint32_t n_sample)
{
    struct sampled s[BATCH_SEQS_MAX];
    int rc = 0;
    while (!rc && b->last - b->done > left)
        rc = b->be->step_wait(b->dev, ++b->done, s, n_sample, &b->err);
    return rc;
}

int bench_prefill(struct bench *b, uint32_t seq, uint32_t n, uint32_t chunk)
{
    int rc = 0;
    for (uint32_t pos = 0; pos < n && !rc; pos += chunk) {
        struct bench_part part = {seq, pos, n - pos < chunk ? n - pos : chunk};
        if (!(rc = bench_wait(b, b->max_in_flight - 1, 0)))
            bench_step(b, &part, 1, pos + part.n_row == n, b->token + seq + pos, false, 0);
    }
    return rc ? rc : bench_wait(b, 0, 0);
}

int bench_read_logits(struct bench *b, uint32_t out, float *to)
{
    return b->be->act_read(b->dev, ACT_LOGITS, out, 1, to, &b->err);
}

/* --- set-up ---------------------------------------------------------------------------------------------- */

int bench_open_device(struct bench *b, const struct bench_params *p)
{
    struct device_params dp = {.threads = p->threads, .variant = p->variant};
    dp.kv_type = !strcmp(p->kv_type, "q8_0") ? DT_Q8_0 : !strcmp(p->kv_type, "f16") ? DT_F16 : DT_F32;
    bool any = !strcmp(p->backend, "auto");
    int rc = err_set(&b->err, HEARTH_EDEVICE, "this build has no backend \"%.40s\"", p->backend);
    for (int i = 0; backends[i] && !b->be; i++) {
        if (!any && strcmp(p->backend, backends[i]->name))
            continue;
        if (!(rc = backends[i]->open(&b->dev, &dp, &b->err)))
            b->be = backends[i];
        else if (any)
            fprintf(stderr, "hearth-bench: no %s: %s\n", backends[i]->name, b->err.msg);
    }
    if (rc == HEARTH_EPARAMS) { /* the variant is the only parameter that a device can refuse */
        struct hearth_err why = b->err;
        return err_set(&b->err, rc, "--variant: %s", why.msg);
    }
    if (rc)
        return rc;
    b->be->info(b->dev, &b->info);
    b->gpu_weights = (uint64_t)p->gpu_weights << 20;
    b->chunk = p->rows ? p->rows : b->info.gpu ? ROWS_GPU : ROWS_CPU;
    b->max_in_flight = b->info.max_in_flight < 1               ? 1
                       : b->info.max_in_flight > IN_FLIGHT_MAX ? IN_FLIGHT_MAX
                                                               : b->info.max_in_flight;
    return 0;
}

/* Fills the block tables so that consecutive pages of a sequence are far apart, as after a day of use. */
static int give_pages(struct bench *b, uint32_t n_page, uint32_t n_first, uint32_t n_other)
{
    uint64_t next = 0;
    for (uint32_t i = 0; i < b->n_seqs; i++) {
        uint32_t n = i ? n_other : n_first;
        if (!(b->pages[i] = malloc(n * sizeof **b->pages)))
            return err_set(&b->err, HEARTH_ENOMEM, "no memory for %u page numbers", n);
        for (uint32_t k = 0; k < n; k++)
            b->pages[i][k] = (uint32_t)(next++ * STRIDE % n_page);
    }
    return 0;
}

/* Opens a pool for each layer group. Groups with a window keep all pages, as the others do; a pool of states has
 * STATE_PAGES per sequence. */
static int open_pools(struct bench *b, uint32_t n_page)
{
    int rc = 0;
    uint32_t n = model_kv_descs(b->model, b->info.kv_type, b->kv);
    for (; b->n_group < n && !rc; b->n_group += !rc) {
        b->kv[b->n_group].n_page = b->kv[b->n_group].d_state ? STATE_PAGES * b->n_seqs : n_page;
        rc = b->be->kv_new(b->dev, &b->kv[b->n_group], &b->pool[b->n_group], &b->err);
    }
    return rc;
}

int bench_open_model(struct bench *b, const char *path, const struct bench_room *room)
{
    struct workspace_dims dims = {
        .n_row = b->chunk > ROWS_CPU ? b->chunk : ROWS_CPU, .n_out = OUT_MAX, .n_prompt = b->prompt_rows};
    uint32_t most = room->n_first > room->n_other ? room->n_first : room->n_other;
    int rc;
    if ((rc = model_file_open(&b->gguf, path, &b->err)) || (rc = model_hparams(&b->hp, b->gguf, &b->err)))
        return rc;
    if (most > b->hp.n_ctx)
        return err_set(&b->err, HEARTH_ECONTEXT, "%u tokens are asked for; the context of the model is %u", most,
                       b->hp.n_ctx);
    uint32_t check = b->hp.n_ctx < BENCH_COMPARE_TOKENS ? b->hp.n_ctx : BENCH_COMPARE_TOKENS;
    most = most > check ? most : check;
    uint32_t first = (room->n_first > check ? room->n_first : check) / KV_PAGE + 1;
    uint32_t other = (room->n_other > check ? room->n_other : check) / KV_PAGE + 1;
    struct model_room within = {b->gpu_weights ? b->gpu_weights : UINT64_MAX, UINT64_MAX};
    if ((rc = model_load_within(&b->model, b->gguf, b->be, b->dev, &within, NULL, NULL, &b->err)))
        return rc;
    model_workspace(b->model, &dims);
    b->n_seqs = room->n_seqs;
    uint32_t n_page = first + (b->n_seqs - 1) * other;
    n_page += n_page % STRIDE == 0;
    if ((rc = b->be->reserve(b->dev, &dims, &b->err)) || (rc = open_pools(b, n_page)) ||
        (rc = give_pages(b, n_page, first, other)))
        return rc;
    uint32_t n_id = 2 * most + BATCH_SEQS_MAX; /* sequence i's prompt starts at token i */
    b->token = malloc(n_id * sizeof *b->token);
    b->logits = malloc(b->hp.n_vocab * sizeof *b->logits);
    if (!b->token || !b->logits)
        return err_set(&b->err, HEARTH_ENOMEM, "no memory for %u tokens", n_id);
    for (uint32_t i = 0; i < n_id; i++)
        b->token[i] = (int32_t)((i * (uint32_t)STRIDE + 13) % b->hp.n_vocab);
    return 0;
}

void bench_close_model(struct bench *b)
{
    free(b->token);
    free(b->logits);
    b->token = NULL;
    b->logits = NULL;
    for (uint32_t i = 0; i < BATCH_SEQS_MAX; i++) {
        free(b->pages[i]);
        b->pages[i] = NULL;
    }
    for (; b->n_group; b->n_group--)
        b->be->kv_free(b->dev, b->pool[b->n_group - 1]);
    if (b->model)
        model_free(b->model);
    if (b->gguf)
        gguf_close(b->gguf);
    b->model = NULL;
    b->gguf = NULL;
    b->n_deep = 0;
    memset(b->state, 0, sizeof b->state);
}

void bench_close(struct bench *b)
{
    bench_close_model(b);
    if (b->be)
        b->be->close(b->dev);
}
