/*
 * chain.c - reads the turns of a session in order, whichever sessions store them. Loop thread.
 *
 * A fork shares its first turns by reference: they belong to its parent, which may share some from its own parent, and
 * so on. Turns are numbered along the timeline, so each session of that chain contributes one range of turn numbers.
 * The ranges are read one after the other: a single statement over all of them would sort rows that are in order
 * already.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/store-internal.h"

/* Reads which session the one with id `of` was forked from, and how many turns it shares with it. */
static int read_link(struct store *st, const char *of, char parent[STORE_ID_LEN + 1], int64_t *base,
                     struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_LINK);
    sqlite3_bind_text(q, 1, of, -1, SQLITE_STATIC);
    int got = sqlite3_step(q);
    char *id = got == SQLITE_ROW ? store_text(q, 0) : NULL;
    bool linked = id && store_is_id(id);
    *base = got == SQLITE_ROW ? sqlite3_column_int64(q, 1) : 0;
    snprintf(parent, STORE_ID_LEN + 1, "%s", linked ? id : "");
    free(id);
    int rc = got == SQLITE_ROW || got == SQLITE_DONE ? 0 : store_fail(st, "reading a session", e);
    sqlite3_reset(q);
    return rc;
}

int chain_open(struct store *st, struct chain *c, enum sql which, const struct store_session *s, struct hearth_err *e)
{
    char id[STORE_ID_LEN + 1], parent[STORE_ID_LEN + 1];
    int64_t base = s->base, end = INT64_MAX;
    *c = (struct chain){.st = st, .q = store_stmt(st, which)};
    memcpy(id, s->id, sizeof id);
    memcpy(parent, s->parent, sizeof parent);
    for (;;) {
        if (c->n == CHAIN_MAX)
            return err_set(e, HEARTH_ESTORE, "session %s is damaged: it is a fork of more than %d forks", s->id,
                           CHAIN_MAX);
        struct segment *grown = reallocarray(c->segment, c->n + 1, sizeof *grown);
        if (!grown)
            return err_set(e, HEARTH_ENOMEM, "out of memory");
        c->segment = grown;
        c->segment[c->n] = (struct segment){.from = base, .end = end};
        memcpy(c->segment[c->n++].id, id, sizeof id);
        end = base < end ? base : end;
        if (end <= 0 || parent[0] == '\0')
            break;
        memcpy(id, parent, sizeof id);
        int rc = read_link(st, id, parent, &base, e);
        if (rc)
            return rc;
    }
    c->left = c->n;
    return 0;
}

static void bind(struct chain *c, const struct segment *s)
{
    sqlite3_reset(c->q);
    sqlite3_bind_text(c->q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(c->q, 2, s->from);
    sqlite3_bind_int64(c->q, 3, s->end);
    c->bound = true;
}

int chain_step(struct chain *c)
{
    for (;;) {
        int got = c->bound ? sqlite3_step(c->q) : SQLITE_DONE;
        if (got != SQLITE_DONE || c->left == 0)
            return got;
        bind(c, &c->segment[--c->left]); /* the oldest first */
    }
}

int chain_last(struct chain *c)
{
    int got = SQLITE_DONE;
    for (size_t i = 0; i < c->n && got == SQLITE_DONE; i++) {
        bind(c, &c->segment[i]);
        got = sqlite3_step(c->q);
    }
    return got;
}

bool chain_is_own(const struct chain *c)
{
    return c->left == 0;
}

void chain_close(struct chain *c)
{
    if (c->q)
        sqlite3_reset(c->q);
    free(c->segment);
    *c = (struct chain){0};
}
