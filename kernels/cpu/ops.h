/*
 * ops.h - what the CPU's ops have in common: checks of what they were asked for, norms, and matrix products divided
 * into items for the pool. matmul.c has it.
 *
 * Thread: the device's; what takes a job or a panel alone also runs on the pool's threads.
 */
#ifndef HEARTH_CPU_OPS_H
#define HEARTH_CPU_OPS_H

#include "kernels/cpu/cpu.h"

enum {
    TMP_FLOATS = MATMUL_ROWS * BATCH_ROWS_MAX, /* a block of columns of all rows, before it is stored to its place */
    TMP_COLS_MAX = 256,
};

/* A matrix product and its division into items. */
struct matmul_job {
    struct device *d;
    const struct weight *w;
    const struct panel *x;
    uint32_t chunk;  /* output rows an item takes, a multiple of MATMUL_ROWS */
    uint32_t n_item; /* over all parts; a part begins a new item */
    const void *op;
};
struct matmul_job cpu_matmul_job(struct device *d, const struct weight *w, const struct panel *x, const void *op);
/* Returns an item's part, and its output rows [*o0, *o1). */
uint32_t cpu_matmul_rows(const struct matmul_job *p, uint32_t item, uint32_t *o0, uint32_t *o1);
/* Output rows for an item, so many that it is worth its scheduling: of n_out in all, over n_row rows of n_in columns.
 */
uint32_t cpu_matmul_chunk(const struct device *d, uint32_t n_out, uint32_t n_in, uint32_t n_row);

/* The variant's matmul, and the part's scale. */
void cpu_matmul(struct device *d, const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0,
                uint32_t o1, float *y, size_t ldy, float *scratch);

/* Whether a part of it is of a type that is multiplied in integers. */
bool cpu_has_ints(const struct weight *w);
/* Room for the k-blocks of so many rows, which is the step's until the next product begins; NULL, and an error that
 * sticks, where memory is out. */
struct kblock *cpu_kblocks_room(struct device *d, size_t n_row, uint32_t n_col);
/* Makes a row's k-blocks in x->kb. */
void cpu_kblocks_of_row(const struct device *d, const struct panel *x, uint32_t row);
/* Gives each thread its scratch: the variant's matmul scratch, then two blocks of TMP_FLOATS. */
bool cpu_matmul_reserve(struct device *d, uint32_t n_in);
/* The same, and what a product asks of its operands: shapes that fit, a matrix of the step's model, zeros to whole
 * lanes in x, and its k-blocks where the matrix wants them. false, and an error that sticks, where it cannot be. */
bool cpu_matmul_begin(struct device *d, const char *what, const struct weight *w, struct panel *x);
/* Returns the number of columns of n_row rows that fit in a block of TMP_FLOATS, a multiple of MATMUL_ROWS. */
static inline uint32_t cpu_tmp_cols(uint32_t n_row)
{
    uint32_t n = TMP_FLOATS / n_row;
    return (n > TMP_COLS_MAX ? TMP_COLS_MAX : n) / MATMUL_ROWS * MATMUL_ROWS;
}

/* Whether n is from 1 to the limit, which was reserved; an error that sticks where not. */
bool cpu_fits(struct device *d, const char *what, uint64_t n, uint64_t limit);
/* The token ids of the step's rows, those that slots sampled included; false, and an error that sticks, where one is no
 * token of the vocabulary. */
bool cpu_token_ids(struct device *d, uint32_t n_vocab, uint32_t out[BATCH_ROWS_MAX]);
/* Returns RoPE's cos and sin of every row [n_row, n_rot]; the first layer computes them and the others reuse them.
 * NULL, and an error that sticks, where memory is out. */
const float *cpu_rope_table(struct device *d, const struct rope *rope);
/* Writes n_kv vectors to their places in the page of position pos, where K or V of the layer begin at `at`. */
void cpu_kv_append(struct device *d, enum dtype type, char *at, const float *v, uint32_t n_kv, uint32_t d_head,
                   uint32_t pos);
/* Whether KV of such a layer is in the group's pool, and queries have room; `d_v` as kv_desc has it. */
bool cpu_kv_fits(struct device *d, uint32_t layer, uint32_t group, uint32_t n_head, uint32_t n_kv, uint32_t d_head,
                 uint32_t d_v);
/* Normalises rows of x (NULL: the first n_row) into `normed`. */
void cpu_norm_rows(struct device *d, const struct norm *norm, const uint32_t *rows, uint32_t n_row);

#endif
