/*
 * kvdir.h - the folder of KV files, STATE/kv, as hearthd sees it: the manifest, the limits, eviction. The engine alone
 * knows the content of a file; it writes, reads and renames files, and reports that. Loop thread.
 *
 * A file counts when it has its row in the manifest. The row is written last: the engine has synced and renamed the
 * file before it reports it, and a file without a row is removed at the next start, before an engine runs. Eviction
 * removes the file first and then its row. An engine treats a missing file as one that never existed. It is notified of
 * evicted files (engine.kv_gone), and writes their pages again when a turn uses them again; but it is not notified of a
 * file that is evicted within KVDIR_FRESH of its making, because pages for which there is no room must not be written
 * over and over.
 *
 * Anything in the folder that is not a plain file of this user is named in the log, left alone and never followed; an
 * engine, though, renames every entry that has a KV file's name and is none, and the renamed entry is removed like a
 * damaged file. A damaged file (its size is not its row's, or the engine reports it) is renamed to NAME.kv.bad for
 * people to look at. The last KVDIR_BAD of these stay while there is room: they count as KV that was just used.
 *
 * A file belongs to the session in whose turn it was written, and is removed with it: nothing that was said in a
 * removed session may be found on the disk. Another session that has continued from the same words computes them again,
 * once. What the session had in common with an older one is in the older one's file, and stays.
 */
#ifndef DAEMON_KVDIR_H
#define DAEMON_KVDIR_H

#include "daemon/context.h"
#include "daemon/store/kv-manifest.h"

struct kvdir;

/* Creates the folder and reconciles it with the manifest. HEARTH_ESTORE names the obstacle; there are no KV files then.
 */
int kvdir_open(struct kvdir **out, struct server *s, struct hearth_err *e);
void kvdir_close(struct kvdir *d);
const char *kvdir_path(const struct kvdir *d);

/* Handle the engine's reports: a file was written, was used, is damaged. What was written beyond position `until` of a
 * session that was removed meanwhile is removed at once, and gets no row. */
void kvdir_saved(struct kvdir *d, const struct kv_manifest_row *file, int64_t until);
void kvdir_used(struct kvdir *d, const char *name);
void kvdir_bad(struct kvdir *d, const char *name, const char *why);

/* kvdir_evict() removes all that is too old or too much, at the start and every hour (retention.c); kvdir_make_room()
 * does so after each new file, and only where there is too much. A batch is removed before they return, the others from
 * the loop. They do nothing where d is NULL. */
void kvdir_evict(struct kvdir *d);
void kvdir_make_room(struct kvdir *d);

/* Something that cannot be computed again finds no room on the disk: removes files until `bytes` are free, or all, the
 * least recently used first, before it returns. False where there was none, or d is NULL. */
bool kvdir_give_way(struct kvdir *d, int64_t bytes);

/* Removes the files of a removed session in the same way, and all damaged files too, as they may be the session's.
 * Those of its first `from` tokens stay, which forks have. Nothing where d is NULL. */
void kvdir_forget(struct kvdir *d, const char *session, int64_t from);

/* The files of one session are another one's from now on; the manifest has it so already. Nothing where d is NULL. */
void kvdir_move(struct kvdir *d, const char *session, const char *to);

/* Sets kv_bytes of each session to the bytes of its files. Nothing where d is NULL. */
void kvdir_describe(struct kvdir *d, struct wire_session *v, size_t n);

/* The files of one user. */
struct kvdir_usage {
    uid_t uid;
    int64_t files, bytes;
};
/* Returns one for each user who has or had files. */
const struct kvdir_usage *kvdir_usage(const struct kvdir *d, size_t *n);
/* Returns the limits of now: of all users together, and of each. */
void kvdir_limits(const struct kvdir *d, int64_t *bytes, int64_t *bytes_per_uid);

#endif
