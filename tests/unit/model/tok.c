/*
 * tok.c - vocabularies against llama.cpp's ids (data beside the source tree; the embedded model is always present), and
 * what must hold for any input: nothing crashes, no byte is lost, the time is not quadratic.
 */
#include "config.h"

#include "daemon/model/tok/tok-internal.h"

#include "daemon/model/file.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/model/gguf-build.h"

struct loaded {
    struct gguf *g;
    struct vocab *v;
};

static const char *shared(const char *rest)
{
    static char path[4096];
    const char *dir = getenv("HEARTH_SHARED");
    snprintf(path, sizeof path, "%s/%s", dir ? dir : "../shared", rest);
    return path;
}

static const char *embedded(void)
{
    static char path[4096];
    const char *dir = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/contrib/models/tale-q4_k_m.gguf", dir ? dir : "..");
    return path;
}

static struct loaded load(const char *path, const char *pre)
{
    struct loaded l;
    struct hearth_err e = {0};
    if (access(path, R_OK))
        skip();
    if (model_file_open(&l.g, path, &e) || vocab_load_as(&l.v, l.g, pre, &e))
        fail_msg("%s: %s", path, e.msg);
    return l;
}

static void unload(struct loaded *l)
{
    vocab_free(l->v);
    gguf_close(l->g);
}

/* The text of the ids without an added BOS and without SentencePiece's spaces at the start and after special tokens. */
static char *decode(const struct vocab *v, const struct ids *ids, size_t *len)
{
    size_t cap = 1, n = 0;
    for (size_t i = 0; i < ids->n; i++)
        cap += tok_piece(v, ids->v[i], true, NULL, 0);
    char *out = malloc(cap);
    bool fresh = true;
    for (size_t i = vocab_add_bos(v); i < ids->n; i++) {
        size_t k = tok_piece(v, ids->v[i], true, out + n, cap - n);
        bool control = !tok_piece(v, ids->v[i], false, NULL, 0);
        if (fresh && tok_adds_space(v) && !control) {
            assert_int_equal(out[n], ' ');
            memmove(out + n, out + n + 1, --k);
        }
        fresh = control;
        n += k;
    }
    *len = n;
    return out;
}

static void encode(const struct vocab *v, const char *text, size_t n, int flags, struct ids *ids)
{
    struct hearth_err e = {0};
    if (tok_encode(v, text, n, flags | (vocab_add_bos(v) ? TOK_BOS : 0), ids, &e))
        fail_msg("%s", e.msg);
}

static void check_lossless(const struct vocab *v, const char *text, size_t n, int flags)
{
    struct ids ids = {0};
    size_t len;
    encode(v, text, n, flags, &ids);
    char *back = decode(v, &ids, &len);
    if (len != n || memcmp(back, text, n))
        fail_msg("%zu bytes became %zu: %.60s / %.60s", n, len, text, back);
    free(back);
    ids_fini(&ids);
}

/* --- the vectors --------------------------------------------------------------------------------------- */

static void vectors(const char *gguf, const char *json, const char *pre)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", gguf);
    struct loaded l = load(path, pre);
    json_error_t je;
    json_t *root = access(shared(json), R_OK) ? NULL : json_load_file(shared(json), 0, &je), *c;
    if (!root) {
        unload(&l);
        skip();
    }
    size_t i, wrong = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const char *text = json_string_value(json_object_get(c, "text"));
        size_t n = json_string_length(json_object_get(c, "text"));
        int flags = json_is_true(json_object_get(c, "parse_special")) ? TOK_SPECIAL : 0;
        json_t *want = json_object_get(c, "ids");
        struct ids ids = {0};
        encode(l.v, text, n, flags, &ids);
        bool same = ids.n == json_array_size(want);
        for (size_t k = 0; same && k < ids.n; k++)
            same = ids.v[k] == json_integer_value(json_array_get(want, k));
        if (!same) {
            wrong++;
            print_error("%s: case %zu differs: %.80s\n", json, i, text);
        }
        ids_fini(&ids);
        check_lossless(l.v, text, n, flags);
    }
    assert_true(i > 0);
    json_decref(root);
    unload(&l);
    assert_int_equal(wrong, 0);
}

#define VECTORS(name, gguf, json, pre)    \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        vectors(gguf, json, pre);         \
    }
VECTORS(tale, embedded(), "vocab/tale.json", NULL)
VECTORS(tale_folder, shared("models/tale/hf"), "vocab/tale.json", NULL)
VECTORS(gpt_2, shared("vocab/gpt-2.gguf"), "vocab/gpt-2.json", NULL)
VECTORS(llama_bpe, shared("vocab/llama-bpe.gguf"), "vocab/llama-bpe.json", NULL)
VECTORS(qwen2, shared("vocab/llama-bpe.gguf"), "vocab/llama-bpe.pre-qwen2.json", "qwen2")
VECTORS(qwen35, shared("vocab/llama-bpe.gguf"), "vocab/llama-bpe.pre-qwen35.json", "qwen35")
VECTORS(tekken, shared("vocab/llama-bpe.gguf"), "vocab/llama-bpe.pre-tekken.json", "tekken")
VECTORS(gpt_4o, shared("vocab/llama-bpe.gguf"), "vocab/llama-bpe.pre-gpt-4o.json", "gpt-4o")
VECTORS(deepseek_v3, shared("vocab/llama-bpe.gguf"), "vocab/llama-bpe.pre-deepseek-v3.json", "deepseek-v3")
VECTORS(deepseek_coder, shared("vocab/deepseek-coder.gguf"), "vocab/deepseek-coder.json", NULL)
VECTORS(starcoder, shared("vocab/starcoder.gguf"), "vocab/starcoder.json", NULL)
VECTORS(llama_spm, shared("vocab/llama-spm.gguf"), "vocab/llama-spm.json", NULL)

/* --- any input ----------------------------------------------------------------------------------------- */

static const char *const files[] = {"vocab/gpt-2.gguf", "vocab/llama-bpe.gguf", "vocab/starcoder.gguf",
                                    "vocab/llama-spm.gguf", "vocab/deepseek-coder.gguf"};

/* starcoder has no token for the byte f1, which begins some characters: it becomes U+FFFD, as PROTOCOL.md specifies. */
static void test_byte_without_token(void **state)
{
    (void)state;
    struct loaded l = load(shared("vocab/starcoder.gguf"), NULL);
    static const char want[] = "a\xef\xbf\xbd b";
    struct ids ids = {0};
    char got[16];
    size_t n = 0;
    encode(l.v, "a\xf1 b", 4, 0, &ids);
    for (size_t i = 0; i < ids.n; i++)
        n += tok_piece(l.v, ids.v[i], false, got + n, sizeof got - n);
    assert_int_equal(n, sizeof want - 1);
    assert_memory_equal(got, want, n);
    ids_fini(&ids);
    unload(&l);
}

/* Deepseek-coder has no tokens for the 13 bytes that never occur in UTF-8. */
static bool has_all_bytes(const struct vocab *v)
{
    for (int b = 0; b < 256; b++)
        if (v->byte_id[b] < 0)
            return false;
    return true;
}

static void garble(const struct vocab *v)
{
    static const char *const bits[] = {"\xe2\x80\x83",
                                       "\xf0\x9f\xa6\x99",
                                       "\xff",
                                       "\xc3",
                                       "'ll",
                                       "'S",
                                       "<|eot_id|>",
                                       "<s>",
                                       "</s>",
                                       "<|im_start|>",
                                       "123456",
                                       " \t\r\n",
                                       "\n\n",
                                       "   ",
                                       "\xe0\xa4\xb9\xe0\xa4\xbf",
                                       "\xe4\xb8\xad\xe6\x96\x87",
                                       "a",
                                       "Z",
                                       ".",
                                       "\xed\xa0\x80",
                                       "\xc0\x80"};
    char buf[512];
    uint32_t r = 12345;
    bool whole = has_all_bytes(v);
    for (int round = 0; round < 2000; round++) {
        size_t n = 0;
        while (n < sizeof buf - 16) {
            r = r * 1664525 + 1013904223;
            if ((r >> 29) == 0)
                break;
            if ((r >> 28) & 1) {
                buf[n++] = (char)(r >> 12);
            } else {
                const char *bit = bits[(r >> 8) % (sizeof bits / sizeof *bits)];
                memcpy(buf + n, bit, strlen(bit));
                n += strlen(bit);
            }
        }
        for (int flags = 0; flags <= TOK_SPECIAL; flags += TOK_SPECIAL) {
            if (whole) {
                check_lossless(v, buf, n, flags);
            } else {
                struct ids ids = {0};
                encode(v, buf, n, flags, &ids);
                ids_fini(&ids);
            }
        }
    }
}

static void test_garbage(void **state)
{
    (void)state;
    struct loaded l = load(embedded(), NULL);
    garble(l.v);
    unload(&l);
}

static void test_garbage_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct loaded l = load(shared(files[i]), NULL);
        garble(l.v);
        unload(&l);
    }
}

/* A megabyte of one repeated text must take linear time; a result in seconds would mean something quadratic. */
static void long_runs(const struct vocab *v, const char *name)
{
    static const char *const units[] = {"a", " ", "\n", "1", "!", "\xff", "ab", " \n", "<", "\xe4\xb8\xad", "' ", "x "};
    size_t n = 1000 * 1000;
    char *text = malloc(n);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        struct timespec a, b;
        struct ids ids = {0};
        size_t k = strlen(units[u]), full = n / k * k;
        for (size_t i = 0; i < full; i++)
            text[i] = units[u][i % k];
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        encode(v, text, full, TOK_SPECIAL, &ids);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        ids_fini(&ids);
        double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
        if (getenv("VERBOSE_TIMES"))
            print_message("%s: 1 MB of '%s': %.3f s\n", name, units[u], s);
        if (s > 20) /* usually 0.1 s; sanitizers and valgrind take up to 50 times as long */
            fail_msg("%s: 1 MB of '%s' takes %.1f s", name, units[u], s);
    }
    free(text);
}

static void test_long_runs(void **state)
{
    (void)state;
    struct loaded l = load(embedded(), NULL);
    long_runs(l.v, "tale");
    unload(&l);
}

static void test_long_runs_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct loaded l = load(shared(files[i]), NULL);
        long_runs(l.v, files[i]);
        unload(&l);
    }
}

/* Patterns that look ahead, or that repeat a group. */
static void test_long_runs_patterns(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny_aya", "superbpe", "kimi-k2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct loaded l = load(embedded(), names[i]);
        long_runs(l.v, names[i]);
        unload(&l);
    }
}

/* --- special tokens ------------------------------------------------------------------------------------ */

static void test_special(void **state)
{
    (void)state;
    struct loaded l = load(embedded(), NULL);
    static const char text[] = "<|im_start|>user\nHi<|im_end|>";
    struct ids with = {0}, without = {0};
    encode(l.v, text, strlen(text), TOK_SPECIAL, &with);
    encode(l.v, text, strlen(text), 0, &without);
    assert_int_equal(with.v[0], 1);
    assert_int_equal(with.v[with.n - 1], 2);
    for (size_t i = 0; i < without.n; i++)
        assert_true(without.v[i] > 5);
    assert_int_equal(vocab_special(l.v, "<|im_end|>"), 2);
    assert_int_equal(vocab_special(l.v, "<|im_en"), -1);
    assert_int_equal(vocab_special(l.v, ""), -1);
    assert_true(vocab_is_end(l.v, 0));
    assert_true(vocab_is_end(l.v, 2));
    assert_false(vocab_is_end(l.v, 1));
    assert_int_equal(tok_piece(l.v, 2, false, NULL, 0), 0);
    assert_int_equal(tok_piece(l.v, 2, true, NULL, 0), 10);
    assert_int_equal(tok_piece(l.v, -1, true, NULL, 0), 0);
    assert_int_equal(tok_piece(l.v, 1 << 30, true, NULL, 0), 0);
    assert_string_equal(vocab_kind(l.v), "gpt2/gpt-2");
    ids_fini(&with);
    ids_fini(&without);
    unload(&l);
}

/* A vocabulary of these tokens and types, without scores and merges. */
static struct loaded build_vocab(const char *arch, const char *model, const char *const *token, const uint32_t *type,
                                 size_t n)
{
    struct loaded l;
    struct hearth_err e = {0};
    struct build b = {0};
    char path[64];
    put_header(&b, 3, 0, 6);
    key_str(&b, "general.architecture", arch);
    key_str(&b, "tokenizer.ggml.model", model);
    key_arr(&b, "tokenizer.ggml.tokens", T_STR, n);
    for (size_t i = 0; i < n; i++)
        put_str(&b, token[i]);
    key_arr(&b, "tokenizer.ggml.token_type", T_I32, n);
    for (size_t i = 0; i < n; i++)
        put32(&b, type[i]);
    key_arr(&b, "tokenizer.ggml.scores", T_F32, n);
    put_zeros(&b, n * sizeof(float));
    key_arr(&b, "tokenizer.ggml.merges", T_STR, 0);
    int fd = build_file(&b, path);
    if (gguf_open(&l.g, path, &e) || vocab_load(&l.v, l.g, &e))
        fail_msg("%s", e.msg);
    close(fd);
    free(b.p);
    return l;
}

/* Phi 3's special tokens absorb the white space after them, except those that are not part of a turn; other models' do
 * not. */
static void test_phi3(void **state)
{
    (void)state;
    static const char *const token[] = {"<unk>",   "<s>",    "</s>",   "<|endoftext|>", "<|user|>",
                                        "<|end|>", "<0x0A>", "<0x20>", "<0x61>",        "\xe2\x96\x81"};
    static const uint32_t type[] = {2, 3, 3, 3, 3, 3, 6, 6, 6, 1};
    static const char text[] = "<|user|>\na<|end|>\n \n<s>\n</s> a<|endoftext|>\n";
    static const int32_t stripped[] = {1, 4, 9, 8, 5, 1, 9, 6, 2, 9, 8, 3, 9, 6};
    static const int32_t plain[] = {1, 4, 9, 6, 8, 5, 9, 6, 9, 6, 1, 9, 6, 2, 9, 9, 8, 3, 9, 6};
    for (int phi = 0; phi < 2; phi++) {
        struct loaded l = build_vocab(phi ? "phi3" : "llama", "llama", token, type, sizeof type / sizeof *type);
        struct ids ids = {0};
        encode(l.v, text, strlen(text), TOK_SPECIAL, &ids);
        assert_int_equal(ids.n, phi ? sizeof stripped / 4 : sizeof plain / 4);
        assert_memory_equal(ids.v, phi ? stripped : plain, ids.n * 4);
        ids_fini(&ids);
        unload(&l);
    }
}

/* Which tokens end a turn because of their text, and which do not because of other tokens. */
static void test_ends(void **state)
{
    (void)state;
    static const char *const token[] = {"<|end|>", "<|flush|>", "<|calls|>", "a"};
    static const uint32_t type[] = {3, 3, 3, 1};
    for (size_t n = 1; n <= 4; n++) {
        struct loaded l = build_vocab("glm4moe", "gpt2", token, type, n);
        assert_int_equal(vocab_is_end(l.v, 0), n < 3);
        for (int32_t i = 1; i < (int32_t)n; i++)
            assert_int_equal(vocab_is_end(l.v, i), i < 3);
        unload(&l);
    }
}

static void test_unknown_pre(void **state)
{
    (void)state;
    struct loaded l;
    struct hearth_err e = {0};
    assert_int_equal(gguf_open(&l.g, embedded(), &e), 0);
    assert_int_equal(vocab_load_as(&l.v, l.g, "nobody-knows", &e), HEARTH_EUNSUPPORTED);
    assert_non_null(strstr(e.msg, "nobody-knows"));
    gguf_close(l.g);
}

/* No text has fewer ids than its length and the vocabulary's reach imply; the worst case is the longest token,
 * repeated. */
static void test_reach(void **state)
{
    (void)state;
    enum { TIMES = 200 };
    struct loaded l = load(embedded(), NULL);
    struct hearth_err e = {0};
    size_t longest = 0;
    assert_true(vocab_reach(l.v) < 1000);
    for (uint32_t id = 0; id < vocab_size(l.v); id++) {
        size_t n = tok_piece(l.v, (int32_t)id, true, NULL, 0);
        longest = n > longest ? n : longest;
        char *text = malloc(TIMES * n + 1);
        struct ids ids = {0};
        assert_non_null(text);
        for (int i = 0; i < TIMES; i++)
            tok_piece(l.v, (int32_t)id, true, text + (size_t)i * n, n);
        assert_int_equal(tok_encode(l.v, text, TIMES * n, TOK_SPECIAL, &ids, &e), 0);
        assert_true(ids.n >= TIMES * n / vocab_reach(l.v));
        ids_fini(&ids);
        free(text);
    }
    assert_true(longest <= vocab_reach(l.v));
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_tale),
        cmocka_unit_test(test_tale_folder),
        cmocka_unit_test(test_gpt_2),
        cmocka_unit_test(test_llama_bpe),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_qwen35),
        cmocka_unit_test(test_tekken),
        cmocka_unit_test(test_gpt_4o),
        cmocka_unit_test(test_deepseek_v3),
        cmocka_unit_test(test_deepseek_coder),
        cmocka_unit_test(test_starcoder),
        cmocka_unit_test(test_byte_without_token),
        cmocka_unit_test(test_llama_spm),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_phi3),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_unknown_pre),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_garbage_shared),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_long_runs_shared),
        cmocka_unit_test(test_long_runs_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
