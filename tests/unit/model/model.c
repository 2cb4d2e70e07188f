/* model.c - the binding of a tiny synthetic model: it computes as described, and any fault in it is refused with a
 * name. */
#include "config.h" /* memfd_create */

#include "tests/unit/model/odd-model.h"

#include <math.h>

static bool stop_at_half(void *arg, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    *(uint64_t *)arg = done;
    return done < total / 2;
}

static float distance(const struct odd *odd, const struct odd *other)
{
    struct loaded l;
    struct hearth_err e = {0};
    float a[VOCAB], b[VOCAB], d = 0;
    if (load(&l, odd, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    logits_of(&l, a);
    unload(&l);
    if (load(&l, other, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    logits_of(&l, b);
    unload(&l);
    for (int i = 0; i < VOCAB; i++)
        d = fmaxf(d, fabsf(a[i] - b[i]));
    return d;
}

static void test_runs(void **state)
{
    (void)state;
    struct loaded l;
    struct hearth_err e = {0};
    struct odd plain = {0};
    assert_int_equal(load(&l, &plain, NULL, NULL, &e), 0);
    assert_true(l.m->hp.d_head == HEAD && l.m->hp.n_vocab == VOCAB && l.m->hp.n_ctx == 64 &&
                l.m->hp.n_rot[ROPE_FULL] == HEAD);
    assert_string_equal(l.m->hp.type, "F32");
    unload(&l);
    /* Each of these must affect the result: frequencies, their factors, the window, biases, the tied head. */
    assert_true(distance(&plain, &plain) == 0);
    assert_true(distance(&plain, &(struct odd){.freq = 1}) == 0);
    assert_true(distance(&plain, &(struct odd){.freq = 4}) > 1e-6f);
    assert_true(distance(&plain, &(struct odd){.scaling = "linear"}) == 0); /* a factor of 1 */
    assert_true(distance(&plain, &(struct odd){.set_key = "rope.dimension_count", .set_u32 = 4}) > 1e-6f);
    assert_true(distance(&plain, &(struct odd){.no_tensor = "output.weight"}) > 1e-6f);
    assert_true(distance(&(struct odd){.no_tensor = "output.weight"}, &(struct odd){.twice = "output.weight"}) == 0);
    assert_true(distance(&plain, &(struct odd){.deep = "", .third = 1}) == 0);
    assert_true(distance(&plain, &(struct odd){.arch = "qwen2", .biases = true}) > 1e-6f);
    assert_true(distance(&plain, &(struct odd){.biases = true}) > 1e-6f);
    assert_true(distance(&plain, &(struct odd){.attn_factor = 1}) == 0);
    assert_true(distance(&plain, &(struct odd){.retype = "blk.0.attn_norm.weight", .type = DT_F16}) > 1e-6f);
    assert_true(distance(&plain, &(struct odd){.attn_factor = 2}) > 1e-6f);
    assert_true(distance(&plain, &(struct odd){.set_key = "nextn_predict_layers", .set_u32 = 0}) == 0);
    static const char *const scales[] = {"attention.scale", "embedding_scale", "residual_scale",
                                         "attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        assert_true(distance(&plain, &(struct odd){.float_key = scales[i], .attn_factor = 0.7f}) > 1e-6f);
    assert_true(distance(&plain, &(struct odd){.scaling = "yarn"}) == 0); /* a factor of 1 */
    struct odd yarn = {.scaling = "yarn", .float_key = "rope.scaling.yarn_attn_factor", .attn_factor = 0.878f};
    assert_true(distance(&plain, &yarn) == 0); /* config.json's attn_factor, which is ignored */
    yarn.attn_factor = 1.2f;
    assert_true(distance(&plain, &yarn) > 1e-6f);
    static const char *const factors[] = {"token_embd.scale",   "output.scale",         "blk.0.attn_q.scale",
                                          "blk.1.attn_v.scale", "blk.0.ffn_gate.scale", "blk.1.ffn_down.scale"};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        assert_true(distance(&plain, &(struct odd){.scaled = factors[i], .scale = 1}) == 0);
        assert_true(distance(&plain, &(struct odd){.scaled = factors[i], .scale = 0.7f}) > 1e-6f);
    }
    assert_true(distance(&plain, &(struct odd){.scaled = "blk.0.ffn_up.input_scale", .scale = 0.7f}) == 0);
    static const struct odd mixture = {.mixture = 4, .set_key = "expert_used_count", .set_u32 = 2};
    static const char *const of_experts[] = {"blk.0.ffn_gate_exps.scale", "blk.1.ffn_up_exps.scale",
                                             "blk.1.ffn_down_exps.scale"};
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++) {
        struct odd scaled = mixture;
        scaled.scaled = of_experts[i], scaled.scale = 1;
        assert_true(distance(&mixture, &scaled) == 0);
        scaled.scale = 0.7f;
        assert_true(distance(&mixture, &scaled) > 1e-6f);
    }
    static const struct odd lists[] = {{.list_key = "feed_forward_length", .list = {FF, FF / 2}, .n_list = 2},
                                       {.list_key = "attention.head_count", .list = {HEADS, KV}, .n_list = 2},
                                       {.list_key = "attention.head_count_kv", .list = {1, KV}, .n_list = 2}};
    static const char *const keys[] = {"feed_forward_length", "attention.head_count", "attention.head_count_kv"};
    static const int32_t all[] = {FF, HEADS, KV};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_true(distance(&plain, &(struct odd){.list_key = keys[i], .list = {all[i], all[i]}, .n_list = 2}) == 0);
        assert_true(distance(&plain, &lists[i]) > 1e-6f);
    }
    static const struct odd qwen2 = {.arch = "qwen2", .biases = true}, qwen2vl = {.arch = "qwen2vl",
                                                                                  .biases = true,
                                                                                  .list_key = "rope.dimension_sections",
                                                                                  .list = {2, 1, 1, 0},
                                                                                  .n_list = 4};
    assert_true(distance(&qwen2, &qwen2vl) == 0);
    assert_true(distance(&plain, &(struct odd){.arch = "ernie4_5"}) == 0);
    assert_true(distance(&plain, &(struct odd){.set_key = "attention.sliding_window", .set_u32 = 3}) == 0);
    assert_true(distance(&plain, &(struct odd){.set_key = "attention.sliding_window", .set_u32 = 2}) > 1e-6f);
    assert_int_equal(load(&l, &(struct odd){.set_key = "attention.sliding_window", .set_u32 = 48}, NULL, NULL, &e), 0);
    assert_true(l.m->hp.n_ctx == 64 && l.m->hp.window == 48 && l.m->hp.slides[LAYERS - 1]);
    unload(&l);
}

/* In GLM 4's files with M-RoPE, q and k are arranged for RoPE over halves. */
static void test_glm4_sections(void **state)
{
    (void)state;
    static const struct odd sections = {.list_key = "rope.dimension_sections", .list = {2, 1, 1, 0}, .n_list = 4};
    struct loaded l;
    struct hearth_err e = {0};
    struct odd plain = {.arch = "glm4"}, halves = sections;
    halves.arch = "glm4";
    if (load(&l, &plain, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(l.m->rope[ROPE_FULL].kind, ROPE_NORM);
    unload(&l);
    if (load(&l, &halves, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(l.m->rope[ROPE_FULL].kind, ROPE_NEOX);
    unload(&l);
    assert_true(distance(&plain, &halves) > 1e-6f);
    plain.arch = halves.arch = "glm4moe"; /* has them arranged so always */
    assert_true(distance(&plain, &halves) == 0);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        struct odd odd;
        int code;
        const char *says;
    } rows[] = {
        {{.arch = "mamba"}, HEARTH_EUNSUPPORTED, "\"mamba\""},
        {{.no_key = "block_count"}, HEARTH_EBADMODEL, "llama.block_count is missing"},
        {{.no_key = "context_length"}, HEARTH_EBADMODEL, "context_length"},
        {{.set_key = "block_count", .set_u32 = 0}, HEARTH_EBADMODEL, "block_count is 0"},
        {{.set_key = "block_count", .set_u32 = 1 << 30}, HEARTH_EBADMODEL, "block_count"},
        {{.set_key = "block_count", .set_u32 = LAYERS + 1}, HEARTH_EBADMODEL, "blk.2.attn_norm.weight is missing"},
        {{.set_key = "attention.head_count", .set_u32 = 0}, HEARTH_EBADMODEL, "head_count is 0"},
        {{.set_key = "attention.head_count", .set_u32 = 3}, HEARTH_EBADMODEL, "3 heads"},
        {{.set_key = "attention.head_count_kv", .set_u32 = 0}, HEARTH_EBADMODEL, "head_count_kv"},
        {{.set_key = "attention.head_count_kv", .set_u32 = 3}, HEARTH_EBADMODEL, "share 3 KV heads"},
        {{.set_key = "attention.head_count_kv", .set_u32 = 4}, HEARTH_EBADMODEL, "blk.0.attn_k.weight is"},
        {{.list_key = "attention.head_count", .list = {4, 3}, .n_list = 2}, HEARTH_EBADMODEL, "3 heads"},
        {{.list_key = "attention.head_count_kv", .list = {2, 0}, .n_list = 2},
         HEARTH_EBADMODEL,
         "head_count_kv is 0 for layer 1; 1 to 1024"},
        {{.list_key = "feed_forward_length", .list = {FF, -1}, .n_list = 2}, HEARTH_EBADMODEL, "is -1 for layer 1"},
        {{.list_key = "feed_forward_length", .list = {FF, FF, FF}, .n_list = 3},
         HEARTH_EBADMODEL,
         "feed_forward_length has 3 entries for 2 layers"},
        {{.list_key = "block_count", .list = {2, 2}, .n_list = 2}, HEARTH_EBADMODEL, "block_count is an array"},
        {{.set_key = "embedding_length", .set_u32 = 64}, HEARTH_EBADMODEL, "token_embd.weight"},
        {{.set_key = "feed_forward_length", .set_u32 = 32}, HEARTH_EBADMODEL, "ffn_gate.weight"},
        {{.set_key = "rope.dimension_count", .set_u32 = 10}, HEARTH_EBADMODEL, "turns 10 of 8"},
        {{.set_key = "rope.dimension_count", .set_u32 = 3}, HEARTH_EBADMODEL, "turns 3"},
        {{.set_key = "attention.value_length", .set_u32 = 4}, HEARTH_EUNSUPPORTED, "values of 4"},
        {{.scaling = "dynamic"}, HEARTH_EUNSUPPORTED, "dynamic"},
        {{.scaling = "longrope"}, HEARTH_EBADMODEL, "rope_factors_short.weight is missing"},
        {{.set_key = "attention.sliding_window_pattern", .set_u32 = 5000}, HEARTH_EBADMODEL, "window_pattern is 5000"},
        {{.set_key = "rope.freq_base_swa", .set_u32 = 5}, HEARTH_EBADMODEL, "rope.freq_base_swa is of type u32"},
        {{.float_key = "rope.freq_base_swa", .attn_factor = -1}, HEARTH_EBADMODEL, "rope.freq_base_swa is -1"},
        {{.float_key = "rope.freq_base_swa", .attn_factor = NAN},
         HEARTH_EBADMODEL,
         "rope.freq_base_swa is not a finite"},
        {{.float_key = "residual_scale", .attn_factor = INFINITY}, HEARTH_EBADMODEL, "residual_scale is not a finite"},
        {{.float_key = "attention.sliding_window", .attn_factor = 8}, HEARTH_EBADMODEL, "attention.sliding_window"},
        {{.scaling = "yarn", .set_key = "rope.scaling.original_context_length", .set_u32 = 1},
         HEARTH_EBADMODEL,
         "original_context_length is 1"},
        {{.scaling = "yarn", .float_key = "rope.scaling.yarn_beta_fast", .attn_factor = -1},
         HEARTH_EBADMODEL,
         "yarn_beta_fast"},
        {{.set_key = "nextn_predict_layers", .set_u32 = 1}, HEARTH_EUNSUPPORTED, "llama.nextn_predict_layers"},
        {{.set_key = "moe_latent_size", .set_u32 = 16}, HEARTH_EUNSUPPORTED, "llama.moe_latent_size"},
        {{.float_key = "attention.clamp_kqv", .attn_factor = 8}, HEARTH_EUNSUPPORTED, "llama.attention.clamp_kqv"},
        {{.arch = "gemma2", .float_key = "attn_logit_softcapping", .attn_factor = -3}, HEARTH_EBADMODEL, "softcapping"},
        {{.arch = "gemma3"}, HEARTH_EBADMODEL, "blk.0.post_attention_norm.weight is missing"},
        {{.arch = "starcoder2"}, HEARTH_EBADMODEL, "starcoder2.attention.layer_norm_epsilon is missing"},
        {{.arch = "phi3"}, HEARTH_EBADMODEL, "blk.0.ffn_up.weight is"},
        {{.arch = "olmo2"}, HEARTH_EBADMODEL, "blk.0.attn_q_norm.weight is missing"},
        {{.attn_factor = -2}, HEARTH_EBADMODEL, "llama.rope.scaling.attn_factor is -2"},
        {{.float_key = "logit_scale", .attn_factor = 4}, HEARTH_EUNSUPPORTED, "llama.logit_scale"},
        {{.float_key = "attention.temperature_scale", .attn_factor = 0.1f}, HEARTH_EUNSUPPORTED, "temperature"},
        {{.float_key = "attention.scale", .attn_factor = NAN}, HEARTH_EBADMODEL, "attention.scale"},
        {{.not_causal = true}, HEARTH_EUNSUPPORTED, "llama.attention.causal"},
        {{.set_key = "block_count", .set_u32 = 1}, HEARTH_EUNSUPPORTED, "tensor blk.1.attn_norm.weight has no place"},
        {{.more = "blk.0.attn_sinks.weight"}, HEARTH_EUNSUPPORTED, "blk.0.attn_sinks.weight has no place in a llama"},
        {{.more = "blk.0.attn_q_norm.weight"}, HEARTH_EUNSUPPORTED, "blk.0.attn_q_norm.weight"},
        {{.more = "rope_factors_long.weight", .arch = "qwen2", .biases = true}, HEARTH_EBADMODEL, "rope_factors_short"},
        {{.biases = true, .no_tensor = "blk.1.attn_k.bias"}, HEARTH_EBADMODEL, "blk.1.attn_k.bias is missing"},
        {{.biases = true, .no_tensor = "blk.1.attn_q.bias"}, HEARTH_EUNSUPPORTED, "blk.1.attn_k.bias has no place"},
        {{.arch = "qwen2", .biases = true, .experts = true}, HEARTH_EUNSUPPORTED, "mixture of experts"},
        {{.experts = true}, HEARTH_EBADMODEL, "llama.expert_used_count is missing"},
        {{.mixture = 4, .set_key = "expert_used_count", .set_u32 = 5}, HEARTH_EBADMODEL, "5 experts of 4 are used"},
        {{.mixture = 4, .set_key = "expert_used_count", .set_u32 = 0}, HEARTH_EBADMODEL, "expert_used_count is 0"},
        {{.mixture = 40, .set_key = "expert_used_count", .set_u32 = 33}, HEARTH_EBADMODEL, "expert_used_count is 33"},
        {{.mixture = 4, .set_key = "expert_count", .set_u32 = 5}, HEARTH_EBADMODEL, "blk.0.ffn_gate_inp.weight is"},
        {{.mixture = 4, .set_key = "expert_count", .set_u32 = 1025}, HEARTH_EBADMODEL, "expert_count is 1025; 1 to"},
        {{.mixture = 4, .set_key = "expert_group_count", .set_u32 = 3}, HEARTH_EBADMODEL, "do not make 3 groups"},
        {{.mixture = 4, .set_key = "expert_group_count", .set_u32 = 2}, HEARTH_EBADMODEL, "from 0 of 2 groups of 2"},
        {{.mixture = 4, .set_key = "expert_gating_func", .set_u32 = 4}, HEARTH_EBADMODEL, "expert_gating_func is 4"},
        {{.mixture = 4, .set_key = "leading_dense_block_count", .set_u32 = 9}, HEARTH_EBADMODEL, "block_count is 9"},
        {{.mixture = 4, .no_tensor = "blk.1.ffn_up.3.weight"}, HEARTH_EBADMODEL, "blk.1.ffn_up.3.weight is missing"},
        {{.mixture = 4, .no_tensor = "blk.1.ffn_gate_inp.weight"}, HEARTH_EBADMODEL, "blk.1.ffn_gate_inp.weight is mi"},
        {{.mixture = 4, .reshape = "blk.1.ffn_down.2.weight"}, HEARTH_EBADMODEL, "blk.1.ffn_down.2.weight is"},
        {{.mixture = 4, .retype = "blk.0.ffn_up.1.weight", .type = DT_F16}, HEARTH_EUNSUPPORTED, "of another type"},
        {{.mixture = 4, .nan = "blk.1.ffn_gate_inp.weight"}, HEARTH_EBADMODEL, "of the router is nan"},
        {{.arch = "glm4moe", .set_key = "nextn_predict_layers", .set_u32 = LAYERS},
         HEARTH_EBADMODEL,
         "layers is 2; 0 to 1"},
        {{.scaled = "blk.1.ffn_up.scale", .scale = -1}, HEARTH_EBADMODEL, "blk.1.ffn_up.scale is -1"},
        {{.scaled = "output.scale", .scale = NAN}, HEARTH_EBADMODEL, "output.scale is"},
        {{.mixture = 4, .set_key = "expert_used_count", .set_u32 = 2, .scaled = "blk.1.ffn_up_exps.scale"},
         HEARTH_EBADMODEL,
         "blk.1.ffn_up_exps.scale is 0 for expert 0"},
        {{.scaled = "blk.0.attn_norm.scale", .scale = 1}, HEARTH_EUNSUPPORTED, "blk.0.attn_norm.scale has no place"},
        {{.scaled = "output.scale", .scale = 1, .reshape = "output.scale"}, HEARTH_EBADMODEL, "output.scale is 9 x 2"},
        {{.scaled = "output.scale", .scale = 1, .retype = "output.scale", .type = DT_F16},
         HEARTH_EUNSUPPORTED,
         "output.scale of type F16"},
        {{.eps = -1}, HEARTH_EBADMODEL, "epsilon"},
        {{.eps = NAN}, HEARTH_EBADMODEL, "epsilon"},
        {{.vocab_short = true}, HEARTH_EBADMODEL, "15 tokens"},
        {{.no_tensor = "token_embd.weight"}, HEARTH_EBADMODEL, "token_embd.weight is missing"},
        {{.no_tensor = "output_norm.weight"}, HEARTH_EBADMODEL, "output_norm.weight is missing"},
        {{.no_tensor = "blk.1.ffn_up.weight"}, HEARTH_EBADMODEL, "blk.1.ffn_up.weight is missing"},
        {{.arch = "qwen2"}, HEARTH_EBADMODEL, "attn_q.bias is missing"},
        {{.deep = "token_embd.weight", .third = 2},
         HEARTH_EBADMODEL,
         "token_embd.weight is 32 x 16 x 2 x 1; 32 x the vocabulary is"},
        {{.deep = "blk.0.attn_q.weight", .third = 2}, HEARTH_EBADMODEL, "x 2 x 1; 32 x 32 x 1 x 1 is expected"},
        {{.reshape = "blk.1.attn_q.weight"}, HEARTH_EBADMODEL, "blk.1.attn_q.weight is"},
        {{.reshape = "blk.1.ffn_norm.weight"}, HEARTH_EBADMODEL, "blk.1.ffn_norm.weight is"},
        {{.reshape = "output.weight"}, HEARTH_EBADMODEL, "output.weight is"},
        {{.retype = "blk.0.ffn_up.weight", .type = 99}, HEARTH_EUNSUPPORTED, "ggml type 99"},
        {{.retype = "blk.0.ffn_up.weight", .type = UINT32_MAX}, HEARTH_EUNSUPPORTED, "ggml type 4294967295"},
        {{.retype = "blk.0.ffn_up.weight", .type = 19}, HEARTH_EUNSUPPORTED, "blk.0.ffn_up.weight is of type IQ1_S"},
        {{.retype = "blk.0.ffn_norm.weight", .type = DT_Q8_0}, HEARTH_EUNSUPPORTED, "of type Q8_0"},
        {{.freq = -1}, HEARTH_EBADMODEL, "rope_freqs"},
        {{.freq = NAN}, HEARTH_EBADMODEL, "rope_freqs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct loaded l;
        struct hearth_err e = {0};
        int ret = load(&l, &rows[i].odd, NULL, NULL, &e);
        if (ret != rows[i].code || !strstr(e.msg, rows[i].says))
            fail_msg("row %zu: %d \"%s\" instead of %d \"%s\"", i, ret, ret ? e.msg : "loaded", rows[i].code,
                     rows[i].says);
        assert_null(l.m);
        unload(&l);
    }
}

static void test_progress(void **state)
{
    (void)state;
    struct loaded l;
    struct hearth_err e = {0};
    uint64_t done = 0;
    assert_int_equal(load(&l, &(struct odd){0}, stop_at_half, &done, &e), HEARTH_ECANCELLED);
    assert_true(done > 0);
    unload(&l);
}

/* Layers that predict further ahead are not part of the model, and neither are their tensors, whatever those are. */
static void test_layers_ahead_are_left_out(void **state)
{
    (void)state;
    struct loaded l;
    struct hearth_err e = {0};
    struct odd odd = {
        .arch = "glm4moe", .set_key = "nextn_predict_layers", .set_u32 = 1, .more = "blk.1.nextn.enorm.weight"};
    if (load(&l, &odd, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(l.m->hp.n_layer, LAYERS - 1);
    uint64_t bytes = 0, ahead = 0; /* what the memory is planned for */
    for (size_t i = 0; i < gguf_n_tensor(l.g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l.g, i);
        bytes += t->bytes;
        ahead += t->name.n > 6 && !memcmp(t->name.s, "blk.1.", 6) ? t->bytes : 0;
    }
    assert_true(ahead > 0 && l.m->hp.weight_bytes == bytes - ahead);
    unload(&l);
    static const char *const others[] = {"blk.01.norm.weight",         "blk.1.",
                                         "blk.11.norm.weight",         "blk..norm.weight",
                                         "blk.4294967297.norm.weight", "blk.1norm.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        odd.more = others[i];
        assert_int_equal(load(&l, &odd, NULL, NULL, &e), HEARTH_EUNSUPPORTED);
        assert_non_null(strstr(e.msg, others[i]));
        unload(&l);
    }
    odd.more = "blk.2.nextn.enorm.weight";
    assert_int_equal(load(&l, &odd, NULL, NULL, &e), HEARTH_EUNSUPPORTED);
    unload(&l);
}

static const struct backend *inner;
static int weights;

static int counted_load(struct device *d, struct weight *w, struct hearth_err *e)
{
    weights++;
    return inner->weight_load(d, w, e);
}

static void counted_free(struct device *d, struct weight *w)
{
    weights--;
    inner->weight_free(d, w);
}

/* Each matrix that the device has loaded is freed once, and an output that is the embedding again is not loaded. */
static void test_given_back(void **state)
{
    (void)state;
    static const struct odd odds[] = {{0}, {.no_tensor = "output.weight"}, {.twice = "output.weight"}};
    inner = backend_find("cpu");
    struct backend counting = *inner;
    counting.weight_load = counted_load;
    counting.weight_free = counted_free;
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++) {
        struct loaded l;
        struct hearth_err e = {0};
        assert_int_equal(load(&l, &odds[i], NULL, NULL, &e), 0);
        model_free(l.m);
        assert_int_equal(model_load(&l.m, l.g, &counting, l.dev, NULL, NULL, &e), 0);
        assert_int_equal(weights, 4 * LAYERS + (i ? 1 : 2));
        unload(&l);
        assert_int_equal(weights, 0);
    }
}

static uint32_t outside; /* how many of the loaded matrices are in host memory */

static int placed_load(struct device *d, struct weight *w, struct hearth_err *e)
{
    outside += w->host;
    assert_true(!w->host || w->role != WEIGHT_QKV);
    return inner->weight_load(d, w, e);
}

/* Each matrix takes 100 bytes; q, k and v have to stay in the device's memory. */
static uint64_t placed_bytes(struct device *d, const struct weight *w, uint64_t *passing)
{
    (void)d;
    assert_true(w->host);
    *passing = w->role == WEIGHT_QKV ? 0 : 10;
    return 100;
}

/* With limited room, matrices that may be placed in host memory are loaded there; the selection is the same when it is
 * computed in advance and at the load. */
static void test_within_a_room(void **state)
{
    (void)state;
    static const struct odd odd = {0};
    enum { N = 4 * LAYERS + 2 };
    struct hearth_err e = {0};
    struct loaded l;
    inner = backend_find("cpu");
    struct backend placing = *inner;
    placing.weight_load = placed_load;
    placing.weight_bytes = placed_bytes;
    assert_int_equal(load(&l, &odd, NULL, NULL, &e), 0);
    model_free(l.m);
    for (uint32_t own = 0; own <= N; own++) {
        struct model_room room = {100 * own + 10, 100 * N};
        struct model_place p;
        outside = 0;
        l.m = NULL;
        int rc = model_find_places(l.g, &placing, l.dev, &room, &p, &e);
        assert_int_equal(model_load_within(&l.m, l.g, &placing, l.dev, &room, NULL, NULL, &e), rc);
        assert_int_equal(rc, own < LAYERS ? HEARTH_ENOMEM : 0);
        if (rc)
            continue;
        assert_memory_equal(&l.m->place, &p, sizeof p);
        assert_int_equal(outside, N - own);
        assert_int_equal(p.host, 100 * outside);
        assert_int_equal(p.own, 100 * own);
        model_free(l.m);
    }
    l.m = NULL;
    unload(&l);
}

static struct gguf *open_model(const struct odd *odd)
{
    struct build b = model_file(odd);
    struct hearth_err e = {0};
    struct gguf *g;
    char path[64];
    int fd = build_file(&b, path);
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.msg);
    close(fd);
    free(b.p);
    return g;
}

/* Without a device a model has the same program as with one, and the same errors. */
static void test_outline(void **state)
{
    (void)state;
    static const struct odd tied = {.no_tensor = "output.weight", .biases = true};
    struct hearth_err e = {0};
    struct loaded l;
    struct model *m;
    char a[96], b[96];
    assert_int_equal(load(&l, &tied, NULL, NULL, &e), 0);
    assert_int_equal(model_outline(&m, l.g, &e), 0);
    assert_int_equal(m->program.n_op, 1 + 5 * LAYERS + 1);
    assert_int_equal(m->program.n_op, l.m->program.n_op);
    for (uint32_t i = 0; i < m->program.n_op; i++)
        assert_string_equal(op_describe(&m->program.op[i], a), op_describe(&l.m->program.op[i], b));
    assert_string_equal(op_describe(&m->program.op[1], a), "qkv (F32, F32, F32; 32 to 64)");
    model_free(m);
    unload(&l);

    struct gguf *g = open_model(&(struct odd){.reshape = "blk.1.ffn_up.weight"});
    assert_int_equal(model_outline(&m, g, &e), HEARTH_EBADMODEL);
    assert_non_null(strstr(e.msg, "blk.1.ffn_up.weight"));
    gguf_close(g);
}

/* The longest program that a file can ask for. */
static void test_outline_is_bounded(void **state)
{
    (void)state;
    struct hearth_err e = {0};
    struct model *m;
    struct gguf *g = open_model(&(struct odd){.layers = 1024});
    assert_int_equal(model_outline(&m, g, &e), 0);
    assert_int_equal(m->program.n_op, 1 + 5 * 1024 + 1);
    model_free(m);
    gguf_close(g);
    g = open_model(&(struct odd){.set_key = "block_count", .set_u32 = 1025});
    assert_int_equal(model_outline(&m, g, &e), HEARTH_EBADMODEL);
    assert_non_null(strstr(e.msg, "block_count"));
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs),
                                       cmocka_unit_test(test_glm4_sections),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_progress),
                                       cmocka_unit_test(test_layers_ahead_are_left_out),
                                       cmocka_unit_test(test_given_back),
                                       cmocka_unit_test(test_within_a_room),
                                       cmocka_unit_test(test_outline),
                                       cmocka_unit_test(test_outline_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
