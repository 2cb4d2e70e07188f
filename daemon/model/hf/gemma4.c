/*
 * gemma4.c - the particulars of a Gemma 4's config.json: full-attention layers have heads of another size and number,
 * given by keys of their own or in per_layer_config, and layers that share K and V may have a feed-forward network
 * twice as wide.
 */
#include "daemon/model/hf/hf-internal.h"

#include <stdlib.h>

enum { LAYERS_MAX = 1024 };

/* An integer of config.json from 1 to 2^24 - 1; 0 where there is none. */
static uint32_t whole(const json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 && n < 1 << 24 ? (uint32_t)n : 0;
}

static bool slides(const struct hf *h, uint32_t layer)
{
    const json_t *types = json_object_get(h->config, "layer_types");
    const char *type = json_string_value(json_array_get(types, layer));
    return type && !strcmp(type, "sliding_attention");
}

/* Fills in layer_types as transformers does: without the key, five of six layers slide, and the last layer never
 * does. */
static int complete_types(struct hf *h)
{
    json_t *types = json_object_get(h->config, "layer_types");
    bool given = types && !json_is_null(types);
    if (given && json_array_size(types) != h->n_layer)
        return hf_wrong(h, "layer_types", "an array with an entry for each layer (num_hidden_layers)");
    int ret = given ? 0 : json_object_set_new(h->config, "layer_types", types = json_array());
    for (uint32_t i = 0; i < h->n_layer && !given && !ret; i++)
        ret = json_array_append_new(types, json_string((i + 1) % 6 ? "sliding_attention" : "full_attention"));
    if (ret || json_array_set_new(types, h->n_layer - 1, json_string("full_attention")))
        return err_set(h->e, HEARTH_ENOMEM, "no memory for config.json");
    return 0;
}

/* The layer's entry of per_layer_config, whose keys are numbers as strings, some with leading zeros; NULL where there
 * is none. */
static const json_t *own_config(const struct hf *h, uint32_t layer)
{
    const json_t *all = json_object_get(h->config, "per_layer_config"), *v;
    const char *key;
    json_object_foreach((json_t *)all, key, v)
    {
        char *end;
        unsigned long n = strtoul(key, &end, 10);
        if (end != key && !*end && n == layer)
            return v;
    }
    return NULL;
}

/* A setting of the layer: its own, else that of full-attention layers if it is one, else the common one. */
static uint32_t of_layer(const struct hf *h, uint32_t layer, const char *key, const char *full)
{
    uint32_t own = whole(own_config(h, layer), key);
    uint32_t of_full = slides(h, layer) ? 0 : whole(h->config, full);
    return own ? own : of_full ? of_full : whole(h->config, key);
}

/* The size of heads, which is the same in all layers of a kind (size[1]: sliding). */
static int head_sizes(struct hf *h, uint32_t size[2])
{
    for (uint32_t i = 0; i < h->n_layer; i++) {
        uint32_t d = of_layer(h, i, "head_dim", "global_head_dim"), *want = &size[slides(h, i)];
        if (*want && *want != d)
            return err_set(h->e, HEARTH_EUNSUPPORTED,
                           "config.json: heads of %u (head_dim, global_head_dim) in layer %u of layer_types or "
                           "per_layer_config beside others of %u",
                           d, i, *want);
        *want = d;
    }
    for (int i = 0; i < 2; i++)
        size[i] = size[i] ? size[i] : size[!i];
    return 0;
}

int hf_gemma4(struct hf *h)
{
    int32_t kv[LAYERS_MAX], ff[LAYERS_MAX];
    uint32_t size[2] = {0, 0}, d_ff = whole(h->config, "intermediate_size");
    uint32_t shared = whole(h->config, "num_kv_shared_layers");
    const json_t *bidirectional = json_object_get(h->config, "use_bidirectional_attention");
    bool doubled = json_is_true(json_object_get(h->config, "use_double_wide_mlp")) && shared;
    bool equal = json_is_true(json_object_get(h->config, "attention_k_eq_v"));
    char key[128];
    if (!h->n_layer || h->n_layer > LAYERS_MAX || !d_ff)
        return err_set(h->e, HEARTH_EBADMODEL,
                       "config.json: num_hidden_layers is %u, intermediate_size %u; neither may be 0", h->n_layer,
                       d_ff);
    if (!json_object_get(h->config, "per_layer_config") && !json_object_get(h->config, "global_head_dim") &&
        json_object_set_new(h->config, "global_head_dim", json_integer(512))) /* the default in transformers */
        return err_set(h->e, HEARTH_ENOMEM, "no memory for config.json");
    int ret = complete_types(h);
    if (!ret)
        ret = head_sizes(h, size);
    if (ret)
        return ret;
    for (uint32_t i = 0; i < h->n_layer; i++) {
        kv[i] = (int32_t)of_layer(h, i, "num_key_value_heads", equal ? "num_global_key_value_heads" : "");
        ff[i] = (int32_t)(d_ff * (doubled && i + shared >= h->n_layer ? 2 : 1));
    }
    gguf_make_i32s(h->m, hf_key(h, "attention.head_count_kv", key), kv, h->n_layer);
    gguf_make_i32s(h->m, hf_key(h, "feed_forward_length", key), ff, h->n_layer);
    gguf_make_u32(h->m, hf_key(h, "attention.key_length_swa", key), size[1]);
    gguf_make_u32(h->m, hf_key(h, "rope.dimension_count_swa", key), size[1]);
    json_object_del(h->config, "num_key_value_heads");
    json_object_del(h->config, "intermediate_size");
    if (!strcmp(json_is_string(bidirectional) ? json_string_value(bidirectional) : "", "vision"))
        json_object_del(h->config, "use_bidirectional_attention"); /* applies only among the tokens of an image */
    return json_object_set_new(h->config, "head_dim", json_integer(size[0]))
               ? err_set(h->e, HEARTH_ENOMEM, "no memory for config.json")
               : 0;
}

/* RoPE "proportional" rotates only the first pairs, at the frequencies that they would have if all were rotated. */
int hf_rope_proportional(struct hf *h, double share, double factor, float **out, size_t *n)
{
    uint32_t half = hf_head_dim(h) / 2;
    float *v = half && share > 0 && share <= 1 && factor >= 1 ? gguf_make_alloc(h->m, half * sizeof *v) : NULL;
    if (!v)
        return err_set(h->e, HEARTH_EBADMODEL,
                       "config.json: rope_parameters: RoPE \"proportional\" (partial_rotary_factor, factor) with "
                       "values that cannot be");
    for (uint32_t i = 0; i < half; i++)
        v[i] = i < (uint32_t)(2 * half * share / 2) ? (float)factor : 1e30f;
    *out = v;
    *n = half;
    return 0;
}
