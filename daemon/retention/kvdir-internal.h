/* kvdir-internal.h - what the files of kvdir share: kvdir.c (the list, and what the engine reports), kvdir-evict.c
 * (eviction) and kvdir-reconcile.c (the folder against the manifest at a start). No other file includes it. Loop
 * thread.
 */
#ifndef DAEMON_KVDIR_INTERNAL_H
#define DAEMON_KVDIR_INTERNAL_H

#include <limits.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "daemon/retention/kvdir.h"
#include "daemon/retention/kv-eviction.h"
#include "daemon/retention/releaser.h"

enum {
    KVDIR_FILES = 65536, /* limit, as the list is in memory */
    KVDIR_BUCKETS = 4096,
    KVDIR_BAD = 8,       /* damaged files that are kept for people */
    KVDIR_FRESH = 3600,  /* seconds */
    KVDIR_REPORTED = 90, /* seconds: more than pass between two reports of a file that is used all the time */
};

/*
 * A file that counts. It is in two hash tables, by its name and by its session; in `touched` while its `used` is newer
 * than its row's; and in `evicting`, a queue, once it is a victim.
 */
struct kv_entry {
    struct kv_manifest_row row;
    double stored;    /* `used` of its row in the manifest */
    bool is_evicting; /* it is in `evicting` */
    bool is_orphaned; /* its session was removed: it is evicted even if it is used meanwhile */
    bool is_stored;   /* it is not in `touched` */
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
    struct releaser *releaser; /* of their blocks; NULL: there is none */
    char *path;
    int fd;
    struct kv_entry_list by_name[KVDIR_BUCKETS], by_session[KVDIR_BUCKETS]; /* the latter without unowned files */
    struct kv_entry_list touched;
    TAILQ_HEAD(, kv_entry) evicting;
    size_t n;
    int64_t bytes;             /* of all files */
    struct kvdir_usage *users; /* every user who has or had files */
    size_t n_users;
    struct kvbad bad[KVDIR_BAD + 1]; /* damaged files, the newest first; one more than are kept */
    size_t n_bad;
    struct kvdir_usage gave;  /* what gave way since the log said so last, which it does again from tell_at on */
    double tell_at;           /* of kvdir's clock */
    double start, start_boot; /* kvdir's clock and CLOCK_BOOTTIME when this hearthd began */
};

/* Looks at what has that name: 0 and its size where it is a plain file of this user; 1 where nothing has it;
 * HEARTH_EDENIED where it is something else. The latter two set *e. */
int kvdir_stat(const struct kvdir *d, const char *name, int64_t *bytes, struct hearth_err *e);

/* Whether that name is one of a damaged file, and its stat: a plain file of this user, or, where the name is a KV
 * file's with .bad, anything that can be removed, because an engine renames whatever it cannot read. */
bool kvdir_stat_bad(const struct kvdir *d, const char *name, struct stat *sb);

/* kvdir's clock, in whole seconds: files that are used within one second count as used together. */
double kvdir_now(const struct kvdir *d);
struct kv_entry *kvdir_find(const struct kvdir *d, const char *name);
/* Adds a file, whose name is not in the list yet; and drops one, with its row. */
int kvdir_insert(struct kvdir *d, const struct kv_manifest_row *row, double stored, struct hearth_err *e);
void kvdir_drop(struct kvdir *d, struct kv_entry *f);

/* The hash bucket with the files of that session; other sessions' files may be in it. */
struct kv_entry_list *kvdir_of_session(struct kvdir *d, const char *session);

/* --- kvdir-evict.c */

/* Removes the file of that name; false where it cannot be removed. */
bool kvdir_remove_file(struct kvdir *d, const char *name);
/* Removes all victims, at hearthd's end. */
void kvdir_evict_all(struct kvdir *d);
void kvdir_on_evict_timer(void *arg);
/* Takes the file out of the queue of victims. */
void kvdir_unmark(struct kvdir *d, struct kv_entry *f);

/* Renames a damaged file to NAME.bad and records it. */
void kvdir_set_aside(struct kvdir *d, const char *name, const char *why);
/* Records a damaged file that has been renamed. */
void kvdir_add_bad(struct kvdir *d, const char *bad);
/* Removes damaged files: all but the newest `keep`, and those that exceed a sixteenth of the room for KV. */
void kvdir_trim_bad(struct kvdir *d, size_t keep);

/* --- kvdir-reconcile.c */

/* Makes the list from the manifest, and the folder and the manifest agree: rows without their file and files without a
 * row are removed. */
int kvdir_reconcile(struct kvdir *d, struct hearth_err *e);

#endif
