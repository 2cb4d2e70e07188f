# The simulated GPU: built and used with --with-cuda=sim alone.
EXTRA_DIST += tests/sim/libcudasim.map tests/sim/check.cu
SIM_SOURCES = tests/sim/sim.h tests/sim/runtime.h tests/sim/runtime.c tests/sim/runtime-launch.c tests/sim/runtime-memory.c tests/sim/runtime-graph.c \
	tests/sim/cublaslt.c \
	tests/sim/machine.h tests/sim/module.h tests/sim/decode.h tests/sim/half.h tests/sim/module.c tests/sim/decode.c tests/sim/opcodes.c \
	tests/sim/alu.h tests/sim/alu.c tests/sim/alu-float.c tests/sim/alu-compare.c tests/sim/memory.c tests/sim/async.c tests/sim/matrix.c tests/sim/exchange.c tests/sim/launch.c
# It is the code that tests wait for, so that it is optimized whatever CFLAGS say.
SIM_CFLAGS = -O3 -march=native -ffp-contract=off -fno-strict-aliasing -fPIC
# Headers of others: their warnings are not ours.
SIM_CPPFLAGS = $(CUDA_CPPFLAGS:-I%=-isystem%)

# What contrib/check builds and runs on it: the simulator's own tests, and of the backend's what it has time for.
SIM_TESTS = tests/sim/check-machine tests/sim/check-runtime tests/sim/backend.sh tests/sim/serve.sh
SIM_BINARIES = tests/sim/check-machine tests/sim/check-runtime tests/ops/layers tests/ops/beside tests/ops/moves tests/ops/step \
	tests/ops/route tests/ops/experts tests/golden/golden tests/golden/states
print-sim-tests:
	@echo $(SIM_TESTS)
print-sim-programs:
	@echo $(SIM_BINARIES)
.PHONY: print-sim-tests print-sim-programs
EXTRA_DIST += tests/sim/README.md tests/sim/backend.sh tests/sim/serve.sh

if HAVE_CUDA_SIM
noinst_LIBRARIES += tests/sim/libsim.a
tests_sim_libsim_a_SOURCES = $(SIM_SOURCES)
tests_sim_libsim_a_CPPFLAGS = $(AM_CPPFLAGS) $(SIM_CPPFLAGS)
tests_sim_libsim_a_CFLAGS = $(HEARTH_CFLAGS) $(CFLAGS) $(SIM_CFLAGS)

# Programs link it in place of libcudart_static. It is a shared library because the backend opens two more by their names,
# the driver and cuBLASLt: here they are other names of the one library, found by the programs' own search path.
$(kernels_libkernels_a_OBJECTS): | tests/sim/libcudasim.so
tests/sim/libcudasim.so: tests/sim/libsim.a $(srcdir)/tests/sim/libcudasim.map
	@echo "  CCLD     $@"; $(CC) -shared -Wl,-soname,libcudasim.so,-z,defs -Wl,--version-script=$(srcdir)/tests/sim/libcudasim.map \
	  -o $@ -Wl,--whole-archive tests/sim/libsim.a -Wl,--no-whole-archive -lm -lpthread
	@for n in libcuda.so.1 libcublasLt.so.12 libcublasLt.so.13 libcublasLt.so.14; do ln -sf libcudasim.so tests/sim/$$n; done
CLEANFILES += tests/sim/libcudasim.so tests/sim/libcuda.so.1 tests/sim/libcublasLt.so.12 tests/sim/libcublasLt.so.13 \
	tests/sim/libcublasLt.so.14

check_PROGRAMS += tests/sim/check-machine tests/sim/check-runtime
TESTS += $(SIM_TESTS)
tests_sim_check_machine_LDADD = tests/sim/libsim.a $(CMOCKA_LIBS) -lm
tests_sim_check_runtime_SOURCES = tests/sim/check-runtime.c tests/sim/check.h
tests_sim_check_runtime_CPPFLAGS = $(AM_CPPFLAGS) $(SIM_CPPFLAGS)
tests_sim_check_runtime_LDADD = tests/sim/check.o $(CUDA_LIBS) $(CMOCKA_LIBS) -lm
tests/sim/check.o: tests/sim/check.h | tests/sim/libcudasim.so
CLEANFILES += tests/sim/check.o
endif
