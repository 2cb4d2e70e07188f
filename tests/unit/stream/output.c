/* output.c - however far behind a subscriber is, the pieces of an output add up to the whole: every token once, in
 * order, with its text, reasoning and logprobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/stream/output.h"

static uint64_t rng(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

struct subscriber {
    int64_t n;
    char *text;
    size_t len, pieces;
    int lps;
};

/* Token i reads "i," as text or reasoning, and its logprob is -i, with i as the only alternative. Within a piece,
 * reasoning comes first. */
static void read_one(struct subscriber *r, const struct wire_stream_tokens *f)
{
    assert_int_equal(f->index, r->n);
    assert_int_equal(f->count, f->tokens.n);
    assert_true(f->count > 0 || f->text.len > 0 || f->reasoning.len > 0);
    assert_true(f->count <= 1024);
    assert_int_equal(f->n_logprobs, r->lps ? f->count : 0);
    for (int64_t i = 0; i < f->count; i++) {
        assert_int_equal(f->tokens.v[i], r->n + i);
        if (!r->lps)
            continue;
        char want[32];
        snprintf(want, sizeof want, "%lld", (long long)(r->n + i));
        assert_true(f->logprobs[i].logprob == -(double)(r->n + i));
        assert_string_equal(f->logprobs[i].top[0].text.data, want);
    }
    r->n += f->count;
    r->text = realloc(r->text, r->len + f->text.len + f->reasoning.len + 1);
    if (f->reasoning.len)
        memcpy(r->text + r->len, f->reasoning.data, f->reasoning.len);
    r->len += f->reasoning.len;
    memcpy(r->text + r->len, f->text.data, f->text.len);
    r->len += f->text.len;
    r->text[r->len] = '\0';
    r->pieces++;
}

static void one_run(uint64_t seed, int lag, int lps)
{
    uint64_t x = seed;
    struct output o = {0};
    struct subscriber r = {.lps = lps};
    char *want = calloc(1, 1 << 20), text[4096];
    size_t len = 0;
    struct output_cursor cursor = {0};
    int32_t next = 0, held = 0; /* the next token, and how many tokens' text is held back */
    for (int step = 0; step < 2000; step++) {
        int32_t ids[4];
        char digits[4][16];
        struct wire_logprob top[4];
        struct wire_token_logprobs lp[4];
        size_t n = rng(&x) % 4;
        for (size_t i = 0; i < n; i++) {
            ids[i] = next++;
            snprintf(digits[i], sizeof digits[i], "%d", ids[i]);
            top[i] = (struct wire_logprob){.id = ids[i], .text = {digits[i], strlen(digits[i])}};
            lp[i] = (struct wire_token_logprobs){.id = ids[i], .logprob = -ids[i], .top = &top[i], .n_top = 1};
        }
        bool hold = rng(&x) % 3 == 0;
        struct wire_bytes t = {text, 0};
        while (!hold && held < next)
            t.len += (size_t)snprintf(text + t.len, sizeof text - t.len, "%d,", held++);
        memcpy(want + len, text, t.len);
        len += t.len;
        struct wire_ids w = {ids, n};
        struct wire_bytes thought = {text, 0};
        if (step / 37 % 2) {
            thought = t;
            t.len = 0;
        }
        struct wire_engine_tokens more = {
            .tokens = w, .text = t, .reasoning = thought, .logprobs = lp, .n_logprobs = lps ? n : 0};
        assert_int_equal(output_append(&o, &more, NULL), 0);
        struct wire_stream_tokens f;
        if (rng(&x) % (uint64_t)lag == 0)
            while (output_next(&o, &cursor, &f))
                read_one(&r, &f);
    }
    struct wire_stream_tokens f;
    while (output_next(&o, &cursor, &f))
        read_one(&r, &f);
    assert_false(output_next(&o, &cursor, &f));
    assert_int_equal(r.n, next);
    assert_int_equal(r.len, len);
    assert_string_equal(r.text, want);
    assert_int_equal(o.n_text + o.n_reasoning, len);
    assert_true(o.n_text > 1000 && o.n_reasoning > 1000);
    output_fini(&o);
    free(r.text);
    free(want);
}

static void test_pieces(void **state)
{
    (void)state;
    static const int lags[] = {1, 2, 50, 5000};
    for (uint64_t seed = 1; seed <= 5; seed++)
        for (size_t i = 0; i < sizeof lags / sizeof lags[0]; i++)
            one_run(seed * 7919, lags[i], i % 2 == 0);
}

/* One append may be larger than a piece; it is never split. */
static void test_large(void **state)
{
    (void)state;
    struct output o = {0};
    struct output_cursor cursor = {0};
    char *big = malloc(200000);
    memset(big, 'x', 200000);
    int32_t id = 0;
    struct wire_ids w = {&id, 1};
    struct wire_bytes t = {big, 200000};
    assert_int_equal(output_append(&o, &(struct wire_engine_tokens){.tokens = w, .text = t}, NULL), 0);
    id = 1;
    assert_int_equal(output_append(&o, &(struct wire_engine_tokens){.tokens = w, .text = t}, NULL), 0);
    struct wire_stream_tokens f;
    for (int i = 0; i < 2; i++) {
        assert_true(output_next(&o, &cursor, &f));
        assert_int_equal(f.index, i);
        assert_int_equal(f.text.len, 200000);
    }
    assert_false(output_next(&o, &cursor, &f));
    output_fini(&o);
    free(big);
}

/* A reader that starts later gets the rest: from a mark, inside an append, behind the last one. */
static void test_seek(void **state)
{
    (void)state;
    static const struct {
        size_t from, index, count;
        const char *text, *reasoning;
    } cases[] = {{0, 0, 5, "cd!", "ab"}, {1, 1, 4, "cd!", "b"}, {2, 2, 3, "cd!", ""}, {3, 3, 2, "cd!", ""},
                 {4, 4, 1, "d!", ""},    {5, 5, 0, "!", ""},    {9, 5, 0, NULL, ""}};
    struct output o = {0};
    int32_t ids[] = {0, 1, 2, 3, 4};
    const struct {
        struct wire_ids ids;
        struct wire_bytes text, reasoning;
    } appends[] = {{{ids, 1}, {"", 0}, {"a", 1}},
                   {{ids + 1, 1}, {"", 0}, {"b", 1}},
                   {{ids + 2, 2}, {"c", 1}, {"", 0}},
                   {{ids + 4, 1}, {"d", 1}, {"", 0}},
                   {{NULL, 0}, {"!", 1}, {"", 0}}};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(output_append(&o,
                                       &(struct wire_engine_tokens){.tokens = appends[i].ids,
                                                                    .text = appends[i].text,
                                                                    .reasoning = appends[i].reasoning},
                                       NULL),
                         0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct output_cursor cursor;
        struct wire_stream_tokens f;
        output_seek(&o, cases[i].from, &cursor);
        assert_int_equal(output_next(&o, &cursor, &f), cases[i].text != NULL);
        if (!cases[i].text)
            continue;
        assert_int_equal(f.index, cases[i].index);
        assert_int_equal(f.count, cases[i].count);
        assert_int_equal(f.text.len, strlen(cases[i].text));
        assert_memory_equal(f.text.data, cases[i].text, f.text.len);
        assert_int_equal(f.reasoning.len, strlen(cases[i].reasoning));
        assert_memory_equal(f.reasoning.data ? f.reasoning.data : "", cases[i].reasoning, f.reasoning.len);
        assert_false(output_next(&o, &cursor, &f));
    }
    output_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_seek)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
