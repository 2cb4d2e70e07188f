/*
 * ops.c - collects the different ops of a model's program; see selfcheck.h.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/selfcheck/selfcheck.h"

bool same_weight(const struct weight *a, const struct weight *b)
{
    bool same = a->role == b->role && a->n_in == b->n_in && a->n_part == b->n_part && a->n_expert == b->n_expert;
    for (uint32_t i = 0; same && i < a->n_part; i++)
        same = a->part[i].type == b->part[i].type && a->part[i].n_out == b->part[i].n_out;
    return same;
}

bool same_norm(const struct norm *a, const struct norm *b)
{
    return !a || !b ? a == b : a->kind == b->kind && a->eps == b->eps && !a->b == !b->b;
}

bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* --- whether two ops do the same work on other numbers, by kind ------------------------------------------ */

bool same_embed(const struct op_embed *a, const struct op_embed *b)
{
    return same_weight(a->w, b->w) && same_float(a->scale, b->scale);
}

bool same_qkv(const struct op_qkv *a, const struct op_qkv *b)
{
    return a->group == b->group && same_weight(a->w, b->w) && a->n_head == b->n_head && a->n_kv == b->n_kv &&
           same_norm(&a->norm, &b->norm) && !a->bias == !b->bias && a->rope == b->rope &&
           same_norm(a->q_norm, b->q_norm) && same_norm(a->k_norm, b->k_norm) && same_norm(a->v_norm, b->v_norm) &&
           a->whole_norms == b->whole_norms && a->gated == b->gated &&
           same_float(a->temperature.beta, b->temperature.beta) && a->temperature.length == b->temperature.length;
}

bool same_attend(const struct op_attend *a, const struct op_attend *b)
{
    return a->group == b->group && a->n_head == b->n_head && a->n_kv == b->n_kv && a->d_head == b->d_head &&
           a->window == b->window && same_float(a->scale, b->scale) && same_float(a->softcap, b->softcap) &&
           !a->sinks == !b->sinks && a->d_latent == b->d_latent && a->gated == b->gated;
}

bool same_proj(const struct op_proj *a, const struct op_proj *b)
{
    return a->in == b->in && same_weight(a->w, b->w) && !a->bias == !b->bias && same_norm(a->post_norm, b->post_norm) &&
           same_float(a->residual_scale, b->residual_scale) && !a->x_scale == !b->x_scale && a->aside == b->aside;
}

bool same_ffn_up(const struct op_ffn_up *a, const struct op_ffn_up *b)
{
    return same_weight(a->w, b->w) && same_norm(&a->norm, &b->norm) && !a->bias == !b->bias && a->glu == b->glu &&
           !a->row_gate == !b->row_gate;
}

bool same_head(const struct op_head *a, const struct op_head *b)
{
    return same_weight(a->w, b->w) && same_norm(&a->norm, &b->norm) && same_float(a->scale, b->scale) &&
           same_float(a->softcap, b->softcap) && !a->bias == !b->bias;
}

/* --- the list -------------------------------------------------------------------------------------------- */

static bool same_op(const struct op *a, const struct op *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
#define X(KIND, name) \
    case OP_##KIND:   \
        return same_##name(&a->name, &b->name);
        CHECKED_OPS(X)
#undef X
    default: /* an unknown kind: one such op is enough to refuse the device */
        return true;
    }
}

static bool has(const struct op_list *l, const struct op *op)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (same_op(&l->op[i], op))
            return true;
    return false;
}

static void add(struct op_list *l, const struct op *op)
{
    struct op *new = &l->op[l->n++];
    *new = *op;
    if (new->kind == OP_QKV)
        new->qkv.layer = l->n_layer[new->qkv.group]++;
    else if (new->kind == OP_LATENT)
        new->latent.layer = l->n_layer[new->latent.group]++;
    else if (new->kind == OP_ATTEND)
        new->attend.layer = l->n_layer[new->attend.group] ? l->n_layer[new->attend.group] - 1 : 0;
    else if (new->kind == OP_SHORTCONV)
        new->shortconv.layer = l->n_layer[new->shortconv.group]++;
    else if (new->kind == OP_DELTA)
        new->delta.layer = l->n_layer[new->delta.group]++;
    else if (new->kind == OP_MAMBA2)
        new->mamba2.layer = l->n_layer[new->mamba2.group]++;
}

/* Marks the ops that op i depends on: for each activation that it reads, the last op before it that wrote it. The
 * residual stream is left out, because every op leaves it complete. Columns of ACT_MIX are written by several
 * successive products. */
static void mark_read(const struct program *p, uint32_t i, bool *marked)
{
    for (int a = ACT_X + 1; a < ACT_COUNT; a++) {
        uint32_t k = op_reads(&p->op[i]) & ACT_BIT(a) ? i : 0;
        while (k && op_writes(&p->op[k - 1]) != (enum act)a)
            k--;
        for (; k && op_writes(&p->op[k - 1]) == (enum act)a; k--) {
            marked[k - 1] = true;
            if (p->op[k - 1].kind != OP_PROJECT)
                break;
        }
    }
}

int ops_collect(const struct program *p, struct op_list *different, struct op_list *step, struct hearth_err *e)
{
    bool *marked = calloc(p->n_op + 1, sizeof *marked);
    *different = *step = (struct op_list){0};
    different->op = malloc((p->n_op + 1) * sizeof *different->op);
    step->op = malloc((p->n_op + 1) * sizeof *step->op);
    if (!marked || !different->op || !step->op) {
        free(marked);
        return err_set(e, HEARTH_ENOMEM, "no memory for a list of ops");
    }
    for (uint32_t i = 0; i < p->n_op; i++)
        if ((marked[i] = !has(different, &p->op[i])))
            add(different, &p->op[i]);
    for (uint32_t i = p->n_op; i-- > 0;)
        if (marked[i])
            mark_read(p, i, marked);
    for (uint32_t i = 0; i < p->n_op; i++)
        if (marked[i])
            add(step, &p->op[i]);
    free(marked);
    return 0;
}

void op_list_free(struct op_list *l)
{
    free(l->op);
    *l = (struct op_list){0};
}
