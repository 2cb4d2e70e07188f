/*
 * rounded.h - a model on the CPU, op by op, that rounds where a device does. As a CPU does it rounds KV alone, and
 * gives that one's bits; as a GPU: queries, latents, results of attention and of recurrent layers, and hidden rows of
 * the FFN are fp16, KV is what its pages keep, and what a product takes is fp16 or, where the device goes by "gemv" or
 * "few", records of 256 integers of 16 bits with one factor (kernels/cuda/gemm/tile16_int.cuh); but for routers and
 * for recurrent layers' matrices of F32, whose products are F32. Sums, the residual stream and all that is between two
 * of these are the CPU's own; the device rounds the weights of attention's values as well, which this does not. What
 * differs from a run in F32 is what these roundings take away, and a device may be held to it where a model is so
 * sensitive to them that the F32 logits are out of reach.
 *
 * Of a mixture it goes the ways of the device (routes.h), since no two choices among equals can be compared.
 */
#ifndef TESTS_GOLDEN_ROUNDED_H
#define TESTS_GOLDEN_ROUNDED_H

#include "tests/golden/routes.h"

struct rounded {
    struct run r;
    bool gpu;
    bool *integers;        /* [n_op] the op's product takes integers */
    struct routes *routes; /* the text's, to be followed; judged where nothing is rounded. NULL: its own ways */
};

/* Opens the model of `like`, of the file at `path`, to compute as its device does in steps of INVARIANT_DECODE of up to
 * n_row rows, of one sequence within the context; KV of the same type. */
void rounded_open(struct rounded *r, const char *path, const struct run *like, uint32_t n_row);
/* The same, but nothing is rounded, KV neither. */
void exact_open(struct rounded *r, const char *path, const struct run *like, uint32_t n_row);
void rounded_close(struct rounded *r);
/* Tokens at positions pos.. of the one sequence; the logits of all of them, [n, n_vocab]. */
void rounded_step(struct rounded *r, const int32_t *token, uint32_t n, uint32_t pos, float *logits);

#endif
