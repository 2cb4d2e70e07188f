/*
 * gemma4.c - Gemma 4: a Gemma 3 whose full-attention layers have larger heads, of which RoPE rotates a quarter, and may
 * use the keys as values; values have a norm without weights; each layer's output is scaled. Some models have experts
 * beside the feed-forward network; some add a per-layer input to each layer and let the last layers share K and V.
 */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <math.h>

struct gemma4_layer {
    struct layer base; /* ffn_norm is the network's; so is ffn_post_norm, or with experts over the sum of both */
    float out_scale;
    /* Where there are experts: the router's norm, whose weights include the factor 1 / sqrt(d_model), the norms before
     * and after the experts, and the norm after the network beside them, all [d_model]; expert_scale, [n_expert],
     * multiplies the experts' weights. */
    struct norm router_norm, experts_norm, experts_post_norm, beside_post_norm;
    const float *expert_scale;
    /* The per-layer input, where there is one. */
    struct weight input_gate, input_out; /* [d_input, d_model], [d_model, d_input] */
    struct norm input_post_norm;         /* [d_model] */
};

struct gemma4 {
    struct weight input_embd, input_proj; /* [n_vocab, n_layer d_input], [n_layer d_input, d_model] */
    struct norm input_norm;               /* [d_input] */
};

static const char *const reads[] = {"attention.shared_kv_layers", "attention.key_length_swa",
                                    "rope.dimension_count_swa", "embedding_length_per_layer_input", NULL};

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    uint32_t d = hparams_number(r, "attention.key_length_swa", 2, 1024, hp->d_head);
    uint32_t d_v = hparams_number(r, "attention.value_length_swa", 2, 1024, d);
    uint32_t n_rot = hparams_number(r, "rope.dimension_count_swa", 2, 1024, d);
    if (d % 2 || d_v != d || n_rot > d || n_rot % 2)
        hparams_refuse(r, HEARTH_EBADMODEL,
                       "heads of %u dimensions (attention.key_length_swa), %u of values (attention.value_length_swa), "
                       "%u of which turn (rope.dimension_count_swa)",
                       d, d_v, n_rot);
    hp->embed_scale = sqrtf((float)hp->d_model);
    hp->attn_scale = hparams_real(r, "attention.scale", 1e-6f, 1e6f, 1);
    hp->rope[ROPE_FULL].base = hparams_real(r, "rope.freq_base", 1, 1e12f, 1e6f);
    hp->rope[ROPE_SLIDING] = rope_plain(hparams_real(r, "rope.freq_base_swa", 1, 1e12f, 1e4f));
    hp->n_rot[ROPE_SLIDING] = n_rot;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        if (hp->slides[i])
            hp->shape[i].d_head = (uint16_t)d;
    hp->n_shared_kv = hparams_number(r, "attention.shared_kv_layers", 0, hp->n_layer - 1, 0);
    hp->d_input = hparams_number(r, "embedding_length_per_layer_input", 0, 1 << 16, 0);
    hp->experts.beside = hp->experts.n != 0;
}

static int bind_own(struct binder *b, void *own)
{
    const struct hparams *hp = bind_hparams(b);
    struct gemma4 *m = own;
    uint32_t n = hp->n_layer * hp->d_input;
    const struct bind_part embd = {"per_layer_token_embd.weight", hp->n_vocab},
                           proj = {"per_layer_model_proj.weight", n};
    if (!n)
        return 0;
    int ret = bind_matrix(b, &m->input_embd, WEIGHT_EMBED, n, &embd, 1);
    if (!ret)
        ret = bind_matrix(b, &m->input_proj, WEIGHT_PROJ, hp->d_model, &proj, 1);
    return ret ? ret : bind_norm(b, &m->input_norm, "per_layer_proj_norm", hp->d_input);
}

/* Files may contain K and V of layers that share another layer's KV; they are ignored. */
static int bind_attend(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    uint32_t d_q = l->n_head * l->d_head, d_kv = l->n_kv * l->d_head;
    const struct bind_part qkv[] = {{"attn_q.weight", d_q}, {"attn_k.weight", d_kv}, {"attn_v.weight", d_kv}};
    const struct bind_part out = {"attn_output.weight", hp->d_model};
    uint32_t n_part = l->shares_kv ? 1 : bind_has(b, "attn_v.weight") ? 3 : 2;
    int ret = bind_matrix(b, &l->qkv, WEIGHT_QKV, hp->d_model, qkv, n_part);
    if (!ret)
        ret = bind_matrix(b, &l->attn_out, WEIGHT_PROJ, d_q, &out, 1);
    if (!ret)
        ret = bind_rms_norm(b, &l->q_norm, "attn_q_norm", l->d_head);
    if (l->shares_kv) {
        bind_ignore(b, "attn_k.weight");
        bind_ignore(b, "attn_v.weight");
        bind_ignore(b, "attn_k_norm.weight");
        return ret;
    }
    if (!ret)
        ret = bind_rms_norm(b, &l->k_norm, "attn_k_norm", l->d_head);
    return ret ? ret : bind_plain_norm(b, &l->v_norm, l->d_head);
}

static int bind_beside(struct binder *b, struct gemma4_layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part scale = {"ffn_down_exps.scale", hp->experts.n};
    l->router_norm = (struct norm){.kind = NORM_RMS, .eps = hp->norm_eps};
    int ret = bind_mixture(b, &l->base);
    if (!ret)
        ret = bind_vector_times(b, &l->router_norm.w, "ffn_gate_inp.scale", hp->d_model, 1 / sqrtf((float)hp->d_model));
    if (!ret && bind_has(b, scale.name))
        ret = bind_vector(b, &l->expert_scale, &scale, 1);
    if (!ret)
        ret = bind_norm(b, &l->experts_norm, "pre_ffw_norm_2", hp->d_model);
    if (!ret)
        ret = bind_norm(b, &l->beside_post_norm, "post_ffw_norm_1", hp->d_model);
    return ret ? ret : bind_norm(b, &l->experts_post_norm, "post_ffw_norm_2", hp->d_model);
}

static int bind_input(struct binder *b, struct gemma4_layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part gate = {"inp_gate.weight", hp->d_input}, out = {"proj.weight", hp->d_model};
    int ret = bind_matrix(b, &l->input_gate, WEIGHT_GATE_UP, hp->d_model, &gate, 1);
    if (!ret)
        ret = bind_matrix(b, &l->input_out, WEIGHT_PROJ, hp->d_input, &out, 1);
    return ret ? ret : bind_norm(b, &l->input_post_norm, "post_norm", hp->d_model);
}

static int bind_layer(struct binder *b, struct layer *base)
{
    const struct hparams *hp = bind_hparams(b);
    struct gemma4_layer *l = (struct gemma4_layer *)base;
    int ret = bind_norm(b, &base->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attend(b, base);
    if (!ret)
        ret = bind_norm(b, &base->ffn_norm, "ffn_norm", hp->d_model);
    if (!ret)
        ret = bind_post_norms(b, base);
    if (!ret)
        ret = bind_ffn_dense(b, base);
    if (!ret && bind_is_mixture(b, base))
        ret = bind_beside(b, l);
    if (!ret && hp->d_input)
        ret = bind_input(b, l);
    return ret || !bind_has(b, "layer_output_scale.weight")
               ? ret
               : bind_number(b, "layer_output_scale.weight", &l->out_scale);
}

/* The network and the experts read the same rows; their results are added before the last norm. */
static void build_beside(const struct model *m, struct program *p, const struct gemma4_layer *l, float x_scale)
{
    const struct hparams_experts *x = &m->hp.experts;
    const struct layer *base = &l->base;
    program_route(p, (struct op_route){.norm = l->router_norm,
                                       .w = &base->router,
                                       .kind = x->kind,
                                       .n_used = x->n_used,
                                       .normalise = x->normalise,
                                       .scale = x->scale,
                                       .expert_scale = l->expert_scale});
    program_experts_up(p, (struct op_experts_up){
                              .norm = l->experts_norm, .w = &base->experts_up, .glu = GLU_GEGLU, .n_used = x->n_used});
    build_ffn_up(m, p, base, GLU_GEGLU);
    program_proj(p, (struct op_proj){.in = ACT_FF, .w = &base->down, .post_norm = &l->beside_post_norm, .aside = true});
    program_experts_down(p, (struct op_experts_down){.w = &base->experts_down,
                                                     .n_used = x->n_used,
                                                     .post_norm = &l->experts_post_norm,
                                                     .aside_norm = &base->ffn_post_norm,
                                                     .x_scale = x_scale});
}

static void build_layer(const struct model *m, struct program *p, const struct gemma4_layer *l)
{
    const struct layer *base = &l->base;
    float last = m->hp.d_input ? 0 : l->out_scale; /* the layer's last op scales the residual stream */
    build_attend(m, p, base);
    build_attention_out(m, p, base);
    if (base->router.n_out) {
        build_beside(m, p, l, last);
    } else {
        build_ffn_up(m, p, base, GLU_GEGLU);
        program_proj(
            p, (struct op_proj){.in = ACT_FF, .w = &base->down, .post_norm = &base->ffn_post_norm, .x_scale = last});
    }
    if (!m->hp.d_input)
        return;
    program_input_gate(p, (struct op_input_gate){.w = &l->input_gate, .layer = base->number, .n_layer = m->hp.n_layer});
    program_proj(p, (struct op_proj){
                        .in = ACT_FF, .w = &l->input_out, .post_norm = &l->input_post_norm, .x_scale = l->out_scale});
}

static void build(const struct model *m, struct program *p)
{
    const struct hparams *hp = &m->hp;
    const struct gemma4 *own = m->own;
    build_embed(m, p);
    if (hp->d_input)
        program_inputs(p, (struct op_inputs){.w = &own->input_proj,
                                             .embed = &own->input_embd,
                                             .norm = own->input_norm,
                                             .d_input = hp->d_input,
                                             .w_scale = 1 / sqrtf((float)hp->d_model),
                                             .embed_scale = sqrtf((float)hp->d_input),
                                             .scale = sqrtf(0.5f)});
    for (uint32_t i = 0; i < hp->n_layer; i++)
        build_layer(m, p, (const struct gemma4_layer *)model_layer(m, i));
    build_head(m, p);
}

const struct arch arch_gemma4 = {"gemma4",
                                 ROPE_NEOX,
                                 .period = 6,
                                 .experts = {true, ROUTE_SOFTMAX, true, .scaled_weights = true},
                                 .layer_bytes = sizeof(struct gemma4_layer),
                                 .own_bytes = sizeof(struct gemma4),
                                 .reads = reads,
                                 .hparams = hparams,
                                 .bind_layer = bind_layer,
                                 .bind_own = bind_own,
                                 .build = build};
