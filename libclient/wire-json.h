/*
 * wire-json.h - values of any shape (a tool's schema, a message's further keys, a template's variables): JSON text in a
 * struct, MessagePack on the wire. The order of keys is kept both ways. For the codec.
 */
#ifndef HEARTH_WIRE_JSON_H
#define HEARTH_WIRE_JSON_H

#include "libclient/wire.h"

enum wire_json_root { WIRE_JSON_LIST, WIRE_JSON_MAP };

/* Appends the NUL-terminated JSON text to b as MessagePack, which may become `end` long. Integers of 64 bits stay
 * integers. HEARTH_ETOOBIG, HEARTH_ENOMEM; HEARTH_EPARAMS where the text is not JSON of that root, with *why saying so.
 * b may have grown all the same. */
int wire_json_pack(struct wire_buf *b, size_t end, const char *json, enum wire_json_root root, const char **why);

/* Writes the packed value at the beginning of data[0..len) as JSON text, without a NUL, to `out`, or nowhere where that
 * is NULL. Returns its length, or SIZE_MAX where JSON has no such value, with *why. An empty array counts as an empty
 * map where the root is one. */
size_t wire_json_write(const uint8_t *data, size_t len, enum wire_json_root root, char *out, const char **why);

#endif
