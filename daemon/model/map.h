/* map.h - a read-only mapping of a regular file that survives the file being truncated while it is mapped. */
#ifndef HEARTH_MAP_H
#define HEARTH_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "libclient/err.h"

enum { MAPS_MAX = 2048 }; /* mappings at once, of all models in the process; each also holds a descriptor */

struct map {
    const unsigned char *base;
    size_t size;           /* of the file when it was opened, in bytes; never 0 */
    int fd;                /* stays open, so that the file's size and modification time can be compared later */
    int slot;              /* in the table of the SIGBUS handler */
    struct timespec mtime; /* modification time of the file when it was opened */
};

/* Maps a file. HEARTH_ENOMODEL where there is no such file, HEARTH_EDENIED, HEARTH_EBADMODEL where it is not a regular
 * file or is empty, HEARTH_ELIMIT where too many maps are open at once. */
int map_open(struct map *m, const char *path, struct hearth_err *e);
void map_close(struct map *m);
size_t map_used(void); /* the number of mappings that are open */

/* Returns true where a page was lost or the file is now shorter than the mapping. */
bool map_damaged(const struct map *m);
/* Returns true where the map is damaged, or where the file's size or modification time differs from that at opening:
 * the file was written to in place, and the mapping shows the new bytes. */
bool map_changed(const struct map *m);

#endif
