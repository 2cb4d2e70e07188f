/* mistral3.c - Ministral 3 and Devstral 2: a Llama whose queries are scaled by a factor that grows with their
 * position. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    hp->temperature = hparams_real(r, "attention.temperature_scale", 0, 1e3f, 0);
    if (!hp->rope[ROPE_FULL].original)
        hp->rope[ROPE_FULL].original = hp->n_ctx;
}

const struct arch arch_mistral3 = {"mistral3", ROPE_NORM, .hparams = hparams, .bind_layer = llama_bind_layer,
                                   .build = llama_build};
