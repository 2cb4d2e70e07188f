/* kind.h - the kind of model in a file, according to its keys. People download adapters and projectors beside language
 * models; an error message tells them what such a file is. */
#ifndef HEARTH_MODEL_KIND_H
#define HEARTH_MODEL_KIND_H

#include "daemon/model/gguf.h"

enum model_kind {
    KIND_LANGUAGE,
    KIND_EMBEDDING,  /* turns texts into vectors: an encoder, or a decoder that was trained to be pooled */
    KIND_ADAPTER,    /* a LoRA: differences to a model's weights */
    KIND_PROJECTOR,  /* the part that turns images or sounds into a language model's embeddings */
    KIND_VOCABULARY, /* a model's keys without any tensors */
    KIND_OTHER,      /* another general.type, such as an importance matrix */
};
enum model_kind model_kind(const struct gguf *g);
const char *model_kind_name(enum model_kind kind); /* "language", "adapter" */

/* Returns 0 where the file may be a language model, otherwise HEARTH_EUNSUPPORTED with a message that says what it is
 * instead. `runs`: hearth implements its architecture. */
int model_kind_check(const struct gguf *g, bool runs, struct hearth_err *e);

#endif
