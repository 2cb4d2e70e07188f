/*
 * link.h - the engine process: started at the first question, watched, started again after a pause when it dies. Loop
 * thread. Whoever asks gets exactly one answer, HEARTH_EENGINE where the engine died over it.
 */
#ifndef DAEMON_LINK_H
#define DAEMON_LINK_H

#include "daemon/server.h"

enum link_state {
    LINK_ABSENT,   /* no process; the next question starts one */
    LINK_PAUSE,    /* it died a moment ago; questions wait for the restart */
    LINK_STARTING, /* spawned, its hello is out */
    LINK_RUNNING,
    LINK_STOPPING, /* told to exit, or killed; its exit status is awaited */
};

/* `result` is borrowed for the call; NULL where err says why. */
typedef void link_done(void *arg, const void *result, const struct hearth_err *err);

/* `engine` is the path of hearth-engine, or NULL where none was found: asking then says so. */
int link_new(struct link **out, struct server *s, const char *engine, struct hearth_err *e);
void link_free(struct link *l); /* kills the engine if there is one; questions are dropped, not answered */

/* done() is never called from inside link_ask(). */
int link_ask(struct link *l, const struct wire_method *m, const void *params, link_done *done, void *arg,
             struct hearth_err *e);

/* End of the loop's turn: writes what has been asked. */
void link_flush(struct link *l);

/* Lets the engine exit; a second call kills it. link_state() is LINK_ABSENT when it is gone. */
void link_stop(struct link *l);

enum link_state link_state(const struct link *l);
const char *link_state_name(const struct link *l);
bool link_was_ready(const struct link *l);   /* the last engine got as far as its hello */
bool link_lost_device(const struct link *l); /* and it ended because its device failed */
int64_t link_restarts(const struct link *l);
pid_t link_pid(const struct link *l); /* 0 = none */

#endif
