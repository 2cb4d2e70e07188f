/*
 * kvdir.h - the directory of KV files, STATE/kv, as hearthd sees it: the manifest, the limits, eviction. Only the
 * engine knows the content of a file; it writes, reads and renames files, and reports that. Loop thread.
 *
 * A file is valid once it has its row in the manifest. The row is written last: the engine has synced and renamed the
 * file before it reports it, and a file without a row is removed at the next start, before an engine uses the
 * directory, and when the last engine has exited, because one that dies leaves what it was writing. Eviction removes
 * the file first and then its row. An engine treats a missing file as one that never existed. It is notified of each
 * evicted file (engine.kv_gone) and writes its pages again when a later turn uses them. A file that is evicted for room
 * or age within KVDIR_FRESH of its creation is reported with `again` unset: pages for which there is no room must not
 * be written over and over, so the engine does not write them for a while.
 *
 * Anything in the directory that is not a regular file of this user is logged, left alone and never followed. An
 * engine, however, renames every entry that has a KV file's name but is not one, and the renamed entry is removed like
 * a damaged file. A damaged file (its size differs from its row's, or the engine reports it) is renamed to NAME.kv.bad
 * for people to inspect. The newest KVDIR_BAD of these are kept, up to a sixteenth of the disk limit for KV.
 *
 * A file belongs to the session in whose turn it was written, and is removed with it: nothing that was said in a
 * removed session may be found on the disk. Another session that has continued from the same text recomputes its KV,
 * once. What the session had in common with an older one is in the older one's file, and stays.
 */
#ifndef DAEMON_KVDIR_H
#define DAEMON_KVDIR_H

#include "daemon/context.h"
#include "daemon/store/kv-manifest.h"

struct kvdir;

/* Creates the directory and reconciles it with the manifest. HEARTH_ESTORE names the obstacle; there are then no KV
 * files. */
int kvdir_open(struct kvdir **out, struct server *s, struct hearth_err *e);
void kvdir_close(struct kvdir *d);

/* Removes files without a row; to be called when no engine runs. Does nothing if d is NULL. */
void kvdir_sweep(struct kvdir *d);
const char *kvdir_path(const struct kvdir *d);

/* Handle the engine's reports: a file was written, was used, is damaged. A written file that reaches beyond position
 * `until` is removed at once and gets no row: its session, or the turn, was removed meanwhile. */
void kvdir_saved(struct kvdir *d, const struct kv_manifest_row *file, int64_t until);
void kvdir_used(struct kvdir *d, const char *name);
void kvdir_bad(struct kvdir *d, const char *name, const char *why);

/* kvdir_evict() evicts everything that is too old or exceeds a limit, at the start and every hour (retention.c);
 * kvdir_make_room() is called after each new file, and does so only if a limit is exceeded. One batch is removed before
 * they return, the others from the loop. kvdir_evict() does nothing if d is NULL. */
void kvdir_evict(struct kvdir *d);
void kvdir_make_room(struct kvdir *d);

/* To be called when data that cannot be recomputed finds no room on the disk: removes files, the least recently used
 * first, until `bytes` have been freed or none is left, before it returns. False if no file was removed, or d is
 * NULL. */
bool kvdir_give_way(struct kvdir *d, int64_t bytes);

/* Removes the files of a removed session, in batches as above, and all damaged files too, as they may be the session's.
 * Files of its first `from` tokens, which its forks share, stay. Does nothing if d is NULL. */
void kvdir_forget(struct kvdir *d, const char *session, int64_t from);

/* Assigns the files of one session to another; the manifest has already been changed. Does nothing if d is NULL. */
void kvdir_move(struct kvdir *d, const char *session, const char *to);

/* Sets kv_bytes of each session to the bytes of its files. Does nothing if d is NULL. */
void kvdir_describe(struct kvdir *d, struct wire_session *v, size_t n);

/* The files of one user. */
struct kvdir_usage {
    uid_t uid;
    int64_t files, bytes;
};
/* Returns one for each user who has or has had files. */
const struct kvdir_usage *kvdir_usage(const struct kvdir *d, size_t *n);
/* Returns the current limits: for all users together, and for each. */
void kvdir_limits(const struct kvdir *d, int64_t *bytes, int64_t *bytes_per_uid);

#endif
