/* pins.h - pinned models (models.pin): hearthd remembers their paths as long as it lives, so that a new engine loads
 * them again. Loop thread. */
#ifndef DAEMON_PINS_H
#define DAEMON_PINS_H

#include "daemon/context.h"

struct engine_client;

/* Remembers the model, or forgets it. HEARTH_ENOMEM. */
int pins_set(struct server *s, const char *path, bool pinned, struct hearth_err *e);

/* The path of the first pinned model for which `is` returns true; NULL. Borrowed until it is unpinned. */
const char *pins_find(const struct server *s, bool (*is)(const char *path, void *arg), void *arg);

/* Called before each call to an engine: has a new one pin the models that are placed on it before it does anything
 * else, as there may be memory for no others (yields.h). */
void pins_tell(struct server *s, struct engine_client *ec);

/* Called when an engine is ready: asks it to pin the models that are placed on it, and has the pinned models that are
 * on no engine loaded where there is room. */
void pins_restore(struct server *s, const struct engine_client *ec);

/* Called when an engine may take memory again that was yielded: asks again for the pinned models that were refused for
 * lack of memory. */
void pins_retry(struct server *s);
void pins_on_relieved(struct server *s, const void *body); /* the same, on engine.relieved */

void pins_fini(struct server *s);

#endif
