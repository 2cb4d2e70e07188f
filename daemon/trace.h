/*
 * trace.h - the stages of a request in hearthd and its engine: one event at each stage, logged as a debug line.
 *
 *     stage=admitted stream=7 seq=3 reused=64 restored=0 computed=16
 *
 * `stream` is hearthd's number of the stream, `seq` the engine's number of the sequence that computes it; a stream
 * whose engine died has had several. An event consists of numbers and constant strings, so it can also be stored: an
 * engine keeps a ring of recent events until its link has sent them, and hearthd a log for each stream
 * (stream/trace-log.h). Events contain no client data. None is emitted per token: a stage is passed once, or once per
 * preemption.
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
    TRACE_REFUSED,     /* the request was answered by an error; `word` is the error's name */
    TRACE_CREATED,     /* the request created a stream */
    TRACE_STATE,       /* the stream changed its state (stream/state.h) to `word` */
    TRACE_SUBMITTED,   /* the stream was submitted to an engine; token ids of its history, and those of them that it had
                          generated already */
    TRACE_FIRST_TOKEN, /* the first token of the stream, whichever engine it came from */
    TRACE_ENDED,       /* `word` is the reason, the numbers are the usage */
    TRACE_ENGINE_DIED, /* the engine died while it ran the stream; deaths that the stream has survived, and its tokens
                          so far */
    TRACE_COMMITTED,   /* the turn was committed to its session */
    /* the engine */
    TRACE_RECEIVED, /* tokens of the prompt, and the maximum length of the timeline */
    TRACE_ADMITTED, /* the sequence has pages and a slot; tokens found in the KV cache, those of them that another tier
                       restored, tokens to compute */
    TRACE_FIRST_STEP, /* rows of the sequence in that step, and of the whole step */
    TRACE_OUTGREW,    /* the sequence outgrew RoPE's first set of frequencies and is prefilled again; its tokens */
    TRACE_PREEMPTED,  /* the sequence was preempted and gave up its pages; tokens of its timeline */
    TRACE_CLASS,      /* the sequence's scheduling class changed; `word` is the new one */
    TRACE_SAVED,      /* KV was saved off the device; `word` is the tier; the first token and the number of tokens */
    TRACE_FINISHED,   /* `word` is the reason; tokens reused, restored, computed and in total, and the engine's steps
                         during its life */
    TRACE_STAGES
};

enum { TRACE_NUMBERS = 5 };

struct trace_event {
    enum trace_stage stage;
    int64_t stream;           /* 0: there is none yet */
    uint64_t seq;             /* 0: there is none, or it is not known here */
    const char *word;         /* constant, or NULL */
    int64_t n[TRACE_NUMBERS]; /* named by the stage's row in trace.c */
};

/* A stored event: `ev.word` is NULL, and `word` holds a copy of what it was. */
struct trace_kept {
    struct trace_event ev;
    double at; /* trace_now() */
    char word[24];
};

/* Seconds since boot; hearthd and its engine use the same clock. */
double trace_now(void);

/* Whether an event emitted by any thread would currently be logged or stored. Any thread. */
bool trace_is_on(void);

/* Logs the event if debug lines are on, and stores it in the ring if it belongs to a stream and trace_keep() was
 * called. */
void trace_at(const struct trace_event *ev);

/* The same without the ring: for hearthd, which stores events as it likes. `out` receives the event in stored form. */
void trace_line(const struct trace_event *ev, struct trace_kept *out);

/* trace_keep() starts storing the events of streams. trace_take() removes the oldest one; false: there is none. If
 * nobody takes them, the oldest are overwritten. Any thread. */
void trace_keep(void);
bool trace_take(struct trace_kept *out);

/* The names of a stage, its word and its numbers, as used in the log line; NULL: the stage has no such field. */
const char *trace_stage_name(enum trace_stage stage);
const char *trace_word_name(enum trace_stage stage);
const char *trace_number_name(enum trace_stage stage, size_t i);
/* The stage of that name; TRACE_STAGES: there is none. */
enum trace_stage trace_stage_find(const char *name);
/* Copies a word up to the first character that a log line may not contain. */
void trace_copy_word(char out[24], const char *word);

/* trace(.stage = TRACE_ADMITTED, .stream = 7, ...): nothing is evaluated unless the event would be logged or stored. */
#define trace(...)                                              \
    do {                                                        \
        if (trace_is_on())                                      \
            trace_at(&(const struct trace_event){__VA_ARGS__}); \
    } while (0)

#endif
