/*
 * ties.h - how close the tokens of a text are to going to other experts. A device whose activations are rounded may
 * choose another expert where two are nearly equal, and then gives another result, which is no error of its kernels.
 */
#ifndef TESTS_GOLDEN_TIES_H
#define TESTS_GOLDEN_TIES_H

#include <stdint.h>

/* [n], of tokens at positions 0 .. n - 1: the least difference, over all layers, that decided about an expert, in units
 * of the router's logits and computed on the CPU; INFINITY where nothing is chosen. To free. */
double *route_margins(const char *path, const int32_t *token, uint32_t n);

#endif
