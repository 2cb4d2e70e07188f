/* print.c - str() and repr(), as Python prints values. */
#include "daemon/model/chat/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a decimal reads back as the same float. shortest() finds the shortest one that does, in the form of %.*e. */
static bool reads_back(const char *text, double f)
{
    return strtod(text, NULL) == f;
}

/* printf rounds to the nearest decimal of 16 digits. At a power of two, the next decimal above may read back although
 * the nearest one does not, and it is then the shortest. */
static bool next_up(char *text, double f)
{
    char *e = strchr(text, 'e');
    if (!e || e == text || e[-1] == '9')
        return false;
    e[-1]++;
    return reads_back(text, f);
}

static void shortest(char text[40], double f)
{
    int from = fabs(f) < 2.3e-308 ? 1 : 15;
    for (int digits = from; digits <= 17; digits++) {
        snprintf(text, 40, "%.*e", digits - 1, f);
        if (reads_back(text, f) || (digits == 16 && next_up(text, f)))
            return;
    }
}

int float_repr(char *out, double f)
{
    char text[40], digit[24];
    int n = 0, len = 0, exp;
    if (isnan(f) || isinf(f))
        return snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    if (f == 0)
        return snprintf(out, 32, signbit(f) ? "-0.0" : "0.0");
    shortest(text, fabs(f));
    char *e = strchr(text, 'e');
    exp = atoi(e + 1);
    for (char *c = text; c < e; c++)
        if (*c != '.')
            digit[n++] = *c;
    while (n > 1 && digit[n - 1] == '0')
        n--;
    digit[n] = 0;
    if (f < 0)
        out[len++] = '-';
    if (exp < -4 || exp >= 16)
        return len + snprintf(out + len, 31, "%c%s%s%s%02d", digit[0], n > 1 ? "." : "", digit + 1,
                              exp < 0 ? "e-" : "e+", abs(exp));
    if (exp < 0)
        return len + snprintf(out + len, 31, "0.%.*s%s", -exp - 1, "000", digit);
    if (n <= exp + 1)
        return len + snprintf(out + len, 31, "%s%.*s.0", digit, exp + 1 - n, "0000000000000000");
    return len + snprintf(out + len, 31, "%.*s.%s", exp + 1, digit, digit + exp + 1);
}

static void put_int128(struct run *r, int128 i)
{
    char text[48];
    size_t at = sizeof text;
    bool negative = i < 0;
    do {
        int d = (int)(i % 10);
        text[--at] = (char)('0' + (d < 0 ? -d : d));
        i /= 10;
    } while (i);
    if (negative)
        text[--at] = '-';
    put_bytes(r, text + at, sizeof text - at);
}

static void put_repr_code(struct run *r, uint32_t c, char quote)
{
    if (c == (uint32_t)quote || c == '\\')
        put_fmt(r, "\\%c", (int)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        put_text(r, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    else if (code_is_printable(c))
        put_code(r, c);
    else
        put_fmt(r, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

static void put_repr_str(struct run *r, const struct str *s)
{
    char quote = s->n && memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    const char *p = s->p, *end = s->p + s->n;
    if (s->markup)
        put_text(r, "Markup(");
    put_char(r, quote);
    struct mark m = string_begin(r);
    while (p < end)
        put_repr_code(r, code_next(&p), quote);
    put_as(r, m, s);
    put_char(r, quote);
    if (s->markup)
        put_char(r, ')');
}

static void put_items(struct run *r, const struct list *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            put_text(r, ", ");
        put_repr(r, l->v[i]);
    }
}

static void put_dict(struct run *r, const struct dict *d)
{
    put_char(r, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        if (i)
            put_text(r, ", ");
        put_repr(r, d->e[i].k);
        put_text(r, ": ");
        put_repr(r, d->e[i].v);
    }
    put_char(r, '}');
}

static void put_view(struct run *r, struct val v)
{
    static const char *const name[] = {"dict_keys", "dict_values", "dict_items"};
    put_fmt(r, "%s([", name[v.sub]);
    put_items(r, to_list(r, v));
    put_text(r, "])");
}

static void put_range(struct run *r, const struct range *g)
{
    put_fmt(r, "range(%lld, %lld", (long long)g->start, (long long)g->stop);
    if (g->step != 1)
        put_fmt(r, ", %lld", (long long)g->step);
    put_char(r, ')');
}

static void put_nested(struct run *r, struct val v)
{
    run_enter(r);
    if (++r->nest > JINJA_DEPTH_MAX)
        run_fail(r, JINJA_LIMIT, "a value of more than %d levels is printed", JINJA_DEPTH_MAX);
    switch (v.tag) {
    case V_LIST:
        put_char(r, '[');
        put_items(r, v.l);
        put_char(r, ']');
        break;
    case V_TUPLE:
        put_char(r, '(');
        put_items(r, v.l);
        put_text(r, v.l->n == 1 ? ",)" : ")");
        break;
    case V_DICT:
        put_dict(r, v.d);
        break;
    case V_NAMESPACE:
        put_text(r, "<Namespace ");
        put_dict(r, v.d);
        put_char(r, '>');
        break;
    default:
        put_view(r, v);
    }
    r->nest--;
    run_leave(r);
}

void put_repr(struct run *r, struct val v)
{
    char text[32];
    run_charge(r, 1);
    switch (v.tag) {
    case V_MISSING:
    case V_UNDEF:
        put_text(r, "Undefined");
        break;
    case V_NONE:
        put_text(r, "None");
        break;
    case V_BOOL:
        put_text(r, v.b ? "True" : "False");
        break;
    case V_INT:
    case V_BIG:
        put_int128(r, int_of(v));
        break;
    case V_FLOAT:
        put_bytes(r, text, (size_t)float_repr(text, v.f));
        break;
    case V_STR:
        put_repr_str(r, v.s);
        break;
    case V_RANGE:
        put_range(r, v.range);
        break;
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_NAMESPACE:
    case V_VIEW:
        put_nested(r, v);
        break;
    case V_MACRO:
        put_text(r, v.macro->name.tag == V_STR ? "<Macro " : "<Macro anonymous");
        if (v.macro->name.tag == V_STR)
            put_repr(r, v.macro->name);
        put_char(r, '>');
        break;
    case V_LOOP:
        put_fmt(r, "<LoopContext %lld/%lld>", (long long)v.loop->index0 + 1, (long long)loop_length(r, v.loop));
        break;
    default: /* Python prints an address, which no template can have a use for */
        put_fmt(r, "<%s object>", val_type_name(v));
    }
}

void put_val(struct run *r, struct val v)
{
    if (v.tag == V_STR)
        put_str(r, v.s);
    else if (v.tag != V_UNDEF)
        put_repr(r, v);
}

const struct str *to_str(struct run *r, struct val v)
{
    if (v.tag == V_STR)
        return v.s;
    struct mark m = string_begin(r);
    put_val(r, v);
    return string_end(r, m);
}
