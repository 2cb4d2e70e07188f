/* engine-client-internal.h - what the two parts of an engine's client share: the calls, and the frames on its link. */
#ifndef HEARTH_ENGINE_CLIENT_INTERNAL_H
#define HEARTH_ENGINE_CLIENT_INTERNAL_H

#include <sys/queue.h>

#include "daemon/loop.h"
#include "daemon/supervisor/engine-client.h"
#include "libclient/frames.h"

struct request {
    uint32_t id;
    const struct wire_method *method;
    bool packed;                 /* its completion takes the result as it is packed */
    engine_completion *complete; /* NULL: completed already, at its deadline; the answer is still due */
    void *arg;
    struct engine_client *client;
    struct timer *deadline; /* NULL: it waits for as long as the engine lives */
    TAILQ_ENTRY(request) entry;
};
TAILQ_HEAD(request_list, request);

struct engine_client {
    struct event_base *base;
    struct engine_process *process;
    engine_event *on_event;
    void *arg; /* of on_event */
    int fd;    /* -1: there is no link; requests that are packed meanwhile wait in `frames` */
    struct frames frames;
    struct event *readable, *writable; /* on fd */
    struct request_list requests;      /* not answered yet */
    uint32_t last_id;
    bool lost_device;
    bool may_leave; /* it said that it holds nothing */
    void (*ready)(void *arg), (*before)(void *arg), (*end)(void *arg);
    int number;
    int64_t devices;
    int64_t link;            /* its number, from 1 on */
    int64_t timeout;         /* seconds that the engine may be silent while an answer is due */
    struct timer *heartbeat; /* set while an answer is due */
    int64_t bytes;           /* of frames, both ways */
    bool heard;              /* since the last beat */
    bool pinged;             /* an answer to the heartbeat's own request is due */
    int silent;              /* beats in a row without a byte */
};

/* --- engine-client.c --------------------------------------------------------------------------------------- */

/* The request's completion, once: *e where `result` is NULL. */
void engine_client_complete(struct request *r, const void *result, const struct hearth_err *e);
void engine_client_request_free(struct request *r);
/* Between two frames. A call that was made meanwhile is what it is needed for. */
bool engine_client_let_leave(struct engine_client *ec);

/* --- engine-client-frames.c -------------------------------------------------------------------------------- */

/* Has the loop watch a link that is new. */
int engine_client_watch(struct engine_client *ec);
/* Reads once; 1 where something came, 0 where nothing has, negative where this link is of no more use. */
int engine_client_read(struct engine_client *ec);

#endif
