/*
 * stream-internal.h - what the files that implement streams share; other modules must not include it. Loop thread.
 *
 * stream.c has the beginning, lookups and cancelling; attempt.c the engine's side; end.c how a stream ends; commit.c
 * how its turn gets into the session; subscribers.c delivery; recover.c streams from their journals.
 */
#ifndef DAEMON_STREAM_INTERNAL_H
#define DAEMON_STREAM_INTERNAL_H

#include "daemon/stream/state.h"
#include "daemon/stream/stream.h"

/* --- stream.c */

/* A new stream of that uid in STREAM_NEW; NULL when out of memory. */
struct stream *stream_new(struct server *s, uid_t uid, struct hearth_err *e);

/* Frees a stream that is in no list. */
void stream_free(struct stream *st);

void stream_move(struct stream *st, enum stream_state state); /* calls stream_set_state(), and traces the transition */

/* stream_trace(st, .stage = TRACE_COMMITTED, ...) records that the stream has passed a stage. Kept for
 * streams.trace. */
void stream_trace_at(struct stream *st, const struct trace_event *ev);
#define stream_trace(st, ...) stream_trace_at((st), &(const struct trace_event){.stream = (st)->number, __VA_ARGS__})

/* Whether the stream belongs to that uid and the name refers to it. */
bool stream_is(const struct stream *st, uid_t uid, const struct stream_name *name);

/* Appends a record to its journal. If that fails, the stream continues without a journal. */
void stream_record(struct stream *st, const struct wire_method *m, const void *body);

double stream_now_ms(void); /* monotonic */

/* Whether its last subscriber has left and none has attached since. A stream recovered from its journal is not
 * abandoned before that: its client is expected back. */
static inline bool stream_is_abandoned(const struct stream *st)
{
    return st->grace && TAILQ_EMPTY(&st->subscribers);
}

/* The class that the request gets: the requested one, as far as the configuration allows it; background if the stream
 * is abandoned. */
const char *stream_class(const struct stream *st);
/* Sends the current class to the engine. */
void stream_tell_class(const struct stream *st);

/* --- attempt.c */

/* Submits the stream to an engine and moves it to `state`. */
int stream_submit(struct stream *st, enum stream_state state, struct hearth_err *e);

/* Frees what is kept of streams that ended at their deadline while an engine had them. */
void stream_late_fini(struct streams *v);

/* Copies the ids of the request's input and the sampling parameters from the engine's event. From then on the stream
 * has begun. */
int stream_set_begun(struct stream *st, const struct wire_engine_begin *b);

static inline bool stream_has_begun(const struct stream *st)
{
    return st->appended != NULL;
}

/* --- end.c */

/* Ends the stream with the engine's result. */
void stream_end_by_engine(struct stream *st, const struct wire_engine_result *r);

/* Ends the stream without a result of the engine: cancelled, or with the error `e`. The stream may be freed. */
void stream_end_here(struct stream *st, const struct hearth_err *e);

/* Makes the error the stream's finish reason. */
void stream_set_error(struct stream *st, const struct hearth_err *e);

/* Maps the finish reason of an engine or a journal to one of PROTOCOL.md's; anything unknown is "error". */
const char *stream_reason(const char *finish_reason);

/* Called when everything has been delivered: moves the stream to its rest state, or frees it. */
void stream_delivered(struct stream *st);

/* --- commit.c */

/* Writes the turn into the session, and marks this stream as committed in the same transaction. False if that fails:
 * the error becomes the finish reason unless that is an error already, and st->rest says whether it is retried. */
bool stream_commit(struct stream *st);

/* The id of the session in which the stream's turn is stored, or will be by a retry; NULL if there is none, for example
 * because the stream was to create the session and ended before its first token. */
const char *stream_kept_session(const struct stream *st);

/* Moves a delivered stream whose turn could not be written at first to the retry queue (the state `rest`), or frees
 * it. */
void commit_enqueue(struct stream *st);

/* For a stream of the retry queue that is subscribed to again: tries to commit it and moves it to STREAM_DRAINING. */
void commit_reopen(struct stream *st);

/* --- subscribers.c */

/* Sends new output to all subscribers that have room for it. A subscriber that has received everything of an ended
 * stream gets the result; with the last of them the stream is delivered, and may be freed. */
void subscribers_flush(struct stream *st);

/* Sends a notice about the stream to all subscribers. */
void subscribers_notify(const struct stream *st, const char *name, const char *message);

/* Sends the progress of the prefill to the subscribers that have room for it. */
void subscribers_progress(const struct stream *st, const struct wire_stream_progress *p);

/* Ends all subscriptions with the error. */
void subscribers_fail(struct stream *st, const struct hearth_err *e);

/* --- recover.c */

/* Reads a finished stream's output from its journal, and moves the stream to STREAM_DRAINING for subscribers. */
int recover_finished(struct server *s, const struct journal_entry *je, struct stream **out, struct hearth_err *e);

#endif
