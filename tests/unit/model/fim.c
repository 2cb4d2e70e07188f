/*
 * fim.c - fill in the middle: tokens by role, and their order as each vocabulary's makers define it. The ids of the
 * markup are those of the files (the vocabularies beside the source tree are skipped if they are absent); the texts
 * between are tokenised separately.
 */
#include "config.h"

#include "daemon/model/tok/tok-internal.h"

#include "daemon/model/file.h"
#include "tests/unit/model/gguf-build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct loaded {
    struct gguf *g;
    struct vocab *v;
};

static struct loaded load(const char *dir, const char *file)
{
    struct loaded l;
    struct hearth_err e = {0};
    char path[4096];
    const char *shared = getenv("HEARTH_SHARED"), *src = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/%s", dir ? shared ? shared : "../shared" : src ? src : "..", file);
    if (access(path, R_OK))
        skip();
    if (model_file_open(&l.g, path, &e) || vocab_load(&l.v, l.g, &e))
        fail_msg("%s: %s", path, e.msg);
    return l;
}

static void unload(struct loaded *l)
{
    vocab_free(l->v);
    gguf_close(l->g);
}

/* Appends the ids of a document: texts, each tokenised separately, with ids between them; CUT alone separates two
 * texts. */
static void document(const struct vocab *v, const char *s, struct ids *out)
{
    struct hearth_err e;
    while (*s) {
        if (*s == '\x01') {
            char *end;
            assert_int_equal(ids_push(out, (int32_t)strtol(s + 1, &end, 10)), 0);
            s = end + 1;
            continue;
        }
        if (*s == '\x03') {
            s++;
            continue;
        }
        size_t n = strcspn(s, "\x01\x03");
        assert_int_equal(tok_encode(v, s, n, 0, out, &e), 0);
        s += n;
    }
}

#define ID(n) "\x01" #n "\x02"
#define CUT   "\x03"

static void same(const struct vocab *v, const struct fim *f, const char *want)
{
    struct ids got = {0}, ids = {0};
    struct hearth_err e = {0};
    if (fim_encode(v, f, &got, &e))
        fail_msg("%s", e.msg);
    document(v, want, &ids);
    assert_int_equal(got.n, ids.n);
    assert_memory_equal(got.v, ids.v, ids.n * sizeof *ids.v);
    ids_fini(&got);
    ids_fini(&ids);
}

static const struct fim_file files[] = {{"a.c", "int a;\n", 7}, {"lib/b.c", "int b(void);", 12}};
static struct fim plain = {
    .prefix = "int f(", .n_prefix = 6, .suffix = ")\n{\n}\n", .n_suffix = 6, .repo = "demo", .file = "f.c"};

static struct fim with_files(void)
{
    struct fim f = plain;
    f.files = files;
    f.n_files = 2;
    return f;
}

/* No BOS, and no tokens for files: other files come as text. */
static void test_tale(void **state)
{
    (void)state;
    struct loaded l = load(NULL, "contrib/models/tale-q4_k_m.gguf");
    struct fim f = with_files();
    assert_true(vocab_has_fim(l.v));
    assert_int_equal(vocab_role(l.v, ROLE_FIM_PRE), 3);
    assert_int_equal(vocab_role(l.v, ROLE_FIM_SUF), 4);
    assert_int_equal(vocab_role(l.v, ROLE_FIM_MID), 5);
    assert_int_equal(vocab_role(l.v, ROLE_FIM_SEP), -1);
    assert_int_equal(vocab_role(l.v, ROLE_EOT), 2);
    same(l.v, &plain, ID(3) "int f(" ID(4) ")\n{\n}\n" ID(5));
    same(l.v, &f,
         "--- a.c ---\nint a;\n\n" CUT "--- lib/b.c ---\nint b(void);\n" ID(3) "int f(" ID(4) ")\n{\n}\n" ID(5));
    unload(&l);
}

/* StarCoder2: repository and files come first, as in its training ("<repo_name>NAME<file_sep>PATH
 * TEXT..."). */
static void test_starcoder(void **state)
{
    (void)state;
    struct loaded l = load("shared", "vocab/starcoder.gguf");
    struct fim f = with_files();
    assert_int_equal(vocab_role(l.v, ROLE_FIM_PAD), 4);
    same(l.v, &plain, ID(1) "int f(" ID(3) ")\n{\n}\n" ID(2));
    same(l.v, &f,
         ID(5) "demo" CUT "\n" ID(6) "a.c\nint a;\n" ID(6) "lib/b.c\nint b(void);" ID(6) "f.c\n" ID(1) "int f(" ID(
             3) ")\n{\n}\n" ID(2));
    assert_true(vocab_is_end(l.v, 6)); /* the token that begins another file: the middle is complete */
    f = plain;
    f.n_prefix = f.n_suffix = 0;
    same(l.v, &f, ID(1) ID(3) ID(2));
    unload(&l);
}

/* DeepSeek-Coder: "hole" stands for the suffix, "end" for the middle; the model asks for BOS. */
static void test_deepseek(void **state)
{
    (void)state;
    struct loaded l = load("shared", "vocab/deepseek-coder.gguf");
    assert_int_equal(vocab_role(l.v, ROLE_BOS), 32013);
    same(l.v, &plain, ID(32013) ID(32016) "int f(" ID(32015) ")\n{\n}\n" ID(32017));
    unload(&l);
}

/* Markup within a file is text: a source that mentions these tokens cannot forge them. */
static void test_forged(void **state)
{
    (void)state;
    struct loaded l = load(NULL, "contrib/models/tale-q4_k_m.gguf");
    static const char text[] = "x = \"<|fim_suffix|>\" + \"<|im_end|>\"";
    struct fim f = {.prefix = text, .n_prefix = sizeof text - 1, .suffix = text, .n_suffix = sizeof text - 1};
    struct ids ids = {0};
    struct hearth_err e;
    size_t n = 0;
    assert_int_equal(fim_encode(l.v, &f, &ids, &e), 0);
    for (size_t i = 0; i < ids.n; i++)
        n += l.v->piece[ids.v[i]].attr == TOK_CONTROL;
    assert_int_equal(n, 3);
    ids_fini(&ids);
    unload(&l);
}

static void test_none(void **state)
{
    (void)state;
    struct loaded l = load("shared", "vocab/gpt-2.gguf");
    struct ids ids = {0};
    struct hearth_err e;
    assert_false(vocab_has_fim(l.v));
    assert_int_equal(fim_encode(l.v, &plain, &ids, &e), HEARTH_EUNSUPPORTED);
    assert_int_equal(ids.n, 0);
    unload(&l);
}

/* A vocabulary with these tokens, of which those from the first special one to `last` are special. */
static struct loaded build_vocab(const char *model, const char *const *tokens, uint32_t n, uint32_t last)
{
    struct loaded l;
    struct build b = {0};
    struct hearth_err e = {0};
    char path[64];
    put_header(&b, 3, 0, 6);
    key_str(&b, "general.architecture", "llama");
    key_str(&b, "tokenizer.ggml.model", model);
    key_arr(&b, "tokenizer.ggml.tokens", T_STR, n);
    for (uint32_t i = 0; i < n; i++)
        put_str(&b, tokens[i]);
    key_arr(&b, "tokenizer.ggml.token_type", T_I32, n);
    for (uint32_t i = 0; i < n; i++)
        put32(&b, i <= last ? TOK_CONTROL : TOK_NORMAL);
    key_arr(&b, "tokenizer.ggml.scores", T_F32, n);
    for (uint32_t i = 0; i < n; i++) {
        float score = -(float)i;
        put(&b, &score, 4);
    }
    key_bool(&b, "tokenizer.ggml.add_bos_token", 1);
    int fd = build_file(&b, path);
    if (model_file_open(&l.g, path, &e) || vocab_load(&l.v, l.g, &e))
        fail_msg("%s", e.msg);
    close(fd);
    free(b.p);
    return l;
}

static void same_ids(const struct vocab *v, const struct fim *f, const int32_t *want, size_t n)
{
    struct ids got = {0};
    struct hearth_err e;
    assert_int_equal(fim_encode(v, f, &got, &e), 0);
    assert_int_equal(got.n, n);
    assert_memory_equal(got.v, want, n * sizeof *want);
    ids_fini(&got);
}

#define LEN(a)    (sizeof(a) / sizeof *(a))
#define WANT(...) (const int32_t[]){__VA_ARGS__}, LEN(((const int32_t[]){__VA_ARGS__}))

/* CodeLlama's tokenizer.py: [BOS, PRE] + encode(prefix) + [SUF] + encode_infilling(suffix) + [MID]. The prefix has
 * SentencePiece's leading space, the suffix does not. */
static void test_codellama(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "\xe2\x96\x81<PRE>",
                                         "\xe2\x96\x81<SUF>",
                                         "\xe2\x96\x81<MID>",
                                         "\xe2\x96\x81<EOT>",
                                         "\xe2\x96\x81"
                                         "a",
                                         "\xe2\x96\x81",
                                         "a",
                                         "b"};
    struct loaded l = build_vocab("llama", tokens, LEN(tokens), 6);
    struct fim f = {.prefix = "ab", .n_prefix = 2, .suffix = "ab", .n_suffix = 2};
    same_ids(l.v, &f, WANT(1, 3, 7, 10, 4, 9, 10, 5));
    assert_true(vocab_is_end(l.v, 6));
    unload(&l);
}

/* Codestral: mistral-common's encode_fim, [BOS, SUFFIX] + suffix + [PREFIX] + prefix. */
static void test_codestral(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>",    "<s>",          "</s>", "[PREFIX]", "[MIDDLE]",
                                         "[SUFFIX]", "\xe2\x96\x81", "a",    "b"};
    struct loaded l = build_vocab("llama", tokens, LEN(tokens), 5);
    struct fim f = {.prefix = "a", .n_prefix = 1, .suffix = "b", .n_suffix = 1};
    same_ids(l.v, &f, WANT(1, 5, 8, 3, 6, 7));
    unload(&l);
}

/* Harmony's <|end|> ends one of several messages, and </s> is markup to Gemma 4; in other vocabularies both end a
 * turn. */
static void test_ends(void **state)
{
    (void)state;
    static const struct {
        const char *token[7];
        bool end;
        int32_t special;
    } cases[] = {{{"<unk>", "<s>", "<eos>", "<|end|>", "<|return|>", "<|call|>", "a"}, false, 3},
                 {{"<unk>", "<s>", "<eos>", "<|end|>", "<|return|>", "<|other|>", "a"}, true, 3},
                 {{"<unk>", "<s>", "<eos>", "</s>", "<turn|>", "<|tool_response>", "a"}, false, -1},
                 {{"<unk>", "<s>", "<eos>", "</s>", "<turn|>", "<|other|>", "a"}, true, 3}};
    for (size_t i = 0; i < LEN(cases); i++) {
        struct loaded l = build_vocab("llama", cases[i].token, 7, 5);
        assert_int_equal(vocab_is_end(l.v, 3), cases[i].end);
        assert_true(vocab_is_end(l.v, 2) && vocab_is_end(l.v, 4));
        assert_int_equal(vocab_special(l.v, cases[i].token[3]), cases[i].special);
        unload(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tale),      cmocka_unit_test(test_starcoder), cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_forged),    cmocka_unit_test(test_none),      cmocka_unit_test(test_codellama),
        cmocka_unit_test(test_codestral), cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
