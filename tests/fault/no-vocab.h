/*
 * no-vocab.h - a temporary lack of memory for vocabularies: loading one fails as long as a file exists. The engine's
 * backend is unchanged. Thread: the workers'.
 */
#ifndef HEARTH_TESTS_NO_VOCAB_H
#define HEARTH_TESTS_NO_VOCAB_H

#include "kernels/backend.h"

extern const char *no_vocab_while; /* that file; set before the engine is opened */

/* An engine_wrap(), which returns the backend unchanged. */
const struct backend *no_vocab_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
