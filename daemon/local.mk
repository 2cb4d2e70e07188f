# hearthd and hearth-engine.

# GGUF files, vocabularies, chat templates, architectures.
noinst_LIBRARIES += daemon/libmodel.a
daemon_libmodel_a_SOURCES = daemon/model/gguf.c daemon/model/gguf.h daemon/model/map.c daemon/model/map.h \
	daemon/model/model.h daemon/model/tok.h
daemon_libmodel_a_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(XXHASH_CFLAGS)

# What hearthd is made of, apart from main(): the unit tests link it too.
noinst_LIBRARIES += daemon/libdaemon.a
daemon_libdaemon_a_SOURCES = \
	daemon/conf.c daemon/conf.h \
	daemon/log.c daemon/log.h \
	daemon/sd.c daemon/sd.h \
	daemon/store.c daemon/store.h
daemon_libdaemon_a_CFLAGS = $(AM_CFLAGS) $(LIBEVENT_CFLAGS) $(SQLITE_CFLAGS)

include daemon/engine/local.mk
