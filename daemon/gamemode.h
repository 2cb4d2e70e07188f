/*
 * gamemode.h - how many games are registered with Feral's GameMode: its two signals on the user's session bus, heard
 * through a match rule alone, so that gamemoded is never started for us. libdbus is opened by dlopen where it is there.
 *
 * libdbus waits for the bus, so a thread of its own listens, and the loop is told by a descriptor: what others send on
 * the bus keeps nobody waiting. Messages are bounded, and so are the games that are told apart. Loop thread.
 */
#ifndef DAEMON_GAMEMODE_H
#define DAEMON_GAMEMODE_H

#include <stdint.h>

#include "libclient/err.h"

struct event_base;
struct gamemode;

enum { GAMES_MAX = 64 }; /* more than these are not counted */

/* Begins to listen on the bus of that address ("unix:..."; NULL: the user's own, where there is one) with that library.
 * `changed` is called by the loop whenever the number of games is another, or why they are not known. HEARTH_ENOMEM. */
int gamemode_open(struct gamemode **out, struct event_base *base, const char *library, const char *address,
                  void (*changed)(void *arg), void *arg, struct hearth_err *e);
void gamemode_close(struct gamemode *g); /* may be NULL */

/* Games that run now. `why` is "", or says why that is not known; then there are none. */
uint32_t gamemode_games(struct gamemode *g, char why[static HEARTH_ERR_MSG]);

#endif
