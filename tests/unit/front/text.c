/* text.c - unfinished characters and possible stop strings are held back, however a text is cut into tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/front/text.h"

/* The tokens' bytes are given directly, because no vocabulary is needed here. */
size_t tok_piece(const struct vocab *v, int32_t id, bool special, char *out, size_t cap)
{
    (void)v, (void)special;
    assert_true(cap > 0);
    out[0] = (char)id; /* token id = one byte */
    return 1;
}

int32_t vocab_special(const struct vocab *v, const char *text)
{
    (void)v, (void)text;
    return -1;
}

struct told {
    char s[4096];
    size_t n;
};

static void take(struct told *t, const char *s, size_t n)
{
    assert_true(t->n + n < sizeof t->s);
    if (n)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

static void open_text(struct text *t, const char *const *stop, size_t n_stop)
{
    struct hearth_err e;
    assert_int_equal(text_init(t, NULL, stop, n_stop, &e), 0);
}

static void push(struct text *t, struct told *to, const char *s, size_t n)
{
    struct hearth_err e;
    const char *out;
    size_t len;
    assert_int_equal(text_push_bytes(t, s, n, &out, &len, &e), 0);
    assert_int_equal(text_held(t, &e), 0); /* has no side effects */
    take(to, out, len);
}

static void finish(struct text *t, struct told *to)
{
    struct hearth_err e;
    assert_int_equal(text_held(t, &e), 0);
    take(to, t->held, t->n_held);
    text_fini(t);
}

#define BAD "\xef\xbf\xbd"

/* The expected values are those of Python's bytes.decode("utf-8", "replace"). */
static void bad_bytes_become_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
        {"\xf0\x9f\x94\xa5", "\xf0\x9f\x94\xa5"},
        {"a\x80z", "a" BAD "z"},
        {"\xc0\xaf", BAD BAD},
        {"\xe2\x82z", BAD "z"},
        {"\xe2\x82", BAD},
        {"\xed\xa0\x80", BAD BAD BAD},
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD},
        {"\xf0\x80\x80\x80", BAD BAD BAD BAD},
        {"\xf1\x80\x80\xe1\x80\xc2z\x80", BAD BAD BAD "z" BAD},
        {"\xe2\xe2\x82\xac", BAD "\xe2\x82\xac"},
        {"\xff\xfe", BAD BAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t cut = 1; cut <= 4; cut++) {
            struct text t;
            struct told got = {.n = 0};
            open_text(&t, NULL, 0);
            size_t n = strlen(cases[i].in);
            for (size_t at = 0; at < n; at += cut)
                push(&t, &got, cases[i].in + at, n - at < cut ? n - at : cut);
            finish(&t, &got);
            assert_string_equal(got.s, cases[i].out);
        }
}

static void a_character_comes_with_the_token_that_completes_it(void **state)
{
    (void)state;
    struct text t;
    struct told got = {.n = 0};
    struct hearth_err e;
    const char *out;
    size_t n;
    open_text(&t, NULL, 0);
    assert_int_equal(text_push(&t, 0xe2, &out, &n, &e), 0);
    assert_int_equal(n, 0);
    assert_int_equal(text_push(&t, 0x82, &out, &n, &e), 0);
    assert_int_equal(n, 0);
    assert_int_equal(text_push(&t, 0xac, &out, &n, &e), 0);
    assert_int_equal(n, 3);
    assert_memory_equal(out, "\xe2\x82\xac", 3);
    finish(&t, &got);
    assert_int_equal(got.n, 0);
}

static void stop_strings(void **state)
{
    (void)state;
    static const struct {
        const char *stop[3], *in, *out;
        bool stops;
    } cases[] = {
        {{"END"}, "the story ENDs here", "the story ", true},
        {{"END"}, "the story EN", "the story EN", false},
        {{"\n\n", "###"}, "a\nb\n###c", "a\nb\n", true},
        {{"aab"}, "aaaab", "aa", true},         /* a false start inside a real one */
        {{"abcd", "c"}, "xabcdy", "xab", true}, /* the stop string that is complete first */
        {{"cd", "abcd"}, "xabcdy", "x", true},  /* complete at the same byte: the longer one */
        {{"abx", "bc"}, "abc", "a", true},
        {{"\xe2\x82\xac"}, "1\xe2\x82\xac", "1", true},
        {{"x"}, "x", "", true},
        {{"ababac"}, "abababac!", "ab", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_stop = 0, n = strlen(cases[i].in);
        while (n_stop < 3 && cases[i].stop[n_stop])
            n_stop++;
        for (size_t cut = 1; cut <= n; cut++) { /* the last cut puts all of it into one token */
            struct text t;
            struct told got = {.n = 0};
            open_text(&t, cases[i].stop, n_stop);
            for (size_t at = 0; at < n; at += cut)
                push(&t, &got, cases[i].in + at, n - at < cut ? n - at : cut);
            assert_int_equal(t.stopped, cases[i].stops);
            finish(&t, &got);
            assert_string_equal(got.s, cases[i].out);
        }
    }
}

/* Only a possible beginning of a stop string is held back. */
static void nothing_else_is_held_back(void **state)
{
    (void)state;
    const char *stop[] = {"abab!"};
    struct text t;
    struct told got = {.n = 0};
    open_text(&t, stop, 1);
    push(&t, &got, "xxab", 4);
    assert_string_equal(got.s, "xx");
    push(&t, &got, "c", 1);
    assert_string_equal(got.s, "xxabc");
    push(&t, &got, "ababab", 6);
    assert_string_equal(got.s, "xxabcab");
    finish(&t, &got);
    assert_string_equal(got.s, "xxabcababab");
}

/* Random bytes, cuts and stop strings over a small alphabet: every cut gives the same text, which never contains a stop
 * string. */
static void cuts_do_not_matter(void **state)
{
    (void)state;
    uint64_t r = 42;
#define RND(n) ((r = r * 6364136223846793005u + 1442695040888963407u) >> 33) % (n)
    for (int round = 0; round < 3000; round++) {
        static const char alphabet[] = {'a', 'b', 'a', 'b', (char)0xe2, (char)0x82, (char)0xac};
        char in[60], stop_text[2][8];
        const char *stop[2] = {stop_text[0], stop_text[1]};
        for (size_t i = 0; i < sizeof in; i++)
            in[i] = alphabet[RND(sizeof alphabet)];
        for (int k = 0; k < 2; k++) {
            size_t n = 1 + RND(6);
            for (size_t i = 0; i < n; i++)
                stop_text[k][i] = (char)('a' + RND(2));
            stop_text[k][n] = 0;
        }
        struct told got[2] = {{.n = 0}, {.n = 0}};
        for (int k = 0; k < 2; k++) {
            struct text t;
            open_text(&t, stop, 2);
            for (size_t at = 0; at < sizeof in;) {
                size_t n = k ? 1 + RND(20) : 1;
                n = sizeof in - at < n ? sizeof in - at : n;
                push(&t, &got[k], in + at, n);
                at += n;
            }
            bool stopped = t.stopped;
            finish(&t, &got[k]);
            assert_null(strstr(got[k].s, stop[0]));
            assert_null(strstr(got[k].s, stop[1]));
            if (!stopped) /* everything was output, and invalid bytes became longer */
                assert_true(got[k].n >= sizeof in);
        }
        assert_string_equal(got[0].s, got[1].s);
    }
}

static void bad_stop_strings_are_refused(void **state)
{
    (void)state;
    char big[TEXT_STOP_MAX + 2];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = 0;
    const char *stops[] = {"fine", ""};
    const char *huge[] = {big};
    struct text t;
    struct hearth_err e;
    assert_int_equal(text_init(&t, NULL, stops, 2, &e), HEARTH_EPARAMS);
    assert_string_equal(e.msg, "generate.stop[1]: is empty");
    assert_int_equal(text_init(&t, NULL, huge, 1, &e), HEARTH_EPARAMS);
}

/* A stop string that only the end of the text completes ends it as any other does. */
static void a_stop_may_be_completed_by_the_end(void **state)
{
    (void)state;
    static const char *const stop[] = {BAD};
    struct text t;
    struct told got = {.n = 0};
    open_text(&t, stop, 1);
    push(&t, &got, "x\xe2\x82", 3); /* an unfinished character, which becomes U+FFFD if nothing follows */
    assert_true(!t.stopped && t.held_stops);
    push(&t, &got, "\xac", 1);
    assert_true(!t.stopped && !t.held_stops);
    push(&t, &got, "\xe2", 1);
    finish(&t, &got);
    assert_string_equal(got.s, "x\xe2\x82\xac");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_bytes_become_replacement_characters),
        cmocka_unit_test(a_stop_may_be_completed_by_the_end),
        cmocka_unit_test(a_character_comes_with_the_token_that_completes_it),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(nothing_else_is_held_back),
        cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(bad_stop_strings_are_refused),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
