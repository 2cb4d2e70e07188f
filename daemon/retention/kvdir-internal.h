/* kvdir-internal.h - what the files of kvdir share: kvdir.c (the list of files, and the engine's reports),
 * kvdir-evict.c (eviction) and kvdir-reconcile.c (compares the directory with the manifest at a start). No other file
 * includes it. Loop thread. */
#ifndef DAEMON_KVDIR_INTERNAL_H
#define DAEMON_KVDIR_INTERNAL_H

#include <limits.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "daemon/retention/kvdir.h"
#include "daemon/retention/kv-eviction.h"
#include "daemon/retention/releaser.h"

enum {
    KVDIR_FILES = 65536, /* limit, as the list is held in memory */
    KVDIR_BUCKETS = 4096,
    KVDIR_BAD = 8,       /* damaged files kept for people to inspect */
    KVDIR_FRESH = 3600,  /* seconds: a file evicted at this age or younger must not be written again soon */
    KVDIR_REPORTED = 90, /* seconds: more than the time between two reports of a file that is in constant use */
};

/*
 * A valid file. It is in two hash tables, keyed by its name and by its session; in `touched` while its `used` is newer
 * than the one in its row; and in the queue `evicting` once it is a victim.
 */
struct kv_entry {
    struct kv_manifest_row row;
    bool is_evicting; /* it is in `evicting` */
    bool is_orphaned; /* its session was removed, so it is evicted even if it is used meanwhile */
    bool is_stored;   /* its row in the manifest has its `used`; it is not in `touched` */
    LIST_ENTRY(kv_entry) by_name, by_session;
    TAILQ_ENTRY(kv_entry) evicting;
    LIST_ENTRY(kv_entry) touched;
};
LIST_HEAD(kv_entry_list, kv_entry);

struct kvbad {
    char name[NAME_MAX + 1];
    int64_t bytes;
};

struct kvdir {
    struct server *server;
    const struct conf *conf; /* the server's, as is the store */
    struct store *store;
    struct timer *evict_timer; /* removes the next batch of victims */
    struct releaser *releaser; /* gives their blocks back; NULL if there is none */
    char *path;
    int fd;
    struct kv_entry_list by_name[KVDIR_BUCKETS], by_session[KVDIR_BUCKETS]; /* by_session: only files of a session */
    struct kv_entry_list touched;
    TAILQ_HEAD(, kv_entry) evicting;
    size_t n;
    int64_t bytes;             /* of all files */
    struct kvdir_usage *users; /* every user who has or has had files */
    size_t n_users;
    struct kvbad bad[KVDIR_BAD + 1]; /* damaged files, the newest first; room for one more than are kept */
    size_t n_bad;
    struct kvdir_usage gave;  /* evicted since the last log line about evictions; the next line is due at tell_at */
    double tell_at;           /* on kvdir's clock */
    double start, start_boot; /* kvdir's clock and CLOCK_BOOTTIME when this hearthd started */
};

/* Examines the entry with that name: returns 0 and its size if it is a regular file of this user; 1 if there is none;
 * HEARTH_EDENIED if it is anything else. The latter two set *e. */
int kvdir_stat(const struct kvdir *d, const char *name, int64_t *bytes, struct hearth_err *e);

/* Whether the entry with that name is a damaged file that was set aside, and its stat: a regular file of this user, or,
 * if the name is that of a KV file plus .bad, anything that can be unlinked, because an engine renames whatever it
 * cannot read. */
bool kvdir_stat_bad(const struct kvdir *d, const char *name, struct stat *sb);

/* kvdir's clock, in whole seconds: files used within one second count as used at the same time. */
double kvdir_now(const struct kvdir *d);
struct kv_entry *kvdir_find(const struct kvdir *d, const char *name);
/* Adds a file whose name is not in the list yet, `stored` being the `used` of its row in the manifest; and drops one,
 * with its row. */
int kvdir_insert(struct kvdir *d, const struct kv_manifest_row *row, double stored, struct hearth_err *e);
void kvdir_drop(struct kvdir *d, struct kv_entry *f);

/* The hash bucket that holds the files of that session; it may also hold files of other sessions. */
struct kv_entry_list *kvdir_of_session(struct kvdir *d, const char *session);

/* --- kvdir-evict.c */

/* Removes the file of that name; false if it cannot be removed. */
bool kvdir_remove_file(struct kvdir *d, const char *name);
/* Removes all victims, when hearthd exits. */
void kvdir_evict_all(struct kvdir *d);
void kvdir_on_evict_timer(void *arg);
/* Takes the file out of the queue of victims. */
void kvdir_unmark(struct kvdir *d, struct kv_entry *f);

/* Renames a damaged file to NAME.bad and records it. */
void kvdir_set_aside(struct kvdir *d, const char *name, const char *why);
/* Records a damaged file that has been renamed. */
void kvdir_add_bad(struct kvdir *d, const char *bad);
/* Removes damaged files: all but the newest `keep`, and those beyond a sixteenth of the disk limit for KV. */
void kvdir_trim_bad(struct kvdir *d, size_t keep);

/* --- kvdir-reconcile.c */

/* Fills the list from the manifest, and makes the directory and the manifest agree: rows without a file and files
 * without a row are removed. */
int kvdir_reconcile(struct kvdir *d, struct hearth_err *e);

#endif
