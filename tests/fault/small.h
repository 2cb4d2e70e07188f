/*
 * small.h - a backend that says it is a GPU with little memory of its own: what an engine does with a model that has no
 * room there, on any machine. A matrix takes SMALL_FACTOR times what it takes in the file, and one too many is refused,
 * as a GPU refuses it; those that are kept in the host's memory are counted, and computed with as all others. One in a
 * process. Thread: the device's.
 */
#ifndef HEARTH_TESTS_SMALL_H
#define HEARTH_TESTS_SMALL_H

#include "kernels/backend.h"

enum { SMALL_FACTOR = 32 };

extern const char *small_bytes; /* of its memory, in decimal; set before the engine is opened */

/* An engine_wrap(): fails where small_bytes is no number. */
const struct backend *small_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
