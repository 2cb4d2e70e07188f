/*
 * subscriber.h - whoever wants to hear of a stream: an interface of three functions. The rooms above implement it
 * (rpc/subscription.c, over a request), so that a stream knows neither connections nor requests. Loop thread.
 */
#ifndef DAEMON_STREAM_SUBSCRIBER_H
#define DAEMON_STREAM_SUBSCRIBER_H

#include "daemon/stream/output.h"

struct stream;
struct subscriber;

struct subscriber_ops {
    /* Whether the peer takes more now. Where it does not, stream_unthrottle() goes on later. */
    bool (*has_room)(const struct subscriber *sub);

    /* An event of the stream; `body` is borrowed. */
    void (*event)(const struct subscriber *sub, const struct wire_method *m, const void *body);

    /* The last call: the result, or the reason why there is none. The subscriber is its owner's again. */
    void (*end)(struct subscriber *sub, const struct wire_generate_result *result, const struct hearth_err *e);
};

/* Embedded by its owner, who keeps it until end() or stream_detach(). */
struct subscriber {
    const struct subscriber_ops *ops;
    const void *peer; /* what its events are sent to */
    bool events;      /* it gets events; else only the result */
    size_t from;      /* tokens that it has already */

    /* The stream's. */
    struct stream *stream;
    bool begin_sent; /* stream.begin was sent */
    bool positioned; /* `cursor` is valid: the output has come to `from` */
    struct output_cursor cursor;
    TAILQ_ENTRY(subscriber) entry;
};

#endif
