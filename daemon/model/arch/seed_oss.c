/* seed_oss.c - Seed-OSS: Qwen 2 with other tensor names. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attention(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "post_attention_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, l);
}

const struct arch arch_seed_oss = {"seed_oss", ROPE_NEOX, .bind_layer = bind_layer, .build = llama_build};
