/*
 * selfcheck.h - before a device serves a model, it proves on the model's own tensors that its results match the
 * reference's.
 *
 * Each different (op, types, shape) of the model's program is computed with made-up activations by the model's device
 * and by the reference: for one row, for three rows of three sequences at positions above 1, and for five rows of two
 * prompts, which a device may compute in another arithmetic (on Hopper wgmma; the library's, from some hundred rows on,
 * is not checked: its trials take longer than the whole check may). Pages of KV are checked too: the K and V that qkv
 * appends, that the rest of the page stays as it was, copies and clears. Then all of these ops in a row, with those
 * that write what they read, sampling included, as a step of the backend's fast path (a captured graph, then its
 * replay): the same bits as one by one.
 *
 * The reference's work is bounded: of every matrix it multiplies SELFCHECK_ROWS sampled rows (others for each batch),
 * of qkv and attention one head of each of q, k and v; so some million multiply-adds for a model of any size, which
 * some threads do while the device does its own (jobs.c). The columns that are not sampled are compared with the
 * device's own: every number must be finite and, to the bit, the same in a batch of one row as in one of three.
 *
 * AFTER A FAILURE the device does not run this model: load.c gives the model to the CPU, in the same process, beside
 * the other models, which passed. Restarting the whole engine on the CPU was the alternative: it would have taken every
 * other model's streams with it, for a fault of one kernel. A model on the CPU has synchronous steps of its own
 * (step.c), and its row of `status` gives the reason. Where even that fails, loading fails with both reasons.
 *
 * Thread: the device's, between steps.
 */
#ifndef HEARTH_ENGINE_SELFCHECK_H
#define HEARTH_ENGINE_SELFCHECK_H

#include "daemon/model/model.h"

enum { SELFCHECK_ROWS = 64 };

struct selfcheck {
    uint32_t n_op; /* different ops that were checked */
    double ms;     /* the whole check, and the device's share of it */
    double device_ms;
    char failed[HEARTH_ERR_MSG]; /* op, types, shape and error; "" = passed */
};

/* Runs the check and fills in the report. Returns 0 where the check could be made, passed or failed. The model's
 * workspace is reserved, no step is under way, and slots from SLOTS_MAX - 3 on are free. `ref` is opened with `params`
 * for the time of the check, once for each of its threads. */
int selfcheck_run(const struct model *m, const struct backend *ref, const struct device_params *params,
                  struct selfcheck *out, struct hearth_err *e);

/* --- ops.c ------------------------------------------------------------------------------------- */

struct op_list {
    struct op *op; /* the list's */
    uint32_t n;
    uint32_t n_layer[KV_GROUPS_MAX]; /* layers of each group that they use: a qkv of another kind has another layer */
};

/* Collects the different ops of a program, in the order of their first use, and a step that has each of them once, and
 * before it whatever else writes what it reads: an activation that an earlier step left behind is not one that the op
 * ever meets. Pointers lead into the model, as the program's do. To free with op_list_free() also where it fails. */
int ops_collect(const struct program *p, struct op_list *different, struct op_list *step, struct hearth_err *e);
void op_list_free(struct op_list *l);

/* The ops that are checked. An op gets its row when a GPU gets a launcher for it: until then a device that would run it
 * is refused, since it has not proved itself. */
#define CHECKED_OPS(X)            \
    X(EMBED, embed)               \
    X(QKV, qkv)                   \
    X(ATTEND, attend)             \
    X(PROJ, proj)                 \
    X(FFN_UP, ffn_up)             \
    X(HEAD, head)                 \
    X(ROUTE, route)               \
    X(EXPERTS_UP, experts_up)     \
    X(EXPERTS_DOWN, experts_down) \
    X(PROJECT, project)           \
    X(SHORTCONV, shortconv)       \
    X(DELTA, delta)               \
    X(MAMBA2, mamba2)             \
    X(INPUTS, inputs)             \
    X(INPUT_GATE, input_gate)     \
    X(LATENT, latent)             \
    X(LATENT_Q, latent_q)         \
    X(LATENT_OUT, latent_out)

/* Whether two matrices, norms (either may be NULL), numbers are the same in what a kernel depends on. */
bool same_weight(const struct weight *a, const struct weight *b);
bool same_norm(const struct norm *a, const struct norm *b);
bool same_float(float a, float b);
/* Returns whether two ops are of the same kind, types and shape; one function a kind, in ops.c or in a file of the op's
 * own. */
#define X(KIND, name) bool same_##name(const struct op_##name *a, const struct op_##name *b);
CHECKED_OPS(X)
#undef X

/* --- ref.c ------------------------------------------------------------------------------------- */

enum { CHECK_SEQS = 3, CHECK_ROWS = 5, CHECK_PAGES = 23 /* a prime, so that every stride visits all pages */ };

/* Rows of one step. */
struct check_batch {
    bool prompt; /* several rows of a sequence: the device may compute them in another way */
    uint32_t n;
    uint32_t seq[CHECK_ROWS];      /* the row's sequence; rows of one sequence are consecutive */
    uint32_t input_id[CHECK_ROWS]; /* selects the row's made-up input; equal ids give equal inputs */
    uint32_t pos[CHECK_ROWS];
    int32_t token[CHECK_ROWS];
    uint32_t pages[CHECK_ROWS][CHECK_PAGES];
};
/* Numbers of made-up inputs beyond those of a model's ops. */
enum { CHECK_INPUT_KV = 1 << 24, CHECK_INPUT_STATE };

/* An op's made-up input, one of many: multiples of 2^-10 up to 1, which fp16 holds exactly. */
void check_input(float *v, uint32_t n, uint32_t op, enum act a, uint32_t input_id);
/* Columns of an activation that an op reads. */
uint32_t check_width(const struct op *op, enum act a);
/* All of them, of op i: a route is one that can be. */
void check_op_input(float *v, const struct op *op, uint32_t i, enum act a, uint32_t input_id);

/* The reference's values for some columns of an op's results. */
struct expect {
    uint32_t n_col;
    uint32_t *col; /* [n_col] */
    float *want;   /* [n, n_col] */
    float *scale;  /* [n, n_col] the magnitude of each sum's terms, against which an error is measured */
    bool exact;    /* the product's inputs are not rounded to fp16 */
};
void expect_free(struct expect *x);

/* Of a group of states: each sequence reads its first page always, and writes the second. */
enum { CHECK_STATES = 2 * CHECK_SEQS + 2 /* pages, with two of no sequence */ };
extern const uint32_t check_state_pages[CHECK_SEQS][2];
/* The n numbers of a layer's state in the page that a sequence reads. */
void check_state(float *v, uint32_t n, uint32_t layer, uint32_t seq);

/* A pool of desc.n_page pages, and host memory to transfer them to and from. It is allocated once, because pinning it
 * takes as long as the transfers. */
struct check_pages {
    struct kv_pool *kv;
    struct kv_desc desc;
    bool apart; /* the device keeps Q8_0 so; those who read and write pages here have blocks */
    uint8_t *room;
    uint64_t bytes; /* of all pages */
};
int pages_open(struct check_pages *p, const struct backend *be, struct device *d, const struct kv_desc *desc,
               struct hearth_err *e);
void pages_close(struct check_pages *p, const struct backend *be, struct device *d);
/* All pages, no step being under way. */
int pages_upload(struct check_pages *p, const struct backend *be, struct device *d, const uint8_t *from,
                 struct hearth_err *e);
int pages_download(struct check_pages *p, const struct backend *be, struct device *d, uint8_t *to,
                   struct hearth_err *e);

struct reference {
    const struct model *m;
    const struct backend *be;
    struct device *d;
    struct check_pages pool; /* of one layer: reference_shape() */
    struct kv_desc desc;
    uint8_t *page; /* room for one of its pages */
};
int reference_open(struct reference *r, const struct model *m, const struct backend *be,
                   const struct device_params *params, enum dtype kv_type, struct hearth_err *e);
void reference_close(struct reference *r);
/* Makes the pool one of so many heads' keys and values of these sizes; d_v 0: values are in their keys. */
int reference_shape(struct reference *r, uint32_t n_kv, uint32_t d_k, uint32_t d_v, struct hearth_err *e);

/* A job: one op for one batch, and its expected results. */
struct check_job {
    const struct op *op;
    uint32_t i; /* the batch's number */
    const struct check_batch *b;
    bool deferred; /* attend reads the device's pages, in the form of `desc`, and so waits for the device's own run */
    const uint8_t *kv; /* [CHECK_PAGES] pages; NULL where the op reads none */
    const struct kv_desc *desc;
    struct expect
        want[3]; /* sampled columns; qkv gives three parts (q, k, v), latent two (the latter the key), the others one */
    uint32_t head[3]; /* qkv: the sampled head of each part */
    int rc;
    struct hearth_err err;
};

/* Fills in want and head. Returns 0, or an error with `e` set. */
int reference_run(struct reference *r, struct check_job *j, struct hearth_err *e);
/* One function a kind of op, in ref.c or in a file of the op's own. */
#define X(KIND, name) int reference_##name(struct reference *r, struct check_job *j, struct hearth_err *e);
CHECKED_OPS(X)
#undef X
/* Samples the reference's token from each row of logits [n, n_vocab]. */
int reference_sample(struct reference *r, const struct check_batch *b, const float *logits,
                     const struct sample_params *p, const int32_t *history, uint32_t n_history, uint32_t index,
                     struct sampled *out, struct hearth_err *e);

/* --- jobs.c ------------------------------------------------------------------------------------ */

enum { CHECK_THREADS = 4 };

struct check_jobs;

/* Starts the jobs, which must not move until jobs_end. The result is to be freed also where it fails. */
int jobs_begin(struct check_jobs **out, const struct model *m, const struct backend *ref,
               const struct device_params *params, enum dtype kv_type, struct check_job *job, uint32_t n,
               struct hearth_err *e);
/* Waits for all jobs, and returns a reference for the deferred ones. */
struct reference *jobs_end(struct check_jobs *all);
void jobs_free(struct check_jobs *all);

#endif
