/* parts.c - what most architectures share: attention with its projections, the feed-forward network, embedding and
 * head. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

/* --- tensors --------------------------------------------------------------------------------------------- */

static int bind_qkv(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    uint32_t d_q = l->n_head * l->d_head * (l->gated ? 2 : 1), d_kv = l->n_kv * l->d_head, rows[] = {d_q, d_kv, d_kv};
    const struct bind_part qkv[] = {{"attn_q.weight", d_q}, {"attn_k.weight", d_kv}, {"attn_v.weight", d_kv}};
    const struct bind_part bias[] = {{"attn_q.bias", d_q}, {"attn_k.bias", d_kv}, {"attn_v.bias", d_kv}};
    const struct bind_part fused_bias = {"attn_qkv.bias", d_q + 2 * d_kv};
    int ret = bind_has(b, "attn_qkv.weight")
                  ? bind_fused(b, &l->qkv, WEIGHT_QKV, hp->d_model, "attn_qkv.weight", rows, 3)
                  : bind_matrix(b, &l->qkv, WEIGHT_QKV, hp->d_model, qkv, 3);
    if (!ret && bind_has(b, "attn_qkv.bias"))
        ret = bind_vector(b, &l->qkv_bias, &fused_bias, 1);
    else if (!ret && bind_has(b, "attn_q.bias"))
        ret = bind_vector(b, &l->qkv_bias, bias, 3);
    return ret;
}

int bind_attention(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part out = {"attn_output.weight", hp->d_model}, bias = {"attn_output.bias", hp->d_model};
    int ret = bind_qkv(b, l);
    if (!ret)
        ret = bind_matrix(b, &l->attn_out, WEIGHT_PROJ, l->n_head * l->d_head, &out, 1);
    return ret || !bind_has(b, bias.name) ? ret : bind_vector(b, &l->attn_out_bias, &bias, 1);
}

int bind_head_norms(struct binder *b, struct layer *l)
{
    int ret = bind_rms_norm(b, &l->q_norm, "attn_q_norm", l->d_head);
    return ret ? ret : bind_rms_norm(b, &l->k_norm, "attn_k_norm", l->d_head);
}

static int bind_down(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part down = {"ffn_down.weight", hp->d_model}, bias = {"ffn_down.bias", hp->d_model};
    int ret = bind_matrix(b, &l->down, WEIGHT_PROJ, l->d_ff, &down, 1);
    return ret || !bind_has(b, bias.name) ? ret : bind_vector(b, &l->down_bias, &bias, 1);
}

int bind_ffn_dense(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part gate_up[] = {{"ffn_gate.weight", l->d_ff}, {"ffn_up.weight", l->d_ff}};
    const struct bind_part bias[] = {{"ffn_gate.bias", l->d_ff}, {"ffn_up.bias", l->d_ff}};
    int ret = bind_matrix(b, &l->gate_up, WEIGHT_GATE_UP, hp->d_model, gate_up, 2);
    if (!ret && bind_has(b, "ffn_gate.bias"))
        ret = bind_vector(b, &l->gate_up_bias, bias, 2);
    return ret ? ret : bind_down(b, l);
}

int bind_ffn(struct binder *b, struct layer *l)
{
    return bind_is_mixture(b, l) ? bind_mixture(b, l) : bind_ffn_dense(b, l);
}

int bind_ffn_fused(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const uint32_t rows[] = {l->d_ff, l->d_ff};
    const struct bind_part bias = {"ffn_up.bias", 2 * l->d_ff};
    int ret = bind_fused(b, &l->gate_up, WEIGHT_GATE_UP, hp->d_model, "ffn_up.weight", rows, 2);
    if (!ret && bind_has(b, bias.name))
        ret = bind_vector(b, &l->gate_up_bias, &bias, 1);
    return ret ? ret : bind_down(b, l);
}

int bind_ffn_ungated(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part up = {"ffn_up.weight", l->d_ff}, bias = {"ffn_up.bias", l->d_ff};
    int ret = bind_matrix(b, &l->gate_up, WEIGHT_GATE_UP, hp->d_model, &up, 1);
    if (!ret && bind_has(b, bias.name))
        ret = bind_vector(b, &l->gate_up_bias, &bias, 1);
    return ret ? ret : bind_down(b, l);
}

int bind_post_norms(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_post_norm, "post_attention_norm", hp->d_model);
    return ret ? ret : bind_norm(b, &l->ffn_post_norm, "post_ffw_norm", hp->d_model);
}

/* --- ops ------------------------------------------------------------------------------------------------- */

static const struct norm *norm_or_none(const struct norm *n)
{
    return n->w ? n : NULL;
}

void build_embed(const struct model *m, struct program *p)
{
    program_embed(p, (struct op_embed){.w = &m->tok_embd, .scale = m->hp.embed_scale});
}

void build_attend(const struct model *m, struct program *p, const struct layer *l)
{
    const struct hparams *hp = &m->hp;
    program_qkv(p, (struct op_qkv){
                       .layer = l->index,
                       .group = l->group,
                       .n_head = l->n_head,
                       .n_kv = l->n_kv,
                       .d_head = l->d_head,
                       .norm = l->attn_norm,
                       .w = &l->qkv,
                       .bias = l->qkv_bias,
                       .q_norm = norm_or_none(&l->q_norm),
                       .k_norm = norm_or_none(&l->k_norm),
                       .v_norm = norm_or_none(&l->v_norm),
                       .whole_norms = l->whole_norms,
                       .gated = l->gated,
                       .rope = l->rope,
                       .temperature = {hp->temperature, hp->rope[ROPE_FULL].original},
                   });
    program_attend(p, (struct op_attend){
                          .layer = l->index,
                          .group = l->group,
                          .n_head = l->n_head,
                          .n_kv = l->n_kv,
                          .d_head = l->d_head,
                          .window = l->window,
                          .scale = hp->attn_scale,
                          .softcap = hp->attn_softcap,
                          .sinks = l->sinks,
                          .gated = l->gated,
                      });
}

void build_attention_out(const struct model *m, struct program *p, const struct layer *l)
{
    program_proj(p, (struct op_proj){
                        .in = ACT_ATT,
                        .w = &l->attn_out,
                        .bias = l->attn_out_bias,
                        .post_norm = norm_or_none(&l->attn_post_norm),
                        .residual_scale = m->hp.residual_scale,
                    });
}

void build_ffn_up(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu)
{
    (void)m;
    program_ffn_up(p, (struct op_ffn_up){.norm = l->ffn_norm, .w = &l->gate_up, .bias = l->gate_up_bias, .glu = glu});
}

void build_ffn_down(const struct model *m, struct program *p, const struct layer *l)
{
    program_proj(p, (struct op_proj){
                        .in = ACT_FF,
                        .w = &l->down,
                        .bias = l->down_bias,
                        .post_norm = norm_or_none(&l->ffn_post_norm),
                        .residual_scale = m->hp.residual_scale,
                    });
}

void build_ffn(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu)
{
    if (l->router.n_out) {
        build_mixture(m, p, l, glu);
        return;
    }
    build_ffn_up(m, p, l, glu);
    build_ffn_down(m, p, l);
}

void build_head(const struct model *m, struct program *p)
{
    const struct hparams *hp = &m->hp;
    program_head(p, (struct op_head){.norm = m->out_norm,
                                     .w = &m->out,
                                     .scale = hp->logit_scale,
                                     .softcap = hp->logit_softcap,
                                     .bias = m->out_bias});
}

void build_layers(const struct model *m, struct program *p, enum glu_kind glu)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        build_attend(m, p, l);
        build_attention_out(m, p, l);
        build_ffn(m, p, l, glu);
    }
    build_head(m, p);
}
