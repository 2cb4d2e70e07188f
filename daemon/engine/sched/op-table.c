/* op-table.c - see op-table.h. Pure except for the backend's op_path(). */
#include "daemon/engine/sched/op-table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    uint32_t n_row;
    bool invariant;
} steps[OP_STEPS] = {
    [OP_STEP_ONE] = {1, false},
    [OP_STEP_FEW] = {OP_FEW_ROWS, false},
    [OP_STEP_MANY] = {OP_MANY_ROWS, false},
    [OP_STEP_INVARIANT] = {1, true},
};

/* Every path reads float weights at memory speed; of block-quantised weights only gemv turns the smaller size into
 * speed. */
static bool is_quantised(const struct weight *w)
{
    for (uint32_t i = 0; w && i < w->n_part; i++)
        if (w->part[i].type == DT_F32 || w->part[i].type == DT_F16 || w->part[i].type == DT_BF16)
            return false;
    return w != NULL;
}

/* The types of the parts that the device keeps as F16, as "IQ3_S, NVFP4". */
static const char *expanded_types(const struct weight *w, char buf[40])
{
    size_t at = 0;
    buf[0] = 0;
    for (uint32_t i = 0; i < w->n_part; i++) {
        const char *name = dtype_get((int)w->part[i].type)->name;
        if (w->expanded >> i & 1 && !strstr(buf, name) && at < 40)
            at += (size_t)snprintf(buf + at, 40 - at, "%s%s", at ? ", " : "", name);
    }
    return buf;
}

/* Whether the path has this name, with or without a '+' suffix. */
static bool is(const char *path, const char *name)
{
    size_t n = strlen(name);
    return path && !strncmp(path, name, n) && (!path[n] || path[n] == '+');
}

/* What the MORE of a path "NAME+MORE" means for the op. */
static const char *separately(const struct op *o)
{
    switch (o->kind) {
    case OP_QKV:
        return o->qkv.q_norm || o->qkv.k_norm ? "norms of q and k in a kernel of their own"
                                              : "RoPE in a kernel of its own";
    case OP_ATTEND:
        return "one row through the kernels for many";
    case OP_PROJ:
        return "the norm after it in a kernel of its own";
    default:
        return "the activation in a kernel of its own";
    }
}

const char *op_slow(const struct op *o, const struct op_paths *paths, char buf[OP_SLOW_TEXT])
{
    const struct weight *w = op_weight(o);
    char types[40];
    for (int s = 0; s < OP_STEPS; s++)
        if (!paths->at[s]) {
            snprintf(buf, OP_SLOW_TEXT, "no kernel for %u rows", steps[s].n_row);
            return buf;
        }
    if (is(paths->at[OP_STEP_ONE], "ref"))
        snprintf(buf, OP_SLOW_TEXT, "through the reference kernels");
    else if (w && w->expanded)
        snprintf(buf, OP_SLOW_TEXT, "%s expanded to F16", expanded_types(w, types));
    else if (is_quantised(w) && is(paths->at[OP_STEP_ONE], "skinny"))
        snprintf(buf, OP_SLOW_TEXT, "one row through skinny, not gemv");
    else if (is_quantised(w) && is(paths->at[OP_STEP_ONE], "grouped"))
        snprintf(buf, OP_SLOW_TEXT, "one row of experts through grouped, not few");
    else if (is(paths->at[OP_STEP_FEW], "skinny") || is(paths->at[OP_STEP_FEW], "gemv"))
        snprintf(buf, OP_SLOW_TEXT, "%d rows through %s, not wgmma", OP_FEW_ROWS, paths->at[OP_STEP_FEW]);
    else if (strchr(paths->at[OP_STEP_ONE], '+'))
        snprintf(buf, OP_SLOW_TEXT, "%s", separately(o));
    else
        return NULL;
    return buf;
}

static bool same_paths(const struct op_paths *a, const struct op_paths *b)
{
    return !memcmp(a->at, b->at, sizeof a->at); /* the names are constants of the backend */
}

/* How many ops equal the ith one in their description and in their paths; 0: it equals an earlier one. */
static uint32_t alike(const struct op_table *t, const struct program *p, uint32_t i)
{
    char own[96], other[96];
    uint32_t n = 0;
    op_describe(&p->op[i], own);
    for (uint32_t k = 0; k < t->n; k++) {
        if (!same_paths(&t->op[i], &t->op[k]) || strcmp(op_describe(&p->op[k], other), own))
            continue;
        if (k < i)
            return 0;
        n++;
    }
    return n;
}

static void list_slow(struct op_table *t, const struct program *p)
{
    char why[OP_SLOW_TEXT], what[96];
    for (uint32_t i = 0; i < t->n && t->n_slow < OP_SLOW_MAX; i++) {
        uint32_t n = op_slow(&p->op[i], &t->op[i], why) ? alike(t, p, i) : 0;
        if (!n)
            continue;
        char *text = t->text[t->n_slow];
        snprintf(text, OP_SLOW_TEXT, "%s x %u: %.64s", op_describe(&p->op[i], what), (unsigned)n, why);
        t->slow[t->n_slow++] = text;
    }
}

struct op_table *op_table_new(const struct backend *be, struct device *dev, bool gpu, const struct program *p,
                              enum invariance invariant)
{
    struct op_table *t = calloc(1, sizeof *t + p->n_op * sizeof t->op[0]);
    if (!t)
        return NULL;
    t->n = p->n_op;
    for (uint32_t i = 0; i < p->n_op; i++)
        for (int s = 0; s < OP_STEPS; s++)
            t->op[i].at[s] = be->op_path(dev, p, i, steps[s].n_row, steps[s].invariant ? invariant : INVARIANT_OFF);
    if (gpu)
        list_slow(t, p);
    return t;
}

bool op_table_same(const struct op_table *a, const struct op_table *b)
{
    bool same = a->n == b->n && a->n_slow == b->n_slow;
    for (uint32_t i = 0; i < a->n && same; i++)
        same = same_paths(&a->op[i], &b->op[i]);
    return same;
}
