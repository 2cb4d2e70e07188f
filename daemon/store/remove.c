/*
 * remove.c - removes sessions. Loop thread.
 *
 * Removing a turn takes 3 us, and more with the size of its text and ids, because all of it is overwritten; a session
 * may have tens of thousands of turns. So a large session first loses its owner and its name (a soft delete), which
 * changes one row and makes it invisible, and then its turns, a few at a time. Turns that are left when hearthd exits
 * or is killed are removed at the next start.
 *
 * Turns that forks share by reference stay as long as one of these forks does: the session is then hidden, with its id
 * as its name, and is called a trunk. Its bytes still count towards its owner's total.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/store-internal.h"

enum { SLICE_TURNS = 256, SLICE_BYTES = 256 << 10 };

static int remove_row(struct store *st, const char *id, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_REMOVE);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    return store_run(st, q, "removing a session", e);
}

static int soft_delete(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    if (s->n_turns - s->base <= SLICE_TURNS && s->bytes <= SLICE_BYTES)
        return remove_row(st, s->id, e);
    sqlite3_stmt *q = store_stmt(st, SQL_SOFT_DELETE);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    int rc = store_run(st, q, "removing a session", e);
    st->has_deleted = st->has_deleted || rc == 0;
    return rc;
}

/* A damaged session may have a different id than its turns, or none; then every turn without a session is removed. */
static int remove_damaged(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_REMOVE_ORPHANS);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    int rc = store_run(st, q, "removing a session", e);
    if (!rc && s->id[0] != '\0')
        return remove_row(st, s->id, e);
    if (rc)
        return rc;
    q = store_stmt(st, SQL_REMOVE_NAME); /* the id is damaged: the session was found by its name */
    sqlite3_bind_int64(q, 1, s->uid);
    sqlite3_bind_text(q, 2, s->name, -1, SQLITE_STATIC);
    return store_run(st, q, "removing a session", e);
}

/* --- turns shared with forks -------------------------------------------------------------------------------------- */

int store_shared(struct store *st, const char *id, const char *but, struct store_shared *out, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_SHARED);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, but, -1, SQLITE_STATIC);
    int rc = sqlite3_step(q) == SQLITE_ROW ? 0 : store_fail(st, "looking for forks", e);
    if (!rc)
        *out = (struct store_shared){.forks = sqlite3_column_int64(q, 0),
                                     .turns = sqlite3_column_int64(q, 1),
                                     .tokens = sqlite3_column_int64(q, 2)};
    sqlite3_reset(q);
    return rc;
}

/* Whether a fork other than `but` shares all turns of that trunk, which then stays as it is. It is asked before
 * store_shared() because it ends at the first such fork: forks that are removed one after the other would otherwise
 * each read the rows of all others. */
static int is_shared_whole(struct store *st, const struct store_session *trunk, const char *but, bool *whole,
                           struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_SHARES);
    sqlite3_bind_text(q, 1, trunk->id, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, but, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 3, trunk->n_turns > trunk->base ? trunk->n_turns : trunk->base);
    int got = sqlite3_step(q);
    *whole = got == SQLITE_ROW;
    int rc = got == SQLITE_ROW || got == SQLITE_DONE ? 0 : store_fail(st, "looking for forks", e);
    sqlite3_reset(q);
    return rc;
}

/* Returns the trunk with this id; NULL if the id does not belong to one. */
static int get_trunk(struct store *st, const char *id, struct store_session **out, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_GET_TRUNK);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    int got = sqlite3_step(q), rc = 0;
    *out = NULL;
    if (got == SQLITE_ROW)
        rc = session_from_row(q, out, e);
    else if (got != SQLITE_DONE)
        rc = store_fail(st, "looking for forks", e);
    sqlite3_reset(q);
    return rc == HEARTH_ESTORE && *out ? 0 : rc; /* a damaged trunk is returned, too */
}

/* Hides the session and leaves only the turns that forks share; the others are removed later, or at once if they are
 * few. A damaged row stays damaged. */
static int make_trunk(struct store *st, const struct store_session *s, const struct store_shared *sh, int64_t *freed,
                      struct hearth_err *e)
{
    struct store_session *left = NULL;
    sqlite3_stmt *q = store_stmt(st, SQL_MAKE_TRUNK);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, sh->turns);
    sqlite3_bind_int64(q, 3, sh->tokens);
    int rc = store_run(st, q, "removing a session", e);
    if (!rc && !s->damaged) {
        q = store_stmt(st, SQL_SUM);
        sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
        rc = store_run(st, q, "removing a session", e);
    }
    if (!rc)
        rc = get_trunk(st, s->id, &left, e);
    if (!rc && left) {
        *freed += s->damaged ? 0 : s->bytes - left->bytes; /* what is damaged does not count */
        st->has_deleted = true;
        if (s->n_turns - left->n_turns <= SLICE_TURNS && s->bytes - left->bytes <= SLICE_BYTES) {
            q = store_stmt(st, SQL_REMOVE_TURNS);
            sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
            sqlite3_bind_int64(q, 2, left->n_turns);
            rc = store_run(st, q, "removing a session", e);
        }
    }
    store_session_free(left);
    return rc;
}

/* Called when a fork of that session has been removed: if the session had lost its id and was removed before, its turns
 * were only kept for its forks. */
static int remove_orphans_of(struct store *st, const char *id, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_REMOVE_ORPHANS_OF);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    return store_run(st, q, "removing a session", e);
}

/* Called when forks of that trunk have been removed or share less of it: the trunk may then have less to keep, or
 * nothing, and so may the trunks that it was itself forked from. */
int store_trim_trunks(struct store *st, const char *id, int64_t *freed, struct hearth_err *e)
{
    char at[STORE_ID_LEN + 1];
    memcpy(at, id, sizeof at);
    for (int rc = 0; at[0] != '\0' && !rc;) {
        struct store_session *t;
        struct store_shared sh = {0};
        bool whole;
        rc = get_trunk(st, at, &t, e);
        if (rc || !t)
            return rc ? rc : remove_orphans_of(st, at, e);
        rc = is_shared_whole(st, t, "", &whole, e);
        if (rc || whole) {
            store_session_free(t);
            return rc;
        }
        rc = store_shared(st, at, "", &sh, e);
        bool further = !sh.forks || sh.turns < t->base;
        memcpy(at, further ? t->parent : "", further ? sizeof at : 1);
        if (!rc && sh.forks) {
            rc = sh.turns < t->n_turns ? make_trunk(st, t, &sh, freed, e) : 0;
        } else if (!rc) {
            rc = t->damaged ? remove_damaged(st, t, e) : soft_delete(st, t, e);
            *freed += t->damaged ? 0 : t->bytes;
        }
        store_session_free(t);
        if (rc)
            return rc;
    }
    return 0;
}

/* Computes what the parent trunk of `of` will have to keep once `of` is reduced to *left; the result replaces *left. */
static int left_of_trunk(struct store *st, const struct store_session *of, struct store_shared *left,
                         struct hearth_err *e)
{
    struct store_shared others = {0};
    int rc = store_shared(st, of->parent, of->id, &others, e);
    int64_t turns = left->turns < of->base ? left->turns : of->base;
    int64_t tokens = left->tokens < of->base_tok ? left->tokens : of->base_tok;
    *left = (struct store_shared){.forks = others.forks + (left->forks > 0),
                                  .turns = turns > others.turns ? turns : others.turns,
                                  .tokens = tokens > others.tokens ? tokens : others.tokens};
    return rc;
}

static int add_trunk(struct store_trunk **v, size_t *n, const char *id, int64_t tokens, struct hearth_err *e)
{
    struct store_trunk *grown = reallocarray(*v, *n + 1, sizeof **v);
    if (!grown)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *v = grown;
    memcpy(grown[*n].id, id, sizeof grown->id);
    grown[(*n)++].tokens = tokens;
    return 0;
}

int store_trunks(struct store *st, const struct store_session *s, const struct store_shared *left,
                 struct store_trunk **out, size_t *n, struct hearth_err *e)
{
    struct store_shared sh = *left;
    struct store_session *before = NULL; /* NULL stands for s */
    int rc = 0;
    *out = NULL;
    *n = 0;
    for (bool less = true; less && !rc && *n < CHAIN_MAX;) { /* parents that form a cycle have no end */
        const struct store_session *of = before ? before : s;
        struct store_session *t = NULL;
        if (of->parent[0] != '\0')
            rc = get_trunk(st, of->parent, &t, e);
        if (rc || !t)
            break;
        bool whole;
        rc = is_shared_whole(st, t, of->id, &whole, e);
        if (!rc && !whole)
            rc = left_of_trunk(st, of, &sh, e);
        less = !whole && (!sh.forks || sh.turns < t->n_turns);
        if (!rc && less)
            rc = add_trunk(out, n, t->id, sh.tokens, e);
        store_session_free(before);
        before = t;
    }
    store_session_free(before);
    if (rc) {
        free(*out);
        *out = NULL;
        *n = 0;
    }
    return rc;
}

int store_take_away(struct store *st, const struct store_session *s, int64_t *freed, struct hearth_err *e)
{
    struct store_shared sh = {0};
    *freed = 0;
    int rc = s->id[0] != '\0' ? store_shared(st, s->id, "", &sh, e) : 0;
    if (rc)
        return rc;
    if (sh.forks > 0) {
        rc = make_trunk(st, s, &sh, freed, e);
    } else {
        *freed = s->bytes;
        rc = s->damaged ? remove_damaged(st, s, e) : soft_delete(st, s, e);
    }
    return rc ? rc : store_trim_trunks(st, s->parent, freed, e);
}

static int remove_all(struct store *st, const struct store_session *s, int64_t *freed, struct hearth_err *e)
{
    int rc = store_begin(st, e);
    if (rc)
        return rc;
    rc = store_take_away(st, s, freed, e);
    return store_end(st, rc, "removing a session", e);
}

int store_remove(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    int64_t freed = 0;
    timeline_cache_forget(st, s->id);
    int rc = migrate_remove_session(st, s, e);
    if (!rc)
        rc = remove_all(st, s, &freed, e);
    /* On a full disk the log cannot grow; truncating it makes room for the removal. Truncation may in turn require the
     * database file to grow, for which the reserve is released. */
    if (rc == HEARTH_ESTORE && store_scrub(st, NULL) == 0)
        rc = remove_all(st, s, &freed, e);
    if (rc == HEARTH_ESTORE && st->full && store_reserve_give(st)) {
        store_scrub(st, NULL);
        rc = remove_all(st, s, &freed, e);
        store_scrub(st, NULL);
        store_reserve_make(st);
    }
    if (!rc && s->damaged)
        store_total_forget(st, s->uid); /* it may have been counted before it was damaged */
    else if (!rc)
        store_total_add(st, s->uid, -freed);
    return rc;
}

/* --- purging the turns of removed sessions ------------------------------------------------------------------------ */

/* Selects the session's last turns, at most as many as are removed at once: returns the number of the first of them, or
 * -1 if none is left. */
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

/* Finds the next session with turns to be removed, and the number of the first of them; -1 stands for all. `id` is
 * empty if there is none. */
static int next_purge(struct store *st, char id[STORE_ID_LEN + 1], int64_t *first, struct hearth_err *e)
{
    int rc = 0;
    id[0] = '\0';
    for (int trunk = 0; trunk < 2 && !rc && id[0] == '\0'; trunk++) {
        sqlite3_stmt *q = store_stmt(st, trunk ? SQL_TRUNK_WITH_TAIL : SQL_DELETED);
        int got = sqlite3_step(q);
        if (got == SQLITE_ROW) {
            snprintf(id, STORE_ID_LEN + 1, "%s", (const char *)sqlite3_column_text(q, 0));
            *first = trunk ? sqlite3_column_int64(q, 1) : -1;
        }
        rc = got == SQLITE_ROW || got == SQLITE_DONE ? 0 : store_fail(st, "removing a session", e);
        sqlite3_reset(q);
    }
    return rc;
}

int store_purge_some(struct store *st, bool *more, struct hearth_err *e)
{
    char id[STORE_ID_LEN + 1];
    int64_t first;
    *more = false;
    if (!st->has_deleted)
        return 0;
    int rc = next_purge(st, id, &first, e);
    st->has_deleted = *more = rc != 0 || id[0] != '\0';
    if (rc || id[0] == '\0')
        return rc;
    int64_t from = slice(st, id);
    if (from < 0) {
        rc = remove_row(st, id, e);
    } else {
        sqlite3_stmt *q = store_stmt(st, SQL_REMOVE_TURNS);
        sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 2, from > first ? from : first);
        rc = store_run(st, q, "removing a session", e);
    }
    if (rc || sqlite3_changes(st->db) > 0)
        return rc;
    st->has_deleted = *more = false; /* it would be found again for ever */
    return err_set(e, HEARTH_ESTORE, "what is left of session %s is damaged and cannot be removed", id);
}

int store_purge_all(struct store *st, struct hearth_err *e)
{
    bool more = true;
    int rc = 0;
    while (!rc && more)
        rc = store_purge_some(st, &more, e);
    return rc;
}
