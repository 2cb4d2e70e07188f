/* forward.h - calls that the engine answers. The client's name of a model is resolved to a path before. Loop thread. */
#ifndef DAEMON_FORWARD_H
#define DAEMON_FORWARD_H

#include "daemon/rpc/call.h"

/* Resolves the client's name of a model to a path, malloc'd. */
int forward_resolve(const struct call *call, const char *model, char **path, struct hearth_err *e);

/* Sends method `m` to an engine and answers the call with the result, which must have the call's own result type.
 * `finish` may modify the result first; if it is NULL, the packed result is passed on unchanged. `model` is the
 * client's name of the model and is borrowed; the call takes ownership of `path`. While the call waits, its peer
 * receives model.progress. The call is answered on failure too. If its engine lost the device, the call is retried
 * once. */
void forward(struct call *call, const struct wire_method *m, const void *params, const char *model, char *path,
             void (*finish)(struct call *call, void *result));

#endif
