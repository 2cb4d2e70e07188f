/*
 * no-vocab.h - vocabularies for which there is no memory for a while: the reading of one fails as long as a file is
 * there. The engine's backend stays as it is. Thread: the workers'.
 */
#ifndef HEARTH_TESTS_NO_VOCAB_H
#define HEARTH_TESTS_NO_VOCAB_H

#include "kernels/backend.h"

extern const char *no_vocab_while; /* that file; set before the engine is opened */

/* An engine_wrap(), which changes nothing. */
const struct backend *no_vocab_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
