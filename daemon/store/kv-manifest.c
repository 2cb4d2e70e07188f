/* kv-manifest.c - the manifest of the KV directory in SQLite, see kv-manifest.h. */
#include "config.h"

#include "daemon/store/kv-manifest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/store/store-internal.h"

bool kv_manifest_is_name(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    const char *hash = name + KV_MANIFEST_FINGERPRINT + 1;
    return strlen(name) == KV_MANIFEST_NAME && strspn(name, hex) == KV_MANIFEST_FINGERPRINT &&
           name[KV_MANIFEST_FINGERPRINT] == '-' && strspn(hash, hex) == KV_MANIFEST_HASH &&
           strcmp(hash + KV_MANIFEST_HASH, ".kv") == 0;
}

bool kv_manifest_is_sound(const struct kv_manifest_row *f)
{
    return kv_manifest_is_name(f->name) && strncmp(f->name, f->fingerprint, KV_MANIFEST_FINGERPRINT) == 0 &&
           (f->session[0] == '\0' || store_is_id(f->session)) && f->bytes > 0 && f->bytes <= KV_MANIFEST_BYTES_MAX &&
           f->tokens > 0 && f->tokens <= INT32_MAX && f->pos >= 0 && f->pos <= INT32_MAX && isfinite(f->created) &&
           isfinite(f->used);
}

/* Copies a text column of at most `room` - 1 bytes; false if it is anything else. */
static bool text(sqlite3_stmt *q, int i, char *to, size_t room)
{
    char *s = store_text(q, i);
    bool fits = s != NULL && strlen(s) < room;
    if (fits)
        strcpy(to, s);
    free(s);
    return fits;
}

/* False if the row is not sound; even then f->name is a string that can be logged. */
static bool from_row(sqlite3_stmt *q, struct kv_manifest_row *f)
{
    *f = (struct kv_manifest_row){0};
    if (!text(q, 0, f->name, sizeof f->name) || !text(q, 1, f->fingerprint, sizeof f->fingerprint) ||
        !text(q, 2, f->session, sizeof f->session))
        return false;
    int64_t uid = sqlite3_column_int64(q, 3);
    f->uid = (uid_t)uid;
    f->bytes = sqlite3_column_int64(q, 4);
    f->tokens = sqlite3_column_int64(q, 5);
    f->pos = sqlite3_column_int64(q, 6);
    f->created = sqlite3_column_double(q, 7);
    f->used = sqlite3_column_double(q, 8);
    return uid >= 0 && uid <= UINT32_MAX && kv_manifest_is_sound(f);
}

int kv_manifest_list(struct store *st, struct kv_manifest_row **out, size_t *n, struct hearth_err *e)
{
    struct kv_manifest_row *v = NULL;
    size_t len = 0, cap = 0;
    int rc = store_run(st, store_stmt(st, SQL_KV_LOST), "dropping rows of removed sessions", e), got = SQLITE_DONE;
    sqlite3_stmt *q = store_stmt(st, SQL_KV_LIST);
    while (!rc && (got = sqlite3_step(q)) == SQLITE_ROW) {
        if (len == cap) {
            cap = cap != 0 ? cap * 2 : 64;
            struct kv_manifest_row *grown = reallocarray(v, cap, sizeof *v);
            if (!grown) {
                rc = err_set(e, HEARTH_ENOMEM, "out of memory");
                break;
            }
            v = grown;
        }
        if (from_row(q, &v[len])) {
            len++;
            continue;
        }
        log_warn("the manifest's row of KV file \"%.60s\" is damaged: dropped", v[len].name);
        sqlite3_stmt *drop = store_stmt(st, SQL_KV_REMOVE_ROW);
        sqlite3_bind_int64(drop, 1, sqlite3_column_int64(q, 9));
        rc = store_run(st, drop, "dropping a damaged row", e);
    }
    if (!rc && got != SQLITE_DONE)
        rc = store_fail(st, "reading the manifest of KV files", e);
    sqlite3_reset(q);
    if (rc) {
        free(v);
        return rc;
    }
    *out = v;
    *n = len;
    return 0;
}

/* --- writing -------------------------------------------------------------------------------------------- */

static int save(struct store *st, const struct kv_manifest_row *f, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_KV_SAVE);
    sqlite3_bind_text(q, 1, f->name, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, f->fingerprint, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 3, f->session, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 4, f->uid);
    sqlite3_bind_int64(q, 5, f->bytes);
    sqlite3_bind_int64(q, 6, f->tokens);
    sqlite3_bind_int64(q, 7, f->pos);
    sqlite3_bind_double(q, 8, f->created);
    sqlite3_bind_double(q, 9, f->used);
    return store_run(st, q, "storing a KV file's row", e);
}

static int touch(struct store *st, const struct kv_manifest_row *f, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_KV_TOUCH);
    sqlite3_bind_text(q, 1, f->name, -1, SQLITE_STATIC);
    sqlite3_bind_double(q, 2, f->used);
    return store_run(st, q, "storing a KV file's use", e);
}

int kv_manifest_save(struct store *st, const struct kv_manifest_row *f, const struct kv_manifest_row *const *touched,
                     size_t n, double seen, double wall, struct hearth_err *e)
{
    int rc = store_begin(st, e);
    if (rc)
        return rc;
    if (f)
        rc = save(st, f, e);
    for (size_t i = 0; !rc && i < n; i++)
        rc = touch(st, touched[i], e);
    if (!rc) {
        sqlite3_stmt *q = store_stmt(st, SQL_KV_SET_CLOCK);
        sqlite3_bind_double(q, 1, seen);
        sqlite3_bind_double(q, 2, wall);
        rc = store_run(st, q, "storing the KV files' clock", e);
    }
    return store_end(st, rc, "storing a KV file's row", e);
}

int kv_manifest_remove(struct store *st, const char *name, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_KV_REMOVE);
    sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    return store_run(st, q, "removing a KV file's row", e);
}

/* --- the clock ------------------------------------------------------------------------------------------ */

int kv_manifest_clock(struct store *st, double *seen, double *wall, struct hearth_err *e)
{
    sqlite3_stmt *q = store_stmt(st, SQL_KV_CLOCK);
    int rc = 0, got = sqlite3_step(q);
    *seen = *wall = 0;
    if (got == SQLITE_ROW) {
        *seen = sqlite3_column_double(q, 0);
        *wall = sqlite3_column_double(q, 1);
    } else if (got != SQLITE_DONE) {
        rc = store_fail(st, "reading the KV files' clock", e);
    }
    sqlite3_reset(q);
    return rc;
}
