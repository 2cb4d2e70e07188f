/* forward.h - calls that the engine answers. The client's name of a model becomes a path on the way. Loop thread. */
#ifndef DAEMON_FORWARD_H
#define DAEMON_FORWARD_H

#include "daemon/rpc/call.h"

/* Resolves the client's name of a model to a path, malloc'd. */
int forward_resolve(const struct call *call, const char *model, char **path, struct hearth_err *e);

/* Sends the engine's method `m` and answers the call with its result, which has the call's own result type; `finish`
 * may change it first; without one it is passed on as it is packed. `model` is the client's name of the model and is
 * borrowed; `path` becomes the call's. While the call waits, its peer gets model.progress. The call is answered on
 * failure too; where the engine has lost its device over it, the next engine is asked, once. */
void forward(struct call *call, const struct wire_method *m, const void *params, const char *model, char *path,
             void (*finish)(struct call *call, void *result));

#endif
