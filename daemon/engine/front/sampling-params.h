/* sampling-params.h - a request's sampling fields, turned into what the backends sample by. The codec has checked
 * their ranges; what depends on the vocabulary is checked here. */
#ifndef HEARTH_ENGINE_SAMPLE_H
#define HEARTH_ENGINE_SAMPLE_H

#include "kernels/backend.h"
#include "libclient/wire.h"

/*
 * `logprobs` as in wire_generate. *bias is the list that out->bias points to, the caller's to free (NULL: none).
 * A seed is taken from *w or drawn. HEARTH_EPARAMS names what is not in the vocabulary.
 */
int sample_params_make(const struct wire_sampling *w, int64_t logprobs, uint32_t n_vocab, struct sample_params *out,
                       struct logit_bias **bias, struct hearth_err *e);

#endif
