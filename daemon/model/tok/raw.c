/*
 * raw.c - BPE over the characters of a text rather than over its bytes: gemma4, and SentencePiece vocabularies of a
 * tokenizer.json. A character without a token becomes the tokens of its bytes (byte fallback). The vocabulary's U+2581
 * is a space in its pieces here.
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>
#include <string.h>

int raw_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    int ret = bpe_load_pre(v, g, NULL, "gemma4", e);
    if (!ret)
        ret = spm_load_pieces(v, e);
    return ret ? ret : bpe_load_merges(v, g, spm_decode, e);
}

int raw_push_bytes(const struct vocab *v, const char *s, uint32_t n, struct ids *out, struct hearth_err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = v->byte_id[(unsigned char)s[i]];
        if (id < 0 && v->unk < 0)
            return err_set(e, HEARTH_EPARAMS, "the vocabulary has no token for byte 0x%02x", (unsigned char)s[i]);
        if (tok_push(out, id >= 0 ? id : v->unk, e))
            return HEARTH_ENOMEM;
        if (id < 0)
            return 0; /* one unknown token for the whole character */
    }
    return 0;
}

static int encode_word(const struct vocab *v, const char *text, size_t from, size_t to, struct merger *m,
                       struct ids *out, struct hearth_err *e)
{
    int ret = 0;
    if (v->ignore_merges && to > from) {
        int32_t id = piece_find(v, text + from, to - from);
        if (id >= 0 && (uint32_t)id < v->n_tok)
            return tok_push(out, id, e);
    }
    m->n_sym = 0;
    for (size_t i = from; i < to && !ret;) {
        unsigned char c = (unsigned char)text[i];
        size_t size = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (size > to - i)
            size = to - i;
        ret = merger_push(m, (uint32_t)i, (uint32_t)size, piece_find(v, text + i, size));
        i += size;
    }
    if (!ret)
        ret = merger_run(m, v, text, bpe_pair);
    if (ret)
        return tok_failed(ret, to - from, e);
    bool unknown = false; /* whether the previous symbol was unknown */
    for (int32_t i = m->n_sym ? 0 : -1; i >= 0 && !ret; i = m->sym[i].next) {
        const struct sym *s = &m->sym[i];
        bool was = unknown;
        size_t n = out->n;
        unknown = false;
        if (s->id >= 0 && (uint32_t)s->id < v->n_tok) {
            ret = tok_push(out, s->id, e);
            continue;
        }
        ret = raw_push_bytes(v, text + s->start, s->len, out, e);
        unknown = !ret && out->n == n + 1 && out->v[n] == v->unk;
        if (unknown && was && v->fuse_unknown)
            out->n = n;
    }
    return ret;
}

int raw_words_init(struct raw_words *w, const struct vocab *v, const char *text, size_t n, enum vocab_prefix when,
                   struct hearth_err *e)
{
    *w = (struct raw_words){.text = malloc(n + 1)};
    if (!w->text)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
    size_t len = (size_t)spm_decode(text, n, w->text + 1);
    bool prefix = when == PREFIX_ALWAYS || (when == PREFIX_UNLESS_SPACE && w->text[1] != ' ');
    if (prefix)
        w->text[0] = ' ';
    else
        memmove(w->text, w->text + 1, len);
    int ret = pretok_split(v->pre, w->text, len + prefix, &w->end, &w->n, e);
    if (ret)
        free(w->text);
    return ret;
}

void raw_words_fini(struct raw_words *w)
{
    free(w->end);
    free(w->text);
}

int raw_encode(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
               struct hearth_err *e)
{
    struct raw_words words;
    struct merger m = {0};
    int ret = raw_words_init(&words, v, text, n, prefix, e);
    if (ret)
        return ret;
    for (size_t w = 0, from, to; w < words.n && !ret; w++)
        if (pretok_word(words.end, w, &from, &to) && !(ret = pace(to - from, e)))
            ret = encode_word(v, words.text, from, to, &m, out, e);
    merger_fini(&m);
    raw_words_fini(&words);
    return ret;
}
