/* glm4.c - GLM 4, the dense models of 2025, and the language models of GLM-4.1V and 4.6V-Flash: norms before and after
 * attention and FFN, gate and up in one tensor; RoPE rotates half of a head. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

/* Files of models for images have M-RoPE, whose three kinds of position are equal in text. llama.cpp computes it only
 * over halves, so that its converter arranges q and k for that in these files. */
static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    hp->halves = hparams_has(r, "rope.dimension_sections");
}

static int bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attention(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "ffn_norm", hp->d_model);
    if (!ret)
        ret = bind_ffn_fused(b, l);
    return ret ? ret : bind_post_norms(b, l);
}

const struct arch arch_glm4 = {
    "glm4", ROPE_NORM, .reads = mrope_reads, .hparams = hparams, .bind_layer = bind_layer, .build = llama_build};
