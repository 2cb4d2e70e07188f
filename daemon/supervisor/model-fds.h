/*
 * model-fds.h - the model files that peers have passed as open descriptors, because hearthd may not open them itself.
 * Loop thread.
 *
 * Such a file belongs to one user, and its path is what that user calls it, no more: nothing is opened by it. The
 * engine and the sessions know it as "//UID/PATH" (WIRE_PASSED). Every engine is given a copy of each descriptor ahead
 * of the first call, so that an engine's death takes none away. A file is held by the connections that passed it, and
 * stays after them as long as something uses it.
 */
#ifndef DAEMON_SUPERVISOR_MODEL_FDS_H
#define DAEMON_SUPERVISOR_MODEL_FDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "libclient/err.h"

struct engine_client;
struct model_fd;
struct model_fds;
struct engines;

enum { MODEL_FDS_LABEL = 4000 }; /* bytes of a path that a file may be passed by: the uid goes before it */

/* The files that one connection has passed. Zero-initialise; model_fds_release() frees. */
struct model_hold {
    struct model_fd **v;
    size_t n;
};

/* Of the descriptors that the process may open a quarter are for files passed, and an eighth for those of one user. */
struct model_fds *model_fds_new(void);
void model_fds_free(struct model_fds *t);
size_t model_fds_most(const struct model_fds *t); /* descriptors that it may have */

/* Keeps a user's file, of which the descriptor is taken, and gives `hold` a part in it; a file that was passed by that
 * path before is replaced. HEARTH_EPARAMS: `label` is no absolute path; HEARTH_ELIMIT; HEARTH_ENOMEM. */
int model_fds_put(struct model_fds *t, uid_t uid, const char *label, int fd, const struct stat *sb,
                  struct model_hold *hold, struct hearth_err *e);
void model_fds_release(struct model_hold *hold);

/* Closes the files that nobody holds, but for those that `is_used` says are of a model in use, by their own paths and
 * model_fds_is_of(). Returns how many such files are left. */
size_t model_fds_sweep(struct model_fds *t, const struct engines *es, bool (*is_used)(void *arg, const char *path),
                       void *arg);
size_t model_fds_idle(const struct model_fds *t); /* files that nobody holds */

/* Gives the engine what it does not have yet. Ahead of every call to it. */
void model_fds_tell(struct model_fds *t, struct engine_client *ec);

/* "//UID/PATH" of a file, the first part of a split one, or a folder that the user has passed, malloc'd; NULL. */
char *model_fds_find(const struct model_fds *t, uid_t uid, const char *label);

/* Whether the file is the model, or one of its parts, or one of its folder: both as "//UID/PATH". */
bool model_fds_is_of(const char *file, const char *model);

/* The path as its user knows it, of any path of a model; and the user, where it was passed: false for others. */
const char *model_fds_label(const char *path);
bool model_fds_owner(const char *path, uid_t *uid);

#endif
