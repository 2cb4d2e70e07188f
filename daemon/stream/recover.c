/* recover.c - streams from their journals: unfinished ones are submitted again, finished ones are read for subscribers.
 * Loop thread. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/store/store.h"
#include "daemon/stream/stream-internal.h"

/* Makes a stream from a journal's copy, whose content it takes over, and from the session, which it takes over in any
 * case. */
static int from_copy(struct server *s, struct journal_copy *c, struct session *ss, struct stream **out,
                     struct hearth_err *e)
{
    struct stream *st = stream_new(s, (uid_t)c->head->uid, e);
    if (!st) {
        session_free(ss);
        return e->code;
    }
    st->request = &c->head->req;
    st->session = ss;
    if (c->begin != NULL && stream_set_begun(st, c->begin) != 0) {
        stream_free(st);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    st->number = c->head->stream;
    st->hash = c->head->hash;
    st->choice = c->head->choice;
    st->block = c->head;
    st->output = c->output;
    st->attempts = 1;
    if (c->end) {
        st->end = c->end->result;
        st->end.finish_reason = stream_reason(c->end->result.finish_reason);
        snprintf(st->error, sizeof st->error, "%s", c->end->error != NULL ? c->end->error : "");
    }
    c->head = NULL;
    c->output = (struct output){0};
    *out = st;
    return 0;
}

int recover_finished(struct server *s, const struct journal_entry *je, struct stream **out, struct hearth_err *e)
{
    struct journal_copy c;
    struct session *ss;
    int rc = journal_load(s->journal, je, &c, e);
    if (rc)
        return rc;
    rc = session_of_head(c.head, &ss, e);
    if (!rc)
        rc = from_copy(s, &c, ss, out, e);
    if (!rc)
        stream_move(*out, STREAM_DRAINING);
    journal_copy_fini(&c);
    return rc;
}

/* The streams that still have something to do, in the order of their numbers. */
struct recovery {
    struct server *server;
    struct left {
        int64_t number;
        struct journal_entry *unfinished; /* NULL: it is finished */
        struct journal_copy copy;
    } * v;
    size_t n, cap;
};

static void failed(int64_t number, bool finished, const struct hearth_err *e)
{
    log_error("stream %lld of an earlier hearthd cannot %s: %s", (long long)number,
              finished ? "be written to its session" : "go on", e->msg);
}

/* Collects a stream if it is unfinished, or if its turn is not in the database. */
static void collect(void *arg, struct journal_entry *je, struct journal_copy *c)
{
    struct recovery *r = arg;
    struct hearth_err e;
    bool committed;
    int rc = store_is_committed(r->server->store, je->number, &committed, &e);
    if (!rc && committed) {
        if (!c->end) /* only the last record is missing */
            journal_remove(r->server->journal, je);
        return;
    }
    if (!rc && c->end && !c->head->name)
        return;
    if (!rc && r->n == r->cap) {
        size_t cap = 2 * r->cap + 16;
        struct left *v = reallocarray(r->v, cap, sizeof *v);
        if (v)
            r->v = v, r->cap = cap;
        else
            rc = err_set(&e, HEARTH_ENOMEM, "out of memory");
    }
    if (rc) {
        failed(je->number, c->end != NULL, &e);
        return;
    }
    r->v[r->n++] = (struct left){je->number, c->end ? NULL : je, *c};
    *c = (struct journal_copy){0};
}

/*
 * Whether a later stream began in the same session without the turn of stream i, because that turn could not be written
 * at the time. The later one replaces it, as in commit.c. A stream whose timeline contains the turn does not: a loss of
 * power can take the last turns out of the database, and they are then written again in their order.
 */
static bool is_replaced(const struct recovery *r, size_t i)
{
    const struct wire_journal_head *a = r->v[i].copy.head;
    for (size_t k = i + 1; k < r->n; k++) {
        const struct wire_journal_head *b = r->v[k].copy.head;
        if (a->uid != b->uid || !a->name || !b->name)
            continue;
        if (a->is_new && b->is_new ? strcmp(a->name, b->name) == 0
                                   : strcmp(a->session, b->session) == 0 && b->history <= a->history)
            return true;
    }
    return false;
}

/* Records that the turn of a finished stream is never written. */
static void lost(struct server *s, const struct left *l, const char *why)
{
    store_commit_nothing(s->store, l->number, NULL);
    if (l->copy.head && l->copy.end)
        journal_end_again(s->journal, (uid_t)l->copy.head->uid, l->number, why, &l->copy.end->result);
}

/* Commits the turn of a finished stream, or submits an unfinished one again. */
static void recover(struct server *s, struct left *l)
{
    struct session *ss = NULL;
    struct stream *st;
    struct hearth_err e;
    commit_retry(s, (uid_t)l->copy.head->uid); /* an earlier stream of the session may be uncommitted */
    int rc = session_reopen(s, l->copy.head, &ss, &e);
    if (!rc)
        rc = from_copy(s, &l->copy, ss, &st, &e);
    if (rc) {
        failed(l->number, !l->unfinished, &e);
        if (rc != HEARTH_ENOSESSION && rc != HEARTH_ECONFLICT) {
            if (l->unfinished)
                l->unfinished->left = true;
            return; /* the next start tries again */
        }
        if (l->unfinished)
            journal_remove(s->journal, l->unfinished);
        else
            lost(s, l, e.msg);
        return;
    }
    if (!l->unfinished) {
        stream_commit(st);
        stream_delivered(st);
        return;
    }
    st->journal = l->unfinished;
    log_info("stream %lld of an earlier hearthd goes on at token %zu", (long long)st->number, st->output.n_ids);
    if (stream_submit(st, STREAM_RUNNING, &e) != 0)
        stream_end_here(st, &e);
}

static void recover_all(struct recovery *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct left *l = &r->v[i];
        if (!l->unfinished && is_replaced(r, i)) {
            log_error("stream %lld is not written to session %s: the session has gone on without it",
                      (long long)l->number, l->copy.head->session);
            lost(r->server, l, "the session has gone on without it");
        } else {
            recover(r->server, l);
        }
    }
    for (size_t i = 0; i < r->n; i++)
        journal_copy_fini(&r->v[i].copy);
    free(r->v);
}

/* Whether a session whose removal was interrupted still exists; also true if that cannot be determined. */
static bool is_there(void *arg, uid_t uid, const char *id)
{
    struct server *s = arg;
    struct store_session *row = NULL;
    struct hearth_err e;
    int rc = s->store ? store_get(s->store, uid, id, &row, &e) : 0;
    store_session_free(row);
    return rc != HEARTH_ENOSESSION;
}

void stream_recover(struct server *s)
{
    /* More streams than journals can have that began after the last turn in the database. */
    static const int64_t unknown = 1000000;
    struct hearth_err e;
    int64_t last = s->streams->last; /* of streams without a journal, before the state directory could be used */
    if (s->store && store_last_stream(s->store, &s->streams->last, &e) != 0)
        log_warn("%s", e.msg);
    if (last > s->streams->last)
        s->streams->last = last;
    if (!s->journal) {
        /* The journals will be read later. A turn that is committed until then must not have the number of a stream
         * there, whose own turn would count as committed. */
        if (s->store && s->streams->last < STORE_STREAM_MAX - unknown)
            s->streams->last += unknown;
        return;
    }
    struct recovery r = {.server = s};
    int64_t highest = journal_replay(s->journal, collect, &r);
    recover_all(&r);
    journal_expire(s->journal);
    if (highest > s->streams->last)
        s->streams->last = highest;
    journal_finish_removals(s->journal, is_there, s);
}
