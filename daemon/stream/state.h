/*
 * state.h - a stream and its state. Pure: lists and counts, no event loop. Loop thread.
 *
 * Each state has a list, and stream_set_state() is the only function that moves streams between lists; README.md has
 * the diagram. Each list is ordered by the streams' numbers, so its first is the oldest.
 */
#ifndef DAEMON_STREAM_STATE_H
#define DAEMON_STREAM_STATE_H

#include "daemon/stream/journal.h"
#include "daemon/stream/output.h"
#include "daemon/stream/quarantine.h"
#include "daemon/stream/served.h"
#include "daemon/stream/session.h"
#include "daemon/stream/subscriber.h"
#include "daemon/stream/trace-log.h"

enum stream_state {
    STREAM_NEW,              /* in no list: it is being created */
    STREAM_QUEUED,           /* a new request, submitted to an engine that has not admitted it */
    STREAM_RUNNING,          /* an engine has begun it, this hearthd's or one of an earlier hearthd */
    STREAM_ORPHANED,         /* its engine died; it waits to be probed */
    STREAM_PROBING,          /* it runs without other suspects, until a token shows that it does not kill engines */
    STREAM_CANCELLING,       /* the engine was asked to stop it, and its answer is awaited */
    STREAM_CANCELLING_PROBE, /* the same for a probe, which may still kill the engine */
    STREAM_DRAINING,         /* it has ended and was written as far as possible; subscribers are still behind */
    STREAM_UNCOMMITTED,      /* delivered; its turn could not be written, which is retried */
    STREAM_RETAINED,         /* delivered; the write was retried, and a repeated request is answered from memory */
    STREAM_GONE,             /* in no list: it is about to be freed */
    STREAM_STATES
};

/* Sets of states. */
enum {
    STREAMS_ISOLATED = 1 << STREAM_PROBING | 1 << STREAM_CANCELLING_PROBE,
    STREAMS_CANCELLING = 1 << STREAM_CANCELLING | 1 << STREAM_CANCELLING_PROBE,
    STREAMS_SUBMITTED = 1 << STREAM_QUEUED | 1 << STREAM_RUNNING | STREAMS_ISOLATED | STREAMS_CANCELLING,
    STREAMS_LIVE = STREAMS_SUBMITTED | 1 << STREAM_ORPHANED, /* their sessions are busy */
    STREAMS_OPEN = STREAMS_LIVE | 1 << STREAM_DRAINING,      /* they count against their user's limit */
    STREAMS_RETRY = 1 << STREAM_UNCOMMITTED | 1 << STREAM_RETAINED,
};

TAILQ_HEAD(subscriber_list, subscriber);
TAILQ_HEAD(stream_list, stream);
LIST_HEAD(late_list, late);

/* All streams of hearthd. */
struct streams {
    struct stream_list list[STREAM_STATES];
    int64_t n_open; /* in STREAMS_OPEN */
    int64_t n_live; /* in STREAMS_LIVE: only these count against the limit of all users, or one user who does not read
                       would keep the others waiting */
    int64_t last;   /* the number of the latest stream */
    struct late_list late; /* attempt.c: streams that ended at their deadline, and that an engine still has */
    int64_t n_late, n_late_probes;
    struct quarantine_table quarantined;
    struct trace_log traces;
    struct served served;
};

struct stream {
    struct server *server;
    enum stream_state state;
    TAILQ_ENTRY(stream) link; /* in its state's list */
    int64_t number;
    struct account *account; /* of the uid that made the request */
    struct wire_generate *request;
    void *block;    /* the allocation that contains the request; wire_free */
    uint64_t hash;  /* of the request's content */
    int64_t choice; /* index among several of the request; -1: it is the only one */
    int64_t client; /* number of the connection that requested it; 0: it comes from the journal */
    struct session *session;
    struct journal_entry *journal; /* NULL: it has none, and would not survive the end of hearthd */
    struct subscriber_list subscribers;
    struct timer *grace;          /* runs while there is no subscriber; NULL until the last subscriber first leaves */
    struct timer *late;           /* ends it a moment after its deadline if it has no token; NULL: it has none */
    struct engine_client *engine; /* the engine that it was last submitted to */
    struct {
        bool known; /* only for a regular file, and only if this hearthd submitted the stream first */
        dev_t dev;
        ino_t ino;
        off_t size;
        struct timespec mtime;
    } file;                      /* the model's file when the stream was first submitted */
    int attempts;                /* number of submissions; all those of an earlier hearthd count as one */
    int64_t retries;             /* engine deaths since the last token */
    int crashes;                 /* engine deaths in total */
    double started_ms, asked_ms; /* when it was started, and when its request arrived */
    double first_ms, last_ms;    /* of its first and last token; 0: none has come to this hearthd */
    bool parked;                 /* its engine has it wait for memory, and computes nothing of it */
    bool resumed;                /* it was last submitted after its first token */
    int32_t *appended;           /* ids of the request's input; NULL until an engine has admitted it */
    size_t n_appended;
    char markers[16]; /* the family of markers by which the engine separates reasoning from text; "": it does not */
    bool thinking;    /* the input ends inside reasoning */
    struct timeline_hash means; /* of the timeline before the stream's first token, from engine.begin */
    struct output output;

    /* Set once it has ended. */
    struct wire_engine_result end;
    char error[HEARTH_ERR_MSG + 32]; /* "NAME: message" where the end is an error */
    const char *turn_reason;         /* finish_reason of a turn that could not be written at first, else NULL */
    enum stream_state rest;          /* its state after it has been delivered: UNCOMMITTED, RETAINED or GONE */
};

void streams_init(struct streams *v);

/* Whether the diagram has an arrow from one state to the other. */
bool stream_may_go(enum stream_state from, enum stream_state to);

/* Moves the stream to the list of `state`; the transition must be legal. */
void stream_set_state(struct streams *v, struct stream *st, enum stream_state state);

const char *stream_state_name(enum stream_state state);

/* The first stream in one of the states, and the one after `st`; NULL. Ordered by state, then by number. */
struct stream *stream_first(const struct streams *v, unsigned states);
struct stream *stream_next(const struct streams *v, const struct stream *st, unsigned states);

#define STREAMS_FOREACH(st, v, states) \
    for ((st) = stream_first((v), (states)); (st) != NULL; (st) = stream_next((v), (st), (states)))

static inline bool stream_in(const struct stream *st, unsigned states)
{
    return (1u << st->state & states) != 0;
}

#endif
