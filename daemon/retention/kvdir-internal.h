/* kvdir-internal.h - what the files of kvdir share: kvdir.c (the list, and what is said of it while an engine runs),
 * kvdir-evict.c (which files go, and how) and kvdir-reconcile.c (the folder against the manifest at a start). Nobody
 * else includes it. Loop thread. */
#ifndef DAEMON_KVDIR_INSIDE_H
#define DAEMON_KVDIR_INSIDE_H

#include <limits.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "daemon/retention/kvdir.h"
#include "daemon/retention/kv-eviction.h"

enum {
    KVDIR_FILES = 65536, /* at most: the list is in memory */
    KVDIR_BUCKETS = 4096,
    KVDIR_BAD = 8,      /* damaged files that are kept */
    KVDIR_FRESH = 3600, /* seconds */
};

/*
 * A file that counts is in two tables, by its name and by its session. Where its use is newer than the manifest knows
 * it is `touched` too; and once it has been chosen to go it is in `going`, first come first gone.
 */
struct kv_entry {
    struct kv_manifest_row row;
    double stored;    /* `used` as the manifest has it */
    bool is_evicting; /* in `going` */
    bool is_orphaned; /* and whatever it is used for meanwhile: its session is no more */
    bool is_stored;   /* not in `touched` */
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
    const struct conf *conf; /* its own, as is the store */
    struct store *store;
    struct timer *evict_timer; /* the rest of what is going */
    char *path;
    int fd;
    struct kv_entry_list by_name[KVDIR_BUCKETS], by_session[KVDIR_BUCKETS]; /* no session: in none */
    struct kv_entry_list touched;
    TAILQ_HEAD(, kv_entry) evicting;
    size_t n;
    int64_t bytes;             /* of all */
    struct kvdir_usage *users; /* who ever had any */
    size_t n_users;
    struct kvbad bad[KVDIR_BAD + 1]; /* set aside, the newest first; room for one more */
    size_t n_bad;
    double start, start_boot; /* the clock and CLOCK_BOOTTIME when this hearthd began */
};

/* What is there under that name: 0 where it is a plain file of ours, whose size is *bytes; 1 where there is nothing;
 * HEARTH_EDENIED where it is something else. In both cases *e says so. */
int kvdir_stat(const struct kvdir *d, const char *name, int64_t *bytes, struct hearth_err *e);

/* Whether that name is of a file that was set aside, and what it is: a plain file of ours, or under the name of a KV
 * file anything that can be removed, for an engine renames what it cannot read, whoever's it is. */
bool kvdir_stat_bad(const struct kvdir *d, const char *name, struct stat *sb);

/* In whole seconds: what is used within one is used together. */
double kvdir_now(const struct kvdir *d);
struct kv_entry *kvdir_find(const struct kvdir *d, const char *name);
/* Into the list, where the name is not in it yet; and out of it, with its row. */
int kvdir_insert(struct kvdir *d, const struct kv_manifest_row *row, double stored, struct hearth_err *e);
void kvdir_drop(struct kvdir *d, struct kv_entry *f);

/* The files of that session, if any, and others. */
struct kv_entry_list *kvdir_of_session(struct kvdir *d, const char *session);

/* --- kvdir-evict.c */

/* Removes the file of that name; false where it is still there. */
bool kvdir_remove_file(struct kvdir *d, const char *name);
/* What is still going; at the end. */
void kvdir_evict_all(struct kvdir *d);
void kvdir_on_evict_timer(void *arg);
/* Not to go after all. */
void kvdir_unmark(struct kvdir *d, struct kv_entry *f);

/* Renames a damaged file. A file that has been, `bad` by name; and lets all but the newest go, `keep` at most, as far
 * as they are a sixteenth of what KV may have. */
void kvdir_set_aside(struct kvdir *d, const char *name, const char *why);
void kvdir_add_bad(struct kvdir *d, const char *bad);
void kvdir_trim_bad(struct kvdir *d, size_t keep);

/* --- kvdir-reconcile.c */

int kvdir_reconcile(struct kvdir *d, struct hearth_err *e);

#endif
