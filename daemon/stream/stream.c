/* stream.c - streams as other modules see them: starting, finding, attaching to and cancelling them. Loop thread. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/supervisor/engines.h"

double stream_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- life ----------------------------------------------------------------------------------------------- */

struct streams *streams_new(struct hearth_err *e)
{
    struct streams *v = malloc(sizeof *v);
    if (v)
        streams_init(v);
    else
        err_set(e, HEARTH_ENOMEM, "out of memory");
    return v;
}

void streams_free(struct streams *v)
{
    if (!v)
        return;
    quarantine_fini(&v->quarantined);
    trace_log_fini(&v->traces);
    stream_late_fini(v);
    free(v);
}

void streams_served(const struct streams *v, struct served_room *room, struct wire_served *out)
{
    served_tell(&v->served, room, out);
}

int64_t streams_open(const struct streams *v)
{
    return v->n_open;
}

int64_t streams_live(const struct streams *v)
{
    return v->n_live;
}

int64_t streams_late(const struct streams *v)
{
    return v->n_late;
}

struct stream *stream_new(struct server *s, uid_t uid, struct hearth_err *e)
{
    struct stream *st = calloc(1, sizeof *st);
    struct account *account = acl_get(&s->acl, uid);
    if (!st || !account) {
        acl_put(account);
        free(st);
        err_set(e, HEARTH_ENOMEM, "out of memory");
        return NULL;
    }
    *st = (struct stream){.server = s, .account = account, .started_ms = stream_now_ms(), .rest = STREAM_GONE};
    st->asked_ms = st->started_ms;
    TAILQ_INIT(&st->subscribers);
    return st;
}

void stream_free(struct stream *st)
{
    timer_free(st->grace);
    timer_free(st->late);
    session_free(st->session);
    acl_put(st->account);
    wire_free(st->block);
    free(st->appended);
    output_fini(&st->output);
    free(st);
}

void stream_trace_at(struct stream *st, const struct trace_event *ev)
{
    struct trace_kept k;
    trace_line(ev, &k);
    trace_log_add(&st->server->streams->traces, st->account->uid, &k);
}

void stream_move(struct stream *st, enum stream_state state)
{
    stream_trace(st, .stage = TRACE_STATE, .word = stream_state_name(state));
    stream_set_state(st->server->streams, st, state);
}

/* --- the journal ---------------------------------------------------------------------------------------- */

/* The stream continues without a journal, and loses nothing as long as hearthd lives. */
static void lose_journal(struct stream *st, const struct hearth_err *e)
{
    log_error("%s", e->msg);
    subscribers_notify(st, "NOT_JOURNALED", e->msg);
}

void stream_record(struct stream *st, const struct wire_method *m, const void *body)
{
    struct hearth_err e;
    if (st->journal && st->journal->fd >= 0 && journal_add(st->server->journal, st->journal, m, body, &e) != 0)
        lose_journal(st, &e);
}

static int begin_journal(struct stream *st, struct hearth_err *e)
{
    struct server *s = st->server;
    const struct store_session *row = &st->session->row;
    if (!s->journal)
        return 0; /* the log says why */
    struct wire_journal_head h = {
        .stream = st->number,
        .uid = st->account->uid,
        .hash = st->hash,
        .session = row->id,
        .name = row->name,
        .model = row->model,
        .path = row->path,
        .is_new = st->session->is_new,
        .created = row->created,
        .history = (int64_t)st->session->n_ids,
        .turn_open = row->turn_open,
        .choice = st->choice,
        .req = *st->request,
    };
    return journal_begin(s->journal, &h, &st->journal, e);
}

/* --- starting ------------------------------------------------------------------------------------------- */

int stream_draw_seed(struct wire_sampling *sampling, struct hearth_err *e)
{
    if (sampling->has_seed)
        return 0;
    if (getrandom(&sampling->seed, sizeof sampling->seed, 0) != sizeof sampling->seed)
        return err_set(e, HEARTH_EINTERNAL, "no random numbers");
    sampling->seed >>= 11;
    sampling->has_seed = true;
    return 0;
}

/* Makes a stream in STREAM_NEW; takes over the session. */
static struct stream *from_spec(struct server *s, const struct stream_spec *spec, struct hearth_err *e)
{
    struct stream *st = stream_new(s, spec->uid, e);
    if (!st) {
        session_free(spec->session);
        return NULL;
    }
    st->asked_ms -= spec->waited_ms;
    st->session = spec->session;
    st->number = s->streams->last + 1;
    st->hash = spec->hash;
    st->choice = spec->choice;
    st->client = spec->client;
    st->request = spec->request;
    return st;
}

int stream_start(struct server *s, const struct stream_spec *spec, struct stream **out, struct hearth_err *e)
{
    struct stream *st = from_spec(s, spec, e);
    if (!st)
        return HEARTH_ENOMEM;
    int rc = quarantine_check(&s->streams->quarantined, spec->uid, st->session->row.path, e);
    if (!rc)
        rc = stream_draw_seed(&spec->request->sampling, e);
    if (!rc) {
        stream_trace(st, .stage = TRACE_CREATED, .n = {spec->uid, spec->call});
        rc = stream_submit(st, STREAM_QUEUED, e);
    }
    if (rc) {
        stream_free(st);
        return rc;
    }
    st->block = spec->request;
    s->streams->last = st->number;
    /* Lets the engine start while the journal is created; none of its events is handled before that. */
    engine_client_flush(st->engine);
    struct hearth_err lost = {0};
    begin_journal(st, &lost);
    stream_attach(st, spec->subscriber);
    if (lost.code != 0)
        lose_journal(st, &lost);
    *out = st;
    return 0;
}

/* --- cancelling ----------------------------------------------------------------------------------------- */

static void ignore_answer(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* the answer to engine.generate is the one that counts */
}

void stream_cancel(struct stream *st)
{
    struct wire_engine_cancel c = {.stream = st->number};
    if (st->state == STREAM_ORPHANED) {
        stream_end_here(st, NULL);
        return;
    }
    if (!stream_in(st, STREAMS_SUBMITTED & ~STREAMS_CANCELLING))
        return;
    stream_move(st, st->state == STREAM_PROBING ? STREAM_CANCELLING_PROBE : STREAM_CANCELLING);
    engine_call(st->engine, &wire_methods[WIRE_ENGINE_CANCEL], &c, ignore_answer, NULL, NULL);
}

void stream_cancel_all(struct server *s)
{
    struct stream *st;
    while ((st = stream_first(s->streams, STREAMS_LIVE & ~STREAMS_CANCELLING)) != NULL)
        stream_cancel(st);
}

void stream_end_all(struct server *s)
{
    struct stream *st;
    while (s->streams && (st = stream_first(s->streams, STREAMS_LIVE)) != NULL)
        stream_end_here(st, NULL);
}

/* --- classes --------------------------------------------------------------------------------------------- */

static const char *const classes[] = {"interactive", "normal", "background"};

static int class_named(const char *name)
{
    int i = 0;
    while (i < 2 && strcmp(classes[i], name) != 0)
        i++;
    return i;
}

int stream_class_of(const struct server *s, const struct wire_generate *g)
{
    int wanted = g->service_class ? class_named(g->service_class) : 1;
    int most = s->conf->class ? class_named(s->conf->class) : 0;
    return wanted > most ? wanted : most;
}

const char *stream_class(const struct stream *st)
{
    return classes[stream_is_abandoned(st) ? 2 : stream_class_of(st->server, st->request)];
}

void stream_tell_class(const struct stream *st)
{
    struct wire_engine_class c = {.stream = st->number, .class = stream_class(st)};
    if (stream_in(st, STREAMS_SUBMITTED & ~STREAMS_CANCELLING))
        engine_call(st->engine, &wire_methods[WIRE_ENGINE_CLASS], &c, ignore_answer, NULL, NULL);
}

/* --- lookups -------------------------------------------------------------------------------------------- */

bool stream_is(const struct stream *st, uid_t uid, const struct stream_name *name)
{
    const char *its = st->request->request;
    if (st->account->uid != uid)
        return false;
    if (!name->request)
        return st->number == name->number;
    return its && strcmp(its, name->request) == 0 && (name->choice < 0 || name->choice == st->choice);
}

static struct stream *find(struct server *s, uid_t uid, const struct stream_name *name, unsigned states)
{
    struct stream *st;
    STREAMS_FOREACH (st, s->streams, states)
        if (stream_is(st, uid, name))
            return st;
    return NULL;
}

struct stream *stream_find(struct server *s, uid_t uid, int64_t number)
{
    return find(s, uid, &(struct stream_name){.number = number}, STREAMS_LIVE);
}

bool stream_cancel_named(struct server *s, uid_t uid, const struct stream_name *name)
{
    struct stream *st;
    bool any = find(s, uid, name, STREAMS_LIVE) != NULL;
    while ((st = find(s, uid, name, STREAMS_LIVE & ~STREAMS_CANCELLING)) != NULL)
        stream_cancel(st);
    return any;
}

/* Finds a stream, running or not, in memory or only in its journal. */
static bool look_up(struct server *s, uid_t uid, const struct stream_name *name, struct stream **st,
                    struct journal_entry **je)
{
    *je = NULL;
    *st = find(s, uid, name, STREAMS_OPEN | STREAMS_RETRY);
    if (!*st && s->journal)
        *je = journal_find(s->journal, uid, name->number, name->request, name->choice);
    return *st || (*je && (*je)->ended);
}

/* Whether a stream that look_up() has found is made again, in memory, for its delivery. */
static bool is_replayed(const struct stream *st)
{
    return !st || stream_in(st, STREAMS_RETRY);
}

bool stream_is_known(struct server *s, uid_t uid, const struct stream_name *name, bool *replayed)
{
    struct stream *st;
    struct journal_entry *je;
    bool known = look_up(s, uid, name, &st, &je);
    *replayed = known && is_replayed(st);
    return known;
}

bool stream_choices(const struct stream *st, size_t *choice, size_t *n, uint64_t *seed)
{
    if (st->choice < 0)
        return false;
    *choice = (size_t)st->choice;
    *n = (size_t)st->request->n;
    *seed = st->request->sampling.seed - (uint64_t)st->choice;
    return st->choice < st->request->n;
}

static int conflict(const char *request, struct hearth_err *e)
{
    return err_set(e, HEARTH_ECONFLICT, "request \"%.80s\" was made before, and with other content", request);
}

int stream_check_request(struct server *s, uid_t uid, const char *request, uint64_t hash, struct hearth_err *e)
{
    const struct stream_name any = {.number = -1, .request = request, .choice = -1};
    struct stream *st;
    struct journal_entry *je;
    bool other = look_up(s, uid, &any, &st, &je) && hash != (st ? st->hash : je->hash);
    return other ? conflict(request, e) : 0;
}

int stream_check_replay(struct server *s, uid_t uid, struct hearth_err *e)
{
    struct account *a = acl_get(&s->acl, uid);
    int64_t n = a ? a->streams : 0;
    acl_put(a);
    if (n < s->conf->streams_per_uid)
        return 0;
    return err_set(e, HEARTH_ELIMIT,
                   "user %u has %lld streams that run or are still to be read, the limit (streams_per_uid): ask again "
                   "when one of them has ended",
                   (unsigned)uid, (long long)n);
}

int stream_get(struct server *s, uid_t uid, const struct stream_name *name, const uint64_t *hash, struct stream **out,
               struct hearth_err *e)
{
    int rc;
    struct stream *st;
    struct journal_entry *je;
    const char *id = name->request;
    if (!look_up(s, uid, name, &st, &je)) {
        if (id)
            return err_set(e, HEARTH_ENOSTREAM, "there is no stream of the request \"%.80s\"", id);
        return err_set(e, HEARTH_ENOSTREAM, "there is no stream %lld", (long long)name->number);
    }
    if (hash && *hash != (st ? st->hash : je->hash))
        return conflict(id, e);
    if (name->choice < 0 && is_replayed(st) && (rc = stream_check_replay(s, uid, e)))
        return rc;
    if (!st)
        return recover_finished(s, je, out, e);
    if (stream_in(st, STREAMS_RETRY))
        commit_reopen(st);
    *out = st;
    return 0;
}

int stream_traced(const struct server *s, uid_t uid, int64_t number, const struct traced_stream **out,
                  struct hearth_err *e)
{
    const struct traced_stream *t = trace_log_find(&s->streams->traces, number);
    if (!t || (t->uid != uid && acl_check(PERM_ADMIN, "streams.trace", uid, NULL) != 0))
        return err_set(e, HEARTH_ENOSTREAM, "there is no trace of a stream %lld", (long long)number);
    *out = t;
    return 0;
}

bool stream_waits_in(const struct server *s, const char *session)
{
    struct stream *st;
    STREAMS_FOREACH (st, s->streams, 1 << STREAM_UNCOMMITTED)
        if (strcmp(st->session->row.id, session) == 0)
            return true;
    return false;
}

bool stream_runs_in(const struct server *s, const char *session)
{
    const struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_LIVE)
        if (strcmp(st->session->row.id, session) == 0)
            return true;
    return false;
}

bool stream_creates(const struct server *s, uid_t uid, const char *name)
{
    const struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_LIVE) {
        const struct store_session *row = &st->session->row;
        if (st->session->is_new && row->uid == uid && row->name && strcmp(row->name, name) == 0)
            return true;
    }
    return false;
}

int64_t stream_count_creating(const struct server *s, uid_t uid)
{
    const struct stream *st;
    int64_t n = 0;
    STREAMS_FOREACH (st, s->streams, STREAMS_LIVE)
        n += st->session->is_new && st->session->row.uid == uid && st->session->row.name;
    return n;
}

void stream_rename_session(struct server *s, const char *session, const char *name)
{
    struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_OPEN | STREAMS_RETRY) {
        struct store_session *row = &st->session->row;
        char *copy = row->name && strcmp(row->id, session) == 0 ? strdup(name) : NULL;
        if (!copy)
            continue;
        free(row->name);
        row->name = copy;
    }
}

void stream_move_parent(struct server *s, const char *from, const char *to)
{
    struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_OPEN | STREAMS_RETRY) {
        struct store_session *row = &st->session->row;
        if (strcmp(row->parent, from) == 0)
            snprintf(row->parent, sizeof row->parent, "%s", to);
    }
}

int64_t stream_take_over(struct server *s, uid_t uid, const char *session)
{
    struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_LIVE) {
        const struct store_session *row = &st->session->row;
        if (!stream_is_abandoned(st) || row->uid != uid || !row->name ||
            strcmp(store_is_id(session) ? row->id : row->name, session) != 0)
            continue;
        int64_t number = st->number;
        log_info("stream %lld: nobody reads it, and its session is wanted: cancelled", (long long)number);
        stream_cancel(st);
        return number;
    }
    return 0;
}

int64_t stream_make_way(struct server *s, uid_t uid)
{
    struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_LIVE & ~STREAMS_CANCELLING)
        if (stream_is_abandoned(st) && st->account->uid == uid) {
            int64_t number = st->number;
            log_info("stream %lld: nobody reads it, and another one has no room: cancelled", (long long)number);
            stream_cancel(st);
            return number;
        }
    return 0;
}

bool stream_is_leaving(const struct server *s, uid_t uid)
{
    const struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_CANCELLING)
        if (st->account->uid == uid)
            return true;
    return false;
}

bool stream_any_with(const struct server *s, bool (*match)(const char *path, void *arg), void *arg)
{
    const struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_OPEN)
        if (match(st->session->row.path, arg))
            return true;
    return false;
}

void stream_each_loading(const struct server *s, const char *path,
                         void (*visit)(const struct subscriber *sub, const char *model, void *arg), void *arg)
{
    const struct stream *st;
    const struct subscriber *sub;
    STREAMS_FOREACH (st, s->streams, STREAMS_OPEN)
        if (!stream_has_begun(st) && st->choice <= 0 && strcmp(st->session->row.path, path) == 0)
            TAILQ_FOREACH (sub, &st->subscribers, entry)
                visit(sub, st->session->row.model, arg);
}
