/* turns.c - the contents of sessions: token timelines, texts, and pages of both. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/store/store-internal.h"
#include "libclient/utf8.h"
#include "libclient/wire.h"

/* --- reading -------------------------------------------------------------------------------------------- */

/* Reads n little-endian ids; `first` is the position of the first one, for the error message. */
static int read_ids(int32_t *to, const uint8_t *p, size_t n, const char *id, size_t first, struct hearth_err *e)
{
    for (size_t i = 0; i < n; i++, p += 4) {
        uint32_t t = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        if (t > INT32_MAX)
            return err_set(e, HEARTH_ESTORE, "session %s is damaged: token %zu is negative", id, first + i);
        to[i] = (int32_t)t;
    }
    return 0;
}

/* Locates the ids in a column; they are borrowed from the row. */
static int ids_of(sqlite3_stmt *q, int column, const char *id, const uint8_t **p, size_t *n, struct hearth_err *e)
{
    size_t bytes = (size_t)sqlite3_column_bytes(q, column);
    *p = sqlite3_column_blob(q, column);
    *n = bytes / 4;
    if (sqlite3_column_type(q, column) != SQLITE_BLOB || bytes % 4 != 0)
        return err_set(e, HEARTH_ESTORE, "session %s is damaged: a turn's tokens are %zu bytes", id, bytes);
    if (bytes > 0 && *p == NULL)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    return 0;
}

int store_timeline(struct store *st, const struct store_session *s, int32_t **ids, size_t *n, struct hearth_err *e)
{
    int32_t *v = NULL;
    size_t len = 0;
    int64_t turn = 0, bytes = 0;
    struct chain c;
    int rc = chain_open(st, &c, SQL_TOKENS, s, e), got = SQLITE_DONE;
    sqlite3_stmt *q = c.q;
    while (!rc && (got = chain_step(&c)) == SQLITE_ROW) {
        const uint8_t *p;
        size_t more;
        rc = ids_of(q, 0, s->id, &p, &more, e);
        bytes += chain_is_own(&c) ? sqlite3_column_int64(q, 2) : 0;
        if (!rc && sqlite3_column_int64(q, 1) != turn)
            rc = err_set(e, HEARTH_ESTORE, "session %s is damaged: turn %lld is missing", s->id, (long long)turn);
        else if (!rc && sqlite3_column_int(q, 3) != 1)
            rc = err_set(e, HEARTH_ESTORE, "session %s is damaged: turn %lld is not as it was written", s->id,
                         (long long)turn);
        turn++;
        if (rc || more == 0)
            continue;
        int32_t *grown = reallocarray(v, len + more, sizeof *v);
        if (!grown) {
            rc = err_set(e, HEARTH_ENOMEM, "out of memory");
            continue;
        }
        v = grown;
        rc = read_ids(v + len, p, more, s->id, len, e);
        len += more;
    }
    if (!rc && got != SQLITE_DONE)
        rc = store_fail(st, "reading a session's tokens", e);
    if (!rc && (turn != s->n_turns || (int64_t)len != s->n_tok))
        rc = err_set(e, HEARTH_ESTORE,
                     "session %s is damaged: it has %lld turns of %zu tokens, and %lld of %lld were written", s->id,
                     (long long)turn, len, (long long)s->n_turns, (long long)s->n_tok);
    else if (!rc && bytes != s->bytes)
        rc = err_set(e, HEARTH_ESTORE, "session %s is damaged: its turns have %lld bytes, and %lld were written", s->id,
                     (long long)bytes, (long long)s->bytes);
    chain_close(&c);
    if (rc) {
        free(v);
        return rc;
    }
    *ids = v;
    *n = len;
    return 0;
}

/* --- turns ---------------------------------------------------------------------------------------------- */

enum { COL_TEXT_LEN, COL_TOKENS_LEN, COL_ROLE, COL_CREATED, COL_TEXT, COL_TOKENS, COL_GENERATION, COL_MESSAGE };

/* A part of a turn: a range of its text's bytes and one of its ids. */
struct cut {
    size_t text, n_text, ids, n_ids;
};

static bool is_role(const char *role, size_t len)
{
    return role != NULL && len > 0 && len <= WIRE_NAME_MAX && strlen(role) == len && utf8_prefix(role, len) == len;
}

/* Reads the part `c` of the row's turn into one malloc'd block, which begins with the ids. */
static int read_turn(sqlite3_stmt *q, const char *id, const struct cut *c, struct store_turn *t, struct hearth_err *e)
{
    const char *role = (const char *)sqlite3_column_text(q, COL_ROLE);
    size_t role_len = (size_t)sqlite3_column_bytes(q, COL_ROLE),
           generation_len = (size_t)sqlite3_column_bytes(q, COL_GENERATION);
    const char *text = sqlite3_column_blob(q, COL_TEXT);
    size_t text_len = (size_t)sqlite3_column_bytes(q, COL_TEXT), n_ids = 0;
    const void *generation = sqlite3_column_blob(q, COL_GENERATION);
    const char *message = sqlite3_column_blob(q, COL_MESSAGE);
    size_t message_len = (size_t)sqlite3_column_bytes(q, COL_MESSAGE);
    const uint8_t *ids = NULL;
    double created = sqlite3_column_double(q, COL_CREATED);
    if (!is_role(role, role_len) || sqlite3_column_type(q, COL_TEXT) != SQLITE_BLOB || !store_is_time(created))
        return err_set(e, HEARTH_ESTORE, "session %s is damaged: a turn's role, text or time cannot be one", id);
    int rc = c->n_ids > 0 ? ids_of(q, COL_TOKENS, id, &ids, &n_ids, e) : 0;
    if (rc)
        return rc;
    if (c->text + c->n_text > text_len || (c->n_ids > 0 && c->ids + c->n_ids > n_ids))
        return err_set(e, HEARTH_ESTORE, "session %s is damaged: a turn is shorter than it says", id);
    if (c->text > 0 || c->ids > 0)
        generation_len = message_len = 0; /* these came with the first part */
    if (message_len > 0 && memchr(message, 0, message_len))
        return err_set(e, HEARTH_ESTORE, "session %s is damaged: a turn's message cannot be one", id);

    int32_t *to = malloc(c->n_ids * sizeof *to + generation_len + role_len + c->n_text + message_len + 3);
    if (!to)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    rc = c->n_ids > 0 ? read_ids(to, ids + 4 * c->ids, c->n_ids, id, c->ids, e) : 0;
    if (rc) {
        free(to);
        return rc;
    }
    char *p = (char *)(to + c->n_ids);
    *t = (struct store_turn){.ids = to, .len = c->n_text, .n_ids = c->n_ids, .generation_len = generation_len};
    t->created = created;
    t->generation = generation_len > 0 ? memcpy(p, generation, generation_len) : NULL;
    t->role = memcpy(p + generation_len, role, role_len + 1);
    p += generation_len + role_len + 1;
    if (c->n_text > 0)
        memcpy(p, text + c->text, c->n_text);
    p[c->n_text] = '\0';
    t->text = p;
    p += c->n_text + 1;
    if (message_len > 0) {
        t->message = memcpy(p, message, message_len);
        p[message_len] = '\0';
    }
    return 0;
}

void store_turns_free(struct store_turn *turns, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((void *)turns[i].ids); /* `ids` points to the block even if it holds no ids */
    free(turns);
}

bool store_is_raw_role(const char *role)
{
    return !strcmp(role, "text") || !strcmp(role, "completion");
}

struct turns {
    struct store_turn *v;
    size_t n, cap;
};

static int grow(struct turns *t, struct hearth_err *e)
{
    if (t->n < t->cap)
        return 0;
    size_t cap = t->cap > 0 ? 2 * t->cap : 16;
    struct store_turn *v = reallocarray(t->v, cap, sizeof *v);
    if (!v)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    t->v = v;
    t->cap = cap;
    return 0;
}

static int give(struct chain *c, int rc, int got, struct turns *t, struct store_turn **turns, size_t *n,
                struct hearth_err *e)
{
    if (!rc && got != SQLITE_DONE && got != SQLITE_ROW)
        rc = store_fail(c->st, "reading a session's turns", e);
    chain_close(c);
    if (rc) {
        store_turns_free(t->v, t->n);
        return rc;
    }
    *turns = t->v;
    *n = t->n;
    return 0;
}

int store_turns(struct store *st, const struct store_session *s, struct store_turn **turns, size_t *n,
                struct hearth_err *e)
{
    struct turns t = {0};
    struct chain c;
    int rc = chain_open(st, &c, SQL_TURNS, s, e), got = SQLITE_DONE;
    sqlite3_stmt *q = c.q;
    while (!rc && (got = chain_step(&c)) == SQLITE_ROW) {
        struct cut whole = {.n_text = (size_t)sqlite3_column_int64(q, COL_TEXT_LEN)};
        rc = grow(&t, e);
        if (!rc)
            rc = read_turn(q, s->id, &whole, &t.v[t.n], e);
        if (!rc)
            t.v[t.n++].n_ids = (size_t)sqlite3_column_int64(q, COL_TOKENS_LEN) / 4;
    }
    if (!rc && got == SQLITE_DONE && t.n != (size_t)s->n_turns)
        rc = err_set(e, HEARTH_ESTORE, "session %s is damaged: it has %zu turns, and %lld were written", s->id, t.n,
                     (long long)s->n_turns);
    return give(&c, rc, got, &t, turns, n, e);
}

int store_last_generation(struct store *st, const struct store_session *s, void **made, size_t *len,
                          struct hearth_err *e)
{
    struct chain c;
    int rc = chain_open(st, &c, SQL_LAST_GENERATION, s, e), got = rc ? SQLITE_DONE : chain_last(&c);
    *made = NULL;
    *len = 0;
    if (got == SQLITE_ROW) {
        *len = (size_t)sqlite3_column_bytes(c.q, 0);
        *made = malloc(*len + 1);
        if (!*made)
            rc = err_set(e, HEARTH_ENOMEM, "out of memory");
        else if (*len > 0)
            memcpy(*made, sqlite3_column_blob(c.q, 0), *len);
    } else if (got != SQLITE_DONE) {
        rc = store_fail(st, "reading how a session's last turn was generated", e);
    }
    chain_close(&c);
    return rc;
}

int store_read_turn(struct store *st, const struct store_session *s, int64_t number, struct store_turn **out,
                    struct hearth_err *e)
{
    struct chain c;
    struct turns t = {0};
    size_t read = 0;
    int rc = chain_open(st, &c, SQL_TURNS, s, e), got = SQLITE_DONE;
    while (!rc && (got = chain_step(&c)) == SQLITE_ROW && number-- > 0)
        continue;
    if (!rc && got == SQLITE_DONE)
        rc = err_set(e, HEARTH_ESTORE, "session %s is damaged: a turn is missing", s->id);
    if (!rc && got == SQLITE_ROW && !(rc = grow(&t, e))) {
        struct cut whole = {.n_text = (size_t)sqlite3_column_int64(c.q, COL_TEXT_LEN),
                            .n_ids = (size_t)sqlite3_column_int64(c.q, COL_TOKENS_LEN) / 4};
        rc = read_turn(c.q, s->id, &whole, &t.v[t.n], e);
        t.n += rc == 0;
    }
    return give(&c, rc, got, &t, out, &read, e);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A position in a session is a number: each turn counts 1, plus 1 for each byte of its text and each of its ids. */
int store_page(struct store *st, const struct store_session *s, int64_t *at, size_t bytes, size_t most,
               struct store_turn **turns, size_t *n, struct hearth_err *e)
{
    enum { ID_BYTES = 5 }; /* at most, on the wire */
    struct turns t = {0};
    int64_t base = 0, next = -1;
    struct chain c;
    int rc = chain_open(st, &c, SQL_TURNS, s, e), got = SQLITE_DONE;
    sqlite3_stmt *q = c.q;
    while (!rc && next < 0 && (got = chain_step(&c)) == SQLITE_ROW) {
        size_t len = (size_t)sqlite3_column_int64(q, COL_TEXT_LEN);
        size_t n_ids = (size_t)sqlite3_column_int64(q, COL_TOKENS_LEN) / 4;
        int64_t size = 1 + (int64_t)(len + n_ids), in = *at - base;
        base += size;
        if (in >= size)
            continue; /* an earlier page has this turn */
        if (t.n == most || bytes < ID_BYTES) {
            next = base - size;
            continue;
        }
        size_t had = in > 0 ? (size_t)in - 1 : 0;
        struct cut part = {.text = least(had, len)};
        part.ids = had - part.text;
        part.n_text = least(len - part.text, bytes);
        bytes -= part.n_text;
        part.n_ids = least(n_ids - part.ids, bytes / ID_BYTES);
        bytes -= part.n_ids * ID_BYTES;
        rc = grow(&t, e);
        if (!rc)
            rc = read_turn(q, s->id, &part, &t.v[t.n], e);
        if (rc)
            continue;
        t.v[t.n++].continues = in > 0;
        if (part.text + part.n_text < len || part.ids + part.n_ids < n_ids)
            next = base - size + 1 + (int64_t)(part.text + part.n_text + part.ids + part.n_ids);
    }
    rc = give(&c, rc, got, &t, turns, n, e);
    if (!rc)
        *at = next;
    return rc;
}

/* --- writing -------------------------------------------------------------------------------------------- */

int store_insert_turn(struct store *st, const struct store_session *s, const struct store_turn *t, struct hearth_err *e)
{
    uint8_t *le = malloc(t->n_ids * 4 + 1);
    if (!le)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    for (size_t i = 0; i < t->n_ids; i++)
        for (int b = 0; b < 4; b++)
            le[i * 4 + (size_t)b] = (uint8_t)((uint32_t)t->ids[i] >> (8 * b));
    sqlite3_stmt *q = store_stmt(st, SQL_INSERT_TURN);
    sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, t->role, -1, SQLITE_STATIC);
    sqlite3_bind_blob64(q, 3, t->len > 0 ? t->text : "", t->len, SQLITE_STATIC);
    sqlite3_bind_blob64(q, 4, le, t->n_ids * 4, SQLITE_STATIC);
    sqlite3_bind_double(q, 5, t->created);
    if (t->generation)
        sqlite3_bind_blob64(q, 6, t->generation, t->generation_len, SQLITE_STATIC);
    if (t->message)
        sqlite3_bind_blob64(q, 7, t->message, strlen(t->message), SQLITE_STATIC);
    int rc = store_run(st, q, "storing a turn", e);
    sqlite3_clear_bindings(q);
    free(le);
    return rc;
}
