/*
 * gemm_wgmma.cu - the matrix ops for 9 to 128 rows on Hopper, through wgmma.cuh: prompts of a chat turn, batches of
 * sequences. Not in the invariant mode: weights are rounded to fp16 here, and a row's bits depend on the batch.
 *
 * A kernel leaves its products in pieces (sums.cuh); what comes after it in the stream adds them up on its way: q|k|v's
 * tail, the norm before the next matrix, the gated activation before `down`. So a projection or gate|up waits in the
 * device for the op that follows.
 */
#include "kernels/cuda/wgmma.cuh"

/* --- launchers ------------------------------------------------------------------------------------------------ */

struct shape {
    uint32_t cols, groups, blocks;
};
template <int N> static constexpr shape shape_of()
{
    return {N, wg_shape<N>::GROUPS, wg_shape<N>::BLOCKS};
}

static const struct shape *shape_for(uint32_t rows)
{
    static const struct shape all[] = {shape_of<32>(), shape_of<64>(), shape_of<96>(), shape_of<128>()};
    const struct shape *s = all;
    while (s->cols < rows)
        s++;
    return s;
}

typedef void wg_kernel(const wg_args);
/* d: where it is to be launched, or NULL. */
template <int TA, int TB> static wg_kernel *by_cols(struct device *d, uint32_t cols)
{
    static uint32_t done[WG_ROWS / 32];
    wg_kernel *k = cols == 32   ? gemm_wg<TA, TB, 32>
                   : cols == 64 ? gemm_wg<TA, TB, 64>
                   : cols == 96 ? gemm_wg<TA, TB, 96>
                                : gemm_wg<TA, TB, 128>;
    if (d && !(done[cols / 32 - 1] >> d->index & 1)) {
        cuda_smem(d, k, d->smem_max);
        done[cols / 32 - 1] |= 1u << d->index;
    }
    return k;
}

/* The kernel for a weight's types, or NULL. */
static wg_kernel *kernel_of(struct device *d, const wdev *w, uint32_t cols)
{
    enum dtype a = w->part[0].type, b = a;
    for (uint32_t i = 1; i < w->n_part; i++)
        if (w->part[i].type != a) {
            if (b != a && b != w->part[i].type)
                return NULL;
            b = w->part[i].type;
        }
    switch (a) {
    case DT_Q4_K:
        return b == a ? by_cols<DT_Q4_K, DT_Q4_K>(d, cols) : b == DT_Q6_K ? by_cols<DT_Q4_K, DT_Q6_K>(d, cols) : NULL;
    case DT_Q5_K:
        return b == a ? by_cols<DT_Q5_K, DT_Q5_K>(d, cols) : b == DT_Q6_K ? by_cols<DT_Q5_K, DT_Q6_K>(d, cols) : NULL;
    case DT_Q6_K:
        return b == a ? by_cols<DT_Q6_K, DT_Q6_K>(d, cols) : NULL;
    case DT_Q4_0:
        return b == a ? by_cols<DT_Q4_0, DT_Q4_0>(d, cols) : NULL;
    default:
        return NULL;
    }
}

bool wg_takes(const struct device *d)
{
    bool all = d->cc == 90 && d->variant != VARIANT_REFERENCE && d->weights != NULL;
    for (const struct wdev *w = d->weights; w && all; w = w->next)
        all = w->role == WEIGHT_EMBED || w->role == WEIGHT_HEAD || (w->packed && kernel_of(NULL, w, 32));
    return all;
}

/* Groups and blocks' shares follow a matrix and the columns: at most so many pieces of at most so many rows. */
uint64_t wg_sums_bytes(const struct device *d, const struct workspace_dims *dims)
{
    uint64_t n = dims->d_q + 2ull * dims->d_kv, most = 256ull * 96;
    n = n > dims->d_model ? n : dims->d_model;
    n = n > 2ull * dims->d_ff ? n : 2ull * dims->d_ff;
    return d->cc == 90 && dims->n_row >= WG_ROWS_MIN ? ((n + 4 * 256) * WG_ROWS + (2ull * d->sms + 8) * most) * 4 : 0;
}

uint64_t wg_x_bytes(const struct workspace_dims *dims)
{
    uint32_t k = dims->d_q > dims->d_ff ? dims->d_q : dims->d_ff;
    return (uint64_t)pad256(k > dims->d_model ? k : dims->d_model) * WG_ROWS * sizeof(__half);
}

/* Launches w times d->ws.wg_x; whole: blocks have whole groups. Says where the products are. */
static sums product(struct device *d, const wdev *w, wg_args &a, uint32_t cap, bool whole)
{
    const struct shape *f = shape_for(cap);
    uint32_t tiles = f->groups * 4, unit = 0;
    sums s = {};
    a.w = w->packed, a.n_rec = w->n_rec, a.n_part = w->interleaved ? 1 : w->n_part;
    a.x[0] = d->ws.wg_x[0], a.x[1] = d->ws.wg_x[1];
    for (uint32_t i = 0; i < a.n_part; i++) {
        const wpart &p = w->part[i];
        a.part[i] = {a.n_group, p.n_tile, p.type != w->part[0].type, p.off};
        s.part[i] = {a.n_group, p.row0};
        a.n_group += (p.n_tile + tiles - 1) / tiles;
        unit = t16_unit(p.type) > unit ? t16_unit(p.type) : unit;
    }
    uint32_t slots = d->sms * f->blocks, units = a.n_group * a.n_rec;
    a.per = whole ? (a.n_group + slots - 1) / slots * a.n_rec : (units + slots - 1) / slots;
    a.segs = (a.per + a.n_rec - 2) / a.n_rec + 1;
    a.sums = d->ws.wg_sums;
    /* two rings: stages of weights first, up to what hides the memory's latency, then activations */
    uint32_t room = ((uint32_t)d->smem_max + 1024) / f->blocks - 1024 - WG_FIXED, wst = tiles * unit,
             xst = f->cols * 256;
    a.xstages = 2;
    a.wstages = min_u((room - a.xstages * xst) / wst, 3);
    a.xstages = min_u((room - a.wstages * wst) / xst, WG_STAGES);
    a.wstages = min_u((room - a.xstages * xst) / wst, WG_STAGES);
    wg_kernel *k = kernel_of(d, w, f->cols);
    cuda_launch(d, k, dim3((units + a.per - 1) / a.per), f->groups * 128 + 128,
                WG_FIXED + a.wstages * wst + a.xstages * xst, LAUNCH_PDL, a);
    s.p = a.sums, s.cols = f->cols, s.rows = f->groups * 64, s.n_rec = a.n_rec, s.per = a.per, s.segs = a.segs;
    s.n_part = a.n_part, s.glu = w->interleaved ? w->part[1].row0 : 0;
    return s;
}

/* The forms that w's types want. */
static int forms_of(struct device *d, const wdev *w, uint32_t cap, act_buf out[2])
{
    uint32_t cols = shape_for(cap)->cols;
    int n = 0;
    for (uint32_t o = 0; o < 2; o++) {
        bool want = false;
        for (uint32_t i = 0; i < w->n_part; i++)
            want = want || wg_order(w->part[i].type) == (int)o;
        if (want)
            out[n++] = {d->ws.wg_x[o], cols, FORM_WG + o};
    }
    return n;
}

static void normed(struct device *d, const wdev *w, const struct norm *n, bool gather, uint32_t cap)
{
    act_buf out[2];
    int two = forms_of(d, w, cap, out) == 2;
    norm_sums(d, n, w->n_in, &d->add, d->add_bias, &out[0], two ? &out[1] : NULL, gather, 0, cap);
    d->add.p = NULL;
}

static uint32_t d_ff_of(const struct op_ffn_up *op)
{
    return op->glu == GLU_GELU ? wdev_of(op->w)->n_out : wdev_of(op->w)->n_out / 2;
}

void wg_flush(struct device *d)
{
    if (d->add.p)
        sums_to_x(d, &d->add, d->add_bias, d->add_n, d->cap);
    if (d->gate_up.p)
        sums_glu(d, &d->ffn_up, &d->gate_up, d_ff_of(&d->ffn_up), &d->ws.ff, d->cap);
    d->add.p = d->gate_up.p = NULL;
}

void wg_qkv(struct device *d, const struct op_qkv *op)
{
    const wdev *w = wdev_of(op->w);
    wg_args a = {};
    normed(d, w, &op->norm, false, d->cap);
    sums s = product(d, w, a, d->cap, false);
    sums_qkv(d, op, &s, d->cap);
}

void wg_proj(struct device *d, const struct op_proj *op)
{
    const wdev *w = wdev_of(op->w);
    act_buf out[2];
    wg_args a = {};
    forms_of(d, w, d->cap, out);
    if (op->in == ACT_FF && d->gate_up.p) {
        sums_glu(d, &d->ffn_up, &d->gate_up, w->n_in, &out[0], d->cap);
        d->gate_up.p = NULL;
    } else
        act_to_wg(d, op->in == ACT_ATT ? &d->ws.att : &d->ws.ff, w->n_in, &out[0]);
    wg_flush(d);
    sums s = product(d, w, a, d->cap, false);
    if (op->post_norm) {
        sums_to_tmp(d, &s, w->n_out, d->cap);
        tail_proj(d, op, w->n_out, 0, d->cap);
        return;
    }
    d->add = s, d->add_bias = op->bias, d->add_n = w->n_out;
}

void wg_ffn_up(struct device *d, const struct op_ffn_up *op)
{
    const wdev *w = wdev_of(op->w);
    wg_args a = {};
    normed(d, w, &op->norm, false, d->cap);
    d->gate_up = product(d, w, a, d->cap, false);
    d->ffn_up = *op;
}

bool wg_head(struct device *d, const struct op_head *op)
{
    const wdev *w = wdev_of(op->w);
    wg_args a = {};
    wg_flush(d);
    if (d->out_cap < WG_ROWS_MIN || !w->packed || !kernel_of(NULL, w, 32))
        return false;
    normed(d, w, &op->norm, true, d->out_cap);
    a.out = d->ws.logits, a.ldout = d->ws.ldl, a.n_out = w->n_out, a.cap = d->out_cap;
    a.scale = op->scale, a.softcap = op->softcap;
    product(d, w, a, d->out_cap, true);
    return true;
}
