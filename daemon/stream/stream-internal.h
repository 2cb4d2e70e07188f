/*
 * stream-internal.h - what the files of a stream share; nobody else includes it. Loop thread.
 *
 * stream.c has the beginning, lookups and cancelling; attempt.c the engine's side; end.c how a stream ends; commit.c
 * how its turn gets into the session; subscribers.c delivery; recover.c streams from their journals.
 */
#ifndef DAEMON_STREAM_INTERNAL_H
#define DAEMON_STREAM_INTERNAL_H

#include "daemon/stream/state.h"
#include "daemon/stream/stream.h"

/* --- stream.c */

/* A stream of that uid in STREAM_NEW; NULL without memory. */
struct stream *stream_new(struct server *s, uid_t uid, struct hearth_err *e);

/* Frees a stream that is in no list. */
void stream_free(struct stream *st);

void stream_move(struct stream *st,
                 enum stream_state state); /* stream_set_state() in its server's lists, and its trace */

/* stream_trace(st, .stage = TRACE_COMMITTED, ...): the stream has passed a stage. Kept for streams.trace. */
void stream_trace_at(struct stream *st, const struct trace_event *ev);
#define stream_trace(st, ...) stream_trace_at((st), &(const struct trace_event){.stream = (st)->number, __VA_ARGS__})

/* Whether that uid has it by that name. */
bool stream_is(const struct stream *st, uid_t uid, const struct stream_name *name);

/* Appends a record to its journal. A failure costs the journal, not the stream. */
void stream_record(struct stream *st, const struct wire_method *m, const void *body);

double stream_now_ms(void); /* monotonic */

/* Whether its client has gone, and nobody came for it yet; a stream that was taken up from its journal still expects
 * its client. */
static inline bool stream_is_abandoned(const struct stream *st)
{
    return st->grace && TAILQ_EMPTY(&st->subscribers);
}

/* What the request asks for, as far as the configuration lets it; of the background where nobody reads it. */
const char *stream_class(const struct stream *st);
/* The engine is told of it anew. */
void stream_tell_class(const struct stream *st);

/* --- attempt.c */

/* Gives the stream to the engine: it is in `state` then. */
int stream_submit(struct stream *st, enum stream_state state, struct hearth_err *e);

/* Takes a copy of the ids of the request's input, and how tokens are sampled. From then on the stream has begun. */
int stream_set_begun(struct stream *st, const struct wire_engine_begin *b);

static inline bool stream_has_begun(const struct stream *st)
{
    return st->appended != NULL;
}

/* --- end.c */

/* The engine's result is the end. */
void stream_end_by_engine(struct stream *st, const struct wire_engine_result *r);

/* The end that no engine gave: cancelled, or the error `e`. The stream may be freed. */
void stream_end_here(struct stream *st, const struct hearth_err *e);

/* Makes the error the stream's end. */
void stream_set_error(struct stream *st, const struct hearth_err *e);

/* One of PROTOCOL.md's finish reasons, whatever the engine or the journal says. */
const char *stream_reason(const char *finish_reason);

/* Everything has been delivered: the stream goes to rest, or is freed. */
void stream_delivered(struct stream *st);

/* --- commit.c */

/* Writes the turn into the session, and into the same transaction that this stream's is written. False where that
 * cannot be: the end says why unless it gives another reason already, and st->rest says whether it is tried again. */
bool stream_commit(struct stream *st);

/* The id of the session that it leaves; NULL for none, as where it was to make one and ended before a token. */
const char *stream_kept_session(const struct stream *st);

/* Moves a delivered stream whose turn could not be written at once to the retry queue (the state `rest`), or frees it.
 */
void commit_enqueue(struct stream *st);

/* A stream of the retry queue is subscribed to again: tries to commit it and moves it to STREAM_DRAINING. */
void commit_reopen(struct stream *st);

/* --- subscribers.c */

/* Sends what is new to all subscribers that have room for it. One that has all of it and sees the end gets the result;
 * the stream is delivered, and may be freed, with the last of them. */
void subscribers_flush(struct stream *st);

/* Sends a notice about the stream to all subscribers. */
void subscribers_notify(const struct stream *st, const char *name, const char *message);

/* Tells those that have room for it how much of the prompt has been read. */
void subscribers_progress(const struct stream *st, const struct wire_stream_progress *p);

/* Ends all subscriptions with the error. */
void subscribers_fail(struct stream *st, const struct hearth_err *e);

/* --- recover.c */

/* A finished stream's output from its journal, in STREAM_DRAINING for subscribers. */
int recover_finished(struct server *s, const struct journal_entry *je, struct stream **out, struct hearth_err *e);

#endif
