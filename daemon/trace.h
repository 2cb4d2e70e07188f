/*
 * trace.h - the way of a request through hearthd and its engine: an event at each stage, and a debug line for it.
 *
 *     stage=admitted stream=7 seq=3 reused=64 restored=0 computed=16
 *
 * `stream` is hearthd's number of the stream, `seq` the engine's of the sequence that computes it: a stream whose
 * engine died has several. An event is a value of numbers and constant strings, so that it can also be kept; nothing
 * that a client wrote is in it. Nothing happens per token: a stage is passed once, or once for each preemption.
 */
#ifndef DAEMON_TRACE_H
#define DAEMON_TRACE_H

#include <stdint.h>

#include "daemon/log.h"

enum trace_stage {
    /* hearthd */
    TRACE_REQUEST,     /* a request passed its checks; `word` is the method */
    TRACE_REFUSED,     /* it was answered by an error; `word` is the error's name */
    TRACE_CREATED,     /* it made a stream */
    TRACE_STATE,       /* the stream is in another state (stream/state.h), `word` */
    TRACE_SUBMITTED,   /* an engine was given the stream; ids of its timeline, of which the stream has made */
    TRACE_FIRST_TOKEN, /* of the stream, from any engine */
    TRACE_ENDED,       /* `word` is the reason, the numbers are the usage */
    TRACE_COMMITTED,   /* the turn is in its session */
    /* the engine */
    TRACE_RECEIVED,   /* tokens of the prompt, and the length at which the timeline ends */
    TRACE_ADMITTED,   /* the sequence has pages and a slot; tokens found in the KV cache, of which restored, and not */
    TRACE_FIRST_STEP, /* rows of the sequence in it, and of all */
    TRACE_PREEMPTED,  /* it gave its pages to an older one; tokens of its timeline */
    TRACE_SAVED,      /* KV left the device; `word` is the tier */
    TRACE_FINISHED,   /* `word` is the reason */
    TRACE_STAGES
};

enum { TRACE_NUMBERS = 5 };

struct trace_event {
    enum trace_stage stage;
    int64_t stream;           /* 0: none yet */
    uint64_t seq;             /* 0: none, or not known here */
    const char *word;         /* constant, or NULL */
    int64_t n[TRACE_NUMBERS]; /* named by the stage's row in trace.c */
};

/* Writes the line. */
void trace_at(const struct trace_event *ev);

/* trace(.stage = TRACE_ADMITTED, .stream = 7, ...): nothing is evaluated where the level is off. */
#define trace(...)                                              \
    do {                                                        \
        if (log_is_on(LOG_LEVEL_DEBUG))                         \
            trace_at(&(const struct trace_event){__VA_ARGS__}); \
    } while (0)

#endif
