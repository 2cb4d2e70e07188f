# The test suite, run by automake's harness with its TAP driver: `make check`, or `contrib/check` from a fresh clone.
#
# To add a test program (cmocka, one group per program, exit status as cmocka gives it), add one block:
#
#     check_PROGRAMS += tests/unit/thing
#     TESTS += tests/unit/thing
#     tests_unit_thing_SOURCES = tests/unit/thing.c
#     tests_unit_thing_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
#     tests_unit_thing_LDADD = libclient/libcore.la $(CMOCKA_LIBS)
#
# To add a shell test (an executable that prints TAP itself: "1..N", then "ok I - name" or "not ok I - name"; a whole
# script that cannot run here prints "1..0 # SKIP why"):
#
#     dist_check_SCRIPTS += tests/cli/thing.sh
#     TESTS += tests/cli/thing.sh
#
# Tests run in the build folder with the environment below. They may run at the same time: no fixed ports or paths, a
# private mktemp -d for sockets and state, no sleeps. Data that is too large for the repository lies beside the
# checkout in $HEARTH_SHARED; where a file is absent the test skips (cmocka's skip(), or "ok I # SKIP why") and the
# skip is counted. A test that runs longer than $HEARTH_TEST_TIMEOUT seconds (300) fails.
AM_TESTS_ENVIRONMENT = \
	top_srcdir='$(abs_top_srcdir)'; top_builddir='$(abs_top_builddir)'; \
	HEARTH_SHARED="$${HEARTH_SHARED:-$(abs_top_srcdir)/../shared}"; \
	CMOCKA_MESSAGE_OUTPUT=TAP; \
	export top_srcdir top_builddir HEARTH_SHARED CMOCKA_MESSAGE_OUTPUT;

TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/contrib/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
LOG_COMPILER = $(top_srcdir)/tests/run-tap
SH_LOG_COMPILER = $(LOG_COMPILER)
EXTRA_DIST += tests/run-tap

# Tests in which two threads of ours meet; contrib/check --sanitize runs them under the thread sanitizer.
THREAD_TESTS =
print-thread-tests:
	@echo $(THREAD_TESTS)
.PHONY: print-thread-tests

include tests/ops/local.mk
include tests/daemon/local.mk

dist_check_SCRIPTS += tests/check-scripts tests/check-docs tests/check-layers tests/check-dist
TESTS += tests/check-scripts tests/check-docs tests/check-layers tests/check-dist
print-dist-files:
	@echo $(DISTFILES)
.PHONY: print-dist-files

check_PROGRAMS += tests/unit/device
TESTS += tests/unit/device
THREAD_TESTS += tests/unit/device
tests_unit_device_SOURCES = tests/unit/device.c tests/unit/toy.c tests/unit/toy.h
tests_unit_device_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_device_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lm -lpthread

check_PROGRAMS += tests/unit/device-clock
TESTS += tests/unit/device-clock
THREAD_TESTS += tests/unit/device-clock
tests_unit_device_clock_SOURCES = tests/unit/device-clock.c tests/unit/toy.c tests/unit/toy.h
tests_unit_device_clock_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_device_clock_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=post_send
tests_unit_device_clock_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lm -lpthread

check_PROGRAMS += tests/unit/lives
TESTS += tests/unit/lives
THREAD_TESTS += tests/unit/lives
tests_unit_lives_SOURCES = tests/unit/lives.c tests/unit/toy.c tests/unit/toy.h
tests_unit_lives_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_lives_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lm -lpthread

check_PROGRAMS += tests/daemon/engine-generate
TESTS += tests/daemon/engine-generate
tests_daemon_engine_generate_SOURCES = tests/daemon/engine-generate.c tests/daemon/drive.c tests/daemon/drive.h
tests_daemon_engine_generate_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_daemon_engine_generate_LDADD = libclient/libcore.la $(JANSSON_LIBS) $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/daemon/engine-link
TESTS += tests/daemon/engine-link
tests_daemon_engine_link_SOURCES = tests/daemon/engine-link.c tests/daemon/drive.c tests/daemon/drive.h
tests_daemon_engine_link_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_daemon_engine_link_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

TIER_WORLD = tests/unit/tier-world.c tests/unit/tier-world.h
TIER_LIBS = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS) -lpthread
check_PROGRAMS += tests/unit/tier
TESTS += tests/unit/tier
THREAD_TESTS += tests/unit/tier
tests_unit_tier_SOURCES = tests/unit/tier.c $(TIER_WORLD)
tests_unit_tier_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_tier_LDFLAGS = -Wl,--wrap=fdatasync
tests_unit_tier_LDADD = $(TIER_LIBS)

check_PROGRAMS += tests/unit/tier-index
TESTS += tests/unit/tier-index
THREAD_TESTS += tests/unit/tier-index
tests_unit_tier_index_SOURCES = tests/unit/tier-index.c $(TIER_WORLD)
tests_unit_tier_index_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_tier_index_LDADD = $(TIER_LIBS)

check_PROGRAMS += tests/unit/tier-loss
TESTS += tests/unit/tier-loss
THREAD_TESTS += tests/unit/tier-loss
tests_unit_tier_loss_SOURCES = tests/unit/tier-loss.c $(TIER_WORLD)
tests_unit_tier_loss_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_tier_loss_LDADD = $(TIER_LIBS)

check_PROGRAMS += tests/unit/kv
TESTS += tests/unit/kv
tests_unit_kv_SOURCES = tests/unit/kv.c
tests_unit_kv_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_kv_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/kvfile
TESTS += tests/unit/kvfile
tests_unit_kvfile_SOURCES = tests/unit/kvfile.c tests/unit/kvfile-sample.h
tests_unit_kvfile_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(XXHASH_CFLAGS)
tests_unit_kvfile_LDADD = daemon/libengine.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)
dist_check_SCRIPTS += tests/unit/kvfile.sh
TESTS += tests/unit/kvfile.sh
EXTRA_DIST += tests/unit/kvfile.py

check_PROGRAMS += tests/unit/kvio
TESTS += tests/unit/kvio
THREAD_TESTS += tests/unit/kvio
tests_unit_kvio_SOURCES = tests/unit/kvio.c tests/unit/kvfile-sample.h
tests_unit_kvio_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(XXHASH_CFLAGS)
tests_unit_kvio_LDADD = daemon/libengine.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lpthread

# The disk tier beside what the disk can do; run by hand, built by `make tests/bench/bench-kv`.
EXTRA_PROGRAMS += tests/bench/bench-kv
tests_bench_bench_kv_SOURCES = tests/bench/bench-kv.c
tests_bench_bench_kv_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
tests_bench_bench_kv_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) -lpthread

check_PROGRAMS += tests/unit/kvprint
TESTS += tests/unit/kvprint
tests_unit_kvprint_SOURCES = tests/unit/kvprint.c
tests_unit_kvprint_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_kvprint_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) \
	$(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/sched
TESTS += tests/unit/sched
tests_unit_sched_SOURCES = tests/unit/sched.c
tests_unit_sched_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_sched_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/text
TESTS += tests/unit/text
tests_unit_text_SOURCES = tests/unit/text.c
tests_unit_text_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_text_LDADD = daemon/libengine.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/post
TESTS += tests/unit/post
THREAD_TESTS += tests/unit/post
tests_unit_post_SOURCES = tests/unit/post.c
tests_unit_post_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_post_LDADD = daemon/libengine.a libclient/libcore.la $(CMOCKA_LIBS) -lpthread

check_PROGRAMS += tests/unit/dtype
TESTS += tests/unit/dtype
tests_unit_dtype_SOURCES = tests/unit/dtype.c
tests_unit_dtype_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_dtype_LDADD = $(KERNELS_LIBS) $(CMOCKA_LIBS)

# The wire and libhearth.
check_PROGRAMS += tests/unit/wire
TESTS += tests/unit/wire
tests_unit_wire_SOURCES = tests/unit/wire.c tests/unit/wire-random.h tests/unit/wire-same.h
tests_unit_wire_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_wire_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/scan
TESTS += tests/unit/scan
tests_unit_scan_SOURCES = tests/unit/scan.c
tests_unit_scan_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_scan_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/conn
TESTS += tests/unit/conn
tests_unit_conn_SOURCES = tests/unit/conn.c tests/unit/script.c tests/unit/script.h
tests_unit_conn_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_conn_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/conn-end
TESTS += tests/unit/conn-end
tests_unit_conn_end_SOURCES = tests/unit/conn-end.c tests/unit/script.c tests/unit/script.h
tests_unit_conn_end_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_conn_end_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/socket-path
TESTS += tests/unit/socket-path
tests_unit_socket_path_SOURCES = tests/unit/socket-path.c
tests_unit_socket_path_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_socket_path_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/wire-echo
tests_unit_wire_echo_SOURCES = tests/unit/wire-echo.c
tests_unit_wire_echo_CFLAGS = $(AM_CFLAGS)
tests_unit_wire_echo_LDADD = libclient/libcore.la
dist_check_SCRIPTS += tests/unit/wire-msgpack.sh
TESTS += tests/unit/wire-msgpack.sh
EXTRA_DIST += tests/unit/wire-msgpack.py

dist_check_SCRIPTS += tests/unit/header.sh
TESTS += tests/unit/header.sh

# Fuzz targets. `make check` replays the corpus under any compiler; --enable-fuzzing (clang) links libFuzzer instead:
# tests/fuzz/fuzz-scan tests/fuzz/corpus/scan.
if ENABLE_FUZZING
FUZZ_MAIN =
FUZZ_FLAGS = -fsanitize=fuzzer
else
FUZZ_MAIN = tests/fuzz/replay.c
FUZZ_FLAGS =
endif
EXTRA_DIST += tests/fuzz/corpus tests/fuzz/replay.c

check_PROGRAMS += tests/fuzz/fuzz-scan
tests_fuzz_fuzz_scan_SOURCES = tests/fuzz/fuzz-scan.c $(FUZZ_MAIN)
tests_fuzz_fuzz_scan_CFLAGS = $(AM_CFLAGS) $(FUZZ_FLAGS)
tests_fuzz_fuzz_scan_LDADD = libclient/libcore.la

check_PROGRAMS += tests/fuzz/fuzz-wire
tests_fuzz_fuzz_wire_SOURCES = tests/fuzz/fuzz-wire.c $(FUZZ_MAIN)
tests_fuzz_fuzz_wire_CFLAGS = $(AM_CFLAGS) $(FUZZ_FLAGS)
tests_fuzz_fuzz_wire_LDADD = libclient/libcore.la

check_PROGRAMS += tests/fuzz/fuzz-gguf
tests_fuzz_fuzz_gguf_SOURCES = tests/fuzz/fuzz-gguf.c $(FUZZ_MAIN)
tests_fuzz_fuzz_gguf_CFLAGS = $(AM_CFLAGS) $(FUZZ_FLAGS)
tests_fuzz_fuzz_gguf_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS)

check_PROGRAMS += tests/fuzz/fuzz-tok
tests_fuzz_fuzz_tok_SOURCES = tests/fuzz/fuzz-tok.c $(FUZZ_MAIN)
tests_fuzz_fuzz_tok_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(FUZZ_FLAGS)
tests_fuzz_fuzz_tok_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS)

check_PROGRAMS += tests/fuzz/fuzz-kvfile
tests_fuzz_fuzz_kvfile_SOURCES = tests/fuzz/fuzz-kvfile.c $(FUZZ_MAIN)
tests_fuzz_fuzz_kvfile_CFLAGS = $(AM_CFLAGS) $(FUZZ_FLAGS)
tests_fuzz_fuzz_kvfile_LDADD = daemon/libengine.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS)

if !ENABLE_FUZZING
TESTS += tests/fuzz/fuzz-scan tests/fuzz/fuzz-wire tests/fuzz/fuzz-gguf tests/fuzz/fuzz-tok tests/fuzz/fuzz-kvfile
endif

check_PROGRAMS += tests/unit/tok
TESTS += tests/unit/tok
tests_unit_tok_SOURCES = tests/unit/tok.c
tests_unit_tok_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_tok_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS) $(JANSSON_LIBS) -lm -lpthread

GOLDEN_RUN = tests/golden/run.h tests/golden/run.c
check_PROGRAMS += tests/golden/golden
TESTS += tests/golden/golden
tests_golden_golden_SOURCES = tests/golden/golden.c $(GOLDEN_RUN)
tests_golden_golden_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_golden_golden_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS) $(JANSSON_LIBS)

check_PROGRAMS += tests/golden/invariant
TESTS += tests/golden/invariant
tests_golden_invariant_SOURCES = tests/golden/invariant.c $(GOLDEN_RUN)
tests_golden_invariant_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_golden_invariant_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS)

check_PROGRAMS += tests/golden/hot
TESTS += tests/golden/hot
tests_golden_hot_SOURCES = tests/golden/hot.c $(GOLDEN_RUN)
tests_golden_hot_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_golden_hot_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS)
EXTRA_DIST += tests/golden/data/tale-q4_k_m.json tests/golden/data/tiny-llama-rope3.gguf \
	tests/golden/data/tiny-llama-rope3.json

check_PROGRAMS += tests/unit/gguf
TESTS += tests/unit/gguf
tests_unit_gguf_SOURCES = tests/unit/gguf.c tests/unit/gguf-build.h
tests_unit_gguf_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_gguf_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/selfcheck
TESTS += tests/unit/selfcheck
THREAD_TESTS += tests/unit/selfcheck
tests_unit_selfcheck_SOURCES = tests/unit/selfcheck.c $(GOLDEN_RUN)
tests_unit_selfcheck_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_selfcheck_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) \
	$(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/trust
TESTS += tests/unit/trust
tests_unit_trust_SOURCES = tests/unit/trust.c
tests_unit_trust_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_trust_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) \
	$(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/tmpl
TESTS += tests/unit/tmpl
tests_unit_tmpl_SOURCES = tests/unit/tmpl.c tests/unit/gguf-build.h
tests_unit_tmpl_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_tmpl_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/model
TESTS += tests/unit/model
tests_unit_model_SOURCES = tests/unit/model.c tests/unit/gguf-build.h
tests_unit_model_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_model_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

# The command, on a private daemon, engine and the embedded model: what a person and a script see.
CLI_TESTS = tests/cli/chat-terminal.sh tests/cli/driver.sh tests/cli/examples.sh tests/cli/exit.sh tests/cli/install.sh \
	tests/cli/interrupt.sh tests/cli/life.sh tests/cli/session.sh tests/cli/start.sh tests/cli/stdin.sh tests/cli/verbs.sh
dist_check_SCRIPTS += $(CLI_TESTS)
TESTS += $(CLI_TESTS)
EXTRA_DIST += tests/cli/lib.sh
if HAVE_CUDA
check_LTLIBRARIES += tests/cli/fake-driver.la
endif
tests_cli_fake_driver_la_SOURCES = tests/cli/fake-driver.c
tests_cli_fake_driver_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_cli_fake_driver_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)
