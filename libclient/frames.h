/*
 * frames.h - one end of a framed byte stream: an input buffer that is split into frames, and an output buffer that
 * messages are packed into and flushed from. hearthd, the engine and libhearth all read and write their sockets through
 * it. It has no event loop and does not own the socket: its user watches the socket, decides when to read and what an
 * error means, and closes it.
 *
 *   in.data    [ consumed | front frame | more bytes, perhaps in the middle of a frame | room ]
 *              0          in_pos        in_pos + front                                 in.len in.cap
 *   out.data   [ sent     | pending                                                    | room ]
 *              0          out_pos                                                      out.len out.cap
 *
 * A position is 0 where no bytes precede it, so an empty buffer begins at its first byte. `front` is 0 until the frame
 * at in_pos is complete and has passed wire_scan(); frames_next() lends it out as a slice of the buffer (zero copy),
 * which stays valid until frames_drop() or frames_fill().
 *
 * Threads: a struct frames belongs to one thread at a time, its user's. Ownership: its user embeds it.
 */
#ifndef HEARTH_FRAMES_H
#define HEARTH_FRAMES_H

#include <sys/types.h>

#include "libclient/wire.h"

/* The largest number of descriptors that may wait in one direction: in, those of frames that are not dropped yet; out,
 * those not sent yet. */
enum { FRAMES_FDS_IN = 4, FRAMES_FDS_OUT = 1024 };

/* The limits of one kind of connection, in bytes. The struct must outlive the connection. */
struct frames_limits {
    size_t frame;     /* the largest accepted frame; a larger one is HEARTH_ETOOBIG */
    size_t read;      /* initial size of the input buffer; an empty one that has grown larger is freed */
    size_t high, low; /* watermarks of the pending output, see frames_level() */
    bool takes_fds;   /* accept descriptors that are sent with the bytes; otherwise the kernel closes them */
};

/* A descriptor that is sent with bytes (SCM_RIGHTS). It belongs to one frame; the sender writes it together with bytes
 * of that frame alone. */
struct frames_fd {
    int fd;
    size_t at; /* in: offset of a byte of its frame, from in_pos; out: offset of its frame's first byte, from out_pos
                  ... */
    size_t n;  /* ... and the frame's length */
};

struct frames {
    const struct frames_limits *limits;
    struct wire_buf in, out;
    size_t in_pos, front, out_pos;
    struct wire_scan scan; /* of the front frame while it is incomplete */
    struct frames_fd in_fd[FRAMES_FDS_IN], *out_fd;
    size_t n_in_fd, n_out_fd;
};

void frames_init(struct frames *f, const struct frames_limits *limits);
void frames_fini(struct frames *f); /* frees both buffers, closes pending descriptors and resets *f to its state after
                                       frames_init() */

/*
 * Reads once from the socket, without blocking. Returns as read(2) does: the number of bytes, 0 at the end of the
 * stream, or -1 with errno: EAGAIN where nothing has arrived (also instead of EINTR), ENOMEM also where the buffer
 * cannot grow. The buffer grows with the bytes received, to at most double their number (plus the initial size), so
 * that a length that a peer merely claims costs no memory.
 */
ssize_t frames_fill(struct frames *f, int fd);

/*
 * Moves the descriptors that arrived with the front frame to `fds`, whose owner is the caller from then on; returns
 * their number, FRAMES_FDS_IN at most. Descriptors that were not taken are closed when the frame is dropped. More than
 * FRAMES_FDS_IN at a time, or more than the process can open, end the stream: frames_fill() fails with EMFILE.
 */
size_t frames_take_fds(struct frames *f, int fds[static FRAMES_FDS_IN]);
/* The same for the descriptors of all frames, for a caller that must not close them on this thread: closing a
 * descriptor that a peer chose may block. */
size_t frames_leave_fds(struct frames *f, int fds[static FRAMES_FDS_IN]);

/* Sends a descriptor with the frame that was packed last, and takes ownership of it. `before` is frames_pending() as it
 * was before that frame was packed. Returns 0, HEARTH_ENOMEM or HEARTH_ELIMIT; after an error the descriptor is closed.
 */
int frames_attach(struct frames *f, size_t before, int fd, struct hearth_err *e);

/* Moves what was packed since frames_pending() was `before` to the front of the pending output, of which nothing may
 * have been sent yet. Returns 0, or HEARTH_ENOMEM with nothing moved. */
int frames_put_first(struct frames *f, size_t before);

/* As frames_fill(), but discards the bytes that it reads, and all input that was buffered. */
ssize_t frames_skip(struct frames *f, int fd);

/*
 * Returns the length of the frame at the front of the input, with *frame borrowed; 0 where more bytes are needed; or,
 * where the bytes are no frame, wire_scan()'s HEARTH_EINVALID or HEARTH_ETOOBIG. After an error the stream cannot be
 * split any further. The same frame is returned until frames_drop() steps over it.
 */
ptrdiff_t frames_next(struct frames *f, const uint8_t **frame, struct hearth_err *e);
void frames_drop(struct frames *f);

/* Returns the length of the frame that frames_next() found and frames_drop() has not dropped, 0 where there is none. */
size_t frames_front(const struct frames *f, const uint8_t **frame);

/* Return the number of bytes that were read and not dropped, and that were packed and not sent. */
size_t frames_unread(const struct frames *f);
size_t frames_pending(const struct frames *f);

/* Returns the buffer that wire_pack_*() appends to. Its user may remove or rearrange the bytes appended since the last
 * frames_flush(), because none of them has been sent. */
struct wire_buf *frames_out(struct frames *f);

/*
 * Sends the pending output until the socket accepts no more, without blocking and without SIGPIPE. Returns 0 once
 * everything is sent, else the errno of the send that failed: EAGAIN where the rest has to wait until the socket is
 * writable.
 */
int frames_flush(struct frames *f, int fd);
void frames_discard(struct frames *f); /* discards the pending output, for a peer that reads no more */

/* Compares the pending output with the watermarks: a writer is throttled above the high one and resumes below the low
 * one. */
enum frames_level { FRAMES_LOW, FRAMES_BETWEEN, FRAMES_HIGH };
enum frames_level frames_level(const struct frames *f);

#endif
