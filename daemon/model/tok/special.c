/*
 * special.c - finds special tokens in a text.
 *
 * Where occurrences overlap, the rule depends on the vocabulary's source. With a GGUF file the longest token wins
 * wherever it is, then the leftmost: other engines split the text by one token after the other in this order. With a
 * tokenizer.json the leftmost wins, then the longest; some of its tokens are searched for, after the others, in the
 * normalised text that these leave, and by their normalised text. Instead of searching the text once per token
 * (quadratic for vocabularies with thousands), a trie finds every occurrence in one pass.
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>
#include <string.h>

enum { SPECIAL_LEN_MAX = 256 }; /* longer tokens are not searched for, which bounds the time per byte of text */

static uint32_t child_of(const struct special_trie *t, uint32_t node, unsigned char byte)
{
    if (!node)
        return t->first[byte];
    uint32_t c = t->node[node].child;
    while (c && t->node[c].byte != byte)
        c = t->node[c].next;
    return c;
}

static bool is_special(const struct piece *p, struct gguf_str s)
{
    bool its = p->attr == TOK_CONTROL || p->attr == TOK_USER || p->attr == TOK_UNKNOWN || p->named;
    return its && s.n && s.n <= SPECIAL_LEN_MAX;
}

/* Makes a trie with room for texts of `total` bytes in all. */
static int trie_init(struct special_trie *t, size_t total, struct hearth_err *e)
{
    if (total >= UINT32_MAX / 2)
        return err_set(e, HEARTH_EBADMODEL, "the special tokens' texts are %zu bytes long", total);
    t->node = malloc((total + 1) * sizeof *t->node);
    if (!t->node)
        return err_set(e, HEARTH_ENOMEM, "no memory for the special tokens");
    t->node[0] = (struct special_node){.id = -1};
    t->n = 1;
    return 0;
}

static int trie_add(struct special_trie *t, const char *s, size_t n, int32_t id, struct hearth_err *e)
{
    uint32_t node = 0;
    int ret = pace(n, e);
    if (ret)
        return ret;
    for (size_t b = 0; b < n; b++) {
        unsigned char byte = (unsigned char)s[b];
        uint32_t next = child_of(t, node, byte);
        if (!next) {
            next = t->n++;
            t->node[next] = (struct special_node){.id = -1, .byte = byte};
            if (node) {
                t->node[next].next = t->node[node].child;
                t->node[node].child = next;
            } else {
                t->first[byte] = next;
            }
        }
        node = next;
    }
    if (t->node[node].id < 0)
        t->node[node].id = id;
    return 0;
}

/* A special token is found by its text in the file, which may differ from its piece: in SentencePiece, by the
 * spaces. */
int special_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    struct gguf_strs texts, again;
    struct gguf_str s;
    size_t total = 0;
    int ret = gguf_strs(g, "tokenizer.ggml.tokens", &texts, e);
    if (ret)
        return ret < 0 ? ret : err_set(e, HEARTH_EBADMODEL, "key tokenizer.ggml.tokens is missing");
    again = texts;
    for (uint32_t i = 0; i < v->n_tok && gguf_strs_next(&texts, &s); i++)
        total += is_special(&v->piece[i], s) ? s.n : 0;
    ret = trie_init(&v->special, total, e);
    for (uint32_t i = 0; !ret && i < v->n_tok && gguf_strs_next(&again, &s); i++)
        if (!(ret = pace(1, e)) && is_special(&v->piece[i], s) &&
            v->special.n + s.n <= total + 1) /* the file may have changed meanwhile */
            ret = trie_add(&v->special, s.s, s.n, (int32_t)i, e);
    return ret;
}

/* Appends a token's normalised text to the arena; nothing where it is too long to be searched for. */
static int push_normal(const struct vocab *v, struct gguf_str s, char **arena, size_t *n, struct hearth_err *e)
{
    struct tok_text normal, text = {.s = s.s, .n = s.n};
    size_t k = 0;
    int ret = pace(s.n, e); /* normalising reports only texts that are not ASCII */
    if (!ret)
        ret = normal_text(v, &text, 0, s.n, &k, v->prefix == PREFIX_ALWAYS, &normal, e);
    if (ret)
        return ret;
    size_t len = normal.n <= SPECIAL_LEN_MAX ? normal.n : 0;
    char *more = realloc(*arena, *n + len + 1);
    if (more) {
        memcpy(more + *n, normal.s, len);
        *arena = more;
        *n += len;
    } else {
        ret = err_set(e, HEARTH_ENOMEM, "no memory for the special tokens");
    }
    normal_text_fini(&normal);
    return ret;
}

int special_load_late(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    struct gguf_strs texts;
    struct gguf_str s;
    char *arena = NULL;
    size_t total = 0, at = 0;
    if (!v->late)
        return 0;
    uint32_t *end = calloc(v->n_tok, sizeof *end);
    int ret = end ? gguf_strs(g, "tokenizer.ggml.tokens", &texts, e)
                  : err_set(e, HEARTH_ENOMEM, "no memory for the special tokens");
    if (ret > 0) /* the file has changed */
        ret = err_set(e, HEARTH_EBADMODEL, "key tokenizer.ggml.tokens is missing");
    for (uint32_t i = 0; !ret && i < v->n_tok && gguf_strs_next(&texts, &s); i++) {
        if (v->piece[i].late && is_special(&v->piece[i], s))
            ret = push_normal(v, s, &arena, &total, e);
        end[i] = (uint32_t)total;
    }
    if (!ret)
        ret = trie_init(&v->normal, total, e);
    for (uint32_t i = 0; !ret && i < v->n_tok; i++) {
        if (end[i] > at)
            ret = trie_add(&v->normal, arena + at, end[i] - at, (int32_t)i, e);
        at = end[i];
    }
    free(arena);
    free(end);
    return ret;
}

int32_t vocab_special(const struct vocab *v, const char *text)
{
    uint32_t node = 0;
    for (; *text; text++) {
        node = child_of(&v->special, node, (unsigned char)*text);
        if (!node)
            return -1;
    }
    return v->special.node[node].id;
}

/* Whether a user-defined token is turn markup. User-defined tokens are recognised in any text, and while some files
 * give this type to their turn markers, others give it to HTML tags. */
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

size_t space_at(const char *s, size_t n, bool back)
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

/* Like space_at(), for a text in which spaces may be U+2581, which is no white space. */
static size_t taken_at(const char *s, size_t n, bool back, bool low)
{
    size_t k = space_at(s, n, back);
    return low && k == 1 && (back ? s[-1] : s[0]) == ' ' ? 0 : k;
}

/* Extends tokens that strip white space over that white space, up to the neighbouring tokens. */
static void take_spaces(const struct vocab *v, const char *text, size_t n, bool low, struct special_span *span,
                        size_t n_span)
{
    for (size_t i = 0, floor = 0; i < n_span; i++) {
        struct special_span *c = &span[i];
        size_t ceiling = i + 1 < n_span ? span[i + 1].start : n, k;
        uint8_t strip = v->piece[c->id].strip;
        while ((strip & STRIP_LEFT) && (k = taken_at(text + c->start, c->start - floor, true, low)))
            c->start -= (uint32_t)k, c->len += (uint32_t)k;
        while ((strip & STRIP_RIGHT) &&
               (k = taken_at(text + c->start + c->len, ceiling - c->start - c->len, false, low)))
            c->len += (uint32_t)k;
        floor = c->start + c->len;
    }
}

/* --- the split ----------------------------------------------------------------------------------------- */

struct found {
    struct special_span *v;
    size_t n, cap;
};

static int found_push(struct found *f, struct special_span span, struct hearth_err *e)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        struct special_span *more = realloc(f->v, cap * sizeof *more);
        if (!more)
            return err_set(e, HEARTH_ENOMEM, "no memory for %zu special tokens", cap);
        f->v = more;
        f->cap = cap;
    }
    f->v[f->n++] = span;
    return 0;
}

/* The token `id` whose text ends at a trie's node, if it may be recognised at text[i..j], or -1; k is the index of the
 * first person's span that ends after i. */
static int32_t token_at(const struct vocab *v, const struct tok_text *whole, int32_t id, size_t k, size_t j)
{
    bool persons = k < whole->n_span && whole->span[k].from <= j;
    return id >= 0 && wanted(&v->piece[id], whole->flags, persons) ? id : -1;
}

/* Finds all occurrences and keeps the longest ones. */
static int find_longest(const struct vocab *v, const struct tok_text *whole, struct found *f, struct hearth_err *e)
{
    size_t kept = 0, n = whole->n;
    for (size_t i = 0, k = 0; i < n; i++) {
        uint32_t node = 0;
        int ret = pace(1, e);
        while (k < whole->n_span && whole->span[k].to <= i)
            k++;
        for (size_t j = i; !ret && j < n && (node = child_of(&v->special, node, (unsigned char)whole->s[j])); j++) {
            int32_t id = token_at(v, whole, v->special.node[node].id, k, j);
            if (id >= 0)
                ret = found_push(f, (struct special_span){(uint32_t)i, (uint32_t)(j - i + 1), id}, e);
        }
        if (ret)
            return ret;
    }
    if (!f->n)
        return 0;
    unsigned char *taken = calloc(1, n);
    if (!taken)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
    qsort(f->v, f->n, sizeof *f->v, by_length);
    for (size_t i = 0; i < f->n; i++) {
        /* Spans accepted earlier are at least as long, so an overlap covers one of this span's two ends. */
        struct special_span c = f->v[i];
        if (taken[c.start] || taken[c.start + c.len - 1])
            continue;
        memset(taken + c.start, 1, c.len);
        f->v[kept++] = c;
    }
    free(taken);
    f->n = kept;
    qsort(f->v, f->n, sizeof *f->v, by_start);
    take_spaces(v, whole->s, n, false, f->v, f->n);
    return 0;
}

/* Whether a word character touches the token. */
static bool inside_word(const struct tok_text *whole, const struct special_span *c)
{
    size_t end = c->start + c->len;
    return word_at(whole->s, c->start, true) || word_at(whole->s + end, whole->n - end, false);
}

/* Finds the tokens of the trie from left to right, of which those are meant that are `late` or not. */
static int find_leftmost(const struct vocab *v, const struct tok_text *whole, bool late, struct found *f,
                         struct hearth_err *e)
{
    const struct special_trie *t = late ? &v->normal : &v->special;
    int ret = 0;
    for (size_t i = 0, k = 0; i < whole->n && !ret;) {
        uint32_t node = 0;
        struct special_span best = {.start = (uint32_t)i};
        while (k < whole->n_span && whole->span[k].to <= i)
            k++;
        for (size_t j = i; j < whole->n && (node = child_of(t, node, (unsigned char)whole->s[j])); j++) {
            int32_t id = token_at(v, whole, t->node[node].id, k, j);
            if (id >= 0 && v->piece[id].late == late)
                best.len = (uint32_t)(j - i + 1), best.id = id;
        }
        bool taken = best.len && !(v->piece[best.id].word && inside_word(whole, &best));
        ret = taken ? found_push(f, best, e) : 0;
        i += best.len ? best.len : 1;
        if (!ret)
            ret = pace(1, e);
    }
    take_spaces(v, whole->s, whole->n, late && v->normal_spaces, f->v, f->n);
    return ret;
}

int special_split(const struct vocab *v, const struct tok_text *whole, bool late, struct special_span **out,
                  size_t *n_out, struct hearth_err *e)
{
    struct found f = {0};
    int ret = v->leftmost ? find_leftmost(v, whole, late, &f, e) : find_longest(v, whole, &f, e);
    if (ret) {
        free(f.v);
        return ret;
    }
    *out = f.v;
    *n_out = f.n;
    return 0;
}

int suppressed_check(const struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    struct gguf_nums never = {0};
    int ret = gguf_i32s(g, "tokenizer.ggml.suppress_tokens", &never, e);
    for (size_t i = 0; i < never.n; i++) {
        int32_t id = gguf_i32_at(&never, i);
        if (id < 0 || (uint32_t)id >= v->n_tok)
            return err_set(e, HEARTH_EBADMODEL,
                           "token %d is never to be sampled (tokenizer.ggml.suppress_tokens); there are %u tokens", id,
                           v->n_tok);
    }
    return ret < 0 ? ret : 0;
}
