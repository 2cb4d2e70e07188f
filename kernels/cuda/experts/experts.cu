/*
 * experts.cu - op_experts_up and op_experts_down: the choice of a code path. pairs.cu has the steps around their
 * products.
 *
 * ACT_EXPERTS is f32, [pairs][d_expert]: few quantises these rows to 16 bits, and for grouped they are rounded to fp16.
 */
#include "kernels/cuda/experts/experts.cuh"
#include "kernels/cuda/experts/pairs.cuh"
#include "kernels/cuda/experts/row.cuh"
#include "kernels/cuda/experts/sort.cuh"
#include "kernels/cuda/experts/wgmma.cuh"
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/plan.cuh"

static experts_fn *fn_of(enum dtype type)
{
    switch (type) {
#define X(t, T, number) \
    case DT_##T:        \
        return quant<DT_##T>::OWN ? experts_##t : (experts_fn *)NULL;
        QUANTS(X)
#undef X
    case DT_COUNT:
        break;
    }
    return NULL;
}

/* Whether each row is computed by itself. This depends on the matrix and, only where bits may differ between batches,
 * on the number of rows. */
static bool few(const struct device *d, const wdev *w, uint32_t n_used, uint32_t n_row, enum invariance how)
{
    if (how == INVARIANT_PROMPT && experts_wg_takes(d, w, n_used, n_row, how))
        return false;
    uint32_t records = w->role == WEIGHT_EXPERTS_DOWN ? n_used * w->n_kblk : w->n_kblk;
    enum dtype type = w->part[0].type;
    return d->cc >= 80 && int_type(type) && (how || n_row <= GEMV_ROWS) &&
           few_fixed(records) + WARPS * t16_frag_bytes(type) <= smem_for(d, 1);
}

/* Whether the product goes through grouped.cuh. */
static bool grouped(const struct device *d, const wdev *w, uint32_t n_used)
{
    return !few(d, w, n_used, d->bucket, d->invariant) && !experts_wg_takes(d, w, n_used, d->bucket, d->invariant);
}

const char *experts_path(const struct device *d, const struct op *o, uint32_t n_row, bool invariant)
{
    bool down = o->kind == OP_EXPERTS_DOWN;
    uint32_t n_used = down ? o->experts_down.n_used : o->experts_up.n_used;
    const wdev *w = wdev_of(op_weight(o));
    enum invariance how = invariant ? INVARIANT_DECODE : INVARIANT_OFF;
    return few(d, w, n_used, n_row, how) ? "few" : experts_wg_takes(d, w, n_used, n_row, how) ? "wgmma" : "grouped";
}

bool route_takes_pieces(const struct device *d, const struct op_call *p, const struct op *o)
{
    const struct op *next = p->next;
    bool waits = p->acts.pieces & ACT_BIT(ACT_X) && next && next->kind == OP_EXPERTS_UP;
    if (!waits || d->bucket > WG_ROWS || d->invariant) /* the norm's bits differ from norm_rows()'s here */
        return false;
    const struct op_experts_up *up = &next->experts_up;
    const wdev *w = wdev_of(up->w);
    return up->norm.kind == NORM_RMS && up->norm.w && p->x_n == w->n_in && wdev_of(o->route.w)->n_in == w->n_in &&
           !few(d, w, up->n_used, d->bucket, d->invariant);
}

bool experts_choose(const struct device *d, const struct op_experts_up *op)
{
    const wdev *w = wdev_of(op->w);
    return w->role == WEIGHT_EXPERTS_UP && norm_deferrable(op->norm) && w->n_in % 8 == 0 &&
           few(d, w, op->n_used, 1, d->invariant);
}

static bool fits(struct device *d, const wdev *w, enum weight_role role, uint32_t n_part, uint32_t n_used,
                 uint32_t d_expert)
{
    const struct workspace_dims *s = &d->ws.dims;
    if (w->role == role && w->n_expert && w->n_expert <= EXPERTS_MAX && w->n_part == n_part && n_used &&
        n_used <= EXPERTS_USED_MAX && 2 * n_used <= s->d_route && (uint64_t)n_used * d_expert <= s->d_experts)
        return true;
    cuda_refuse(d, HEARTH_EPARAMS, "%u of %u experts of %u parts, %u wide: not what this op takes, or no room for it",
                n_used, w->n_expert, w->n_part, d_expert);
    return false;
}

/* Whether rows of n columns of a latent space fit where rows of the residual stream lie. */
static bool latent_fits(struct device *d, uint32_t n)
{
    if (n > d->ws.dims.d_model)
        cuda_refuse(d, HEARTH_EUNSUPPORTED,
                    "the GPU has no room for experts in a latent space of %u, wider than the residual stream, %u", n,
                    d->ws.dims.d_model);
    return n <= d->ws.dims.d_model;
}

/* Whether a shared expert's matrix has the shape and type of the others. */
static bool alike(const wdev *w, const wdev *shared)
{
    return shared->packed && shared->n_part == w->n_part && shared->n_in == w->n_in && shared->n_tile == w->n_tile &&
           shared->interleaved == w->interleaved && shared->part[0].type == w->part[0].type &&
           shared->part[shared->n_part - 1].type == w->part[0].type;
}

/* Columns of a product: as few as suffice for most experts, so that few columns are empty. */
static uint32_t columns_of(const struct device *d, uint32_t n_used, uint32_t n_expert)
{
    return 2 * d->bucket * n_used <= 8 * n_expert ? 8 : 32;
}

/*
 * Whether each block of grouped.cuh sorts the step's pairs, n_slot for a row, by itself; then hidden rows are prepared
 * by `up`, and the first weights of `down` are prefetched. With MXFP4 and eight columns, this is slower at eight
 * sequences.
 */
static bool sorts_here(const struct device *d, const wdev *w, uint32_t n_used, uint32_t n_slot)
{
    bool slower = w->part[0].type == DT_MXFP4 && columns_of(d, n_used, w->n_expert) == 8;
    return d->cc >= 90 && !slower && sort_fits(w->n_expert, d->bucket * n_slot);
}

/*
 * Whether the shared expert that comes with these experts (the order of ops is up, its own up, down, its own down) can
 * be one more expert of each row: it must have their shape and types, and be added to the same stream. Then the
 * launches of the experts do its work too. alone: the step goes through few.
 */
static bool takes_shared(const struct device *d, const struct op_call *p, const struct op *up, bool alone)
{
    const struct op_experts_up *u = &up->experts_up;
    if (p->end - up < 4 || up[1].kind != OP_FFN_UP || up[2].kind != OP_EXPERTS_DOWN || up[3].kind != OP_PROJ)
        return false;
    const struct op_ffn_up *su = &up[1].ffn_up;
    const struct op_experts_down *e = &up[2].experts_down;
    const struct op_proj *sd = &up[3].proj;
    const wdev *w = wdev_of(u->w), *down = wdev_of(e->w);
    bool plain = !u->bias && !su->bias && !e->bias && !sd->bias && !e->post_norm && !sd->post_norm && !e->aside_norm &&
                 !sd->aside && e->x_scale == 0 && sd->x_scale == 0 && sd->in == ACT_FF;
    bool same = u->norm.kind == su->norm.kind && u->norm.w == su->norm.w && u->norm.b == su->norm.b &&
                u->norm.eps == su->norm.eps && u->glu == su->glu && e->residual_scale == sd->residual_scale &&
                u->n_used == e->n_used && u->n_used < EXPERTS_USED_MAX;
    if (!plain || !same || d->invariant == INVARIANT_PROMPT || !norm_deferrable(u->norm) || w->n_in % 8 ||
        !alike(w, wdev_of(su->w)) || !alike(down, wdev_of(sd->w)))
        return false;
    if (alone)
        return w->part[0].n_out <= d->ws.ldtmp && few(d, w, u->n_used + 1, d->bucket, d->invariant) &&
               few(d, down, u->n_used + 1, d->bucket, d->invariant);
    return d->path == PATH_WGMMA && !d->invariant && sorts_here(d, w, u->n_used, u->n_used + 1) &&
           sorts_here(d, down, u->n_used, u->n_used + 1) && d->bucket * (u->n_used + 1) <= d->ws.rows * u->n_used &&
           grouped(d, down, u->n_used);
}

/* The experts_down after `up` whose hidden rows `up` can prepare itself, as no other op reads them; or NULL. */
static const struct op *prepares(const struct device *d, const struct op_call *p, const struct op *up)
{
    const struct op *down = up + 1;
    if (down < p->end && down->kind == OP_FFN_UP)
        down++;
    if (down >= p->end || down->kind != OP_EXPERTS_DOWN)
        return NULL;
    const wdev *w = wdev_of(up->experts_up.w), *v = wdev_of(down->experts_down.w);
    bool fits = has_gate(up->experts_up.glu) && w->interleaved && v->n_in == w->part[0].n_out &&
                up->experts_up.n_used == down->experts_down.n_used;
    return fits && grouped(d, v, up->experts_up.n_used) ? down : NULL;
}

/*
 * Whether beside.cuh takes the dense network between these experts (the order of ops is up, its own up, its own down,
 * down): in a step of one row, each pair of matrices of one weight type, with norms of the supported kinds. The result
 * is bit-identical to running the ops separately.
 */
static bool takes_beside(const struct device *d, const struct op_call *p, const struct op *up)
{
    const struct op_experts_up *u = &up->experts_up;
    if (p->end - up < 4 || up[1].kind != OP_FFN_UP || up[2].kind != OP_PROJ || up[3].kind != OP_EXPERTS_DOWN)
        return false;
    const struct op_ffn_up *own = &up[1].ffn_up;
    const struct op_proj *own_down = &up[2].proj;
    const struct op_experts_down *e = &up[3].experts_down;
    const wdev *w = wdev_of(u->w), *ow = wdev_of(own->w), *down = wdev_of(e->w), *od = wdev_of(own_down->w);
    auto one_type = [](const wdev *v, enum dtype type) {
        return v->packed && v->part[0].type == type && v->part[v->n_part - 1].type == type;
    };
    auto fits = [&](const wdev *v, const wdev *beside,
                    uint32_t n) { /* as beside_smem() */
                                  uint32_t fixed = few_fixed(beside->n_kblk + n * v->n_kblk) + 128;
                                  return fixed + 2 * WARPS * t16_frag_bytes(v->part[0].type) <= smem_for(d, 2);
    };
    bool one = d->bucket == 1 && p->told && d->cc >= 90 && d->invariant != INVARIANT_PROMPT && row_norms_here(d) &&
               gemv_takes(d, &up[1]) && gemv_takes(d, &up[2]);
    bool plain = !u->bias && !own->bias && !own->row_gate && !own_down->bias && !e->bias && own_down->aside &&
                 own_down->in == ACT_FF && own_down->x_scale == 0 && e->aside_norm && u->n_used == e->n_used;
    bool glus = has_gate(u->glu) && has_gate(own->glu) && own->glu != GLU_OAI && w->interleaved && ow->interleaved;
    bool norms = plain && own_down->post_norm && e->post_norm && norm_deferrable(u->norm) &&
                 norm_deferrable(own->norm) && norm_deferrable(*own_down->post_norm) &&
                 norm_deferrable(*e->post_norm) && norm_deferrable(*e->aside_norm);
    bool types = one_type(w, w->part[0].type) && one_type(ow, w->part[0].type) && one_type(down, down->part[0].type) &&
                 one_type(od, down->part[0].type);
    bool one_set = od->n_tile > (uint32_t)d->sms || od->n_kblk <= 2 * K_SLICES; /* else gemv sums in another order */
    bool sizes = one_set && w->n_in == ow->n_in && w->n_in % 8 == 0 && down->n_out == od->n_out &&
                 down->n_out <= ROW_NORM_MAX && down->n_tile <= ROW_SLOTS / 2 * (uint32_t)d->sms &&
                 d->ws.ff.layout == 0;
    return one && glus && norms && types && sizes && few(d, w, u->n_used, 1, INVARIANT_DECODE) &&
           few(d, down, u->n_used, 1, INVARIANT_DECODE) && fits(w, ow, 1) && fits(down, od, u->n_used);
}

static experts_args args_of(struct device *d, const wdev *w, uint32_t n_used)
{
    const struct experts_room *room = &d->ws.experts;
    experts_args a = {};
    a.w = w->packed, a.expert_bytes = w->expert_bytes;
    a.n_expert = w->n_expert, a.n_tile = w->n_tile, a.n_kblk = w->n_kblk, a.k = w->n_in, a.n_used = n_used;
    a.route = room->route, a.step = d->step, a.bucket = d->bucket, a.bulk = d->cc >= 90;
    a.n_out = w->part[0].n_out, a.hidden = room->hidden;
    a.n_slot = n_used, a.shared_by = room->row_gate, a.shared_hidden = d->ws.tmp, a.ldshared = d->ws.ldtmp;
    a.order = room->order, a.n_job = room->n_job, a.jobs = room->jobs;
    a.cols = columns_of(d, n_used, w->n_expert);
    return a;
}

/* Stride between the records of prepared hidden rows, in halves. */
static uint64_t hidden_step(const struct device *d, const experts_args &a)
{
    return (uint64_t)d->ws.rows * a.n_used * XFRAG_KBLK;
}

/* Sorts the pairs by expert, unless blocks sort them themselves or an earlier op already had them sorted into jobs of
 * this size. */
static void sorted(struct device *d, struct op_call *p, const experts_args &a)
{
    if (a.here)
        return;
    if (p->job_pairs != a.cols)
        pairs_sort(d, a);
    p->job_pairs = a.cols;
}

/* The experts_down that reads this experts_up's output, where both go through wgmma; else NULL. */
static const struct op *down_of_columns(const struct device *d, const struct op_call *p, const struct op *up)
{
    for (const struct op *o = up + 1; o != p->end && o->kind != OP_ROUTE && o->kind != OP_EXPERTS_UP; o++)
        if (o->kind == OP_EXPERTS_DOWN)
            return o->experts_down.n_used == up->experts_up.n_used &&
                           experts_wg_takes(d, wdev_of(o->experts_down.w), o->experts_down.n_used, d->bucket,
                                            d->invariant)
                       ? o
                       : NULL;
    return NULL;
}

static void beside_of(experts_args *a, const wdev *w)
{
    a->beside.w = w->packed + w->part[0].off, a->beside.n_tile = w->n_tile, a->beside.n_kblk = w->n_kblk,
    a->beside.k = w->n_in;
    a->beside.n_out = w->part[0].n_out;
}

/* Launches `down` of the experts and of the network beside them in one kernel, with the norms of both results. */
static void down_beside_run(struct device *d, const struct op *o, experts_args &a)
{
    const struct op_experts_down *op = &o->experts_down;
    const struct op_proj *own = &o[-1].proj;
    struct experts_beside *b = &a.beside;
    beside_of(&a, wdev_of(own->w));
    b->ff = d->ws.ff, b->scale = residual_scale(own);
    b->x = d->ws.x, b->x_scale = op->x_scale != 0 ? op->x_scale : 1;
    b->own = row_norm_next(d, own->post_norm), b->last = row_norm_next(d, op->aside_norm);
    b->post = b->own, b->post.w = op->post_norm->w, b->post.eps = op->post_norm->eps;
    b->last.said += ROW_SLOTS / 2 * d->sms;
    fn_of(wdev_of(op->w)->part[0].type)(d, a, EXPERTS_DOWN_BESIDE);
}

/*
 * Decides whether `down` is computed by slices (few_down.cuh) and receives the hidden units of `up`, the op before it,
 * before that kernel has ended. Returns how many slices a block then has besides its own tile, or 0. `up` publishes
 * whole tiles of hidden units, for one row, without a shared expert.
 */
static uint32_t down_hears(const struct device *d, const struct op *o)
{
    const struct op_experts_up *u = &o[0].experts_up;
    const struct op_experts_down *e = &o[1].experts_down;
    if (d->cc < 90 || d->bucket != 1 || o[1].kind != OP_EXPERTS_DOWN)
        return 0;
    const wdev *up = wdev_of(u->w), *down = wdev_of(e->w);
    uint32_t sms = d->sms, tiles = down->n_tile, n_out = up->part[0].n_out;
    bool fits = e->n_used == u->n_used && down->n_in == n_out && n_out % (has_gate(u->glu) ? 8 : 16) == 0 &&
                hears_up(up->part[0].type) && hears_up(down->part[0].type) && e->n_used * down->n_kblk >= WARPS &&
                few(d, down, e->n_used, 1, d->invariant) && norm_deferrable(u->norm) && up->n_in % 8 == 0;
    uint32_t more = tiles > sms ? ((tiles - sms) * WARPS + sms - 1) / sms : 0;
    return fits && more < WARPS ? more : 0;
}

/* The router's part of `up`'s arguments, where proj_shares() and route_run() have dropped the router kernel of the op
 * before these experts. */
static experts_router router_of(struct device *d, const struct op_route *op)
{
    const wdev *w = wdev_of(op->w);
    return {{said_shares(d->ws.experts.said, d->sms), w->n_in / ROUTE_TILE},
            choice_of(op, w->n_out),
            op->bias,
            op->norm.eps,
            d->ws.experts.route};
}

/*
 * `up` through grouped.cuh. Where possible its blocks also sort the pairs, as the route is published, and leave
 * prepared hidden rows for `down`.
 */
static void grouped_up(struct device *d, struct op_call *p, const struct op *o, experts_args &a)
{
    const wdev *w = wdev_of(o->experts_up.w);
    a.here = sorts_here(d, w, a.n_used, a.n_slot);
    sorted(d, p, a);
    p->prepared = a.here ? prepares(d, p, o) : NULL;
    if (p->prepared)
        a.to = d->ws.experts.x, a.to_step = hidden_step(d, a);
    a.routed = p->routed = a.here;
    a.xf = d->ws.x, a.ldxf = d->ws.ldx, a.norm = o->experts_up.norm; /* for the shared expert's gate */
    if (a.here && p->told && p->normed == o)
        a.said = d->ws.experts.said, a.nth = p->n_route;
    fn_of(w->part[0].type)(d, a, EXPERTS_UP_GROUPED);
}

/* `down` through grouped.cuh, into ws.experts.y. */
static void grouped_down(struct device *d, struct op_call *p, const struct op *o, experts_args &a)
{
    const wdev *w = wdev_of(o->experts_down.w);
    if (p->shared[1] == o + 1)
        a.shared = wdev_of(p->shared[1]->proj.w)->packed, a.n_slot++;
    a.here = sorts_here(d, w, a.n_used, a.n_slot);
    sorted(d, p, a);
    a.x = {d->ws.experts.x, XFRAG_KBLK, LAYOUT_PREPARED, XFRAG_ROWS * XFRAG_KBLK}, a.x_step = hidden_step(d, a);
    if (p->prepared != o)
        pairs_prepare(d, a, d->ws.experts.x);
    a.routed = a.here && p->routed && p->prepared == o;
    if (a.routed && p->told) /* `up` may have triggered this launch before the router's end */
        a.said = d->ws.experts.said, a.nth = p->n_route;
    fn_of(w->part[0].type)(d, a, EXPERTS_DOWN_GROUPED);
}

void experts_up_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_experts_up *op = &o->experts_up;
    const wdev *w = wdev_of(op->w);
    uint32_t d_expert = w->part[0].n_out;
    bool gated = has_gate(op->glu);
    if (!fits(d, w, WEIGHT_EXPERTS_UP, gated ? 2 : 1, op->n_used, d_expert) || (op->latent && !latent_fits(d, w->n_in)))
        return;
    if (op->latent && (w->n_in != d->mix_cols || op->norm.kind != NORM_NONE)) {
        cuda_refuse(d, HEARTH_EPARAMS,
                    "experts_up multiplies %u columns in a latent space, or after a norm; there are %u", w->n_in,
                    d->mix_cols);
        return;
    }
    experts_args a = args_of(d, w, op->n_used);
    a.bias = op->bias, a.glu = op->glu, a.gated = gated;
    bool alone = few(d, w, op->n_used, d->bucket, d->invariant);
    if (alone && norm_deferrable(op->norm) && a.k % 8 == 0)
        a.xf = d->ws.x, a.ldxf = d->ws.ldx, a.norm = op->norm;
    else {
        if (op->latent)
            rows_as_they_are(d, d->ws.mix, d->ws.ldmix, a.k, &d->ws.xn, d->bucket);
        else if (p->normed != o)
            norm_rows(d, &op->norm, a.k, &d->ws.xn, false, 0, d->bucket);
        a.x = d->ws.xn, a.x_step = XFRAG_STRIDE;
    }
    p->shared[0] = p->shared[1] = p->columns = NULL;
    if (!alone && experts_wg_takes(d, w, op->n_used, d->bucket, d->invariant)) {
        const struct op *down = down_of_columns(d, p, o);
        a.cols = experts_wg_cols(d, w, op->n_used);
        sorted(d, p, a);
        experts_wg_columns(d, a, w, false);
        experts_wg_up(d, a, w, down ? wdev_of(down->experts_down.w) : NULL);
        p->columns = down, p->routed = false;
        return;
    }
    if (takes_shared(d, p, o, alone)) {
        p->shared[0] = o + 1, p->shared[1] = o + 3;
        a.shared = wdev_of(o[1].ffn_up.w)->packed, a.shared_gate = o[1].ffn_up.row_gate, a.n_slot++;
    }
    if (!alone) {
        grouped_up(d, p, o, a);
        return;
    }
    if (a.xf && p->told && d->bucket <= GEMV_ROWS)
        a.said = d->ws.experts.said, a.nth = p->n_route;
    if (p->shares_of == o - 1)
        a.router = router_of(d, &o[-1].route);
    if (a.said && p->next == o + 1 && down_hears(d, o))
        a.told = said_hidden(d->ws.experts.said, d->sms);
    p->routed = true;
    if (a.said && p->shares_of != o - 1 && takes_beside(d, p, o)) {
        const struct op_ffn_up *own = &o[1].ffn_up;
        beside_of(&a, wdev_of(own->w));
        a.beside.gain = own->norm.w, a.beside.eps = own->norm.eps, a.beside.glu = own->glu;
        a.beside.ff = d->ws.ff;
        p->shared[0] = o + 1, p->shared[1] = o + 2;
        fn_of(w->part[0].type)(d, a, EXPERTS_UP_BESIDE);
        return;
    }
    fn_of(w->part[0].type)(d, a, EXPERTS_UP);
}

/* Finishes results in ws.tmp, n columns, that were not added to ws.x directly. */
static void down_end(struct device *d, const struct op_experts_down *op, uint32_t n)
{
    if (op->latent)
        rows_as_they_are(d, d->ws.tmp, d->ws.ldtmp, n, &d->ws.att, d->bucket);
    else
        pairs_end(d, op, n);
}

void experts_down_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_experts_down *op = &o->experts_down;
    const wdev *w = wdev_of(op->w);
    struct experts_room *room = &d->ws.experts;
    bool apart = op->post_norm || op->x_scale != 0 || op->latent; /* the result is not simply added to x */
    float *to = apart ? d->ws.tmp : d->ws.x;
    uint32_t ldto = apart ? d->ws.ldtmp : d->ws.ldx;
    if (!fits(d, w, WEIGHT_EXPERTS_DOWN, 1, op->n_used, w->n_in))
        return;
    if (op->aside_norm && (!op->post_norm || d->ws.dims.d_aside < w->part[0].n_out)) {
        cuda_refuse(d, HEARTH_EPARAMS, "experts_down adds to what is aside without a norm, or %u columns to %u",
                    w->part[0].n_out, d->ws.dims.d_aside);
        return;
    }
    if (op->latent && (op->post_norm || op->x_scale != 0 || op->residual_scale != 0 || w->n_out > d->ws.dims.d_q)) {
        cuda_refuse(d, HEARTH_EPARAMS,
                    "experts_down has a norm or a scale in a latent space, or no room for %u columns", w->n_out);
        return;
    }
    if (op->latent && !latent_fits(d, w->n_out))
        return;
    experts_args a = args_of(d, w, op->n_used);
    experts_fn *run = fn_of(w->part[0].type);
    a.bias = op->bias, a.scale = op->residual_scale != 0 ? op->residual_scale : 1;
    if (few(d, w, op->n_used, d->bucket, d->invariant)) {
        a.out = to, a.ldout = ldto, a.anew = apart, a.routed = p->routed;
        if (p->routed && p->told && d->bucket <= GEMV_ROWS)
            a.said = d->ws.experts.said, a.nth = p->n_route;
        if (p->shared[1] == o - 1) { /* set by experts_up_run() */
            down_beside_run(d, o, a);
            return;
        }
        if (a.said && o[-1].kind == OP_EXPERTS_UP) /* `up`, which has set p->routed, is in this program */
            a.more = down_hears(d, o - 1);
        if (a.more) {
            a.told = said_hidden(room->said, d->sms), a.slices = said_slices(room->said);
            p->told = false; /* this tag is used up */
        }
        if (p->shared[1] == o + 1)
            a.shared = wdev_of(p->shared[1]->proj.w)->packed, a.shared_gate = p->shared[0]->ffn_up.row_gate, a.n_slot++;
        run(d, a, EXPERTS_DOWN);
        if (apart)
            down_end(d, op, a.n_out);
        return;
    }
    a.out = room->y, a.ldout = d->ws.ldx;
    if (experts_wg_takes(d, w, op->n_used, d->bucket, d->invariant)) {
        a.cols = experts_wg_cols(d, w, op->n_used);
        sorted(d, p, a);
        if (p->columns != o)
            experts_wg_columns(d, a, w, true);
        experts_wg_down(d, a, w);
    } else
        grouped_down(d, p, o, a);
    bool gated = a.shared && p->shared[0]->ffn_up.row_gate;
    expert_sums s = {room->y,    a.ldout, a.n_out, a.route,  a.n_used,
                     a.n_expert, a.bias,  a.scale, a.n_slot, gated ? a.shared_by : NULL,
                     a.step};
    if (!apart && d->path == PATH_WGMMA && d->bucket <= WG_ROWS && !d->invariant) {
        p->x = partials{}, p->x_bias = NULL, p->x_n = a.n_out;
        p->x_experts = s;
        act_in_pieces(&p->acts, ACT_X);
        return;
    }
    pairs_add(d, &s, to, ldto, apart);
    if (apart)
        down_end(d, op, a.n_out);
}
