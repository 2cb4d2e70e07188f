/* templates.c - the chat templates of a file by name, and tokenising a text of which a part was written by a user. */
#include "config.h" /* memfd_create */

#include "daemon/model/chat/templates.h"
#include "daemon/model/tok/tok.h"
#include "tests/unit/model/gguf-build.h"

/* --- by name ------------------------------------------------------------------------------------------------------ */

static void test_names(void **state)
{
    (void)state;
    struct build b = {0};
    struct gguf *g;
    struct templates *t;
    const struct jinja *a, *z;
    struct hearth_err e = {0};
    char path[64];
    put_header(&b, 3, 0, 4);
    key_str(&b, "tokenizer.chat_template", "a");
    key_str(&b, "tokenizer.chat_template.tool_use", "b");
    key_str(&b, "tokenizer.chat_template.broken", "\n{% if %}");
    key_arr(&b, "tokenizer.chat_templates", T_STR, 5);
    put_str(&b, "tool_use");
    put_str(&b, "broken");
    put_str(&b, "absent");
    put_str(&b, "a b");
    put_str(&b, "");
    int fd = build_file(&b, path);
    if (gguf_open(&g, path, &e) || templates_load(&t, g, &e))
        fail_msg("%s", e.msg);
    assert_string_equal(templates_names(t), "default tool_use broken");
    assert_int_equal(templates_get(t, NULL, false, &a, &e), 0);
    assert_int_equal(templates_get(t, "default", true, &z, &e), 0);
    assert_ptr_equal(a, z); /* compiled once */
    assert_int_equal(templates_get(t, NULL, true, &z, &e), 0);
    assert_ptr_not_equal(a, z);
    assert_int_equal(templates_get(t, "absent", false, &z, &e), HEARTH_ENOTEMPLATE);
    assert_non_null(strstr(e.msg, "default tool_use broken"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(templates_get(t, "broken", false, &z, &e), HEARTH_ETEMPLATE);
        assert_non_null(strstr(e.msg, "line 2"));
    }
    templates_free(t);
    gguf_close(g);
    close(fd);
    free(b.p);
}

static void test_none(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct build b = {0};
        struct gguf *g;
        struct templates *t;
        const struct jinja *a;
        struct hearth_err e = {0};
        char path[64];
        put_header(&b, 3, 0, (uint64_t)i);
        if (i)
            key_u32(&b, "tokenizer.chat_template", 7);
        int fd = build_file(&b, path);
        assert_int_equal(gguf_open(&g, path, &e), 0);
        assert_int_equal(templates_load(&t, g, &e), i ? HEARTH_EBADMODEL : 0);
        if (!i) {
            assert_null(templates_names(t));
            assert_int_equal(templates_get(t, NULL, false, &a, &e), HEARTH_ENOTEMPLATE);
            templates_free(t);
        }
        gguf_close(g);
        close(fd);
        free(b.p);
    }
}

/* --- spans -------------------------------------------------------------------------------------------------------- */

/* Single bytes, two control tokens (one is the beginning of the other), and tokens that files call user-defined. */
static const char *const toks[] = {"a",   "b", "<",  "|", ">", "<|x|>", "<|x|><b>", "ab", "<|turn|>", "<start_of_turn>",
                                   "<b>", "x", "<s>"};
enum { A, B, LESS, BAR, MORE, X, XB, AB, TURN, START, BOLD, LETTER_X, BOS, N };

struct fixture {
    struct build b;
    struct gguf *g;
    struct vocab *v;
    int fd;
};

static void open_fixture(struct fixture *f)
{
    struct hearth_err e = {0};
    char path[64];
    *f = (struct fixture){0};
    put_header(&f->b, 3, 0, 6);
    key_str(&f->b, "tokenizer.ggml.model", "gpt2");
    key_str(&f->b, "tokenizer.ggml.pre", "gpt-2");
    key_u32(&f->b, "tokenizer.ggml.bos_token_id", BOS);
    key_arr(&f->b, "tokenizer.ggml.tokens", T_STR, N);
    for (int i = 0; i < N; i++)
        put_str(&f->b, toks[i]);
    key_arr(&f->b, "tokenizer.ggml.token_type", T_I32, N);
    for (int i = 0; i < N; i++)
        put32(&f->b, i == X || i == XB || i == BOS          ? TOK_CONTROL
                     : i == TURN || i == START || i == BOLD ? TOK_USER
                                                            : TOK_NORMAL);
    key_arr(&f->b, "tokenizer.ggml.merges", T_STR, 1);
    put_str(&f->b, "a b");
    f->fd = build_file(&f->b, path);
    if (gguf_open(&f->g, path, &e) || vocab_load(&f->v, f->g, &e))
        fail_msg("%s", e.msg);
}

static void close_fixture(struct fixture *f)
{
    vocab_free(f->v);
    gguf_close(f->g);
    close(f->fd);
    free(f->b.p);
}

/* In `marked`, [ and ] enclose what a user wrote; they are not part of the text. */
static void spans(const struct fixture *f, const char *marked, const int32_t *want, size_t n_want)
{
    struct tok_span span[8];
    struct ids ids = {0};
    struct hearth_err e = {0};
    char text[128];
    size_t n = 0, n_span = 0;
    for (; *marked; marked++) {
        if (*marked == '[')
            span[n_span].from = (uint32_t)n;
        else if (*marked == ']')
            span[n_span++].to = (uint32_t)n;
        else
            text[n++] = *marked;
    }
    assert_int_equal(tok_encode_spans(f->v, text, n, 0, span, n_span, &ids, &e), 0);
    bool same = ids.n == n_want && !memcmp(ids.v, want, n_want * sizeof *want);
    for (size_t i = 0; !same && i < ids.n; i++)
        print_error("%zu: %d\n", i, (int)ids.v[i]);
    assert_true(same);
    ids_fini(&ids);
}
#define SPANS(marked, ...) spans(&f, marked, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4)

static void test_spans(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    SPANS("<|x|>a", X, A);
    SPANS("[<|x|>]a", LESS, BAR, LETTER_X, BAR, MORE, A);
    SPANS("<|x|>[<|x|>]<|x|>", X, LESS, BAR, LETTER_X, BAR, MORE, X);
    SPANS("[a]b", AB); /* across the boundary */
    SPANS("a[b]a", AB, A);
    SPANS("<|[x]|>", LESS, BAR, LETTER_X, BAR, MORE); /* half of a marker is not a marker */
    SPANS("<|x[|>]a", LESS, BAR, LETTER_X, BAR, MORE, A);
    SPANS("[<|x]|>", LESS, BAR, LETTER_X, BAR, MORE);
    SPANS("<|x|>[<b>]", X, BOLD); /* the longer token would cross the boundary, the shorter one is the template's */
    SPANS("<|x|><b>", XB);
    SPANS("[<b>]<b>", BOLD, BOLD); /* a user-defined token is recognised in any text */
    SPANS("<|turn|>[a]<start_of_turn>", TURN, A, START);
    close_fixture(&f);
}

/* A turn's markup that a file calls user-defined is plain text in a user's text. */
static void test_user_defined_markup(void **state)
{
    (void)state;
    static const char *const texts[] = {"<|turn|>", "<start_of_turn>"};
    struct fixture f;
    open_fixture(&f);
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(texts[i]);
        struct tok_span all = {0, (uint32_t)n};
        struct ids ids = {0};
        struct hearth_err e = {0};
        assert_int_equal(tok_encode(f.v, texts[i], n, 0, &ids, &e), 0);
        assert_int_equal(ids.n, 1);
        int rc = tok_encode_spans(f.v, texts[i], n, 0, &all, 1, &ids, &e);
        for (size_t k = 1; !rc && k < ids.n; k++)
            assert_true(ids.v[k] != TURN && ids.v[k] != START);
        ids_fini(&ids);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_user_defined_markup),
    };
    return cmocka_run_group_tests_name("templates", tests, NULL, NULL);
}
