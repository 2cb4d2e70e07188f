/* format.c - Python's two ways of formatting: "%s" % x and "{}".format(x). */
#include "daemon/model/chat/exec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The format specification of a conversion, for both ways. */
struct spec {
    bool alt, zero, left, space, plus, sign; /* sign: one was specified, '-' included */
    char grouping;                           /* ',' or '_', 0: none */
    uint32_t fill;
    char align;               /* '<', '>', '^', '='; 0: the type's default */
    int64_t width, precision; /* -1: none */
    char type;                /* 0: none */
};

/* Puts a sign (with a prefix such as 0x), zeros up to the precision of an integer, and digits, padded to the width. */
static void put_number(struct run *r, const struct spec *y, const char *sign, int64_t zeros, const char *digits,
                       size_t n)
{
    int64_t room = y->width - (int64_t)strlen(sign) - zeros - (int64_t)n;
    char align = y->align ? y->align : y->left ? '<' : y->zero ? '=' : '>';
    uint32_t fill = y->fill ? y->fill : y->zero && align == '=' ? '0' : ' ';
    int64_t before = align == '>' ? room : align == '^' ? room / 2 : 0;
    if (y->grouping && fill == '0' && align == '=' && room > 0)
        type_error(r, "zeros in front of grouped digits are not supported");
    put_fill(r, fill, room > 0 ? before : 0);
    put_text(r, sign);
    if (align == '=')
        put_fill(r, fill, room);
    put_fill(r, '0', zeros);
    put_bytes(r, digits, n);
    if (room > 0 && (align == '<' || align == '^'))
        put_fill(r, fill, room - before);
}

static const char *sign_of(const struct spec *y, bool negative)
{
    return negative ? "-" : y->plus ? "+" : y->space ? " " : "";
}

/* Groups digits by `each` from the right: by three, or by four in bases 2, 8 and 16. */
static size_t group(char *to, const char *digits, size_t n, char sep, size_t each)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && sep && (n - i) % each == 0)
            to[out++] = sep;
        to[out++] = digits[i];
    }
    return out;
}

static void put_int(struct run *r, const struct spec *y, int128 i, bool percent)
{
    char digits[160], text[400], sign[8];
    size_t n = sizeof digits, base = y->type == 'x' || y->type == 'X' ? 16
                                     : y->type == 'o'                 ? 8
                                     : y->type == 'b'                 ? 2
                                                                      : 10;
    unsigned __int128 u = i < 0 ? -(unsigned __int128)i : (unsigned __int128)i;
    do
        digits[--n] = (y->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[(size_t)(u % base)];
    while (u /= base);
    if (percent && y->precision > (int64_t)JINJA_OUTPUT_MAX)
        run_fail(r, JINJA_LIMIT, "a precision of more than %zu digits", JINJA_OUTPUT_MAX);
    int64_t zeros = percent ? y->precision - (int64_t)(sizeof digits - n) : 0;
    size_t len = group(text, digits + n, sizeof digits - n, y->grouping, base == 10 ? 3 : 4);
    snprintf(sign, sizeof sign, "%s%s", sign_of(y, i < 0),
             !y->alt || base == 10 ? ""
             : y->type == 'X'      ? "0X"
             : base == 16          ? "0x"
             : base == 8           ? "0o"
                                   : "0b");
    put_number(r, y, sign, zeros > 0 ? zeros : 0, text, len);
}

/* Rewrites the n digits of an integer as one digit, a fraction and an exponent; alt: keeps the point and trailing
 * zeros. */
static int exponential(char *text, int n, bool alt)
{
    int last = n;
    while (!alt && last > 1 && text[last - 1] == '0')
        last--;
    memmove(text + 2, text + 1, (size_t)last - 1);
    text[1] = '.';
    last += last > 1 || alt;
    return last + snprintf(text + last, 8, "e+%02d", n - 1);
}

/* Formats a float. Without a type it has the form of repr() or, with a precision, that of 'g' with at least one
 * decimal. */
static size_t float_digits(struct run *r, const struct spec *y, double f, char *text, size_t size)
{
    int precision = y->precision < 0 ? 6 : (int)y->precision;
    char fmt[16];
    if (y->precision > 300)
        run_fail(r, JINJA_LIMIT, "a precision of more than 300 digits");
    if (!y->type && y->precision < 0)
        return (size_t)float_repr(text, f);
    char type = y->type == 'n' ? 'g' : y->type == '%' ? 'f' : y->type ? y->type : 'g';
    if (type == 'g' && !y->type && y->precision == 0)
        precision = 1;
    snprintf(fmt, sizeof fmt, "%%%s.*%c", y->alt ? "#" : "", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = snprintf(text, size - 3, fmt, precision, f); /* flags and one of the letters eEfFgG */
#pragma GCC diagnostic pop
    int whole = (int)strspn(text, "0123456789");
    whole = *text == '0' && f != 0 ? 0 : whole;
    if (!y->type && isfinite(f) && !strchr(text, 'e') &&
        whole >= precision) /* the result must have a decimal or an exponent */
        n = exponential(text, whole, y->alt);
    else if (!y->type && isfinite(f) && !strpbrk(text, ".e"))
        n += snprintf(text + n, 3, ".0");
    if (y->type == '%')
        text[n++] = '%';
    return (size_t)n;
}

static void put_real(struct run *r, const struct spec *y, double f)
{
    char text[700], grouped[900];
    bool negative = signbit(f) && !isnan(f);
    size_t n = float_digits(r, y, fabs(y->type == '%' ? f * 100 : f), text, sizeof text), whole = 0;
    while (whole < n && text[whole] >= '0' && text[whole] <= '9')
        whole++;
    size_t len = group(grouped, text, whole, y->grouping, 3);
    memcpy(grouped + len, text + whole, n - whole);
    struct spec plain = *y;
    if (!isfinite(f) && y->zero && !y->fill)
        plain.zero = false;
    put_number(r, &plain, sign_of(y, negative), 0, grouped, len + n - whole);
}

static void put_string(struct run *r, const struct spec *y, const struct str *s)
{
    if (y->precision >= 0)
        s = str_sub(r, s, 0, str_offset(r, s, y->precision));
    int64_t room = y->width - str_codes(r, s);
    char align = y->align ? y->align : y->left ? '<' : '>';
    int64_t before = room <= 0 ? 0 : align == '>' ? room : align == '^' ? room / 2 : 0;
    put_fill(r, y->fill ? y->fill : ' ', before);
    put_str(r, s);
    put_fill(r, y->fill ? y->fill : ' ', room > 0 ? room - before : 0);
}

/* --- % ---------------------------------------------------------------------------------------------------- */

struct percent {
    struct run *r;
    const struct str *fmt;
    const char *p, *end;
    struct val arg;
    uint32_t at; /* index of the tuple's next item */
    bool used;
};

static struct val next_arg(struct percent *f)
{
    bool tuple = f->arg.tag == V_TUPLE;
    if (tuple ? f->at >= f->arg.l->n : f->used)
        type_error(f->r, "not enough arguments for format string");
    f->used = true;
    return tuple ? f->arg.l->v[f->at++] : f->arg;
}

static char take(struct percent *f)
{
    if (f->p == f->end)
        type_error(f->r, "incomplete format");
    return *f->p++;
}

static struct val keyed_arg(struct percent *f)
{
    const char *from = f->p;
    int depth = 1;
    while (depth) {
        char c = take(f);
        depth += (c == '(') - (c == ')');
    }
    if (f->arg.tag != V_DICT)
        type_error(f->r, "format requires a mapping");
    struct val v = dict_get_str(f->r, f->arg.d, str_new(f->r, from, (size_t)(f->p - from - 1)));
    if (is_missing(v))
        type_error(f->r, "a key of the format is not in the mapping");
    f->used = true;
    return v;
}

static int64_t take_number(struct percent *f)
{
    int64_t n = 0;
    if (f->p < f->end && *f->p == '*') {
        f->p++;
        return need_int(f->r, next_arg(f), "a width or precision");
    }
    for (; f->p < f->end && *f->p >= '0' && *f->p <= '9'; f->p++)
        n = n > INT32_MAX ? n : n * 10 + (*f->p - '0');
    return n;
}

static const struct str *repr_str(struct run *r, struct val v)
{
    struct mark m = string_begin(r);
    put_repr(r, v);
    return string_end(r, m);
}

/* Python's ascii(): repr() with escapes for everything that is not ASCII. */
static const struct str *ascii_str(struct run *r, struct val v)
{
    const struct str *s = repr_str(r, v);
    struct mark m = string_begin(r);
    for (const char *p = s->p; p < s->p + s->n;) {
        uint32_t c = code_next(&p);
        if (c < 0x80)
            put_char(r, (char)c);
        else
            put_fmt(r, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    put_as(r, m, s);
    return string_end(r, m);
}

static void put_percent_arg(struct percent *f, struct spec *y, struct val v)
{
    struct run *r = f->r;
    switch (y->type) {
    case 's':
        put_string(r, y, f->fmt->markup ? text_escape(r, v) : to_str(r, v));
        break;
    case 'r':
        put_string(r, y, repr_str(r, v));
        break;
    case 'a':
        put_string(r, y, ascii_str(r, v));
        break;
    case 'd':
    case 'i':
    case 'u':
        if (!is_number(v))
            type_error(r, "%%%c format: a real number is required, not %s", y->type, val_type_name(v));
        if (v.tag == V_FLOAT && !(fabs(v.f) < 0x1p126))
            type_error(r, "cannot convert this float to an integer");
        y->type = 'd';
        put_int(r, y, v.tag == V_FLOAT ? (int128)v.f : int_of(v), true);
        break;
    case 'o':
    case 'x':
    case 'X':
        if (!is_int(v))
            type_error(r, "%%%c format: an integer is required, not %s", y->type, val_type_name(v));
        put_int(r, y, int_of(v), true);
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!is_number(v))
            type_error(r, "must be real number, not %s", val_type_name(v));
        put_real(r, y, float_of(v));
        break;
    case 'c':
        if (is_int(v) && need_int(r, v, "a code") >= 0 && int_of(v) < 0x110000) {
            struct mark m = string_begin(r);
            put_code(r, (uint32_t)int_of(v));
            v = v_str(string_end(r, m));
        }
        if (v.tag != V_STR || str_codes(r, v.s) != 1)
            type_error(r, "%%c requires int or char");
        y->precision = -1;
        put_string(r, y, v.s);
        break;
    default:
        type_error(r, "unsupported format character");
    }
}

static void put_conversion(struct percent *f)
{
    struct spec y = {.precision = -1, .width = 0};
    struct val keyed = {0};
    if (f->p < f->end && *f->p == '%') {
        put_char(f->r, *f->p++);
        return;
    }
    if (f->p < f->end && *f->p == '(') {
        f->p++;
        keyed = keyed_arg(f);
    }
    for (; f->p < f->end && strchr("#0- +", *f->p) && *f->p; f->p++) {
        y.alt |= *f->p == '#';
        y.zero |= *f->p == '0';
        y.left |= *f->p == '-';
        y.space |= *f->p == ' ';
        y.plus |= *f->p == '+';
    }
    y.width = take_number(f);
    if (y.width < 0) {
        y.left = true;
        y.width = y.width == INT64_MIN ? INT64_MAX : -y.width;
    }
    if (f->p < f->end && *f->p == '.') {
        f->p++;
        y.precision = take_number(f);
        if (y.precision < 0)
            y.precision = 0;
    }
    while (f->p < f->end && (*f->p == 'h' || *f->p == 'l' || *f->p == 'L'))
        f->p++;
    y.type = take(f);
    put_percent_arg(f, &y, is_missing(keyed) ? next_arg(f) : keyed);
}

struct val format_percent(struct run *r, const struct str *fmt, struct val arg)
{
    struct percent f = {.r = r, .fmt = fmt, .p = fmt->p, .end = fmt->p + fmt->n, .arg = arg};
    struct mark m = string_begin(r);
    while (f.p < f.end) {
        const char *sign = memchr(f.p, '%', (size_t)(f.end - f.p)), *to = sign ? sign : f.end;
        put_str(r, str_sub(r, fmt, (size_t)(f.p - fmt->p), (size_t)(to - fmt->p)));
        f.p = to + (sign != NULL);
        run_charge(r, 1);
        if (sign)
            put_conversion(&f);
    }
    bool mapping = arg.tag == V_DICT || arg.tag == V_LIST || arg.tag == V_UNDEF || arg.tag == V_RANGE;
    if (arg.tag == V_TUPLE ? f.at < arg.l->n : !f.used && !mapping)
        type_error(r, "not all arguments converted during string formatting");
    return markup_like(r, fmt, string_end(r, m));
}

/* --- {} --------------------------------------------------------------------------------------------------- */

struct braces {
    struct run *r;
    const struct str *fmt;
    const struct call *c;
    int64_t next; /* the next automatic number; -1: fields are numbered manually */
    int depth;
};

static struct val field_arg(struct braces *b, const char *name, size_t n)
{
    int64_t at = 0;
    bool number = true;
    for (size_t i = 0; i < n; i++) {
        number = number && name[i] >= '0' && name[i] <= '9';
        at = !number || at > INT32_MAX ? at : at * 10 + (name[i] - '0');
    }
    if (number) {
        if ((n && b->next > 0) || (!n && b->next < 0))
            type_error(b->r, "cannot switch between manual and automatic field numbering");
        at = n ? at : b->next++;
        if (n)
            b->next = -1;
        if (at >= b->c->n_pos)
            type_error(b->r, "Replacement index %lld out of range for positional args tuple", (long long)at);
        return b->c->pos[at];
    }
    for (uint32_t i = 0; i < b->c->n_kw; i++)
        if (b->c->kw_name[i]->n == n && !memcmp(b->c->kw_name[i]->p, name, n))
            return b->c->kw[i];
    type_error(b->r, "no argument '%.*s' for the format", n > 60 ? 60 : (int)n, name);
}

/* Evaluates name.attr[index]..., by the sandbox's rules. */
static struct val field_value(struct braces *b, const char *p, const char *end)
{
    const char *from = p;
    while (p < end && *p != '.' && *p != '[')
        p++;
    struct val v = field_arg(b, from, (size_t)(p - from));
    while (p < end) {
        bool attr = *p++ == '.';
        from = p;
        while (p < end && (attr ? *p != '.' && *p != '[' : *p != ']'))
            p++;
        if (p == from || (!attr && p == end))
            type_error(b->r, "Empty attribute in format string");
        struct val key = v_str(str_new(b->r, from, (size_t)(p - from)));
        struct val index = attr ? key : parse_int(b->r, key.s, 10);
        v = attr ? get_attr(b->r, v, key.s) : get_item(b->r, v, is_missing(index) ? key : index);
        p += !attr;
        if (p < end && *p != '.' && *p != '[')
            type_error(b->r, "Only '.' or '[' may follow ']' in format field specifier");
    }
    return v;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static struct spec parse_spec(struct run *r, const struct str *s)
{
    struct spec y = {.precision = -1};
    const char *p = s->p, *end = s->p + s->n, *next = p;
    uint32_t fill = p < end ? code_next(&next) : 0;
    if (p < end && next < end && is_align(*next)) {
        y.fill = fill;
        y.align = *next;
        p = next + 1;
    } else if (p < end && is_align(*p)) {
        y.align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) {
        y.sign = true;
        y.plus = *p == '+';
        y.space = *p++ == ' ';
    }
    if (p < end && *p == '#')
        y.alt = *p++;
    if (p < end && *p == '0') {
        y.zero = *p++;
        y.fill = y.fill ? y.fill : '0';
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        y.width = y.width > INT32_MAX ? y.width : y.width * 10 + (*p - '0');
    if (p < end && (*p == ',' || *p == '_'))
        y.grouping = *p++;
    if (p < end && *p == '.') {
        const char *from = ++p;
        for (y.precision = 0; p < end && *p >= '0' && *p <= '9'; p++)
            y.precision = y.precision > INT32_MAX ? y.precision : y.precision * 10 + (*p - '0');
        if (p == from)
            type_error(r, "Format specifier missing precision");
    }
    if (p < end)
        y.type = *p++;
    if (p < end)
        type_error(r, "Invalid format specifier");
    return y;
}

static void put_formatted(struct run *r, struct val v, const struct str *spec)
{
    struct spec y = parse_spec(r, spec);
    if (y.type && ((y.grouping && y.type == 'n') || (y.grouping == ',' && strchr("boxX", y.type))))
        type_error(r, "Cannot specify '%c' with '%c'.", y.grouping, y.type);
    if (!spec->n) {
        put_val(r, v);
    } else if (v.tag == V_STR) {
        if ((y.type && y.type != 's') || y.align == '=' || y.sign || y.alt || y.grouping)
            type_error(r, "Invalid format specifier for a string");
        y.left = true;
        put_string(r, &y, v.s);
    } else if (is_int(v) && y.type == 'c') {
        struct mark m = string_begin(r);
        if (y.precision >= 0 || y.sign || y.alt || y.grouping)
            type_error(r, "Invalid format specifier for a character");
        if (need_int(r, v, "a code") < 0 || int_of(v) >= 0x110000)
            type_error(r, "%%c arg not in range(0x110000)");
        put_code(r, (uint32_t)int_of(v));
        y.align = y.align == '=' ? '>' : y.align;
        put_string(r, &y, string_end(r, m));
    } else if (is_int(v) && (!y.type || strchr("dxXobn", y.type))) {
        if (y.precision >= 0)
            type_error(r, "Precision not allowed in integer format specifier");
        put_int(r, &y, int_of(v), false);
    } else if (is_number(v) && strchr("eEfFgG%n", y.type)) {
        put_real(r, &y, float_of(v));
    } else {
        type_error(r, "unsupported format string for '%s'", val_type_name(v));
    }
}

static void put_braces(struct braces *b, const char *p, const char *end);

/* Puts a field, from after its '{'; returns the position after its '}'. */
static const char *put_field(struct braces *b, const char *p, const char *end)
{
    struct run *r = b->r;
    const char *from = p, *name_end, *spec = NULL;
    int depth = 0;
    char conversion = 0;
    while (p < end && *p != '}' && *p != ':' && *p != '!')
        p++;
    name_end = p;
    if (p < end && *p == '!') {
        conversion = p + 1 < end ? p[1] : 0;
        p += 2;
        if (p >= end || (*p != ':' && *p != '}'))
            type_error(r, "expected ':' after conversion specifier");
    }
    if (p < end && *p == ':') {
        spec = ++p;
        for (; p < end && (*p != '}' || depth); p++)
            depth += (*p == '{') - (*p == '}');
    }
    if (p >= end)
        type_error(r, "expected '}' before end of string");
    struct val v = field_value(b, from, name_end);
    struct mark m = string_begin(r);
    if (conversion && !strchr("ras", conversion))
        type_error(r, "Unknown conversion specifier");
    if (conversion)
        v = v_str(conversion == 'r' ? repr_str(r, v) : conversion == 'a' ? ascii_str(r, v) : plain_str(r, v));
    if (spec && ++b->depth > 2)
        type_error(r, "Max string recursion exceeded");
    if (spec) {
        put_braces(b, spec, p);
        b->depth--;
    }
    const struct str *how = string_end(r, m);
    if (!b->fmt->markup) {
        put_formatted(r, v, how);
        return p + 1;
    }
    m = string_begin(r);
    put_formatted(r, v, how);
    put_str(r, text_escape(r, v.tag == V_STR && v.s->markup ? v : v_str(string_end(r, m))));
    return p + 1;
}

static void put_braces(struct braces *b, const char *p, const char *end)
{
    while (p < end) {
        const char *from = p;
        while (p < end && *p != '{' && *p != '}')
            p++;
        put_str(b->r, str_sub(b->r, b->fmt, (size_t)(from - b->fmt->p), (size_t)(p - b->fmt->p)));
        run_charge(b->r, 1);
        if (p == end)
            break;
        if (p + 1 < end && p[1] == *p) {
            put_char(b->r, *p);
            p += 2;
        } else if (*p == '}') {
            type_error(b->r, "Single '}' encountered in format string");
        } else {
            p = put_field(b, p + 1, end);
        }
    }
}

struct val format_braces(struct run *r, const struct str *fmt, const struct call *c)
{
    struct braces b = {.r = r, .fmt = fmt, .c = c};
    struct mark m = string_begin(r);
    put_braces(&b, fmt->p, fmt->p + fmt->n);
    return markup_like(r, fmt, string_end(r, m));
}
