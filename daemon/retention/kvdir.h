/*
 * kvdir.h - the folder of KV files, STATE/kv, as hearthd sees it: the manifest, who may have how much, what goes. Loop
 * thread. The engine alone knows what is in a file; it writes, reads and renames them, and says so.
 *
 * A file counts when it has its row in the manifest, which is written last: the engine has synced and renamed the file
 * by the time it announces it. What a crash leaves between the two is removed at the next start, before an engine runs.
 * Removing is the other way round, the file first. An engine takes a file that is gone as one that never was. It is
 * told of it (engine.kv_gone), and writes those pages again when they are of use again; but not of a file that goes
 * within KVDIR_FRESH of its making: what there is no room for is not to be written over and over.
 *
 * What is in the folder and not a plain file of this user is named in the log, left alone and never followed; unless an
 * engine has renamed it, as it does with what has a KV file's name and cannot be one, and then it goes like those. A
 * file that is damaged (its row has another size; or the engine says so) is set aside as NAME.kv.bad for people to look
 * at: the last KVDIR_BAD of them, and not for ever: they count as KV that was just used.
 *
 * A file belongs to the session in whose turn it was written, and goes with it when the session is removed: what was
 * said in it is not to be found on the disk after that. Where another session had read on from the same words, it
 * computes them again, once. What the session had in common with an older one is in that one's file, and stays.
 */
#ifndef DAEMON_KVDIR_H
#define DAEMON_KVDIR_H

#include "daemon/context.h"
#include "daemon/store/kv-manifest.h"

struct kvdir;

/* Makes and reconciles the folder. HEARTH_ESTORE names what is in the way; then there are no KV files. */
int kvdir_open(struct kvdir **out, struct server *s, struct hearth_err *e);
void kvdir_close(struct kvdir *d);
const char *kvdir_path(const struct kvdir *d);

/* What the engine says: a file was written, has been of use, is bad. */
void kvdir_saved(struct kvdir *d, const struct kv_manifest_row *file);
void kvdir_used(struct kvdir *d, const char *name);
void kvdir_bad(struct kvdir *d, const char *name, const char *why);

/* Removes what has to go, at the start and every hour (retention.c); and after each file that is announced, only if
 * there is too much now. A few are removed before these return, the others a few at a time. Nothing where d is NULL. */
void kvdir_evict(struct kvdir *d);
void kvdir_make_room(struct kvdir *d);

/* The session is removed, and its files with it, in the same way; so are all that were set aside, of which nobody knows
 * any more whose they were. Nothing where d is NULL. */
void kvdir_forget(struct kvdir *d, const char *session);

/* Sets kv_bytes of sessions: what the files have that were written in their turns. Nothing where d is NULL. */
void kvdir_describe(struct kvdir *d, struct wire_session *v, size_t n);

/* What a user has. */
struct kvdir_usage {
    uid_t uid;
    int64_t files, bytes;
};
/* One for each user who has or had any. */
const struct kvdir_usage *kvdir_usage(const struct kvdir *d, size_t *n);
/* What all may have now, and one of them. */
void kvdir_limits(const struct kvdir *d, int64_t *bytes, int64_t *bytes_per_uid);

#endif
