/* gemma.c - Gemma 1 and CodeGemma: a Llama with GELU and scaled embeddings. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <math.h>

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    (void)r;
    hp->embed_scale = sqrtf((float)hp->d_model);
}

static void build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_GEGLU);
}

const struct arch arch_gemma = {"gemma", ROPE_NEOX, .hparams = hparams, .bind_layer = llama_bind_layer, .build = build};
