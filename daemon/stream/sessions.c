/* sessions.c - see sessions.h. Loop thread. */
#include "daemon/stream/sessions.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/retention/kvdir.h"
#include "daemon/retention/retention.h"
#include "daemon/stream/journal.h"
#include "daemon/stream/stream.h"
#include "daemon/supervisor/model-names.h"
#include "libclient/utf8.h"

bool session_is_busy(const struct server *s, const char *id)
{
    return stream_runs_in(s, id);
}

bool session_is_in_use(const struct server *s, const char *id)
{
    return session_is_busy(s, id) || stream_waits_in(s, id);
}

bool session_is_reserved(const struct server *s, uid_t uid, const char *name)
{
    return stream_creates(s, uid, name);
}

int session_or_creating(const struct server *s, uid_t uid, const char *ref, int rc, struct hearth_err *e)
{
    if (rc != HEARTH_ENOSESSION || !session_is_reserved(s, uid, ref))
        return rc;
    return err_set(e, HEARTH_ESESSIONBUSY, "a generation is creating session \"%.80s\"", ref);
}

int session_get(struct server *s, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e)
{
    if (!s->store)
        return err_set(e, HEARTH_ESTORE, "%s", s->store_err.msg);
    commit_retry(s, uid);
    return session_or_creating(s, uid, ref, store_get(s->store, uid, ref, out, e), e);
}

/* Whether a stored name can be reported: a damaged one may be anything, and forks once got names of any length. A
 * client refuses a whole list because of one such name. */
static bool is_name(const char *name)
{
    return name != NULL && utf8_prefix(name, strlen(name)) == strlen(name) && session_check_name("", name, NULL) == 0;
}

void session_describe(const struct server *s, const struct store_session *from, struct wire_session *to)
{
    const char *name = is_name(from->name) ? from->name : NULL;
    if (from->damaged) {
        *to = (struct wire_session){.id = from->id, .name = name, .damaged = true};
        return;
    }
    *to = (struct wire_session){.id = from->id,
                                .name = name,
                                .model = from->model,
                                .path = model_fds_label(from->path),
                                .tokens = from->n_tok,
                                .turns = from->n_turns,
                                .created = from->created,
                                .used = from->used,
                                .busy = session_is_busy(s, from->id),
                                .bytes = from->bytes,
                                .pinned = from->pinned,
                                .expires = retention_expires(s, from),
                                .parent = from->has_parent ? from->parent : NULL,
                                .shared = from->base_tok,
                                .ephemeral = from->ephemeral};
}

/* --- opening -------------------------------------------------------------------------------------------- */

/* A session continues with the model that it is bound to: the request names that model by any of its names, or none. */
static int check_model(struct server *s, uid_t uid, const char *model, const struct store_session *row,
                       struct hearth_err *e)
{
    if (!model || strcmp(model, row->model) == 0 || strcmp(model, model_fds_label(row->path)) == 0)
        return 0;
    char *path;
    int rc = model_names_resolve(s->conf, s->passed, uid, model, &path, e);
    if (rc)
        return rc;
    if (strcmp(path, row->path) != 0)
        rc = err_set(e, HEARTH_EMODELMISMATCH, "session \"%.60s\" is bound to the model \"%.60s\", not \"%.60s\"",
                     row->name, row->model, model);
    free(path);
    return rc;
}

static int open_stored(struct server *s, uid_t uid, const struct wire_generate *g, struct session *ss,
                       struct hearth_err *e)
{
    struct store_session *row;
    int rc = session_get(s, uid, g->session, &row, e);
    if (rc)
        return rc;
    ss->row = *row; /* its strings are taken over */
    free(row);
    if (session_is_busy(s, ss->row.id))
        return err_set(e, HEARTH_ESESSIONBUSY, "a generation is running in session \"%.80s\"", ss->row.name);
    rc = check_model(s, uid, g->model, &ss->row, e);
    if (!rc && !g->dry)
        rc = retention_check_quota(s, uid, &ss->row, NULL, 0, e);
    if (!rc)
        rc = session_read_meaning(s, ss, e);
    if (rc || timeline_cache_get(s->store, &ss->row, &ss->ids, &ss->n_ids))
        return rc;
    rc = store_timeline(s->store, &ss->row, &ss->ids, &ss->n_ids, e);
    if (!rc)
        timeline_cache_put(s->store, ss->row.id, ss->row.n_turns, &(struct store_ids){ss->ids, ss->n_ids}, 1);
    return rc;
}

int session_check_room(struct server *s, uid_t uid, int64_t more, const char *keep, int64_t bytes, struct hearth_err *e)
{
    int64_t n;
    int rc = store_count(s->store, uid, &n, e);
    if (!rc)
        n += stream_count_creating(s, uid);
    if (!rc && n + more > s->conf->sessions_per_uid)
        rc = err_set(e, HEARTH_ELIMIT,
                     "user %u has %lld sessions, and %lld is the limit: sessions_per_uid in hearth.conf", (unsigned)uid,
                     (long long)n, (long long)s->conf->sessions_per_uid);
    return rc ? rc : retention_check_quota(s, uid, NULL, keep, bytes, e);
}

static int open_new(struct server *s, uid_t uid, const struct wire_generate *g, struct session *ss,
                    struct hearth_err *e)
{
    int rc;
    if (g->session) {
        rc = session_check_name("generate.session", g->session, e);
        if (!rc && !g->dry)
            rc = session_check_room(s, uid, 1, NULL, 0, e);
        if (rc)
            return rc;
        if (!g->model)
            return err_set(e, HEARTH_ENOSESSION, "there is no session \"%.80s\", and no model to create it with",
                           g->session);
    }
    rc = session_new_id(ss->row.id, e);
    if (!rc)
        rc = model_names_resolve(s->conf, s->passed, uid, g->model, &ss->row.path, e);
    if (rc)
        return rc;
    ss->is_new = true;
    ss->row.uid = uid;
    ss->row.created = server_now();
    ss->row.used = retention_used(s);
    ss->row.model = strdup(g->model);
    if (g->session)
        ss->row.name = strdup(g->session);
    if (!ss->row.model || (g->session != NULL && !ss->row.name))
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

int session_open(struct server *s, uid_t uid, const struct wire_generate *g, struct session **out, struct hearth_err *e)
{
    for (size_t i = 0; g->session && i < g->n_messages; i++)
        if (store_is_raw_role(g->messages[i].role))
            return err_set(e, HEARTH_EPARAMS, "generate.messages[%zu].role: \"%s\" is what a session calls raw text", i,
                           g->messages[i].role);
    struct session *ss = calloc(1, sizeof *ss);
    if (!ss)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    int rc = HEARTH_ENOSESSION;
    if (g->session)
        rc = open_stored(s, uid, g, ss, e);
    if (rc == HEARTH_ENOSESSION && (!g->session || !store_is_id(g->session)))
        rc = open_new(s, uid, g, ss, e);
    if (rc) {
        session_free(ss);
        return rc;
    }
    *out = ss;
    return 0;
}

/* --- removing ------------------------------------------------------------------------------------------- */

int session_forget_kv(struct server *s, const struct store_session *row, const struct store_shared *left,
                      struct hearth_err *e)
{
    struct store_trunk *trunks;
    size_t n;
    int rc = store_trunks(s->store, row, left, &trunks, &n, e);
    for (size_t i = 0; !rc && i < n; i++)
        kvdir_forget(s->kv, trunks[i].id, trunks[i].tokens);
    free(trunks);
    if (!rc && row->id[0] != '\0')
        kvdir_forget(s->kv, row->id, left->tokens);
    return rc;
}

int session_forget_removed_kv(struct server *s, const struct store_session *row, struct hearth_err *e)
{
    struct store_shared shared = {0};
    int rc = row->id[0] != '\0' ? store_shared(s->store, row->id, "", &shared, e) : 0;
    return rc ? rc : session_forget_kv(s, row, &shared, e);
}

void session_forget_streams(struct server *s, const char *id, int64_t from)
{
    if (id[0] == '\0')
        return;
    journal_forget(s->journal, id, from);
    commit_forget(s, id);
}

/* KV can be recomputed, so it is removed before the row; streams cannot, so they are removed after it. */
int session_remove(struct server *s, const struct store_session *row, struct hearth_err *e)
{
    int rc = session_forget_removed_kv(s, row, e);
    journal_begin_removal(s->journal, row->uid, row->id, NULL, 0);
    if (!rc)
        rc = store_remove(s->store, row, e);
    if (rc && store_is_full(s->store) && kvdir_give_way(s->kv, INT64_MAX))
        rc = store_remove(s->store, row, e);
    if (!rc) {
        session_forget_streams(s, row->id, 0);
        retention_purge_later(s);
    }
    journal_end_removal(s->journal, row->uid, row->id);
    if (!rc && row->damaged)
        log_info("session \"%.80s\" (%s) of user %u, which was damaged, is removed", row->name != NULL ? row->name : "",
                 row->id, (unsigned)row->uid);
    return rc;
}
