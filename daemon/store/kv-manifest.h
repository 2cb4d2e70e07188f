/*
 * kv-manifest.h - the manifest of the KV directory (kvdir.h): one row for each valid file. It is a table of the
 * sessions' database, so its rows are untrusted input too. Loop thread.
 */
#ifndef DAEMON_KV_MANIFEST_H
#define DAEMON_KV_MANIFEST_H

#include "daemon/store/store.h"

enum {
    KV_MANIFEST_FINGERPRINT = 16, /* hex digits of the fingerprint of model and code, with which a name begins */
    KV_MANIFEST_HASH = 32,        /* hex digits of the content's hash */
    KV_MANIFEST_NAME = KV_MANIFEST_FINGERPRINT + 1 + KV_MANIFEST_HASH + 3, /* FINGERPRINT-HASH.kv */
};

static const int64_t KV_MANIFEST_BYTES_MAX = 1LL << 40; /* of one file */

struct kv_manifest_row {
    char name[KV_MANIFEST_NAME + 1];
    char fingerprint[KV_MANIFEST_FINGERPRINT + 1];
    char session[STORE_ID_LEN + 1]; /* the session in whose turn the file was written; "" for none */
    uid_t uid;
    int64_t bytes, tokens, pos;
    double created, used; /* on kvdir's clock */
};

/* Whether the name is FINGERPRINT-HASH.kv. */
bool kv_manifest_is_name(const char *name);

/* Whether every member is within its bounds. */
bool kv_manifest_is_sound(const struct kv_manifest_row *f);

/* Lists all sound rows, malloc'd. An unsound row is deleted and its name logged; rows of sessions that no longer exist
 * are deleted. */
int kv_manifest_list(struct store *st, struct kv_manifest_row **out, size_t *n, struct hearth_err *e);

/* Writes in one transaction the row `f` (may be NULL), the new `used` of n other rows, and the clock. */
int kv_manifest_save(struct store *st, const struct kv_manifest_row *f, const struct kv_manifest_row *const *touched,
                     size_t n, double seen, double wall, struct hearth_err *e);
int kv_manifest_remove(struct store *st, const char *name, struct hearth_err *e);

/* Reads kvdir's clock: the total seconds that hearthd has run, over all its runs, and the wall clock when that was
 * written; both are 0 at first. */
int kv_manifest_clock(struct store *st, double *seen, double *wall, struct hearth_err *e);

#endif
