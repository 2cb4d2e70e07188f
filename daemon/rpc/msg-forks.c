/* msg-forks.c - sessions.fork and sessions.adopt. Loop thread. */
#include <stdlib.h>
#include <xxhash.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/retention/kvdir.h"
#include "daemon/stream/fork.h"
#include "daemon/stream/sessions.h"
#include "daemon/supervisor/engines.h"

static void reply(struct call *call, struct store_session **rows, size_t n)
{
    struct wire_session w[WIRE_FORKS_MAX];
    struct wire_forked r = {.sessions = w, .n_sessions = n};
    for (size_t i = 0; i < n; i++)
        session_describe(call->server, rows[i], &w[i]);
    call_reply(call, &r);
    for (size_t i = 0; i < n; i++)
        store_session_free(rows[i]);
    free(rows);
}

static void make(struct call *call, const struct fork_plan *p)
{
    const struct wire_session_fork *f = call->params;
    struct store_session **rows;
    struct hearth_err e;
    if (fork_make(call->server, p, f, &rows, &e) != 0)
        call_fail(call, &e);
    else
        reply(call, rows, (size_t)f->count);
}

/* A hash of the ids, to recognise a plan that needs the text of other ids. */
static void *key_of(const struct wire_ids *ids)
{
    return (void *)(uintptr_t)XXH3_64bits(ids->v, ids->n * sizeof *ids->v);
}

/* The engine has returned the text of ids that were cut out of a turn. The session may have changed in the meantime, so
 * the plan is made again; if it needs the text of other ids, another request has changed the session. */
static void on_text(void *arg, const void *result, const struct hearth_err *err)
{
    struct call *call = arg;
    const struct wire_session_fork *f = call->params;
    const struct wire_engine_detokenize_result *told = result;
    struct fork_plan *p = NULL;
    struct hearth_err e = {0};
    /* Stored ids do not make an engine die, other requests do: retried once, with the next engine. */
    if (err && err->code == HEARTH_EENGINE && call->server->phase == SERVER_RUNNING && !call->is_retry) {
        call->is_retry = true;
        msg_sessions_fork(call);
        return;
    }
    int rc = err ? (e = *err, e.code) : fork_plan(call->server, call->account->uid, f->session, f->at, &p, &e);
    if (!rc && key_of(&p->untold) != call->arg)
        rc = err_set(&e, HEARTH_ECONFLICT, "session \"%.80s\" was changed meanwhile", f->session);
    if (!rc)
        rc = fork_plan_told(p, told, &e);
    if (rc)
        call_fail(call, &e);
    else
        make(call, p);
    fork_plan_free(p);
}

void msg_sessions_fork(struct call *call)
{
    const struct wire_session_fork *f = call->params;
    struct fork_plan *p;
    struct hearth_err e;
    int rc = fork_plan(call->server, call->account->uid, f->session, f->at, &p, &e);
    if (rc) {
        call_fail(call, &e);
        return;
    }
    if (!p->untold.n) {
        make(call, p);
    } else {
        struct wire_detokenize ask;
        fork_plan_ask(p, &ask);
        ask.client = call_client(call);
        call->arg = key_of(&p->untold);
        rc = engine_call(engines_near(call->server->engines, p->row.path), &wire_methods[WIRE_ENGINE_DETOKENIZE], &ask,
                         on_text, call, &e);
        if (rc)
            call_fail(call, &e);
    }
    fork_plan_free(p);
}

void msg_sessions_adopt(struct call *call)
{
    const struct wire_session_adopt *a = call->params;
    struct store_session *row;
    struct wire_adopted r;
    struct hearth_err e;
    if (fork_adopt(call->server, call->account->uid, a->session, a->replace, &row, &e) != 0) {
        call_fail(call, &e);
        return;
    }
    session_describe(call->server, row, &r.session);
    kvdir_describe(call->server->kv, &r.session, 1);
    call_reply(call, &r);
    store_session_free(row);
}
