/* packed.c - see packed.h. It is used instead of msgpack-c's parser, which builds a tree of all values, most of which
 * most messages do not need, and which trusts counts; here every count must be backed by bytes. */
#include "libclient/packed.h"

#include <string.h>

#include "libclient/err.h"

static void read_int(struct packed *v, const uint8_t *p, size_t head)
{
    int64_t i = (int8_t)*p; /* 0xe0 .. 0xff are -32 .. -1 */
    if (head > 1) {
        int unused = 64 - 8 * (int)(head - 1);
        i = (int64_t)(scan_number(p + 1, head - 1) << unused) >> unused;
    }
    v->i = i;
}

static void read_float(struct packed *v, const uint8_t *p, size_t head)
{
    uint64_t bits = scan_number(p + 1, head - 1);
    if (head == 5) {
        uint32_t single = (uint32_t)bits;
        float f;
        memcpy(&f, &single, sizeof f);
        v->f = (double)f;
    } else {
        memcpy(&v->f, &bits, sizeof v->f);
    }
}

int packed_next(struct cursor *c, struct packed *v)
{
    struct scan_head h;
    const uint8_t *p = c->p;
    size_t left = (size_t)(c->end - p);
    if (scan_head(&h, p, left) != 1 || h.payload > left - h.head || h.values > left - h.head)
        return HEARTH_EINVALID;
    c->p += h.head + h.payload;
    *v = (struct packed){.kind = h.kind, .at = p};
    switch (h.kind) {
    case SCAN_BOOL:
        v->b = h.number != 0;
        break;
    case SCAN_UINT:
        v->u = h.number;
        break;
    case SCAN_INT:
        read_int(v, p, h.head);
        break;
    case SCAN_FLOAT:
        read_float(v, p, h.head);
        break;
    case SCAN_STR:
    case SCAN_BIN:
        v->data = (const char *)p + h.head;
        v->n = h.payload;
        break;
    case SCAN_ARRAY:
        v->n = (size_t)h.values;
        break;
    case SCAN_MAP:
        v->n = (size_t)h.values / 2;
        break;
    case SCAN_NIL:
    case SCAN_EXT:
        break;
    }
    return 0;
}

int packed_skip(struct cursor *c, const struct packed *v)
{
    uint64_t owed = v->kind == SCAN_ARRAY ? v->n : v->kind == SCAN_MAP ? 2 * v->n : 0;
    for (; owed; owed--) {
        struct scan_head h;
        size_t left = (size_t)(c->end - c->p);
        if (scan_head(&h, c->p, left) != 1 || h.payload > left - h.head || h.values > left - h.head)
            return HEARTH_EINVALID;
        c->p += h.head + h.payload;
        owed += h.values;
    }
    return 0;
}
