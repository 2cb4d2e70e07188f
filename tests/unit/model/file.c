/*
 * file.c - models that no single file holds: split GGUF files and Hugging Face folders. What is sound opens with every
 * tensor in its place; what is not is refused by a sentence that names it.
 */
#include "config.h" /* memfd_create */

#include "daemon/model/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>

#include "daemon/model/chat/templates.h"
#include "daemon/model/passed.h"
#include "daemon/model/tok/tok.h"
#include "tests/unit/model/gguf-build.h"

static char dir[] = "/tmp/hearth-file-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    (void)state;
    memset(dir + sizeof dir - 7, 'X', 6);
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void refused(const char *path, int code, const char *words)
{
    struct gguf *g = NULL;
    struct hearth_err e = {0};
    int ret = model_file_open(&g, path, &e);
    if (ret != code || !strstr(e.msg, words))
        fail_msg("%d, \"%s\" where \"%s\" is expected", ret, e.msg, words);
}

/* --- split files --------------------------------------------------------------------------------------- */

enum { PARTS = 3 };

/* One part with one tensor of four numbers, each its part's number; the first has the keys as well. */
static void write_part(const char *name, uint32_t no, uint32_t count, uint32_t total)
{
    struct build b = {0};
    char tensor[16];
    float v[4] = {(float)no, (float)no, (float)no, (float)no};
    put_header(&b, 3, 1, no ? 2 : 4);
    key_u32(&b, "split.no", no);
    key_u32(&b, "split.count", count);
    if (!no) {
        key_u32(&b, "split.tensors.count", total);
        key_str(&b, "general.architecture", "llama");
    }
    snprintf(tensor, sizeof tensor, "t%u", no);
    put_tensor(&b, tensor, 1, (uint64_t[]){4}, DT_F32, 0);
    put_zeros(&b, (32 - b.n % 32) % 32);
    put(&b, v, sizeof v);
    write_file(name, b.p, b.n);
    free(b.p);
}

static void write_parts(void)
{
    write_part("m-00001-of-00003.gguf", 0, PARTS, PARTS);
    write_part("m-00002-of-00003.gguf", 1, PARTS, PARTS);
    write_part("m-00003-of-00003.gguf", 2, PARTS, PARTS);
}

static void check_whole(const char *path)
{
    struct gguf *g;
    struct gguf_str arch;
    struct hearth_err e = {0};
    if (model_file_open(&g, path, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gguf_n_tensor(g), PARTS);
    for (uint32_t i = 0; i < PARTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        const struct gguf_tensor *t = gguf_tensor_find(g, name);
        assert_non_null(t);
        assert_true(((const float *)t->data)[3] == (float)i);
    }
    assert_int_equal(gguf_str(g, "general.architecture", &arch, &e), 0);
    assert_true(gguf_str_is(arch, "llama"));
    gguf_close(g);
}

static void test_split(void **state)
{
    (void)state;
    write_parts();
    check_whole(in_dir("m-00001-of-00003.gguf"));
    check_whole(in_dir("m-00003-of-00003.gguf")); /* any part names the whole */
}

static void test_split_refused(void **state)
{
    (void)state;
    write_parts();
    unlink(in_dir("m-00002-of-00003.gguf"));
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL,
            "part 2 of 3 is missing: there is no m-00002-of-00003.gguf");
    write_part("m-00002-of-00003.gguf", 2, PARTS, PARTS);
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL, "says it is part 3 of 3; part 2 of 3 belongs there");
    write_part("m-00002-of-00003.gguf", 1, PARTS, PARTS);
    write_part("m-00001-of-00003.gguf", 0, PARTS, 4);
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL, "3 tensors together; split.tensors.count is 4");
    write_part("alone.gguf", 0, PARTS, PARTS);
    refused(in_dir("alone.gguf"), HEARTH_EBADMODEL, "one of 3 parts");
    write_part("m-00001-of-00003.gguf", 0, 1000, PARTS);
    refused(in_dir("m-00001-of-00003.gguf"), HEARTH_EBADMODEL, "the limit is");
}

/* --- folders ------------------------------------------------------------------------------------------- */

#define LATENT  "\"kv_lora_rank\": 8, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 4, "
#define CONFIG  CONFIG_OF("1")
#define CONFIG2 CONFIG_OF("2")
#define CONFIG_OF(layers)                                                                                  \
    "\"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": " layers ", \"vocab_size\": 4, " \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": 64, "            \
    "\"rms_norm_eps\": 1e-5"
#define VOCAB "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]"
static const char byte_level[] =
    "{\"model\": {\"type\": \"BPE\", " VOCAB "}, \"added_tokens\": [{\"id\": 3, \"content\": "
    "\"<e>\", \"special\": true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}";

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static void write_tensors(const char *header, size_t n_data)
{
    struct build b = {0};
    put64(&b, strlen(header));
    put(&b, header, strlen(header));
    put_zeros(&b, n_data);
    write_file("model.safetensors", b.p, b.n);
    free(b.p);
}

#define NORM "{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}"

static void write_folder(void)
{
    write_text("config.json", "{\"model_type\": \"llama\", " CONFIG "}");
    write_text("tokenizer.json", byte_level);
    write_tensors(NORM, 32);
}

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

/* As transformers writes them today, and as it did before. */
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

/* Gemma's norms are stored less one. */
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

/* A folder none of whose layers slides says so, whatever files of the architecture mean that say nothing. */
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

/* What config.json leaves out is what transformers takes: of gemma-3 nearly all. */
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

/* Opens the folder with another config.json. */
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
/* RoPE where nothing is said of it: the base is each type's own, and some have a scaling. */
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
        {"{\"model_type\": \"qwen2_5_vl\", \"rope_scaling\": {\"type\": \"mrope\"}, " CONFIG "}", "qwen2vl", NULL, -1,
         -1, -1},
        {"{\"model_type\": \"qwen3_vl_text\", " CONFIG "}", "qwen3vl", NULL, 5e6, -1, -1},
        {"{\"model_type\": \"llama\", " CONFIG "}", "llama", NULL, -1, -1, -1}, /* llama's 10000 is GGUF's, too */
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
    const struct gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight"); /* a quarter of the pairs turns */
    assert_true(t && t->dim[0] == 8 && ((const float *)t->data)[1] == 1 && ((const float *)t->data)[2] > 1e9f);
    gguf_close(g);
}

/* Llama 3's factors are those of the dimensions that turn, where these are a part of a head. */
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

/* What folders are written like beside what transformers 5 writes. */
static void test_folders_of_makers(void **state)
{
    (void)state;
    struct hearth_err e = {0};
    bool whole = false;
    uint8_t kv[2];
    write_folder();
    struct gguf *g = open_with("{\"model_type\": \"mamba2\", \"say\": \"an \\\"Infinity\\\"\", " /* no number */
                               "\"time_step_limit\": [-Infinity, Infinity], " CONFIG "}");
    assert_int_equal(gguf_bool(g, "hearth.ssm.norm_whole", &whole, &e), 0);
    assert_true(whole); /* transformers' Mamba-2 has a norm over all groups, Nemotron H one of each */
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
    assert_true(number_of(g, "lfm2.feed_forward_length") == 8); /* two thirds, which only a factor rounds up */
    gguf_close(g);
    g = open_with("{\"model_type\": \"lfm2\", \"full_attn_idxs\": [], \"block_multiple_of\": 16, " CONFIG2 "}");
    assert_true(number_of(g, "lfm2.feed_forward_length") == 16);
    gguf_close(g);
    static const char *const others[] = {"vision_tower.patch.weight", "audio_tower.layers.0.x.weight",
                                         "embed_vision.embedding_projection.weight",
                                         "embed_audio.embedding_projection.weight"};
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

/* What config.json says beside what transformers reads, or otherwise than its tensors. */
static void test_said_in_vain(void **state)
{
    (void)state;
    write_folder();
    struct gguf *g = open_with("{\"model_type\": \"glm4_moe_lite\", \"n_routed_experts\": 2, " LATENT
                               "\"mlp_layer_types\": [\"dense\", \"sparse\", \"dense\"], " CONFIG_OF("3") "}");
    assert_true(number_of(g, "deepseek2.leading_dense_block_count") == 1); /* the last one has no router */
    gguf_close(g);
    static const char *const windows[][2] = {{"mistral", "llama.attention.sliding_window"},
                                             {"llama", "llama.attention.sliding_window"},
                                             {"granite", "granite.attention.sliding_window"},
                                             {"olmo2", "olmo2.attention.sliding_window"}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        char config[512];
        snprintf(config, sizeof config, "{\"model_type\": \"%s\", \"sliding_window\": 16, " CONFIG "}", windows[i][0]);
        g = open_with(config);
        assert_true(number_of(g, windows[i][1]) == (i ? 0 : 16)); /* of these Mistral alone has one */
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

/* The last of Gemma 4's layers has full attention, whatever is said. */
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

#define BERT "{\"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, "
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
    for (unsigned i = 0; i < 17 * MX_N; i++) /* nibbles that differ, then scales around 1 */
        put(&b, &(uint8_t){(uint8_t)(i < 16 * MX_N ? i * 37 + i / 16 * 11 : 120 + i % 15)}, 1);
    write_file("model.safetensors", b.p, b.n);
    free(b.p);
}

/* Weight k of a row as the OCP's specification has it, low nibble first. */
static float mx_weight(uint64_t block, unsigned k)
{
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint64_t at = block * 16 + k / 2;
    unsigned byte = (uint8_t)(at * 37 + at / 16 * 11), nibble = byte >> k % 2 * 4 & 15;
    unsigned scale = 120 + (unsigned)((16 * MX_N + block) % 15);
    return (nibble & 8 ? -1.0f : 1.0f) * ldexpf(values[nibble & 7], (int)scale - 127);
}

static void test_mxfp4_folder(void **state)
{
    (void)state;
    struct gguf *g;
    struct hearth_err e = {0};
    write_mxfp4("{" MX_BLOCKS_AT("[2, 6, 3, 16]") ", " MX_SCALES_AT("[2, 6, 3]") "}");
    if (model_file_open(&g, dir, &e))
        fail_msg("%s", e.msg);
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
         "is no file of the folder"},
        {"model.safetensors.index.json", "{\"weight_map\": {\"a\": \"x.safetensors\"}}", HEARTH_ENOMODEL,
         "x.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_folder();
        unlink(in_dir("model.safetensors.index.json"));
        unlink(in_dir("generation_config.json"));
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

/* --- files that came as descriptors -------------------------------------------------------------------------- */

#define PASSED "//7/home/x"

static void pass(const char *name, const char *as)
{
    struct hearth_err e;
    int fd = open(in_dir(name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(passed_put(as, fd, &e), 0);
}

/* A split model and a folder, of which nothing is left where they were: they open by what was passed, twice, and what
 * is dropped is missed by name. */
static void test_passed(void **state)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
    char as[PATH_MAX];
    struct hearth_err e;
    struct gguf *g;
    (void)state;
    write_parts();
    for (int i = 1; i <= PARTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", i);
        snprintf(as, sizeof as, "%s/%s", PASSED, name);
        pass(name, as);
        unlink(in_dir(name));
    }
    check_whole(PASSED "/m-00001-of-00003.gguf");
    check_whole(PASSED "/m-00001-of-00003.gguf");
    passed_drop(PASSED "/m-00002-of-00003.gguf");
    refused(PASSED "/m-00001-of-00003.gguf", HEARTH_EBADMODEL, "part 2 of 3 is missing");
    write_folder();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(as, sizeof as, PASSED "/folder/%s", files[i]);
        if (access(in_dir(files[i]), F_OK) == 0)
            pass(files[i], as);
        unlink(in_dir(files[i]));
    }
    for (int i = 0; i < 2; i++) {
        if (model_file_open(&g, PASSED "/folder", &e))
            fail_msg("%s", e.msg);
        gguf_close(g);
    }
    passed_drop(PASSED "/folder/tokenizer.json");
    refused(PASSED "/folder", HEARTH_EUNSUPPORTED, "no tokenizer.json");
    refused("//8/home/x/folder", HEARTH_ENOMODEL, "/home/x/folder: No such file"); /* another user's */
    assert_int_equal(passed_put("/home/x", open(dir, O_RDONLY), &e), HEARTH_EPARAMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_split, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_split_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folder_templates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_plus_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_window, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mxfp4_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rope_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_factors_of_a_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders_of_makers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_said_in_vain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_last_layer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folder_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tensors_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_huge, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_passed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
