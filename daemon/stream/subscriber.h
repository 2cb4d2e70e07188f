/*
 * subscriber.h - a subscriber of a stream: an interface of three functions. Higher layers implement it
 * (rpc/subscription.c, for a request), so that a stream knows neither connections nor requests. Loop thread.
 */
#ifndef DAEMON_STREAM_SUBSCRIBER_H
#define DAEMON_STREAM_SUBSCRIBER_H

#include "daemon/stream/output.h"

struct stream;
struct subscriber;

struct subscriber_ops {
    /* Whether the peer accepts more at present. If not, stream_unthrottle() continues later. */
    bool (*has_room)(const struct subscriber *sub);

    /* Sends an event of the stream; `body` is borrowed. */
    void (*event)(const struct subscriber *sub, const struct wire_method *m, const void *body);

    /* The last call: the result, or the reason why there is none. After it the stream does not use the subscriber any
     * more. */
    void (*end)(struct subscriber *sub, const struct wire_generate_result *result, const struct hearth_err *e);
};

/* Embedded in its owner's struct, which must live until end() or stream_detach(). */
struct subscriber {
    const struct subscriber_ops *ops;
    const void *peer; /* the destination of its events */
    bool events;      /* whether it receives events; else only the result */
    size_t from;      /* number of tokens that it has already */

    /* Used by the stream only. */
    struct stream *stream;
    bool begin_sent; /* stream.begin was sent to it */
    bool positioned; /* `cursor` is valid, because the output has reached token `from` */
    struct output_cursor cursor;
    TAILQ_ENTRY(subscriber) entry;
};

#endif
