/* show.h - the method sessions.show: a long session is read and packed on a thread. Loop thread. */
#ifndef DAEMON_SHOW_H
#define DAEMON_SHOW_H

#include "daemon/rpc/dispatch.h"

/* Waits for the thread, and fails what waits for it; NULL: nothing does. */
void shows_free(struct shows *all);

#endif
