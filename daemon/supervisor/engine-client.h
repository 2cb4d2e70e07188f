/*
 * engine-client.h - calls to the engine over the link, their completions, and the engine's events. Loop thread. The
 * first call starts the engine; calls made during a back-off after a crash wait for the restart. Every call is
 * completed exactly once, with HEARTH_EENGINE if the engine died before it answered.
 */
#ifndef DAEMON_SUPERVISOR_ENGINE_CLIENT_H
#define DAEMON_SUPERVISOR_ENGINE_CLIENT_H

#include "daemon/supervisor/engine-process.h"
#include "libclient/wire.h"

struct engine_client;

/* Completes a call: `result` is borrowed for the duration of this function, or NULL if there is none; err then says
 * why. */
typedef void engine_completion(void *arg, const void *result, const struct hearth_err *err);

/* Takes an event of the engine; `body` is borrowed. */
typedef void engine_event(void *arg, const struct wire_method *m, const void *body);

/* Total bytes of frames received from the engine and sent to it. */
int64_t engine_link_bytes(const struct engine_client *ec);

/* `argv` is the engine's command line (engine_process_new() copies it); every event goes to `on_event` with `arg`. An
 * engine that is silent for `timeout` seconds while an answer is due is killed. `number` distinguishes the engines of
 * one hearthd, from 0 on. */
int engine_client_new(struct engine_client **out, struct event_base *base, const char *const argv[], int64_t timeout,
                      int number, engine_event *on_event, void *arg, struct hearth_err *e);
void engine_client_free(struct engine_client *ec); /* kills the engine; calls are dropped, not completed */

/* engine_process_set_command() */
int engine_client_set_command(struct engine_client *ec, const char *const argv[], struct hearth_err *e);

/* Calls a method of the engine; `complete` is never called from inside this function. If it returns an error,
 * `complete` will not be called. */
int engine_call(struct engine_client *ec, const struct wire_method *m, const void *params, engine_completion *complete,
                void *arg, struct hearth_err *e);

/* Same, but the completion gets the packed result, a struct wire_bytes, so that a long answer that is only passed on is
 * not unpacked on hearthd's loop. */
int engine_call_packed(struct engine_client *ec, const struct wire_method *m, const void *params,
                       engine_completion *complete, void *arg, struct hearth_err *e);

/* Calls engine.pass and takes the descriptor (-1: none). The link's number changes with every link: what was passed to
 * an engine over one link is unknown to the engine on the next. */
int engine_give(struct engine_client *ec, const struct wire_engine_pass *p, int fd, engine_completion *complete,
                struct hearth_err *e);
int64_t engine_link_number(const struct engine_client *ec);

/* `before` is called, with the argument of the events, before the request of every engine_call() is packed; an absent
 * engine has been started by then. */
void engine_client_before_calls(struct engine_client *ec, void (*before)(void *arg));

/* Cancels the call that was made with `arg`: tells the engine that nobody waits for its answer. The call is completed
 * all the same, with what the engine had until then, or HEARTH_ECANCELLED. */
void engine_forget(struct engine_client *ec, const void *arg);

/* Has another function complete the call that was made with the argument `from`: who made the call is gone. */
void engine_hand_over(struct engine_client *ec, const void *from, engine_completion *complete, void *arg);

/* Calls engine.status if the engine is running. `complete` is called within a 60th of engine_timeout, but at least half
 * a second and at most five: with the packed result, or with an error if the engine has not answered by then. If this
 * returns an error, `complete` will not be called: there is no engine to ask, or it is overdue. */
int engine_ask_status(struct engine_client *ec, engine_completion *complete, void *arg);

/* Whether the engine has sent nothing since it missed the time of a status request. It is not asked again until it
 * does, so that a stopped engine delays only those who ask first. */
bool engine_is_overdue(const struct engine_client *ec);

/* Writes the calls of the current iteration of the loop; to be called at its end. */
void engine_client_flush(struct engine_client *ec);

/* `ready` is called, with the argument of the events, whenever an engine has answered its hello. */
void engine_client_on_ready(struct engine_client *ec, void (*ready)(void *arg));

/* `end` is called, with the argument of the events, when an engine has exited, before its calls are completed; but not
 * when an idle engine was let go (engine_client_may_leave()). */
void engine_client_on_end(struct engine_client *ec, void (*end)(void *arg));

/* To be called when the engine reported that it holds nothing: it is let go once the frames received so far have been
 * handled, unless an answer is due, now or then. The next call starts another engine. */
void engine_client_may_leave(struct engine_client *ec);

/* `leave` is called, with the argument of the events, when an idle engine is let go. */
void engine_client_on_leave(struct engine_client *ec, void (*leave)(void *arg));

/* Asks the engine to exit; a second call kills it. engine_state() is ENGINE_ABSENT once it has exited. */
void engine_client_stop(struct engine_client *ec);

int engine_number(const struct engine_client *ec);
int64_t engine_devices(const struct engine_client *ec); /* number that the last engine's backend found */
enum engine_state engine_state(const struct engine_client *ec);
const char *engine_state_name(const struct engine_client *ec);
bool engine_was_ready(const struct engine_client *ec);      /* this engine, or else the last one, answered its hello */
const char *engine_failure(const struct engine_client *ec); /* engine_process_failure() */
bool engine_lost_device(const struct engine_client *ec);    /* ... and it ended because its device failed */
int64_t engine_restarts(const struct engine_client *ec);
pid_t engine_pid(const struct engine_client *ec); /* 0 if there is none */

#endif
