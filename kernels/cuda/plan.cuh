/*
 * plan.cuh - lowering a program to launches: the context of a launcher's call, and what it may leave for the next op.
 *
 * plan_run() walks a program's ops once per eager or captured step. An op's row in plan.cu names its launcher on each
 * path; all launchers have one type. A launcher of the wgmma path may leave its result "in pieces", i.e. as partial
 * sums that are not added up yet (`x`, `q`, `ff` below, recorded by act_in_pieces). plan_run() completes them before an
 * op that cannot take them, so that most ops need not know of them: an op that reads ACT_X finds it whole.
 */
#ifndef HEARTH_CUDA_PLAN_CUH
#define HEARTH_CUDA_PLAN_CUH

#include "kernels/cuda/experts/sums.cuh"

struct op_call {
    const struct op *reader; /* the next op, if it is the only one that reads what this one writes; else NULL */
    uint32_t read_again;     /* activations that later ops read in their present state */
    enum path path;          /* the path that this op takes; PATH_NONE for ops that have no choice */
    uint32_t row0, bucket;   /* rows of this call; out rows where the op writes ACT_LOGITS */
    struct act_state
        acts; /* ACT_ATT "in pieces" is whole, but in ws.wg_x, in the element order that the next product needs */
    /* ACT_X, where it is in pieces: what is still to be added to the residual stream, experts' results and then a
     * product; either may be absent. */
    struct expert_sums x_experts;
    partials x;
    const float *x_bias;
    uint32_t x_n;
    /* ACT_Q, where it is in pieces: the product of q_op before its epilogue; its K and V are not appended to the pages
     * yet either. */
    partials q;
    const struct op_qkv *q_op;
    /* ACT_FF, where it is in pieces: gate and up before the activation function; or, with ff_made, the activation, but
     * in ws.wg_ff, in the element order that the next product needs. */
    partials ff;
    struct op_ffn_up ff_op;
    bool ff_made;
    uint32_t job_pairs;       /* ws.experts.order and jobs are made, with up to so many pairs per job; 0: not yet */
    const struct op *columns; /* experts_down whose input columns experts_up has made (experts/wgmma.cu), or NULL */
    bool routed;              /* a kernel since the route triggered its dependents only after its wait for the route */
    bool told;                /* the route is published before its kernel has ended: experts/told.cuh */
    uint32_t n_route;         /* routes of the step so far */
    const struct op *shares_of; /* the op_route whose logits the op before it has published in shares, or NULL */
    const struct op *next;      /* the op after this one, or NULL */
    struct {
        const struct op *op;
        uint32_t row0, bucket;
    } planes; /* the op, and its rows, whose input the op before it has also left as integers (batch.cu) */
    const struct op *projected; /* op_project that a launch of the op before it has already computed, or NULL */
    const struct op *end;       /* one past the program's last op */
    const struct op *shared[2]; /* ops of a shared expert that the experts' launches do as well; NULL: none */
    const struct op *prepared;  /* experts_down whose hidden rows the product before it has prepared, or NULL */
    const struct op *normed;    /* experts_up whose rows were normed by the route before it, or NULL */
    const struct op *asked; /* op_attend whose KV the product before its q|k|v has prefetched into L2, or NULL; ... */
    uint32_t asked_pages;   /* ... so many pages of each sequence */
};

/* Launches one call of an op. */
typedef void op_run(struct device *d, struct op_call *p, const struct op *o);

/* Runs the program's ops over the step that step.cu has set up; the first failure sticks in the device. */
void plan_run(struct device *d, const struct program *program);
/* Completes those activations of this set that are in pieces, in the workspace. */
void plan_complete(struct device *d, struct op_call *p, uint32_t acts);
/* The path that takes a whole step of so many rows; PATH_NONE where the step goes in chunks. decode: one row per
 * sequence. */
enum path plan_step_path(const struct device *d, const void *model, uint32_t n_row, bool decode, enum invariance how);
/* Whether the program has only ops of dense layers, which INVARIANT_BATCH has. */
bool plan_is_dense(const struct program *p);
const char *op_path(struct device *d, const struct program *p, uint32_t i, uint32_t n_row, enum invariance how);
bool prompt_is_quick(struct device *d, const void *model, const struct kv_desc *kv, uint32_t n_group);

/* The launchers. gemm.cu: PATH_GEMV and PATH_SKINNY, for rows [row0, row0 + bucket) of the step, bucket <= GEMM_ROWS; a
 * row's bits depend neither on bucket nor on row0. */
op_run gemm_qkv, gemm_proj, gemm_ffn_up, gemm_head, gemm_project;
/* Whether few rows of this op can take PATH_GEMV: chip, types, and a row of activations that fits shared memory. */
bool gemv_takes(const struct device *d, const struct op *o);

/* Whether a launch of gemv or skinny for so many rows of the op includes the epilogue; else a kernel of epilogue.cu
 * does it. */
bool gemm_ends_here(const struct device *d, const struct op *o, enum path path, uint32_t rows);

/* wgmma.cu: all rows of a step, at most WG_ROWS except in INVARIANT_PROMPT and _BATCH, on Hopper, if the path supports
 * the types of all matrices of the model (wg_supports) or of the op (wg_can_run). */
op_run wg_qkv, wg_proj, wg_ffn_up, wg_head, wg_project;
bool wg_supports(const struct device *d, const void *model);
bool wg_can_run(const struct op *o);

/* Returns in *out the buffer for attention's results in the element order that the next op's product needs, so that no
 * kernel is needed in between, and marks ACT_ATT as in pieces; false where that op takes another path. */
bool wg_attended(struct device *d, struct op_call *p, uint32_t d_q, act_buf *out);

/* Whether ACT_X is whole except for experts' results: a product may then leave its own partial sums beside these. */
static inline bool only_experts_left(const struct op_call *p)
{
    return p->acts.pieces & ACT_BIT(ACT_X) && p->x_experts.y && !p->x.p;
}
/* Records that ACT_X is whole, or will be after the launches so far. */
static inline void x_completed(struct op_call *p)
{
    p->x = partials{}, p->x_experts = expert_sums{};
    act_completed(&p->acts, ACT_X);
}

/*
 * norm.cu: adds what p holds of ACT_X in pieces to `bucket` rows of ws.x, of n elements, and writes their RMS norm to
 * `out`: in a layout for wgmma, and in a second one to `two` where two.p is not NULL; or, for up to WG_ROWS rows, in
 * the prepared form. gather: takes rows step_dev.out_row; their sums are not stored, so that ACT_X is lost if it was in
 * pieces.
 */
void norm_pieces_run(struct device *d, struct op_call *p, const struct norm *nm, uint32_t n, act_buf out, act_buf two,
                     bool gather, uint32_t bucket);
/* cublaslt.cu: all rows of a step. */
op_run prefill_qkv, prefill_proj, prefill_ffn_up, prefill_project;
/* ref.cu: slow and simple, from the unmodified file layout (variant "reference"). */
op_run ref_qkv, ref_proj, ref_ffn_up, ref_head, ref_project;
void ref_product(struct device *d, const struct op_call *p, const wdev *w, const struct norm *norm, const act_buf *x,
                 float *out, uint32_t ldout); /* rows_product() of PATH_REF */
/* embed.cu, inputs.cu, attend/ */
op_run embed_run, inputs_run, input_gate_run, attend_run, latent_run, latent_q_run, latent_out_run;
/* Whether a step of one row can use attention's kernels for one row: a KV head's query heads fit a tile. */
bool attend_one(const struct op_attend *op);
/* experts/: the ops of mixtures, all rows of a step. experts_path: the path they take, "few", "grouped" or "wgmma". */
op_run route_run, experts_up_run, experts_down_run;
/* Whether route_run takes ACT_X in pieces; it then also norms the rows for the experts after it. */
bool route_takes_pieces(const struct device *d, const struct op_call *p, const struct op *o);
/* experts.cu: whether the experts of a step of one row can do without a router kernel (experts/shares.cuh). */
bool experts_choose(const struct device *d, const struct op_experts_up *op);
/* shares.cu: called by the launcher of op_proj o: launches its product `a` together with the shares of the following
 * op_route's logits. Returns false, with nothing launched, where that route needs a kernel of its own. */
struct gemm_args;
bool proj_shares(struct device *d, struct op_call *p, const struct op *o, const gemm_args &a);
const char *experts_path(const struct device *d, const struct op *o, uint32_t n_row, bool invariant);
/* states/: layers with a recurrent state, all rows of a step; and op_project.
 * - project_begin: checks that its columns fit ACT_MIX;
 * - project_pieces: writes columns [at + row0, at + row0 + n) of ACT_MIX from a product's partial sums;
 * - project_tmp: writes columns [at, at + n) from ws.tmp;
 * - project_plain: op_project in F32, from a matrix that is kept as plain rows;
 * - project_told: the same after a kernel that publishes when x is whole, gemm_args.x_said;
 * - project_beside: the same for the next op, in the launch that adds up the first n columns of this op's partial sums
 *   s; false where there is no such op or launch;
 * - route_project (experts/route.cu): the same, for any norm and number of columns. */
op_run shortconv_run, delta_run, mamba2_run, project_plain;
bool project_begin(struct device *d, const struct op_project *op);
void project_told(struct device *d, struct op_call *p, const struct op *o, const ulonglong2 *x_said, uint32_t x_nth);
void project_pieces(struct device *d, const partials *s, uint32_t row0, uint32_t n, uint32_t at, uint32_t bucket);
bool project_beside(struct device *d, struct op_call *p, const partials *s, uint32_t n, uint32_t at);
void project_tmp(struct device *d, uint32_t n, uint32_t at, uint32_t bucket);
void route_project(struct device *d, const struct op_project *op);

/* The parts' types, if there are at most two, the lesser first, which is the order of template arguments; else false.
 */
static inline bool wdev_types(const wdev *w, enum dtype *a, enum dtype *b)
{
    *a = *b = w->part[0].type;
    for (uint32_t i = 1; i < w->n_part; i++) {
        enum dtype t = w->part[i].type;
        if (t != *a && t != *b && *a != *b)
            return false;
        *a = t < *a ? t : *a, *b = t > *b ? t : *b;
    }
    return true;
}
/* The kernel for a weight's types: f(types<A, B>()) for the element of `pairs` that matches them, or NULL. */
template <int A, int B> struct types {
    static constexpr int first = A, second = B;
};
template <class F, class Pair, class... Pairs>
static inline auto kernel_of(const wdev *w, F f, Pair pair, Pairs... pairs) -> decltype(f(pair))
{
    enum dtype a, b;
    if (wdev_types(w, &a, &b) && a == Pair::first && b == Pair::second)
        return f(pair);
    if constexpr (sizeof...(pairs) > 0)
        return kernel_of(w, f, pairs...);
    else
        return NULL;
}

#endif
