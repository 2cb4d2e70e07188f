/*
 * experts.cuh - what the kernels of op_experts_up and op_experts_down share: their arguments, and the choice of a type.
 *
 * An expert's matrix is one of the tiles of 16 rows that tile16.cuh describes, and all experts' lie one after the
 * other: a kernel finds one by its id, which it reads on the device. Three ways lead there: few (few.cuh): one to four
 * rows of quantised weights, and all rows that are computed as decoded ones are in the invariant mode. A row's experts
 * are its own, and so are the sums: for `down` the matrices of all of them are one long K. grouped (grouped.cuh): pairs
 * of a row and an expert, in the experts' order, are the columns of a product with each matrix, which is read once for
 * all its columns, or for each 32 of them. wgmma (wgmma.cu): the same for prompts on Hopper, 64 or 128 columns at once.
 */
#ifndef HEARTH_CUDA_EXPERTS_CUH
#define HEARTH_CUDA_EXPERTS_CUH

#include "kernels/cuda/experts/choice.cuh"
#include "kernels/cuda/experts/sums.cuh"
#include "kernels/cuda/experts/told.cuh"
#include "kernels/cuda/gemm/gemm.cuh"

/* An ordinary network beside the experts, of a step of one row: beside.cuh. Its matrix is of the experts' type. */
struct experts_beside {
    const uint8_t *w;
    uint32_t n_tile, n_kblk, k;
    const float *gain; /* up: [k], its norm's weights */
    float eps;
    enum glu_kind glu;
    uint32_t n_out; /* up: hidden units */
    act_buf ff;     /* of `up`, for `down` */
    float scale;    /* down: of its result, before the first norm */
    float *x;       /* down: the residual stream, becomes x_scale (x + last(own(its) + post(experts'))) */
    float x_scale;
    struct row_norm own, post, last; /* down; the slots of own are for the first two, those of last behind them */
};

/* up, of one row: what a router's kernel else does (shares.cuh). */
struct experts_router {
    struct route_shares shares; /* n_tile 0: there is a router's kernel */
    struct route_choice choice;
    const float *bias; /* [n_expert] or NULL */
    float eps;         /* of the norm before the router */
    float *out;        /* [2 n_used]: ACT_ROUTE */
};

struct experts_args {
    const uint8_t *w;
    uint64_t expert_bytes;
    uint32_t n_expert, n_tile, n_kblk, k; /* tiles and k-blocks of an expert; its columns */
    uint32_t n_used;
    const float *route; /* [rows][2 n_used] */
    const step_dev *step;
    uint32_t bucket;
    bool bulk; /* rings are filled by bulk copies */
    /* activations: f32 rows to be normed or prepared rows, of `up`; hidden rows, of `down` */
    const float *xf;
    uint32_t ldxf;
    struct norm norm;
    act_buf x;
    uint64_t x_step; /* grouped: halves from record to record of a row */
    /* what follows */
    const float *bias;
    enum glu_kind glu;
    uint32_t gated;
    uint32_t n_out; /* rows of a part */
    float *hidden;  /* [pairs][n_out of up] */
    float *out;     /* few: the residual stream; grouped: products [pairs][ldout] */
    uint32_t ldout;
    float scale;
    /* grouped */
    const uint32_t *order, *n_job;
    const struct experts_job *jobs;
    uint32_t cols;
    bool here;        /* blocks sort the pairs themselves, by the route: sort.cuh. Else the three above are there */
    __half *to;       /* up: records of prepared hidden rows, pair by pair, in place of `hidden`; or NULL */
    uint64_t to_step; /* halves from record to record */
    uint32_t ring;    /* where the ring begins in shared memory */
    /* down: the route is there before the kernel starts, or is told; up: it is for those that this kernel lets in */
    bool routed;
    uint32_t stages;
    route_said *said; /* [rows], or NULL: the route, and x of `up`, are there when pdl_wait returns */
    uint32_t nth;     /* of the route: said_tag() */
    /* few */
    bool anew;     /* down: `out` is nothing to add to */
    uint32_t grid; /* blocks of a row that have tiles; one more makes shared_by */
    /* The expert that every row goes to beside these, of their shape, and last of a row's n_slot: its matrix; the row's
     * result is multiplied by sigmoid(shared_gate . norm(x)), which `up` leaves in shared_by. NULL: there is none. */
    const uint8_t *shared;
    uint32_t n_slot;          /* n_used, or one more */
    const float *shared_gate; /* [k]; NULL: 1 */
    float *shared_by;         /* [rows] */
    float *shared_hidden;     /* few: [rows][ldshared] */
    uint32_t ldshared;
    struct experts_beside beside;
    struct experts_router router;
    ulonglong2 *told;   /* one row: [n_used * n_out of up / 2] hidden units that `up` tells `down`; or NULL */
    uint32_t more;      /* down, where it hears: slices of tiles that are no block's own, a block */
    ulonglong2 *slices; /* ... and where their sums are told */
};

/* An expert's matrix; the one after the last is what all rows share. */
__device__ static inline const uint8_t *expert_at(const experts_args &a, uint32_t expert)
{
    return expert < a.n_expert ? a.w + expert * a.expert_bytes : a.shared;
}

/* Types of which few_down.cuh has a kernel. */
__host__ __device__ constexpr bool hears_up(int type)
{
    return type == DT_MXFP4;
}

enum experts_kernel {
    EXPERTS_UP,
    EXPERTS_DOWN,
    EXPERTS_UP_GROUPED,
    EXPERTS_DOWN_GROUPED,
    EXPERTS_UP_BESIDE,
    EXPERTS_DOWN_BESIDE
};

/* One per type (one_type.cu): the product a of one row, by weights of that type, which makes shares of a router's
 * logits; false where it does not, and nothing is launched. */
struct shares_args;
typedef bool shares_fn(struct device *d, gemm_args a, const shares_args &s);
#define X(t, T, number) extern shares_fn shares_##t;
QUANTS(X)
#undef X

/* One per type (one_type.cu): launches that kernel for `bucket` rows, or, grouped, for columns of a.cols. */
typedef void experts_fn(struct device *d, experts_args &a, enum experts_kernel kernel);
#define X(t, T, number) extern experts_fn experts_##t;
QUANTS(X)
#undef X

enum { EXPERTS_STAGES = 8 };
/* Shared memory of few's kernels, in front of the rings: barriers, ids and weights, sums, then records of activations.
 */
enum {
    FEW_ZERO = WARPS * EXPERTS_STAGES * 8,
    FEW_SQUARES = FEW_ZERO + 64,
    FEW_SUMS = FEW_SQUARES + WARPS * 4,
    FEW_X = FEW_SUMS + 2 * WARPS * 64 * 4,
};
__host__ __device__ static inline uint32_t few_fixed(uint32_t records)
{
    return (FEW_X + records * IX_KBLK + 127) & ~127u;
}

#endif
