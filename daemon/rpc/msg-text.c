/* msg-text.c - tokenize, detokenize, render, eval: the engine does the work, by the path of the model. Loop thread. */
#include "daemon/rpc/dispatch.h"
#include "daemon/rpc/forward.h"

static bool resolve(struct call *call, const char *model, char **path)
{
    struct hearth_err e;
    int rc = server_check_open(call->server, &e);
    if (!rc)
        rc = forward_resolve(call, model, path, &e);
    if (rc)
        call_fail(call, &e);
    return rc == 0;
}

void msg_tokenize(struct call *call)
{
    struct wire_tokenize p = *(const struct wire_tokenize *)call->params;
    const char *model = p.model;
    char *path;
    if (!resolve(call, model, &path))
        return;
    p.model = path;
    p.client = call_client(call);
    forward(call, &wire_methods[WIRE_ENGINE_TOKENIZE], &p, model, path, NULL);
}

void msg_detokenize(struct call *call)
{
    struct wire_detokenize p = *(const struct wire_detokenize *)call->params;
    const char *model = p.model;
    char *path;
    if (!resolve(call, model, &path))
        return;
    p.model = path;
    p.client = call_client(call);
    forward(call, &wire_methods[WIRE_ENGINE_DETOKENIZE], &p, model, path, NULL);
}

void msg_render(struct call *call)
{
    struct wire_engine_render p = {.client = call_client(call), .req = *(const struct wire_render *)call->params};
    const char *model = p.req.model;
    char *path;
    if (!resolve(call, model, &path))
        return;
    p.req.model = path;
    forward(call, &wire_methods[WIRE_ENGINE_RENDER], &p, model, path, NULL);
}

void msg_eval(struct call *call)
{
    struct wire_eval p = *(const struct wire_eval *)call->params;
    const char *model = p.model;
    char *path;
    if (!resolve(call, model, &path))
        return;
    p.model = path;
    p.client = call_client(call);
    forward(call, &wire_methods[WIRE_ENGINE_EVAL], &p, model, path, NULL);
}
