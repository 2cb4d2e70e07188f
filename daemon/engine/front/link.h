/*
 * link.h - the engine's end of the socket pair to hearthd: complete frames in, complete frames out, one event loop.
 *
 * This is the only file of the engine that uses libevent. Output is flushed once per wake-up, after everything that the
 * wake-up brought has been handled. When hearthd does not read, `full` throttles the engine, so that output is not
 * buffered without bound.
 *
 * Thread: the loop's.
 */
#ifndef HEARTH_ENGINE_LINK_H
#define HEARTH_ENGINE_LINK_H

#include "libclient/wire.h"

struct frame_conn;

struct frame_conn_calls {
    void (*frame)(void *arg, const uint8_t *data, size_t len); /* handles a complete, scanned frame; borrowed */
    void (*full)(void *arg, bool full);                        /* output passed the high or the low watermark */
    void (*tick)(void *arg);                                   /* the time set by frame_conn_tick_in() is up */
};

/* Takes ownership of fd, which frame_conn_close() closes. */
int frame_conn_open(struct frame_conn **out, int fd, const struct frame_conn_calls *calls, void *arg,
                    struct hearth_err *e);
void frame_conn_close(struct frame_conn *l);

enum { LINK_WATCHES = 2 };
/* Calls `wake` whenever fd is readable; for at most LINK_WATCHES descriptors. */
int frame_conn_watch(struct frame_conn *l, int fd, void (*wake)(void *arg), struct hearth_err *e);

/* The buffer that frames are packed into; they are sent at the end of the wake-up. */
struct wire_buf *frame_conn_out(struct frame_conn *l);

/* Takes the descriptor that came with the frame that is being handled; -1 if none did. */
int frame_conn_take_fd(struct frame_conn *l);

/* Calls `tick` once, `seconds` from now; a second call before that changes nothing. */
void frame_conn_tick_in(struct frame_conn *l, double seconds);

/* Runs the loop until the peer closes or frame_conn_stop() is called, then sends what is pending. HEARTH_EPROTOCOL if
 * the peer violated the protocol. */
int frame_conn_run(struct frame_conn *l, struct hearth_err *e);
void frame_conn_stop(struct frame_conn *l);

#endif
