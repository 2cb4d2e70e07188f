/* glm4moe.c - GLM 4.5 and 4.6, also the language models of 4.5V and 4.6V, whose M-RoPE has kinds of position that are
 * equal in text: RoPE rotates half of a head; experts chosen by sigmoids and a bias, and a shared one; the first layers
 * are dense. The trailing layers that predict tokens further ahead are left out. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attention(b, l);
    if (!ret && bind_has(b, "attn_q_norm.weight"))
        ret = bind_head_norms(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "post_attention_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, l);
}

const struct arch arch_glm4moe = {"glm4moe",
                                  ROPE_NEOX,
                                  .experts = {true, ROUTE_SIGMOID, false},
                                  .skips_ahead = true,
                                  .reads = mrope_reads,
                                  .bind_layer = bind_layer,
                                  .build = llama_build};
