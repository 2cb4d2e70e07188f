/* commit.c - how what a stream has made gets into its session; see commit.h. Loop thread. */
#include "config.h"

#include "daemon/stream/commit.h"

#include <string.h>

#include "daemon/log.h"
#include "daemon/store/store.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/retention/retention.h"

enum { RETRY_MAX = 8 /* of a user */ };

/* --- writing it ----------------------------------------------------------------------------------------- */

/* The turn is kept where it has tokens, or where having none was the model's own answer. */
static bool has_turn(const struct stream *st)
{
    if (!st->began)
        return false;
    if (st->output.n_ids > 0)
        return true;
    const char *why = st->end.finish_reason;
    return strcmp(why, "error") != 0 && strcmp(why, "cancelled") != 0;
}

bool stream_commit(struct stream *st)
{
    struct server *s = st->server;
    struct wire_ids appended = {.v = st->appended, .n = st->n_appended};
    struct wire_ids made = {.v = st->output.ids, .n = st->output.n_ids};
    struct wire_bytes text = {.data = st->output.text, .len = st->output.n_text};
    struct wire_generation_info how = {.finish_reason = st->end.finish_reason,
                                       .usage = st->end.usage,
                                       .timings = st->end.timings,
                                       .sampling = st->request->sampling};
    struct hearth_err e;
    if (!s->store)
        return true;
    if (!st->session->row.name || !has_turn(st)) {
        if (store_commit_nothing(s->store, st->number, &e) != 0)
            log_warn("stream %lld: %s", (long long)st->number, e.msg);
    } else if (session_commit(s, st->session, st->request, &appended, &made, &text, &how, st->end.turn_open, st->number,
                              &e) != 0) {
        /* The journal has it: the next start tries again, if the session has not gone on by then. */
        log_error("stream %lld is not written to session %s: %s", (long long)st->number, st->session->row.id, e.msg);
        st->commit_pending = e.code != HEARTH_ESESSIONEXISTS && e.code != HEARTH_ENOSESSION;
        st->uncommitted = st->commit_pending ? st->end.finish_reason : st->uncommitted;
        if (strcmp(st->end.finish_reason, "error") != 0) /* of two reasons the first */
            stream_set_error(st, &e);
        if (!st->commit_pending) /* it has no place any more */
            store_commit_nothing(s->store, st->number, &e);
        return false;
    } else if (s->retention !=
               NULL) { /* at a start, what else goes on is not in use yet: retention_new() looks at all */
        retention_trim_uid(s, st->account->uid);
    }
    return true;
}

/* --- what could not be written -------------------------------------------------------------------------- */

static void give_up(struct stream *st)
{
    TAILQ_REMOVE(&st->server->uncommitted, st, entry);
    if (st->commit_pending)
        log_error("stream %lld is not written to session %s: given up", (long long)st->number, st->session->row.id);
    stream_free(st);
}

static bool same_session(const struct session *a, const struct session *b)
{
    return strcmp(a->row.id, b->row.id) == 0 ||
           (a->is_new && b->is_new && a->row.name && b->row.name && strcmp(a->row.name, b->row.name) == 0);
}

void commit_retry_add(struct stream *st)
{
    struct stream *other, *next, *oldest = NULL;
    int n = 1;
    for (other = TAILQ_FIRST(&st->server->uncommitted); other != NULL; other = next) {
        next = TAILQ_NEXT(other, entry);
        if (other->account != st->account)
            continue;
        if (st->commit_pending && other->commit_pending && same_session(other->session, st->session)) {
            give_up(other);
            continue;
        }
        oldest = oldest != NULL ? oldest : other;
        n++;
    }
    if (n > RETRY_MAX)
        give_up(oldest);
    TAILQ_INSERT_TAIL(&st->server->uncommitted, st, entry);
}

/* Writes the turn, where nothing came between. */
static void try_commit(struct stream *st)
{
    struct server *s = st->server;
    const struct session *ss = st->session;
    struct hearth_err e;
    if (!st->commit_pending || session_is_busy(s, ss->row.id) ||
        (ss->is_new && session_is_reserved(s, ss->row.uid, ss->row.name)))
        return;
    st->commit_pending = false;
    if (session_check_unchanged(s, ss, &e) != 0) {
        log_error("stream %lld is not written to session %s: %s", (long long)st->number, ss->row.id, e.msg);
        return;
    }
    if (strcmp(st->uncommitted, "error") != 0)
        st->error[0] = '\0';
    st->end.finish_reason = st->uncommitted;
    if (stream_commit(st))
        log_info("stream %lld is written to session %s now", (long long)st->number, ss->row.id);
}

void commit_retry(struct server *s, uid_t uid)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->uncommitted, entry)
        if (st->account->uid == uid)
            try_commit(st);
}

struct stream *commit_retry_find(struct server *s, uid_t uid, int64_t number, const char *request)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->uncommitted, entry)
        if (stream_is(st, uid, number, request))
            return st;
    return NULL;
}

void commit_retry_take(struct stream *st)
{
    try_commit(st);
    TAILQ_REMOVE(&st->server->uncommitted, st, entry);
    stream_insert(st);
}

void commit_retry_forget(struct server *s, const char *session)
{
    struct stream *st, *next;
    for (st = TAILQ_FIRST(&s->uncommitted); st != NULL; st = next) {
        next = TAILQ_NEXT(st, entry);
        if (strcmp(st->session->row.id, session) == 0)
            give_up(st);
    }
}

void commit_retry_fini(struct server *s)
{
    struct stream *st;
    while ((st = TAILQ_FIRST(&s->uncommitted)) != NULL) {
        try_commit(st);
        give_up(st);
    }
}
