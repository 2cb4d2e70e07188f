/* msg-status.c - status and shutdown. Loop thread. */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/games.h"
#include "daemon/rpc/queue.h"
#include "daemon/rpc/yields.h"
#include "daemon/retention/kvdir.h"
#include "daemon/supervisor/engines.h"
#include "daemon/log.h"
#include "daemon/supervisor/model-names.h"
#include "daemon/store/store.h"
#include "daemon/stream/stream.h"
#include "libclient/utf8.h"

static int64_t rss_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%*s %lld", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* The configuration file's name, or NULL if it is not UTF-8, which strings on the wire must be. */
static const char *config_file(const struct conf *c)
{
    return c->file && utf8_prefix(c->file, strlen(c->file)) == strlen(c->file) ? c->file : NULL;
}

/* Lists the users' shares of the KV files, as far as the peer may see them; malloc'd. */
static struct wire_kv_share *kv_shares(const struct call *call, size_t *n)
{
    uid_t uid = call->account->uid;
    size_t n_v;
    const struct kvdir_usage *v = kvdir_usage(call->server->kv, &n_v);
    struct wire_kv_share *w = calloc(n_v + 1, sizeof *w);
    *n = 0;
    for (size_t i = 0; w != NULL && i < n_v; i++)
        if (v[i].files > 0 && (v[i].uid == uid || acl_check(PERM_ADMIN, "status", uid, NULL) == 0))
            w[(*n)++] = (struct wire_kv_share){.uid = v[i].uid, .files = v[i].files, .bytes = v[i].bytes};
    return w;
}

/* Sets the name and the path of a model as the peer may see them; returns the name, which the caller frees. The names
 * of other users' files in their homes are private. */
static char *name_model(const struct call *call, struct wire_loaded_model *m)
{
    uid_t owner;
    if (!m->path)
        return NULL;
    bool is_others = model_fds_owner(m->path, &owner) && owner != call->account->uid &&
                     acl_check(PERM_ADMIN, "status", call->account->uid, NULL) != 0;
    char *name = is_others ? strdup("(another user's)") : model_name_of(call->server->conf, m->path);
    m->name = name;
    m->path = is_others ? NULL : model_fds_label(m->path);
    return name;
}

/* Where a row of the list of models comes from. */
struct source {
    const char *path; /* as the engine knows it */
    size_t engine;
};

/* Storage for the answer beyond what the engines have reported. */
struct told {
    struct wire_engine_status *v;     /* one for each engine */
    struct wire_loaded_model *models; /* of all of them, by engine */
    struct wire_loaded_model *merged; /* of all of them, without what merge() leaves out */
    struct source *from;              /* of each of `models` */
    char **names, **where;            /* one for each of `models` */
    char *device[ENGINES_MAX];        /* name with the device's number, if there are several devices */
    size_t n, n_models, n_merged;
};

static void told_free(struct told *t)
{
    for (size_t i = 0; t->names && i < t->n_models; i++)
        free(t->names[i]);
    for (size_t i = 0; t->where && i < t->n_models; i++)
        free(t->where[i]);
    for (size_t i = 0; i < t->n; i++)
        free(t->device[i]);
    free(t->where);
    free(t->names);
    free(t->from);
    free(t->merged);
    free(t->models);
    free(t->v);
}

/* Adds up the amounts and counters of several devices. The device's name, rates and everything else stay the first
 * one's; rows_max is the maximum. */
static void add_up(struct wire_engine_status *sum, const struct wire_engine_status *v, size_t n)
{
#define AT(field) offsetof(struct wire_engine_status, field)
    static const size_t counts[] = {
        AT(steps),
        AT(rows),
        AT(tokens_computed),
        AT(queued),
        AT(running),
        AT(restarts),
        AT(mem_total),
        AT(mem_free),
        AT(mem_cached),
        AT(replays),
        AT(memory.limit),
        AT(memory.weights),
        AT(memory.kv),
        AT(memory.workspace),
        AT(memory.cache),
        AT(memory.context),
        AT(memory.pinned),
        AT(memory.others),
        AT(kv.host_pages),
        AT(kv.host_bytes),
        AT(kv.host_limit),
        AT(kv.disk_pages),
        AT(kv.disk_bytes),
        AT(kv.pages_saved),
        AT(kv.pages_restored),
        AT(kv.pages_dropped),
        AT(kv.bytes_saved),
        AT(kv.bytes_restored),
        AT(kv.bytes_written),
        AT(kv.bytes_read),
        AT(kv.files_written),
        AT(kv.files_bad),
        AT(kv.moving),
    };
#undef AT
    for (size_t i = 1; i < n; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            *(int64_t *)((char *)sum + counts[k]) += *(const int64_t *)((const char *)&v[i] + counts[k]);
        sum->rows_max = v[i].rows_max > sum->rows_max ? v[i].rows_max : sum->rows_max;
    }
}

/* Whether row k says more than row i, or as much and earlier, of a model of which row i has only the vocabulary. */
static bool says_more(const struct told *t, size_t k, size_t i)
{
    const struct source *a = &t->from[k], *b = &t->from[i];
    return a->engine != b->engine && a->path && b->path && strcmp(a->path, b->path) == 0 &&
           (k < i || !t->models[k].vocab_only);
}

/* An engine that had no memory for a model has read its vocabulary, and keeps that: such a row is left out where
 * another engine has the model, or its vocabulary too. */
static void merge(struct told *t)
{
    for (size_t i = 0; i < t->n_models; i++) {
        bool again = false;
        for (size_t k = 0; k < t->n_models && t->models[i].vocab_only && !again; k++)
            again = says_more(t, k, i);
        if (!again)
            t->merged[t->n_merged++] = t->models[i];
    }
}

/* Collects the engines' status for the answer and adds the names of models, as engines know only paths. `all` is NULL
 * if no engine runs. */
static int collect(struct told *t, const struct call *call, const struct engines_status *all)
{
    const struct engines *es = call->server->engines;
    size_t n = 0;
    t->n = engines_count(es);
    for (size_t i = 0; all && i < all->n; i++)
        n += all->of[i].told ? all->of[i].told->n_models : 0;
    t->v = calloc(t->n, sizeof *t->v);
    t->models = calloc(n + 1, sizeof *t->models);
    t->merged = calloc(n + 1, sizeof *t->merged);
    t->from = calloc(n + 1, sizeof *t->from);
    t->names = calloc(n + 1, sizeof *t->names);
    t->where = calloc(n + 1, sizeof *t->where);
    if (!t->v || !t->models || !t->merged || !t->from || !t->names || !t->where)
        return HEARTH_ENOMEM;
    for (size_t i = 0; i < t->n; i++) {
        const struct engine_client *ec = engines_at(es, i);
        bool has = all && i < all->n, silent = has && all->of[i].silent;
        struct wire_engine_status *v = &t->v[i];
        if (has && all->of[i].told)
            *v = *all->of[i].told;
        struct wire_loaded_model *m = t->models + t->n_models;
        for (size_t k = 0; k < v->n_models; k++) {
            m[k] = v->models[k];
            t->from[t->n_models] = (struct source){m[k].path, i};
            if ((t->where[t->n_models] = engines_where(es, ec, m[k].where)))
                m[k].where = t->where[t->n_models];
            t->names[t->n_models++] = name_model(call, &m[k]);
        }
        v->models = m;
        if (t->n > 1 && v->device &&
            asprintf(&t->device[i], "%s (%s:%d)", v->device, v->backend, engines_device(es, i)) > 0)
            v->device = t->device[i];
        v->pid = engine_pid(ec);
        v->state = silent && v->pid ? "not answering" : engine_state_name(ec);
        v->restarts = engine_restarts(ec);
        v->failure = engine_failure(ec);
    }
    merge(t);
    return 0;
}

/* `all` is NULL if no engine runs. In the answer, `engine` describes the first device, with the models and the sums of
 * all; `engines` has each separately if there are several. */
static void reply(void *arg, const struct engines_status *all)
{
    struct call *call = arg;
    struct server *s = call->server;
    struct wire_status_result r = {
        .pid = getpid(),
        .version = PACKAGE_VERSION,
        .socket = s->conf->socket,
        .uptime = server_boot() - s->started,
        .connections = s->n_conns,
        .streams = streams_open(s->streams),
        .waiting = queue_waiting(s),
        .rss_bytes = rss_bytes(),
        .longest = {.bytes = s->most.bytes, .rows = s->most.rows, .cpu = s->most.cpu},
        .config = config_file(s->conf),
        .no_sessions = s->store ? NULL : s->store_err.msg,
    };
    char no_games[HEARTH_ERR_MSG];
    r.games = games_running(s, no_games);
    r.no_games = no_games[0] ? no_games : NULL;
    r.yielded = yields_left(s);
    if (!s->store || store_count(s->store, call->account->uid, &r.sessions, NULL) != 0)
        r.sessions = 0;
    struct wire_kv_share *shares = NULL;
    if (s->kv) {
        kvdir_limits(s->kv, &r.kv_files.limit, &r.kv_files.limit_per_uid);
        r.kv_files.shares = shares = kv_shares(call, &r.kv_files.n_shares);
    }
    struct served_room room;
    streams_served(s->streams, &room, &r.served);
    struct told t = {0};
    if (collect(&t, call, all) == 0) {
        r.engine = t.v[0];
        add_up(&r.engine, t.v, t.n);
        r.engine.models = t.merged;
        r.engine.n_models = t.n_merged;
        if (t.n > 1) {
            r.engines = t.v;
            r.n_engines = t.n;
        }
        call_reply(call, &r);
    } else {
        struct hearth_err e;
        err_set(&e, HEARTH_ENOMEM, "out of memory");
        call_fail(call, &e);
    }
    told_free(&t);
    free(shares);
}

void msg_status(struct call *call)
{
    if (engines_ask_status(call->server->engines, reply, call) != 0)
        reply(call, NULL);
}

void msg_shutdown(struct call *call)
{
    static const struct wire_empty nothing;
    const struct wire_shutdown *p = call->params;
    struct server *s = call->server;
    bool now = p->now;
    log_info("shutdown asked for by uid %u%s", (unsigned)call->account->uid, now ? ", at once" : "");
    call_reply(call, &nothing);
    s->shutdown(s, now);
}
