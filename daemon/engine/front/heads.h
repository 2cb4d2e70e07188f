/*
 * heads.h - what model files are, by their headers: for a list of many files, of which few will ever be used.
 *
 * A header is read once, by the workers, and remembered by the file's path, size and time of change as hearthd has seen
 * them; where it could not be read for a reason that may pass, such as a right or a descriptor that was missing, only
 * for a second. What has not been read yet is not waited for. Only files of the last list are remembered.
 *
 * Thread: the loop's.
 */
#ifndef HEARTH_ENGINE_HEADS_H
#define HEARTH_ENGINE_HEADS_H

#include "daemon/engine/front/work.h"
#include "daemon/engine/sched/models.h"
#include "libclient/wire.h"

struct heads;

struct heads *heads_new(void);    /* NULL without memory */
void heads_free(struct heads *h); /* after work_close() */

/* What is known of the files; those that are not known yet are given to the workers. out->heads is malloc'd, its
 * strings are borrowed until the next call. */
int heads_get(struct heads *h, struct work *w, const struct models *models, const struct wire_engine_heads *ask,
              struct wire_engine_heads_result *out, struct hearth_err *e);

/* A worker has given the job back. */
bool heads_is_theirs(const struct job *j);
void heads_end(struct job *j);

#endif
