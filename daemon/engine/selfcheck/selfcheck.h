/*
 * selfcheck.h - a device proves on a model's own tensors that it computes what the reference does, before it serves.
 *
 * Each different (op, types, shape) of the model's program is done with made-up activations by the model's device and
 * by the reference: for one row, for three rows of three sequences at positions above 1, and for five rows of two
 * prompts, which a device may compute in another arithmetic (on Hopper wgmma; the library's, from some hundred rows on,
 * is not checked: its trials take longer than the whole check may). Pages of KV are part of it: what qkv appends, that
 * nothing else of a page changes, copies and clears. Then all of these ops in a row, sampling included, as a step of
 * the backend's fast path (a captured graph, then its replay): the same bits as one by one.
 *
 * What bounds the reference's work: of every matrix it multiplies SELFCHECK_ROWS sampled rows (others for each batch),
 * of qkv and attention one head of each of q, k and v; so some million multiply-adds for a model of any size, which
 * some threads do while the device does its own (jobs.c). What is not sampled is compared all the same, but
 * with itself: every number of the device must be finite and, to the bit, the same alone as among three rows.
 *
 * WHAT FOLLOWS A FAILURE. The device is not trusted with this model: load.c gives the model to the CPU, in the same
 * process, beside the other models, which passed. Restarting the whole engine on the CPU was the alternative: it would
 * have taken every other model's streams with it, for a fault of one kernel. A model on the CPU has steps of its own,
 * waited for at once (step.c), and says why in `status`. Where even that fails, loading fails with both reasons.
 *
 * Thread: the device's, between steps.
 */
#ifndef HEARTH_ENGINE_SELFCHECK_H
#define HEARTH_ENGINE_SELFCHECK_H

#include "daemon/model/model.h"

enum { SELFCHECK_ROWS = 64 };

struct selfcheck {
    uint32_t n_op; /* different ones that were checked */
    double ms;     /* in all, and the share of it in which the device worked */
    double device_ms;
    char failed[HEARTH_ERR_MSG]; /* op, types, shape and error; "" = all is well */
};

/* Returns 0 where the check could be made, whatever it found. The model's workspace is reserved, no step is under way,
 * and slots from SLOTS_MAX - 3 on are free. `ref` is opened with `params` for the time of the check, once for each of
 * its threads. */
int selfcheck_run(const struct model *m, const struct backend *ref, const struct device_params *params,
                  struct selfcheck *out, struct hearth_err *e);

/* --- ops.c ------------------------------------------------------------------------------------- */

enum { SELFCHECK_OPS = 64 }; /* different ones in a model; no model is near */

struct op_list {
    struct op op[SELFCHECK_OPS];
    uint32_t n, n_layer; /* layers of KV that they use: a qkv of another kind appends to another one */
    bool overflow;
};

/* The different ops of a program, in the order of their first use. They point where its own do, into the model. */
void ops_collect(const struct program *p, struct op_list *out);

/* Whether two ops do the same work on other numbers; ops.c, and a file of its own for each op that came later. */
#define X(KIND, name, ...) bool same_##name(const struct op_##name *a, const struct op_##name *b);
OPS(X)
#undef X

/* --- ref.c ------------------------------------------------------------------------------------- */

enum { CHECK_SEQS = 3, CHECK_ROWS = 5, CHECK_PAGES = 23 /* a prime: every stride meets all */ };

/* Rows of one step. */
struct check_batch {
    bool prompt; /* several rows of a sequence: the device may compute them in another way */
    uint32_t n;
    uint32_t seq[CHECK_ROWS];      /* whose; rows of one sequence follow one another */
    uint32_t input_id[CHECK_ROWS]; /* which inputs are made up for it: as many as there are rows of their own */
    uint32_t pos[CHECK_ROWS];
    int32_t token[CHECK_ROWS];
    uint32_t pages[CHECK_ROWS][CHECK_PAGES];
};
/* An op's made-up input, one of many: multiples of 2^-10 up to 1, which fp16 holds exactly. */
void check_input(float *v, uint32_t n, uint32_t op, enum act a, uint32_t input_id);

/* What the reference says some columns of an op's results are. */
struct expect {
    uint32_t n_col;
    uint32_t *col; /* [n_col] */
    float *want;   /* [n, n_col] */
    float *scale;  /* [n, n_col] what an error is measured against: the size of what was added up */
    bool exact;    /* the inputs suffer no rounding on their way into the product */
};
void expect_free(struct expect *x);

/* A pool of CHECK_PAGES pages, and memory that they may be moved to and from: pinning it takes as long as the moves. */
struct check_pages {
    struct kv_pool *kv;
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
    struct check_pages pool; /* one layer of one head */
    struct kv_desc desc;
    uint8_t *page; /* room for one of its pages */
};
int reference_open(struct reference *r, const struct model *m, const struct backend *be,
                   const struct device_params *params, enum dtype kv_type, struct hearth_err *e);
void reference_close(struct reference *r);

/* One op for one batch: what is to be worked out, and what came of it. */
struct check_job {
    const struct op *op;
    uint32_t i; /* its number */
    const struct check_batch *b;
    bool deferred;     /* attend reads what the device has done: its pages, in the form of `desc`, as it left them */
    const uint8_t *kv; /* [CHECK_PAGES] pages; NULL where nothing is read */
    const struct kv_desc *desc;
    struct expect want[3]; /* sampled columns; qkv gives three parts (q, k, v), the others one */
    uint32_t head[3];      /* qkv: the one head that each part is of */
    int rc;
    struct hearth_err err;
};

/* Fills in want and head; `e` says why not. */
int reference_run(struct reference *r, struct check_job *j, struct hearth_err *e);
/* ... by kind of op: ref.c, and a file of its own for each op that came later. */
#define X(KIND, name, ...) int reference_##name(struct reference *r, struct check_job *j, struct hearth_err *e);
OPS(X)
#undef X
/* The token that it samples from each row of logits [n, n_vocab]. */
int reference_sample(struct reference *r, const struct check_batch *b, const float *logits,
                     const struct sample_params *p, const int32_t *history, uint32_t n_history, uint32_t index,
                     struct sampled *out, struct hearth_err *e);

/* --- jobs.c ------------------------------------------------------------------------------------ */

enum { CHECK_THREADS = 4 };

struct check_jobs;

/* Starts on the jobs, which stay where they are until jobs_end; what it gives is to be freed also where it fails. */
int jobs_begin(struct check_jobs **out, const struct model *m, const struct backend *ref,
               const struct device_params *params, enum dtype kv_type, struct check_job *job, uint32_t n,
               struct hearth_err *e);
/* Waits for all of them. Gives a reference for what is left to do. */
struct reference *jobs_end(struct check_jobs *all);
void jobs_free(struct check_jobs *all);

#endif
