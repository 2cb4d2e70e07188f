/* op.c - the properties of an op according to the list of ops, and programs; see op.h. */
#include "kernels/backend.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *op_name(enum op_kind kind)
{
#define X(KIND, name, ...) #name,
    static const char *const names[] = {OPS(X)};
#undef X
    return names[kind];
}

const struct weight *op_weight(const struct op *o)
{
    switch (o->kind) {
#define X(KIND, name, weight, ...) \
    case OP_##KIND:                \
        return weight;
        OPS(X)
#undef X
    case OP_COUNT:
        break;
    }
    return NULL;
}

uint32_t op_reads(const struct op *o)
{
    switch (o->kind) {
#define X(KIND, name, weight, reads, ...) \
    case OP_##KIND:                       \
        return reads;
        OPS(X)
#undef X
    case OP_COUNT:
        break;
    }
    return 0;
}

enum act op_writes(const struct op *o)
{
    switch (o->kind) {
#define X(KIND, name, weight, reads, writes, width) \
    case OP_##KIND:                                 \
        return writes;
        OPS(X)
#undef X
    case OP_COUNT:
        break;
    }
    return ACT_COUNT;
}

uint32_t op_columns(const struct op *o, enum act a)
{
    const struct weight *w = op_weight(o);
    if (a != op_writes(o) && w && a < ACT_ROUTE)
        return w->n_in;
    switch (o->kind) {
#define X(KIND, name, weight, reads, writes, width) \
    case OP_##KIND:                                 \
        return width;
        OPS(X)
#undef X
    case OP_COUNT:
        break;
    }
    return 0;
}

const char *op_describe(const struct op *o, char buf[96])
{
    const struct weight *w = op_weight(o);
    if (o->kind == OP_ATTEND) {
        int end = snprintf(buf, 96, "attend (%u heads on %u KV heads of %u", (unsigned)o->attend.n_head,
                           (unsigned)o->attend.n_kv, (unsigned)o->attend.d_head);
        if (o->attend.window)
            end += snprintf(buf + end, 96 - (size_t)end, ", window %u", (unsigned)o->attend.window);
        snprintf(buf + end, 96 - (size_t)end, ")");
        return buf;
    }
    int at = snprintf(buf, 96, "%s (", op_name(o->kind));
    for (uint32_t i = 0; w && i < w->n_part; i++)
        at += snprintf(buf + at, 96 - (size_t)at, "%s%s", i ? ", " : "", dtype_get((int)w->part[i].type)->name);
    if (w)
        at += snprintf(buf + at, 96 - (size_t)at, "; %u to %u", (unsigned)w->n_in, (unsigned)w->n_out);
    if (w && w->n_expert)
        snprintf(buf + at, 96 - (size_t)at, ", %u experts)", (unsigned)w->n_expert);
    else if (w)
        snprintf(buf + at, 96 - (size_t)at, ")");
    else
        snprintf(buf + at, 96 - (size_t)at, "%u columns)", (unsigned)op_columns(o, op_writes(o)));
    return buf;
}

/* --- programs -------------------------------------------------------------------------------------------- */

static uint64_t next_id(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

/* The last op that names an activation decides its width: that is what act_read finds once all ops have run. */
static void note_widths(struct program *p, const struct op *o)
{
    for (int a = 0; a < ACT_COUNT; a++)
        if ((op_reads(o) | ACT_BIT(op_writes(o))) & ACT_BIT(a)) {
            p->width[a] = op_columns(o, (enum act)a);
            p->most[a] = p->most[a] > p->width[a] ? p->most[a] : p->width[a];
        }
}

struct program program_of(const void *model, const struct op *op, uint32_t n)
{
    struct program p = {.op = (struct op *)op, .n_op = n, .model = model, .id = next_id()};
    for (uint32_t i = 0; i < n; i++)
        note_widths(&p, &op[i]);
    return p;
}

void program_add(struct program *p, const struct op *op)
{
    if (p->n_op == p->cap) {
        uint32_t cap = p->cap ? 2 * p->cap : 64;
        struct op *more = p->failed ? NULL : realloc(p->op, cap * sizeof *more);
        if (!more) {
            p->failed = true;
            return;
        }
        p->op = more;
        p->cap = cap;
    }
    p->op[p->n_op++] = *op;
    p->id = next_id();
    note_widths(p, op);
}

void program_free(struct program *p)
{
    if (p->cap)
        free(p->op);
    *p = (struct program){0};
}
