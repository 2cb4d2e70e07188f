/*
 * rig.h - one layer of a made-up transformer on a backend under test: its shape (a row of the case table), random
 * weights of one type, and steps of single ops or of the whole program.
 */
#ifndef TESTS_OPS_RIG_H
#define TESTS_OPS_RIG_H

#include "kernels/backend.h"

enum { TEMPERATURE_LENGTH = 8 };
enum {
    SEQS_MAX = 6,
    PARTS = 7,
    LAYERS = 2,
    SEQ_PAGES = 22 /* pages of a sequence: more than a chunk of decode attention */
};
enum { RIG_PAGES = SEQS_MAX * SEQ_PAGES };
enum part { P_Q, P_K, P_V, P_O, P_GATE, P_UP, P_DOWN };

struct seq_shape {
    uint32_t pos0, n_row; /* KV of [0, pos0) is present before the step */
};

/* A row of the table: everything on which an op's result depends, except the random numbers. */
struct op_case {
    const char *name;
    enum dtype type; /* of all matrices whose rows are whole blocks of it; the others are F16 */
    uint32_t d_model, d_ff, n_vocab, n_head, n_kv, d_head;
    enum norm_kind norm;
    enum rope_kind rope;
    uint32_t n_rot;
    bool hadamard;
    uint32_t n_set; /* sets of RoPE frequencies, which the sequences use in turn; 0: one */
    enum glu_kind glu;
    bool bias, head_norms, v_norm /* with k's weights */, post_norm, whole_norms, row_gate, sinks;
    bool wide_scales; /* scales of blocks differ by up to 2^12, and in sign, but in Q and K; types with blocks */
    float residual_scale, x_scale, temperature; /* 0: none; temperature over lengths of 8 tokens */
    float factor;                               /* of each matrix; 0: none */
    uint32_t window;
    float att_softcap, softcap, embed_scale;
    enum dtype kv_type;
    enum dtype mix[PARTS];          /* types of single matrices that differ from `type`; DT_F32 = 0: `type` */
    struct seq_shape seq[SEQS_MAX]; /* n_row 0 ends the list */
};
extern const struct op_case op_cases[];
extern const size_t n_op_cases;

/* The case's numbers, which are the same for every backend. */
struct numbers {
    const struct op_case *c;
    enum dtype type[PARTS]; /* the types that are used */
    uint8_t *packed[PARTS]; /* the matrices as in a file; P_Q .. P_V are three parts of one weight */
    uint32_t n_in[PARTS], n_out[PARTS];
    enum dtype head_type;
    uint8_t *head;                                     /* [n_vocab, d_model], also the embedding */
    float *norm_w, *norm_b, *post_w, *q_norm, *k_norm; /* [d_model] x 3, [n_head d_head], [n_kv d_head] */
    float *row_gate, *sinks;                           /* [d_model], [n_head] */
    float *bias_qkv, *bias_o, *bias_ffn, *bias_down, *bias_head;
    float *inv_freq; /* [n_set or 1][n_rot / 2] */
};
void numbers_init(struct numbers *n, const struct op_case *c);
void numbers_fini(struct numbers *n);
/* A matrix of random blocks whose weights are of the order of 1 / sqrt(n_in), like trained ones; the caller frees
 * it. */
uint8_t *random_matrix(uint64_t seed, enum dtype type, uint32_t n_in, uint32_t n_out);
/* Puts NaN into a block of such a matrix. False: the type cannot represent NaN, and the block is unchanged. */
bool nan_block(enum dtype type, uint8_t *block);
/* n floats in [-1, 1], a pure function of the seed. */
void random_floats(uint64_t seed, float *v, size_t n);

/* The case on a device. */
struct rig {
    const struct numbers *n;
    const struct backend *be;
    struct device *d;
    struct kv_pool *kv;
    struct weight embed, qkv, o, ffn, down, head; /* embed and head: one tensor */
    struct norm norm, post, q_norm, k_norm;
    float *vec[13];
    struct rope rope;
    float *bias_qkv, *bias_o, *bias_ffn, *bias_down, *bias_head, *row_gate, *sinks;
    void *host;          /* a page in memory for moves */
    struct kv_desc desc; /* shape of kv */
    bool apart; /* the device keeps the numbers and scales of Q8_0 apart; rig_page_read() and rig_page_write() use
                   blocks */
    enum invariance how;    /* mode of its steps: INVARIANT_DECODE, unless the test changes it */
    struct program program; /* the whole layer, LAYERS times, between embedding and head */
    struct batch batch;     /* set by rig_batch(), over the arrays below */
    struct batch_seq seq[SEQS_MAX];
    int32_t token[BATCH_ROWS_MAX];
    uint32_t out_row[BATCH_ROWS_MAX];
    /* Block tables: the pages of the sequences are interleaved, so that none is contiguous. From SEQ_PAGES on they are
     * pages of other sequences, so a long sequence must be the only one. */
    uint32_t pages[SEQS_MAX][RIG_PAGES];
};

/* The type of KV with which devices are opened; DT_F32, which is 0: the device's default. */
extern enum dtype rig_kv_type;
/* Weights are loaded so that they stay in host memory: weight.host. */
extern bool rig_host;
/* Opens a device. NULL if the machine has none (the reason is printed): the test then skips. */
struct device *rig_device(const struct backend *be, const char *variant, uint32_t threads);
/* Returns the backend of that name if it has a device, which is opened and closed again; *info describes the device,
 * unless it is NULL. NULL: there is no device, and the line that skips the whole program has been printed. */
const struct backend *rig_backend(const char *name, const char *variant, struct device_info *info);
/* Gives the case the type of KV that such a device has. False if it cannot have it, or has no attention for such
 * heads. */
bool rig_case(const struct device_info *info, struct op_case *c);
void rig_init(struct rig *r, const struct numbers *n, const struct backend *be, struct device *d);
void rig_fini(struct rig *r); /* does not close the device */

/* Fills in r->batch for the case's sequences (or for the given ones), with logits for all rows. */
void rig_batch(struct rig *r, const struct seq_shape *seq, uint32_t first_seq, uint32_t n_seq);
/* Runs a step of the program over r->batch, and returns step_wait()'s result. */
int rig_try(struct rig *r, const struct program *p, struct hearth_err *e);
/* Run a single op, and the whole program; an error fails the test. */
void rig_op(struct rig *r, const struct op *op);
void rig_forward(struct rig *r);
/* Copy a page's bytes from the pool and to it, and wait. */
void rig_page_read(struct rig *r, uint32_t page, void *out);
void rig_page_write(struct rig *r, uint32_t page, const void *in);
size_t rig_page_bytes(const struct rig *r);
/* Fills every page with random KV that kv_type can represent exactly, the same on every backend. */
void rig_fill_kv(struct rig *r);
/* The same for the pages to which the batch's step appends. */
void rig_fill_written(struct rig *r);

struct op op_embed(const struct rig *r);
struct op op_qkv(const struct rig *r, uint32_t layer);
struct op op_attend(const struct rig *r, uint32_t layer);
struct op op_o(const struct rig *r);
struct op op_ffn(const struct rig *r);
struct op op_down(const struct rig *r);
struct op op_head(const struct rig *r);

/* Reads rows x columns of an activation; an error fails the test. */
void rig_read(struct rig *r, enum act a, uint32_t row0, uint32_t n_row, float *out);
/* Writes an activation for the next step. */
void rig_write(struct rig *r, enum act a, uint32_t n_row, uint32_t n_col, const float *in);

/* The token at (sequence, position). */
int32_t rig_token(const struct op_case *c, uint32_t seq, uint32_t pos);
uint32_t rig_freq_set(const struct op_case *c, uint32_t seq);
uint32_t case_rows(const struct op_case *c, uint32_t *n_seq);

#endif
