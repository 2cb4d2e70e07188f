/* hparams.c - a model's hyperparameters, from metadata and the shape of its embedding; every one checked. */
#include "daemon/model/model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "daemon/model/arch/arch.h"

struct hparams_reader {
    const struct gguf *g;
    const char *arch;
    struct hearth_err *e;
    int ret; /* the first error; later calls do nothing */
};

static void key_of(char out[128], const struct hparams_reader *r, const char *name)
{
    snprintf(out, 128, "%s.%s", r->arch, name);
}

enum { REQUIRED = -1 };

/* An integer within [min, max]; `absent` where the key is not there, or REQUIRED. */
static uint32_t number(struct hparams_reader *r, const char *name, uint32_t min, uint32_t max, int64_t absent)
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
    return v;
}

/* A float above 0, up to max; `absent` where the key is not there, or REQUIRED. */
static float real(struct hparams_reader *r, const char *name, float max, float absent)
{
    char key[128];
    float v = 0;
    if (r->ret)
        return 0;
    key_of(key, r, name);
    int ret = gguf_f32(r->g, key, &v, r->e);
    if (ret > 0 && absent != REQUIRED)
        return absent;
    if (ret > 0)
        r->ret = err_set(r->e, HEARTH_EBADMODEL, "key %s is missing", key);
    else if (ret < 0)
        r->ret = ret;
    else if (!(v > 0 && v <= max))
        r->ret = err_set(r->e, HEARTH_EBADMODEL, "key %s is %g; it must be above 0 and at most %g", key, (double)v,
                         (double)max);
    return v;
}

static void __attribute__((format(printf, 3, 4))) refuse(struct hparams_reader *r, int code, const char *fmt, ...)
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

/* None or linear scaling; the others change the frequencies in ways that would have to be built first. */
static float rope_divisor(struct hparams_reader *r)
{
    char key[128];
    struct gguf_str type = {"", 0};
    key_of(key, r, "rope.scaling.type");
    if (!r->ret && gguf_str(r->g, key, &type, r->e) < 0)
        r->ret = HEARTH_EBADMODEL;
    float linear = real(r, "rope.scale_linear", 1e6f, 1); /* what old files have instead of a type */
    float factor = real(r, "rope.scaling.factor", 1e6f, linear);
    if (!type.n || gguf_str_is(type, "linear"))
        return factor;
    if (!gguf_str_is(type, "none"))
        refuse(r, HEARTH_EUNSUPPORTED, "RoPE scaling \"%s\" (%s); none and linear are supported", gguf_label(type).s,
               key);
    return 1;
}

static bool causal(struct hparams_reader *r)
{
    char key[128];
    bool v = true;
    key_of(key, r, "attention.causal");
    if (!r->ret && gguf_bool(r->g, key, &v, r->e) < 0)
        r->ret = HEARTH_EBADMODEL;
    return v;
}

static const char *file_type(uint32_t t)
{
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",    [8] = "Q5_0",
        [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S",
        [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K",   [32] = "BF16",
    };
    return t < sizeof names / sizeof *names && names[t] ? names[t] : "mixed";
}

static void read_vocabulary(struct hparams_reader *r, struct hparams *hp)
{
    const struct gguf_tensor *t = gguf_tensor_find(r->g, "token_embd.weight");
    struct gguf_strs tokens;
    if (!t) {
        refuse(r, HEARTH_EBADMODEL, "tensor token_embd.weight is missing");
        return;
    }
    if (t->n_dim != 2 || t->dim[0] != hp->d_model || t->dim[1] < 2 || t->dim[1] > 1 << 22)
        refuse(r, HEARTH_EBADMODEL,
               "tensor token_embd.weight is %" PRIu64 " x %" PRIu64 "; %u x the vocabulary is expected", t->dim[0],
               t->dim[1], hp->d_model);
    hp->n_vocab = (uint32_t)t->dim[1];
    int ret = r->ret ? 1 : gguf_strs(r->g, "tokenizer.ggml.tokens", &tokens, r->e);
    if (ret < 0)
        r->ret = ret;
    if (!ret && tokens.n != hp->n_vocab)
        refuse(r, HEARTH_EBADMODEL, "%zu tokens in the vocabulary, %u in token_embd.weight", tokens.n, hp->n_vocab);
}

int model_hparams(struct hparams *out, const struct gguf *g, struct hearth_err *e)
{
    struct hparams hp = {0};
    struct gguf_str arch, name = {"", 0};
    int ret = gguf_str(g, "general.architecture", &arch, e);
    if (ret)
        return ret < 0 ? ret : err_set(e, HEARTH_EBADMODEL, "key general.architecture is missing");
    snprintf(hp.arch, sizeof hp.arch, "%.31s", gguf_label(arch).s);
    if (!arch_find(arch.s, arch.n))
        return err_set(e, HEARTH_EUNSUPPORTED, "architecture \"%s\" is not one hearth runs", hp.arch);
    uint32_t type = 0;
    if ((ret = gguf_str(g, "general.name", &name, e)) < 0 || (ret = gguf_u32(g, "general.file_type", &type, e)) < 0)
        return ret;
    snprintf(hp.name, sizeof hp.name, "%s", gguf_label(name).s);
    snprintf(hp.type, sizeof hp.type, "%s", ret ? "" : file_type(type));

    struct hparams_reader r = {g, hp.arch, e, 0};
    hp.n_layer = number(&r, "block_count", 1, 1024, REQUIRED);
    hp.d_model = number(&r, "embedding_length", 8, 1 << 16, REQUIRED);
    hp.d_ff = number(&r, "feed_forward_length", 8, 1 << 20, REQUIRED);
    hp.n_head = number(&r, "attention.head_count", 1, 1024, REQUIRED);
    hp.n_kv = number(&r, "attention.head_count_kv", 1, 1024, hp.n_head);
    hp.n_ctx = number(&r, "context_length", 1, 1 << 24, REQUIRED);
    if (!r.ret && hp.n_head % hp.n_kv)
        refuse(&r, HEARTH_EBADMODEL, "%u heads cannot share %u KV heads", hp.n_head, hp.n_kv);
    uint32_t even = r.ret ? 0 : hp.d_model / hp.n_head;
    hp.d_head = number(&r, "attention.key_length", 2, 1024, even);
    uint32_t d_value = number(&r, "attention.value_length", 2, 1024, hp.d_head);
    hp.n_rot = number(&r, "rope.dimension_count", 2, 1024, hp.d_head);
    if (!r.ret && (hp.d_head < 2 || hp.d_head > 1024 || hp.d_head % 2))
        refuse(&r, HEARTH_EBADMODEL, "heads of %u dimensions; an even number from 2 to 1024 is possible", hp.d_head);
    if (d_value != hp.d_head)
        refuse(&r, HEARTH_EUNSUPPORTED, "values of %u dimensions beside keys of %u", d_value, hp.d_head);
    if (hp.n_rot > hp.d_head || hp.n_rot % 2)
        refuse(&r, HEARTH_EBADMODEL, "RoPE turns %u of %u dimensions", hp.n_rot, hp.d_head);
    if (number(&r, "expert_count", 0, UINT32_MAX, 0))
        refuse(&r, HEARTH_EUNSUPPORTED, "a mixture of experts, which hearth does not run");
    hp.norm_eps = real(&r, "attention.layer_norm_rms_epsilon", 1, REQUIRED);
    hp.rope_base = real(&r, "rope.freq_base", 1e12f, 10000);
    hp.rope_divisor = rope_divisor(&r);
    float attn_factor = real(&r, "rope.scaling.attn_factor", 1e6f, 1);
    if (attn_factor != 1)
        refuse(&r, HEARTH_EUNSUPPORTED, "RoPE that multiplies by %g (%s.rope.scaling.attn_factor)", (double)attn_factor,
               hp.arch);
    if (!causal(&r))
        refuse(&r, HEARTH_EUNSUPPORTED, "attention to later tokens (%s.attention.causal)", hp.arch);
    /* Within its sliding window such a model is exactly what it is without one; further it is not run. */
    uint32_t window = number(&r, "attention.sliding_window", 0, UINT32_MAX, 0);
    if (window && window < hp.n_ctx)
        hp.n_ctx = window;
    read_vocabulary(&r, &hp);
    if (r.ret)
        return r.ret;

    for (size_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        hp.n_param += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        hp.weight_bytes += t->bytes;
    }
    *out = hp;
    return 0;
}
