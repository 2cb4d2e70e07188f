/*
 * states.c - models with recurrent states give the same bits as in one sequence that runs by itself when they are read
 * in chunks of any length, beside others, with steps that are stopped and repeated, resumed where a state was kept, and
 * from a copy of its pages in host memory; and so does each of 32 sequences at once.
 */
#include "tests/golden/run.h"

#include "daemon/engine/sched/kv.h"

#include <stdio.h>
#include <string.h>

enum { LEN = 700, PROMPT = 560, ROWS = 100, SEQS = 32, MANY = 40 /* tokens that all sequences read */ };

static uint64_t rng_state = 5;
static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static uint32_t n_within; /* steps of a sequence that gave a state within the step */

struct paged {
    struct run *r;
    struct kv *kv;
    struct kv_pool *pool[KV_GROUPS_MAX];
    struct kv_desc desc[KV_GROUPS_MAX];
    struct kv_table table[SEQS];
    bool within; /* the device gives states from within a step */
    int32_t id[SEQS][LEN];
    uint32_t done[SEQS];
};

static void open_pools(struct paged *p)
{
    struct run *r = p->r;
    struct kv_shape shape[KV_GROUPS_MAX];
    for (uint32_t g = 0; g < r->n_group; g++) {
        p->desc[g] = r->kv[g];
        p->desc[g].n_page = p->desc[g].d_state ? 3 * SEQS + 8 : 4 * SEQS + 2 * LEN / KV_PAGE;
        shape[g] =
            (struct kv_shape){p->desc[g].n_page, p->desc[g].window, p->desc[g].d_state != 0, .within = p->within};
        MUST(r->be->kv_new(r->dev, &p->desc[g], &p->pool[g], &e));
    }
    MUST(kv_cache_new(&p->kv, shape, r->n_group, &e));
}

static void close_pools(struct paged *p)
{
    assert_true(kv_check(p->kv));
    kv_cache_free(p->kv);
    for (uint32_t g = 0; g < p->r->n_group; g++)
        p->r->be->kv_free(p->r->dev, p->pool[g]);
}

static bool at_once(void *arg)
{
    uint32_t *ops = arg;
    return !(*ops)--;
}

/* Runs a step of the sequences [0, n), with rows[s] tokens of each or as many as possible; stopped after so many ops,
 * or never. Returns the logits of each sequence's last row. */
static void step(struct paged *p, uint32_t n, uint32_t *rows, uint32_t stop_after, float *logits)
{
    struct run *r = p->r;
    struct batch_seq seq[SEQS];
    int32_t token[BATCH_ROWS_MAX];
    uint32_t out[SEQS], row = 0;
    struct kv_action a;
    for (uint32_t s = 0; s < n; s++) {
        struct kv_table *t = &p->table[s];
        assert_true(kv_grow(p->kv, t, p->done[s], p->done[s] + rows[s], ROWS));
        rows[s] = kv_cut(p->kv, t, p->done[s], rows[s]);
        seq[s] = (struct batch_seq){.row0 = row, .n_row = rows[s], .pos0 = p->done[s]};
        seq[s].n_within = t->within ? t->within - p->done[s] : 0;
        n_within += seq[s].n_within > 0;
        for (uint32_t g = 0; g < r->n_group; g++)
            seq[s].pages[g] = p->desc[g].d_state ? t->state[g].page : t->page[g];
        memcpy(token + row, p->id[s] + p->done[s], rows[s] * sizeof *token);
        row += rows[s];
        out[s] = row - 1;
    }
    while (kv_next_action(p->kv, &a))
        if (a.kind == KV_COPY)
            r->be->kv_copy(r->dev, p->pool[a.group], a.page, a.from);
        else
            r->be->kv_clear(r->dev, p->pool[a.group], a.page);
    struct batch b = {.n_row = row,
                      .n_seq = n,
                      .n_out = n,
                      .token = token,
                      .seq = seq,
                      .out_row = out,
                      .n_group = r->n_group,
                      .invariant = true,
                      .stop = stop_after ? at_once : NULL,
                      .stop_arg = &stop_after};
    memcpy(b.kv, p->pool, sizeof b.kv);
    struct hearth_err why;
    uint32_t wanted = stop_after;
    int rc = r->be->step_wait(r->dev, r->be->step_run(r->dev, &b, &r->m->program), NULL, 0, &why);
    assert_int_equal(rc, wanted ? HEARTH_ECANCELLED : 0);
    if (rc)
        return;
    MUST(r->be->act_read(r->dev, ACT_LOGITS, 0, n, logits, &e));
    for (uint32_t s = 0; s < n; s++) {
        p->done[s] += rows[s];
        kv_publish(p->kv, &p->table[s], p->id[s], p->done[s]);
    }
}

/* Reads the first sequence up to token `until` in chunks of at most ROWS, with the second beside it as far as it goes,
 * and compares the logits. */
static void feed(struct paged *p, uint32_t until, uint32_t n, const float *want, const char *how)
{
    uint32_t n_vocab = p->r->m->hp.n_vocab;
    float *got = malloc(SEQS * n_vocab * sizeof *got);
    assert_non_null(got);
    while (p->done[0] < until) {
        uint32_t rows[2] = {1 + rnd(rnd(2) ? ROWS : 3), 1 + rnd(20)};
        rows[0] = until - p->done[0] < rows[0] ? until - p->done[0] : rows[0];
        uint32_t both = n == 2 && p->done[1] + 20 < LEN ? 2 : 1;
        if (!rnd(3) && !run_on_gpu()) /* a GPU's steps are too short to be stopped */
            step(p, both, rows, 1 + rnd(p->r->m->program.n_op - 1), got);
        step(p, both, rows, 0, got);
        if (memcmp(got, want + (size_t)(p->done[0] - 1) * n_vocab, n_vocab * sizeof *got))
            fail_msg("%s, %s: other logits at position %u", p->r->m->hp.name, how, p->done[0] - 1);
    }
    free(got);
}

static void release(struct paged *p, uint32_t s)
{
    kv_advance(p->kv, &p->table[s], p->done[s]);
    kv_release(p->kv, &p->table[s], p->id[s], p->done[s]);
}

/* Resumes from the cache, at the last place that a sequence with these tokens can continue from, which is at most 512
 * tokens back. */
static void resume(struct paged *p, uint32_t n)
{
    release(p, 0);
    p->done[0] = kv_match(p->kv, &p->table[0], p->id[0], n);
    if (p->done[0] > n || n - p->done[0] > 512)
        fail_msg("%s: %u of %u tokens are there", p->r->m->hp.name, p->done[0], n);
}

static void moved(struct run *r, uint64_t ticket)
{
    assert_true(ticket > 0);
    MUST(r->be->kv_transfer_wait(r->dev, ticket, &e));
}

/* Copies everything that is cached of the first sequence to host memory, and back into fresh pools. */
static void restart(struct paged *p)
{
    struct run *r = p->r;
    uint32_t n = LEN / KV_PAGE, usable = 0;
    struct kv_table t = {.uid = p->table[0].uid};
    char *host[KV_GROUPS_MAX];
    bool there[KV_GROUPS_MAX][LEN / KV_PAGE] = {0};
    release(p, 0);
    release(p, 1);
    n = kv_match_nodes(p->kv, &t, p->id[0], n * KV_PAGE);
    for (uint32_t g = 0; g < r->n_group; g++) {
        host[g] = malloc(n * kv_page_bytes(&p->desc[g]));
        for (uint32_t i = 0; i < n; i++) {
            void *to = host[g] + i * kv_page_bytes(&p->desc[g]);
            if (!(there[g][i] = kv_has(p->kv, &t, g, i)))
                continue;
            if (p->desc[g].d_state) {
                kv_hold(p->kv, &t, g, i);
                usable = i + 1;
            }
            moved(r, r->be->kv_save(r->dev, p->pool[g], &t.page[g][i], &to, 1));
        }
    }
    assert_true(usable * KV_PAGE + 512 >= LEN);
    kv_release(p->kv, &t, NULL, 0);
    close_pools(p);
    open_pools(p);
    t = (struct kv_table){.uid = p->table[0].uid};
    assert_true(kv_reserve(p->kv, &t, usable * KV_PAGE));
    for (uint32_t g = 0; g < r->n_group; g++) {
        for (uint32_t i = 0; i < usable; i++) {
            const void *from = host[g] + i * kv_page_bytes(&p->desc[g]);
            assert_true(t.page[g][i] == KV_NONE || there[g][i]);
            if (t.page[g][i] != KV_NONE)
                moved(r, r->be->kv_load(r->dev, p->pool[g], &t.page[g][i], &from, 1));
        }
        free(host[g]);
    }
    kv_release(p->kv, &t, p->id[0], usable * KV_PAGE);
    p->done[0] = kv_match(p->kv, &p->table[0], p->id[0], LEN - 1);
    assert_int_equal(p->done[0], usable * KV_PAGE);
}

/* Many sequences read beginnings of the same text, of different lengths, in the same steps. */
static void many(struct paged *p, const float *want)
{
    uint32_t rows[SEQS], n_vocab = p->r->m->hp.n_vocab;
    float *got = malloc(SEQS * n_vocab * sizeof *got);
    assert_non_null(got);
    for (uint32_t s = 0; s < SEQS; s++) {
        p->table[s].uid = s; /* otherwise they would share the cache */
        memcpy(p->id[s], p->id[0], sizeof p->id[0]);
        p->done[s] = 0;
    }
    while (p->done[0] < MANY) {
        for (uint32_t s = 0; s < SEQS; s++)
            rows[s] = p->done[s] + 8 < MANY ? 1 + rnd(p->done[0] ? 2 : 8) : 1;
        step(p, SEQS, rows, 0, got);
        for (uint32_t s = 0; s < SEQS; s++)
            if (memcmp(got + (size_t)s * n_vocab, want + (size_t)(p->done[s] - 1) * n_vocab, n_vocab * sizeof *got))
                fail_msg("%s: other logits of sequence %u of %u at position %u", p->r->m->hp.name, s, SEQS,
                         p->done[s] - 1);
    }
    for (uint32_t s = 0; s < SEQS; s++)
        release(p, s);
    free(got);
}

static void same_bits(const char *folder)
{
    char path[4096];
    struct run r;
    static struct paged p;
    if (!run_path(path, folder))
        skip();
    run_open(&r, path, run_backend(), NULL, 0, 0, BATCH_ROWS_MAX);
    memset(&p, 0, sizeof p);
    p.r = &r;
    struct device_info info;
    r.be->info(r.dev, &info);
    p.within = info.states_within;
    n_within = 0;
    open_pools(&p);
    for (uint32_t s = 0; s < 2; s++) {
        p.table[s].uid = s;
        p.table[s].keep = PROMPT;
        for (uint32_t i = 0; i < LEN; i++)
            p.id[s][i] = (int32_t)rnd(r.m->hp.n_vocab);
    }
    size_t n_vocab = r.m->hp.n_vocab;
    float *want = malloc(LEN * n_vocab * sizeof *want);
    assert_non_null(want);
    for (uint32_t pos = 0; pos < LEN; pos += BATCH_ROWS_MAX) {
        uint32_t n = LEN - pos < BATCH_ROWS_MAX ? LEN - pos : BATCH_ROWS_MAX;
        run_step(&r, &(struct piece){p.id[0] + pos, n, pos, n, r.pages}, 1, true, want + pos * n_vocab);
    }
    feed(&p, LEN, 2, want, "in pieces");
    resume(&p, LEN);
    assert_int_equal(p.done[0], LEN); /* the very end was kept too */
    resume(&p, LEN - 1);
    feed(&p, LEN, 2, want, "resumed before the turn's end");
    resume(&p, PROMPT);
    feed(&p, LEN, 2, want, "resumed before the prompt's end");
    restart(&p);
    feed(&p, LEN, 1, want, "restarted");
    release(&p, 0);
    assert_true(!p.within || n_within > 0);
    many(&p, want);
    close_pools(&p);
    free(want);
    run_close(&r);
}

#define MODELS(X) X(lfm2) X(lfm2_moe) X(qwen3_next) X(qwen3_5_text) X(mamba2) X(granitemoehybrid) X(nemotron_h)

#define X(name)                             \
    static void test_##name(void **state)   \
    {                                       \
        (void)state;                        \
        same_bits("models/hf-tiny/" #name); \
    }
MODELS(X)
#undef X

/* A model whose experts read the input of the layers with a state, ACT_MIX. */
static void test_latent_experts(void **state)
{
    (void)state;
    same_bits("tests/golden/data/hf/nemotron_h-latent");
}

int main(void)
{
#define X(name) cmocka_unit_test(test_##name),
    const struct CMUnitTest tests[] = {MODELS(X) cmocka_unit_test(test_latent_experts)};
#undef X
    if (!run_possible())
        return 0;
    return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}
