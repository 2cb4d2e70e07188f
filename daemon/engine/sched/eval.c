/* eval.c - the best logits of a row; see eval.h. */
#include "daemon/engine/sched/eval.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct eval *eval_new(uint32_t n_pos, uint32_t top, uint32_t n_vocab, uint32_t n_greedy)
{
    struct eval *ev = calloc(1, sizeof *ev);
    if (!ev)
        return NULL;
    ev->top = top;
    ev->n_per_row = top < n_vocab ? top : n_vocab;
    ev->cap_row = top ? n_pos : 0;
    ev->best = malloc((size_t)ev->cap_row * ev->n_per_row * sizeof *ev->best + 1);
    ev->greedy = malloc((size_t)n_greedy * sizeof *ev->greedy + 1);
    if (ev->best && ev->greedy)
        return ev;
    eval_free(ev);
    return NULL;
}

void eval_free(struct eval *ev)
{
    if (!ev)
        return;
    free(ev->best);
    free(ev->greedy);
    free(ev);
}

/* A NaN logit never wins, as in the sampler. */
static bool better(struct logprob a, struct logprob b)
{
    if (isnan(a.logprob) || isnan(b.logprob))
        return isnan(a.logprob) && isnan(b.logprob) ? a.id < b.id : isnan(b.logprob);
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.id < b.id);
}

/* Restores a heap that has the worst of the chosen logits at its root. */
static void sift_down(struct logprob *h, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= n)
            return;
        if (c + 1 < n && better(h[c], h[c + 1]))
            c++;
        if (!better(h[i], h[c]))
            return;
        struct logprob t = h[i];
        h[i] = h[c];
        h[c] = t;
        i = c;
    }
}

void eval_row(struct eval *ev, const float *logit, uint32_t n_vocab)
{
    if (ev->n_row == ev->cap_row)
        return; /* the continuation's rows are not reported */
    struct logprob *h = ev->best + (size_t)ev->n_row++ * ev->n_per_row;
    uint32_t n = ev->n_per_row;
    for (uint32_t i = 0; i < n; i++)
        h[i] = (struct logprob){i, logit[i]};
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(h, n, i);
    for (uint32_t i = n; i < n_vocab; i++) {
        struct logprob l = {i, logit[i]};
        if (better(l, h[0])) {
            h[0] = l;
            sift_down(h, n, 0);
        }
    }
    while (n > 1) { /* heap sort: the worst goes to the end each time, so the best is first */
        struct logprob t = h[0];
        h[0] = h[--n];
        h[n] = t;
        sift_down(h, n, 0);
    }
}

int32_t eval_best(const float *logit, uint32_t n_vocab)
{
    struct logprob best = {0, logit[0]};
    for (uint32_t i = 1; i < n_vocab; i++)
        if (better((struct logprob){i, logit[i]}, best))
            best = (struct logprob){i, logit[i]};
    return (int32_t)best.id;
}
