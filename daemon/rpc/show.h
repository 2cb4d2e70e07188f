/* show.h - the method sessions.show: a long session is read and packed on a thread. Loop thread. */
#ifndef DAEMON_SHOW_H
#define DAEMON_SHOW_H

#include "daemon/rpc/dispatch.h"

/* Waits for the thread, and fails the calls that wait for it; NULL is allowed. */
void shows_free(struct shows *all);

#endif
