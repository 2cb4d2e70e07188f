/*
 * folder-makers.c - Hugging Face folders as makers publish them, which differ from what transformers saves of a small
 * model of text: with tensors of other parts, configurations that leave sizes out, and files of older versions.
 */
#include "config.h" /* memfd_create */

#include "tests/unit/model/folder-box.h"

#include "daemon/model/tok/tok.h"

/* The other parts of a multimodal model have tensors that hearth does not read: the patches of Qwen's vision models go
 * through a convolution of five dimensions, Gemma 4's audio has limits without a dimension, and positions are integers.
 * In the text part, the same tensors are refused. */
static void test_other_parts(void **state)
{
    (void)state;
    static const char *const others[] = {"\"dtype\": \"BF16\", \"shape\": [2, 1, 1, 2, 2], \"data_offsets\": [32, 48]",
                                         "\"dtype\": \"BF16\", \"shape\": [], \"data_offsets\": [32, 34]",
                                         "\"dtype\": \"I64\", \"shape\": [1, 2], \"data_offsets\": [32, 48]",
                                         "\"dtype\": \"F8_E4M3\", \"shape\": [4], \"data_offsets\": [32, 36]",
                                         "\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [32, 32]"};
    static const char *const why[] = {"its shape is not one of 1 to 4 dimensions",
                                      "its shape is not one of 1 to 4 dimensions", "is of type I64", "is of type F8",
                                      "a dimension is out of range"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char header[256];
        struct gguf *g = NULL;
        struct hearth_err e = {0};
        write_folder();
        snprintf(header, sizeof header, "%.*s, \"model.visual.patch_embed.proj.weight\": {%s}}", (int)sizeof NORM - 2,
                 NORM, others[i]);
        write_tensors(header, 48);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s: %s", others[i], e.msg);
        assert_true(gguf_n_tensor(g) == 1 && gguf_tensor_find(g, "output_norm.weight"));
        gguf_close(g);
        snprintf(header, sizeof header, "%.*s, \"model.layers.0.self_attn.q_proj.weight\": {%s}}", (int)sizeof NORM - 2,
                 NORM, others[i]);
        write_tensors(header, 48);
        refused(dir, i == 2 || i == 3 ? HEARTH_EUNSUPPORTED : HEARTH_EBADMODEL, why[i]);
    }
}

/* What the parts are called: as in SmolVLM, Voxtral, LLaVA-NeXT, DeepSeek-VL, Janus and Granite Speech. */
static void test_names_of_parts(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"model.text_model.", "model.vision_model.patch.weight"},
                                           {"model.text_model.", "model.connector.modality_projection.proj.weight"},
                                           {"language_model.model.", "audio_tower.conv1.weight"},
                                           {"language_model.model.", "image_newline"},
                                           {"model.language_model.", "model.image_newline"},
                                           {"model.language_model.", "model.aligner.linear1.weight"},
                                           {"model.language_model.", "model.high_res_vision_neck.conv1.weight"},
                                           {"model.language_model.", "model.vqmodel.quantize.embedding.weight"},
                                           {"model.language_model.", "model.generation_head.vision_head.weight"},
                                           {"language_model.model.", "encoder.input_linear.weight"},
                                           {"language_model.model.", "projector.linear.weight"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[512];
        struct gguf *g = NULL;
        struct hearth_err e = {0};
        write_folder();
        snprintf(
            header, sizeof header,
            "{\"%slayers.0.input_layernorm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}, "
            "\"%s\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [32, 64]}}",
            cases[i][0], cases[i][1]);
        write_tensors(header, 64);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s", e.msg);
        assert_true(gguf_n_tensor(g) == 1 && gguf_tensor_find(g, "blk.0.attn_norm.weight"));
        gguf_close(g);
    }
}

/* The template of Pixtral, of LLaVA and of Qwen 2-VL is in a file of the processor of images and text. */
static void test_processor_template(void **state)
{
    (void)state;
    static const char *const configs[] = {NULL, "{}", "{\"chat_template\": null}", "{\"chat_template\": \"own\"}"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct gguf *g = NULL;
        struct gguf_str s = {"", 0};
        struct hearth_err e = {0};
        write_folder();
        write_text("chat_template.json", "{\"chat_template\": \"of the processor\"}");
        if (configs[i])
            write_text("tokenizer_config.json", configs[i]);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(gguf_str(g, "tokenizer.chat_template", &s, &e), 0);
        assert_true(gguf_str_is(s, i < 3 ? "of the processor" : "own"));
        gguf_close(g);
    }
    write_text("tokenizer_config.json", "{}");
    write_text("chat_template.json", "{");
    refused(dir, HEARTH_EBADMODEL, "chat_template.json, line 1");
}

/* Gemma 3 1B has the tokenizer of the larger models, with a token for images for which its embedding has no row. */
static void test_token_without_row(void **state)
{
    (void)state;
    struct gguf *g;
    struct vocab *v;
    struct hearth_err e = {0};
    struct ids ids = {0};
    write_folder();
    write_text("tokenizer.json",
               "{\"model\": {\"type\": \"BPE\", " VOCAB "}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, "
               "\"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", \"special\": true}, "
               "{\"id\": 4, \"content\": \"bab\", \"special\": true}]}");
    if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e) || tok_encode(v, "bab<e>", 6, TOK_SPECIAL, &ids, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(vocab_size(v), 4);
    assert_true(ids.n == 3 && ids.v[0] == 1 && ids.v[1] == 2 && ids.v[2] == 3);
    assert_int_equal(vocab_special(v, "bab"), -1);
    ids_fini(&ids);
    vocab_free(v);
    gguf_close(g);
    write_text("tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 4}, \"merges\": []}, "
                                 "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}");
    refused(dir, HEARTH_EBADMODEL, "a token's id lies outside of the vocabulary"); /* merges could make it */
}

/* A token of a byte may be special, as where a maker pads with "!": plain text has it all the same. */
static void test_special_byte(void **state)
{
    (void)state;
    static const int flags[] = {0, TOK_MESSAGE, TOK_SPECIAL};
    struct gguf *g;
    struct vocab *v;
    struct hearth_err e = {0};
    write_folder();
    write_text("tokenizer.json",
               "{\"model\": {\"type\": \"BPE\", " VOCAB "}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, "
               "\"added_tokens\": [{\"id\": 0, \"content\": \"a\", \"special\": true}]}");
    if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct ids ids = {0};
        assert_int_equal(tok_encode(v, "aab", 3, flags[i], &ids, &e), 0);
        assert_int_equal(ids.n, flags[i] == TOK_SPECIAL ? 3 : 2);
        assert_int_equal(ids.v[0], 0);
        assert_int_equal(ids.v[1], flags[i] == TOK_SPECIAL ? 0 : 2); /* "ab" */
        ids_fini(&ids);
    }
    vocab_free(v);
    gguf_close(g);
}

/* Special tokens that only the companions of tokenizer.json name, as transformers adds them to it. */
static void test_named_tokens(void **state)
{
    (void)state;
    static const char config[] = "tokenizer_config.json", map[] = "special_tokens_map.json";
    static const char tokens[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, "
                                 "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, "
                                 "\"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", \"special\": true}]}";
    static const struct {
        const char *file, *text;
        int32_t type, added; /* 1 a token like others, 3 special, 4 only added; 1 it takes in white space before it */
    } cases[] = {
        {config, "{\"pad_token\": \"<e>\"}", 1, 0},
        {config, "{\"pad_token\": \"ab\"}", 3, 0},
        {config, "{\"bos_token\": {\"content\": \"ab\", \"lstrip\": true}}", 3, 1},
        {config, "{\"additional_special_tokens\": [\"none\", {\"content\": \"ab\"}]}", 3, 0},
        {config, "{\"extra_special_tokens\": {\"image_token\": \"ab\"}}", 3, 0},
        {config, "{\"extra_special_tokens\": [\"ab\"]}", 3, 0},
        {config, "{\"added_tokens_decoder\": {\"2\": {\"content\": \"ab\", \"special\": true, \"lstrip\": true}}}", 3,
         1},
        {config, "{\"added_tokens_decoder\": {\"9\": {\"content\": \"ab\", \"special\": false}}}", 4, 0},
        {config, "{\"added_tokens_decoder\": {\"2\": {\"content\": \"other\", \"special\": true}}}", 1, 0},
        {map, "{\"pad_token\": \"ab\"}", 3, 0},
        {map, "{\"eos_token\": {\"content\": \"ab\", \"lstrip\": true}}", 3, 1},
        {map, "{\"additional_special_tokens\": [\"ab\"]}", 3, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf *g;
        struct vocab *v;
        struct hearth_err e = {0};
        struct ids ids = {0};
        struct gguf_nums types, added;
        write_folder();
        write_text("tokenizer.json", tokens);
        write_text(map, "{}");
        write_text(config, "{}");
        write_text(cases[i].file, cases[i].text);
        if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e) || tok_encode(v, "ab", 2, TOK_SPECIAL, &ids, &e))
            fail_msg("%s: %s", cases[i].text, e.msg);
        assert_int_equal(gguf_i32s(g, "tokenizer.ggml.token_type", &types, &e), 0);
        assert_int_equal(gguf_i32s(g, "hearth.tokenizer.added", &added, &e), 0);
        if (gguf_i32_at(&types, 2) != cases[i].type || gguf_i32_at(&added, 2) != cases[i].added)
            fail_msg("%s: type %d, added %d", cases[i].text, gguf_i32_at(&types, 2), gguf_i32_at(&added, 2));
        assert_int_equal(ids.n, cases[i].type == 1 ? 2 : 1);
        assert_int_equal(ids.v[0], cases[i].type == 1 ? 0 : 2);
        assert_true(gguf_i32_at(&types, 3) == 3 && gguf_i32_at(&added, 3) == 8);
        ids_fini(&ids);
        vocab_free(v);
        gguf_close(g);
    }
    /* Beside added_tokens_decoder, special_tokens_map.json is not read. */
    struct gguf *g;
    struct hearth_err e = {0};
    uint32_t pad;
    write_text(map, "{");
    refused(dir, HEARTH_EBADMODEL, "special_tokens_map.json, line 1");
    write_text(config, "{\"added_tokens_decoder\": {}, \"pad_token\": \"<e>\"}");
    assert_int_equal(model_file_open(&g, dir, &e), 0);
    assert_true(!gguf_u32(g, "tokenizer.ggml.padding_token_id", &pad, &e) && pad == 3);
    gguf_close(g);
    /* Otherwise its names come first. */
    write_text(config, "{\"pad_token\": \"<e>\"}");
    write_text(map, "{\"pad_token\": \"ab\"}");
    assert_int_equal(model_file_open(&g, dir, &e), 0);
    assert_true(!gguf_u32(g, "tokenizer.ggml.padding_token_id", &pad, &e) && pad == 2);
    gguf_close(g);
}

/* What ends a generation may be said beside text_config, as in Gemma 3. */
static void test_end_beside_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *whole;
        int n, id;
    } cases[] = {
        {"", ", \"eos_token_id\": [2, 1]", 2, 2},
        {"", ", \"eos_token_id\": 1", 1, 1},
        {", \"eos_token_id\": null", ", \"eos_token_id\": 1", 1, 1},
        {", \"eos_token_id\": 3", ", \"eos_token_id\": 1", 1, 3},
        {"", ", \"eos_token_id\": null", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512];
        struct gguf *g;
        struct gguf_nums ids = {0};
        struct hearth_err e = {0};
        write_folder();
        snprintf(config, sizeof config,
                 "{\"model_type\": \"any\", \"text_config\": {\"model_type\": \"llama\", " CONFIG "%s}%s}",
                 cases[i].text, cases[i].whole);
        write_text("config.json", config);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(gguf_i32s(g, "hearth.tokenizer.end_ids", &ids, &e), cases[i].n ? 0 : 1);
        assert_int_equal(ids.n, cases[i].n);
        if (cases[i].n)
            assert_int_equal(gguf_i32_at(&ids, 0), cases[i].id);
        gguf_close(g);
    }
}

/* So is what is said of quantised weights. */
static void test_quantised_beside_text(void **state)
{
    (void)state;
    write_folder();
    write_text("config.json", "{\"model_type\": \"any\", \"text_config\": {\"model_type\": \"llama\", " CONFIG
                              "}, \"quantization_config\": {\"quant_method\": \"awq\"}}");
    refused(dir, HEARTH_EUNSUPPORTED, "quantised safetensors (quantization_config)");
}

/* transformers changes the base of dynamic RoPE only for texts that are longer than max_position_embeddings, which is
 * the limit here. */
static void test_dynamic_rope(void **state)
{
    (void)state;
    static const char *const says[] = {
        "\"rope_theta\": 5e4, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}",
        "\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 2.0, \"rope_theta\": 5e4}"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        char config[512];
        struct gguf *g;
        struct hearth_err e = {0};
        float base = 0;
        uint32_t n = 0;
        write_folder();
        snprintf(config, sizeof config, "{\"model_type\": \"llama\", " CONFIG ", %s}", says[i]);
        write_text("config.json", config);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s", e.msg);
        assert_true(!gguf_has(g, "llama.rope.scaling.type") && !gguf_has(g, "llama.rope.scaling.factor"));
        assert_true(!gguf_f32(g, "llama.rope.freq_base", &base, &e) && base == 5e4f);
        assert_true(!gguf_u32(g, "llama.context_length", &n, &e) && n == 64);
        gguf_close(g);
    }
}

/* The text model's keys that LLaVA 1.5 and 1.6 leave out, and Pixtral the number of heads, are transformers' defaults.
 */
static void test_text_config(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        uint32_t layers, d_model, d_ff, heads, kv, ctx; /* kv 0: no key, which means as many as heads */
    } cases[] = {
        {"\"model_type\": \"llama\", \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"vocab_size\": 4", 32,
         4096, 11008, 32, 0, 4096},
        {"\"model_type\": \"llama\", \"num_key_value_heads\": null, \"vocab_size\": 4", 32, 4096, 11008, 32, 0, 2048},
        {"\"model_type\": \"mistral\", \"max_position_embeddings\": 32768, \"rope_theta\": 1000000.0, \"vocab_size\": "
         "4",
         32, 4096, 14336, 32, 8, 32768},
        {"\"model_type\": \"mistral\", \"head_dim\": 128, \"hidden_size\": 5120, \"num_hidden_layers\": 40, "
         "\"vocab_size\": 4",
         40, 5120, 14336, 32, 8, 131072},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512];
        struct gguf *g = NULL;
        struct hearth_err e = {0};
        static const char *const keys[] = {"block_count",          "embedding_length",        "feed_forward_length",
                                           "attention.head_count", "attention.head_count_kv", "context_length"};
        const uint32_t want[] = {cases[i].layers, cases[i].d_model, cases[i].d_ff,
                                 cases[i].heads,  cases[i].kv,      cases[i].ctx};
        write_folder();
        snprintf(config, sizeof config, "{\"model_type\": \"llava\", \"text_config\": {%s}}", cases[i].says);
        write_text("config.json", config);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s: %s", cases[i].says, e.msg);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            char key[64];
            uint32_t n = 0;
            snprintf(key, sizeof key, "llama.%s", keys[k]);
            assert_int_equal(gguf_u32(g, key, &n, &e), want[k] ? 0 : 1);
            assert_int_equal(n, want[k]);
        }
        gguf_close(g);
    }
}

/* A text_config that transformers saves lacks what equals a default, so it may have nothing but its type. */
static void test_all_left_out(void **state)
{
    (void)state;
    enum { KV_BY_LAYER = 1 };
    static const struct {
        const char *type, *arch;
        uint32_t vocab, layers, d_model, d_ff, heads, kv, ctx; /* 0: no key; KV_BY_LAYER: an array */
        float eps;
        const char *more;
    } cases[] = {
        {"llama", "llama", 32000, 32, 4096, 11008, 32, 0, 2048, 1e-6f},
        {"mistral", "llama", 32000, 32, 4096, 14336, 32, 8, 131072, 1e-6f},
        {"ministral3", "mistral3", 131072, 34, 4096, 14336, 32, 8, 262144, 1e-5f},
        {"qwen2", "qwen2", 151936, 32, 4096, 22016, 32, 32, 32768, 1e-6f},
        {"qwen3", "qwen3", 151936, 32, 4096, 22016, 32, 32, 32768, 1e-6f},
        {"qwen2_vl_text", "qwen2vl", 152064, 80, 8192, 29568, 64, 8, 32768, 1e-5f},
        {"qwen2_5_vl_text", "qwen2vl", 152064, 80, 8192, 29568, 64, 8, 32768, 1e-5f},
        {"qwen3_vl_text", "qwen3vl", 151936, 32, 4096, 22016, 32, 32, 128000, 1e-6f},
        {"qwen3_5_text", "qwen35", 248320, 32, 4096, 12288, 16, 4, 32768, 1e-6f},
        {"gemma", "gemma", 256000, 28, 3072, 24576, 16, 16, 8192, 1e-6f},
        {"gemma2", "gemma2", 256000, 26, 2304, 9216, 8, 4, 8192, 1e-6f},
        {"gemma3_text", "gemma3", 262208, 26, 2304, 9216, 8, 4, 131072, 1e-6f},
        {"granite", "granite", 32000, 32, 4096, 11008, 32, 0, 2048, 1e-6f},
        {"cohere2", "cohere2", 256000, 40, 8192, 22528, 64, 0, 8192, 1e-5f},
        {"qwen3_vl_moe_text", "qwen3vlmoe", 151936, 24, 2048, 5632, 16, 16, 128000, 1e-6f},
        {"qwen3_5_moe_text", "qwen35moe", 248320, 40, 2048, 0, 16, 2, 32768, 1e-6f},
        {"lfm2", "lfm2", 65536, 32, 2560, 8192, 32, KV_BY_LAYER, 128000, 1e-5f, ", \"full_attn_idxs\": [1]"},
    };
    static const char *const keys[] = {"block_count",          "embedding_length",        "feed_forward_length",
                                       "attention.head_count", "attention.head_count_kv", "context_length"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[160];
        struct gguf *g;
        struct gguf_strs tokens;
        struct hearth_err e = {0};
        float eps = 0;
        const uint32_t want[] = {cases[i].layers, cases[i].d_model, cases[i].d_ff,
                                 cases[i].heads,  cases[i].kv,      cases[i].ctx};
        write_folder();
        snprintf(text, sizeof text, "{\"model_type\": \"any\", \"text_config\": {\"model_type\": \"%s\"%s}}",
                 cases[i].type, cases[i].more ? cases[i].more : "");
        write_text("config.json", text);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s: %s", cases[i].type, e.msg);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            uint32_t n = 0;
            snprintf(text, sizeof text, "%s.%s", cases[i].arch, keys[k]);
            if (want[k] == KV_BY_LAYER && gguf_is_array(g, text))
                continue;
            if (gguf_u32(g, text, &n, &e) != (want[k] ? 0 : 1) || n != want[k])
                fail_msg("%s: %s is %u", cases[i].type, text, n);
        }
        snprintf(text, sizeof text, "%s.attention.layer_norm_%sepsilon", cases[i].arch,
                 strcmp(cases[i].type, "cohere2") ? "rms_" : "");
        assert_int_equal(gguf_f32(g, text, &eps, &e), 0);
        assert_true(eps == cases[i].eps);
        assert_int_equal(gguf_strs(g, "tokenizer.ggml.tokens", &tokens, &e), 0);
        assert_int_equal(tokens.n, cases[i].vocab);
        gguf_close(g);
    }
}

/* Qwen 3-VL's experts are published transposed; which way a tensor is shows in its shape, which has to be one of two.
 */
static void test_experts_either_way(void **state)
{
    (void)state;
    static const struct {
        const char *part, *shape, *gguf; /* gguf NULL: refused */
    } cases[] = {{"gate_up_proj", "2, 8, 12", "blk.0.ffn_gate_up_exps.weight"},
                 {"gate_up_proj", "2, 12, 8", "blk.0.ffn_gate_up_exps.weight"},
                 {"down_proj", "4, 6, 8", "blk.0.ffn_down_exps.weight"},
                 {"down_proj", "4, 8, 6", "blk.0.ffn_down_exps.weight"},
                 {"down_proj", "6, 4, 8", NULL},
                 {"gate_up_proj", "2, 6, 16", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[256];
        struct gguf *g = NULL;
        struct hearth_err e = {0};
        write_folder();
        write_text("config.json",
                   "{\"model_type\": \"qwen3_vl_moe\", \"text_config\": {\"model_type\": "
                   "\"qwen3_vl_moe_text\", \"num_experts\": 4, \"moe_intermediate_size\": 6, " CONFIG "}}");
        snprintf(header, sizeof header,
                 "{\"model.language_model.layers.0.mlp.experts.%s\": {\"dtype\": \"F32\", \"shape\": [%s], "
                 "\"data_offsets\": [0, 768]}}",
                 cases[i].part, cases[i].shape);
        write_tensors(header, 768);
        if (!cases[i].gguf) {
            refused(dir, HEARTH_EBADMODEL, "has not the shape of a qwen3_vl_moe_text's experts");
            continue;
        }
        if (model_file_open(&g, dir, &e))
            fail_msg("%s: %s", cases[i].shape, e.msg);
        const struct gguf_tensor *t = gguf_tensor_find(g, cases[i].gguf);
        bool down = cases[i].part[0] == 'd';
        assert_true(t && t->dim[0] == (down ? 6 : 8) && t->dim[1] == (down ? 8 : 12) && t->dim[2] == (down ? 4 : 2));
        gguf_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_of_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_token_without_row, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_processor_template, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_special_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_named_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_end_beside_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_quantised_beside_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dynamic_rope, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_text_config, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_experts_either_way, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
