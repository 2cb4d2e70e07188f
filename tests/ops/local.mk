# Backends: every op against the exact result, the tuned variants against the reference.
OPS_TESTS = tests/ops/same tests/ops/nan tests/ops/ops tests/ops/experts tests/ops/beside tests/ops/chunks tests/ops/experts-layers tests/ops/kblocks tests/ops/layers tests/ops/moves tests/ops/order tests/ops/route tests/ops/sample tests/ops/states tests/ops/step tests/ops/trunk
OPS_RIG = tests/ops/rig.c tests/ops/cases.c
check_PROGRAMS += $(OPS_TESTS)
TESTS += $(OPS_TESTS)
tests_ops_beside_SOURCES = tests/ops/beside.c $(OPS_RIG)
tests_ops_chunks_SOURCES = tests/ops/chunks.c tests/ops/states-bench.c $(OPS_RIG)
tests_ops_experts_SOURCES = tests/ops/experts.c tests/ops/experts-cases.c tests/ops/experts-bench.c $(OPS_RIG)
tests_ops_experts_layers_SOURCES = tests/ops/experts-layers.c tests/ops/experts-cases.c tests/ops/experts-bench.c $(OPS_RIG)
tests_ops_layers_SOURCES = tests/ops/layers.c $(OPS_RIG)
tests_ops_moves_SOURCES = tests/ops/moves.c $(OPS_RIG)
tests_ops_nan_SOURCES = tests/ops/nan.c $(OPS_RIG)
tests_ops_ops_SOURCES = tests/ops/ops.c $(OPS_RIG)
tests_ops_order_SOURCES = tests/ops/order.c $(OPS_RIG)
tests_ops_kblocks_SOURCES = tests/ops/kblocks.c
tests_ops_route_SOURCES = tests/ops/route.c tests/ops/experts-bench.c $(OPS_RIG)
tests_ops_same_SOURCES = tests/ops/same.c $(OPS_RIG)
tests_ops_sample_SOURCES = tests/ops/sample.c $(OPS_RIG)
tests_ops_states_SOURCES = tests/ops/states.c tests/ops/states-bench.c $(OPS_RIG)
tests_ops_step_SOURCES = tests/ops/step.c $(OPS_RIG)
tests_ops_trunk_SOURCES = tests/ops/trunk.c $(OPS_RIG)

dist_check_SCRIPTS += tests/ops/no-algorithm.sh
TESTS += tests/ops/no-algorithm.sh
if HAVE_CUDA
check_LTLIBRARIES += tests/ops/fake-lt.la
endif
tests_ops_fake_lt_la_SOURCES = tests/ops/fake-lt.c
tests_ops_fake_lt_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_ops_fake_lt_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)

# What the CPU's products reach beside the machine's ceilings; run by hand, built by `make tests/bench/bench-cpu`.
EXTRA_PROGRAMS += tests/bench/bench-cpu

# What ran on a GPU, and how: see tests/bench/results/README.md.
EXTRA_DIST += tests/bench/run-h100 tests/bench/results tests/bench/NOTES.md

# Candidate kernels and the rates of parts; how each is built is said in its first lines.
EXTRA_DIST += tests/bench/lab/lab.cuh tests/bench/lab/attend.cu tests/bench/lab/gemm.cu tests/bench/lab/wgmma.cu \
	tests/bench/lab/caches.cu tests/bench/lab/code-size.py tests/bench/lab/NOTES.md
