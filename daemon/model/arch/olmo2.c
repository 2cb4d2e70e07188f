/* olmo2.c - OLMo 2 and 3: norms after attention and FFN instead of before, and norms of whole rows of q and k. In OLMo
 * 3, three of four layers have a sliding window, and RoPE's scaling does not apply to them. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    if (!hparams_has(r, "rope.freq_base_swa"))
        hp->rope[ROPE_SLIDING] = rope_plain(hp->rope[ROPE_FULL].base);
}

static int bind_layer(struct binder *b, struct layer *l)
{
    l->attn_norm.kind = l->ffn_norm.kind = NORM_NONE;
    l->whole_norms = true;
    int ret = bind_attention(b, l);
    if (!ret)
        ret = bind_rms_norm(b, &l->q_norm, "attn_q_norm", l->n_head * l->d_head);
    if (!ret)
        ret = bind_rms_norm(b, &l->k_norm, "attn_k_norm", l->n_kv * l->d_head);
    if (!ret)
        ret = bind_ffn(b, l);
    return ret ? ret : bind_post_norms(b, l);
}

const struct arch arch_olmo2 = {
    "olmo2", ROPE_NEOX, .period = 4, .hparams = hparams, .bind_layer = bind_layer, .build = llama_build};
