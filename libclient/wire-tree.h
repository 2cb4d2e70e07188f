/* wire-tree.h - a packed body as msgpack-c's tree of objects, for wire-unpack.c. */
#ifndef HEARTH_WIRE_TREE_H
#define HEARTH_WIRE_TREE_H

#include <stddef.h>
#include <stdint.h>

struct msgpack_object;
struct msgpack_zone;

/* Parses exactly data[0..len), whose strings the tree borrows. Returns 0, HEARTH_EINVALID where the bytes are not one
 * value or nest deeper than WIRE_DEPTH_MAX, or HEARTH_ENOMEM. The tree lives in the zone and takes at most 24 bytes for
 * a value. */
int wire_tree(struct msgpack_object *out, struct msgpack_zone *zone, const uint8_t *data, size_t len);

#endif
