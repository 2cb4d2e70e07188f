/*
 * engine-process.h - the engine as a child process: spawned, watched through SIGCHLD, and spawned again after a
 * back-off when it crashes. Loop thread. It knows nothing of the link's protocol: its owner, the engine's client, reads
 * and writes the descriptor, and reports when the engine is ready, productive or unusable.
 */
#ifndef DAEMON_SUPERVISOR_ENGINE_PROCESS_H
#define DAEMON_SUPERVISOR_ENGINE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "libclient/err.h"

struct event_base;
struct engine_process;

enum engine_state {
    ENGINE_ABSENT,   /* there is no process; the next call starts one */
    ENGINE_BACKOFF,  /* it crashed a moment ago; calls wait for the restart */
    ENGINE_STARTING, /* it was spawned and is not ready yet */
    ENGINE_RUNNING,
    ENGINE_LEAVING,  /* it held no model and its link was closed; calls wait for the next engine */
    ENGINE_STOPPING, /* it was asked to exit, or killed; its exit status is awaited */
};

/* The process's callbacks to its owner, on the loop. */
struct engine_process_calls {
    bool (*is_needed)(
        void *arg); /* asks whether calls wait for an answer: if so, an exit is a crash, whatever its status */
    void (*last_words)(void *arg); /* it has exited; what it wrote before that still counts, and is to be read now */
    void (*exited)(void *arg, const struct hearth_err *e); /* close the link; fail the calls with this error */
    void (*restart)(void *arg); /* the back-off is over, or the idle engine has left: it may be started again */
};

/* Copies argv, which ends with NULL. An empty argv is accepted; starting it then fails and says what is missing. */
int engine_process_new(struct engine_process **out, struct event_base *base, const char *const argv[],
                       const struct engine_process_calls *calls, void *arg, struct hearth_err *e);
void engine_process_free(struct engine_process *p); /* kills the engine, if there is one, and waits for it to exit */

/* Replaces the command line, from the next start on. HEARTH_ENOMEM: it stays as it was. */
int engine_process_set_command(struct engine_process *p, const char *const argv[], struct hearth_err *e);

/* Spawns the engine, which must be absent; *fd is hearthd's non-blocking end of the link, which the caller closes. */
int engine_process_start(struct engine_process *p, int *fd, struct hearth_err *e);

void engine_process_ready(struct engine_process *p);      /* it answered the hello in time */
void engine_process_productive(struct engine_process *p); /* it made a token: the next back-off is minimal again */

/* Records why this engine is unusable: its exit is reported with this reason, whatever its status. */
void engine_process_fail(struct engine_process *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool engine_process_has_failed(const struct engine_process *p);

/* Kills an unusable engine; one that was asked to exit is left to do so. */
void engine_process_kill(struct engine_process *p);

/* From here on its exit is not a crash, and no restart follows. It is killed unless `exit_requested`: then its owner
 * has called engine.shutdown. */
void engine_process_stop(struct engine_process *p, bool exit_requested);

/* Lets an idle engine go: its owner has closed the link, which makes it exit. `restart` is called once it has
 * exited. */
void engine_process_leave(struct engine_process *p);

enum engine_state engine_process_state(const struct engine_process *p);
pid_t engine_process_pid(const struct engine_process *p);      /* 0 if there is none */
bool engine_process_was_ready(const struct engine_process *p); /* this engine, or else the last one, became ready */
/* How the last engine failed; NULL if it did not, or another one has been ready since. */
const char *engine_process_failure(const struct engine_process *p);
int64_t engine_process_restarts(const struct engine_process *p);

#endif
