/* sampling-params.c - checks and converts sampling fields; see sampling-params.h. */
#include "config.h"

#include "daemon/engine/front/sampling-params.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The request's biases, and those of the tokens that the model's file forbids: biases of one id add up, so that
 * -INFINITY prevails. */
static int make_bias(const struct gguf *g, const struct wire_sampling *w, uint32_t n_vocab, struct logit_bias **out,
                     uint32_t *n, struct hearth_err *e)
{
    struct gguf_nums never = {0};
    *out = NULL, *n = 0;
    int ret = gguf_i32s(g, "tokenizer.ggml.suppress_tokens", &never, e);
    size_t all = w->n_logit_bias + never.n;
    if (ret < 0)
        return ret;
    if (!all)
        return 0;
    struct logit_bias *b = reallocarray(NULL, all, sizeof *b);
    if (!b)
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu logit biases", all);
    for (size_t i = 0; i < w->n_logit_bias; i++) {
        int64_t id = w->logit_bias[i].id;
        if (id < 0 || id >= n_vocab) {
            free(b);
            return err_set(e, HEARTH_EPARAMS,
                           "generate.sampling.logit_bias[%zu]: token %lld is not in the vocabulary of %u", i,
                           (long long)id, n_vocab);
        }
        b[i] = (struct logit_bias){(uint32_t)id, (float)w->logit_bias[i].bias};
    }
    size_t kept = w->n_logit_bias;
    for (size_t i = 0; i < never.n; i++) {
        int32_t id = gguf_i32_at(&never, i); /* loading the vocabulary has checked that it is a token */
        if ((uint32_t)id < n_vocab)
            b[kept++] = (struct logit_bias){(uint32_t)id, -INFINITY};
    }
    *out = b, *n = (uint32_t)kept;
    return 0;
}

/* The values that a request may leave open. llama.cpp uses -1 for "the whole context" and other numbers below 1 for
 * "off" where hearth uses 0. */
static const struct {
    const char *key;
    size_t offset;
    bool is_int;
    double lo, hi, otherwise;
} opens[] = {
    {"general.sampling.temp", offsetof(struct wire_sampling, temperature), false, 0, 100, 0.8},
    {"general.sampling.top_k", offsetof(struct wire_sampling, top_k), true, 0, 1000000, 40},
    {"general.sampling.top_p", offsetof(struct wire_sampling, top_p), false, 0, 1, 0.95},
    {"general.sampling.min_p", offsetof(struct wire_sampling, min_p), false, 0, 1, 0.05},
    {"general.sampling.penalty_repeat", offsetof(struct wire_sampling, repetition_penalty), false, 0.01, 100, 1},
    {"general.sampling.penalty_last_n", offsetof(struct wire_sampling, penalty_last), true, 0, WIRE_TOKENS_MAX, 64},
};

/* Returns 1 if the file has no such key. */
static int recommended(const struct gguf *g, size_t i, double *out, struct hearth_err *e)
{
    float real;
    int64_t whole;
    int ret = opens[i].is_int ? gguf_i64(g, opens[i].key, &whole, e) : gguf_f32(g, opens[i].key, &real, e);
    if (ret)
        return ret;
    *out = opens[i].is_int ? (double)(whole < 0 ? 0 : whole) : (double)real;
    if (*out >= opens[i].lo && *out <= opens[i].hi) /* false for NaN */
        return 0;
    return err_set(e, HEARTH_EBADMODEL, "key %s is %g; %g to %g is possible", opens[i].key, *out, opens[i].lo,
                   opens[i].hi);
}

/* With a penalty_last_n of 0 llama.cpp penalises nothing, where hearth's 0 is all tokens: neither that number nor the
 * penalty that comes with it is taken from such a file. */
bool sample_params_no_penalty(const struct gguf *g)
{
    struct hearth_err ignored;
    int64_t last;
    return !gguf_i64(g, "general.sampling.penalty_last_n", &last, &ignored) && last == 0;
}

int sample_params_fill(const struct gguf *g, struct wire_sampling *w, struct hearth_err *e)
{
    bool nothing = w->penalty_last < 0 && sample_params_no_penalty(g);
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++) {
        char *at = (char *)w + opens[i].offset;
        int64_t *whole = (int64_t *)(void *)at;
        double *real = (double *)(void *)at, value;
        if (opens[i].is_int ? *whole >= 0 : *real >= 0)
            continue;
        bool penalty = opens[i].offset == offsetof(struct wire_sampling, repetition_penalty) ||
                       opens[i].offset == offsetof(struct wire_sampling, penalty_last);
        int ret = nothing && penalty ? 1 : recommended(g, i, &value, e);
        if (ret < 0)
            return ret;
        value = ret ? opens[i].otherwise : value;
        if (opens[i].is_int)
            *whole = (int64_t)value;
        else
            *real = value;
    }
    return 0;
}

int sample_params_make(const struct gguf *g, const struct wire_sampling *w, int64_t logprobs, uint32_t n_vocab,
                       struct sample_params *out, struct logit_bias **bias, struct hearth_err *e)
{
    struct sample_params p = {
        .temp = (float)w->temperature,
        .top_k = w->top_k < n_vocab ? (uint32_t)w->top_k : 0,
        .top_p = (float)w->top_p,
        .min_p = (float)w->min_p,
        .rep_penalty = (float)w->repetition_penalty,
        .presence_penalty = (float)w->presence_penalty,
        .frequency_penalty = (float)w->frequency_penalty,
        .penalty_last = (uint32_t)w->penalty_last,
        .seed = w->seed,
        /* logprobs = 0 requests only the sampled token's: the backend returns one alternative, which is not sent. */
        .n_logprobs = logprobs < 0    ? 0
                      : logprobs == 0 ? 1
                                      : (uint32_t)logprobs,
    };
    if (!w->has_seed && getrandom(&p.seed, sizeof p.seed, 0) != sizeof p.seed)
        return err_set(e, HEARTH_EIO, "cannot draw a seed: %s", strerror(errno));
    if (!w->has_seed)
        p.seed >>= 11; /* JSON and editors use doubles, which preserve 53 bits */
    int rc = make_bias(g, w, n_vocab, bias, &p.n_bias, e);
    if (rc)
        return rc;
    p.bias = *bias;
    *out = p;
    return 0;
}
