/*
 * cost.h - how long a step of a model takes, learnt from the steps that were done.
 *
 * seconds = step + decode x (decoding rows) + prompt x (prompt rows) + key x (keys that all rows together attend to)
 *
 * A step by itself (launches, and weights that are read once for all rows) and the three slopes are the non-negative
 * least squares of the errors relative to the measured time, so that a step of a millisecond counts as much as one of a
 * second, and a pause of the machine, which makes one step a thousand times as long, counts as one bad step. Older
 * steps decay. Steps with and without prompt rows decay apart: an hour of decoding does not wash out what prompts cost.
 *
 * Steps that were all alike say little of others, and whoever makes one longer than any before should not go by slopes
 * alone: `row` is what the last long one took.
 *
 * Pure: no clock, no device. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_COST_H
#define HEARTH_ENGINE_COST_H

#include <stdbool.h>
#include <stdint.h>

enum cost_term { COST_STEP, COST_DECODE, COST_PROMPT, COST_KEY, COST_TERMS };

/* What a step did. */
struct cost_work {
    uint32_t decode, prompt; /* rows */
    double keys;             /* the sum of their positions */
};

/* Zero-initialise: nothing is known. */
struct cost {
    uint32_t many; /* prompt rows of a step that counts as a long one; 0: none does */
    double row;    /* seconds of a prompt row and its part of all else, in the last of those; 0: there was none */
    double slope[COST_TERMS]; /* seconds */
    struct cost_sums {
        double xx[COST_TERMS][COST_TERMS], xy[COST_TERMS];
        uint32_t n; /* steps, up to UINT32_MAX */
    } sums[2];      /* of steps without and with prompt rows */
};

/* Learns that this work took so many seconds. */
void cost_learn(struct cost *c, const struct cost_work *w, double seconds);

/* The same where begin or end were not seen, so that it took somewhere between so many seconds. What was expected and
 * is possible stays; else the bound that it is beyond is learnt, so that an estimate comes down and goes up again. */
void cost_learn_between(struct cost *c, const struct cost_work *w, double least, double most);

/* Whether prompt rows were measured yet. */
static inline bool cost_known(const struct cost *c)
{
    return c->sums[1].n > 0;
}

/* Seconds that a step of this work is expected to take; 0 where nothing is known. */
double cost_of(const struct cost *c, const struct cost_work *w);

/* The keys that n rows from position pos0 on attend to. */
static inline double cost_keys(uint32_t pos0, uint32_t n)
{
    return (double)n * pos0 + 0.5 * (double)n * ((double)n + 1);
}

/* The same without the step itself: what n prompt rows from position pos0 on add to a step. */
double cost_of_prompt(const struct cost *c, uint32_t pos0, uint32_t n);

/* How many prompt rows from position pos0 on, `most` at most, add no more than so many seconds to a step. */
uint32_t cost_prompt_rows(const struct cost *c, uint32_t pos0, double seconds, uint32_t most);

#endif
