/*
 * distance.h - the edit distance between two words, for "did you mean" suggestions.
 */
#ifndef HEARTH_DISTANCE_H
#define HEARTH_DISTANCE_H

#include <stddef.h>

enum { DISTANCE_MAX = 64 }; /* bytes; longer words are similar to nothing */

/* Returns the edit distance (Levenshtein) of two words, which may hold any bytes; SIZE_MAX where one is longer than
 * DISTANCE_MAX. */
size_t text_distance(const char *a, size_t n_a, const char *b, size_t n_b);

#endif
