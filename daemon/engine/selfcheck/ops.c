/*
 * ops.c - which ops a model uses: a backend that writes down what it is asked for; see selfcheck.h.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/engine/selfcheck/selfcheck.h"

/* The recording backend's device: all it has is the list. */
struct device {
    struct op_list *list;
};

static bool same_weight(const struct weight *a, const struct weight *b)
{
    bool same = a->role == b->role && a->n_in == b->n_in && a->n_part == b->n_part;
    for (uint32_t i = 0; same && i < a->n_part; i++)
        same = a->part[i].type == b->part[i].type && a->part[i].n_out == b->part[i].n_out;
    return same;
}

static bool same_norm(const struct norm *a, const struct norm *b)
{
    return !a || !b ? a == b : a->kind == b->kind && a->eps == b->eps && !a->b == !b->b;
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The same work on other numbers. */
static bool same_op(const struct check_op *a, const struct check_op *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case OP_EMBED:
        return same_weight(a->embed.w, b->embed.w) && same_float(a->embed.scale, b->embed.scale);
    case OP_QKV:
        return same_weight(a->qkv.w, b->qkv.w) && a->qkv.n_head == b->qkv.n_head && a->qkv.n_kv == b->qkv.n_kv &&
               same_norm(&a->qkv.norm, &b->qkv.norm) && !a->qkv.bias == !b->qkv.bias && a->qkv.rope == b->qkv.rope &&
               same_norm(a->qkv.q_norm, b->qkv.q_norm) && same_norm(a->qkv.k_norm, b->qkv.k_norm);
    case OP_ATTEND:
        return a->attend.n_head == b->attend.n_head && a->attend.n_kv == b->attend.n_kv &&
               a->attend.d_head == b->attend.d_head && a->attend.window == b->attend.window &&
               same_float(a->attend.scale, b->attend.scale) && same_float(a->attend.softcap, b->attend.softcap);
    case OP_PROJ:
        return a->proj.in == b->proj.in && same_weight(a->proj.w, b->proj.w) && !a->proj.bias == !b->proj.bias &&
               same_norm(a->proj.post_norm, b->proj.post_norm);
    case OP_FFN_UP:
        return same_weight(a->ffn_up.w, b->ffn_up.w) && same_norm(&a->ffn_up.norm, &b->ffn_up.norm) &&
               !a->ffn_up.bias == !b->ffn_up.bias && a->ffn_up.glu == b->ffn_up.glu;
    case OP_HEAD:
        return same_weight(a->head.w, b->head.w) && same_norm(&a->head.norm, &b->head.norm) &&
               same_float(a->head.scale, b->head.scale) && same_float(a->head.softcap, b->head.softcap);
    }
    return false;
}

static void note(struct device *d, const struct check_op *op)
{
    struct op_list *l = d->list;
    for (uint32_t i = 0; i < l->n; i++)
        if (same_op(&l->op[i], op))
            return;
    if (l->n == SELFCHECK_OPS) {
        l->overflow = true;
        return;
    }
    struct check_op *new = &l->op[l->n++];
    *new = *op;
    if (new->kind == OP_QKV)
        new->qkv.layer = l->n_layer++;
    else if (new->kind == OP_ATTEND)
        new->attend.layer = l->n_layer ? l->n_layer - 1 : 0;
}

static void note_embed(struct device *d, const struct op_embed *op)
{
    note(d, &(struct check_op){.kind = OP_EMBED, .embed = *op});
}
static void note_qkv(struct device *d, const struct op_qkv *op)
{
    note(d, &(struct check_op){.kind = OP_QKV, .qkv = *op});
}
static void note_attend(struct device *d, const struct op_attend *op)
{
    note(d, &(struct check_op){.kind = OP_ATTEND, .attend = *op});
}
static void note_proj(struct device *d, const struct op_proj *op)
{
    note(d, &(struct check_op){.kind = OP_PROJ, .proj = *op});
}
static void note_ffn_up(struct device *d, const struct op_ffn_up *op)
{
    note(d, &(struct check_op){.kind = OP_FFN_UP, .ffn_up = *op});
}
static void note_head(struct device *d, const struct op_head *op)
{
    note(d, &(struct check_op){.kind = OP_HEAD, .head = *op});
}

void ops_collect(struct model *m, struct op_list *out)
{
    static const struct backend recorder = {
        .name = "recorder",
        .embed = note_embed,
        .qkv = note_qkv,
        .attend = note_attend,
        .proj_add = note_proj,
        .ffn_up = note_ffn_up,
        .head = note_head,
    };
    const struct backend *be = m->be;
    struct device *dev = m->dev, d = {out};
    memset(out, 0, sizeof *out);
    m->be = &recorder;
    m->dev = &d;
    model_forward(m);
    m->be = be;
    m->dev = dev;
}

void ops_run(const struct backend *be, struct device *d, const struct check_op *op)
{
    switch (op->kind) {
    case OP_EMBED:
        be->embed(d, &op->embed);
        break;
    case OP_QKV:
        be->qkv(d, &op->qkv);
        break;
    case OP_ATTEND:
        be->attend(d, &op->attend);
        break;
    case OP_PROJ:
        be->proj_add(d, &op->proj);
        break;
    case OP_FFN_UP:
        be->ffn_up(d, &op->ffn_up);
        break;
    case OP_HEAD:
        be->head(d, &op->head);
        break;
    }
}

const struct weight *ops_weight(const struct check_op *op)
{
    switch (op->kind) {
    case OP_EMBED:
        return op->embed.w;
    case OP_QKV:
        return op->qkv.w;
    case OP_ATTEND:
        return NULL;
    case OP_PROJ:
        return op->proj.w;
    case OP_FFN_UP:
        return op->ffn_up.w;
    case OP_HEAD:
        return op->head.w;
    }
    return NULL;
}

enum act ops_output(const struct check_op *op)
{
    static const enum act out[] = {ACT_X, ACT_Q, ACT_ATT, ACT_X, ACT_FF, ACT_LOGITS};
    return out[op->kind];
}

uint32_t ops_width(const struct check_op *op)
{
    switch (op->kind) {
    case OP_EMBED:
        return op->embed.w->n_in;
    case OP_QKV:
        return op->qkv.n_head * op->qkv.d_head;
    case OP_ATTEND:
        return op->attend.n_head * op->attend.d_head;
    case OP_FFN_UP:
        return op->ffn_up.w->part[0].n_out;
    default:
        return ops_weight(op)->n_out;
    }
}

const char *ops_describe(const struct check_op *op, char buf[96])
{
    static const char *const names[] = {"embed", "qkv", "attend", "proj_add", "ffn_up", "head"};
    const struct weight *w = ops_weight(op);
    if (!w) {
        snprintf(buf, 96, "attend (%u heads on %u KV heads of %u)", op->attend.n_head, op->attend.n_kv,
                 op->attend.d_head);
        return buf;
    }
    int at = snprintf(buf, 96, "%s (", names[op->kind]);
    for (uint32_t i = 0; i < w->n_part; i++)
        at += snprintf(buf + at, 96 - (size_t)at, "%s%s", i ? ", " : "", dtype_get(w->part[i].type)->name);
    snprintf(buf + at, 96 - (size_t)at, "; %u to %u)", w->n_in, w->n_out);
    return buf;
}
