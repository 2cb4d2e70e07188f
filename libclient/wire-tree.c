/*
 * wire-tree.c - see wire-tree.h. msgpack-c's own parser ends at 32 nested containers (MSGPACK_EMBED_STACK_SIZE), which
 * a tool's schema may pass; and it trusts counts, which here must have their bytes.
 */
#include "libclient/wire-tree.h"
#include "libclient/scan.h"
#include "libclient/wire.h"

#include <msgpack.h>
#include <string.h>

struct tree {
    const uint8_t *p, *end;
    msgpack_zone *zone;
};

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    while (n--)
        v = v << 8 | *p++;
    return v;
}

static void read_int(msgpack_object *o, const uint8_t *p, size_t head)
{
    int64_t v = (int8_t)*p; /* 0xe0 .. 0xff are -32 .. -1 */
    if (head > 1) {
        int unused = 64 - 8 * (int)(head - 1);
        v = (int64_t)(big_endian(p + 1, head - 1) << unused) >> unused;
    }
    o->type = v < 0 ? MSGPACK_OBJECT_NEGATIVE_INTEGER : MSGPACK_OBJECT_POSITIVE_INTEGER;
    o->via.i64 = v;
}

static void read_float(msgpack_object *o, const uint8_t *p, size_t head)
{
    uint64_t bits = big_endian(p + 1, head - 1);
    if (head == 5) {
        uint32_t single = (uint32_t)bits;
        float f;
        memcpy(&f, &single, sizeof f);
        o->type = MSGPACK_OBJECT_FLOAT32;
        o->via.f64 = (double)f;
    } else {
        o->type = MSGPACK_OBJECT_FLOAT64;
        memcpy(&o->via.f64, &bits, sizeof o->via.f64);
    }
}

static int read_value(struct tree *t, msgpack_object *o, int depth);

static int read_values(struct tree *t, msgpack_object *v, uint64_t n, int depth)
{
    int rc = 0;
    for (uint64_t i = 0; i < n && !rc; i++)
        rc = read_value(t, &v[i], depth);
    return rc;
}

/* An array's values, or a map's keys and values, which lie in turn. */
static int read_container(struct tree *t, msgpack_object *o, const struct scan_head *h, int depth)
{
    if (depth == WIRE_DEPTH_MAX || h->values > (uint64_t)(t->end - t->p))
        return HEARTH_EINVALID;
    msgpack_object *v = NULL;
    if (h->values && !(v = msgpack_zone_malloc(t->zone, (size_t)h->values * sizeof *v)))
        return HEARTH_ENOMEM;
    if (h->kind == SCAN_ARRAY) {
        o->type = MSGPACK_OBJECT_ARRAY;
        o->via.array.size = (uint32_t)h->values;
        o->via.array.ptr = v;
    } else {
        o->type = MSGPACK_OBJECT_MAP;
        o->via.map.size = (uint32_t)(h->values / 2);
        o->via.map.ptr = (msgpack_object_kv *)(void *)v;
    }
    return read_values(t, v, h->values, depth + 1);
}

_Static_assert(sizeof(msgpack_object_kv) == 2 * sizeof(msgpack_object) && offsetof(msgpack_object_kv, key) == 0,
               "a pair is two objects");

static int read_value(struct tree *t, msgpack_object *o, int depth)
{
    struct scan_head h;
    const uint8_t *p = t->p;
    if (scan_head(&h, p, (size_t)(t->end - p)) != 1 || h.payload > (size_t)(t->end - p) - h.head)
        return HEARTH_EINVALID;
    t->p += h.head + h.payload;
    const char *payload = (const char *)p + h.head;
    memset(o, 0, sizeof *o);
    switch (h.kind) {
    case SCAN_NIL:
        o->type = MSGPACK_OBJECT_NIL;
        return 0;
    case SCAN_BOOL:
        o->type = MSGPACK_OBJECT_BOOLEAN;
        o->via.boolean = h.number != 0;
        return 0;
    case SCAN_UINT:
        o->type = MSGPACK_OBJECT_POSITIVE_INTEGER;
        o->via.u64 = h.number;
        return 0;
    case SCAN_INT:
        read_int(o, p, h.head);
        return 0;
    case SCAN_FLOAT:
        read_float(o, p, h.head);
        return 0;
    case SCAN_STR:
        o->type = MSGPACK_OBJECT_STR;
        o->via.str.ptr = payload;
        o->via.str.size = (uint32_t)h.payload;
        return 0;
    case SCAN_BIN:
        o->type = MSGPACK_OBJECT_BIN;
        o->via.bin.ptr = payload;
        o->via.bin.size = (uint32_t)h.payload;
        return 0;
    case SCAN_EXT:
        o->type = MSGPACK_OBJECT_EXT;
        o->via.ext.type = (int8_t)payload[0];
        o->via.ext.ptr = payload + 1;
        o->via.ext.size = (uint32_t)h.payload - 1;
        return 0;
    default:
        return read_container(t, o, &h, depth);
    }
}

int wire_tree(msgpack_object *out, msgpack_zone *zone, const uint8_t *data, size_t len)
{
    struct tree t = {data, data + len, zone};
    int rc = read_value(&t, out, 0);
    return rc ? rc : t.p == t.end ? 0 : HEARTH_EINVALID;
}
