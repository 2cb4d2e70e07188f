/*
 * raw.c - BPE over the characters of a text rather than over its bytes: gemma4, and SentencePiece vocabularies as
 * tokenizer.json has them. A space is written as U+2581; what no token spells becomes the tokens of its bytes.
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

/* A character that is no token: its bytes, else the token for what is unknown, else nothing can be said. */
static int push_bytes(const struct vocab *v, const char *s, uint32_t n, struct ids *out, struct hearth_err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = v->byte_id[(unsigned char)s[i]];
        if (id < 0 && v->unk < 0)
            return err_set(e, HEARTH_EPARAMS, "the vocabulary has no token for byte 0x%02x", (unsigned char)s[i]);
        if (ids_push(out, id >= 0 ? id : v->unk))
            return err_set(e, HEARTH_ENOMEM, "no memory to tokenize");
        if (id < 0)
            return 0; /* one unknown token for the whole character */
    }
    return 0;
}

static int encode_word(const struct vocab *v, const char *text, size_t from, size_t to, struct merger *m,
                       struct ids *out, struct hearth_err *e)
{
    int ret = 0;
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
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", to - from);
    for (int32_t i = m->n_sym ? 0 : -1; i >= 0 && !ret; i = m->sym[i].next) {
        const struct sym *s = &m->sym[i];
        if (s->id >= 0 && (uint32_t)s->id < v->n_tok)
            ret = ids_push(out, s->id) ? err_set(e, HEARTH_ENOMEM, "no memory to tokenize") : 0;
        else
            ret = push_bytes(v, text + s->start, s->len, out, e);
    }
    return ret;
}

int raw_encode(const struct vocab *v, const char *text, size_t n, bool first, struct ids *out, struct hearth_err *e)
{
    uint32_t *ends = NULL;
    size_t n_word = 0, len = 0;
    char *buf = malloc(n + 1);
    if (!buf)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
    if (v->prefix == PREFIX_ALWAYS || (v->prefix == PREFIX_FIRST && first && text[0] != ' '))
        buf[len++] = ' ';
    len += (size_t)spm_decode(text, n, buf + len);
    int ret = pretok_split(v->pre, buf, len, &ends, &n_word, e);
    struct merger m = {0};
    for (size_t w = 0, from = 0; w < n_word && !ret; from = ends[w++])
        ret = encode_word(v, buf, from, ends[w], &m, out, e);
    merger_fini(&m);
    free(ends);
    free(buf);
    return ret;
}
