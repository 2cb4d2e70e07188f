/*
 * conn-end.c - a connection of libhearth as bytes: how it begins, input that is split at any place, and every way in
 * which the connection ends.
 */
#include "config.h"

#include "tests/unit/libclient/script.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The number of allocations until one fails; negative: none does. */
static int until_none = -1;

void *__wrap_malloc(size_t n);
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    return until_none >= 0 && until_none-- == 0 ? NULL : __real_malloc(n);
}

static void hello_is_answered_once_and_told_often(void **state)
{
    struct peer *p = *state;
    struct hearth_hello_result *r = NULL;
    peer_greet(p, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hearth_hello(p->h, &r, NULL, &err), 0);
        assert_string_equal(r->server, "hearth test");
        assert_int_equal(r->limits.frame_bytes, 123);
        hearth_free(r);
    }
    peer_expect(p, WIRE_HELLO);
    peer_expect_silence(p);

    struct hearth_event ev;
    shutdown(p->fd, SHUT_RDWR);
    assert_int_equal(peer_next(p, &ev), HEARTH_ECONNECT);
    assert_int_equal(hearth_hello(p->h, &r, NULL, &err), HEARTH_ECONNECT);
}

static void a_refused_hello_ends_the_connection(void **state)
{
    struct peer *p = *state;
    struct hearth_status_result *status = NULL;
    peer_refuse(p, 1, HEARTH_EVERSION, "this daemon speaks 2 to 3");
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), HEARTH_EVERSION);
    assert_string_equal(err.msg, "this daemon speaks 2 to 3");
    memset(&err, 0, sizeof err);
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), HEARTH_EVERSION);
    assert_string_equal(err.msg, "this daemon speaks 2 to 3");
}

static void the_end_of_the_connection_comes_after_its_last_frame(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a = peer_submit(p, "a");
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_GENERATE);
    peer_finish(p, p->frame.id, 1, "x", "stop");
    shutdown(p->fd, SHUT_RDWR);
    peer_submit(p, "lost"); /* no SIGPIPE, no error yet */
    assert_int_equal(hearth_io(p->h, HEARTH_WRITE, &err), 0);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == a);
    assert_int_equal(peer_next(p, &ev), HEARTH_ECONNECT);
    assert_string_equal(err.msg, "the daemon closed the connection");
    assert_int_equal(hearth_next(p->h, &ev, &err), HEARTH_ECONNECT);
    assert_int_equal(hearth_wait(p->h, -1, NULL, &err), HEARTH_ECONNECT);
    struct hearth_status_result *status;
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), HEARTH_ECONNECT);
}

/* The daemon is killed after it has accepted a connection and before the request arrives. */
static void a_daemon_that_ended_is_named(void **state)
{
    struct peer *p = *state;
    peer_submit(p, "a");
    while (hearth_events(p->h) & HEARTH_WRITE)
        assert_int_equal(hearth_io(p->h, HEARTH_WRITE, &err), 0);
    assert_int_equal(dup2(hearth_fd(p->h), p->fd), p->fd); /* closes the daemon's end, with all unread bytes */
    assert_int_equal(hearth_io(p->h, HEARTH_READ, &err), HEARTH_ECONNECT);
    assert_string_equal(err.msg, "the daemon ended before it read this request; a new one may be sent to the daemon "
                                 "that takes its place");
}

/* The daemon cannot name the request if it cannot read the frame or accepts no connection: it answers id 0 and closes
 * the connection. */
static void an_error_of_no_request_ends_the_connection(void **state)
{
    struct peer *p = *state;
    struct hearth_status_result *status = NULL;
    peer_refuse(p, 0, HEARTH_ELIMIT, "64 connections are open, the limit");
    shutdown(p->fd, SHUT_RDWR);
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), HEARTH_ELIMIT);
    assert_string_equal(err.msg, "64 connections are open, the limit");
    assert_int_equal(hearth_wait(p->h, -1, NULL, &err), HEARTH_ELIMIT);
}

static void what_is_not_the_protocol_ends_the_connection(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *msg;
    } rows[] = {
        {"\xc1", 1, "from the daemon: byte 0 of the message is 0xc1, which is not msgpack"},
        {"\xdd\xff\xff\xff\xff", 5, "from the daemon: the message is over 67108864 bytes"},
        {"HTTP/1.1 400 Bad Request", 24, "from the daemon: a message must be an array of 3 or 4 values"},
        {"\x94\x00\x01\xa4ping\x90", 9, "from the daemon: a request, but only clients ask"},
        {"\x93\x02\xacstream.begin\x91\x80", 17, "from the daemon: stream.begin.stream: is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *each;
        peer_setup(&each);
        struct peer *p = each;
        struct hearth_event ev;
        assert_int_equal(send(p->fd, rows[i].bytes, rows[i].len, 0), rows[i].len);
        assert_int_equal(peer_next(p, &ev), HEARTH_EPROTOCOL);
        assert_string_equal(err.msg, rows[i].msg);
        assert_int_equal(peer_next(p, &ev), HEARTH_EPROTOCOL);
        assert_int_equal(hearth_wait(p->h, -1, NULL, &err), HEARTH_EPROTOCOL); /* though a frame is at the front */
        peer_teardown(&each);
    }
}

/* A frame that the library has no memory for is not the daemon's fault. */
static void no_memory_for_a_frame_is_said(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        void *each;
        peer_setup(&each);
        struct peer *p = each;
        struct hearth_event ev;
        peer_submit(p, "a");
        peer_expect(p, WIRE_HELLO);
        peer_greet(p, p->frame.id);
        peer_expect(p, WIRE_GENERATE);
        if (i > 0) { /* the greeting has been taken */
            assert_int_equal(peer_next(p, &ev), 0);
            peer_begin(p, 1, "a");
        }
        if (i > 1) {
            assert_int_equal(peer_next(p, &ev), 1);
            peer_finish(p, p->frame.id, 1, "x", "stop");
        }
        assert_int_equal(hearth_io(p->h, HEARTH_READ, &err), 0);
        until_none = 0;
        int rc = hearth_next(p->h, &ev, &err);
        until_none = -1;
        assert_int_equal(rc, HEARTH_ENOMEM);
        assert_string_equal(err.msg, "no memory for a message");
        assert_int_equal(hearth_wait(p->h, -1, NULL, &err), HEARTH_ENOMEM);
        peer_teardown(&each);
    }
}

/* The daemon's frames arrive one byte at a time, and one frame is larger than a read. */
static void frames_come_in_any_pieces(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    struct wire_buf b = {0};
    char *big = malloc(300000);
    memset(big, 'b', 299999);
    big[299999] = 0;

    peer_submit(p, "a");
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_GENERATE);
    peer_begin(p, 1, "a");
    assert_int_equal(peer_next(p, &ev), 1);
    struct wire_stream_tokens t = {.stream = 1, .count = 1, .text = hearth_text("piece"), .choice = -1};
    assert_int_equal(wire_pack_event(&b, &wire_methods[WIRE_STREAM_TOKENS], &t, NULL, NULL, &err), 0);
    for (size_t i = 0; i < b.len; i++) {
        assert_int_equal(peer_next(p, &ev), 0);
        assert_int_equal(send(p->fd, b.data + i, 1, 0), 1);
    }
    assert_int_equal(peer_next(p, &ev), 1);
    assert_string_equal(ev.body.tokens->text.data, "piece");

    b.len = 0;
    t.text = hearth_text(big);
    assert_int_equal(wire_pack_event(&b, &wire_methods[WIRE_STREAM_TOKENS], &t, NULL, NULL, &err), 0);
    for (size_t at = 0; at < b.len;) {
        ssize_t n = send(p->fd, b.data + at, b.len - at < 50000 ? b.len - at : 50000, 0);
        assert_true(n > 0);
        at += (size_t)n;
        if (at < b.len)
            assert_int_equal(peer_next(p, &ev), 0);
    }
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.body.tokens->text.len, 299999);
    assert_memory_equal(ev.body.tokens->text.data, big, 299999);
    wire_buf_fini(&b);
    free(big);
}

/* While a whole frame is waiting, nothing more is read: that bounds the input buffer. */
static void an_event_not_taken_stops_the_reading(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    peer_submit(p, "a");
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_GENERATE);
    assert_int_equal(peer_next(p, &ev), 0);
    peer_begin(p, 1, "a");
    assert_int_equal(hearth_events(p->h), HEARTH_READ);
    assert_int_equal(hearth_io(p->h, HEARTH_READ, &err), 0);
    assert_int_equal(hearth_events(p->h), 0);
    peer_tokens(p, 1, 0, "x");
    assert_int_equal(hearth_io(p->h, HEARTH_READ, &err), 0);
    char byte;
    assert_int_equal(recv(hearth_fd(p->h), &byte, 1, MSG_PEEK), 1); /* still in the socket */
    assert_int_equal(hearth_next(p->h, &ev, &err), 1);
    assert_int_equal(hearth_next(p->h, &ev, &err), 0);
    assert_int_equal(hearth_events(p->h), HEARTH_READ);
}

#define WITH_PEER(f) cmocka_unit_test_setup_teardown(f, peer_setup, peer_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PEER(hello_is_answered_once_and_told_often),
        WITH_PEER(a_refused_hello_ends_the_connection),
        WITH_PEER(the_end_of_the_connection_comes_after_its_last_frame),
        WITH_PEER(a_daemon_that_ended_is_named),
        WITH_PEER(an_error_of_no_request_ends_the_connection),
        cmocka_unit_test(what_is_not_the_protocol_ends_the_connection),
        cmocka_unit_test(no_memory_for_a_frame_is_said),
        WITH_PEER(frames_come_in_any_pieces),
        WITH_PEER(an_event_not_taken_stops_the_reading),
    };
    return cmocka_run_group_tests_name("conn-end", tests, NULL, NULL);
}
