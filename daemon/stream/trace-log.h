/*
 * trace-log.h - the data of streams.trace: the stages that each recent stream has passed, in hearthd and in its
 * engines, with times. Kept in memory only, and bounded: in streams overall and per uid, and in events per stream, of
 * which the first and the last are kept. Pure. Loop thread.
 */
#ifndef DAEMON_STREAM_TRACE_LOG_H
#define DAEMON_STREAM_TRACE_LOG_H

#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/trace.h"

enum {
    TRACED_STREAMS = 512,       /* overall ... */
    TRACED_STREAMS_OF_UID = 64, /* ... per uid; beyond that, the uid's oldest stream is dropped for its next */
    TRACED_EVENTS = 128,
    TRACED_FIRST = 32, /* the first events of a stream, which are never overwritten */
};

struct traced_event {
    struct trace_kept kept;
    pid_t engine; /* 0: an event of hearthd */
};

struct traced_stream {
    TAILQ_ENTRY(traced_stream) link;
    int64_t number;
    uid_t uid;
    size_t n, cap;              /* n: number of events ever added */
    struct traced_event *event; /* [cap]; a ring from TRACED_FIRST on */
};

struct trace_log {
    TAILQ_HEAD(traced_list, traced_stream) streams; /* oldest first */
    size_t n;
};

void trace_log_init(struct trace_log *log);
void trace_log_fini(struct trace_log *log);

/* Adds an event of hearthd. The first event of an unknown stream creates its entry. TRACE_CREATED starts the entry
 * afresh, because the number of a stream that could not be started is reused. Without memory the event is not kept. */
void trace_log_add(struct trace_log *log, uid_t uid, const struct trace_kept *k);

/* Adds an event of an engine, if its stream is known. */
void trace_log_add_engine(struct trace_log *log, pid_t engine, const struct trace_kept *k);

/* Finds the stream with that number; NULL. */
const struct traced_stream *trace_log_find(const struct trace_log *log, int64_t number);

/* Copies its events ordered by time, and returns their number; *n_lost is how many were lost between the first and the
 * last ones. */
size_t traced_events(const struct traced_stream *t, struct traced_event out[TRACED_EVENTS], size_t *n_lost);

#endif
