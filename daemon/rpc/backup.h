/* backup.h - copies the session database while hearthd keeps working: a thread copies, and the loop continues. Loop
 * thread. */
#ifndef DAEMON_BACKUP_H
#define DAEMON_BACKUP_H

#include "daemon/rpc/dispatch.h"

/* Stops a running backup and waits for its thread; NULL: none is running. */
void backup_stop(struct backup *b);

#endif
