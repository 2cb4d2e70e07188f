/* choice.c - see choice.h. Pure. */
#include "config.h"

#include "daemon/engine/selfcheck/choice.h"

#include <math.h>
#include <string.h>

/* Computes the router's logits of a row, [n_expert], in double. */
static void logits_of(const struct op_route *op, const float *w, const float *x, double *logit)
{
    uint32_t width = op->w->n_in;
    const struct norm *n = &op->norm;
    double mean = 0, square = 0;
    for (uint32_t i = 0; n->kind == NORM_LAYER && i < width; i++)
        mean += (double)x[i] / width;
    for (uint32_t i = 0; i < width; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean) / width;
    double by = n->kind == NORM_NONE ? 1 : 1 / sqrt(square + (double)n->eps);
    for (uint32_t e = 0; e < op->w->n_out; e++)
        logit[e] = op->bias ? (double)op->bias[e] : 0;
    for (uint32_t i = 0; i < width; i++) {
        double y = ((double)x[i] - mean) * by * (n->w ? (double)n->w[i] : 1) + (n->b ? (double)n->b[i] : 0);
        for (uint32_t e = 0; e < op->w->n_out; e++)
            logit[e] += (double)w[(size_t)e * width + i] * y;
    }
}

/* Returns the sum of the n greatest of `of`. `taken` marks them, *last is the least of them, and *next is the greatest
 * of the others. */
static double greatest(const double *of, uint32_t of_n, uint32_t n, bool *taken, double *last, double *next)
{
    double sum = 0;
    memset(taken, 0, of_n * sizeof *taken);
    for (uint32_t k = 0; k <= n && k < of_n; k++) {
        uint32_t best = of_n;
        for (uint32_t e = 0; e < of_n; e++)
            if (!taken[e] && (best == of_n || of[e] > of[best]))
                best = e;
        *next = of[best];
        if (k == n)
            return sum;
        taken[best] = true, *last = of[best], sum += of[best];
    }
    *next = -INFINITY;
    return sum;
}

/* Returns choice_gap.margin. */
static double margin_of(const struct op_route *op, const double *logit)
{
    double by[EXPERTS_MAX] = {0}, of[EXPERTS_MAX], last = 0, next = 0, least = INFINITY;
    bool taken[EXPERTS_MAX], among[EXPERTS_MAX];
    uint32_t n = op->w->n_out, groups = op->n_group > 1 ? op->n_group : 1, each = n / groups;
    for (uint32_t e = 0; e < n; e++) /* 4 times a sigmoid moves no more than its logit does */
        by[e] = op->kind == ROUTE_SIGMOID
                    ? 4 * (1 / (1 + exp(-logit[e])) + (op->select_bias ? (double)op->select_bias[e] : 0))
                    : logit[e] + (op->select_bias ? (double)op->select_bias[e] : 0);
    if (groups > 1) {
        for (uint32_t g = 0; g < groups; g++)
            of[g] = greatest(by + (size_t)g * each, each, op->group_best, taken, &last, &next);
        greatest(of, groups, op->n_group_used, among, &last, &next);
        least = (last - next) / op->group_best;
        for (uint32_t e = 0; e < n; e++)
            by[e] = among[e / each] ? by[e] : -INFINITY;
    }
    greatest(by, n, op->n_used, taken, &last, &next);
    return fmin(least, last - next);
}

bool choice_same(const float *a, const float *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool there = false;
        for (uint32_t k = 0; k < n; k++)
            there |= a[i] == b[k];
        if (!there)
            return false;
    }
    return true;
}

bool choice_is_near(const struct op_route *op, const float *w, const float *x, const float *device_x,
                    struct choice_gap *gap)
{
    double own[EXPERTS_MAX], device[EXPERTS_MAX];
    logits_of(op, w, x, own);
    logits_of(op, w, device_x, device);
    *gap = (struct choice_gap){margin_of(op, own), 1e-5};
    for (uint32_t e = 0; e < op->w->n_out; e++)
        gap->off = fmax(gap->off, fabs(own[e] - device[e]));
    return gap->margin <= 2 * gap->off;
}
