/* nemotron_h.c - Nemotron-H and Nemotron 3: a layer is Mamba-2, attention without RoPE, or a feed-forward network
 * without a gate and with the activation max(x, 0)^2. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <string.h>

void nemotron_h_hparams(struct hparams *hp, struct hparams_reader *r)
{
    memset(hp->turns, 0, sizeof hp->turns);
    if (hp->experts.n)
        hp->experts.d_latent = hparams_number(r, "moe_latent_size", 8, 1 << 16, 0);
}

int nemotron_h_bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    l->ffn_norm = l->attn_norm; /* a layer has a single norm */
    if (ret)
        return ret;
    if (hp->kind[l->number] == LAYER_RECURS)
        return mamba2_bind(b, (struct recurrent_layer *)l);
    return hp->kind[l->number] == LAYER_ATTENDS ? bind_attention(b, l)
           : bind_is_mixture(b, l)              ? bind_mixture(b, l)
                                                : bind_ffn_ungated(b, l);
}

void nemotron_h_build(const struct model *m, struct program *p)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        if (m->hp.kind[i] == LAYER_NEITHER) {
            build_ffn(m, p, l, GLU_RELU2);
            continue;
        }
        if (m->hp.kind[i] == LAYER_RECURS)
            mamba2_build_mixer(m, p, (const struct recurrent_layer *)l);
        else
            build_attend(m, p, l);
        build_attention_out(m, p, l);
    }
    build_head(m, p);
}

const struct arch arch_nemotron_h = {"nemotron_h",
                                     ROPE_NORM,
                                     .hparams = nemotron_h_hparams,
                                     .layer_bytes = sizeof(struct recurrent_layer),
                                     .state = STATE_MAMBA2,
                                     .single = true,
                                     .bind_layer = nemotron_h_bind_layer,
                                     .build = nemotron_h_build};
