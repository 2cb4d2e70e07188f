/*
 * wire-json.h - values of any structure (a tool's schema, a message's further keys, a template's variables): JSON text
 * in a struct, MessagePack on the wire. The order of keys is kept in both directions. For the codec.
 */
#ifndef HEARTH_WIRE_JSON_H
#define HEARTH_WIRE_JSON_H

#include "libclient/wire.h"

enum wire_json_root { WIRE_JSON_LIST, WIRE_JSON_MAP };

/* Appends the NUL-terminated JSON text to b as MessagePack; b may become at most `end` bytes long. Integers of up to 64
 * bits stay integers. Returns 0, HEARTH_ETOOBIG, HEARTH_ENOMEM, or HEARTH_EPARAMS with the reason in *why where the
 * text is not JSON with that root. b may have grown even after an error. */
int wire_json_pack(struct wire_buf *b, size_t end, const char *json, enum wire_json_root root, const char **why);

/* Returns the length, at most, of the packed value at the beginning of data[0..len) as JSON text, or SIZE_MAX with the
 * reason in *why where JSON has no such value or it has more values than *left, nested ones counted, which is reduced
 * by what it has. Where the root is a map, an empty array counts as an empty map. */
size_t wire_json_measure(const uint8_t *data, size_t len, enum wire_json_root root, size_t *left, const char **why);
/* Writes such a value, which has been measured, to `out` without a NUL. Returns the text's length. */
size_t wire_json_write(const uint8_t *data, size_t len, enum wire_json_root root, char *out);

/* Why the packed value, a member of a map, has no JSON; NULL where it has. */
const char *wire_json_fault(const uint8_t *data, size_t len);

#endif
