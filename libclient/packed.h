/* packed.h - reads packed values one after another without building a tree of them, so that a message costs no more
 * memory than its bytes. For the codec. */
#ifndef HEARTH_PACKED_H
#define HEARTH_PACKED_H

#include <stdbool.h>

#include "libclient/scan.h"

/* A position between two values. After a container's head was read, the caller must read the container's values, or
 * skip them with packed_skip(). */
struct cursor {
    const uint8_t *p, *end;
};

/* One value; of a container only its head, and the values that it contains come next. Strings are borrowed from the
 * bytes. */
struct packed {
    enum scan_kind kind;
    union {
        bool b;     /* SCAN_BOOL */
        uint64_t u; /* SCAN_UINT */
        int64_t i;  /* SCAN_INT, below 0 */
        double f;   /* SCAN_FLOAT */
    };
    const char *data; /* SCAN_STR, SCAN_BIN */
    size_t n;         /* SCAN_STR, SCAN_BIN: bytes; SCAN_ARRAY: values; SCAN_MAP: pairs */
    const uint8_t *at;
};

/* Reads the next value. Returns 0, or HEARTH_EINVALID where the bytes are not msgpack, or fewer than they claim. */
int packed_next(struct cursor *c, struct packed *v);

/* Skips the values inside a value that was just read. Returns as packed_next() does. */
int packed_skip(struct cursor *c, const struct packed *v);

#endif
