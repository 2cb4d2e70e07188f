/* kind.h - what a model file is, as its keys say: people download adapters and projectors beside language models, and
 * they are told which is which. */
#ifndef HEARTH_MODEL_KIND_H
#define HEARTH_MODEL_KIND_H

#include "daemon/model/gguf.h"

enum model_kind {
    KIND_LANGUAGE,
    KIND_EMBEDDING,  /* makes vectors of texts: an encoder, or a decoder that was trained to be pooled */
    KIND_ADAPTER,    /* a LoRA: differences to a model's weights */
    KIND_PROJECTOR,  /* what turns images or sounds into a language model's embeddings */
    KIND_VOCABULARY, /* keys of a model and no tensors */
    KIND_OTHER,      /* another general.type, such as an importance matrix */
};
enum model_kind model_kind(const struct gguf *g);
const char *model_kind_name(enum model_kind kind); /* "language", "adapter" */

/* 0 where the file may be a language model; HEARTH_EUNSUPPORTED says what it is instead. `runs`: its architecture is
 * one that hearth has. */
int model_kind_check(const struct gguf *g, bool runs, struct hearth_err *e);

#endif
