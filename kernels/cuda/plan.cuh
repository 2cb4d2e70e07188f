/*
 * plan.cuh - lowering a program to launches: what an op's launcher is told, and what it may leave for the next op.
 *
 * plan_run() walks a program's ops once a step that is eager or captured. An op's row in plan.cu names its launcher on
 * each path; launchers are of one type. A launcher of the wgmma path may leave its result in pieces (`x`, `q`, `ff`
 * below, told by act_in_pieces); plan_run() completes them before an op that cannot take them, so that whoever writes
 * an op need not know of them: an op that reads ACT_X finds it whole.
 */
#ifndef HEARTH_CUDA_PLAN_CUH
#define HEARTH_CUDA_PLAN_CUH

#include "kernels/cuda/experts/sums.cuh"

struct op_call {
    const struct op *reader; /* the next op, where it alone reads what this one writes; else NULL */
    uint32_t read_again;     /* activations that ops after this one read as they are now */
    enum path path;          /* the one that this op takes; PATH_NONE for ops that have no choice */
    uint32_t row0, bucket;   /* rows of this call; of out rows where the op writes ACT_LOGITS */
    struct act_state
        acts; /* ACT_ATT in pieces is whole, but in ws.wg_x, in the order that the product after it wants */
    /* ACT_X, where it is in pieces: what nobody has added to the residual stream yet. Experts' results, then a product;
     * either may be none. */
    struct expert_sums x_experts;
    partials x;
    const float *x_bias;
    uint32_t x_n;
    /* ACT_Q, where it is in pieces: the product of q_op, before all that follows it, K and V among it, which nobody has
     * appended yet. */
    partials q;
    const struct op_qkv *q_op;
    /* ACT_FF, where it is in pieces: gate and up before their activation, or, `ff_made`, the activation in ws.wg_ff, in
     * the order that the product after it wants. */
    partials ff;
    struct op_ffn_up ff_op;
    bool ff_made;
    uint32_t job_pairs;         /* of a job at most: the route's pairs are in order, ws.experts.order; 0: not yet */
    const struct op *columns;   /* experts_down whose columns experts_up has left (experts/wgmma.cu), or NULL */
    bool routed;                /* a kernel since the route has waited for it before it let the next one start */
    bool told;                  /* this route is told before its kernel has ended: experts/experts.cuh */
    uint32_t n_route;           /* routes of the step so far */
    const struct op *shares_of; /* the op_route whose logits the op before it has told in shares, or NULL */
    const struct op *next;      /* the op after this one, or NULL */
    struct {
        const struct op *op;
        uint32_t row0, bucket;
    } planes; /* the op, and its rows, whose input the op before it has left as integers too (batch.cu) */
    const struct op *projected; /* by plain rows, whose kernel was launched before the one of the op before it */
    const struct op *end;       /* behind the program's last op */
    const struct op *shared[2]; /* ops of a shared expert that the experts' launches have done, or will; NULL: none */
    const struct op *prepared;  /* experts_down whose hidden rows the product before it has prepared, or NULL */
    const struct op *normed;    /* experts_up whose rows were normed with the route before it, or NULL */
    const struct op *asked; /* op_attend of which the product before its q|k|v has asked into L2, or NULL: so many */
    uint32_t asked_pages;   /* pages of each sequence */
};

/* Launches one call of an op. */
typedef void op_run(struct device *d, struct op_call *p, const struct op *o);

/* Runs the program's ops over the step that step.cu has set up; the first failure sticks in the device. */
void plan_run(struct device *d, const struct program *program);
/* Adds up what of this set is in pieces, into the workspace's own form. */
void plan_complete(struct device *d, struct op_call *p, uint32_t acts);
/* The path that takes a whole step of so many rows, PATH_NONE where it goes in chunks. decode: a row a sequence. */
enum path plan_step_path(const struct device *d, const void *model, uint32_t n_row, bool decode, enum invariance how);
const char *op_path(struct device *d, const struct program *p, uint32_t i, uint32_t n_row, bool invariant);
bool prompt_is_quick(struct device *d, const void *model, const struct kv_desc *kv, uint32_t n_group);

/* The launchers. gemm.cu takes PATH_GEMV and PATH_SKINNY; rows [row0, row0 + bucket) of the step, bucket <= GEMM_ROWS;
 * a row's bits depend neither on bucket nor on row0. */
op_run gemm_qkv, gemm_proj, gemm_ffn_up, gemm_head, gemm_project;
/* Whether few rows of this op may take PATH_GEMV: chip, types, and a row of activations that fits shared memory. */
bool gemv_takes(const struct device *d, const struct op *o);

/* Whether a launch of gemv or skinny for so many rows of the op also does what follows its product; else a kernel of
 * epilogue.cu does. */
bool gemm_ends_here(const struct device *d, const struct op *o, enum path path, uint32_t rows);

/* wgmma.cu: all rows of a step, at most WG_ROWS but for INVARIANT_PROMPT, on Hopper, where every matrix of the model is
 * of a type that it takes (wg_supports); wg_can_run says the same of one op's. */
op_run wg_qkv, wg_proj, wg_ffn_up, wg_head, wg_project;
bool wg_supports(const struct device *d, const void *model);
bool wg_can_run(const struct op *o);

/* Where attention's results go in the order that the next op's product wants, with no kernel between them; false where
 * that op takes another path. ACT_ATT is in pieces then. */
bool wg_attended(struct device *d, struct op_call *p, uint32_t d_q, act_buf *out);

/* Whether ACT_X is whole but for experts' results: a product may leave its own pieces beside these. */
static inline bool only_experts_left(const struct op_call *p)
{
    return p->acts.pieces & ACT_BIT(ACT_X) && p->x_experts.y && !p->x.p;
}
/* ACT_X is whole, or will be by what was launched last. */
static inline void x_completed(struct op_call *p)
{
    p->x = partials{}, p->x_experts = expert_sums{};
    act_completed(&p->acts, ACT_X);
}

/*
 * norm.cu: the RMS norm of `bucket` rows of ws.x, of n elements, after what p holds of ACT_X in pieces was added to
 * them: into a form of wgmma's, and a second one where it has a place, or, of up to WG_ROWS rows, into the prepared
 * form. gather: rows step_dev.out_row; their sums are not kept, and ACT_X is lost then where it was in pieces.
 */
void norm_pieces_run(struct device *d, struct op_call *p, const struct norm *nm, uint32_t n, act_buf out, act_buf two,
                     bool gather, uint32_t bucket);
/* cublaslt.cu: all rows of a step. */
op_run prefill_qkv, prefill_proj, prefill_ffn_up, prefill_project;
/* ref.cu: slow and plain, from the untouched file layout (variant "reference"). */
op_run ref_qkv, ref_proj, ref_ffn_up, ref_head, ref_project;
void ref_product(struct device *d, const struct op_call *p, const wdev *w, const struct norm *norm, const act_buf *x,
                 float *out, uint32_t ldout); /* rows_product() of PATH_REF */
/* embed.cu, inputs.cu, attend/ */
op_run embed_run, inputs_run, input_gate_run, attend_run, latent_run, latent_q_run, latent_out_run;
/* Whether a step of one row goes through attention's short kernels: a KV head's query heads fit a tile. */
bool attend_one(const struct op_attend *op);
/* experts/: the ops of mixtures, all rows of a step. experts_path: "few", "grouped" or "wgmma", which they take. */
op_run route_run, experts_up_run, experts_down_run;
/* Whether route_run takes ACT_X in pieces: it norms the rows for the experts after it as well. */
bool route_takes_pieces(const struct device *d, const struct op_call *p, const struct op *o);
/* experts.cu: whether these experts, of one row, can have a router without a kernel (experts/shares.cuh). */
bool experts_choose(const struct device *d, const struct op_experts_up *op);
/* shares.cu: launches the product `a` of op_proj o, to which the launcher has come, with the logits of the op_route
 * that follows; false where that has a kernel, and nothing is launched. */
struct gemm_args;
bool proj_shares(struct device *d, struct op_call *p, const struct op *o, const gemm_args &a);
const char *experts_path(const struct device *d, const struct op *o, uint32_t n_row, bool invariant);
/* states/: layers with a recurrent state, all rows of a step; and op_project's end. project_begin: whether its columns
 * fit ACT_MIX; project_pieces: columns [at + row0, at + row0 + n) of it from a product's rows in pieces; project_tmp:
 * [at, at + n) out of ws.tmp; project_plain: in F32, from a matrix that is kept as plain rows; project_told: behind a
 * kernel that tells when x is whole, gemm_args.x_said; project_beside: by the launch that adds up the first n columns
 * of the op before it, whose pieces are s, false where there is no such op or launch; experts/route.cu: route_project,
 * the same where nothing is known of norm and columns. */
op_run shortconv_run, delta_run, mamba2_run, project_plain;
bool project_begin(struct device *d, const struct op_project *op);
void project_told(struct device *d, struct op_call *p, const struct op *o, const ulonglong2 *x_said, uint32_t x_nth);
void project_pieces(struct device *d, const partials *s, uint32_t row0, uint32_t n, uint32_t at, uint32_t bucket);
bool project_beside(struct device *d, struct op_call *p, const partials *s, uint32_t n, uint32_t at);
void project_tmp(struct device *d, uint32_t n, uint32_t at, uint32_t bucket);
void route_project(struct device *d, const struct op_project *op);

/* The parts' types, where these are one or two, the lesser first: the order in which kernels for two name them. */
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
/* The kernel for a weight's types: f(types<A, B>()) of the one of `pairs` that they are, or NULL. */
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
