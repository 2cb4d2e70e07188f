/* backup.h - copies the session database while hearthd works: a thread copies while the loop continues. Loop thread. */
#ifndef DAEMON_BACKUP_H
#define DAEMON_BACKUP_H

#include "daemon/rpc/dispatch.h"

/* Stops a backup that is under way and waits for its thread; NULL is none. */
void backup_stop(struct backup *b);

#endif
