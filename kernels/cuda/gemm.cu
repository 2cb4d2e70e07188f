/*
 * gemm.cu - the four matrix ops on the fused bodies of gemm.cuh: which kernel, over which tiles, with which finish.
 *
 * An epilogue that a block cannot do by itself (q/k norms over a head, a post-norm over the row, heads that do not fit
 * a group of tiles, gate and up of different types) leaves the product in ws.tmp, and finish.cu's kernel ends the op.
 */
#include "kernels/cuda/gemm.cuh"

/* norm(x) of a row a block, prepared; the same sums as narrow's own prologue. */
__global__ void __launch_bounds__(CONSUMERS) gemm_norm(const float *x, uint32_t ldx, uint32_t n, struct norm nm, const uint32_t *gather, __half *out,
                                                       uint32_t ldo, uint32_t row0)
{
    __shared__ float sums[16];
    pdl_go();
    pdl_wait();
    uint32_t row = row0 + blockIdx.x, src = gather ? gather[row] : row;
    norm_chunks(x + (uint64_t)src * ldx, n, nm, (n + 255) / 256, out + (uint64_t)row * ldo, sums, threadIdx.x >> 5, threadIdx.x & 31);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

enum { NARROW_REC = 256 /* records of a row that one block's shared memory holds beside a stage */ };

void gemm_init(struct device *) {}

static gemm_args args_of(const wdev *w, uint32_t row0, uint32_t cap)
{
    gemm_args a = {};
    a.w = w->packed;
    a.n_part = w->interleaved ? 1 : w->n_part;
    a.n_rec = w->n_rec;
    a.tile_hi = w->n_tile;
    a.row0 = row0, a.cap = cap;
    a.k = w->n_in;
    for (uint32_t i = 0; i < a.n_part; i++) {
        const wpart &p = w->part[i];
        gemm_part o = {p.tile0, p.n_tile, p.row0, p.n_out, p.type != w->part[0].type, p.off};
        a.part[i] = o;
    }
    return a;
}

/* The input is norm(x): made by narrow itself, or by a kernel before wide. */
static void from_norm(struct device *d, gemm_args *a, const struct norm *n, const uint32_t *gather)
{
    a->narrow = a->cap == 1 && d->cc >= 90 && a->n_rec <= NARROW_REC;
    if (a->narrow) {
        a->xf = d->ws.x, a->ldxf = d->ws.ldx, a->norm = *n, a->gather = gather;
        return;
    }
    cuda_launch(d, gemm_norm, dim3(a->cap), CONSUMERS, 0, LAUNCH_PDL, d->ws.x, d->ws.ldx, a->k, *n, gather, d->ws.xn, d->ws.ldxn, a->row0);
    a->x = d->ws.xn, a->ldx = d->ws.ldxn;
}

static bool run_types(struct device *d, enum dtype ta, enum dtype tb, gemm_args &a)
{
    return gemm_run_k(d, ta, tb, a) || gemm_run_b(d, ta, tb, a);
}

/* The types of a weight, where one launch takes them all. */
static bool one_launch(const wdev *w, enum dtype *tb)
{
    *tb = w->part[0].type;
    for (uint32_t i = 1; i < w->n_part; i++)
        if (w->part[i].type != w->part[0].type) {
            if (*tb != w->part[0].type && *tb != w->part[i].type)
                return false;
            *tb = w->part[i].type;
        }
    return *tb == w->part[0].type || (w->part[0].type == DT_Q4_K && *tb == DT_Q6_K);
}

static void run(struct device *d, const wdev *w, gemm_args &a)
{
    enum dtype tb;
    a.part_sums = d->ws.split, a.ticket = d->ws.ticket;
    if (one_launch(w, &tb)) {
        run_types(d, w->part[0].type, tb, a);
        return;
    }
    for (uint32_t i = 0; i < w->n_part; i++) {
        gemm_args one = a;
        one.tile_lo = w->part[i].tile0, one.tile_hi = one.tile_lo + w->part[i].n_tile;
        one.pair = 0;
        for (uint32_t j = 0; j < one.n_part; j++)
            one.part[j].second = 0;
        run_types(d, w->part[i].type, w->part[i].type, one);
    }
}

static void to_tmp(struct device *d, gemm_args &a)
{
    a.ep = EP_TMP, a.out = d->ws.tmp, a.ldout = d->ws.ldtmp;
}

void gemm_qkv(struct device *d, const struct op_qkv *op, uint32_t row0, uint32_t cap)
{
    const wdev *w = wdev_of(op->w);
    gemm_args a = args_of(w, row0, cap);
    from_norm(d, &a, &op->norm, NULL);
    if (op->rope)
        a.rope = *op->rope;
    bool neox = a.rope.kind == ROPE_NEOX;
    enum dtype tb;
    bool here = !op->q_norm && !op->k_norm && op->d_head % 2 == 0 && one_launch(w, &tb) &&
                (!neox || (a.rope.n_rot == op->d_head && op->d_head >= 32 && 128 % op->d_head == 0));
    if (!here) {
        to_tmp(d, a);
        run(d, w, a);
        tail_qkv(d, op, row0, cap);
        return;
    }
    a.ep = EP_QKV;
    a.pair = neox ? op->d_head / 32 : 0;
    a.bias = op->bias;
    a.n_head = op->n_head, a.n_kv = op->n_kv, a.d_head = op->d_head;
    a.q = d->ws.q, a.ldq = d->ws.ldq;
    a.kv = kv_view_of(d->kv, op->layer);
    a.step = d->step;
    run(d, w, a);
}

void gemm_proj(struct device *d, const struct op_proj *op, uint32_t row0, uint32_t cap)
{
    const wdev *w = wdev_of(op->w);
    gemm_args a = args_of(w, row0, cap);
    const act_buf &in = op->in == ACT_ATT ? d->ws.att : d->ws.ff;
    a.narrow = cap == 1 && d->cc >= 90 && a.n_rec <= NARROW_REC;
    a.x = in.p, a.ldx = in.ld;
    if (op->post_norm) {
        to_tmp(d, a);
        run(d, w, a);
        tail_proj(d, op, w->n_out, row0, cap);
        return;
    }
    a.ep = EP_PROJ, a.out = d->ws.x, a.ldout = d->ws.ldx, a.bias = op->bias;
    run(d, w, a);
}

void gemm_ffn_up(struct device *d, const struct op_ffn_up *op, uint32_t row0, uint32_t cap)
{
    const wdev *w = wdev_of(op->w);
    uint32_t d_ff = op->glu == GLU_GELU ? w->n_out : w->n_out / 2;
    gemm_args a = args_of(w, row0, cap);
    from_norm(d, &a, &op->norm, NULL);
    if (op->glu != GLU_GELU && !w->interleaved) {
        to_tmp(d, a);
        run(d, w, a);
        tail_glu(d, op, d_ff, row0, cap);
        return;
    }
    a.ep = EP_GLU, a.glu = op->glu, a.glu_rows = w->interleaved ? 8 : 16, a.bias = op->bias, a.ff = d->ws.ff;
    run(d, w, a);
}

void gemm_head(struct device *d, const struct op_head *op, uint32_t row0, uint32_t cap)
{
    const wdev *w = wdev_of(op->w);
    gemm_args a = args_of(w, row0, cap);
    from_norm(d, &a, &op->norm, d->step->out_row);
    a.ep = EP_LOGITS, a.out = d->ws.logits, a.ldout = d->ws.ldl, a.scale = op->scale, a.softcap = op->softcap;
    run(d, w, a);
}
