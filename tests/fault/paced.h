/*
 * paced.h - a backend that takes the time of a GPU and computes nothing. It shows on any machine how the engine plans
 * for a GPU, through a real daemon with real clients. Its steps run one after another beside the host, up to four in
 * flight, each for a time that is a formula of its rows and contexts, and a submission occupies the host for as long as
 * was measured; both are those of Llama 3 8B in Q4_K_M on an H100 (tests/bench/NOTES.md), times a factor. What steps
 * sample depends only on the position, unless it is asked to compute. It does not model a full queue of launches,
 * clocks that change with the load, or memory. The self-check is the inner backend's. There is one per process. Thread:
 * the device's.
 */
#ifndef HEARTH_TESTS_PACED_H
#define HEARTH_TESTS_PACED_H

#include "kernels/backend.h"

/*
 * FACTOR[,trials][,slow][,computes]; set before the engine is opened. With `trials` the first product of each multiple
 * of 64 rows blocks the host until the device is idle and for 60 ms more, as trying cuBLASLt's algorithms does; with
 * `slow` every second submission of a long step takes the host 8.4 ms instead of 4, which was measured and is not
 * explained. With `computes` the inner backend computes each step as it is submitted, so that texts can be compared
 * with several steps in flight.
 */
extern const char *paced_by;

/* An engine_wrap(): returns an error if paced_by does not have that form. */
const struct backend *paced_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
