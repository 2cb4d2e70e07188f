/* fold.c - how what a stream has made gets into its session; see fold.h. Loop thread. */
#include "config.h"

#include "daemon/fold.h"

#include <string.h>

#include "daemon/log.h"
#include "daemon/store.h"
#include "daemon/stream-inside.h"
#include "daemon/tidy.h"

enum { MOST = 8 /* of a user */ };

/* --- writing it ----------------------------------------------------------------------------------------- */

/* The turn is kept where it has tokens, or where having none was the model's own answer. */
static bool is_kept(const struct stream *st)
{
    if (!st->began)
        return false;
    if (st->output.n_ids > 0)
        return true;
    const char *why = st->end.finish_reason;
    return strcmp(why, "error") != 0 && strcmp(why, "cancelled") != 0;
}

bool stream_fold(struct stream *st)
{
    struct server *s = st->server;
    struct wire_ids appended = {.v = st->appended, .n = st->n_appended};
    struct wire_ids made = {.v = st->output.ids, .n = st->output.n_ids};
    struct wire_bytes text = {.data = st->output.text, .len = st->output.n_text};
    struct wire_made how = {.finish_reason = st->end.finish_reason,
                            .usage = st->end.usage,
                            .timings = st->end.timings,
                            .sampling = st->request->sampling};
    struct hearth_err e;
    if (s->store == NULL)
        return true;
    if (st->session->row.name == NULL || !is_kept(st)) {
        if (store_fold_nothing(s->store, st->number, &e) != 0)
            log_warn("stream %lld: %s", (long long)st->number, e.msg);
    } else if (session_commit(s, st->session, st->request, &appended, &made, &text, &how, st->end.turn_open, st->number,
                              &e) != 0) {
        /* The journal has it: the next start tries again, if the session has not gone on by then. */
        log_error("stream %lld is not written to session %s: %s", (long long)st->number, st->session->row.id, e.msg);
        st->is_pending = e.code != HEARTH_ESESSIONEXISTS && e.code != HEARTH_ENOSESSION;
        st->unwritten = st->is_pending ? st->end.finish_reason : st->unwritten;
        if (strcmp(st->end.finish_reason, "error") != 0) /* of two reasons the first */
            stream_set_error(st, &e);
        if (!st->is_pending) /* it has no place any more */
            store_fold_nothing(s->store, st->number, &e);
        return false;
    } else if (s->tidy != NULL) { /* at a start, what else goes on is not in use yet: tidy_new() looks at all */
        tidy_uid(s, st->account->uid);
    }
    return true;
}

/* --- what could not be written -------------------------------------------------------------------------- */

static void drop(struct stream *st)
{
    TAILQ_REMOVE(&st->server->unwritten, st, entry);
    if (st->is_pending)
        log_error("stream %lld is not written to session %s: given up", (long long)st->number, st->session->row.id);
    stream_free(st);
}

static bool same_session(const struct session *a, const struct session *b)
{
    return strcmp(a->row.id, b->row.id) == 0 || (a->is_new && b->is_new && a->row.name != NULL && b->row.name != NULL &&
                                                 strcmp(a->row.name, b->row.name) == 0);
}

void fold_keep(struct stream *st)
{
    struct stream *other, *next, *oldest = NULL;
    int n = 1;
    for (other = TAILQ_FIRST(&st->server->unwritten); other != NULL; other = next) {
        next = TAILQ_NEXT(other, entry);
        if (other->account != st->account)
            continue;
        if (st->is_pending && other->is_pending && same_session(other->session, st->session)) {
            drop(other);
            continue;
        }
        oldest = oldest != NULL ? oldest : other;
        n++;
    }
    if (n > MOST)
        drop(oldest);
    TAILQ_INSERT_TAIL(&st->server->unwritten, st, entry);
}

/* Writes the turn, where nothing came between. */
static void try(struct stream *st)
{
    struct server *s = st->server;
    const struct session *ss = st->session;
    struct hearth_err e;
    if (!st->is_pending || session_is_busy(s, ss->row.id) ||
        (ss->is_new && session_is_reserved(s, ss->row.uid, ss->row.name)))
        return;
    st->is_pending = false;
    if (session_check_unchanged(s, ss, &e) != 0) {
        log_error("stream %lld is not written to session %s: %s", (long long)st->number, ss->row.id, e.msg);
        return;
    }
    if (strcmp(st->unwritten, "error") != 0)
        st->error[0] = '\0';
    st->end.finish_reason = st->unwritten;
    if (stream_fold(st))
        log_info("stream %lld is written to session %s now", (long long)st->number, ss->row.id);
}

void fold_try(struct server *s, uid_t uid)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->unwritten, entry)
        if (st->account->uid == uid)
            try(st);
}

struct stream *fold_find(struct server *s, uid_t uid, int64_t number, const char *request)
{
    struct stream *st;
    TAILQ_FOREACH (st, &s->unwritten, entry)
        if (stream_is(st, uid, number, request))
            return st;
    return NULL;
}

void fold_take(struct stream *st)
{
    try(st);
    TAILQ_REMOVE(&st->server->unwritten, st, entry);
    stream_insert(st);
}

void fold_forget(struct server *s, const char *session)
{
    struct stream *st, *next;
    for (st = TAILQ_FIRST(&s->unwritten); st != NULL; st = next) {
        next = TAILQ_NEXT(st, entry);
        if (strcmp(st->session->row.id, session) == 0)
            drop(st);
    }
}

void fold_end(struct server *s)
{
    struct stream *st;
    while ((st = TAILQ_FIRST(&s->unwritten)) != NULL) {
        try(st);
        drop(st);
    }
}
