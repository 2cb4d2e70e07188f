/*
 * scan.c - structural scan of MessagePack: allocation-free, resumable, linear.
 *
 * No frame is unpacked before it has passed this scan. A count is a claim on bytes yet to come: the five bytes dd 04 00
 * 00 00 announce 67 million values, and a claim that the frame limit cannot hold is refused when its head is read. A
 * message that passes is complete, nests no deeper than WIRE_DEPTH_MAX, and has so few values that what is unpacked
 * from it takes a small multiple of the limit.
 */
#include "libclient/scan.h"
#include "libclient/wire.h"

/* Kind and width of the tags 0xc0..0xdf: the `width` bytes after the tag are a number or a length. */
static const struct {
    uint8_t kind, width, extra; /* extra: payload beyond the length (ext's type byte, and the fixext sizes) */
} tags[32] = {
    /* c0 */ {SCAN_NIL, 0, 0},   {SCAN_NIL, 0, 0},   {SCAN_BOOL, 0, 0},  {SCAN_BOOL, 0, 0},
    /* c4 */ {SCAN_BIN, 1, 0},   {SCAN_BIN, 2, 0},   {SCAN_BIN, 4, 0},   {SCAN_EXT, 1, 1},
    /* c8 */ {SCAN_EXT, 2, 1},   {SCAN_EXT, 4, 1},   {SCAN_FLOAT, 4, 0}, {SCAN_FLOAT, 8, 0},
    /* cc */ {SCAN_UINT, 1, 0},  {SCAN_UINT, 2, 0},  {SCAN_UINT, 4, 0},  {SCAN_UINT, 8, 0},
    /* d0 */ {SCAN_INT, 1, 0},   {SCAN_INT, 2, 0},   {SCAN_INT, 4, 0},   {SCAN_INT, 8, 0},
    /* d4 */ {SCAN_EXT, 0, 2},   {SCAN_EXT, 0, 3},   {SCAN_EXT, 0, 5},   {SCAN_EXT, 0, 9},
    /* d8 */ {SCAN_EXT, 0, 17},  {SCAN_STR, 1, 0},   {SCAN_STR, 2, 0},   {SCAN_STR, 4, 0},
    /* dc */ {SCAN_ARRAY, 2, 0}, {SCAN_ARRAY, 4, 0}, {SCAN_MAP, 2, 0},   {SCAN_MAP, 4, 0},
};

int scan_head(struct scan_head *h, const uint8_t *p, size_t len)
{
    if (!len)
        return 0;
    uint8_t tag = *p;
    *h = (struct scan_head){.head = 1};
    if (tag < 0x80) {
        h->kind = SCAN_UINT;
        h->number = tag;
    } else if (tag < 0x90) {
        h->kind = SCAN_MAP;
        h->values = 2 * (tag & 0x0f);
    } else if (tag < 0xa0) {
        h->kind = SCAN_ARRAY;
        h->values = tag & 0x0f;
    } else if (tag < 0xc0) {
        h->kind = SCAN_STR;
        h->payload = tag & 0x1f;
    } else if (tag >= 0xe0) {
        h->kind = SCAN_INT;
    } else {
        if (tag == 0xc1)
            return -1;
        size_t width = tags[tag - 0xc0].width;
        if (len < 1 + width)
            return 0;
        uint64_t n = scan_number(p + 1, width);
        h->kind = tags[tag - 0xc0].kind;
        h->head = 1 + width;
        switch (h->kind) {
        case SCAN_BOOL:
            h->number = tag == 0xc3;
            break;
        case SCAN_UINT:
            h->number = n;
            break;
        case SCAN_INT: /* some encoders write every integer as a signed one */
            if (!(n >> (8 * width - 1))) {
                h->kind = SCAN_UINT;
                h->number = n;
            }
            break;
        case SCAN_STR:
        case SCAN_BIN:
        case SCAN_EXT:
            h->payload = n + tags[tag - 0xc0].extra;
            break;
        case SCAN_ARRAY:
            h->values = n;
            break;
        case SCAN_MAP:
            h->values = 2 * n;
            break;
        default: /* numbers consist of a head alone */
            break;
        }
    }
    return 1;
}

/*
 * s->pos is where the next head starts, perhaps beyond len inside a payload; s->left[d] is the number of values that
 * the container at depth d still lacks; s->owed is their sum, of which each takes at least one byte; s->values is the
 * number of heads read.
 */
ptrdiff_t wire_scan(struct wire_scan *s, const uint8_t *data, size_t len, size_t max, struct hearth_err *e)
{
    if (!s->values && !s->owed)
        s->owed = 1;
    while (s->owed) {
        struct scan_head h;
        if (s->pos >= len)
            return 0;
        int r = scan_head(&h, data + s->pos, len - s->pos);
        if (r < 0)
            return err_set(e, HEARTH_EINVALID, "byte %zu of the message is 0xc1, which is not msgpack", s->pos);
        if (r == 0)
            return 0;

        s->values++;
        s->owed += h.values - 1;
        if (h.head + h.payload > max - s->pos || s->owed > max - s->pos - h.head - h.payload)
            return err_set(e, HEARTH_ETOOBIG, "the message is over %zu bytes", max);
        if (s->values + s->owed > max / WIRE_VALUE_BYTES)
            return err_set(e, HEARTH_ETOOBIG, "the message has more than %zu values", max / WIRE_VALUE_BYTES);
        s->pos += h.head + h.payload;

        if (s->depth)
            s->left[s->depth]--;
        if (h.kind == SCAN_ARRAY || h.kind == SCAN_MAP) {
            if (s->depth == WIRE_DEPTH_MAX)
                return err_set(e, HEARTH_ETOOBIG, "the message nests deeper than %d", WIRE_DEPTH_MAX);
            s->left[++s->depth] = h.values;
        }
        while (s->depth && !s->left[s->depth])
            s->depth--;
    }
    return s->pos <= len ? (ptrdiff_t)s->pos : 0;
}
