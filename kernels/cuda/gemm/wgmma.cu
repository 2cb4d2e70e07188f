/*
 * wgmma.cu - the matrix ops for 5 to 128 rows on Hopper, through wgmma.cuh: prompts of a chat turn, batches of
 * sequences; there a row's bits depend on the batch. In steps of INVARIANT_PROMPT and INVARIANT_BATCH it takes any
 * number of rows, whose bits do not depend on it.
 *
 * A kernel leaves its products as partial sums (pieces, split_k.cuh); the kernel that follows in the stream adds them
 * up as it reads them: q|k|v's tail, or the norm before the next matrix. So a projection leaves ACT_X in pieces in the
 * plan (plan.cuh), which completes them for an op that does not take them. Gate|up computes the activation itself, in
 * the order that `down` wants, and leaves pieces of ACT_FF where it is not known that `down` follows.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/gemm/wgmma.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"

/* --- launchers ------------------------------------------------------------------------------------------------ */

static_assert(ROW_SCALES_PAD >= wg_shape<96>::GROUPS * 4, "a group's tiles");

/* rows: of the activations' form; WG_CHAIN has fewer than columns where there are few. */
struct shape {
    uint32_t cols, groups, blocks, rows;
    enum wg_form form;
};
template <int N> static constexpr shape shape_of()
{
    return {N, wg_shape<N>::GROUPS, wg_shape<N>::BLOCKS, N, WG_FEW};
}
static constexpr shape chain_of(uint32_t rows)
{
    return {EIGHT, wg_shape<EIGHT>::GROUPS, wg_shape<EIGHT>::BLOCKS, rows, WG_CHAIN};
}

/* Whether a row's bits must not depend on how many there are. */
static bool fixed(const struct device *d)
{
    return d->invariant == INVARIANT_PROMPT || d->invariant == INVARIANT_BATCH;
}

/* The shape of products of so many rows with w, whose input has its number of columns: of at most WG_ROWS, in blocks of
 * which more rows come. */
static const struct shape *shape_for(const struct device *d, const wdev *w, uint32_t rows)
{
    static const struct shape all[] = {shape_of<EIGHT>(), shape_of<16>(), shape_of<32>(),
                                       shape_of<64>(),    shape_of<96>(), shape_of<128>()};
    static const struct shape chains[] = {chain_of(1), chain_of(2), chain_of(4), chain_of(8)};
    const struct shape *few = chains;
    if (d->invariant == INVARIANT_BATCH && rows <= EIGHT) {
        while (few->rows < rows)
            few++;
        return few;
    }
    bool eight = !fixed(d);
    for (uint32_t i = 0; i < w->n_part; i++)
        eight = eight && takes_eight(w->part[i].type);
    const struct shape *s = all + !eight;
    while (s->cols < rows && s->cols < WG_ROWS)
        s++;
    return s;
}

typedef void wg_kernel(const wg_args);
template <int TA, int TB> static wg_kernel *eight_kernel()
{
    if constexpr (eight_of<TA>::TAKES && eight_of<TB>::TAKES)
        return gemm_wg<TA, TB, EIGHT>;
    else
        return NULL;
}
template <int TA, int TB, enum wg_form FORM> static wg_kernel *few_kernel(uint32_t cols)
{
    return cols == 16   ? gemm_wg<TA, TB, 16, FORM>
           : cols == 32 ? gemm_wg<TA, TB, 32, FORM>
           : cols == 64 ? gemm_wg<TA, TB, 64, FORM>
           : cols == 96 ? gemm_wg<TA, TB, 96, FORM>
                        : gemm_wg<TA, TB, 128, FORM>;
}
/* d: the device on which it is to be launched, or NULL. */
template <int TA, int TB> static wg_kernel *by_form(struct device *d, enum wg_form form, uint32_t cols)
{
    /* types that are multiplied alike in both forms have one kernel for both */
    constexpr enum wg_form FIXED = quant<TA>::WG_QUICK || quant<TB>::WG_QUICK ? WG_FEW_FIXED : WG_FEW;
    static uint32_t done[2 * (WG_ROWS / 8) + 2];
    wg_kernel *k = form == WG_BLOCKS      ? gemm_wg<TA, TB, WG_ROWS, WG_BLOCKS>
                   : form == WG_CHAIN     ? gemm_wg<TA, TB, EIGHT, WG_CHAIN>
                   : cols == EIGHT        ? eight_kernel<TA, TB>()
                   : form == WG_FEW_FIXED ? few_kernel<TA, TB, FIXED>(cols)
                                          : few_kernel<TA, TB, WG_FEW>(cols);
    uint32_t at = form == WG_FEW         ? cols / 8 - 1
                  : form == WG_FEW_FIXED ? WG_ROWS / 8 + cols / 8 - 1
                                         : 2 * (WG_ROWS / 8) + (form == WG_CHAIN);
    if (d && !(done[at] >> d->index & 1)) {
        cuda_smem(d, k, d->smem_max);
        done[at] |= 1u << d->index;
    }
    return k;
}

/* The kernel for a weight's types, or NULL: for a single type, or for the types that share a q|k|v, or q|k|v|z, in
 * Q4_K_M and Q5_K_M. */
static wg_kernel *wg_kernel_of(struct device *d, const wdev *w, enum wg_form form, uint32_t cols)
{
    auto by_types = [&](auto t) -> wg_kernel * {
        if constexpr (quant<t.first>::WGMMA)
            return by_form<t.first, t.second>(d, form, cols);
        else
            return NULL;
    };
#define X(t, T, number) types<DT_##T, DT_##T>(),
    return kernel_of(w, by_types, QUANTS(X) types<DT_Q4_K, DT_Q6_K>(), types<DT_Q5_K, DT_Q6_K>());
#undef X
}

/* Whether there are kernels for it. fastdiv() divides its units by the records of a group and by a block's share, a
 * sixteenth of them at most, as no sm_90 device, or slice of one, has fewer than 16 SMs: up to some 4 billion weights.
 */
static bool wg_has(const wdev *w)
{
    uint64_t units = (w->n_tile / 8ull + w->n_part) * w->n_kblk, most = units / 16 + w->n_kblk;
    return units * most < 1u << 30 && wg_kernel_of(NULL, w, WG_FEW, 32);
}

/* Whether each part has a kernel of its own, for a weight whose parts have none together: op_project's. */
static bool parts_apart(const wdev *w)
{
    bool can = w->role == WEIGHT_MIXER && w->packed;
    for (uint32_t i = 0; i < w->n_part && can; i++) {
        wdev one = *w;
        one.n_part = 1, one.part[0] = w->part[i];
        can = wg_has(&one);
    }
    return can;
}

bool wg_supports(const struct device *d, const void *model)
{
    bool all = d->cc == 90 && d->variant != VARIANT_REFERENCE, any = false;
    for (const struct wdev *w = d->weights; w && all; w = w->next)
        if (w->model == model && wdev_dense(w))
            all = w->packed && (wg_has(w) || parts_apart(w)), any = true;
    return any && all;
}

bool wg_can_run(const struct op *o)
{
    const wdev *w = wdev_of(op_weight(o));
    return w->packed && (wg_has(w) || parts_apart(w));
}

/* The number of blocks of WG_ROWS that so many rows take. */
static uint32_t columns_of(uint32_t rows)
{
    return (rows + WG_ROWS - 1) / WG_ROWS;
}

/* The capacity in rows for the widest step on this path. */
static uint32_t rows_most(const struct workspace_dims *dims)
{
    uint32_t least = dims->n_row < PROMPT_ROWS ? dims->n_row : PROMPT_ROWS;
    return columns_of(dims->n_prompt > least ? dims->n_prompt : least) * WG_ROWS;
}

/* Groups and blocks' shares depend on the matrix and the number of columns; this is the most that their partial sums
 * take. */
uint64_t wg_partials_bytes(const struct device *d, const struct workspace_dims *dims)
{
    uint64_t n = (dims->d_q > dims->d_mix ? dims->d_q : dims->d_mix) + 2ull * dims->d_kv, most = 256ull * 96,
             rows = rows_most(dims);
    n = n > dims->d_model ? n : dims->d_model;
    n = n > 2ull * dims->d_ff ? n : 2ull * dims->d_ff;
    return d->cc == 90 ? ((n + 4 * 256) * rows + (2ull * d->sms + 8) * most) * 4 : 0;
}

uint64_t wg_x_bytes(const struct device *d, const struct workspace_dims *dims)
{
    uint32_t k = dims->d_q > dims->d_ff ? dims->d_q : dims->d_ff;
    uint64_t rows = rows_most(dims);
    return wg_partials_bytes(d, dims) ? (uint64_t)pad256(k > dims->d_model ? k : dims->d_model) * rows * 2 : 0;
}

/*
 * Slices that fixed() steps cut K into, which depend on the matrix alone: as many of equal length as possible while
 * the blocks of 128 rows, a slice each, still fit an H100's places. `ends`: two at most, because the block that
 * finishes a group adds another block's sum to its own, not its own to another's, and with two the order does not
 * matter.
 */
enum { WG_PLACES = 264 };
static uint32_t slices_of(const wdev *w, bool ends)
{
    uint32_t groups = 0, best = 1;
    for (uint32_t i = 0; i < (w->interleaved ? 1 : w->n_part); i++)
        groups += (w->part[i].n_tile + 7) / 8;
    for (uint32_t s = 2; s <= (ends ? 2 : w->n_kblk); s++)
        if (w->n_kblk % s == 0 && groups * s <= WG_PLACES)
            best = s;
    return best;
}

/* Bytes of the partial sums of up to 32 columns that all blocks of a launch have at most, where the kernel finishes its
 * groups itself. */
uint64_t wg_left_bytes(const struct device *d)
{
    uint64_t blocks = 2 * d->sms > WG_PLACES ? 2 * d->sms : WG_PLACES;
    return d->cc == 90 ? blocks * 128 * 32 * sizeof(float) : 0;
}

/*
 * Whether, with many columns, each block takes one slice instead of all of a group's: where the turns that this saves
 * are worth more than the partial sums' round trip through memory. A turn is a record of a group: 1.9 us on an H100.
 */
static bool slices_apart(const struct device *d, const wg_args &a, uint32_t slices)
{
    const float bytes_turn = 5.7e6f;
    uint32_t blocks = a.n_group * a.n_col, sms = d->sms;
    uint64_t floats = (uint64_t)blocks * slices * WG_ROWS * WG_ROWS;
    float together = (float)((blocks + sms - 1) / sms * a.n_kblk),
          apart = (float)((blocks * slices + sms - 1) / sms * (a.n_kblk / slices)) + floats * 8 / bytes_turn;
    return apart < together && floats * 4 <= wg_partials_bytes(d, &d->ws.dims);
}

/*
 * Tiles of a group, in a launch that finishes its groups itself: of WG_CHAIN as many as leave each SM about the same
 * number, since its time is that of the conversion of weights; otherwise one for each warp.
 */
static uint32_t tiles_of(const struct device *d, const wdev *w, const struct shape *f, bool ends)
{
    uint32_t warps = f->groups * 4, best = warps, least = ~0u;
    if (f->form != WG_CHAIN || !ends)
        return warps;
    uint32_t slices = slices_of(w, ends);
    for (uint32_t t = warps; t >= warps / 2; t--) {
        uint32_t blocks = (w->n_tile + t - 1) / t * slices, most = (blocks + d->sms - 1) / d->sms * t;
        if (blocks <= f->blocks * (uint32_t)d->sms && most < least)
            best = t, least = most;
    }
    return best;
}

/*
 * Stages of weights that a block copies before the previous kernel has ended. The reads of a norm queue behind them, so
 * after a norm one stage is enough, or two for q|k|v, whose blocks have few, and for EIGHT columns of gate|up where the
 * ring has room for all of a block's, as their records take less time; after attention and gate|up a block copies all
 * that it has room for.
 */
static uint32_t early_stages(const struct device *d, const wdev *w, uint32_t bucket)
{
    if (bucket > GEMM_ROWS || d->invariant)
        return ~0u;
    return w->role == WEIGHT_QKV ? 2 : w->role == WEIGHT_GATE_UP ? 1 : ~0u;
}

/* Launches w times d->ws.wg_x, which has f's columns. ends: the kernel does the epilogue itself; otherwise the result
 * says where the partial sums are. */
static partials matmul(struct device *d, const wdev *w, const struct shape *f, wg_args &a, uint32_t bucket, bool ends)
{
    bool blocks = bucket > WG_ROWS;
    uint32_t tiles = tiles_of(d, w, f, ends), frag = 0;
    enum dtype first, second;
    partials s = {};
    wdev_types(w, &first, &second);
    a.bucket = bucket, a.rows = f->rows, a.tiles = tiles;
    a.w = w->packed, a.n_kblk = w->n_kblk, a.n_part = w->interleaved ? 1 : w->n_part;
    a.kblk_magic = fastdiv_magic(w->n_kblk), a.order = t16_order_of(w->n_kblk);
    for (int o = 0; o < 2; o++)
        if (!a.x[o])
            a.x[o] = d->ws.wg_x[o];
    for (uint32_t i = 0; i < a.n_part; i++) {
        const wpart &p = w->part[i];
        a.part[i] = {a.n_group, p.n_tile, p.type != first, p.off, w->row_scale ? w->row_scale + p.tile0 * 16 : NULL};
        s.part[i] = {a.n_group, p.row0};
        a.n_group += (p.n_tile + tiles - 1) / tiles;
        frag = t16_frag_bytes(p.type) > frag ? t16_frag_bytes(p.type) : frag;
    }
    uint32_t slots = d->sms * f->blocks, units = a.n_group * a.n_kblk;
    uint32_t rounds = (a.n_group + slots - 1) / slots;
    /* blocks that finish their own groups take whole groups, unless a quarter of the places would then be empty */
    bool whole = ends && 4 * a.n_group >= 3 * slots * rounds;
    a.per = whole ? rounds * a.n_kblk : (units + slots - 1) / slots;
    /* One block per SM, beside which attention's blocks can start, is quicker than two where a block then has two
     * records; with more columns they take too long. */
    if (f->cols == EIGHT && w->role == WEIGHT_QKV && units <= 2u * d->sms)
        a.per = (units + d->sms - 1) / d->sms;
    a.segs = (a.per + a.n_kblk - 2) / a.n_kblk + 1;
    a.n_col = columns_of(bucket);
    if (fixed(d)) {
        uint32_t slices = slices_of(w, ends);
        a.slice = a.n_kblk / slices, a.segs = 1;
        a.per = blocks && (ends || !slices_apart(d, a, slices)) ? a.n_kblk : a.slice;
    }
    a.per_magic = fastdiv_magic(a.per);
    a.partials = d->ws.wg_partials, a.flag = ends ? d->ws.semaphore : NULL, a.left = d->ws.wg_left;
    /* the two rings: stages of weights first, up to what hides the memory's latency, then activations */
    uint32_t room = ((uint32_t)d->smem_max + 1024) / f->blocks - 1024 - wg_fixed(f->cols), wst = f->groups * 4 * frag,
             xst = wg_xstage(f->cols);
    uint32_t hides = (3 * t16_frag_bytes(DT_Q4_K) + frag - 1) / frag;
    a.xstages = 2;
    a.wstages = min_u((room - a.xstages * xst) / wst, hides);
    a.xstages = min_u((room - a.wstages * wst) / xst, WG_STAGES);
    a.wstages = min_u((room - a.xstages * xst) / wst, WG_STAGES);
    a.early = early_stages(d, w, bucket);
    uint32_t frags = t16_frags(first) > t16_frags(second) ? t16_frags(first) : t16_frags(second);
    bool fits = a.per * frags <= a.wstages; /* otherwise memory is busy with the weights until the end */
    if (a.ahead.waits && !fits)
        a.ahead.kv = NULL;
    if (f->cols == EIGHT && f->form == WG_FEW && w->role == WEIGHT_GATE_UP && fits)
        a.early = 2, a.x_first = a.early < a.xstages;
    enum wg_form form = blocks ? WG_BLOCKS : f->form == WG_FEW && fixed(d) ? WG_FEW_FIXED : f->form;
    wg_kernel *k = wg_kernel_of(d, w, form, f->cols);
    cuda_launch(d, k, dim3((units + a.per - 1) / a.per * a.n_col), f->groups * 128 + 128,
                wg_fixed(f->cols) + a.wstages * wst + a.xstages * xst, LAUNCH_PDL, a);
    s.p = a.partials, s.by = 1, s.cols = f->cols * a.n_col, s.log_rows = f->groups == 2 ? 7 : 8 /* of groups * 64 */,
    s.segs = a.segs;
    s.n_kblk = a.n_kblk, s.kblk_magic = a.kblk_magic, s.per = a.per, s.per_magic = a.per_magic;
    s.n_part = a.n_part, s.glu = w->interleaved ? w->part[1].row0 : 0;
    return s;
}

/* The order of k in which a product of shape f wants its input, for weights of `type`. */
static int order_of(const struct shape *f, enum dtype type)
{
    return f->cols == EIGHT && f->form == WG_FEW ? (int)EIGHT_ORDER : wg_order(type);
}

/* The forms that w's types need for a product of shape f; returns their number. */
static int forms_of(struct device *d, const wdev *w, const struct shape *f, act_buf out[2])
{
    int n = 0;
    for (int o = 0; o < 2; o++) {
        bool want = false;
        for (uint32_t i = 0; i < w->n_part; i++)
            want = want || order_of(f, w->part[i].type) == o;
        if (want)
            out[n++] = {d->ws.wg_x[o], f->rows, (uint32_t)(LAYOUT_WG + o)};
    }
    return n;
}

static void normed(struct device *d, struct op_call *p, const wdev *w, const struct shape *f, const struct norm *n,
                   bool gather)
{
    act_buf out[2];
    const act_buf none = {};
    int two = forms_of(d, w, f, out) == 2;
    if (n->kind != NORM_RMS && gather)
        plan_complete(d, p, ACT_BIT(ACT_X));
    if (n->kind == NORM_RMS) {
        norm_pieces_run(d, p, n, w->n_in, out[0], two ? out[1] : none, gather, p->bucket);
        return;
    }
    if (p->x_experts.y)
        expert_sums_run(d, &p->x_experts);
    reduce_norm_rows(d, n, w->n_in, &p->x, p->x_bias, &out[0], two ? &out[1] : NULL,
                     gather ? d->step->out_row + p->row0 : NULL, 0, p->bucket);
    x_completed(p);
}

/*
 * The prefetch of what attention reads first, apart from `page0` pages of each sequence: for fp16 KV, in decode steps
 * whose bits are free, in layers without a window. It covers up to `most` bytes, those pages among them, which is what
 * can arrive while memory would be idle: attention's blocks find room only when those of q|k|v have exited.
 */
static wg_ahead ahead_of(const struct device *d, const struct op *attend, uint32_t page0, uint64_t most, bool waits)
{
    wg_ahead a = {};
    if (!d->decode || d->invariant || !attend || attend->kind != OP_ATTEND || attend->attend.window)
        return a;
    uint32_t group = attend->attend.group, n_page;
    const struct kv_pool *kv = d->kv[group];
    if (kv->desc.type != DT_F16)
        return a;
    a.parts = (uint32_t)(kv->layer_bytes / WG_AHEAD_PART);
    n_page = (uint32_t)(most / (kv->layer_bytes * d->bucket));
    if (!a.parts || n_page <= page0)
        return a;
    a.page0 = page0, a.n_page = n_page - page0, a.waits = waits;
    a.kv = kv->base + attend->attend.layer * kv->layer_bytes, a.page_bytes = kv->page_bytes;
    a.pages = d->pages, a.pages0 = d->step->group[group].pages0, a.step = d->step;
    return a;
}

/* Bytes of KV prefetched into L2, either by the product before q|k|v's norm, where memory is idle after it, or by
 * q|k|v; and how many more q|k|v prefetches after the former. */
enum { AHEAD_BYTES = 24 << 20, AHEAD_MORE = 6 << 20 };

void wg_qkv(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_qkv *op = &o->qkv;
    const wdev *w = wdev_of(op->w);
    const struct shape *f = shape_for(d, w, p->bucket);
    wg_args a = {};
    if (p->asked && p->asked == p->reader)
        a.ahead = ahead_of(d, p->reader, p->asked_pages, AHEAD_BYTES + AHEAD_MORE, true);
    else
        a.ahead = ahead_of(d, p->reader, 0, AHEAD_BYTES, false);
    normed(d, p, w, f, &op->norm, false);
    p->q = matmul(d, w, f, a, p->bucket, false), p->q_op = op;
    act_in_pieces(&p->acts, ACT_Q);
    if (!p->reader || p->reader->kind != OP_ATTEND) /* K and V have other readers too */
        plan_complete(d, p, ACT_BIT(ACT_Q));
}

void wg_project(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_project *op = &o->project;
    const wdev *w = wdev_of(op->w);
    const struct shape *f = shape_for(d, w, p->bucket);
    bool together = wg_has(w);
    if (!project_begin(d, op))
        return;
    normed(d, p, w, f, &op->norm, false);
    for (uint32_t i = 0; i < (together ? 1 : w->n_part); i++) {
        wdev one = *w;
        wg_args a = {};
        if (!together)
            one.n_part = 1, one.part[0] = w->part[i];
        partials s = matmul(d, &one, f, a, p->bucket, false);
        bool fours = true; /* four columns that are added together are always of one part */
        for (uint32_t k = 0; k < one.n_part; k++)
            fours = fours && one.part[k].row0 % 4 == 0;
        if (fours && together && project_beside(d, p, &s, w->n_out, op->at))
            return;
        for (uint32_t k = 0; k < (fours && together ? 1 : one.n_part); k++)
            project_pieces(d, &s, one.part[k].row0, fours && together ? w->n_out : one.part[k].n_out, op->at,
                           p->bucket);
    }
}

bool wg_attended(struct device *d, struct op_call *p, uint32_t d_q, act_buf *out)
{
    const struct op *reader = p->reader;
    act_buf forms[2];
    if (d->path != PATH_WGMMA || !reader || reader->kind != OP_PROJ || reader->proj.in != ACT_ATT ||
        !wg_can_run(reader) || d_q % 256)
        return false;
    const wdev *w = wdev_of(reader->proj.w);
    forms_of(d, w, shape_for(d, w, d->bucket), forms);
    *out = forms[0];
    act_in_pieces(&p->acts, ACT_ATT);
    return true;
}

void wg_proj(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_proj *op = &o->proj;
    const wdev *w = wdev_of(op->w);
    bool in_pieces = p->acts.pieces & ACT_BIT(op->in);
    const struct shape *f = shape_for(d, w, p->bucket);
    act_buf out[2];
    wg_args a = {};
    forms_of(d, w, f, out);
    if (in_pieces && op->in == ACT_FF && p->ff_made)
        a.x[0] = a.x[1] = d->ws.wg_ff;
    else if (in_pieces && op->in == ACT_FF)
        glu_reduce_run(d, &p->ff_op, &p->ff, w->n_in, &out[0], p->bucket);
    else if (!in_pieces)
        act_to_wg(d, op->in == ACT_ATT ? &d->ws.att : &d->ws.ff, w->n_in, &out[0], p->bucket);
    if (in_pieces)
        act_taken(&p->acts, op->in);
    const struct op *attend = o + 2 < p->end && o[1].kind == OP_QKV ? o + 2 : NULL;
    if (op->in == ACT_FF)
        a.ahead = ahead_of(d, attend, 0, AHEAD_BYTES, true);
    /* measured: dense layers win up to 1 %, mixtures lose up to 0.5 % */
    a.late = p->bucket <= WG_ROWS && !(p->next && p->next->kind == OP_ROUTE);
    partials s = matmul(d, w, f, a, p->bucket, false);
    p->asked = a.ahead.kv ? attend : NULL, p->asked_pages = a.ahead.n_page;
    if (proj_apart(op)) {
        reduce_to_tmp(d, &s, w->n_out, p->bucket);
        proj_epilogue_run(d, op, w->n_out, 0, p->bucket);
        return;
    }
    s.by = residual_scale(op);
    p->x = s, p->x_bias = op->bias, p->x_n = w->n_out;
    act_in_pieces(&p->acts, ACT_X);
}

/* The activation is computed here where the op that reads it is known, and with it the order of k that it needs; not
 * where a row ends within a record, as no tile computes the rest of that record. */
void wg_ffn_up(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_ffn_up *op = &o->ffn_up;
    const struct op *reader = p->reader;
    const wdev *w = wdev_of(op->w);
    const struct shape *f = shape_for(d, w, p->bucket);
    wg_args a = {};
    normed(d, p, w, f, &op->norm, false);
    p->ff_made = reader && reader->kind == OP_PROJ && reader->proj.in == ACT_FF && w->interleaved && !op->row_gate &&
                 op->glu != GLU_OAI && w->n_out / 2 % 256 == 0;
    if (p->ff_made) {
        const wdev *down = wdev_of(reader->proj.w);
        const struct shape *next = shape_for(d, down, p->bucket);
        a.ff = {d->ws.wg_ff, next->rows, (uint32_t)(LAYOUT_WG + order_of(next, down->part[0].type))};
        a.n_out = w->n_out / 2, a.bias = op->bias, a.glu = op->glu;
        matmul(d, w, f, a, p->bucket, true);
    } else {
        p->ff = matmul(d, w, f, a, p->bucket, false);
        p->ff_op = *op;
        if (op->row_gate) { /* the row's gate depends on the current ACT_X, which differs by the time of `down` */
            glu_reduce_run(d, op, &p->ff, d_ff_of(op), &d->ws.ff, p->bucket);
            return;
        }
    }
    act_in_pieces(&p->acts, ACT_FF);
}

void wg_head(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_head *op = &o->head;
    const wdev *w = wdev_of(op->w);
    const uint32_t rows = p->bucket;
    if (rows > WG_ROWS) /* in several launches, each of which would add what is in pieces */
        plan_complete(d, p, ACT_BIT(ACT_X));
    for (p->row0 = 0; p->row0 < rows; p->row0 += WG_ROWS) {
        p->bucket = min_u(rows - p->row0, WG_ROWS);
        const struct shape *f = shape_for(d, w, p->bucket);
        wg_args a = {};
        normed(d, p, w, f, &op->norm, true);
        a.out = d->ws.logits + (uint64_t)p->row0 * d->ws.ldl, a.ldout = d->ws.ldl, a.n_out = w->n_out;
        a.scale = op->scale, a.softcap = op->softcap, a.bias = op->bias;
        matmul(d, w, f, a, p->bucket, true);
    }
}
