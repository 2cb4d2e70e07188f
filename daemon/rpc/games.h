/* games.h - while a game is registered with GameMode, memory is yielded to it as by `yield all`, and reclaimed when the
 * last game has exited. Running engines are notified, and so are engines that start meanwhile. Loop thread. */
#ifndef DAEMON_GAMES_H
#define DAEMON_GAMES_H

#include "daemon/context.h"

struct engine_client;
/* Starts listening, if the configuration has it on. A failure is logged and reported by `status`. */
void games_open(struct server *s);
void games_close(struct server *s);

/* Notifies an engine that was started after a game began. Called ahead of every call to it, so that requests waiting
 * for a new engine come after it, and again when it is `ready`, as the game may have begun in between. */
void games_tell(struct server *s, struct engine_client *ec, bool ready);

/* The number of running games, as far as it is known; `why` is the reason why it is not, or "". */
uint32_t games_running(const struct server *s, char why[static HEARTH_ERR_MSG]);

#endif
