/*
 * experts.c - a mixture of experts in place of the feed-forward network: a router, the experts, and in some models a
 * shared expert, an ordinary network that every token goes through. Experts may work in a latent space that is narrower
 * than the residual stream (LatentMoE): one matrix, common to all of them, projects into it, and another projects the
 * weighted sum of their results back. The router and the shared expert read the row itself.
 */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

/* Whether the current layer is a mixture: it has a router. A layer that should be a mixture and has no dense FFN either
 * counts as one, so that the missing router is reported. */
bool bind_is_mixture(const struct binder *b, const struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    return hp->experts.n &&
           (bind_has(b, "ffn_gate_inp.weight") || (l->number >= hp->experts.n_dense && !bind_has(b, "ffn_up.weight")));
}

/* Columns of the experts' input and output. */
static uint32_t width(const struct hparams *hp)
{
    return hp->experts.d_latent ? hp->experts.d_latent : hp->d_model;
}

static int bind_latent(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part down = {"ffn_latent_down.weight", width(hp)}, up = {"ffn_latent_up.weight", hp->d_model};
    int ret = bind_matrix(b, &l->latent_down, WEIGHT_MIXER, hp->d_model, &down, 1);
    return ret ? ret : bind_matrix(b, &l->latent_up, WEIGHT_PROJ, width(hp), &up, 1);
}

static int bind_up(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct hparams_experts *x = &hp->experts;
    const struct bind_part parts[] = {{"ffn_gate", x->d_expert}, {"ffn_up", x->d_expert}};
    const struct bind_part bias[] = {{"ffn_gate_exps.bias", x->d_expert}, {"ffn_up_exps.bias", x->d_expert}};
    if (x->ungated)
        return bind_experts(b, &l->experts_up, WEIGHT_EXPERTS_UP, width(hp), x->n, &parts[1], 1);
    int ret =
        bind_has(b, "ffn_gate_up_exps.weight")
            ? bind_experts_fused(b, &l->experts_up, WEIGHT_EXPERTS_UP, width(hp), x->n, "ffn_gate_up", x->d_expert)
            : bind_experts(b, &l->experts_up, WEIGHT_EXPERTS_UP, width(hp), x->n, parts, 2);
    return ret || !bind_has(b, bias[0].name) ? ret : bind_rows(b, &l->experts_up_bias, bias, 2, x->n);
}

static int bind_down(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part part = {"ffn_down", width(hp)}, bias = {"ffn_down_exps.bias", width(hp)};
    int ret = bind_experts(b, &l->experts_down, WEIGHT_EXPERTS_DOWN, hp->experts.d_expert, hp->experts.n, &part, 1);
    return ret || !bind_has(b, bias.name) ? ret : bind_rows(b, &l->experts_down_bias, &bias, 1, hp->experts.n);
}

/* The shared expert, and the vector of its sigmoid gate where it has one. */
static int bind_shared(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    uint32_t d = hp->experts.d_shared ? hp->experts.d_shared : l->d_ff;
    const struct bind_part gate_up[] = {{"ffn_gate_shexp.weight", d}, {"ffn_up_shexp.weight", d}};
    const struct bind_part down = {"ffn_down_shexp.weight", hp->d_model};
    const struct bind_part gate = {"ffn_gate_inp_shexp.weight", hp->d_model};
    if (!hp->experts.d_shared && !bind_has(b, gate_up[1].name))
        return 0;
    uint32_t first = hp->experts.ungated;
    int ret = bind_matrix(b, &l->gate_up, WEIGHT_GATE_UP, hp->d_model, gate_up + first, 2 - first);
    if (!ret)
        ret = bind_matrix(b, &l->down, WEIGHT_PROJ, d, &down, 1);
    return ret || !bind_has(b, gate.name) ? ret : bind_vector(b, &l->shared_gate, &gate, 1);
}

int bind_mixture(struct binder *b, struct layer *l)
{
    int ret = bind_router(b, &l->router, &l->router_bias, &l->select_bias);
    if (!ret && bind_hparams(b)->experts.d_latent)
        ret = bind_latent(b, l);
    if (!ret)
        ret = bind_up(b, l);
    if (!ret)
        ret = bind_down(b, l);
    return ret ? ret : bind_shared(b, l);
}

void build_mixture(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu)
{
    const struct hparams_experts *x = &m->hp.experts;
    bool shared = l->gate_up.n_out != 0, latent = l->latent_down.n_out != 0;
    program_route(p, (struct op_route){.norm = l->ffn_norm,
                                       .w = &l->router,
                                       .bias = l->router_bias,
                                       .select_bias = l->select_bias,
                                       .kind = x->kind,
                                       .n_used = x->n_used,
                                       .n_group = x->n_group,
                                       .n_group_used = x->n_group_used,
                                       .group_best = x->group_best,
                                       .normalise = x->normalise,
                                       .scale = x->scale});
    if (latent)
        program_project(p, (struct op_project){.norm = l->ffn_norm, .w = &l->latent_down, .width = x->d_latent});
    program_experts_up(p, (struct op_experts_up){.norm = latent ? (struct norm){.kind = NORM_NONE} : l->ffn_norm,
                                                 .w = &l->experts_up,
                                                 .bias = l->experts_up_bias,
                                                 .glu = glu,
                                                 .n_used = x->n_used,
                                                 .latent = latent});
    if (shared) /* before the experts add to the residual stream that it reads */
        program_ffn_up(
            p, (struct op_ffn_up){.norm = l->ffn_norm, .w = &l->gate_up, .glu = glu, .row_gate = l->shared_gate});
    program_experts_down(p, (struct op_experts_down){.w = &l->experts_down,
                                                     .bias = l->experts_down_bias,
                                                     .residual_scale = latent ? 0 : m->hp.residual_scale,
                                                     .n_used = x->n_used,
                                                     .latent = latent});
    if (latent)
        program_proj(p, (struct op_proj){.in = ACT_ATT, .w = &l->latent_up, .residual_scale = m->hp.residual_scale});
    if (shared)
        build_ffn_down(m, p, l);
}
