/* msg-sessions.c - list, rename, remove, pin, export. Every query of the store has the peer's uid, so nobody reaches
 * another user's sessions. Loop thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/retention/kvdir.h"
#include "daemon/store/generation-info.h"
#include "daemon/stream/sessions.h"
#include "daemon/store/store.h"
#include "daemon/stream/stream.h"
#include "daemon/rpc/takeover.h"

/* --- list ----------------------------------------------------------------------------------------------- */

enum { PLACE_HEX = 16 + STORE_ID_LEN };

/* On the wire a cursor is 32 hex digits: the bits of its time, then its id. */
static int cursor_parse(const char *from, struct store_cursor *at, struct hearth_err *e)
{
    *at = (struct store_cursor){0};
    if (!from)
        return 0;
    uint64_t bits;
    if (strlen(from) != PLACE_HEX || strspn(from, "0123456789abcdef") != PLACE_HEX ||
        sscanf(from, "%16" SCNx64, &bits) != 1)
        return err_set(e, HEARTH_EPARAMS, "sessions.list.from: \"%.40s\" was the `next` of no page", from);
    memcpy(&at->used, &bits, sizeof bits);
    memcpy(at->id, from + 16, sizeof at->id);
    return 0;
}

static const char *cursor_format(const struct store_cursor *at, char to[PLACE_HEX + 1])
{
    uint64_t bits;
    memcpy(&bits, &at->used, sizeof bits);
    snprintf(to, PLACE_HEX + 1, "%016" PRIx64 "%s", bits, at->id);
    return at->id[0] != '\0' ? to : NULL;
}

/* Answers with one page of sessions, because reading them blocks the loop. */
void msg_sessions_list(struct call *call)
{
    enum { MOST = 256 };
    struct server *s = call->server;
    const struct wire_sessions_list *p = call->params;
    struct store_session **v = NULL;
    struct wire_session w[MOST];
    struct store_cursor at;
    char next[PLACE_HEX + 1];
    size_t n = 0;
    struct hearth_err e;
    int rc = cursor_parse(p->from, &at, &e);
    if (!rc)
        rc = s->store != NULL ? store_list(s->store, call->account->uid, p->ephemeral, &at, MOST, &v, &n, &e)
                              : err_set(&e, HEARTH_ESTORE, "%s", s->store_err.msg);
    if (!rc) {
        for (size_t i = 0; i < n; i++)
            session_describe(s, v[i], &w[i]);
        kvdir_describe(s->kv, w, n);
        struct wire_sessions_list_result r = {.sessions = w, .n_sessions = n, .next = cursor_format(&at, next)};
        call_reply(call, &r);
    } else {
        call_fail(call, &e);
    }
    for (size_t i = 0; i < n; i++)
        store_session_free(v[i]);
    free(v);
}

/* --- one ------------------------------------------------------------------------------------------------ */

static int rename_session(struct call *call, const char *name, const struct store_session *row, struct hearth_err *e)
{
    int rc = session_check_name("sessions.rename.name", name, e);
    if (rc)
        return rc;
    if (session_is_reserved(call->server, call->account->uid, name))
        return err_set(e, HEARTH_ESESSIONEXISTS, "a generation is creating session \"%.80s\"", name);
    rc = store_rename(call->server->store, row, name, e);
    if (!rc)
        stream_rename_session(call->server, row->id, name);
    return rc;
}

void msg_sessions_rename(struct call *call)
{
    static const struct wire_empty nothing;
    const struct wire_session_rename *p = call->params;
    struct store_session *row = NULL;
    struct hearth_err e;
    int rc = session_get(call->server, call->account->uid, p->session, &row, &e);
    if (!rc)
        rc = rename_session(call, p->name, row, &e);
    if (!rc)
        call_reply(call, &nothing);
    else
        call_fail(call, &e);
    store_session_free(row);
}

void msg_sessions_remove(struct call *call)
{
    static const struct wire_empty nothing;
    const struct wire_session_ref *ref = call->params;
    struct store_session *row = NULL;
    struct hearth_err e;
    int rc = call->server->store != NULL ? store_find(call->server->store, call->account->uid, ref->session, &row, &e)
                                         : err_set(&e, HEARTH_ESTORE, "%s", call->server->store_err.msg);
    rc = session_or_creating(call->server, call->account->uid, ref->session, rc, &e);
    if (!rc && session_is_busy(call->server, row->id))
        rc = err_set(&e, HEARTH_ESESSIONBUSY, "a generation is running in session \"%.80s\"", ref->session);
    if (rc == HEARTH_ESESSIONBUSY && takeover_wait(call, row ? row->id : ref->session)) {
        store_session_free(row);
        return;
    }
    if (!rc)
        rc = session_remove(call->server, row, &e);
    if (!rc)
        call_reply(call, &nothing);
    else
        call_fail(call, &e);
    store_session_free(row);
}

void msg_sessions_pin(struct call *call)
{
    static const struct wire_empty nothing;
    const struct wire_session_pin *p = call->params;
    struct store_session *row = NULL;
    struct hearth_err e;
    int rc = session_get(call->server, call->account->uid, p->session, &row, &e);
    if (!rc)
        rc = store_pin(call->server->store, row, p->pinned, &e);
    if (!rc)
        call_reply(call, &nothing);
    else
        call_fail(call, &e);
    store_session_free(row);
}

/* --- pages ---------------------------------------------------------------------------------------------- */

static int export(struct call *call, const struct store_session *row, struct hearth_err *e)
{
    const struct wire_session_export *p = call->params;
    struct wire_session_page r = {.version = WIRE_EXPORT_VERSION, .turn_open = row->turn_open, .next = p->from};
    struct store_turn *turns = NULL;
    struct generation_turns w = {0};
    int32_t *ids = NULL;
    size_t n = 0, n_ids;
    /* The first page reads the whole timeline to verify its checksums. Otherwise a damaged session could be exported,
     * and an import would give it valid checksums. */
    int rc = p->from == 0 ? store_timeline(call->server->store, row, &ids, &n_ids, e) : 0;
    free(ids);
    if (!rc)
        rc = store_page(call->server->store, row, &r.next, WIRE_PAGE_BYTES, WIRE_MESSAGES_MAX, &turns, &n, e);
    if (!rc)
        rc = generation_turns(turns, n, true, &w, e);
    if (!rc && p->from && !n) /* an empty page would be taken for the last one of a session that was cut meanwhile */
        rc = err_set(e, HEARTH_EPARAMS, "sessions.export.from: %lld is behind the end of session \"%.80s\"",
                     (long long)p->from, row->name);
    if (!rc) {
        r.turns = w.v;
        r.n_turns = n;
        session_describe(call->server, row, &r.session);
        kvdir_describe(call->server->kv, &r.session, 1);
        call_reply(call, &r);
    }
    store_turns_free(turns, n);
    generation_turns_fini(&w);
    return rc;
}

void msg_sessions_export(struct call *call)
{
    const struct wire_session_export *p = call->params;
    struct store_session *row = NULL;
    struct hearth_err e;
    int rc = session_get(call->server, call->account->uid, p->session, &row, &e);
    if (!rc)
        rc = export(call, row, &e);
    if (rc)
        call_fail(call, &e);
    store_session_free(row);
}
