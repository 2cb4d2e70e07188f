/* json.c - reads JSON as Python's json.loads does, and writes it as transformers' tojson does. */
#include "daemon/model/chat/exec.h"
#include "libclient/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- writing ---------------------------------------------------------------------------------------------- */

struct style {
    bool ascii, sort, lines;
    const struct str *indent, *comma, *colon;
};

static void put_escaped(struct run *r, uint32_t c, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (known)
        put_fmt(r, "\\%c", to[known - from]);
    else if (c < 0x20 || (ascii && c > 0x7e && c < 0x10000))
        put_fmt(r, "\\u%04x", c);
    else if (ascii && c >= 0x10000)
        put_fmt(r, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    else
        put_code(r, c);
}

static void put_json_str(struct run *r, const struct str *s, const struct style *y)
{
    const char *p = s->p, *end = s->p + s->n;
    put_char(r, '"');
    struct mark m = string_begin(r);
    while (p < end) {
        const char *plain = p;
        while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\' &&
               (!y->ascii || (unsigned char)*p < 0x7f))
            p++;
        put_bytes(r, plain, (size_t)(p - plain));
        if (p < end)
            put_escaped(r, code_next(&p), y->ascii);
    }
    put_as(r, m, s);
    put_char(r, '"');
}

static void put_float(struct run *r, double f)
{
    char text[32];
    if (isnan(f) || isinf(f))
        put_text(r, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    else
        put_bytes(r, text, (size_t)float_repr(text, f));
}

static void put_line(struct run *r, const struct style *y, int depth)
{
    if (!y->lines)
        return;
    put_char(r, '\n');
    for (int i = 0; i < depth; i++)
        put_str(r, y->indent);
}

static void put_json_val(struct run *r, struct val v, const struct style *y, int depth);

static void put_key(struct run *r, struct val k, const struct style *y)
{
    if (k.tag == V_STR) {
        put_json_str(r, k.s, y);
        return;
    }
    if (!is_number(k) && k.tag != V_NONE)
        type_error(r, "keys must be str, int, float, bool or None, not %s", val_type_name(k));
    put_char(r, '"');
    put_json_val(r, k, y, 0);
    put_char(r, '"');
}

static void put_json_dict(struct run *r, const struct dict *d, const struct style *y, int depth)
{
    struct val all = list_new(r, V_LIST, d->n), keys = list_new(r, V_LIST, d->n);
    for (uint32_t i = 0; i < d->n; i++) {
        list_add(r, all.l, v_int(i));
        list_add(r, keys.l, d->e[i].k);
    }
    if (y->sort)
        sort_values(r, all.l, keys.l, false);
    put_char(r, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        const struct entry *e = &d->e[all.l->v[i].i];
        if (i)
            put_str(r, y->comma);
        put_line(r, y, depth + 1);
        put_key(r, e->k, y);
        put_str(r, y->colon);
        put_json_val(r, e->v, y, depth + 1);
    }
    if (d->n)
        put_line(r, y, depth);
    put_char(r, '}');
}

static void put_json_list(struct run *r, const struct list *l, const struct style *y, int depth)
{
    put_char(r, '[');
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            put_str(r, y->comma);
        put_line(r, y, depth + 1);
        put_json_val(r, l->v[i], y, depth + 1);
    }
    if (l->n)
        put_line(r, y, depth);
    put_char(r, ']');
}

static void put_json_val(struct run *r, struct val v, const struct style *y, int depth)
{
    run_charge(r, 1);
    if (depth > JINJA_DEPTH_MAX)
        run_fail(r, JINJA_LIMIT, "a value of more than %d levels is written as JSON", JINJA_DEPTH_MAX);
    switch (v.tag) {
    case V_NONE:
        put_text(r, "null");
        break;
    case V_BOOL:
        put_text(r, v.b ? "true" : "false");
        break;
    case V_INT:
    case V_BIG:
        put_repr(r, v);
        break;
    case V_FLOAT:
        put_float(r, v.f);
        break;
    case V_STR:
        put_json_str(r, v.s, y);
        break;
    case V_LIST:
    case V_TUPLE:
        put_json_list(r, v.l, y, depth);
        break;
    case V_DICT:
        put_json_dict(r, v.d, y, depth);
        break;
    default:
        type_error(r, "Object of type %s is not JSON serializable", val_type_name(v));
    }
}

static const struct str *separator(struct run *r, struct val pair, uint32_t i, const char *def)
{
    if (is_missing(pair) || pair.tag == V_NONE)
        return v_text(r, def).s;
    struct list *two = to_list(r, pair);
    if (two->n != 2)
        type_error(r, "separators are two strings");
    return need_str(r, two->v[i], "a separator");
}

void put_json(struct run *r, struct val v, const struct val *arg)
{
    struct style y = {.ascii = val_truth(arg[0]), .sort = val_truth(arg[3])};
    y.lines = !is_missing(arg[1]) && arg[1].tag != V_NONE;
    if (y.lines && arg[1].tag == V_STR) {
        y.indent = arg[1].s;
    } else if (y.lines) {
        struct mark m = string_begin(r);
        put_fill(r, ' ', need_int(r, arg[1], "an indent"));
        y.indent = string_end(r, m);
    }
    y.comma = separator(r, arg[2], 0, y.lines ? "," : ", ");
    y.colon = separator(r, arg[2], 1, ": ");
    put_json_val(r, v, &y, 0);
}

/* --- reading ---------------------------------------------------------------------------------------------- */

struct reader {
    struct run *r;
    const char *p, *end;
    enum origin origin;
    int depth;
};

static _Noreturn void bad_json(struct reader *j, const char *what)
{
    run_fail(j->r, JINJA_INPUT, "not JSON: %s", what);
}

static void skip_blank(struct reader *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
        j->p++;
}

static bool read_char(struct reader *j, char c)
{
    skip_blank(j);
    if (j->p == j->end || *j->p != c)
        return false;
    j->p++;
    return true;
}

static uint32_t read_hex(struct reader *j)
{
    uint32_t c = 0;
    for (int i = 0; i < 4; i++, j->p++) {
        if (j->p == j->end || !strchr("0123456789abcdefABCDEF", *j->p) || !*j->p)
            bad_json(j, "a \\u escape without four hexadecimal digits");
        c = c * 16 + (uint32_t)(*j->p <= '9' ? *j->p - '0' : (*j->p | 0x20) - 'a' + 10);
    }
    return c;
}

static void read_escape(struct reader *j)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = j->p < j->end ? *j->p++ : 0;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        put_char(j->r, to[known - from]);
        return;
    }
    if (c != 'u')
        bad_json(j, "an unknown escape in a string");
    uint32_t high = read_hex(j);
    if (high >= 0xd800 && high < 0xdc00 && j->end - j->p >= 6 && j->p[0] == '\\' && j->p[1] == 'u') {
        const char *back = j->p;
        j->p += 2;
        uint32_t low = read_hex(j);
        if (low >= 0xdc00 && low < 0xe000)
            high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        else
            j->p = back;
    }
    put_code(j->r, high);
}

static struct val read_str(struct reader *j)
{
    const char *from = j->p;
    while (j->p < j->end && *j->p != '"' && *j->p != '\\' && (unsigned char)*j->p >= 0x20)
        j->p++;
    struct str *s;
    if (j->p < j->end && *j->p == '"') {
        s = str_new(j->r, from, (size_t)(j->p - from));
    } else {
        struct mark m = string_begin(j->r);
        for (;;) {
            put_bytes(j->r, from, (size_t)(j->p - from));
            if (j->p == j->end || (unsigned char)*j->p < 0x20)
                bad_json(j, "a string that does not end, or a control character in it");
            if (*j->p == '"')
                break;
            j->p++;
            read_escape(j);
            from = j->p;
            while (j->p < j->end && *j->p != '"' && *j->p != '\\' && (unsigned char)*j->p >= 0x20)
                j->p++;
        }
        s = string_end(j->r, m);
    }
    j->p++;
    s->origin = (uint8_t)(s->n ? j->origin : ORIGIN_TEMPLATE);
    return v_str(s);
}

static const char *skip_digits(struct reader *j, const char *p)
{
    const char *from = p;
    while (p < j->end && *p >= '0' && *p <= '9')
        p++;
    if (p == from)
        bad_json(j, "no value where one is expected");
    return p;
}

static struct val read_number(struct reader *j)
{
    const char *from = j->p, *p = from + (*from == '-');
    bool real = false;
    int128 n = 0;
    const char *digits = p;
    p = skip_digits(j, p);
    if (*digits == '0' && p > digits + 1)
        bad_json(j, "a number with a leading zero");
    const char *end_digits = p;
    if (p < j->end && *p == '.') {
        real = true;
        p = skip_digits(j, p + 1);
    }
    if (p < j->end && (*p | 0x20) == 'e') {
        real = true;
        p++;
        p += p < j->end && (*p == '+' || *p == '-');
        p = skip_digits(j, p);
    }
    j->p = p;
    if (real) {
        char *text = run_alloc_bytes(j->r, (size_t)(p - from) + 1);
        memcpy(text, from, (size_t)(p - from));
        text[p - from] = 0;
        return v_float(strtod(text, NULL));
    }
    for (; digits < end_digits; digits++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *digits - '0', &n))
            run_fail(j->r, JINJA_LIMIT, "an integer of more than 128 bits");
    return int_val(j->r, *from == '-' ? -n : n);
}

static struct val read_val(struct reader *j);

static struct val read_list(struct reader *j)
{
    struct val out = list_new(j->r, V_LIST, 0);
    if (read_char(j, ']'))
        return out;
    do
        list_add(j->r, out.l, read_val(j));
    while (read_char(j, ','));
    if (!read_char(j, ']'))
        bad_json(j, "a list that does not end");
    return out;
}

static void read_pair(struct reader *j, struct dict *d, const char *const *own)
{
    enum origin was = j->origin;
    if (!read_char(j, '"'))
        bad_json(j, "an object's key that is no string");
    struct val key = read_str(j);
    if (!read_char(j, ':'))
        bad_json(j, "an object's key without a value");
    for (; own && *own; own++)
        if (str_is(key.s, *own))
            j->origin = ORIGIN_TEMPLATE;
    dict_set(j->r, d, key, read_val(j));
    j->origin = was;
}

static struct val read_dict(struct reader *j, const char *const *own)
{
    struct val out = dict_new(j->r, V_DICT);
    if (read_char(j, '}'))
        return out;
    do
        read_pair(j, out.d, own);
    while (read_char(j, ','));
    if (!read_char(j, '}'))
        bad_json(j, "an object that does not end");
    return out;
}

static struct val read_word(struct reader *j)
{
    static const struct {
        const char *word;
        struct val v;
    } words[] = {{"null", {.tag = V_NONE}}, {"true", {.tag = V_BOOL, .b = true}}, {"false", {.tag = V_BOOL}}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(j->end - j->p) < n || memcmp(j->p, words[i].word, n) != 0)
            continue;
        j->p += n;
        return words[i].v;
    }
    bad_json(j, "no value where one is expected");
}

static struct val read_val(struct reader *j)
{
    struct val v;
    skip_blank(j);
    if (++j->depth > JINJA_DEPTH_MAX)
        run_fail(j->r, JINJA_LIMIT, "JSON of more than %d levels", JINJA_DEPTH_MAX);
    char c = j->p < j->end ? *j->p : 0;
    j->p += c == '"' || c == '[' || c == '{';
    if (c == '"')
        v = read_str(j);
    else if (c == '[')
        v = read_list(j);
    else if (c == '{')
        v = read_dict(j, NULL);
    else if (c == '-' || (c >= '0' && c <= '9'))
        v = read_number(j);
    else
        v = read_word(j);
    j->depth--;
    return v;
}

struct val json_read(struct run *r, const char *text, size_t n, const char *const *own)
{
    struct reader j = {.r = r, .p = text, .end = text + n, .origin = ORIGIN_CONTEXT};
    if (utf8_prefix(text, n) != n)
        bad_json(&j, "bytes that are not UTF-8");
    if (!read_char(&j, '{'))
        run_fail(r, JINJA_INPUT, "not a JSON object, as in {\"messages\": [...]}");
    struct val v = read_dict(&j, own);
    skip_blank(&j);
    if (j.p != j.end)
        bad_json(&j, "something behind the object");
    return v;
}
