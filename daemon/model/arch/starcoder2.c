/* starcoder2.c - StarCoder 2: LayerNorms, biases everywhere, an FFN without a gate, whose activation is GELU. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

int starcoder2_bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attention(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "ffn_norm", hp->d_model);
    return ret ? ret : bind_ffn_ungated(b, l);
}

static void build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_GELU);
}

const struct arch arch_starcoder2 = {"starcoder2", ROPE_NEOX, NORM_LAYER, .bind_layer = starcoder2_bind_layer,
                                     .build = build};
