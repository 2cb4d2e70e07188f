/*
 * tokenizer-json.c - every kind of tokenizer.json that hearth reads, against the ids of the Rust library `tokenizers`
 * (tests/tools/tokenizer_vectors.py trains the tokenizers and writes their ids): byte-level and raw BPE, Unigram,
 * WordPiece, normalisers, pre-tokenizers, prefixes, special tokens that absorb white space; and what is refused.
 */
#include "config.h"

#include "daemon/model/file.h"
#include "daemon/model/tok/pretok.h"
#include "daemon/model/tok/tok.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static json_t *load_json(const char *name)
{
    char path[4096];
    const char *top = getenv("top_srcdir");
    json_error_t why;
    snprintf(path, sizeof path, "%s/tests/unit/model/tokenizers/%s", top ? top : "..", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!root)
        fail_msg("%s: %s", path, why.text);
    return root;
}

static void write_file(const char *dir, const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The greatest id in the file, plus one. */
static json_int_t vocab_size_of(const json_t *root)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *v;
    json_int_t n = (json_int_t)json_array_size(vocab);
    const char *key;
    size_t i;
    json_object_foreach((json_t *)vocab, key, v) n = json_integer_value(v) >= n ? json_integer_value(v) + 1 : n;
    json_array_foreach(json_object_get(root, "added_tokens"), i, v)
    {
        json_int_t id = json_integer_value(json_object_get(v, "id"));
        n = id >= n ? id + 1 : n;
    }
    return n;
}

/* Writes a folder with that tokenizer and one tensor. */
static void write_folder(const char *dir, const json_t *tokenizer)
{
    static const char header[] =
        "{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}";
    char config[512], tensors[sizeof header + 8 + 32] = {0};
    uint64_t n = strlen(header);
    snprintf(
        config, sizeof config,
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"vocab_size\": %lld}",
        (long long)vocab_size_of(tokenizer));
    memcpy(tensors, &n, 8);
    memcpy(tensors + 8, header, n);
    char *text = json_dumps(tokenizer, 0);
    assert_non_null(text);
    write_file(dir, "config.json", config, strlen(config));
    write_file(dir, "tokenizer.json", text, strlen(text));
    write_file(dir, "model.safetensors", tensors, 8 + n + 32);
    free(text);
}

static void check_case(const struct vocab *v, const json_t *c, size_t i, size_t *wrong)
{
    const json_t *want = json_array_get(c, 1);
    const char *text = json_string_value(json_array_get(c, 0));
    struct ids ids = {0};
    struct hearth_err e = {0};
    if (tok_encode(v, text, json_string_length(json_array_get(c, 0)), TOK_SPECIAL, &ids, &e))
        fail_msg("case %zu: %s", i, e.msg);
    bool same = ids.n == json_array_size(want);
    for (size_t k = 0; same && k < ids.n; k++)
        same = ids.v[k] == json_integer_value(json_array_get(want, k));
    if (!same) {
        ++*wrong;
        print_error("case %zu differs: '%s'\n ", i, text);
        for (size_t k = 0; k < ids.n; k++)
            print_error(" %d", ids.v[k]);
        print_error("\n  where the reference has");
        for (size_t k = 0; k < json_array_size(want); k++)
            print_error(" %lld", (long long)json_integer_value(json_array_get(want, k)));
        print_error("\n");
    }
    ids_fini(&ids);
}

/* `vectors` is an array of cases, each with a text and its ids. */
static void check_vectors(const char *name, const json_t *vectors, const struct gguf *g)
{
    struct vocab *v;
    struct hearth_err e = {0};
    json_t *c;
    size_t i, wrong = 0;
    if (vocab_load(&v, g, &e))
        fail_msg("%s: %s", name, e.msg);
    json_array_foreach(json_object_get(vectors, "cases"), i, c) check_case(v, c, i, &wrong);
    assert_true(i > 0);
    vocab_free(v);
    if (wrong)
        fail_msg("%s: %zu of %zu", name, wrong, i);
}

static void check_cases(const char *name, const struct gguf *g)
{
    char file[64];
    snprintf(file, sizeof file, "%s.json", name);
    json_t *vectors = load_json(file);
    check_vectors(name, vectors, g);
    json_decref(vectors);
}

static void check(const char *name)
{
    char file[64], dir[] = "/tmp/hearth-tok-XXXXXX", command[64];
    struct gguf *g;
    struct hearth_err e = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s.tokenizer.json", name);
    json_t *tokenizer = load_json(file);
    write_folder(dir, tokenizer);
    json_decref(tokenizer);
    if (model_file_open(&g, dir, &e))
        fail_msg("%s: %s", name, e.msg);
    check_cases(name, g);
    gguf_close(g);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* Changes a tokenizer as arrangement_vectors.py does. */
static void rearrange(json_t *tokenizer, const json_t *change)
{
    static const char *const parts[] = {"normalizer", "pre_tokenizer"};
    json_t *model = json_object_get(change, "model");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (json_object_get(change, parts[i]))
            json_object_set(tokenizer, parts[i], json_object_get(change, parts[i]));
    if (model)
        json_object_update(json_object_get(tokenizer, "model"), model);
    if (json_object_get(change, "added_tokens"))
        json_array_extend(json_object_get(tokenizer, "added_tokens"), json_object_get(change, "added_tokens"));
}

/* Checks a file of arrangements. Returns their number; *refused is how many of them are refused. */
static size_t check_arrangements(const char *list, size_t *refused)
{
    char dir[] = "/tmp/hearth-tok-XXXXXX", command[64], file[64];
    json_t *rows = load_json(list), *row;
    size_t i, n_refused = 0;
    assert_non_null(mkdtemp(dir));
    json_array_foreach(rows, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *said = json_string_value(json_object_get(row, "refused"));
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        snprintf(file, sizeof file, "%s.tokenizer.json", json_string_value(json_object_get(row, "base")));
        json_t *tokenizer = load_json(file);
        rearrange(tokenizer, json_object_get(row, "change"));
        write_folder(dir, tokenizer);
        json_decref(tokenizer);
        int ret = model_file_open(&g, dir, &e);
        if (!ret && said) {
            ret = vocab_load(&v, g, &e);
            gguf_close(g);
        }
        if (said ? !ret || !strstr(e.msg, said) : ret)
            fail_msg("%s: %s", name, ret ? e.msg : "not refused");
        n_refused += said != NULL;
        if (said)
            continue;
        check_vectors(name, row, g);
        gguf_close(g);
    }
    json_decref(rows);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    *refused = n_refused;
    return i;
}

/* Arrangements that no tokenizer above has, with the library's ids, or with a refusal that names what is not supported.
 * Also added tokens that match only whole words, or that the model does not have, and tokens that no merge makes; these
 * ids come from an implementation in Python that agrees with the library on all others. Then added tokens that are
 * searched for in normalised text. */
static void test_arrangements(void **state)
{
    size_t n_refused;
    (void)state;
    assert_true(check_arrangements("arrangements.json", &n_refused) > 30 && n_refused > 20);
    assert_true(check_arrangements("added.json", &n_refused) == 4 && n_refused == 0);
    assert_true(check_arrangements("normalized.json", &n_refused) == 12 && n_refused == 0);
}

/* How many of the ids of three texts, of which a person wrote the second, are `id`. */
static size_t count_of(const struct vocab *v, const char *const text[3], int32_t id)
{
    char whole[256];
    struct ids ids = {0};
    struct hearth_err e = {0};
    uint32_t from = (uint32_t)strlen(text[0]), to = from + (uint32_t)strlen(text[1]);
    size_t n = 0, len = (size_t)snprintf(whole, sizeof whole, "%s%s%s", text[0], text[1], text[2]);
    if (tok_encode_spans(v, whole, len, 0, &(struct tok_span){from, to}, 1, &ids, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < ids.n; i++)
        n += ids.v[i] == id;
    ids_fini(&ids);
    return n;
}

/* A control token that is searched for in the normalised text is found in what a template wrote, and not in what a
 * person did, even if this becomes the token's text only when it is normalised. */
static void test_persons(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text[3];
        size_t n; /* control tokens; user-defined ones */
        size_t n_user;
    } cases[] = {
        {"digits", {"<x>", "Hello", "<x>"}, 2, 0},
        {"digits", {"<x>", "<x>\xef\xbc\x9cx\xef\xbc\x9e\xef\xac\x81", "<x>"}, 2, 1}, /* full width; a ligature */
        {"digits", {"<x>", "\xcc\xb8", "<x>"}, 2, 0}, /* would make one character with the > before */
        {"digits", {"\xef\xac\x81<", "x", "><x>"}, 1, 1},
        {"digits", {"<x>\xef\xac\x81\xef\xac\x81", "\xe2\x91\xa0<x>", "\xef\xac\x81"}, 1, 3},
        {"llama2", {"<x>", " <x>", ""}, 1, 0},
        {"llama2", {"", "<x> <x>", " <x>"}, 1, 0},
        {"llama2", {"<x> \xe2\x96\x81", "\xe2\x96\x81<x> fi", "\xe2\x96\x81<x>"}, 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[] = "/tmp/hearth-tok-XXXXXX", command[64], file[64];
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        assert_non_null(mkdtemp(dir));
        snprintf(file, sizeof file, "%s.tokenizer.json", cases[i].name);
        json_t *tokenizer = load_json(file), *added = json_object_get(tokenizer, "added_tokens");
        int id = (int)vocab_size_of(tokenizer);
        json_array_append_new(
            added, json_pack("{s:i, s:s, s:b, s:b}", "id", id, "content", "<x>", "normalized", 1, "special", 1));
        json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", id + 1, "content", "fi", "normalized", 1));
        write_folder(dir, tokenizer);
        json_decref(tokenizer);
        if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e))
            fail_msg("%s", e.msg);
        size_t n = count_of(v, cases[i].text, id), n_user = count_of(v, cases[i].text, id + 1);
        if (n != cases[i].n || n_user != cases[i].n_user)
            fail_msg("case %zu: %zu and %zu", i, n, n_user);
        vocab_free(v);
        gguf_close(g);
        snprintf(command, sizeof command, "rm -rf %s", dir);
        assert_int_equal(system(command), 0);
    }
}

/* A GGUF file's Unigram vocabulary, against SentencePiece itself (tests/tools/sentencepiece_vectors.py). */
static void test_sentencepiece(void **state)
{
    (void)state;
    char path[4096];
    const char *top = getenv("top_srcdir");
    struct gguf *g;
    struct hearth_err e = {0};
    snprintf(path, sizeof path, "%s/tests/unit/model/tokenizers/sentencepiece.gguf", top ? top : "..");
    if (model_file_open(&g, path, &e))
        fail_msg("%s", e.msg);
    check_cases("sentencepiece", g);
    gguf_close(g);
}

#define KINDS(X)                      \
    X(gpt2, "gpt2")                   \
    X(gpt2_prefix, "gpt2-prefix")     \
    X(qwen2, "qwen2")                 \
    X(digits, "digits")               \
    X(ignore_merges, "ignore-merges") \
    X(llama2, "llama2")               \
    X(metaspace, "metaspace")         \
    X(gemma, "gemma")                 \
    X(unigram, "unigram")             \
    X(unigram_bytes, "unigram-bytes") \
    X(precompiled, "precompiled")     \
    X(bert, "bert")                   \
    X(bert_cased, "bert-cased")
#define X(name, file)                     \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        check(file);                      \
    }
KINDS(X)
#undef X

/*
 * The table of replacements is data from outside. Damaged anywhere, it is refused, or a text is tokenised to some ids,
 * or to an error; nothing outside of the table is read (the sanitizers would notice).
 */
static void test_damaged_table(void **state)
{
    (void)state;
    enum { ROUNDS = 400 };
    static const char text[] = "  Am Brunnen \xef\xac\x81ne e\xcc\x81... \xef\xbc\xa1\xef\xbc\xa2\xef\xbc\xa3 x\t\n";
    char path[4096], damaged[] = "/tmp/hearth-table-XXXXXX";
    const char *top = getenv("top_srcdir");
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    char file[8192];
    snprintf(path, sizeof path, "%s/tests/unit/model/tokenizers/sentencepiece.gguf", top ? top : "..");
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(file, 1, sizeof file, f), table = 0, n_table = 0, n_refused = 0;
    fclose(f);
    for (size_t i = 0; i + sizeof key + 16 < n && !table; i++)
        if (!memcmp(file + i, key, sizeof key - 1))
            table = i + sizeof key - 1 + 4 + 4; /* the array's type and the type of its elements */
    assert_true(table);
    memcpy(&n_table, file + table, 8);
    table += 8;
    assert_true(table + n_table < n);
    int fd = mkstemp(damaged);
    assert_true(fd >= 0);
    uint32_t seed = 7;
    for (int round = 0; round < ROUNDS; round++) {
        char saved[4];
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        struct ids ids = {0};
        seed = seed * 1664525 + 1013904223;
        size_t at = table + (seed >> 8) % (round % 8 ? n_table - 4 : 8);
        memcpy(saved, file + at, 4);
        for (int i = 0; i < 1 + round % 4; i++)
            file[at + (size_t)i] ^= (char)(seed >> (5 * i));
        assert_int_equal(pwrite(fd, file, n, 0), n);
        assert_int_equal(model_file_open(&g, damaged, &e), 0);
        if (vocab_load(&v, g, &e)) {
            n_refused++;
        } else {
            if (tok_encode(v, text, sizeof text - 1, 0, &ids, &e))
                assert_true(e.code == HEARTH_EBADMODEL);
            vocab_free(v);
        }
        ids_fini(&ids);
        gguf_close(g);
        memcpy(file + at, saved, 4);
    }
    close(fd);
    unlink(damaged);
    assert_in_range(n_refused, 10, ROUNDS - 200);
}

/* A table of replacements may remove characters, in a vocabulary that otherwise has an id for at least every so many
 * bytes: a text of only such characters has no ids, so that nothing can be derived from its length. */
static void test_reach(void **state)
{
    (void)state;
    enum { N = 3 * 10000 };
    char dir[] = "/tmp/hearth-tok-XXXXXX", command[64], *text = malloc(N);
    json_t *tokenizer = load_json("metaspace.tokenizer.json"), *other = load_json("precompiled.tokenizer.json");
    json_t *table = json_array_get(json_object_get(json_object_get(other, "normalizer"), "normalizers"), 0);
    assert_non_null(mkdtemp(dir));
    assert_non_null(text);
    json_t *added;
    size_t k;
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), k, added)
    { /* nor may tokens absorb white space */
        json_object_set_new(added, "lstrip", json_false());
        json_object_set_new(added, "rstrip", json_false());
    }
    for (size_t i = 0; i < N; i += 3)
        memcpy(text + i, "\xe2\x80\x8b", 3); /* U+200B, which the table removes */
    for (int with = 0; with < 2; with++) {
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        struct ids ids = {0};
        if (with)
            json_object_set(tokenizer, "normalizer", table);
        write_folder(dir, tokenizer);
        if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e) || tok_encode(v, text, N, 0, &ids, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(with, ids.n == 0);
        assert_int_equal(with, vocab_reach(v) == SIZE_MAX);
        assert_true(ids.n >= N / vocab_reach(v));
        ids_fini(&ids);
        vocab_free(v);
        gguf_close(g);
    }
    json_decref(tokenizer);
    json_decref(other);
    free(text);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* The reach counts bytes of the text, in which U+2581 stands for a space as well; and it has no bound where unknown
 * characters become one id. */
static void test_reach_of_three_bytes(void **state)
{
    (void)state;
    enum { N = 4 * 1000 };
#define LOW "\xe2\x96\x81"
    char dir[] = "/tmp/hearth-tok-XXXXXX", command[64], text[3 * N];
    json_t *tokenizer = json_pack(
        "{s:{s:s, s:{s:s}, s:s}, s:{s:s, s:s, s:b, s:{s:i, s:i, s:i, s:i}, s:[[s,s], [s,s]]}}", "normalizer", "type",
        "Replace", "pattern", "String", " ", "content", LOW, "model", "type", "BPE", "unk_token", "u", "fuse_unk", 0,
        "vocab", "u", 0, LOW, 1, LOW LOW, 2, LOW LOW LOW LOW, 3, "merges", LOW, LOW, LOW LOW, LOW LOW);
    assert_non_null(mkdtemp(dir));
    assert_non_null(tokenizer);
    for (int fuse = 0; fuse < 2; fuse++) {
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        json_object_set_new(json_object_get(tokenizer, "model"), "fuse_unk", json_boolean(fuse));
        write_folder(dir, tokenizer);
        if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e))
            fail_msg("%s", e.msg);
        for (int spaces = 0; spaces < 2; spaces++) {
            struct ids ids = {0};
            for (size_t i = 0; i < sizeof text; i += 3)
                memcpy(text + i, spaces ? LOW : "\u200b", 3);
            assert_int_equal(tok_encode(v, text, sizeof text, 0, &ids, &e), 0);
            assert_int_equal(ids.n, spaces ? N / 4 : fuse ? 1 : N);
            assert_true(ids.n >= sizeof text / vocab_reach(v));
            ids_fini(&ids);
        }
        assert_int_equal(vocab_reach(v), fuse ? SIZE_MAX : 3 * 4);
        vocab_free(v);
        gguf_close(g);
    }
    json_decref(tokenizer);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
#undef LOW
}

/* The words of each named pre-tokenizer (tokenizer.ggml.pre), against the same library with the makers' patterns. */
static void test_words(void **state)
{
    (void)state;
    json_t *root = load_json("pretok.json"), *rows, *texts = json_object_get(root, "texts");
    const char *name;
    size_t n_kind = 0, wrong = 0;
    json_object_foreach(json_object_get(root, "ends"), name, rows)
    {
        const struct pretok_kind *kind = pretok_find(name, strlen(name));
        struct pretok *p;
        struct hearth_err e = {0};
        n_kind++;
        if (!kind || pretok_open(&p, kind, &e))
            fail_msg("%s: %s", name, e.msg);
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *text = json_array_get(texts, i), *want = json_array_get(rows, i);
            uint32_t *ends;
            size_t n_word;
            if (pretok_split(p, json_string_value(text), json_string_length(text), &ends, &n_word, &e))
                fail_msg("%s: %s", name, e.msg);
            bool same = n_word == json_array_size(want);
            for (size_t k = 0; same && k < n_word; k++)
                same = ends[k] == json_integer_value(json_array_get(want, k));
            if (!same) {
                wrong++;
                print_error("%s, text %zu: '%s'\n", name, i, json_string_value(text));
            }
            free(ends);
        }
        pretok_close(p);
    }
    json_decref(root);
    assert_true(n_kind > 8);
    assert_int_equal(wrong, 0);
}

/* (?i:'s) also matches a contraction with a long s. */
static void test_long_s(void **state)
{
    static const char *const names[] = {"llama-bpe", "qwen2", "qwen35", "seed-coder", "bailingmoe"};
    static const char text[] = "'\xc5\xbf"
                               "ab";
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pretok *p;
        struct hearth_err e = {0};
        uint32_t *ends;
        size_t n;
        assert_int_equal(pretok_open(&p, pretok_find(names[i], strlen(names[i])), &e), 0);
        assert_int_equal(pretok_split(p, text, sizeof text - 1, &ends, &n, &e), 0);
        if (n != 2 || ends[0] != 3)
            fail_msg("%s: %zu words, the first of %u bytes", names[i], n, ends[0]);
        free(ends);
        pretok_close(p);
    }
}

/* The token that the post-processor puts before a text is BOS if tokenizer_config.json names it, or names none. */
static void test_bos(void **state)
{
    (void)state;
#define FIRST(id) "{\"SpecialToken\": {\"id\": \"" id "\", \"type_id\": 0}}, "
#define TEMPLATE(first) \
    "{\"type\": \"TemplateProcessing\", \"single\": [" first "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}]}"
    static const struct {
        const char *post, *config;
        int bos; /* -1: none */
        bool add;
    } cases[] = {
        {TEMPLATE(FIRST("<s>")), NULL, 0, true},
        {TEMPLATE(FIRST("<s>")), "{}", 0, true},
        {TEMPLATE(FIRST("<s>")), "{\"bos_token\": null}", -1, false},
        {TEMPLATE(FIRST("<s>")), "{\"bos_token\": \"<s>\"}", 0, true},
        {TEMPLATE(FIRST("<s>")), "{\"bos_token\": \"<s>\", \"add_bos_token\": false}", 0, false},
        {TEMPLATE(FIRST("<s>")), "{\"bos_token\": \"</s>\"}", 1, false},
        {"{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, " TEMPLATE(FIRST("</s>")) "]}", NULL, 1,
         true},
        {TEMPLATE(FIRST("<s>") FIRST("</s>")), NULL, -1, false},
        {TEMPLATE(FIRST("<nothing>")), NULL, -1, false},
        {TEMPLATE(""), NULL, -1, false},
        {"null", NULL, -1, false},
    };
#undef FIRST
#undef TEMPLATE
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[] = "/tmp/hearth-tok-XXXXXX", command[64];
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        assert_non_null(mkdtemp(dir));
        json_t *tokenizer = load_json("llama2.tokenizer.json");
        json_object_set_new(tokenizer, "post_processor", json_loads(cases[i].post, JSON_DECODE_ANY, NULL));
        write_folder(dir, tokenizer);
        json_decref(tokenizer);
        if (cases[i].config)
            write_file(dir, "tokenizer_config.json", cases[i].config, strlen(cases[i].config));
        if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e))
            fail_msg("%s", e.msg);
        if (vocab_bos(v) != cases[i].bos || vocab_add_bos(v) != cases[i].add)
            fail_msg("case %zu: %d, %d", i, vocab_bos(v), vocab_add_bos(v));
        vocab_free(v);
        gguf_close(g);
        snprintf(command, sizeof command, "rm -rf %s", dir);
        assert_int_equal(system(command), 0);
    }
}

/* A pattern that matches nothing at every place terminates, with as many words as the text has boundaries. */
static void test_empty_matches(void **state)
{
    static const struct {
        const char *pattern, *text, *words; /* the words, each followed by a bar */
    } cases[] = {
        {"\\p{N}{0,3}", "abc12345d\u00e9", "a|b|c|123|45|d|\u00e9|"},
        {"\\p{N}{0,3}|b+", "ab", "a|b|"}, /* the first alternative that matches, with no characters */
        {"b+|\\p{N}{0,3}", "abbc", "a|bb|c|"},
        {"(?=b)", "abb\u20acb", "a|b|b\u20ac|b|"},
        {"(?=b)", "b", "b|"},
        {"a*", "", ""},
        {"$", "ab", "ab|"},
        /* digits in threes from the right, where a number of 3, 6, ... begins, too: DIGIT_GROUP_ENDS */
        {"(?=(\\d{3})+(?!\\d))", "abc123 1234567x\u00b2123456", "abc|123 1|234|567x\u00b2|123|456|"},
        {"(?=(\\d{3})+(?!\\d))", "123", "123|"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hearth_err e;
        struct pretok *p;
        uint32_t *ends = NULL;
        size_t n = 0, used = 0;
        char got[100] = "";
        struct pretok_pattern pattern = {cases[i].pattern, strlen(cases[i].pattern)};
        assert_int_equal(pretok_open_patterns(&p, &pattern, 1, &e), 0);
        assert_int_equal(pretok_split(p, cases[i].text, strlen(cases[i].text), &ends, &n, &e), 0);
        for (size_t k = 0; k < n; used = ends[k++])
            snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s|", (int)(ends[k] - used), cases[i].text + used);
        assert_string_equal(got, cases[i].words);
        free(ends);
        pretok_close(p);
    }
}

/* Marks are put in order in linear time, however many follow a letter; a result in minutes would mean quadratic. */
static void test_many_marks(void **state)
{
    enum { MARKS = 100 * 1000 };
    static const char *const names[] = {"qwen2", "bert"}, above[] = "\u0301", below[] = "\u0316";
    (void)state;
    char *text[2] = {malloc(4 * MARKS + 1), malloc(4 * MARKS + 1)};
    for (int i = 0; i < 2; i++) {
        char *to = text[i];
        *to++ = 'a';
        for (int k = 0; k < 2 * MARKS; k++, to += 2)
            memcpy(to, (k < MARKS) == !i ? above : below, 2);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[64], dir[] = "/tmp/hearth-tok-XXXXXX", command[64];
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        struct ids ids[2] = {{0}};
        struct timespec a, b;
        assert_non_null(mkdtemp(dir));
        snprintf(file, sizeof file, "%s.tokenizer.json", names[i]);
        json_t *tokenizer = load_json(file);
        write_folder(dir, tokenizer);
        json_decref(tokenizer);
        if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e))
            fail_msg("%s", e.msg);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        for (int k = 0; k < 2; k++)
            if (tok_encode(v, text[k], 4 * MARKS + 1, 0, &ids[k], &e))
                fail_msg("%s", e.msg);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        if (b.tv_sec - a.tv_sec > 20)
            fail_msg("%s: %d marks take %ld s", names[i], 2 * MARKS, (long)(b.tv_sec - a.tv_sec));
        assert_int_equal(ids[0].n, ids[1].n); /* marks of different classes have one order */
        assert_true(!ids[0].n || !memcmp(ids[0].v, ids[1].v, ids[0].n * sizeof *ids[0].v));
        ids_fini(&ids[0]);
        ids_fini(&ids[1]);
        vocab_free(v);
        gguf_close(g);
        snprintf(command, sizeof command, "rm -rf %s", dir);
        assert_int_equal(system(command), 0);
    }
    free(text[0]);
    free(text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define X(name, file) cmocka_unit_test(test_##name),
        KINDS(X)
#undef X
            cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_arrangements),
        cmocka_unit_test(test_persons),
        cmocka_unit_test(test_damaged_table),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_reach_of_three_bytes),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_long_s),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_empty_matches),
        cmocka_unit_test(test_many_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
