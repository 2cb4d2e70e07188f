/*
 * import.h - sessions.import: a session arrives page by page. Its pages are buffered in memory with the connection,
 * bounded, and committed in one transaction when the last has arrived; so no part of it is ever visible, even after a
 * crash. Loop thread.
 */
#ifndef DAEMON_IMPORT_H
#define DAEMON_IMPORT_H

#include "daemon/rpc/call.h"

struct import;

/* The handler of sessions.import. */
void msg_sessions_import(struct call *call);

/* Drops the import of a connection that is lost; NULL is none. */
void import_free(struct import *im);

#endif
