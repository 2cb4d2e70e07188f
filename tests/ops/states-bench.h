/*
 * states-bench.h - shared by the tests of ops with a recurrent state: such ops with random numbers, their definitions
 * in double precision, and a device that runs steps of one of them.
 */
#ifndef TESTS_OPS_STATES_BENCH_H
#define TESTS_OPS_STATES_BENCH_H

#include "tests/ops/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* LONG: tokens of a long timeline; SEQS: sequences of a bench. */
enum { ROWS = 512, TAPS = 4, COLS_MAX = 1900, STATE_MAX = 110000, LONG = 131072, SEQS = 4 };

/* An op under test: sizes of its input, output and state, the op, and a function that computes a row of it in double
 * precision and updates `state`. */
struct subject {
    const char *name;
    uint32_t n_mix, n_att, n_state;
    struct op op;
    void (*row)(const struct subject *s, const float *in, double *state, double *out);
    float *w, *bias, *decay, *dt_bias, *skip, *norm;
};

/* The backend and device settings of all benches; states_main() sets them. */
extern const struct backend *states_backend;
extern const char *states_variant;
extern bool states_gpu;

/* n floats in [low, high), a pure function of the seed; the caller frees them. */
float *numbers(uint64_t seed, size_t n, float low, float high);
struct subject make_shortconv(uint32_t d, uint32_t taps);
struct subject make_delta(uint32_t n_k, uint32_t n_v, uint32_t d_k, uint32_t d_v, bool tiled, bool paired);
struct subject make_mamba2(uint32_t n_head, uint32_t d_head, uint32_t d_state, uint32_t n_group, bool norm_whole);
void forget(struct subject *s);

struct bench {
    const struct backend *be;
    struct device *d;
    struct kv_pool *pool;
    struct kv_desc desc;
    uint32_t page[SEQS][3]; /* as batch_seq.pages: the page that was written last is read next */
    uint32_t n_within;      /* batch_seq.n_within of the first sequence */
    enum invariance how;
    float *vec[6]; /* the subject's vectors, in device memory */
};
/* Fails the test if rc is an error. */
void ok(int rc, const struct hearth_err *e);
void bench_open(struct bench *b, const struct subject *s);
void bench_close(struct bench *b);

/* Consecutive rows of a sequence: so many tokens from a position on. */
struct piece {
    uint32_t pos, n;
};
/* Runs a step of n_seq sequences, each of which reads the page that it wrote last; in [rows, n_mix], out [rows,
 * n_att]. */
int run_all(struct bench *b, const struct subject *s, const struct piece *of, uint32_t n_seq, const float *in,
            float *out, struct hearth_err *e);
int run(struct bench *b, const struct subject *s, uint32_t pos, uint32_t n, const float *in, float *out,
        struct hearth_err *e);
/* Copy the state that a sequence wrote last, and the contents of a page. */
void save_page(struct bench *b, uint32_t page, float *to);
void save_of(struct bench *b, uint32_t seq, float *to);

/* Changes a row of random input so that it becomes ill-conditioned. */
typedef void shape_fn(const struct subject *s, uint32_t pos, float *in);
/* Fails if n_token tokens, in their rows or in the state at the end, differ from double precision by more than
 * `most`. */
void measure_as(const struct subject *s, enum invariance how, shape_fn *shape, uint32_t n_token, double most);

/* Runs the program; its arguments are a backend and a variant. */
int states_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t n);

#endif
