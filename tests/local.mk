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
EXTRA_DIST += tests/run-tap tests/words

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

check_PROGRAMS += tests/unit/core/device
TESTS += tests/unit/core/device
THREAD_TESTS += tests/unit/core/device
tests_unit_core_device_SOURCES = tests/unit/core/device.c tests/unit/core/toy.c tests/unit/core/toy.h
tests_unit_core_device_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_core_device_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lm -lpthread

check_PROGRAMS += tests/unit/core/device-clock
TESTS += tests/unit/core/device-clock
THREAD_TESTS += tests/unit/core/device-clock
tests_unit_core_device_clock_SOURCES = tests/unit/core/device-clock.c tests/unit/core/toy.c tests/unit/core/toy.h
tests_unit_core_device_clock_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_core_device_clock_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=post_send
tests_unit_core_device_clock_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lm -lpthread

check_PROGRAMS += tests/unit/core/lives
TESTS += tests/unit/core/lives
THREAD_TESTS += tests/unit/core/lives
tests_unit_core_lives_SOURCES = tests/unit/core/lives.c tests/unit/core/toy.c tests/unit/core/toy.h
tests_unit_core_lives_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_core_lives_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lm -lpthread

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

TIER_WORLD = tests/unit/kvtier/tier-world.c tests/unit/kvtier/tier-world.h
TIER_LIBS = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
	$(CMOCKA_LIBS) -lpthread
check_PROGRAMS += tests/unit/kvtier/tier
TESTS += tests/unit/kvtier/tier
THREAD_TESTS += tests/unit/kvtier/tier
tests_unit_kvtier_tier_SOURCES = tests/unit/kvtier/tier.c $(TIER_WORLD)
tests_unit_kvtier_tier_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_kvtier_tier_LDFLAGS = -Wl,--wrap=fdatasync
tests_unit_kvtier_tier_LDADD = $(TIER_LIBS)

check_PROGRAMS += tests/unit/kvtier/tier-index
TESTS += tests/unit/kvtier/tier-index
THREAD_TESTS += tests/unit/kvtier/tier-index
tests_unit_kvtier_tier_index_SOURCES = tests/unit/kvtier/tier-index.c $(TIER_WORLD)
tests_unit_kvtier_tier_index_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_kvtier_tier_index_LDADD = $(TIER_LIBS)

check_PROGRAMS += tests/unit/kvtier/tier-loss
TESTS += tests/unit/kvtier/tier-loss
THREAD_TESTS += tests/unit/kvtier/tier-loss
tests_unit_kvtier_tier_loss_SOURCES = tests/unit/kvtier/tier-loss.c $(TIER_WORLD)
tests_unit_kvtier_tier_loss_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_kvtier_tier_loss_LDADD = $(TIER_LIBS)

check_PROGRAMS += tests/unit/sched/kv
TESTS += tests/unit/sched/kv
tests_unit_sched_kv_SOURCES = tests/unit/sched/kv.c
tests_unit_sched_kv_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_sched_kv_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/kvtier/kvfile
TESTS += tests/unit/kvtier/kvfile
tests_unit_kvtier_kvfile_SOURCES = tests/unit/kvtier/kvfile.c tests/unit/kvtier/kvfile-sample.h
tests_unit_kvtier_kvfile_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(XXHASH_CFLAGS)
tests_unit_kvtier_kvfile_LDADD = daemon/libengine.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)
dist_check_SCRIPTS += tests/unit/kvtier/kvfile.sh
TESTS += tests/unit/kvtier/kvfile.sh
EXTRA_DIST += tests/unit/kvtier/kvfile.py

check_PROGRAMS += tests/unit/kvtier/kvio
TESTS += tests/unit/kvtier/kvio
THREAD_TESTS += tests/unit/kvtier/kvio
tests_unit_kvtier_kvio_SOURCES = tests/unit/kvtier/kvio.c tests/unit/kvtier/kvfile-sample.h
tests_unit_kvtier_kvio_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(XXHASH_CFLAGS)
tests_unit_kvtier_kvio_LDADD = daemon/libengine.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS) -lpthread

# The disk tier beside what the disk can do; run by hand, built by `make tests/bench/bench-kv`.
EXTRA_PROGRAMS += tests/bench/bench-kv
tests_bench_bench_kv_SOURCES = tests/bench/bench-kv.c
tests_bench_bench_kv_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
tests_bench_bench_kv_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) -lpthread

check_PROGRAMS += tests/unit/kvtier/fingerprint
TESTS += tests/unit/kvtier/fingerprint
tests_unit_kvtier_fingerprint_SOURCES = tests/unit/kvtier/fingerprint.c
tests_unit_kvtier_fingerprint_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_kvtier_fingerprint_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) \
	$(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/sched/sched
TESTS += tests/unit/sched/sched
tests_unit_sched_sched_SOURCES = tests/unit/sched/sched.c
tests_unit_sched_sched_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_sched_sched_LDADD = daemon/libengine.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/front/text
TESTS += tests/unit/front/text
tests_unit_front_text_SOURCES = tests/unit/front/text.c
tests_unit_front_text_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_front_text_LDADD = daemon/libengine.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/engine/post
TESTS += tests/unit/engine/post
THREAD_TESTS += tests/unit/engine/post
tests_unit_engine_post_SOURCES = tests/unit/engine/post.c
tests_unit_engine_post_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_engine_post_LDADD = daemon/libengine.a libclient/libcore.la $(CMOCKA_LIBS) -lpthread

check_PROGRAMS += tests/unit/kernels/dtype
TESTS += tests/unit/kernels/dtype
tests_unit_kernels_dtype_SOURCES = tests/unit/kernels/dtype.c
tests_unit_kernels_dtype_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_kernels_dtype_LDADD = $(KERNELS_LIBS) $(CMOCKA_LIBS)

# The wire and libhearth.
check_PROGRAMS += tests/unit/libclient/wire
TESTS += tests/unit/libclient/wire
tests_unit_libclient_wire_SOURCES = tests/unit/libclient/wire.c tests/unit/libclient/wire-random.h tests/unit/libclient/wire-same.h
tests_unit_libclient_wire_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_libclient_wire_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/libclient/scan
TESTS += tests/unit/libclient/scan
tests_unit_libclient_scan_SOURCES = tests/unit/libclient/scan.c
tests_unit_libclient_scan_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_libclient_scan_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/libclient/frames
TESTS += tests/unit/libclient/frames
tests_unit_libclient_frames_SOURCES = tests/unit/libclient/frames.c
tests_unit_libclient_frames_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_libclient_frames_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/libclient/conn
TESTS += tests/unit/libclient/conn
tests_unit_libclient_conn_SOURCES = tests/unit/libclient/conn.c tests/unit/libclient/script.c tests/unit/libclient/script.h
tests_unit_libclient_conn_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_libclient_conn_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/libclient/conn-end
TESTS += tests/unit/libclient/conn-end
tests_unit_libclient_conn_end_SOURCES = tests/unit/libclient/conn-end.c tests/unit/libclient/script.c tests/unit/libclient/script.h
tests_unit_libclient_conn_end_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_libclient_conn_end_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/libclient/socket-path
TESTS += tests/unit/libclient/socket-path
tests_unit_libclient_socket_path_SOURCES = tests/unit/libclient/socket-path.c
tests_unit_libclient_socket_path_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_libclient_socket_path_LDADD = libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/libclient/wire-echo
tests_unit_libclient_wire_echo_SOURCES = tests/unit/libclient/wire-echo.c
tests_unit_libclient_wire_echo_CFLAGS = $(AM_CFLAGS)
tests_unit_libclient_wire_echo_LDADD = libclient/libcore.la
dist_check_SCRIPTS += tests/unit/libclient/wire-msgpack.sh
TESTS += tests/unit/libclient/wire-msgpack.sh
EXTRA_DIST += tests/unit/libclient/wire-msgpack.py

dist_check_SCRIPTS += tests/unit/libclient/header.sh
TESTS += tests/unit/libclient/header.sh

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

check_PROGRAMS += tests/unit/model/tok
TESTS += tests/unit/model/tok
tests_unit_model_tok_SOURCES = tests/unit/model/tok.c
tests_unit_model_tok_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_unit_model_tok_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) \
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

check_PROGRAMS += tests/unit/model/gguf
TESTS += tests/unit/model/gguf
tests_unit_model_gguf_SOURCES = tests/unit/model/gguf.c tests/unit/model/gguf-build.h
tests_unit_model_gguf_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_model_gguf_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/selfcheck/selfcheck
TESTS += tests/unit/selfcheck/selfcheck
THREAD_TESTS += tests/unit/selfcheck/selfcheck
tests_unit_selfcheck_selfcheck_SOURCES = tests/unit/selfcheck/selfcheck.c $(GOLDEN_RUN)
tests_unit_selfcheck_selfcheck_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_selfcheck_selfcheck_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) \
	$(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/selfcheck/cache
TESTS += tests/unit/selfcheck/cache
tests_unit_selfcheck_cache_SOURCES = tests/unit/selfcheck/cache.c
tests_unit_selfcheck_cache_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_selfcheck_cache_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) \
	$(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/model/tmpl
TESTS += tests/unit/model/tmpl
tests_unit_model_tmpl_SOURCES = tests/unit/model/tmpl.c tests/unit/model/gguf-build.h
tests_unit_model_tmpl_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_model_tmpl_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/model/model
TESTS += tests/unit/model/model
tests_unit_model_model_SOURCES = tests/unit/model/model.c tests/unit/model/gguf-build.h
tests_unit_model_model_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_model_model_LDADD = daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

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
