# hearthd, hearth-engine and hearth-bench.
EXTRA_DIST += daemon/README.md daemon/retention/README.md daemon/rpc/README.md daemon/store/README.md \
	daemon/stream/README.md daemon/supervisor/README.md \
	daemon/model/README.md daemon/model/hf/README.md daemon/model/chat/README.md daemon/model/tok/README.md

# GGUF files, vocabularies, chat templates, architectures.
noinst_LIBRARIES += daemon/libmodel.a
daemon_libmodel_a_SOURCES = daemon/model/gguf.c daemon/model/gguf.h daemon/model/gguf-internal.h \
	daemon/model/gguf-make.c daemon/model/gguf-make.h daemon/model/file.c daemon/model/file.h \
	daemon/model/hf/hf.c daemon/model/hf/hf.h daemon/model/hf/hf-internal.h daemon/model/hf/config.c daemon/model/hf/config-defaults.c daemon/model/hf/config-layers.c daemon/model/hf/config-rope.c daemon/model/hf/config-types.c \
	daemon/model/hf/tensors.c daemon/model/hf/experts.c daemon/model/hf/recurrent.c daemon/model/hf/gemma4.c daemon/model/hf/latent.c daemon/model/hf/mxfp4.c daemon/model/hf/templates.c daemon/model/hf/tokenizer.c daemon/model/hf/normalizer.c daemon/model/hf/pre-tokenizer.c \
	daemon/model/hf/parse.c daemon/model/hf/parse.h daemon/model/hf/safetensors.c daemon/model/hf/safetensors.h daemon/model/map.c daemon/model/map.h daemon/model/passed.c daemon/model/passed.h \
	daemon/model/pace.c daemon/model/pace.h \
	daemon/model/model.h daemon/model/tok/tok.h daemon/model/tok/tok-internal.h \
	daemon/model/tok/tok.c daemon/model/tok/piece.c daemon/model/tok/encode.c daemon/model/tok/bpe.c daemon/model/tok/fim.c daemon/model/tok/merge.c daemon/model/tok/special.c \
	daemon/model/tok/raw.c daemon/model/tok/normalize.c daemon/model/tok/charsmap.c daemon/model/tok/unigram.c \
	daemon/model/tok/wordpiece.c daemon/model/tok/spm.c \
	daemon/model/chat/templates.c daemon/model/chat/templates.h \
	daemon/model/tok/pretok.c daemon/model/tok/pretok.h daemon/model/tok/pattern.c daemon/model/tok/pattern.h \
	daemon/model/kind.c daemon/model/kind.h daemon/model/hparams.c daemon/model/hparams-internal.h \
	daemon/model/hparams-layers.c daemon/model/hparams-experts.c daemon/model/hparams-state.c \
	daemon/model/place.c daemon/model/tied.c daemon/model/place.h daemon/model/model.c daemon/model/model-internal.h daemon/model/bind.c daemon/model/bind-rope.c daemon/model/bind-experts.c daemon/model/rope.c daemon/model/rope.h
include daemon/model/arch/local.mk
daemon_libmodel_a_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(XXHASH_CFLAGS) $(JANSSON_CFLAGS) $(UTF8PROC_CFLAGS)
# What a program that reads models links, in this order.
MODEL_LIBS = daemon/libmodel.a daemon/libjinja.a $(KERNELS_LIBS) libclient/libcore.la $(PCRE2_LIBS) $(JANSSON_LIBS) \
	$(UTF8PROC_LIBS) $(XXHASH_LIBS)

# Chat templates: a library of its own, which stands on nothing but libclient's UTF-8 check, so that the command can
# render a template without a daemon (`hearth render --template`). Its door is daemon/model/chat/jinja.h.
noinst_LIBRARIES += daemon/libjinja.a
daemon_libjinja_a_SOURCES = \
	daemon/model/chat/access.c daemon/model/chat/ast.h \
	daemon/model/chat/builtin.c daemon/model/chat/builtin.h \
	daemon/model/chat/eval.c daemon/model/chat/exec.c daemon/model/chat/exec.h \
	daemon/model/chat/filters-list.c daemon/model/chat/filters-rare.c daemon/model/chat/filters-text.c daemon/model/chat/filters-value.c \
	daemon/model/chat/format.c daemon/model/chat/iter.c daemon/model/chat/jinja.h daemon/model/chat/str.c daemon/model/chat/str.h daemon/model/chat/render.c \
	daemon/model/chat/json.c daemon/model/chat/lex.c daemon/model/chat/now.c daemon/model/chat/methods.c daemon/model/chat/methods-str-is.c daemon/model/chat/methods-str.c \
	daemon/model/chat/ops.c daemon/model/chat/parse.c daemon/model/chat/parse-expr.c daemon/model/chat/print.c \
	daemon/model/chat/run.c daemon/model/chat/run.h daemon/model/pace.c daemon/model/pace.h daemon/model/chat/scopes.c daemon/model/chat/tests.c daemon/model/chat/text.c \
	daemon/model/chat/unicode.c daemon/model/chat/unicode.h daemon/model/chat/value.c daemon/model/chat/value.h
daemon_libjinja_a_CFLAGS = $(AM_CFLAGS) $(UTF8PROC_CFLAGS) $(XXHASH_CFLAGS)
JINJA_LIBS = daemon/libjinja.a libclient/libcore.la $(UTF8PROC_LIBS) $(XXHASH_LIBS) -lm

# What hearthd is made of, apart from main(): the unit tests link it too.
noinst_LIBRARIES += daemon/libdaemon.a
daemon_libdaemon_a_SOURCES = \
	daemon/acl.c daemon/acl.h \
	daemon/rpc/aside.c daemon/rpc/aside.h daemon/rpc/msg-pass.c daemon/rpc/show.c daemon/rpc/show.h \
	daemon/supervisor/model-fds.c daemon/supervisor/model-fds.h \
	daemon/retention/clock-guard.c daemon/retention/clock-guard.h \
	daemon/rpc/backup.c daemon/rpc/backup.h \
	daemon/stream/quarantine.c daemon/stream/quarantine.h \
	daemon/conf.c daemon/conf.h \
	daemon/gamemode.c daemon/gamemode.h daemon/rpc/games.c daemon/rpc/games.h daemon/rpc/yields.c daemon/rpc/yields.h \
	daemon/rpc/call.c daemon/rpc/call.h \
	daemon/rpc/subscription.c daemon/rpc/subscription.h \
	daemon/rpc/conn.c daemon/rpc/conn.h \
	daemon/stream/served.c daemon/stream/served.h daemon/stream/subscribers.c \
	daemon/rpc/dispatch.c daemon/rpc/dispatch.h \
	daemon/rpc/forward.c daemon/rpc/forward.h \
	daemon/rpc/import.c daemon/rpc/import.h \
	daemon/rpc/pins.c daemon/rpc/pins.h \
	daemon/stream/journal.c daemon/stream/journal.h \
	daemon/stream/journal-read.c daemon/stream/journal-read.h \
	daemon/stream/journal-sync.c daemon/stream/journal-sync.h \
	daemon/retention/releaser.c daemon/retention/releaser.h \
	daemon/retention/kvdir.c daemon/retention/kvdir.h daemon/retention/kvdir-evict.c daemon/retention/kvdir-internal.h daemon/retention/kvdir-reconcile.c \
	daemon/retention/kv-eviction.c daemon/retention/kv-eviction.h \
	daemon/supervisor/engine-client.c daemon/supervisor/engine-client-frames.c daemon/supervisor/engine-client-internal.h daemon/supervisor/engine-client.h daemon/supervisor/engines.c daemon/supervisor/engines.h \
	daemon/supervisor/engine-process.c daemon/supervisor/engine-process.h \
	daemon/log.c daemon/log.h daemon/trace.c daemon/trace.h \
	daemon/store/generation-info.c daemon/store/generation-info.h \
	daemon/supervisor/model-names.c daemon/supervisor/model-nearest.c daemon/supervisor/model-names.h daemon/supervisor/model-nearest.h \
	daemon/rpc/msg-generate.c \
	daemon/rpc/msg-hello.c \
	daemon/rpc/msg-kv.c \
	daemon/rpc/msg-models.c \
	daemon/rpc/msg-forks.c daemon/rpc/msg-sessions.c \
	daemon/rpc/msg-status.c \
	daemon/rpc/msg-text.c \
	daemon/stream/list.c daemon/stream/measure.c daemon/stream/output.c daemon/stream/output.h \
	daemon/stream/recover.c \
	daemon/stream/trace-log.c daemon/stream/trace-log.h daemon/rpc/msg-trace.c \
	daemon/stream/state.c daemon/stream/state.h daemon/stream/subscriber.h \
	daemon/stream/attempt.c daemon/stream/past.c daemon/stream/past.h daemon/stream/end.c \
	daemon/sd.c daemon/sd.h \
	daemon/context.c daemon/context.h \
	daemon/loop.c daemon/loop.h daemon/purge.c daemon/purge.h \
	daemon/server.c daemon/server.h daemon/socket.c daemon/socket.h \
	daemon/stream/fork.c daemon/stream/fork.h daemon/stream/session.c daemon/stream/session.h \
	daemon/stream/sessions.c daemon/stream/sessions.h \
	daemon/store/kv-manifest.c daemon/store/kv-manifest.h \
	daemon/store/store.c daemon/store/store.h daemon/store/store-internal.h \
	daemon/store/chain.c daemon/store/copy.c daemon/store/fork.c daemon/store/import.c \
	daemon/store/migrate.c daemon/store/open.c \
	daemon/store/remove.c daemon/store/reserve.c daemon/store/sql.c \
	daemon/store/checksum.c \
	daemon/store/timeline-cache.c daemon/store/turns.c daemon/store/vfs.c \
	daemon/stream/stream.c daemon/stream/stream.h daemon/stream/stream-internal.h daemon/stream/commit.c \
	daemon/rpc/group.c daemon/rpc/group.h daemon/rpc/queue.c daemon/rpc/queue.h daemon/rpc/takeover.c daemon/rpc/takeover.h \
	daemon/retention/retention.c daemon/retention/retention.h
daemon_libdaemon_a_CFLAGS = $(AM_CFLAGS) $(LIBEVENT_CFLAGS) $(SQLITE_CFLAGS) $(XXHASH_CFLAGS)

# A hearthd that runs from its build folder uses the tree's models; an installed one looks where configure said.
sbin_PROGRAMS += hearthd
hearthd_SOURCES = daemon/main.c
hearthd_CPPFLAGS = $(AM_CPPFLAGS) -DHEARTH_LIBEXECDIR='"$(libexecdir)"' -DHEARTH_DATADIR='"$(datadir)/hearth"' \
	-DHEARTH_BUILDDIR='"$(abs_top_builddir)"' -DHEARTH_SRCDIR='"$(abs_top_srcdir)"'
hearthd_CFLAGS = $(AM_CFLAGS)
EXTRA_DIST += daemon/stream/journal.md
dist_man_MANS += daemon/hearthd.8 daemon/hearth.conf.5
hearthd_LDADD = daemon/libdaemon.a libclient/libcore.la $(LIBEVENT_LIBS) $(SQLITE_LIBS) $(XXHASH_LIBS) -lpthread -lm

include daemon/engine/local.mk
include daemon/bench/local.mk
