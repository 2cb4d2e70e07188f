/*
 * small.h - a backend that claims to be a GPU with little memory: what an engine does with a model that does not fit,
 * on any machine. A matrix takes SMALL_FACTOR times its size in the file, and one too many is refused, as a GPU would;
 * matrices that are kept in host memory are counted, and computed with like all others. There is one per process.
 * Thread: the device's.
 */
#ifndef HEARTH_TESTS_SMALL_H
#define HEARTH_TESTS_SMALL_H

#include "kernels/backend.h"

enum { SMALL_FACTOR = 32 };

extern const char *small_bytes; /* bytes of its memory, in decimal; set before the engine is opened */

/* An engine_wrap(): returns an error if small_bytes is not a number. */
const struct backend *small_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
