/* map.h - a read-only mapping of a regular file that survives the file being truncated under it. */
#ifndef HEARTH_MAP_H
#define HEARTH_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "libclient/err.h"

struct map {
    const unsigned char *base;
    size_t size;           /* of the file when it was opened; never 0 */
    int fd;                /* stays open, so that size and time of change can be compared later */
    int slot;              /* in the table of the SIGBUS handler */
    struct timespec mtime; /* of the file when it was opened */
};

/* Maps a file. HEARTH_ENOMODEL where there is no such file, HEARTH_EDENIED, HEARTH_EBADMODEL where it is not a regular
 * file or is empty, HEARTH_ELIMIT where too many are open at once. */
int map_open(struct map *m, const char *path, struct hearth_err *e);
void map_close(struct map *m);

/* Returns true where a page was lost or the file is now shorter than the mapping. */
bool map_damaged(const struct map *m);
/* Returns true where the map is damaged, or the file's size or time of change differs from those at opening: the file
 * was written to in place, and the mapping shows the new bytes. */
bool map_changed(const struct map *m);

#endif
