/*
 * nearest.h - suggests the known key that a client meant by an unknown one.
 */
#ifndef HEARTH_NEAREST_H
#define HEARTH_NEAREST_H

#include "libclient/wire-table.h"

/*
 * Writes the key of `t` (or "member.key" of a map in it) that is most similar to the n bytes at `key`; "" where none is
 * similar. Similar means an edit distance (Levenshtein) of at most a third of the key's bytes. `key` may hold any
 * bytes; `out` has room for `size` bytes, including a NUL.
 */
void nearest_key(const struct wire_type *t, const char *key, size_t n, char *out, size_t size);

#endif
