/*
 * unigram.c - the Unigram model (Kudo 2018, "Subword Regularization"; SentencePiece's default): every token has a
 * log-probability, and a word is segmented so that their sum is greatest, by the Viterbi algorithm. A character without
 * a token scores ten less than the worst token, as in SentencePiece, and becomes the tokens of its bytes or the unknown
 * token.
 */
#include "daemon/model/tok/tok-internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_LEN_MAX = 256 }; /* bytes; longer tokens are not looked up, which bounds the time per byte of text */
static const double unknown_penalty = 10;

/* Reads the tokens' log-probabilities: f64 from a tokenizer.json, or f32 from a GGUF file. */
static int load_scores(struct vocab *v, const struct gguf *g, bool *own, struct hearth_err *e)
{
    static const char key[] = "tokenizer.ggml.scores";
    struct gguf_nums scores;
    int ret = gguf_f64s(g, "hearth.tokenizer.scores", &scores, e);
    *own = ret == 0;
    if (ret > 0)
        ret = gguf_f32s(g, key, &scores, e);
    if (ret)
        return ret < 0 ? ret : err_set(e, HEARTH_EBADMODEL, "key %s is missing", key);
    if (scores.n != v->n_tok)
        return err_set(e, HEARTH_EBADMODEL, "%zu scores for %u tokens", scores.n, v->n_tok);
    v->score = malloc(v->n_tok * sizeof *v->score);
    if (!v->score)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u scores", v->n_tok);
    for (uint32_t i = 0; i < v->n_tok; i++) {
        v->score[i] = *own ? gguf_f64_at(&scores, i) : (double)gguf_f32_at(&scores, i);
        if (!isfinite(v->score[i]))
            return err_set(e, HEARTH_EBADMODEL, "the score of token %u is not a number", i);
        if (v->score[i] < v->worst && (*own || v->piece[i].attr == TOK_NORMAL))
            v->worst = v->score[i];
    }
    return 0;
}

int unigram_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    bool own; /* the scores are a tokenizer.json's, which has patterns; SentencePiece does not split the text */
    int ret = load_scores(v, g, &own, e);
    for (uint32_t i = 0; i < v->n_tok && !ret; i++)
        if (v->unk < 0 && v->piece[i].attr == TOK_UNKNOWN)
            v->unk = (int32_t)i;
    if (!ret)
        ret = bpe_load_pre(v, g, own ? NULL : "whole", "gemma4", e);
    return ret ? ret : spm_load_pieces(v, e);
}

/* The best segmentation up to each byte of a word. */
struct node {
    double sum;
    int32_t id;     /* the token that ends here; -1: a character without a token */
    uint32_t start; /* where it begins; UINT32_MAX: no path ends here */
};

static size_t char_len(const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    size_t size = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return size < n ? size : n;
}

static void offer(struct node *at, double sum, int32_t id, uint32_t start)
{
    if (at->start == UINT32_MAX || sum > at->sum)
        *at = (struct node){sum, id, start};
}

/* In a tokenizer.json, the name of a byte's token is also a piece of the text. */
static int32_t named_byte(const struct vocab *v, const char *s)
{
    int byte = spm_byte(s);
    return byte < 0 || (s[3] > 'F' || s[4] > 'F') ? -1 : v->byte_id[byte];
}

static int search(const struct vocab *v, const char *s, size_t n, struct node *best, struct hearth_err *e)
{
    int ret;
    for (size_t i = 0; i <= n; i++)
        best[i].start = UINT32_MAX;
    best[0] = (struct node){0, -1, 0};
    for (size_t i = 0; i < n;) {
        if ((ret = pace(TOKEN_LEN_MAX / 4, e)))
            return ret;
        size_t first = char_len(s + i, n - i), most = n - i < TOKEN_LEN_MAX ? n - i : TOKEN_LEN_MAX;
        bool single = false;
        for (size_t len = first; len <= most; len += char_len(s + i + len, n - i - len)) {
            int32_t id = piece_find(v, s + i, len);
            if (id < 0 && len == SPM_BYTE && v->leftmost)
                id = named_byte(v, s + i);
            if (id >= 0) {
                offer(&best[i + len], best[i].sum + v->score[id], id, (uint32_t)i);
                single |= len == first;
            }
            if (len == n - i)
                break;
        }
        if (!single)
            offer(&best[i + first], best[i].sum + v->worst - unknown_penalty, -1, (uint32_t)i);
        i += first;
    }
    return 0;
}

/* Walks the best path backwards, stores the end offsets of its steps in ascending order, and appends their tokens. */
static int push_path(const struct vocab *v, const char *s, size_t n, const struct node *best, struct ids *out,
                     struct hearth_err *e)
{
    size_t n_step = 0, at = n;
    for (; at; at = best[at].start)
        n_step++;
    uint32_t *end = malloc((n_step + 1) * sizeof *end);
    if (!end)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize");
    size_t k = n_step;
    for (at = n; at; at = best[at].start)
        end[--k] = (uint32_t)at;
    int ret = 0;
    for (k = 0; k < n_step && !ret; k++) {
        const struct node *step = &best[end[k]];
        uint32_t start = step->start;
        if (step->id >= 0) {
            ret = tok_push(out, step->id, e);
            continue;
        }
        while (k + 1 < n_step && best[end[k + 1]].id < 0) /* consecutive unknown characters are one unknown token */
            k++;
        ret = raw_push_bytes(v, s + start, end[k] - start, out, e);
    }
    free(end);
    return ret;
}

int unigram_encode(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
                   struct hearth_err *e)
{
    struct raw_words words;
    struct node *best = NULL;
    size_t longest = 0;
    int ret = raw_words_init(&words, v, text, n, prefix, e);
    if (ret)
        return ret;
    for (size_t w = 0, from, to; w < words.n; w++)
        if (pretok_word(words.end, w, &from, &to))
            longest = to - from > longest ? to - from : longest;
    best = malloc((longest + 1) * sizeof *best);
    if (!best)
        ret = err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
    for (size_t w = 0, from, to; w < words.n && !ret; w++) {
        if (!pretok_word(words.end, w, &from, &to))
            continue;
        if ((ret = search(v, words.text + from, to - from, best, e)))
            break;
        ret = push_path(v, words.text + from, to - from, best, out, e);
    }
    free(best);
    raw_words_fini(&words);
    return ret;
}
