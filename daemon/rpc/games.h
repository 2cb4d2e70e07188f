/* games.h - while a game is registered with GameMode, memory is yielded as by `yield all`, and taken back when the last
 * one has gone: the engines are told so, and the next ones that are started. Loop thread. */
#ifndef DAEMON_GAMES_H
#define DAEMON_GAMES_H

#include "daemon/context.h"

struct engine_client;
/* Begins to listen, where the configuration says so. What fails is logged and told by `status`. */
void games_open(struct server *s);
void games_close(struct server *s);

/* Tells an engine that was started since a game began: ahead of every call, so that what waits for a new engine comes
 * after it, and once it is `ready`, as the game may have begun between. */
void games_tell(struct server *s, struct engine_client *ec, bool ready);

/* How many run, as far as it is known; `why`: why it is not, or "". */
uint32_t games_running(const struct server *s, char why[static HEARTH_ERR_MSG]);

#endif
