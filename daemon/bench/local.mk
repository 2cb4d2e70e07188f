# hearth-bench: on the engine's library, without its daemon, link and scheduler.
libexec_PROGRAMS += hearth-bench
hearth_bench_SOURCES = daemon/bench/main.c daemon/bench/bench.h daemon/bench/bench.c daemon/bench/check.c \
	daemon/bench/routes.c \
	daemon/bench/run.c daemon/bench/time.c daemon/bench/kv.c daemon/bench/disk.c
hearth_bench_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS)
hearth_bench_LDADD = daemon/libengine.a $(MODEL_LIBS) \
	$(JANSSON_LIBS) $(PCRE2_LIBS) $(XXHASH_LIBS) -lpthread

EXTRA_DIST += daemon/bench/README.md
