/*
 * attempt.c - a stream's attempts on engines: submits the stream, handles the engine's events, and submits the stream
 * again when the engine dies. Loop thread.
 *
 * When an engine dies, any of the streams that ran on it may be the cause, and a request that kills engines must not
 * take the others with it. So the suspects are probed one by one (crash bisection), oldest first: the next one is
 * submitted when the one before has produced a token or has ended, or when it waits for memory and computes nothing.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/stream/past.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/model-fds.h"

enum { CRASHES_MAX = 16 }; /* engine deaths that one stream survives in total, with or without progress */

/* --- its deadline --------------------------------------------------------------------------------------- */

/* A stream that ended at its deadline while an engine had it. It keeps its place in the limits until the engine has
 * answered. */
struct late {
    struct streams *streams;
    struct account *account;
    bool is_probe;
    LIST_ENTRY(late) entry;
};

static void late_free(struct late *l)
{
    LIST_REMOVE(l, entry);
    l->account->late--;
    l->streams->n_late--;
    l->streams->n_late_probes -= l->is_probe;
    acl_put(l->account);
    free(l);
}

void stream_late_fini(struct streams *v)
{
    while (!LIST_EMPTY(&v->late))
        late_free(LIST_FIRST(&v->late));
}

/* The stream has been answered: whatever the engine made of it in the end is of no use. */
static void on_late_result(void *arg, const void *result, const struct hearth_err *err)
{
    (void)result, (void)err;
    late_free(arg);
}

static void on_late_cancelled(void *arg, const void *result, const struct hearth_err *err)
{
    (void)arg, (void)result, (void)err; /* on_late_result() is called, too */
}

/* Takes the stream off its engine, whose answer will be ignored; false when out of memory. */
static bool leave_engine(struct stream *st)
{
    struct streams *v = st->server->streams;
    struct late *l = calloc(1, sizeof *l);
    if (!l)
        return false;
    if (!stream_in(st, STREAMS_CANCELLING))
        engine_call(st->engine, &wire_methods[WIRE_ENGINE_CANCEL], &(struct wire_engine_cancel){.stream = st->number},
                    on_late_cancelled, NULL, NULL);
    engine_hand_over(st->engine, st, on_late_result, l);
    *l = (struct late){.streams = v, .account = st->account, .is_probe = stream_in(st, STREAMS_ISOLATED)};
    l->account->refs++;
    l->account->late++;
    v->n_late++;
    v->n_late_probes += l->is_probe;
    LIST_INSERT_HEAD(&v->late, l, entry);
    return true;
}

/* Neither an engine that is silent or has died, nor one that only starts, ends a stream at its deadline. */
static void on_late(void *arg)
{
    struct stream *st = arg;
    struct hearth_err e;
    if (st->output.n_ids > 0 || !stream_in(st, STREAMS_LIVE))
        return;
    err_set(&e, HEARTH_ECANCELLED, "there was no token within %lld ms (deadline_ms)",
            (long long)st->request->deadline_ms);
    bool was_cancelled = stream_in(st, STREAMS_CANCELLING);
    if (st->state == STREAM_ORPHANED || leave_engine(st))
        stream_end_here(st, was_cancelled ? NULL : &e);
}

/* Sets the timer for a stream that has so many milliseconds left. The grace is for the engine's own answer, which has
 * more to say, and comes at the end of a step. */
static int watch_deadline(struct stream *st, int64_t left, struct hearth_err *e)
{
    enum { GRACE_MS = 1000 };
    if (!st->late)
        st->late = timer_new(st->server->base, on_late, st);
    if (!st->late || timer_set(st->late, left + GRACE_MS))
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

/* --- submitting ----------------------------------------------------------------------------------------- */

static int32_t *append(int32_t *to, const int32_t *ids, size_t n)
{
    if (n > 0)
        memcpy(to, ids, n * sizeof *to);
    return to + n;
}

/*
 * Checks that the model's file is still the one that the stream began with; a stream that has begun continues with the
 * same model or not at all. If the file was replaced, the engine that died may have used either version, and nobody can
 * tell which. The files in a folder are not checked individually.
 */
static int check_file(struct stream *st, struct hearth_err *e)
{
    const char *path = st->session->row.path;
    struct stat sb;
    if (model_fds_label(path) != path || stat(path, &sb) || !S_ISREG(sb.st_mode))
        return 0; /* a passed file is identified by its descriptor, and a missing file is refused by the engine */
    if (!stream_has_begun(st)) {
        st->file.known = true;
        st->file.dev = sb.st_dev, st->file.ino = sb.st_ino, st->file.size = sb.st_size, st->file.mtime = sb.st_mtim;
        return 0;
    }
    bool same = st->file.dev == sb.st_dev && st->file.ino == sb.st_ino && st->file.size == sb.st_size &&
                st->file.mtime.tv_sec == sb.st_mtim.tv_sec && st->file.mtime.tv_nsec == sb.st_mtim.tv_nsec;
    if (st->file.known && !same)
        return err_set(e, HEARTH_EBADMODEL, "%.120s was replaced while it was in use, and its engine has died", path);
    return 0;
}

/* Session, input and output as one timeline, malloc'd; NULL when out of memory. */
static int32_t *timeline(const struct stream *st, size_t *n)
{
    *n = st->session->n_ids + st->n_appended + st->output.n_ids;
    int32_t *all = malloc((*n + 1) * sizeof *all);
    if (all)
        append(append(append(all, st->session->ids, st->session->n_ids), st->appended, st->n_appended), st->output.ids,
               st->output.n_ids);
    return all;
}

/* The engine has refused the stream for want of room: submits it to another one. */
static void on_elsewhere(struct stream *st)
{
    struct hearth_err e;
    engines_move(st->server->engines, st->session->row.path, st->engine);
    st->attempts--; /* nothing was computed in this attempt */
    if (stream_submit(st, st->state, &e) != 0)
        stream_end_here(st, &e);
}

static void on_result(void *arg, const void *result, const struct hearth_err *err);

/* For a stream that had begun, the history includes its own tokens so far, and `resumed` is their number. */
int stream_submit(struct stream *st, enum stream_state state, struct hearth_err *e)
{
    struct wire_engine_generate g = {
        .stream = st->number,
        .uid = st->account->uid,
        .path = st->session->row.path,
        .history = {.v = st->session->ids, .n = st->session->n_ids},
        .turn_open = st->session->row.turn_open,
        .client = st->client,
        .label = st->session->row.name ? st->session->row.id : NULL,
        .hash = st->session->means.hash[0] ? st->session->means.hash : NULL,
        .hashed = st->session->means.n,
        .req = *st->request,
    };
    int32_t *all = NULL;
    struct past past = {0};
    int rc = check_file(st, e);
    if (rc)
        return rc;
    g.req.session = g.req.request = NULL;
    g.req.service_class = stream_class(st);
    if (g.req.deadline_ms) { /* the engine counts from when it receives the request */
        int64_t passed = (int64_t)(stream_now_ms() - st->asked_ms);
        g.req.deadline_ms = passed < g.req.deadline_ms ? g.req.deadline_ms - passed : 1;
    }
    if (g.req.deadline_ms && st->output.n_ids == 0 && (rc = watch_deadline(st, g.req.deadline_ms, e)))
        return rc;
    if (stream_has_begun(st)) {
        size_t n;
        all = timeline(st, &n);
        if (!all)
            return err_set(e, HEARTH_ENOMEM, "out of memory");
        g.history = (struct wire_ids){.v = all, .n = n};
        g.resumed = (int64_t)st->output.n_ids;
        g.markers = st->markers[0] != '\0' ? st->markers : NULL;
        g.thinking = st->thinking;
        if (st->means.hash[0]) {
            g.hash = st->means.hash;
            g.hashed = st->means.n;
        }
        g.turn_open = g.turn_open || g.req.n_messages > 0;
        g.req.messages = NULL;
        g.req.n_messages = 0;
        g.req.text = (struct wire_bytes){0};
        g.req.tokens = (struct wire_ids){0};
        g.req.prefix = g.req.suffix = (struct wire_bytes){0};
        g.req.extra = NULL;
        g.req.n_extra = 0;
    } else if (g.req.n_messages && g.label && !st->session->is_new) {
        rc = past_read(st->server, &st->session->row, &past, e);
        if (rc)
            return rc;
        g.past = past.v;
        g.n_past = past.n;
        g.past_at = past.at;
    }
    st->engine = engines_for(st->server->engines, g.path);
    rc = engine_call(st->engine, &wire_methods[WIRE_ENGINE_GENERATE], &g, on_result, st, e);
    free(all);
    past_fini(&past);
    if (rc)
        return rc;
    st->attempts++;
    st->parked = false;
    st->resumed = g.resumed > 0;
    stream_trace(st, .stage = TRACE_SUBMITTED, .n = {(int64_t)g.history.n, g.resumed});
    if (st->state != state)
        stream_move(st, state);
    return 0;
}

/* Whether a probe is under way. One that waits for memory, for as long as that is yielded perhaps, kills no engine
 * meanwhile, and holds up nobody. */
static bool is_probing(const struct streams *v)
{
    const struct stream *st;
    STREAMS_FOREACH (st, v, STREAMS_ISOLATED)
        if (!st->parked)
            return true;
    return v->n_late_probes > 0;
}

void stream_probe_next(struct server *s)
{
    struct stream *st;
    struct hearth_err e;
    while (!is_probing(s->streams) && (st = stream_first(s->streams, 1 << STREAM_ORPHANED)) != NULL)
        if (stream_submit(st, STREAM_PROBING, &e) != 0)
            stream_end_here(st, &e);
}

/* --- its end -------------------------------------------------------------------------------------------- */

static void on_engine_death(struct stream *st, const struct hearth_err *err)
{
    struct server *s = st->server;
    /* An engine that does not even start is unlikely to start for a new request either, so the request fails. Streams
     * that had begun wait for a later start. With several devices, the stream is left to the other ones. */
    if (st->state == STREAM_QUEUED && !engine_was_ready(st->engine) && !engines_has_other(s->engines, st->engine)) {
        stream_end_here(st, err);
        return;
    }
    st->crashes++;
    st->retries++;
    stream_trace(st, .stage = TRACE_ENGINE_DIED, .n = {st->crashes, (int64_t)st->output.n_ids});
    bool running = s->phase == SERVER_RUNNING;
    if (st->retries > s->conf->stream_retries || st->crashes > CRASHES_MAX || !running) {
        if (running && st->retries == st->crashes)
            quarantine_add(&s->streams->quarantined, st->account->uid, st->session->row.path, err->msg);
        stream_end_here(st, err);
        return;
    }
    log_warn("stream %lld: taken up again at token %zu", (long long)st->number, st->output.n_ids);
    subscribers_notify(st, "RECOVERING", err->msg);
    stream_move(st, STREAM_ORPHANED);
}

static void on_result(void *arg, const void *result, const struct hearth_err *err)
{
    struct stream *st = arg;
    if (!err)
        stream_end_by_engine(st, result);
    else if (stream_in(st, STREAMS_CANCELLING))
        stream_end_here(st, NULL);
    else if (err->code == HEARTH_EENGINE)
        on_engine_death(st, err);
    else if (err->code == HEARTH_EELSEWHERE)
        on_elsewhere(st);
    else
        stream_end_here(st, err);
}

/* --- its events ----------------------------------------------------------------------------------------- */

/* Returns the stream of an engine's event; NULL if no engine has that stream any more. */
static struct stream *submitted(struct server *s, int64_t number)
{
    struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_SUBMITTED)
        if (st->number == number)
            return st;
    return NULL;
}

/* Sets the sampling parameters that the request left open to those that the engine chose, so that they are stored, and
 * used again if the stream is resubmitted. */
static void set_sampling(struct wire_sampling *to, const struct wire_sampling *from)
{
    struct wire_sampling was = *to;
    *to = *from;
    to->has_seed = was.has_seed;
    to->seed = was.seed;
    to->logit_bias = was.logit_bias;
    to->n_logit_bias = was.n_logit_bias;
}

static void set_means(struct stream *st, const struct wire_engine_begin *b)
{
    if (b->hash) {
        snprintf(st->means.hash, sizeof st->means.hash, "%s", b->hash);
        st->means.n = b->hashed;
    } else { /* no vocabulary, or an older hearthd's event: keeps what was known of the beginning */
        st->means = st->session->means;
    }
}

int stream_set_begun(struct stream *st, const struct wire_engine_begin *b)
{
    const struct wire_ids *ids = &b->appended;
    st->appended = calloc(ids->n + 1, sizeof *st->appended);
    if (!st->appended)
        return HEARTH_ENOMEM;
    append(st->appended, ids->v, ids->n);
    st->n_appended = ids->n;
    snprintf(st->markers, sizeof st->markers, "%s", b->markers ? b->markers : "");
    st->thinking = b->thinking;
    set_means(st, b);
    if (b->has_sampling)
        set_sampling(&st->request->sampling, &b->sampling);
    return 0;
}

void stream_on_begin(struct server *s, const void *body)
{
    const struct wire_engine_begin *b = body;
    struct stream *st = submitted(s, b->stream);
    if (st && stream_has_begun(st) && !st->means.hash[0])
        set_means(st, b); /* the journal of an older hearthd does not have it */
    if (!st || stream_has_begun(st))
        return; /* it has ended; or it was resubmitted and had begun before */
    if (stream_set_begun(st, b) != 0) {
        log_error("stream %lld is cancelled: no memory for its beginning", (long long)st->number);
        stream_cancel(st);
        return;
    }
    if (st->state == STREAM_QUEUED)
        stream_move(st, STREAM_RUNNING);
    if (b->history_kept)
        subscribers_notify(st, "HISTORY_KEPT",
                           "the chat template renders earlier messages otherwise than this session has them (without "
                           "their reasoning, or with other tools): the session keeps what it has");
    if (b->think_unknown && st->choice <= 0)
        subscribers_notify(st, "THINK_UNKNOWN",
                           "the chat template does not know how to have the model think, or not think");
    stream_record(st, &wire_methods[WIRE_ENGINE_BEGIN], b);
    subscribers_flush(st);
}

/* A token was produced, so neither this request nor its model is the cause of the crashes. */
static void clear_suspicion(struct stream *st)
{
    st->retries = 0;
    if (st->state == STREAM_PROBING)
        stream_move(st, STREAM_RUNNING);
    else if (st->state == STREAM_CANCELLING_PROBE)
        stream_move(st, STREAM_CANCELLING);
    quarantine_clear(&st->server->streams->quarantined, st->account->uid, st->session->row.path);
}

void stream_on_tokens(struct server *s, const void *body)
{
    const struct wire_engine_tokens *t = body;
    struct stream *st = submitted(s, t->stream);
    if (!st)
        return;
    struct hearth_err e;
    if (!stream_has_begun(st) || (size_t)t->index != st->output.n_ids) {
        log_error("stream %lld: the engine sent token %lld, want %zu", (long long)st->number, (long long)t->index,
                  st->output.n_ids);
        stream_cancel(st);
        return;
    }
    bool first = st->output.n_ids == 0 && t->tokens.n > 0;
    if (t->tokens.n > 0)
        st->last_ms = stream_now_ms();
    if (output_append(&st->output, t, &e) != 0) {
        log_error("stream %lld is cancelled: %s", (long long)st->number, e.msg);
        stream_cancel(st);
        return;
    }
    if (first) {
        st->first_ms = st->last_ms;
        stream_trace(st, .stage = TRACE_FIRST_TOKEN);
    }
    stream_record(st, &wire_methods[WIRE_ENGINE_TOKENS], t);
    if (t->tokens.n > 0)
        clear_suspicion(st);
    subscribers_flush(st);
}

void stream_on_progress(struct server *s, const void *body)
{
    const struct wire_stream_progress *p = body;
    const struct stream *st = submitted(s, p->stream);
    if (st && stream_has_begun(st) && st->output.n_ids == 0)
        subscribers_progress(st, p);
}

void stream_on_parked(struct server *s, const void *body)
{
    const struct wire_engine_parked *p = body;
    struct stream *st = submitted(s, p->stream);
    if (st)
        st->parked = p->parked;
    if (st && p->parked && p->yielded)
        subscribers_notify(st, "PARKED",
                           "memory is yielded to other programs, and the stream waits: `hearth yield --end` ends that");
    else if (st && p->parked)
        subscribers_notify(st, "WAITING",
                           "the memory is other models' now, and the stream waits until their streams have ended: "
                           "`hearth streams` has them");
    else if (st)
        subscribers_notify(st, "RESUMED", "there is memory again, and the stream goes on");
}

void stream_on_trace(struct server *s, const void *body)
{
    const struct wire_engine_trace *t = body;
    double now = trace_now();
    struct trace_kept k = {
        .ev = {.stage = trace_stage_find(t->stage),
               .stream = t->stream,
               .seq = (uint64_t)t->seq,
               .n = {t->n1, t->n2, t->n3, t->n4, t->n5}},
        .at = t->at > 0 && t->at <= now ? t->at : now,
    };
    if (k.ev.stage < TRACE_RECEIVED || k.ev.stage >= TRACE_STAGES)
        return; /* the engine is of another build */
    trace_copy_word(k.word, t->word);
    trace_log_add_engine(&s->streams->traces, (pid_t)t->pid, &k);
}
