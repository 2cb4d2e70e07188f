/* loop.h - the device thread: it opens the device and the tiers, and turns until the engine ends. */
#ifndef HEARTH_ENGINE_LOOP_H
#define HEARTH_ENGINE_LOOP_H

#include "daemon/engine/core/device.h"

/* The thread. arg: the struct engine, whose `opened` is posted once the device is open, or open_err says why not. */
void *loop_main(void *arg);

#endif
