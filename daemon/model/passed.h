/*
 * passed.h - model files that clients pass as open descriptors, because hearthd may have no permission to read their
 * folders. Such a file is called "//UID/PATH": the user who passed it, and its path as that user sees it. The path
 * serves only as a name. It cannot collide with a file system path, since hearthd resolves those and a resolved path
 * does not begin with two slashes. All code that opens a model's file opens it through this module.
 *
 * Thread: any. The event loop puts and drops files, the worker threads open them.
 */
#ifndef HEARTH_MODEL_PASSED_H
#define HEARTH_MODEL_PASSED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "libclient/err.h"

/* Registers the descriptor under that name and takes ownership of it; an earlier one of the same name is closed.
 * Returns 0, HEARTH_EPARAMS where `path` is not of the form "//UID/PATH", or HEARTH_ENOMEM; on an error the descriptor
 * is closed. */
int passed_put(const char *path, int fd, struct hearth_err *e);
void passed_drop(const char *path); /* closes the registered descriptor; copies that passed_open() returned stay open */

/* passed_is: whether `path` names a passed file or folder. passed_label: the path within it as its user knows it, or
 * `path` itself where it names no passed file. */
bool passed_is(const char *path);
const char *passed_label(const char *path);

/* Like open(2) for reading, without blocking on a FIFO, and stat(2); both accept paths of either kind. The descriptor
 * returned for a passed file is a duplicate that shares its file offset with others, so it must be read with pread(2)
 * or mapped. A passed folder exists if a file below it was passed; its size is the sum of its files' sizes, its
 * modification time the latest of theirs. */
int passed_open(const char *path);
int passed_stat(const char *path, struct stat *st);

/* Writes the name of the i-th file below a passed folder, relative to the folder; "" where the name does not fit.
 * Returns false where there are fewer files. */
bool passed_name(const char *folder, size_t i, char *name, size_t size);

#endif
