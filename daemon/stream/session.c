/* session.c - opening a timeline for a generation and writing down what became of it. Loop thread. */
#include "daemon/stream/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/store/generation-info.h"
#include "daemon/stream/journal.h"
#include "daemon/retention/kvdir.h"
#include "daemon/supervisor/model-names.h"
#include "daemon/stream/stream.h"
#include "daemon/retention/retention.h"
#include "libclient/utf8.h"

/* --- who runs in what ----------------------------------------------------------------------------------- */

bool session_is_busy(const struct server *s, const char *id)
{
    return stream_runs_in(s, id);
}

bool session_is_reserved(const struct server *s, uid_t uid, const char *name)
{
    return stream_creates(s, uid, name);
}

int session_check_name(const char *name, struct hearth_err *e)
{
    if (name[0] == '\0')
        return err_set(e, HEARTH_EPARAMS, "session: a name is empty");
    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++)
        if (*p < 0x20 || *p == 0x7f || (p[0] == 0xc2 && p[1] < 0xa0)) /* C1: U+0080 to U+009F */
            return err_set(e, HEARTH_EPARAMS, "session: a name with the control character 0x%02x",
                           *p == 0xc2 ? p[1] : *p);
    if (store_is_id(name))
        return err_set(e, HEARTH_EPARAMS, "session: \"%s\" is an id, not a name", name);
    return 0;
}

int session_get(struct server *s, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e)
{
    if (!s->store)
        return err_set(e, HEARTH_ESTORE, "%s", s->store_err.msg);
    commit_retry(s, uid);
    return store_get(s->store, uid, ref, out, e);
}

/* A name that was damaged, and may be told all the same. */
static bool is_name(const char *name)
{
    return name != NULL && strlen(name) <= WIRE_NAME_MAX && utf8_prefix(name, strlen(name)) == strlen(name) &&
           session_check_name(name, NULL) == 0;
}

void session_describe(const struct server *s, const struct store_session *from, struct wire_session *to)
{
    if (from->damaged) {
        const char *name = is_name(from->name) ? from->name : NULL;
        *to = (struct wire_session){.id = from->id, .name = name, .damaged = true};
        return;
    }
    *to = (struct wire_session){.id = from->id,
                                .name = from->name,
                                .model = from->model,
                                .path = from->path,
                                .tokens = from->n_tok,
                                .turns = from->n_turns,
                                .created = from->created,
                                .used = from->used,
                                .busy = session_is_busy(s, from->id),
                                .bytes = from->bytes,
                                .pinned = from->pinned,
                                .expires = retention_expires(s, from)};
}

/* --- opening -------------------------------------------------------------------------------------------- */

int session_new_id(char id[STORE_ID_LEN + 1], struct hearth_err *e)
{
    uint8_t r[STORE_ID_LEN / 2];
    if (getrandom(r, sizeof r, 0) != sizeof r)
        return err_set(e, HEARTH_EINTERNAL, "no random numbers");
    for (size_t i = 0; i < sizeof r; i++)
        snprintf(id + 2 * i, 3, "%02x", r[i]);
    return 0;
}

/* A session bound to one model goes on with that model: by any of its names, or by none. */
static int check_model(struct server *s, uid_t uid, const char *model, const struct store_session *row,
                       struct hearth_err *e)
{
    if (!model || strcmp(model, row->model) == 0 || strcmp(model, row->path) == 0)
        return 0;
    char *path;
    int rc = model_names_resolve(s->conf, model, acl_trusts_paths(uid), &path, e);
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
    ss->row = *row; /* its strings move along */
    free(row);
    if (session_is_busy(s, ss->row.id))
        return err_set(e, HEARTH_ESESSIONBUSY, "a generation is running in session \"%.80s\"", ss->row.name);
    rc = check_model(s, uid, g->model, &ss->row, e);
    if (!rc)
        rc = retention_check_quota(s, uid, &ss->row, e);
    if (rc || timeline_cache_get(s->store, &ss->row, &ss->ids, &ss->n_ids))
        return rc;
    rc = store_timeline(s->store, &ss->row, &ss->ids, &ss->n_ids, e);
    if (!rc)
        timeline_cache_put(s->store, ss->row.id, ss->row.n_turns, &(struct store_ids){ss->ids, ss->n_ids}, 1);
    return rc;
}

static int open_new(struct server *s, uid_t uid, const struct wire_generate *g, struct session *ss,
                    struct hearth_err *e)
{
    int rc;
    if (g->session) {
        int64_t n;
        rc = session_check_name(g->session, e);
        if (!rc)
            rc = store_count(s->store, uid, &n, e);
        if (rc)
            return rc;
        if (n >= s->conf->sessions_per_uid)
            return err_set(e, HEARTH_ELIMIT, "user %u has %lld sessions, the limit", (unsigned)uid, (long long)n);
        rc = retention_check_quota(s, uid, NULL, e);
        if (rc)
            return rc;
        if (session_is_reserved(s, uid, g->session))
            return err_set(e, HEARTH_ESESSIONBUSY, "a generation is creating session \"%.80s\"", g->session);
        if (!g->model)
            return err_set(e, HEARTH_ENOSESSION, "there is no session \"%.80s\", and no model to create it with",
                           g->session);
    }
    rc = session_new_id(ss->row.id, e);
    if (!rc)
        rc = model_names_resolve(s->conf, g->model, acl_trusts_paths(uid), &ss->row.path, e);
    if (rc)
        return rc;
    ss->is_new = true;
    ss->row.uid = uid;
    ss->row.created = ss->row.used = server_now();
    ss->row.model = strdup(g->model);
    if (g->session)
        ss->row.name = strdup(g->session);
    if (!ss->row.model || (g->session != NULL && !ss->row.name))
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

int session_open(struct server *s, uid_t uid, const struct wire_generate *g, struct session **out, struct hearth_err *e)
{
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

int session_of_head(const struct wire_journal_head *head, struct session **out, struct hearth_err *e)
{
    struct session *ss = calloc(1, sizeof *ss);
    if (!ss)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    int rc = 0;
    ss->is_new = head->is_new;
    ss->row = (struct store_session){.uid = (uid_t)head->uid, .turn_open = head->turn_open, .created = head->created};
    ss->row.name = head->name != NULL ? strdup(head->name) : NULL;
    ss->row.model = strdup(head->model);
    ss->row.path = strdup(head->path);
    if (!ss->row.model || !ss->row.path || (head->name != NULL && !ss->row.name))
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    else if (!store_is_id(head->session))
        rc = err_set(e, HEARTH_ESTORE, "\"%.40s\" is no session id", head->session);
    if (rc) {
        session_free(ss);
        return rc;
    }
    memcpy(ss->row.id, head->session, sizeof ss->row.id);
    *out = ss;
    return 0;
}

int session_reopen(struct server *s, const struct wire_journal_head *head, struct session **out, struct hearth_err *e)
{
    struct session *ss;
    int rc = session_of_head(head, &ss, e);
    if (rc || head->is_new || !head->name) {
        *out = ss;
        return rc;
    }
    struct store_session *row;
    rc = session_get(s, ss->row.uid, ss->row.id, &row, e);
    if (!rc) {
        rc = store_timeline(s->store, row, &ss->ids, &ss->n_ids, e);
        store_session_free(row);
    }
    if (!rc && ss->n_ids != (size_t)head->history)
        rc = err_set(e, HEARTH_ESTORE, "session %s has %zu tokens, and had %lld when the stream began", ss->row.id,
                     ss->n_ids, (long long)head->history);
    if (rc) {
        session_free(ss);
        return rc;
    }
    *out = ss;
    return 0;
}

int session_check_unchanged(struct server *s, const struct session *ss, struct hearth_err *e)
{
    struct store_session *row;
    int rc = ss->is_new ? 0 : store_get(s->store, ss->row.uid, ss->row.id, &row, e);
    if (rc || ss->is_new)
        return rc;
    if (row->n_tok != (int64_t)ss->n_ids)
        rc = err_set(e, HEARTH_ESTORE, "the session has %lld tokens, and had %zu when the stream began",
                     (long long)row->n_tok, ss->n_ids);
    store_session_free(row);
    return rc;
}

void session_forget(struct server *s, const char *id)
{
    if (id[0] == '\0')
        return;
    kvdir_forget(s->kv, id);
    journal_forget(s->journal, id);
    commit_forget(s, id);
}

/* The row last: where a crash comes between, the session is there to be removed again. */
int session_remove(struct server *s, const struct store_session *row, struct hearth_err *e)
{
    session_forget(s, row->id);
    int rc = store_remove(s->store, row, e);
    if (!rc)
        retention_purge_later(s);
    if (!rc && row->damaged)
        log_info("session \"%.80s\" (%s) of user %u, which was damaged, is removed", row->name != NULL ? row->name : "",
                 row->id, (unsigned)row->uid);
    return rc;
}

void session_free(struct session *ss)
{
    if (!ss)
        return;
    free(ss->row.name);
    free(ss->row.model);
    free(ss->row.path);
    free(ss->ids);
    free(ss);
}

/* --- writing -------------------------------------------------------------------------------------------- */

/* A message's content as one text; *joined is malloc'd where it had parts. */
static int content(const struct wire_message *m, struct wire_bytes *out, char **joined, struct hearth_err *e)
{
    *joined = NULL;
    *out = m->content;
    if (m->n_parts == 0)
        return 0;
    size_t len = 0;
    for (size_t i = 0; i < m->n_parts; i++)
        len += m->parts[i].text.len;
    char *p = *joined = malloc(len + 1);
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; i < m->n_parts; i++) {
        if (m->parts[i].text.len > 0)
            memcpy(p, m->parts[i].text.data, m->parts[i].text.len);
        p += m->parts[i].text.len;
    }
    *out = (struct wire_bytes){.data = *joined, .len = len};
    return 0;
}

int session_commit(struct server *s, struct session *ss, const struct session_turn *t, struct hearth_err *e)
{
    const struct wire_generate *g = t->request;
    /* One row per message for people to read; the ids are those of the whole input, so the last row has them. */
    size_t n = g->n_messages > 0 ? g->n_messages : 1;
    double now = server_now();
    struct store_turn *turns = calloc(n + 1, sizeof *turns);
    char **joined = calloc(n, sizeof *joined);
    struct wire_buf packed = {0};
    int rc = turns != NULL && joined ? 0 : err_set(e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n; i++) {
        struct wire_bytes b = g->text;
        if (g->n_messages > 0)
            rc = content(&g->messages[i], &b, &joined[i], e);
        turns[i] = (struct store_turn){
            .role = g->n_messages > 0 ? g->messages[i].role : "text", .text = b.data, .len = b.len, .created = now};
    }
    if (!rc)
        rc = generation_info_pack(&t->info, &packed, e);
    if (!rc) {
        turns[n - 1].ids = t->appended.v;
        turns[n - 1].n_ids = t->appended.n;
        turns[n] = (struct store_turn){.role = g->n_messages > 0 ? "assistant" : "completion",
                                       .text = t->text.data,
                                       .len = t->text.len,
                                       .ids = t->completion.v,
                                       .n_ids = t->completion.n,
                                       .created = now,
                                       .generation = packed.data,
                                       .generation_len = packed.len};
        ss->row.used = now;
        ss->row.turn_open = t->turn_open;
        rc = store_commit(s->store, &ss->row, ss->is_new, turns, n + 1, t->stream, e);
    }
    if (!rc) {
        const struct store_ids now_it_is[] = {
            {ss->ids, ss->n_ids}, {t->appended.v, t->appended.n}, {t->completion.v, t->completion.n}};
        timeline_cache_put(s->store, ss->row.id, ss->row.n_turns + (int64_t)n + 1, now_it_is, 3);
    }
    for (size_t i = 0; joined != NULL && i < n; i++)
        free(joined[i]);
    free(joined);
    free(turns);
    wire_buf_fini(&packed);
    return rc;
}
