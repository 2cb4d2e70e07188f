/*
 * commit.c - commits a stream's turn to its session, and has the retry queue of streams whose turn could not be written
 * because the disk was full even after cached KV was evicted. Loop thread.
 *
 * The subscribers of such a stream got the error (finish_reason error, STORE) and have the text. The journal has it
 * too, as far as the disk allowed, and the next start commits the turn. On a full disk, however, there may be no
 * journal either, and a user who frees space wants to continue at once rather than after a restart of hearthd. So these
 * streams stay in memory (STREAM_UNCOMMITTED) and are retried when a request opens the session or the same request is
 * repeated, unless the session has been continued without that turn by then.
 *
 * A stream that was retried also stays in memory (STREAM_RETAINED): a repetition of the request is answered from it
 * rather than generated again. Of both kinds the latest few are kept for each user. Of the uncommitted ones only the
 * latest is kept for each session, because each was computed without the others.
 */
#include "config.h"

#include <string.h>

#include "daemon/log.h"
#include "daemon/retention/kvdir.h"
#include "daemon/retention/retention.h"
#include "daemon/store/store.h"
#include "daemon/stream/journal.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/trace.h"

enum { RETRY_QUEUE_MAX = 8 /* streams per user */ };

/* --- committing ----------------------------------------------------------------------------------------- */

/* Whether there is a turn to store: one with tokens, or an empty answer of the model itself. */
static bool has_turn(const struct stream *st)
{
    if (!stream_has_begun(st))
        return false;
    if (st->output.n_ids > 0)
        return true;
    const char *why = st->end.finish_reason;
    return strcmp(why, "error") != 0 && strcmp(why, "cancelled") != 0;
}

const char *stream_kept_session(const struct stream *st)
{
    const struct session *ss = st->session;
    return ss->row.name && (!ss->is_new || has_turn(st) || st->rest == STREAM_UNCOMMITTED) ? ss->row.id : NULL;
}

static int commit_turn(struct stream *st, struct hearth_err *e)
{
    struct session_turn turn = {
        .request = st->request,
        .appended = {.v = st->appended, .n = st->n_appended},
        .completion = {.v = st->output.ids, .n = st->output.n_ids},
        .text = {.data = st->output.text, .len = st->output.n_text},
        .info = {.info = {.finish_reason = st->end.finish_reason,
                          .usage = st->end.usage,
                          .timings = st->end.timings,
                          .sampling = st->request->sampling},
                 .reasoning = output_reasoning(&st->output),
                 .hash = st->means.hash[0] ? st->means.hash : NULL,
                 .hashed = st->means.n},
        .turn_open = st->end.turn_open,
        .stream = st->number,
    };
    return session_commit(st->server, st->session, &turn, e);
}

/* Commits the turn; if the disk is full, evicts cached KV, which can be recomputed, to make room. */
static int commit_with_room(struct stream *st, struct hearth_err *e)
{
    static const int64_t enough[] = {64 << 20, INT64_MAX};
    struct server *s = st->server;
    int rc = commit_turn(st, e);
    for (size_t i = 0; rc && store_is_full(s->store) && i < sizeof enough / sizeof *enough; i++)
        if (kvdir_give_way(s->kv, enough[i]))
            rc = commit_turn(st, e);
    return rc;
}

/* Logs that the turn is not in the session, and records that the next start need not try to write it. */
static void not_written(struct stream *st, const char *why)
{
    log_error("stream %lld is not written to session %s: %s", (long long)st->number, st->session->row.id, why);
    store_commit_nothing(st->server->store, st->number, NULL);
    journal_end_again(st->server->journal, st->account->uid, st->number, why, &st->end);
}

/* Records that the turn was not committed. An earlier error stays the reported one. */
static void not_committed(struct stream *st, const struct hearth_err *e)
{
    if (e->code == HEARTH_ESESSIONEXISTS || e->code == HEARTH_ENOSESSION) {
        not_written(st, e->msg);
    } else {
        log_error("stream %lld is not written to session %s: %s", (long long)st->number, st->session->row.id, e->msg);
        st->rest = STREAM_UNCOMMITTED;
        st->turn_reason = st->end.finish_reason;
    }
    if (strcmp(st->end.finish_reason, "error") != 0)
        stream_set_error(st, e);
}

static bool same_session(const struct session *a, const struct session *b)
{
    return strcmp(a->row.id, b->row.id) == 0 ||
           (a->is_new && b->is_new && a->row.name && b->row.name && strcmp(a->row.name, b->row.name) == 0);
}

/* A turn has been written: turns of the session that could not be, and were computed without it, never will be. */
static void replace_uncommitted(const struct stream *st)
{
    struct stream *other, *next;
    for (other = stream_first(st->server->streams, 1 << STREAM_UNCOMMITTED); other; other = next) {
        next = stream_next(st->server->streams, other, 1 << STREAM_UNCOMMITTED);
        if (other == st || other->account != st->account || !same_session(other->session, st->session))
            continue;
        not_written(other, "the session has gone on without it");
        other->rest = STREAM_RETAINED;
        stream_move(other, STREAM_RETAINED);
    }
}

bool stream_commit(struct stream *st)
{
    struct server *s = st->server;
    struct hearth_err e;
    if (!s->store)
        return true;
    if (!st->session->row.name || !has_turn(st)) {
        if (store_commit_nothing(s->store, st->number, &e) != 0)
            log_warn("stream %lld: %s", (long long)st->number, e.msg);
        return true;
    }
    if (commit_with_room(st, &e) != 0) {
        not_committed(st, &e);
        return false;
    }
    replace_uncommitted(st);
    stream_trace(st, .stage = TRACE_COMMITTED, .n = {(int64_t)st->n_appended, (int64_t)st->output.n_ids});
    if (s->retention) /* the recovery at the start comes before it; it checks all sessions when it begins */
        retention_trim_uid(s, st->account->uid);
    return true;
}

/* --- the retry queue ------------------------------------------------------------------------------------ */

static void give_up(struct stream *st)
{
    if (st->state == STREAM_UNCOMMITTED)
        log_error("stream %lld is not written to session %s: given up", (long long)st->number, st->session->row.id);
    stream_move(st, STREAM_GONE);
    stream_free(st);
}

/* Drops the account's uncommitted streams in the same session: the newer `st` replaces them. */
static void replace(const struct stream *st)
{
    struct streams *v = st->server->streams;
    struct stream *other, *next;
    for (other = stream_first(v, 1 << STREAM_UNCOMMITTED); other; other = next) {
        next = stream_next(v, other, 1 << STREAM_UNCOMMITTED);
        if (other->account != st->account || !same_session(other->session, st->session))
            continue;
        not_written(other, "a later turn of the session replaces it");
        give_up(other);
    }
}

void commit_enqueue(struct stream *st)
{
    struct stream *other, *oldest = NULL;
    int n = 1;
    if (st->rest == STREAM_UNCOMMITTED)
        replace(st);
    STREAMS_FOREACH (other, st->server->streams, STREAMS_RETRY)
        if (other->account == st->account) {
            oldest = oldest && oldest->number < other->number ? oldest : other;
            n++;
        }
    if (n > RETRY_QUEUE_MAX)
        give_up(oldest);
    stream_move(st, st->rest);
}

/* Commits the turn of an uncommitted stream if no other turn has been written in between. The stream is retained from
 * then on, unless another attempt is worthwhile. */
static void try_commit(struct stream *st)
{
    struct server *s = st->server;
    const struct session *ss = st->session;
    struct hearth_err e;
    if (st->state != STREAM_UNCOMMITTED || stream_runs_in(s, ss->row.id) ||
        (ss->is_new && stream_creates(s, ss->row.uid, ss->row.name)))
        return;
    st->rest = STREAM_RETAINED;
    int rc = session_check_unchanged(s, ss, &e);
    if (rc == HEARTH_ENOSESSION || rc == HEARTH_ECONFLICT) {
        not_written(st, e.msg);
    } else if (rc) {
        log_error("stream %lld is not written to session %s: %s", (long long)st->number, ss->row.id, e.msg);
        st->rest = STREAM_UNCOMMITTED;
    } else {
        if (strcmp(st->turn_reason, "error") != 0)
            st->error[0] = '\0';
        st->end.finish_reason = st->turn_reason;
        if (stream_commit(st))
            log_info("stream %lld is written to session %s now", (long long)st->number, ss->row.id);
    }
    if (st->rest == STREAM_RETAINED)
        stream_move(st, STREAM_RETAINED);
}

/* The uid's first uncommitted stream with a number above `after`; NULL. */
static struct stream *next_uncommitted(struct server *s, uid_t uid, int64_t after)
{
    struct stream *st, *first = NULL;
    STREAMS_FOREACH (st, s->streams, 1 << STREAM_UNCOMMITTED)
        if (st->account->uid == uid && st->number > after && (!first || st->number < first->number))
            first = st;
    return first;
}

/* Searches anew for each stream, because committing a turn may cause other sessions, and with them streams of this
 * queue, to be removed. */
void commit_retry(struct server *s, uid_t uid)
{
    struct stream *st;
    for (int64_t at = -1; (st = next_uncommitted(s, uid, at)) != NULL;) {
        at = st->number;
        try_commit(st);
    }
}

void commit_reopen(struct stream *st)
{
    try_commit(st);
    stream_move(st, STREAM_DRAINING);
}

void commit_forget(struct server *s, const char *session)
{
    struct stream *st, *next;
    for (st = stream_first(s->streams, STREAMS_RETRY); st; st = next) {
        next = stream_next(s->streams, st, STREAMS_RETRY);
        if (strcmp(st->session->row.id, session) == 0)
            give_up(st);
    }
}

void commit_fini(struct server *s)
{
    struct stream *st;
    while (s->streams && (st = stream_first(s->streams, STREAMS_RETRY)) != NULL) {
        try_commit(st);
        give_up(st);
    }
}
