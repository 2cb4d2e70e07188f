/* msg-pass.c - models.pass: a model's file is passed as an open descriptor. Files that nobody uses any more are closed.
 * Loop thread. */
#include "config.h"

#include <string.h>

#include "daemon/loop.h"
#include "daemon/rpc/aside.h"
#include "daemon/rpc/dispatch.h"
#include "daemon/stream/stream.h"
#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/model-fds.h"

enum { SWEEP_MS = 10000 };

static void on_looked(void *arg, const struct looked *l)
{
    static const struct wire_empty nothing;
    struct call *call = arg;
    struct server *s = call->server;
    const struct wire_model_pass *p = call->params;
    struct hearth_err e;
    if (l->fd < 0)
        call_fail(call, &l->err);
    else if (model_fds_put(s->passed, call->account->uid, p->path, l->fd, &l->sb, &call->conn->hold, &e) != 0)
        call_fail(call, &e);
    else
        call_reply(call, &nothing);
}

/* The connection is lost, so nobody needs the result of the inspection. */
static void on_disconnect(struct call *call)
{
    struct hearth_err e;
    err_set(&e, HEARTH_ECANCELLED, "its connection has ended");
    call_fail(call, &e);
}

void msg_models_pass(struct call *call)
{
    struct hearth_err e;
    int rc = server_check_open(call->server, &e);
    if (!rc)
        rc = conn_look(call->conn, on_looked, call, &e);
    if (rc)
        call_fail(call, &e);
    else
        call->on_disconnect = on_disconnect;
}

/* --- closing unused files -------------------------------------------------------------------------------------- */

struct users {
    struct server *server;
    const struct engines_status *engines; /* NULL: no engine runs */
};

static bool is_of(const char *model, void *file)
{
    return model_fds_is_of(file, model);
}

static bool is_used(void *arg, const char *path)
{
    const struct users *u = arg;
    const struct call *call;
    TAILQ_FOREACH (call, &u->server->forwards, forward_entry)
        if (model_fds_is_of(path, call->path))
            return true;
    for (size_t k = 0; u->engines && k < u->engines->n; k++) {
        const struct wire_engine_status *told = u->engines->of[k].told;
        for (size_t i = 0; told && i < told->n_models; i++) {
            const struct wire_loaded_model *m = &told->models[i];
            if (m->path && !m->vocab_only && model_fds_is_of(path, m->path))
                return true;
        }
    }
    return stream_any_with(u->server, is_of, (void *)path);
}

static void on_status(void *arg, const struct engines_status *all)
{
    struct users u = {.server = arg, .engines = all};
    bool silent = false;
    for (size_t i = 0; all && i < all->n; i++)
        silent |= all->of[i].silent && engine_pid(engines_at(u.server->engines, i));
    size_t left = silent ? 1 : model_fds_sweep(u.server->passed, u.server->engines, is_used, &u);
    if (left)
        timer_set(u.server->passed_sweep, SWEEP_MS);
}

void msg_sweep_passed(void *server)
{
    struct server *s = server;
    if (model_fds_idle(s->passed) && engines_ask_status(s->engines, on_status, s) != 0)
        on_status(s, NULL);
}

void msg_pass_lost(struct conn *c)
{
    struct server *s = c->server;
    model_fds_release(&c->hold);
    if (s->phase == SERVER_RUNNING && model_fds_idle(s->passed))
        timer_set(s->passed_sweep, 0);
}
