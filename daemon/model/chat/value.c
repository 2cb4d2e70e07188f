/* value.c - see value.h: constructors, and the operations that Python has for any value. */
#include "daemon/model/chat/value.h"

#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct val v_text(struct run *r, const char *text)
{
    return v_str(str_new(r, text, strlen(text)));
}

/* --- lists and dicts -------------------------------------------------------------------------------------- */

struct val list_new(struct run *r, enum tag tag, uint32_t cap)
{
    struct list *l = run_alloc0(r, 1, sizeof *l);
    l->v = cap ? run_alloc(r, cap, sizeof *l->v) : NULL;
    l->cap = cap;
    return (struct val){.tag = (uint8_t)tag, .l = l};
}

void list_add(struct run *r, struct list *l, struct val v)
{
    l->v = run_grow(r, l->v, l->n, &l->cap, sizeof *l->v);
    l->v[l->n++] = v;
}

struct val pair_new(struct run *r, struct val a, struct val b)
{
    struct val t = list_new(r, V_TUPLE, 2);
    list_add(r, t.l, a);
    list_add(r, t.l, b);
    return t;
}

struct val dict_new(struct run *r, enum tag tag)
{
    return (struct val){.tag = (uint8_t)tag, .d = run_alloc0(r, 1, sizeof(struct dict))};
}

static uint64_t hash_float(double f)
{
    f = f == 0 ? 0 : f;
    return XXH64(&f, sizeof f, 1);
}

/* Integers that no float equals have hashes of their own, so that the many around one float do not collide. */
static uint64_t hash_int(int128 i)
{
    double f = (double)i;
    return fabs(f) < 0x1p127 && (int128)f == i ? hash_float(f) : XXH64(&i, sizeof i, 1);
}

/* Equal ranges have the same items; of an empty one no number counts, of a single item not the step. */
static uint64_t hash_range(const struct range *g)
{
    int64_t part[3] = {g->n, g->n ? g->start : 0, g->n > 1 ? g->step : 0};
    return XXH64(part, sizeof part, 3);
}

/* Equal values have equal hashes: 1, 1.0 and True are the same key. */
static uint64_t hash(struct run *r, struct val v)
{
    uint64_t h = v.tag;
    if (is_unhashable(v))
        type_error(r, "unhashable type: '%s'", val_type_name(v));
    switch (v.tag) {
    case V_STR:
        run_charge_bytes(r, v.s->n);
        return XXH64(v.s->p, v.s->n, 0);
    case V_BOOL:
    case V_INT:
    case V_BIG:
        return hash_int(int_of(v));
    case V_FLOAT:
        return hash_float(v.f);
    case V_TUPLE:
        run_enter(r);
        run_charge(r, 1 + v.l->n / 4);
        for (uint32_t i = 0; i < v.l->n; i++)
            h = h * 0x9e3779b97f4a7c15u + hash(r, v.l->v[i]);
        run_leave(r);
        return h;
    case V_RANGE:
        return hash_range(v.range);
    case V_METHOD: /* hashable even where the value that it is bound to is not, such as a list */
        h = XXH64(&v.method->b, sizeof v.method->b, 2);
        return v.method->self.tag == V_STR ? h + hash(r, v.method->self) : h;
    case V_NONE:
    case V_UNDEF:
        return h;
    default:
        return XXH64(&v.d, sizeof v.d, 2);
    }
}

static void rehash(struct run *r, struct dict *d)
{
    d->n_slot = d->n_slot ? d->n_slot * 4 : 32;
    d->slot = run_alloc0(r, d->n_slot, sizeof *d->slot);
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t at = (uint32_t)d->e[i].hash & (d->n_slot - 1);
        while (d->slot[at])
            at = (at + 1) & (d->n_slot - 1);
        d->slot[at] = i + 1;
    }
}

static struct entry *dict_find(struct run *r, const struct dict *d, struct val key, uint64_t h)
{
    run_charge(r, 1);
    if (!d->slot) {
        for (uint32_t i = 0; i < d->n; i++)
            if (d->e[i].hash == h && val_equal(r, d->e[i].k, key))
                return &d->e[i];
        return NULL;
    }
    uint32_t n = 1;
    for (uint32_t at = (uint32_t)h & (d->n_slot - 1); d->slot[at]; at = (at + 1) & (d->n_slot - 1), n++) {
        struct entry *e = &d->e[d->slot[at] - 1];
        if (e->hash == h && val_equal(r, e->k, key))
            return e;
        run_charge(r, e->hash == h || n % 8 == 0); /* keys may have been chosen to collide */
    }
    return NULL;
}

void dict_set(struct run *r, struct dict *d, struct val key, struct val v)
{
    uint64_t h = hash(r, key);
    struct entry *e = dict_find(r, d, key, h);
    if (e) {
        e->v = v;
        return;
    }
    d->e = run_grow(r, d->e, d->n, &d->cap, sizeof *d->e);
    d->e[d->n++] = (struct entry){key, v, h};
    if (d->n >= 8 && d->n * 2 > d->n_slot) {
        rehash(r, d);
    } else if (d->slot) {
        uint32_t at = (uint32_t)h & (d->n_slot - 1);
        while (d->slot[at])
            at = (at + 1) & (d->n_slot - 1);
        d->slot[at] = d->n;
    }
}

struct val dict_get(struct run *r, const struct dict *d, struct val key)
{
    struct entry *e = dict_find(r, d, key, hash(r, key));
    return e ? e->v : (struct val){0};
}

struct val dict_get_str(struct run *r, const struct dict *d, const struct str *key)
{
    return dict_get(r, d, v_str(key));
}

/* --- numbers ---------------------------------------------------------------------------------------------- */

struct val int_val(struct run *r, int128 i)
{
    if (i >= INT64_MIN && i <= INT64_MAX)
        return v_int((int64_t)i);
    int128 *big = run_alloc(r, 1, sizeof *big);
    *big = i;
    return (struct val){.tag = V_BIG, .big = big};
}

int128 int_of(struct val v)
{
    return v.tag == V_BIG ? *v.big : v.tag == V_BOOL ? v.b : v.i;
}

double float_of(struct val v)
{
    return v.tag == V_FLOAT ? v.f : (double)int_of(v);
}

int64_t need_int(struct run *r, struct val v, const char *what)
{
    if (v.tag == V_BOOL)
        return v.b;
    if (v.tag == V_BIG)
        return *v.big < 0 ? INT64_MIN : INT64_MAX;
    if (v.tag != V_INT)
        type_error(r, "%s has to be an integer, not '%s'", what, val_type_name(v));
    return v.i;
}

const struct str *need_str(struct run *r, struct val v, const char *what)
{
    if (v.tag != V_STR)
        type_error(r, "%s has to be a string, not '%s'", what, val_type_name(v));
    return v.s;
}

/* --- any value -------------------------------------------------------------------------------------------- */

const char *val_type_name(struct val v)
{
    static const char *const name[] = {
        [V_MISSING] = "Undefined", [V_UNDEF] = "Undefined", [V_NONE] = "NoneType",       [V_BOOL] = "bool",
        [V_INT] = "int",           [V_BIG] = "int",         [V_FLOAT] = "float",         [V_STR] = "str",
        [V_LIST] = "list",         [V_TUPLE] = "tuple",     [V_DICT] = "dict",           [V_RANGE] = "range",
        [V_VIEW] = "dict_view",    [V_ITER] = "generator",  [V_NAMESPACE] = "Namespace", [V_MACRO] = "Macro",
        [V_FUNC] = "function",     [V_METHOD] = "method",   [V_LOOP] = "LoopContext",    [V_CYCLER] = "Cycler",
        [V_JOINER] = "Joiner",
    };
    return name[v.tag];
}

bool val_truth(struct val v)
{
    switch (v.tag) {
    case V_MISSING:
    case V_UNDEF:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->n;
    case V_LIST:
    case V_TUPLE:
        return v.l->n;
    case V_DICT:
    case V_VIEW:
        return v.d->n;
    case V_RANGE:
        return v.range->n;
    default:
        return true;
    }
}

static bool equal_lists(struct run *r, const struct list *a, const struct list *b)
{
    bool same = a->n == b->n;
    run_enter(r);
    run_charge(r, 1 + (same ? a->n / 4 : 0)); /* parts may be shared: there are more paths to them than memory */
    for (uint32_t i = 0; i < a->n && same; i++)
        same = val_equal(r, a->v[i], b->v[i]);
    run_leave(r);
    return same;
}

static bool equal_dicts(struct run *r, const struct dict *a, const struct dict *b)
{
    bool same = a->n == b->n;
    run_enter(r);
    for (uint32_t i = 0; i < a->n && same; i++) {
        struct val v = dict_get(r, b, a->e[i].k);
        same = !is_missing(v) && val_equal(r, a->e[i].v, v);
    }
    run_leave(r);
    return same;
}

enum { UNORDERED = 2 }; /* one of the two is NaN */

/* Compares an integer and a float exactly: neither is converted to the other's type. */
static int order_int_float(int128 i, double f)
{
    if (isnan(f))
        return UNORDERED;
    if (fabs(f) >= 0x1p127)
        return f < 0 ? 1 : -1;
    int128 whole = (int128)f;
    double rest = f - (double)whole;
    return i != whole ? (i > whole) - (i < whole) : (rest < 0) - (rest > 0);
}

static int order_numbers(struct val a, struct val b)
{
    if (a.tag != V_FLOAT && b.tag != V_FLOAT)
        return (int_of(a) > int_of(b)) - (int_of(a) < int_of(b));
    if (a.tag == V_FLOAT && b.tag == V_FLOAT)
        return a.f < b.f ? -1 : a.f > b.f ? 1 : a.f == b.f ? 0 : UNORDERED;
    int c = a.tag == V_FLOAT ? order_int_float(int_of(b), a.f) : order_int_float(int_of(a), b.f);
    return c == UNORDERED || b.tag == V_FLOAT ? c : -c;
}

bool val_equal(struct run *r, struct val a, struct val b)
{
    if (is_number(a) && is_number(b))
        return order_numbers(a, b) == 0;
    if (a.tag != b.tag)
        return false;
    switch (a.tag) {
    case V_UNDEF:
    case V_NONE:
        return true;
    case V_STR:
        if (a.s->n == b.s->n)
            run_charge_bytes(r, a.s->n);
        return str_same(a.s, b.s);
    case V_LIST:
    case V_TUPLE:
        return a.l == b.l || equal_lists(r, a.l, b.l);
    case V_DICT:
        return a.d == b.d || equal_dicts(r, a.d, b.d);
    case V_RANGE:
        return a.range->n == b.range->n && (!a.range->n || (a.range->start == b.range->start &&
                                                            (a.range->n == 1 || a.range->step == b.range->step)));
    case V_VIEW: /* each call returns another view of the values, and views of values compare by identity */
        return a.d == b.d && a.sub == b.sub && a.sub != VIEW_VALUES;
    case V_METHOD:
        return a.method->b == b.method->b && val_equal(r, a.method->self, b.method->self);
    default:
        return a.d == b.d; /* identity */
    }
}

static int order_str(struct run *r, const struct str *a, const struct str *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n;
    run_charge_bytes(r, n);
    int c = n ? memcmp(a->p, b->p, n) : 0; /* UTF-8 sorts in the order of its code points */
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static int order_lists(struct run *r, const struct list *a, const struct list *b, const char *op)
{
    uint32_t n = a->n < b->n ? a->n : b->n, i = 0;
    int c;
    run_enter(r);
    run_charge(r, 1 + n / 4);
    while (i < n && val_equal(r, a->v[i], b->v[i]))
        i++;
    c = i < n ? val_order(r, a->v[i], b->v[i], op) : (a->n > b->n) - (a->n < b->n);
    run_leave(r);
    return c;
}

int val_order(struct run *r, struct val a, struct val b, const char *op)
{
    if (is_number(a) && is_number(b))
        return order_numbers(a, b);
    if (a.tag == V_STR && b.tag == V_STR)
        return order_str(r, a.s, b.s);
    if (is_seq(a) && a.tag == b.tag)
        return order_lists(r, a.l, b.l, op);
    type_error(r, "'%s' not supported between instances of '%s' and '%s'", op, val_type_name(a), val_type_name(b));
}

bool val_less(struct run *r, struct val a, struct val b, const char *op)
{
    int c = val_order(r, a, b, op);
    if (c == UNORDERED && (a.tag == V_FLOAT || b.tag == V_FLOAT))
        return false;
    return op[0] == '<' ? (op[1] ? c <= 0 : c < 0) : (op[1] ? c >= 0 : c > 0);
}

int64_t val_length(struct run *r, struct val v)
{
    switch (v.tag) {
    case V_UNDEF:
        return 0;
    case V_STR:
        return str_codes(r, v.s);
    case V_LIST:
    case V_TUPLE:
        return v.l->n;
    case V_DICT:
    case V_VIEW:
        return v.d->n;
    case V_RANGE:
        return v.range->n;
    default:
        type_error(r, "object of type '%s' has no len()", val_type_name(v));
    }
}

static bool contains_item(struct run *r, struct val all, struct val v)
{
    struct iter *it = iter_new(r, all);
    struct val item;
    while (iter_next(r, it, &item))
        if (val_equal(r, item, v))
            return true;
    return false;
}

bool val_contains(struct run *r, struct val all, struct val v)
{
    switch (all.tag) {
    case V_STR:
        if (v.tag != V_STR)
            type_error(r, "'in <string>' requires string as left operand, not %s", val_type_name(v));
        return str_find(r, all.s, v.s, 0, all.s->n) >= 0;
    case V_DICT:
        return !is_missing(dict_get(r, all.d, v));
    case V_VIEW:
        if (all.sub == VIEW_KEYS)
            return !is_missing(dict_get(r, all.d, v));
        return contains_item(r, all, v);
    default:
        if (!is_iterable(all))
            type_error(r, "argument of type '%s' is not iterable", val_type_name(all));
        return contains_item(r, all, v);
    }
}
