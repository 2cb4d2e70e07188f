/* gemma2.c - Gemma 2: norms before and after attention and FFN, soft caps of scores and logits, a sliding window in
 * every other layer. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <math.h>

enum {
    LAYERS_27B = 46, /* its scores are scaled by (d_model / n_head)^-1/2, for which its files have no key */
    WINDOW = 4096,   /* for the first files, which predate the key */
};

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    hp->embed_scale = sqrtf((float)hp->d_model);
    hp->attn_softcap = hparams_real(r, "attn_logit_softcapping", 0, 1e6f, 50);
    hp->logit_softcap = hparams_real(r, "final_logit_softcapping", 0, 1e6f, 30);
    if (hp->n_layer == LAYERS_27B && !hparams_has(r, "attention.scale"))
        hp->attn_scale = 1 / sqrtf((float)hp->d_model / (float)hp->n_head);
}

int gemma2_bind_layer(struct binder *b, struct layer *l)
{
    int ret = llama_bind_layer(b, l);
    return ret ? ret : bind_post_norms(b, l);
}

void gemma2_build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_GEGLU);
}

const struct arch arch_gemma2 = {"gemma2",
                                 ROPE_NEOX,
                                 .period = 2,
                                 .window = WINDOW,
                                 .hparams = hparams,
                                 .bind_layer = gemma2_bind_layer,
                                 .build = gemma2_build};
