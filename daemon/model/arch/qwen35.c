/*
 * qwen35.c - Qwen 3.5 and 3.6: of every four layers, three are gated delta nets and the last has attention, with a gate
 * of its result and with RoPE on a quarter of a head. In GGUF files the value heads are tiled over the key heads. The
 * trailing layers that predict tokens further ahead are left out.
 */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

/* M-RoPE has positions of several kinds, which are equal in text, so its sections need no distinction. */
const char *const mrope_reads[] = {"rope.dimension_sections", NULL};

static int bind_gates(struct binder *b, struct recurrent_layer *r)
{
    const struct hparams *hp = bind_hparams(b);
    uint32_t n = hp->state.n_head;
    const struct bind_part apart[] = {{"ssm_beta.weight", n}, {"ssm_alpha.weight", n}}, both = {"ssm_ba.weight", 2 * n};
    r->paired = bind_has(b, both.name);
    return r->paired ? bind_matrix(b, &r->gates, WEIGHT_MIXER, hp->d_model, &both, 1)
                     : bind_matrix(b, &r->gates, WEIGHT_MIXER, hp->d_model, apart, 2);
}

/* The original checkpoints of Qwen 3-Next, and the first GGUF files, group q, k, v and z by key head. */
static int bind_qkvz(struct binder *b, struct recurrent_layer *r)
{
    const struct hparams *hp = bind_hparams(b);
    const struct hparams_state *s = &hp->state;
    uint32_t inner = s->n_head * s->d_head, of_key = inner / s->n_group;
    const struct bind_part in[] = {{"attn_qkv.weight", s->n_channel}, {"attn_gate.weight", inner}};
    const uint32_t slice[] = {s->d_state, s->d_state, of_key, of_key};
    return bind_has(b, "ssm_in.weight")
               ? bind_regrouped(b, &r->in, WEIGHT_MIXER, hp->d_model, "ssm_in.weight", s->n_group, slice, 4)
               : bind_matrix(b, &r->in, WEIGHT_MIXER, hp->d_model, in, 2);
}

static int bind_delta(struct binder *b, struct recurrent_layer *r)
{
    const struct hparams *hp = bind_hparams(b);
    const struct hparams_state *s = &hp->state;
    uint32_t inner = s->n_head * s->d_head;
    const struct bind_part decay = {"ssm_a", s->n_head}, dt = {"ssm_dt.bias", s->n_head};
    int ret = bind_qkvz(b, r);
    if (!ret)
        ret = bind_gates(b, r);
    if (!ret)
        ret = bind_conv(b, &r->conv, "ssm_conv1d", s->n_channel);
    if (!ret)
        ret = bind_vector(b, &r->decay, &decay, 1);
    if (!ret)
        ret = bind_vector(b, &r->dt_bias, &dt, 1);
    if (!ret)
        ret = bind_rms_norm(b, &r->norm, "ssm_norm", s->d_head);
    return ret ? ret : bind_state_out(b, &r->layer, "ssm_out.weight", inner);
}

int qwen35_bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    struct recurrent_layer *r = (struct recurrent_layer *)l;
    r->recurs = hp->kind[l->number] == LAYER_RECURS;
    l->gated = true;
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = r->recurs ? bind_delta(b, r) : bind_attention(b, l);
    if (!ret && !r->recurs)
        ret = bind_head_norms(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "post_attention_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, l);
}

static void build_delta(const struct model *m, struct program *p, const struct recurrent_layer *r)
{
    const struct hparams_state *s = &m->hp.state;
    build_project(p, r);
    program_delta(p, (struct op_delta){.layer = r->layer.index,
                                       .group = r->layer.group,
                                       .n_k = s->n_group,
                                       .n_v = s->n_head,
                                       .d_k = s->d_state,
                                       .d_v = s->d_head,
                                       .tiled = s->tiled,
                                       .paired = r->paired,
                                       .conv = r->conv,
                                       .decay = r->decay,
                                       .dt_bias = r->dt_bias,
                                       .norm = r->norm});
}

void qwen35_build(const struct model *m, struct program *p)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        const struct recurrent_layer *r = (const struct recurrent_layer *)l;
        if (r->recurs)
            build_delta(m, p, r);
        else
            build_attend(m, p, l);
        build_attention_out(m, p, l);
        build_ffn(m, p, l, GLU_SWIGLU);
    }
    build_head(m, p);
}

const struct arch arch_qwen35 = {"qwen35",
                                 ROPE_NEOX,
                                 .skips_ahead = true,
                                 .reads = mrope_reads,
                                 .layer_bytes = sizeof(struct recurrent_layer),
                                 .state = STATE_DELTA,
                                 .interval = 4,
                                 .tiled = true,
                                 .bind_layer = qwen35_bind_layer,
                                 .build = qwen35_build};
