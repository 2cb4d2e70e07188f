/*
 * heads.h - describes model files by their headers: for a list of many files, of which few will ever be used.
 *
 * A header is read once, by the workers, and remembered by the file's path, size and modification time as hearthd has
 * seen them. If it could not be read for a reason that may pass, such as a missing permission or a lack of descriptors,
 * the failure is remembered only for a second. Headers that have not been read yet are not waited for. Only files of
 * the last list are remembered.
 *
 * Thread: the loop's.
 */
#ifndef HEARTH_ENGINE_HEADS_H
#define HEARTH_ENGINE_HEADS_H

#include "daemon/engine/front/work.h"
#include "daemon/engine/sched/models.h"
#include "libclient/wire.h"

struct heads;

struct heads *heads_new(void);    /* NULL if out of memory */
void heads_free(struct heads *h); /* after work_close() */

/* Returns what is known of the files, and queues those that are not known yet for the workers. out->heads is malloc'd;
 * its strings are borrowed until the next call. */
int heads_get(struct heads *h, struct work *w, const struct models *models, const struct wire_engine_heads *ask,
              struct wire_engine_heads_result *out, struct hearth_err *e);

/* Whether a job that has ended belongs to heads.c; then heads_end() takes its result. */
bool heads_is_theirs(const struct job *j);
void heads_end(struct job *j);

#endif
