/* olmoe.c - OLMoE: norms of whole rows of q and k, and experts weighted by their softmax scores, which are not
 * normalised. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_layer(struct binder *b, struct layer *l)
{
    l->whole_norms = true;
    int ret = llama_bind_layer(b, l);
    if (!ret)
        ret = bind_rms_norm(b, &l->q_norm, "attn_q_norm", l->n_head * l->d_head);
    return ret ? ret : bind_rms_norm(b, &l->k_norm, "attn_k_norm", l->n_kv * l->d_head);
}

const struct arch arch_olmoe = {"olmoe", ROPE_NEOX, .experts = {true, ROUTE_SOFTMAX, false}, .bind_layer = bind_layer,
                                .build = llama_build};
