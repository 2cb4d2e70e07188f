# Backends: every op against the exact result, the tuned variants against the reference.

# What the CPU's products reach beside the machine's ceilings; run by hand, built by `make tests/bench/bench-cpu`.
EXTRA_PROGRAMS += tests/bench/bench-cpu
tests_bench_bench_cpu_SOURCES = tests/bench/bench-cpu.c
tests_bench_bench_cpu_CFLAGS = $(AM_CFLAGS) -pthread
tests_bench_bench_cpu_LDADD = $(KERNELS_LIBS) libclient/libcore.la

OPS_RIG = tests/ops/rig.h tests/ops/rig.c tests/ops/cases.c
check_PROGRAMS += tests/ops/ops
TESTS += tests/ops/ops
tests_ops_ops_SOURCES = tests/ops/ops.c $(OPS_RIG)
tests_ops_ops_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_ops_LDADD = $(KERNELS_LIBS) libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/ops/same
TESTS += tests/ops/same
THREAD_TESTS += tests/ops/same
tests_ops_same_SOURCES = tests/ops/same.c $(OPS_RIG)
tests_ops_same_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_same_LDADD = $(KERNELS_LIBS) libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/ops/beside
TESTS += tests/ops/beside
tests_ops_beside_SOURCES = tests/ops/beside.c $(OPS_RIG)
tests_ops_beside_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_beside_LDADD = $(KERNELS_LIBS) libclient/libcore.la $(CMOCKA_LIBS)

dist_check_SCRIPTS += tests/ops/no-algorithm.sh
TESTS += tests/ops/no-algorithm.sh
if HAVE_CUDA
check_LTLIBRARIES += tests/ops/fake-lt.la
endif
tests_ops_fake_lt_la_SOURCES = tests/ops/fake-lt.c
tests_ops_fake_lt_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_ops_fake_lt_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)

check_PROGRAMS += tests/ops/sample
TESTS += tests/ops/sample
tests_ops_sample_SOURCES = tests/ops/sample.c $(OPS_RIG)
tests_ops_sample_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_sample_LDADD = $(KERNELS_LIBS) libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/ops/moves
TESTS += tests/ops/moves
tests_ops_moves_SOURCES = tests/ops/moves.c $(OPS_RIG)
tests_ops_moves_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_moves_LDADD = $(KERNELS_LIBS) libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/ops/step
TESTS += tests/ops/step
tests_ops_step_SOURCES = tests/ops/step.c $(OPS_RIG)
tests_ops_step_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_step_LDADD = $(KERNELS_LIBS) libclient/libcore.la $(CMOCKA_LIBS)

# What ran on a GPU, and how: see tests/bench/results/README.md.
EXTRA_DIST += tests/bench/run-h100 tests/bench/results tests/bench/NOTES.md

# Candidate kernels and the rates of parts; how each is built is said in its first lines.
EXTRA_DIST += tests/bench/lab/lab.cuh tests/bench/lab/attend.cu tests/bench/lab/gemm.cu tests/bench/lab/wgmma.cu \
	tests/bench/lab/NOTES.md
