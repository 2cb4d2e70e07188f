/*
 * config.c - translates config.json into GGUF's keys: ARCH.block_count for num_hidden_layers and so on, named as
 * llama.cpp's converters name them. Settings for which GGUF has no key get keys that begin with "hearth.". Values are
 * checked where they are read (hparams.c); here and in config-types.c only their JSON types are checked.
 */
#include "daemon/model/hf/hf-internal.h"

#include <math.h>
#include <stdio.h>

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
    {"nemotron", "nemotron", "relu2", HF_PLUS_ONE, 0.5f},
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
    {"qwen3_vl_moe_text", "qwen3vlmoe", "silu", HF_EITHER_WAY, 1},
    {"gemma", "gemma", "gelu_pytorch_tanh", HF_PLUS_ONE, 1},
    {"ernie4_5", "ernie4_5", "silu", 0, 1},
    {"seed_oss", "seed_oss", "silu", HF_POST, 1},
    {"exaone4", "exaone4", "silu", HF_SANDWICH, 1},
    {"granitemoe", "granitemoe", "silu", HF_PAIRS, 1},
    {"olmoe", "olmoe", "silu", 0, 1},
    {"arcee", "arcee", "relu2", HF_PAIRS, 1},
};

/* A key of config.json and its GGUF key; `only`: the row applies to that model_type alone. Of keys that mean the same
 * setting, the one that transformers reads for the model_type counts: rows for that model_type go before those for all,
 * and otherwise the first row counts. */
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
    {"layer_norm_eps", "attention.layer_norm_epsilon", "cohere2", true},
    {"norm_epsilon", "attention.layer_norm_epsilon", "starcoder2", true},
    {"norm_eps", "attention.layer_norm_epsilon", "nemotron", true},
    {"norm_eps", "attention.layer_norm_rms_epsilon", "lfm2", true},
    {"norm_eps", "attention.layer_norm_rms_epsilon", "lfm2_moe", true},
    {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "mamba2", true},
    {"layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "nemotron_h", true},
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
    {"full_attention_interval", "full_attention_interval", NULL, false},
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
    {"mamba_d_conv", "ssm.conv_kernel", "nemotron_h", false}, /* older names, which precede conv_kernel and n_groups */
    {"mamba_n_groups", "ssm.group_count", "nemotron_h", false},
    {"n_groups", "ssm.group_count", NULL, false},
    {"num_heads", "ssm.time_step_rank", "mamba2", false},
    {"mamba_num_heads", "ssm.time_step_rank", "nemotron_h", false},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length", "nemotron_h", false},
    {"moe_latent_size", "moe_latent_size", "nemotron_h", false},
};

/* Settings that change what is computed, each with the only value that hearth implements. */
static const struct {
    const char *hf;
    bool must;
    const char *but; /* exempt model_type, whose tensors show the setting */
} fixed[] = {{"use_bidirectional_attention", false, NULL},
             {"use_qk_norm", false, "glm4_moe"},
             {"is_causal", true, NULL},
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

int hf_put_u32(struct hf *h, const char *hf, const char *gguf, const json_t *v)
{
    char key[128];
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        return hf_wrong(h, hf, "a whole number from 0");
    gguf_make_u32(h->m, hf_key(h, gguf, key), (uint32_t)json_integer_value(v));
    return 0;
}

int hf_put_f32(struct hf *h, const char *hf, const char *gguf, const json_t *v)
{
    char key[128];
    if (!json_is_number(v))
        return hf_wrong(h, hf, "a number");
    gguf_make_f32(h->m, hf_key(h, gguf, key), (float)json_number_value(v));
    return 0;
}

/* Whether the row is for the folder's model_type alone or, with own = false, for all. Rows for numbers that
 * hf_recurrent_keys() has written, per layer, do not apply. */
static bool applies(const struct hf *h, const struct key *k, bool own)
{
    bool by_layer = (h->arch->rules & HF_KV_BY_LAYER && !strcmp(k->hf, "num_key_value_heads")) ||
                    (h->arch->rules & HF_SINGLE && !strcmp(k->hf, "intermediate_size"));
    return own ? k->only && !strcmp(k->only, h->arch->model_type) : !k->only && !by_layer;
}

static int put_keys(struct hf *h)
{
    enum { KEYS = sizeof keys / sizeof *keys };
    const char *done[KEYS];
    size_t n_done = 0;
    int ret = 0;
    for (size_t i = 0; i < 2 * (size_t)KEYS && !ret; i++) {
        const struct key *k = &keys[i % KEYS];
        const json_t *v = hf_get(h, k->hf);
        bool again = false;
        for (size_t n = 0; n < n_done; n++)
            again |= !strcmp(done[n], k->gguf);
        if (!v || again || !applies(h, k, i < KEYS))
            continue;
        done[n_done++] = k->gguf;
        ret = k->is_float ? hf_put_f32(h, k->hf, k->gguf, v) : hf_put_u32(h, k->hf, k->gguf, v);
    }
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

/* Writes how a mixture's experts are chosen, where config.json differs from the architecture's default. */
static int put_experts(struct hf *h)
{
    const json_t *norm = hf_get(h, "norm_topk_prob"), *scoring = hf_get(h, "scoring_func"),
                 *limit = hf_get(h, "swiglu_limit");
    const char *how = json_string_value(scoring);
    bool is_latent = h->arch->rules & HF_LATENT, by_sigmoid = h->arch->rules & HF_SIGMOID;
    bool noaux = how && !strcmp(how, "noaux_tc"); /* the name in dots.llm1's folders */
    bool sigmoid = how ? noaux || !strcmp(how, "sigmoid") : by_sigmoid;
    char key[128];
    if (norm && !json_is_boolean(norm))
        return hf_wrong(h, "norm_topk_prob", "true or false");
    bool is_glm = !strcmp(h->arch->model_type, "glm4_moe"), is_qwen = !strcmp(h->arch->model_type, "qwen3_moe");
    if (norm || is_glm || is_qwen || is_latent) /* for these, a missing key means something else than in GGUF */
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
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) /* null: none; without the key, GGUF's default */
        if (json_is_null(json_object_get(h->config, caps[i])))
            gguf_make_f32(h->m, hf_key(h, caps[i], key), 0);
    if (!strcmp(h->arch->model_type, "ministral3"))
        ret = hf_put_rope_number(h, rope, "llama_4_scaling_beta", "attention.temperature_scale");
    return ret;
}

static int refuse_others(const struct hf *h)
{
    bool gemma = !strncmp(h->arch->model_type, "gemma", 5); /* hidden_act may say "gelu" there and is not used */
    const json_t *act = gemma ? NULL : hf_get(h, "hidden_act");
    if (!act)
        act = hf_get(h, "hidden_activation");
    if (!act)
        act = hf_get(h, "mlp_hidden_act");
    const char *name = json_string_value(act);
    if (name && !strcmp(name, "swish"))
        name = "silu"; /* the same by another name */
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

/* The number of layers for multi-token prediction. Where config.json does not say, the original classes of some model
 * types have one. */
static uint32_t layers_ahead(const struct hf *h)
{
    static const char key[] = "num_nextn_predict_layers";
    bool has_one = h->arch->rules & HF_SIGMOID || !strcmp(h->arch->model_type, "glm4_moe");
    uint32_t n = hf_get(h, key) ? hf_whole(h, key) : has_one;
    return n < 64 ? n : 64;
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
    h->n_nextn = layers_ahead(h);
    int ret = hf_types(h);
    if (!ret)
        ret = hf_add_defaults(h);
    h->n_layer = hf_whole(h, "num_hidden_layers");
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
        ret = hf_put_rope(h);
    if (!ret)
        ret = hf_put_window(h);
    if (!ret)
        ret = hf_put_no_rope(h);
    if (!ret)
        ret = put_experts(h);
    return ret ? ret : put_own(h);
}
