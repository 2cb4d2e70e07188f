/* op-table.c - which ops of a model are reported as off the fast paths, given a backend's description of their
 * paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/sched/op-table.h"

static const struct weight quantised = {
    .role = WEIGHT_PROJ, .n_in = 64, .n_out = 64, .n_part = 1, .part = {{.type = DT_Q4_K}}};
static const struct weight floats = {
    .role = WEIGHT_PROJ, .n_in = 64, .n_out = 64, .n_part = 1, .part = {{.type = DT_F32}}};
static const struct weight expanded = {.role = WEIGHT_QKV,
                                       .n_in = 256,
                                       .n_out = 64,
                                       .n_part = 3,
                                       .part = {{.type = DT_NVFP4}, {.type = DT_Q4_K}, {.type = DT_IQ3_S}},
                                       .expanded = 5};

static void test_reasons(void **state)
{
    (void)state;
    static const struct {
        struct op_paths paths;
        const struct weight *w;
        const char *says; /* NULL: the op is fast */
    } rows[] = {
        {{{"gemv", "wgmma", "cublaslt", "gemv"}}, &quantised, NULL},
        {{{"skinny", "wgmma", "cublaslt", "skinny"}}, &floats, NULL},
        {{{"one", "one", "one", "one"}}, &quantised, NULL},
        {{{"skinny", "wgmma", "cublaslt", "skinny"}}, &quantised, "one row through skinny, not gemv"},
        {{{"few", "grouped", "grouped", "few"}}, &quantised, NULL},
        {{{"grouped", "grouped", "grouped", "grouped"}}, &floats, NULL},
        {{{"grouped", "grouped", "grouped", "grouped"}}, &quantised, "one row of experts through grouped, not few"},
        {{{"gemv", "skinny", "cublaslt", "gemv"}}, &quantised, "16 rows through skinny, not wgmma"},
        {{{"skinny", "skinny", "cublaslt", "skinny"}}, &floats, "16 rows through skinny, not wgmma"},
        {{{"skinny", "wgmma", "cublaslt", "skinny"}}, &expanded, "NVFP4, IQ3_S expanded to F16"},
        {{{"ref", "ref", "ref", "ref"}}, &quantised, "through the reference kernels"},
        {{{"gemv", "wgmma", NULL, "gemv"}}, &quantised, "no kernel for 512 rows"},
        {{{"gemv+epilogue", "wgmma", "cublaslt", "gemv+epilogue"}},
         &quantised,
         "the norm after it in a kernel of its own"},
        {{{"skinny+epilogue", "wgmma", "cublaslt", "skinny"}}, &floats, "the norm after it in a kernel of its own"},
        {{{"skinny+epilogue", "wgmma", "cublaslt", "skinny"}}, &quantised, "one row through skinny, not gemv"},
        {{{"gemv+epilogue", "gemv+epilogue", "cublaslt", "gemv"}},
         &quantised,
         "16 rows through gemv+epilogue, not wgmma"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct op o = {.kind = OP_PROJ, .proj = {.in = ACT_ATT, .w = rows[i].w}};
        char buf[OP_SLOW_TEXT];
        const char *why = op_slow(&o, &rows[i].paths, buf);
        if (rows[i].says)
            assert_string_equal(why, rows[i].says);
        else
            assert_null(why);
    }
}

/* Ops with a kernel of their own are reported by the kind of op. */
static void test_kernels_of_their_own(void **state)
{
    (void)state;
    static const struct norm norm = {.kind = NORM_RMS};
    static const struct op_paths product = {{"gemv+epilogue", "wgmma", "cublaslt", "gemv+epilogue"}},
                                 attention = {{"one+plan", "one", "one", "one+plan"}};
    const struct {
        struct op o;
        const struct op_paths *paths;
        const char *says;
    } rows[] = {
        {{.kind = OP_QKV, .qkv = {.w = &quantised, .q_norm = &norm}},
         &product,
         "norms of q and k in a kernel of their own"},
        {{.kind = OP_QKV, .qkv = {.w = &quantised}}, &product, "RoPE in a kernel of its own"},
        {{.kind = OP_FFN_UP, .ffn_up = {.w = &quantised}}, &product, "the activation in a kernel of its own"},
        {{.kind = OP_ATTEND}, &attention, "one row through the kernels for many"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char buf[OP_SLOW_TEXT];
        assert_string_equal(op_slow(&rows[i].o, rows[i].paths, buf), rows[i].says);
    }
}

/* A device whose ops of float matrices are slow. */
static const char *path_of(struct device *d, const struct program *p, uint32_t i, uint32_t n_row, enum invariance how)
{
    (void)d;
    if (op_weight(&p->op[i])->part[0].type == DT_F32)
        return "skinny";
    if (how == INVARIANT_BATCH)
        return "wgmma";
    return n_row == 1 || how == INVARIANT_DECODE ? "gemv" : n_row <= 128 ? "wgmma" : "cublaslt";
}

static void test_table(void **state)
{
    (void)state;
    const struct backend be = {.op_path = path_of};
    struct program p = {0};
    for (int layer = 0; layer < 3; layer++) {
        program_proj(&p, (struct op_proj){.in = ACT_ATT, .w = &quantised});
        program_proj(&p, (struct op_proj){.in = ACT_FF, .w = &floats});
    }
    struct op_table *t = op_table_new(&be, NULL, true, &p, INVARIANT_DECODE),
                    *cpu = op_table_new(&be, NULL, false, &p, INVARIANT_DECODE);
    assert_int_equal(t->n, 6);
    assert_string_equal(t->op[0].at[OP_STEP_FEW], "wgmma");
    assert_string_equal(t->op[0].at[OP_STEP_MANY], "cublaslt");
    assert_string_equal(t->op[0].at[OP_STEP_INVARIANT], "gemv");
    assert_string_equal(t->op[5].at[OP_STEP_MANY], "skinny");
    assert_int_equal(t->n_slow, 1);
    assert_string_equal(t->slow[0], "proj (F32; 64 to 64) x 3: 16 rows through skinny, not wgmma");
    assert_int_equal(cpu->n_slow, 0);
    assert_false(op_table_same(t, cpu));
    struct op_table *again = op_table_new(&be, NULL, true, &p, INVARIANT_DECODE);
    assert_true(op_table_same(t, again));
    free(again);
    again = op_table_new(&be, NULL, true, &p, INVARIANT_BATCH);
    assert_string_equal(again->op[0].at[OP_STEP_ONE], "gemv");
    assert_string_equal(again->op[0].at[OP_STEP_INVARIANT], "wgmma");
    free(again);
    free(cpu);
    free(t);
    program_free(&p);
}

/* However many ops are slow, each with its own shape, only the first ones are reported. */
static void test_bounded(void **state)
{
    (void)state;
    enum { N = 5000 };
    static struct weight all[N];
    const struct backend be = {.op_path = path_of};
    struct program p = {0};
    for (uint32_t i = 0; i < N; i++) {
        all[i] = floats;
        all[i].n_out = i + 1;
        program_proj(&p, (struct op_proj){.in = ACT_ATT, .w = &all[i]});
    }
    struct op_table *t = op_table_new(&be, NULL, true, &p, INVARIANT_DECODE);
    assert_int_equal(t->n, N);
    assert_int_equal(t->n_slow, OP_SLOW_MAX);
    assert_string_equal(t->slow[7], "proj (F32; 64 to 8) x 1: 16 rows through skinny, not wgmma");
    free(t);
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reasons), cmocka_unit_test(test_kernels_of_their_own),
                                       cmocka_unit_test(test_table), cmocka_unit_test(test_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
