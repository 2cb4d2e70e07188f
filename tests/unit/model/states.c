/* states.c - what files state about layers with recurrent states: which layers they are and how large their states are.
 * Impossible values are refused with the name of the key. */
#include "config.h" /* memfd_create */

#include "daemon/model/model.h"
#include "tests/unit/model/gguf-build.h"

enum { LAYERS = 4, D = 64, VOCAB = 4 };

/* A key of a file, with one number, or one for each layer; `n` 0 ends the list. */
struct key {
    const char *name;
    uint32_t n;
    int32_t v[LAYERS + 1];
};

static const struct key common[] = {
    {"block_count", 1, {LAYERS}}, {"context_length", 1, {4096}}, {"embedding_length", 1, {D}}, {NULL, 0, {0}}};
static const struct key lfm2[] = {{"feed_forward_length", 1, {128}},
                                  {"attention.head_count", 1, {4}},
                                  {"attention.head_count_kv", LAYERS, {0, 0, 2, 0}},
                                  {"shortconv.l_cache", 1, {3}},
                                  {NULL, 0, {0}}};
static const struct key qwen35[] = {
    {"feed_forward_length", 1, {128}}, {"attention.head_count", 1, {4}}, {"attention.head_count_kv", 1, {2}},
    {"ssm.conv_kernel", 1, {4}},       {"ssm.state_size", 1, {16}},      {"ssm.group_count", 1, {2}},
    {"ssm.time_step_rank", 1, {4}},    {"ssm.inner_size", 1, {96}},      {NULL, 0, {0}}};
static const struct key nemotron[] = {{"feed_forward_length", LAYERS, {0, 128, 0, 0}},
                                      {"attention.head_count", 1, {4}},
                                      {"attention.head_count_kv", LAYERS, {0, 0, 2, 0}},
                                      {"ssm.conv_kernel", 1, {4}},
                                      {"ssm.state_size", 1, {16}},
                                      {"ssm.group_count", 1, {2}},
                                      {"ssm.time_step_rank", 1, {8}},
                                      {"ssm.inner_size", 1, {128}},
                                      {NULL, 0, {0}}};
/* Experts in a latent space, and a last layer that predicts further ahead and has both attention and experts. */
static const struct key latent[] = {{"feed_forward_length", LAYERS, {0, 128, 0, 128}},
                                    {"attention.head_count", 1, {4}},
                                    {"attention.head_count_kv", LAYERS, {0, 0, 2, 2}},
                                    {"nextn_predict_layers", 1, {1}},
                                    {"ssm.conv_kernel", 1, {4}},
                                    {"ssm.state_size", 1, {16}},
                                    {"ssm.group_count", 1, {2}},
                                    {"ssm.time_step_rank", 1, {8}},
                                    {"ssm.inner_size", 1, {128}},
                                    {"expert_count", 1, {8}},
                                    {"expert_used_count", 1, {2}},
                                    {"moe_latent_size", 1, {32}},
                                    {NULL, 0, {0}}};
static const struct key mamba2[] = {{"feed_forward_length", 1, {0}},
                                    {"attention.head_count", 1, {0}},
                                    {"ssm.conv_kernel", 1, {4}},
                                    {"ssm.state_size", 1, {16}},
                                    {"ssm.time_step_rank", 1, {8}},
                                    {"ssm.inner_size", 1, {128}},
                                    {NULL, 0, {0}}};

static void put_keys(struct build *b, const char *arch, const struct key *k, const struct key *other, uint64_t *n)
{
    char full[96];
    for (; k->name; k++) {
        const struct key *is = other->name && !strcmp(other->name, k->name) ? other : k;
        snprintf(full, sizeof full, "%s.%s", arch, k->name);
        if (!is->n)
            continue;
        ++*n;
        if (is->n == 1) {
            key_u32(b, full, (uint32_t)is->v[0]);
            continue;
        }
        key_arr(b, full, T_I32, is->n);
        for (uint32_t i = 0; i < is->n; i++)
            put32(b, (uint32_t)is->v[i]);
    }
}

/* Reads the hyperparameters of a file with these keys. `other` replaces one of them, or removes it if it has no
 * numbers. */
static int read_keys(const char *arch, const struct key *keys, struct key other, struct hparams *hp,
                     struct hearth_err *e)
{
    struct build keys_of = {0}, b = {0};
    char full[96], path[64];
    uint64_t n = 3;
    struct gguf *g;
    key_str(&keys_of, "general.architecture", arch);
    snprintf(full, sizeof full, "%s.attention.layer_norm_rms_epsilon", arch);
    key_f32(&keys_of, full, 1e-5f);
    key_arr(&keys_of, "tokenizer.ggml.tokens", T_STR, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        put_str(&keys_of, (char[]){(char)('a' + i), 0});
    put_keys(&keys_of, arch, common, &other, &n);
    put_keys(&keys_of, arch, keys, &other, &n);
    put_header(&b, 3, 1, n);
    put(&b, keys_of.p, keys_of.n);
    put_tensor(&b, "token_embd.weight", 2, (uint64_t[]){D, VOCAB}, T_U8 /* the type number of F32 */, 0);
    put_zeros(&b, (32 - b.n % 32) % 32 + D * VOCAB * sizeof(float));
    int fd = build_file(&b, path), ret = gguf_open(&g, path, e);
    if (!ret) {
        ret = model_hparams(hp, g, e);
        gguf_close(g);
    }
    close(fd);
    free(keys_of.p);
    free(b.p);
    return ret;
}

static void kinds_and_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        const struct key *keys;
        uint32_t n_state, n_group, n_kv; /* values in a layer's state; groups; layers with KV */
        const char *kinds;
    } files[] = {{"lfm2", lfm2, 2 * D, 2, 1, "rrar"},
                 {"qwen35", qwen35, 3 * (96 + 2 * 2 * 16) + 96 * 16, 2, 1, "rrra"},
                 {"qwen3next", qwen35, 3 * (96 + 2 * 2 * 16) + 96 * 16, 2, 1, "rrra"},
                 {"nemotron_h", nemotron, 3 * (128 + 2 * 2 * 16) + 128 * 16, 2, 1, "rnar"},
                 {"nemotron_h_moe", nemotron, 3 * (128 + 2 * 2 * 16) + 128 * 16, 2, 1, "rnar"},
                 {"mamba2", mamba2, 3 * (128 + 2 * 16) + 128 * 16, 1, 0, "rrrr"}};
    static const char letters[] = {[LAYER_ATTENDS] = 'a', [LAYER_RECURS] = 'r', [LAYER_NEITHER] = 'n'};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct hparams hp;
        struct hearth_err e;
        if (read_keys(files[f].arch, files[f].keys, (struct key){0}, &hp, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(hp.state.n, files[f].n_state);
        assert_int_equal(hp.n_group, files[f].n_group);
        const struct kv_group *last = &hp.kv[hp.n_group - 1]; /* states are the last group */
        assert_int_equal(last->d_state, files[f].n_state);
        assert_true(!last->n_kv && !last->d_k && !last->d_v && !last->window);
        assert_true(hp.n_group == 1 || (hp.kv[0].n_layer == files[f].n_kv && hp.kv[0].d_k == 16 && !hp.kv[0].d_state));
        for (uint32_t i = 0; i < LAYERS; i++)
            assert_int_equal(letters[hp.kind[i]], files[f].kinds[i]);
    }
    struct hparams hp;
    struct hearth_err e;
    assert_int_equal(read_keys("qwen35", qwen35, (struct key){"block_count", 1, {2}}, &hp, &e), 0);
    assert_int_equal(hp.n_group, 1); /* all layers of the file have states */
    assert_int_equal(read_keys("nemotron_h_moe", latent, (struct key){0}, &hp, &e), 0);
    assert_int_equal(hp.experts.d_latent, 32);
    assert_true(hp.n_layer == LAYERS - 1 && hp.n_nextn == 1);
    assert_int_equal(read_keys("nemotron_h_moe", latent, (struct key){"moe_latent_size", 0, {0}}, &hp, &e), 0);
    assert_int_equal(hp.experts.d_latent, 0);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        const struct key *keys;
        struct key other;
        const char *words;
    } cases[] = {
        {"lfm2", lfm2, {"shortconv.l_cache", 0, {0}}, "shortconv.l_cache is missing"},
        {"lfm2", lfm2, {"shortconv.l_cache", 1, {1}}, "shortconv.l_cache is 1; 2 to 8"},
        {"lfm2", lfm2, {"shortconv.l_cache", 1, {1000}}, "shortconv.l_cache is 1000"},
        {"lfm2", lfm2, {"attention.head_count_kv", 3, {0, 2, 0}}, "3 entries for 4 layers"},
        {"lfm2", lfm2, {"attention.head_count_kv", 4, {0, -2, 0, 2}}, "head_count_kv is -2 for layer 1"},
        {"lfm2", lfm2, {"attention.head_count_kv", 4, {0, 3, 0, 0}}, "4 heads cannot share 3 KV heads"},
        {"lfm2", lfm2, {"feed_forward_length", 1, {0}}, "feed_forward_length is 0"},
        {"qwen35", qwen35, {"ssm.state_size", 0, {0}}, "ssm.state_size is missing"},
        {"qwen35", qwen35, {"ssm.state_size", 1, {100000}}, "ssm.state_size is 100000"},
        {"qwen35", qwen35, {"ssm.group_count", 0, {0}}, "ssm.group_count is missing"},
        {"qwen35", qwen35, {"ssm.group_count", 1, {3}}, "in 3 groups"},
        {"qwen35", qwen35, {"ssm.group_count", 1, {0}}, "ssm.group_count is 0"},
        {"qwen35", qwen35, {"ssm.time_step_rank", 1, {5}}, "into 5 heads"},
        {"qwen35", qwen35, {"ssm.inner_size", 1, {4096}}, "of at most 512"},
        {"qwen35", qwen35, {"ssm.conv_kernel", 1, {9}}, "ssm.conv_kernel is 9"},
        {"qwen35", qwen35, {"attention.head_count_kv", 1, {0}}, "head_count_kv is 0"},
        {"nemotron_h", nemotron, {"ssm.inner_size", 1, {100}}, "into 8 heads"},
        {"nemotron_h", nemotron, {"feed_forward_length", 4, {0, -1, 0, 0}}, "feed_forward_length is -1"},
        {"nemotron_h",
         nemotron,
         {"feed_forward_length", 4, {0, 0, 128, 0}},
         "layer 2 has KV heads (attention.head_count_kv) and a feed-forward"},
        {"nemotron_h_moe", latent, {"nextn_predict_layers", 1, {0}}, "layer 3 has KV heads"},
        {"nemotron_h_moe", latent, {"nextn_predict_layers", 1, {LAYERS}}, "nextn_predict_layers is 4; 0 to 3"},
        {"nemotron_h_moe", latent, {"moe_latent_size", 1, {0}}, "moe_latent_size is 0; 8 to 65536 is possible"},
        {"nemotron_h_moe", latent, {"moe_latent_size", 1, {7}}, "moe_latent_size is 7"},
        {"nemotron_h_moe", latent, {"moe_latent_size", 1, {65537}}, "moe_latent_size is 65537"},
        {"nemotron_h_moe", latent, {"moe_latent_size", 1, {-1}}, "moe_latent_size is 4294967295"},
        {"nemotron_h_moe", latent, {"moe_latent_size", 2, {32, 32}}, "moe_latent_size"},
        {"mamba2", mamba2, {"ssm.time_step_rank", 1, {0}}, "ssm.time_step_rank is 0"},
        {"mamba2", mamba2, {"feed_forward_length", 1, {64}}, "no layer recurs or attends"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hparams hp;
        struct hearth_err e = {0};
        int ret = read_keys(cases[i].arch, cases[i].keys, cases[i].other, &hp, &e);
        if (ret != HEARTH_EBADMODEL || !strstr(e.msg, cases[i].words))
            fail_msg("%s of a %s: %d, \"%s\"", cases[i].other.name, cases[i].arch, ret, e.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_and_sizes), cmocka_unit_test(refused)};
    return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}
