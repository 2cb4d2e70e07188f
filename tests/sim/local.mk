# The simulated GPU: built and used with --enable-sim alone.
EXTRA_DIST += tests/sim/libcudasim.map tests/sim/check.cu
SIM_SOURCES = tests/sim/sim.h tests/sim/runtime.h tests/sim/runtime.c tests/sim/runtime-launch.c tests/sim/runtime-memory.c tests/sim/runtime-graph.c \
	tests/sim/cublaslt.c \
	tests/sim/machine.h tests/sim/module.h tests/sim/decode.h tests/sim/half.h tests/sim/module.c tests/sim/decode.c tests/sim/opcodes.c \
	tests/sim/alu.h tests/sim/alu.c tests/sim/alu-float.c tests/sim/alu-compare.c tests/sim/memory.c tests/sim/async.c tests/sim/matrix.c tests/sim/exchange.c tests/sim/launch.c
# It is the code that tests wait for, so that it is optimized whatever CFLAGS say.
SIM_CFLAGS = -O3 -march=native -ffp-contract=off -fno-strict-aliasing -fPIC
# Headers of others: their warnings are not ours.
SIM_CPPFLAGS = $(CUDA_CPPFLAGS:-I%=-isystem%)

# What runs on it: the simulator's own tests, and of the backend's what it has time for.
SIM_SHELL = tests/sim/golden.sh tests/sim/cases.sh tests/sim/states.sh tests/sim/experts.sh tests/sim/ops.sh tests/sim/serve.sh
SIM_TESTS = $(SIM_SHELL) tests/sim/check-machine tests/sim/check-runtime
print-sim-tests:
	@echo $(SIM_TESTS)
.PHONY: print-sim-tests
EXTRA_DIST += tests/sim/README.md tests/sim/lib.sh $(SIM_SHELL)

if HAVE_CUDA_SIM
noinst_LIBRARIES += tests/sim/libsim.a
tests_sim_libsim_a_SOURCES = $(SIM_SOURCES)
tests_sim_libsim_a_CPPFLAGS = $(AM_CPPFLAGS) $(SIM_CPPFLAGS)
tests_sim_libsim_a_CFLAGS = $(HEARTH_CFLAGS) $(CFLAGS) $(SIM_CFLAGS)

# Programs link it in place of libcudart_static. It is a shared library because the backend opens two more by their names,
# the driver and cuBLASLt: here they are other names of the one library, found by the programs' own search path.
SIM_LIBS = -Wl,--enable-new-dtags,-rpath,$(abs_top_builddir)/tests/sim -L$(abs_top_builddir)/tests/sim -lcudasim -lpthread -ldl
tests/sim/libcudasim.so: tests/sim/libsim.a $(srcdir)/tests/sim/libcudasim.map
	@echo "  CCLD     $@"; $(CC) -shared -Wl,-soname,libcudasim.so,-z,defs -Wl,--version-script=$(srcdir)/tests/sim/libcudasim.map \
	  -o $@ -Wl,--whole-archive tests/sim/libsim.a -Wl,--no-whole-archive -lm -lpthread
	@for n in libcuda.so.1 libcublasLt.so.12 libcublasLt.so.13 libcublasLt.so.14; do ln -sf libcudasim.so tests/sim/$$n; done
CLEANFILES += tests/sim/libcudasim.so tests/sim/libcuda.so.1 tests/sim/libcublasLt.so.12 tests/sim/libcublasLt.so.13 \
	tests/sim/libcublasLt.so.14

# The backend's tests and the engine, linked a second time: the objects are those of the programs themselves.
SIM_TWINS = tests/sim/beside tests/sim/experts tests/sim/experts-layers tests/sim/layers tests/sim/moves tests/sim/ops tests/sim/order \
	tests/sim/route tests/sim/sample tests/sim/golden tests/sim/states tests/sim/hearth-engine
check_PROGRAMS += tests/sim/check-machine tests/sim/check-runtime $(SIM_TWINS)
tests_sim_beside_SOURCES = $(tests_ops_beside_SOURCES)
tests_sim_experts_SOURCES = $(tests_ops_experts_SOURCES)
tests_sim_experts_layers_SOURCES = $(tests_ops_experts_layers_SOURCES)
tests_sim_layers_SOURCES = $(tests_ops_layers_SOURCES)
tests_sim_moves_SOURCES = $(tests_ops_moves_SOURCES)
tests_sim_ops_SOURCES = $(tests_ops_ops_SOURCES)
tests_sim_order_SOURCES = $(tests_ops_order_SOURCES)
tests_sim_route_SOURCES = $(tests_ops_route_SOURCES)
tests_sim_sample_SOURCES = $(tests_ops_sample_SOURCES)
tests_sim_golden_SOURCES = $(tests_golden_golden_SOURCES)
tests_sim_states_SOURCES = $(tests_golden_states_SOURCES)
tests_sim_hearth_engine_SOURCES = daemon/engine/main.c
$(SIM_TWINS) tests/sim/check-runtime: CUDA_LIBS = $(SIM_LIBS)
$(SIM_TWINS) tests/sim/check-runtime: | tests/sim/libcudasim.so

TESTS += $(SIM_TESTS)
tests_sim_check_machine_LDADD = tests/sim/libsim.a $(CMOCKA_LIBS) -lm
tests_sim_check_runtime_SOURCES = tests/sim/check-runtime.c tests/sim/check.h
tests_sim_check_runtime_CPPFLAGS = $(AM_CPPFLAGS) $(SIM_CPPFLAGS)
tests_sim_check_runtime_LDADD = tests/sim/check.o $(CUDA_LIBS) $(CMOCKA_LIBS) -lm
tests/sim/check.o: tests/sim/check.h config.h
CLEANFILES += tests/sim/check.o
endif
