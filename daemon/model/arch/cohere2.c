/* cohere2.c - Command R7B and A: attention and FFN in parallel, both over one LayerNorm of the residual stream; three
 * of four layers have a sliding window, and only these have RoPE. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <string.h>

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    hp->logit_scale = hparams_real(r, "logit_scale", 1e-6f, 1e6f, 1);
    memcpy(hp->turns, hp->slides, sizeof hp->turns);
}

static int bind_layer(struct binder *b, struct layer *l)
{
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", bind_hparams(b)->d_model);
    l->ffn_norm = l->attn_norm;
    if (!ret)
        ret = bind_attention(b, l);
    return ret ? ret : bind_ffn(b, l);
}

static void build(const struct model *m, struct program *p)
{
    build_embed(m, p);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = model_layer(m, i);
        build_attend(m, p, l);
        build_ffn_up(m, p, l, GLU_SWIGLU); /* before attention adds to the residual stream that the FFN reads */
        build_attention_out(m, p, l);
        build_ffn_down(m, p, l);
    }
    build_head(m, p);
}

const struct arch arch_cohere2 = {
    "cohere2", ROPE_NORM, NORM_LAYER, .period = 4, .hparams = hparams, .bind_layer = bind_layer, .build = build};
