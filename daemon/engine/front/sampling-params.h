/* sampling-params.h - converts a request's sampling fields to the backends' struct sample_params. The codec has checked
 * their ranges; what depends on the vocabulary is checked here. */
#ifndef HEARTH_ENGINE_SAMPLE_H
#define HEARTH_ENGINE_SAMPLE_H

#include "kernels/backend.h"
#include "libclient/wire.h"

/*
 * `logprobs` is wire_generate's. *bias is the list that out->bias points to, the caller's to free, or NULL. The seed is
 * that of *w, or drawn where it has none. HEARTH_EPARAMS names a token that is not in the vocabulary.
 */
int sample_params_make(const struct wire_sampling *w, int64_t logprobs, uint32_t n_vocab, struct sample_params *out,
                       struct logit_bias **bias, struct hearth_err *e);

#endif
