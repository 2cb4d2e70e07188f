/*
 * passed.h - model files that came as open descriptors: hearthd may have no right to their folders. Such a file is
 * called
 * "//UID/PATH": the user who passed it, and its path as that user knows it, which is a name and nothing more. No path
 * of the file system begins with two slashes, as hearthd has resolved them. What opens a model's file does it here.
 *
 * Any thread: the loop's puts and drops, the workers open.
 */
#ifndef HEARTH_MODEL_PASSED_H
#define HEARTH_MODEL_PASSED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "libclient/err.h"

/* Keeps the descriptor, which it takes, under that name; one of the same name is closed. 0, or HEARTH_EPARAMS where
 * this is no such name, HEARTH_ENOMEM; the descriptor is closed then. */
int passed_put(const char *path, int fd, struct hearth_err *e);
void passed_drop(const char *path); /* closes it; a file that is open stays open */

/* Whether this is the name of a passed file or folder, and the path in it as its user knows it. */
bool passed_is(const char *path);
const char *passed_label(const char *path);

/* As open(2) for reading, without waiting for a FIFO's writer, and stat(2), of paths of both kinds. The descriptor of a
 * passed file is a copy: it shares its offset with others, so it is read by pread(2) or mapped. A folder is there where
 * a file in it was passed; its size is that of all its files, its time of change the latest of theirs. */
int passed_open(const char *path);
int passed_stat(const char *path, struct stat *st);

/* The name, below a passed folder, of its i-th file: false where there are fewer, or where it does not fit. */
bool passed_name(const char *folder, size_t i, char *name, size_t size);

#endif
