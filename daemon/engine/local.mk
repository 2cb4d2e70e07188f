# hearth-engine: everything but main() and the bench is a library, which the tests link too.
noinst_LIBRARIES += daemon/libengine.a
daemon_libengine_a_SOURCES = \
	daemon/engine/kv.c daemon/engine/kv.h \
	daemon/engine/post.c daemon/engine/post.h \
	daemon/engine/sched.c daemon/engine/sched.h \
	daemon/engine/seq.c daemon/engine/seq.h \
	daemon/engine/text.c daemon/engine/text.h
daemon_libengine_a_CFLAGS = $(AM_CFLAGS) $(LIBEVENT_CFLAGS) $(XXHASH_CFLAGS)
