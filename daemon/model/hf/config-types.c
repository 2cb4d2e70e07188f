/*
 * config-types.c - checks the JSON types of the values in config.json. A value that is read as a number, string or list
 * counts as absent where it has another type, and the model would then run with a wrong setting. So such a value is
 * refused here first, by its key. Keys that are copied to GGUF (config.c) are checked where they are written.
 */
#include "daemon/model/hf/hf-internal.h"

enum want { WHOLE, ABOVE_0, NUMBER, FLAG, TEXT, LIST, OBJECT };

static const char *const names[] = {[WHOLE] = "a whole number from 0 to 16777215",
                                    [ABOVE_0] = "a whole number from 1 to 16777215",
                                    [NUMBER] = "a number",
                                    [FLAG] = "true or false",
                                    [TEXT] = "a string",
                                    [LIST] = "an array",
                                    [OBJECT] = "an object"};

struct row {
    const char *key;
    enum want want;
    const char *but; /* model_type that does not read the key */
};

static const struct row rows[] = {
    {"num_hidden_layers", WHOLE, NULL},
    {"num_nextn_predict_layers", WHOLE, NULL},
    {"hidden_size", WHOLE, NULL},
    {"intermediate_size", WHOLE, NULL},
    {"num_attention_heads", WHOLE, NULL},
    {"num_key_value_heads", WHOLE, NULL},
    {"head_dim", ABOVE_0, NULL},
    {"attention_head_dim", ABOVE_0, NULL},
    {"global_head_dim", ABOVE_0, NULL},
    {"num_global_key_value_heads", WHOLE, NULL},
    {"num_kv_shared_layers", WHOLE, NULL},
    {"kv_lora_rank", WHOLE, NULL},
    {"qk_nope_head_dim", WHOLE, NULL},
    {"qk_rope_head_dim", WHOLE, NULL},
    {"v_head_dim", WHOLE, NULL},
    {"sliding_window_pattern", WHOLE, "exaone4"}, /* there a string of letters, beside layer_types */
    {"_sliding_window_pattern", WHOLE, NULL},
    {"max_window_layers", WHOLE, NULL},
    {"no_rope_layer_interval", ABOVE_0, NULL},
    {"num_local_experts", WHOLE, NULL},
    {"moe_intermediate_size", WHOLE, NULL},
    {"shared_intermediate_size", WHOLE, NULL},
    {"block_ff_dim", ABOVE_0, NULL},
    {"block_multiple_of", ABOVE_0, NULL},
    {"linear_num_value_heads", WHOLE, NULL},
    {"linear_value_head_dim", WHOLE, NULL},
    {"expand", ABOVE_0, NULL},
    {"num_heads", WHOLE, NULL},
    {"n_groups", WHOLE, NULL},
    {"mamba_expand", ABOVE_0, NULL},
    {"mamba_num_heads", WHOLE, NULL},
    {"mamba_n_heads", WHOLE, NULL},
    {"mamba_n_groups", WHOLE, NULL},
    {"mamba_head_dim", WHOLE, NULL},
    {"block_ffn_dim_multiplier", NUMBER, NULL},
    {"original_max_position_embeddings", NUMBER, NULL},
    {"tie_word_embeddings", FLAG, NULL},
    {"use_sliding_window", FLAG, NULL},
    {"use_expert_bias", FLAG, NULL},
    {"use_double_wide_mlp", FLAG, NULL},
    {"attention_k_eq_v", FLAG, NULL},
    {"rope_interleave", FLAG, NULL},
    {"block_auto_adjust_ff_dim", FLAG, NULL},
    {"hidden_act", TEXT, "gemma"},
    {"hidden_activation", TEXT, NULL},
    {"mlp_hidden_act", TEXT, NULL},
    {"position_embedding_type", TEXT, NULL},
    {"topk_method", TEXT, NULL},
    {"hybrid_override_pattern", TEXT, NULL},
    {"layer_types", LIST, NULL},
    {"layers_block_type", LIST, NULL},
    {"mlp_layer_types", LIST, NULL},
    {"full_attn_idxs", LIST, NULL},
    {"no_rope_layers", LIST, NULL},
    {"per_layer_config", OBJECT, NULL},
    {"rope_parameters", OBJECT, NULL},
    {"rope_scaling", OBJECT, NULL},
};

/* Rows for rope_parameters, for rope_scaling, and for each kind of layer in them. */
static const struct row rope_rows[] = {
    {"rope_type", TEXT, NULL},          {"type", TEXT, NULL},
    {"rope_theta", NUMBER, NULL},       {"partial_rotary_factor", NUMBER, NULL},
    {"factor", NUMBER, NULL},           {"low_freq_factor", NUMBER, NULL},
    {"high_freq_factor", NUMBER, NULL}, {"original_max_position_embeddings", NUMBER, NULL},
    {"attention_factor", NUMBER, NULL}, {"beta_fast", NUMBER, NULL},
    {"beta_slow", NUMBER, NULL},        {"mscale", NUMBER, NULL},
    {"mscale_all_dim", NUMBER, NULL},   {"truncate", FLAG, NULL},
    {"full_attention", OBJECT, NULL},   {"sliding_attention", OBJECT, NULL},
};

/* Rows for each layer's entry in per_layer_config. */
static const struct row layer_rows[] = {{"head_dim", ABOVE_0, NULL}, {"num_key_value_heads", ABOVE_0, NULL}};

static bool is(const json_t *v, enum want want)
{
    json_int_t n = json_integer_value(v);
    switch (want) {
    case WHOLE:
    case ABOVE_0:
        return json_is_integer(v) && n >= (want == ABOVE_0) && n < 1 << 24; /* the range of hf_whole() */
    case NUMBER:
        return json_is_number(v);
    case FLAG:
        return json_is_boolean(v);
    case TEXT:
        return json_is_string(v);
    case LIST:
        return json_is_array(v);
    case OBJECT:
        return json_is_object(v);
    }
    return false;
}

static int check(const struct hf *h, const json_t *o, const struct row *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(o, row[i].key);
        if (v && !json_is_null(v) && !is(v, row[i].want) &&
            (!row[i].but || strcmp(row[i].but, h->arch->model_type) != 0))
            return hf_wrong(h, row[i].key, names[row[i].want]);
    }
    return 0;
}
#define CHECK(h, o, rows) check(h, o, rows, sizeof(rows) / sizeof *(rows))

static int check_rope(const struct hf *h, const char *key)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    const json_t *r = json_object_get(h->config, key);
    int ret = CHECK(h, r, rope_rows);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !ret; i++)
        ret = CHECK(h, json_object_get(r, kinds[i]), rope_rows);
    return ret;
}

int hf_types(const struct hf *h)
{
    const char *key;
    json_t *v;
    int ret = CHECK(h, h->config, rows);
    if (!ret)
        ret = check_rope(h, "rope_parameters");
    if (!ret)
        ret = check_rope(h, "rope_scaling");
    /* besides null, transformers accepts "auto": as many as follow from the other sizes */
    v = json_object_get(h->config, "mamba_d_head");
    if (!ret && v && !json_is_null(v) && !is(v, ABOVE_0) &&
        !(json_is_string(v) && !strcmp(json_string_value(v), "auto")))
        ret = hf_wrong(h, "mamba_d_head", names[ABOVE_0]);
    json_object_foreach(json_object_get(h->config, "per_layer_config"), key, v)
    {
        if (!ret && !json_is_object(v))
            ret = hf_wrong(h, "per_layer_config", "an object of objects");
        if (!ret)
            ret = CHECK(h, v, layer_rows);
    }
    return ret;
}
