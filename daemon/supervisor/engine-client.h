/*
 * engine-client.h - the engine process: started at the first question, watched, started again after a pause when it
 * dies. Loop thread. Whoever asks gets exactly one answer, HEARTH_EENGINE where the engine died over it.
 */
#ifndef DAEMON_LINK_H
#define DAEMON_LINK_H

#include "daemon/context.h"

enum engine_state {
    ENGINE_ABSENT,   /* no process; the next question starts one */
    ENGINE_BACKOFF,  /* it died a moment ago; questions wait for the restart */
    ENGINE_STARTING, /* spawned, its hello is out */
    ENGINE_RUNNING,
    ENGINE_STOPPING, /* told to exit, or killed; its exit status is awaited */
};

/* `result` is borrowed for the call; NULL where err says why. */
typedef void engine_completion(void *arg, const void *result, const struct hearth_err *err);

/* `engine` is the path of hearth-engine, or NULL where none was found: asking then says so. */
int engine_client_new(struct engine_client **out, struct server *s, const char *engine, struct hearth_err *e);
void engine_client_free(
    struct engine_client *ec); /* kills the engine if there is one; questions are dropped, not answered */

/* done() is never called from inside engine_call(). */
int engine_call(struct engine_client *ec, const struct wire_method *m, const void *params, engine_completion *complete,
                void *arg, struct hearth_err *e);

/* End of the loop's turn: writes what has been asked. */
void engine_client_flush(struct engine_client *ec);

/* Lets the engine exit; a second call kills it. engine_state() is ENGINE_ABSENT when it is gone. */
void engine_client_stop(struct engine_client *ec);

enum engine_state engine_state(const struct engine_client *ec);
const char *engine_state_name(const struct engine_client *ec);
bool engine_was_ready(const struct engine_client *ec);   /* the last engine got as far as its hello */
bool engine_lost_device(const struct engine_client *ec); /* and it ended because its device failed */
int64_t engine_restarts(const struct engine_client *ec);
pid_t engine_pid(const struct engine_client *ec); /* 0 = none */

#endif
