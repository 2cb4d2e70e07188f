/*
 * folder.c - Hugging Face folders: sound ones open with their vocabulary, templates and tensors in their places; others
 * are refused by a sentence that names the fault.
 */
#include "config.h" /* memfd_create */

#include "tests/unit/model/folder-box.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "daemon/model/chat/templates.h"
#include "daemon/model/pace.h"
#include "daemon/model/tok/tok.h"

static void test_folder(void **state)
{
    (void)state;
    struct gguf *g;
    struct vocab *v;
    struct hearth_err e = {0};
    struct ids ids = {0};
    uint32_t layers = 0;
    write_folder();
    write_text("generation_config.json", "{\"eos_token_id\": [3], \"suppress_tokens\": [1, 0], \"temperature\": 0.5}");
    if (model_file_open(&g, dir, &e) || vocab_load(&v, g, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gguf_u32(g, "llama.block_count", &layers, &e), 0);
    assert_int_equal(layers, 1);
    assert_non_null(gguf_tensor_find(g, "output_norm.weight"));
    assert_int_equal(tok_encode(v, "abb<e>", 6, TOK_SPECIAL, &ids, &e), 0);
    assert_int_equal(ids.n, 3);
    assert_true(ids.v[0] == 2 && ids.v[1] == 1 && ids.v[2] == 3);
    assert_true(vocab_is_end(v, 3));
    struct gguf_nums never = {0};
    assert_int_equal(gguf_i32s(g, "tokenizer.ggml.suppress_tokens", &never, &e), 0);
    assert_int_equal(never.n, 2);
    assert_true(gguf_i32_at(&never, 0) == 1 && gguf_i32_at(&never, 1) == 0);
    ids_fini(&ids);
    vocab_free(v);
    gguf_close(g);
    char many[1024] = "{\"eos_token_id\": 3, \"suppress_tokens\": [0"; /* none of a long list is left out */
    for (int i = 1; i < 100; i++)
        strcat(many, ", 1");
    strcat(many, ", 2]}");
    write_text("generation_config.json", many);
    assert_int_equal(model_file_open(&g, dir, &e), 0);
    assert_int_equal(gguf_i32s(g, "tokenizer.ggml.suppress_tokens", &never, &e), 0);
    assert_int_equal(never.n, 101);
    assert_true(gguf_i32_at(&never, 0) == 0 && gguf_i32_at(&never, 99) == 1 && gguf_i32_at(&never, 100) == 2);
    gguf_close(g);
    write_text("generation_config.json", "{\"suppress_tokens\": [0, 4]}"); /* there are four tokens */
    assert_int_equal(model_file_open(&g, dir, &e), 0);
    assert_int_equal(vocab_load(&v, g, &e), HEARTH_EBADMODEL);
    assert_non_null(strstr(e.msg, "token 4 is never to be sampled"));
    gguf_close(g);
}

static void assert_template(const char *names, const char *key, const char *source)
{
    struct gguf *g;
    struct templates *t;
    struct gguf_str s = {"", 0};
    struct hearth_err e = {0};
    if (model_file_open(&g, dir, &e) || templates_load(&t, g, &e))
        fail_msg("%s", e.msg);
    assert_string_equal(templates_names(t) ? templates_names(t) : "", names);
    assert_int_equal(gguf_str(g, key, &s, &e), *names ? 0 : 1);
    assert_true(gguf_str_is(s, source));
    templates_free(t);
    gguf_close(g);
}

/* Templates in the form that transformers writes, and in its older form. */
static void test_folder_templates(void **state)
{
    (void)state;
    write_folder();
    assert_template("", "tokenizer.chat_template", "");
    write_text("tokenizer_config.json", "{\"chat_template\": \"one\"}");
    assert_template("default", "tokenizer.chat_template", "one");
    write_text("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, {\"name\": 7},"
                                        " {\"name\": \"default\", \"template\": \"d\"}, {\"template\": \"x\"}, 3,"
                                        " {\"name\": \"tool_use\", \"template\": \"t\"}]}");
    assert_template("default rag tool_use", "tokenizer.chat_template.tool_use", "t");
    write_text("chat_template.jinja", "file\n");
    assert_template("default", "tokenizer.chat_template", "file\n");
    assert_int_equal(mkdir(in_dir("additional_chat_templates"), 0700), 0);
    write_text("additional_chat_templates/tool_use.jinja", "t2");
    write_text("additional_chat_templates/a.jinja", "a2");
    write_text("additional_chat_templates/README.md", "no template");
    assert_template("default a tool_use", "tokenizer.chat_template.a", "a2");
}

/* Python writes integers of any size, and transformers 10^30 for a length without a limit. What is in a string, or a
 * real already, stays as it is. */
static void test_large_integers(void **state)
{
    (void)state;
    write_folder();
    write_text("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656, \"x\": [-1e30,"
                                        "-98765432109876543210,1234567890123456789012.5], \"chat_template\": \"a "
                                        "\\\" 12345678901234567890123\"}");
    assert_template("default", "tokenizer.chat_template", "a \" 12345678901234567890123");
    write_text("generation_config.json", "{\"temperature\": 0.5, \"max_length\": 100000000000000000000}");
    assert_template("default", "tokenizer.chat_template", "a \" 12345678901234567890123");
    static const char *const no_ids[] = {"100000000000000000000", "\"2\"", "2.0", "[2, null]", "{}"};
    for (size_t i = 0; i < sizeof no_ids / sizeof *no_ids; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"eos_token_id\": %s}", no_ids[i]);
        write_text("generation_config.json", text);
        refused(dir, HEARTH_EBADMODEL, "eos_token_id is no id of a token");
    }
}

/* Gemma's norms are stored with 1 subtracted. */
static void test_plus_one(void **state)
{
    (void)state;
    struct gguf *g;
    struct hearth_err e = {0};
    write_folder();
    write_text("config.json", "{\"model_type\": \"gemma2\", " CONFIG "}");
    if (model_file_open(&g, dir, &e))
        fail_msg("%s", e.msg);
    const struct gguf_tensor *t = gguf_tensor_find(g, "output_norm.weight");
    assert_non_null(t);
    assert_true(((const float *)t->data)[0] == 1 && ((const float *)t->data)[7] == 1);
    gguf_close(g);
}

/* --- gpt-oss in MXFP4 ------------------------------------------------------------------------------------ */

enum { MX_EXPERTS = 2, MX_ROWS = 6, MX_BLOCKS = 3, MX_N = MX_EXPERTS * MX_ROWS * MX_BLOCKS };

#define OSS                                                                                                         \
    "{\"model_type\": \"gpt_oss\", \"quantization_config\": {\"quant_method\": \"mxfp4\"}, \"num_local_experts\": " \
    "2, " CONFIG "}"
#define MX_BLOCKS_AT(shape)                                                                     \
    "\"model.layers.0.mlp.experts.gate_up_proj_blocks\": {\"dtype\": \"U8\", \"shape\": " shape \
    ", \"data_offsets\": [0, 576]}"
#define MX_SCALES_AT(shape)                                                                     \
    "\"model.layers.0.mlp.experts.gate_up_proj_scales\": {\"dtype\": \"U8\", \"shape\": " shape \
    ", \"data_offsets\": [576, 612]}"

static void write_mxfp4(const char *header)
{
    struct build b = {0};
    write_folder();
    write_text("config.json", OSS);
    put64(&b, strlen(header));
    put(&b, header, strlen(header));
    for (unsigned i = 0; i < 17 * MX_N; i++) /* distinct nibbles, then scales around 1 */
        put(&b, &(uint8_t){(uint8_t)(i < 16 * MX_N ? i * 37 + i / 16 * 11 : 120 + i % 15)}, 1);
    write_file("model.safetensors", b.p, b.n);
    free(b.p);
}

/* Weight k of a row as defined by the OCP's specification, low nibble first. */
static float mx_weight(uint64_t block, unsigned k)
{
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint64_t at = block * 16 + k / 2;
    unsigned byte = (uint8_t)(at * 37 + at / 16 * 11), nibble = byte >> k % 2 * 4 & 15;
    unsigned scale = 120 + (unsigned)((16 * MX_N + block) % 15);
    return (nibble & 8 ? -1.0f : 1.0f) * ldexpf(values[nibble & 7], (int)scale - 127);
}

struct paced {
    size_t calls, longest, end_at;
};

static int hear(void *arg, size_t bytes, struct hearth_err *e)
{
    struct paced *p = arg;
    p->longest = bytes > p->longest ? bytes : p->longest;
    return ++p->calls == p->end_at ? err_set(e, HEARTH_ECANCELLED, "enough") : 0;
}

static int open_filled(struct gguf **out, struct hearth_err *e)
{
    struct gguf *g;
    int ret = model_file_open(&g, dir, e);
    if (ret)
        return ret;
    if ((ret = gguf_fill(g, e)))
        gguf_close(g);
    else
        *out = g;
    return ret;
}

#define EXPERTS_AT(name, type, shape, from, to)                                            \
    "\"model.layers.0.mlp.experts." name "\": {\"dtype\": \"" type "\", \"shape\": " shape \
    ", \"data_offsets\": [" from ", " to "]}"

/* Who lists models or counts tokens does not wait for copies of gigabytes; filling may be stopped and go on. */
static void test_copies_are_late(void **state)
{
    (void)state;
    struct hearth_err e;
    struct gguf *g;
    write_folder();
    write_text("config.json", OSS);
    write_tensors("{" EXPERTS_AT("down_proj_blocks", "U8", "[8, 64, 32, 16]", "0", "262144") ", " EXPERTS_AT(
                      "down_proj_scales", "U8", "[8, 64, 32]", "262144", "278528") "}",
                  278528);
    struct paced opened = {0}, filled = {.end_at = 8};
    pace_set(hear, &opened);
    assert_int_equal(model_file_open(&g, dir, &e), 0);
    assert_true(opened.calls < 4 && !gguf_is_filled(g));
    pace_set(hear, &filled);
    assert_int_equal(gguf_fill(g, &e), HEARTH_ECANCELLED);
    assert_false(gguf_is_filled(g));
    assert_int_equal(gguf_fill(g, &e), 0);
    assert_true(gguf_is_filled(g) && filled.calls >= 16);
    filled.calls = 0;
    assert_int_equal(gguf_fill(g, &e), 0);
    assert_int_equal(filled.calls, 0);
    pace_set(NULL, NULL);
    gguf_close(g);
}

/* What is copied into another form may be most of a model's weights. It is done in steps, and ends when it is told to:
 * experts in MXFP4, experts that are transposed, and what is not aligned. */
static void test_copies_in_steps(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{" EXPERTS_AT("down_proj_blocks", "U8", "[8, 64, 32, 16]", "0",
                       "262144") ", " EXPERTS_AT("down_proj_scales", "U8", "[8, 64, 32]", "262144", "278528") "}",
        "{" EXPERTS_AT("down_proj", "F32", "[8, 64, 512]", "0", "1048576") "}",
        "{\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [4, 65536], \"data_offsets\": [1, 1048577]}}"};
    write_folder();
    write_text("config.json", OSS);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct hearth_err e;
        struct gguf *g;
        struct paced all = {0};
        write_tensors(headers[i], 1100000);
        pace_set(hear, &all);
        if (open_filled(&g, &e))
            fail_msg("%s", e.msg);
        gguf_close(g);
        assert_true(all.calls >= 16 && all.longest <= 128 << 10);
        struct paced part = {.end_at = all.calls / 2};
        pace_set(hear, &part);
        assert_int_equal(open_filled(&g, &e), HEARTH_ECANCELLED);
        assert_int_equal(part.calls, part.end_at);
    }
    pace_set(NULL, NULL);
    /* and a header that holds nothing but blanks */
    char *header = malloc(PACE_STEP + 3);
    assert_non_null(header);
    memset(header, ' ', PACE_STEP + 2);
    header[0] = '{', header[PACE_STEP + 1] = '}', header[PACE_STEP + 2] = '\0';
    write_tensors(header, 0);
    free(header);
    struct gguf *g;
    struct hearth_err e;
    pace_set(hear, &(struct paced){.end_at = 1});
    assert_int_equal(model_file_open(&g, dir, &e), HEARTH_ECANCELLED);
    pace_set(NULL, NULL);
}

static void test_mxfp4_folder(void **state)
{
    (void)state;
    struct gguf *g;
    struct hearth_err e = {0};
    write_mxfp4("{" MX_BLOCKS_AT("[2, 6, 3, 16]") ", " MX_SCALES_AT("[2, 6, 3]") "}");
    if (model_file_open(&g, dir, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gguf_fill(g, &e), 0);
    for (unsigned part = 0; part < 2; part++) {
        const struct gguf_tensor *t =
            gguf_tensor_find(g, part ? "blk.0.ffn_up_exps.weight" : "blk.0.ffn_gate_exps.weight");
        float v[MX_EXPERTS * MX_ROWS / 2 * MX_BLOCKS * 32];
        assert_non_null(t);
        assert_int_equal(t->type, DT_MXFP4);
        assert_true(t->n_dim == 3 && t->dim[0] == 32 * MX_BLOCKS && t->dim[1] == MX_ROWS / 2 &&
                    t->dim[2] == MX_EXPERTS);
        dtype_get(DT_MXFP4)->to_f32(t->data, v, sizeof v / sizeof *v);
        for (unsigned i = 0; i < sizeof v / sizeof *v; i++) {
            unsigned row = i / (32 * MX_BLOCKS), expert = row / (MX_ROWS / 2), k = i % (32 * MX_BLOCKS);
            uint64_t block = (expert * MX_ROWS + row % (MX_ROWS / 2) * 2 + part) * (uint64_t)MX_BLOCKS + k / 32;
            assert_true(v[i] == mx_weight(block, k % 32));
        }
    }
    gguf_close(g);
    write_mxfp4("{" MX_BLOCKS_AT("[2, 6, 3, 16]") "}");
    refused(dir, HEARTH_EBADMODEL, "layer 0: the experts' blocks come without scales");
    write_mxfp4("{" MX_SCALES_AT("[2, 6, 3]") "}");
    refused(dir, HEARTH_EBADMODEL, "without their blocks");
    write_mxfp4("{" MX_BLOCKS_AT("[2, 6, 3, 16]") ", " MX_SCALES_AT("[6, 2, 3]") "}");
    refused(dir, HEARTH_EBADMODEL, "do not fit their blocks");
    write_mxfp4("{" MX_BLOCKS_AT("[2, 6, 6, 8]") "}");
    refused(dir, HEARTH_EBADMODEL, "not the shape of MXFP4");
    write_mxfp4("{\"model.norm.weight\": {\"dtype\": \"U8\", \"shape\": [8], \"data_offsets\": [0, 8]}}");
    refused(dir, HEARTH_EUNSUPPORTED, "of type U8");
}

static void test_folder_refused(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
        int code;
        const char *words;
    } cases[] = {
        {"config.json", "[]", HEARTH_EBADMODEL, "holds no JSON object"},
        {"config.json", "{\"a\": 1", HEARTH_EBADMODEL, "config.json, line 1"},
        {"config.json", "{" CONFIG "}", HEARTH_EBADMODEL, "no model_type"},
        {"config.json", "{\"model_type\": \"mamba9\"}", HEARTH_EUNSUPPORTED, "mamba9"},
        {"config.json", "{\"model_type\": \"llama\", \"hidden_size\": -1}", HEARTH_EBADMODEL, "hidden_size"},
        {"config.json", "{\"model_type\": \"llama\", \"hidden_size\": \"8\"}", HEARTH_EBADMODEL, "hidden_size"},
        {"config.json", "{\"model_type\": \"llama\", \"hidden_act\": \"relu\", " CONFIG "}", HEARTH_EUNSUPPORTED,
         "relu"},
        {"config.json", "{\"model_type\": \"qwen2\", \"is_causal\": false, " CONFIG "}", HEARTH_EUNSUPPORTED,
         "is_causal"},
        {"config.json", "{\"model_type\": \"qwen3_moe\", \"norm_topk_prob\": 1, " CONFIG "}", HEARTH_EBADMODEL,
         "norm_topk_prob"},
        {"config.json", "{\"model_type\": \"glm4_moe\", \"scoring_func\": \"tanh\", " CONFIG "}", HEARTH_EBADMODEL,
         "scoring_func"},
        {"config.json", "{\"model_type\": \"glm4_moe_lite\", " LATENT "\"mlp_layer_types\": [3], " CONFIG "}",
         HEARTH_EBADMODEL, "mlp_layer_types is not an array of \"dense\" and \"sparse\""},
        {"config.json",
         "{\"model_type\": \"glm4_moe_lite\", " LATENT "\"mlp_layer_types\": [\"dense\", \"dense\"], " CONFIG "}",
         HEARTH_EBADMODEL, "mlp_layer_types is not an array with an entry for each layer"},
        {"config.json", "{\"model_type\": \"deepseek_v2\", " LATENT "\"topk_method\": \"best\", " CONFIG "}",
         HEARTH_EUNSUPPORTED, "topk_method \"best\""},
        {"config.json", "{\"model_type\": \"gpt_oss\", \"swiglu_limit\": 6, " CONFIG "}", HEARTH_EUNSUPPORTED,
         "swiglu_limit"},
        {"config.json", "{\"model_type\": \"lfm2\", " CONFIG "}", HEARTH_EBADMODEL, "layer_types is not an entry"},
        {"config.json", "{\"model_type\": \"lfm2\", \"full_attn_idxs\": [1], " CONFIG "}", HEARTH_EBADMODEL,
         "full_attn_idxs"},
        {"config.json", "{\"model_type\": \"lfm2\", \"full_attn_idxs\": [\"0\"], " CONFIG "}", HEARTH_EBADMODEL,
         "full_attn_idxs"},
        {"config.json", "{\"model_type\": \"gemma4_text\", \"layer_types\": 3, " CONFIG "}", HEARTH_EBADMODEL,
         "layer_types is not an array"},
        {"config.json", "{\"model_type\": \"mamba2\", \"time_step_limit\": [NaN, 1], " CONFIG "}", HEARTH_EBADMODEL,
         "config.json, line 1"},
        {"config.json", "{\"model_type\": \"lfm2\", \"layer_types\": [\"retention\"], " CONFIG "}", HEARTH_EUNSUPPORTED,
         "layer 0 is of no kind that hearth knows (layer_types)"},
        {"config.json", "{\"model_type\": \"qwen3_5_text\", \"layer_types\": [3], " CONFIG "}", HEARTH_EUNSUPPORTED,
         "layer 0"},
        {"config.json", "{\"model_type\": \"qwen3_5_text\", \"attn_output_gate\": false, " CONFIG "}",
         HEARTH_EUNSUPPORTED, "attn_output_gate"},
        {"config.json", "{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"MX\", " CONFIG2 "}",
         HEARTH_EUNSUPPORTED, "layer 1 is of no kind that hearth knows (hybrid_override_pattern)"},
        {"config.json", "{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"M\", " CONFIG2 "}",
         HEARTH_EBADMODEL, "hybrid_override_pattern is not an entry for each layer (num_hidden_layers)"},
        {"config.json", "{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"\", " CONFIG "}",
         HEARTH_EBADMODEL, "hybrid_override_pattern"},
        {"config.json", "{\"model_type\": \"mamba2\", \"time_step_limit\": [0, 8.5], " CONFIG "}", HEARTH_EUNSUPPORTED,
         "time_step_limit"},
        {"config.json", "{\"model_type\": \"mamba2\", \"num_heads\": 4, \"head_dim\": 8, " CONFIG "}", HEARTH_EBADMODEL,
         "4 heads of 8 (head_dim) are not 2 times hidden_size"},
        {"config.json",
         "{\"model_type\": \"granitemoehybrid\", \"mamba_n_heads\": 4, \"mamba_d_head\": 8, \"layer_types\": "
         "[\"mamba\"], " CONFIG "}",
         HEARTH_EBADMODEL, "4 heads of 8 (mamba_d_head) are not 2 times hidden_size"},
        {"generation_config.json", "{\"eos_token_id\": [-1]}", HEARTH_EBADMODEL, "eos_token_id"},
        {"generation_config.json", "{\"suppress_tokens\": [-1]}", HEARTH_EBADMODEL, "suppress_tokens"},
        {"model.safetensors.index.json", "{}", HEARTH_EBADMODEL, "weight_map"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x.safetensors\"}}", HEARTH_EBADMODEL,
         "model.safetensors.index.json: \"../x.safetensors\", where a is, is no file of the folder"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"/x.safetensors\"}}", HEARTH_EBADMODEL,
         "\"/x.safetensors\", where a is, is no file of the folder"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"b/x.safetensors\"}}", HEARTH_EBADMODEL,
         "\"b/x.safetensors\", where a is, is no file of the folder"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"\"}}", HEARTH_EBADMODEL,
         "model.safetensors.index.json: \"\", where a is, is no file of the folder"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"..\"}}", HEARTH_EBADMODEL,
         "\"..\", where a is, is no file of the folder"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"model.safetensors\\u0000x\"}}", HEARTH_EBADMODEL,
         "where a is, is no file of the folder"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": 7}}", HEARTH_EBADMODEL,
         "model.safetensors.index.json: the file of a is no string"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"x.safetensors\"}}", HEARTH_ENOMODEL,
         "x.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_folder();
        unlink(in_dir("model.safetensors.index.json"));
        unlink(in_dir("generation_config.json"));
        if (!strcmp(cases[i].file, "model.safetensors.index.json"))
            unlink(in_dir("model.safetensors")); /* beside which the index would not be read */
        write_text(cases[i].file, cases[i].text);
        if (cases[i].code) {
            refused(dir, cases[i].code, cases[i].words);
            continue;
        }
        struct gguf *g;
        struct hearth_err e = {0};
        assert_int_equal(model_file_open(&g, dir, &e), 0);
        gguf_close(g);
    }
}

/* An index that is left from earlier parts, of which one is still there, does not matter beside model.safetensors. */
static void test_old_index(void **state)
{
    (void)state;
    struct gguf *g;
    struct hearth_err e = {0};
    write_folder();
    write_text("model-00001-of-00002.safetensors", "not the model");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.norm.weight\": \"model-00001-of-00002.safetensors\","
               " \"lm_head.weight\": \"model-00002-of-00002.safetensors\"}}");
    if (model_file_open(&g, dir, &e))
        fail_msg("%s", e.msg);
    assert_non_null(gguf_tensor_find(g, "output_norm.weight"));
    gguf_close(g);
    unlink(in_dir("model.safetensors"));
    refused(dir, HEARTH_EBADMODEL, "model-00001-of-00002.safetensors");
    unlink(in_dir("model-00001-of-00002.safetensors"));
    unlink(in_dir("model.safetensors.index.json"));
}

static void test_tensors_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        int code;
        const char *words;
    } cases[] = {
        {"{", 0, HEARTH_EBADMODEL, "the header is no JSON object"},
        {"[]", 0, HEARTH_EBADMODEL, "the header is no JSON object"},
        {"{\"model.norm.weight\": 1}", 0, HEARTH_EBADMODEL, "shape"},
        {NORM, 31, HEARTH_EBADMODEL, "outside of the file"},
        {"{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [4, 32]}}", 32,
         HEARTH_EBADMODEL, "do not fit its shape"},
        {"{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [32, 0]}}", 32,
         HEARTH_EBADMODEL, "outside of the file"},
        {"{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [-32, 0]}}", 32,
         HEARTH_EBADMODEL, "outside of the file"},
        {"{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}}", 0, HEARTH_EBADMODEL,
         "out of range"},
        {"{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [1073741824, 1073741824, 1073741824], "
         "\"data_offsets\": [0, 0]}}",
         0, HEARTH_EBADMODEL, "out of range"},
        {"{\"model.norm.weight\": {\"dtype\": \"I8\", \"shape\": [8], \"data_offsets\": [0, 8]}}", 8,
         HEARTH_EUNSUPPORTED, "type I8"},
        {"{\"model.odd.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}", 32,
         HEARTH_EUNSUPPORTED, "model.odd.weight has no place"},
        {"{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}, \"norm.weight\": "
         "{\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}",
         32, HEARTH_EBADMODEL, "output_norm.weight is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_folder();
        write_tensors(cases[i].header, cases[i].n_data);
        refused(dir, cases[i].code, cases[i].words);
    }
    struct build b = {0};
    write_folder();
    put64(&b, UINT64_MAX);
    write_file("model.safetensors", b.p, b.n);
    refused(dir, HEARTH_EBADMODEL, "a header of 18446744073709551615 bytes");
    write_file("model.safetensors", b.p, 5);
    refused(dir, HEARTH_EBADMODEL, "ends within its header");
    free(b.p);
    unlink(in_dir("model.safetensors"));
    refused(dir, HEARTH_EBADMODEL, "neither model.safetensors nor");
    unlink(in_dir("config.json"));
    refused(dir, HEARTH_ENOMODEL, "without config.json");
}

/* A file of 500 MB is refused before it is read. */
static void test_huge(void **state)
{
    (void)state;
    write_folder();
    assert_int_equal(truncate(in_dir("tokenizer.json"), 500 << 20), 0);
    refused(dir, HEARTH_EBADMODEL, "the limit is");
    write_folder();
    unlink(in_dir("config.json"));
    assert_int_equal(mkfifo(in_dir("config.json"), 0600), 0);
    refused(dir, HEARTH_EBADMODEL, "not a regular file");
}

/* Opens the folder with 16 MiB of memory; 1 where that cannot be arranged. */
static int open_in_little(struct hearth_err *e)
{
    enum { LEFT = 16 << 20 };
    struct rlimit was, less;
    unsigned long pages = 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    FILE *f = NULL; /* the sanitizers' allocators end the program */
#else
    FILE *f = fopen("/proc/self/statm", "r");
#endif
    if (!f)
        return 1;
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    less = was;
    less.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + LEFT;
    if (was.rlim_max != RLIM_INFINITY && less.rlim_cur > was.rlim_max)
        return 1;
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    struct gguf *g = NULL;
    int ret = model_file_open(&g, dir, e);
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    return ret;
}

/* A lack of memory is not reported as a fault of the folder: here, 4194304 scores need more. */
static void test_no_memory(void **state)
{
    (void)state;
    struct hearth_err e = {0};
    write_folder();
    write_text("tokenizer.json", "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\", -1.0]]}}");
    write_text("config.json",
               "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "
               "\"vocab_size\": 4194304, \"num_attention_heads\": 2, \"max_position_embeddings\": 64, "
               "\"rms_norm_eps\": 1e-5}");
    int ret = open_in_little(&e);
    if (ret == 1)
        skip();
    if (ret != HEARTH_ENOMEM || model_file_is_at_fault(ret))
        fail_msg("%d: %s", ret, e.msg);
}

/* Nor where the JSON parser lacks it, which calls that a fault of the text. */
static void test_no_memory_for_json(void **state)
{
    (void)state;
    enum { ENTRIES = 1000000 }; /* some 150 MB of values: more than earlier cases can have left in the heap */
    static const char *const files[] = {"tokenizer.json", "model.safetensors"};
    static const char head[] = "{\"__metadata__\": {\"a\": [0", more[] = ", [0]";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct hearth_err e = {0};
        struct build b = {0};
        write_folder();
        if (i)
            put64(&b, sizeof head - 1 + ENTRIES * (sizeof more - 1) + 3);
        put(&b, head, sizeof head - 1);
        for (int k = 0; k < ENTRIES; k++)
            put(&b, more, sizeof more - 1);
        put(&b, "]}}", 3);
        write_file(files[i], b.p, b.n);
        free(b.p);
        int ret = open_in_little(&e);
        if (ret == 1)
            skip();
        if (ret != HEARTH_ENOMEM || !strstr(e.msg, files[i]))
            fail_msg("%d: %s", ret, e.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folder_templates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_integers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_plus_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mxfp4_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copies_are_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copies_in_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folder_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_index, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tensors_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_huge, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory_for_json, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
