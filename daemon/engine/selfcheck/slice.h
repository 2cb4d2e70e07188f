/*
 * slice.h - slices of an op's weights and vectors, with only the sampled rows, on the reference's device; see
 * selfcheck.h. Used by ref.c and the files of single ops.
 */
#ifndef HEARTH_ENGINE_SELFCHECK_SLICE_H
#define HEARTH_ENGINE_SELFCHECK_SLICE_H

#include "daemon/engine/selfcheck/selfcheck.h"

enum { SLICE_VECS = 8 };

struct slice {
    struct reference *r;
    struct weight w;        /* a matrix of the sampled rows */
    uint8_t *bytes[3];      /* the data of its parts */
    float *scale[3];        /* the scales of their experts, or NULL */
    float *row;             /* buffer for one row */
    float *vec[SLICE_VECS]; /* on the reference's device */
    uint32_t n_vec;
    float *host[SLICE_VECS]; /* slices of vectors */
    uint32_t n_host;
};

/* Copies rows col[0..n) of a part of `from` as the slice's next part. */
int slice_part(struct slice *c, const struct weight *from, uint32_t part, const uint32_t *col, uint32_t n,
               struct hearth_err *e);
/* Takes all rows of a part of `from`, where they are, as the next part. */
void slice_whole(struct slice *c, const struct weight *from, uint32_t part);
/* Loads the sampled rows onto the reference's device. */
int slice_load(struct slice *c, const struct weight *from, struct hearth_err *e);
/* Loads a vector of the model onto the reference's device, from the model's host copy; NULL stays NULL. */
int slice_vector(struct slice *c, const float *host, uint32_t n, const float **out, struct hearth_err *e);
int slice_norm(struct slice *c, const struct norm *from, uint32_t n, struct norm *to, struct hearth_err *e);
/* Slices the columns col[p][0..n) of each part p's bias, which begins at first[p] in `bias`. */
int slice_bias(struct slice *c, const float *bias, const uint32_t *const col[3], const uint32_t *first, uint32_t n,
               const float **out, struct hearth_err *e);
/* Returns the magnitude of the sum that gives row i of a part, for inputs of mean square 1 multiplied by `gain` (NULL:
 * 1). */
float slice_row_size(struct slice *c, uint32_t part, uint32_t i, const float *gain);
/* Returns the root mean square of that magnitude over all rows of a part. */
float slice_rms(struct slice *c, uint32_t part, const float *gain);
void slice_free(struct slice *c);

/* --- ref.c, for the files of single ops ---------------------------------------------------------------- */

uint32_t check_hash(uint32_t x);
/* Samples n of `total` columns, different ones in each batch. */
void check_columns(uint32_t *col, uint32_t n, uint32_t total, uint32_t i, uint32_t n_row);
/* Allocates the expected values of n_row rows; free them with expect_free() even after an error. */
int expect_new(struct expect *x, uint32_t n_row, uint32_t n_col, struct hearth_err *e);
/* Writes n columns of the made-up input of op i. */
int reference_input(struct reference *r, const struct check_batch *b, uint32_t i, enum act a, uint32_t n,
                    struct hearth_err *e);
/* Reads K or V of one head at the rows' positions, from `pages`: [n, the head's size]. */
void reference_rows(const struct kv_desc *desc, const uint8_t *pages, uint32_t layer, bool v, uint32_t head,
                    const struct check_batch *b, float *out);
/* Runs the op on the reference's device and reads its results. */
int reference_op(struct reference *r, const struct check_batch *b, const struct op *op, float *out,
                 struct hearth_err *e);

#endif
