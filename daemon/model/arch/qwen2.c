/* qwen2.c - Qwen 2 and 2.5: a Llama whose queries, keys and values have biases, and whose RoPE pairs halves of a
 * head. */
#include "daemon/model/arch/arch.h"

int qwen2_bind_layer(struct binder *b, struct layer *l)
{
    int ret = bind_required(b, "attn_q.bias");
    return ret ? ret : llama_bind_layer(b, l);
}

const struct arch arch_qwen2 = {"qwen2", ROPE_NEOX, .bind_layer = qwen2_bind_layer, .build = llama_build};
