/* qwen2.c - Qwen 2 and 2.5: a Llama whose queries, keys and values have biases, with the other rotary order. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

int qwen2_bind_layer(struct binder *b, struct layer *l)
{
    int ret = llama_bind_layer(b, l);
    return ret || bind_has(b, "attn_q.bias") ? ret : llama_bind_biases(b, l); /* which says what is missing */
}
