/*
 * special.c - finds special tokens in a text.
 *
 * Where occurrences overlap, the longest token wins wherever it stands, then the one further left: other engines split
 * the text in this order, one token after the other. Instead of searching the text once per token (quadratic for
 * vocabularies with thousands), a trie finds every occurrence in one pass.
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>
#include <string.h>

enum { SPECIAL_LEN_MAX = 256 }; /* longer tokens are not searched for, which bounds the time per byte of text */

static uint32_t child_of(const struct vocab *v, uint32_t node, unsigned char byte)
{
    if (!node)
        return v->special_first[byte];
    uint32_t c = v->special[node].child;
    while (c && v->special[c].byte != byte)
        c = v->special[c].next;
    return c;
}

int special_load(struct vocab *v, struct hearth_err *e)
{
    size_t total = 1;
    int ret = pace(v->n_tok, e);
    if (ret)
        return ret;
    for (uint32_t i = 0; i < v->n_tok; i++)
        if (v->piece[i].attr == TOK_CONTROL || v->piece[i].attr == TOK_USER || v->piece[i].attr == TOK_UNKNOWN)
            total += v->piece[i].n <= SPECIAL_LEN_MAX ? v->piece[i].n : 0;
    if (total > UINT32_MAX / 2)
        return err_set(e, HEARTH_EBADMODEL, "the special tokens' texts are %zu bytes long", total);
    v->special = malloc(total * sizeof *v->special);
    if (!v->special)
        return err_set(e, HEARTH_ENOMEM, "no memory for the special tokens");
    v->special[0] = (struct special_node){.id = -1};
    v->n_special = 1;
    for (uint32_t i = 0; i < v->n_tok; i++) {
        const struct piece *p = &v->piece[i];
        if ((p->attr != TOK_CONTROL && p->attr != TOK_USER && p->attr != TOK_UNKNOWN) || p->n > SPECIAL_LEN_MAX ||
            !p->n)
            continue;
        uint32_t node = 0;
        for (uint32_t b = 0; b < p->n; b++) {
            unsigned char byte = (unsigned char)p->s[b];
            uint32_t next = child_of(v, node, byte);
            if (!next) {
                next = v->n_special++;
                v->special[next] = (struct special_node){.id = -1, .byte = byte};
                if (node) {
                    v->special[next].next = v->special[node].child;
                    v->special[node].child = next;
                } else {
                    v->special_first[byte] = next;
                }
            }
            node = next;
        }
        if (v->special[node].id < 0)
            v->special[node].id = (int32_t)i;
    }
    return 0;
}

int32_t vocab_special(const struct vocab *v, const char *text)
{
    uint32_t node = 0;
    for (; *text; text++) {
        node = child_of(v, node, (unsigned char)*text);
        if (!node)
            return -1;
    }
    return v->special[node].id;
}

/* Some files call their turn markers user-defined, which are tokens in any text; so are HTML's tags in others. */
static bool is_markup(const struct piece *p)
{
    static const char *const texts[] = {"<start_of_turn>", "<s>", "<bos>", "<user>", "<assistant>", "<system>"};
    if ((p->n > 2 && !memcmp(p->s, "<|", 2)) || (p->n > 4 && !memcmp(p->s, "<\xef\xbd\x9c", 4)))
        return true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strlen(texts[i]) == p->n && !memcmp(texts[i], p->s, p->n))
            return true;
    return false;
}

static bool wanted(const struct piece *p, int flags, bool persons)
{
    if (persons)
        return p->attr == TOK_USER && !is_markup(p);
    if (p->attr != TOK_USER)
        return flags & TOK_SPECIAL;
    return !(flags & TOK_MESSAGE) || p->s[0] != '<';
}

static int by_length(const void *a, const void *b)
{
    const struct special_span *x = a, *y = b;
    if (x->len != y->len)
        return x->len > y->len ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int by_start(const void *a, const void *b)
{
    const struct special_span *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Returns the length of the white space (Unicode's White_Space) that begins at s, or with `back` ends there. */
static size_t space_at(const char *s, size_t n, bool back)
{
    static const char *const spaces[] = {
        "\t",           "\n",           "\v",           "\f",           "\r",           " ",
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
        "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
        "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
        "\xe3\x80\x80"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        size_t len = strlen(spaces[i]);
        if (len <= n && !memcmp(back ? s - len : s, spaces[i], len))
            return len;
    }
    return 0;
}

/* Extends tokens that strip white space over it, up to the tokens before and after. */
static void take_spaces(const struct vocab *v, const char *text, size_t n, struct special_span *span, size_t n_span)
{
    for (size_t i = 0, floor = 0; i < n_span; i++) {
        struct special_span *c = &span[i];
        size_t ceiling = i + 1 < n_span ? span[i + 1].start : n, k;
        uint8_t strip = v->piece[c->id].strip;
        while ((strip & STRIP_LEFT) && (k = space_at(text + c->start, c->start - floor, true)))
            c->start -= (uint32_t)k, c->len += (uint32_t)k;
        while ((strip & STRIP_RIGHT) && (k = space_at(text + c->start + c->len, ceiling - c->start - c->len, false)))
            c->len += (uint32_t)k;
        floor = c->start + c->len;
    }
}

int special_split(const struct vocab *v, const struct tok_text *whole, struct special_span **out, size_t *n_out,
                  struct hearth_err *e)
{
    const char *text = whole->s;
    struct special_span *found = NULL;
    unsigned char *taken = NULL;
    size_t n_found = 0, cap = 0, kept = 0, n = whole->n;
    for (size_t i = 0, k = 0; i < n; i++) {
        uint32_t node = 0;
        int ret = pace(1, e);
        if (ret) {
            free(found);
            return ret;
        }
        while (k < whole->n_span && whole->span[k].to <= i)
            k++;
        for (size_t j = i; j < n && (node = child_of(v, node, (unsigned char)text[j])); j++) {
            int32_t id = v->special[node].id;
            if (id < 0 || !wanted(&v->piece[id], whole->flags, k < whole->n_span && whole->span[k].from <= j))
                continue;
            if (n_found == cap) {
                cap = cap ? cap * 2 : 16;
                struct special_span *more = realloc(found, cap * sizeof *found);
                if (!more)
                    goto no_memory;
                found = more;
            }
            found[n_found++] = (struct special_span){(uint32_t)i, (uint32_t)(j - i + 1), id};
        }
    }
    if (n_found) {
        taken = calloc(1, n);
        if (!taken)
            goto no_memory;
        qsort(found, n_found, sizeof *found, by_length);
        for (size_t i = 0; i < n_found; i++) {
            /* Spans taken before are at least as long, so an overlap covers one of this span's two ends. */
            struct special_span c = found[i];
            if (taken[c.start] || taken[c.start + c.len - 1])
                continue;
            memset(taken + c.start, 1, c.len);
            found[kept++] = c;
        }
        qsort(found, kept, sizeof *found, by_start);
        take_spaces(v, text, n, found, kept);
    }
    free(taken);
    *out = found;
    *n_out = kept;
    return 0;

no_memory:
    free(found);
    return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
}
