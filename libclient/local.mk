# libhearth: the core is compiled once and goes into the shared library and, statically, into our own programs.
noinst_LTLIBRARIES += libclient/libcore.la
libclient_libcore_la_SOURCES = \
    libclient/conn.c \
    libclient/error.c \
    libclient/frame.c \
    libclient/frames.c \
    libclient/nearest.c libclient/distance.c \
    libclient/packed.c \
    libclient/pass.c \
    libclient/run.c \
    libclient/scan.c \
    libclient/start.c \
    libclient/stream.c \
    libclient/utf8.c \
    libclient/wire-json.c \
    libclient/wire-pack.c \
    libclient/wire-rows-daemon.c \
    libclient/wire-rows-engine.c \
    libclient/wire-rows-models.c \
    libclient/wire-rows-pieces.c \
    libclient/wire-rows-sessions.c \
    libclient/wire-rows-streams.c \
    libclient/wire-tables.c \
    libclient/wire-unpack.c \
    libclient/conn.h \
    libclient/err.h \
    libclient/frames.h \
    libclient/nearest.h libclient/distance.h \
    libclient/hearth.h \
    libclient/packed.h \
    libclient/scan.h \
    libclient/standard-fds.h \
    libclient/utf8.h \
    libclient/wire-json.h \
    libclient/wire-link.h \
    libclient/wire-messages.h \
    libclient/wire-rows.h \
    libclient/wire-table.h \
    libclient/wire.h
libclient_libcore_la_CPPFLAGS = $(AM_CPPFLAGS) -DSBINDIR='"$(sbindir)"'
libclient_libcore_la_CFLAGS = $(AM_CFLAGS) $(MSGPACK_CFLAGS)
libclient_libcore_la_LIBADD = $(MSGPACK_LIBS)

# -version-info current:revision:age. A changed result struct is a new `current` with age 0.
lib_LTLIBRARIES += libclient/libhearth.la
libclient_libhearth_la_SOURCES =
libclient_libhearth_la_LIBADD = libclient/libcore.la
libclient_libhearth_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
    -Wl,--version-script=$(top_srcdir)/libclient/hearth.map
EXTRA_libclient_libhearth_la_DEPENDENCIES = libclient/hearth.map
EXTRA_DIST += libclient/hearth.map libclient/PROTOCOL.md libclient/README.md

# hearth-libevent.h is the optional second header: it is code for the application's side of the fence, and an
# application with an event loop should not have to copy it out of our tree.
include_HEADERS += libclient/hearth.h libclient/hearth-libevent.h
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = libclient/hearth.pc

# The examples are built by `make check` and run by the tests; their sources are installed, as are the documents.
check_PROGRAMS += libclient/examples/blocking libclient/examples/libevent libclient/examples/reconnect
examplesdir = $(docdir)/examples
dist_examples_DATA = libclient/examples/blocking.c libclient/examples/libevent.c libclient/examples/reconnect.c
dist_doc_DATA = libclient/PROTOCOL.md contrib/neovim.md README.md CHANGELOG.md
libclient_examples_reconnect_SOURCES = libclient/examples/reconnect.c
libclient_examples_reconnect_CPPFLAGS = -I$(top_srcdir)/libclient
libclient_examples_reconnect_CFLAGS = $(AM_CFLAGS)
libclient_examples_reconnect_LDADD = libclient/libhearth.la
libclient_examples_blocking_SOURCES = libclient/examples/blocking.c
libclient_examples_blocking_CPPFLAGS = -I$(top_srcdir)/libclient
libclient_examples_blocking_CFLAGS = $(AM_CFLAGS)
libclient_examples_blocking_LDADD = libclient/libhearth.la
libclient_examples_libevent_SOURCES = libclient/examples/libevent.c
libclient_examples_libevent_CPPFLAGS = -I$(top_srcdir)/libclient
libclient_examples_libevent_CFLAGS = $(AM_CFLAGS) $(LIBEVENT_CFLAGS)
libclient_examples_libevent_LDADD = libclient/libhearth.la $(LIBEVENT_LIBS)
