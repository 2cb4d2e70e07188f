/*
 * charsmap.c - SentencePiece's normalisation: a table of strings and their replacements, which is compiled into the
 * vocabulary.
 *
 * The table (tokenizer.ggml.precompiled_charsmap; src/normalizer.cc of SentencePiece) is the size in bytes of a trie,
 * the trie, and the replacements, each terminated by a NUL. The trie is a double array in Darts-clone's layout of
 * 32-bit units: a state's child by byte b is at state ^ offset(state) ^ b and has b as its label; the value of a state
 * that ends a string is at state ^ offset(state).
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { REPLACEMENT_MAX = 256, GRAPHEME_MAX = 6 };

static uint32_t unit_at(const struct charsmap *m, size_t at)
{
    uint32_t u = 0;
    if (at < m->n_trie) /* beyond the end, a unit without children */
        memcpy(&u, m->trie + 4 * at, 4);
    return u;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* Finds the longest or, with `shortest`, the shortest string of the table that s[0..n) starts with. Returns its length,
 * 0 where there is none, and its replacement in *to. */
static size_t find(const struct charsmap *m, const char *s, size_t n, bool shortest, const char **to)
{
    size_t found = 0, at = offset_of(unit_at(m, 0));
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s[i];
        at ^= byte;
        uint32_t unit = unit_at(m, at);
        if (at >= m->n_trie || (unit & (1u << 31 | 0xff)) != byte)
            break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1))
            continue;
        uint32_t value = unit_at(m, at) & 0x7fffffff;
        if (value >= m->n_text)
            break;
        *to = m->text + value;
        found = i + 1;
        if (shortest)
            break;
    }
    return found;
}

int charsmap_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    struct charsmap *m = &v->charsmap;
    struct gguf_str table;
    uint32_t size = 0;
    int ret = gguf_bytes(g, key, &table, e);
    if (ret || !table.n)
        return ret < 0 ? ret : 0;
    if (table.n >= 4)
        memcpy(&size, table.s, 4);
    if (size < 4 || size % 4 || size > table.n - 4)
        return err_set(e, HEARTH_EBADMODEL, "key %s: a trie of %u bytes in a table of %zu", key, size, table.n);
    m->trie = table.s + 4;
    m->n_trie = size / 4;
    m->text = table.s + 4 + size;
    m->n_text = table.n - 4 - size;
    if (m->n_text && m->text[m->n_text - 1])
        return err_set(e, HEARTH_EBADMODEL, "key %s: the last replacement has no end", key);
    ret = gguf_bool(g, "hearth.tokenizer.graphemes", &m->graphemes, e);
    return ret < 0 ? ret : 0;
}

struct text {
    char *s;
    size_t n, cap;
};

static int add(struct text *t, const char *s, size_t n, struct hearth_err *e)
{
    if (n > t->cap - t->n) {
        size_t cap = 2 * t->cap + n + 64;
        char *more = realloc(t->s, cap);
        if (!more)
            return err_set(e, HEARTH_ENOMEM, "no memory to normalise a text");
        t->s = more;
        t->cap = cap;
    }
    if (n) /* memcpy to NULL, even of nothing, is undefined */
        memcpy(t->s + t->n, s, n);
    t->n += n;
    return 0;
}

static int add_replacement(struct text *t, const char *s, struct hearth_err *e)
{
    size_t n = strnlen(s, REPLACEMENT_MAX + 1);
    if (n > REPLACEMENT_MAX)
        return err_set(e, HEARTH_EBADMODEL, "a replacement of the vocabulary's normalisation has over %d bytes",
                       REPLACEMENT_MAX);
    return add(t, s, n, e);
}

/* Returns the length of the character at s; a byte that is not UTF-8 counts as one character. */
static size_t char_at(const char *s, size_t n, utf8proc_int32_t *c)
{
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, c);
    return k > 0 ? (size_t)k : 1;
}

/* Returns the length of the grapheme cluster at s (Unicode Standard Annex 29). */
static size_t grapheme_at(const char *s, size_t n)
{
    utf8proc_int32_t c, next, state = 0;
    size_t len = char_at(s, n, &c);
    for (; len < n && c >= 0; c = next) {
        size_t k = char_at(s + len, n - len, &next);
        if (next < 0 || utf8proc_grapheme_break_stateful(c, next, &state))
            break;
        len += k;
    }
    return len;
}

/* SentencePiece's way: replaces the longest string of the table at each position. */
static int longest(const struct charsmap *m, const char *s, size_t n, size_t *used, struct text *out,
                   struct hearth_err *e)
{
    const char *to = NULL;
    utf8proc_int32_t c;
    *used = find(m, s, n, false, &to);
    if (*used)
        return add_replacement(out, to, e);
    *used = char_at(s, n, &c);
    return add(out, s, *used, e);
}

/* The way of the Rust library `tokenizers`: a short grapheme cluster is replaced as a whole by the replacement of the
 * shortest string at its start; otherwise each of its characters is replaced by itself. */
static int grapheme(const struct charsmap *m, const char *s, size_t n, size_t *used, struct text *out,
                    struct hearth_err *e)
{
    const char *to = NULL;
    int ret = 0;
    *used = grapheme_at(s, n);
    if (*used < GRAPHEME_MAX && find(m, s, *used, true, &to))
        return add_replacement(out, to, e);
    for (size_t i = 0, k; i < *used && !ret; i += k) {
        utf8proc_int32_t c;
        k = char_at(s + i, *used - i, &c);
        ret = find(m, s + i, k, true, &to) ? add_replacement(out, to, e) : add(out, s + i, k, e);
    }
    return ret;
}

int charsmap_normalize(const struct vocab *v, const char *text, size_t n, char **out, size_t *n_out,
                       struct hearth_err *e)
{
    struct text t = {.s = malloc(1), .cap = 1}; /* a NULL result would mean "unchanged", even if all text is removed */
    int ret = t.s ? 0 : err_set(e, HEARTH_ENOMEM, "no memory to normalise a text");
    for (size_t i = 0, used; i < n && !ret; i += used)
        ret = (v->charsmap.graphemes ? grapheme : longest)(&v->charsmap, text + i, n - i, &used, &t, e);
    if (ret)
        free(t.s);
    else
        *out = t.s;
    *n_out = t.n;
    return ret;
}
