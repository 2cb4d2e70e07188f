/*
 * import.h - a session that comes page by page: what has come so far is kept in memory with its connection, bounded,
 * and written in one transaction when it is whole. So half of one is never seen, whoever dies. Loop thread.
 */
#ifndef DAEMON_IMPORT_H
#define DAEMON_IMPORT_H

#include "daemon/rpc/conn.h"

struct import;

/* The connection's, when it goes; NULL is none. */
void import_free(struct import *im);

#endif
