/* msg-status.c - status and shutdown. Loop thread. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/retention/kvdir.h"
#include "daemon/supervisor/engine-client.h"
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

/* The name on the wire is UTF-8. */
static const char *config_file(const struct conf *c)
{
    return c->file && utf8_prefix(c->file, strlen(c->file)) == strlen(c->file) ? c->file : NULL;
}

/* Lists the users' shares of the KV files that the peer may see; malloc'd. */
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

/* Gives a model the name and the path that the peer may see, of which it returns what is to be freed. What others call
 * the files in their homes is theirs to know. */
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

/* `result` is the engine's status, or NULL where no engine runs, or `err` where it has not answered. */
static void reply(void *arg, const void *result, const struct hearth_err *err)
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
        .rss_bytes = rss_bytes(),
        .longest = {.bytes = s->most.bytes, .rows = s->most.rows, .cpu = s->most.cpu},
        .config = config_file(s->conf),
        .no_sessions = s->store ? NULL : s->store_err.msg,
    };
    if (!s->store || store_count(s->store, call->account->uid, &r.sessions, NULL) != 0)
        r.sessions = 0;
    struct wire_kv_share *shares = NULL;
    if (s->kv) {
        kvdir_limits(s->kv, &r.kv_files.limit, &r.kv_files.limit_per_uid);
        r.kv_files.shares = shares = kv_shares(call, &r.kv_files.n_shares);
    }
    struct served_room room;
    streams_served(s->streams, &room, &r.served);
    if (result)
        r.engine = *(const struct wire_engine_status *)result;
    char **names = calloc(r.engine.n_models + 1, sizeof *names); /* the engine knows paths, not names */
    for (size_t i = 0; names != NULL && i < r.engine.n_models; i++)
        names[i] = name_model(call, &r.engine.models[i]);
    r.engine.pid = engine_pid(s->engine_client);
    r.engine.state = err ? "not answering" : engine_state_name(s->engine_client);
    r.engine.restarts = engine_restarts(s->engine_client);
    size_t n = r.engine.n_models;
    call_reply(call, &r);
    for (size_t i = 0; names != NULL && i < n; i++)
        free(names[i]);
    free(names);
    free(shares);
}

void msg_status(struct call *call)
{
    if (engine_ask_status(call->server->engine_client, reply, call) != 0)
        reply(call, NULL, NULL);
}

static void on_yielded(void *arg, const void *result, const struct hearth_err *err)
{
    struct call *call = arg;
    if (err)
        call_fail(call, err);
    else
        call_reply(call, result);
}

/* Without an engine nothing is held, and none is started for this. */
void msg_yield(struct call *call)
{
    static const struct wire_yield_result nothing;
    struct engine_client *ec = call->server->engine_client;
    struct hearth_err e;
    if (engine_pid(ec) == 0)
        call_reply(call, &nothing);
    else if (engine_call(ec, &wire_methods[WIRE_ENGINE_YIELD], call->params, on_yielded, call, &e))
        call_fail(call, &e);
}

/* Nothing is left on the device: the context goes with the process. */
void msg_on_engine_idle(struct server *s, const void *body)
{
    (void)body;
    engine_client_may_leave(s->engine_client);
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
