/*
 * gemm.cu - the matrix ops on the fused kernels of gemm.cuh: which kernel runs, over which tiles, with which epilogue.
 *
 * Where a block cannot do an op's epilogue by itself (q/k norms over a head, a post-norm over the row, heads that do
 * not fit a group of tiles, gate and up of different types), the product goes to ws.tmp, and a kernel of epilogue.cu
 * finishes the op.
 */
#include "kernels/cuda/gemm/batch.cuh"
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/gemm/gemv_launch.cuh"
#include "kernels/cuda/gemm/prepare.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"

/* norm(x), one row per block, in the prepared form that skinny multiplies. */
__global__ void __launch_bounds__(CONSUMERS) gemm_norm(const float *x, uint32_t ldx, uint32_t n, struct norm nm,
                                                       const uint32_t *gather, __half *out, uint32_t row0)
{
    __shared__ float sums[16];
    pdl_trigger();
    uint32_t row = row0 + blockIdx.x;
    auto src = [&]() {
        pdl_wait();
        return x + (uint64_t)(gather ? gather[row] : row) * ldx;
    };
    norm_chunks(src, n, nm, (n + 255) / 256, out + row * XFRAG_KBLK, XFRAG_STRIDE, sums, threadIdx.x >> 5,
                threadIdx.x & 31);
}

/*
 * The last record of a prepared row may extend past the row's end, where it still holds whatever the workspace served
 * before. Those elements meet zero weights, but a NaN among them would make the whole row NaN. skinny does not check
 * for the row's end, so they are set to zero for it.
 */
__global__ void pad_rows(__half *x, uint32_t n, uint32_t row0)
{
    pdl_trigger();
    pdl_wait();
    __half *row = x + (uint64_t)(row0 + blockIdx.x) * XFRAG_KBLK, zero = __ushort_as_half(0);
    uint32_t k = n / 256 * 256 + threadIdx.x;
    if (k < n)
        return;
    row[xfrag_at(k)] = zero;
    if (k % 32 == 0)
        row[xfrag_sum_at(k)] = row[xfrag_sum_at(k) + 8] = zero;
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

/*
 * Which device may run kernels whose blocks wait for one another (rownorm.cuh): all blocks of such a kernel are
 * resident at once only where no other kernel of that kind occupies some of the SMs. So one device of the process may
 * on each GPU, and none where processes share the GPU through MPS; without MPS, processes take turns on it.
 */
enum { GPUS_MAX = 64, X_SAID = 8 /* slots of a cache line, so that nothing else writes to the line of x_said */ };
static struct row_norms {
    struct device *owner;
    ulonglong2 *said; /* row_norm.said, ROW_SLOTS for each SM; then, on a cache line of its own, gemm_args.x_said */
    uint32_t n;       /* counts row norms and x_said uses: row_norm.nth and x_nth, which differ within a step */
} row_norms[GPUS_MAX];

static struct row_norms *row_norms_of(const struct device *d)
{
    return d->index < GPUS_MAX && __atomic_load_n(&row_norms[d->index].owner, __ATOMIC_ACQUIRE) == d
               ? &row_norms[d->index]
               : NULL;
}

bool row_norms_here(const struct device *d)
{
    return row_norms_of(d);
}

struct row_norm row_norm_next(struct device *d, const struct norm *n)
{
    struct row_norms *r = row_norms_of(d);
    return {n->w, n->eps, r->n++, r->said, false, 1};
}

void gemm_init(struct device *d)
{
    int shared = 1;
    struct device *nobody = NULL;
    struct hearth_err e = {};
    if (d->cc < 90 || d->index >= GPUS_MAX)
        return;
    if (cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, d->index) != cudaSuccess)
        cudaGetLastError(); /* a driver that cannot tell: assume that processes may share the GPU */
    struct row_norms *r = &row_norms[d->index];
    if (shared || !__atomic_compare_exchange_n(&r->owner, &nobody, d, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    size_t n = ROW_SLOTS * (size_t)d->sms + X_SAID + 1;
    r->said = (ulonglong2 *)cuda_alloc(d, n * sizeof(*r->said), "sums of rows", &e);
    if (r->said)
        cuda_ok(d, cudaMemsetAsync(r->said, 0, n * sizeof(*r->said), d->stream));
    else
        __atomic_store_n(&r->owner, (struct device *)NULL, __ATOMIC_RELEASE);
}

void gemm_fini(struct device *d)
{
    struct row_norms *r = row_norms_of(d);
    if (!r)
        return;
    cuda_free(d, r->said);
    r->said = NULL;
    __atomic_store_n(&r->owner, (struct device *)NULL, __ATOMIC_RELEASE);
}

/* Bytes of the widest fragment of the types that gemv multiplies. */
static constexpr uint32_t widest_int8()
{
    uint32_t most = 0;
#define X(t, T, number)                                          \
    if (quant<DT_##T>::INT8 && quant<DT_##T>::FRAG_BYTES > most) \
        most = quant<DT_##T>::FRAG_BYTES;
    QUANTS(X)
#undef X
    return most;
}

/* Whether one row of activations fits beside two stages of the widest type; cards have 99 to 227 KiB of shared memory
 * for it. */
static bool row_fits(const struct device *d, uint32_t n_kblk)
{
    return gemv_shape<1, 1, GEMV_REST>::fixed(n_kblk) + 2 * K_SLICES * widest_int8() <= smem_for(d, 1);
}

bool gemv_takes(const struct device *d, const struct op *o)
{
    const wdev *w = wdev_of(op_weight(o));
    bool can = d->cc >= 80 && row_fits(d, w->n_kblk);
    for (uint32_t i = 0; i < w->n_part; i++)
        can = can && int_type(w->part[i].type);
    /* gemv writes no sub-block sums, which `down` needs where its row is too long for gemv */
    return can && (o->kind != OP_FFN_UP || row_fits(d, (d_ff_of(&o->ffn_up) + 255) / 256));
}

static gemm_args args_of(const struct device *d, const struct op_call *p, const wdev *w)
{
    gemm_args a = {};
    enum dtype first, second;
    wdev_types(w, &first, &second);
    a.w = w->packed;
    a.n_part = w->interleaved ? 1 : w->n_part;
    a.n_kblk = w->n_kblk;
    a.tile_hi = w->n_tile;
    a.row0 = p->row0, a.bucket = p->bucket;
    a.k = w->n_in;
    a.gemv = p->path == PATH_GEMV;
    a.bulk = d->cc >= 90;
    a.ahead = p->bucket == 1;
    for (uint32_t i = 0; i < a.n_part; i++) {
        const wpart &wp = w->part[i];
        gemm_part o = {wp.tile0, wp.n_tile, wp.row0, wp.n_out, wp.type != first, wp.off};
        a.part[i] = o;
    }
    return a;
}

/* The input is norm(x): computed by gemv itself, or by a kernel before the product. */
static void from_norm(struct device *d, gemm_args *a, const struct norm *n, const uint32_t *gather)
{
    if (a->gemv && norm_deferrable(*n) && a->k % 8 == 0) {
        a->xf = d->ws.x, a->ldxf = d->ws.ldx, a->norm = *n, a->gather = gather;
        return;
    }
    a->x = act_launch(d->ws.xn, a->row0).p;
    cuda_launch(d, gemm_norm, dim3(a->bucket), CONSUMERS, 0, LAUNCH_PDL, d->ws.x, d->ws.ldx, a->k, *n, gather,
                (__half *)a->x, a->row0);
}

/* The function of a type; NULL where the type has no kernels of its own. */
static gemm_fn *gemm_of(enum dtype type)
{
    switch (type) {
#define X(t, T, number) \
    case DT_##T:        \
        return quant<DT_##T>::OWN ? gemm_##t : (gemm_fn *)NULL; /* a type that is kept as F16 has no kernels */
        QUANTS(X)
#undef X
    case DT_COUNT:
        break;
    }
    return NULL;
}

/* The function that takes all parts of a weight in one launch, or NULL: then each type needs its own launch. */
static gemm_fn *one_kernel(const wdev *w)
{
    enum dtype a, b;
    if (!wdev_types(w, &a, &b))
        return NULL;
    return a == b ? gemm_of(a) : a == DT_Q4_K && b == DT_Q6_K ? gemm_q46_k : NULL;
}

static void by_types(struct device *d, const wdev *w, gemm_args &a)
{
    gemm_fn *kernel = one_kernel(w);
    a.split_k_partials = d->ws.split_k, a.semaphore = d->ws.semaphore;
    if (kernel) {
        kernel(d, a);
        return;
    }
    /* One launch for adjacent parts of the same type. Parts begin on a tile boundary, and q, k and v on a head
     * boundary, so pairs stay together. */
    for (uint32_t i = 0, end; i < w->n_part; i = end) {
        gemm_args one = a;
        for (end = i + 1; end < w->n_part && w->part[end].type == w->part[i].type;)
            end++;
        one.tile_lo = w->part[i].tile0, one.tile_hi = w->part[end - 1].tile0 + w->part[end - 1].n_tile;
        for (uint32_t j = 0; j < one.n_part; j++)
            one.part[j].second = 0;
        if (end < w->n_part)
            one.prefetch = NULL; /* only the last launch prefetches: it is nearest to attention */
        gemm_of(w->part[i].type)(d, one);
    }
}

static void run(struct device *d, struct op_call *p, const struct op *o, const wdev *w, gemm_args &a)
{
    if (a.gemv && batch_takes(d, w, a.bucket))
        batch_run(d, p, o, w, a, false);
    else
        by_types(d, w, a);
}

/* The input is rows that another op left in the prepared form. */
static void from_rows(struct device *d, gemm_args *a, const act_buf &x)
{
    act_buf here = act_launch(x, a->row0);
    a->x = here.p;
    if (!a->gemv && a->k % 256)
        cuda_launch(d, pad_rows, dim3(a->bucket), 256, 0, LAUNCH_PDL, here.p, a->k, a->row0);
}

static void to_tmp(struct device *d, gemm_args &a)
{
    a.ep = EP_TMP, a.out = d->ws.tmp, a.ldout = d->ws.ldtmp;
}

/* Whether the product's own kernel can do the epilogue of q|k|v. A block of skinny has 128 rows of the matrix; a block
 * of gemv has pairs of tiles of a head, whose norms take a cluster of at most HEAD_BLOCKS blocks. A block of Q8_0 KV
 * holds values from several tiles, which these kernels do not bring together. */
static bool qkv_ends_here(const struct op_qkv *op, bool gemv, bool clusters)
{
    enum rope_kind kind = op->rope ? op->rope->kind : ROPE_NONE;
    if (op->gated || op->w->n_part != 3 || op->d_head > 256)
        return false;
    bool normed = op->q_norm || op->k_norm || op->v_norm, pairs = kind == ROPE_NEOX && op->rope->n_rot == op->d_head;
    auto rms = [](const struct norm *n) { return !n || norm_deferrable(*n); };
    if (normed)
        return gemv && clusters && pairs && op->d_head % 32 == 0 && op->d_head > 32 && op->d_head <= 32 * HEAD_BLOCKS &&
               !op->whole_norms && rms(op->q_norm) && rms(op->k_norm) && rms(op->v_norm);
    if (kind == ROPE_NEOX)
        return pairs && op->d_head >= 32 && (gemv ? op->d_head % 32 == 0 : 128 % op->d_head == 0);
    return op->d_head % 2 == 0;
}

/*
 * Whether O or `down` of a single row benefits from pairs of tiles, one block per pair: where the pairs leave few SMs
 * idle, or, before a norm that would otherwise be a kernel of its own, at most half of them; and a ring has to fit. The
 * row is then converted to integers once per SM, by sixteen warps, instead of once in each of two blocks. But a block
 * that fills an SM starts only when all earlier blocks on that SM have exited. So pairs are used only for rows with a
 * norm after them, which rownorm.cuh requires, and for O after attention over a long context, whose blocks exit one by
 * one.
 */
enum { DEEP_SPLIT = 8 /* n_split, chunks of attention, from which a context counts as long */ };
static bool in_pairs(const struct device *d, const wdev *w, bool normed)
{
    uint32_t sms = d->sms, ring = 2 * t16_kblk_bytes(w->part[0].type) * K_SLICES;
    return d->cc >= 90 && w->n_part == 1 && w->n_tile % 2 == 0 && w->n_tile <= 2 * sms &&
           (normed ? w->n_tile > sms : 2 * w->n_tile >= 3 * sms) && w->n_kblk >= K_SLICES &&
           gemv_shape<1, 2, GEMV_PAIRS>::fixed(w->n_kblk) + ring <= gemv_smem<2>(d, 1);
}

/* Whether the norm of the row that follows its product is done in the product's kernel: see rownorm.cuh. */
static bool row_norm_ends_here(const struct device *d, const struct op_proj *op, enum path path, uint32_t rows)
{
    const wdev *w = wdev_of(op->w);
    return path == PATH_GEMV && rows == 1 && op->post_norm && row_norms_of(d) && w->n_out <= ROW_NORM_MAX &&
           (!op->aside || w->n_out <= d->ws.dims.d_aside) && norm_deferrable(*op->post_norm) && in_pairs(d, w, true);
}

bool gemm_ends_here(const struct device *d, const struct op *o, enum path path, uint32_t rows)
{
    switch (o->kind) {
    case OP_QKV:
        return d->kv_type == DT_F16 && qkv_ends_here(&o->qkv, path == PATH_GEMV, d->cc >= 90);
    case OP_PROJ:
        return !proj_apart(&o->proj) || row_norm_ends_here(d, &o->proj, path, rows);
    case OP_FFN_UP:
        return (!has_gate(o->ffn_up.glu) || wdev_of(o->ffn_up.w)->interleaved) && !o->ffn_up.row_gate &&
               o->ffn_up.glu != GLU_OAI;
    default:
        return true;
    }
}

void gemm_qkv(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_qkv *op = &o->qkv;
    const wdev *w = wdev_of(op->w);
    gemm_args a = args_of(d, p, w);
    from_norm(d, &a, &op->norm, NULL);
    bool ends = gemm_ends_here(d, o, p->path, p->bucket), batch = a.gemv && batch_takes(d, w, a.bucket);
    if (op->rope)
        a.rope = *op->rope;
    if (ends && batch && !qkv_ends_here(op, false, false)) {
        /* `batch` cannot do this epilogue: norms of heads are done, bit-identically, by the kernel that follows it;
         * other heads go through gemv, four rows at a time */
        batch = op->q_norm || op->k_norm || op->v_norm;
        if (batch) {
            to_tmp(d, a);
            batch_run(d, p, o, w, a, true);
            qkv_epilogue_run(d, op, p->row0, p->bucket);
            return;
        }
    }
    if (!ends) {
        to_tmp(d, a);
        run(d, p, o, w, a);
        qkv_epilogue_run(d, op, p->row0, p->bucket);
        return;
    }
    a.ep = EP_QKV, a.out = d->ws.x, a.ldout = d->ws.ldx;
    a.pair = a.rope.kind == ROPE_NEOX ? op->d_head / 32 : 0;
    a.bias = op->bias;
    a.temperature = temperature_of(op);
    const struct norm *norms[3] = {op->q_norm, op->k_norm, op->v_norm};
    for (int i = 0; i < 3; i++)
        if (norms[i])
            a.head_norm[i].w = norms[i]->w, a.head_norm[i].eps = norms[i]->eps;
    /* A cluster of eight blocks starts only when eight places of one GPC are free at once. With two blocks per SM the
     * blocks of gemma3-12b fill all places, and the last cluster starts late: 4 us per layer. */
    if ((op->q_norm || op->k_norm || op->v_norm) && a.pair == HEAD_BLOCKS)
        a.blocks = 3;
    a.n_head = op->n_head, a.n_kv = op->n_kv, a.d_head = op->d_head;
    a.q = d->ws.q, a.ldq = d->ws.ldq;
    a.kv = kv_view_of(d->kv[op->group], op->layer);
    a.step = d->step, a.kv_slot = d->step->group[op->group].kv_slot;
    if (a.bulk && d->decode && d->bucket == 1 && d->n_split > 1 && !op->group && !d->kv[0]->desc.window)
        a.prefetch = d->pages, a.prefetch_items = d->sms;
    if (batch)
        batch_run(d, p, o, w, a, true);
    else
        by_types(d, w, a);
}

void gemm_proj(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_proj *op = &o->proj;
    const wdev *w = wdev_of(op->w);
    gemm_args a = args_of(d, p, w);
    from_rows(d, &a, op->in == ACT_ATT ? d->ws.att : d->ws.ff);
    if (!gemm_ends_here(d, o, p->path, p->bucket)) {
        to_tmp(d, a);
        run(d, p, o, w, a);
        proj_epilogue_run(d, op, w->n_out, p->row0, p->bucket);
        return;
    }
    if (op->post_norm) {
        a.row_norm = row_norm_next(d, op->post_norm);
        a.row_norm.anew = op->aside, a.row_norm.x_scale = op->x_scale != 0 ? op->x_scale : 1;
        a.step = d->step;
    }
    bool deep = op->in == ACT_ATT && d->n_split >= DEEP_SPLIT;
    a.pairs = a.gemv && (op->post_norm || deep) && in_pairs(d, w, op->post_norm);
    a.ep = EP_PROJ, a.out = op->aside ? d->apart.aside : d->ws.x, a.ldout = d->ws.ldx, a.bias = op->bias,
    a.scale = residual_scale(op);
    if (!proj_shares(d, p, o, a))
        run(d, p, o, w, a);
}

void gemm_ffn_up(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_ffn_up *op = &o->ffn_up;
    const wdev *w = wdev_of(op->w);
    gemm_args a = args_of(d, p, w);
    from_norm(d, &a, &op->norm, NULL);
    if (!gemm_ends_here(d, o, p->path, p->bucket)) {
        to_tmp(d, a);
        if (w->interleaved)
            a.part[0].n_out = w->n_tile * 16; /* gate's and up's rows in the tiles' interleaved order */
        run(d, p, o, w, a);
        glu_epilogue_run(d, op, d_ff_of(op), w->interleaved, p->row0, p->bucket);
        return;
    }
    a.ep = EP_GLU, a.glu = op->glu, a.glu_rows = w->interleaved ? 8 : 16, a.bias = op->bias,
    a.ff = act_launch(d->ws.ff, a.row0);
    run(d, p, o, w, a);
}

void gemm_project(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_project *op = &o->project;
    const wdev *w = wdev_of(op->w);
    /*
     * The columns whose matrix is kept as plain rows are computed beside this product, by a kernel launched after it
     * whose blocks learn from this one when x is complete; only the kernels that read those columns wait for them.
     * Where a kernel may not signal this way, they are computed before this product, whose weights are in flight
     * meanwhile.
     */
    const struct op *beside = p->next;
    bool plain = p->path == PATH_GEMV && d->bucket <= GEMV_ROWS && beside && beside->kind == OP_PROJECT &&
                 wdev_of(beside->project.w)->plain;
    struct row_norms *r = plain ? row_norms_of(d) : NULL;
    if (plain && !r)
        project_plain(d, p, beside);
    if (!project_begin(d, op))
        return;
    gemm_args a = args_of(d, p, w);
    from_norm(d, &a, &op->norm, NULL);
    a.ep = EP_TMP, a.out = d->ws.mix + op->at, a.ldout = d->ws.ldmix;
    if (r)
        a.x_said = r->said + ROW_SLOTS * d->sms + X_SAID, a.x_nth = ++r->n, a.step = d->step;
    run(d, p, o, w, a);
    if (r)
        project_told(d, p, beside, a.x_said, a.x_nth);
    if (plain)
        p->projected = beside;
}

void rows_product(struct device *d, struct op_call *p, const struct op *o, const wdev *w, const struct norm *norm,
                  const act_buf *x, float *out, uint32_t ldout)
{
    if (p->path == PATH_REF) {
        ref_product(d, p, w, norm, x, out, ldout);
        return;
    }
    gemm_args a = args_of(d, p, w);
    if (norm)
        from_norm(d, &a, norm, NULL);
    else
        from_rows(d, &a, *x);
    a.ep = EP_TMP, a.out = out, a.ldout = ldout;
    run(d, p, o, w, a);
}

void gemm_head(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_head *op = &o->head;
    const wdev *w = wdev_of(op->w);
    gemm_args a = args_of(d, p, w);
    from_norm(d, &a, &op->norm, d->step->out_row);
    a.ep = EP_LOGITS, a.out = d->ws.logits, a.ldout = d->ws.ldl, a.scale = op->scale, a.softcap = op->softcap;
    a.bias = op->bias;
    run(d, p, o, w, a);
}
