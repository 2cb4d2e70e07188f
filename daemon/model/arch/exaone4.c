/* exaone4.c - EXAONE 4: norms after attention and FFN instead of before, and norms of each head's queries and keys. In
 * the large model three of four layers have a sliding window, and only these have RoPE. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    (void)r;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        hp->turns[i] = hp->turns[i] && (!hp->window || hp->slides[i]);
}

static int bind_layer(struct binder *b, struct layer *l)
{
    l->attn_norm.kind = l->ffn_norm.kind = NORM_NONE;
    int ret = bind_attention(b, l);
    if (!ret)
        ret = bind_head_norms(b, l);
    if (!ret)
        ret = bind_ffn(b, l);
    return ret ? ret : bind_post_norms(b, l);
}

const struct arch arch_exaone4 = {"exaone4",           ROPE_NEOX,          .period = 4,
                                  .skips_ahead = true, .hparams = hparams, .bind_layer = bind_layer,
                                  .build = llama_build};
