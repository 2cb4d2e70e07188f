/* games.h - while a game is registered with GameMode, memory is yielded to it as by `yield all`, and reclaimed when the
 * last game has exited. Running engines are notified, and so are engines that start meanwhile. An engine knows of one
 * yield only, so during a game it is that to the game, whatever is yielded on request beside it. Loop thread. */
#ifndef DAEMON_GAMES_H
#define DAEMON_GAMES_H

#include "daemon/context.h"

struct engine_client;

/* Returns what an engine is told when no game runs any more: what remains of a yield on request, or 0 seconds. */
typedef struct wire_engine_yield games_rest(const struct server *s, const struct engine_client *ec);

/* Starts listening, if the configuration has it on. A failure is logged and reported by `status`. */
void games_open(struct server *s, games_rest *rest);
void games_close(struct server *s);

/* Notifies an engine that was started after a game began. Called ahead of every call to it, so that requests waiting
 * for a new engine come after it, and again when it is `ready`, as the game may have begun in between. */
void games_tell(struct server *s, struct engine_client *ec, bool ready);

/* To be called when an engine has yielded on request: during a game it is told of the game again. If it has ended what
 * it yields on request (`over`), that ends the yield to the game, too, until another one begins. */
void games_on_yield(struct server *s, struct engine_client *ec, bool over);

/* The number of running games, as far as it is known; `why` is the reason why it is not, or "". */
uint32_t games_running(const struct server *s, char why[static HEARTH_ERR_MSG]);

#endif
