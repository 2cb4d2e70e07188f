/* mamba2.c - Mamba-2: every layer is a Mamba-2 mixer and nothing else. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_heads(struct binder *b, struct recurrent_layer *r)
{
    uint32_t n = bind_hparams(b)->state.n_head;
    const struct bind_part decay = {"ssm_a", 1}, skip = {"ssm_d", 1}, dt = {"ssm_dt.bias", n};
    int ret = bind_rows(b, &r->decay, &decay, 1, n);
    if (!ret)
        ret = bind_rows(b, &r->skip, &skip, 1, n);
    return ret ? ret : bind_vector(b, &r->dt_bias, &dt, 1);
}

int mamba2_bind(struct binder *b, struct recurrent_layer *r)
{
    const struct hparams *hp = bind_hparams(b);
    const struct hparams_state *s = &hp->state;
    uint32_t inner = s->n_head * s->d_head;
    const struct bind_part in = {"ssm_in.weight", inner + s->n_channel + s->n_head};
    const struct bind_part norm = {"ssm_norm.weight", inner / s->n_group};
    int ret = bind_matrix(b, &r->in, WEIGHT_MIXER, hp->d_model, &in, 1);
    if (!ret)
        ret = bind_conv(b, &r->conv, "ssm_conv1d", s->n_channel);
    if (!ret)
        ret = bind_heads(b, r);
    r->norm = (struct norm){.kind = NORM_RMS, .eps = hp->norm_eps};
    if (!ret)
        ret = bind_rows(b, &r->norm.w, &norm, 1, s->n_group);
    return ret ? ret : bind_state_out(b, &r->layer, "ssm_out.weight", inner);
}

void mamba2_build_mixer(const struct model *m, struct program *p, const struct recurrent_layer *r)
{
    const struct hparams_state *s = &m->hp.state;
    build_project(p, r);
    program_mamba2(p, (struct op_mamba2){.layer = r->layer.index,
                                         .group = r->layer.group,
                                         .n_head = s->n_head,
                                         .d_head = s->d_head,
                                         .d_state = s->d_state,
                                         .n_group = s->n_group,
                                         .norm_whole = s->norm_whole,
                                         .conv = r->conv,
                                         .decay = r->decay,
                                         .dt_bias = r->dt_bias,
                                         .skip = r->skip,
                                         .norm = r->norm});
}

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    for (uint32_t i = 0; i < hp->n_layer; i++)
        if (hp->kind[i] != LAYER_RECURS)
            hparams_refuse(r, HEARTH_EBADMODEL,
                           "layer %u of a %s has KV heads (attention.head_count_kv) or a feed-forward network "
                           "(feed_forward_length); all of its layers recur",
                           i, hp->arch);
}

static int bind_layer(struct binder *b, struct layer *l)
{
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", bind_hparams(b)->d_model);
    return ret ? ret : mamba2_bind(b, (struct recurrent_layer *)l);
}

static void build(const struct model *m, struct program *p)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        mamba2_build_mixer(m, p, (const struct recurrent_layer *)l);
        build_attention_out(m, p, l);
    }
    build_head(m, p);
}

const struct arch arch_mamba2 = {"mamba2",
                                 .layer_bytes = sizeof(struct recurrent_layer),
                                 .state = STATE_MAMBA2,
                                 .single = true,
                                 .hparams = hparams,
                                 .bind_layer = bind_layer,
                                 .build = build};
