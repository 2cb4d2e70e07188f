/*
 * script.h - libhearth against a scripted daemon at the other end of a socketpair, in the same thread: the peer's bytes
 * are written before the library reads, and read after the library has written, so nothing here waits.
 */
#ifndef TESTS_UNIT_SCRIPT_H
#define TESTS_UNIT_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/wire.h"

struct peer {
    struct hearth *h; /* the library's end */
    int fd;
    uint8_t in[1 << 20];
    size_t len, pos;
    struct wire_frame frame; /* the last frame that peer_expect() opened */
    void *params;
};

extern struct hearth_err err; /* the error of any call in a test */

/* cmocka fixtures: *state is the peer. */
int peer_setup(void **state);
int peer_teardown(void **state);

/* Lets the library send what it has, and takes the next request, which must be `method`. Returns its params. */
void *peer_expect(struct peer *p, int method);
void peer_expect_silence(struct peer *p);

/* What the daemon sends: answers to a request by its id, and events. */
void peer_answer(struct peer *p, uint32_t id, int method, const void *result);
void peer_refuse(struct peer *p, uint32_t id, int code, const char *msg);
void peer_tell(struct peer *p, int method, const void *body);
void peer_greet(struct peer *p, uint32_t id); /* the answer to hello */
void peer_begin(struct peer *p, int64_t stream, const char *request);
void peer_begin_choice(struct peer *p, int64_t stream, const char *request, int64_t choice);
void peer_tokens(struct peer *p, int64_t stream, int64_t index, const char *text); /* one token */
void peer_finish(struct peer *p, uint32_t id, int64_t stream, const char *text, const char *reason);

/* The library's end: reads what has arrived and takes one event, as hearth_next() returns it. */
int peer_next(struct peer *p, struct hearth_event *ev);
/* Submits a generation and returns the id that its events will have. */
uint32_t peer_submit(struct peer *p, const char *request);

#endif
