/*
 * deepseek2.c - DeepSeek V2 and V3, and other models of their shape: multi-head latent attention (MLA), in which keys
 * and values are derived from one latent vector per token, and experts beside a shared one; the first layers are dense.
 */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <math.h>

/* The norms within attention have this epsilon whatever rms_norm_eps is, in transformers' DeepseekV3Attention and the
 * models derived from it. GLM-4.7-Flash has 1e-5 elsewhere. */
#define LATENT_EPS 1e-6f

struct deepseek2_layer {
    struct layer base;
    struct weight latent, q_b; /* [q_lora or n_head d_qk | d_c + n_rot, d_model]; [n_head d_qk, q_lora] or none */
    struct weight k_b, v_b;    /* of each head: [d_c, d_nope], [d_v, d_c] */
    struct norm q_a_norm, kv_a_norm;
};

static const char *const reads[] = {"attention.kv_lora_rank", "attention.q_lora_rank", "attention.value_length", NULL};

/* YaRN's attention factor also scales the scores, squared (transformers' DeepseekV3Attention); files store a tenth of
 * the original mscale_all_dim. */
static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    struct hparams_latent *l = &hp->latent;
    const struct rope_params *rope = &hp->rope[ROPE_FULL];
    uint32_t n_rot = hp->n_rot[ROPE_FULL];
    l->d_c = hparams_number(r, "attention.kv_lora_rank", 1, 1024, REQUIRED);
    l->d_q = hparams_number(r, "attention.q_lora_rank", 0, 1 << 16, 0);
    uint32_t d_qk = hparams_number(r, "attention.key_length_mla", n_rot + 1, 2048, REQUIRED);
    l->d_v = hparams_number(r, "attention.value_length_mla", 1, 2048, REQUIRED);
    l->d_nope = d_qk - n_rot;
    uint32_t d_value = hparams_number(r, "attention.value_length", 1, 1024, l->d_c);
    if (hp->n_kv != 1 || hp->d_head != l->d_c + n_rot || d_value != l->d_c)
        hparams_refuse(
            r, HEARTH_EBADMODEL,
            "%u KV heads of %u (attention.head_count_kv, attention.key_length) beside latent attention's one "
            "of %u and %u (%s); a file from before 2025-04 has to be converted again",
            hp->n_kv, hp->d_head, l->d_c, n_rot, hp->arch);
    if (hp->window)
        hparams_refuse(r, HEARTH_EUNSUPPORTED, "latent attention within a window (%s.attention.sliding_window)",
                       hp->arch);
    float all = hparams_real(r, "rope.scaling.yarn_log_multiplier", 0, 1e3f, 0) / 0.1f;
    float m = rope->scaling == ROPE_SCALING_YARN && all != 0 ? rope_yarn_mscale(rope->factor, all) : 1;
    if (!hparams_has(r, "attention.scale"))
        hp->attn_scale = m * m / sqrtf((float)d_qk);
}

static int bind_latent(struct binder *b, struct deepseek2_layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct hparams_latent *x = &hp->latent;
    uint32_t n_rot = hp->n_rot[ROPE_FULL], n_q = l->base.n_head * (x->d_nope + n_rot);
    const struct bind_part parts[] = {{x->d_q ? "attn_q_a.weight" : "attn_q.weight", x->d_q ? x->d_q : n_q},
                                      {"attn_kv_a_mqa.weight", x->d_c + n_rot}};
    const struct bind_part q_b = {"attn_q_b.weight", n_q}, out = {"attn_output.weight", hp->d_model};
    int ret = bind_matrix(b, &l->latent, WEIGHT_LATENT, hp->d_model, parts, 2);
    if (!ret && x->d_q)
        ret = bind_rms_norm(b, &l->q_a_norm, "attn_q_a_norm", x->d_q);
    if (!ret && x->d_q)
        ret = bind_matrix(b, &l->q_b, WEIGHT_PROJ, x->d_q, &q_b, 1);
    if (!ret)
        ret = bind_rms_norm(b, &l->kv_a_norm, "attn_kv_a_norm", x->d_c);
    l->q_a_norm.eps = l->kv_a_norm.eps = LATENT_EPS;
    if (!ret)
        ret = bind_per_head(b, &l->k_b, "attn_k_b.weight", x->d_nope, x->d_c, l->base.n_head);
    if (!ret)
        ret = bind_per_head(b, &l->v_b, "attn_v_b.weight", x->d_c, x->d_v, l->base.n_head);
    return ret ? ret : bind_matrix(b, &l->base.attn_out, WEIGHT_PROJ, l->base.n_head * x->d_v, &out, 1);
}

static int bind_layer(struct binder *b, struct layer *base)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &base->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_latent(b, (struct deepseek2_layer *)base);
    if (!ret)
        ret = bind_norm(b, &base->ffn_norm, "ffn_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, base);
}

static void build_latent(const struct model *m, struct program *p, const struct deepseek2_layer *l)
{
    const struct hparams_latent *x = &m->hp.latent;
    const struct layer *base = &l->base;
    program_latent(p, (struct op_latent){.layer = base->index,
                                         .group = base->group,
                                         .d_c = x->d_c,
                                         .norm = base->attn_norm,
                                         .w = &l->latent,
                                         .q_norm = x->d_q ? &l->q_a_norm : NULL,
                                         .kv_norm = l->kv_a_norm,
                                         .rope = base->rope});
    program_latent_q(p, (struct op_latent_q){.n_head = base->n_head,
                                             .d_nope = x->d_nope,
                                             .d_c = x->d_c,
                                             .w = x->d_q ? &l->q_b : NULL,
                                             .absorb = &l->k_b,
                                             .rope = base->rope});
    program_attend(p, (struct op_attend){.layer = base->index,
                                         .group = base->group,
                                         .n_head = base->n_head,
                                         .n_kv = 1,
                                         .d_head = base->d_head,
                                         .scale = m->hp.attn_scale,
                                         .d_latent = x->d_c});
    program_latent_out(p, (struct op_latent_out){.w = &l->v_b});
}

static void build(const struct model *m, struct program *p)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        build_latent(m, p, (const struct deepseek2_layer *)l);
        build_attention_out(m, p, l);
        build_ffn(m, p, l, GLU_SWIGLU);
    }
    build_head(m, p);
}

const struct arch arch_deepseek2 = {"deepseek2",
                                    ROPE_NORM,
                                    .layer_bytes = sizeof(struct deepseek2_layer),
                                    .tenth_mscale = true,
                                    .experts = {true, ROUTE_SOFTMAX, false},
                                    .skips_ahead = true,
                                    .reads = reads,
                                    .hparams = hparams,
                                    .bind_layer = bind_layer,
                                    .build = build};
