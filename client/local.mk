# The hearth command: a plain program on hearth.h, linked with libhearth's core so that it runs from the build folder.
EXTRA_DIST += client/README.md
bin_PROGRAMS += hearth
hearth_SOURCES = \
	client/main.c client/cmd.h client/models.c client/opts.c client/daemon.c client/generate.c client/show-reasoning.c client/chat.c client/chat.h client/chat-commands.c client/lines.c \
	client/lines.h client/memory.c client/output.c \
	client/json.c client/json-generation.c client/markdown.c client/sessions-export.c client/sessions-import.c \
	client/template.c client/utf8.c client/verb.c client/cmd-attach.c client/cmd-backup.c client/cmd-bench.c client/bench.h client/bench-load.c client/bench-report.c client/cmd-chat.c client/cmd-eval.c client/cmd-fork.c client/cmd-list.c client/cmd-load.c \
	client/cmd-pin.c client/cmd-ps.c client/cmd-purge.c client/cmd-render.c client/cmd-resume.c client/cmd-rm.c client/cmd-run.c client/cmd-serve.c client/cmd-sessions.c \
	client/cmd-show.c client/cmd-status.c client/cmd-stop.c client/cmd-streams.c client/cmd-doctor.c client/cmd-metrics.c client/cmd-tokenize.c client/cmd-top.c client/cmd-trace.c client/cmd-yield.c
hearth_CPPFLAGS = $(AM_CPPFLAGS) -DSBINDIR='"$(sbindir)"' -DLIBEXECDIR='"$(libexecdir)"'
hearth_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(EDIT_CFLAGS)
# The template engine stands alone: no model, no kernel, no daemon comes with it.
hearth_LDADD = daemon/libjinja.a libclient/libcore.la $(UTF8PROC_LIBS) $(XXHASH_LIBS) -lm $(JANSSON_LIBS) $(EDIT_LIBS)
dist_man_MANS += client/hearth.1
