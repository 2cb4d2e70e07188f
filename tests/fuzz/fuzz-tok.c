/*
 * fuzz-tok.c - any bytes as text, in the embedded model's vocabulary and in a made-up SentencePiece one: the ids of a
 * text must decode to the same bytes, with special tokens parsed or not.
 */
#include "config.h" /* memfd_create */

#include "daemon/model/tok/tok.h"
#include "tests/unit/model/gguf-build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LOW     "\xe2\x96\x81" /* a space */
#define LOW_THE (LOW "the")
#define LOW_A   (LOW "a")
#define LOW_LOW (LOW LOW)

static struct vocab *bpe, *spm;
static struct gguf *files[2]; /* a vocabulary borrows its file */

static struct vocab *load(const char *path, struct gguf **g)
{
    struct vocab *v;
    struct hearth_err e = {0};
    if (gguf_open(g, path, &e) || vocab_load(&v, *g, &e)) {
        fprintf(stderr, "%s: %s\n", path, e.msg);
        exit(1);
    }
    return v;
}

/* 256 byte tokens, a few words, a user-defined token. */
static struct vocab *load_spm(void)
{
    static const char *const words[] = {LOW,   "a",     "b",   "e",     "h",        "t",  "th",  "he",
                                        "the", LOW_THE, LOW_A, LOW_LOW, "\xc3\xa9", "aa", "aaaa"};
    enum { WORDS = sizeof words / sizeof *words, N = 3 + 256 + WORDS + 1 };
    struct build b = {0};
    char path[64];
    put_header(&b, 3, 0, 4);
    key_str(&b, "tokenizer.ggml.model", "llama");
    key_arr(&b, "tokenizer.ggml.tokens", T_STR, N);
    put_str(&b, "<unk>");
    put_str(&b, "<s>");
    put_str(&b, "</s>");
    for (int i = 0; i < 256; i++) {
        char hex[8];
        snprintf(hex, sizeof hex, "<0x%02X>", i);
        put_str(&b, hex);
    }
    for (int i = 0; i < WORDS; i++)
        put_str(&b, words[i]);
    put_str(&b, "<tab>");
    key_arr(&b, "tokenizer.ggml.token_type", T_I32, N);
    for (int i = 0; i < N; i++)
        put32(&b, i == 0 ? TOK_UNKNOWN : i < 3 ? TOK_CONTROL : i < 259 ? TOK_BYTE : i < N - 1 ? TOK_NORMAL : TOK_USER);
    key_arr(&b, "tokenizer.ggml.scores", T_F32, N);
    for (int i = 0; i < N; i++)
        put(&b, &(float){-(float)i}, 4);
    int fd = build_file(&b, path);
    struct vocab *v = load(path, &files[1]);
    close(fd);
    free(b.p);
    return v;
}

static void check(const struct vocab *v, const char *text, size_t n, int flags)
{
    struct hearth_err e = {0};
    struct ids ids = {0};
    size_t at = 0;
    bool fresh = tok_adds_space(v); /* a dummy space is inserted next */
    if (tok_encode(v, text, n, flags, &ids, &e))
        abort();
    for (size_t i = 0; i < ids.n; i++) {
        char piece[256];
        size_t len = tok_piece(v, ids.v[i], true, piece, sizeof piece), skip = 0;
        bool special = ids.v[i] == vocab_special(v, "<tab>") || !tok_piece(v, ids.v[i], false, piece, 0);
        if (!special && fresh && (skip = 1) && piece[0] != ' ')
            abort();
        fresh = special && tok_adds_space(v);
        for (size_t k = skip; k < len; k++, at++) {
            bool same = at < n && text[at] == piece[k];
            /* SentencePiece cannot distinguish U+2581 from a space. */
            if (!same && piece[k] == ' ' && n - at >= 3 && !memcmp(text + at, "\xe2\x96\x81", 3)) {
                at += 2;
                same = true;
            }
            if (!same)
                abort();
        }
    }
    if (at != n)
        abort();
    ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!bpe) {
        char path[4096];
        const char *dir = getenv("top_srcdir");
        snprintf(path, sizeof path, "%s/contrib/models/tale-q4_k_m.gguf", dir ? dir : ".");
        bpe = load(path, &files[0]);
        spm = load_spm();
    }
    for (int flags = 0; flags <= TOK_SPECIAL; flags += TOK_SPECIAL) {
        check(bpe, (const char *)data, size, flags);
        check(spm, (const char *)data, size, flags);
    }
    return 0;
}
