/* sampling-params.c - checks and converts sampling fields; see sampling-params.h. */
#include "config.h"

#include "daemon/engine/front/sampling-params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int make_bias(const struct wire_sampling *w, uint32_t n_vocab, struct logit_bias **out, struct hearth_err *e)
{
    *out = NULL;
    if (!w->n_logit_bias)
        return 0;
    struct logit_bias *b = malloc(w->n_logit_bias * sizeof *b);
    if (!b)
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu logit biases", w->n_logit_bias);
    for (size_t i = 0; i < w->n_logit_bias; i++) {
        int64_t id = w->logit_bias[i].id;
        if (id < 0 || id >= n_vocab) {
            free(b);
            return err_set(e, HEARTH_EPARAMS, "sampling.logit_bias[%zu]: token %lld is not in the vocabulary of %u", i,
                           (long long)id, n_vocab);
        }
        b[i] = (struct logit_bias){(uint32_t)id, (float)w->logit_bias[i].bias};
    }
    *out = b;
    return 0;
}

int sample_params_make(const struct wire_sampling *w, int64_t logprobs, uint32_t n_vocab, struct sample_params *out,
                       struct logit_bias **bias, struct hearth_err *e)
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
        /* logprobs = 0 asks for the sampled token's alone: the backend returns one alternative, which is not sent on.
         */
        .n_logprobs = logprobs < 0    ? 0
                      : logprobs == 0 ? 1
                                      : (uint32_t)logprobs,
        .n_bias = (uint32_t)w->n_logit_bias,
    };
    if (!w->has_seed && getrandom(&p.seed, sizeof p.seed, 0) != sizeof p.seed)
        return err_set(e, HEARTH_EIO, "cannot draw a seed: %s", strerror(errno));
    if (!w->has_seed)
        p.seed >>= 11; /* 53 bits survive JSON and editors, whose numbers are doubles */
    int rc = make_bias(w, n_vocab, bias, e);
    if (rc)
        return rc;
    p.bias = *bias;
    *out = p;
    return 0;
}
