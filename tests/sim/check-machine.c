/*
 * check-machine.c - the simulated GPU's instructions against the PTX ISA: values worked out by hand, the order in which
 * threads proceed, and what kernels must not do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/sim.h"

#define HEAD ".version 9.0\n.target sm_90a\n.address_size 64\n"
/* A kernel with one parameter, the address of `out`, which is in %rd1; %r1 is the thread's number. */
#define KERNEL                                                                                              \
    HEAD ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<20>;\n" \
         ".reg .f32 %f<20>;\n.reg .b64 %rd<20>;\n.shared .align 16 .b8 room[256];\n"                        \
         "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\n"
#define STORE "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd1, %rd2;\nst.global.u32 [%rd2], %r2;\nret;\n}\n"

static uint32_t out[256];

/* KERNEL, the code and an end. */
static const char *with(const char *code, const char *end)
{
    static char text[4096];
    assert_true(strlen(KERNEL) + strlen(code) + strlen(end) + 2 < sizeof text);
    strcpy(text, KERNEL), strcat(text, code), strcat(text, "\n"), strcat(text, end);
    return text;
}
static bool run(const char *ptx, uint32_t blocks, uint32_t threads, uint32_t cluster)
{
    char *text = strdup(ptx); /* the module keeps pointers into the text */
    struct sim_module *m = sim_load(text, strlen(text));
    assert_non_null(m);
    struct sim_fn *k = sim_function(m, "k");
    assert_non_null(k);
    struct sim_launch l = {{blocks, 1, 1}, {threads, 1, 1}, {cluster, 1, 1}, 0};
    void *p = out;
    return sim_run(k, &l, &p);
}

static const struct {
    const char *code;
    uint32_t result;
} values[] = {
    {"mov.u32 %r3, 0x04030201; prmt.b32 %r2, %r3, 0x08070605, 0x5140;", 0x06020501},
    {"mov.u32 %r3, 0x80; prmt.b32 %r2, %r3, 0, 0x0008;", 0x808080ff},
    {"mov.u32 %r3, 0xf0f0f0f0; mov.u32 %r4, 0xcccccccc; mov.u32 %r5, 0xaaaaaaaa; lop3.b32 %r2, %r3, %r4, %r5, 0x96;",
     0x96969696},
    {"mov.u32 %r3, 0x5; bfi.b32 %r2, %r3, 0xffffffff, 8, 4;", 0xfffff5ff},
    {"mov.u32 %r3, 0x5; bfi.b32 %r2, %r3, 0x77, 40, 4;", 0x77},
    {"mov.u32 %r3, 0x80000001; shf.l.wrap.b32 %r2, %r3, 0x40000000, 33;", 0x80000001},
    {"mov.u32 %r3, 1; shl.b32 %r2, %r3, 32;", 0},
    {"mov.u32 %r3, 0x80000000; shr.s32 %r2, %r3, 40;", 0xffffffff},
    {"mov.u32 %r3, -3; mul.hi.s32 %r2, %r3, 5;", 0xffffffff},
    {"mov.u32 %r3, 0xff017f80; dp4a.s32.s32 %r2, %r3, 0x01020304, 7;", 7 - 1 + 2 + 3 * 127 - 4 * 128},
    {"mov.u32 %r3, 0xff017f80; dp4a.u32.s32 %r2, %r3, 0x01020304, 7;", 7 + 255 + 2 + 3 * 127 + 4 * 128},
    {"mov.u32 %r3, 0x1; brev.b32 %r2, %r3;", 0x80000000},
    {"mov.u32 %r3, 0x00100000; bfind.shiftamt.u32 %r2, %r3;", 11},
    {"mov.u32 %r3, 0; clz.b32 %r2, %r3;", 32},
    {"mov.b32 %f1, 0x7fc00001; mov.f32 %f2, 0f3F800000; min.f32 %f3, %f1, %f2; mov.b32 %r2, %f3;", 0x3f800000},
    {"mov.b32 %f1, 0x7fc00001; mov.f32 %f2, 0f3F800000; max.NaN.f32 %f3, %f1, %f2; mov.b32 %r2, %f3;", 0x7fffffff},
    {"mov.b32 %f1, 0x80000000; mov.f32 %f2, 0f00000000; min.f32 %f3, %f1, %f2; mov.b32 %r2, %f3;", 0x80000000},
    {"mov.b32 %f1, 0x7fc00000; setp.ltu.f32 %p1, %f1, 0f3F800000; selp.u32 %r2, 1, 2, %p1;", 1},
    {"mov.b32 %f1, 0x7fc00000; setp.ne.f32 %p1, %f1, 0f3F800000; selp.u32 %r2, 1, 2, %p1;", 2},
    {"mov.f32 %f1, 0f4F800000; cvt.rzi.u32.f32 %r2, %f1;", 0xffffffff},
    {"mov.f32 %f1, 0fBF800000; cvt.rzi.u32.f32 %r2, %f1;", 0},
    {"mov.b32 %f1, 0x7fc00000; cvt.rzi.s32.f32 %r2, %f1;", 0},
    {"mov.f32 %f1, 0f40200000; cvt.rni.f32.f32 %f2, %f1; mov.b32 %r2, %f2;", 0x40000000},
    {"mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000; cvt.rn.f16x2.f32 %r2, %f1, %f2;", 0x3c004000},
    /* 2049 is halfway between two halves, of which 2048 is even; 65520 is the first number that becomes infinite. */
    {"mov.f32 %f1, 0f45001000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r2, %rs1;", 0x6800},
    {"mov.f32 %f1, 0f477FF000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r2, %rs1;", 0x7c00},
    {"mov.u32 %r3, 0x3c003c00; mov.u32 %r4, 0x10001000; fma.rn.f16x2 %r2, %r3, %r4, %r3;", 0x3c003c00},
    {"mov.u32 %r3, 0x3c013c01; mov.u32 %r4, 0x10001000; fma.rn.f16x2 %r2, %r3, %r4, %r3;", 0x3c023c02},
    {"mov.u32 %r3, 0x3c00b801; neg.f16x2 %r2, %r3;", 0xbc003801},
    {"mov.f32 %f1, 0f3F800000; fma.rm.f32 %f2, %f1, 0fB2000000, %f1; mov.b32 %r2, %f2;", 0x3f7fffff},
    {"mov.f32 %f1, 0f3F800000; add.rz.f32 %f2, %f1, 0f33FFFFFF; mov.b32 %r2, %f2;", 0x3f800000},
    {"mov.f32 %f1, 0f40400000; cvt.sat.f32.f32 %f2, %f1; mov.b32 %r2, %f2;", 0x3f800000},
    {"mov.u16 %rs1, -2; setp.lt.s16 %p1, %rs1, 0; selp.u32 %r2, 1, 0, %p1;", 1},
    {"mov.u64 %rd5, 0x8000000000000000; mul.hi.u64 %rd6, %rd5, 6; cvt.u32.u64 %r2, %rd6;", 3},
    {"mov.b64 %rd5, {0x11, 0x22}; shr.u64 %rd6, %rd5, 28; cvt.u32.u64 %r2, %rd6;", 0x220},
    {"mov.b32 {%rs1, %rs2}, 0x00070009; cvt.u32.u16 %r2, %rs2;", 7},
    {"mov.u32 %r3, 7; div.u32 %r2, %r3, 0;", 0xffffffff},
    /* The results of lanes that do not execute remain. */
    {"mov.u32 %r2, 5; setp.eq.u32 %p1, %r1, 99; @%p1 mov.u32 %r2, 6;", 5},
};
static void test_values(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        if (!run(with(values[k].code, STORE), 1, 32, 1))
            fail_msg("%s ends the launch", values[k].code);
        for (int l = 0; l < 32; l += 31)
            if (out[l] != values[k].result)
                fail_msg("%s gives 0x%x, not 0x%x", values[k].code, out[l], values[k].result);
    }
}

/* Each thread does a different number of iterations; then they vote, at which point all must have arrived. */
static void test_loops(void **state)
{
    (void)state;
    assert_true(run(KERNEL "mov.u32 %r2, 0;\nmov.u32 %r3, 0;\n"
                           "L: setp.ge.u32 %p1, %r3, %r1;\n@%p1 bra E;\nadd.u32 %r2, %r2, %r3;\nadd.u32 %r3, %r3, 1;\n"
                           "bra.uni L;\nE:\nvote.sync.ballot.b32 %r4, %p1, -1;\nxor.b32 %r4, %r4, -1;\n"
                           "add.u32 %r2, %r2, %r4;\n" STORE,
                    1, 48, 1));
    for (uint32_t l = 0; l < 48; l++) /* the second warp has 16 threads, which vote among themselves */
        assert_int_equal(out[l], l * (l - 1) / 2 + (l < 32 ? 0 : 0xffff0000u));
}
/* The other threads of a warp wait for a value that one thread stores at a later place in the code. */
static void test_wait_within_a_warp(void **state)
{
    (void)state;
    assert_true(run(KERNEL "mov.u32 %r9, room;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra W;\nmov.u32 %r5, 0;\nst.shared.u32 "
                           "[%r9], %r5;\nW: bar.warp.sync -1;\nsetp.eq.u32 %p2, %r1, 31;\n@%p2 bra GIVE;\n"
                           "L: ld.volatile.shared.u32 %r2, [%r9];\nsetp.eq.u32 %p3, %r2, 0;\n@%p3 bra L;\nbra.uni E;\n"
                           "GIVE: mov.u32 %r2, 77;\nst.volatile.shared.u32 [%r9], %r2;\nE:\n" STORE,
                    1, 32, 1));
    for (int l = 0; l < 32; l++)
        assert_int_equal(out[l], 77);
}
static void test_shuffles(void **state)
{
    (void)state;
    /* segments of 8: up by 3, and whether there was a lane to take from */
    assert_true(run(KERNEL "shfl.sync.up.b32 %r2|%p1, %r1, 3, 0x1800, -1;\nselp.u32 %r3, 100, 0, %p1;\n"
                           "add.u32 %r2, %r2, %r3;\n" STORE,
                    1, 32, 1));
    for (uint32_t l = 0; l < 32; l++)
        assert_int_equal(out[l], l % 8 >= 3 ? l - 3 + 100 : l);
    assert_true(run(KERNEL "shfl.sync.bfly.b32 %r2|%p1, %r1, 5, 0x1f, -1;\n" STORE, 1, 32, 1));
    for (uint32_t l = 0; l < 32; l++)
        assert_int_equal(out[l], l ^ 5);
    assert_true(run(KERNEL "shfl.sync.idx.b32 %r2|%p1, %r1, 9, 0x181f, -1;\n" STORE, 1, 32, 1));
    for (uint32_t l = 0; l < 32; l++)
        assert_int_equal(out[l], l / 8 * 8 + 1);
    assert_true(run(KERNEL "redux.sync.max.u32 %r2, %r1, -1;\n" STORE, 1, 32, 1));
    assert_int_equal(out[3], 31);
}
/* A block spins on a value that a later block writes; eight blocks of a cluster read their neighbours' shared
 * memory. */
static void test_blocks(void **state)
{
    (void)state;
    memset(out, 0, sizeof out);
    assert_true(run(KERNEL "mov.u32 %r3, %ctaid.x;\nsetp.eq.u32 %p1, %r3, 2;\n@%p1 bra GIVE;\n"
                           "L: ld.acquire.gpu.global.u32 %r4, [%rd1+400];\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 bra L;\n"
                           "atom.global.add.u32 %r5, [%rd1], %r4;\nret;\n"
                           "GIVE: st.release.gpu.global.u32 [%rd1+400], 7;\nret;\n}\n",
                    3, 32, 1));
    assert_int_equal(out[0], 2 * 32 * 7);
    assert_true(run(KERNEL
                    "mov.u32 %r3, %cluster_ctarank;\nmov.u32 %r9, room;\nadd.u32 %r4, %r3, 50;\n"
                    "st.shared.u32 [%r9+8], %r4;\nbarrier.cluster.arrive.release.aligned;\n"
                    "barrier.cluster.wait.acquire.aligned;\nadd.u32 %r5, %r3, 1;\nand.b32 %r5, %r5, 7;\n"
                    "mapa.shared::cluster.u32 %r6, %r9, %r5;\nld.shared::cluster.u32 %r2, [%r6+8];\n"
                    "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
                    "mul.wide.u32 %rd2, %r3, 4;\nadd.s64 %rd2, %rd1, %rd2;\nst.global.u32 [%rd2], %r2;\nret;\n}\n",
                    8, 32, 8));
    for (uint32_t k = 0; k < 8; k++)
        assert_int_equal(out[k], (k + 1) % 8 + 50);
}
/* A bulk copy of 128 bytes completes a barrier, on which the other warp waits by parity, twice. */
static void test_copies(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 64; k++)
        out[k] = 1000 + k;
    assert_true(
        run(KERNEL "mov.u32 %r9, room;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra S;\nmbarrier.init.shared.b64 [%r9+128], 1;\n"
                   "S: bar.sync 0;\n@%p1 bra W;\n"
                   "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9+128], 128;\nadd.u32 %r8, %r9, 128;\n"
                   "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd1+64], 128, [%r8];\n"
                   "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r9+128], 0;\n@!%p2 bra W;\n"
                   "mbarrier.test_wait.parity.shared.b64 %p3, [%r9+128], 1;\nselp.u32 %r5, 1, 0, %p3;\n"
                   "and.b32 %r3, %r1, 31;\nshl.b32 %r3, %r3, 2;\nadd.u32 %r3, %r3, %r9;\nld.shared.u32 %r2, [%r3];\n"
                   "add.u32 %r2, %r2, %r5;\n" STORE,
            1, 64, 1));
    for (uint32_t k = 0; k < 64; k++)
        assert_int_equal(out[k], 1016 + k % 32);
}
/* The same with late copies; what is read before it was waited for is missing, with cp.async as well as in bulk. */
static void test_late(void **state)
{
    assert_int_equal(setenv("HEARTH_SIM_LATE", "1", 1), 0);
    test_copies(state);
    for (uint32_t k = 0; k < 64; k++)
        out[k] = 7;
    static const char *const ends[][2] = {{"ld.shared.u32 %r2, [%r4]; cp.async.wait_group 0;", "1"},
                                          {"cp.async.wait_group 1; ld.shared.u32 %r2, [%r4]; cp.async.wait_all;", "1"},
                                          {"cp.async.wait_group 0; ld.shared.u32 %r2, [%r4];", "0"}};
    for (size_t k = 0; k < 3; k++) {
        char code[512] = "mov.u32 %r9, room; shl.b32 %r3, %r1, 4; and.b32 %r3, %r3, 127; add.u32 %r4, %r9, %r3; "
                         "cvt.u64.u32 %rd3, %r3; add.s64 %rd4, %rd1, %rd3; "
                         "cp.async.cg.shared.global [%r4], [%rd4], 16; cp.async.commit_group; ";
        for (uint32_t j = 0; j < 64; j++)
            out[j] = 7;
        assert_true(run(with(strcat(code, ends[k][0]), STORE), 1, 8, 1));
        assert_int_equal(out[0], *ends[k][1] == '1' ? 0xffffffff : 7);
    }
    /* the input of wgmma is overwritten before the wait, and after it */
    for (int early = 1; early >= 0; early--) {
        static const char store[] = "st.shared.u32 [%r9], %r3; ", wait[] = "wgmma.wait_group.sync.aligned 0; ";
        char code[1024] = "mov.u32 %r9, room; mov.u32 %r3, 0; mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; "
                          "mov.f32 %f3, %f1; mov.f32 %f4, %f1; mov.u64 %rd5, 0x800080000; setp.eq.u32 %p1, 0, 0; "
                          "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, {%r3,%r3,%r3,%r3}, "
                          "%rd5, %p1, 1, 1, 0; wgmma.commit_group.sync.aligned; ";
        strcat(strcat(code, early ? store : wait), early ? wait : store);
        assert_int_equal(run(with(code, "ret;\n}\n"), 1, 32, 1), !early);
    }
    assert_int_equal(unsetenv("HEARTH_SIM_LATE"), 0);
}
/* Faults: each prints one line on stderr and returns false. */
static void test_faults(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        /* addresses: unmapped, beyond shared memory, misaligned, beyond the end of a thread's local array */
        "st.global.u32 [%rd1+1024], %r1;", "mov.u32 %r9, room; st.shared.u32 [%r9+256], %r1;",
        "ld.global.u32 %r2, [%rd1+2];", "mov.u64 %rd5, 0; ld.u32 %r2, [%rd5];",
        /* barriers that are not initialised, that one warp never reaches, of more threads than there are */
        "mov.u32 %r9, room; mbarrier.arrive.shared::cta.b64 _, [%r9];",
        "setp.ge.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 1, 64; L:", "bar.sync 1, 4096;",
        /* a wait for a value that nobody writes */
        "L: ld.volatile.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, 12345; @%p1 bra L;",
        /* half of a warp at an instruction that all of it executes */
        "setp.lt.u32 %p1, %r1, 16; @%p1 shfl.sync.bfly.b32 %r2|%p2, %r1, 16, 31, -1;", "trap;"};
    memset(out, 0, sizeof out);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        if (run(with(wrong[k], "ret;\n}\n"), 1, 64, 1))
            fail_msg("nobody minds %s", wrong[k]);
    }
    assert_null(sim_load("nonsense", 8));
    assert_false(run(with("frobnicate.u32 %r2, %r1;", "ret;\n}\n"), 1, 32, 1));
}
static int begin(void **state)
{
    (void)state;
    sim_memory_add(out, sizeof out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_loops),  cmocka_unit_test(test_wait_within_a_warp),
        cmocka_unit_test(test_shuffles), cmocka_unit_test(test_blocks), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_late),     cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
