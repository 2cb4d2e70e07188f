/*
 * pace.c - long work on outside input reports its progress in bounded steps, and ends when it is told to: a header, a
 * vocabulary, texts of many words and of one.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/model/file.h"
#include "daemon/model/pace.h"
#include "daemon/model/tok/tok.h"
#include "tests/unit/model/gguf-build.h"

enum { TEXT = 1 << 20, STEP_MOST = 128 << 10 };

/* What the work has reported, and the number of the call at which it is to end; `end_at` 0: never. */
struct heard {
    size_t calls, bytes, longest, end_at;
};

static int hear(void *arg, size_t bytes, struct hearth_err *e)
{
    struct heard *h = arg;
    h->calls++;
    h->bytes += bytes;
    h->longest = bytes > h->longest ? bytes : h->longest;
    return h->calls == h->end_at ? err_set(e, HEARTH_ECANCELLED, "enough") : 0;
}

typedef int work(void *arg, struct hearth_err *e);

/* Runs the work once to its end, and then ends it at every call, or at a hundred of them. */
static struct heard run(work *fn, void *arg)
{
    struct heard all = {0};
    struct hearth_err e;
    pace_set(hear, &all);
    if (fn(arg, &e))
        fail_msg("%s", e.msg);
    size_t step = all.calls / 100 + 1;
    for (size_t at = 1; at <= all.calls; at += step) {
        struct heard part = {.end_at = at};
        pace_set(hear, &part);
        assert_int_equal(fn(arg, &e), HEARTH_ECANCELLED);
        assert_int_equal(part.calls, at); /* no further call after it was told to end */
    }
    pace_set(NULL, NULL);
    return all;
}

static const char *tale(void)
{
    static char path[4096];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/contrib/models/tale-q4_k_m.gguf", top ? top : ".");
    return path;
}

static int open_tale(void *arg, struct hearth_err *e)
{
    struct gguf *g;
    (void)arg;
    int rc = model_file_open(&g, tale(), e);
    if (!rc)
        gguf_close(g);
    return rc;
}

static int load_vocab(void *g, struct hearth_err *e)
{
    struct vocab *v;
    int rc = vocab_load(&v, g, e);
    if (!rc)
        vocab_free(v);
    return rc;
}

struct text {
    const struct vocab *v;
    const char *s;
};

static int encode(void *arg, struct hearth_err *e)
{
    const struct text *t = arg;
    struct ids ids = {0};
    int rc = tok_encode(t->v, t->s, TEXT, TOK_SPECIAL, &ids, e);
    assert_true(rc ? ids.n == 0 : ids.n > 0);
    ids_fini(&ids);
    return rc;
}

static void files_and_texts(void **state)
{
    (void)state;
    struct hearth_err e;
    struct gguf *g;
    struct vocab *v;
    struct heard h = run(open_tale, NULL);
    assert_true(h.calls > 1 && h.longest <= STEP_MOST);
    assert_int_equal(model_file_open(&g, tale(), &e), 0);
    h = run(load_vocab, g);
    assert_true(h.calls > 3 && h.longest <= STEP_MOST);
    assert_int_equal(vocab_load(&v, g, &e), 0);
    char *s = malloc(TEXT);
    assert_non_null(s);
    for (int one_word = 0; one_word < 2; one_word++) {
        for (size_t i = 0; i < TEXT; i++)
            s[i] = one_word ? "abcde"[i * i % 5] : "a word "[i % 7];
        h = run(encode, &(struct text){v, s});
        assert_true(h.bytes >= TEXT &&
                    h.calls > 30); /* one call may report everything that the regular expression reads */
    }
    free(s);
    vocab_free(v);
    gguf_close(g);
}

/* Opens a file whose tokens are special ones of 16 ASCII characters; with `late`, they are searched for in normalised
 * text. */
static struct gguf *open_special(uint32_t n, bool late)
{
    struct build b = {0};
    struct hearth_err e;
    struct gguf *g;
    char text[32];
    put_header(&b, 3, 0, late ? 6 : 5);
    key_str(&b, "general.architecture", "llama");
    key_str(&b, "tokenizer.ggml.model", "llama");
    key_arr(&b, "tokenizer.ggml.tokens", T_STR, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "<special%07u>", (unsigned)i);
        put_str(&b, text);
    }
    key_arr(&b, "tokenizer.ggml.scores", T_F32, n);
    put_zeros(&b, (size_t)n * 4);
    key_arr(&b, "tokenizer.ggml.token_type", T_I32, n);
    for (uint32_t i = 0; i < n; i++)
        put32(&b, 4);
    if (late)
        key_arr(&b, "hearth.tokenizer.added", T_I32, n);
    for (uint32_t i = 0; late && i < n; i++)
        put32(&b, 4);
    char path[64];
    int fd = build_file(&b, path);
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.msg);
    close(fd);
    free(b.p);
    return g;
}

static void special_tokens(void **state)
{
    (void)state;
    enum { N = 8000, MANY = 200000, LEN = 16 };
    struct heard many = {0};
    struct hearth_err e;
    struct gguf *g = open_special(N, false);
    struct heard early = run(load_vocab, g);
    gguf_close(g);
    g = open_special(N, true);
    struct heard late = run(load_vocab, g);
    gguf_close(g);
    assert_true(late.bytes >= early.bytes + 2 * N * LEN - PACE_STEP); /* their texts, and those in the trie */
    g = open_special(MANY, true);
    pace_set(hear, &many);
    assert_int_equal(load_vocab(g, &e), 0);
    pace_set(NULL, NULL);
    gguf_close(g);
    assert_true(many.longest <= STEP_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_and_texts), cmocka_unit_test(special_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
