/* hparams-experts.c - reads the hyperparameters of mixtures of experts, and checks that they are consistent. */
#include "daemon/model/hparams-internal.h"

#include <stdio.h>

#include "daemon/model/arch/arch.h"

/* Whether a selection bias affects which experts are chosen. Models that have one score by sigmoids. */
static bool choice_has_bias(const struct hparams_reader *r, const struct hparams *hp)
{
    char name[64];
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", i);
        if (gguf_tensor_find(r->g, name))
            return true;
    }
    return false;
}

/* Files without expert_gating_func predate the key, except those of GLM-4.7-Flash, which also lack it. */
static enum route_kind gating(struct hparams_reader *r, const struct hparams *hp, const struct arch *row)
{
    static const enum route_kind kinds[] = {[1] = ROUTE_SOFTMAX, [2] = ROUTE_SIGMOID, [3] = ROUTE_SOFTMAX_CHOSEN};
    uint32_t kind = hparams_number(r, "expert_gating_func", 0, 3, 0);
    if (!r->ret && !kind && row->experts.kind == ROUTE_SOFTMAX && choice_has_bias(r, hp))
        return ROUTE_SIGMOID;
    return kind ? kinds[kind] : row->experts.kind;
}

static void read_groups(struct hparams_reader *r, struct hparams_experts *x)
{
    x->n_group = hparams_number(r, "expert_group_count", 0, x->n, 0);
    x->n_group_used = hparams_number(r, "expert_group_used_count", 0, x->n, 0);
    if (r->ret || x->n_group <= 1)
        return;
    x->group_best = x->kind == ROUTE_SIGMOID ? 2 : 1; /* two per group in DeepSeek V3, one in DeepSeek V2 */
    if (x->n % x->n_group || x->n / x->n_group < x->group_best)
        hparams_refuse(r, HEARTH_EBADMODEL,
                       "%u experts do not make %u groups of at least %u (key %s.expert_group_count)", x->n, x->n_group,
                       x->group_best, r->arch);
    else if (!x->n_group_used || x->n_group_used > x->n_group || x->n_used > x->n / x->n_group * x->n_group_used)
        hparams_refuse(r, HEARTH_EBADMODEL,
                       "%u experts cannot be chosen from %u of %u groups of %u (key %s.expert_group_used_count)",
                       x->n_used, x->n_group_used, x->n_group, x->n / x->n_group, r->arch);
}

void hparams_read_experts(struct hparams_reader *r, struct hparams *hp, const struct arch *row)
{
    struct hparams_experts *x = &hp->experts;
    x->n = hparams_number(r, "expert_count", 0, UINT32_MAX, 0);
    if (r->ret || !x->n)
        return;
    if (!row->experts.may) {
        hparams_refuse(r, HEARTH_EUNSUPPORTED,
                       "a mixture of experts (%s.expert_count), which hearth does not run in a %s", r->arch, r->arch);
        return;
    }
    x->n = hparams_number(r, "expert_count", 1, EXPERTS_MAX, REQUIRED);
    x->n_used = hparams_number(r, "expert_used_count", 1, EXPERTS_USED_MAX, REQUIRED);
    if (!r->ret && x->n_used > x->n)
        hparams_refuse(r, HEARTH_EBADMODEL, "%u experts of %u are used (%s.expert_used_count)", x->n_used, x->n,
                       r->arch);
    uint32_t d_absent = r->ret || !row->experts.share_ff ? hp->d_ff : hp->d_ff / x->n_used;
    x->d_expert = hparams_number(r, "expert_feed_forward_length", 8, 1 << 20, d_absent);
    x->d_shared = hparams_number(r, "expert_shared_feed_forward_length", 0, 1 << 20, 0);
    uint32_t n_shared = hparams_number(r, "expert_shared_count", 0, 64, 0);
    if (!x->d_shared)
        x->d_shared = n_shared * x->d_expert;
    x->n_dense = hparams_number(r, "leading_dense_block_count", 0, hp->n_layer, 0);
    x->kind = gating(r, hp, row);
    x->ungated = row->experts.ungated;
    x->normalise = hparams_flag(r, "expert_weights_norm", row->experts.normalise);
    float scale = hparams_real(r, "expert_weights_scale", 0, 1e6f, 1);
    x->scale = scale > 0 ? scale : 1;
    read_groups(r, x);
}
