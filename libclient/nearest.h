/*
 * nearest.h - the known key that somebody meant who wrote another one.
 */
#ifndef HEARTH_NEAREST_H
#define HEARTH_NEAREST_H

#include "libclient/wire-table.h"

/*
 * Writes the key of `t` (or "member.key" of a map in it) that is most like the n bytes at `key`; "" where none is like
 * it. Likeness is the edit distance (Levenshtein), of a third of the key's bytes at most. `key` may hold any bytes.
 */
void nearest_key(const struct wire_type *t, const char *key, size_t n, char *out, size_t size);

#endif
