# The test suite, run by automake's harness with its TAP driver: `make check`, or `contrib/check` from a fresh clone.
#
# To add a test program (cmocka, one group per program, exit status as cmocka gives it), add its name to a list: automake
# makes tests/unit/MODULE/thing of thing.c beside it, with AM_CFLAGS and LDADD. Only a program of several files, or one that
# is linked in another way, has a row of its own. A header of the tests goes into HEADERS_OF_TESTS.
#
# To add a shell test (an executable that prints TAP itself: "1..N", then "ok I - name" or "not ok I - name"; a whole
# script that cannot run here prints "1..0 # SKIP why"):
#
#     dist_check_SCRIPTS += tests/cli/thing.sh
#     TESTS += tests/cli/thing.sh
#
# Tests run in the build folder with the environment below. They may run at the same time: no fixed ports or paths, and a
# private mktemp -d (in $TMPDIR, as tests/roomy has it) for sockets and state. None expects something to have happened
# after a fixed time: it waits for an event, or looks again every few milliseconds. Only disturbances at various moments,
# each of which must end well, come after a sleep (kill.py, held.py). Data that is too large for the repository lies beside
# the checkout in $HEARTH_SHARED; where a file is absent the test skips (cmocka's skip(), or "ok I # SKIP why") and the
# skip is counted. A test that runs longer than $HEARTH_TEST_TIMEOUT seconds (1200) fails: that is for one that hangs, and
# golden takes 200 s on two cores with other work.
AM_TESTS_ENVIRONMENT = \
	top_srcdir='$(abs_top_srcdir)'; top_builddir='$(abs_top_builddir)'; \
	HEARTH_SHARED="$${HEARTH_SHARED:-$(abs_top_srcdir)/../shared}"; \
	CMOCKA_MESSAGE_OUTPUT=TAP; TMPDIR=`$(abs_top_srcdir)/tests/roomy`; \
	export top_srcdir top_builddir HEARTH_SHARED CMOCKA_MESSAGE_OUTPUT TMPDIR;

TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/contrib/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
LOG_COMPILER = $(top_srcdir)/tests/run-tap
SH_LOG_COMPILER = $(LOG_COMPILER)
EXTRA_DIST += tests/run-tap tests/words tests/roomy

# Tests begin in the order of TESTS: the long ones are first, so that all processors have work until the end.
include tests/sim/local.mk
TESTS += $(GOLDEN_TESTS)
include tests/ops/local.mk
include tests/daemon/local.mk

dist_check_SCRIPTS += tests/check-scripts tests/check-docs tests/check-layers tests/check-dist
TESTS += tests/check-scripts tests/check-docs tests/check-layers tests/check-dist
print-dist-files:
	@echo $(DISTFILES)
.PHONY: print-dist-files

# What tests are compiled and linked with. All archives are there for all: a linker takes from an archive only what is
# asked for, and the programs that are installed prove that hearthd needs nothing of the engine, nor a client of either.
AM_CFLAGS += $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS) $(LIBEVENT_CFLAGS) $(SQLITE_CFLAGS) $(XXHASH_CFLAGS)
LDADD = tests/daemon/libharness.a daemon/libdaemon.a daemon/libengine.a daemon/libjinja.a $(MODEL_LIBS) \
	$(LIBEVENT_LIBS) $(SQLITE_LIBS) \
	$(CMOCKA_LIBS) -lm -lpthread

HEADERS_OF_TESTS = tests/sql.h tests/daemon/drive.h tests/daemon/kv-files.h tests/golden/rounded.h tests/golden/run.h tests/golden/routes.h tests/ops/rig.h tests/ops/experts-bench.h tests/ops/experts-cases.h tests/ops/states-bench.h \
	tests/unit/core/toy.h tests/unit/engine/fake-nvml.h tests/unit/kvtier/kvfile-sample.h tests/unit/kvtier/tier-world.h \
	tests/unit/libclient/script.h tests/unit/libclient/wire-random.h tests/unit/libclient/wire-same.h \
	tests/unit/model/folder-box.h tests/unit/model/folders.h tests/unit/model/gguf-build.h tests/unit/model/jinja-run.h tests/unit/model/odd-model.h tests/unit/model/one-step.h tests/unit/sched/kv-world.h tests/unit/sched/sched-world.h tests/unit/store/rows.h tests/unit/store/store-box.h
EXTRA_DIST += $(HEADERS_OF_TESTS)

# The modules, each test a program.
UNIT_TESTS = \
	tests/unit/conf tests/unit/log tests/unit/loop tests/unit/sd \
	tests/unit/bench/compare \
	tests/unit/core/device tests/unit/core/device-clock tests/unit/core/device-memory tests/unit/core/device-models tests/unit/core/device-stops tests/unit/core/device-yield \
	tests/unit/core/lead tests/unit/core/lives \
	tests/unit/engine/host-memory tests/unit/engine/nvml tests/unit/engine/post tests/unit/front/chat tests/unit/front/reasoning tests/unit/front/refuse tests/unit/front/sampling-params tests/unit/front/text \
	tests/unit/kernels/dtype tests/unit/kernels/kv-page tests/unit/kernels/pool tests/unit/kernels/program tests/unit/kernels/rules \
	tests/unit/kvtier/fingerprint tests/unit/kvtier/kvfile tests/unit/kvtier/kvio tests/unit/kvtier/tier \
	tests/unit/kvtier/tier-index tests/unit/kvtier/tier-loss tests/unit/kvtier/tier-states tests/unit/kvtier/tier-windows \
	tests/unit/libclient/abi tests/unit/libclient/conn tests/unit/libclient/conn-end tests/unit/libclient/frames tests/unit/libclient/scan \
	tests/unit/libclient/libevent tests/unit/libclient/pass tests/unit/libclient/socket-path tests/unit/libclient/wire tests/unit/libclient/wire-names \
	tests/unit/model/config-keys tests/unit/model/file tests/unit/model/fim tests/unit/model/folder tests/unit/model/folder-config tests/unit/model/folder-makers tests/unit/model/gguf tests/unit/model/hparams tests/unit/model/jinja tests/unit/model/jinja-vectors tests/unit/model/keys tests/unit/model/kind tests/unit/model/latent-experts tests/unit/model/model tests/unit/model/numbers tests/unit/model/pace tests/unit/model/parse tests/unit/model/place tests/unit/model/states tests/unit/model/templates \
	tests/unit/model/tok tests/unit/model/tokenizer-json \
	tests/unit/retention/clock-guard tests/unit/retention/kv-eviction tests/unit/retention/kvdir tests/unit/retention/releaser \
	tests/unit/rpc/games \
	tests/unit/sched/ahead tests/unit/sched/cost tests/unit/sched/fair tests/unit/sched/kv tests/unit/sched/kv-groups tests/unit/sched/kv-size tests/unit/sched/ledger tests/unit/sched/models tests/unit/sched/op-table tests/unit/sched/pressure tests/unit/sched/sched \
	tests/unit/selfcheck/cache tests/unit/selfcheck/selfcheck \
	tests/unit/store/damage tests/unit/store/fork tests/unit/store/generation-info tests/unit/store/gone tests/unit/store/life tests/unit/store/migrate \
	tests/unit/store/store \
	tests/unit/stream/journal tests/unit/stream/output tests/unit/stream/served tests/unit/stream/session tests/unit/stream/state \
	tests/unit/supervisor/engine-process tests/unit/supervisor/model-fds
check_PROGRAMS += $(UNIT_TESTS)
TESTS += $(UNIT_TESTS)

tests_unit_model_model_SOURCES = tests/unit/model/model.c tests/unit/model/odd-model.c
tests_unit_sched_models_SOURCES = tests/unit/sched/models.c tests/unit/model/odd-model.c
tests_unit_model_parse_LDFLAGS = -Wl,--wrap=malloc
tests_unit_bench_compare_SOURCES = tests/unit/bench/compare.c daemon/bench/check.c daemon/bench/routes.c \
	daemon/bench/run.c $(GOLDEN_RUN)

tests_unit_front_refuse_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_create
tests_unit_kernels_pool_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_create

# toy.c stands in for the model and the backend: it comes before the archives, which have the real ones.
TOY = tests/unit/core/toy.c tests/unit/core/toy-world.c
tests_unit_core_device_SOURCES = tests/unit/core/device.c $(TOY)
tests_unit_core_device_clock_SOURCES = tests/unit/core/device-clock.c tests/unit/core/toy-clock.c $(TOY)
tests_unit_core_device_clock_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_gettime,--wrap=post_send
tests_unit_core_device_memory_SOURCES = tests/unit/core/device-memory.c $(TOY)
tests_unit_core_device_memory_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=host_memory_granted
tests_unit_core_device_models_SOURCES = tests/unit/core/device-models.c $(TOY)
tests_unit_core_device_stops_SOURCES = tests/unit/core/device-stops.c tests/unit/core/toy-clock.c $(TOY)
tests_unit_core_device_stops_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_gettime
tests_unit_core_device_yield_SOURCES = tests/unit/core/device-yield.c $(TOY)
tests_unit_core_lead_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_gettime
tests_unit_core_lives_SOURCES = tests/unit/core/lives.c $(TOY)

# A library that nvml.c opens.
check_LTLIBRARIES += tests/unit/engine/fake-nvml.la
tests_unit_engine_fake_nvml_la_SOURCES = tests/unit/engine/fake-nvml.c
tests_unit_engine_fake_nvml_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_unit_engine_fake_nvml_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)

SCHED_WORLD = tests/unit/sched/sched-world.c
KV_WORLD = tests/unit/sched/kv-world.c
tests_unit_sched_kv_SOURCES = tests/unit/sched/kv.c $(KV_WORLD)
tests_unit_sched_kv_groups_SOURCES = tests/unit/sched/kv-groups.c $(KV_WORLD)
tests_unit_sched_kv_size_SOURCES = tests/unit/sched/kv-size.c $(KV_WORLD)
tests_unit_sched_sched_SOURCES = tests/unit/sched/sched.c $(SCHED_WORLD)
tests_unit_sched_ahead_SOURCES = tests/unit/sched/ahead.c $(SCHED_WORLD)
tests_unit_sched_fair_SOURCES = tests/unit/sched/fair.c $(SCHED_WORLD)

TIER_WORLD = tests/unit/kvtier/tier-world.c
tests_unit_kvtier_tier_SOURCES = tests/unit/kvtier/tier.c $(TIER_WORLD)
tests_unit_kvtier_tier_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fdatasync
tests_unit_kvtier_tier_index_SOURCES = tests/unit/kvtier/tier-index.c $(TIER_WORLD)
tests_unit_kvtier_tier_loss_SOURCES = tests/unit/kvtier/tier-loss.c $(TIER_WORLD)
tests_unit_kvtier_tier_states_SOURCES = tests/unit/kvtier/tier-states.c $(TIER_WORLD)
tests_unit_kvtier_tier_windows_SOURCES = tests/unit/kvtier/tier-windows.c $(TIER_WORLD)

tests_unit_libclient_conn_SOURCES = tests/unit/libclient/conn.c tests/unit/libclient/script.c
tests_unit_libclient_socket_path_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=connect
tests_unit_libclient_conn_end_SOURCES = tests/unit/libclient/conn-end.c tests/unit/libclient/script.c
tests_unit_libclient_conn_end_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
tests_unit_libclient_libevent_SOURCES = tests/unit/libclient/libevent.c tests/unit/libclient/script.c
tests_unit_libclient_libevent_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/libclient
tests_unit_libclient_pass_SOURCES = tests/unit/libclient/pass.c tests/unit/libclient/script.c
tests_unit_libclient_pass_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=clock_gettime,--wrap=poll

tests_unit_store_migrate_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=sqlite3_open_v2

tests_unit_selfcheck_selfcheck_SOURCES = tests/unit/selfcheck/selfcheck.c $(GOLDEN_RUN)

# Tests in which two threads of ours meet; contrib/check --sanitize runs them under the thread sanitizer.
THREAD_TESTS = tests/ops/same tests/unit/log tests/unit/core/device tests/unit/core/device-clock tests/unit/core/device-memory tests/unit/core/device-models \
	tests/unit/core/device-stops tests/unit/core/device-yield tests/unit/core/lives \
	tests/unit/engine/nvml tests/unit/engine/post tests/unit/kvtier/kvio tests/unit/kvtier/tier tests/unit/kvtier/tier-index \
	tests/unit/kvtier/tier-loss tests/unit/kvtier/tier-states tests/unit/kvtier/tier-windows tests/unit/selfcheck/selfcheck tests/unit/store/life
print-thread-tests:
	@echo $(THREAD_TESTS)
.PHONY: print-thread-tests

# Goldens: logits of whole models.
GOLDEN_TESTS = tests/golden/golden tests/golden/hot tests/golden/invariant tests/golden/kv-types tests/golden/places tests/golden/rows tests/golden/states tests/golden/variants tests/golden/windows
GOLDEN_RUN = tests/golden/run.c
check_PROGRAMS += $(GOLDEN_TESTS)
tests_golden_golden_SOURCES = tests/golden/golden.c tests/golden/rounded.c tests/golden/routes.c $(GOLDEN_RUN)
tests_golden_hot_SOURCES = tests/golden/hot.c $(GOLDEN_RUN)
tests_golden_invariant_SOURCES = tests/golden/invariant.c $(GOLDEN_RUN)
tests_golden_kv_types_SOURCES = tests/golden/kv-types.c tests/golden/rounded.c tests/golden/routes.c $(GOLDEN_RUN)
tests_golden_places_SOURCES = tests/golden/places.c $(GOLDEN_RUN)
tests_golden_rows_SOURCES = tests/golden/rows.c $(GOLDEN_RUN)
tests_golden_states_SOURCES = tests/golden/states.c $(GOLDEN_RUN)
tests_golden_variants_SOURCES = tests/golden/variants.c $(GOLDEN_RUN)
tests_golden_windows_SOURCES = tests/golden/windows.c $(GOLDEN_RUN)
EXTRA_DIST += tests/golden/data/tale-q4_k_m.json tests/golden/data/tiny-llama-rope3.gguf \
	tests/golden/data/tiny-llama-rope3.json tests/golden/data/tiny-phi3.json tests/golden/data/tiny-qwen2.json \
	tests/golden/data/tiny-qwen3.json tests/golden/data/tiny-qwen3moe.json tests/golden/data/hf

# Models with random weights, written where they are wanted: tiny ones of every architecture, and real shapes.
EXTRA_DIST += tests/tools/tiny_arch.py tests/tools/synth_gguf.py tests/tools/fim_model.py tests/tools/script_model.py
EXTRA_DIST += tests/tools/hf_latent.py tests/tools/hf_goldens.py tests/tools/reference.py tests/tools/variants.py
CLEANFILES += tests/golden/tiny-*.gguf

# Other readers of our bytes: wire-echo gives python what the codec makes of it.
check_PROGRAMS += tests/unit/libclient/wire-echo
READER_TESTS = tests/unit/kvtier/kvfile.sh tests/unit/libclient/header.sh tests/unit/libclient/wire-msgpack.sh
dist_check_SCRIPTS += $(READER_TESTS)
TESTS += $(READER_TESTS)
EXTRA_DIST += tests/unit/model/tokenizers tests/tools/tokenizer_vectors.py tests/tools/arrangement_vectors.py tests/tools/pretok_vectors.py \
	tests/tools/sentencepiece_vectors.py tests/tools/deepseek_cased.txt
EXTRA_DIST += tests/unit/data/abi.txt tests/unit/data/sessions-v1.sql tests/unit/kvtier/kvfile.py tests/unit/libclient/wire-msgpack.py

# The disk tier beside what the disk can do; run by hand, built by `make tests/bench/bench-kv`.
EXTRA_PROGRAMS += tests/bench/bench-kv
# What a bystander waits for beside other clients, and how steps are planned for a GPU; by hand, too.
EXTRA_DIST += tests/bench/bystander.py tests/bench/paced.py tests/bench/sharing.py
# A fork of a long session, its commit included, through a daemon; by hand, too.
EXTRA_PROGRAMS += tests/bench/bench-fork
# A chat of ten turns with five tools through chat templates; by hand, too.
EXTRA_PROGRAMS += tests/bench/bench-jinja

# Fuzz targets. `make check` replays the corpus under any compiler; --enable-fuzzing (clang) links libFuzzer instead:
# tests/fuzz/fuzz-scan tests/fuzz/corpus/scan.
FUZZ_TESTS = tests/fuzz/fuzz-folder tests/fuzz/fuzz-gguf tests/fuzz/fuzz-jinja tests/fuzz/fuzz-kvfile tests/fuzz/fuzz-scan \
	tests/fuzz/fuzz-tok tests/fuzz/fuzz-wire
check_PROGRAMS += $(FUZZ_TESTS)
if ENABLE_FUZZING
FUZZ_MAIN =
FUZZ_CFLAGS = $(AM_CFLAGS) -fsanitize=fuzzer
else
FUZZ_MAIN = tests/fuzz/replay.c
FUZZ_CFLAGS = $(AM_CFLAGS)
TESTS += $(FUZZ_TESTS)
endif
EXTRA_DIST += tests/fuzz/corpus tests/fuzz/replay.c
tests_fuzz_fuzz_folder_SOURCES = tests/fuzz/fuzz-folder.c $(FUZZ_MAIN)
tests_fuzz_fuzz_folder_CFLAGS = $(FUZZ_CFLAGS)
tests_fuzz_fuzz_gguf_SOURCES = tests/fuzz/fuzz-gguf.c $(FUZZ_MAIN)
tests_fuzz_fuzz_gguf_CFLAGS = $(FUZZ_CFLAGS)
tests_fuzz_fuzz_jinja_SOURCES = tests/fuzz/fuzz-jinja.c $(FUZZ_MAIN)
tests_fuzz_fuzz_jinja_CFLAGS = $(FUZZ_CFLAGS)
tests_fuzz_fuzz_kvfile_SOURCES = tests/fuzz/fuzz-kvfile.c $(FUZZ_MAIN)
tests_fuzz_fuzz_kvfile_CFLAGS = $(FUZZ_CFLAGS)
tests_fuzz_fuzz_scan_SOURCES = tests/fuzz/fuzz-scan.c $(FUZZ_MAIN)
tests_fuzz_fuzz_scan_CFLAGS = $(FUZZ_CFLAGS)
tests_fuzz_fuzz_tok_SOURCES = tests/fuzz/fuzz-tok.c $(FUZZ_MAIN)
tests_fuzz_fuzz_tok_CFLAGS = $(FUZZ_CFLAGS)
tests_fuzz_fuzz_wire_SOURCES = tests/fuzz/fuzz-wire.c $(FUZZ_MAIN)
tests_fuzz_fuzz_wire_CFLAGS = $(FUZZ_CFLAGS)

# The command, on a private daemon, engine and the embedded model: what a person and a script see.
CLI_TESTS = tests/cli/bench-clients.sh tests/cli/chat-commands.sh tests/cli/chat-terminal.sh tests/cli/columns.sh tests/cli/completion.sh tests/cli/driver.sh tests/cli/engine.sh tests/cli/examples.sh \
	tests/cli/exit.sh tests/cli/install.sh tests/cli/fork.sh tests/cli/interrupt.sh tests/cli/life.sh tests/cli/list.sh tests/cli/memory.sh tests/cli/peer.sh tests/cli/purge.sh tests/cli/render.sh tests/cli/operations.sh \
	tests/cli/run-words.sh tests/cli/session.sh tests/cli/start.sh tests/cli/stdin.sh tests/cli/streams.sh tests/cli/style.sh tests/cli/think.sh \
	tests/cli/verbs.sh
dist_check_SCRIPTS += $(CLI_TESTS)
TESTS += $(CLI_TESTS)
EXTRA_DIST += tests/cli/lib.sh tests/cli/terminal.py

# The editors' plugins in the real editors, in a terminal.
EDITOR_TESTS = tests/editors/emacs.sh tests/editors/nvim.sh tests/editors/vscode.sh
dist_check_SCRIPTS += $(EDITOR_TESTS)
TESTS += $(EDITOR_TESTS)
EXTRA_DIST += tests/editors/lib.sh tests/editors/screen.lua tests/editors/nvim.lua tests/editors/emacs.lua tests/editors/vscode.mjs
if HAVE_CUDA
check_LTLIBRARIES += tests/cli/fake-driver.la
endif
tests_cli_fake_driver_la_SOURCES = tests/cli/fake-driver.c
tests_cli_fake_driver_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_cli_fake_driver_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)
