/* hparams.c - reads a model's hyperparameters from metadata and the shape of its embedding, and checks every one. */
#include "daemon/model/hparams-internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/model/arch/arch.h"
#include "daemon/model/kind.h"
#include "daemon/model/model-internal.h"

static bool reads(const struct arch *row, const char *key)
{
    for (const char *const *own = row->reads; own && *own; own++)
        if (!strcmp(*own, key))
            return true;
    return false;
}

static void key_of(char out[128], const struct hparams_reader *r, const char *name)
{
    snprintf(out, 128, "%s.%s", r->arch, name);
}

uint32_t hparams_number(struct hparams_reader *r, const char *name, uint32_t min, uint32_t max, int64_t absent)
{
    char key[128];
    uint32_t v = 0;
    if (r->ret)
        return 0;
    key_of(key, r, name);
    int ret = gguf_u32(r->g, key, &v, r->e);
    if (ret > 0 && absent != REQUIRED)
        return (uint32_t)absent;
    if (ret > 0)
        r->ret = err_set(r->e, HEARTH_EBADMODEL, "key %s is missing", key);
    else if (ret < 0)
        r->ret = ret;
    else if (v < min || v > max)
        r->ret = err_set(r->e, HEARTH_EBADMODEL, "key %s is %u; %u to %u is possible", key, v, min, max);
    return r->ret ? 0 : v; /* a refused value must not be used as a count or an index */
}

bool hparams_has(const struct hparams_reader *r, const char *name)
{
    char key[128];
    key_of(key, r, name);
    return gguf_has(r->g, key);
}

float hparams_real(struct hparams_reader *r, const char *name, float min, float max, float absent)
{
    char key[128];
    float v = 0;
    if (r->ret)
        return 0;
    key_of(key, r, name);
    int ret = gguf_f32(r->g, key, &v, r->e);
    if (ret > 0)
        return absent;
    if (ret < 0)
        r->ret = ret;
    else if (!(v >= min && v <= max))
        r->ret = err_set(r->e, HEARTH_EBADMODEL, "key %s is %g; %g to %g is possible", key, (double)v, (double)min,
                         (double)max);
    return r->ret ? 0 : v;
}

/* A float above 0, up to max; `absent` is the result where the key is absent, or REQUIRED. */
static float real(struct hparams_reader *r, const char *name, float max, float absent)
{
    char key[128];
    float v = hparams_real(r, name, -INFINITY, INFINITY, absent);
    if (r->ret)
        return 0;
    key_of(key, r, name);
    if (absent == REQUIRED && v == REQUIRED && !hparams_has(r, name))
        r->ret = err_set(r->e, HEARTH_EBADMODEL, "key %s is missing", key);
    else if (!(v > 0 && v <= max))
        r->ret = err_set(r->e, HEARTH_EBADMODEL, "key %s is %g; it must be above 0 and at most %g", key, (double)v,
                         (double)max);
    return r->ret ? 0 : v;
}

bool hparams_flag(struct hparams_reader *r, const char *name, bool absent)
{
    char key[128];
    bool v = absent;
    key_of(key, r, name);
    if (!r->ret && gguf_bool(r->g, key, &v, r->e) < 0)
        r->ret = HEARTH_EBADMODEL;
    return v;
}

void hparams_refuse(struct hparams_reader *r, int code, const char *fmt, ...)
{
    va_list ap;
    char msg[HEARTH_ERR_MSG];
    if (r->ret)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    r->ret = err_set(r->e, code, "%s", msg);
}

static enum rope_scaling scaling_of(struct hparams_reader *r, float factor)
{
    char key[128];
    struct gguf_str type = {"", 0};
    key_of(key, r, "rope.scaling.type");
    if (!r->ret && gguf_str(r->g, key, &type, r->e) < 0)
        r->ret = HEARTH_EBADMODEL;
    if (gguf_str_is(type, "longrope") || (!type.n && gguf_tensor_find(r->g, "rope_factors_long.weight")))
        return ROPE_SCALING_LONG;
    if (gguf_str_is(type, "yarn"))
        return ROPE_SCALING_YARN;
    if (type.n && !gguf_str_is(type, "linear") && !gguf_str_is(type, "none"))
        hparams_refuse(r, HEARTH_EUNSUPPORTED,
                       "RoPE scaling \"%s\" (%s); none, linear, yarn and longrope are supported", gguf_label(type).s,
                       key);
    return factor != 1 && !gguf_str_is(type, "none") ? ROPE_SCALING_LINEAR : ROPE_SCALING_NONE;
}

/* The attention factor as transformers computes it (modeling_rope_utils.py): given explicitly, or from mscale and
 * mscale_all_dim where both are given, or from the scaling factor. GGUF files store mscale_all_dim as
 * yarn_log_multiplier and leave out mscale, which is 1. Converters write yarn_attn_factor for either of two keys of
 * config.json: attention_factor, and attn_factor, which is another number, below 1, that transformers and llama.cpp
 * ignore (DeepSeek-R1-0528-Qwen3-8B). A folder's attention_factor comes by a name of its own. */
static void read_yarn(struct hparams_reader *r, uint32_t n_ctx, const struct arch *row, struct rope_params *p)
{
    bool exact = row->exact_yarn;
    if (!hparams_has(r, "rope.scaling.factor") && n_ctx > p->original)
        p->factor = (float)n_ctx / (float)p->original;
    if (!r->ret && gguf_bool(r->g, "hearth.rope.yarn_exact_bounds", &exact, r->e) < 0)
        r->ret = HEARTH_EBADMODEL;
    float all = hparams_real(r, "rope.scaling.yarn_log_multiplier", 0, 1e3f, 0) / (row->tenth_mscale ? 0.1f : 1);
    float mscale = row->tenth_mscale ? all : 1;
    if (!r->ret && gguf_f32(r->g, "hearth.rope.mscale", &mscale, r->e) < 0)
        r->ret = HEARTH_EBADMODEL;
    if (!(mscale >= 0 && mscale <= 1e3f))
        hparams_refuse(r, HEARTH_EBADMODEL, "key hearth.rope.mscale is %g; 0 to 1000 is possible", (double)mscale);
    float scale = all != 0 && mscale != 0 ? rope_yarn_mscale(p->factor, mscale) / rope_yarn_mscale(p->factor, all)
                                          : rope_yarn_mscale(p->factor, 1);
    float given = real(r, "rope.scaling.yarn_attn_factor", 1e6f, scale);
    p->scale *= real(r, "rope.scaling.attention_factor", 1e6f, given < 1 ? scale : given);
    p->extrapolation = real(r, "rope.scaling.yarn_ext_factor", 1, 1);
    p->beta_fast = real(r, "rope.scaling.yarn_beta_fast", 1e6f, 32);
    p->beta_slow = real(r, "rope.scaling.yarn_beta_slow", 1e6f, 1);
    p->exact_bounds = exact;
    if (p->base == 1)
        hparams_refuse(r, HEARTH_EBADMODEL, "key %s.rope.freq_base is 1, of which YaRN has no bounds", r->arch);
}

/* Longrope has one set of frequencies for texts within the original context and another for longer ones, so a token's
 * keys differ between the two; both sets use the same factor of cos and sin. */
static void read_longrope(struct hparams_reader *r, struct hparams *hp, struct rope_params *p)
{
    float ratio = real(r, "rope.scaling.factor", 1e6f, (float)hp->n_ctx / (float)p->original);
    p->factor = 1;
    if (!hparams_has(r, "rope.scaling.attn_factor"))
        p->scale = rope_long_scale(ratio, p->original);
    if (hp->n_ctx > p->original)
        hp->long_from = p->original;
}

static void read_rope(struct hparams_reader *r, struct hparams *hp, const struct arch *row)
{
    struct rope_params *p = &hp->rope[ROPE_FULL];
    p->base = real(r, "rope.freq_base", 1e12f, 10000);
    float linear = real(r, "rope.scale_linear", 1e6f, 1); /* old files have this key instead of a type */
    p->factor = hparams_real(r, "rope.scaling.factor", 0, 1e6f, linear);
    if (p->factor == 0) /* some files write 0 for no scaling */
        p->factor = 1;
    p->scaling = scaling_of(r, p->factor);
    p->scale = real(r, "rope.scaling.attn_factor", 1e6f, 1);
    bool needs = p->scaling == ROPE_SCALING_YARN || p->scaling == ROPE_SCALING_LONG;
    p->original =
        hparams_number(r, "rope.scaling.original_context_length", needs ? 2 : 0, 1 << 24, needs ? hp->n_ctx : 0);
    if (p->scaling == ROPE_SCALING_YARN)
        read_yarn(r, hp->n_ctx, row, p);
    if (p->scaling == ROPE_SCALING_LONG)
        read_longrope(r, hp, p);
    if (p->scaling == ROPE_SCALING_NONE)
        p->factor = 1;
    hp->rope[ROPE_SLIDING] = *p;
    if (hparams_has(r, "rope.freq_base_swa"))
        hp->rope[ROPE_SLIDING] = rope_plain(real(r, "rope.freq_base_swa", 1e12f, REQUIRED));
}

/* Determines which layers have the window: by a folder's list, else by the file's list or period, else by the
 * architecture's period. */
static void read_window(struct hparams_reader *r, struct hparams *hp, const struct arch *row)
{
    char key[128];
    uint32_t period = row->period;
    hp->window = hparams_number(r, "attention.sliding_window", 0, INT32_MAX, row->window);
    key_of(key, r, "attention.sliding_window_pattern");
    int ret = r->ret ? r->ret : gguf_flags(r->g, "hearth.attention.slides", hp->slides, hp->n_layer, r->e);
    if (ret > 0 && gguf_is_array(r->g, key))
        ret = gguf_flags(r->g, key, hp->slides, hp->n_layer, r->e);
    else if (ret > 0) {
        period = hparams_number(r, "attention.sliding_window_pattern", 0, LAYERS_MAX, period);
        for (uint32_t i = 0; i < hp->n_layer; i++)
            hp->slides[i] = !period || i % period < period - 1;
        ret = r->ret;
    }
    if (!r->ret && ret < 0)
        r->ret = ret;
    if (!hp->window)
        memset(hp->slides, 0, sizeof hp->slides);
}

static void read_scales(struct hparams_reader *r, struct hparams *hp)
{
    float plain = 1.0f / sqrtf((float)hp->d_head), scale = hparams_real(r, "attention.scale", 0, 1e6f, 0);
    hp->attn_scale = scale > 0 ? scale : plain;
    hp->attn_softcap = hparams_real(r, "attn_logit_softcapping", 0, 1e6f, 0);
    hp->logit_softcap = hparams_real(r, "final_logit_softcapping", 0, 1e6f, 0);
    hp->embed_scale = real(r, "embedding_scale", 1e6f, 1);
    hp->residual_scale = hparams_real(r, "residual_scale", 0, 1e6f, 0);
}

/* Whether the key exists and its value is neither 0 nor false. */
static bool is_set(const struct hparams_reader *r, const char *name)
{
    char key[128];
    struct hearth_err ignored;
    uint32_t u;
    float f;
    bool b;
    key_of(key, r, name);
    if (!gguf_u32(r->g, key, &u, &ignored))
        return u != 0;
    if (!gguf_f32(r->g, key, &f, &ignored))
        return f != 0;
    if (!gguf_bool(r->g, key, &b, &ignored))
        return b;
    return gguf_has(r->g, key);
}

/* Refuses keys that any file may have, but that only some architectures implement. */
static void refuse_unknown(struct hparams_reader *r, const struct hparams *hp, const struct arch *row)
{
    static const char *const keys[] = {
        "rope.dimension_sections",    "attention.clamp_kqv",      "attention.max_alibi_bias",
        "attention.shared_kv_layers", "use_parallel_residual",    "nextn_predict_layers",
        "attention.kv_lora_rank",     "attention.q_lora_rank",    "embedding_length_per_layer_input",
        "attention.key_length_swa",   "rope.dimension_count_swa", "moe_latent_size",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (is_set(r, keys[i]) && !reads(row, keys[i]) && !(hp->n_nextn && !strcmp(keys[i], "nextn_predict_layers")))
            hparams_refuse(r, HEARTH_EUNSUPPORTED, "key %s.%s asks for what hearth does not compute", r->arch, keys[i]);
}

/* Refuses keys that only some architectures implement: their hparams() have set the field, which is otherwise still
 * 0. */
static void refuse_unread(struct hparams_reader *r, struct hparams *hp)
{
    if (hp->logit_scale == 0 && hparams_real(r, "logit_scale", -INFINITY, INFINITY, 1) != 1)
        hparams_refuse(r, HEARTH_EUNSUPPORTED, "logits that are scaled (%s.logit_scale)", r->arch);
    if (hp->temperature == 0 && hparams_real(r, "attention.temperature_scale", -INFINITY, INFINITY, 0) != 0)
        hparams_refuse(r, HEARTH_EUNSUPPORTED, "an attention temperature (%s.attention.temperature_scale)", r->arch);
    if (hp->logit_scale == 0)
        hp->logit_scale = 1;
}

static const char *file_type(uint32_t t)
{
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",     [3] = "Q4_1",    [7] = "Q8_0",     [8] = "Q5_0",
        [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S",  [12] = "Q3_K_M", [13] = "Q3_K_L",  [14] = "Q4_K_S",
        [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",  [18] = "Q6_K",   [19] = "IQ2_XXS", [20] = "IQ2_XS",
        [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS", [25] = "IQ4_NL", [26] = "IQ3_S",   [27] = "IQ3_M",
        [28] = "IQ2_S",  [29] = "IQ2_M",  [30] = "IQ4_XS",  [32] = "BF16",   [38] = "MXFP4",   [39] = "NVFP4",
    };
    return t < sizeof names / sizeof *names && names[t] ? names[t] : "mixed";
}

/* Adds the layer to the group of that form, which is created where there is none. */
static void place_layer(struct hparams_reader *r, struct hparams *hp, uint32_t layer, struct kv_group form)
{
    uint32_t g = 0;
    while (g < hp->n_group && (hp->kv[g].n_kv != form.n_kv || hp->kv[g].d_k != form.d_k || hp->kv[g].d_v != form.d_v ||
                               hp->kv[g].window != form.window || hp->kv[g].d_state != form.d_state))
        g++;
    if (g == KV_GROUPS_MAX) {
        hparams_refuse(r, HEARTH_EUNSUPPORTED, "layers of more than %d kinds of KV", KV_GROUPS_MAX);
        return;
    }
    if (g == hp->n_group)
        hp->kv[hp->n_group++] = form;
    hp->group_of[layer] = (uint8_t)g;
    hp->index_of[layer] = (uint16_t)hp->kv[g].n_layer++;
}

/* Lets the layer share the KV of the last layer that has K and V of its own and the same kind of attention. */
static void share_kv(struct hparams_reader *r, struct hparams *hp, uint32_t layer, uint32_t n_own)
{
    uint32_t from = n_own;
    while (from && hp->slides[from - 1] != hp->slides[layer])
        from--;
    if (!from--) {
        hparams_refuse(r, HEARTH_EBADMODEL,
                       "layer %u has no layer before it whose K and V it could share (%s.attention.shared_kv_layers)",
                       layer, r->arch);
        return;
    }
    const struct layer_shape *own = &hp->shape[from], *l = &hp->shape[layer];
    if (own->n_kv != l->n_kv || own->d_head != l->d_head)
        hparams_refuse(
            r, HEARTH_EBADMODEL,
            "layer %u, of %u KV heads of %u, cannot share those of layer %u, %u of %u (%s.attention.shared_kv_layers)",
            layer, l->n_kv, l->d_head, from, own->n_kv, own->d_head, r->arch);
    hp->group_of[layer] = hp->group_of[from];
    hp->index_of[layer] = hp->index_of[from];
}

/* Assigns the layers to groups. A window that covers the whole context is treated as no window. */
static void group_layers(struct hparams_reader *r, struct hparams *hp)
{
    uint32_t n_own = hp->n_layer - hp->n_shared_kv;
    enum { ALL, WINDOWS, STATES, ORDER };
    for (int order = ALL; order < ORDER; order++)
        for (uint32_t i = 0; i < n_own && !r->ret; i++) {
            const struct layer_shape *l = &hp->shape[i];
            struct kv_group form = {.n_kv = l->n_kv, .d_k = l->d_head, .d_v = hp->latent.d_c ? 0 : l->d_head};
            if (hp->slides[i] && hp->window < hp->n_ctx)
                form.window = hp->window;
            if (hp->kind[i] == LAYER_RECURS)
                form = (struct kv_group){.d_state = hp->state.n};
            int its = form.d_state ? STATES : form.window ? WINDOWS : ALL;
            if (its == order && hp->kind[i] != LAYER_NEITHER)
                place_layer(r, hp, i, form);
        }
    for (uint32_t i = n_own; i < hp->n_layer && !r->ret; i++)
        share_kv(r, hp, i, n_own);
}

static void read_vocabulary(struct hparams_reader *r, struct hparams *hp)
{
    const struct gguf_tensor *t = gguf_tensor_find(r->g, "token_embd.weight");
    struct gguf_strs tokens;
    if (!t) {
        hparams_refuse(r, HEARTH_EBADMODEL, "tensor token_embd.weight is missing");
        return;
    }
    if (t->dim[0] != hp->d_model || t->dim[1] < 2 || t->dim[1] > 1 << 22 || t->dim[2] != 1 || t->dim[3] != 1)
        hparams_refuse(r, HEARTH_EBADMODEL,
                       "tensor token_embd.weight is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                       "; %u x the vocabulary is expected",
                       t->dim[0], t->dim[1], t->dim[2], t->dim[3], hp->d_model);
    hp->n_vocab = (uint32_t)t->dim[1];
    int ret = r->ret ? 1 : gguf_strs(r->g, "tokenizer.ggml.tokens", &tokens, r->e);
    if (ret < 0)
        r->ret = ret;
    if (!ret && tokens.n != hp->n_vocab)
        hparams_refuse(r, HEARTH_EBADMODEL, "%zu tokens in the vocabulary (vocab_size), %u in tensor token_embd.weight",
                       tokens.n, hp->n_vocab);
}

const char *model_type(const struct gguf *g)
{
    uint32_t type;
    struct hearth_err ignored;
    return gguf_u32(g, "general.file_type", &type, &ignored) ? "" : file_type(type);
}

bool hparams_is_ahead(const struct hparams *hp, struct gguf_str name)
{
    static const char blk[] = "blk.";
    uint32_t layer = 0;
    size_t first = sizeof blk - 1, at = first;
    if (!hp->n_nextn || name.n <= first || memcmp(name.s, blk, first))
        return false;
    for (; at < name.n && name.s[at] >= '0' && name.s[at] <= '9' && layer < LAYERS_MAX; at++)
        layer = 10 * layer + (uint32_t)(name.s[at] - '0');
    bool number = at > first && (name.s[first] != '0' || at == first + 1) && at + 1 < name.n && name.s[at] == '.';
    return number && layer >= hp->n_layer && layer < hp->n_layer + hp->n_nextn;
}

int model_hparams(struct hparams *out, const struct gguf *g, struct hearth_err *e)
{
    struct hparams hp = {0};
    struct gguf_str arch = {"", 0}, name = {"", 0};
    int ret = gguf_str(g, "general.architecture", &arch, e);
    if (ret < 0)
        return ret;
    bool missing = ret > 0; /* importance matrices have none */
    snprintf(hp.arch, sizeof hp.arch, "%.31s", gguf_label(arch).s);
    const struct arch *row = arch_find(arch.s, arch.n);
    if ((ret = model_kind_check(g, row != NULL, e)))
        return ret;
    if (missing)
        return err_set(e, HEARTH_EBADMODEL, "key general.architecture is missing");
    if (!row)
        return err_set(e, HEARTH_EUNSUPPORTED, "architecture \"%s\" is not one hearth runs", hp.arch);
    uint32_t type = 0;
    if ((ret = gguf_str(g, "general.name", &name, e)) < 0 || (ret = gguf_u32(g, "general.file_type", &type, e)) < 0)
        return ret;
    snprintf(hp.name, sizeof hp.name, "%s", gguf_label(name).s);
    snprintf(hp.type, sizeof hp.type, "%s", ret ? "" : file_type(type));

    struct hparams_reader r = {g, hp.arch, e, 0};
    hp.n_layer = hparams_number(&r, "block_count", 1, LAYERS_MAX, REQUIRED);
    if (row->skips_ahead && !r.ret)
        hp.n_nextn = hparams_number(&r, "nextn_predict_layers", 0, hp.n_layer - 1, 0);
    hp.n_layer = r.ret ? 0 : hp.n_layer - hp.n_nextn; /* no loop may run over a refused number of layers */
    hp.d_model = hparams_number(&r, "embedding_length", 8, 1 << 16, REQUIRED);
    hparams_read_shapes(&r, &hp, row);
    hp.n_ctx = hparams_number(&r, "context_length", 1, 1 << 24, REQUIRED);
    uint32_t even = r.ret || !hp.n_head ? 0 : hp.d_model / hp.n_head; /* a model without attention has none */
    hp.d_head = hparams_number(&r, "attention.key_length", 2, 1024, even);
    uint32_t d_value = hparams_number(&r, "attention.value_length", 2, 1024, hp.d_head);
    hp.n_rot[ROPE_FULL] = hparams_number(&r, "rope.dimension_count", 2, 1024, hp.d_head);
    if (!r.ret && hp.n_head && (hp.d_head < 2 || hp.d_head > 1024 || hp.d_head % 2))
        hparams_refuse(&r, HEARTH_EBADMODEL,
                       "heads of %u dimensions (%s.attention.key_length, or embedding_length by attention.head_count); "
                       "an even number from 2 to 1024 is possible",
                       hp.d_head, hp.arch);
    if (d_value != hp.d_head && !reads(row, "attention.value_length"))
        hparams_refuse(&r, HEARTH_EUNSUPPORTED, "values of %u dimensions (%s.attention.value_length) beside keys of %u",
                       d_value, hp.arch, hp.d_head);
    if (hp.n_rot[ROPE_FULL] > hp.d_head || hp.n_rot[ROPE_FULL] % 2)
        hparams_refuse(&r, HEARTH_EBADMODEL,
                       "RoPE turns %u of %u dimensions (%s.rope.dimension_count, attention.key_length)",
                       hp.n_rot[ROPE_FULL], hp.d_head, hp.arch);
    hp.n_rot[ROPE_SLIDING] = hp.n_rot[ROPE_FULL];
    for (uint32_t i = 0; i < hp.n_layer; i++)
        hp.shape[i].d_head = (uint16_t)hp.d_head;
    hparams_read_experts(&r, &hp, row);
    hparams_read_state(&r, &hp, row);
    hp.norm_eps = real(
        &r, row->norm == NORM_LAYER ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1, REQUIRED);
    if (!hparams_flag(&r, "attention.causal", true))
        hparams_refuse(&r, HEARTH_EUNSUPPORTED, "attention to later tokens (%s.attention.causal)", hp.arch);
    if (!r.ret) {
        for (uint32_t i = 0; i < hp.n_layer; i++)
            hp.turns[i] = !row->still || (i + 1) % row->still != 0;
        int rc = gguf_flags(g, "hearth.rope.layers", hp.turns, hp.n_layer, e);
        r.ret = rc < 0 ? rc : 0;
    }
    read_rope(&r, &hp, row);
    read_window(&r, &hp, row);
    read_scales(&r, &hp);
    if (row->hparams && !r.ret)
        row->hparams(&hp, &r);
    refuse_unread(&r, &hp);
    refuse_unknown(&r, &hp, row);
    read_vocabulary(&r, &hp);
    group_layers(&r, &hp);
    if (r.ret)
        return r.ret;

    for (size_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        hp.n_param += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        hp.weight_bytes += hparams_is_ahead(&hp, t->name) ? 0 : t->bytes; /* those are not loaded */
    }
    *out = hp;
    return 0;
}
