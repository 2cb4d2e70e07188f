/* session.c - see session.h. Loop thread. */
#include "daemon/stream/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/retention/retention.h"
#include "daemon/store/generation-info.h"

int session_check_name(const char *field, const char *name, struct hearth_err *e)
{
    if (name[0] == '\0')
        return err_set(e, HEARTH_EPARAMS, "%s: is empty", field);
    if (strlen(name) > WIRE_NAME_MAX)
        return err_set(e, HEARTH_EPARAMS, "%s: has %zu bytes, and %d is the limit", field, strlen(name), WIRE_NAME_MAX);
    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++)
        if (*p < 0x20 || *p == 0x7f || (p[0] == 0xc2 && p[1] < 0xa0)) /* C1: U+0080 to U+009F */
            return err_set(e, HEARTH_EPARAMS, "%s: has the control character 0x%02x", field, *p == 0xc2 ? p[1] : *p);
    if (store_is_id(name))
        return err_set(e, HEARTH_EPARAMS, "%s: \"%s\" is an id, not a name", field, name);
    return 0;
}

int session_new_id(char id[STORE_ID_LEN + 1], struct hearth_err *e)
{
    uint8_t r[STORE_ID_LEN / 2];
    if (getrandom(r, sizeof r, 0) != sizeof r)
        return err_set(e, HEARTH_EINTERNAL, "no random numbers");
    for (size_t i = 0; i < sizeof r; i++)
        snprintf(id + 2 * i, 3, "%02x", r[i]);
    return 0;
}

int session_read_meaning(struct server *s, struct session *ss, struct hearth_err *e)
{
    void *made;
    size_t len;
    int rc = store_last_generation(s->store, &ss->row, &made, &len, e);
    if (rc || !made)
        return rc;
    struct wire_turn_generation *g =
        generation_info_of(&(struct store_turn){.generation = made, .generation_len = len});
    if (g && g->hash) {
        snprintf(ss->means.hash, sizeof ss->means.hash, "%s", g->hash);
        ss->means.n = g->hashed;
    }
    wire_free(g);
    free(made);
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
    rc = store_get(s->store, ss->row.uid, ss->row.id, &row, e);
    if (!rc) {
        char *was = ss->row.name; /* it may have been renamed since */
        ss->row.name = row->name;
        row->name = was;
        rc = store_timeline(s->store, row, &ss->ids, &ss->n_ids, e);
        if (!rc) {
            ss->row.n_turns = row->n_turns;
            ss->row.base = row->base;
            memcpy(ss->row.parent, row->parent, sizeof ss->row.parent);
            rc = session_read_meaning(s, ss, e);
        }
        store_session_free(row);
    }
    if (!rc && ss->n_ids != (size_t)head->history)
        rc = err_set(e, HEARTH_ECONFLICT, "session %s has %zu tokens, and had %lld when the stream began", ss->row.id,
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
        rc = err_set(e, HEARTH_ECONFLICT, "the session has %lld tokens, and had %zu when the stream began",
                     (long long)row->n_tok, ss->n_ids);
    store_session_free(row);
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

/* A message's content as one text; *joined is malloc'd if the content had several parts. */
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

void session_rows_free(struct session_rows *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        free(r->joined[i]);
    free(r);
}

/* Makes one row for each message, for people to read. The ids are those of the whole input, so the last message's row
 * has them all. */
int session_rows_make(const struct session_turn *t, double now, const struct wire_buf *generation,
                      struct session_rows **out, struct hearth_err *e)
{
    const struct wire_generate *g = t->request;
    size_t n = g->n_messages > 0 ? g->n_messages : 1;
    struct session_rows *r = calloc(1, sizeof *r + (n + 1) * (sizeof *r->v + sizeof *r->joined));
    if (!r)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    r->v = (struct store_turn *)(r + 1);
    r->joined = (char **)(r->v + n + 1);
    r->n = n + 1;
    for (size_t i = 0; i < n; i++) {
        struct wire_bytes b = g->text;
        int rc = g->n_messages > 0 ? content(&g->messages[i], &b, &r->joined[i], e) : 0;
        if (rc) {
            session_rows_free(r);
            return rc;
        }
        r->v[i] = (struct store_turn){.role = g->n_messages > 0 ? g->messages[i].role : "text",
                                      .text = b.data,
                                      .len = b.len,
                                      .created = now,
                                      .message = g->n_messages > 0 ? g->messages[i].json : NULL};
    }
    r->v[n - 1].ids = t->appended.v;
    r->v[n - 1].n_ids = t->appended.n;
    r->v[n] = (struct store_turn){.role = g->n_messages > 0 ? "assistant" : "completion",
                                  .text = t->text.data,
                                  .len = t->text.len,
                                  .ids = t->completion.v,
                                  .n_ids = t->completion.n,
                                  .created = now,
                                  .generation = generation ? generation->data : NULL,
                                  .generation_len = generation ? generation->len : 0};
    *out = r;
    return 0;
}

int session_commit(struct server *s, struct session *ss, const struct session_turn *t, struct hearth_err *e)
{
    double now = server_now();
    struct session_rows *r = NULL;
    struct wire_buf packed = {0};
    int rc = generation_info_pack(&t->info, &packed, e);
    if (!rc)
        rc = session_rows_make(t, now, &packed, &r, e);
    if (!rc) {
        ss->row.used = retention_used(s);
        ss->row.turn_open = t->turn_open;
        rc = store_commit(s->store, &ss->row, ss->is_new, r->v, r->n, t->stream, e);
    }
    if (!rc) {
        const struct store_ids now_it_is[] = {
            {ss->ids, ss->n_ids}, {t->appended.v, t->appended.n}, {t->completion.v, t->completion.n}};
        timeline_cache_put(s->store, ss->row.id, ss->row.n_turns + (int64_t)r->n, now_it_is, 3);
    }
    session_rows_free(r);
    wire_buf_fini(&packed);
    return rc;
}
