/*
 * stream.h - one generation, from the request to its answer. Loop thread.
 *
 * A stream keeps what the engine has generated, writes it to the journal (journal.h), and delivers it to its
 * subscribers: the request that started it and those that attached. Each subscriber has a cursor to what it has been
 * sent. A subscriber that does not read therefore costs no more than its cursor, and catches up with larger frames when
 * it has room again. No token is dropped, and nobody else waits. A stream without subscribers continues for
 * conf.attach_grace seconds; one that an earlier hearthd left behind continues to its end.
 */
#ifndef DAEMON_STREAM_H
#define DAEMON_STREAM_H

#include "daemon/stream/session.h"
#include "daemon/stream/served.h"
#include "daemon/stream/subscriber.h"

struct stream;
struct traced_stream; /* trace-log.h */

/* This module's part of struct server; NULL when out of memory. All streams must have ended before it is freed. */
struct streams *streams_new(struct hearth_err *e);
void streams_free(struct streams *v);

/* The number of streams that are running or being delivered. */
int64_t streams_open(const struct streams *v);
int64_t streams_live(const struct streams *v); /* without those that are only being delivered */
/* Those that have ended at their deadline, and that an engine which is silent still has. They keep their places in the
 * limits until it has answered, as there would be no limit on what it is sent meanwhile. */
int64_t streams_late(const struct streams *v);

/* Statistics of the streams that have ended; the histograms point into *room. */
void streams_served(const struct streams *v, struct served_room *room, struct wire_served *out);

/* The generation to start. */
struct stream_spec {
    uid_t uid;
    uint32_t call;                 /* the request's message id, for the trace */
    double waited_ms;              /* for how long the request has waited, for room or for its session */
    int64_t client;                /* the connection's number, by which the engine shares its time among clients */
    struct wire_generate *request; /* wire_free; the stream takes ownership if it is started */
    uint64_t hash;                 /* journal_hash() of it */
    int64_t choice;                /* index among several of the request; -1: it is the only one */
    struct session *session;       /* the stream takes ownership in any case */
    struct subscriber *subscriber; /* receives the end if the stream is started */
};

/* Draws a seed if none is given. This happens in hearthd so that a stream which is submitted again continues with the
 * same random numbers. It has 53 bits, which every client's number type can represent. HEARTH_EINTERNAL. */
int stream_draw_seed(struct wire_sampling *sampling, struct hearth_err *e);

/* Starts the generation on an engine. Errors are the engine's, and HEARTH_ENOMEM. */
int stream_start(struct server *s, const struct stream_spec *spec, struct stream **out, struct hearth_err *e);

/* Asks the engine for the cost of the generation: a wire_measured. The spec's session stays the caller's. */
int stream_measure(struct server *s, const struct stream_spec *spec,
                   void (*complete)(void *arg, const void *result, const struct hearth_err *err), void *arg,
                   struct hearth_err *e);

/* The class of the generation, as far as the configuration allows it: 0 interactive, 1 normal, 2 background. */
int stream_class_of(const struct server *s, const struct wire_generate *g);

/* How clients refer to a stream. */
struct stream_name {
    int64_t number;
    const char *request; /* NULL: by number; else by this request id, and ... */
    int64_t choice;      /* ... by the index among several of the request; -1: any */
};

/* Finds that uid's stream, running or finished. With `hash`, HEARTH_ECONFLICT if it was created by a request with other
 * content; HEARTH_ENOSTREAM. The caller must attach to the stream at once. */
int stream_get(struct server *s, uid_t uid, const struct stream_name *name, const uint64_t *hash, struct stream **out,
               struct hearth_err *e);
/* HEARTH_ECONFLICT if that uid has used the id for a different request, of one stream or of several. */
int stream_check_request(struct server *s, uid_t uid, const char *request, uint64_t hash, struct hearth_err *e);
/* Whether stream_get() would find one; *replayed: one that has ended, and is made again to be delivered. */
bool stream_is_known(struct server *s, uid_t uid, const struct stream_name *name, bool *replayed);
/* HEARTH_ELIMIT if that uid has so many streams that none may be delivered again: it takes memory until it has been
 * read. stream_get() checks this unless it is given a choice: those of one request are delivered together or not at
 * all, so it is checked once for them, before. */
int stream_check_replay(struct server *s, uid_t uid, struct hearth_err *e);

/* For a stream from stream_get(): its index among how many choices, and the seed of the first choice. False: it is the
 * only one. */
bool stream_choices(const struct stream *st, size_t *choice, size_t *n, uint64_t *seed);

/* HEARTH_ECONFLICT if a subscriber of that peer is being sent the events of a running stream of the uid which the name
 * refers to. stream_attach() checks this for one stream. */
int stream_check_sent(struct server *s, uid_t uid, const struct stream_name *name, const void *peer,
                      struct hearth_err *e);

/* Attaches the subscriber, which immediately receives the existing output from its token `from` on. Its end may come
 * before this returns. */
void stream_attach(struct stream *st, struct subscriber *sub);

/* Detaches a subscriber whose peer is lost; its end() is not called. Without other subscribers the stream continues for
 * conf.attach_grace. */
void stream_detach(struct subscriber *sub);

/* Recovers the streams that an earlier hearthd left behind. Called once, when the loop begins. */
void stream_recover(struct server *s);

/* Called at the end of the loop's turn: if streams were orphaned by the death of an engine and none is being probed
 * but such as wait for memory, submits the next one. */
void stream_probe_next(struct server *s);

/* Requests the end: the engine answers with the output so far. The stream may be freed. */
void stream_cancel(struct stream *st);
/* The same for the stream of that number, or for those of that request, of which there may be several; false: none is
 * running. */
bool stream_cancel_named(struct server *s, uid_t uid, const struct stream_name *name);
void stream_cancel_all(struct server *s);

/* Ends all running streams immediately, when the engine will not come back. Peers that do not read are not waited for:
 * what is still being delivered is lost with its connections. */
void stream_end_all(struct server *s);

/* Resumes delivery to a peer that can take events again. */
void stream_unthrottle(struct server *s, const void *peer);

/* A running stream of that uid by its number; NULL. */
struct stream *stream_find(struct server *s, uid_t uid, int64_t number);

bool stream_runs_in(const struct server *s, const char *session);         /* one runs in the session with that id */
bool stream_waits_in(const struct server *s, const char *session);        /* one ended there, its turn is unwritten */
bool stream_creates(const struct server *s, uid_t uid, const char *name); /* one is creating a session of that name */
int64_t stream_count_creating(const struct server *s, uid_t uid); /* sessions of the uid that streams are creating */

/* Called when the session with that id has been renamed, so that its streams are found by the new name. If memory is
 * lacking, they keep the old one. */
void stream_rename_session(struct server *s, const char *session, const char *name);

/* Called when the forks of session `from` have become forks of session `to`: updates the sessions of streams. */
void stream_move_parent(struct server *s, const char *from, const char *to);

/* If the stream running in that session of the uid (an id or a name) is abandoned by its subscribers, cancels it and
 * returns its number, else 0. */
int64_t stream_take_over(struct server *s, uid_t uid, const char *session);

/* The streams that have ended and whose turn could not be written because the disk was full; commit.c explains them.
 * commit_retry() tries again to write those of the uid; commit_forget() drops those of a session that is removed;
 * commit_fini() tries all once more at the end and frees them. */
void commit_retry(struct server *s, uid_t uid);
void commit_forget(struct server *s, const char *session);
void commit_fini(struct server *s);

/* That uid's streams, newest first; with `ended` also the most recent of those that have ended and can still be
 * attached to. A malloc'd array whose strings are borrowed until the loop continues. */
int stream_list(struct server *s, uid_t uid, bool ended, struct wire_stream_info **out, size_t *n,
                struct hearth_err *e);

/* Cancels a stream of the uid that has lost its last subscriber, and returns its number; 0: there is none. One that is
 * queued goes before one that runs, that before one whose engine died, and in the same state the oldest goes first. */
int64_t stream_make_way(struct server *s, uid_t uid);

/* Whether a stream of the uid is being cancelled, for whatever reason: its place will be free soon. */
bool stream_is_leaving(const struct server *s, uid_t uid);

/* Calls visit() with every subscriber whose stream waits for that model to be loaded, and with the client's name for
 * the model. */
void stream_each_loading(const struct server *s, const char *path,
                         void (*visit)(const struct subscriber *sub, const char *model, void *arg), void *arg);

/* Whether `match` returns true for the model path of any stream that is running or being delivered. */
bool stream_any_with(const struct server *s, bool (*match)(const char *path, void *arg), void *arg);

/* Handlers of the engine's events. */
void stream_on_begin(struct server *s, const void *body);
void stream_on_tokens(struct server *s, const void *body);
void stream_on_progress(struct server *s, const void *body);
void stream_on_parked(struct server *s, const void *body);
void stream_on_trace(struct server *s, const void *body);

/* The stages that a stream has passed. HEARTH_ENOSTREAM if no such stream is remembered, or if the uid is neither its
 * owner nor an administrator. Borrowed. */
int stream_traced(const struct server *s, uid_t uid, int64_t number, const struct traced_stream **out,
                  struct hearth_err *e);

#endif
