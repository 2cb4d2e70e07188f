/*
 * engines.h - the engines of hearthd: one for each GPU that it may use, or one alone. A model is on one of them, and
 * what is asked about it goes there; it is placed when it is first wanted, where most memory is free, and stays as long
 * as it is loaded. Loop thread.
 */
#ifndef DAEMON_SUPERVISOR_ENGINES_H
#define DAEMON_SUPERVISOR_ENGINES_H

#include "daemon/supervisor/engine-client.h"

struct engines;

enum { ENGINES_MAX = 16, ENGINE_ARGS = 64 };

struct engines_calls {
    /* Fills in the command line of the engine for a device, which is copied: at most ENGINE_ARGS words and a NULL.
     * `count`: how many engines there will be; 0 of the first of "all", which counts the devices itself. */
    void (*command)(void *arg, int device, bool first, size_t count, const char *argv[]);
    engine_event *event;                                /* of any of them, but for engine.idle */
    void (*before)(void *arg, struct engine_client *c); /* ahead of every call: there is a link then */
    void (*ready)(void *arg, struct engine_client *c);  /* it has answered its hello */
};

/* `gpus`: "all", or numbers of devices, "0,2"; with "all" there is one engine until that one tells how many devices
 * there are. `timeout` is engine_client_new()'s. */
int engines_new(struct engines **out, struct event_base *base, const char *gpus, int64_t timeout,
                const struct engines_calls *calls, void *arg, struct hearth_err *e);
void engines_free(struct engines *es); /* as engine_client_free() of each */

size_t engines_count(const struct engines *es);
struct engine_client *engines_at(const struct engines *es, size_t i);
int engines_device(const struct engines *es, size_t i); /* its number */

/* "cuda:0", as an engine calls the only device that it sees, with the device's number; malloc'd, and NULL where the
 * name is right already or there is no memory. */
char *engines_where(const struct engines *es, const struct engine_client *ec, const char *where);

/* The engine that has the model, or is to load it. Never NULL. */
struct engine_client *engines_for(struct engines *es, const char *path);

/* The same for what needs no weights: where the model is, or one that runs, or the first. Never NULL. */
struct engine_client *engines_near(const struct engines *es, const char *path);

/* The engine that the model is placed on; NULL where it is on none. */
struct engine_client *engines_of(const struct engines *es, const char *path);

/* The path of the first model that is placed on one of them, loaded or not, and that `is` takes; NULL. Borrowed until
 * the loop goes on. */
const char *engines_find(const struct engines *es, bool (*is)(const char *path, void *arg), void *arg);

/* Whether the model is on one of them, as that one has told. */
bool engines_has(const struct engines *es, const char *path);

/* Whether one of the others can be tried where this one does not even start. */
bool engines_has_other(const struct engines *es, const struct engine_client *ec);

/* The engine has answered what needs the model with HEARTH_EELSEWHERE: the model is for another one, which
 * engines_for() names from now on; where none has room, one is told to serve it all the same. */
void engines_move(struct engines *es, const char *path, const struct engine_client *from);

/* What all engines say of themselves. `told` is NULL of one that does not run or has not answered in time: `silent`. */
struct engines_status {
    size_t n;
    struct {
        const struct wire_engine_status *told;
        bool silent;
    } of[ENGINES_MAX];
};
typedef void engines_told(void *arg, const struct engines_status *all);

/* Asks those that run; `told` is called once all have answered, or have had the time that engine_ask_status gives them.
 * An error means that it will not be called: none runs. */
int engines_ask_status(struct engines *es, engines_told *told, void *arg);

bool engines_absent(const struct engines *es); /* no process is left */
void engines_stop(struct engines *es);
void engines_flush(struct engines *es);
int64_t engines_link_bytes(const struct engines *es);

#endif
