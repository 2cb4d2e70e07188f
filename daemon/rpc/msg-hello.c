/* msg-hello.c - hello: version, features, limits, and the form of events. Loop thread. */
#include "config.h"

#include "daemon/rpc/dispatch.h"
#include "daemon/log.h"

static const char *const features[] = {"sessions", "streams",    "logprobs", "notify_as", "eval",          "shutdown",
                                       "attach",   "export",     "backup",   "strict",    "notifications", "render",
                                       "classes",  "ignore_eos", "forks",    "reasoning", "pass",          "choices"};

static int hello(struct call *call, struct hearth_err *e)
{
    const struct wire_hello *h = call->params;
    if (call->conn->hello_done)
        return err_set(e, HEARTH_EINVALID, "hello comes first on a connection, and once");
    if (h->version_min > WIRE_VERSION || h->version_max < WIRE_VERSION)
        return err_set(e, HEARTH_EVERSION, "this hearthd speaks version %d, the client %lld to %lld", WIRE_VERSION,
                       (long long)h->version_min, (long long)h->version_max);
    log_debug("pid %d is \"%s\"", (int)call->conn->pid, h->client != NULL ? h->client : "");
    return conn_notify_as(call->conn, &h->notify_as, e);
}

void msg_hello(struct call *call)
{
    const struct conf *conf = call->server->conf;
    struct hearth_err e;
    if (hello(call, &e) != 0) {
        call_fail(call, &e);
        return;
    }
    struct wire_hello_result r = {
        .version = WIRE_VERSION,
        .server = PACKAGE_NAME " " PACKAGE_VERSION,
        .features = {.v = (const char **)features, .n = sizeof features / sizeof features[0]},
        .limits = {.frame_bytes = WIRE_FRAME_MAX,
                   .depth = WIRE_DEPTH_MAX,
                   .tokens = WIRE_TOKENS_MAX,
                   .streams = conf->streams_per_uid,
                   .connections = conf->connections_per_uid,
                   .stop_strings = WIRE_STOPS_MAX,
                   .logit_bias = WIRE_BIAS_MAX,
                   .logprobs = WIRE_LOGPROBS_MAX},
    };
    call_reply(call, &r);
}
