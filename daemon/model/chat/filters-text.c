/* filters-text.c - filters that return text. */
#include "daemon/model/chat/builtin.h"

#include <string.h>

#define FILTER(name) static struct val filter_##name(struct run *r, struct val v, struct val *arg)

/* str(v), or v itself where it is a string, so that markup stays markup. */
static const struct str *soft(struct run *r, struct val v)
{
    return to_str(r, v);
}

FILTER(upper)
{
    (void)arg;
    return v_str(text_case(r, soft(r, v), CASE_UPPER));
}
FILTER(lower)
{
    (void)arg;
    return v_str(text_case(r, soft(r, v), CASE_LOWER));
}
FILTER(capitalize)
{
    (void)arg;
    return builtin_call(r, str_method_find(v_text(r, "capitalize").s), v_str(soft(r, v)), &(struct call){0});
}

static bool begins_word(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || code_is_space(c);
}

/* Words begin only after white space, '-' and opening brackets. */
FILTER(title)
{
    const struct str *s = soft(r, v);
    struct mark m = string_begin(r);
    (void)arg;
    for (size_t at = 0, to; at < s->n; at = to) {
        const char *p = s->p + at, *next = p;
        bool gap = begins_word(code_next(&next));
        size_t first = (size_t)(next - s->p);
        for (to = first; to < s->n; to = (size_t)(next - s->p)) {
            next = s->p + to;
            if (begins_word(code_next(&next)) != gap)
                break;
        }
        put_str(r, text_case(r, str_sub(r, s, at, first), CASE_UPPER));
        put_str(r, text_case(r, str_sub(r, s, first, to), CASE_LOWER));
    }
    return v_str(string_end(r, m));
}

FILTER(trim)
{
    return v_str(text_strip(r, soft(r, v), arg[0], true, true));
}

FILTER(replace)
{
    int64_t count = is_missing(arg[2]) || arg[2].tag == V_NONE ? -1 : need_int(r, arg[2], "a count");
    return text_replace(r, plain_str(r, v), plain_str(r, arg[0]), plain_str(r, arg[1]), count);
}

FILTER(center)
{
    struct call c = {.pos = (struct val[]){is_missing(arg[0]) ? v_int(80) : arg[0]}, .n_pos = 1};
    return builtin_call(r, str_method_find(v_text(r, "center").s), v_str(soft(r, v)), &c);
}

static const struct str *indention(struct run *r, struct val width)
{
    struct mark m = string_begin(r);
    if (width.tag == V_STR)
        return width.s;
    put_fill(r, ' ', is_missing(width) ? 4 : need_int(r, width, "a width"));
    return string_end(r, m);
}

FILTER(indent)
{
    const struct str *s = need_str(r, v, "what is indented"), *pad = indention(r, arg[0]);
    bool blank = val_truth(arg[2]);
    struct mark m = string_begin(r);
    put_str(r, s);
    put_char(r, '\n');
    struct val lines = text_lines(r, string_end(r, m), false);
    m = string_begin(r);
    for (uint32_t i = 0; i < lines.l->n; i++) {
        const struct str *line = lines.l->v[i].s;
        if (i)
            put_char(r, '\n');
        if (i ? blank || line->n : val_truth(arg[1]))
            put_str(r, pad);
        put_str(r, line);
    }
    return markup_like(r, s, string_end(r, m));
}

FILTER(truncate)
{
    int64_t limit = is_missing(arg[0]) ? 255 : need_int(r, arg[0], "a length");
    const struct str *end = is_missing(arg[2]) ? v_text(r, "...").s : need_str(r, arg[2], "an end");
    int64_t leeway = is_missing(arg[3]) || arg[3].tag == V_NONE ? 5 : need_int(r, arg[3], "a leeway");
    int64_t n = val_length(r, v), n_end = str_codes(r, end), most;
    if (limit < n_end || leeway < 0)
        type_error(r, "truncate: a length shorter than the end, or a negative leeway");
    if (__builtin_add_overflow(limit, leeway, &most) || n <= most)
        return v;
    const struct str *s = need_str(r, v, "what is truncated");
    size_t to = str_offset(r, s, limit - n_end);
    if (!val_truth(arg[1])) {
        int64_t space = str_rfind(r, s, v_text(r, " ").s, 0, to);
        to = space < 0 ? to : (size_t)space;
    }
    struct mark m = string_begin(r);
    put_str(r, str_sub(r, s, 0, to));
    put_str(r, end);
    return v_str(string_end(r, m));
}

FILTER(wordcount)
{
    const struct str *s = soft(r, v);
    int64_t n = 0;
    bool in = false;
    (void)arg;
    run_charge_bytes(r, (size_t)s->n * 8);
    for (const char *p = s->p; p < s->p + s->n;) {
        bool word = code_is_word(code_next(&p));
        n += word && !in;
        in = word;
    }
    return v_int(n);
}

FILTER(escape)
{
    (void)arg;
    return v_str(text_escape(r, v));
}
FILTER(forceescape)
{
    (void)arg;
    return v_str(text_escape(r, v_str(plain_str(r, v))));
}
FILTER(safe)
{
    struct str *s = str_new(r, NULL, 0);
    (void)arg;
    *s = *soft(r, v);
    s->markup = true;
    return v_str(s);
}
FILTER(string)
{
    (void)arg;
    return v_str(soft(r, v));
}

static void put_quoted(struct run *r, struct val v, bool query)
{
    const struct str *s = to_str(r, v);
    for (uint32_t i = 0; i < s->n; i++) {
        char c = s->p[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("_.-~", c));
        if (plain || (c == '/' && !query))
            put_char(r, c);
        else if (c == ' ' && query)
            put_char(r, '+');
        else
            put_fmt(r, "%%%02X", (unsigned)(unsigned char)c);
    }
}

FILTER(urlencode)
{
    struct mark m = string_begin(r);
    (void)arg;
    if (v.tag == V_STR || !is_iterable(v)) {
        put_quoted(r, v, false);
        return v_str(string_end(r, m));
    }
    struct val pair = v;
    if (v.tag == V_DICT)
        pair = (struct val){.tag = V_VIEW, .sub = VIEW_ITEMS, .d = v.d};
    struct iter *it = iter_new(r, pair);
    for (bool first = true; iter_next(r, it, &pair); first = false) {
        struct list *two = to_list(r, pair);
        if (two->n != 2)
            type_error(r, "urlencode takes pairs");
        if (!first)
            put_char(r, '&');
        put_quoted(r, two->v[0], true);
        put_char(r, '=');
        put_quoted(r, two->v[1], true);
    }
    return v_str(string_end(r, m));
}

static struct val filter_format(struct run *r, struct val v, const struct call *c)
{
    if (c->n_pos && c->n_kw)
        type_error(r, "can't handle positional and keyword arguments at the same time");
    struct val arg = c->n_kw ? dict_new(r, V_DICT) : list_new(r, V_TUPLE, c->n_pos);
    for (uint32_t i = 0; i < c->n_pos; i++)
        list_add(r, arg.l, c->pos[i]);
    for (uint32_t i = 0; i < c->n_kw; i++)
        dict_set(r, arg.d, v_str(c->kw_name[i]), c->kw[i]);
    return format_percent(r, soft(r, v), arg);
}

const struct builtin text_filters[] = {
    {"trim", filter_trim, "chars", 0},
    {"string", filter_string, "", 0},
    {"upper", filter_upper, "", 0},
    {"lower", filter_lower, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"title", filter_title, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"safe", filter_safe, "", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"format", NULL, NULL, 0, filter_format},
    {"center", filter_center, "width", 0},
    {"truncate", filter_truncate, "length killwords end leeway", 0},
    {"wordcount", filter_wordcount, "", 0},
    {"escape", filter_escape, "", 0},
    {"e", filter_escape, "", 0},
    {"forceescape", filter_forceescape, "", 0},
    {"urlencode", filter_urlencode, "", 0},
    {NULL},
};
