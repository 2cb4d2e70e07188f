/*
 * trace.h - the way of a request through hearthd and its engine: an event at each stage, and a debug line for it.
 *
 *     stage=admitted stream=7 seq=3 reused=64 restored=0 computed=16
 *
 * `stream` is hearthd's number of the stream, `seq` the engine's of the sequence that computes it: a stream whose
 * engine died has several. An event is a value of numbers and constant strings, so that it can also be kept: an engine
 * keeps a ring of the recent ones until its link has sent them, hearthd a log of each stream's (stream/trace-log.h).
 * Nothing that a client wrote is in it. Nothing happens per token: a stage is passed once, or once for each preemption.
 */
#ifndef DAEMON_TRACE_H
#define DAEMON_TRACE_H

#include <stdbool.h>
#include <stddef.h>
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
    TRACE_ENGINE_DIED, /* and had the stream; deaths that the stream has lived through, and its tokens */
    TRACE_COMMITTED,   /* the turn is in its session */
    /* the engine */
    TRACE_RECEIVED,   /* tokens of the prompt, and the length at which the timeline ends */
    TRACE_ADMITTED,   /* the sequence has pages and a slot; tokens found in the KV cache, of which restored, and not */
    TRACE_FIRST_STEP, /* rows of the sequence in it, and of all */
    TRACE_OUTGREW,    /* it is longer than RoPE's first set of frequencies is for, and is read again; its tokens */
    TRACE_PREEMPTED,  /* it gave its pages to an older one; tokens of its timeline */
    TRACE_CLASS,      /* another than it came with; `word` is the class */
    TRACE_SAVED,      /* KV left the device; `word` is the tier */
    TRACE_FINISHED,   /* `word` is the reason; of its tokens, and the engine's steps since it came */
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

/* An event as it is kept: `ev.word` is NULL, and what it was is in `word`. */
struct trace_kept {
    struct trace_event ev;
    double at; /* trace_now() */
    char word[24];
};

/* Seconds since the machine was started: the same clock in hearthd and its engine. */
double trace_now(void);

/* Whether an event that a thread passes now would be written or kept. Any thread. */
bool trace_is_on(void);

/* Writes the line where the level is on, and keeps the event where it is of a stream and trace_keep() was called. */
void trace_at(const struct trace_event *ev);

/* The same without the ring: for hearthd, which keeps what it likes. `out` gets the event as it is kept. */
void trace_line(const struct trace_event *ev, struct trace_kept *out);

/* From here on recent events of streams are kept; trace_take() takes the oldest one, false: there is none. Where nobody
 * takes them, the oldest are lost. Any thread. */
void trace_keep(void);
bool trace_take(struct trace_kept *out);

/* The names of a stage, of its word and of its numbers, as a line has them; NULL: it has no such. */
const char *trace_stage_name(enum trace_stage stage);
const char *trace_word_name(enum trace_stage stage);
const char *trace_number_name(enum trace_stage stage, size_t i);
/* The stage of that name; TRACE_STAGES: there is none. */
enum trace_stage trace_stage_find(const char *name);
/* Copies a word, up to the first character that no line has. */
void trace_copy_word(char out[24], const char *word);

/* trace(.stage = TRACE_ADMITTED, .stream = 7, ...): nothing is evaluated where nobody wants it. */
#define trace(...)                                              \
    do {                                                        \
        if (trace_is_on())                                      \
            trace_at(&(const struct trace_event){__VA_ARGS__}); \
    } while (0)

#endif
