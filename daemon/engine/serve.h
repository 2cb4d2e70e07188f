/* serve.h - all of hearth-engine except main(): options, the lock, the loop. Thread: the process's main thread. */
#ifndef HEARTH_ENGINE_SERVE_H
#define HEARTH_ENGINE_SERVE_H

#include "daemon/engine/engine.h"

/* Reads the options and serves until the link closes; returns an exit status. `wrap` may be NULL; see engine.h. */
int serve_main(int argc, char **argv, engine_wrap *wrap);

#endif
