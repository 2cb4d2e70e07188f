/*
 * kv.c - the benchmark's KV transfers between the device and host memory; see bench.h. Single-threaded.
 *
 * The pages are scattered in the pool, as after a day of use, and contiguous on the host. Before anything is reported,
 * the logits of the next token after pages were saved and restored must be bit-identical to those before.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/bench/bench.h"
#include "daemon/engine/core/device.h"

/* Transfers in flight during a decode, as many as the engine's tiers keep, because a transfer waits for the steps
 * before it. */
enum { IN_FLIGHT = 8 };
static const uint64_t piece_bytes = 16 << 20;

int bench_saved_init(struct bench_saved *k, struct bench *b, uint32_t depth)
{
    *k = (struct bench_saved){b, .n = depth / KV_PAGE, .page = kv_page_bytes(&b->kv[0])};
    int rc = b->be->host_alloc(b->dev, (uint64_t)k->n * k->page, (void **)&k->slab, &b->err);
    if (rc)
        return rc;
    k->host = malloc(k->n * sizeof *k->host);
    if (!k->host)
        return err_set(&b->err, HEARTH_ENOMEM, "no memory for %u pages' places", k->n);
    for (uint32_t i = 0; i < k->n; i++)
        k->host[i] = k->slab + i * k->page;
    return 0;
}

void bench_saved_free(struct bench_saved *k)
{
    if (k->slab)
        k->b->be->host_free(k->b->dev, k->slab);
    free(k->host);
}

int bench_move(struct bench_saved *k, enum bench_move dir, uint32_t first, uint32_t n, uint64_t *ticket)
{
    struct bench *b = k->b;
    const uint32_t *pages = b->pages[0] + first;
    void **host = k->host + first;
    *ticket = dir == BENCH_SAVE ? b->be->kv_save(b->dev, b->pool[0], pages, host, n)
                                : b->be->kv_load(b->dev, b->pool[0], pages, (const void *const *)host, n);
    if (*ticket)
        return 0;
    int rc = b->be->sync(b->dev, &b->err);
    return rc ? rc : err_set(&b->err, HEARTH_EINTERNAL, "a move of KV pages was refused");
}

/* Measures the transfer of all pages at once, from the call until its end is seen. */
static int time_moves(struct bench_saved *k, enum bench_move dir, double *ms)
{
    struct bench *b = k->b;
    double all[BENCH_RUNS];
    int rc = 0;
    for (int i = -1; i < BENCH_RUNS && !rc; i++) { /* the first run is the warm-up */
        uint64_t ticket;
        for (uint32_t p = 0; dir == BENCH_LOAD && p < k->n; p++)
            b->be->kv_clear(b->dev, b->pool[0], b->pages[0][p]);
        if ((rc = b->be->sync(b->dev, &b->err)))
            break;
        double begin = engine_now();
        rc = bench_move(k, dir, 0, k->n, &ticket);
        while (!rc)
            rc = b->be->kv_transfer_done(b->dev, ticket, &b->err);
        rc = rc > 0 ? 0 : rc;
        if (i >= 0)
            all[i] = 1e3 * (engine_now() - begin);
    }
    if (!rc)
        *ms = bench_median(all);
    return rc;
}

/* --- during a decode ---------------------------------------------------------------------------------------- */

struct moving {
    struct bench_saved *k;
    enum bench_move dir;
    uint32_t each; /* pages in one transfer */
    uint32_t next;
    uint64_t in_flight[IN_FLIGHT]; /* 0: none */
    double done;                   /* bytes of finished transfers */
};

/* Keeps IN_FLIGHT transfers in flight, each of `each` pages. */
static int keep_moving(struct moving *m)
{
    struct bench *b = m->k->b;
    double bytes = (double)m->each * (double)m->k->page;
    int rc = 0;
    for (int i = 0; i < IN_FLIGHT && rc >= 0 && m->dir != BENCH_STILL; i++) {
        if (m->in_flight[i]) {
            if (!(rc = b->be->kv_transfer_done(b->dev, m->in_flight[i], &b->err)))
                continue;
            m->done += rc > 0 ? bytes : 0;
            m->in_flight[i] = 0;
        }
        if (rc >= 0)
            rc = bench_move(m->k, m->dir, m->next++ % (m->k->n / m->each) * m->each, m->each, &m->in_flight[i]);
    }
    return rc < 0 ? rc : 0;
}

/* Decodes BENCH_TG_TOKENS tokens of the second sequence. *ms is the time per token, *bytes what was transferred
 * meanwhile. */
static int decode_during_moves(struct bench_saved *k, enum bench_move dir, double *ms, double *bytes)
{
    struct bench *b = k->b;
    struct bench_part part = {1, 0, 1};
    int32_t token = b->token[1];
    struct moving m = {k, dir, .each = k->n / IN_FLIGHT};
    uint32_t most = piece_bytes < k->page ? 1 : (uint32_t)(piece_bytes / k->page);
    m.each = m.each < most ? m.each : most;
    int rc = bench_set_slots(b, 1, 1);
    rc = rc ? rc : keep_moving(&m); /* transfers are already in flight when the decode starts */
    double begin = engine_now();
    for (uint32_t t = 0; t < BENCH_TG_TOKENS && !rc && !(rc = bench_wait(b, b->max_in_flight - 1, 1)); t++) {
        bench_step(b, &part, 1, 1, &token, true, t);
        token = TOKEN_OF_SLOT(0);
        part.pos0++;
        rc = keep_moving(&m);
    }
    rc = rc ? rc : bench_wait(b, 0, 1);
    *ms = 1e3 * (engine_now() - begin) / BENCH_TG_TOKENS;
    *bytes = m.done;
    for (int i = 0; i < IN_FLIGHT && !rc; i++)
        if (m.in_flight[i])
            rc = b->be->kv_transfer_wait(b->dev, m.in_flight[i], &b->err);
    return rc;
}

static int time_during_moves(struct bench_saved *k, uint32_t depth, struct bench_result *out, size_t *n)
{
    static const char *const name[BENCH_MOVES] = {
        [BENCH_SAVE] = "saving", [BENCH_LOAD] = "restoring", [BENCH_STILL] = "still"};
    static const char *const what[BENCH_MOVES] = {[BENCH_SAVE] = "kv_save", [BENCH_LOAD] = "kv_restore"};
    double ms[BENCH_MOVES][BENCH_RUNS], rate[BENCH_MOVES][BENCH_RUNS], bytes = 0;
    int rc = 0;
    for (int i = -1; i < BENCH_RUNS && !rc; i++) /* interleaved, so that a drifting clock affects all alike */
        for (int dir = 0; dir < BENCH_MOVES && !rc; dir++) {
            int at = i < 0 ? 0 : i;
            rc = decode_during_moves(k, dir, &ms[dir][at], &bytes);
            rate[dir][at] = bytes / ms[dir][at] / BENCH_TG_TOKENS; /* bytes per ms */
        }
    for (int dir = 0; dir < BENCH_MOVES && !rc; dir++) {
        struct bench_result *r = &out[(*n)++];
        *r = (struct bench_result){.ms = bench_median(ms[dir]), .n_token = 1};
        snprintf(r->test, sizeof r->test, "tg@0_%s", name[dir]);
        double each = bench_median(rate[dir]);
        if (dir == BENCH_STILL || !(each > 0))
            continue;
        r = &out[(*n)++];
        *r = (struct bench_result){.ms = (double)k->n * (double)k->page / each, .n_token = depth};
        snprintf(r->test, sizeof r->test, "%s@%u_busy", what[dir], depth);
    }
    return rc;
}

/* --- the tests ----------------------------------------------------------------------------------------------- */

int bench_next_logits(struct bench *b, uint32_t depth, float *to)
{
    struct bench_part part = {0, depth, 1};
    bench_step(b, &part, 1, 1, b->token + depth, false, 0);
    int rc = bench_wait(b, 0, 0);
    return rc ? rc : bench_read_logits(b, 0, to);
}

int bench_time_kv(struct bench *b, uint32_t depth, struct bench_result *out, size_t *n)
{
    struct bench_saved k = {0};
    double pin = 0, save = 0, load = 0, begin = engine_now();
    float *want = malloc(b->hp.n_vocab * sizeof *want);
    int rc = want ? bench_saved_init(&k, b, depth)
                  : err_set(&b->err, HEARTH_ENOMEM, "no memory for %u logits", b->hp.n_vocab);
    pin = 1e3 * (engine_now() - begin);
    if (!rc && b->kv[0].d_state)
        rc = err_set(&b->err, HEARTH_EUNSUPPORTED, "a %s has no KV, but states alone: nothing for --kv", b->hp.arch);
    if (rc || (rc = bench_prefill(b, 0, depth, b->chunk)))
        goto out;
    bench_state_save(b, 0);
    if ((rc = bench_next_logits(b, depth, want)) || (rc = time_moves(&k, BENCH_SAVE, &save)) ||
        (rc = time_moves(&k, BENCH_LOAD, &load)) || (rc = bench_next_logits(b, depth, b->logits)))
        goto out;
    if (memcmp(want, b->logits, b->hp.n_vocab * sizeof *want)) {
        rc = err_set(&b->err, HEARTH_EINTERNAL, "pages that were saved and restored give other logits");
        goto out;
    }
    out[(*n)++] = (struct bench_result){.ms = pin};
    out[(*n)++] = (struct bench_result){.ms = save, .n_token = depth};
    out[(*n)++] = (struct bench_result){.ms = load, .n_token = depth};
    snprintf(out[*n - 3].test, sizeof out->test, "kv_pin@%u", depth);
    snprintf(out[*n - 2].test, sizeof out->test, "kv_save@%u", depth);
    snprintf(out[*n - 1].test, sizeof out->test, "kv_restore@%u", depth);
    rc = time_during_moves(&k, depth, out, n);
out:
    bench_saved_free(&k);
    free(want);
    return rc;
}
