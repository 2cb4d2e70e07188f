/*
 * scan.h - decodes the head of one msgpack value without allocating, for the scanner, the frame splitter and packed.c.
 */
#ifndef HEARTH_SCAN_H
#define HEARTH_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum scan_kind {
    SCAN_NIL,
    SCAN_BOOL,
    SCAN_UINT, /* every integer >= 0, however it is encoded */
    SCAN_INT,  /* below 0 */
    SCAN_FLOAT,
    SCAN_STR,
    SCAN_BIN,
    SCAN_EXT,
    SCAN_ARRAY,
    SCAN_MAP
};

struct scan_head {
    enum scan_kind kind;
    size_t head;     /* bytes of the head: the tag and its length or number */
    size_t payload;  /* bytes that follow it: str, bin, ext */
    uint64_t values; /* values that follow it: array, map (two for each pair) */
    uint64_t number; /* SCAN_UINT, and SCAN_BOOL */
};

/* Decodes the head at p[0..len). Returns 1, 0 where more bytes are needed, -1 for the one tag that is not msgpack
 * (0xc1). */
int scan_head(struct scan_head *h, const uint8_t *p, size_t len);

/* The number of n bytes at p, as msgpack writes it: big-endian. */
static inline uint64_t scan_number(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    while (n--)
        v = v << 8 | *p++;
    return v;
}

#endif
