/*
 * fault.h - a device that fails when a test wants it to: a backend's function table that wraps another one's.
 *
 * A GPU cannot be lost on demand, and what the engine does then must be tested. So this table passes every call on
 * until the specified one. From there on the device has failed, as after a sticky CUDA error: ops do nothing, moves are
 * never done, and every call that can report an error returns HEARTH_EDEVICE, always. The failing call itself is
 * accepted, because a GPU also notices errors later. If the device is a GPU, a step fails for real: its first layer
 * reads a norm's weights from an invalid address, which gives the driver's own sticky error.
 *
 * The production engine does not contain this: main.c here is the engine's program with this table. There is one per
 * process, for the lifetime of the process. Thread: the device's.
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
 * or the absolute path of a file that will contain such a line. The file is removed when it has been read: calls count
 * from then on, and the engine that is started next does not fail.
 */
extern const char *fault_when;

/* An engine_wrap(): returns an error if fault_when has neither form. */
const struct backend *fault_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

#endif
