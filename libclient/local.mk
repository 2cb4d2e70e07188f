# libhearth: the core is compiled once and goes into the shared library and, statically, into our own programs.
noinst_LTLIBRARIES += libclient/libcore.la
libclient_libcore_la_SOURCES = \
    libclient/error.c \
    libclient/frame.c \
    libclient/scan.c \
    libclient/wire-tables.c \
    libclient/wire.c \
    libclient/err.h \
    libclient/hearth.h \
    libclient/scan.h \
    libclient/wire-table.h \
    libclient/wire.h
libclient_libcore_la_CFLAGS = $(AM_CFLAGS) $(MSGPACK_CFLAGS)
libclient_libcore_la_LIBADD = $(MSGPACK_LIBS)

include_HEADERS += libclient/hearth.h
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = libclient/hearth.pc
