/* import.c - writes whole sessions: small ones at once, large ones in parts that stay invisible until the last. Loop
 * thread. */
#include "config.h"

#include "daemon/log.h"
#include "daemon/store/store-internal.h"

/* Begins the transaction that writes a session, and removes the session that it replaces (may be NULL); *freed is the
 * number of bytes which that frees. After an error no transaction is open. */
static int replace_begin(struct store *st, const struct store_session *replaced, int64_t *freed, struct hearth_err *e)
{
    int rc = replaced ? migrate_remove_session(st, replaced, e) : 0;
    *freed = 0;
    if (!rc)
        rc = store_begin(st, e);
    if (rc || !replaced)
        return rc;
    rc = store_take_away(st, replaced, freed, e);
    return rc ? store_end(st, rc, "storing a session", e) : 0;
}

/* Ends the transaction according to rc. `bytes` is the size of the new session, which belongs to s->uid. */
static int replace_end(struct store *st, int rc, const struct store_session *s, int64_t bytes,
                       const struct store_session *replaced, int64_t freed, struct hearth_err *e)
{
    rc = store_end(st, rc, "storing a session", e);
    if (replaced)
        timeline_cache_forget(st, replaced->id);
    if (!rc)
        store_total_add(st, s->uid, bytes - freed);
    return rc;
}

int store_import(struct store *st, const struct store_session *s, const struct store_session *replaced,
                 const struct store_turn *turns, size_t n, struct hearth_err *e)
{
    struct amount more = amount_of(turns, n);
    int64_t freed;
    int rc = replace_begin(st, replaced, &freed, e);
    if (rc)
        return rc;
    rc = store_insert_session(st, s, &more, e);
    for (size_t i = 0; !rc && i < n; i++)
        rc = store_insert_turn(st, s, &turns[i], e);
    return replace_end(st, rc, s, more.bytes, replaced, freed, e);
}

/* --- in parts ------------------------------------------------------------------------------------------------- */

int store_import_begin(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    struct store_session hidden = *s;
    static const struct amount none;
    hidden.name = (char *)s->id;
    int rc = store_begin(st, e);
    if (rc)
        return rc;
    rc = store_insert_session(st, &hidden, &none, e);
    if (!rc) {
        sqlite3_stmt *q = store_stmt(st, SQL_HIDE);
        sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
        rc = store_run(st, q, "storing a session", e);
    }
    return store_end(st, rc, "storing a session", e);
}

int store_import_part(struct store *st, const struct store_session *s, const struct store_turn *turns, size_t n,
                      struct hearth_err *e)
{
    int rc = store_begin(st, e);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < n; i++)
        rc = store_insert_turn(st, s, &turns[i], e);
    return store_end(st, rc, "storing a session", e);
}

static int publish(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_PUBLISH);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, s->uid);
    sqlite3_bind_text(q, 3, s->name, -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 4, s->turn_open);
    sqlite3_bind_double(q, 5, s->created);
    sqlite3_bind_double(q, 6, s->used);
    sqlite3_bind_int64(q, 7, s->bytes);
    sqlite3_bind_int(q, 8, s->pinned);
    sqlite3_bind_int64(q, 9, s->n_turns);
    sqlite3_bind_int64(q, 10, s->n_tok);
    int rc = store_run(st, q, "storing a session", e);
    if (rc && sqlite3_extended_errcode(st->db) == SQLITE_CONSTRAINT_UNIQUE)
        rc = err_set(e, HEARTH_ESESSIONEXISTS, "there is a session \"%.80s\" already", s->name);
    else if (!rc && sqlite3_changes(st->db) != 1)
        rc = err_set(e, HEARTH_ESTORE, "what was written of session \"%.80s\" is not there", s->name);
    return rc ? rc : store_set_sum(st, s->id, e);
}

int store_import_end(struct store *st, const struct store_session *s, const struct store_session *replaced,
                     struct hearth_err *e)
{
    int64_t freed;
    int rc = replace_begin(st, replaced, &freed, e);
    return rc ? rc : replace_end(st, publish(st, s, e), s, s->bytes, replaced, freed, e);
}

void store_import_drop(struct store *st, const struct store_session *s)
{
    struct hearth_err e;
    sqlite3_stmt *q = store_stmt(st, SQL_SOFT_DELETE);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    if (store_run(st, q, "removing what was written of a session", &e) != 0)
        log_warn("%s", e.msg); /* the next start removes it */
    else
        st->has_deleted = true;
}
