/* sampling-params.h - converts a request's sampling fields to the backends' struct sample_params. The codec has checked
 * their ranges; checks that depend on the vocabulary are made here. */
#ifndef HEARTH_ENGINE_SAMPLING_PARAMS_H
#define HEARTH_ENGINE_SAMPLING_PARAMS_H

#include "daemon/model/gguf.h"
#include "kernels/backend.h"
#include "libclient/wire.h"

/* Sets the fields that the request leaves open (HEARTH_UNSET): to what the model's file recommends
 * (general.sampling.*), otherwise to hearth's defaults. HEARTH_EBADMODEL if a key has another type or is out of
 * range. */
int sample_params_fill(const struct gguf *g, struct wire_sampling *w, struct hearth_err *e);
/* Whether the file has a penalty of no tokens, so that neither of its two keys for it is taken. */
bool sample_params_no_penalty(const struct gguf *g);

/*
 * `logprobs` is wire_generate's; no field of *w may be open. *bias is the list that out->bias points to, which the
 * caller frees, or NULL. It holds the request's biases, and -INFINITY for each token of tokenizer.ggml.suppress_tokens
 * (of llama.cpp's converter: suppress_tokens in generation_config.json), which is never sampled. The seed is that of
 * *w, or drawn at random if it has none. HEARTH_EPARAMS names a token that is not in the vocabulary.
 */
int sample_params_make(const struct gguf *g, const struct wire_sampling *w, int64_t logprobs, uint32_t n_vocab,
                       struct sample_params *out, struct logit_bias **bias, struct hearth_err *e);

#endif
