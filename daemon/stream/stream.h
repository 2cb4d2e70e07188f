/*
 * stream.h - one generation, from the request to its answer. Loop thread.
 *
 * What the engine made is kept here, written to the journal (journal.h), and delivered to the stream's readers: the
 * call that began it and those that attached. Each has a number that says how much it has been sent, so one that does
 * not read costs nothing but that number: it goes on with larger frames when it has room again. No token is dropped and
 * nobody else waits. A stream without readers goes on for conf.attach_grace seconds; one that an earlier hearthd left
 * behind goes on to its end.
 */
#ifndef DAEMON_STREAM_H
#define DAEMON_STREAM_H

#include "daemon/rpc/dispatch.h"
#include "daemon/stream/session.h"

struct stream;

/* Starts the call's generation on the session, which becomes the stream's in any case. The call is answered at the end,
 * or by the caller where this fails. */
int stream_start(struct call *call, struct session *ss, const uint64_t *hash, struct hearth_err *e);

/* That uid's stream, running or finished, by number or by request id. `hash`: it must have been the same request, else
 * HEARTH_ECONFLICT; HEARTH_ENOSTREAM. What is found must be attached to at once. */
int stream_get(struct server *s, uid_t uid, int64_t number, const char *request, const uint64_t *hash,
               struct stream **out, struct hearth_err *e);

/* The call gets the stream's events from token `from` on, and its answer. */
void stream_attach(struct stream *st, struct call *call, bool events, int64_t from);

/* Takes up what an earlier hearthd left behind. Once, when the loop begins. */
void stream_recover(struct server *s);

/* Asks for the end: the engine answers with what there is by then. */
void stream_cancel(struct stream *st);
void stream_cancel_all(struct server *s);

/* Ends all here and now, when the engine is gone for good. */
void stream_end_all(struct server *s);

/* The peer can take frames again. */
void stream_unthrottle(struct conn *c);

/* A running stream of that uid by its number, or by the client's request id; NULL. */
struct stream *stream_find(struct server *s, uid_t uid, int64_t number, const char *request);
const struct session *stream_session(const struct stream *st);
int64_t stream_number(const struct stream *st);
bool stream_is_running(const struct stream *st);     /* false: only its delivery is left */
bool stream_is_detached(const struct stream *st);    /* its last reader has gone, and it waits for another */
struct stream *stream_next(const struct stream *st); /* in server->streams */

/* Connections whose streams wait for that model get `body` as model.progress, under the client's name for it. */
void stream_on_progress(struct server *s, const struct wire_model_progress *body, uint64_t mark);

/* Events of the engine. */
void stream_on_begin(struct server *s, const void *body);
void stream_on_tokens(struct server *s, const void *body);

#endif
