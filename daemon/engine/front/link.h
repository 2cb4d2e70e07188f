/*
 * link.h - the engine's end of the socketpair to hearthd: whole frames in, whole frames out, one event loop.
 *
 * The only file of the engine that knows libevent. Output is written once per wake, after everything that the wake
 * brought was handled; when hearthd does not read it, `full` asks the engine to pause rather than to buffer.
 *
 * Thread: the loop's.
 */
#ifndef HEARTH_ENGINE_LINK_H
#define HEARTH_ENGINE_LINK_H

#include "libclient/wire.h"

struct frame_conn;

struct frame_conn_calls {
    void (*frame)(void *arg, const uint8_t *data, size_t len); /* a whole frame, scanned */
    void (*wake)(void *arg);                                   /* the other descriptor is readable */
    void (*full)(void *arg, bool full);                        /* too much output waits; it does no longer */
    void (*tick)(void *arg);                                   /* what frame_conn_tick_in asked for */
};

/* Takes over fd, and watches wake_fd; -1: there is none. */
int frame_conn_open(struct frame_conn **out, int fd, int wake_fd, const struct frame_conn_calls *calls, void *arg,
                    struct hearth_err *e);
void frame_conn_close(struct frame_conn *l);

/* Where frames are appended to be sent. */
struct wire_buf *frame_conn_out(struct frame_conn *l);

/* `tick` is called once, after that many seconds, however often it is asked for until then. */
void frame_conn_tick_in(struct frame_conn *l, double seconds);

/* Runs until the peer closes or frame_conn_stop, and sends what is left. HEARTH_EPROTOCOL: the peer does not speak it.
 */
int frame_conn_run(struct frame_conn *l, struct hearth_err *e);
void frame_conn_stop(struct frame_conn *l);

#endif
