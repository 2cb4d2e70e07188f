/*
 * cost.h - how long a step of a model takes, learnt from earlier steps.
 *
 * seconds = step + decode x (decoding rows) + prompt x (prompt rows) + key x (keys that all rows together attend to)
 *
 * The constant part of a step (launches, and weights that are read once for all rows) and the three slopes are the
 * non-negative least-squares fit of the errors relative to the measured time, so that a step of a millisecond counts as
 * much as one of a second, and a pause of the machine, which makes one step a thousand times as long, counts as one bad
 * step. Older steps decay. Steps with and without prompt rows decay separately: an hour of decoding does not wash out
 * what prompts cost.
 *
 * Steps that were all alike say little about others, so the slopes alone should not be trusted for a step longer than
 * any before: `row` is the cost measured in the last long one.
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
    /* Prompt rows from which on a step counts as a long one; 0: none does. */
    uint32_t many;
    /* Seconds of the last long step divided by its prompt rows; 0: there was none. */
    double row;
    double slope[COST_TERMS]; /* seconds */
    struct cost_sums {
        double xx[COST_TERMS][COST_TERMS], xy[COST_TERMS];
        uint32_t n; /* steps, up to UINT32_MAX */
    } sums[2];      /* of steps without and with prompt rows */
};

/* Records that this work took so many seconds. */
void cost_learn(struct cost *c, const struct cost_work *w, double seconds);

/* The same where begin or end was not observed, so that the step took between `least` and `most` seconds. An estimate
 * within these bounds stays; else the bound that it violates is learnt, so that the estimate can come down and go up
 * again. */
void cost_learn_between(struct cost *c, const struct cost_work *w, double least, double most);

/* Whether steps with prompt rows have been measured. */
static inline bool cost_known(const struct cost *c)
{
    return c->sums[1].n > 0;
}

/* The seconds that a step of this work is expected to take; 0 where nothing is known. */
double cost_of(const struct cost *c, const struct cost_work *w);

/* The number of keys that n rows from position pos0 on attend to. */
static inline double cost_keys(uint32_t pos0, uint32_t n)
{
    return (double)n * pos0 + 0.5 * (double)n * ((double)n + 1);
}

/* What n prompt rows from position pos0 on add to a step, in seconds. */
double cost_of_prompt(const struct cost *c, uint32_t pos0, uint32_t n);

/* How many prompt rows from position pos0 on, `most` at most, add no more than `seconds` to a step. */
uint32_t cost_prompt_rows(const struct cost *c, uint32_t pos0, double seconds, uint32_t most);

#endif
