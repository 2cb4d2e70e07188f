/* store.c - sessions, the record of committed streams, and how statements run. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/log.h"
#include "daemon/store/store-internal.h"

bool store_is_id(const char *ref)
{
    return strlen(ref) == STORE_ID_LEN && strspn(ref, "0123456789abcdef") == STORE_ID_LEN;
}

/* --- statements ----------------------------------------------------------------------------------------- */

sqlite3_stmt *store_stmt(struct store *st, enum sql which)
{
    sqlite3_stmt *q = st->stmt[which];
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return q;
}

/* A write to a file that has been unlinked disappears with this process, so it does not count as written. */
static int check_place(const struct store *st, struct hearth_err *e)
{
    struct stat sb;
    if (stat(st->path, &sb) == 0 && sb.st_dev == st->dev && sb.st_ino == st->ino)
        return 0;
    return err_set(e, HEARTH_ESTORE,
                   "%s was deleted or replaced while hearthd runs: nothing is kept until it is "
                   "started again",
                   st->path);
}

int store_run(struct store *st, sqlite3_stmt *q, const char *what, struct hearth_err *e)
{
    if (!sqlite3_stmt_readonly(q) && sqlite3_get_autocommit(st->db) && check_place(st, e) != 0)
        return HEARTH_ESTORE;
    int got = sqlite3_step(q);
    int rc = got == SQLITE_DONE ? 0 : store_fail(st, what, e);
    sqlite3_reset(q);
    return rc;
}

int store_get_int(struct store *st, sqlite3_stmt *q, const char *what, int64_t *v, struct hearth_err *e)
{
    int rc = 0;
    if (sqlite3_step(q) == SQLITE_ROW)
        *v = sqlite3_column_int64(q, 0);
    else
        rc = store_fail(st, what, e);
    sqlite3_reset(q);
    return rc;
}

int store_begin(struct store *st, struct hearth_err *e)
{
    st->full = false;
    return store_run(st, store_stmt(st, SQL_BEGIN), "the session database", e);
}

int store_end(struct store *st, int rc, const char *what, struct hearth_err *e)
{
    if (!rc)
        rc = store_run(st, store_stmt(st, SQL_COMMIT), what, e);
    if (rc && !sqlite3_get_autocommit(st->db))
        store_run(st, store_stmt(st, SQL_ROLLBACK), "undoing it", NULL);
    return rc;
}

bool store_is_full(const struct store *st)
{
    return st->full;
}

bool store_is_time(double t)
{
    return t >= -1e12 && t <= 1e12;
}

char *store_text(sqlite3_stmt *q, int i)
{
    if (sqlite3_column_type(q, i) != SQLITE_TEXT)
        return NULL;
    const char *s = (const char *)sqlite3_column_text(q, i);
    if (!s || strlen(s) != (size_t)sqlite3_column_bytes(q, i))
        return NULL;
    return strdup(s);
}

/* Returns why a row cannot be what was written; NULL if it can be. */
static const char *damage(sqlite3_stmt *q, const struct store_session *s)
{
    if (s->id[0] == '\0')
        return "its id is none";
    if (!s->name || !s->model || !s->path || s->path[0] != '/')
        return "its name, model or path is not text";
    if (!store_is_time(s->created) || !store_is_time(s->used) || s->bytes < 0 || s->n_turns < 0 || s->n_tok < 0 ||
        s->base < 0 || s->base > s->n_turns || s->base_tok < 0 || s->base_tok > s->n_tok)
        return "its times or its size cannot be";
    return sqlite3_column_int(q, 12) != 1 ? "its row is not as it was written" : NULL;
}

/* A number of turns, ids or bytes; -1 for a value that is none: of another type, negative, or too large. */
static int64_t size_at(sqlite3_stmt *q, int i)
{
    int64_t n = sqlite3_column_type(q, i) == SQLITE_INTEGER ? sqlite3_column_int64(q, i) : -1;
    return n < 0 || n > STORE_SIZE_MAX ? -1 : n;
}

/* On HEARTH_ESTORE, *e says what is wrong with the session, and *out still holds whatever could be read of it. */
int session_from_row(sqlite3_stmt *q, struct store_session **out, struct hearth_err *e)
{
    struct store_session *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    char *id = store_text(q, 0);
    if (id && store_is_id(id))
        memcpy(s->id, id, sizeof s->id);
    free(id);
    s->name = store_text(q, 1);
    s->model = store_text(q, 2);
    s->path = store_text(q, 3);
    s->turn_open = sqlite3_column_int(q, 4) != 0;
    s->created = sqlite3_column_double(q, 5);
    s->used = sqlite3_column_double(q, 6);
    s->n_turns = size_at(q, 7);
    s->n_tok = size_at(q, 8);
    s->uid = (uid_t)sqlite3_column_int64(q, 9);
    s->bytes = size_at(q, 10);
    s->pinned = sqlite3_column_int(q, 11) != 0;
    char *parent = store_text(q, 13);
    if (parent && store_is_id(parent))
        memcpy(s->parent, parent, sizeof s->parent);
    free(parent);
    s->base = size_at(q, 14);
    s->base_tok = size_at(q, 15);
    s->ephemeral = sqlite3_column_int(q, 16) != 0;
    s->has_parent = sqlite3_column_int(q, 17) != 0;
    *out = s;
    const char *why = damage(q, s);
    s->damaged = why != NULL;
    return !why ? 0
                : err_set(e, HEARTH_ESTORE, "session %.80s is damaged: %s; it can only be removed",
                          s->id[0] != '\0' ? s->id : s->name, why);
}

void store_session_free(struct store_session *s)
{
    if (!s)
        return;
    free(s->name);
    free(s->model);
    free(s->path);
    free(s);
}

/* --- reading -------------------------------------------------------------------------------------------- */

int store_find(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, store_is_id(ref) ? SQL_GET_ID : SQL_GET_NAME);
    sqlite3_bind_int64(q, 1, uid);
    sqlite3_bind_text(q, 2, ref, -1, SQLITE_STATIC);
    int rc;
    switch (sqlite3_step(q)) {
    case SQLITE_ROW:
        rc = session_from_row(q, out, e);
        if (rc == HEARTH_ESTORE)
            rc = 0;
        break;
    case SQLITE_DONE:
        rc = err_set(e, HEARTH_ENOSESSION, "there is no session \"%.80s\"", ref);
        break;
    default:
        rc = store_fail(st, "reading a session", e);
    }
    sqlite3_reset(q);
    return rc;
}

int store_get(struct store *st, uid_t uid, const char *ref, struct store_session **out, struct hearth_err *e)
{
    struct store_session *s;
    struct hearth_err why;
    int rc = store_find(st, uid, ref, &s, &why);
    if (!rc && s->damaged) {
        store_session_free(s);
        rc = HEARTH_ESTORE;
    }
    if (rc)
        return err_set(e, rc, "%s", why.msg);
    *out = s;
    return 0;
}

int store_count(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_COUNT);
    sqlite3_bind_int64(q, 1, uid);
    return store_get_int(st, q, "counting sessions", n, e);
}

/* Runs a listing from its cursor on: rows must come after (?2, ?3), and there are at most ?4 of them. */
static int list(struct store *st, sqlite3_stmt *q, double first, struct store_cursor *at, size_t most,
                struct store_session ***out, size_t *n, struct hearth_err *e)
{
    struct store_session **v = calloc(most, sizeof *v);
    struct store_cursor last = {0};
    size_t rows = 0, len = 0;
    int rc = v != NULL ? 0 : err_set(e, HEARTH_ENOMEM, "out of memory"), got = SQLITE_DONE;
    sqlite3_bind_double(q, 2, at->id[0] != '\0' ? at->used : first);
    sqlite3_bind_text(q, 3, at->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 4, (int64_t)most);
    for (; !rc && (got = sqlite3_step(q)) == SQLITE_ROW; rows++) {
        struct hearth_err why;
        snprintf(last.id, sizeof last.id, "%s", (const char *)sqlite3_column_text(q, 0));
        last.used = sqlite3_column_double(q, 6);
        rc = session_from_row(q, &v[len], &why);
        if (rc == HEARTH_ESTORE) {
            log_warn("%s", why.msg);
            rc = 0; /* a damaged session is listed, so that its owner sees it */
        }
        if (!rc)
            len++;
        else
            err_set(e, rc, "%s", why.msg);
    }
    if (!rc && got != SQLITE_DONE)
        rc = store_fail(st, "listing sessions", e);
    sqlite3_reset(q);
    if (rc) {
        while (len > 0)
            store_session_free(v[--len]);
        free(v);
        return rc;
    }
    if (rows < most)
        last.id[0] = '\0';
    *at = last;
    *out = v;
    *n = len;
    return 0;
}

int store_list(struct store *st, uid_t uid, bool ephemeral, struct store_cursor *at, size_t most,
               struct store_session ***out, size_t *n, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_LIST);
    sqlite3_bind_int64(q, 1, uid);
    sqlite3_bind_int(q, 5, ephemeral);
    return list(st, q, INFINITY, at, most, out, n, e);
}

int store_list_old(struct store *st, double before, double ephemeral_before, struct store_cursor *at, size_t most,
                   struct store_session ***out, size_t *n, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_LIST_OLD);
    sqlite3_bind_double(q, 1, before > ephemeral_before ? before : ephemeral_before);
    sqlite3_bind_double(q, 5, before);
    return list(st, q, -INFINITY, at, most, out, n, e);
}

int store_list_unused(struct store *st, uid_t uid, struct store_cursor *at, size_t most, struct store_session ***out,
                      size_t *n, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_LIST_UNUSED);
    sqlite3_bind_int64(q, 1, uid);
    return list(st, q, -INFINITY, at, most, out, n, e);
}

static struct store_total *total_find(const struct store *st, uid_t uid)
{
    for (size_t i = 0; i < st->n_totals; i++)
        if (st->totals[i].uid == uid)
            return &st->totals[i];
    return NULL;
}

void store_total_add(struct store *st, uid_t uid, int64_t bytes)
{
    struct store_total *t = total_find(st, uid);
    if (t)
        t->bytes += bytes;
}

void store_total_forget(struct store *st, uid_t uid)
{
    struct store_total *t = total_find(st, uid);
    if (t)
        *t = st->totals[--st->n_totals];
}

int store_bytes(struct store *st, uid_t uid, int64_t *n, struct hearth_err *e)
{
    const struct store_total *known = total_find(st, uid);
    if (known) {
        *n = known->bytes;
        return 0;
    }
    sqlite3_stmt *q = store_stmt(st, SQL_BYTES);
    sqlite3_bind_int64(q, 1, uid);
    int rc = store_get_int(st, q, "adding sessions up", n, e);
    struct store_total *grown = rc == 0 ? reallocarray(st->totals, st->n_totals + 1, sizeof *grown) : NULL;
    if (grown) { /* without memory the total is added up again next time */
        st->totals = grown;
        grown[st->n_totals++] = (struct store_total){.uid = uid, .bytes = *n};
    }
    return rc;
}

int store_uids(struct store *st, uid_t **uids, size_t *n, struct hearth_err *e)
{
    uid_t *v = NULL;
    size_t len = 0;
    sqlite3_stmt *q = store_stmt(st, SQL_UIDS);
    int rc = 0, got;
    while (!rc && (got = sqlite3_step(q)) == SQLITE_ROW) {
        uid_t *grown = reallocarray(v, len + 1, sizeof *v);
        if (!grown) {
            rc = err_set(e, HEARTH_ENOMEM, "out of memory");
            break;
        }
        v = grown;
        v[len++] = (uid_t)sqlite3_column_int64(q, 0);
    }
    if (!rc && got != SQLITE_DONE)
        rc = store_fail(st, "listing users", e);
    sqlite3_reset(q);
    if (rc) {
        free(v);
        return rc;
    }
    *uids = v;
    *n = len;
    return 0;
}

/* --- the clock ------------------------------------------------------------------------------------------ */

int store_get_clock(struct store *st, double *wall, double *holdoff, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_GET_CLOCK);
    int got = sqlite3_step(q), rc = 0;
    *wall = *holdoff = 0;
    if (got == SQLITE_ROW) {
        *wall = sqlite3_column_double(q, 0);
        *holdoff = sqlite3_column_double(q, 1);
    } else if (got != SQLITE_DONE) {
        rc = store_fail(st, "reading the clock", e);
    }
    sqlite3_reset(q);
    return rc;
}

int store_last_used(struct store *st, double before, double *used, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_LAST_USED);
    sqlite3_bind_double(q, 1, before);
    int rc = sqlite3_step(q) == SQLITE_ROW ? 0 : store_fail(st, "reading the sessions", e);
    *used = rc ? 0 : sqlite3_column_double(q, 0);
    sqlite3_reset(q);
    return rc;
}

int store_set_clock(struct store *st, double wall, double holdoff, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_SET_CLOCK);
    sqlite3_bind_double(q, 1, wall);
    sqlite3_bind_double(q, 2, holdoff);
    return store_run(st, q, "keeping the clock", e);
}

/* --- writing -------------------------------------------------------------------------------------------- */

struct amount amount_of(const struct store_turn *turns, size_t n)
{
    struct amount a = {.n_turns = (int64_t)n};
    for (size_t i = 0; i < n; i++) {
        a.bytes += (int64_t)(turns[i].len + turns[i].n_ids * sizeof(int32_t));
        a.bytes += turns[i].message ? (int64_t)strlen(turns[i].message) : 0;
        a.n_tok += (int64_t)turns[i].n_ids;
    }
    return a;
}

/* A new row gets the checksum of its contents as inserted. */
int store_set_sum(struct store *st, const char *id, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_SUM);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    return store_run(st, q, "creating a session", e);
}

int store_insert_session(struct store *st, const struct store_session *s, const struct amount *more,
                         struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_INSERT);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, s->uid);
    sqlite3_bind_text(q, 3, s->name, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 4, s->model, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 5, s->path, -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 6, s->turn_open);
    sqlite3_bind_double(q, 7, s->created);
    sqlite3_bind_double(q, 8, s->used);
    sqlite3_bind_int64(q, 9, more->bytes);
    sqlite3_bind_int(q, 10, s->pinned);
    sqlite3_bind_int64(q, 11, s->base + more->n_turns);
    sqlite3_bind_int64(q, 12, s->base_tok + more->n_tok);
    if (s->parent[0] != '\0')
        sqlite3_bind_text(q, 13, s->parent, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 14, s->base);
    sqlite3_bind_int64(q, 15, s->base_tok);
    sqlite3_bind_int(q, 16, s->ephemeral);
    int rc = store_run(st, q, "creating a session", e);
    if (rc && sqlite3_extended_errcode(st->db) == SQLITE_CONSTRAINT_UNIQUE)
        rc = err_set(e, HEARTH_ESESSIONEXISTS, "there is a session \"%.80s\" already", s->name);
    return rc ? rc : store_set_sum(st, s->id, e);
}

static int update_session(struct store *st, const struct store_session *s, const struct amount *more,
                          struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_UPDATE);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 2, s->turn_open);
    sqlite3_bind_double(q, 3, s->used);
    sqlite3_bind_int64(q, 4, more->bytes);
    sqlite3_bind_int64(q, 5, more->n_turns);
    sqlite3_bind_int64(q, 6, more->n_tok);
    int rc = store_run(st, q, "updating a session", e);
    if (!rc && sqlite3_changes(st->db) != 1)
        rc = err_set(e, HEARTH_ENOSESSION, "session %s has been removed", s->id);
    return rc;
}

int store_commit(struct store *st, const struct store_session *s, bool create, const struct store_turn *turns, size_t n,
                 int64_t stream, struct hearth_err *e)
{
    struct amount more = amount_of(turns, n);
    int rc = store_begin(st, e);
    if (rc)
        return rc;
    rc = (create ? store_insert_session : update_session)(st, s, &more, e);
    for (size_t i = 0; !rc && i < n; i++)
        rc = store_insert_turn(st, s, &turns[i], e);
    if (!rc)
        rc = store_commit_nothing(st, stream, e);
    rc = store_end(st, rc, "storing a turn", e);
    if (!rc)
        store_total_add(st, s->uid, more.bytes);
    return rc;
}

int store_pin(struct store *st, const struct store_session *s, bool pinned, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_PIN);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 2, pinned);
    return store_run(st, q, "pinning a session", e);
}

int store_rename(struct store *st, const struct store_session *s, const char *name, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_RENAME);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, name, -1, SQLITE_STATIC);
    int rc = store_run(st, q, "renaming a session", e);
    if (rc && sqlite3_extended_errcode(st->db) == SQLITE_CONSTRAINT_UNIQUE)
        rc = err_set(e, HEARTH_ESESSIONEXISTS, "there is a session \"%.80s\" already", name);
    return rc;
}

/* --- streams -------------------------------------------------------------------------------------------- */

int store_commit_nothing(struct store *st, int64_t stream, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_COMMIT_STREAM);
    sqlite3_bind_int64(q, 1, stream);
    return store_run(st, q, "remembering a stream", e);
}

int store_is_committed(struct store *st, int64_t stream, bool *committed, struct hearth_err *e)
{
    int64_t n = 0;
    sqlite3_stmt *q = store_stmt(st, SQL_IS_COMMITTED);
    sqlite3_bind_int64(q, 1, stream);
    int rc = store_get_int(st, q, "looking for streams", &n, e);
    *committed = n > 0;
    return rc;
}

int store_last_stream(struct store *st, int64_t *stream, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_LAST_STREAM);
    sqlite3_bind_int64(q, 1, STORE_STREAM_MAX);
    return store_get_int(st, q, "looking for streams", stream, e);
}

void store_forget_streams(struct store *st, int64_t oldest)
{
    struct hearth_err e;
    sqlite3_stmt *q = store_stmt(st, SQL_FORGET_STREAMS);
    sqlite3_bind_int64(q, 1, oldest);
    if (store_run(st, q, "forgetting streams", &e) != 0)
        log_warn("%s", e.msg);
}
