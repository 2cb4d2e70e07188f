/* gpt_oss.c - OpenAI's gpt-oss: a sliding window in every other layer, an attention sink per head, and as FFN only
 * experts, with biases, whose weights are a softmax over the chosen ones. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

static int bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    const struct bind_part sinks = {"attn_sinks.weight", l->n_head};
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attention(b, l);
    if (!ret)
        ret = bind_vector(b, &l->sinks, &sinks, 1);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "post_attention_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, l);
}

static void build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_OAI);
}

const struct arch arch_gpt_oss = {"gpt-oss",
                                  ROPE_NEOX,
                                  .period = 2,
                                  .exact_yarn = true,
                                  .experts = {true, ROUTE_SOFTMAX_CHOSEN, false},
                                  .bind_layer = bind_layer,
                                  .build = build};
