/*
 * route.c - which experts a row goes to, and the weights of their results: op_route, op.h.
 *
 * The logits are a product like any other. The rest is done row by row, in scalar F32 and in the order written here, so
 * that all variants are bit-identical and a row's choice depends on nothing but its own logits.
 *
 * Thread: the device's, and the pool's inside pool_run.
 */
#include "kernels/cpu/elem.h"
#include "kernels/cpu/ops.h"

#include <math.h>

struct route {
    struct device *d;
    const struct op_route *op;
    uint32_t n_expert;
    float *logits; /* [n_row, n_expert] */
};

static void logits_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    const struct route *r = p->op;
    uint32_t o0, o1;
    cpu_matmul_rows(p, item, &o0, &o1);
    float *y = r->logits + o0;
    cpu_matmul(p->d, &p->w->part[0], p->w->n_in, p->x, o0, o1, y, r->n_expert, p->d->scratch[thread].v);
    for (uint32_t row = 0; r->op->bias && row < p->x->n_row; row++, y += r->n_expert)
        for (uint32_t i = 0; i < o1 - o0; i++)
            y[i] += r->op->bias[o0 + i];
}

/* Whether a > b in an order where NaN is below every number. */
static bool above(float a, float b)
{
    return a > b || (isnan(b) && !isnan(a));
}

/* Finds the k greatest elements of v that are not taken, best first, the lower index first on a tie, and takes them. */
static void greatest(const float *v, uint32_t n, uint32_t k, bool *taken, uint32_t *out)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = n;
        for (uint32_t e = 0; e < n; e++)
            if (!taken[e] && (best == n || above(v[e], v[best])))
                best = e;
        taken[best] = true;
        out[i] = best;
    }
}

/* Sets `taken` for the experts of all groups but the n_group_used best. */
static void drop_groups(const struct op_route *op, const float *choice, uint32_t n_expert, bool *taken)
{
    float score[EXPERTS_MAX];
    bool kept[EXPERTS_MAX] = {false}, used[EXPERTS_MAX];
    uint32_t size = n_expert / op->n_group, best[EXPERTS_MAX];
    for (uint32_t g = 0; g < op->n_group; g++) {
        const float *of = choice + (size_t)g * size;
        for (uint32_t e = 0; e < size; e++)
            used[e] = false;
        greatest(of, size, op->group_best, used, best);
        score[g] = 0.0f;
        for (uint32_t i = 0; i < op->group_best; i++)
            score[g] += of[best[i]];
    }
    greatest(score, op->n_group, op->n_group_used, kept, best);
    for (uint32_t e = 0; e < n_expert; e++)
        taken[e] = !kept[e / size];
}

/* The terms of a softmax over n logits, of all experts or of the ids in `of`: exp of the difference to the greatest.
 * Returns their sum, added in ascending order. */
static float softmax_terms(const float *logits, const uint32_t *of, uint32_t n, float *y)
{
    float max = -INFINITY, sum = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float v = logits[of ? of[i] : i];
        max = v > max ? v : max;
    }
    for (uint32_t i = 0; i < n; i++) {
        y[i] = fm_exp(logits[of ? of[i] : i] - max);
        sum += y[i];
    }
    return sum;
}

/* The scores of all experts, for kinds whose scores do not depend on which experts are chosen. */
static void scores_of(const struct op_route *op, const float *logits, uint32_t n, float *score)
{
    float sum = op->kind == ROUTE_SIGMOID ? 0.0f : softmax_terms(logits, NULL, n, score);
    for (uint32_t e = 0; e < n; e++)
        score[e] = op->kind == ROUTE_SIGMOID ? elem_sigmoid(logits[e]) : score[e] / sum;
}

/* Chooses the experts. Scores are monotonic in their logits, but nearly equal logits may round to equal scores; so the
 * choice is made by logits, except where a bias or group sums are added to scores. */
static void choose(const struct op_route *op, const float *logits, const float *score, uint32_t n, uint32_t *id)
{
    bool taken[EXPERTS_MAX] = {false};
    const float *by = op->kind != ROUTE_SOFTMAX_CHOSEN && (op->select_bias || op->n_group > 1) ? score : logits;
    float choice[EXPERTS_MAX];
    for (uint32_t e = 0; op->select_bias && e < n; e++)
        choice[e] = by[e] + op->select_bias[e];
    if (op->select_bias)
        by = choice;
    if (op->n_group > 1)
        drop_groups(op, by, n, taken);
    greatest(by, n, op->n_used, taken, id);
}

static void route_item(void *arg, uint32_t row, uint32_t thread)
{
    const struct route *r = arg;
    const struct op_route *op = r->op;
    const float *logits = r->logits + (size_t)row * r->n_expert;
    float score[EXPERTS_MAX] = {0}, sum = 0.0f, *out = r->d->route + (size_t)row * 2 * op->n_used,
          *weight = out + op->n_used;
    uint32_t id[EXPERTS_USED_MAX];
    bool broken = false, late = op->kind == ROUTE_SOFTMAX_CHOSEN;
    (void)thread;
    if (!late)
        scores_of(op, logits, r->n_expert, score);
    choose(op, logits, score, r->n_expert, id);
    if (late)
        sum = softmax_terms(logits, id, op->n_used, weight);
    for (uint32_t i = 0; i < op->n_used; i++) {
        out[i] = (float)id[i];
        if (!late) {
            weight[i] = score[id[i]];
            sum += weight[i];
        }
    }
    for (uint32_t i = 0; (late || op->normalise) && i < op->n_used; i++)
        weight[i] /= sum < 1e-20f ? 1e-20f : sum; /* sigmoids may all underflow in F32 */
    for (uint32_t e = 0; e < r->n_expert; e++)
        broken |= isnan(logits[e]);
    for (uint32_t i = 0; i < op->n_used; i++)
        weight[i] = broken ? NAN : weight[i] * op->scale * (op->expert_scale ? op->expert_scale[id[i]] : 1.0f);
}

/* Whether the op's numbers of experts, groups and chosen ones are consistent; sets the step's error if not. */
static bool can_choose(struct device *d, const struct op_route *op, uint32_t n_expert)
{
    uint32_t group = op->n_group > 1 ? op->n_group : 1, kept = op->n_group > 1 ? op->n_group_used : 1;
    bool divides = n_expert && n_expert <= EXPERTS_MAX && n_expert % group == 0;
    bool enough = divides && kept && kept <= group && op->n_used <= n_expert / group * kept;
    bool best = op->n_group <= 1 || (divides && op->group_best && op->group_best <= n_expert / group);
    if (enough && best && op->n_used && op->n_used <= EXPERTS_USED_MAX)
        return true;
    cpu_fail(d, HEARTH_EPARAMS, "%u of %u experts, from %u of %u groups by the best %u of each, cannot be chosen",
             (unsigned)op->n_used, (unsigned)n_expert, (unsigned)kept, (unsigned)group, (unsigned)op->group_best);
    return false;
}

void cpu_route(struct device *d, const struct op_route *op)
{
    const struct weight *w = op->w;
    if (d->err.code || !can_choose(d, op, w->n_out) || !cpu_fits(d, "d_route", 2 * op->n_used, d->dims.d_route))
        return;
    cpu_norm_rows(d, &op->norm, NULL, d->batch.n_row);
    if (!cpu_matmul_begin(d, "route", w, &d->normed) || !cpu_scratch(d, &d->scores, (size_t)d->batch.n_row * w->n_out))
        return;
    struct route r = {.d = d, .op = op, .n_expert = w->n_out, .logits = d->scores.v};
    struct matmul_job p = cpu_matmul_job(d, w, &d->normed, &r);
    d->d_route = 2 * op->n_used;
    pool_run(d->pool, p.n_item, logits_item, &p);
    pool_run(d->pool, d->batch.n_row, route_item, &r);
}
