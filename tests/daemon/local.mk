# hearthd's tests: its parts, then the daemon as a black box.
check_PROGRAMS += tests/unit/conf
TESTS += tests/unit/conf
tests_unit_conf_SOURCES = tests/unit/conf.c
tests_unit_conf_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_conf_LDADD = daemon/libdaemon.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/log
TESTS += tests/unit/log
THREAD_TESTS += tests/unit/log
tests_unit_log_SOURCES = tests/unit/log.c
tests_unit_log_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_log_LDADD = daemon/libdaemon.a $(CMOCKA_LIBS) -lpthread

check_PROGRAMS += tests/unit/stream/journal
TESTS += tests/unit/stream/journal
tests_unit_stream_journal_SOURCES = tests/unit/stream/journal.c
tests_unit_stream_journal_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_stream_journal_LDADD = daemon/libdaemon.a libclient/libcore.la $(XXHASH_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/retention/kv-eviction
TESTS += tests/unit/retention/kv-eviction
tests_unit_retention_kv_eviction_SOURCES = tests/unit/retention/kv-eviction.c
tests_unit_retention_kv_eviction_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_retention_kv_eviction_LDADD = daemon/libdaemon.a libclient/libcore.la -lm $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/supervisor/engine-process
TESTS += tests/unit/supervisor/engine-process
tests_unit_supervisor_engine_process_SOURCES = tests/unit/supervisor/engine-process.c
tests_unit_supervisor_engine_process_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(LIBEVENT_CFLAGS)
tests_unit_supervisor_engine_process_LDADD = daemon/libdaemon.a libclient/libcore.la $(LIBEVENT_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/stream/output
TESTS += tests/unit/stream/output
tests_unit_stream_output_SOURCES = tests/unit/stream/output.c
tests_unit_stream_output_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_stream_output_LDADD = daemon/libdaemon.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/stream/state
TESTS += tests/unit/stream/state
tests_unit_stream_state_SOURCES = tests/unit/stream/state.c
tests_unit_stream_state_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_stream_state_LDADD = daemon/libdaemon.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/sd
TESTS += tests/unit/sd
tests_unit_sd_SOURCES = tests/unit/sd.c
tests_unit_sd_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_sd_LDADD = daemon/libdaemon.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/store/store
TESTS += tests/unit/store/store
tests_unit_store_store_SOURCES = tests/unit/store/store.c tests/unit/store/store-box.h tests/sql.h
tests_unit_store_store_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_unit_store_store_LDADD = daemon/libdaemon.a libclient/libcore.la $(SQLITE_LIBS) $(XXHASH_LIBS) $(CMOCKA_LIBS) -lpthread

check_PROGRAMS += tests/unit/retention/clock-guard
TESTS += tests/unit/retention/clock-guard
tests_unit_retention_clock_guard_SOURCES = tests/unit/retention/clock-guard.c
tests_unit_retention_clock_guard_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_retention_clock_guard_LDADD = daemon/libdaemon.a libclient/libcore.la $(CMOCKA_LIBS) -lm

check_PROGRAMS += tests/unit/store/life
TESTS += tests/unit/store/life
THREAD_TESTS += tests/unit/store/life
tests_unit_store_life_SOURCES = tests/unit/store/life.c tests/unit/store/store-box.h tests/sql.h
tests_unit_store_life_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_unit_store_life_LDADD = daemon/libdaemon.a libclient/libcore.la $(SQLITE_LIBS) $(XXHASH_LIBS) $(CMOCKA_LIBS) -lpthread

check_PROGRAMS += tests/unit/store/generation-info
TESTS += tests/unit/store/generation-info
tests_unit_store_generation_info_SOURCES = tests/unit/store/generation-info.c
tests_unit_store_generation_info_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_unit_store_generation_info_LDADD = daemon/libdaemon.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/store/gone
TESTS += tests/unit/store/gone
tests_unit_store_gone_SOURCES = tests/unit/store/gone.c tests/unit/store/store-box.h tests/sql.h
tests_unit_store_gone_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_unit_store_gone_LDADD = daemon/libdaemon.a libclient/libcore.la $(SQLITE_LIBS) $(XXHASH_LIBS) $(CMOCKA_LIBS) -lpthread

check_PROGRAMS += tests/unit/store/migrate
TESTS += tests/unit/store/migrate
tests_unit_store_migrate_SOURCES = tests/unit/store/migrate.c tests/sql.h
tests_unit_store_migrate_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_unit_store_migrate_LDADD = daemon/libdaemon.a libclient/libcore.la $(SQLITE_LIBS) $(XXHASH_LIBS) $(CMOCKA_LIBS) -lpthread
EXTRA_DIST += tests/unit/data/sessions-v1.sql

# Black-box tests of hearthd, with a fake engine and a harness of their own.
check_PROGRAMS += tests/daemon/fake-engine
tests_daemon_fake_engine_SOURCES = tests/daemon/fake-engine.c
tests_daemon_fake_engine_LDADD = libclient/libcore.la
check_LIBRARIES += tests/daemon/libharness.a
tests_daemon_libharness_a_SOURCES = tests/daemon/harness.c tests/daemon/harness.h
tests_daemon_libharness_a_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
DAEMON_TEST_LIBS = tests/daemon/libharness.a libclient/libcore.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/daemon/stream
TESTS += tests/daemon/stream
tests_daemon_stream_SOURCES = tests/daemon/stream.c
tests_daemon_stream_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_daemon_stream_LDADD = $(DAEMON_TEST_LIBS)

check_PROGRAMS += tests/daemon/start
TESTS += tests/daemon/start
tests_daemon_start_SOURCES = tests/daemon/start.c
tests_daemon_start_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_daemon_start_LDADD = $(DAEMON_TEST_LIBS)

check_PROGRAMS += tests/daemon/hostile
TESTS += tests/daemon/hostile
tests_daemon_hostile_SOURCES = tests/daemon/hostile.c
tests_daemon_hostile_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_daemon_hostile_LDADD = $(DAEMON_TEST_LIBS)

check_PROGRAMS += tests/daemon/session
TESTS += tests/daemon/session
tests_daemon_session_SOURCES = tests/daemon/session.c tests/sql.h
tests_daemon_session_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_daemon_session_LDADD = $(DAEMON_TEST_LIBS) $(SQLITE_LIBS)

check_PROGRAMS += tests/daemon/full
TESTS += tests/daemon/full
tests_daemon_full_SOURCES = tests/daemon/full.c
tests_daemon_full_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_daemon_full_LDADD = $(DAEMON_TEST_LIBS)

check_PROGRAMS += tests/daemon/kv
TESTS += tests/daemon/kv
tests_daemon_kv_SOURCES = tests/daemon/kv.c tests/daemon/kv-files.h tests/sql.h
tests_daemon_kv_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_daemon_kv_LDADD = $(DAEMON_TEST_LIBS) $(SQLITE_LIBS)

check_PROGRAMS += tests/daemon/kv-go
TESTS += tests/daemon/kv-go
tests_daemon_kv_go_SOURCES = tests/daemon/kv-go.c tests/daemon/kv-files.h tests/sql.h
tests_daemon_kv_go_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_daemon_kv_go_LDADD = $(DAEMON_TEST_LIBS) $(SQLITE_LIBS)

check_PROGRAMS += tests/daemon/takeover
TESTS += tests/daemon/takeover
tests_daemon_takeover_SOURCES = tests/daemon/takeover.c
tests_daemon_takeover_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_daemon_takeover_LDADD = $(DAEMON_TEST_LIBS)

check_PROGRAMS += tests/daemon/life
TESTS += tests/daemon/life
tests_daemon_life_SOURCES = tests/daemon/life.c tests/sql.h
tests_daemon_life_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_daemon_life_LDADD = $(DAEMON_TEST_LIBS) $(SQLITE_LIBS)

check_PROGRAMS += tests/daemon/transfer
TESTS += tests/daemon/transfer
tests_daemon_transfer_SOURCES = tests/daemon/transfer.c tests/sql.h
tests_daemon_transfer_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_daemon_transfer_LDADD = $(DAEMON_TEST_LIBS) $(SQLITE_LIBS)

check_PROGRAMS += tests/daemon/backup
TESTS += tests/daemon/backup
tests_daemon_backup_SOURCES = tests/daemon/backup.c tests/sql.h
tests_daemon_backup_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_daemon_backup_LDADD = $(DAEMON_TEST_LIBS) $(SQLITE_LIBS)

dist_check_SCRIPTS += tests/daemon/neovim.sh
TESTS += tests/daemon/neovim.sh
EXTRA_DIST += tests/daemon/neovim.lua

check_PROGRAMS += tests/daemon/crash
TESTS += tests/daemon/crash
tests_daemon_crash_SOURCES = tests/daemon/crash.c
tests_daemon_crash_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_daemon_crash_LDADD = $(DAEMON_TEST_LIBS)

EXTRA_DIST += tests/daemon/harness.py

# A device that fails under the real engine: the engine's program with fault.h between it and the device.
check_PROGRAMS += tests/fault/hearth-engine
tests_fault_hearth_engine_SOURCES = tests/fault/main.c tests/fault/fault.c tests/fault/fault.h
tests_fault_hearth_engine_LDADD = daemon/libengine.a daemon/libmodel.a $(KERNELS_LIBS) libclient/libcore.la \
	$(LIBEVENT_LIBS) $(PCRE2_LIBS) $(XXHASH_LIBS)
dist_check_SCRIPTS += tests/daemon/fault.py
TESTS += tests/daemon/fault.py

# The stages of a request, in the log.
dist_check_SCRIPTS += tests/daemon/trace.py
TESTS += tests/daemon/trace.py

# Models whose weights are no numbers.
dist_check_SCRIPTS += tests/daemon/numbers.py
TESTS += tests/daemon/numbers.py

# KV that comes back, through the real engine.
dist_check_SCRIPTS += tests/daemon/tiers.py
TESTS += tests/daemon/tiers.py

# Two models in turns, and little room for KV.
dist_check_SCRIPTS += tests/daemon/swap.py
TESTS += tests/daemon/swap.py

# The protocol as another implementation sees it.
dist_check_SCRIPTS += tests/daemon/independent.py
TESTS += tests/daemon/independent.py

check_PROGRAMS += tests/daemon/journal
TESTS += tests/daemon/journal
tests_daemon_journal_SOURCES = tests/daemon/journal.c tests/sql.h
tests_daemon_journal_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_daemon_journal_LDADD = daemon/libdaemon.a $(DAEMON_TEST_LIBS) $(SQLITE_LIBS) $(XXHASH_LIBS)

# Kills at random; HEARTH_KILLS=500 is the whole campaign. What is preloaded into hearthd kills it inside of a write.
check_LTLIBRARIES += tests/daemon/kill-at.la
tests_daemon_kill_at_la_SOURCES = tests/daemon/kill-at.c
tests_daemon_kill_at_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)
dist_check_SCRIPTS += tests/daemon/kill.py
TESTS += tests/daemon/kill.py
dist_check_SCRIPTS += tests/daemon/storm.py
TESTS += tests/daemon/storm.py
dist_check_SCRIPTS += tests/daemon/damage.py
TESTS += tests/daemon/damage.py
