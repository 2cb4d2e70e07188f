/* filters-rare.c - filters that models' templates hardly use: wordwrap, modelled on Python's textwrap, and those for
 * markup and for inspecting values. */
#include "config.h"

#include "daemon/model/chat/builtin.h"

#include <string.h>

#define FILTER(name) static struct val filter_##name(struct run *r, struct val v, struct val *arg)

/* --- wordwrap --------------------------------------------------------------------------------------------- */

/* A line as code points and the byte offset of each. A chunk is a word, a part of one, or white space. */
struct chunk_of {
    uint32_t from, to;
};
struct wrap {
    struct run *r;
    const struct str *line;
    uint32_t *code, *at;
    uint32_t n;
    struct chunk_of *chunk;
    uint32_t n_chunk, cap_chunk;
    int64_t width;
    bool cut_words, cut_at_hyphens;
};

static bool is_blank(uint32_t c) /* textwrap only counts ASCII white space */
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_letter(const struct wrap *w, int64_t i)
{
    return i >= 0 && i < w->n && code_is_word(w->code[i]) && code_decimal(w->code[i]) < 0;
}

/* Whether a dash begins at i: two or more hyphens between words. */
static bool is_dash(const struct wrap *w, uint32_t i)
{
    uint32_t to = i, before = i ? w->code[i - 1] : 0;
    bool after_word = i && (code_is_word(before) || (before && before < 0x80 && strchr("!\"'&.,?", (int)before)));
    while (after_word && to < w->n && w->code[to] == '-')
        to++;
    return to - i >= 2 && to < w->n && code_is_word(w->code[to]);
}

/* Whether a word may be broken after the hyphen at i: there must be two letters on each side, between which there may
 * be another hyphen. */
static bool is_hyphen(const struct wrap *w, int64_t i)
{
    const uint32_t *c = w->code;
    if (c[i] != '-' || !is_letter(w, i - 1) || !is_letter(w, i + 1))
        return false;
    bool left = is_letter(w, i - 2) || (i >= 3 && c[i - 2] == '-' && is_letter(w, i - 3));
    return left && (is_letter(w, i + 2) || (i + 2 < w->n && c[i + 2] == '-' && is_letter(w, i + 3)));
}

static uint32_t chunk_end(const struct wrap *w, uint32_t from, bool hyphens)
{
    uint32_t to = from;
    bool blank = is_blank(w->code[from]);
    if (!blank && hyphens && w->code[from] == '-' && is_dash(w, from)) {
        while (w->code[to] == '-')
            to++;
        return to;
    }
    while (++to < w->n && is_blank(w->code[to]) == blank) {
        if (blank || !hyphens)
            continue;
        if (is_hyphen(w, to))
            return to + 1;
        if (is_dash(w, to))
            return to;
    }
    return to;
}

static bool is_all_space(const struct wrap *w, struct chunk_of c)
{
    for (uint32_t i = c.from; i < c.to; i++)
        if (!code_is_space(w->code[i]))
            return false;
    return true;
}

/* How much of a word that is longer than a line goes into the `left` remaining characters of this line: up to its last
 * hyphen there, if something other than hyphens precedes it. */
static uint32_t cut(const struct wrap *w, struct chunk_of c, uint32_t left)
{
    uint32_t last = left, other = 0;
    if (!w->cut_at_hyphens)
        return left;
    while (last && w->code[c.from + last - 1] != '-')
        last--;
    while (other + 1 < last && w->code[c.from + other] == '-')
        other++;
    return other + 1 < last ? last : left;
}

static void wrap_line(struct wrap *w, const struct str *newline)
{
    uint32_t lines = 0;
    for (uint32_t i = 0; i < w->n_chunk;) {
        if (lines && is_all_space(w, w->chunk[i]) && ++i == w->n_chunk)
            break;
        struct chunk_of line = {w->chunk[i].from, w->chunk[i].from}, last = {0};
        uint32_t n = 0;
        run_charge(w->r, 1);
        for (; i < w->n_chunk && w->chunk[i].to - line.from <= w->width; i++, n++)
            last = w->chunk[i], line.to = last.to;
        struct chunk_of *next = i < w->n_chunk ? &w->chunk[i] : NULL;
        bool longer = next && next->to - next->from > w->width;
        if (longer && w->cut_words) {
            uint32_t left = (uint32_t)(w->width - (line.to - line.from));
            last = (struct chunk_of){next->from, next->from + cut(w, *next, left)};
            line.to = next->from = last.to;
            n++;
        } else if (longer && !n) {
            last = *next, line.to = last.to;
            i++, n++;
        }
        if (n && is_all_space(w, last)) {
            line.to = last.from;
            n--;
        }
        if (!n)
            continue;
        if (lines++)
            put_str(w->r, newline);
        put_str(w->r, str_sub(w->r, w->line, w->at[line.from], w->at[line.to]));
    }
}

static void read_line(struct wrap *w, const struct str *line, bool hyphens)
{
    w->line = line;
    w->n = w->n_chunk = 0;
    w->code = run_alloc(w->r, line->n + 1u, sizeof *w->code);
    w->at = run_alloc(w->r, line->n + 1u, sizeof *w->at);
    run_charge_bytes(w->r, (size_t)line->n * 16);
    for (const char *p = line->p; p < line->p + line->n;) {
        w->at[w->n] = (uint32_t)(p - line->p);
        w->code[w->n++] = code_next(&p);
    }
    w->at[w->n] = line->n;
    for (uint32_t from = 0, to; from < w->n; from = to) {
        to = chunk_end(w, from, hyphens);
        w->chunk = run_grow(w->r, w->chunk, w->n_chunk, &w->cap_chunk, sizeof *w->chunk);
        w->chunk[w->n_chunk++] = (struct chunk_of){from, to};
    }
}

FILTER(wordwrap)
{
    struct wrap w = {.r = r, .cut_words = is_missing(arg[1]) || val_truth(arg[1])};
    bool hyphens = is_missing(arg[3]) || (arg[3].tag == V_BOOL && arg[3].b); /* textwrap requires True itself */
    w.width = is_missing(arg[0]) ? 79 : need_int(r, arg[0], "a width");
    w.cut_at_hyphens = is_missing(arg[3]) || val_truth(arg[3]);
    const struct str *newline =
        is_missing(arg[2]) || arg[2].tag == V_NONE ? v_text(r, "\n").s : need_str(r, arg[2], "a line's end");
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    struct val lines = text_lines(r, need_str(r, v, "what is wrapped"), false);
    if (lines.l->n && w.width <= 0)
        type_error(r, "invalid width %lld (must be > 0)", (long long)w.width);
    struct mark m = string_begin(r);
    for (uint32_t i = 0; i < lines.l->n; i++) {
        if (i)
            put_str(r, newline);
        read_line(&w, lines.l->v[i].s, hyphens);
        wrap_line(&w, newline);
    }
    return v_str(string_end(r, m));
}

/* --- markup ----------------------------------------------------------------------------------------------- */

/* Removes everything from `begin` to `end`, repeatedly; returns the new length. */
static size_t remove_between(struct run *r, char *s, size_t n, const char *begin, const char *end)
{
    for (;;) {
        char *from = memmem(s, n, begin, strlen(begin)), *to;
        run_charge_bytes(r, n);
        if (!from || !(to = memmem(from, n - (size_t)(from - s), end, strlen(end))))
            return n;
        to += strlen(end);
        memmove(from, to, n - (size_t)(to - s));
        n -= (size_t)(to - from);
    }
}

/* Puts the character for a character reference at s and returns the reference's length, 0 where there is none. Only the
 * most common of HTML's thousands of names are known; others are an error. */
static size_t put_reference(struct run *r, const char *s, size_t n)
{
    static const struct {
        const char *name, *text;
    } known[] = {{"&amp;", "&"}, {"&lt;", "<"},   {"&gt;", ">"},          {"&quot;", "\""},
                 {"&#39;", "'"}, {"&#34;", "\""}, {"&nbsp;", "\xc2\xa0"}, {"&apos;", "'"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t len = strlen(known[i].name);
        if (len > n || memcmp(s, known[i].name, len) != 0)
            continue;
        put_text(r, known[i].text);
        return len;
    }
    if (n > 1 && (s[1] == '#' || ((s[1] | 0x20) >= 'a' && (s[1] | 0x20) <= 'z')))
        type_error(r, "striptags: the character reference '%.*s' is not supported", n > 8 ? 8 : (int)n, s);
    return 0;
}

FILTER(striptags)
{
    const struct str *s = to_str(r, v);
    char *text = run_alloc_bytes(r, s->n + 1u);
    (void)arg;
    memcpy(text, s->p, s->n);
    size_t n = remove_between(r, text, s->n, "<!--", "-->");
    n = remove_between(r, text, n, "<", ">");
    struct mark m = string_begin(r);
    bool gap = false, any = false;
    for (const char *p = text; p < text + n;) {
        const char *at = p;
        if (code_is_space(code_next(&p))) {
            gap = any;
            continue;
        }
        if (gap)
            put_char(r, ' ');
        size_t used = *at == '&' ? put_reference(r, at, (size_t)(text + n - at)) : 0;
        if (used)
            p = at + used;
        else
            put_bytes(r, at, (size_t)(p - at));
        gap = false;
        any = true;
    }
    put_as(r, m, s);
    return v_str(string_end(r, m));
}

FILTER(xmlattr)
{
    bool space = is_missing(arg[0]) || val_truth(arg[0]), any = false;
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    if (v.tag != V_DICT)
        type_error(r, "'%s' object has no items", val_type_name(v));
    struct mark m = string_begin(r);
    for (uint32_t i = 0; i < v.d->n; i++) {
        const struct entry *e = &v.d->e[i];
        if (e->v.tag == V_NONE || e->v.tag == V_UNDEF)
            continue;
        const struct str *key = need_str(r, e->k, "an attribute's name");
        for (uint32_t k = 0; k < key->n; k++)
            if (is_blank((unsigned char)key->p[k]) || strchr("/>=", key->p[k] ? key->p[k] : 'x'))
                type_error(r, "Invalid character in attribute name");
        if (any || space)
            put_char(r, ' ');
        any = true;
        put_str(r, text_escape(r, e->k));
        put_text(r, "=\"");
        put_str(r, text_escape(r, e->v));
        put_char(r, '"');
    }
    return v_str(string_end(r, m));
}

/* --- pprint ----------------------------------------------------------------------------------------------- */

/* Returns the same value with the keys of dicts sorted. */
static struct val in_order(struct run *r, struct val v)
{
    run_enter(r);
    if (is_seq(v)) {
        struct val out = list_new(r, v.tag, v.l->n);
        for (uint32_t i = 0; i < v.l->n; i++)
            list_add(r, out.l, in_order(r, v.l->v[i]));
        v = out;
    } else if (v.tag == V_DICT) {
        struct val keys = list_new(r, V_LIST, v.d->n), out = dict_new(r, V_DICT);
        for (uint32_t i = 0; i < v.d->n; i++)
            list_add(r, keys.l, v.d->e[i].k);
        sort_values(r, keys.l, copy_list(r, keys, V_LIST).l, false);
        for (uint32_t i = 0; i < keys.l->n; i++)
            dict_set(r, out.d, keys.l->v[i], in_order(r, dict_get(r, v.d, keys.l->v[i])));
        v = out;
    }
    run_leave(r);
    return v;
}

FILTER(pprint)
{
    struct mark m = string_begin(r);
    (void)arg;
    put_repr(r, in_order(r, v));
    const struct str *s = string_end(r, m);
    if (str_codes(r, s) > 80 && (is_seq(v) || v.tag == V_DICT || v.tag == V_STR))
        type_error(r, "pprint: a value of more than one line is not supported");
    return v_str(s);
}

const struct builtin rare_filters[] = {
    {"wordwrap", filter_wordwrap, "width break_long_words wrapstring break_on_hyphens", 0},
    {"striptags", filter_striptags, "", 0},
    {"xmlattr", filter_xmlattr, "autospace", 0},
    {"pprint", filter_pprint, "", 0},
    {NULL},
};
