/* packed.h - packed values one after another, without a tree of them: what a stranger sends costs its bytes alone. For
 * the codec. */
#ifndef HEARTH_PACKED_H
#define HEARTH_PACKED_H

#include <stdbool.h>

#include "libclient/scan.h"

/* A place between values; whoever reads a container reads what is in it, or skips it. */
struct cursor {
    const uint8_t *p, *end;
};

/* One value: of a container its head, after which its values are next. Strings borrow the bytes. */
struct packed {
    enum scan_kind kind; /* SCAN_UINT for every integer of at least 0 */
    union {
        bool b;     /* SCAN_BOOL */
        uint64_t u; /* SCAN_UINT */
        int64_t i;  /* SCAN_INT, below 0 */
        double f;   /* SCAN_FLOAT */
    };
    const char *data; /* SCAN_STR, SCAN_BIN */
    size_t n;         /* of these the bytes; SCAN_ARRAY: values; SCAN_MAP: pairs */
    const uint8_t *at;
};

/* Reads the next value. 0, or HEARTH_EINVALID where the bytes are none, or too few for what they claim. */
int packed_next(struct cursor *c, struct packed *v);

/* Steps over what a value that was read contains. As packed_next(). */
int packed_skip(struct cursor *c, const struct packed *v);

#endif
