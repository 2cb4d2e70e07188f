/* granite.c - Granite 3 and 4, the dense models: a Llama with scales at four places. The scales of embeddings, of
 * scores and of what a layer adds are read from keys that are common to all architectures. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <string.h>

void granite_hparams(struct hparams *hp, struct hparams_reader *r)
{
    hp->logit_scale = 1 / hparams_real(r, "logit_scale", 1e-6f, 1e6f, 1);
    if (!hparams_flag(r, "rope.scaling.finetuned", true)) /* these files mean by it: no RoPE */
        memset(hp->turns, 0, sizeof hp->turns);
}

const struct arch arch_granite = {"granite", ROPE_NORM, .hparams = granite_hparams, .bind_layer = llama_bind_layer,
                                  .build = llama_build};
