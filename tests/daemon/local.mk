# hearthd as a black box, with a fake engine and a harness of its own; then with the real engine, in Python.
check_PROGRAMS += tests/daemon/fake-engine
check_LIBRARIES += tests/daemon/libharness.a
tests_daemon_libharness_a_SOURCES = tests/daemon/harness.c tests/daemon/harness.h

DAEMON_TESTS = tests/daemon/backup tests/daemon/connections tests/daemon/crash tests/daemon/deadline tests/daemon/devices tests/daemon/full tests/daemon/hostile tests/daemon/journal \
	tests/daemon/kv tests/daemon/kv-go tests/daemon/life tests/daemon/notify tests/daemon/session tests/daemon/start tests/daemon/stream tests/daemon/streams-list \
	tests/daemon/queue tests/daemon/takeover tests/daemon/trace tests/daemon/transfer
check_PROGRAMS += $(DAEMON_TESTS)
TESTS += $(DAEMON_TESTS)

# The engine alone, driven over its link.
ENGINE_TESTS = tests/daemon/engine-generate tests/daemon/engine-link tests/daemon/engine-long
check_PROGRAMS += $(ENGINE_TESTS)
TESTS += $(ENGINE_TESTS)
tests_daemon_engine_generate_SOURCES = tests/daemon/engine-generate.c tests/daemon/drive.c
tests_daemon_engine_link_SOURCES = tests/daemon/engine-link.c tests/daemon/drive.c
tests_daemon_engine_long_SOURCES = tests/daemon/engine-long.c tests/daemon/drive.c

# The engine's program with fault.h between it and the device, for fault.py, small.h, for small.py, or paced.h, for paced.py, states.py and tests/bench/paced.py; no-vocab.h is for gone.py.
check_PROGRAMS += tests/fault/hearth-engine
tests_fault_hearth_engine_SOURCES = tests/fault/main.c tests/fault/fault.c tests/fault/fault.h tests/fault/paced.c tests/fault/paced.h tests/fault/small.c tests/fault/small.h tests/fault/no-vocab.c tests/fault/no-vocab.h
tests_fault_hearth_engine_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=vocab_load

# What is preloaded into hearthd kills it inside of a write, for kill.py.
check_LTLIBRARIES += tests/daemon/kill-at.la
tests_daemon_kill_at_la_SOURCES = tests/daemon/kill-at.c
tests_daemon_kill_at_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)
# ... and a disk that is full, for full.c, or slow, for tiers.py.
check_LTLIBRARIES += tests/daemon/disk.la
tests_daemon_disk_la_SOURCES = tests/daemon/disk.c
tests_daemon_disk_la_LDFLAGS = -module -avoid-version -rpath $(abs_top_builddir)

# anywhere: mixtures and recurrent states, cut and forked anywhere beside kills and yields; crowd: 32 clients with the same documents; damage, kill and storm break things at random (HEARTH_KILLS=500 is the whole campaign of kill); fault: a device that
# fails; fim: fill in the middle; gamemode: games on a private bus; forks: sessions made of others; gone: a file, or a vocabulary's memory, that is gone for a while; held: text that is held back when an engine dies; independent: the protocol as another implementation
# sees it; longrope: a text that outgrows its frequencies; neovim: a real editor; reasoning: thoughts apart from text; states: models with recurrent states; fair: two uids and a full pool;
# small: a model that a GPU has not room for; paced: a device that takes a GPU's time; stages: those of a request, in the log and by streams.trace;
# swap: two models in turns, and little room for KV; tiers: KV that comes back; weights: those that are no numbers; passed: models that come as descriptors; reload: SIGHUP; room: what makes way for what; turns: what hearthd does at a time; windows: models that see a part of the context;
# yields: memory given to other programs beside eight streams.
REAL_ENGINE_TESTS = tests/daemon/anywhere.py tests/daemon/chats.py tests/daemon/choices.py tests/daemon/crowd.py tests/daemon/damage.py tests/daemon/fault.py tests/daemon/fair.py tests/daemon/isolation.py tests/daemon/paced.py tests/daemon/small.py \
	tests/daemon/fim.py tests/daemon/forks.py tests/daemon/gamemode.py tests/daemon/clock.py tests/daemon/gone.py tests/daemon/held.py tests/daemon/hub.py tests/daemon/independent.py tests/daemon/kill.py tests/daemon/longrope.py \
	tests/daemon/neovim.sh tests/daemon/weights.py tests/daemon/states.py tests/daemon/storm.py tests/daemon/swap.py tests/daemon/tiers.py \
	tests/daemon/passed.py tests/daemon/reasoning.py tests/daemon/reload.py tests/daemon/render.py tests/daemon/room.py tests/daemon/stages.py tests/daemon/turns.py tests/daemon/windows.py tests/daemon/yields.py
dist_check_SCRIPTS += $(REAL_ENGINE_TESTS)
TESTS += $(REAL_ENGINE_TESTS)
EXTRA_DIST += tests/daemon/harness.py tests/daemon/rows.py tests/daemon/neovim.lua
