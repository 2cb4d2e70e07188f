# hearthd and hearth-engine.

# GGUF files, vocabularies, chat templates, architectures.
noinst_LIBRARIES += daemon/libmodel.a
daemon_libmodel_a_SOURCES = daemon/model/gguf.c daemon/model/gguf.h daemon/model/map.c daemon/model/map.h \
	daemon/model/model.h daemon/model/tok.h
daemon_libmodel_a_CFLAGS = $(AM_CFLAGS) $(PCRE2_CFLAGS) $(XXHASH_CFLAGS)
