/*
 * remove.c - removes sessions. Loop thread.
 *
 * A turn takes 3 us to remove, and more with its text and ids, because all of it is overwritten; a session may have
 * tens of thousands. So a large session first loses its owner and its name, which is one row and all that anybody can
 * see of it (a soft delete), and then its turns, a few at a time. What hearthd's end or a kill leaves is removed at the
 * next start.
 */
#include "config.h"

#include <stdio.h>

#include "daemon/store/store-internal.h"

enum { SLICE_TURNS = 256, SLICE_BYTES = 256 << 10 };

static int remove_row(struct store *st, const char *id, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_REMOVE);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    return store_run(st, q, "removing a session", e);
}

int store_soft_delete(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    if (s->n_turns <= SLICE_TURNS && s->bytes <= SLICE_BYTES)
        return remove_row(st, s->id, e);
    sqlite3_stmt *q = store_stmt(st, SQL_SOFT_DELETE);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    int rc = store_run(st, q, "removing a session", e);
    st->has_deleted = st->has_deleted || rc == 0;
    return rc;
}

/* A damaged session may have another id than its turns, or none; then every turn without a session is removed. */
static int remove_damaged(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    int rc = store_begin(st, e);
    if (rc)
        return rc;
    sqlite3_stmt *q = store_stmt(st, SQL_REMOVE_ORPHANS);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    rc = store_run(st, q, "removing a session", e);
    if (!rc && s->id[0] != '\0') {
        rc = remove_row(st, s->id, e);
    } else if (!rc) { /* the id is damaged: the session was found by its name */
        q = store_stmt(st, SQL_REMOVE_NAME);
        sqlite3_bind_int64(q, 1, s->uid);
        sqlite3_bind_text(q, 2, s->name, -1, SQLITE_STATIC);
        rc = store_run(st, q, "removing a session", e);
    }
    return store_end(st, rc, "removing a session", e);
}

int store_remove(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    int (*const remove)(struct store *, const struct store_session *, struct hearth_err *) =
        s->damaged ? remove_damaged : store_soft_delete;
    timeline_cache_forget(st, s->id);
    int rc = migrate_remove_session(st, s, e);
    if (!rc)
        rc = remove(st, s, e);
    /* On a full disk the log cannot grow; once it is truncated, there is room for the removal. */
    if (rc == HEARTH_ESTORE && store_scrub(st, NULL) == 0)
        rc = remove(st, s, e);
    if (!rc && s->damaged)
        store_total_forget(st, s->uid); /* before it was damaged it may have been counted */
    else if (!rc)
        store_total_add(st, s->uid, -s->bytes);
    return rc;
}

/* --- turns of what was removed -------------------------------------------------------------------------------------
 */

/* Finds the session's last turns, as many as are removed at once: returns the number of the first, -1 where none is
 * left. */
static int64_t slice(struct store *st, const char *id)
{
    int64_t seq = -1, bytes = 0;
    sqlite3_stmt *q = store_stmt(st, SQL_LAST_TURNS);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 2, SLICE_TURNS);
    while (bytes < SLICE_BYTES && sqlite3_step(q) == SQLITE_ROW) {
        seq = sqlite3_column_int64(q, 0);
        bytes += sqlite3_column_int64(q, 1);
    }
    sqlite3_reset(q);
    return seq;
}

int store_purge_some(struct store *st, bool *more, struct hearth_err *e)
{
    char id[STORE_ID_LEN + 1] = "";
    *more = false;
    if (!st->has_deleted)
        return 0;
    sqlite3_stmt *q = store_stmt(st, SQL_DELETED);
    int got = sqlite3_step(q);
    if (got == SQLITE_ROW)
        snprintf(id, sizeof id, "%s", (const char *)sqlite3_column_text(q, 0));
    int rc = got == SQLITE_ROW || got == SQLITE_DONE ? 0 : store_fail(st, "removing a session", e);
    sqlite3_reset(q);
    st->has_deleted = *more = rc != 0 || id[0] != '\0';
    if (rc || id[0] == '\0')
        return rc;
    int64_t from = slice(st, id);
    if (from < 0)
        return remove_row(st, id, e);
    q = store_stmt(st, SQL_REMOVE_TURNS);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, from);
    return store_run(st, q, "removing a session", e);
}

int store_purge_all(struct store *st, struct hearth_err *e)
{
    bool more = true;
    int rc = 0;
    while (!rc && more)
        rc = store_purge_some(st, &more, e);
    return rc;
}
