/* forward.h - calls that the engine answers: the client's model name becomes a path on the way there. Loop thread. */
#ifndef DAEMON_FORWARD_H
#define DAEMON_FORWARD_H

#include "daemon/rpc/call.h"

/* Resolves the model that the call names; malloc'd. */
int forward_resolve(const struct call *call, const char *model, char **path, struct hearth_err *e);

/* Asks the engine; its result, of the call's own result type, is the answer. `finish` may touch it up first; NULL.
 * `model` is the client's name for it, `path` becomes the call's: while it waits, the model's loading is reported to
 * its peer. On failure the call is answered too; where the
 * engine lost its device over it, the next engine is asked, once. */
void forward(struct call *call, const struct wire_method *m, const void *params, const char *model, char *path,
             void (*finish)(struct call *call, void *result));

#endif
