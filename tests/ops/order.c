/*
 * order.c - programs that no model has: the ops in other orders. A whole program gives what its ops give as steps of
 * their own, each of which leaves complete activations; so an op that reads partial sums as if they were complete is
 * noticed.
 *
 *     tests/ops/order [BACKEND [VARIANT [only PATTERN]]]   "cpu" by default; exit status 77 if the machine has no such
 *                                                           device. only: the cases whose names match
 *
 * Steps outside the invariant mode: of 3, 20 and 70 tokens of a sequence, and of one token for each of six sequences,
 * so that a GPU takes each of its paths. There the two may differ by the rounding of an fp16 activation; on the CPU
 * they are bit-identical.
 *
 * Rows do not depend on those beside them, bit for bit: of up to four sequences, and of any number of rows in the mode
 * for batches.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

static const struct backend *backend;
static const char *variant = "auto";
static struct device_info info;

enum {
    ALONE = 4, /* sequences that have their own bits in any mode: device_info.decode_rows is no less */
    ROWS = 64,
};

/* e embed, q qkv, a attend, o and d the two projections, f ffn_up, h head */
static const char *const orders[] = {
    "eqaofdqaofdh", /* as in a model of two layers */
    "eqaooofddh",   /* several products in a row: each reads the sum of the previous one */
    "eqafoqdh",     /* gate and up are kept while other ops run, and are read afterwards */
    "efdqaodh",     /* the FFN's activation is read again, by the last product */
    "eqaofqaodh",   /* ... which the last product reads */
    "eqaohofdh",    /* logits in the middle, of an incomplete sum */
    "effdfdh",
};

static struct op op_of(const struct rig *r, char c)
{
    switch (c) {
    case 'e':
        return op_embed(r);
    case 'q':
        return op_qkv(r, 0);
    case 'a':
        return op_attend(r, 0);
    case 'o':
        return op_o(r);
    case 'd':
        return op_down(r);
    case 'f':
        return op_ffn(r);
    default:
        return op_head(r);
    }
}

enum { LONG = 128 /* pages of a sequence at most */ };

/* The steps: the sequences, and where their rows begin. Of the steps that decode, the first has contexts of a few
 * pages, the second ones that several blocks of a GPU share; whether those of the last are cut into chunks depends on
 * the model's KV heads, and where they are not, a warp has several of their pages. */
static const struct {
    uint32_t n_seq;
    struct seq_shape seq[SEQS_MAX];
} steps[] = {
    {1, {{0, 3}}},
    {1, {{0, 20}}},
    {1, {{0, 70}}},
    {6, {{0, 1}, {1, 1}, {15, 1}, {16, 1}, {17, 1}, {100, 1}}},
    {6, {{319, 1}, {0, 1}, {255, 1}, {256, 1}, {33, 1}, {300, 1}}},
    {6, {{1900, 1}, {0, 1}, {1836, 1}, {256, 1}, {33, 1}, {1881, 1}}},
};

/* Gives sequences of more than SEQ_PAGES pages tables of their own pages: all but one again and again, and that one
 * last, so that nothing else reads what a step writes. */
static void long_tables(struct rig *r, uint32_t n_seq, uint32_t table[SEQS_MAX][LONG])
{
    for (uint32_t s = 0; s < n_seq; s++) {
        struct batch_seq *q = &r->seq[s];
        uint32_t n = (q->pos0 + q->n_row + KV_PAGE - 1) / KV_PAGE;
        if (n <= SEQ_PAGES)
            continue;
        for (uint32_t i = 0; i < n; i++)
            table[s][i] = q->pages[0][i + 1 < n ? i % (SEQ_PAGES - 1) : SEQ_PAGES - 1];
        q->pages[0] = table[s];
    }
}

static void check(struct rig *r, const char *order, size_t step)
{
    static uint32_t table[SEQS_MAX][LONG];
    uint32_t n = 0;
    for (uint32_t s = 0; s < steps[step].n_seq; s++)
        n += steps[step].seq[s].n_row;
    size_t n_logit = (size_t)n * r->n->c->n_vocab, n_op = strlen(order);
    float *want = malloc(n_logit * sizeof *want), *got = malloc(n_logit * sizeof *got);
    struct op ops[16];
    struct hearth_err e;
    double off = 0, size = 0;
    assert_true(want && got && n_op <= 16);
    rig_batch(r, steps[step].seq, 0, steps[step].n_seq);
    long_tables(r, steps[step].n_seq, table);
    rig_fill_written(r);
    for (size_t i = 0; i < n_op; i++)
        ops[i] = op_of(r, order[i]);
    for (size_t i = 0; i < n_op; i++)
        rig_op(r, &ops[i]);
    rig_read(r, ACT_LOGITS, 0, n, want);
    rig_fill_written(r); /* restores the KV that these ops have overwritten */
    struct program p = program_of(r, ops, (uint32_t)n_op);
    if (rig_try(r, &p, &e))
        fail_msg("%s, step %zu of %u tokens: %s", order, step, (unsigned)n, e.msg);
    rig_read(r, ACT_LOGITS, 0, n, got);
    for (size_t i = 0; i < n_logit; i++) {
        off = fmax(off, fabs((double)want[i] - (double)got[i]));
        size = fmax(size, fabs((double)want[i]));
    }
    if (!(off <= (info.gpu ? 5e-3 : 0) * size) || !(size > 0))
        fail_msg("%s, step %zu of %u tokens: logits of at most %g are %g off what the ops give one by one", order, step,
                 (unsigned)n, size, off);
    free(want);
    free(got);
}

/* Runs the program of an order, and reads all logits. Returns the number of rows. */
static uint32_t run_order(struct rig *r, const char *order, const struct seq_shape *seq, uint32_t first, uint32_t n,
                          float *logits)
{
    struct op ops[16];
    struct hearth_err e;
    size_t n_op = strlen(order);
    assert_true(n_op <= 16);
    rig_batch(r, seq, first, n);
    rig_fill_written(r);
    for (size_t i = 0; i < n_op; i++)
        ops[i] = op_of(r, order[i]);
    struct program p = program_of(r, ops, (uint32_t)n_op);
    if (rig_try(r, &p, &e))
        fail_msg("%s, %u sequences: %s", order, (unsigned)n, e.msg);
    rig_read(r, ACT_LOGITS, 0, r->batch.n_row, logits);
    return r->batch.n_row;
}

/* The sequences of a step have the bits that each has alone: up to `most`, the last two of several tokens. */
static void check_beside(struct rig *r, const char *order, enum invariance how, uint32_t most)
{
    static const struct seq_shape seq[SEQS_MAX] = {{15, 1}, {300, 1}, {0, 1}, {256, 1}, {33, 10}, {100, 50}};
    size_t n_vocab = r->n->c->n_vocab, n_row = 0;
    float *alone = malloc(ROWS * n_vocab * sizeof *alone), *got = malloc(ROWS * n_vocab * sizeof *got);
    assert_true(alone && got);
    r->how = how;
    for (uint32_t s = 0; s < most; n_row += seq[s++].n_row)
        run_order(r, order, seq + s, s, 1, alone + n_row * n_vocab);
    for (uint32_t n = 2; n <= most; n++) {
        uint32_t rows = run_order(r, order, seq, 0, n, got);
        for (uint32_t row = 0; row < rows; row++)
            if (memcmp(alone + row * n_vocab, got + row * n_vocab, n_vocab * sizeof *got))
                fail_msg("%s: row %u of %u has other logits than alone", order, (unsigned)row, (unsigned)rows);
    }
    r->how = INVARIANT_OFF;
    free(alone);
    free(got);
}

static void test_case(void **state)
{
    const struct op_case *c = *state;
    struct numbers n;
    struct rig r;
    struct device *d = rig_device(backend, variant, 2);
    assert_non_null(d);
    numbers_init(&n, c);
    rig_init(&r, &n, backend, d);
    rig_fill_kv(&r);
    r.how = INVARIANT_OFF;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
            check(&r, orders[i], k);
    check_beside(&r, orders[0], INVARIANT_OFF, ALONE);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        check_beside(&r, orders[i], INVARIANT_BATCH, SEQS_MAX);
    rig_fini(&r);
    numbers_fini(&n);
    backend->close(d);
}

static void skipped(void **state)
{
    (void)state;
    skip();
}

int main(int argc, char **argv)
{
    static struct op_case plain = {.name = "q8_0",
                                   .type = DT_Q8_0,
                                   .d_model = 256,
                                   .d_ff = 512,
                                   .n_vocab = 96,
                                   .n_head = 4,
                                   .n_kv = 2,
                                   .d_head = 64,
                                   .rope = ROPE_NORM,
                                   .n_rot = 64,
                                   .embed_scale = 1,
                                   .kv_type = DT_F32,
                                   .seq = {{0, 70}}},
                          ungated, biased, normed, grows, shared, eights, mixed, broad, small, tile, many, more;
    if (argc > 2)
        variant = argv[2];
    if (argc > 4 && !strcmp(argv[3], "only"))
        cmocka_set_test_filter(argv[4]);
    if (!(backend = rig_backend(argc > 1 ? argv[1] : "cpu", variant, &info)))
        return 77;
    plain.kv_type = info.gpu ? info.kv_type : plain.kv_type;
    ungated = biased = plain;
    ungated.name = "ungated", ungated.glu = GLU_GELU; /* the product does not apply its activation function */
    biased.name = "biases and post-norms", biased.bias = biased.post_norm = true;
    normed = biased;
    normed.name = "RMS norms", normed.norm = NORM_RMS, normed.post_norm = false;
    grows = normed; /* far more is added to a row than it had, as in models with massive activations */
    grows.name = "rows that grow", grows.residual_scale = 300, grows.embed_scale = 0.05f;
    /* Widths for which blocks of an H100 have shares in two groups of rows. Only for GPUs: a CPU has nothing like it,
     * and would be slow. */
    shared = normed;
    shared.name = "shares in two groups", shared.type = DT_Q4_K, shared.rope = ROPE_NEOX, shared.head_norms = true;
    shared.d_model = 1792, shared.d_ff = 6912, shared.n_head = 24, shared.n_kv = 8, shared.d_head = shared.n_rot = 128;
    /* Six rows go through eight columns on an H100, by weights of some types alone: those of gate and up but not of
     * `down`, with three super-blocks a block and two of q|k|v's; and the other way round. */
    eights = mixed = normed;
    eights.name = "eight columns before sixteen", eights.type = DT_Q4_K, eights.mix[P_DOWN] = DT_Q8_0;
    eights.d_model = 2560, eights.d_ff = 3584, eights.n_head = 16, eights.n_kv = 4, eights.rope = ROPE_NEOX;
    eights.d_head = eights.n_rot = 128;
    mixed.name = "sixteen columns before eight", mixed.mix[P_DOWN] = DT_Q6_K;
    /* Rows that a GPU's cluster norm cannot hold in registers as a whole. */
    broad = normed;
    broad.name = "rows of many columns", broad.d_model = 8448, broad.d_ff = 256;
    /* Rows of fewer super-blocks than a GPU has slices, but for those of `down`, which two sets of warps share. */
    small = normed;
    small.name = "rows of six super-blocks", small.type = DT_Q4_K, small.mix[P_V] = small.mix[P_DOWN] = DT_Q6_K;
    small.d_model = 1536, small.d_ff = 8960, small.n_head = 12, small.n_kv = 2, small.d_head = small.n_rot = 128;
    small.rope = ROPE_NEOX;
    /* The start of a block's items in a GPU's attention: more heads than it has warps; several items per block, with
     * both head sizes; norms and biases. */
    tile = normed;
    tile.name = "as many heads as a tile has rows", tile.n_head = 16, tile.head_norms = true;
    many = more = tile;
    many.name = "more items than processors", many.n_head = 96, many.n_kv = 48;
    more.name = "more items of 128", more.n_head = 64, more.n_kv = 32, more.d_head = more.n_rot = 128;
    more.rope = ROPE_NEOX;
    const struct CMUnitTest tests[] = {
        {"q8_0", test_case, NULL, NULL, &plain},
        {"ungated", test_case, NULL, NULL, &ungated},
        {"biases and post-norms", test_case, NULL, NULL, &biased},
        {"RMS norms", test_case, NULL, NULL, &normed},
        {"rows that grow", test_case, NULL, NULL, &grows},
        {"shares in two groups", info.gpu ? test_case : skipped, NULL, NULL, &shared},
        {"eight columns before sixteen", info.gpu ? test_case : skipped, NULL, NULL, &eights},
        {"sixteen columns before eight", test_case, NULL, NULL, &mixed},
        {"rows of many columns", info.gpu ? test_case : skipped, NULL, NULL, &broad},
        {"rows of six super-blocks", info.gpu ? test_case : skipped, NULL, NULL, &small},
        {"as many heads as a tile has rows", test_case, NULL, NULL, &tile},
        {"more items than processors", info.gpu ? test_case : skipped, NULL, NULL, &many},
        {"more items of 128", info.gpu ? test_case : skipped, NULL, NULL, &more},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
