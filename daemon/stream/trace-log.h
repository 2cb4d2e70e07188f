/*
 * trace-log.h - what streams.trace tells: the stages that each of the recent streams has passed, in hearthd and in its
 * engines, with times. In memory only, and bounded: so many streams in all and of a uid, and so many events of each, of
 * which the first and the last are kept. Pure. Loop thread.
 */
#ifndef DAEMON_STREAM_TRACE_LOG_H
#define DAEMON_STREAM_TRACE_LOG_H

#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/trace.h"

enum {
    TRACED_STREAMS = 512,       /* in all ... */
    TRACED_STREAMS_OF_UID = 64, /* ... where a uid has more, its own oldest one makes room for its next */
    TRACED_EVENTS = 128,
    TRACED_FIRST = 32, /* of them: the first ones, which stay */
};

struct traced_event {
    struct trace_kept kept;
    pid_t engine; /* 0: hearthd's own */
};

struct traced_stream {
    TAILQ_ENTRY(traced_stream) link;
    int64_t number;
    uid_t uid;
    size_t n, cap;              /* n: that were added */
    struct traced_event *event; /* [cap]; from TRACED_FIRST on a ring */
};

struct trace_log {
    TAILQ_HEAD(traced_list, traced_stream) streams; /* the oldest first */
    size_t n;
};

void trace_log_init(struct trace_log *log);
void trace_log_fini(struct trace_log *log);

/* Adds an event of hearthd. One of a stream that is not known begins it, and TRACE_CREATED begins it anew: the number
 * of a stream that could not be started is given again. Without memory nothing is kept. */
void trace_log_add(struct trace_log *log, uid_t uid, const struct trace_kept *k);

/* Adds an event of an engine, of a stream that is known. */
void trace_log_add_engine(struct trace_log *log, pid_t engine, const struct trace_kept *k);

/* The stream of that number; NULL. */
const struct traced_stream *trace_log_find(const struct trace_log *log, int64_t number);

/* Its events by time, and how many were lost between the first and the last ones. */
size_t traced_events(const struct traced_stream *t, struct traced_event out[TRACED_EVENTS], size_t *n_lost);

#endif
