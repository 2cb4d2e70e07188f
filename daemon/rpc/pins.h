/* pins.h - models that were pinned (models.pin): hearthd remembers their paths as long as it lives, so that the next
 * engine loads them again. Loop thread. */
#ifndef DAEMON_PINS_H
#define DAEMON_PINS_H

#include "daemon/context.h"

struct engine_client;

/* Remembers the model, or forgets it. HEARTH_ENOMEM. */
int pins_set(struct server *s, const char *path, bool pinned, struct hearth_err *e);

/* The path of the first pinned model that `is` takes; NULL. Borrowed until it is not pinned any more. */
const char *pins_find(const struct server *s, bool (*is)(const char *path, void *arg), void *arg);

/* An engine is ready: it is asked to pin those that are its own, and those that are nobody's go where there is room. */
void pins_restore(struct server *s, const struct engine_client *ec);

void pins_fini(struct server *s);

#endif
