/*
 * fault.h - a device that fails when a test wants it to: a backend's table in front of another one's.
 *
 * What a lost GPU does cannot be had on demand, and what the engine does then must be tested. So this table passes
 * every call on until the one that was named. From there on the device is dead as after a sticky CUDA error: ops do
 * nothing, moves are never done, and every call that can say so returns HEARTH_EDEVICE, always. The failing call itself
 * is accepted, because a GPU too finds out later. Where the device is a GPU, a step fails for real: its first layer
 * reads a norm's weights from an address that nobody has, and what comes of it is the driver's own sticky error.
 *
 * The engine that serves does not have it: main.c here is the engine's program with this table. One in a process, which
 * does not outlive it. Thread: the device's.
 */
#ifndef HEARTH_TESTS_FAULT_H
#define HEARTH_TESTS_FAULT_H

#include "kernels/backend.h"

/*
 * When the device fails; set before the engine is opened. It is WHAT=N, the Nth call of that kind:
 *
 *   load     a matrix is uploaded        step     a step begins
 *   save     KV goes to host memory      restore  KV comes from there
 *   any      one of these                hang     a step is waited for, and never ends
 *   hang-load     a matrix is uploaded, which never ends
 *
 * or the absolute path of a file that holds such a line. The file is waited for, and taken away when it is read: calls
 * count from then on, and the engine that is started next is well.
 */
extern const char *fault_when;

/* An engine_wrap(): fails where fault_when is neither. */
const struct backend *fault_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
