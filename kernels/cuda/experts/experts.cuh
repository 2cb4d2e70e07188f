/*
 * experts.cuh - what the kernels of op_experts_up and op_experts_down share: their arguments, and the dispatch by
 * weight type.
 *
 * The matrix of one expert consists of the tiles of 16 rows that tile16.cuh describes, and the matrices of all experts
 * lie one after the other: a kernel finds one by its id, which it reads on the device. There are three code paths. few
 * (few.cuh) takes one to four rows of quantised weights, and all rows that the invariant mode computes as decoded ones:
 * each row is computed by itself, with its own experts and its own sums; for `down` the matrices of all its experts
 * form one long K. grouped (grouped.cuh) sorts the pairs of a row and an expert by expert and makes them the columns of
 * a product with each expert's matrix, which is read once for all of its columns, or once per 32 of them. wgmma
 * (wgmma.cu) does the same on Hopper for prompts and for large batches, 32, 64 or 128 columns at once.
 */
#ifndef HEARTH_CUDA_EXPERTS_CUH
#define HEARTH_CUDA_EXPERTS_CUH

#include "kernels/cuda/experts/choice.cuh"
#include "kernels/cuda/experts/sums.cuh"
#include "kernels/cuda/experts/told.cuh"
#include "kernels/cuda/gemm/gemm.cuh"

/* A dense feed-forward network beside the experts, in a step of one row: beside.cuh. Its matrix has the experts'
 * type. */
struct experts_beside {
    const uint8_t *w;
    uint32_t n_tile, n_kblk, k;
    const float *gain; /* up: [k], the weights of its norm */
    float eps;
    enum glu_kind glu;
    uint32_t n_out; /* up: hidden units */
    act_buf ff;     /* of `up`, for `down` */
    float scale;    /* down: multiplies its result before the first norm */
    float *x;       /* down: the residual stream, becomes x_scale (x + last(own(network) + post(experts))) */
    float x_scale;
    struct row_norm own, post, last; /* down; own.said serves own and post, last.said points behind it */
};

/* `up` of one row: the part of routing that a router kernel does otherwise (shares.cuh). */
struct experts_router {
    struct route_shares shares; /* n_tile 0: a router kernel exists */
    struct route_choice choice;
    const float *bias; /* [n_expert] or NULL */
    float eps;         /* of the norm in front of the router */
    float *out;        /* [2 n_used]: ACT_ROUTE */
};

struct experts_args {
    const uint8_t *w;
    uint64_t expert_bytes;
    uint32_t n_expert, n_tile, n_kblk, k; /* of one expert's matrix: tiles, k-blocks, columns */
    uint32_t n_used;
    const float *route; /* [rows][2 n_used] */
    const step_dev *step;
    uint32_t bucket;
    bool bulk; /* rings are filled by bulk copies, else by cp.async */
    /* activations: for `up` f32 rows that are still to be normed, or prepared rows; for `down` hidden rows */
    const float *xf;
    uint32_t ldxf;
    struct norm norm;
    act_buf x;
    uint64_t x_step; /* grouped: stride between the records of a row, in halves */
    /* what follows */
    const float *bias;
    enum glu_kind glu;
    uint32_t gated;
    uint32_t n_out; /* output rows of one part of the matrix */
    float *hidden;  /* [pairs][n_out of up] */
    float *out;     /* few: the residual stream; grouped: products [pairs][ldout] */
    uint32_t ldout;
    float scale;
    /* grouped */
    const uint32_t *order, *n_job;
    const struct experts_job *jobs;
    uint32_t cols;
    bool here;  /* each block sorts the pairs itself, by the route (sort.cuh); else the three arrays above are filled */
    __half *to; /* up: records of prepared hidden rows, by pair, instead of `hidden`; or NULL */
    uint64_t to_step; /* stride between records, in halves */
    uint32_t ring;    /* offset of the ring in shared memory */
    /* down: the route is complete before this kernel starts, or is published; up: it must be so for the kernels whose
     * launch this one triggers */
    bool routed;
    uint32_t stages;
    route_said *said; /* [rows], or NULL: the route, and x of `up`, are complete when pdl_wait returns */
    uint32_t nth;     /* number of the route: said_tag() */
    /* few */
    bool anew;     /* down: overwrite `out` instead of adding to it */
    uint32_t grid; /* blocks of a row that have tiles; one more computes shared_by */
    /* The shared expert, which every row goes to besides its own: it has the shape of the others and is the last of a
     * row's n_slot. `shared` is its matrix, NULL where there is none. The row's result is multiplied by
     * sigmoid(shared_gate . norm(x)), which `up` leaves in shared_by. */
    const uint8_t *shared;
    uint32_t n_slot;          /* n_used, or one more */
    const float *shared_gate; /* [k]; NULL: 1 */
    float *shared_by;         /* [rows] */
    float *shared_hidden;     /* few: [rows][ldshared] */
    uint32_t ldshared;
    struct experts_beside beside;
    struct experts_router router;
    ulonglong2 *told;   /* one row: [n_used * n_out of up / 2] hidden units that `up` publishes for `down`; or NULL */
    uint32_t more;      /* down with `told`: slices, per block, of tiles that no block owns */
    ulonglong2 *slices; /* ... and where the sums of those slices are published */
};

/* An expert's matrix; the id after the last one stands for the shared expert. */
__device__ static inline const uint8_t *expert_at(const experts_args &a, uint32_t expert)
{
    return expert < a.n_expert ? a.w + expert * a.expert_bytes : a.shared;
}

/* The types for which few_down.cuh has a kernel. */
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

/* One per type (one_type.cu): launches the product a of one row, with weights of that type, which also computes shares
 * of a router's logits. Returns false, and launches nothing, where the type or the shape does not allow it. */
struct shares_args;
typedef bool shares_fn(struct device *d, gemm_args a, const shares_args &s);
#define X(t, T, number) extern shares_fn shares_##t;
QUANTS(X)
#undef X

/* One per type (one_type.cu): launches the kernel for `bucket` rows, or, if grouped, for products of a.cols columns. */
typedef void experts_fn(struct device *d, experts_args &a, enum experts_kernel kernel);
#define X(t, T, number) extern experts_fn experts_##t;
QUANTS(X)
#undef X

enum { EXPERTS_STAGES = 8 };
/* Layout of the shared memory of few's kernels in front of the rings: barriers, zeros for lanes without activations,
 * sums of squares, sums of tiles (two buffers), then the records of activations. */
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
