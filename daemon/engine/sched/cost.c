/* cost.c - the cost of a step; see cost.h. Pure. Thread: the device thread's. */
#include "daemon/engine/sched/cost.h"

#include <math.h>

enum { SWEEPS = 24 }; /* of coordinate descent after each step, starting at the last solution */
static const double decay = 0.95;

static void terms_of(const struct cost_work *w, double x[COST_TERMS])
{
    x[COST_STEP] = 1;
    x[COST_DECODE] = w->decode;
    x[COST_PROMPT] = w->prompt;
    x[COST_KEY] = w->keys;
}

/*
 * Coordinate descent on the normal equations, each slope at its best non-negative value given the others. Where steps
 * were all alike, so that only the sum of their terms is known, the solution stays near the last one. In the first
 * solution the prompt slope is solved first and takes more than its share, so that chunks begin small.
 */
static void solve(struct cost *c)
{
    static const enum cost_term order[] = {COST_PROMPT, COST_DECODE, COST_KEY, COST_STEP};
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int k = 0; k < COST_TERMS; k++) {
            enum cost_term i = order[k];
            double xx = c->sums[0].xx[i][i] + c->sums[1].xx[i][i], rest = c->sums[0].xy[i] + c->sums[1].xy[i];
            for (int j = 0; j < COST_TERMS; j++)
                rest -= j == (int)i ? 0 : (c->sums[0].xx[i][j] + c->sums[1].xx[i][j]) * c->slope[j];
            if (xx > 0)
                c->slope[i] = rest > 0 ? rest / xx : 0;
        }
}

void cost_learn(struct cost *c, const struct cost_work *w, double seconds)
{
    double x[COST_TERMS];
    if (!(seconds > 0) || !isfinite(seconds) || w->decode + w->prompt == 0)
        return;
    terms_of(w, x);
    if (c->many && w->prompt >= c->many)
        c->row = seconds / w->prompt;
    struct cost_sums *s = &c->sums[w->prompt > 0];
    s->n += s->n < UINT32_MAX;
    for (int i = 0; i < COST_TERMS; i++) {
        for (int j = 0; j < COST_TERMS; j++)
            s->xx[i][j] = decay * s->xx[i][j] + x[i] * x[j] / (seconds * seconds);
        s->xy[i] = decay * s->xy[i] + x[i] / seconds;
    }
    solve(c);
}

void cost_learn_between(struct cost *c, const struct cost_work *w, double least, double most)
{
    double expected = c->sums[w->prompt > 0].n ? cost_of(c, w) : INFINITY;
    if (expected < least)
        cost_learn(c, w, least);
    else if (least >= most || expected > most)
        cost_learn(c, w, most);
}

double cost_of(const struct cost *c, const struct cost_work *w)
{
    double x[COST_TERMS], sum = 0;
    terms_of(w, x);
    for (int i = 0; i < COST_TERMS; i++)
        sum += c->slope[i] * x[i];
    return sum;
}

double cost_of_prompt(const struct cost *c, uint32_t pos0, uint32_t n)
{
    return c->slope[COST_PROMPT] * n + c->slope[COST_KEY] * cost_keys(pos0, n);
}

uint32_t cost_prompt_rows(const struct cost *c, uint32_t pos0, double seconds, uint32_t most)
{
    uint32_t low = 0, high = most; /* `low` rows fit; more than `high` do not, or are not requested */
    while (low < high) {
        uint32_t n = high - (high - low) / 2;
        if (cost_of_prompt(c, pos0, n) <= seconds)
            low = n;
        else
            high = n - 1;
    }
    return low;
}
