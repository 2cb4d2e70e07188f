/*
 * paced.h - a backend that takes the time of a GPU and computes nothing: how the engine plans for one, seen through a
 * real daemon by real clients on any machine. Its steps are done one after the other beside the host, up to four in
 * flight, each after a time that a formula of its rows and contexts says, and a submission keeps the host as long as it
 * was seen to; both are of Llama 3 8B in Q4_K_M on an H100 (tests/bench/NOTES.md), times a factor. What steps sample
 * depends on the position alone. Of a GPU it does not have: a queue of launches that is full, clocks that change with
 * the load, memory. The self-check is the inner backend's. One in a process. Thread: the device's.
 */
#ifndef HEARTH_TESTS_PACED_H
#define HEARTH_TESTS_PACED_H

#include "kernels/backend.h"

/*
 * FACTOR[,trials][,slow]; set before the engine is opened. With `trials` the first product of each multiple of 64 rows
 * has the host wait until the device is idle and 60 ms beyond, as cuBLASLt's do; with `slow` every second
 * submission of a long step takes the host 8.4 ms instead of 4, as was seen, and is not explained.
 */
extern const char *paced_by;

/* An engine_wrap(): fails where paced_by is neither. */
const struct backend *paced_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
