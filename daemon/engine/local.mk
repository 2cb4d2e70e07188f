# hearth-engine: everything but main() is a library, which the tests link too.
noinst_LIBRARIES += daemon/libengine.a
daemon_libengine_a_SOURCES = \
	daemon/engine/clock.h \
	daemon/log.c daemon/log.h daemon/trace.c daemon/trace.h \
	daemon/engine/core/device.h \
	daemon/engine/core/engine.c daemon/engine/engine.h daemon/engine/core/loop.c daemon/engine/core/loop.h \
	daemon/engine/core/commands.c daemon/engine/core/commands.h \
	daemon/engine/sched/cost.c daemon/engine/sched/cost.h daemon/engine/sched/eval.c daemon/engine/sched/eval.h \
	daemon/engine/front/generate.c daemon/engine/front/program.c daemon/engine/front/program.h \
	daemon/engine/sched/kv.c daemon/engine/sched/kv-state.c daemon/engine/sched/kv-cache.c daemon/engine/sched/kv-internal.h \
	daemon/engine/sched/kv.h daemon/engine/sched/kv-size.c daemon/engine/sched/kv-size.h \
	daemon/engine/sched/op-table.c daemon/engine/sched/op-table.h \
	daemon/engine/sched/pressure.c daemon/engine/sched/pressure.h daemon/engine/sched/ledger.c daemon/engine/sched/ledger.h \
	daemon/engine/kvtier/kvfile.c daemon/engine/kvtier/kvfile.h daemon/engine/kvtier/kvfile-internal.h daemon/engine/kvtier/kvfile-write.c \
	daemon/engine/kvtier/kvio.c daemon/engine/kvtier/kvio.h \
	daemon/engine/kvtier/fingerprint.c daemon/engine/kvtier/fingerprint.h \
	daemon/engine/front/link.c daemon/engine/front/link.h \
	daemon/engine/core/fit.c daemon/engine/core/fit.h daemon/engine/host-memory.c daemon/engine/host-memory.h daemon/engine/core/load.c daemon/engine/core/load.h daemon/engine/core/memory.c daemon/engine/core/memory.h daemon/engine/core/yield.c daemon/engine/core/yield.h \
	daemon/engine/core/events.c daemon/engine/core/events.h \
	daemon/engine/sched/models.c daemon/engine/sched/models.h \
	daemon/engine/post.c daemon/engine/post.h daemon/engine/nvml.c daemon/engine/nvml.h \
	daemon/engine/neighbours.c daemon/engine/neighbours.h \
	daemon/engine/front/chat.c daemon/engine/front/chat.h daemon/engine/front/chat-append.c daemon/engine/front/prompt.c \
	daemon/engine/front/sampling-params.c daemon/engine/front/sampling-params.h \
	daemon/engine/sched/ahead.c daemon/engine/sched/room.c daemon/engine/sched/sched.c daemon/engine/sched/sched.h daemon/engine/sched/sched-internal.h \
	daemon/engine/sched/share.c daemon/engine/sched/share.h \
	daemon/engine/selfcheck/selfcheck.c daemon/engine/selfcheck/selfcheck-make.c daemon/engine/selfcheck/selfcheck-internal.h daemon/engine/selfcheck/selfcheck.h daemon/engine/selfcheck/ops.c daemon/engine/selfcheck/ref.c daemon/engine/selfcheck/experts.c daemon/engine/selfcheck/choice.c daemon/engine/selfcheck/choice.h daemon/engine/selfcheck/states.c daemon/engine/selfcheck/layers.c daemon/engine/selfcheck/jobs.c daemon/engine/selfcheck/slice.c daemon/engine/selfcheck/slice.h \
	daemon/engine/sched/seq.c daemon/engine/sched/seq.h \
	daemon/engine/front/request.c daemon/engine/front/rpc.c daemon/engine/front/rpc.h \
	daemon/engine/front/events.c daemon/engine/front/status.c \
	daemon/engine/front/heads.c daemon/engine/front/heads.h daemon/engine/front/text-calls.c daemon/engine/front/traits.c daemon/engine/front/traits.h daemon/engine/front/work.c daemon/engine/front/work.h \
	daemon/engine/serve.c daemon/engine/serve.h \
	daemon/engine/core/lead.c daemon/engine/core/lead.h daemon/engine/core/step.c daemon/engine/core/step.h \
	daemon/engine/front/answer.c daemon/engine/front/answer.h daemon/engine/front/text.c daemon/engine/front/text.h daemon/engine/front/reasoning.c daemon/engine/front/reasoning.h \
	daemon/engine/kvtier/tier.c daemon/engine/kvtier/tier.h daemon/engine/kvtier/tier-internal.h \
	daemon/engine/kvtier/tier-host.c daemon/engine/kvtier/tier-host.h \
	daemon/engine/kvtier/tier-index.c daemon/engine/kvtier/tier-index.h \
	daemon/engine/kvtier/tier-admit.c daemon/engine/kvtier/tier-restore.c \
	daemon/engine/kvtier/tier-save.c daemon/engine/kvtier/tier-pin.c \
	daemon/engine/selfcheck/cache.c daemon/engine/selfcheck/cache.h
daemon_libengine_a_CFLAGS = $(AM_CFLAGS) $(LIBEVENT_CFLAGS) $(XXHASH_CFLAGS)

EXTRA_DIST += daemon/engine/kvtier/kv-format.md daemon/engine/front/protocol.md \
	daemon/engine/README.md daemon/engine/core/README.md daemon/engine/front/README.md \
	daemon/engine/kvtier/README.md daemon/engine/sched/README.md daemon/engine/sched/states.md \
	daemon/engine/selfcheck/README.md

libexec_PROGRAMS += hearth-engine
hearth_engine_SOURCES = daemon/engine/main.c
hearth_engine_CFLAGS = $(AM_CFLAGS)
hearth_engine_LDADD = daemon/libengine.a $(MODEL_LIBS) \
	$(LIBEVENT_LIBS) $(PCRE2_LIBS) $(XXHASH_LIBS)
