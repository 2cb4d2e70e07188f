/* stream-internal.h - what the files of a stream share: stream.c (the engine's side), subscribers.c (the readers'
 * side), commit.c (the session's side) and recover.c (the journal's side). Nobody else includes it. Loop thread. */
#ifndef DAEMON_STREAM_INSIDE_H
#define DAEMON_STREAM_INSIDE_H

#include "daemon/stream/journal.h"
#include "daemon/stream/output.h"
#include "daemon/stream/stream.h"

/* A request that is answered by a stream's end, and gets its events until then. */
struct subscriber {
    struct stream *stream;
    struct call *call;
    bool events;     /* or the answer only */
    bool begin_sent; /* stream.begin was sent */
    bool positioned; /* `at` is where it wants to go on */
    size_t from;     /* tokens that it has already */
    struct output_cursor cursor;
    TAILQ_ENTRY(subscriber) entry;
};

struct stream {
    struct server *server;
    struct account *account; /* whose it is */
    const struct wire_generate *request;
    void *block; /* that the request lies in; wire_free */
    uint64_t hash;
    struct session *session;
    int64_t number;
    struct journal_entry *journal; /* NULL: it has none, and would not survive hearthd */
    TAILQ_HEAD(subscriber_list, subscriber) subscribers;
    struct event *grace; /* the time in which somebody may attach; pending while there is no reader, NULL before */
    bool submitted;      /* an engine has it */
    bool cancelled;      /* its end is wanted */
    bool began;          /* `appended` is known */
    bool ended;          /* `end` is known and the session written; what is left is delivery */
    bool resubmitted;    /* submitted more than once: the engine saw only the last part of it */
    bool crash_suspect; /* ran when an engine died; taken up again alone until it has shown that it is not the reason */
    int64_t retries;    /* engine deaths since the last token */
    int crashes;        /* engine deaths in all */
    double started_ms;
    int32_t *appended; /* the ids of the request's input */
    size_t n_appended;
    struct output output;
    struct wire_engine_result end;
    char error[HEARTH_ERR_MSG + 32]; /* "NAME: message" where the end is an error */
    const char *uncommitted;         /* how it ended, where its turn could not be written at once; else NULL */
    bool commit_pending;             /* nor since */
    TAILQ_ENTRY(stream) entry;
};

/* --- stream.c */

struct stream *stream_new(struct server *s, uid_t uid, struct hearth_err *e);
void stream_free(struct stream *st);

/* Into the server's list, and out of it for good. */
void stream_insert(struct stream *st);
void stream_remove(struct stream *st);

int stream_submit(struct stream *st, struct hearth_err *e);
void stream_end_here(struct stream *st, const struct hearth_err *e); /* e NULL: cancelled */
int stream_set_appended(struct stream *st, const struct wire_ids *ids);

/* Its end is this error's. */
void stream_set_error(struct stream *st, const struct hearth_err *e);

/* Whether that uid has it by that number, or by that request id. */
bool stream_is(const struct stream *st, uid_t uid, int64_t number, const char *request);

/* The stream's name for its end: one of PROTOCOL.md's, whatever somebody else called it. */
const char *stream_reason(const char *finish_reason);

/* --- commit.c */

/* Writes the turn into the session, and into the same transaction that this stream's is written. False where that
 * cannot be; the end says why, if it does not say another reason already. */
bool stream_commit(struct stream *st);

/* --- subscribers.c */

/* Another reader, which gets at once what there is. The call is answered in any case, now or at the end. */
void subscribers_add(struct stream *st, struct call *call, bool events, int64_t from);

/* What is new goes to all readers that have room for it; the answer when all of it has gone, and the stream ends with
 * the last of them. */
void subscribers_flush(struct stream *st);

/* The request failed before it made anything, and that is its answer. The stream's end. */
void subscribers_fail(struct stream *st, const struct hearth_err *e);

/* --- recover.c */

/* A finished stream's output, from its journal: in the server's list, for readers. */
int recover_finished(struct server *s, const struct journal_entry *je, struct stream **out, struct hearth_err *e);

#endif
