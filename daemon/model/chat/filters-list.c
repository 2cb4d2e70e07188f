/* filters-list.c - filters over sequences. Those that are generators in Python are lazy here too, item by item. */
#include "daemon/model/chat/exec.h"

#include <string.h>

#define FILTER(name) static struct val filter_##name(struct run *r, struct val v, struct val *arg)

static struct val iter_val(struct iter *it)
{
    return (struct val){.tag = V_ITER, .it = it};
}

static struct val fold_case(struct run *r, struct val v)
{
    return v.tag == V_STR ? v_str(text_case(r, v.s, CASE_LOWER)) : v;
}

/* The sort keys of all items: each is a list with an entry for each attribute. */
static struct list *sort_keys(struct run *r, const struct list *items, struct val attr, bool fold)
{
    struct val all = list_new(r, V_LIST, items->n), attrs = list_new(r, V_LIST, 1);
    if (attr.tag == V_STR)
        attrs = builtin_call(r, str_method_find(v_text(r, "split").s), attr,
                             &(struct call){.pos = (struct val[]){v_text(r, ",")}, .n_pos = 1});
    else
        list_add(r, attrs.l, attr);
    for (uint32_t i = 0; i < items->n; i++) {
        struct val key = list_new(r, V_LIST, attrs.l->n);
        for (uint32_t k = 0; k < attrs.l->n; k++) {
            struct val part = get_path(r, items->v[i], attrs.l->v[k], NONE);
            list_add(r, key.l, fold ? fold_case(r, part) : part);
        }
        list_add(r, all.l, key);
    }
    return all.l;
}

/* A stable merge sort of indices, which gives Python's order; a comparison may fail at any time. */
static void merge(struct run *r, uint32_t *at, uint32_t *tmp, uint32_t n, const struct list *keys, bool reverse)
{
    if (n < 2)
        return;
    uint32_t half = n / 2, a = 0, b = half, k = 0;
    merge(r, at, tmp, half, keys, reverse);
    merge(r, at + half, tmp, n - half, keys, reverse);
    while (a < half && b < n) {
        struct val x = keys->v[at[a]], y = keys->v[at[b]];
        run_charge(r, 1);
        bool right = reverse ? val_less(r, x, y, "<") : val_less(r, y, x, "<");
        tmp[k++] = right ? at[b++] : at[a++];
    }
    while (a < half)
        tmp[k++] = at[a++];
    memcpy(at, tmp, k * sizeof *at);
}

void sort_values(struct run *r, struct list *items, const struct list *keys, bool reverse)
{
    uint32_t n = items->n;
    uint32_t *at = run_alloc(r, n + 1u, sizeof *at), *tmp = run_alloc(r, n + 1u, sizeof *tmp);
    struct val *was = run_alloc(r, n + 1u, sizeof *was);
    for (uint32_t i = 0; i < n; i++)
        at[i] = i;
    merge(r, at, tmp, n, keys, reverse);
    if (n)
        memcpy(was, items->v, n * sizeof *was);
    for (uint32_t i = 0; i < n; i++)
        items->v[i] = was[at[i]];
}

FILTER(first)
{
    struct val out;
    (void)arg;
    return iter_next(r, iter_new(r, v), &out) ? out : v_undef(v_text(r, "first item of an empty sequence").s);
}

/* The items of reversed(v) as a new list, or V_MISSING where v cannot be reversed. */
static struct val reversed(struct run *r, struct val v)
{
    if (v.tag != V_STR && !is_seq(v) && v.tag != V_DICT && v.tag != V_VIEW && v.tag != V_RANGE && v.tag != V_UNDEF)
        return (struct val){0};
    struct val all = copy_list(r, v, V_LIST);
    for (uint32_t i = 0; i < all.l->n / 2; i++) {
        struct val t = all.l->v[i];
        all.l->v[i] = all.l->v[all.l->n - 1 - i];
        all.l->v[all.l->n - 1 - i] = t;
    }
    return all;
}

FILTER(last)
{
    (void)arg;
    if (v.tag == V_STR || is_seq(v))
        return val_length(r, v) ? get_item(r, v, v_int(-1)) : v_undef(NULL);
    struct val all = reversed(r, v);
    if (is_missing(all))
        type_error(r, "'%s' object is not reversible", val_type_name(v));
    return all.l->n ? all.l->v[0] : v_undef(NULL);
}

FILTER(reverse)
{
    (void)arg;
    if (v.tag == V_STR)
        return get_slice(r, v, NONE, NONE, v_int(-1));
    struct val all = reversed(r, v);
    if (!is_missing(all))
        return iter_val(iter_new(r, all));
    return reversed(r, copy_list(r, v, V_LIST));
}

FILTER(length)
{
    (void)arg;
    return v_int(val_length(r, v));
}

FILTER(list)
{
    (void)arg;
    return copy_list(r, v, V_LIST);
}

/* --- map, select ------------------------------------------------------------------------------------------ */

struct pick {
    struct val of;
    struct iter *it; /* NULL before the first item */
    struct call c;   /* the remaining arguments */
    struct val attr, def, name;
    const struct builtin *test; /* NULL: the value's own truth */
    bool want;
};

static struct call rest_of(const struct call *c, uint32_t n)
{
    struct call rest = *c;
    rest.pos = c->n_pos > n ? c->pos + n : NULL;
    rest.n_pos -= n;
    return rest;
}

/* Parses the arguments of map(): the name of a filter, or attribute= with default=. */
static void map_args(struct run *r, struct pick *p)
{
    if (p->c.n_pos) {
        p->name = p->c.pos[0];
        p->c = rest_of(&p->c, 1);
        return;
    }
    for (uint32_t i = 0; i < p->c.n_kw; i++) {
        if (str_is(p->c.kw_name[i], "attribute"))
            p->attr = p->c.kw[i];
        else if (str_is(p->c.kw_name[i], "default"))
            p->def = p->c.kw[i];
        else
            type_error(r, "map() got an unexpected keyword argument");
    }
    if (is_missing(p->attr))
        type_error(r, "map requires a filter argument");
}

static bool next_mapped(struct run *r, struct iter *it, struct val *out)
{
    struct pick *p = it->state;
    if (!p->it) {
        if (!val_truth(p->of))
            return false;
        map_args(r, p);
        p->it = iter_new(r, p->of);
    }
    if (!iter_next(r, p->it, out))
        return false;
    *out = is_missing(p->name) ? get_path(r, *out, p->attr, p->def) : filter_by_name(r, p->name, *out, &p->c);
    return true;
}

static struct val filter_map(struct run *r, struct val v, const struct call *c)
{
    struct pick *p = run_alloc0(r, 1, sizeof *p);
    p->of = v;
    p->c = *c;
    return iter_val(iter_of(r, next_mapped, p));
}

static bool picks(struct run *r, struct pick *p, struct val v)
{
    if (!is_missing(p->attr))
        v = get_path(r, v, p->attr, NONE);
    if (is_missing(p->name))
        return val_truth(v);
    return test_call(r, p->test, v, &p->c);
}

static bool next_picked(struct run *r, struct iter *it, struct val *out)
{
    struct pick *p = it->state;
    if (!p->it) {
        if (!val_truth(p->of))
            return false;
        p->it = iter_new(r, p->of);
        if (!is_missing(p->name) && (p->name.tag != V_STR || !(p->test = test_find(p->name.s))))
            type_error(r, "No test of that name.");
    }
    while (iter_next(r, p->it, out))
        if (picks(r, p, *out) == p->want)
            return true;
    return false;
}

static struct val pick(struct run *r, struct val v, const struct call *c, bool by_attr, bool want)
{
    struct pick *p = run_alloc0(r, 1, sizeof *p);
    uint32_t n = by_attr;
    p->of = v;
    p->want = want;
    if (by_attr && !c->n_pos)
        type_error(r, "Missing parameter for attribute name");
    if (by_attr)
        p->attr = c->pos[0];
    if (c->n_pos > n)
        p->name = c->pos[n++];
    p->c = rest_of(c, n < c->n_pos ? n : c->n_pos);
    return iter_val(iter_of(r, next_picked, p));
}

static struct val filter_select(struct run *r, struct val v, const struct call *c)
{
    return pick(r, v, c, false, true);
}
static struct val filter_reject(struct run *r, struct val v, const struct call *c)
{
    return pick(r, v, c, false, false);
}
static struct val filter_selectattr(struct run *r, struct val v, const struct call *c)
{
    return pick(r, v, c, true, true);
}
static struct val filter_rejectattr(struct run *r, struct val v, const struct call *c)
{
    return pick(r, v, c, true, false);
}

/* --- the others ------------------------------------------------------------------------------------------- */

static struct val attributes(struct run *r, struct val v, struct val attr)
{
    if (is_missing(attr) || attr.tag == V_NONE)
        return v;
    struct val out = list_new(r, V_LIST, 0), item;
    struct iter *it = iter_new(r, v);
    while (iter_next(r, it, &item))
        list_add(r, out.l, get_path(r, item, attr, NONE));
    return out;
}

FILTER(join)
{
    const struct str *sep = is_missing(arg[0]) ? v_text(r, "").s : plain_str(r, arg[0]);
    return text_join(r, sep, attributes(r, v, arg[1]), true);
}

FILTER(sort)
{
    struct val out = copy_list(r, v, V_LIST);
    sort_values(r, out.l, sort_keys(r, out.l, arg[2], !val_truth(arg[1])),
                !is_missing(arg[0]) && need_int(r, arg[0], "reverse"));
    return out;
}

FILTER(dictsort)
{
    const struct str *by = is_missing(arg[1]) ? NULL : need_str(r, arg[1], "by");
    bool value = by && str_is(by, "value");
    if (by && !value && !str_is(by, "key"))
        type_error(r, "You can only sort by either \"key\" or \"value\"");
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    if (v.tag != V_DICT)
        type_error(r, "'%s' object has no items", val_type_name(v));
    struct val out = list_new(r, V_LIST, v.d->n), keys = list_new(r, V_LIST, v.d->n);
    for (uint32_t i = 0; i < v.d->n; i++) {
        const struct entry *e = &v.d->e[i];
        list_add(r, out.l, pair_new(r, e->k, e->v));
        struct val key = value ? e->v : e->k;
        list_add(r, keys.l, val_truth(arg[0]) ? key : fold_case(r, key));
    }
    sort_values(r, out.l, keys.l, !is_missing(arg[2]) && need_int(r, arg[2], "reverse"));
    return out;
}

static bool next_no_item(struct run *r, struct iter *it, struct val *out)
{
    (void)it, (void)out;
    type_error(r, "Can only get item pairs from a mapping.");
}

FILTER(items)
{
    (void)arg;
    if (v.tag == V_UNDEF)
        return iter_val(iter_new(r, v));
    if (v.tag != V_DICT)
        return iter_val(iter_of(r, next_no_item, NULL));
    return iter_val(iter_new(r, (struct val){.tag = V_VIEW, .sub = VIEW_ITEMS, .d = v.d}));
}

struct unique {
    struct val seen, attr;
    struct iter *of;
    bool fold;
};

static bool next_unique(struct run *r, struct iter *it, struct val *out)
{
    struct unique *u = it->state;
    while (iter_next(r, u->of, out)) {
        struct val key = get_path(r, *out, u->attr, NONE);
        if (u->fold)
            key = fold_case(r, key);
        if (!is_missing(dict_get(r, u->seen.d, key)))
            continue;
        dict_set(r, u->seen.d, key, NONE);
        return true;
    }
    return false;
}

FILTER(unique)
{
    struct unique *u = run_alloc(r, 1, sizeof *u);
    *u = (struct unique){dict_new(r, V_DICT), arg[1], iter_new(r, v), !val_truth(arg[0])};
    return iter_val(iter_of(r, next_unique, u));
}

FILTER(sum)
{
    struct val total = is_missing(arg[1]) ? v_int(0) : arg[1], item;
    struct iter *it = iter_new(r, attributes(r, v, arg[0]));
    if (total.tag == V_STR)
        type_error(r, "sum() can't sum strings");
    while (iter_next(r, it, &item))
        total = op_binary(r, T_ADD, total, item);
    return total;
}

static struct val extreme(struct run *r, struct val v, const struct val *arg, const char *op)
{
    struct iter *it = iter_new(r, v);
    struct val best, item, best_key, key;
    if (!iter_next(r, it, &best))
        return v_undef(v_text(r, "aggregate of an empty sequence").s);
    best_key = get_path(r, best, arg[1], NONE);
    best_key = val_truth(arg[0]) ? best_key : fold_case(r, best_key);
    while (iter_next(r, it, &item)) {
        key = get_path(r, item, arg[1], NONE);
        key = val_truth(arg[0]) ? key : fold_case(r, key);
        if (key.tag == V_UNDEF || best_key.tag == V_UNDEF)
            undefined_error(r, key.tag == V_UNDEF ? key : best_key);
        if (val_less(r, key, best_key, op)) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

FILTER(min)
{
    return extreme(r, v, arg, "<");
}
FILTER(max)
{
    return extreme(r, v, arg, ">");
}

/* Whether the last line is filled: with any value but none, an undefined one too. */
static bool fills(struct val with)
{
    return !is_missing(with) && with.tag != V_NONE;
}

FILTER(batch)
{
    int64_t size = need_int(r, arg[0], "a line's length");
    struct list *items = to_list(r, v);
    struct val out = list_new(r, V_LIST, 0), line = list_new(r, V_LIST, 0);
    for (uint32_t i = 0; i < items->n; i++) {
        if ((int64_t)line.l->n == size) {
            list_add(r, out.l, line);
            line = list_new(r, V_LIST, 0);
        }
        list_add(r, line.l, items->v[i]);
    }
    for (; line.l->n && fills(arg[1]) && (int64_t)line.l->n < size; run_charge(r, 1))
        list_add(r, line.l, arg[1]);
    if (line.l->n)
        list_add(r, out.l, line);
    return iter_val(iter_new(r, out));
}

FILTER(slice)
{
    int64_t n = need_int(r, arg[0], "a number of slices");
    struct list *items = to_list(r, v);
    struct val out = list_new(r, V_LIST, 0);
    if (n == 0)
        type_error(r, "integer division or modulo by zero");
    int64_t each = n > 0 ? items->n / n : 0, extra = n > 0 ? items->n % n : 0, at = 0;
    for (int64_t i = 0; i < n; i++) {
        struct val part = list_new(r, V_LIST, 0);
        run_charge(r, 1);
        for (int64_t k = 0; k < each + (i < extra); k++)
            list_add(r, part.l, items->v[at++]);
        if (fills(arg[1]) && i >= extra)
            list_add(r, part.l, arg[1]);
        list_add(r, out.l, part);
    }
    return iter_val(iter_new(r, out));
}

FILTER(groupby)
{
    struct val items = copy_list(r, v, V_LIST), keys = list_new(r, V_LIST, 0), out = list_new(r, V_LIST, 0);
    bool fold = !val_truth(arg[2]);
    for (uint32_t i = 0; i < items.l->n; i++) {
        struct val key = get_path(r, items.l->v[i], arg[0], arg[1]);
        list_add(r, keys.l, pair_new(r, fold ? fold_case(r, key) : key, items.l->v[i]));
    }
    struct val by = list_new(r, V_LIST, 0);
    for (uint32_t i = 0; i < keys.l->n; i++)
        list_add(r, by.l, keys.l->v[i].l->v[0]);
    sort_values(r, keys.l, by.l, false);
    for (uint32_t i = 0; i < keys.l->n; i++) {
        struct val *pair = keys.l->v[i].l->v;
        if (!i || !val_equal(r, pair[0], keys.l->v[i - 1].l->v[0])) {
            struct val group = pair_new(r, get_path(r, pair[1], arg[0], arg[1]), list_new(r, V_LIST, 0));
            group.l->group = true;
            list_add(r, out.l, group);
        }
        list_add(r, out.l->v[out.l->n - 1].l->v[1].l, pair[1]);
    }
    return out;
}

/* Always the first item, so that rendering is reproducible. */
FILTER(random)
{
    (void)arg;
    if (v.tag == V_DICT || v.tag == V_VIEW)
        type_error(r, "'%s' object has no item of a number", val_type_name(v));
    return val_length(r, v) ? get_item(r, v, v_int(0)) : v_undef(NULL);
}

const struct builtin list_filters[] = {
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"items", filter_items, "", 0},
    {"list", filter_list, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"map", NULL, NULL, 0, filter_map},
    {"select", NULL, NULL, 0, filter_select},
    {"reject", NULL, NULL, 0, filter_reject},
    {"selectattr", NULL, NULL, 0, filter_selectattr},
    {"rejectattr", NULL, NULL, 0, filter_rejectattr},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"reverse", filter_reverse, "", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"slice", filter_slice, "slices fill_with", 1},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"random", filter_random, "", 0},
    {NULL},
};
