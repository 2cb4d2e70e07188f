/*
 * latent.c - latent attention (MLA) in a folder. config.json has the sizes of a head's parts, GGUF those of the single
 * key that all heads share. The matrix that computes every head's key and value is split into two, of which the keys'
 * is transposed.
 */
#include "daemon/model/hf/hf-internal.h"

#include <stdio.h>

/* Which layers are dense: GGUF has the number of leading dense layers, like first_k_dense_replace; other dense layers
 * are recognised by the absence of a router. */
static int put_dense(struct hf *h)
{
    const json_t *types = hf_get(h, "mlp_layer_types"), *v;
    size_t i, n_dense = 0;
    char key[128];
    if (!types)
        return 0;
    if (json_array_size(types) != h->n_layer)
        return hf_wrong(h, "mlp_layer_types", "an array with an entry for each layer (num_hidden_layers)");
    json_array_foreach(types, i, v)
    {
        const char *type = json_string_value(v);
        bool dense = type && !strcmp(type, "dense");
        if (!dense && (!type || strcmp(type, "sparse")))
            return hf_wrong(h, "mlp_layer_types", "an array of \"dense\" and \"sparse\"");
        n_dense += dense && n_dense == i;
    }
    json_object_del(h->config, "first_k_dense_replace");
    gguf_make_u32(h->m, hf_key(h, "leading_dense_block_count", key), (uint32_t)n_dense);
    return 0;
}

/* Checks how DeepSeek V2 chooses among groups; the later models have a single method, noaux_tc. */
static int check_choice(struct hf *h)
{
    const char *how = json_string_value(hf_get(h, "topk_method"));
    if (strcmp(h->arch->model_type, "deepseek_v2"))
        return 0;
    if (!how || !strcmp(how, "greedy")) /* without groups, even where the keys are there */
        return json_object_del(h->config, "n_group"), json_object_del(h->config, "topk_group"), 0;
    return !strcmp(how, "group_limited_greedy")
               ? 0
               : err_set(h->e, HEARTH_EUNSUPPORTED,
                         "config.json: topk_method \"%.40s\"; greedy and group_limited_greedy are computed",
                         gguf_label((struct gguf_str){how, strlen(how)}).s);
}

int hf_latent(struct hf *h)
{
    uint32_t d_c = hf_whole(h, "kv_lora_rank"), nope = hf_whole(h, "qk_nope_head_dim"),
             rot = hf_whole(h, "qk_rope_head_dim");
    const json_t *interleave = json_object_get(h->config, "rope_interleave");
    char key[128];
    if (!d_c || !nope || !rot || !hf_whole(h, "v_head_dim"))
        return err_set(h->e, HEARTH_EBADMODEL,
                       "config.json: kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim must be above 0");
    gguf_make_u32(h->m, hf_key(h, "attention.head_count_kv", key), 1);
    gguf_make_u32(h->m, hf_key(h, "attention.value_length", key), d_c);
    gguf_make_u32(h->m, hf_key(h, "attention.key_length_mla", key), nope + rot);
    if (json_is_false(interleave))
        gguf_make_bool(h->m, "hearth.rope.neox", true);
    int ret = put_dense(h);
    if (!ret)
        ret = check_choice(h);
    if (ret)
        return ret;
    json_object_del(h->config, "num_key_value_heads"); /* config.json counts one per head; in the absorbed form, which
                                                          the KV holds, there is one */
    return json_object_set_new(h->config, "head_dim", json_integer(d_c + rot))
               ? err_set(h->e, HEARTH_ENOMEM, "no memory for config.json")
               : 0;
}

int hf_latent_tensor(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t)
{
    uint64_t heads = hf_whole(h, "num_attention_heads"), d_c = hf_whole(h, "kv_lora_rank");
    uint64_t nope = hf_whole(h, "qk_nope_head_dim"), v = hf_whole(h, "v_head_dim"), size = (nope + v) * d_c;
    char name[64];
    if (!d_c || strcmp(s, "self_attn.kv_b_proj.weight"))
        return 1;
    if (t->n_dim != 2 || t->dim[0] != d_c || t->dim[1] != heads * (nope + v))
        return err_set(h->e, HEARTH_EBADMODEL, "tensor %s of layer %u has not the shape of %u heads' keys and values",
                       s, layer, (unsigned)heads);
    struct hf_form k = {.n_expert = heads, .size = size, .n_in = nope, .n_out = d_c, .by_out = 1, .by_in = d_c};
    struct hf_form out = {
        .n_expert = heads, .size = size, .n_in = d_c, .n_out = v, .first = nope * d_c, .by_out = d_c, .by_in = 1};
    snprintf(name, sizeof name, "blk.%u.attn_k_b.weight", layer);
    int ret = hf_add_copy(h, t, &k, name, false);
    snprintf(name, sizeof name, "blk.%u.attn_v_b.weight", layer);
    return ret ? ret : hf_add_copy(h, t, &out, name, false);
}
