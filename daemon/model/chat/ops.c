/* ops.c - Python's operators. */
#include "daemon/model/chat/exec.h"

#include <math.h>
#include <string.h>

void undefined_error(struct run *r, struct val v)
{
    if (v.tag == V_UNDEF && v.s)
        type_error(r, "'%.*s' is undefined", v.s->n > 100 ? 100 : (int)v.s->n, v.s->p);
    type_error(r, "a value is undefined");
}

static _Noreturn void no_operator(struct run *r, const char *op, struct val a, struct val b)
{
    type_error(r, "unsupported operand type(s) for %s: '%s' and '%s'", op, val_type_name(a), val_type_name(b));
}

static _Noreturn void too_large(struct run *r)
{
    run_fail(r, JINJA_LIMIT, "an integer of more than 128 bits");
}

/* --- + and * ---------------------------------------------------------------------------------------------- */

enum { ROOM_MIN = 512 /* shorter strings are copied */ };

static uint32_t spans_of(const struct str *s)
{
    return s->origin == ORIGIN_MIXED ? s->n_span : s->origin == ORIGIN_CONTEXT && s->n;
}

/* Appends b's spans to those of a string of n bytes. */
static void room_spans(struct run *r, struct room *g, size_t n, const struct str *b)
{
    const struct jinja_span whole = {0, b->n}, *span = b->origin == ORIGIN_MIXED ? b->span : &whole;
    uint32_t n_span = spans_of(b);
    run_charge(r, n_span / 8);
    for (uint32_t i = 0; i < n_span; i++) {
        g->span = run_grow(r, g->span, g->n_span, &g->cap_span, sizeof *g->span);
        g->span[g->n_span++] = (struct jinja_span){(uint32_t)n + span[i].from, (uint32_t)n + span[i].to};
    }
}

/* The room that `a` is all of, and that takes n more bytes: what was appended to `a` before, or else a new one. */
static struct room *room_of(struct run *r, const struct str *a, size_t n)
{
    for (size_t i = 0; i < sizeof r->room / sizeof *r->room; i++) {
        struct room *g = &r->room[i];
        if (g->p == a->p && g->n == a->n && g->cap - g->n >= n && spans_of(a) == g->n_span &&
            (a->origin != ORIGIN_MIXED || a->span == g->span))
            return g;
    }
    struct room *g = &r->room[r->next_room++ % (sizeof r->room / sizeof *r->room)];
    size_t cap = a->n + n + (a->n + n) / 2;
    *g = (struct room){.p = run_alloc_bytes(r, cap), .n = a->n, .cap = cap};
    run_charge_bytes(r, a->n);
    memcpy(g->p, a->p, a->n);
    room_spans(r, g, 0, a);
    return g;
}

/* A text that is built piece by piece grows in place, so that this takes linear time and memory: strings that have been
 * made of it before go on to see its beginning. */
static struct str *concat(struct run *r, const struct str *a, const struct str *b)
{
    size_t n = a->n + (size_t)b->n;
    if (a->n < ROOM_MIN || n > JINJA_OUTPUT_MAX) {
        struct mark m = string_begin(r);
        put_str(r, a);
        put_str(r, b);
        return string_end(r, m);
    }
    struct room *g = room_of(r, a, b->n);
    run_charge_bytes(r, b->n);
    if (b->n)
        memcpy(g->p + g->n, b->p, b->n);
    room_spans(r, g, g->n, b);
    g->n = n;
    struct str *s = str_new(r, g->p, n);
    bool context = a->origin == ORIGIN_CONTEXT && (b->origin == ORIGIN_CONTEXT || !b->n);
    s->origin = context ? ORIGIN_CONTEXT : g->n_span ? ORIGIN_MIXED : ORIGIN_TEMPLATE;
    if (context) { /* no string refers to the spans yet */
        g->span[0].to = (uint32_t)n;
        g->n_span = 1;
    } else if (g->n_span) {
        s->span = g->span;
        s->n_span = g->n_span;
    }
    return s;
}

static struct val add_str(struct run *r, const struct str *a, const struct str *b)
{
    bool markup = a->markup || b->markup;
    if (markup && !a->markup)
        a = text_escape(r, v_str(a));
    if (markup && !b->markup)
        b = text_escape(r, v_str(b));
    struct str *s = concat(r, a, b);
    s->markup = markup;
    return v_str(s);
}

static struct val add_lists(struct run *r, struct val a, struct val b)
{
    struct val out = list_new(r, a.tag, a.l->n + b.l->n);
    run_charge(r, out.l->cap / 16);
    if (a.l->n)
        memcpy(out.l->v, a.l->v, a.l->n * sizeof *a.l->v);
    if (b.l->n)
        memcpy(out.l->v + a.l->n, b.l->v, b.l->n * sizeof *b.l->v);
    out.l->n = out.l->cap;
    return out;
}

static struct val repeat(struct run *r, struct val v, int64_t times)
{
    if (times < 0)
        times = 0;
    if (v.tag == V_STR) {
        struct mark m = string_begin(r);
        if (v.s->n && times > (int64_t)JINJA_OUTPUT_MAX)
            run_fail(r, JINJA_LIMIT, "the template makes a text of more than %zu MiB", JINJA_OUTPUT_MAX >> 20);
        for (int64_t i = 0; v.s->n && i < times; i++)
            put_str(r, v.s);
        run_charge(r, v.s->n ? (uint64_t)times / 8 : 0);
        struct str *s = string_end(r, m);
        s->markup = v.s->markup;
        return v_str(s);
    }
    struct val out = list_new(r, v.tag, 0);
    for (int64_t i = 0; v.l->n && i < times; i++) {
        run_charge(r, 1 + v.l->n / 8);
        for (uint32_t k = 0; k < v.l->n; k++)
            list_add(r, out.l, v.l->v[k]);
    }
    return out;
}

/* --- numbers ---------------------------------------------------------------------------------------------- */

static struct val floor_divide(struct run *r, bool mod, struct val a, struct val b)
{
    if (a.tag == V_FLOAT || b.tag == V_FLOAT) {
        double x = float_of(a), y = float_of(b);
        if (y == 0)
            type_error(r, "float division by zero");
        double m = fmod(x, y), d = (x - m) / y;
        if (m != 0 && (y < 0) != (m < 0)) {
            m += y;
            d -= 1;
        } else if (m == 0) {
            m = copysign(0, y);
        }
        if (mod)
            return v_float(m);
        if (d == 0)
            return v_float(copysign(0, x / y));
        double f = floor(d);
        return v_float(d - f > 0.5 ? f + 1 : f);
    }
    int128 x = int_of(a), y = int_of(b);
    if (!y)
        type_error(r, "integer division or modulo by zero");
    if (y == -1) /* the smallest integer divided by -1 would overflow */
        return mod ? v_int(0) : op_binary(r, T_SUB, v_int(0), a);
    int128 q = x / y, m = x % y;
    if (m && (m < 0) != (y < 0)) {
        q--;
        m += y;
    }
    return int_val(r, mod ? m : q);
}

static struct val power_float(struct run *r, double x, double y)
{
    if (x == 0 && y < 0)
        type_error(r, "0.0 cannot be raised to a negative power");
    if (x < 0 && y != floor(y) && isfinite(y) && isfinite(x))
        type_error(r, "complex numbers are not supported");
    double f = pow(x, y);
    if (isinf(f) && isfinite(x) && isfinite(y))
        type_error(r, "the result of ** is too large");
    return v_float(f);
}

static struct val power(struct run *r, struct val a, struct val b)
{
    if (a.tag == V_FLOAT || b.tag == V_FLOAT || int_of(b) < 0)
        return power_float(r, float_of(a), float_of(b));
    int128 base = int_of(a), n = int_of(b), out = 1;
    while (n) {
        if ((n & 1) && __builtin_mul_overflow(out, base, &out))
            too_large(r);
        n >>= 1;
        if (n && __builtin_mul_overflow(base, base, &base))
            too_large(r);
    }
    return int_val(r, out);
}

/* Rounds only once, as Python does: the integer quotient has more bits than a double, and its lowest bit is set if
 * there is a remainder (a sticky bit). */
static double quotient(int128 a, int128 b)
{
    unsigned __int128 x = a < 0 ? -(unsigned __int128)a : (unsigned __int128)a;
    unsigned __int128 y = b < 0 ? -(unsigned __int128)b : (unsigned __int128)b;
    int shift = 0;
    if (y >> 64 || !x)
        return (double)a / (double)b;
    for (; !(x >> 127); shift++)
        x <<= 1;
    double f = ldexp((double)(x / y | (x % y != 0)), -shift);
    return (a < 0) == (b < 0) ? f : -f;
}

static struct val arithmetic(struct run *r, int op, struct val a, struct val b)
{
    bool real = a.tag == V_FLOAT || b.tag == V_FLOAT, over = false;
    int128 i = 0;
    switch (op) {
    case T_ADD:
        if (real)
            return v_float(float_of(a) + float_of(b));
        over = __builtin_add_overflow(int_of(a), int_of(b), &i);
        break;
    case T_SUB:
        if (real)
            return v_float(float_of(a) - float_of(b));
        over = __builtin_sub_overflow(int_of(a), int_of(b), &i);
        break;
    case T_MUL:
        if (real)
            return v_float(float_of(a) * float_of(b));
        over = __builtin_mul_overflow(int_of(a), int_of(b), &i);
        break;
    case T_DIV:
        if (float_of(b) == 0)
            type_error(r, "division by zero");
        return v_float(real ? float_of(a) / float_of(b) : quotient(int_of(a), int_of(b)));
    case T_POW:
        return power(r, a, b);
    default:
        return floor_divide(r, op == T_MOD, a, b);
    }
    if (over)
        too_large(r);
    return int_val(r, i);
}

struct val op_binary(struct run *r, int op, struct val a, struct val b)
{
    if (is_number(a) && is_number(b))
        return arithmetic(r, op, a, b);
    if (a.tag == V_STR && op == T_MOD)
        return format_percent(r, a.s, b);
    if (a.tag == V_UNDEF || b.tag == V_UNDEF)
        undefined_error(r, a.tag == V_UNDEF ? a : b);
    if (op == T_ADD && a.tag == V_STR && b.tag == V_STR)
        return add_str(r, a.s, b.s);
    if (op == T_ADD && is_seq(a) && a.tag == b.tag)
        return add_lists(r, a, b);
    if (op == T_MUL && (a.tag == V_STR || is_seq(a)) && is_int(b))
        return repeat(r, a, need_int(r, b, "a count"));
    if (op == T_MUL && (b.tag == V_STR || is_seq(b)) && is_int(a))
        return repeat(r, b, need_int(r, a, "a count"));
    no_operator(r, token_name((enum token_type)op), a, b);
}
