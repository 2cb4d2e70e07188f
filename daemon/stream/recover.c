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

/* Reopens the session for what is left to do. Returns 1 if nothing is, an error if the stream cannot continue. */
static int reopen(struct server *s, const struct journal_copy *c, struct session **ss, struct hearth_err *e)
{
    bool committed;
    int rc = store_is_committed(s->store, c->head->stream, &committed, e);
    if (rc || committed)
        return rc != 0 ? rc : 1;
    if (c->end && !c->head->name)
        return 1;
    commit_retry(s, (uid_t)c->head->uid); /* an earlier stream of the session may be uncommitted */
    return session_reopen(s, c->head, ss, e);
}

static void take(void *arg, struct journal_entry *je, struct journal_copy *c)
{
    struct server *s = arg;
    struct session *ss = NULL;
    struct stream *st;
    struct hearth_err e;
    bool finished = c->end != NULL;
    int rc = reopen(s, c, &ss, &e);
    if (!rc)
        rc = from_copy(s, c, ss, &st, &e);
    if (rc < 0)
        log_error("stream %lld of an earlier hearthd cannot %s: %s", (long long)je->number,
                  finished ? "be written to its session" : "go on", e.msg);
    if (rc == HEARTH_ENOSESSION && finished)
        store_commit_nothing(s->store, je->number, &e); /* otherwise every start would retry it and log the failure */
    if (rc) {
        if (!finished) /* the turn is committed and only the last record is missing, or the stream cannot continue */
            journal_remove(s->journal, je);
        return;
    }
    if (finished) {
        stream_commit(st);
        stream_delivered(st);
        return;
    }
    st->journal = je;
    log_info("stream %lld of an earlier hearthd goes on at token %zu", (long long)st->number, st->output.n_ids);
    if (stream_submit(st, STREAM_RUNNING, &e) != 0)
        stream_end_here(st, &e);
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
    int64_t highest = journal_replay(s->journal, take, s);
    if (highest > s->streams->last)
        s->streams->last = highest;
    journal_finish_removals(s->journal, is_there, s);
}
