/*
 * rounded.h - a model on the CPU, op by op, that rounds where a device does. As a CPU does, it rounds only KV, and
 * gives that device's bits. As a GPU does: queries, latents, results of attention and of recurrent layers, and hidden
 * rows of the FFN are fp16; KV is what its pages can represent; and the input of a product is fp16 or, where the device
 * takes the paths "gemv" or "few", blocks of 256 16-bit integers with one factor (kernels/cuda/gemm/tile16_int.cuh).
 * Exceptions are routers and recurrent layers' matrices of F32, whose products are F32. Sums, the residual stream and
 * everything between two of these are the CPU's own; the device also rounds the weights of attention's values, which
 * this does not. The difference from a run in F32 is what these roundings cost, and a device may be judged by it if a
 * model is so sensitive to them that the F32 logits are out of reach.
 *
 * For a mixture of experts it uses the device's choices (routes.h), since two choices between near equals cannot be
 * compared.
 */
#ifndef TESTS_GOLDEN_ROUNDED_H
#define TESTS_GOLDEN_ROUNDED_H

#include "tests/golden/routes.h"

struct rounded {
    struct run r;
    bool gpu;
    bool *integers;        /* [n_op] whether the op's product takes integers */
    struct routes *routes; /* the choices to follow, which are judged if nothing is rounded; NULL: its own choices */
};

/* Opens the model of `like`, from the file at `path`, to compute as its device does in steps of INVARIANT_DECODE of up
 * to n_row rows of one sequence within the context, with KV of the same type. */
void rounded_open(struct rounded *r, const char *path, const struct run *like, uint32_t n_row);
/* The same, but without any rounding, also of KV. */
void exact_open(struct rounded *r, const char *path, const struct run *like, uint32_t n_row);
void rounded_close(struct rounded *r);
/* Runs tokens at positions pos.. of the only sequence, and returns the logits of all of them, [n, n_vocab]. */
void rounded_step(struct rounded *r, const int32_t *token, uint32_t n, uint32_t pos, float *logits);

#endif
