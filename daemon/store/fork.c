/* fork.c - sessions that are made from others by reference; see chain.c. Loop thread. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/store-internal.h"

/* --- cutting a timeline ------------------------------------------------------------------------------------------- */

/* Counts the whole turns before the cut. When a request has several messages, only the last row holds the ids; rows
 * without ids therefore belong to the row that follows them, unless they are empty answers. */
static int find_cut(struct chain *c, int64_t at, struct store_cut *out, int64_t *read, struct hearth_err *e)
{
    int64_t n = 0, held = 0;
    int got = SQLITE_DONE;
    while (!out->inside && (got = chain_step(c)) == SQLITE_ROW) {
        int64_t ids = sqlite3_column_int64(c->q, 0) / 4;
        const char *role = (const char *)sqlite3_column_text(c->q, 1);
        bool generated = sqlite3_column_int(c->q, 2) != 0 || (role && !strcmp(role, "assistant"));
        if (n + ids > at) {
            out->inside = true;
            out->generated = generated;
            out->open = out->open || (generated && role && !store_is_raw_role(role) && at > n);
            break;
        }
        n += ids;
        held = ids == 0 && !generated ? held + 1 : 0;
        out->turns++;
        out->open = out->open || (ids > 0 && role && !store_is_raw_role(role));
    }
    if (!out->inside && got != SQLITE_DONE)
        return store_fail(c->st, "reading a session", e);
    if (!out->inside && n < at)
        return err_set(e, HEARTH_ESTORE, "session is damaged: it has %lld tokens, and more were written", (long long)n);
    out->tokens = n;
    if (n == at)
        out->inside = false;
    *read = out->turns;
    if (!out->inside || !out->generated)
        out->turns -= held;
    return 0;
}

int store_cut(struct store *st, const struct store_session *s, int64_t at, struct store_cut *out, struct hearth_err *e)
{
    struct chain c;
    int64_t read = 0;
    *out = (struct store_cut){0};
    int rc = chain_open(st, &c, SQL_LENGTHS, s, e);
    if (!rc)
        rc = find_cut(&c, at, out, &read, e);
    chain_close(&c);
    if (rc || !out->inside)
        return rc;
    return store_read_turn(st, s, read, &out->turn, e);
}

/* --- making forks ------------------------------------------------------------------------------------------------- */

static int insert_fork(struct store *st, const struct store_session *s, const struct store_turn *own, size_t n,
                       struct hearth_err *e)
{
    struct amount more = amount_of(own, n);
    int rc = store_insert_session(st, s, &more, e);
    for (size_t i = 0; !rc && i < n; i++)
        rc = store_insert_turn(st, s, &own[i], e);
    return rc;
}

static int check_depth(struct store *st, const struct store_session *s, struct hearth_err *e)
{
    struct chain c;
    int rc = chain_open(st, &c, SQL_LENGTHS, s, e);
    if (!rc && c.n > FORK_DEPTH_MAX)
        rc = err_set(e, HEARTH_ELIMIT,
                     "session %s is the last of %d of which each is a fork of the one before, the limit: what is "
                     "imported from its export is a fork of none",
                     s->parent, FORK_DEPTH_MAX);
    chain_close(&c);
    return rc;
}

int store_fork(struct store *st, const struct store_session *const *s, size_t n, const struct store_turn *own,
               size_t n_own, struct hearth_err *e)
{
    int rc = check_depth(st, s[0], e);
    if (!rc)
        rc = store_begin(st, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < n && !rc; i++)
        rc = insert_fork(st, s[i], own, n_own, e);
    rc = store_end(st, rc, "storing a fork", e);
    if (!rc)
        store_total_add(st, s[0]->uid, (int64_t)n * amount_of(own, n_own).bytes);
    return rc;
}

int store_count_names(struct store *st, uid_t uid, const char *begin, int64_t *n, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_COUNT_NAMES);
    sqlite3_bind_int64(q, 1, uid);
    sqlite3_bind_text(q, 2, begin, -1, SQLITE_STATIC);
    int rc = store_get_int(st, q, "counting sessions", n, e);
    sqlite3_clear_bindings(q);
    return rc;
}

/* --- adopting a fork ---------------------------------------------------------------------------------------------- */

static int run_two(struct store *st, enum sql which, const char *a, const char *b, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, which);
    sqlite3_bind_text(q, 1, a, -1, SQLITE_STATIC);
    if (b)
        sqlite3_bind_text(q, 2, b, -1, SQLITE_STATIC);
    return store_run(st, q, "adopting a session", e);
}

static int own_bytes(struct store *st, const char *id, int64_t *bytes, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_OWN_BYTES);
    sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
    return store_get_int(st, q, "adopting a session", bytes, e);
}

static int set_adopted(struct store *st, const struct store_session *f, const struct store_session *p, double now,
                       int64_t bytes, struct hearth_err *e)
{
    bool further = p->base > f->base; /* the cut is within the turns that the parent itself has by reference */
    sqlite3_stmt *q = store_stmt(st, SQL_ADOPT);
    sqlite3_bind_text(q, 1, p->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, further ? f->base : p->base);
    sqlite3_bind_int64(q, 3, further ? f->base_tok : p->base_tok);
    sqlite3_bind_int(q, 4, f->turn_open);
    sqlite3_bind_double(q, 5, now);
    sqlite3_bind_int64(q, 6, bytes);
    sqlite3_bind_int64(q, 7, f->n_turns);
    sqlite3_bind_int64(q, 8, f->n_tok);
    return store_run(st, q, "adopting a session", e);
}

static int adopt(struct store *st, const struct store_session *f, const struct store_session *p, double now,
                 int64_t *grown, struct hearth_err *e)
{
    int64_t bytes = 0, freed = 0;
    sqlite3_stmt *q = store_stmt(st, SQL_REMOVE_TURNS);
    sqlite3_bind_text(q, 1, p->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 2, f->base);
    int rc = store_run(st, q, "adopting a session", e);
    if (!rc)
        rc = run_two(st, SQL_MOVE_TURNS, f->id, p->id, e);
    if (!rc)
        rc = run_two(st, SQL_MOVE_FORKS, f->id, p->id, e);
    if (!rc)
        rc = run_two(st, SQL_KV_MOVE, f->id, p->id, e);
    if (!rc)
        rc = run_two(st, SQL_REMOVE, f->id, NULL, e);
    if (!rc)
        rc = own_bytes(st, p->id, &bytes, e);
    if (!rc)
        rc = set_adopted(st, f, p, now, bytes, e);
    if (!rc)
        rc = run_two(st, SQL_SUM, p->id, NULL, e);
    if (!rc) /* the parent may now share fewer turns with a removed session */
        rc = store_trim_trunks(st, p->parent, &freed, e);
    *grown = bytes - p->bytes - f->bytes - freed;
    return rc;
}

int store_adopt(struct store *st, const struct store_session *fork, const struct store_session *parent, double now,
                struct hearth_err *e)
{
    int64_t grown = 0;
    int rc = store_begin(st, e);
    if (rc)
        return rc;
    rc = adopt(st, fork, parent, now, &grown, e);
    rc = store_end(st, rc, "adopting a session", e);
    timeline_cache_forget(st, fork->id);
    timeline_cache_forget(st, parent->id);
    if (!rc)
        store_total_add(st, parent->uid, grown);
    return rc;
}
