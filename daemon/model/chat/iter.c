/* iter.c - Python's iter() and next() over every kind of value. */
#include "daemon/model/chat/exec.h"

#include <string.h>

struct iter *iter_of(struct run *r, bool (*next)(struct run *r, struct iter *it, struct val *out), void *state)
{
    struct iter *it = run_alloc0(r, 1, sizeof *it);
    it->next = next;
    it->state = state;
    return it;
}

static bool next_none(struct run *r, struct iter *it, struct val *out)
{
    (void)r, (void)it, (void)out;
    return false;
}

static bool next_item(struct run *r, struct iter *it, struct val *out)
{
    (void)r;
    if (it->at >= it->of.l->n)
        return false;
    *out = it->of.l->v[it->at++];
    return true;
}

static bool next_char(struct run *r, struct iter *it, struct val *out)
{
    if (it->at >= it->of.s->n)
        return false;
    *out = v_str(plain_str(r, v_str(str_char(r, it->of.s, (size_t)it->at))));
    it->at += out->s->n;
    return true;
}

static bool next_range(struct run *r, struct iter *it, struct val *out)
{
    (void)r;
    const struct range *g = it->of.range;
    if (it->at >= g->n)
        return false;
    *out = v_int(range_at(g, it->at++));
    return true;
}

static bool next_key(struct run *r, struct iter *it, struct val *out)
{
    (void)r;
    if (it->at >= it->of.d->n)
        return false;
    *out = it->of.d->e[it->at++].k;
    return true;
}

static bool next_value(struct run *r, struct iter *it, struct val *out)
{
    (void)r;
    if (it->at >= it->of.d->n)
        return false;
    *out = it->of.d->e[it->at++].v;
    return true;
}

static bool next_pair(struct run *r, struct iter *it, struct val *out)
{
    if (it->at >= it->of.d->n)
        return false;
    struct entry *e = &it->of.d->e[it->at++];
    *out = pair_new(r, e->k, e->v);
    return true;
}

static bool next_loop(struct run *r, struct iter *it, struct val *out)
{
    struct val loop = it->of;
    return loop_next(r, loop.loop, out) && (*out = pair_new(r, *out, loop), true);
}

bool is_iterable(struct val v)
{
    switch (v.tag) {
    case V_UNDEF:
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW:
    case V_ITER:
    case V_LOOP:
        return true;
    default:
        return false;
    }
}

struct iter *iter_new(struct run *r, struct val v)
{
    static bool (*const view[])(struct run *, struct iter *, struct val *) = {next_key, next_value, next_pair};
    struct iter *it;
    if (v.tag == V_ITER)
        return v.it;
    it = iter_of(r, next_none, NULL);
    it->of = v;
    switch (v.tag) {
    case V_UNDEF:
        break;
    case V_STR:
        it->next = next_char;
        break;
    case V_LIST:
    case V_TUPLE:
        it->next = next_item;
        break;
    case V_DICT:
        it->next = next_key;
        break;
    case V_VIEW:
        it->next = view[v.sub];
        break;
    case V_RANGE:
        it->next = next_range;
        break;
    case V_LOOP:
        it->next = next_loop;
        break;
    default:
        type_error(r, "'%s' object is not iterable", val_type_name(v));
    }
    return it;
}

bool iter_next(struct run *r, struct iter *it, struct val *out)
{
    run_charge(r, 1);
    run_enter(r);
    bool more = it->next(r, it, out);
    run_leave(r);
    if (!more)
        it->next = next_none;
    return more;
}

struct val copy_list(struct run *r, struct val v, enum tag tag)
{
    struct val out = list_new(r, tag, 0);
    if (is_seq(v)) {
        run_charge(r, v.l->n / 16);
        out = list_new(r, tag, v.l->n);
        if (v.l->n)
            memcpy(out.l->v, v.l->v, v.l->n * sizeof *v.l->v);
        out.l->n = v.l->n;
        return out;
    }
    struct iter *it = iter_new(r, v);
    struct val item;
    while (iter_next(r, it, &item))
        list_add(r, out.l, item);
    return out;
}

struct list *to_list(struct run *r, struct val v)
{
    return is_seq(v) ? v.l : copy_list(r, v, V_LIST).l;
}
