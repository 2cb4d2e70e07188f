/*
 * encode.c - text to ids: finds the special tokens, then normalises each stretch between them, finds the tokens that
 * are searched for in normalised text, prepends the space of what is left and passes it to the vocabulary's kind.
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>

enum { TEXT_MAX = 1 << 25 }; /* bytes in one call: working memory is up to 60 times as much */

void ids_fini(struct ids *ids)
{
    free(ids->v);
    *ids = (struct ids){0};
}

int ids_push(struct ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *v = realloc(ids->v, cap * sizeof *v);
        if (!v)
            return HEARTH_ENOMEM;
        ids->v = v;
        ids->cap = cap;
    }
    ids->v[ids->n++] = id;
    return 0;
}

/* When a space is prepended to the stretch that begins here; the result is never PREFIX_FIRST. */
static enum vocab_prefix prefix_at(const struct vocab *v, bool first, int flags)
{
    if (first && (flags & TOK_GOES_ON))
        return PREFIX_NEVER;
    if (v->prefix == PREFIX_FIRST)
        return first ? PREFIX_UNLESS_SPACE : PREFIX_NEVER;
    return v->prefix;
}

/* Tokenises normalised text without special tokens. */
static int encode_plain(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
                        struct hearth_err *e)
{
    return !n                            ? 0
           : v->model == VOCAB_SPM       ? spm_encode(v, text, n, prefix, out, e)
           : v->model == VOCAB_RAW       ? raw_encode(v, text, n, prefix, out, e)
           : v->model == VOCAB_UNIGRAM   ? unigram_encode(v, text, n, prefix, out, e)
           : v->model == VOCAB_WORDPIECE ? wordpiece_encode(v, text, n, out, e)
                                         : bpe_encode(v, text, n, out, e);
}

int tok_push(struct ids *out, int32_t id, struct hearth_err *e)
{
    return ids_push(out, id) ? err_set(e, HEARTH_ENOMEM, "no memory to tokenize") : 0;
}

/* Tokenises whole->s[from..to), in which the tokens are yet to be found that are searched for in normalised text; *k is
 * as in normal_text(). */
static int encode_late(const struct vocab *v, const struct tok_text *whole, size_t from, size_t to, size_t *k,
                       struct ids *out, struct hearth_err *e)
{
    struct tok_text text;
    struct special_span *spans = NULL;
    size_t n_span = 0, at = 0;
    /* a prefix that belongs to the normalised text is there once, whatever tokens are found in it */
    bool once = v->normal_spaces && v->prefix == PREFIX_ALWAYS;
    bool prefix = once && prefix_at(v, from == 0, whole->flags) == PREFIX_ALWAYS;
    int ret = normal_text(v, whole, from, to, k, prefix, &text, e);
    if (ret)
        return ret;
    ret = special_split(v, &text, true, &spans, &n_span, e);
    for (size_t i = 0; i <= n_span && !ret; i++) {
        size_t end = i < n_span ? spans[i].start : text.n;
        enum vocab_prefix when = once ? PREFIX_NEVER : prefix_at(v, from == 0 && at == 0, whole->flags);
        ret = encode_plain(v, text.s + at, end - at, when, out, e);
        if (ret || i == n_span)
            break;
        ret = tok_push(out, spans[i].id, e);
        at = end + spans[i].len;
    }
    free(spans);
    normal_text_fini(&text);
    return ret;
}

/* Tokenises text without special tokens: normalises it and prepends its space. */
static int encode_stretch(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
                          struct hearth_err *e)
{
    char *normal;
    bool stripped = (v->spaces & SPACE_START) && space_at(text, n, false);
    int ret = normalize(v, text, n, &normal, &n, e);
    if (ret)
        return ret;
    if (v->prefix == PREFIX_FIRST && stripped) /* what is left is not the start of the text */
        prefix = PREFIX_NEVER;
    ret = encode_plain(v, normal ? normal : text, n, prefix, out, e);
    free(normal);
    return ret;
}

static int encode(const struct vocab *v, const struct tok_text *whole, struct ids *out, struct hearth_err *e)
{
    const char *text = whole->s;
    struct special_span *spans;
    size_t n_span, was = out->n, at = 0, k = 0, n = whole->n;
    if (n > TEXT_MAX)
        return err_set(e, HEARTH_EPARAMS, "a text of %zu bytes; the limit is %d", n, TEXT_MAX);
    int ret = special_split(v, whole, false, &spans, &n_span, e);
    if (ret)
        return ret;
    if ((whole->flags & TOK_BOS) && v->bos >= 0)
        ret = tok_push(out, v->bos, e);
    /* SentencePiece prepends its space to every stretch of text at the start or after a special token. */
    for (size_t i = 0; i <= n_span && !ret; i++) {
        size_t to = i < n_span ? spans[i].start : n;
        if (to > at && v->late)
            ret = encode_late(v, whole, at, to, &k, out, e);
        else if (to > at)
            ret = encode_stretch(v, text + at, to - at, prefix_at(v, at == 0, whole->flags), out, e);
        if (!ret && i < n_span) {
            ret = tok_push(out, spans[i].id, e);
            at = to + spans[i].len;
        }
    }
    free(spans);
    if (ret)
        out->n = was;
    return ret;
}

int tok_encode(const struct vocab *v, const char *text, size_t n, int flags, struct ids *out, struct hearth_err *e)
{
    return encode(v, &(struct tok_text){.s = text, .n = n, .flags = flags}, out, e);
}

int tok_encode_spans(const struct vocab *v, const char *text, size_t n, int flags, const struct tok_span *span,
                     size_t n_span, struct ids *out, struct hearth_err *e)
{
    return encode(v, &(struct tok_text){text, n, flags | TOK_SPECIAL, span, n_span}, out, e);
}
