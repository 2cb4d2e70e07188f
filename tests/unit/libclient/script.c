/* script.c - a scripted daemon at the other end of a socketpair; see script.h. */
#include "config.h"

#include "tests/unit/libclient/script.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct hearth_err err;

int peer_setup(void **state)
{
    struct peer *p = calloc(1, sizeof *p);
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    p->fd = fd[1];
    assert_int_equal(hearth_adopt(&p->h, fd[0], &err), 0);
    assert_int_equal(hearth_fd(p->h), fd[0]);
    *state = p;
    return 0;
}

int peer_teardown(void **state)
{
    struct peer *p = *state;
    wire_free(p->params);
    hearth_close(p->h);
    close(p->fd);
    free(p);
    return 0;
}

void *peer_expect(struct peer *p, int method)
{
    while (hearth_events(p->h) & HEARTH_WRITE)
        assert_int_equal(hearth_io(p->h, HEARTH_WRITE, &err), 0);
    if (p->pos == p->len) {
        ssize_t n = recv(p->fd, p->in, sizeof p->in, 0);
        assert_true(n > 0);
        p->len = (size_t)n;
        p->pos = 0;
    }
    struct wire_scan s = {0};
    ptrdiff_t n = wire_scan(&s, p->in + p->pos, p->len - p->pos, WIRE_FRAME_MAX, &err);
    assert_true(n > 0);
    assert_int_equal(wire_frame_open(&p->frame, p->in + p->pos, (size_t)n, &err), 0);
    p->pos += (size_t)n;
    assert_int_equal(p->frame.kind, WIRE_FRAME_REQUEST);
    assert_ptr_equal(wire_method_find(p->frame.method, p->frame.method_len), &wire_methods[method]);
    wire_free(p->params);
    p->params = NULL;
    assert_int_equal(wire_unpack(wire_methods[method].params, p->frame.body, p->frame.body_len, &p->params, &err), 0);
    return p->params;
}

void peer_expect_silence(struct peer *p)
{
    assert_int_equal(p->pos, p->len);
    assert_false(hearth_events(p->h) & HEARTH_WRITE);
    assert_true(recv(p->fd, p->in, 1, MSG_PEEK) < 0 && errno == EAGAIN);
}

static void send_all(struct peer *p, struct wire_buf *b)
{
    assert_int_equal(send(p->fd, b->data, b->len, 0), b->len);
    wire_buf_fini(b);
}

void peer_answer(struct peer *p, uint32_t id, int method, const void *result)
{
    struct wire_buf b = {0};
    assert_int_equal(wire_pack_result(&b, id, &wire_methods[method], result, &err), 0);
    send_all(p, &b);
}

void peer_refuse(struct peer *p, uint32_t id, int code, const char *msg)
{
    struct wire_buf b = {0};
    assert_int_equal(wire_pack_error(&b, id, code, msg, &err), 0);
    send_all(p, &b);
}

void peer_tell(struct peer *p, int method, const void *body)
{
    struct wire_buf b = {0};
    assert_int_equal(wire_pack_event(&b, &wire_methods[method], body, NULL, NULL, &err), 0);
    send_all(p, &b);
}

void peer_greet(struct peer *p, uint32_t id)
{
    struct wire_hello_result r = {.version = 1, .server = "hearth test", .limits = {.frame_bytes = 123}};
    peer_answer(p, id, WIRE_HELLO, &r);
}

void peer_finish(struct peer *p, uint32_t id, int64_t stream, const char *text, const char *reason)
{
    struct wire_generate_result r = {.stream = stream, .text = hearth_text(text), .finish_reason = reason};
    peer_answer(p, id, WIRE_GENERATE, &r);
}

void peer_begin_choice(struct peer *p, int64_t stream, const char *request, int64_t choice)
{
    struct wire_stream_begin b = {.stream = stream, .request = request, .choice = choice};
    peer_tell(p, WIRE_STREAM_BEGIN, &b);
}

void peer_begin(struct peer *p, int64_t stream, const char *request)
{
    peer_begin_choice(p, stream, request, -1);
}

void peer_tokens(struct peer *p, int64_t stream, int64_t index, const char *text)
{
    struct wire_stream_tokens t = {
        .stream = stream, .index = index, .count = 1, .text = hearth_text(text), .choice = -1};
    peer_tell(p, WIRE_STREAM_TOKENS, &t);
}

int peer_next(struct peer *p, struct hearth_event *ev)
{
    int got = hearth_next(p->h, ev, &err);
    while (got == 0 && hearth_events(p->h) & HEARTH_READ) {
        char byte;
        ssize_t n = recv(hearth_fd(p->h), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n < 0)
            break;
        int rc = hearth_io(p->h, HEARTH_READ, &err);
        got = hearth_next(p->h, ev, &err);
        if (rc && got == 0)
            return rc;
    }
    return got;
}

uint32_t peer_submit(struct peer *p, const char *request)
{
    struct hearth_generate g;
    uint32_t id = 0;
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.request = request;
    g.text = hearth_text("prompt");
    assert_int_equal(hearth_submit(p->h, &g, &id, &err), 0);
    assert_int_not_equal(id, 0);
    return id;
}
