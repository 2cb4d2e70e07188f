/* methods.c - the methods of all other types, and the global functions. */
#include "daemon/model/chat/exec.h"

#include <string.h>

#define METHOD(of, name) static struct val of##_##name(struct run *r, struct val self, struct val *arg)

static struct val view(struct val self, enum view what)
{
    return (struct val){.tag = V_VIEW, .sub = (uint8_t)what, .d = self.d};
}
METHOD(dict, get_)
{
    struct val v = dict_get(r, self.d, arg[0]);
    return !is_missing(v) ? v : is_missing(arg[1]) ? NONE : arg[1];
}
METHOD(dict, items)
{
    (void)r, (void)arg;
    return view(self, VIEW_ITEMS);
}
METHOD(dict, keys)
{
    (void)r, (void)arg;
    return view(self, VIEW_KEYS);
}
METHOD(dict, values)
{
    (void)r, (void)arg;
    return view(self, VIEW_VALUES);
}
METHOD(dict, copy) /* values are immutable, so a copy may be the same object */
{
    (void)r, (void)arg;
    return self;
}
static const struct builtin dict_methods[] = {
    {"get", dict_get_, "/key /default", 1}, {"items", dict_items, "", 0}, {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0},         {"copy", dict_copy, "", 0},   {NULL},
};

METHOD(seq, index)
{
    struct iter *it = iter_new(r, self);
    struct val v;
    int64_t n = val_length(r, self), from = is_missing(arg[1]) ? 0 : need_int(r, arg[1], "a start");
    int64_t to = is_missing(arg[2]) ? n : need_int(r, arg[2], "an end");
    from = from < -n ? 0 : from < 0 ? from + n : from;
    to = to < 0 ? to + n : to;
    for (int64_t i = 0; i < to && iter_next(r, it, &v); i++)
        if (i >= from && val_equal(r, v, arg[0]))
            return v_int(i);
    type_error(r, "the value is not in the %s", val_type_name(self));
}
METHOD(seq, count)
{
    struct iter *it = iter_new(r, self);
    struct val v;
    int64_t n = 0;
    while (iter_next(r, it, &v))
        n += val_equal(r, v, arg[0]);
    return v_int(n);
}
METHOD(seq, copy)
{
    (void)arg;
    return copy_list(r, self, V_LIST);
}
static const struct builtin list_methods[] = {
    {"index", seq_index, "/value /start /stop", 1},
    {"count", seq_count, "/value", 1},
    {"copy", seq_copy, "", 0},
    {NULL},
};
static const struct builtin tuple_methods[] = {
    {"index", seq_index, "/value /start /stop", 1},
    {"count", seq_count, "/value", 1},
    {NULL},
};

METHOD(int, bit_length)
{
    int128 i = int_of(self);
    int64_t n = 0;
    (void)r, (void)arg;
    for (unsigned __int128 u = i < 0 ? -(unsigned __int128)i : (unsigned __int128)i; u; u >>= 1)
        n++;
    return v_int(n);
}
METHOD(int, conjugate)
{
    (void)arg;
    return int_val(r, int_of(self));
}
static const struct builtin int_methods[] = {
    {"bit_length", int_bit_length, "", 0},
    {"conjugate", int_conjugate, "", 0},
    {NULL},
};
METHOD(float, is_integer)
{
    (void)r, (void)arg;
    return v_bool(self.f == __builtin_floor(self.f) && __builtin_isfinite(self.f));
}
METHOD(float, conjugate)
{
    (void)r, (void)arg;
    return self;
}
static const struct builtin float_methods[] = {
    {"is_integer", float_is_integer, "", 0},
    {"conjugate", float_conjugate, "", 0},
    {NULL},
};

/* --- methods of loops and cyclers ------------------------------------------------------------------------- */

static struct val loop_cycle(struct run *r, struct val self, const struct call *c)
{
    if (!c->n_pos || c->n_kw)
        type_error(r, "no items for cycling given");
    return c->pos[self.loop->index0 % c->n_pos];
}
static struct val loop_changed(struct run *r, struct val self, const struct call *c)
{
    struct val now = list_new(r, V_TUPLE, c->n_pos);
    for (uint32_t i = 0; i < c->n_pos; i++)
        list_add(r, now.l, c->pos[i]);
    struct val was = {.tag = V_TUPLE, .l = self.loop->changed};
    bool changed = !was.l || !val_equal(r, was, now);
    self.loop->changed = now.l;
    return v_bool(changed);
}
static const struct builtin loop_methods[] = {
    {"cycle", NULL, NULL, 0, loop_cycle},
    {"changed", NULL, NULL, 0, loop_changed},
    {NULL},
};

METHOD(cycler, next)
{
    struct cycler *c = self.cycler;
    (void)r, (void)arg;
    struct val v = c->items.v[c->at];
    c->at = (c->at + 1) % c->items.n;
    return v;
}
METHOD(cycler, reset)
{
    (void)r, (void)arg;
    self.cycler->at = 0;
    return NONE;
}
static const struct builtin cycler_methods[] = {
    {"next", cycler_next, "", 0},
    {"reset", cycler_reset, "", 0},
    {NULL},
};

const struct builtin *method_find(struct val self, const struct str *name)
{
    switch (self.tag) {
    case V_STR:
        return str_method_find(name);
    case V_DICT:
        return table_find(dict_methods, name);
    case V_LIST:
        return table_find(list_methods, name);
    case V_TUPLE:
    case V_RANGE:
        return table_find(tuple_methods, name);
    case V_BOOL:
    case V_INT:
    case V_BIG:
        return table_find(int_methods, name);
    case V_FLOAT:
        return table_find(float_methods, name);
    case V_LOOP:
        return table_find(loop_methods, name);
    case V_CYCLER:
        return table_find(cycler_methods, name);
    default:
        return NULL;
    }
}

/* --- global functions ------------------------------------------------------------------------------------- */

/* A number of a range: need_int() would take one beyond 64 bits for the greatest, which is another range. */
static int64_t range_number(struct run *r, struct val v, const char *what)
{
    if (v.tag == V_BIG)
        run_fail(r, JINJA_LIMIT, "a range beyond 64 bits");
    return need_int(r, v, what);
}

METHOD(global, range)
{
    struct range *g = run_alloc0(r, 1, sizeof *g);
    (void)self;
    g->start = is_missing(arg[1]) ? 0 : range_number(r, arg[0], "a range's start");
    g->stop = range_number(r, is_missing(arg[1]) ? arg[0] : arg[1], "a range's end");
    g->step = is_missing(arg[2]) ? 1 : range_number(r, arg[2], "a range's step");
    if (!g->step)
        type_error(r, "range() arg 3 must not be zero");
    int128 room = g->step > 0 ? (int128)g->stop - g->start : (int128)g->start - g->stop;
    int128 step = g->step > 0 ? (int128)g->step : -(int128)g->step;
    int128 n = room > 0 ? (room + step - 1) / step : 0;
    if (n > 100000) /* the sandbox's MAX_RANGE */
        run_fail(r, JINJA_LIMIT, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    g->n = (int64_t)n;
    return (struct val){.tag = V_RANGE, .range = g};
}

static void add_pairs(struct run *r, struct dict *d, struct val from)
{
    struct iter *it;
    struct val item;
    if (from.tag == V_DICT) {
        for (uint32_t i = 0; i < from.d->n; i++)
            dict_set(r, d, from.d->e[i].k, from.d->e[i].v);
        return;
    }
    if (from.tag == V_UNDEF)
        undefined_error(r, from);
    it = iter_new(r, from);
    while (iter_next(r, it, &item)) {
        struct list *pair = to_list(r, item);
        if (pair->n != 2)
            type_error(r, "dictionary update sequence element has length %u; 2 is required", pair->n);
        dict_set(r, d, pair->v[0], pair->v[1]);
    }
}

static struct val make_dict(struct run *r, enum tag tag, const struct call *c)
{
    struct val out = dict_new(r, tag);
    if (c->n_pos > 1)
        type_error(r, "dict expected at most 1 argument, got %u", c->n_pos);
    if (c->n_pos)
        add_pairs(r, out.d, c->pos[0]);
    for (uint32_t i = 0; i < c->n_kw; i++)
        dict_set(r, out.d, v_str(c->kw_name[i]), c->kw[i]);
    return out;
}
static struct val global_dict(struct run *r, struct val self, const struct call *c)
{
    (void)self;
    return make_dict(r, V_DICT, c);
}
static struct val global_namespace(struct run *r, struct val self, const struct call *c)
{
    (void)self;
    return make_dict(r, V_NAMESPACE, c);
}

static struct val global_cycler(struct run *r, struct val self, const struct call *c)
{
    struct cycler *y = run_alloc0(r, 1, sizeof *y);
    (void)self;
    if (!c->n_pos || c->n_kw)
        type_error(r, "at least one item has to be provided");
    y->items = (struct list){.v = c->pos, .n = c->n_pos};
    return (struct val){.tag = V_CYCLER, .cycler = y};
}

METHOD(global, joiner)
{
    struct joiner *j = run_alloc0(r, 1, sizeof *j);
    (void)self;
    j->sep = is_missing(arg[0]) ? v_text(r, ", ") : arg[0];
    return (struct val){.tag = V_JOINER, .joiner = j};
}

METHOD(global, raise_exception)
{
    const struct str *s = to_str(r, arg[0]);
    (void)self;
    run_fail(r, JINJA_RAISED, "%.*s", (int)s->n, s->p);
}

/* Translates a format of Python's to one for strftime(3): the datetime has no time zone and no fraction of a second. */
static char *c_format(struct run *r, const struct str *f)
{
    char *format = run_alloc_bytes(r, (size_t)f->n * 3 + 2), *to = format;
    for (uint32_t i = 0; i < f->n; i++) {
        char kind = f->p[i] == '%' && i + 1 < f->n ? f->p[++i] : 0;
        if (kind == 'f') {
            memcpy(to, "000000", 6);
            to += 6;
        } else if (kind && kind != 'Z' && kind != 'z') {
            *to++ = '%';
            *to++ = kind;
        } else if (!kind) {
            *to++ = f->p[i];
        }
    }
    memcpy(to, "x", 2); /* distinguishes an empty result from a failure */
    return format;
}

METHOD(global, strftime_now)
{
    const struct str *f = need_str(r, arg[0], "a format");
    (void)self;
    if (f->n > 4096)
        run_fail(r, JINJA_LIMIT, "strftime_now: a format of more than 4096 bytes");
    if (memchr(f->p, 0, f->n))
        type_error(r, "embedded null character");
    char *text = run_alloc_bytes(r, 8192);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, 8192, c_format(r, f), r->now); /* a date format reads no variadic arguments */
#pragma GCC diagnostic pop
    if (!n)
        type_error(r, "strftime_now: the result is too long");
    return v_str(str_new(r, text, n - 1));
}

METHOD(global, lipsum)
{
    (void)self, (void)arg;
    type_error(r, "lipsum() is not supported");
}

static const struct builtin globals[] = {
    {"namespace", NULL, NULL, 0, global_namespace},
    {"raise_exception", global_raise_exception, "message", 1},
    {"strftime_now", global_strftime_now, "format", 1},
    {"range", global_range, "/start /stop /step", 1},
    {"dict", NULL, NULL, 0, global_dict},
    {"cycler", NULL, NULL, 0, global_cycler},
    {"joiner", global_joiner, "sep", 0},
    {"lipsum", global_lipsum, "n html min max", 0},
    {NULL},
};

const struct builtin *global_find(const struct str *name)
{
    return table_find(globals, name);
}
