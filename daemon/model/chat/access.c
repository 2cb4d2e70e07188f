/* access.c - attributes, items and slices, as the sandbox allows them. */
#include "daemon/model/chat/exec.h"

#include <string.h>

/* Attributes that every Python object has and that the sandbox hides: they are undefined, even where a dict has such a
 * key. */
static bool is_hidden(const struct str *name)
{
    static const char *const hidden[] = {
        "__class__",     "__delattr__",      "__dict__", "__dir__",     "__doc__",    "__eq__",   "__format__",
        "__ge__",        "__getitem__",      "__gt__",   "__hash__",    "__init__",   "__iter__", "__init_subclass__",
        "__le__",        "__len__",          "__lt__",   "__module__",  "__ne__",     "__new__",  "__reduce__",
        "__reduce_ex__", "__getattribute__", "__repr__", "__setattr__", "__sizeof__", "__str__",  "__subclasshook__",
        "__contains__",  "__setitem__",
    };
    if (name->n < 5 || memcmp(name->p, "__", 2) != 0)
        return false;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (str_is(name, hidden[i]))
            return true;
    return false;
}

/* Methods that change a dict: the sandbox hides them, and they shadow a key of that name. */
static bool is_mutator(const struct str *name)
{
    return str_is(name, "clear") || str_is(name, "pop") || str_is(name, "popitem") || str_is(name, "setdefault") ||
           str_is(name, "update");
}

static struct val number_attr(struct val v, const struct str *name)
{
    if (str_is(name, "real"))
        return v.tag == V_BOOL ? v_int(v.b) : v;
    if (str_is(name, "imag"))
        return v.tag == V_FLOAT ? v_float(0) : v_int(0);
    if (str_is(name, "numerator") && v.tag != V_FLOAT)
        return v.tag == V_BOOL ? v_int(v.b) : v;
    if (str_is(name, "denominator") && v.tag != V_FLOAT)
        return v_int(1);
    return (struct val){0};
}

static struct val macro_attr(struct run *r, const struct macro *m, const struct str *name)
{
    const struct decl *d = m->node->decl;
    if (str_is(name, "name"))
        return m->name;
    if (str_is(name, "catch_kwargs"))
        return v_bool(d->uses_kwargs);
    if (str_is(name, "catch_varargs"))
        return v_bool(d->uses_varargs);
    if (str_is(name, "caller"))
        return v_bool(d->uses_caller);
    if (!str_is(name, "arguments"))
        return (struct val){0};
    struct val out = list_new(r, V_TUPLE, d->n);
    for (uint32_t i = 0; i < d->n; i++)
        list_add(r, out.l, d->param[i]->v);
    return out;
}

static struct val range_attr(const struct range *g, const struct str *name)
{
    if (str_is(name, "start"))
        return v_int(g->start);
    if (str_is(name, "stop"))
        return v_int(g->stop);
    return str_is(name, "step") ? v_int(g->step) : (struct val){0};
}

/* An attribute in Python's sense, not an item: V_MISSING where the value has none of that name. */
static struct val attribute(struct run *r, struct val v, const struct str *name)
{
    struct val found = {0};
    switch (v.tag) {
    case V_UNDEF:
        if (is_hidden(name))
            return v_undef(name);
        undefined_error(r, v);
    case V_NAMESPACE:
        return dict_get_str(r, v.d, name);
    case V_LOOP:
        found = loop_attr(r, v, name);
        break;
    case V_MACRO:
        found = macro_attr(r, v.macro, name);
        break;
    case V_RANGE:
        found = range_attr(v.range, name);
        break;
    case V_BOOL:
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        found = number_attr(v, name);
        break;
    case V_CYCLER:
        if (str_is(name, "current"))
            found = v.cycler->items.v[v.cycler->at];
        break;
    case V_TUPLE:
        if (v.l->group && (str_is(name, "grouper") || str_is(name, "list")))
            found = v.l->v[name->n == 4];
        break;
    default:
        break;
    }
    if (!is_missing(found))
        return found;
    const struct builtin *b = method_find(v, name);
    if (b) {
        struct method *m = run_alloc(r, 1, sizeof *m);
        *m = (struct method){b, v};
        return (struct val){.tag = V_METHOD, .method = m};
    }
    if (is_hidden(name) || (v.tag == V_DICT && is_mutator(name)))
        return v_undef(name);
    return (struct val){0};
}

static struct val index_of(struct run *r, struct val v, int64_t i)
{
    int64_t n = val_length(r, v);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return (struct val){0};
    if (v.tag == V_STR)
        return v_str(str_char(r, v.s, str_offset(r, v.s, i)));
    if (v.tag == V_RANGE)
        return v_int(range_at(v.range, i));
    return v.l->v[i];
}

static bool is_hashable(struct val v)
{
    if (v.tag == V_TUPLE)
        for (uint32_t i = 0; i < v.l->n; i++)
            if (!is_hashable(v.l->v[i]))
                return false;
    return !is_unhashable(v);
}

static struct val item(struct run *r, struct val v, struct val key)
{
    if (v.tag == V_DICT)
        return is_hashable(key) ? dict_get(r, v.d, key) : (struct val){0};
    if ((v.tag == V_STR || is_seq(v) || v.tag == V_RANGE) && (key.tag == V_INT || key.tag == V_BOOL))
        return index_of(r, v, key.tag == V_INT ? key.i : key.b);
    return (struct val){0};
}

struct val get_attr(struct run *r, struct val v, const struct str *name)
{
    struct val found = attribute(r, v, name);
    if (is_missing(found) && v.tag == V_DICT)
        found = dict_get_str(r, v.d, name);
    return is_missing(found) ? v_undef(name) : found;
}

struct val get_own_attr(struct run *r, struct val v, const struct str *name)
{
    struct val found = attribute(r, v, name);
    return is_missing(found) ? v_undef(name) : found;
}

struct val get_item(struct run *r, struct val v, struct val key)
{
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    struct val found = item(r, v, key);
    if (is_missing(found) && key.tag == V_STR)
        found = attribute(r, v, key.s);
    if (!is_missing(found))
        return found;
    return v_undef(key.tag == V_STR ? key.s : is_seq(key) || key.tag == V_DICT ? NULL : to_str(r, key));
}

/* --- slices ----------------------------------------------------------------------------------------------- */

static int64_t slice_bound(struct run *r, struct val v, int64_t def, int64_t n, int64_t low, int64_t high)
{
    if (v.tag == V_NONE || is_missing(v))
        return def;
    int64_t i = need_int(r, v, "a slice's index");
    if (i < 0)
        i = i < -n ? -1 - n : i + n;
    return i < low ? low : i > high ? high : i;
}

/* The byte offset of each code point. */
static uint32_t *offsets(struct run *r, const struct str *s)
{
    uint32_t *at = run_alloc(r, (size_t)str_codes(r, s) + 1, sizeof *at), n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (code_begins(s->p[i]))
            at[n++] = i;
    at[n] = s->n;
    return at;
}

static struct val slice_str(struct run *r, const struct str *s, int64_t from, int64_t n, int64_t step)
{
    if (step == 1)
        return v_str(str_sub(r, s, str_offset(r, s, from), str_offset(r, s, from + n)));
    struct mark m = string_begin(r);
    const uint32_t *at = offsets(r, s);
    run_charge(r, (uint64_t)n);
    for (int64_t i = 0; i < n; i++, from += step)
        put_str(r, str_sub(r, s, at[from], at[from + 1]));
    struct str *out = string_end(r, m);
    out->markup = s->markup;
    return v_str(out);
}

static struct val slice_range(struct run *r, const struct range *g, int64_t from, int64_t to, int64_t n, int64_t step)
{
    struct range *out = run_alloc(r, 1, sizeof *out);
    out->n = n;
    if (__builtin_mul_overflow(from, g->step, &out->start) ||
        __builtin_add_overflow(out->start, g->start, &out->start) || __builtin_mul_overflow(to, g->step, &out->stop) ||
        __builtin_add_overflow(out->stop, g->start, &out->stop) || __builtin_mul_overflow(step, g->step, &out->step))
        run_fail(r, JINJA_LIMIT, "a range beyond 64 bits");
    return (struct val){.tag = V_RANGE, .range = out};
}

struct val get_slice(struct run *r, struct val v, struct val from, struct val to, struct val step)
{
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    if (v.tag != V_STR && !is_seq(v) && v.tag != V_RANGE)
        type_error(r, "'%s' object has no slices", val_type_name(v));
    int64_t by = step.tag == V_NONE || is_missing(step) ? 1 : need_int(r, step, "a slice's step");
    if (!by)
        type_error(r, "slice step cannot be zero");
    if (by > INT32_MAX)
        by = INT32_MAX;
    if (by < -INT32_MAX)
        by = -INT32_MAX;
    int64_t n = val_length(r, v), low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
    int64_t a = slice_bound(r, from, by < 0 ? n - 1 : 0, n, low, high);
    int64_t b = slice_bound(r, to, by < 0 ? -1 : n, n, low, high);
    int64_t count = by > 0 ? (b > a ? (b - a + by - 1) / by : 0) : (a > b ? (a - b - by - 1) / -by : 0);
    if (v.tag == V_STR)
        return slice_str(r, v.s, a, count, by);
    if (v.tag == V_RANGE)
        return slice_range(r, v.range, a, b, count, by);
    struct val out = list_new(r, v.tag, (uint32_t)count);
    run_charge(r, (uint64_t)count / 16);
    for (int64_t i = 0; i < count; i++)
        list_add(r, out.l, v.l->v[a + i * by]);
    return out;
}

/* --- attribute="a.b.0" of filters ------------------------------------------------------------------------- */

static struct val path_part(const struct str *s)
{
    bool digits = s->n && s->n < 18;
    int64_t i = 0;
    for (uint32_t k = 0; k < s->n && digits; k++) {
        digits = s->p[k] >= '0' && s->p[k] <= '9';
        i = i * 10 + (s->p[k] - '0');
    }
    return digits ? v_int(i) : v_str(s);
}

struct val get_path(struct run *r, struct val v, struct val attr, struct val def)
{
    bool has_def = !is_missing(def) && def.tag != V_NONE;
    if (attr.tag == V_NONE || is_missing(attr))
        return v;
    if (attr.tag != V_STR) {
        v = get_item(r, v, attr);
        return v.tag == V_UNDEF && has_def ? def : v;
    }
    for (size_t from = 0; from <= attr.s->n;) {
        const char *dot = from < attr.s->n ? memchr(attr.s->p + from, '.', attr.s->n - from) : NULL;
        size_t to = dot ? (size_t)(dot - attr.s->p) : attr.s->n;
        v = get_item(r, v, path_part(str_sub(r, attr.s, from, to)));
        if (v.tag == V_UNDEF && has_def)
            v = def;
        from = to + 1;
    }
    return v;
}
