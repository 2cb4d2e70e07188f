/*
 * eval.h - the result of an eval request: the best logits at every position.
 *
 * The loop thread creates it, the device thread fills it row by row, and it returns to the loop thread with EV_END.
 */
#ifndef HEARTH_ENGINE_EVAL_H
#define HEARTH_ENGINE_EVAL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

struct eval {
    uint32_t top;         /* logits requested per position; 0 = none */
    uint32_t n_row;       /* positions filled */
    uint32_t n_per_row;   /* min(top, n_vocab) */
    struct logprob *best; /* [n_row, n_per_row] logits, best first; of equal ones the lower id first */
    int32_t *greedy;      /* [n_greedy] the greedy continuation, including an end token */
    uint32_t n_greedy;
    uint32_t cap_row; /* capacity in positions */
};

/* Makes an eval with room for n_pos positions and n_greedy tokens; NULL: no memory. */
struct eval *eval_new(uint32_t n_pos, uint32_t top, uint32_t n_vocab, uint32_t n_greedy);
void eval_free(struct eval *ev);

/* Adds the next position, from its logits [n_vocab]. */
void eval_row(struct eval *ev, const float *logit, uint32_t n_vocab);

/* Returns the best logit's id, the lowest of equal ones, as sampling at temperature 0 does. */
int32_t eval_best(const float *logit, uint32_t n_vocab);

#endif
