/*
 * import.h - sessions.import: a session arrives page by page. Its pages are buffered in memory with the connection,
 * within a limit; a large session is written to the store in slices, which stay invisible until the last page commits
 * them. So no part of an import is ever visible, even after a crash. Loop thread.
 */
#ifndef DAEMON_IMPORT_H
#define DAEMON_IMPORT_H

#include "daemon/rpc/call.h"

struct import;

/* The handler of sessions.import. */
void msg_sessions_import(struct call *call);

/* Drops the import of a lost connection; NULL is allowed. */
void import_free(struct import *im);

#endif
