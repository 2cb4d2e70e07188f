/*
 * rules.c - the decisions of CUDA's lowering, on any machine: which path takes how many rows, and that no op reads an
 * activation that another op left as partial sums ("pieces"), whatever the order of a program's ops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "kernels/cuda/rules.h"

static void rows_have_their_paths(void **state)
{
    (void)state;
    const uint32_t body = PATH_BIT(PATH_REF) | PATH_BIT(PATH_SKINNY), gemv = PATH_BIT(PATH_GEMV),
                   wgmma = PATH_BIT(PATH_WGMMA), cached = PATH_BIT(PATH_CUBLASLT_CACHED), lt = PATH_BIT(PATH_CUBLASLT);
    static const struct {
        uint32_t n_row;
        enum invariance how;
    } none[] = {{0, INVARIANT_OFF},
                {0, INVARIANT_DECODE},
                {0, INVARIANT_PROMPT},
                {65, INVARIANT_DECODE},
                {BATCH_ROWS_MAX, INVARIANT_DECODE},
                {BATCH_ROWS_MAX + 1, INVARIANT_PROMPT},
                {BATCH_ROWS_MAX + 1, INVARIANT_BATCH}};
    const struct {
        uint32_t from, to, want;
    } plain[] = {{1, 4, body | gemv},
                 {5, 32, body | wgmma},
                 {33, 64, body | wgmma | cached},
                 {65, 128, wgmma | cached | lt},
                 {129, BATCH_ROWS_MAX, cached | lt}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(paths_for_rows(none[i].n_row, none[i].how), 0);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        for (uint32_t n = plain[i].from; n <= plain[i].to; n++)
            assert_int_equal(paths_for_rows(n, INVARIANT_OFF), plain[i].want);
    for (uint32_t n = 1; n <= 64;
         n++) /* a row's bits must not depend on its batch: the same paths for any number of rows */
        assert_int_equal(paths_for_rows(n, INVARIANT_DECODE), body | gemv);
    for (uint32_t n = 1; n <= BATCH_ROWS_MAX; n++) { /* one path for a whole step, however many rows it has */
        assert_int_equal(paths_for_rows(n, INVARIANT_PROMPT), wgmma | (n <= 64 ? body | gemv : 0));
        assert_int_equal(paths_for_rows(n, INVARIANT_BATCH), wgmma | (n <= 64 ? body | gemv : 0));
    }
    assert_int_equal(path_best(0), PATH_NONE);
    assert_int_equal(path_best(gemv | PATH_BIT(PATH_SKINNY)), PATH_GEMV);
    assert_int_equal(path_best(lt | cached), PATH_CUBLASLT);
}

/* --- activations left as partial sums -------------------------------------------------------------------- */

/* A workspace that holds version numbers instead of values: an op must read the latest version. */
struct memory {
    struct act_state s;
    uint32_t latest[ACT_COUNT], held[ACT_COUNT];
    bool complete; /* completes the activations that acts_to_complete() names */
    uint32_t n_stale, n_in_pieces;
};

/* Runs one op as plan.cu lowers it. `pieces`: its launcher leaves the result as partial sums, and adds up those that
 * the lowering says it takes. */
static void step(struct memory *m, const struct op *o, bool pieces, bool read_again)
{
    uint32_t reads = op_reads(o), writes = op_writes(o), takes = 0;
    if (pieces)
        takes = reads & (o->kind == OP_PROJ ? read_again ? 0 : ACT_BIT(ACT_FF) : ACT_BIT(ACT_X));
    if (o->kind == OP_HEAD)
        takes = 0;
    uint32_t want = acts_to_complete(&m->s, reads, ACT_BIT(writes), takes, pieces);
    for (int a = 0; a < ACT_COUNT && m->complete; a++)
        if (want & ACT_BIT(a)) {
            assert_true(m->s.pieces & ACT_BIT(a));
            m->held[a] = m->latest[a];
            act_completed(&m->s, (enum act)a);
        }
    uint32_t stale = acts_stale(&m->s, reads, takes);
    for (int a = 0; a < ACT_COUNT; a++)
        if (reads & ACT_BIT(a)) {
            bool taken = m->s.pieces & takes & ACT_BIT(a);
            assert_int_equal(!!(stale & ACT_BIT(a)), !taken && m->held[a] != m->latest[a]);
            m->n_stale += !!(stale & ACT_BIT(a));
            if (taken && a == ACT_X) { /* the norm writes the sum back */
                m->held[a] = m->latest[a];
                act_completed(&m->s, ACT_X);
            } else if (taken)
                act_taken(&m->s, (enum act)a);
        }
    if (pieces) /* its partial sums overwrite earlier ones */
        assert_int_equal(m->complete ? m->s.pieces : 0, 0);
    if (!(reads & ACT_BIT(writes)))
        act_written(&m->s, (enum act)writes);
    m->latest[writes]++;
    if (pieces && (o->kind == OP_PROJ || o->kind == OP_FFN_UP)) {
        act_in_pieces(&m->s, (enum act)writes);
        m->n_in_pieces++;
    } else
        m->held[writes] = m->latest[writes];
}

static uint32_t rng = 7;
static uint32_t rnd(uint32_t n)
{
    rng = rng * 1664525 + 1013904223;
    return (rng >> 8) % n;
}

/* A program of n random ops. Only the presence of weights matters. */
static void random_program(struct program *p, uint32_t n)
{
    static const struct weight w = {.n_in = 8, .n_out = 8, .n_part = 1, .part = {{DT_F16, 8, NULL}}};
    program_embed(p, (struct op_embed){.w = &w});
    for (uint32_t i = 0; i < n; i++)
        switch (rnd(6)) {
        case 0:
            program_qkv(p, (struct op_qkv){.w = &w});
            break;
        case 1:
            program_attend(p, (struct op_attend){.d_head = 8});
            break;
        case 2:
            program_ffn_up(p, (struct op_ffn_up){.w = &w});
            break;
        case 3:
            program_head(p, (struct op_head){.w = &w});
            break;
        default:
            program_proj(p, (struct op_proj){.in = rnd(2) ? ACT_FF : ACT_ATT, .w = &w});
        }
    assert_false(p->failed);
}

static uint32_t run(bool complete, uint32_t *n_in_pieces)
{
    uint32_t n_stale = 0;
    rng = 7;
    for (int turn = 0; turn < 500; turn++) {
        struct memory m = {.complete = complete};
        struct program p = {0};
        random_program(&p, 40);
        for (uint32_t i = 0; i < p.n_op; i++) {
            enum op_kind k = p.op[i].kind;
            bool matrix = k == OP_QKV || k == OP_PROJ || k == OP_FFN_UP || (k == OP_HEAD && rnd(2));
            step(&m, &p.op[i], matrix, acts_read_from(&p, i + 1) & ACT_BIT(ACT_FF));
        }
        n_stale += m.n_stale;
        *n_in_pieces += m.n_in_pieces;
        program_free(&p);
    }
    return n_stale;
}

static void no_op_reads_what_is_in_pieces(void **state)
{
    (void)state;
    uint32_t n = 0;
    assert_int_equal(run(true, &n), 0);
    assert_true(n > 1000);
    assert_true(run(false, &n) >
                100); /* without completing activations, ops would read stale ones, and each time that is noticed */
}

static void what_is_read_later_is_known(void **state)
{
    (void)state;
    static const struct weight w = {.n_in = 8, .n_out = 8, .n_part = 1, .part = {{DT_F16, 8, NULL}}};
    struct program p = {0};
    program_ffn_up(&p, (struct op_ffn_up){.w = &w});
    program_proj(&p, (struct op_proj){.in = ACT_FF, .w = &w});
    program_qkv(&p, (struct op_qkv){.w = &w});
    program_ffn_up(&p, (struct op_ffn_up){.w = &w});
    program_proj(&p, (struct op_proj){.in = ACT_FF, .w = &w});
    program_proj(&p, (struct op_proj){.in = ACT_FF, .w = &w});
    assert_int_equal(acts_read_from(&p, 0), ACT_BIT(ACT_X));
    assert_int_equal(acts_read_from(&p, 1) & ACT_BIT(ACT_FF), ACT_BIT(ACT_FF));
    assert_int_equal(acts_read_from(&p, 2) & ACT_BIT(ACT_FF), 0); /* the second ffn_up overwrites it */
    assert_int_equal(acts_read_from(&p, 5) & ACT_BIT(ACT_FF), ACT_BIT(ACT_FF));
    assert_int_equal(acts_read_from(&p, 6), 0);
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_their_paths),
        cmocka_unit_test(no_op_reads_what_is_in_pieces),
        cmocka_unit_test(what_is_read_later_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
