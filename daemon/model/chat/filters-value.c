/* filters-value.c - filters that inspect a value, and filters for numbers. */
#include "daemon/model/chat/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name) static struct val filter_##name(struct run *r, struct val v, struct val *arg)

FILTER(default)
{
    if (v.tag == V_UNDEF || (val_truth(arg[1]) && !val_truth(v)))
        return is_missing(arg[0]) ? v_text(r, "") : arg[0];
    return v;
}

FILTER(tojson)
{
    struct mark m = string_begin(r);
    put_json(r, v, arg);
    return v_str(string_end(r, m));
}

FILTER(attr)
{
    return get_own_attr(r, v, need_str(r, arg[0], "an attribute's name"));
}

/* --- numbers ---------------------------------------------------------------------------------------------- */

/* Returns the text with the digits of any script replaced by ASCII's. NULL where it contains other characters outside
 * ASCII. */
static const char *ascii_number(struct run *r, const struct str *s, uint32_t *n)
{
    char *text = run_alloc_bytes(r, s->n + 1u), *to = text;
    for (const char *p = s->p; p < s->p + s->n;) {
        uint32_t c = code_next(&p);
        int digit = code_decimal(c);
        if (!c || (digit < 0 && c >= 0x80))
            return NULL;
        *to++ = digit < 0 ? (char)c : (char)('0' + digit);
    }
    *n = (uint32_t)(to - text);
    return text;
}

/* Returns the number without surrounding white space and without the underscores between digits; NULL where there are
 * underscores elsewhere. */
static char *number_text(struct run *r, const struct str *s)
{
    uint32_t n = 0;
    const char *p = ascii_number(r, text_strip(r, s, NONE, true, true), &n);
    char *text = run_alloc_bytes(r, n + 1u), *to = text;
    for (uint32_t i = 0; p && i < n; i++) {
        bool inner = i && i + 1 < n && p[i - 1] != '_' && p[i + 1] != '_';
        if (p[i] == '_' && (!inner || !strchr("0123456789abcdefABCDEFoxOX", p[i - 1])))
            return NULL;
        if (p[i] != '_')
            *to++ = p[i];
    }
    *to = 0;
    return *text ? text : NULL;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
}

struct val parse_int(struct run *r, const struct str *s, int64_t base)
{
    const char *p = number_text(r, s);
    int128 n = 0;
    if (!p || base < 0 || base == 1 || base > 36)
        return (struct val){0};
    bool negative = *p == '-';
    p += *p == '-' || *p == '+';
    char kind = *p == '0' ? (char)(p[1] | 0x20) : 0;
    int64_t of = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (of && (base == of || !base)) {
        p += 2;
        base = of;
    } else if (!base) {
        base = 10;
        for (const char *c = p; *p == '0' && *c; c++)
            if (*c != '0')
                return (struct val){0};
    }
    if (!*p)
        return (struct val){0};
    for (; *p; p++) {
        if (digit_of(*p) >= base)
            return (struct val){0};
        if (__builtin_mul_overflow(n, (int128)base, &n) || __builtin_add_overflow(n, digit_of(*p), &n))
            run_fail(r, JINJA_LIMIT, "an integer of more than 128 bits");
    }
    return int_val(r, negative ? -n : n);
}

/* V_MISSING where s is no number. */
static struct val parse_float(struct run *r, const struct str *s)
{
    char *text = number_text(r, s), *end;
    if (!text)
        return (struct val){0};
    const char *p = text + (*text == '-' || *text == '+');
    bool word = !strcasecmp(p, "inf") || !strcasecmp(p, "infinity") || !strcasecmp(p, "nan");
    if (!word && strspn(p, "0123456789.eE+-") != strlen(p))
        return (struct val){0};
    double f = strtod(text, &end);
    return *end ? (struct val){0} : v_float(f);
}

static struct val to_int(struct run *r, double f, struct val def)
{
    if (!isfinite(f))
        return def;
    if (fabs(f) >= 0x1p126)
        run_fail(r, JINJA_LIMIT, "an integer of more than 128 bits");
    return int_val(r, (int128)f);
}

FILTER(int)
{
    struct val def = is_missing(arg[0]) ? v_int(0) : arg[0], found;
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    if (v.tag == V_FLOAT && isinf(v.f))
        type_error(r, "cannot convert float infinity to integer");
    if (v.tag == V_FLOAT)
        return to_int(r, v.f, def);
    if (is_int(v))
        return int_val(r, int_of(v));
    if (v.tag != V_STR)
        return def;
    found = is_missing(arg[1]) || is_int(arg[1])
                ? parse_int(r, v.s, is_missing(arg[1]) ? 10 : need_int(r, arg[1], "a base"))
                : (struct val){0}; /* Python's int() fails here, and the filter falls back to float() */
    if (!is_missing(found))
        return found;
    found = parse_float(r, v.s);
    return is_missing(found) ? def : to_int(r, found.f, def);
}

FILTER(float)
{
    struct val found = {0};
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    if (is_number(v))
        return v_float(float_of(v));
    if (v.tag == V_STR)
        found = parse_float(r, v.s);
    return !is_missing(found) ? found : is_missing(arg[0]) ? v_float(0) : arg[0];
}

FILTER(abs)
{
    (void)arg;
    if (!is_number(v))
        type_error(r, "bad operand type for abs(): '%s'", val_type_name(v));
    if (v.tag == V_FLOAT)
        return v_float(fabs(v.f));
    return int_of(v) < 0 ? op_binary(r, T_SUB, v_int(0), v) : int_val(r, int_of(v));
}

static struct val round_int(struct run *r, int128 i, int64_t digits)
{
    int128 unit = 1;
    if (digits >= 0)
        return int_val(r, i);
    if (digits < -38) /* no integer of 128 bits reaches half of 10^39 */
        return v_int(0);
    for (int64_t k = digits; k < 0; k++)
        unit *= 10;
    int128 rest = i % unit, near = i - rest, size = rest < 0 ? -rest : rest; /* `near` is the multiple towards 0 */
    bool away = size > unit - size || (size == unit - size && (near / unit) % 2 != 0);
    if (away && __builtin_add_overflow(near, i < 0 ? -unit : unit, &near))
        run_fail(r, JINJA_LIMIT, "an integer of more than 128 bits");
    return int_val(r, near);
}

/* Rounds to -n digits before the decimal point (n < 0). */
static double round_left(double f, int n)
{
    char text[400];
    snprintf(text, sizeof text, "%.25e", fabs(f));
    int kept = atoi(strchr(text, 'e') + 1) + n; /* digits after the first one */
    if (kept < 0 && (kept < -1 || fabs(f) <= 5 * pow(10, -n - 1)))
        return copysign(0, f);
    if (kept < 0)
        return copysign(pow(10, -n), f);
    snprintf(text, sizeof text, "%.*e", kept, f);
    return strtod(text, NULL);
}

/* Python's round(v, digits): half to even, applied to the float's exact decimal value. */
static struct val py_round(struct run *r, struct val v, struct val digits)
{
    char text[700];
    bool whole = digits.tag == V_NONE; /* round() without digits returns an integer */
    int64_t n = is_missing(digits) || whole ? 0 : need_int(r, digits, "a precision");
    if (!is_number(v))
        type_error(r, "type %s doesn't define __round__ method", val_type_name(v));
    if (v.tag == V_FLOAT && whole && !isfinite(v.f))
        type_error(r, "cannot convert float infinity or NaN to integer");
    if (v.tag == V_FLOAT && whole)
        return to_int(r, nearbyint(v.f), NONE);
    if (v.tag != V_FLOAT)
        return round_int(r, int_of(v), n);
    if (!isfinite(v.f) || n > 323) /* as in Python: NDIGITS_MAX */
        return v;
    if (n < -308)
        return v_float(copysign(0, v.f));
    if (n < 0) {
        double left = round_left(v.f, (int)n);
        if (isinf(left))
            type_error(r, "rounded value too large to represent");
        return v_float(left);
    }
    snprintf(text, sizeof text, "%.*f", (int)n, v.f);
    return v_float(strtod(text, NULL));
}

FILTER(round)
{
    const struct str *how = is_missing(arg[1]) ? NULL : need_str(r, arg[1], "a method");
    bool up = how && str_is(how, "ceil"), down = how && str_is(how, "floor");
    if (how && !up && !down && !str_is(how, "common"))
        type_error(r, "method must be common, ceil or floor");
    if (!up && !down)
        return py_round(r, v, arg[0]);
    struct val unit = op_binary(r, T_POW, v_int(10), is_missing(arg[0]) ? v_int(0) : arg[0]);
    struct val scaled = op_binary(r, T_MUL, v, unit);
    if (!is_number(scaled))
        type_error(r, "must be real number, not %s", val_type_name(v));
    if (scaled.tag == V_FLOAT) {
        if (!isfinite(scaled.f))
            type_error(r, "cannot convert float infinity or NaN to integer");
        scaled = to_int(r, up ? ceil(scaled.f) : floor(scaled.f), NONE);
    }
    return op_binary(r, T_DIV, scaled, unit);
}

FILTER(filesizeformat)
{
    static const char *const prefix[2][8] = {{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                                             {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    bool binary_units = val_truth(arg[0]);
    struct val f = v.tag == V_STR ? parse_float(r, v.s) : is_number(v) ? v_float(float_of(v)) : (struct val){0};
    double base = binary_units ? 1024 : 1000, unit = base;
    struct mark m = string_begin(r);
    if (is_missing(f))
        type_error(r, "filesizeformat: not a number");
    if (f.f < 0 && isinf(f.f))
        type_error(r, "cannot convert float infinity to integer");
    if (f.f == 1) {
        put_text(r, "1 Byte");
    } else if (f.f < base) {
        put_fmt(r, "%.0f Bytes", trunc(f.f) + 0.0); /* + 0.0 turns -0.0 into 0 */
    } else {
        int i = 0;
        for (unit *= base; i < 7 && !(f.f < unit); i++)
            unit *= base;
        put_fmt(r, "%.1f %s", base * f.f / unit, prefix[binary_units][i]);
    }
    return v_str(string_end(r, m));
}

const struct builtin value_filters[] = {
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision method", 0},
    {"attr", filter_attr, "name", 1},
    {"filesizeformat", filter_filesizeformat, "binary", 0},
    {NULL},
};
