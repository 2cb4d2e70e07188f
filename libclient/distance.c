/* distance.c - see distance.h. */
#include "libclient/distance.h"

#include <stdint.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein's table of prefix distances, of which one row is kept at a time. */
size_t text_distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t row[DISTANCE_MAX + 1];
    if (n_a > DISTANCE_MAX || n_b > DISTANCE_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j - 1], row[j]) + 1);
        }
    }
    return row[n_b];
}
