/*
 * selfcheck.h - before a device serves a model, it must show on the model's own tensors that its results match the
 * reference's.
 *
 * Each different (op, types, shape) of the model's program is computed with made-up activations by the model's device
 * and by the reference: for one row, for three rows of three sequences at positions above 1, and for five rows of two
 * prompts, which a device may compute with other arithmetic (on Hopper wgmma; the vendor library's path, used from some
 * hundred rows on, is not checked, because its trial runs take longer than the whole check may), and, where they
 * will be wanted, once more as rows that decode in a batch whose bits are fixed. Pages of KV are
 * checked too: the K and V that qkv appends, that the rest of the page is unchanged, copies and clears. Then all of
 * these ops together with those that write their inputs, sampling included, are run as one step of the backend's fast
 * path (a captured graph, then its replay), which must be bit-identical to running them one by one.
 *
 * The reference's work is bounded: of every matrix it multiplies SELFCHECK_ROWS sampled rows (different ones for each
 * batch), of qkv and attention one head of each of q, k and v. That is some million multiply-adds for a model of any
 * size, done by a few threads while the device does its own work (jobs.c). The columns that are not sampled are
 * compared with the device's own results: every number must be finite and bit-identical in a batch of one row and in
 * one of three.
 *
 * AFTER A FAILURE the device does not run this model: load.c gives the model to the CPU, in the same process, beside
 * the other models, which passed. Restarting the whole engine on the CPU was the alternative; it would have interrupted
 * the streams of every other model for a fault of one kernel. A model on the CPU has synchronous steps of its own
 * (step.c), and its row of `status` gives the reason. If the CPU cannot take the model either, loading fails with both
 * reasons.
 *
 * Thread: the device's, between steps.
 */
#ifndef HEARTH_ENGINE_SELFCHECK_H
#define HEARTH_ENGINE_SELFCHECK_H

#include "daemon/model/model.h"

enum { SELFCHECK_ROWS = 64 };

struct selfcheck {
    uint32_t n_op; /* number of different ops checked */
    /* Duration of the whole check, and of the device's part of it. */
    double ms;
    double device_ms;
    char failed[HEARTH_ERR_MSG]; /* op, types, shape and error; "": passed */
};

/* Runs the check and fills in the report. Returns 0 where the check could be carried out, passed or failed. The model's
 * workspace must be reserved, no step under way, and the slots from SLOTS_MAX - 3 on free. `ref` is opened with
 * `params` for the duration of the check, once for each of its threads. */
int selfcheck_run(const struct model *m, const struct backend *ref, const struct device_params *params, bool batches,
                  struct selfcheck *out, struct hearth_err *e);

/* --- ops.c ------------------------------------------------------------------------------------- */

struct op_list {
    struct op *op; /* owned */
    uint32_t n;
    uint32_t n_layer[KV_GROUPS_MAX]; /* layers of each group that they use: each qkv of a different kind gets a layer of
                                        its own */
};

/* Collects the different ops of a program, in the order of their first use, and the ops of a step: each of the
 * different ones once, preceded by the ops that write what it reads, because an op never meets activations left behind
 * by an earlier step. Pointers lead into the model, as the program's do. Both lists must be freed with op_list_free(),
 * even after an error. */
int ops_collect(const struct program *p, struct op_list *different, struct op_list *step, struct hearth_err *e);
void op_list_free(struct op_list *l);

/* The ops that are checked. Add a row for an op when a GPU gets a launcher for it: until then a device that would run
 * the op is refused, as the op cannot be checked. */
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

/* Whether two matrices, norms (either may be NULL) or numbers are the same in everything that a kernel depends on. */
bool same_weight(const struct weight *a, const struct weight *b);
bool same_norm(const struct norm *a, const struct norm *b);
bool same_float(float a, float b);
/* Whether two ops are of the same kind, types and shape; one function per kind, in ops.c or in the op's own file. */
#define X(KIND, name) bool same_##name(const struct op_##name *a, const struct op_##name *b);
CHECKED_OPS(X)
#undef X

/* --- ref.c ------------------------------------------------------------------------------------- */

enum { CHECK_SEQS = 3, CHECK_ROWS = 5, CHECK_PAGES = 23 /* a prime, so that every stride visits all pages */ };

/* The rows of one step. */
struct check_batch {
    enum invariance how; /* not OFF: sequences have several rows, and weights may be rounded to fp16 */
    uint32_t n;
    uint32_t seq[CHECK_ROWS];      /* the row's sequence; rows of one sequence are consecutive */
    uint32_t input_id[CHECK_ROWS]; /* selects the row's made-up input; equal ids give equal inputs */
    uint32_t pos[CHECK_ROWS];
    int32_t token[CHECK_ROWS];
    uint32_t pages[CHECK_ROWS][CHECK_PAGES];
};
/* Numbers of made-up inputs, beyond those used for a model's ops. */
enum { CHECK_INPUT_KV = 1 << 24, CHECK_INPUT_STATE };

/* Fills in one of an op's made-up inputs: multiples of 2^-10 up to 1 (2^-7 up to 8 for queries), which fp16 holds
 * exactly. */
void check_input(float *v, uint32_t n, uint32_t op, enum act a, uint32_t input_id);
/* The number of columns of an activation that an op reads. */
uint32_t check_width(const struct op *op, enum act a);
/* Fills in all columns for op i; a route is a valid one. */
void check_op_input(float *v, const struct op *op, uint32_t i, enum act a, uint32_t input_id);

/* The reference's values for some columns of an op's results. */
struct expect {
    uint32_t n_col;
    uint32_t *col; /* [n_col] */
    float *want;   /* [n, n_col] */
    float *scale;  /* [n, n_col] the magnitude of each sum's terms, against which an error is measured */
    bool exact;    /* the inputs of the product are not rounded to fp16 */
};
void expect_free(struct expect *x);

/* In a group of states, each sequence always reads the first of its two pages and writes the second. */
enum { CHECK_STATES = 2 * CHECK_SEQS + 2 /* pages, including two of no sequence */ };
extern const uint32_t check_state_pages[CHECK_SEQS][2];
/* Fills in the n numbers of a layer's state in the page that a sequence reads. */
void check_state(float *v, uint32_t n, uint32_t layer, uint32_t seq);

/* A pool of desc.n_page pages, and host memory to transfer them to and from. That memory is allocated once, because
 * pinning it takes as long as the transfers. */
struct check_pages {
    struct kv_pool *kv;
    struct kv_desc desc;
    bool apart; /* the device stores Q8_0 with scales apart; here pages are always in blocks */
    uint8_t *room;
    uint64_t bytes; /* size of all pages */
};
int pages_open(struct check_pages *p, const struct backend *be, struct device *d, const struct kv_desc *desc,
               struct hearth_err *e);
void pages_close(struct check_pages *p, const struct backend *be, struct device *d);
/* Transfer all pages; no step may be under way. */
int pages_upload(struct check_pages *p, const struct backend *be, struct device *d, const uint8_t *from,
                 struct hearth_err *e);
int pages_download(struct check_pages *p, const struct backend *be, struct device *d, uint8_t *to,
                   struct hearth_err *e);

struct reference {
    const struct model *m;
    const struct backend *be;
    struct device *d;
    struct check_pages pool; /* one layer; its heads: see reference_shape() */
    struct kv_desc desc;
    uint8_t *page; /* buffer for all of its pages */
};
int reference_open(struct reference *r, const struct model *m, const struct backend *be,
                   const struct device_params *params, enum dtype kv_type, struct hearth_err *e);
void reference_close(struct reference *r);
/* Makes the pool one of n_kv heads with keys and values of these sizes; d_v 0: values are part of their keys. */
int reference_shape(struct reference *r, uint32_t n_kv, uint32_t d_k, uint32_t d_v, struct hearth_err *e);

/* A job: one op for one batch, and its expected results. */
struct check_job {
    const struct op *op;
    uint32_t i; /* the op's index in the list */
    const struct check_batch *b;
    /* Attend only: it reads the device's pages, in the form of `desc`, and so must wait for the device's own run. */
    bool deferred;
    const uint8_t *kv; /* [CHECK_PAGES] pages; NULL where the op reads none */
    const struct kv_desc *desc;
    struct expect
        /* Sampled columns. qkv has three parts (q, k, v), latent two (the second is the key), other ops one. */
        want[3];
    uint32_t head[3]; /* qkv and latent: the sampled head of each part */
    int rc;
    struct hearth_err err;
};

/* Fills in want and head. Returns 0, or an error with `e` set. */
int reference_run(struct reference *r, struct check_job *j, struct hearth_err *e);
/* One function per kind of op, in ref.c or in the op's own file. */
#define X(KIND, name) int reference_##name(struct reference *r, struct check_job *j, struct hearth_err *e);
CHECKED_OPS(X)
#undef X
/* Samples a token with the reference from each row of logits [n, n_vocab]. */
int reference_sample(struct reference *r, const struct check_batch *b, const float *logits,
                     const struct sample_params *p, const int32_t *history, uint32_t n_history, uint32_t index,
                     struct sampled *out, struct hearth_err *e);

/* --- jobs.c ------------------------------------------------------------------------------------ */

enum { CHECK_THREADS = 4 };

struct check_jobs;

/* Starts the jobs; the array must stay in place until jobs_end. The result must be freed even after an error. */
int jobs_begin(struct check_jobs **out, const struct model *m, const struct backend *ref,
               const struct device_params *params, enum dtype kv_type, struct check_job *job, uint32_t n,
               struct hearth_err *e);
/* Waits for all jobs, and returns a reference for the deferred ones. */
struct reference *jobs_end(struct check_jobs *all);
void jobs_free(struct check_jobs *all);

#endif
