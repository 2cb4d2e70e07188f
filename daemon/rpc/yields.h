/* yields.h - memory that is yielded for a while (`yield`): each engine that runs gives its device's, and one that
 * starts meanwhile is told so before anything else, so that it takes nothing of it. Loop thread. */
#ifndef DAEMON_YIELDS_H
#define DAEMON_YIELDS_H

#include "daemon/context.h"

struct engine_client;

/* Seconds for which one holds yet; 0: none does. */
double yields_left(const struct server *s);

int yields_open(struct server *s, struct hearth_err *e);
void yields_close(struct server *s);

/* Tells an engine of the yield that holds, where it was started since and has not heard it.
 * Ahead of every call: what waits for a new engine comes after it. */
void yields_tell(struct server *s, struct engine_client *ec);

#endif
