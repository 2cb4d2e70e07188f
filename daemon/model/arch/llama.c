/* llama.c - Llama 1 to 3 and other models of their shape (Mistral, Mixtral, TinyLlama, SmolLM, DeepSeek-Coder). */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

int llama_bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    int ret = bind_norm(b, &l->attn_norm, "attn_norm", hp->d_model);
    if (!ret)
        ret = bind_attention(b, l);
    if (!ret)
        ret = bind_norm(b, &l->ffn_norm, "ffn_norm", hp->d_model);
    return ret ? ret : bind_ffn(b, l);
}

void llama_build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_SWIGLU);
}

const struct arch arch_llama = {"llama", ROPE_NORM, .experts = {true, ROUTE_SOFTMAX, true},
                                .bind_layer = llama_bind_layer, .build = llama_build};
