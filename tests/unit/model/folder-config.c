/* folder-config.c - what a folder's config.json states and omits: defaults, RoPE, windows, and the forms that model
 * makers write. */
#include "config.h" /* memfd_create */

#include <math.h>

#include "daemon/model/model.h"
#include "tests/unit/model/folder-box.h"

/* A folder without sliding layers states so, whatever a file of its architecture implies if it states nothing. */
static void test_no_window(void **state)
{
    (void)state;
    struct gguf *g;
    struct hearth_err e = {0};
    static const char *const none[] = {"\"sliding_window\": null", "\"layer_types\": [\"full_attention\"]"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char config[1024];
        uint32_t window = 1;
        write_folder();
        snprintf(config, sizeof config, "{\"model_type\": \"gemma2\", " CONFIG ", %s}", none[i]);
        write_text("config.json", config);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(gguf_u32(g, "gemma2.attention.sliding_window", &window, &e), 0);
        assert_int_equal(window, 0);
        gguf_close(g);
    }
}

/* What config.json omits has transformers' default: for gemma-3 that is nearly everything. */
static void test_defaults(void **state)
{
    (void)state;
    struct gguf *g;
    struct hearth_err e = {0};
    uint32_t heads = 0, window = 0, head = 0;
    float scale = 0;
    uint8_t slides[7];
    write_folder();
    write_text("config.json",
               "{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\","
               " \"hidden_size\": 8, \"vocab_size\": 4, \"num_hidden_layers\": 7, \"intermediate_size\": 8}}");
    if (model_file_open(&g, dir, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gguf_u32(g, "gemma3.attention.head_count", &heads, &e), 0);
    assert_int_equal(gguf_u32(g, "gemma3.attention.key_length", &head, &e), 0);
    assert_int_equal(gguf_u32(g, "gemma3.attention.sliding_window", &window, &e), 0);
    assert_int_equal(gguf_f32(g, "gemma3.attention.scale", &scale, &e), 0);
    assert_int_equal(gguf_flags(g, "hearth.attention.slides", slides, 7, &e), 0);
    assert_true(heads == 8 && head == 256 && window == 4096 && scale == 0.0625f);
    assert_memory_equal(slides, ((uint8_t[]){1, 1, 1, 1, 1, 0, 1}), 7);
    assert_int_equal(gguf_flags(g, "hearth.attention.slides", slides, 6, &e), HEARTH_EBADMODEL);
    assert_int_equal(gguf_flags(g, "gemma3.attention.scale", slides, 7, &e), HEARTH_EBADMODEL);
    assert_int_equal(gguf_flags(g, "gemma3.nothing", slides, 7, &e), 1);
    assert_true(gguf_is_array(g, "hearth.attention.slides") && !gguf_is_array(g, "gemma3.attention.scale"));
    gguf_close(g);
}

/* Opens the folder with a different config.json. */
static struct gguf *open_with(const char *config)
{
    struct gguf *g;
    struct hearth_err e = {0};
    write_text("config.json", config);
    if (model_file_open(&g, dir, &e))
        fail_msg("%s: %s", config, e.msg);
    return g;
}

static double number_of(const struct gguf *g, const char *key)
{
    struct hearth_err e = {0};
    float real;
    uint32_t whole;
    if (!gguf_f32(g, key, &real, &e))
        return (double)real;
    return gguf_u32(g, key, &whole, &e) ? -1 : (double)whole;
}

#define EXPERTS "\"num_local_experts\": 2, \"num_experts\": 2, \"moe_intermediate_size\": 8, "
/* RoPE parameters that are not given: the base is that of the model type, and some types have a scaling. */
static void test_rope_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *config, *arch, *scaling;
        double base, sliding, factor;
    } cases[] = {
        {"{\"model_type\": \"mixtral\", " EXPERTS CONFIG "}", "llama", NULL, 1e6, -1, -1},
        {"{\"model_type\": \"mixtral\", \"rope_theta\": 5e4, " EXPERTS CONFIG "}", "llama", NULL, 5e4, -1, -1},
        {"{\"model_type\": \"lfm2\", \"layer_types\": [\"conv\"], " CONFIG "}", "lfm2", NULL, 1e6, -1, -1},
        {"{\"model_type\": \"lfm2_moe\", \"layer_types\": [\"conv\"], " EXPERTS CONFIG "}", "lfm2moe", NULL, 1e6, -1,
         -1},
        {"{\"model_type\": \"olmo3\", " CONFIG "}", "olmo2", NULL, 5e5, -1, -1},
        {"{\"model_type\": \"gpt_oss\", " EXPERTS CONFIG "}", "gpt-oss", "yarn", 150000, -1, 32},
        {"{\"model_type\": \"gpt_oss\", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}, " EXPERTS CONFIG
         "}",
         "gpt-oss", "yarn", 150000, -1, 4},
        {"{\"model_type\": \"ministral3\", " CONFIG "}", "mistral3", "yarn", 1e6, -1, 16},
        {"{\"model_type\": \"gemma4_text\", " CONFIG "}", "gemma4", NULL, 1e6, 1e4, -1},
        {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"su\", \"factor\": 4}, " CONFIG "}", "phi3",
         "longrope", -1, -1, 4},
        {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}, " CONFIG "}", "phi3",
         "longrope", -1, -1, 4},
        {"{\"model_type\": \"qwen2_5_vl\", \"rope_scaling\": {\"type\": \"mrope\"}, " CONFIG "}", "qwen2vl", NULL, 1e6,
         -1, -1},
        {"{\"model_type\": \"qwen3_vl_text\", " CONFIG "}", "qwen3vl", NULL, 5e6, -1, -1},
        {"{\"model_type\": \"llama\", " CONFIG "}", "llama", NULL, -1, -1, -1}, /* 10000 is also GGUF's default */
    };
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf *g = open_with(cases[i].config);
        struct hearth_err e = {0};
        struct gguf_str type = {0};
        char key[64];
        snprintf(key, sizeof key, "%s.rope.freq_base", cases[i].arch);
        assert_true(number_of(g, key) == cases[i].base);
        snprintf(key, sizeof key, "%s.rope.freq_base_swa", cases[i].arch);
        assert_true(number_of(g, key) == cases[i].sliding);
        snprintf(key, sizeof key, "%s.rope.scaling.factor", cases[i].arch);
        assert_true(number_of(g, key) == cases[i].factor);
        snprintf(key, sizeof key, "%s.rope.scaling.type", cases[i].arch);
        assert_int_equal(gguf_str(g, key, &type, &e), cases[i].scaling ? 0 : 1);
        assert_true(!cases[i].scaling ||
                    (type.n == strlen(cases[i].scaling) && !memcmp(type.s, cases[i].scaling, type.n)));
        gguf_close(g);
    }
    struct gguf *g =
        open_with("{\"model_type\": \"gemma4_text\", \"head_dim\": 8, \"global_head_dim\": 16, " CONFIG "}");
    const struct gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight"); /* a quarter of the pairs rotates */
    assert_true(t && t->dim[0] == 8 && ((const float *)t->data)[1] == 1 && ((const float *)t->data)[2] > 1e9f);
    gguf_close(g);
    g = open_with("{\"model_type\": \"gemma4_text\", \"head_dim\": 8, \"global_head_dim\": 16, \"rope_parameters\": "
                  "{\"full_attention\": {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, \"factor\": "
                  "4, \"rope_theta\": 1e6}, \"sliding_attention\": {\"rope_theta\": 1e4}}, " CONFIG "}");
    t = gguf_tensor_find(g, "rope_freqs.weight"); /* which rotate slower by the factor */
    assert_true(t && ((const float *)t->data)[1] == 4 && ((const float *)t->data)[2] > 1e9f);
    gguf_close(g);
}

/* In OLMo 3, RoPE's scaling applies to layers with full attention only, whether config.json has it for all layers or by
 * their kind, and the base beside it or in it. */
static void test_olmo3_rope(void **state)
{
    (void)state;
#define YARN \
    "\"rope_type\": \"yarn\", \"factor\": 8, \"original_max_position_embeddings\": 32, \"attention_factor\": 1.25"
#define THETA "\"rope_theta\": 25e4"
    static const char *const forms[] = {
        THETA ", \"rope_scaling\": {" YARN "}",
        THETA ", \"rope_parameters\": {" YARN "}",
        "\"rope_parameters\": {" THETA ", " YARN "}",
        THETA ", \"rope_parameters\": {\"full_attention\": {" YARN "}}",
        THETA ", \"rope_parameters\": {\"full_attention\": {" YARN "}, \"sliding_attention\": {\"rope_type\": "
              "\"default\", " THETA "}}",
        "\"rope_parameters\": {\"full_attention\": {" THETA ", " YARN "}, \"sliding_attention\": {" THETA "}}",
    };
    write_folder();
    write_tensors(
        "{\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [4, 8], \"data_offsets\": [0, 128]}}", 128);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char config[1024];
        struct hparams hp;
        struct hearth_err e = {0};
        snprintf(config, sizeof config,
                 "{\"model_type\": \"olmo3\", %s, \"layer_types\": [\"sliding_attention\", "
                 "\"full_attention\"], " CONFIG2 "}",
                 forms[i]);
        struct gguf *g = open_with(config);
        if (model_hparams(&hp, g, &e))
            fail_msg("%s: %s", config, e.msg);
        const struct rope_params *full = &hp.rope[ROPE_FULL], *sliding = &hp.rope[ROPE_SLIDING];
        if (full->base != 25e4f || full->scaling != ROPE_SCALING_YARN || full->factor != 8 || full->original != 32 ||
            full->scale != 1.25f || !sliding->apart || sliding->base != 25e4f ||
            sliding->scaling != ROPE_SCALING_NONE || sliding->factor != 1 || sliding->scale != 1)
            fail_msg("%s: full %g x %g, sliding %g x %g", config, (double)full->base, (double)full->factor,
                     (double)sliding->base, (double)sliding->factor);
        assert_true(hp.slides[0] && !hp.slides[1]);
        gguf_close(g);
    }
#undef YARN
#undef THETA
}

/* Llama 3's frequency factors are those of the dimensions that rotate, even if these are only a part of a head. */
static void test_factors_of_a_part(void **state)
{
    (void)state;
    write_folder();
    struct gguf *g =
        open_with("{\"model_type\": \"glm4\", \"head_dim\": 32, \"partial_rotary_factor\": 0.5, \"rope_scaling\": "
                  "{\"rope_type\": \"llama3\", \"factor\": 8, \"original_max_position_embeddings\": 64, "
                  "\"low_freq_factor\": 1, \"high_freq_factor\": 4}, \"rope_theta\": 1e4, " CONFIG "}");
    const struct gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight");
    assert_true(t && t->dim[0] == 8); /* wavelengths of 2 pi 10^(i / 2): 6.3, 19.9, 62.8 and 199 of 64 */
    const float *factor = t->data;
    assert_true(factor[0] == 1 && factor[1] > 1 && factor[2] < 8 && factor[3] == 8 && factor[7] == 8);
    gguf_close(g);
}

/* The length before it was extended: beside RoPE's description, else in it, else the whole context. Kinds of layers
 * have their own. */
static void test_original_length(void **state)
{
    (void)state;
#define L3     "\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4"
#define LENGTH "\"original_max_position_embeddings\": "
    static const struct {
        const char *type, *says, *key;
        double value; /* of the key, or the index of the first pair of which Llama 3's scaling changes the frequency */
    } cases[] = {
        {"llama", "\"rope_scaling\": {" L3 ", " LENGTH "512}", NULL, 3},
        {"llama", LENGTH "16, \"rope_scaling\": {" L3 ", " LENGTH "512}", NULL, 0},
        {"llama", LENGTH "512, \"rope_scaling\": {" L3 "}", NULL, 3},
        {"llama", "\"rope_parameters\": {" L3 "}", NULL, 1},
        {"olmo3", LENGTH "512, \"rope_parameters\": {\"full_attention\": {" L3 ", " LENGTH "16}}", NULL, 0},
        {"llama", LENGTH "32, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, " LENGTH "16}",
         "llama.rope.scaling.original_context_length", 32},
        {"llama", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}", "llama.rope.scaling.original_context_length",
         64},
        {"phi3", LENGTH "32, \"rope_scaling\": {\"type\": \"longrope\", " LENGTH "16}",
         "phi3.rope.scaling.original_context_length", 32},
    };
#undef L3
#undef LENGTH
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[1024];
        snprintf(config, sizeof config, "{\"model_type\": \"%s\", %s, \"head_dim\": 16, " CONFIG "}", cases[i].type,
                 cases[i].says);
        struct gguf *g = open_with(config);
        const struct gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight");
        double n = 0;
        while (t && n < 8 && ((const float *)t->data)[(int)n] == 1)
            n++;
        double got = cases[i].key ? number_of(g, cases[i].key) : n;
        if (got != cases[i].value)
            fail_msg("%g with %s", got, config);
        gguf_close(g);
    }
}

/* RoPE is described twice where someone adds rope_scaling to what transformers 5 wrote. Neither may be ignored. */
static void test_rope_twice(void **state)
{
    (void)state;
    static const char *const same[] = {
        "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 1e6}, \"rope_scaling\": "
        "{\"type\": \"yarn\", \"factor\": 4.0}",
        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}, \"rope_scaling\": {\"type\": "
        "\"mrope\", \"mrope_section\": [1, 1, 2]}",
        "\"rope_parameters\": {\"rope_theta\": 1e6}, \"rope_scaling\": {}"};
    static const char *const differ[] = {
        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}, \"rope_scaling\": {\"rope_type\": "
        "\"yarn\", \"factor\": 4}",
        "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2}, \"rope_scaling\": {\"rope_type\": \"yarn\", "
        "\"factor\": 4}",
        "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4}, \"rope_scaling\": {\"rope_type\": \"yarn\", "
        "\"factor\": 4, \"beta_fast\": 16}",
        "\"rope_parameters\": {}, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}"};
    char config[1024];
    write_folder();
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        snprintf(config, sizeof config, "{\"model_type\": \"llama\", %s, " CONFIG "}", same[i]);
        struct gguf *g = open_with(config);
        assert_true(number_of(g, "llama.rope.freq_base") == 1e6);
        gguf_close(g);
    }
    for (size_t i = 0; i < sizeof differ / sizeof *differ; i++) {
        snprintf(config, sizeof config, "{\"model_type\": \"llama\", %s, " CONFIG "}", differ[i]);
        write_text("config.json", config);
        refused(dir, HEARTH_EUNSUPPORTED, "rope_scaling and rope_parameters differ");
    }
}

/* Forms that makers write beside those of transformers 5. */
static void test_folders_of_makers(void **state)
{
    (void)state;
    struct hearth_err e = {0};
    bool whole = false;
    uint8_t kv[2];
    write_folder();
    struct gguf *g =
        open_with("{\"model_type\": \"mamba2\", \"say\": \"an \\\"Infinity\\\"\", " /* the string is not a number */
                  "\"time_step_limit\": [-Infinity, Infinity], " CONFIG "}");
    assert_int_equal(gguf_bool(g, "hearth.ssm.norm_whole", &whole, &e), 0);
    assert_true(whole); /* transformers' Mamba-2 has a single norm over all groups, Nemotron H one for each */
    gguf_close(g);
    g = open_with("{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"M*\", " CONFIG2 "}");
    assert_int_equal(gguf_bool(g, "hearth.ssm.norm_whole", &whole, &e), 1);
    gguf_close(g);
    g = open_with("{\"model_type\": \"dots1\", \"scoring_func\": \"noaux_tc\", " EXPERTS CONFIG "}");
    assert_true(number_of(g, "dots1.expert_gating_func") == 2); /* a sigmoid */
    gguf_close(g);
    g = open_with("{\"model_type\": \"lfm2\", \"full_attn_idxs\": [1], \"block_ff_dim\": 12, "
                  "\"block_ffn_dim_multiplier\": null, " CONFIG2 "}");
    assert_int_equal(gguf_flags(g, "lfm2.attention.head_count_kv", kv, 2, &e), 0);
    assert_true(kv[0] == 0 && kv[1] == 1);
    assert_true(number_of(g, "lfm2.feed_forward_length") ==
                8); /* two thirds, which are rounded up only if there is a multiplier */
    gguf_close(g);
    g = open_with("{\"model_type\": \"lfm2\", \"full_attn_idxs\": [], \"block_multiple_of\": 16, " CONFIG2 "}");
    assert_true(number_of(g, "lfm2.feed_forward_length") == 16);
    gguf_close(g);
    static const char *const others[] = {"vision_tower.patch.weight",
                                         "audio_tower.layers.0.x.weight",
                                         "embed_vision.embedding_projection.weight",
                                         "embed_audio.embedding_projection.weight",
                                         "vision_encoder.layers.0.x.weight",
                                         "vision_projection.linear.weight",
                                         "visual_embeddings_table.weight",
                                         "projector.linear.weight",
                                         "layerwise_projectors.0.weight",
                                         "spatial_projectors.0.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char header[256];
        snprintf(
            header, sizeof header,
            "{\"model.language_model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]},"
            " \"model.%s\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [32, 64]}}",
            others[i]);
        write_tensors(header, 64);
        g = open_with("{\"model_type\": \"gemma4\", \"text_config\": {\"model_type\": \"gemma4_text\", " CONFIG "}}");
        assert_non_null(gguf_tensor_find(g, "output_norm.weight"));
        gguf_close(g);
    }
}

/* If config.json has several keys for one setting, as many do, the key that transformers reads for the model_type
 * counts; without it, transformers' default does, whatever the other keys say. */
static void test_several_names(void **state)
{
    (void)state;
#define NEMOTRON_H "\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"M*\", "
    static const struct {
        const char *says, *key;
        double value;
    } cases[] = {
        {NEMOTRON_H "\"layer_norm_epsilon\": 0.5, \"norm_eps\": 0.25",
         "nemotron_h_moe.attention.layer_norm_rms_epsilon", 0.5},
        {NEMOTRON_H "\"norm_eps\": 0.25", "nemotron_h_moe.attention.layer_norm_rms_epsilon", 1e-5},
        {NEMOTRON_H "\"n_groups\": 2, \"conv_kernel\": 3", "nemotron_h_moe.ssm.group_count", 2},
        {NEMOTRON_H "\"attention_head_dim\": 16", "nemotron_h_moe.attention.key_length", 16},
        {NEMOTRON_H "\"attention_head_dim\": 16, \"head_dim\": 32", "nemotron_h_moe.attention.key_length", 32},
        {NEMOTRON_H "\"attention_head_dim\": null", "nemotron_h_moe.attention.key_length", 128},
        {NEMOTRON_H "\"n_groups\": 2, \"mamba_n_groups\": 4", "nemotron_h_moe.ssm.group_count", 4},
        {NEMOTRON_H "\"conv_kernel\": 3, \"mamba_d_conv\": 4", "nemotron_h_moe.ssm.conv_kernel", 4},
        {NEMOTRON_H "\"moe_shared_expert_intermediate_size\": 6, \"shared_expert_intermediate_size\": 4",
         "nemotron_h_moe.expert_shared_feed_forward_length", 6},
        {"\"model_type\": \"mamba2\", \"layer_norm_epsilon\": 0.5", "mamba2.attention.layer_norm_rms_epsilon", 0.5},
        {"\"model_type\": \"lfm2\", \"full_attn_idxs\": [], \"norm_eps\": 0.5", "lfm2.attention.layer_norm_rms_epsilon",
         0.5},
        {"\"model_type\": \"lfm2\", \"full_attn_idxs\": []", "lfm2.attention.layer_norm_rms_epsilon", 1e-5},
        {"\"model_type\": \"lfm2_moe\", \"full_attn_idxs\": [], \"norm_eps\": 0.5",
         "lfm2moe.attention.layer_norm_rms_epsilon", 0.5},
        {"\"model_type\": \"lfm2_moe\", \"full_attn_idxs\": [], \"num_dense_layers\": 2, \"first_k_dense_replace\": 1",
         "lfm2moe.leading_dense_block_count", 2},
        {"\"model_type\": \"llama\", \"norm_eps\": 0.5", "llama.attention.layer_norm_rms_epsilon", 1e-3},
        {"\"model_type\": \"llama\", \"hidden_act\": \"swish\"", "llama.block_count", 2},
        {"\"model_type\": \"gemma2\", \"hidden_act\": \"gelu\", \"hidden_activation\": \"gelu_pytorch_tanh\"",
         "gemma2.block_count", 2},
        /* settings that transformers writes for every model, and that say nothing of a decoder */
        {"\"model_type\": \"llama\", \"is_decoder\": false, \"add_cross_attention\": false", "llama.block_count", 2},
        {"\"model_type\": \"nemotron\", \"norm_eps\": 0.5, \"layer_norm_eps\": 0.25, \"norm_epsilon\": 0.125",
         "nemotron.attention.layer_norm_epsilon", 0.5},
        {"\"model_type\": \"starcoder2\", \"layer_norm_eps\": 0.25, \"norm_epsilon\": 0.5",
         "starcoder2.attention.layer_norm_epsilon", 0.5},
        {"\"model_type\": \"cohere2\", \"norm_epsilon\": 0.25, \"layer_norm_eps\": 0.5",
         "cohere2.attention.layer_norm_epsilon", 0.5},
        {"\"model_type\": \"gemma4_text\", \"num_experts_per_tok\": 1, \"top_k_experts\": 2",
         "gemma4.expert_used_count", 2},
        {"\"model_type\": \"deepseek_v3\", " LATENT "\"n_routed_experts\": 4, \"num_local_experts\": 2",
         "deepseek2.expert_count", 2},
        {"\"model_type\": \"phi3\", \"original_max_position_embeddings\": 16, \"rope_scaling\": {\"type\": "
         "\"longrope\", "
         "\"factor\": 32}",
         "phi3.rope.scaling.factor", 32},
        /* settings that are missing */
        {"\"model_type\": \"qwen3_next\", \"full_attention_interval\": 2", "qwen3next.full_attention_interval", 2},
        {"\"model_type\": \"granite\"", "granite.attention.scale", 1},
        {"\"model_type\": \"granite\", \"attention_multiplier\": 0.5", "granite.attention.scale", 0.5},
        {"\"model_type\": \"granitemoe\"", "granitemoe.attention.scale", 1},
        {"\"model_type\": \"deepseek_v3\", " LATENT "\"n_routed_experts\": 16", "deepseek2.expert_group_count", 8},
        {"\"model_type\": \"deepseek_v3\", " LATENT "\"n_routed_experts\": 16", "deepseek2.expert_group_used_count", 4},
        {"\"model_type\": \"deepseek_v3\", " LATENT "\"n_routed_experts\": 16", "deepseek2.expert_used_count", 8},
        {"\"model_type\": \"deepseek_v3\", " LATENT "\"n_routed_experts\": 16", "deepseek2.expert_weights_scale", 2.5},
        {"\"model_type\": \"deepseek_v3\", " LATENT "\"n_group\": 1", "deepseek2.expert_group_count", 1},
        {"\"model_type\": \"deepseek_v2\", " LATENT "\"n_group\": 2, \"topk_method\": \"group_limited_greedy\"",
         "deepseek2.expert_group_count", 2},
        {"\"model_type\": \"deepseek_v2\", " LATENT "\"n_group\": 2, \"topk_group\": 1", "deepseek2.expert_group_count",
         -1},
    };
#undef NEMOTRON_H
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[1024];
        snprintf(config, sizeof config,
                 "{%s, \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 2, \"vocab_size\": 4, "
                 "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": 64, "
                 "\"rms_norm_eps\": 1e-3}",
                 cases[i].says);
        struct gguf *g = open_with(config);
        if (number_of(g, cases[i].key) != (double)(float)cases[i].value)
            fail_msg("%s is %g with %s", cases[i].key, number_of(g, cases[i].key), config);
        gguf_close(g);
    }
}

/* Settings of config.json that transformers ignores, or that contradict the tensors. */
static void test_said_in_vain(void **state)
{
    (void)state;
    write_folder();
    struct gguf *g = open_with("{\"model_type\": \"glm4_moe_lite\", \"n_routed_experts\": 2, " LATENT
                               "\"mlp_layer_types\": [\"dense\", \"sparse\", \"dense\"], " CONFIG_OF("3") "}");
    assert_true(number_of(g, "deepseek2.leading_dense_block_count") == 1); /* the last layer has no router */
    gguf_close(g);
    static const char *const windows[][2] = {{"mistral", "llama.attention.sliding_window"},
                                             {"llama", "llama.attention.sliding_window"},
                                             {"granite", "granite.attention.sliding_window"},
                                             {"olmo2", "olmo2.attention.sliding_window"}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        char config[512];
        snprintf(config, sizeof config, "{\"model_type\": \"%s\", \"sliding_window\": 16, " CONFIG "}", windows[i][0]);
        g = open_with(config);
        assert_true(number_of(g, windows[i][1]) == (i ? 0 : 16)); /* of these only Mistral has a window */
        gguf_close(g);
    }
    g = open_with(
        "{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"M*\", \"sliding_window\": 16, " CONFIG2 "}");
    assert_true(number_of(g, "nemotron_h_moe.attention.sliding_window") == 0);
    gguf_close(g);
    write_tensors(
        "{\"model.layers.0.feed_forward.expert_bias\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": "
        "[0, 8]}}",
        8);
    for (int use = 0; use < 2; use++) {
        char config[512];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"lfm2_moe\", \"layer_types\": [\"conv\"], \"use_expert_bias\": %s, " EXPERTS CONFIG
                 "}",
                 use ? "true" : "false");
        g = open_with(config);
        assert_true((gguf_tensor_find(g, "blk.0.exp_probs_b.bias") != NULL) == use);
        gguf_close(g);
    }
}

/* Which of six layers have the window, and which have RoPE, where config.json has no layer_types. */
static void test_layers_without_types(void **state)
{
    (void)state;
#define USE "\"use_sliding_window\": true, "
    static const struct {
        const char *type, *says, *slides, *turns; /* turns NULL: all layers */
    } cases[] = {
        {"qwen2", USE "\"max_window_layers\": 2", "001111", NULL},
        {"qwen2_vl_text", USE "\"max_window_layers\": 4", "000011", NULL},
        {"qwen3_moe", USE "\"max_window_layers\": 2", "111111", NULL}, /* which has no such setting */
        {"qwen3_moe", USE "\"attention_bias\": false", "111111", NULL},
        {"qwen2_moe", USE "\"max_window_layers\": 3", "101000", NULL},
        {"qwen2_moe", USE "\"qkv_bias\": true", "101010", NULL},
        {"smollm3", USE "\"no_rope_layer_interval\": 3", "001001", "110110"},
        {"smollm3", USE "\"no_rope_layers\": [0, 1, 1, 1, 0, 1]", "100010", "011101"},
        {"smollm3", USE "\"mlp_bias\": false", "000100", "111011"},
        {"exaone4", "\"sliding_window_pattern\": 3", "110110", "110110"},
        {"exaone4", "\"sliding_window_pattern\": \"LLLG\"", "111011", "111011"},
        {"cohere2", "\"sliding_window_pattern\": 2", "101010", NULL},
        {"gemma3_text", "\"sliding_window_pattern\": 3", "110110", NULL},
    };
#undef USE
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[1024], slides[7] = {0}, turns[7] = {0};
        uint8_t flags[6];
        struct hearth_err e = {0};
        snprintf(config, sizeof config, "{\"model_type\": \"%s\", %s, \"sliding_window\": 16, " CONFIG_OF("6") "}",
                 cases[i].type, cases[i].says);
        struct gguf *g = open_with(config);
        assert_int_equal(gguf_flags(g, "hearth.attention.slides", flags, 6, &e), 0);
        for (int n = 0; n < 6; n++)
            slides[n] = (char)('0' + flags[n]);
        int ret = gguf_flags(g, "hearth.rope.layers", flags, 6, &e);
        for (int n = 0; n < 6; n++)
            turns[n] = (char)('0' + flags[n]);
        if (strcmp(slides, cases[i].slides) || ret != (cases[i].turns ? 0 : 1) ||
            (cases[i].turns && strcmp(turns, cases[i].turns)))
            fail_msg("windows %s, RoPE %s with %s", slides, ret ? "everywhere" : turns, config);
        gguf_close(g);
    }
}

/* mscale_all_dim without mscale scales latent attention's scores, and does not change RoPE. */
static void test_mscale(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        double attn, rope; /* factors of the scores and of cos and sin, in multiples of 1 + 0.1 ln 4 */
    } cases[] = {
        {"\"mscale\": 1, \"mscale_all_dim\": 1", 2, 0}, {"\"mscale_all_dim\": 1", 2, 1}, {"\"mscale\": 1", 0, 1}};
    write_folder();
    write_tensors(
        "{\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [4, 8], \"data_offsets\": [0, 128]}}", 128);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[1024];
        struct hparams hp;
        struct hearth_err e = {0};
        snprintf(config, sizeof config,
                 "{\"model_type\": \"deepseek_v3\", " LATENT "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
                 "\"original_max_position_embeddings\": 16, %s}, \"n_routed_experts\": 16, " CONFIG "}",
                 cases[i].says);
        struct gguf *g = open_with(config);
        if (model_hparams(&hp, g, &e))
            fail_msg("%s: %s", config, e.msg);
        double m = 1 + 0.1 * log(4), attn = pow(m, cases[i].attn) / sqrt(8), rope = pow(m, cases[i].rope);
        if (fabs((double)hp.attn_scale - attn) > 1e-6 || fabs((double)hp.rope[ROPE_FULL].scale - rope) > 1e-6)
            fail_msg("scores times %g, RoPE times %g with %s", (double)hp.attn_scale, (double)hp.rope[ROPE_FULL].scale,
                     config);
        gguf_close(g);
    }
}

/* The last of Gemma 4's layers has full attention, whatever the config says. */
static void test_last_layer(void **state)
{
    (void)state;
    struct hearth_err e = {0};
    uint8_t slides[2];
    write_folder();
    struct gguf *g = open_with("{\"model_type\": \"gemma4_text\", \"layer_types\": [\"sliding_attention\", "
                               "\"sliding_attention\"], " CONFIG2 "}");
    assert_int_equal(gguf_flags(g, "hearth.attention.slides", slides, 2, &e), 0);
    assert_true(slides[0] == 1 && slides[1] == 0);
    gguf_close(g);
    g = open_with("{\"model_type\": \"gemma4_text\", " CONFIG2 "}");
    assert_int_equal(gguf_flags(g, "hearth.attention.slides", slides, 2, &e), 0);
    assert_true(slides[0] == 1 && slides[1] == 0);
    gguf_close(g);
}

/* A value of the wrong type is refused with its key, and is not treated as absent; so is one that must be there. */
static void test_wrong_types(void **state)
{
    (void)state;
    static const struct {
        const char *type, *says, *words;
    } cases[] = {
        {"llama", "\"rope_parameters\": \"x\"", "rope_parameters is not an object"},
        {"llama", "\"rope_parameters\": []", "rope_parameters is not an object"},
        {"llama", "\"rope_scaling\": 7", "rope_scaling is not an object"},
        {"gemma3_text", "\"rope_parameters\": {\"full_attention\": 3}", "full_attention is not an object"},
        {"gemma3_text", "\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": {}}}",
         "rope_theta is not a number"},
        {"llama", "\"rope_scaling\": {\"rope_type\": 3}", "rope_type is not a string"},
        {"llama", "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": \"8\"}", "factor is not a number"},
        {"llama", "\"rope_scaling\": {\"rope_type\": \"yarn\", \"truncate\": 0}", "truncate is not true or false"},
        {"llama", "\"rope_scaling\": {\"rope_type\": \"yarn\", \"mscale\": Infinity}", "mscale is not a number"},
        {"llama", "\"rope_scaling\": {\"type\": \"linear\"}", "linear without a factor"},
        {"llama", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": null}", "linear without a factor"},
        {"llama", "\"rope_scaling\": {\"type\": \"llama3\", \"low_freq_factor\": 1, \"high_freq_factor\": 4}",
         "llama3 with values that cannot be"},
        {"llama", "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4}",
         "llama3 with values that cannot be"},
        {"llama", "\"hidden_act\": 7", "hidden_act is not a string"},
        {"gemma2", "\"hidden_activation\": []", "hidden_activation is not a string"},
        {"llama", "\"head_dim\": -1", "head_dim is not a whole number from 1"},
        {"llama", "\"head_dim\": 0", "head_dim is not a whole number from 1"},
        {"llama", "\"head_dim\": \"x\"", "head_dim is not a whole number from 1"},
        {"llama", "\"head_dim\": 16777216", "head_dim is not a whole number from 1 to 16777215"},
        {"llama", "\"head_dim\": 18446744073709551632", "head_dim is not a whole number from 1 to 16777215"},
        {"llama", "\"tie_word_embeddings\": \"no\"", "tie_word_embeddings is not true or false"},
        {"glm4_moe", "\"n_group\": Infinity", "n_group is not a whole number"},
        {"glm4_moe", "\"routed_scaling_factor\": -Infinity", "routed_scaling_factor is not a number"},
        {"qwen2", "\"use_sliding_window\": 1", "use_sliding_window is not true or false"},
        {"smollm3", "\"no_rope_layers\": [\"1\"]", "no_rope_layers is not an array of whole numbers"},
        {"gemma4_text", "\"per_layer_config\": [7]", "per_layer_config is not an object"},
        {"gemma4_text", "\"per_layer_config\": {\"0\": 7}", "per_layer_config is not an object of objects"},
        {"gemma4_text", "\"per_layer_config\": {\"0\": {\"head_dim\": \"8\"}}", "head_dim is not a whole number"},
        {"gemma4_text", "\"use_double_wide_mlp\": 1", "use_double_wide_mlp is not true or false"},
        {"lfm2", "\"full_attn_idxs\": [], \"block_ffn_dim_multiplier\": \"2\"",
         "block_ffn_dim_multiplier is not a number"},
        {"mamba2", "\"time_step_limit\": 3", "time_step_limit is not an array of two numbers"},
        {"mamba2", "\"time_step_limit\": [\"x\", Infinity]", "time_step_limit is not an array of two numbers"},
        {"mamba2", "\"time_step_limit\": [0.0, {\"__float__\": \"1\"}]",
         "time_step_limit is not an array of two numbers"},
        {"nemotron_h", "\"hybrid_override_pattern\": \"M\", \"mamba_dt_limit\": 3",
         "mamba_dt_limit is not an array of two numbers"},
        {"llama", "\"text_config\": \"x\"", "text_config is not an object"},
    };
    char config[1024];
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(config, sizeof config, "{\"model_type\": \"%s\", %s, " CONFIG "}", cases[i].type, cases[i].says);
        write_text("config.json", config);
        refused(dir, HEARTH_EBADMODEL, cases[i].words);
    }
    static const char *const limits[] = {"[Infinity, Infinity]", "[0.0, -Infinity]", "[0.0, 0.1]", "[0.5, null]"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        snprintf(config, sizeof config, "{\"model_type\": \"mamba2\", \"time_step_limit\": %s, " CONFIG "}", limits[i]);
        write_text("config.json", config);
        refused(dir, HEARTH_EUNSUPPORTED, "time_step_limit");
        /* the name that Nemotron H's makers gave it, which precedes the other */
        snprintf(config, sizeof config,
                 "{\"model_type\": \"nemotron_h\", \"mamba_dt_limit\": %s, \"time_step_limit\": [0.0, Infinity], "
                 "\"hybrid_override_pattern\": \"M\", " CONFIG "}",
                 limits[i]);
        write_text("config.json", config);
        refused(dir, HEARTH_EUNSUPPORTED, "mamba_dt_limit");
    }
    gguf_close(open_with("{\"model_type\": \"nemotron_h\", \"mamba_dt_limit\": [0.0, Infinity], "
                         "\"hybrid_override_pattern\": \"M\", \"time_step_limit\": [0.5, 1], " CONFIG "}"));
    gguf_close(open_with("{\"model_type\": \"mamba2\", \"time_step_limit\": [0.0, {\"__float__\": \"Infinity\"}], "
                         "\"say\": [Infinity, \"Infinity\", -Infinity], " CONFIG "}"));
    gguf_close(open_with("{\"model_type\": \"llama\", \"rope_parameters\": null, \"rope_scaling\": null, \"head_dim\": "
                         "null, \"hidden_act\": null, \"tie_word_embeddings\": null, \"text_config\": null, " CONFIG
                         "}"));
}

/* Layers after num_hidden_layers are left out if the config says that they predict further ahead and they have the
 * tensors for that; any others belong to the model. */
static void test_layers_after(void **state)
{
    (void)state;
    static const struct {
        const char *says, *names[2], *words; /* why it is refused; NULL: it opens */
    } cases[] = {
        {"\"model_type\": \"llama\"",
         {"model.layers.1.input_layernorm.weight", "x"},
         "tensor model.layers.1.input_layernorm.weight has no place in a llama of 1 layers (num_hidden_layers)"},
        {"\"model_type\": \"llama\"",
         {"model.layers.-1.input_layernorm.weight", "x"},
         "has no place in a llama of 1 layers"},
        {"\"model_type\": \"llama\", \"num_nextn_predict_layers\": 1",
         {"model.layers.1.input_layernorm.weight", "model.layers.1.eh_proj.weight"},
         NULL},
        {"\"model_type\": \"glm4_moe\"",
         {"model.layers.1.input_layernorm.weight", "model.layers.1.eh_proj.weight"},
         NULL},
        {"\"model_type\": \"glm4_moe\", \"num_nextn_predict_layers\": 0",
         {"model.layers.1.eh_proj.weight", "model.layers.1.input_layernorm.weight"},
         "tensor model.layers.1.eh_proj.weight has no place"},
        {"\"model_type\": \"glm4_moe\", \"num_nextn_predict_layers\": 1",
         {"model.layers.1.input_layernorm.weight", "model.layers.1.mlp.up_proj.weight"},
         "tensors of layer 1 have no place in a glm4_moe of 1 layers (num_hidden_layers): without eh_proj"},
        {"\"model_type\": \"glm4_moe\", \"num_nextn_predict_layers\": 1",
         {"model.layers.1.eh_proj.weight", "model.layers.2.eh_proj.weight"},
         "tensor model.layers.2.eh_proj.weight has no place"},
        {"\"model_type\": \"glm4_moe\", \"num_nextn_predict_layers\": 2",
         {"model.layers.1.eh_proj.weight", "model.layers.2.eh_proj.weight"},
         NULL},
        {"\"model_type\": \"qwen3_next\"", {"mtp.layers.1.input_layernorm.weight", "mtp.fc.weight"}, NULL},
    };
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512], header[512];
        snprintf(config, sizeof config, "{%s, " CONFIG "}", cases[i].says);
        snprintf(header, sizeof header,
                 "{\"%s\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}, "
                 "\"%s\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}",
                 cases[i].names[0], cases[i].names[1]);
        write_tensors(header, 32);
        write_text("config.json", config);
        if (cases[i].words)
            refused(dir, HEARTH_EUNSUPPORTED, cases[i].words);
        else
            gguf_close(open_with(config));
    }
}

#define HEAD                                                                                    \
    "{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}, " \
    "\"lm_head.weight\": {\"dtype\": \"F32\", \"shape\": [4, 8], \"data_offsets\": [32, 160]}}"

/* If the config says that the output is not tied to the embedding, the folder has an output matrix. If it says that the
 * two are tied and there is one all the same, that is used, as transformers 5 does unless it equals the embedding. */
static void test_head(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        bool refused;
    } cases[] = {
        {"{\"model_type\": \"llama\", \"tie_word_embeddings\": false, " CONFIG "}", true},
        {"{\"model_type\": \"llama\", \"tie_word_embeddings\": true, " CONFIG "}", false},
        {"{\"model_type\": \"llama\", " CONFIG "}", false},
        {"{\"model_type\": \"lfm2\", \"full_attn_idxs\": [], \"tie_embedding\": true, \"tie_word_embeddings\": "
         "false, " CONFIG "}",
         false},
        {"{\"tie_word_embeddings\": true, \"text_config\": {\"model_type\": \"gemma3_text\", \"tie_word_embeddings\": "
         "false, " CONFIG "}}",
         false},
        {"{\"tie_word_embeddings\": false, \"text_config\": {\"model_type\": \"qwen3_vl_text\", " CONFIG "}}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_folder();
        write_text("config.json", cases[i].config);
        if (cases[i].refused)
            refused(dir, HEARTH_EBADMODEL, "tensor lm_head.weight is missing, and tie_word_embeddings is false");
        else
            gguf_close(open_with(cases[i].config));
        write_tensors(HEAD, 160);
        struct gguf *g = open_with(cases[i].config);
        assert_non_null(gguf_tensor_find(g, "output.weight"));
        gguf_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_window, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rope_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_olmo3_rope, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_factors_of_a_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_original_length, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rope_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders_of_makers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_several_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_said_in_vain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_without_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mscale, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_last_layer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_after, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_head, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
