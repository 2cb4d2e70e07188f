/*
 * windows.c - models with sliding windows whose pages are freed as the windows leave them, on small pools and beside
 * another sequence, give the same bits as when everything is kept; and so does a sequence that continues from what was
 * kept.
 */
#include "tests/golden/run.h"

#include "daemon/engine/sched/kv.h"

#include <stdio.h>
#include <string.h>

enum { LEN = 620, TURN = 500 /* the end of the first turn */, ROWS = 64, OUT = 4, SEQS = 2 };

static uint64_t rng_state = 5;
static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

/* The pools with a window have room for two windows and steps, and no more. */
struct paged {
    enum invariance way;
    struct run *r;
    struct kv *kv;
    struct kv_pool *pool[KV_GROUPS_MAX];
    struct kv_table table[SEQS];
    int32_t id[SEQS][LEN];
    uint32_t done[SEQS];
};

static void paged_open(struct paged *p, struct run *r)
{
    struct kv_shape shape[KV_GROUPS_MAX];
    memset(p, 0, sizeof *p);
    p->r = r;
    for (uint32_t g = 0; g < r->n_group; g++) {
        struct kv_desc desc = r->kv[g];
        uint32_t all = SEQS * (LEN / KV_PAGE + 1), least = SEQS * kv_most(desc.window, ROWS) + 16;
        desc.n_page = desc.window && least < all ? least : all;
        shape[g] = (struct kv_shape){desc.n_page, desc.window};
        MUST(r->be->kv_new(r->dev, &desc, &p->pool[g], &e));
    }
    MUST(kv_cache_new(&p->kv, shape, r->n_group, &e));
    for (uint32_t s = 0; s < SEQS; s++) {
        p->table[s].uid = s;
        p->table[s].keep = 300;
        for (uint32_t i = 0; i < LEN; i++)
            p->id[s][i] = (int32_t)rnd(r->m->hp.n_vocab);
    }
}

static void paged_close(struct paged *p)
{
    for (uint32_t s = 0; s < SEQS; s++)
        kv_release(p->kv, &p->table[s], NULL, 0);
    assert_true(kv_check(p->kv));
    kv_cache_free(p->kv);
    for (uint32_t g = 0; g < p->r->n_group; g++)
        p->r->be->kv_free(p->r->dev, p->pool[g]);
}

/* Runs a step of rows[s] more tokens of each of the first n sequences; returns the logits of the last rows of the last
 * one. */
static void step(struct paged *p, uint32_t n, const uint32_t *rows, float *logits)
{
    struct run *r = p->r;
    struct batch_seq seq[SEQS];
    int32_t token[SEQS * ROWS];
    uint32_t out[OUT], row = 0, n_out = rows[n - 1] < OUT ? rows[n - 1] : OUT;
    struct kv_action a;
    for (uint32_t s = 0; s < n; s++) {
        assert_true(kv_grow(p->kv, &p->table[s], p->done[s], LEN, ROWS));
        seq[s] = (struct batch_seq){.row0 = row, .n_row = rows[s], .pos0 = p->done[s]};
        for (uint32_t g = 0; g < r->n_group; g++)
            seq[s].pages[g] = p->table[s].page[g];
        memcpy(token + row, p->id[s] + p->done[s], rows[s] * sizeof *token);
        row += rows[s];
    }
    while (kv_next_action(p->kv, &a))
        if (a.kind == KV_COPY)
            r->be->kv_copy(r->dev, p->pool[a.group], a.page, a.from);
        else
            r->be->kv_clear(r->dev, p->pool[a.group], a.page);
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = row - n_out + i;
    struct batch b = {.n_row = row,
                      .n_seq = n,
                      .n_out = n_out,
                      .token = token,
                      .seq = seq,
                      .out_row = out,
                      .n_group = r->n_group,
                      .invariant = p->way};
    memcpy(b.kv, p->pool, sizeof b.kv);
    MUST(r->be->step_wait(r->dev, r->be->step_run(r->dev, &b, &r->m->program), NULL, 0, &e));
    MUST(r->be->act_read(r->dev, ACT_LOGITS, 0, n_out, logits, &e));
    for (uint32_t s = 0; s < n; s++) {
        p->done[s] += rows[s];
        kv_publish(p->kv, &p->table[s], p->id[s], p->done[s]);
    }
}

/* Runs the same tokens of the last sequence with all pages kept, and returns the logits of all positions. */
static void keep_all(struct paged *p, float *logits)
{
    struct run *r = p->r;
    for (uint32_t pos = 0; pos < LEN; pos += ROWS) {
        uint32_t n = LEN - pos < ROWS ? LEN - pos : ROWS;
        run_step(r, &(struct piece){p->id[SEQS - 1] + pos, n, pos, n, r->pages}, 1, p->way,
                 logits + (size_t)pos * r->m->hp.n_vocab);
    }
}

static void compare(struct paged *p, uint32_t rows, const float *got, const float *want, const char *how)
{
    uint32_t n_vocab = p->r->m->hp.n_vocab, n = rows < OUT ? rows : OUT, at = p->done[SEQS - 1] - n;
    if (memcmp(got, want + (size_t)at * n_vocab, (size_t)n * n_vocab * sizeof *got))
        fail_msg("%s, %s: other logits at one of the positions from %u on", p->r->m->hp.name, how, at);
}

static void feed(struct paged *p, uint32_t until, float *got, const float *want, const char *how)
{
    while (p->done[SEQS - 1] < until) {
        uint32_t left = until - p->done[SEQS - 1], rows[SEQS];
        rows[SEQS - 1] = left < 30 ? 1 : 1 + rnd(ROWS);
        rows[SEQS - 1] = rows[SEQS - 1] < left ? rows[SEQS - 1] : left;
        rows[0] = LEN - p->done[0] < 20 ? LEN - p->done[0] : 1 + rnd(20);
        uint32_t n = rows[0] ? SEQS : 1, *from = rows[0] ? rows : rows + 1;
        if (n == 1) { /* the other sequence has ended: it is released and begins anew */
            kv_release(p->kv, &p->table[0], p->id[0], p->done[0]);
            p->done[0] = 0;
            continue;
        }
        step(p, n, from, got);
        compare(p, rows[SEQS - 1], got, want, how);
    }
}

static void same_bits(const char *name, enum invariance way)
{
    char path[4096], file[256];
    struct run r;
    struct paged p;
    snprintf(file, sizeof file, "models/hf-tiny/%s", name);
    if (!run_path(path, file))
        skip();
    run_open(&r, path, run_backend(), NULL, 0, 0, SEQS * ROWS);
    paged_open(&p, &r);
    p.way = way;
    size_t n_vocab = r.m->hp.n_vocab;
    float *want = malloc((LEN + OUT) * n_vocab * sizeof *want), *got = want + LEN * n_vocab;
    assert_non_null(want);
    keep_all(&p, want);
    feed(&p, TURN, got, want, "as windows are freed");
    uint32_t held = 0, last = SEQS - 1;
    for (uint32_t g = 0; g < r.n_group; g++)
        for (uint32_t i = 0; i < p.table[last].n; i++)
            held += r.kv[g].window && p.table[last].page[g][i] != KV_NONE;
    assert_true(held > 0 && held <= r.n_group * kv_most(24, ROWS)); /* pages are still held */
    kv_release(p.kv, &p.table[last], p.id[last], p.done[last]);
    p.done[last] = kv_match(p.kv, &p.table[last], p.id[last], TURN);
    assert_int_equal(p.done[last], TURN);
    feed(&p, LEN, got, want, "resumed");
    kv_release(p.kv, &p.table[last], p.id[last], 300);
    p.done[last] = kv_match(p.kv, &p.table[last], p.id[last], 300);
    assert_int_equal(p.done[last], 300); /* where its prompt ended */
    feed(&p, LEN, got, want, "from the prompt's end");
    paged_close(&p);
    free(want);
    run_close(&r);
}

#define TEST(name)                              \
    static void test_##name(void **state)       \
    {                                           \
        (void)state;                            \
        same_bits(#name, INVARIANT_DECODE);     \
        if (run_on_gpu()) {                     \
            same_bits(#name, INVARIANT_PROMPT); \
            same_bits(#name, INVARIANT_BATCH);  \
        }                                       \
    }
TEST(gemma2)
TEST(gemma3_text)
TEST(olmo3)
TEST(cohere2)
TEST(mistral)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma2),  cmocka_unit_test(test_gemma3_text), cmocka_unit_test(test_olmo3),
        cmocka_unit_test(test_cohere2), cmocka_unit_test(test_mistral),
    };
    if (!run_possible())
        return 0;
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
