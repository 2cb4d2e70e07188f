/*
 * ops.h - what the CPU's ops have in common: checks of their arguments, norms, and matrix products divided into items
 * for the pool. Implemented in matmul.c and ops.c.
 *
 * Thread: the device's; functions of an item, and cpu_kblocks_of_row(), also run on the pool's threads.
 */
#ifndef HEARTH_CPU_OPS_H
#define HEARTH_CPU_OPS_H

#include "kernels/cpu/cpu.h"

enum {
    TMP_FLOATS = MATMUL_ROWS * BATCH_ROWS_MAX, /* a thread's buffer for some columns of all rows of a product */
    TMP_COLS_MAX = 256,
};

/* A matrix product and its division into items. */
struct matmul_job {
    struct device *d;
    const struct weight *w;
    const struct panel *x;
    uint32_t chunk;  /* output rows per item, a multiple of MATMUL_ROWS */
    uint32_t n_item; /* over all parts; each part begins a new item */
    const void *op;
};
struct matmul_job cpu_matmul_job(struct device *d, const struct weight *w, const struct panel *x, const void *op);
/* Returns an item's part, and its output rows [*o0, *o1). */
uint32_t cpu_matmul_rows(const struct matmul_job *p, uint32_t item, uint32_t *o0, uint32_t *o1);
/* Output rows per item, enough for an item to outweigh its scheduling, of n_out in all, over n_row rows of n_in
 * columns. */
uint32_t cpu_matmul_chunk(const struct device *d, uint32_t n_out, uint32_t n_in, uint32_t n_row);

/* The variant's matmul, times the part's scale. */
void cpu_matmul(struct device *d, const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0,
                uint32_t o1, float *y, size_t ldy, float *scratch);

/* Whether any of its parts is of a type that is multiplied in integers. */
bool cpu_has_ints(const struct weight *w);
/* Returns a buffer for the k-blocks of so many rows, valid until the next product begins; NULL, and the step's error
 * set, where memory is out. */
struct kblock *cpu_kblocks_room(struct device *d, size_t n_row, uint32_t n_col);
/* Makes a row's k-blocks in x->kb. */
void cpu_kblocks_of_row(const struct device *d, const struct panel *x, uint32_t row);
/* Gives each thread its scratch: the variant's matmul scratch, then two blocks of TMP_FLOATS. */
bool cpu_matmul_reserve(struct device *d, uint32_t n_in);
/* The same, and prepares the operands of a product: checks the shapes and that the matrix is the step's model's, pads x
 * with zeros to whole lanes, and makes its k-blocks if the matrix needs them. Returns false and sets the step's error
 * on failure. */
bool cpu_matmul_begin(struct device *d, const char *what, const struct weight *w, struct panel *x);
/* The number of columns of n_row rows that fit in a block of TMP_FLOATS, a multiple of MATMUL_ROWS. */
static inline uint32_t cpu_tmp_cols(uint32_t n_row)
{
    uint32_t n = TMP_FLOATS / n_row;
    return (n > TMP_COLS_MAX ? TMP_COLS_MAX : n) / MATMUL_ROWS * MATMUL_ROWS;
}

/* Adds bias[0..n) to each of n_row rows of n columns. */
static inline void cpu_add_bias(float *v, const float *bias, uint32_t n_row, uint32_t n)
{
    for (uint32_t r = 0; r < n_row; r++, v += n)
        for (uint32_t i = 0; i < n; i++)
            v[i] += bias[i];
}

/* Whether n is from 1 to the reserved limit; sets the step's error if not. */
bool cpu_fits(struct device *d, const char *what, uint64_t n, uint64_t limit);
/* The token ids of the step's rows, with TOKEN_OF_SLOT replaced by the slot's last token. Returns false and sets the
 * step's error where an id is not in the vocabulary. */
bool cpu_token_ids(struct device *d, uint32_t n_vocab, uint32_t out[BATCH_ROWS_MAX]);
/* Returns RoPE's cos and sin of every row [n_row, n_rot]; the first layer computes them and the others reuse them.
 * NULL, and the step's error set, where memory is out. */
const float *cpu_rope_table(struct device *d, const struct rope *rope);
/* Stores n_kv vectors at position pos of a page in which the layer's K (or V) begins at `at`. */
void cpu_kv_append(struct device *d, enum dtype type, char *at, const float *v, uint32_t n_kv, uint32_t d_head,
                   uint32_t pos);
/* Whether a layer of this shape fits the group's pool, and its queries the workspace; `d_v` as in kv_desc. */
bool cpu_kv_fits(struct device *d, uint32_t layer, uint32_t group, uint32_t n_head, uint32_t n_kv, uint32_t d_head,
                 uint32_t d_v);
/* Normalises these n_row rows of x (rows NULL: the first ones) into `normed`. */
void cpu_norm_rows(struct device *d, const struct norm *norm, const uint32_t *rows, uint32_t n_row);

#endif
