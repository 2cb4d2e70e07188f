/*
 * routes.h - which experts a device's tokens go to. A device whose activations are rounded may choose another expert
 * when two are nearly equal, and then gives another result, which is not an error of its kernels. So its choices are
 * read and judged by themselves, and its results are compared with those of a CPU that makes the same choices.
 */
#ifndef TESTS_GOLDEN_ROUTES_H
#define TESTS_GOLDEN_ROUTES_H

#include "tests/golden/run.h"

struct routes {
    uint32_t n_token, n_router, n_used, width;
    float *chosen;  /* [n_router][n_token][2 n_used] ACT_ROUTE */
    float *x;       /* [n_router][n_token][width] ACT_X, from which they were chosen */
    uint32_t first; /* the first token that goes to other experts than on the CPU, or n_token */
    size_t differ;  /* choices that differ */
    double margin;  /* the greatest margin that decided one of these on the CPU, in logits of the router */
    double off;     /* the greatest error of the device's router logits there */
};

/* Reads the choices for a text's tokens, at positions 0 .. n - 1, on a device, in steps of INVARIANT_DECODE. The
 * routers of the model's program are counted from 0. */
void routes_read(struct routes *t, struct run *r, const int32_t *token, uint32_t n);
void routes_free(struct routes *t);
/* Call after a CPU has computed router `router`, op `o`, for n rows from position pos on: replaces its choices by those
 * of the device. With `judge` a choice that differs by more than the error of the row's logits fails the test; others
 * are recorded. */
void routes_follow(struct routes *t, struct run *cpu, const struct op *o, uint32_t router, uint32_t pos, uint32_t n,
                   bool judge);

#endif
