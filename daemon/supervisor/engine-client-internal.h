/* engine-client-internal.h - what the two files of an engine's client share: the calls, and the frames on the link. */
#ifndef HEARTH_ENGINE_CLIENT_INTERNAL_H
#define HEARTH_ENGINE_CLIENT_INTERNAL_H

#include <sys/queue.h>

#include "daemon/loop.h"
#include "daemon/supervisor/engine-client.h"
#include "libclient/frames.h"

struct request {
    uint32_t id;
    const struct wire_method *method;
    bool packed;                 /* the completion takes the packed result */
    engine_completion *complete; /* NULL: already completed, at its deadline; the answer is still due */
    void *arg;
    struct engine_client *client;
    struct timer *deadline; /* NULL: it waits as long as the engine lives */
    TAILQ_ENTRY(request) entry;
};
TAILQ_HEAD(request_list, request);

struct engine_client {
    struct event_base *base;
    struct engine_process *process;
    engine_event *on_event;
    void *arg; /* for on_event */
    int fd;    /* -1: there is no link; requests that are packed meanwhile wait in `frames` */
    struct frames frames;
    struct event *readable, *writable; /* on fd */
    struct request_list requests;      /* not answered yet */
    uint32_t last_id;
    bool lost_device;
    bool may_leave; /* it reported that it holds nothing */
    void (*ready)(void *arg), (*before)(void *arg), (*end)(void *arg), (*leave)(void *arg);
    int number;
    int64_t devices;
    int64_t link;            /* the link's number, counted from 1 */
    int64_t timeout;         /* seconds for which the engine may be silent while an answer is due */
    struct timer *heartbeat; /* set while an answer is due */
    int64_t bytes;           /* of frames, in both directions */
    bool heard;              /* something was received since the last beat */
    bool pinged;             /* an answer to the heartbeat's own request is due */
    int silent;              /* consecutive beats without a received byte */
    bool overdue;            /* nothing was received since the time of a status request was up */
};

/* --- engine-client.c --------------------------------------------------------------------------------------- */

/* Calls the request's completion, at most once: with *e if `result` is NULL. */
void engine_client_complete(struct request *r, const void *result, const struct hearth_err *e);
void engine_client_request_free(struct request *r);
/* Called between two frames: if the engine reported that it holds nothing and no answer is due, closes the link to let
 * it exit, and returns true. A call made meanwhile keeps it. */
bool engine_client_let_leave(struct engine_client *ec);

/* --- engine-client-frames.c -------------------------------------------------------------------------------- */

/* Registers the events of a new link with the loop. */
int engine_client_watch(struct engine_client *ec);
/* Reads once; returns 1 if something was received, 0 if nothing was or the link was closed to let the engine exit,
 * negative if this link is of no more use. */
int engine_client_read(struct engine_client *ec);

#endif
