/*
 * gamemode.h - how many games are registered with Feral's GameMode. The count follows GameMode's two signals on the
 * user's session bus; they are received through match rules only, so that listening never starts gamemoded. libdbus is
 * loaded with dlopen() where it is installed.
 *
 * libdbus may block on the bus. A thread of its own therefore listens and notifies the loop through a descriptor, so
 * traffic on the bus never blocks the loop. Message sizes and the number of tracked games are bounded. The functions
 * below belong to the loop thread.
 */
#ifndef DAEMON_GAMEMODE_H
#define DAEMON_GAMEMODE_H

#include <stdint.h>

#include "libclient/err.h"

struct event_base;
struct gamemode;

enum { GAMES_MAX = 64 }; /* further games are not counted */

/* Starts listening on the bus at that address ("unix:..."; NULL: the user's session bus, where there is one) with that
 * library. The loop calls `changed` whenever the number of games changes, or the reason why it is unknown.
 * HEARTH_ENOMEM. */
int gamemode_open(struct gamemode **out, struct event_base *base, const char *library, const char *address,
                  void (*changed)(void *arg), void *arg, struct hearth_err *e);
void gamemode_close(struct gamemode *g); /* may be NULL */

/* The number of running games. `why` is "", or the reason why the number is unknown, which is then reported as 0. */
uint32_t gamemode_games(struct gamemode *g, char why[static HEARTH_ERR_MSG]);

#endif
