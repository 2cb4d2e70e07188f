/* kvdir-inside.h - what the files of kvdir share: kvdir.c (the list, and what is said of it while an engine runs) and
 * kvdir-start.c (the folder against the manifest at a start). Nobody else includes it. Loop thread. */
#ifndef DAEMON_KVDIR_INSIDE_H
#define DAEMON_KVDIR_INSIDE_H

#include "daemon/kvdir.h"
#include "daemon/kvrule.h"

enum {
    KVDIR_FILES = 65536, /* at most: the list is in memory */
    KVDIR_BUCKETS = 4096,
    KVDIR_BAD = 8,      /* damaged files that are kept */
    KVDIR_FRESH = 3600, /* seconds */
};

struct kvfile {
    struct store_kv row;
    double stored; /* `used` as the manifest has it */
    struct kvfile *next;
};

struct kvdir {
    struct server *server;
    const struct conf *conf; /* its own, as is the store */
    struct store *store;
    char *path;
    int fd;
    struct kvfile *buckets[KVDIR_BUCKETS]; /* by name */
    size_t n;
    double start, start_boot; /* the clock and CLOCK_BOOTTIME when this hearthd began */
};

/* What is there under that name: 0 where it is a plain file of ours, whose size is *bytes; 1 where there is nothing;
 * HEARTH_EDENIED where it is something else. In both cases *e says so. */
int kvdir_stat(const struct kvdir *d, const char *name, int64_t *bytes, struct hearth_err *e);

/* In whole seconds: what is used within one is used together. */
double kvdir_now(const struct kvdir *d);
struct kvfile *kvdir_find(const struct kvdir *d, const char *name);
/* Into the list, where the name is not in it yet; and out of it, with its row. */
int kvdir_insert(struct kvdir *d, const struct store_kv *row, double stored, struct hearth_err *e);
void kvdir_drop(struct kvdir *d, struct kvfile *f);

/* The file, and those of its session that come before it, are of use now. */
void kvdir_touch(struct kvdir *d, struct kvfile *f, double now);

/* Renames a damaged file; and lets all but the last of its kind go, KVDIR_BAD at most. */
void kvdir_set_aside(struct kvdir *d, const char *name, const char *why);
void kvdir_trim_bad(struct kvdir *d, size_t keep);

/* --- kvdir-start.c */

int kvdir_reconcile(struct kvdir *d, struct hearth_err *e);

#endif
