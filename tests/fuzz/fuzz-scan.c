/* fuzz-scan.c - the structural scan must give the same result for the whole input at once and byte by byte, and never
 * read beyond the input. */
#include "libclient/wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hearth_err err;
    struct wire_scan whole = {0}, pieces = {0};
    struct wire_frame f;

    ptrdiff_t n = wire_scan(&whole, data, size, WIRE_FRAME_MAX, &err);
    ptrdiff_t m = 0;
    for (size_t len = 0; len <= size && m == 0; len++)
        m = wire_scan(&pieces, data, len, WIRE_FRAME_MAX, &err);
    if (n != m || (n > 0 && (size_t)n > size))
        abort();
    if (n > 0 && !wire_frame_open(&f, data, (size_t)n, &err) &&
        (f.body < data && f.body_len != 1)) /* only the empty map is elsewhere */
        abort();
    return 0;
}
