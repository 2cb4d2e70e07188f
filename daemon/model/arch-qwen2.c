/* arch-qwen2.c - Qwen 2 and 2.5: a Llama whose queries, keys and values have biases, with the other rotary order. */
#include "daemon/model/arch.h"

int qwen2_bind_layer(struct binder *b, struct layer *l)
{
    const struct hparams *hp = bind_hparams(b);
    uint32_t d_q = hp->n_head * hp->d_head, d_kv = hp->n_kv * hp->d_head;
    const struct bind_part bias[] = {{"attn_q.bias", d_q}, {"attn_k.bias", d_kv}, {"attn_v.bias", d_kv}};
    int ret = llama_bind_layer(b, l);
    return ret ? ret : bind_vector(b, &l->qkv_bias, bias, 3);
}
