/*
 * trunk.c - sequences whose block tables begin with the same pages (a trunk): attention reads those once for all of
 * them (kernels/cuda/attend/trunk.cu), and gives the same result as with copies of the pages for each sequence. Sums in
 * another order have other last bits, which shows whether anything was shared. Where a row's bits must not depend on
 * its batch, nothing is.
 *
 *     tests/ops/trunk [BACKEND [VARIANT]]   "cpu" by default; exit status 77 if the machine has no such device
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
    COMMON = 8,    /* pages of KV of which trunks are made, repeatedly */
    LONG = 2048,   /* pages of a sequence */
    MOST_Q = 16384 /* numbers in all queries */
};

/* The beginnings of the sequences of a step: whose trunk each one uses, and how many pages of it. */
struct tree {
    const char *name;
    uint32_t n_seq, trunk[SEQS_MAX], pages[SEQS_MAX], own[SEQS_MAX]; /* own: tokens after the trunk */
    bool shared;                                                     /* a device that can share reads something once */
};
static const struct tree trees[] = {
    {"six of one", 6, {0, 0, 0, 0, 0, 0}, {1500, 1500, 1500, 1500, 1500, 1500}, {1, 17, 16, 300, 2000, 5}, true},
    {"two families", 6, {0, 1, 0, 1, 1, 0}, {1200, 700, 1200, 700, 700, 1200}, {3, 40, 90, 1, 1, 15}, true},
    {"one by itself", 6, {0, 0, 1, 0, 0, 0}, {900, 900, 1100, 900, 901, 900}, {3, 40, 90, 1, 1, 15}, true},
    {"branches of a branch", 5, {0, 0, 0, 0, 0}, {300, 1500, 1500, 1500, 1500}, {700, 40, 90, 1, 31}, true},
    {"nothing in common", 5, {0, 1, 2, 3, 4}, {900, 900, 900, 900, 900}, {3, 40, 90, 1, 1}, false},
    {"little in common", 5, {0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}, {3000, 3000, 3000, 3000, 3000}, false},
};

/*
 * Makes the step's block tables. A sequence's own tokens are in its own pages, whether or not `apart` is set; its trunk
 * is the pages of the family, or with `apart` copies of them.
 */
static void tables(struct rig *r, const struct tree *t, bool apart, uint32_t table[SEQS_MAX][LONG])
{
    for (uint32_t s = 0; s < t->n_seq; s++) {
        uint32_t n = t->pages[s] + (t->own[s] + KV_PAGE - 1) / KV_PAGE, family = t->trunk[s];
        for (uint32_t i = 0; i < n; i++) {
            bool trunk = i < t->pages[s];
            uint32_t of = trunk ? i % COMMON : COMMON + i % (SEQ_PAGES - COMMON);
            table[s][i] = trunk && !apart ? r->pages[family][of] : r->pages[s][of];
        }
        r->batch.seq = r->seq;
        r->seq[s].row0 = s, r->seq[s].n_row = 1, r->seq[s].pos0 = 16 * t->pages[s] + t->own[s] - 1;
        r->seq[s].pages[0] = table[s];
    }
}

/* Copies the first pages of sequence `of` to those of sequence s, byte for byte. */
static void copy_pages(struct rig *r, uint32_t s, uint32_t of, uint8_t *page)
{
    for (uint32_t i = 0; i < COMMON; i++) {
        rig_page_read(r, r->pages[of][i], page);
        rig_page_write(r, r->pages[s][i], page);
    }
}

/* Runs the attention of a step with these tables. */
static void attend(struct rig *r, const struct tree *t, bool apart, const float *q, size_t n_q, float *got)
{
    static uint32_t table[SEQS_MAX][LONG];
    struct seq_shape one[SEQS_MAX];
    for (uint32_t s = 0; s < t->n_seq; s++)
        one[s] = (struct seq_shape){0, 1};
    rig_batch(r, one, 0, t->n_seq);
    tables(r, t, apart, table);
    rig_write(r, ACT_Q, t->n_seq, (uint32_t)n_q, q);
    struct op op = op_attend(r, 1);
    rig_op(r, &op);
    rig_read(r, ACT_ATT, 0, t->n_seq, got);
}

/* Whether the device has the kernel, which exists where products of so many rows use wgmma. */
static bool can_share(const struct rig *r, const struct tree *t)
{
    return info.gpu && !strcmp(r->be->op_path(r->d, &r->program, 3, t->n_seq, INVARIANT_OFF), "wgmma");
}

static void check(const struct op_case *shape, const struct tree *t)
{
    struct op_case c = *shape;
    struct numbers n;
    struct rig r;
    static float q[MOST_Q], want[MOST_Q], got[MOST_Q];
    size_t n_q = (size_t)c.n_head * c.d_head, all = n_q * t->n_seq;
    c.kv_type = info.gpu ? info.kv_type : DT_F32;
    for (uint32_t s = 0; s < t->n_seq; s++)
        c.seq[s] = (struct seq_shape){0, 1};
    assert_true(all <= MOST_Q);
    numbers_init(&n, &c);
    struct device *d = rig_device(backend, variant, 1);
    assert_non_null(d);
    rig_init(&r, &n, backend, d);
    rig_fill_kv(&r);
    uint8_t *page = malloc(rig_page_bytes(&r));
    assert_non_null(page);
    for (uint32_t s = 0; s < t->n_seq; s++)
        if (t->trunk[s] != s)
            copy_pages(&r, s, t->trunk[s], page);
    random_floats(7, q, all);
    for (size_t i = 0; i < all; i++)
        q[i] *= 4.0f; /* for peaks in the softmax */
    r.how = INVARIANT_OFF;
    attend(&r, t, true, q, n_q, want);
    attend(&r, t, false, q, n_q, got);
    bool shared = memcmp(want, got, all * sizeof *got), can = can_share(&r, t) && !c.window && c.kv_type == DT_F16;
    if (shared != (can && t->shared))
        fail_msg("%s of '%s': something is%s shared", t->name, c.name, shared ? "" : " not");
    double err = 0, sum = 0;
    for (size_t i = 0; i < all; i++) {
        double e = (double)got[i] - (double)want[i];
        err += e * e, sum += (double)want[i] * (double)want[i];
    }
    if (!(sqrt(err / sum) < 1e-3)) /* results are rounded to fp16, and so are probabilities */
        fail_msg("%s of '%s': off by %.2g", t->name, c.name, sqrt(err / sum));
    /* in a batch of its own and batched with others */
    r.how = INVARIANT_DECODE;
    attend(&r, t, true, q, n_q, want);
    attend(&r, t, false, q, n_q, got);
    if (memcmp(want, got, all * sizeof *got))
        fail_msg("%s of '%s': other bits with company, in an invariant step", t->name, c.name);
    free(page);
    rig_fini(&r);
    numbers_fini(&n);
    backend->close(d);
}

static const struct op_case shapes[] = {
    {"heads of 128, groups of 4", DT_F16, 64, 64, 32, 8, 2, 128, .norm = NORM_RMS, .rope = ROPE_NORM, .glu = GLU_SWIGLU,
     .embed_scale = 1, .n_rot = 128},
    {"heads of 64, groups of 7", DT_F16, 64, 64, 32, 14, 2, 64, .norm = NORM_RMS, .rope = ROPE_NEOX, .glu = GLU_SWIGLU,
     .embed_scale = 1, .n_rot = 64, .att_softcap = 30, .sinks = true},
    {"heads of 128, one each", DT_F16, 64, 64, 32, 3, 3, 128, .norm = NORM_RMS, .rope = ROPE_NORM, .glu = GLU_SWIGLU,
     .embed_scale = 1, .n_rot = 128},
    {"a window", DT_F16, 64, 64, 32, 8, 2, 128, .norm = NORM_RMS, .rope = ROPE_NORM, .glu = GLU_SWIGLU,
     .embed_scale = 1, .n_rot = 128, .window = 4000},
};

static void test_shape(void **state)
{
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        check(*state, &trees[i]);
}

int main(int argc, char **argv)
{
    if (argc > 2)
        variant = argv[2];
    if (!(backend = rig_backend(argc > 1 ? argv[1] : "cpu", variant, &info)))
        return 77;
    struct CMUnitTest tests[sizeof shapes / sizeof *shapes];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        tests[i] = (struct CMUnitTest){shapes[i].name, test_shape, NULL, NULL, (void *)&shapes[i]};
    return _cmocka_run_group_tests(backend->name, tests, sizeof shapes / sizeof *shapes, NULL, NULL);
}
