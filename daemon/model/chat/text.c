/* text.c - shared by string methods and filters: cases, stripping, splitting, replacing, joining, escaping. */
#include "daemon/model/chat/builtin.h"

#include <string.h>

/* Returns s as the same kind of string (markup or not) as `like`, from which it was made. */
struct val markup_like(struct run *r, const struct str *like, const struct str *s)
{
    if (s->markup == like->markup)
        return v_str(s);
    struct str *as = str_new(r, NULL, 0);
    *as = *s;
    as->markup = like->markup;
    return v_str(as);
}

/* --- cases ------------------------------------------------------------------------------------------------ */

/* A capital sigma is final, which has a lower case of its own, if a cased letter precedes it and none follows, ignoring
 * case-ignorable characters in between (Unicode's Final_Sigma). */
static bool final_sigma(const char *from, const char *at, const char *end)
{
    const char *p = at + 2;
    bool before = false;
    while (at > from && !before) {
        do
            at--;
        while (at > from && !code_begins(*at));
        const char *c = at;
        uint32_t code = code_next(&c);
        before = code_is_cased(code);
        if (!before && !code_is_case_ignorable(code))
            return false;
    }
    while (p < end && before) {
        uint32_t code = code_next(&p);
        if (code_is_cased(code))
            return false;
        if (!code_is_case_ignorable(code))
            break;
    }
    return before;
}

static void put_case(struct run *r, const char *from, const char *at, const char *end, enum unicode_case to)
{
    uint32_t out[3], c = code_next(&(const char *){at});
    int n = code_case(c, to, out);
    if (c == 0x3a3 && (to == CASE_LOWER || to == CASE_SWAP) && final_sigma(from, at, end))
        out[0] = 0x3c2;
    for (int i = 0; i < n; i++)
        put_code(r, out[i]);
}

const struct str *text_case(struct run *r, const struct str *s, enum unicode_case to)
{
    struct mark m = string_begin(r);
    const char *p = s->p, *end = s->p + s->n;
    bool cased = false;
    run_charge_bytes(r, (size_t)s->n * 16);
    while (p < end) {
        const char *at = p;
        uint32_t c = code_next(&p);
        put_case(r, s->p, at, end, to == CASE_TITLE && cased ? CASE_LOWER : to);
        cased = to == CASE_TITLE && code_is_cased(c);
    }
    put_as(r, m, s);
    return markup_like(r, s, string_end(r, m)).s;
}

/* --- stripping -------------------------------------------------------------------------------------------- */

static bool strips(const char *at, const struct str *chars)
{
    uint32_t c = code_next(&at);
    if (!chars)
        return code_is_space(c);
    for (const char *p = chars->p; p < chars->p + chars->n;)
        if (code_next(&p) == c)
            return true;
    return false;
}

const struct str *text_strip(struct run *r, const struct str *s, struct val chars, bool left, bool right)
{
    const struct str *set = is_missing(chars) || chars.tag == V_NONE ? NULL : need_str(r, chars, "what is stripped");
    size_t from = 0, to = s->n;
    if (set)
        run_charge_bytes(r, (size_t)s->n * set->n / 4);
    while (left && from < to && strips(s->p + from, set))
        do
            from++;
        while (from < to && !code_begins(s->p[from]));
    while (right && to > from) {
        size_t at = to - 1;
        while (!code_begins(s->p[at]))
            at--;
        if (!strips(s->p + at, set))
            break;
        to = at;
    }
    run_charge_bytes(r, s->n - (to - from));
    return str_sub(r, s, from, to);
}

/* --- lines, replacing, joining ---------------------------------------------------------------------------- */

static size_t line_end(const char *p, const char *end) /* bytes of the line end at p; 0: none */
{
    const char *next = p;
    uint32_t c = code_next(&next);
    if (c == '\r' && next < end && *next == '\n')
        return 2;
    bool is = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return is ? (size_t)(next - p) : 0;
}

struct val text_lines(struct run *r, const struct str *s, bool keep_ends)
{
    struct val out = list_new(r, V_LIST, 0);
    size_t from = 0, at = 0;
    run_charge_bytes(r, s->n);
    while (at < s->n) {
        size_t n = code_begins(s->p[at]) ? line_end(s->p + at, s->p + s->n) : 0;
        if (!n) {
            at++;
            continue;
        }
        list_add(r, out.l, v_str(str_sub(r, s, from, at + (keep_ends ? n : 0))));
        from = at += n;
    }
    if (from < s->n)
        list_add(r, out.l, v_str(str_sub(r, s, from, s->n)));
    return out;
}

struct val text_replace(struct run *r, const struct str *s, const struct str *old, const struct str *to, int64_t count)
{
    struct mark m = string_begin(r);
    size_t at = 0;
    if (count < 0)
        count = INT64_MAX;
    while (count-- > 0) {
        int64_t found = str_find(r, s, old, at, s->n);
        if (found < 0)
            break;
        if (!old->n) { /* before every code point and at the end */
            put_str(r, to);
            if (at == s->n)
                break;
            const struct str *c = str_char(r, s, at);
            put_str(r, c);
            at += c->n;
            run_charge(r, 1);
            continue;
        }
        put_str(r, str_sub(r, s, at, (size_t)found));
        put_str(r, to);
        at = (size_t)found + old->n;
        run_charge(r, 1);
    }
    if (at < s->n)
        put_str(r, str_sub(r, s, at, s->n));
    return v_str(string_end(r, m));
}

struct val text_join(struct run *r, const struct str *sep, struct val items, bool any_type)
{
    struct iter *it = iter_new(r, items);
    struct mark m = string_begin(r);
    struct val v;
    for (int64_t i = 0; iter_next(r, it, &v); i++) {
        if (!any_type && !sep->markup && v.tag != V_STR)
            type_error(r, "sequence item %lld: expected str instance, %s found", (long long)i, val_type_name(v));
        if (i)
            put_str(r, sep);
        put_val(r, !any_type && sep->markup ? v_str(text_escape(r, v)) : v);
    }
    return markup_like(r, any_type ? plain_str(r, v_str(sep)) : sep, string_end(r, m));
}

/* --- markup ----------------------------------------------------------------------------------------------- */

const struct str *text_escape(struct run *r, struct val v)
{
    const struct str *s = to_str(r, v);
    if (s->markup)
        return s;
    struct mark m = string_begin(r);
    size_t from = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *to = s->p[i] == '&'    ? "&amp;"
                         : s->p[i] == '<'  ? "&lt;"
                         : s->p[i] == '>'  ? "&gt;"
                         : s->p[i] == '\'' ? "&#39;"
                         : s->p[i] == '"'  ? "&#34;"
                                           : NULL;
        if (!to)
            continue;
        put_str(r, str_sub(r, s, from, i));
        put_text(r, to);
        from = i + 1;
    }
    put_str(r, str_sub(r, s, from, s->n));
    struct str *out = string_end(r, m);
    out->markup = true;
    return out;
}
