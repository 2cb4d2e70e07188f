/* backup.h - copies of the session database while hearthd works: a thread reads, the loop goes on. Loop thread. */
#ifndef DAEMON_BACKUP_H
#define DAEMON_BACKUP_H

#include "daemon/rpc/dispatch.h"

/* Ends one that is under way, and waits for that; NULL is none. */
void backup_stop(struct backup *b);

#endif
