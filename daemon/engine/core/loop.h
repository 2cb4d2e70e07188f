/* loop.h - the device thread: opens the device and the tiers, and loops until the engine ends. */
#ifndef HEARTH_ENGINE_LOOP_H
#define HEARTH_ENGINE_LOOP_H

#include "daemon/engine/core/device.h"

/* The thread's function. arg: the struct engine, whose `opened` is posted once the device is open or open_err says why
 * it is not. */
void *loop_main(void *arg);

#endif
