/*
 * routes.h - which experts a device's tokens go to. A device whose activations are rounded may choose another expert
 * where two are nearly equal, and then gives another result, which is no error of its kernels. So its choices are read
 * and judged by themselves, and what follows from them is compared with a CPU that goes the same ways.
 */
#ifndef TESTS_GOLDEN_ROUTES_H
#define TESTS_GOLDEN_ROUTES_H

#include "tests/golden/run.h"

struct routes {
    uint32_t n_token, n_router, n_used, width;
    float *chosen;  /* [n_router][n_token][2 n_used] ACT_ROUTE */
    float *x;       /* [n_router][n_token][width] ACT_X, which they are chosen by */
    uint32_t first; /* of the tokens that go to other experts than the CPU's, or n_token */
    size_t differ;  /* choices that do */
    double margin;  /* the greatest that one of these had on the CPU, in logits of the router */
    double off;     /* how far its logits were off there, at most */
};

/* The ways of a text's tokens, at positions 0 .. n - 1, on a device: in steps of INVARIANT_DECODE. Routers of the
 * model's program are counted from 0. */
void routes_read(struct routes *t, struct run *r, const int32_t *token, uint32_t n);
void routes_free(struct routes *t);
/* Once a CPU has computed router `router`, op `o`, of n rows from position pos on: makes it go the same ways from here.
 * With `judge` fails the test where a choice differs by more than the logits of that row are off, and notes it. */
void routes_follow(struct routes *t, struct run *cpu, const struct op *o, uint32_t router, uint32_t pos, uint32_t n,
                   bool judge);

#endif
