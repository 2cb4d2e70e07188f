/* yields.h - memory that is yielded for a limited time (`yield`): each running engine frees memory of its device. An
 * engine that starts meanwhile is notified before anything else, so that it does not take the yielded memory. Loop
 * thread. */
#ifndef DAEMON_YIELDS_H
#define DAEMON_YIELDS_H

#include "daemon/context.h"

struct engine_client;

/* Seconds that the yield in effect still lasts; 0: there is none. */
double yields_left(const struct server *s);

/* What an engine is told about the time that is left: 0 seconds, which end a yield, if no yield is in effect. */
struct wire_engine_yield yields_rest(const struct server *s, const struct engine_client *ec);

int yields_open(struct server *s, struct hearth_err *e);
void yields_close(struct server *s);

/* Notifies an engine that was started during a yield and has not been notified yet. Called ahead of every call to it,
 * so that requests waiting for a new engine come after it. */
void yields_tell(struct server *s, struct engine_client *ec);

#endif
