/* granitehybrid.c - Granite 4 H, dense and with experts: Mamba-2 in most layers, attention in the others, a
 * feed-forward network in all, and Granite's scales. With experts, that network is the shared expert. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    struct recurrent_layer *r = (struct recurrent_layer *)l;
    r->recurs = hp->kind[l->number] == LAYER_RECURS;
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = r->recurs ? mamba2_bind(b, r) : bind_attention(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "ffn_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, l);
}

static void build(const struct model *m, struct program *p)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        const struct recurrent_layer *r = (const struct recurrent_layer *)l;
        if (r->recurs)
            mamba2_build_mixer(m, p, r);
        else
            build_attend(m, p, l);
        build_attention_out(m, p, l);
        build_ffn(m, p, l, GLU_SWIGLU);
    }
    build_head(m, p);
}

const struct arch arch_granitehybrid = {"granitehybrid",
                                        ROPE_NORM,
                                        .experts = {true, ROUTE_SOFTMAX, true},
                                        .hparams = granite_hparams,
                                        .layer_bytes = sizeof(struct recurrent_layer),
                                        .state = STATE_MAMBA2,
                                        .bind_layer = bind_layer,
                                        .build = build};
