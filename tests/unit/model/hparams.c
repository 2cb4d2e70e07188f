/* hparams.c - hyperparameters that a file states by several keys, or implies by omitting keys. */
#include "config.h" /* memfd_create */

#include "tests/unit/model/odd-model.h"

#include <math.h>

/* Sizes of latent attention, and YaRN's attention factor, which is squared in the scores: the file has a tenth of
 * mscale_all_dim, DeepSeek V2's 0.707, and cos and sin are not scaled. */
static void test_latent(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"block_count", 1},
                {"context_length", 4096},
                {"embedding_length", D},
                {"feed_forward_length", FF},
                {"attention.head_count", HEADS},
                {"attention.head_count_kv", 1},
                {"attention.key_length", 20},
                {"attention.value_length", 12},
                {"attention.key_length_mla", 24},
                {"attention.value_length_mla", 10},
                {"attention.kv_lora_rank", 12},
                {"rope.dimension_count", 8},
                {"rope.scaling.original_context_length", 128}};
    const size_t n_key = sizeof keys / sizeof *keys;
    for (size_t without = 0; without <= n_key; without++) {
        struct build b = {0};
        struct hparams hp;
        struct hearth_err e = {0};
        struct gguf *g;
        char path[64], key[128];
        bool whole = without == n_key, optional = !whole && (!strncmp(keys[without].key, "rope", 4) ||
                                                             !strcmp(keys[without].key, "attention.value_length"));
        put_header(&b, 3, 1, n_key + 6 - !whole);
        key_str(&b, "general.architecture", "deepseek2");
        key_f32(&b, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
        key_str(&b, "deepseek2.rope.scaling.type", "yarn");
        key_f32(&b, "deepseek2.rope.scaling.factor", 40);
        key_f32(&b, "deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
        key_arr(&b, "tokenizer.ggml.tokens", T_STR, 2);
        put_str(&b, "a");
        put_str(&b, "b");
        for (size_t i = 0; i < n_key; i++) {
            snprintf(key, sizeof key, "deepseek2.%s", keys[i].key);
            if (i != without)
                key_u32(&b, key, keys[i].v);
        }
        put_tensor(&b, "token_embd.weight", 2, (uint64_t[]){D, 2}, DT_F32, 0);
        put_zeros(&b, (32 - b.n % 32) % 32 + 2 * D * sizeof(float));
        int fd = build_file(&b, path), rc;
        if (gguf_open(&g, path, &e))
            fail_msg("%s", e.msg);
        rc = model_hparams(&hp, g, &e);
        if (whole) {
            float m = 0.1f * 0.707f * logf(40) + 1;
            assert_int_equal(rc, 0);
            assert_true(hp.kv[0].d_k == 20 && hp.kv[0].d_v == 0 && hp.kv[0].n_kv == 1 && hp.latent.d_nope == 16);
            assert_true(fabsf(hp.attn_scale - m * m / sqrtf(24)) < 1e-6f);
            assert_true(hp.rope[ROPE_FULL].scale == 1);
        } else if (!optional) {
            assert_int_equal(rc, HEARTH_EBADMODEL);
        }
        gguf_close(g);
        close(fd);
        free(b.p);
    }
}

/* The hyperparameters of a file of the architecture without weights, with the fewest keys, and with that tensor unless
 * it is NULL. */
static struct hparams read_silent(const char *arch, const char *tensor)
{
    const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"block_count", 2},
                {"embedding_length", D},
                {"feed_forward_length", 96},
                {"context_length", 64},
                {"attention.head_count", 2},
                {"attention.head_count_kv", 1},
                {"attention.key_length", 20},
                {"attention.key_length_mla", 24},
                {"attention.value_length_mla", 10},
                {"attention.kv_lora_rank", 12},
                {"rope.dimension_count", 8},
                {"expert_count", 6},
                {"expert_used_count", 4}};
    const size_t n_key = sizeof keys / sizeof *keys;
    bool latent = !strcmp(arch, "deepseek2"), dense = !strcmp(arch, "gemma2");
    struct build b = {0};
    struct hparams hp;
    struct hearth_err e = {0};
    struct gguf *g;
    char path[64], key[128];
    put_header(&b, 3, tensor ? 2 : 1, n_key + 4 - (latent ? 0 : 3) - (dense ? 2 : 0));
    key_str(&b, "general.architecture", arch);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    key_f32(&b, key, 1e-6f);
    snprintf(key, sizeof key, "%s.rope.scaling.factor", arch);
    key_f32(&b, key, 0);
    key_arr(&b, "tokenizer.ggml.tokens", T_STR, 2);
    put_str(&b, "a");
    put_str(&b, "b");
    for (size_t i = 0; i < n_key; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        if ((latent || !(strstr(key, "_mla") || strstr(key, "lora"))) && !(dense && strstr(key, "expert")))
            key_u32(&b, key, keys[i].v);
    }
    put_tensor(&b, "token_embd.weight", 2, (uint64_t[]){D, 2}, DT_F32, 0);
    if (tensor)
        put_tensor(&b, tensor, 1, (uint64_t[]){6}, DT_F32, 2 * D * sizeof(float));
    put_zeros(&b, (32 - b.n % 32) % 32 + 2 * D * sizeof(float) + 32);
    int fd = build_file(&b, path);
    if (gguf_open(&g, path, &e) || model_hparams(&hp, g, &e))
        fail_msg("%s: %s", arch, e.msg);
    gguf_close(g);
    close(fd);
    free(b.p);
    return hp;
}

/* The meaning of a key that is absent or 0. */
static void test_silence(void **state)
{
    (void)state;
    struct hparams hp = read_silent("deepseek2", NULL);
    assert_int_equal(hp.experts.kind, ROUTE_SOFTMAX);
    assert_true(hp.rope[ROPE_FULL].factor == 1 && hp.rope[ROPE_FULL].scaling == ROPE_SCALING_NONE);
    hp = read_silent("deepseek2", "blk.1.exp_probs_b.bias");
    assert_int_equal(hp.experts.kind, ROUTE_SIGMOID); /* GLM-4.7-Flash */
    assert_int_equal(hp.experts.d_expert, 96);
    hp = read_silent("qwen3moe", NULL);
    assert_int_equal(hp.experts.kind, ROUTE_SOFTMAX);
    assert_int_equal(hp.experts.d_expert, 96 / 4);
    hp = read_silent("llama", NULL);
    assert_int_equal(hp.experts.d_expert, 96);
    assert_int_equal(hp.window, 0);
    hp = read_silent("gemma2", NULL);
    assert_true(hp.window == 4096 && hp.slides[0] && !hp.slides[1]);
    assert_true(hp.attn_softcap == 50 && hp.logit_softcap == 30);
}

/* Which layers are recurrent, given by a list that includes the layers that are left out, or does not. */
static void test_recurrent_layers(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t v;
    } keys[] = {{"block_count", 4},
                {"nextn_predict_layers", 1},
                {"embedding_length", D},
                {"feed_forward_length", FF},
                {"context_length", 64},
                {"attention.head_count", 2},
                {"attention.head_count_kv", 1},
                {"attention.key_length", 16},
                {"ssm.conv_kernel", 4},
                {"ssm.state_size", 8},
                {"ssm.group_count", 2},
                {"ssm.time_step_rank", 2},
                {"ssm.inner_size", 16}};
    const size_t n_key = sizeof keys / sizeof *keys;
    for (uint32_t n = 2; n <= 5; n++) {
        struct build b = {0};
        struct hparams hp;
        struct hearth_err e = {0};
        struct gguf *g;
        char path[64], key[128];
        put_header(&b, 3, 1, n_key + 4);
        key_str(&b, "general.architecture", "qwen35");
        key_f32(&b, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
        key_arr(&b, "tokenizer.ggml.tokens", T_STR, 2);
        put_str(&b, "a");
        put_str(&b, "b");
        for (size_t i = 0; i < n_key; i++) {
            snprintf(key, sizeof key, "qwen35.%s", keys[i].key);
            key_u32(&b, key, keys[i].v);
        }
        key_arr(&b, "qwen35.attention.recurrent_layers", T_BOOL, n);
        for (uint32_t i = 0; i < n; i++)
            put(&b, i == 1 ? "" : "\1", 1);
        put_tensor(&b, "token_embd.weight", 2, (uint64_t[]){D, 2}, DT_F32, 0);
        put_zeros(&b, (32 - b.n % 32) % 32 + 2 * D * sizeof(float));
        int fd = build_file(&b, path);
        if (gguf_open(&g, path, &e))
            fail_msg("%s", e.msg);
        int rc = model_hparams(&hp, g, &e);
        if (n < 3 || n > 4)
            assert_int_equal(rc, HEARTH_EBADMODEL);
        else if (rc)
            fail_msg("%u entries: %s", n, e.msg);
        else
            assert_true(hp.n_layer == 3 && hp.kind[0] == LAYER_RECURS && hp.kind[1] == LAYER_ATTENDS &&
                        hp.kind[2] == LAYER_RECURS);
        gguf_close(g);
        close(fd);
        free(b.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_silence), cmocka_unit_test(test_recurrent_layers),
                                       cmocka_unit_test(test_latent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
