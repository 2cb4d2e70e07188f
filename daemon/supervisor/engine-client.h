/*
 * engine-client.h - calls to the engine over the link, their completions, and the engine's events. Loop thread. The
 * first call starts the engine; calls that come during a back-off after a crash wait for the restart. Every call is
 * completed exactly once, with HEARTH_EENGINE where the engine died before its answer.
 */
#ifndef DAEMON_SUPERVISOR_ENGINE_CLIENT_H
#define DAEMON_SUPERVISOR_ENGINE_CLIENT_H

#include "daemon/supervisor/engine-process.h"
#include "libclient/wire.h"

struct engine_client;

/* Completes a call: `result` is borrowed for its duration, or NULL where err says why there is none. */
typedef void engine_completion(void *arg, const void *result, const struct hearth_err *err);

/* Takes an event of the engine; `body` is borrowed. */
typedef void engine_event(void *arg, const struct wire_method *m, const void *body);

/* Bytes of frames that came from the engine and went to it, since the beginning. */
int64_t engine_link_bytes(const struct engine_client *ec);

/* `argv` is the engine's command line (engine_process_new() copies it); every event goes to `on_event` with `arg`. An
 * engine that says nothing for `timeout` seconds while an answer is due is killed. `number` tells the engines of one
 * hearthd apart, from 0 on. */
int engine_client_new(struct engine_client **out, struct event_base *base, const char *const argv[], int64_t timeout,
                      int number, engine_event *on_event, void *arg, struct hearth_err *e);
void engine_client_free(struct engine_client *ec); /* kills the engine; calls are dropped, not completed */

/* Calls a method of the engine; `complete` is never called from inside. An error means that it will not be called. */
int engine_call(struct engine_client *ec, const struct wire_method *m, const void *params, engine_completion *complete,
                void *arg, struct hearth_err *e);

/* The same, but what completes the call is the result as it is packed: a struct wire_bytes. A long answer that is only
 * passed on is not unpacked on hearthd's loop. */
int engine_call_packed(struct engine_client *ec, const struct wire_method *m, const void *params,
                       engine_completion *complete, void *arg, struct hearth_err *e);

/* engine.pass, whose descriptor is taken (-1: none). The number of the link to the engine, which changes with it: what
 * another one was told this one has not heard. */
int engine_give(struct engine_client *ec, const struct wire_engine_pass *p, int fd, engine_completion *complete,
                struct hearth_err *e);
int64_t engine_link_number(const struct engine_client *ec);

/* `before` is called, with the argument of the events, ahead of every engine_call(): there is a link then. */
void engine_client_before_calls(struct engine_client *ec, void (*before)(void *arg));

/* Tells the engine that nobody waits for the answer of the call that was made with `arg`, which is completed all the
 * same: with what the engine had, or HEARTH_ECANCELLED. */
void engine_forget(struct engine_client *ec, const void *arg);

/* Calls engine.status where an engine runs; `complete` is told within half a second, or a 60th of engine_timeout where
 * that is more, with the result as it is packed, or an error where the engine has not answered by then. An error means
 * that it will not be called: there is none to ask.
 */
int engine_ask_status(struct engine_client *ec, engine_completion *complete, void *arg);

/* Writes the calls of this turn of the loop, at its end. */
void engine_client_flush(struct engine_client *ec);

/* `ready` is told, with the argument of the events, whenever an engine has answered its hello. */
void engine_client_on_ready(struct engine_client *ec, void (*ready)(void *arg));

/* `end` is told, with the argument of the events, when an engine has ended, ahead of its calls' completions; not when
 * it has left. */
void engine_client_on_end(struct engine_client *ec, void (*end)(void *arg));

/* The engine said that it holds nothing: it is let go once the frames that have come are read, unless an answer is due.
 * The next call starts another. */
void engine_client_may_leave(struct engine_client *ec);

/* Lets the engine exit; a second call kills it. engine_state() is ENGINE_ABSENT once it is gone. */
void engine_client_stop(struct engine_client *ec);

int engine_number(const struct engine_client *ec);
int64_t engine_devices(const struct engine_client *ec); /* that the backend of the last one found */
enum engine_state engine_state(const struct engine_client *ec);
const char *engine_state_name(const struct engine_client *ec);
bool engine_was_ready(const struct engine_client *ec);   /* this engine, or else the last one, answered its hello */
bool engine_lost_device(const struct engine_client *ec); /* and it ended because its device failed */
int64_t engine_restarts(const struct engine_client *ec);
pid_t engine_pid(const struct engine_client *ec); /* 0: there is none */

#endif
