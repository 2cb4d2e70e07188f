# Backends: every op against the exact result, the tuned variants against the reference.

# What the CPU's products reach beside the machine's ceilings; run by hand, built by `make tests/bench/bench-cpu`.
EXTRA_PROGRAMS += tests/bench/bench-cpu
tests_bench_bench_cpu_SOURCES = tests/bench/bench-cpu.c
tests_bench_bench_cpu_CFLAGS = $(AM_CFLAGS) -pthread
tests_bench_bench_cpu_LDADD = kernels/libkernels.a libclient/libcore.la -lpthread -lm
