/*
 * hot.c - once a model is warm, steps must allocate nothing, capture or instantiate no graph and never make the host
 * wait, as counted by the device (device_info.hot_*), while contexts grow, sequences come and go and their sampling
 * changes.
 *
 * Several steps are in flight and take their tokens from the slots, as the engine's do. A device is warm when it has
 * run each shape of step once, at the longest context, and each kind of sampling in each slot. That the counters rise
 * on a cold device shows that the test can fail. The test trusts the backend to count everything: it waits and
 * allocates in few functions.
 */
#include "tests/golden/run.h"

#include <stdio.h>
#include <string.h>

enum { SEQS = 8, CONTEXT = 900, PAGES = CONTEXT / KV_PAGE + 1 };
enum { KINDS = 6 }; /* kinds of sampling */
static const uint32_t batches[] = {1, 2, 3, 5, SEQS};
enum { BATCHES = sizeof batches / sizeof *batches };
static char path[4096];

/* Sets slots to sampling parameters that are as different as possible; `which` counts up. */
static void set_slots(struct run *r, uint32_t n, uint32_t which)
{
    static const int32_t history[] = {5, 6, 7, 5, 6, 5};
    static const struct logit_bias bias[] = {{3, -1e30f}, {9, 2}};
    const struct sample_params kinds[KINDS] = {
        {.top_p = 1, .rep_penalty = 1},
        {.temp = 0.7f, .top_k = 40, .top_p = 0.9f, .rep_penalty = 1, .seed = which},
        {.temp = 1.2f, .top_p = 1, .min_p = 0.05f, .rep_penalty = 1, .seed = which},
        {.temp = 1, .top_p = 1, .rep_penalty = 1.2f, .presence_penalty = 0.5f, .frequency_penalty = 0.1f, .seed = 3},
        {.temp = 0.9f, .top_p = 0.5f, .rep_penalty = 1, .n_bias = 2, .bias = bias, .seed = 4},
        {.temp = 0.9f, .top_p = 1, .rep_penalty = 1, .n_logprobs = 5, .seed = 5},
    };
    for (uint32_t i = 0; i < n; i++)
        MUST(r->be->slot_set(r->dev, i, &kinds[(which + i) % KINDS], history, 6, r->m->hp.n_vocab, &e));
}

static void wait_until(struct run *r, uint64_t last, uint64_t *done, uint32_t left, uint32_t n)
{
    struct sampled s[SEQS];
    while (last - *done > left)
        MUST(r->be->step_wait(r->dev, ++*done, s, n, &e));
}

/* n sequences decode `steps` tokens from position pos on. */
static void decode(struct run *r, uint32_t n, uint32_t pos, uint32_t steps, uint64_t *last)
{
    static const uint32_t at[SEQS] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint64_t done = *last;
    for (uint32_t k = 0; k < steps; k++, pos++) {
        struct batch_seq seq[SEQS];
        int32_t token[SEQS];
        uint32_t index[SEQS];
        for (uint32_t i = 0; i < n; i++) {
            seq[i] = (struct batch_seq){.row0 = i, .n_row = 1, .pos0 = pos};
            for (uint32_t g = 0; g < r->n_group; g++)
                seq[i].pages[g] = r->pages + i * PAGES;
            token[i] = k ? TOKEN_OF_SLOT(i) : (int32_t)(17 * i + 1);
            index[i] = k;
        }
        struct batch b = {.n_row = n,
                          .n_seq = n,
                          .n_out = n,
                          .token = token,
                          .seq = seq,
                          .out_row = at,
                          .n_group = r->n_group,
                          .sample = {.n = n, .slot = at, .index = index}};
        memcpy(b.kv, r->pool, sizeof b.kv);
        *last = r->be->step_run(r->dev, &b, &r->m->program);
        wait_until(r, *last, &done, r->info.max_in_flight - 1, n);
    }
    wait_until(r, *last, &done, 0, n);
}

static void prompt(struct run *r, uint32_t n, uint64_t *last)
{
    static int32_t token[BATCH_ROWS_MAX];
    for (uint32_t i = 0; i < n; i++)
        token[i] = (int32_t)(i * 7 % 1000);
    run_step(r, &(struct piece){token, n, 0, 1, r->pages}, 1, INVARIANT_OFF, NULL);
    ++*last;
}

struct counts {
    unsigned long long allocs, graphs, waits;
};

/* The counts since `from`. */
static struct counts counted(struct run *r, struct counts from)
{
    struct device_info i;
    r->be->info(r->dev, &i);
    return (struct counts){i.hot_allocs - from.allocs, i.hot_graphs - from.graphs, i.hot_waits - from.waits};
}

static void work(struct run *r, uint64_t *last)
{
    uint32_t which = 0;
    for (uint32_t i = 0; i < BATCHES; i++)
        for (uint32_t pos = 1; pos + 3 < CONTEXT; pos += 53) { /* growing contexts, new sampling, other batches */
            uint32_t n = batches[(i + pos) % BATCHES];
            set_slots(r, n, which++);
            decode(r, n, pos, 3, last);
        }
    prompt(r, 70, last);
    prompt(r, 200, last);
    for (uint32_t i = 0; i < BATCHES; i++) {
        set_slots(r, batches[i], which++);
        decode(r, batches[i], CONTEXT - 300, run_on_gpu() ? 290 : 20, last);
    }
}

static void a_warm_device_counts_nothing(void **state)
{
    static const uint32_t deep[] = {250, 510,
                                    CONTEXT - 4}; /* contexts at which a GPU's attention begins to use more chunks */
    (void)state;
    struct run r;
    uint64_t last = 0;
    run_open(&r, path, run_backend(), NULL, 0, SEQS * PAGES, BATCH_ROWS_MAX);
    for (uint32_t which = 0; which < KINDS; which++)
        set_slots(&r, SEQS, which);
    for (uint32_t i = 0; i < BATCHES; i++)
        for (uint32_t k = 0; k < 3; k++)
            decode(&r, batches[i], deep[k], 4, &last);
    for (uint32_t i = 0; i < 2; i++) {
        prompt(&r, 70, &last);
        prompt(&r, 200, &last);
    }
    struct counts warm = counted(&r, (struct counts){0});
    struct device_info before, now;
    uint64_t first = last;
    r.be->info(r.dev, &before);
    work(&r, &last);
    struct counts after = counted(&r, warm);
    r.be->info(r.dev, &now);
    print_message(
        "# %s: %llu steps; until warm %llu allocations, %llu graphs and %llu waits, then %llu, %llu and %llu\n",
        r.info.name, (unsigned long long)last, warm.allocs, warm.graphs, warm.waits, after.allocs, after.graphs,
        after.waits);
    assert_int_equal(after.allocs, 0);
    assert_int_equal(after.graphs, 0);
    assert_int_equal(after.waits, 0);
    assert_int_equal(now.replays - before.replays, run_on_gpu() ? last - first - 2 : 0); /* all but the prompts */
    assert_int_equal(now.n_path > 0, run_on_gpu());
    for (uint32_t i = 0; i < now.n_path; i++)
        print_message("# %s: %llu rows\n", now.path[i].path, (unsigned long long)now.path[i].rows);
    for (uint32_t i = 0; i < now.n_path; i++)
        assert_true(now.path[i].rows > 0);
    run_close(&r);
}

/* Steps of prompts, of however many shapes, replace no graph of a decode step. */
static void prompts_cost_no_graph(void **state)
{
    enum { SHAPES = 70 }; /* more than the graphs that a GPU keeps */
    (void)state;
    struct run r;
    uint64_t last = 0;
    run_open(&r, path, run_backend(), NULL, 0, SEQS * PAGES, BATCH_ROWS_MAX);
    set_slots(&r, 1, 0);
    decode(&r, 1, 10, 2, &last);
    struct counts warm = counted(&r, (struct counts){0});
    for (uint32_t i = 0; i < SHAPES; i++) {
        struct program other = r.m->program;
        other.id += 1 + i; /* what other programs' prompts are, too: other shapes */
        r.program = &other;
        prompt(&r, 9, &last);
    }
    r.program = NULL;
    decode(&r, 1, 10, 2, &last);
    struct counts after = counted(&r, warm);
    assert_int_equal(after.graphs, 0);
    run_close(&r);
}

static void a_cold_device_counts(void **state)
{
    (void)state;
    struct run r;
    uint64_t last = 0;
    run_open(&r, path, run_backend(), NULL, 0, SEQS * PAGES, BATCH_ROWS_MAX);
    struct counts cold = counted(&r, (struct counts){0});
    for (uint32_t i = 0; i < 2;
         i++) /* a GPU waits before it overwrites a slot's lists if no step has run since they were written */
        set_slots(&r, SEQS, 0);
    work(&r, &last);
    struct counts after = counted(&r, cold);
    assert_true(after.allocs > 0);
    assert_true(!run_on_gpu() || (after.graphs > 0 && after.waits > 0));
    run_close(&r);
}

int main(void)
{
    if (!run_possible())
        return 0;
    if (!run_path(path, "contrib/models/tale-q4_k_m.gguf")) {
        puts("1..0 # SKIP no tale");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warm_device_counts_nothing),
        cmocka_unit_test(prompts_cost_no_graph),
        cmocka_unit_test(a_cold_device_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
