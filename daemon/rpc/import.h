/*
 * import.h - a session that comes page by page: what has come so far is kept in memory with its connection, bounded,
 * and written in one transaction when it is whole. So half of one is never seen, whoever dies. Loop thread.
 */
#ifndef DAEMON_IMPORT_H
#define DAEMON_IMPORT_H

#include "daemon/rpc/call.h"

struct import;

/* The handler of sessions.import. */
void msg_sessions_import(struct call *call);

/* What has come over a connection that is lost; NULL is none. */
void import_free(struct import *im);

#endif
