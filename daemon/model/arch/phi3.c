/* phi3.c - Phi 3, 3.5 and 4: a Llama with q, k and v in one tensor and gate and up in another; many have longrope. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attention(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "ffn_norm", hp->d_model);
    return ret ? ret : bind_ffn_fused(b, l);
}

const struct arch arch_phi3 = {"phi3", ROPE_NEOX, .bind_layer = bind_layer, .build = llama_build};
