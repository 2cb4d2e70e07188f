/* gemma3.c - Gemma 3: a Gemma 2 with norms of each head's queries and keys instead of the soft caps; five of six layers
 * have a sliding window, and a RoPE of their own. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <math.h>

enum { LAYERS_27B = 62 }; /* its scores are scaled by (d_model / n_head)^-1/2, for which its files have no key */

static void hparams(struct hparams *hp, struct hparams_reader *r)
{
    hp->embed_scale = sqrtf((float)hp->d_model);
    hp->rope[ROPE_FULL].base = hparams_real(r, "rope.freq_base", 1, 1e12f, 1e6f);
    hp->rope[ROPE_SLIDING] = rope_plain(hparams_real(r, "rope.freq_base_swa", 1, 1e12f, 1e4f));
    if (hp->n_layer == LAYERS_27B && !hparams_has(r, "attention.scale"))
        hp->attn_scale = 1 / sqrtf((float)hp->d_model / (float)hp->n_head);
}

static int bind_layer(struct binder *b, struct layer *l)
{
    int ret = gemma2_bind_layer(b, l);
    return ret ? ret : bind_head_norms(b, l);
}

const struct arch arch_gemma3 = {
    "gemma3", ROPE_NEOX, .period = 6, .hparams = hparams, .bind_layer = bind_layer, .build = gemma2_build};
