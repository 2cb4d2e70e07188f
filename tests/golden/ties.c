/* ties.c - see ties.h. */
#include "tests/golden/ties.h"

#include "tests/golden/run.h"

#include <math.h>
#include <string.h>

/* norm(x) of a row, in double. */
static void normed(const struct norm *n, const float *x, uint32_t width, double *y)
{
    double mean = 0, square = 0;
    for (uint32_t i = 0; n->kind == NORM_LAYER && i < width; i++)
        mean += (double)x[i] / width;
    for (uint32_t i = 0; i < width; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean) / width;
    for (uint32_t i = 0; i < width; i++)
        y[i] = ((double)x[i] - mean) / sqrt(square + (double)n->eps) * (double)n->w[i] + (n->b ? (double)n->b[i] : 0);
}

/* The least difference between what an expert that is chosen is chosen by, and one that is not; groups are no matter of
 * this. */
static double margin(const struct op_route *op, const float *w, const double *x)
{
    double by[EXPERTS_MAX], least = INFINITY, most = -INFINITY;
    bool taken[EXPERTS_MAX] = {false};
    for (uint32_t e = 0; e < op->w->n_out; e++) {
        by[e] = op->bias ? (double)op->bias[e] : 0;
        for (uint32_t i = 0; i < op->w->n_in; i++)
            by[e] += (double)w[(size_t)e * op->w->n_in + i] * x[i];
        if (op->select_bias) /* a sigmoid is at most a quarter as steep as its logit */
            by[e] = 4 * (1 / (1 + exp(-by[e])) + (double)op->select_bias[e]);
    }
    for (uint32_t k = 0; k < op->n_used; k++) {
        uint32_t best = op->w->n_out;
        for (uint32_t e = 0; e < op->w->n_out; e++)
            if (!taken[e] && (best == op->w->n_out || by[e] > by[best]))
                best = e;
        taken[best] = true;
        least = by[best];
    }
    for (uint32_t e = 0; e < op->w->n_out; e++)
        if (!taken[e] && by[e] > most)
            most = by[e];
    return least - most;
}

/* All rows of a text through the ops before a router, on the CPU. */
static void margins_of(struct run *r, uint32_t at, const int32_t *token, uint32_t n, double *out)
{
    enum { ROWS = 32 };
    const struct op_route *op = &r->m->program.op[at].route;
    uint32_t width = op->w->n_in;
    float *w = malloc((size_t)width * op->w->n_out * sizeof *w), *x = malloc((size_t)ROWS * width * sizeof *x);
    double *y = malloc(width * sizeof *y);
    assert_true(w && x && y);
    dtype_get((int)op->w->part[0].type)->to_f32(op->w->part[0].data, w, (size_t)width * op->w->n_out);
    struct program before = program_of(r->m, r->m->program.op, at);
    r->program = &before;
    for (uint32_t pos = 0, chunk; pos < n; pos += chunk) {
        chunk = n - pos < ROWS ? n - pos : ROWS;
        run_step(r, &(struct piece){token + pos, chunk, pos, 0, r->pages}, 1, true, NULL);
        MUST(r->be->act_read(r->dev, ACT_X, 0, chunk, x, &e));
        for (uint32_t i = 0; i < chunk; i++) {
            normed(&op->norm, x + (size_t)i * width, width, y);
            out[pos + i] = fmin(out[pos + i], margin(op, w, y));
        }
    }
    r->program = NULL;
    free(w), free(x), free(y);
}

double *route_margins(const char *path, const int32_t *token, uint32_t n)
{
    struct run r;
    run_open(&r, path, backend_find("cpu"), NULL, 0, 0, 32);
    double *out = malloc(n * sizeof *out);
    assert_non_null(out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = INFINITY;
    for (uint32_t i = 0; i < r.m->program.n_op; i++)
        if (r.m->program.op[i].kind == OP_ROUTE)
            margins_of(&r, i, token, n, out);
    run_close(&r);
    return out;
}
