/*
 * stream.h - one generation, from the request to its answer. Loop thread.
 *
 * A stream keeps what the engine made, writes it to the journal (journal.h), and delivers it to its subscribers: the
 * request that began it and those that attached. Each has a number that says how much it has been sent, so one that
 * does not read costs nothing but that number: it goes on with larger frames when it has room again. No token is
 * dropped and nobody else waits. A stream without subscribers goes on for conf.attach_grace seconds; one that an
 * earlier hearthd left behind goes on to its end.
 */
#ifndef DAEMON_STREAM_H
#define DAEMON_STREAM_H

#include "daemon/stream/session.h"
#include "daemon/stream/served.h"
#include "daemon/stream/subscriber.h"

struct stream;
struct traced_stream; /* trace-log.h */

/* The room's part of struct server; NULL without memory. All streams have ended before it is freed. */
struct streams *streams_new(struct hearth_err *e);
void streams_free(struct streams *v);

/* How many run or are being delivered. */
int64_t streams_open(const struct streams *v);

/* What those that ended came to; the histograms point into *room. */
void streams_served(const struct streams *v, struct served_room *room, struct wire_served *out);

/* A generation to be started. */
struct stream_spec {
    uid_t uid;
    uint32_t call;                 /* the request's number at its connection, for the trace */
    int64_t client;                /* the connection's number: whose turn it is in the engine */
    struct wire_generate *request; /* wire_free; the stream's where it is started */
    uint64_t hash;                 /* journal_hash() of it */
    int64_t choice;                /* of several of the request; -1: it is the only one */
    struct session *session;       /* the stream's in any case */
    struct subscriber *subscriber; /* gets the end where the stream is started */
};

/* A seed is drawn here where none is given, so that a stream which is submitted again goes on with the same numbers; 53
 * bits, which every client's number type can hold. HEARTH_EINTERNAL. */
int stream_draw_seed(struct wire_sampling *sampling, struct hearth_err *e);

/* Gives the generation to the engine. Errors are the engine's, and HEARTH_ENOMEM. */
int stream_start(struct server *s, const struct stream_spec *spec, struct stream **out, struct hearth_err *e);

/* Asks the engine what the generation would cost: a wire_measured. The spec's session stays the caller's. */
int stream_measure(struct server *s, const struct stream_spec *spec,
                   void (*complete)(void *arg, const void *result, const struct hearth_err *err), void *arg,
                   struct hearth_err *e);

/* Of what class the generation is, as far as the configuration lets it: 0 interactive, 1 normal, 2 background. */
int stream_class_of(const struct server *s, const struct wire_generate *g);

/* What clients call a stream. */
struct stream_name {
    int64_t number;
    const char *request; /* NULL: by number; else by this id, and ... */
    int64_t choice;      /* ... one of several of the request; -1: any */
};

/* That uid's stream, running or finished. `hash`: it must have been the same request, else HEARTH_ECONFLICT;
 * HEARTH_ENOSTREAM. What is found must be attached to at once. */
int stream_get(struct server *s, uid_t uid, const struct stream_name *name, const uint64_t *hash, struct stream **out,
               struct hearth_err *e);
/* HEARTH_ECONFLICT where that uid has used the id for another request, of one stream or of several. */
int stream_check_request(struct server *s, uid_t uid, const char *request, uint64_t hash, struct hearth_err *e);
/* Whether there is one to get. */
bool stream_is_known(struct server *s, uid_t uid, const struct stream_name *name);

/* Of a stream that was got: which of how many it is, and their first one's seed. False: it is the only one. */
bool stream_choices(const struct stream *st, size_t *choice, size_t *n, uint64_t *seed);

/* The subscriber gets at once what there is from its token `from` on; its end may come before this returns. */
void stream_attach(struct stream *st, struct subscriber *sub);

/* The subscriber's peer has gone: its end will not come. The stream goes on for conf.attach_grace. */
void stream_detach(struct subscriber *sub);

/* Takes up what an earlier hearthd left behind. Once, when the loop begins. */
void stream_recover(struct server *s);

/* End of the loop's turn: where streams were orphaned by an engine's death and none is being probed, one is. */
void stream_probe_next(struct server *s);

/* Asks for the end: the engine answers with what there is by then. The stream may be freed. */
void stream_cancel(struct stream *st);
/* The same for those of that number, or of that request of which there may be several; false: none is running. */
bool stream_cancel_named(struct server *s, uid_t uid, const struct stream_name *name);
void stream_cancel_all(struct server *s);

/* Ends all that run, here and now, when the engine is gone for good. Peers that do not read are not waited for: what is
 * still being delivered goes with its connections. */
void stream_end_all(struct server *s);

/* The peer can take events again. */
void stream_unthrottle(struct server *s, const void *peer);

/* A running stream of that uid by its number; NULL. */
struct stream *stream_find(struct server *s, uid_t uid, int64_t number);

/* Whether a stream runs in the session with that id; whether one is creating a session of that name. */
bool stream_runs_in(const struct server *s, const char *session);
bool stream_waits_in(const struct server *s, const char *session); /* or one's turn is still to be written there */
bool stream_creates(const struct server *s, uid_t uid, const char *name);
int64_t stream_count_creating(const struct server *s, uid_t uid); /* sessions of the uid that streams are creating */

/* The session with that id has another name now: its streams are found by that. Without memory they keep the old one.
 */
void stream_rename_session(struct server *s, const char *session, const char *name);

/* What the streams' sessions are forks of is another session's from now on. */
void stream_move_parent(struct server *s, const char *from, const char *to);

/* Where the stream that runs in that session of the uid (an id or a name) has lost its last subscriber: cancels it and
 * returns its number. Else 0. */
int64_t stream_take_over(struct server *s, uid_t uid, const char *session);

/* Streams that have ended and whose turn could not be written, because the disk was full; commit.c says more. Tries
 * again to write what the uid has; forgets what belongs to a session that is removed; tries all once more at the end
 * and frees them. */
void commit_retry(struct server *s, uid_t uid);
void commit_forget(struct server *s, const char *session);
void commit_fini(struct server *s);

/* That uid's streams, the newest first; with `ended` also the last of those that can still be attached to. A malloc'd
 * array whose strings are borrowed until the loop goes on. */
int stream_list(struct server *s, uid_t uid, bool ended, struct wire_stream_info **out, size_t *n,
                struct hearth_err *e);

/* Cancels the uid's oldest stream that has lost its last subscriber, and returns its number; 0: there is none. */
int64_t stream_make_way(struct server *s, uid_t uid);

/* Calls visit() with every subscriber whose stream waits for that model to be loaded, and the client's name for it. */
void stream_each_loading(const struct server *s, const char *path,
                         void (*visit)(const struct subscriber *sub, const char *model, void *arg), void *arg);

/* Whether there is a stream that has not ended of whose model's path `match` says so. */
bool stream_any_with(const struct server *s, bool (*match)(const char *path, void *arg), void *arg);

/* Events of the engine. */
void stream_on_begin(struct server *s, const void *body);
void stream_on_tokens(struct server *s, const void *body);
void stream_on_progress(struct server *s, const void *body);
void stream_on_parked(struct server *s, const void *body);
void stream_on_trace(struct server *s, const void *body);

/* The stages that a stream of that uid has passed; HEARTH_ENOSTREAM where there is none that is remembered, and for
 * others than its uid and administrators, who see everybody's. Borrowed. */
int stream_traced(const struct server *s, uid_t uid, int64_t number, const struct traced_stream **out,
                  struct hearth_err *e);

#endif
