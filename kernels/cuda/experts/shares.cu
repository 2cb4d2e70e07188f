/* shares.cu - which products in front of a router also compute its logits: shares.cuh. */
#include "kernels/cuda/experts/shares.cuh"
#include "kernels/cuda/plan.cuh"

static shares_fn *shares_fn_of(enum dtype type)
{
    switch (type) {
#define X(t, T, number) \
    case DT_##T:        \
        return quant<DT_##T>::OWN ? shares_##t : (shares_fn *)NULL;
        QUANTS(X)
#undef X
    case DT_COUNT:
        break;
    }
    return NULL;
}

/* Taken for one row on Hopper, where gemv has one tile a block and all of K in one set of warps, and its output is
 * x. */
bool proj_shares(struct device *d, struct op_call *p, const struct op *o, const gemm_args &a)
{
    const wdev *w = wdev_of(o->proj.w);
    if (d->cc < 90 || d->bucket != 1 || !a.gemv || !row_norms_here(d) || p->end - o < 3 || o[1].kind != OP_ROUTE ||
        o[2].kind != OP_EXPERTS_UP)
        return false;
    const struct op_route *op = &o[1].route;
    const wdev *router = wdev_of(op->w);
    uint32_t n = router->n_in, n_expert = router->n_out, sms = d->sms;
    bool plain = !o->proj.post_norm && !o->proj.aside && a.out == d->ws.x && !a.pairs && w->n_part == 1 &&
                 w->n_tile <= SHARES_TILES * sms && (w->n_tile > sms || w->n_kblk <= 2 * K_SLICES);
    bool routes = router->role == WEIGHT_ROUTER && deferred(op->norm) && n == w->n_out && n % ROUTE_TILE == 0 &&
                  !((uintptr_t)router->part[0].raw & 15) && n_expert <= SHARES_EXPERTS && (n_expert + 1) / 2 <= sms &&
                  chooses_256(choice_of(op, n_expert)) && op->n_used == o[2].experts_up.n_used;
    shares_fn *run = shares_fn_of(w->part[0].type);
    if (!plain || !routes || !run || !experts_choose(d, &o[2].experts_up))
        return false;
    shares_args s = {(const float *)router->part[0].raw,
                     op->norm.w,
                     n_expert,
                     n,
                     {said_shares(d->ws.experts.said, sms), w->n_tile},
                     d->step,
                     p->n_route + 1};
    if (!run(d, a, s))
        return false;
    p->shares_of = o + 1, p->n_route++;
    return true;
}
