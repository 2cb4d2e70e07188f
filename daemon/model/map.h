/* map.h - a read-only mapping of a regular file that survives the file being truncated under it. */
#ifndef HEARTH_MAP_H
#define HEARTH_MAP_H

#include <stdbool.h>
#include <stddef.h>

#include "libclient/err.h"

struct map {
    const unsigned char *base;
    size_t size; /* of the file when it was opened; never 0 */
    int fd;      /* kept, so that the size can be asked again */
    int slot;    /* in the table of the SIGBUS handler */
};

/* HEARTH_ENOMODEL where there is no such file, HEARTH_EDENIED, HEARTH_EBADMODEL where it is not a regular file or is
 * empty, HEARTH_ELIMIT where too many are open at once. */
int map_open(struct map *m, const char *path, struct hearth_err *e);
void map_close(struct map *m);

/* True where a page was lost or the file is now shorter than the mapping. */
bool map_damaged(const struct map *m);

#endif
