/* qwen3.c - Qwen 3: a Llama whose queries and keys are normalised per head before RoPE, which pairs halves of a
 * head. */
#include "daemon/model/arch/arch.h"

int qwen3_bind_layer(struct binder *b, struct layer *l)
{
    int ret = llama_bind_layer(b, l);
    return ret ? ret : bind_head_norms(b, l);
}

const struct arch arch_qwen3 = {"qwen3", ROPE_NEOX, .bind_layer = qwen3_bind_layer, .build = llama_build};
