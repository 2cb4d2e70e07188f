/*
 * engines.h - the engines of hearthd: one for each GPU that it may use, or a single one. A model is placed on one of
 * them, and all requests for it go there. It is placed when it is first needed, on the engine with the most free
 * memory, and stays there as long as it is loaded. Loop thread.
 */
#ifndef DAEMON_SUPERVISOR_ENGINES_H
#define DAEMON_SUPERVISOR_ENGINES_H

#include "daemon/supervisor/engine-client.h"

struct engines;

enum { ENGINES_MAX = 16, ENGINE_ARGS = 64 };

struct engines_calls {
    /* Fills in the command line of the engine for a device, which is copied: at most ENGINE_ARGS words and a NULL.
     * `count` is how many engines there will be; it is 0 for the first engine of "all", which counts the devices
     * itself. */
    void (*command)(void *arg, int device, bool first, size_t count, const char *argv[]);
    engine_event *event;                                /* receives every engine's events except engine.idle */
    void (*before)(void *arg, struct engine_client *c); /* before every call, once an absent engine has been started */
    void (*ready)(void *arg, struct engine_client *c);  /* it has answered its hello */
    void (*none)(void *arg); /* the last one that ran has exited; not when it was let go as idle. May be NULL */
};

/* `gpus` is "all", or a list of device numbers such as "0,2"; with "all" there is one engine until that one reports how
 * many devices there are. `timeout` is engine_client_new()'s. */
int engines_new(struct engines **out, struct event_base *base, const char *gpus, int64_t timeout,
                const struct engines_calls *calls, void *arg, struct hearth_err *e);
void engines_free(struct engines *es); /* calls engine_client_free() for each */

/* To be called when `command` would fill in something else than before: engines that start from now on get that. */
void engines_renew_commands(struct engines *es);

size_t engines_count(const struct engines *es);
struct engine_client *engines_at(const struct engines *es, size_t i);
int engines_device(const struct engines *es, size_t i); /* its device's number */

/* Replaces the number in a name such as "cuda:0", by which an engine calls the only device that it sees, with the
 * device's real number; malloc'd. NULL if the name is right already or there is no memory. */
char *engines_where(const struct engines *es, const struct engine_client *ec, const char *where);

/* The engine that the model is placed on; places the model if it is not placed yet. Never NULL. */
struct engine_client *engines_for(struct engines *es, const char *path);

/* For requests that need no weights: the engine that the model is placed on, else one that has a process, if possible
 * one that answers, else the first. Never NULL. */
struct engine_client *engines_near(const struct engines *es, const char *path);

/* The engine that the model is placed on; NULL if it is not placed. */
struct engine_client *engines_of(const struct engines *es, const char *path);

/* The path of the first placed model, loaded or not, for which `is` returns true; NULL if there is none. Borrowed until
 * control returns to the loop. */
const char *engines_find(const struct engines *es, bool (*is)(const char *path, void *arg), void *arg);

/* Whether the model is placed and its engine has reported it as loaded. */
bool engines_has(const struct engines *es, const char *path);

/* Whether another engine can be tried if this one does not even start. */
bool engines_has_other(const struct engines *es, const struct engine_client *ec);

/* To be called when the engine has answered a request for the model with HEARTH_EELSEWHERE: moves the model to another
 * engine, which engines_for() returns from now on. If no device has room, one engine is told to serve it all the
 * same. */
void engines_move(struct engines *es, const char *path, const struct engine_client *from);

/* The status of all engines. `told` is NULL for an engine that does not run, and for one that has not answered in time,
 * which sets `silent`. */
struct engines_status {
    size_t n;
    struct {
        const struct wire_engine_status *told;
        bool silent;
    } of[ENGINES_MAX];
};
typedef void engines_told(void *arg, const struct engines_status *all);

/* Asks the engines that run; `told` is called once all have answered, or their time (engine_ask_status()) is up, which
 * may be from inside this function. If this returns an error, `told` will not be called: none runs. */
int engines_ask_status(struct engines *es, engines_told *told, void *arg);

bool engines_absent(const struct engines *es); /* no process is left */
void engines_stop(struct engines *es);
void engines_flush(struct engines *es);
int64_t engines_link_bytes(const struct engines *es);

#endif
