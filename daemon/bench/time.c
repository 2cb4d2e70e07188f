/* time.c - the benchmark's tests, each the median of BENCH_RUNS; see bench.h. Single-threaded. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/bench/bench.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double ms[BENCH_RUNS])
{
    qsort(ms, BENCH_RUNS, sizeof *ms, by_value);
    return ms[BENCH_RUNS / 2];
}

static int hash_logits(struct bench *b, uint32_t n, struct bench_result *out)
{
    int rc = 0;
    for (uint32_t i = 0; i < n && !(rc = bench_read_logits(b, i, b->logits)); i++)
        out->hash = XXH3_64bits_withSeed(b->logits, b->hp.n_vocab * sizeof *b->logits, out->hash);
    out->hashed = !rc;
    return rc;
}

/* Returns the bytes of a mixture's experts that a single row is not routed to. */
static double other_experts(const struct bench *b)
{
    double bytes = 0;
    for (uint32_t i = 0; i < b->model->program.n_op; i++) {
        const struct op *o = &b->model->program.op[i];
        const struct weight *w = op_weight(o);
        if (o->kind != OP_EXPERTS_UP && o->kind != OP_EXPERTS_DOWN)
            continue;
        uint32_t used = o->kind == OP_EXPERTS_UP ? o->experts_up.n_used : o->experts_down.n_used;
        for (uint32_t p = 0; p < w->n_part; p++)
            bytes += (double)(w->n_expert - used) *
                     (double)dtype_bytes((int)w->part[p].type, (uint64_t)w->n_in * w->part[p].n_out);
    }
    return bytes;
}

/* Returns the bytes of weights that a step reads: all, except an embedding table that is not also the output matrix
 * and, for one row, the experts that the row is not routed to. 0: unknown, for a mixture with several rows, which may
 * share experts. */
static double weight_bytes(const struct bench *b, uint32_t n_seq)
{
    const struct weight_part *embd = &b->model->tok_embd.part[0], *head = &b->model->out.part[0];
    double all = (double)b->model->hp.weight_bytes;
    if (embd->data != head->data)
        all -= (double)dtype_bytes((int)embd->type, (uint64_t)b->hp.n_vocab * b->hp.d_model);
    double others = other_experts(b);
    return others > 0 && n_seq > 1 ? 0 : all - others;
}

int bench_set_slots(struct bench *b, uint32_t n, uint32_t n_history)
{
    struct sample_params greedy = {.top_p = 1, .rep_penalty = 1};
    int rc = 0;
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = b->be->slot_set(b->dev, i, &greedy, b->token + i, n_history, b->hp.n_vocab, &b->err);
    return rc;
}

int bench_time_prompt(struct bench *b, uint32_t n, struct bench_result *out)
{
    double ms[BENCH_RUNS];
    int rc;
    for (int i = -1; i < BENCH_RUNS; i++) { /* the first run is the warm-up */
        double begin = engine_now();
        if ((rc = bench_prefill(b, 0, n, b->chunk)))
            return rc;
        if (i >= 0)
            ms[i] = 1e3 * (engine_now() - begin);
    }
    *out = (struct bench_result){.ms = bench_median(ms), .n_token = n};
    snprintf(out->test, sizeof out->test, "pp%u", n);
    return hash_logits(b, 1, out);
}

/* Decodes BENCH_TG_TOKENS tokens of each of n sequences; the device itself passes each token to the next step. */
static int decode(struct bench *b, uint32_t n, uint32_t depth)
{
    int32_t token[BATCH_SEQS_MAX];
    struct bench_part part[BATCH_SEQS_MAX];
    int rc = 0;
    for (uint32_t i = 0; i < n; i++) {
        token[i] = b->token[i + depth];
        part[i] = (struct bench_part){i, depth, 1};
    }
    for (uint32_t t = 0; t < BENCH_TG_TOKENS && !(rc = bench_wait(b, b->max_in_flight - 1, n)); t++) {
        bench_step(b, part, n, n, token, true, t);
        for (uint32_t i = 0; i < n; i++) {
            token[i] = TOKEN_OF_SLOT(i);
            part[i].pos0++;
        }
    }
    return rc ? rc : bench_wait(b, 0, n);
}

/* Returns the bytes of KV that a token reads after `depth` others, plus the recurrent states, which are read and
 * written. */
static double kv_bytes(const struct bench *b, uint32_t depth)
{
    double bytes = 0;
    for (uint32_t g = 0; g < b->n_group; g++) {
        if (b->kv[g].d_state) {
            bytes += 2 * (double)kv_page_bytes(&b->kv[g]);
            continue;
        }
        uint32_t window = b->kv[g].window, seen = window && window < depth ? window : depth;
        bytes += (double)kv_page_bytes(&b->kv[g]) / KV_PAGE * seen;
    }
    return bytes;
}

/* Prefills a prompt from which several runs of steps start. */
static int prefix(struct bench *b, uint32_t seq, uint32_t depth)
{
    int rc = bench_prefill(b, seq, depth, b->chunk);
    bench_state_save(b, seq);
    return rc;
}

int bench_time_decode(struct bench *b, uint32_t n_seq, uint32_t depth, struct bench_result *out)
{
    double ms[BENCH_RUNS];
    int rc = 0;
    if (n_seq == 1)
        rc = depth ? prefix(b, 0, depth) : 0;
    else
        for (; b->n_deep < n_seq && !rc; b->n_deep += !rc)
            rc = prefix(b, b->n_deep, depth);
    for (int i = -1; i < BENCH_RUNS && !rc; i++) { /* the first run is the warm-up */
        if ((rc = bench_set_slots(b, n_seq, depth + 1)))
            return rc;
        double begin = engine_now();
        rc = decode(b, n_seq, depth);
        if (i >= 0)
            ms[i] = 1e3 * (engine_now() - begin) / BENCH_TG_TOKENS;
    }
    if (rc)
        return rc;
    double weights = weight_bytes(b, n_seq), kv = n_seq * kv_bytes(b, depth + BENCH_TG_TOKENS / 2);
    *out = (struct bench_result){.ms = bench_median(ms), .n_token = n_seq, .bytes = weights > 0 ? weights + kv : 0};
    if (n_seq == 1)
        snprintf(out->test, sizeof out->test, "tg@%u", depth);
    else
        snprintf(out->test, sizeof out->test, "batch%u@%u", n_seq, depth);
    return hash_logits(b, n_seq, out);
}

int bench_time_resume(struct bench *b, uint32_t depth, struct bench_result *out)
{
    struct bench_part part = {0, depth, BENCH_RESUME_TOKENS};
    double ms[BENCH_RUNS];
    int rc = prefix(b, 0, depth);
    for (int i = -1; i < BENCH_RUNS && !rc; i++) { /* the first run is the warm-up */
        double begin = engine_now();
        if ((rc = bench_set_slots(b, 1, depth + part.n_row)))
            return rc;
        bench_step(b, &part, 1, 1, b->token + depth, true, 0);
        rc = bench_wait(b, 0, 1);
        if (i >= 0)
            ms[i] = 1e3 * (engine_now() - begin);
    }
    if (rc)
        return rc;
    *out = (struct bench_result){.ms = bench_median(ms)};
    snprintf(out->test, sizeof out->test, "resume@%u", depth);
    return hash_logits(b, 1, out);
}

int bench_load(struct bench *b, const char *path, const struct bench_room *room)
{
    struct bench_part part = {0, 0, 1};
    struct vocab *vocab = NULL;
    int rc = bench_open_model(b, path, room);
    if (rc)
        return rc;
    struct hearth_err none; /* a model without a tokenizer is measured too */
    vocab_load(&vocab, b->gguf, &none);
    if (!(rc = bench_set_slots(b, 1, 1))) {
        bench_step(b, &part, 1, 1, b->token, true, 0);
        rc = bench_wait(b, 0, 1);
    }
    vocab_free(vocab);
    return rc;
}

int bench_time_load(struct bench *b, const char *path, const struct bench_room *room, struct bench_result *out)
{
    double ms[BENCH_RUNS];
    int rc = 0;
    for (int i = 0; i < BENCH_RUNS && !rc; i++) {
        bench_close_model(b);
        double begin = engine_now();
        rc = bench_load(b, path, room);
        ms[i] = 1e3 * (engine_now() - begin);
    }
    if (rc)
        return rc;
    *out = (struct bench_result){.test = "load_cached", .ms = bench_median(ms)};
    return hash_logits(b, 1, out);
}
