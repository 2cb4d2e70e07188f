/*
 * config.c - translates config.json into GGUF's keys: ARCH.block_count for num_hidden_layers and so on, as llama.cpp's
 * converters name them. Settings for which GGUF has no key get keys that begin with "hearth.". Values are checked where
 * they are read (hparams.c); here only their JSON types are.
 */
#include "daemon/model/hf/hf-internal.h"

#include <math.h>
#include <stdio.h>

enum { LAYERS_MAX = 1024 };

static const struct hf_arch archs[] = {
    {"llama", "llama", "silu", HF_PAIRS, 1},
    {"mistral", "llama", "silu", HF_PAIRS, 1},
    {"ministral3", "mistral3", "silu", HF_PAIRS, 1},
    {"smollm3", "smollm3", "silu", HF_PAIRS, 1},
    {"granite", "granite", "silu", HF_PAIRS, 1},
    {"mixtral", "llama", "silu", HF_PAIRS, 1},
    {"qwen2", "qwen2", "silu", 0, 1},
    {"qwen3", "qwen3", "silu", 0, 1},
    {"qwen2_moe", "qwen2moe", "silu", 0, 1},
    {"qwen3_moe", "qwen3moe", "silu", 0, 1},
    {"glm4_moe", "glm4moe", "silu", HF_POST, 0.5f},
    {"dots1", "dots1", "silu", 0, 1},
    {"deepseek_v2", "deepseek2", "silu", HF_LATENT, 1},
    {"deepseek_v3", "deepseek2", "silu", HF_LATENT | HF_SIGMOID, 1},
    {"glm4_moe_lite", "deepseek2", "silu", HF_LATENT | HF_SIGMOID, 1},
    {"gpt_oss", "gpt-oss", "silu", HF_POST | HF_TRANSPOSED, 1},
    {"gemma2", "gemma2", "gelu_pytorch_tanh", HF_PLUS_ONE | HF_SANDWICH, 1},
    {"gemma3_text", "gemma3", "gelu_pytorch_tanh", HF_PLUS_ONE | HF_SANDWICH, 1},
    {"gemma4_text", "gemma4", "gelu_pytorch_tanh", HF_SANDWICH, 1},
    {"phi3", "phi3", "silu", 0, 1},
    {"glm4", "glm4", "silu", HF_GLM, 0.5f},
    {"starcoder2", "starcoder2", "gelu_pytorch_tanh", 0, 1},
    {"olmo2", "olmo2", "silu", HF_SANDWICH, 1},
    {"olmo3", "olmo2", "silu", HF_SANDWICH, 1},
    {"cohere2", "cohere2", "silu", 0, 1},
    {"nemotron", "nemotron", "relu2", HF_PLUS_ONE | HF_LAYER_NORM, 0.5f},
    {"lfm2", "lfm2", "silu", HF_KV_BY_LAYER, 1},
    {"lfm2_moe", "lfm2moe", "silu", HF_KV_BY_LAYER, 1},
    {"qwen3_next", "qwen3next", "silu", HF_PLUS_ONE | HF_POST | HF_DELTA, 0.25f},
    {"qwen3_5_text", "qwen35", "silu", HF_PLUS_ONE | HF_POST | HF_DELTA, 0.25f},
    {"qwen3_5_moe_text", "qwen35moe", "silu", HF_PLUS_ONE | HF_POST | HF_DELTA, 0.25f},
    {"mamba2", "mamba2", "silu", HF_MAMBA | HF_SINGLE, 1},
    {"granitemoehybrid", "granitehybrid", "silu", HF_PAIRS | HF_MAMBA | HF_KV_BY_LAYER, 1},
    {"nemotron_h", "nemotron_h_moe", "relu2", HF_MAMBA | HF_SINGLE | HF_KV_BY_LAYER, 1},
    {"qwen2_vl", "qwen2vl", "silu", 0, 1},
    {"qwen2_vl_text", "qwen2vl", "silu", 0, 1},
    {"qwen2_5_vl", "qwen2vl", "silu", 0, 1},
    {"qwen2_5_vl_text", "qwen2vl", "silu", 0, 1},
    {"qwen3_vl_text", "qwen3vl", "silu", 0, 1},
    {"gemma", "gemma", "gelu_pytorch_tanh", HF_PLUS_ONE, 1},
    {"ernie4_5", "ernie4_5", "silu", 0, 1},
    {"seed_oss", "seed_oss", "silu", HF_POST, 1},
    {"exaone4", "exaone4", "silu", HF_SANDWICH, 1},
    {"granitemoe", "granitemoe", "silu", HF_PAIRS, 1},
    {"olmoe", "olmoe", "silu", 0, 1},
    {"arcee", "arcee", "relu2", HF_PAIRS, 1},
};

/* A key of config.json and its GGUF key; `only`: the row is for that model_type alone. */
static const struct key {
    const char *hf, *gguf, *only;
    bool is_float;
} keys[] = {
    {"num_hidden_layers", "block_count", NULL, false},
    {"max_position_embeddings", "context_length", NULL, false},
    {"hidden_size", "embedding_length", NULL, false},
    {"intermediate_size", "feed_forward_length", NULL, false},
    {"num_attention_heads", "attention.head_count", NULL, false},
    {"num_key_value_heads", "attention.head_count_kv", NULL, false},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", NULL, true},
    {"layer_norm_eps", "attention.layer_norm_epsilon", NULL, true},
    {"norm_epsilon", "attention.layer_norm_epsilon", NULL, true},
    {"attn_logit_softcapping", "attn_logit_softcapping", NULL, true},
    {"final_logit_softcapping", "final_logit_softcapping", NULL, true},
    {"attention_multiplier", "attention.scale", "granite", true},
    {"embedding_multiplier", "embedding_scale", "granite", true},
    {"residual_multiplier", "residual_scale", "granite", true},
    {"logits_scaling", "logit_scale", "granite", true},
    {"attention_multiplier", "attention.scale", "granitemoe", true},
    {"embedding_multiplier", "embedding_scale", "granitemoe", true},
    {"residual_multiplier", "residual_scale", "granitemoe", true},
    {"logits_scaling", "logit_scale", "granitemoe", true},
    {"logit_scale", "logit_scale", "cohere2", true},
    {"num_local_experts", "expert_count", NULL, false},
    {"num_experts", "expert_count", NULL, false},
    {"n_routed_experts", "expert_count", NULL, false},
    {"num_experts_per_tok", "expert_used_count", NULL, false},
    {"top_k_experts", "expert_used_count", "gemma4_text", false},
    {"num_kv_shared_layers", "attention.shared_kv_layers", "gemma4_text", false},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", "gemma4_text", false},
    {"kv_lora_rank", "attention.kv_lora_rank", NULL, false},
    {"q_lora_rank", "attention.q_lora_rank", NULL, false},
    {"v_head_dim", "attention.value_length_mla", NULL, false},
    {"moe_intermediate_size", "expert_feed_forward_length", NULL, false},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", NULL, false},
    {"n_shared_experts", "expert_shared_count", NULL, false},
    {"first_k_dense_replace", "leading_dense_block_count", NULL, false},
    {"n_group", "expert_group_count", NULL, false},
    {"topk_group", "expert_group_used_count", NULL, false},
    {"routed_scaling_factor", "expert_weights_scale", NULL, true},
    {"conv_L_cache", "shortconv.l_cache", NULL, false},
    {"num_dense_layers", "leading_dense_block_count", "lfm2_moe", false},
    {"linear_conv_kernel_dim", "ssm.conv_kernel", NULL, false},
    {"linear_key_head_dim", "ssm.state_size", NULL, false},
    {"linear_num_key_heads", "ssm.group_count", NULL, false},
    {"linear_num_value_heads", "ssm.time_step_rank", NULL, false},
    {"mamba_d_conv", "ssm.conv_kernel", "granitemoehybrid", false},
    {"mamba_d_state", "ssm.state_size", "granitemoehybrid", false},
    {"mamba_n_groups", "ssm.group_count", "granitemoehybrid", false},
    {"mamba_n_heads", "ssm.time_step_rank", "granitemoehybrid", false},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", "granitemoehybrid", false},
    {"attention_multiplier", "attention.scale", "granitemoehybrid", true},
    {"embedding_multiplier", "embedding_scale", "granitemoehybrid", true},
    {"residual_multiplier", "residual_scale", "granitemoehybrid", true},
    {"logits_scaling", "logit_scale", "granitemoehybrid", true},
    {"conv_kernel", "ssm.conv_kernel", NULL, false},
    {"state_size", "ssm.state_size", "mamba2", false},
    {"ssm_state_size", "ssm.state_size", "nemotron_h", false},
    {"n_groups", "ssm.group_count", NULL, false},
    {"num_heads", "ssm.time_step_rank", "mamba2", false},
    {"mamba_num_heads", "ssm.time_step_rank", "nemotron_h", false},
    {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "mamba2", true},
    {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "nemotron_h", true},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length", "nemotron_h", false},
    {"moe_latent_size", "moe_latent_size", "nemotron_h", false},
};

/* What transformers takes where config.json leaves a key out, and GGUF's reader would take otherwise or not know. Files
 * of the gemma-3 of pictures and text leave out most. */
static const struct {
    const char *model_type, *hf;
    double value;
    bool is_float;
} defaults[] = {
    {"gemma2", "num_attention_heads", 8, false},
    {"gemma2", "num_key_value_heads", 4, false},
    {"gemma2", "head_dim", 256, false},
    {"gemma2", "max_position_embeddings", 8192, false},
    {"gemma2", "rms_norm_eps", 1e-6, true},
    {"gemma2", "query_pre_attn_scalar", 256, true},
    {"gemma2", "sliding_window", 4096, false},
    {"gemma3_text", "vocab_size", 262208, false},
    {"gemma3_text", "num_attention_heads", 8, false},
    {"gemma3_text", "num_key_value_heads", 4, false},
    {"gemma3_text", "head_dim", 256, false},
    {"gemma3_text", "max_position_embeddings", 131072, false},
    {"gemma3_text", "rms_norm_eps", 1e-6, true},
    {"gemma3_text", "query_pre_attn_scalar", 256, true},
    {"gemma3_text", "sliding_window", 4096, false},
    {"gemma4_text", "vocab_size", 262144, false},
    {"gemma4_text", "num_attention_heads", 8, false},
    {"gemma4_text", "num_key_value_heads", 4, false},
    {"gemma4_text", "head_dim", 256, false},
    {"gemma4_text", "max_position_embeddings", 131072, false},
    {"gemma4_text", "rms_norm_eps", 1e-6, true},
    {"gemma4_text", "sliding_window", 512, false},
    {"gemma4_text", "hidden_size_per_layer_input", 256, false},
    {"mistral", "num_key_value_heads", 8, false},
    {"mistral", "sliding_window", 4096, false},
    {"ministral3", "head_dim", 128, false},
    {"ministral3", "rope_theta", 1e6, true},
    {"qwen3", "head_dim", 128, false},
    {"qwen3", "num_key_value_heads", 32, false},
    {"glm4", "head_dim", 128, false},
    {"smollm3", "rope_theta", 2e6, true},
    {"olmo3", "sliding_window", 4096, false},
    {"olmo3", "rope_theta", 5e5, true},
    {"lfm2", "rope_theta", 1e6, true},
    {"lfm2_moe", "rope_theta", 1e6, true},
    {"mixtral", "rope_theta", 1e6, true},
    {"mixtral", "num_key_value_heads", 8, false},
    {"mixtral", "num_local_experts", 8, false},
    {"mixtral", "num_experts_per_tok", 2, false},
    {"qwen2_moe", "num_experts_per_tok", 4, false},
    {"qwen2_moe", "shared_expert_intermediate_size", 5632, false},
    {"qwen3_moe", "num_experts_per_tok", 8, false},
    {"glm4_moe", "num_experts_per_tok", 8, false},
    {"glm4_moe", "n_shared_experts", 1, false},
    {"glm4_moe", "first_k_dense_replace", 1, false},
    {"glm4_moe_lite", "num_experts_per_tok", 4, false},
    {"glm4_moe_lite", "n_shared_experts", 1, false},
    {"glm4_moe_lite", "first_k_dense_replace", 1, false},
    {"glm4_moe_lite", "routed_scaling_factor", 1.8, true},
    {"glm4_moe_lite", "rms_norm_eps", 1e-5, true},
    {"deepseek_v2", "n_shared_experts", 2, false},
    {"gpt_oss", "rope_theta", 150000, true},
    {"gpt_oss", "num_experts_per_tok", 4, false},
    {"gpt_oss", "head_dim", 64, false},
    {"gpt_oss", "num_key_value_heads", 8, false},
    {"gpt_oss", "sliding_window", 128, false},
    {"cohere2", "sliding_window", 4096, false},
    {"cohere2", "logit_scale", 0.0625, true},
    {"cohere2", "layer_norm_eps", 1e-5, true},
    {"nemotron", "norm_eps", 1e-5, true},
    {"qwen3_vl_text", "head_dim", 128, false},
    {"qwen3_vl_text", "num_key_value_heads", 32, false},
    {"qwen3_vl_text", "rope_theta", 5e6, true},
    {"gemma", "head_dim", 256, false},
    {"gemma", "num_key_value_heads", 16, false},
    {"gemma", "max_position_embeddings", 8192, false},
    {"gemma", "rms_norm_eps", 1e-6, true},
    {"ernie4_5", "head_dim", 128, false},
    {"ernie4_5", "num_key_value_heads", 2, false},
    {"ernie4_5", "rope_theta", 5e5, true},
    {"ernie4_5", "rms_norm_eps", 1e-5, true},
    {"seed_oss", "head_dim", 128, false},
    {"seed_oss", "num_key_value_heads", 8, false},
    {"exaone4", "sliding_window", 4096, false},
    {"granitemoe", "num_local_experts", 8, false},
    {"granitemoe", "num_experts_per_tok", 2, false},
    {"olmoe", "num_experts", 64, false},
    {"olmoe", "num_experts_per_tok", 8, false},
    {"olmoe", "rms_norm_eps", 1e-5, true},
};

/* ... and where there is neither rope_parameters nor rope_scaling, beside the base. */
static const struct {
    const char *model_type, *rope;
} rope_defaults[] = {
    {"gpt_oss", "{\"rope_type\": \"yarn\", \"factor\": 32, \"original_max_position_embeddings\": 4096,"
                " \"beta_fast\": 32, \"beta_slow\": 1, \"truncate\": false}"},
    {"ministral3", "{\"rope_type\": \"yarn\", \"factor\": 16, \"original_max_position_embeddings\": 16384,"
                   " \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 1, \"mscale_all_dim\": 1,"
                   " \"llama_4_scaling_beta\": 0.1}"},
    {"gemma4_text", "{\"full_attention\": {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25,"
                    " \"rope_theta\": 1e6}, \"sliding_attention\": {\"rope_theta\": 1e4}}"},
};

/* Of a setting that changes what is computed, the only value that is. */
static const struct {
    const char *hf;
    bool must;
    const char *but; /* of this model_type alone the tensors say it */
} fixed[] = {{"use_bidirectional_attention", false, NULL},
             {"use_qk_norm", false, "glm4_moe"},
             {"is_decoder", true, NULL},
             {"add_cross_attention", false, NULL},
             {"attn_qkv_clip", false, NULL},
             {"clip_qkv", false, NULL},
             {"attn_output_gate", true, NULL},
             {"block_use_swiglu", true, NULL}};

const json_t *hf_get(const struct hf *h, const char *key)
{
    const json_t *v = json_object_get(h->config, key);
    return json_is_null(v) ? NULL : v;
}

int hf_wrong(const struct hf *h, const char *key, const char *what)
{
    return err_set(h->e, HEARTH_EBADMODEL, "config.json: %s is not %s", key, what);
}

const char *hf_key(const struct hf *h, const char *name, char out[128])
{
    snprintf(out, 128, "%s.%s", h->arch->gguf, name);
    return out;
}

static int put_u32(struct hf *h, const char *hf, const char *gguf, const json_t *v)
{
    char key[128];
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        return hf_wrong(h, hf, "a whole number from 0");
    gguf_make_u32(h->m, hf_key(h, gguf, key), (uint32_t)json_integer_value(v));
    return 0;
}

static int put_f32(struct hf *h, const char *hf, const char *gguf, const json_t *v)
{
    char key[128];
    if (!json_is_number(v))
        return hf_wrong(h, hf, "a number");
    gguf_make_f32(h->m, hf_key(h, gguf, key), (float)json_number_value(v));
    return 0;
}

static int put_keys(struct hf *h)
{
    int ret = 0;
    const char *last = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !ret; i++) {
        const struct key *k = &keys[i];
        const json_t *v = hf_get(h, k->hf);
        if (!v || (k->only && strcmp(k->only, h->arch->model_type)))
            continue;
        if ((h->arch->rules & HF_KV_BY_LAYER && !strcmp(k->hf, "num_key_value_heads")) ||
            (h->arch->rules & HF_SINGLE && !strcmp(k->hf, "intermediate_size")))
            continue;                       /* hf_recurrent_keys() has written them, layer by layer */
        if (last && !strcmp(last, k->gguf)) /* the same under an older name */
            continue;
        last = k->gguf;
        ret = k->is_float ? put_f32(h, k->hf, k->gguf, v) : put_u32(h, k->hf, k->gguf, v);
    }
    const json_t *eps = hf_get(h, "norm_eps");
    if (!ret && eps)
        ret = put_f32(
            h, "norm_eps",
            h->arch->rules & HF_LAYER_NORM ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", eps);
    return ret;
}

uint32_t hf_whole(const struct hf *h, const char *key)
{
    const json_t *v = hf_get(h, key);
    json_int_t n = json_integer_value(v);
    return n > 0 && n < 1 << 24 ? (uint32_t)n : 0;
}

uint32_t hf_head_dim(const struct hf *h)
{
    uint32_t d = hf_whole(h, "head_dim"), n = hf_whole(h, "num_attention_heads");
    return d ? d : n ? hf_whole(h, "hidden_size") / n : 0;
}

/* --- RoPE ---------------------------------------------------------------------------------------------- */

/* transformers 5 writes rope_parameters, by kind of layer where these differ; before it was rope_scaling. */
json_t *hf_rope(const struct hf *h)
{
    json_t *r = json_object_get(h->config, "rope_parameters"), *full;
    if (!json_is_object(r))
        r = json_object_get(h->config, "rope_scaling");
    full = json_object_get(r, "full_attention");
    r = json_is_object(full) ? full : r;
    return json_is_object(r) ? r : NULL;
}

static const char *rope_type(const json_t *r)
{
    const char *type = json_string_value(json_object_get(r, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(r, "type"));
    if (type && !strcmp(type, "mrope")) /* of positions of several kinds, which in text are one */
        return "default";
    return type ? type : "default";
}

static int put_rope_number(struct hf *h, const json_t *r, const char *hf, const char *gguf)
{
    const json_t *v = json_object_get(r, hf);
    return !v || json_is_null(v) ? 0 : put_f32(h, hf, gguf, v);
}

static int put_scaling(struct hf *h, const json_t *r)
{
    static const char *const yarn[][2] = {{"attention_factor", "rope.scaling.yarn_attn_factor"},
                                          {"beta_fast", "rope.scaling.yarn_beta_fast"},
                                          {"beta_slow", "rope.scaling.yarn_beta_slow"}};
    const char *type = rope_type(r);
    char key[128];
    const json_t *orig = json_object_get(r, "original_max_position_embeddings"), *whole_orig;
    bool phi3 = !strcmp(h->arch->model_type, "phi3"); /* whose first folders call it so */
    if (phi3 && (!strcmp(type, "su") || !strcmp(type, "yarn")))
        type = "longrope";
    bool is_yarn = !strcmp(type, "yarn"), is_long = !strcmp(type, "longrope");
    if (!strcmp(type, "default") || !strcmp(type, "llama3") || !strcmp(type, "proportional"))
        /* the latter two become a tensor of factors: tensors.c */
        return 0;
    if (strcmp(type, "linear") && !is_yarn && !is_long)
        return err_set(
            h->e, HEARTH_EUNSUPPORTED,
            "RoPE scaling \"%.40s\" (rope_type in config.json); default, linear, yarn, llama3 and longrope are known",
            gguf_label((struct gguf_str){type, strlen(type)}).s);
    gguf_make_str(h->m, hf_key(h, "rope.scaling.type", key), type, strlen(type));
    int ret = put_rope_number(h, r, "factor", "rope.scaling.factor");
    whole_orig = hf_get(h, "original_max_position_embeddings");
    if (!ret && (orig || whole_orig) && (is_yarn || is_long))
        ret = put_u32(h, "original_max_position_embeddings", "rope.scaling.original_context_length",
                      orig && !json_is_null(orig) ? orig : whole_orig);
    for (size_t i = 0; i < sizeof yarn / sizeof *yarn && is_yarn && !ret; i++)
        ret = put_rope_number(h, r, yarn[i][0], yarn[i][1]);
    double mscale = json_number_value(json_object_get(r, "mscale"));
    double all = json_number_value(json_object_get(r, "mscale_all_dim"));
    if (!ret && is_yarn && mscale != 0 && all != 0) { /* one of them alone has no effect */
        gguf_make_f32(h->m, "hearth.rope.mscale", (float)mscale);
        /* of latent attention, files have a tenth of it */
        gguf_make_f32(h->m, hf_key(h, "rope.scaling.yarn_log_multiplier", key),
                      (float)(hf_get(h, "kv_lora_rank") ? 0.1 * all : all));
    }
    if (!ret && is_yarn)
        gguf_make_bool(h->m, "hearth.rope.yarn_exact_bounds", json_is_false(json_object_get(r, "truncate")));
    if (!ret && is_long)
        ret = put_rope_number(h, r, "attention_factor", "rope.scaling.attn_factor");
    return ret;
}

static int put_rope(struct hf *h)
{
    const json_t *r = hf_rope(h), *theta = json_object_get(r, "rope_theta"), *partial, *swa;
    char key[128];
    double share = h->arch->partial_rot;
    int ret = put_scaling(h, r);
    if (!theta)
        theta = hf_get(h, "rope_theta");
    if (!ret && theta)
        ret = put_f32(h, "rope_theta", "rope.freq_base", theta);
    const json_t *sliding = json_object_get(json_object_get(h->config, "rope_parameters"), "sliding_attention");
    if (!ret && strcmp(rope_type(sliding), "default"))
        return err_set(h->e, HEARTH_EUNSUPPORTED,
                       "RoPE scaling \"%.40s\" of layers with a sliding window (rope_type in config.json)",
                       gguf_label((struct gguf_str){rope_type(sliding), strlen(rope_type(sliding))}).s);
    swa = json_object_get(sliding, "rope_theta");
    if (!swa)
        swa = hf_get(h, "rope_local_base_freq");
    if (!ret && swa)
        ret = put_f32(h, "rope_theta", "rope.freq_base_swa", swa);
    partial = json_object_get(r, "partial_rotary_factor");
    if (!partial)
        partial = hf_get(h, "partial_rotary_factor");
    if (!partial)
        partial = hf_get(h, "rotary_pct");
    if (partial && !json_is_number(partial))
        return hf_wrong(h, "partial_rotary_factor", "a number");
    if (partial && strcmp(rope_type(r), "proportional"))
        share = json_number_value(partial);
    if (!(share > 0 && share <= 1))
        return hf_wrong(h, "partial_rotary_factor", "above 0 and at most 1");
    uint32_t own = hf_whole(h, "qk_rope_head_dim");
    h->n_rot = own ? own : (uint32_t)(hf_head_dim(h) * share);
    gguf_make_u32(h->m, hf_key(h, "rope.dimension_count", key), h->n_rot);
    if (h->arch->rules & HF_PAIRS)
        gguf_make_bool(h->m, "hearth.rope.neox", true);
    return ret;
}

/* --- layers that differ -------------------------------------------------------------------------------- */

/* Returns the period of layers with full attention, where config.json does not list them; 0: all have sliding windows.
 */
static uint32_t window_period(const struct hf *h)
{
    static const struct {
        const char *model_type;
        uint32_t period;
    } known[] = {{"gemma2", 2},  {"gpt_oss", 2}, {"gemma3_text", 6}, {"gemma4_text", 6},
                 {"cohere2", 4}, {"olmo3", 4},   {"exaone4", 4}};
    uint32_t n = hf_whole(h, "sliding_window_pattern");
    if (!n)
        n = hf_whole(h, "_sliding_window_pattern");
    for (size_t i = 0; i < sizeof known / sizeof *known && !n; i++)
        if (!strcmp(known[i].model_type, h->arch->model_type))
            n = known[i].period;
    return n;
}

/* Model types that transformers gives no window, whatever sliding_window says. */
static bool never_slides(const char *type)
{
    static const char *const none[] = {"llama",
                                       "granite",
                                       "glm4",
                                       "glm4_moe",
                                       "deepseek_v2",
                                       "deepseek_v3",
                                       "nemotron",
                                       "olmo2",
                                       "lfm2",
                                       "lfm2_moe",
                                       "qwen3_next",
                                       "qwen3_5_text",
                                       "nemotron_h",
                                       "mamba2",
                                       "glm4_moe_lite",
                                       "qwen3_5_moe_text",
                                       "granitemoehybrid",
                                       "gemma",
                                       "ernie4_5",
                                       "seed_oss",
                                       "granitemoe",
                                       "olmoe",
                                       "arcee"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!strcmp(none[i], type))
            return true;
    return false;
}

/* A file that says nothing may mean its architecture's window. */
static int put_no_window(struct hf *h)
{
    char key[128];
    gguf_make_u32(h->m, hf_key(h, "attention.sliding_window", key), 0);
    return 0;
}

/* sliding_window, and which layers have it: by layer_types, else by a period, else all of them. Qwen's files name a
 * window that is used only where use_sliding_window is true. */
static int put_window(struct hf *h)
{
    const json_t *w = hf_get(h, "sliding_window"), *types = hf_get(h, "layer_types"),
                 *use = hf_get(h, "use_sliding_window"), *v;
    bool is_qwen = !strncmp(h->arch->model_type, "qwen", 4), any = false;
    bool late = is_qwen || !strcmp(h->arch->model_type, "dots1");
    bool must_say = is_qwen || !strcmp(h->arch->model_type, "smollm3");
    const json_t *from = hf_get(h, "max_window_layers"); /* the first layer with a window, of Qwen and dots.llm1 */
    size_t first = !late ? 0 : from ? hf_whole(h, "max_window_layers") : is_qwen ? 28 : 62;
    uint32_t period = window_period(h);
    int32_t slides[LAYERS_MAX];
    size_t i;
    if (!w || json_is_false(use) || (must_say && !use) || !h->n_layer || h->n_layer > LAYERS_MAX ||
        never_slides(h->arch->model_type))
        return put_no_window(h);
    if (types && json_array_size(types) != h->n_layer)
        return hf_wrong(h, "layer_types", "an array with an entry for each layer (num_hidden_layers)");
    for (i = 0; i < h->n_layer; i++)
        slides[i] = i >= first && (!period || (i + 1) % period != 0);
    json_array_foreach(types, i, v)
    {
        const char *type = json_string_value(v);
        slides[i] = type && !strcmp(type, "sliding_attention");
        if (!slides[i] && (!type || strcmp(type, "full_attention")))
            return err_set(h->e, HEARTH_EUNSUPPORTED,
                           "config.json: layer_types: layer %zu is neither of full_attention nor of sliding_attention",
                           i);
    }
    for (i = 0; i < h->n_layer; i++)
        any |= slides[i] != 0;
    if (!any)
        return put_no_window(h);
    gguf_make_i32s(h->m, "hearth.attention.slides", slides, h->n_layer);
    return put_u32(h, "sliding_window", "attention.sliding_window", w);
}

/* EXAONE 4 turns where it slides, and everywhere where it has no window. */
static void put_no_rope_exaone(struct hf *h)
{
    const json_t *types = hf_get(h, "layer_types");
    int32_t turns[LAYERS_MAX];
    for (size_t i = 0; i < h->n_layer; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        turns[i] = !hf_get(h, "sliding_window") || (type ? !strcmp(type, "sliding_attention") : (i + 1) % 4 != 0);
    }
    gguf_make_i32s(h->m, "hearth.rope.layers", turns, h->n_layer);
}

/* Layers without RoPE: no_rope_layers has 0 for them, or every no_rope_layer_interval-th is one. */
static int put_no_rope(struct hf *h)
{
    const json_t *list = hf_get(h, "no_rope_layers"), *v;
    uint32_t interval = hf_whole(h, "no_rope_layer_interval");
    int32_t turns[LAYERS_MAX];
    size_t i;
    if (!strcmp(h->arch->model_type, "exaone4") && h->n_layer && h->n_layer <= LAYERS_MAX)
        put_no_rope_exaone(h);
    if (strcmp(h->arch->model_type, "smollm3") || !h->n_layer || h->n_layer > LAYERS_MAX)
        return 0;
    for (i = 0; i < h->n_layer; i++)
        turns[i] = (i + 1) % (interval ? interval : 4) != 0;
    if (list && json_array_size(list) != h->n_layer)
        return hf_wrong(h, "no_rope_layers", "an array with an entry for each layer (num_hidden_layers)");
    json_array_foreach(list, i, v) turns[i] = json_integer_value(v) != 0;
    gguf_make_i32s(h->m, "hearth.rope.layers", turns, h->n_layer);
    return 0;
}

/* How a mixture's experts are chosen, where config.json says it otherwise than the architecture has it. */
static int put_experts(struct hf *h)
{
    const json_t *norm = hf_get(h, "norm_topk_prob"), *scoring = hf_get(h, "scoring_func"),
                 *limit = hf_get(h, "swiglu_limit");
    const char *how = json_string_value(scoring);
    bool is_latent = h->arch->rules & HF_LATENT, by_sigmoid = h->arch->rules & HF_SIGMOID;
    bool noaux = how && !strcmp(how, "noaux_tc"); /* as dots.llm1's folders call it */
    bool sigmoid = how ? noaux || !strcmp(how, "sigmoid") : by_sigmoid;
    char key[128];
    if (norm && !json_is_boolean(norm))
        return hf_wrong(h, "norm_topk_prob", "true or false");
    bool is_glm = !strcmp(h->arch->model_type, "glm4_moe"), is_qwen = !strcmp(h->arch->model_type, "qwen3_moe");
    if (norm || is_glm || is_qwen || is_latent) /* these mean otherwise by silence than their GGUF files */
        gguf_make_bool(h->m, hf_key(h, "expert_weights_norm", key), norm ? json_is_true(norm) : is_glm || by_sigmoid);
    if (scoring && !sigmoid && (!how || strcmp(how, "softmax")))
        return hf_wrong(h, "scoring_func", "softmax or sigmoid");
    if (scoring || is_latent)
        gguf_make_u32(h->m, hf_key(h, "expert_gating_func", key), sigmoid ? 2 : 1);
    if (limit && !(json_is_number(limit) && json_number_value(limit) == 7))
        return err_set(h->e, HEARTH_EUNSUPPORTED, "config.json: a swiglu_limit other than 7");
    return 0;
}

static int put_own(struct hf *h)
{
    char key[128];
    const json_t *scalar = hf_get(h, "query_pre_attn_scalar"), *rope = hf_rope(h);
    int ret = 0;
    if (scalar && !(json_is_number(scalar) && json_number_value(scalar) > 0))
        return hf_wrong(h, "query_pre_attn_scalar", "a number above 0");
    if (scalar)
        gguf_make_f32(h->m, hf_key(h, "attention.scale", key), (float)(1 / sqrt(json_number_value(scalar))));
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) /* null is none; GGUF's absence of the key is the default */
        if (json_is_null(json_object_get(h->config, caps[i])))
            gguf_make_f32(h->m, hf_key(h, caps[i], key), 0);
    if (!strcmp(h->arch->model_type, "ministral3"))
        ret = put_rope_number(h, rope, "llama_4_scaling_beta", "attention.temperature_scale");
    return ret;
}

static int refuse_others(const struct hf *h)
{
    bool gemma = !strcmp(h->arch->model_type, "gemma"); /* whose hidden_act says "gelu" and is not used */
    const json_t *act = gemma ? NULL : hf_get(h, "hidden_act");
    if (!act)
        act = hf_get(h, "hidden_activation");
    if (!act)
        act = hf_get(h, "mlp_hidden_act");
    const char *name = json_string_value(act);
    if (name && strcmp(name, h->arch->act))
        return err_set(
            h->e, HEARTH_EUNSUPPORTED,
            "activation \"%.40s\" (hidden_act, hidden_activation, mlp_hidden_act of config.json); a %s has %s here",
            gguf_label((struct gguf_str){name, strlen(name)}).s, h->arch->model_type, h->arch->act);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const json_t *v = hf_get(h, fixed[i].hf);
        if (fixed[i].but && !strcmp(fixed[i].but, h->arch->model_type))
            continue;
        if (v && !(json_is_boolean(v) && json_is_true(v) == fixed[i].must))
            return err_set(h->e, HEARTH_EUNSUPPORTED, "config.json asks for %s, which hearth does not compute",
                           fixed[i].hf);
    }
    const json_t *quant = hf_get(h, "quantization_config");
    const char *method = json_string_value(json_object_get(quant, "quant_method"));
    bool mxfp4 = h->arch->rules & HF_TRANSPOSED && method && !strcmp(method, "mxfp4"); /* mxfp4.c */
    if (quant && !mxfp4)
        return err_set(h->e, HEARTH_EUNSUPPORTED,
                       "quantised safetensors (quantization_config); BF16, F16, F32 and GGUF files run");
    return 0;
}

static int add_defaults(struct hf *h)
{
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        double v = defaults[i].value;
        if (strcmp(defaults[i].model_type, h->arch->model_type) || json_object_get(h->config, defaults[i].hf) ||
            (!strcmp(defaults[i].hf, "rope_theta") && json_object_get(hf_rope(h), "rope_theta")))
            continue;
        if (json_object_set_new(h->config, defaults[i].hf,
                                defaults[i].is_float ? json_real(v) : json_integer((json_int_t)v)))
            return err_set(h->e, HEARTH_ENOMEM, "no memory for config.json");
    }
    for (size_t i = 0; i < sizeof rope_defaults / sizeof *rope_defaults; i++)
        if (!strcmp(rope_defaults[i].model_type, h->arch->model_type) && !hf_get(h, "rope_parameters") &&
            !hf_get(h, "rope_scaling") &&
            json_object_set_new(h->config, "rope_parameters", json_loads(rope_defaults[i].rope, 0, NULL)))
            return err_set(h->e, HEARTH_ENOMEM, "no memory for config.json");
    return 0;
}

int hf_config(struct hf *h)
{
    const char *type = json_string_value(json_object_get(h->config, "model_type"));
    char key[128];
    if (!type)
        return err_set(h->e, HEARTH_EBADMODEL, "config.json has no model_type");
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (!strcmp(archs[i].model_type, type))
            h->arch = &archs[i];
    if (!h->arch)
        return err_set(h->e, HEARTH_EUNSUPPORTED, "model_type \"%s\" is not one hearth runs from a folder",
                       gguf_label((struct gguf_str){type, strlen(type)}).s);
    gguf_make_str(h->m, "general.architecture", h->arch->gguf, strlen(h->arch->gguf));
    h->n_layer = hf_whole(h, "num_hidden_layers");
    h->tied = json_is_true(json_object_get(h->config, "tie_word_embeddings"));
    int ret = add_defaults(h);
    if (!ret && !strcmp(type, "gemma4_text"))
        ret = hf_gemma4(h);
    if (!ret && h->arch->rules & HF_LATENT)
        ret = hf_latent(h);
    if (!ret)
        ret = refuse_others(h);
    if (!ret)
        ret = hf_recurrent_keys(h);
    if (!ret)
        ret = put_keys(h);
    bool attends = !(h->arch->rules & HF_SINGLE) || h->arch->rules & HF_KV_BY_LAYER;
    if (!ret && attends)
        gguf_make_u32(h->m, hf_key(h, "attention.key_length", key), hf_head_dim(h));
    if (!ret && attends)
        ret = put_rope(h);
    if (!ret)
        ret = put_window(h);
    if (!ret)
        ret = put_no_rope(h);
    if (!ret)
        ret = put_experts(h);
    return ret ? ret : put_own(h);
}
