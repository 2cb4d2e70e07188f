/*
 * model-fds.h - model files that peers have passed as open descriptors, because hearthd may not open them itself. Loop
 * thread.
 *
 * Such a file belongs to one user. Its path is only the name that this user gives it; nothing is opened by that path.
 * The engine and the sessions know the file as "//UID/PATH" (WIRE_PASSED). Every engine is given a copy of each
 * descriptor before its first call, so that no descriptor is lost when an engine dies. A file is held by the
 * connections that passed it, and outlives them as long as a model in use needs it.
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

enum { MODEL_FDS_LABEL = 4000 }; /* the most bytes in a path that a file is passed by; "//UID" is prefixed to it */

/* The files that one connection has passed. Zero-initialise; model_fds_release() frees. */
struct model_hold {
    struct model_fd **v;
    size_t n;
};

/* Of the descriptors that the process may open, a quarter (at least 16, at most 1024) is available for passed files,
 * and half of that for those of one user. */
struct model_fds *model_fds_new(void);
void model_fds_free(struct model_fds *t);
size_t model_fds_most(const struct model_fds *t); /* the most descriptors that it may hold */

/* Takes the descriptor, keeps it as a user's file and lets `hold` hold it; a file passed by the same path before is
 * replaced. HEARTH_EPARAMS if `label` is not an absolute path; HEARTH_ELIMIT; HEARTH_ENOMEM. */
int model_fds_put(struct model_fds *t, uid_t uid, const char *label, int fd, const struct stat *sb,
                  struct model_hold *hold, struct hearth_err *e);
void model_fds_release(struct model_hold *hold);

/* Closes the files that nobody holds, except those for which `is_used` returns true because they belong to a model in
 * use; `is_used` gets the file's own path and can apply model_fds_is_of(). Returns how many unheld files are left. */
size_t model_fds_sweep(struct model_fds *t, const struct engines *es, bool (*is_used)(void *arg, const char *path),
                       void *arg);
size_t model_fds_idle(const struct model_fds *t); /* the number of files that nobody holds */

/* Passes the engine the files that it does not have yet. To be called before every call to it. */
void model_fds_tell(struct model_fds *t, struct engine_client *ec);

/* Finds a file, the first part of a split one or a directory that the user has passed: "//UID/PATH", malloc'd; or
 * NULL. */
char *model_fds_find(const struct model_fds *t, uid_t uid, const char *label);

/* Whether the file is the model itself, one of its parts or a file in its directory; both are given as "//UID/PATH". */
bool model_fds_is_of(const char *file, const char *model);

/* The path by which its user knows the model, for any model's path; and the user who passed it, false if it was not
 * passed. */
const char *model_fds_label(const char *path);
bool model_fds_owner(const char *path, uid_t *uid);

#endif
