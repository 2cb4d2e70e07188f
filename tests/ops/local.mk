# Backends: every op against the exact result, the tuned variants against the reference.

# What the CPU's products reach beside the machine's ceilings; run by hand, built by `make tests/bench/bench-cpu`.
EXTRA_PROGRAMS += tests/bench/bench-cpu
tests_bench_bench_cpu_SOURCES = tests/bench/bench-cpu.c
tests_bench_bench_cpu_CFLAGS = $(AM_CFLAGS) -pthread
tests_bench_bench_cpu_LDADD = kernels/libkernels.a libclient/libcore.la -lpthread -lm

OPS_RIG = tests/ops/rig.h tests/ops/rig.c tests/ops/cases.c
check_PROGRAMS += tests/ops/ops
TESTS += tests/ops/ops
tests_ops_ops_SOURCES = tests/ops/ops.c $(OPS_RIG)
tests_ops_ops_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_ops_LDADD = kernels/libkernels.a libclient/libcore.la $(CMOCKA_LIBS) -lpthread -lm

check_PROGRAMS += tests/ops/same
TESTS += tests/ops/same
THREAD_TESTS += tests/ops/same
tests_ops_same_SOURCES = tests/ops/same.c $(OPS_RIG)
tests_ops_same_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_same_LDADD = kernels/libkernels.a libclient/libcore.la $(CMOCKA_LIBS) -lpthread -lm

check_PROGRAMS += tests/ops/sample
TESTS += tests/ops/sample
tests_ops_sample_SOURCES = tests/ops/sample.c $(OPS_RIG)
tests_ops_sample_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_ops_sample_LDADD = kernels/libkernels.a libclient/libcore.la $(CMOCKA_LIBS) -lpthread -lm
