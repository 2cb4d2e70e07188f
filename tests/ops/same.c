/*
 * same.c - the guarantee of the CPU backend: the numbers of a token are bit-identical in every variant, with every
 * number of threads, in a batch of its own, batched with others, and in any chunk of a prefill.
 *
 * Two layers and the head run over every case of the table, with the KV of earlier positions; all logits and the
 * written pages are compared with memcmp. ops.c checks independently that the numbers are right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

/* The results of a run. */
struct trace {
    uint32_t n_row;
    float *logits; /* [n_row, n_vocab], rows in the order of the case */
    float *x;      /* [n_row, d_model] */
    uint8_t *kv;   /* all pages */
    size_t kv_bytes;
};

static void trace_init(struct trace *t, const struct op_case *c)
{
    uint32_t n_seq;
    struct kv_desc desc = {LAYERS, c->n_kv, c->d_head, c->d_head, c->window, c->kv_type, RIG_PAGES};
    t->n_row = case_rows(c, &n_seq);
    t->kv_bytes = kv_page_bytes(&desc) * RIG_PAGES;
    t->logits = calloc((size_t)t->n_row * c->n_vocab, sizeof *t->logits);
    t->x = calloc((size_t)t->n_row * c->d_model, sizeof *t->x);
    t->kv = calloc(1, t->kv_bytes);
    assert_true(t->logits && t->x && t->kv);
}

static void trace_fini(struct trace *t)
{
    free(t->logits);
    free(t->x);
    free(t->kv);
}

/* The number of rows of a sequence's next step. With chunk 1, a long prompt is split into single rows only for its
 * first sixteen; then each step has as many rows as there were before it, since a hundred steps would prove no more,
 * and take minutes under the thread sanitizer. */
static uint32_t step_rows(uint32_t chunk, uint32_t done, uint32_t left)
{
    uint32_t n = chunk == 1 && done >= 16 ? done : chunk;
    return left < n ? left : n;
}

/* Runs the case in steps of at most `chunk` rows per sequence, with all sequences together or one after the other. */
static void run(const struct numbers *n, const char *variant, uint32_t threads, uint32_t chunk, bool together,
                struct trace *t)
{
    const struct op_case *c = n->c;
    const struct backend *be = backend_find("cpu");
    struct device *d = rig_device(be, variant, threads);
    struct rig r;
    uint32_t n_seq, row0[SEQS_MAX], done[SEQS_MAX] = {0}, row = 0;
    assert_non_null(d);
    trace_init(t, c);
    rig_init(&r, n, be, d);
    rig_fill_kv(&r);
    case_rows(c, &n_seq);
    for (uint32_t s = 0; s < n_seq; s++) {
        row0[s] = row;
        row += c->seq[s].n_row;
    }
    for (uint32_t first = 0; first < n_seq;) {
        struct seq_shape step[SEQS_MAX];
        uint32_t n_step = 0;
        /* Finished sequences leave the batch from the front, so that a step has consecutive ones. */
        for (uint32_t s = first; s < n_seq && (together || s == first); s++, n_step++) {
            uint32_t left = c->seq[s].n_row - done[s];
            if (!left)
                break;
            step[n_step] = (struct seq_shape){c->seq[s].pos0 + done[s], step_rows(chunk, done[s], left)};
        }
        if (!n_step) {
            first++;
            continue;
        }
        rig_batch(&r, step, first, n_step);
        rig_forward(&r);
        uint32_t at = 0;
        for (uint32_t s = 0; s < n_step; s++) {
            size_t to = row0[first + s] + done[first + s];
            rig_read(&r, ACT_LOGITS, at, step[s].n_row, t->logits + to * c->n_vocab);
            rig_read(&r, ACT_X, at, step[s].n_row, t->x + to * c->d_model);
            at += step[s].n_row;
            done[first + s] += step[s].n_row;
        }
    }
    for (uint32_t p = 0; p < RIG_PAGES; p++)
        rig_page_read(&r, p, t->kv + p * (t->kv_bytes / RIG_PAGES));
    rig_fini(&r);
    be->close(d);
}

static void assert_same(const char *what, const struct op_case *c, const struct trace *a, const struct trace *b)
{
    if (memcmp(a->x, b->x, (size_t)a->n_row * c->d_model * sizeof *a->x))
        fail_msg("%s: hidden states of case '%s' differ", what, c->name);
    if (memcmp(a->logits, b->logits, (size_t)a->n_row * c->n_vocab * sizeof *a->logits))
        fail_msg("%s: logits of case '%s' differ", what, c->name);
    if (memcmp(a->kv, b->kv, a->kv_bytes))
        fail_msg("%s: KV pages of case '%s' differ", what, c->name);
}

static void against(const struct numbers *n, const struct trace *want, const char *variant, uint32_t threads,
                    uint32_t chunk, bool together)
{
    struct trace got;
    char what[96];
    snprintf(what, sizeof what, "%s, %u threads, chunks of %u, %s", variant, (unsigned)threads, (unsigned)chunk,
             together ? "together" : "alone");
    run(n, variant, threads, chunk, together, &got);
    assert_same(what, n->c, &got, want);
    trace_fini(&got);
}

static void test_case(void **state)
{
    static const char *const variants[] = {"avx2", "avxvnni", "avx512"};
    struct numbers n;
    struct trace want;
    numbers_init(&n, *state);
    run(&n, "reference", 1, BATCH_ROWS_MAX, true, &want);
    /* The reference itself: a row must not depend on its batch. */
    against(&n, &want, "reference", 2, 1, false);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        struct device *d = rig_device(backend_find("cpu"), variants[v], 1);
        if (!d)
            continue;
        backend_find("cpu")->close(d);
        against(&n, &want, variants[v], 1, BATCH_ROWS_MAX, true);
        against(&n, &want, variants[v], 2, BATCH_ROWS_MAX, false);
        against(&n, &want, variants[v], 3, 1, true);
        against(&n, &want, variants[v], 2, 1, false);
        against(&n, &want, variants[v], 3, 5, true);
    }
    trace_fini(&want);
    numbers_fini(&n);
}

/* The comparison must be able to fail: another token gives other logits. */
static void test_sensitive(void **state)
{
    (void)state;
    struct op_case other = op_cases[1];
    struct numbers a, b;
    struct trace ta, tb;
    other.n_vocab++; /* changes rig_token() and the head */
    numbers_init(&a, &op_cases[1]);
    numbers_init(&b, &other);
    run(&a, "reference", 1, BATCH_ROWS_MAX, true, &ta);
    run(&b, "reference", 1, BATCH_ROWS_MAX, true, &tb);
    assert_memory_not_equal(ta.x, tb.x, (size_t)ta.n_row * other.d_model * sizeof *ta.x);
    trace_fini(&ta);
    trace_fini(&tb);
    numbers_fini(&a);
    numbers_fini(&b);
}

int main(void)
{
    struct CMUnitTest *tests = calloc(n_op_cases + 1, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < n_op_cases; i++)
        tests[i] = (struct CMUnitTest){op_cases[i].name, test_case, NULL, NULL, (void *)&op_cases[i]};
    tests[n_op_cases] = (struct CMUnitTest){"sensitive", test_sensitive, NULL, NULL, NULL};
    int failed = _cmocka_run_group_tests("same", tests, n_op_cases + 1, NULL, NULL);
    free(tests);
    return failed;
}
