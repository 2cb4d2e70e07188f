/*
 * show.c - see show.h. Reading and packing 14 MiB takes a tenth of a second of CPU time, during which nobody else would
 * be served. A long session is therefore read by a thread with a database connection of its own, one session after the
 * other, by turns of their users, and the loop passes the packed answer on. A short one is read directly.
 */
#include "config.h"

#include "daemon/rpc/show.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/loop.h"
#include "daemon/retention/kvdir.h"
#include "daemon/retention/retention.h"
#include "daemon/store/generation-info.h"
#include "daemon/store/store.h"
#include "daemon/stream/sessions.h"
#include "daemon/supervisor/model-fds.h"

enum { SHORT = 256 << 10 /* bytes of texts and ids up to which a session is read directly */ };

struct show {
    TAILQ_ENTRY(show) entry;
    int64_t turn; /* users take turns, one session each: their first requests are in the same turn, and so on */
    struct call *call;
    char id[STORE_ID_LEN + 1], parent[STORE_ID_LEN + 1];
    uid_t uid;
    bool tokens;
    struct wire_session described; /* the parts of the answer that only the loop knows */
    /* Owned by the thread until it ends. */
    const char *path; /* path of the database */
    int ended;        /* shows.ended */
    struct wire_buf packed;
    struct hearth_err err;
};

struct shows {
    struct server *server;
    TAILQ_HEAD(show_queue, show) queue; /* in the order of their turns; the first one is being read */
    pthread_t thread;
    bool runs;
    int ended; /* an eventfd, written when the thread ends */
    struct watch *watch;
};

/* --- any thread ----------------------------------------------------------------------------------------------- */

/* Packs the answer into `to`, or answers the call directly if that is NULL. */
static int read_and_reply(struct store *st, const struct store_session *row, const struct wire_session *described,
                          bool tokens, struct call *call, struct wire_buf *to, struct hearth_err *e)
{
    struct store_turn *turns = NULL;
    struct generation_turns w = {0};
    int32_t *ids = NULL;
    static const int32_t none[1]; /* for a requested timeline that is empty: with NULL the field would be omitted */
    size_t n = 0, n_ids = 0;
    int rc = store_turns(st, row, &turns, &n, e);
    if (!rc && tokens)
        rc = store_timeline(st, row, &ids, &n_ids, e);
    if (!rc)
        rc = generation_turns(turns, n, false, &w, e);
    if (!rc) {
        struct wire_session_show_result r = {.session = *described,
                                             .turns = w.v,
                                             .n_turns = n,
                                             .tokens = {.v = tokens && !n_ids ? none : ids, .n = n_ids}};
        if (to)
            rc = wire_pack_result(to, 0, &wire_methods[WIRE_SESSIONS_SHOW], &r, e);
        else
            call_reply(call, &r);
    }
    store_turns_free(turns, n);
    generation_turns_fini(&w);
    free(ids);
    return rc;
}

/* --- the thread -------------------------------------------------------------------------------------------------- */

/* Reads the session as it is now: if it was continued in the meantime, the newer turns are included. */
static int read_aside(struct show *sh, struct hearth_err *e)
{
    struct store *reader = NULL;
    struct store_session *row = NULL;
    int rc = store_open_reader(&reader, sh->path, e);
    if (!rc)
        rc = store_get(reader, sh->uid, sh->id, &row, e);
    if (!rc) {
        struct wire_session now = sh->described;
        now.name = row->name;
        now.model = row->model;
        now.path = model_fds_label(row->path);
        now.tokens = row->n_tok;
        now.turns = row->n_turns;
        now.bytes = row->bytes;
        now.used = row->used;
        rc = read_and_reply(reader, row, &now, sh->tokens, NULL, &sh->packed, e);
    }
    store_session_free(row);
    store_close(reader);
    return rc;
}

static void *show_main(void *arg)
{
    struct show *sh = arg;
    if (read_aside(sh, &sh->err) == 0)
        sh->err.code = 0;
    uint64_t one = 1;
    (void)!write(sh->ended, &one, sizeof one); /* cannot fail: nothing else is written to it */
    return NULL;
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static void show_free(struct show *sh)
{
    wire_buf_fini(&sh->packed);
    free(sh);
}

static int start(struct shows *all, struct show *sh, struct hearth_err *e)
{
    sigset_t set, before;
    sigfillset(&set); /* signals are handled by the loop thread */
    pthread_sigmask(SIG_SETMASK, &set, &before);
    all->runs = pthread_create(&all->thread, NULL, show_main, sh) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    all->server->reads_aside = all->runs;
    return all->runs ? 0 : err_set(e, HEARTH_EINTERNAL, "no thread to read a session");
}

/* Starts reading the first session in the queue whose peer is still connected. */
static void next(struct shows *all)
{
    struct show *sh;
    while ((sh = TAILQ_FIRST(&all->queue)) != NULL) {
        struct hearth_err e;
        int rc = sh->call->conn ? start(all, sh, &e) : err_set(&e, HEARTH_ECANCELLED, "the connection has gone");
        if (!rc)
            return;
        TAILQ_REMOVE(&all->queue, sh, entry);
        call_fail(sh->call, &e);
        show_free(sh);
    }
}

static void join(struct shows *all)
{
    uint64_t one;
    pthread_join(all->thread, NULL);
    (void)!read(all->ended, &one, sizeof one);
    all->runs = all->server->reads_aside = false;
    retention_read_ended(all->server);
}

static void on_ended(void *arg)
{
    struct shows *all = arg;
    struct show *sh = TAILQ_FIRST(&all->queue);
    struct wire_frame f;
    join(all);
    TAILQ_REMOVE(&all->queue, sh, entry);
    if (!sh->err.code && !wire_frame_open(&f, sh->packed.data, sh->packed.len, &sh->err))
        call_reply_packed(sh->call, &(struct wire_bytes){(const char *)f.body, f.body_len});
    else
        call_fail(sh->call, &sh->err);
    show_free(sh);
    next(all);
}

void shows_free(struct shows *all)
{
    struct hearth_err e;
    struct show *sh;
    if (!all)
        return;
    if (all->runs)
        join(all);
    err_set(&e, HEARTH_ESHUTDOWN, "hearthd is shutting down");
    while ((sh = TAILQ_FIRST(&all->queue)) != NULL) {
        TAILQ_REMOVE(&all->queue, sh, entry);
        call_fail(sh->call, &e);
        show_free(sh);
    }
    watch_free(all->watch);
    if (all->ended >= 0)
        close(all->ended);
    free(all);
}

static struct shows *shows_new(struct server *s)
{
    struct shows *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    *all = (struct shows){.server = s, .ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    TAILQ_INIT(&all->queue);
    all->watch = all->ended >= 0 ? watch_new(s->base, all->ended, on_ended, all) : NULL;
    if (!all->watch) {
        shows_free(all);
        return NULL;
    }
    return all;
}

/* Gives it its user's next turn, which is at least that of the session being read. */
static void enqueue(struct shows *all, struct show *sh)
{
    struct show *at = TAILQ_FIRST(&all->queue), *other;
    sh->turn = at ? at->turn : 0;
    TAILQ_FOREACH (other, &all->queue, entry)
        if (other->uid == sh->uid)
            sh->turn = other->turn + 1;
    at = TAILQ_LAST(&all->queue, show_queue);
    while (at && at->turn > sh->turn)
        at = TAILQ_PREV(at, show_queue, entry);
    if (at)
        TAILQ_INSERT_AFTER(&all->queue, at, sh, entry);
    else
        TAILQ_INSERT_HEAD(&all->queue, sh, entry);
}

static int show_aside(struct call *call, const struct store_session *row, const struct wire_session *described,
                      struct hearth_err *e)
{
    struct server *s = call->server;
    const struct wire_session_ref *ref = call->params;
    struct show *sh = calloc(1, sizeof *sh);
    if (!s->shows)
        s->shows = shows_new(s);
    if (!sh || !s->shows) {
        free(sh);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *sh = (struct show){.call = call,
                        .uid = row->uid,
                        .tokens = ref->tokens,
                        .described = *described,
                        .path = store_path(s->store),
                        .ended = s->shows->ended};
    memcpy(sh->id, row->id, sizeof sh->id);
    sh->described.id = sh->id;
    sh->described.parent = described->parent ? memcpy(sh->parent, row->parent, sizeof sh->parent) : NULL;
    enqueue(s->shows, sh);
    if (!s->shows->runs)
        next(s->shows);
    return 0;
}

void msg_sessions_show(struct call *call)
{
    struct server *s = call->server;
    const struct wire_session_ref *ref = call->params;
    struct store_session *row = NULL;
    struct wire_session described;
    struct hearth_err e;
    int rc = session_get(s, call->account->uid, ref->session, &row, &e);
    if (!rc) {
        session_describe(s, row, &described);
        kvdir_describe(s->kv, &described, 1);
        if (row->bytes + row->base_tok * (int64_t)sizeof(int32_t) > SHORT)
            rc = show_aside(call, row, &described, &e);
        else
            rc = read_and_reply(s->store, row, &described, ref->tokens, call, NULL, &e);
    }
    if (rc)
        call_fail(call, &e);
    store_session_free(row);
}
