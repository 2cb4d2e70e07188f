/*
 * config-defaults.c - the values of keys that config.json leaves out, as transformers has them.
 */
#include "daemon/model/hf/hf-internal.h"
#include "daemon/model/hf/parse.h"

/* The values that transformers uses where config.json leaves a key out, where the reader of GGUF keys would use another
 * or has none. transformers leaves out of a text_config that it saves whatever equals a default: Gemma 3 for images and
 * text lacks most keys, Pixtral the number of heads, LLaVA nearly all of the text model's sizes, and a fine-tuned Qwen
 * 3-VL its width. */
static const struct {
    const char *model_type, *hf;
    double value;
    bool is_float;
} defaults[] = {
    {"gemma2", "vocab_size", 256000, false},
    {"gemma2", "hidden_size", 2304, false},
    {"gemma2", "intermediate_size", 9216, false},
    {"gemma2", "num_hidden_layers", 26, false},
    {"gemma2", "num_attention_heads", 8, false},
    {"gemma2", "num_key_value_heads", 4, false},
    {"gemma2", "head_dim", 256, false},
    {"gemma2", "max_position_embeddings", 8192, false},
    {"gemma2", "rms_norm_eps", 1e-6, true},
    {"gemma2", "query_pre_attn_scalar", 256, true},
    {"gemma2", "sliding_window", 4096, false},
    {"gemma3_text", "vocab_size", 262208, false},
    {"gemma3_text", "hidden_size", 2304, false},
    {"gemma3_text", "intermediate_size", 9216, false},
    {"gemma3_text", "num_hidden_layers", 26, false},
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
    {"llama", "vocab_size", 32000, false},
    {"llama", "hidden_size", 4096, false},
    {"llama", "intermediate_size", 11008, false},
    {"llama", "num_hidden_layers", 32, false},
    {"llama", "num_attention_heads", 32, false},
    {"llama", "max_position_embeddings", 2048, false},
    {"llama", "rms_norm_eps", 1e-6, true},
    {"mistral", "vocab_size", 32000, false},
    {"mistral", "hidden_size", 4096, false},
    {"mistral", "intermediate_size", 14336, false},
    {"mistral", "num_hidden_layers", 32, false},
    {"mistral", "num_attention_heads", 32, false},
    {"mistral", "num_key_value_heads", 8, false},
    {"mistral", "max_position_embeddings", 131072, false},
    {"mistral", "rms_norm_eps", 1e-6, true},
    {"mistral", "sliding_window", 4096, false},
    {"ministral3", "vocab_size", 131072, false},
    {"ministral3", "hidden_size", 4096, false},
    {"ministral3", "intermediate_size", 14336, false},
    {"ministral3", "num_hidden_layers", 34, false},
    {"ministral3", "num_attention_heads", 32, false},
    {"ministral3", "num_key_value_heads", 8, false},
    {"ministral3", "max_position_embeddings", 262144, false},
    {"ministral3", "rms_norm_eps", 1e-5, true},
    {"ministral3", "head_dim", 128, false},
    {"ministral3", "rope_theta", 1e6, true},
    {"qwen2", "vocab_size", 151936, false},
    {"qwen2", "hidden_size", 4096, false},
    {"qwen2", "intermediate_size", 22016, false},
    {"qwen2", "num_hidden_layers", 32, false},
    {"qwen2", "num_attention_heads", 32, false},
    {"qwen2", "num_key_value_heads", 32, false},
    {"qwen2", "max_position_embeddings", 32768, false},
    {"qwen2", "rms_norm_eps", 1e-6, true},
    {"qwen3", "vocab_size", 151936, false},
    {"qwen3", "hidden_size", 4096, false},
    {"qwen3", "intermediate_size", 22016, false},
    {"qwen3", "num_hidden_layers", 32, false},
    {"qwen3", "num_attention_heads", 32, false},
    {"qwen3", "max_position_embeddings", 32768, false},
    {"qwen3", "rms_norm_eps", 1e-6, true},
    {"qwen3", "head_dim", 128, false},
    {"qwen3", "num_key_value_heads", 32, false},
    {"glm4", "head_dim", 128, false},
    {"smollm3", "rope_theta", 2e6, true},
    {"olmo3", "sliding_window", 4096, false},
    {"olmo3", "rope_theta", 5e5, true},
    {"lfm2", "vocab_size", 65536, false},
    {"lfm2", "hidden_size", 2560, false},
    {"lfm2", "intermediate_size", 12288, false},
    {"lfm2", "num_hidden_layers", 32, false},
    {"lfm2", "num_attention_heads", 32, false},
    {"lfm2", "num_key_value_heads", 8, false},
    {"lfm2", "max_position_embeddings", 128000, false},
    {"lfm2", "conv_L_cache", 3, false},
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
    {"deepseek_v3", "num_experts_per_tok", 8, false},
    {"deepseek_v3", "n_shared_experts", 1, false},
    {"deepseek_v3", "n_group", 8, false},
    {"deepseek_v3", "topk_group", 4, false},
    {"deepseek_v3", "routed_scaling_factor", 2.5, true},
    {"gpt_oss", "rope_theta", 150000, true},
    {"gpt_oss", "num_experts_per_tok", 4, false},
    {"gpt_oss", "head_dim", 64, false},
    {"gpt_oss", "num_key_value_heads", 8, false},
    {"gpt_oss", "sliding_window", 128, false},
    {"cohere2", "vocab_size", 256000, false},
    {"cohere2", "hidden_size", 8192, false},
    {"cohere2", "intermediate_size", 22528, false},
    {"cohere2", "num_hidden_layers", 40, false},
    {"cohere2", "num_attention_heads", 64, false},
    {"cohere2", "max_position_embeddings", 8192, false},
    {"cohere2", "sliding_window", 4096, false},
    {"cohere2", "logit_scale", 0.0625, true},
    {"cohere2", "layer_norm_eps", 1e-5, true},
    {"nemotron", "norm_eps", 1e-5, true},
    {"starcoder2", "norm_epsilon", 1e-5, true},
    {"lfm2", "norm_eps", 1e-5, true},
    {"lfm2_moe", "norm_eps", 1e-5, true},
    {"mamba2", "layer_norm_epsilon", 1e-5, true},
    {"nemotron_h", "layer_norm_epsilon", 1e-5, true},
    {"nemotron_h", "head_dim", 128, false},
    {"nemotron_h", "num_key_value_heads", 8, false},
    {"qwen2_vl", "rope_theta", 1e6, true},
    {"qwen2_vl_text", "vocab_size", 152064, false},
    {"qwen2_vl_text", "hidden_size", 8192, false},
    {"qwen2_vl_text", "intermediate_size", 29568, false},
    {"qwen2_vl_text", "num_hidden_layers", 80, false},
    {"qwen2_vl_text", "num_attention_heads", 64, false},
    {"qwen2_vl_text", "num_key_value_heads", 8, false},
    {"qwen2_vl_text", "max_position_embeddings", 32768, false},
    {"qwen2_vl_text", "rms_norm_eps", 1e-5, true},
    {"qwen2_vl_text", "rope_theta", 1e6, true},
    {"qwen2_5_vl", "rope_theta", 1e6, true},
    {"qwen2_5_vl_text", "vocab_size", 152064, false},
    {"qwen2_5_vl_text", "hidden_size", 8192, false},
    {"qwen2_5_vl_text", "intermediate_size", 29568, false},
    {"qwen2_5_vl_text", "num_hidden_layers", 80, false},
    {"qwen2_5_vl_text", "num_attention_heads", 64, false},
    {"qwen2_5_vl_text", "num_key_value_heads", 8, false},
    {"qwen2_5_vl_text", "max_position_embeddings", 32768, false},
    {"qwen2_5_vl_text", "rms_norm_eps", 1e-5, true},
    {"qwen2_5_vl_text", "rope_theta", 1e6, true},
    {"qwen2_vl", "max_window_layers", 80, false},
    {"qwen2_vl_text", "max_window_layers", 80, false},
    {"qwen2_5_vl", "max_window_layers", 80, false},
    {"qwen2_5_vl_text", "max_window_layers", 80, false},
    {"qwen3_vl_text", "vocab_size", 151936, false},
    {"qwen3_vl_text", "hidden_size", 4096, false},
    {"qwen3_vl_text", "intermediate_size", 22016, false},
    {"qwen3_vl_text", "num_hidden_layers", 32, false},
    {"qwen3_vl_text", "num_attention_heads", 32, false},
    {"qwen3_vl_text", "max_position_embeddings", 128000, false},
    {"qwen3_vl_text", "rms_norm_eps", 1e-6, true},
    {"qwen3_vl_text", "head_dim", 128, false},
    {"qwen3_vl_text", "num_key_value_heads", 32, false},
    {"qwen3_vl_text", "rope_theta", 5e6, true},
    {"qwen3_vl_moe_text", "vocab_size", 151936, false},
    {"qwen3_vl_moe_text", "hidden_size", 2048, false},
    {"qwen3_vl_moe_text", "intermediate_size", 5632, false},
    {"qwen3_vl_moe_text", "num_hidden_layers", 24, false},
    {"qwen3_vl_moe_text", "num_attention_heads", 16, false},
    {"qwen3_vl_moe_text", "max_position_embeddings", 128000, false},
    {"qwen3_vl_moe_text", "moe_intermediate_size", 1408, false},
    {"qwen3_vl_moe_text", "num_experts", 60, false},
    {"qwen3_vl_moe_text", "rms_norm_eps", 1e-6, true},
    {"qwen3_vl_moe_text", "num_key_value_heads", 16, false},
    {"qwen3_vl_moe_text", "num_experts_per_tok", 4, false},
    {"qwen3_vl_moe_text", "rope_theta", 5e6, true},
    {"qwen3_5_text", "vocab_size", 248320, false},
    {"qwen3_5_text", "hidden_size", 4096, false},
    {"qwen3_5_text", "intermediate_size", 12288, false},
    {"qwen3_5_text", "num_hidden_layers", 32, false},
    {"qwen3_5_text", "num_attention_heads", 16, false},
    {"qwen3_5_text", "num_key_value_heads", 4, false},
    {"qwen3_5_text", "head_dim", 256, false},
    {"qwen3_5_text", "max_position_embeddings", 32768, false},
    {"qwen3_5_text", "linear_conv_kernel_dim", 4, false},
    {"qwen3_5_text", "linear_key_head_dim", 128, false},
    {"qwen3_5_text", "linear_value_head_dim", 128, false},
    {"qwen3_5_text", "linear_num_key_heads", 16, false},
    {"qwen3_5_text", "linear_num_value_heads", 32, false},
    {"qwen3_5_text", "rms_norm_eps", 1e-6, true},
    {"qwen3_5_moe_text", "vocab_size", 248320, false},
    {"qwen3_5_moe_text", "hidden_size", 2048, false},
    {"qwen3_5_moe_text", "num_hidden_layers", 40, false},
    {"qwen3_5_moe_text", "num_attention_heads", 16, false},
    {"qwen3_5_moe_text", "num_key_value_heads", 2, false},
    {"qwen3_5_moe_text", "head_dim", 256, false},
    {"qwen3_5_moe_text", "max_position_embeddings", 32768, false},
    {"qwen3_5_moe_text", "linear_conv_kernel_dim", 4, false},
    {"qwen3_5_moe_text", "linear_key_head_dim", 128, false},
    {"qwen3_5_moe_text", "linear_value_head_dim", 128, false},
    {"qwen3_5_moe_text", "linear_num_key_heads", 16, false},
    {"qwen3_5_moe_text", "linear_num_value_heads", 32, false},
    {"qwen3_5_moe_text", "moe_intermediate_size", 512, false},
    {"qwen3_5_moe_text", "shared_expert_intermediate_size", 512, false},
    {"qwen3_5_moe_text", "num_experts_per_tok", 8, false},
    {"qwen3_5_moe_text", "num_experts", 256, false},
    {"qwen3_5_moe_text", "rms_norm_eps", 1e-6, true},
    {"gemma", "vocab_size", 256000, false},
    {"gemma", "hidden_size", 3072, false},
    {"gemma", "intermediate_size", 24576, false},
    {"gemma", "num_hidden_layers", 28, false},
    {"gemma", "num_attention_heads", 16, false},
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
    {"granite", "vocab_size", 32000, false},
    {"granite", "hidden_size", 4096, false},
    {"granite", "intermediate_size", 11008, false},
    {"granite", "num_hidden_layers", 32, false},
    {"granite", "num_attention_heads", 32, false},
    {"granite", "max_position_embeddings", 2048, false},
    {"granite", "rms_norm_eps", 1e-6, true},
    {"granite", "attention_multiplier", 1, true},
    {"granitemoehybrid", "attention_multiplier", 1, true},
    {"granitemoe", "attention_multiplier", 1, true},
    {"granitemoe", "num_local_experts", 8, false},
    {"granitemoe", "num_experts_per_tok", 2, false},
    {"olmoe", "num_experts", 64, false},
    {"olmoe", "num_experts_per_tok", 8, false},
    {"olmoe", "rms_norm_eps", 1e-5, true},
};

/* Likewise for RoPE (besides its base), where there is neither rope_parameters nor rope_scaling. */
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

/* Nemotron-H's first folders have another name for the size of attention's heads. */
static int add_head_dim(struct hf *h)
{
    json_t *d = json_object_get(h->config, "attention_head_dim");
    if (strcmp(h->arch->model_type, "nemotron_h") || !d || json_is_null(d) || hf_get(h, "head_dim"))
        return 0;
    return json_object_set(h->config, "head_dim", d) ? err_set(h->e, HEARTH_ENOMEM, "no memory for config.json") : 0;
}

int hf_add_defaults(struct hf *h)
{
    int ret = add_head_dim(h);
    if (ret)
        return ret;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        double v = defaults[i].value;
        if (strcmp(defaults[i].model_type, h->arch->model_type) || json_object_get(h->config, defaults[i].hf) ||
            (!strcmp(defaults[i].hf, "rope_theta") && json_object_get(hf_rope(h), "rope_theta")))
            continue;
        if (json_object_set_new(h->config, defaults[i].hf,
                                defaults[i].is_float ? json_real(v) : json_integer((json_int_t)v)))
            return err_set(h->e, HEARTH_ENOMEM, "no memory for config.json");
    }
    for (size_t i = 0; i < sizeof rope_defaults / sizeof *rope_defaults; i++) {
        const char *rope = rope_defaults[i].rope;
        json_error_t why;
        bool no_memory;
        if (!strcmp(rope_defaults[i].model_type, h->arch->model_type) && !hf_get(h, "rope_parameters") &&
            !hf_get(h, "rope_scaling") &&
            json_object_set_new(h->config, "rope_parameters", hf_parse(rope, strlen(rope), 0, &why, &no_memory)))
            return err_set(h->e, HEARTH_ENOMEM, "no memory for config.json");
    }
    return 0;
}
