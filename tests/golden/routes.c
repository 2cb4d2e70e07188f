/* routes.c - see routes.h. */
#include "tests/golden/routes.h"

#include <math.h>
#include <string.h>

#include "daemon/engine/selfcheck/choice.h"

enum { ROWS = 32 };

void routes_read(struct routes *t, struct run *r, const int32_t *token, uint32_t n)
{
    const struct program *p = &r->m->program;
    memset(t, 0, sizeof *t);
    t->n_token = t->first = n, t->width = r->m->hp.d_model;
    for (uint32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == OP_ROUTE)
            t->n_router++, t->n_used = p->op[i].route.n_used;
    t->chosen = malloc((size_t)t->n_router * n * 2 * t->n_used * sizeof *t->chosen);
    t->x = malloc((size_t)t->n_router * n * t->width * sizeof *t->x);
    assert_true(t->chosen && t->x && t->n_router);
    for (uint32_t i = 0, router = 0; i < p->n_op; i++) {
        if (p->op[i].kind != OP_ROUTE)
            continue;
        assert_int_equal(p->op[i].route.n_used, t->n_used);
        struct program until = program_of(r->m, p->op, i + 1);
        r->program = &until;
        for (uint32_t pos = 0, chunk; pos < n; pos += chunk) {
            size_t at = (size_t)router * n + pos;
            chunk = n - pos < ROWS ? n - pos : ROWS;
            run_step(r, &(struct piece){token + pos, chunk, pos, 0, r->pages}, 1, INVARIANT_DECODE, NULL);
            MUST(r->be->act_read(r->dev, ACT_ROUTE, 0, chunk, t->chosen + at * 2 * t->n_used, &e));
            MUST(r->be->act_read(r->dev, ACT_X, 0, chunk, t->x + at * t->width, &e));
        }
        router++;
    }
    r->program = NULL;
}

void routes_free(struct routes *t)
{
    free(t->chosen), free(t->x);
    memset(t, 0, sizeof *t);
}

/* Judges a choice that differs. x: the CPU's input of the router. */
static void judged(struct routes *t, const struct op_route *op, const float *w, const float *x, const float *device_x,
                   uint32_t router, uint32_t pos)
{
    struct choice_gap gap;
    if (!choice_is_near(op, w, x, device_x, &gap))
        fail_msg("token %u goes to other experts of router %u, where %g decides and logits are off by %g", pos, router,
                 gap.margin, gap.off);
    t->differ++;
    t->first = pos < t->first ? pos : t->first;
    t->margin = fmax(t->margin, gap.margin), t->off = fmax(t->off, gap.off);
}

void routes_follow(struct routes *t, struct run *cpu, const struct op *o, uint32_t router, uint32_t pos, uint32_t n,
                   bool judge)
{
    const struct op_route *op = &o->route;
    uint32_t two = 2 * t->n_used, width = op->w->n_in;
    size_t n_w = (size_t)width * op->w->n_out;
    float *own = malloc((size_t)n * two * sizeof *own), *x = malloc((size_t)n * width * sizeof *x),
          *w = malloc(n_w * sizeof *w);
    assert_true(own && x && w && pos + n <= t->n_token);
    dtype_get((int)op->w->part[0].type)->to_f32(op->w->part[0].data, w, n_w);
    MUST(cpu->be->act_read(cpu->dev, ACT_ROUTE, 0, n, own, &e));
    MUST(cpu->be->act_read(cpu->dev, ACT_X, 0, n, x, &e));
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)router * t->n_token + pos + i;
        const float *of_device = t->chosen + at * two;
        if (choice_same(own + (size_t)i * two, of_device, t->n_used))
            continue;
        if (judge)
            judged(t, op, w, x + (size_t)i * width, t->x + at * t->width, router, pos + i);
        MUST(cpu->be->act_write(cpu->dev, ACT_ROUTE, i, 1, two, of_device, &e));
    }
    free(own), free(x), free(w);
}
