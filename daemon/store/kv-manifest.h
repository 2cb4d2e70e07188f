/*
 * kv-manifest.h - the manifest of the KV folder (kvdir.h): one row for each file that counts. Loop thread; the same
 * database as the sessions', so the same rules: rows are outside input.
 */
#ifndef DAEMON_STORE_KV_H
#define DAEMON_STORE_KV_H

#include "daemon/store/store.h"

enum {
    KV_MANIFEST_FINGERPRINT = 16, /* hex digits of the model's and the code's, with which a name begins */
    KV_MANIFEST_HASH = 32,        /* hex digits of its content's */
    KV_MANIFEST_NAME = KV_MANIFEST_FINGERPRINT + 1 + KV_MANIFEST_HASH + 3, /* FINGERPRINT-HASH.kv */
};

static const int64_t KV_MANIFEST_BYTES_MAX = 1LL << 40; /* of one file */

struct kv_manifest_row {
    char name[KV_MANIFEST_NAME + 1];
    char fingerprint[KV_MANIFEST_FINGERPRINT + 1];
    char session[STORE_ID_LEN + 1]; /* in whose turn it was written; "" for none */
    uid_t uid;
    int64_t bytes, tokens, pos;
    double created, used; /* of kvdir's clock */
};

/* True for a name as above. */
bool kv_manifest_is_name(const char *name);

/* True where all of it is within its bounds. */
bool kv_manifest_is_sound(const struct kv_manifest_row *f);

/* All rows that hold together, malloc'd; one that does not is deleted and named in the log, and those of sessions that
 * are no more are deleted. */
int kv_manifest_list(struct store *st, struct kv_manifest_row **out, size_t *n, struct hearth_err *e);

/* One transaction: the file's row where there is a file, the new `used` of n others, and the clock. */
int kv_manifest_save(struct store *st, const struct kv_manifest_row *f, const struct kv_manifest_row *const *touched,
                     size_t n, double seen, double wall, struct hearth_err *e);
int kv_manifest_remove(struct store *st, const char *name, struct hearth_err *e);

/* kvdir's clock: the time that hearthds have seen pass, and the wall clock when that was written; both 0 at first. */
int kv_manifest_clock(struct store *st, double *seen, double *wall, struct hearth_err *e);

#endif
