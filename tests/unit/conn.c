/*
 * conn.c - libhearth against a scripted daemon at the other end of a socketpair, in the same thread: the peer's bytes
 * are written before the library is asked, and read after it has spoken, so nothing here waits for anything.
 */
#include "config.h"

#include "libclient/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* --- the peer ------------------------------------------------------------------------------------------- */

struct peer {
    struct hearth *h;
    int fd;
    uint8_t in[1 << 20];
    size_t len, pos;
    struct wire_frame frame; /* the last that expect() opened */
    void *params;
};

static struct hearth_err err;

static int setup(void **state)
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

static int teardown(void **state)
{
    struct peer *p = *state;
    wire_free(p->params);
    hearth_close(p->h);
    close(p->fd);
    free(p);
    return 0;
}

/* Lets the library send what it has, and takes the next request: it must be `method`. Returns its params. */
static void *expect(struct peer *p, int method)
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

static void expect_silence(struct peer *p)
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

static void answer(struct peer *p, uint32_t id, int method, const void *result)
{
    struct wire_buf b = {0};
    assert_int_equal(wire_pack_result(&b, id, &wire_methods[method], result, &err), 0);
    send_all(p, &b);
}

static void refuse(struct peer *p, uint32_t id, int code, const char *msg)
{
    struct wire_buf b = {0};
    assert_int_equal(wire_pack_error(&b, id, code, msg, &err), 0);
    send_all(p, &b);
}

static void tell(struct peer *p, int method, const void *body)
{
    struct wire_buf b = {0};
    assert_int_equal(wire_pack_event(&b, &wire_methods[method], body, NULL, NULL, &err), 0);
    send_all(p, &b);
}

static void greet(struct peer *p, uint32_t id)
{
    struct wire_hello_result r = {.version = 1, .server = "hearth test", .limits = {.frame_bytes = 123}};
    answer(p, id, WIRE_HELLO, &r);
}

static void finish(struct peer *p, uint32_t id, int64_t stream, const char *text, const char *reason)
{
    struct wire_generate_result r = {.stream = stream, .text = hearth_text(text), .finish_reason = reason};
    answer(p, id, WIRE_GENERATE, &r);
}

static void begin(struct peer *p, int64_t stream, const char *request)
{
    struct wire_stream_begin b = {.stream = stream, .request = request};
    tell(p, WIRE_STREAM_BEGIN, &b);
}

static void tokens(struct peer *p, int64_t stream, int64_t index, const char *text)
{
    struct wire_stream_tokens t = {.stream = stream, .index = index, .count = 1, .text = hearth_text(text)};
    tell(p, WIRE_STREAM_TOKENS, &t);
}

/* Reads what lies there and takes one event. */
static int next(struct peer *p, struct hearth_event *ev)
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

static uint32_t submit(struct peer *p, const char *request)
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

/* --- tests ---------------------------------------------------------------------------------------------- */

static void hello_travels_with_the_first_request(void **state)
{
    struct peer *p = *state;
    expect_silence(p);
    hearth_set_client(p->h, "test 1");
    submit(p, "r1");
    struct wire_hello *hello = expect(p, WIRE_HELLO);
    assert_string_equal(hello->client, "test 1");
    assert_int_equal(hello->version_min, 1);
    assert_null(hello->notify_as.v);
    struct wire_generate *g = expect(p, WIRE_GENERATE);
    assert_string_equal(g->model, "m");
    assert_string_equal(g->request, "r1");
    assert_true(g->sampling.temperature == 0.8);
    submit(p, NULL);
    g = expect(p, WIRE_GENERATE); /* no second hello, and a request id of the library's own */
    assert_true(strlen(g->request) > 16);
    expect_silence(p);
}

static void two_streams_on_one_connection_are_told_apart(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a = submit(p, "a"), b = submit(p, NULL);
    char request_b[64];

    uint32_t hello = (expect(p, WIRE_HELLO), p->frame.id);
    uint32_t id_a = (expect(p, WIRE_GENERATE), p->frame.id);
    struct wire_generate *g = expect(p, WIRE_GENERATE);
    uint32_t id_b = p->frame.id;
    snprintf(request_b, sizeof request_b, "%s", g->request);

    assert_int_equal(next(p, &ev), 0);
    greet(p, hello);
    begin(p, 71, request_b); /* the second begins first */
    begin(p, 70, "a");
    tokens(p, 70, 0, "A0");
    tokens(p, 71, 0, "B0");
    finish(p, id_b, 71, "B0", "stop");
    tokens(p, 70, 1, "A1");
    tokens(p, 99, 0, "of nobody");
    finish(p, id_a, 70, "A0A1", "length");

    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_BEGIN && ev.request == b && ev.body.begin->stream == 71);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_BEGIN && ev.request == a);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == a);
    assert_string_equal(ev.body.tokens->text.data, "A0");
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == b);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == b);
    struct hearth_generate_result *kept = hearth_take(p->h);
    assert_ptr_equal(kept, ev.body.result);
    assert_null(hearth_take(p->h));
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == a && ev.body.tokens->index == 1);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == a);
    assert_string_equal(ev.body.result->text.data, "A0A1");
    assert_string_equal(kept->text.data, "B0");
    hearth_free(kept);
    assert_int_equal(next(p, &ev), 0);
}

static void a_refusal_is_an_event_and_the_connection_lives(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a = submit(p, NULL);
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    expect(p, WIRE_GENERATE);
    refuse(p, p->frame.id, HEARTH_ENOMODEL, "no model m");
    assert_int_equal(next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_ERROR);
    assert_int_equal(ev.request, a);
    assert_int_equal(ev.err.code, HEARTH_ENOMODEL);
    assert_string_equal(ev.err.msg, "no model m");
    assert_int_equal(hearth_cancel(p->h, a, &err), HEARTH_ENOSTREAM);
    submit(p, NULL);
    expect(p, WIRE_GENERATE);
}

static void cancel_goes_by_request_before_the_stream_has_a_number(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a = submit(p, "mine");
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    expect(p, WIRE_GENERATE);
    uint32_t id = p->frame.id;

    assert_int_equal(hearth_cancel(p->h, a, &err), 0);
    struct wire_cancel *c = expect(p, WIRE_CANCEL);
    assert_string_equal(c->request, "mine");
    assert_int_equal(c->stream, -1);
    begin(p, 5, "mine");
    struct wire_cancel_result yes = {.cancelled = true};
    answer(p, p->frame.id, WIRE_CANCEL, &yes);
    assert_int_equal(next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_BEGIN);
    assert_int_equal(next(p, &ev), 0); /* cancel's own answer is no event */

    assert_int_equal(hearth_cancel(p->h, a, &err), 0);
    c = expect(p, WIRE_CANCEL);
    assert_null(c->request);
    assert_int_equal(c->stream, 5);
    finish(p, id, 5, "", "cancelled");
    assert_int_equal(next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_DONE);
    assert_string_equal(ev.body.result->finish_reason, "cancelled");
}

/* By number it knows its events at once, by request id from its begin on; either can be cancelled. */
static void attach_goes_on_with_a_stream(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a, b;
    assert_int_equal(hearth_attach(p->h, 12, NULL, 3, &a, &err), 0);
    assert_int_equal(hearth_attach(p->h, 0, "theirs", 0, &b, &err), 0);
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    struct wire_attach *w = expect(p, WIRE_STREAM_ATTACH);
    uint32_t id_a = p->frame.id;
    assert_true(w->stream == 12 && w->request == NULL && w->from == 3);
    w = expect(p, WIRE_STREAM_ATTACH);
    assert_true(w->stream == -1 && w->from == 0);
    assert_string_equal(w->request, "theirs");

    begin(p, 13, "theirs");
    begin(p, 12, "of who began it");
    tokens(p, 12, 3, "D");
    tokens(p, 13, 0, "X");
    finish(p, id_a, 12, "ABCD", "length");
    const struct {
        int type;
        uint32_t request;
    } want[] = {{HEARTH_EVENT_BEGIN, b},
                {HEARTH_EVENT_BEGIN, a},
                {HEARTH_EVENT_TOKENS, a},
                {HEARTH_EVENT_TOKENS, b},
                {HEARTH_EVENT_DONE, a}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(next(p, &ev), 1);
        assert_int_equal(ev.type, want[i].type);
        assert_int_equal(ev.request, want[i].request);
    }
    assert_string_equal(ev.body.result->text.data, "ABCD");
    assert_int_equal(hearth_cancel(p->h, b, &err), 0);
    struct wire_cancel *c = expect(p, WIRE_CANCEL);
    assert_int_equal(c->stream, 13);
    assert_int_equal(hearth_attach(p->h, -1, NULL, 0, &a, &err), HEARTH_EPARAMS);
    assert_int_equal(hearth_attach(p->h, 1, NULL, -1, &a, &err), HEARTH_EPARAMS);
}

static int count_tokens(void *arg, const struct hearth_event *ev)
{
    int *n = arg;
    if (ev->type == HEARTH_EVENT_TOKENS)
        ++*n;
    return *n >= 100 ? 1 : 0;
}

/* A blocking call finds its answer already there: it must not lose the other stream's events. */
static void blocking_calls_keep_other_streams_events(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    struct hearth_status_result *status = NULL;
    struct hearth_tokenize_result *ids = NULL;
    uint32_t a = submit(p, "a");
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    expect(p, WIRE_GENERATE);
    uint32_t id = p->frame.id;

    begin(p, 1, "a");
    tokens(p, 1, 0, "x");
    struct wire_notice notice = {.name = "N", .message = "m", .stream = 1};
    tell(p, WIRE_NOTICE, &notice);
    struct wire_status_result r = {.pid = 4711, .version = "0"};
    answer(p, id + 1, WIRE_STATUS, &r);
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), 0);
    assert_int_equal(status->pid, 4711);
    hearth_free(status);
    finish(p, id, 1, "x", "stop");
    int32_t v[] = {4, 5};
    struct wire_tokenize_result t = {.ids = {v, 2}};
    answer(p, id + 2, WIRE_TOKENIZE, &t);
    assert_int_equal(hearth_tokenize(p->h, "m", hearth_text("t"), true, HEARTH_BOS_YES, &ids, NULL, &err), 0);
    assert_int_equal(ids->ids.n, 2);
    hearth_free(ids);

    assert_int_equal(hearth_wait(p->h, -1, NULL, &err), HEARTH_WAIT_IO);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_BEGIN && ev.request == a);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == a);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_NOTICE && ev.request == a);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == a);

    expect(p, WIRE_STATUS);
    struct wire_tokenize *asked = expect(p, WIRE_TOKENIZE);
    assert_true(asked->special && asked->bos == 1);
}

static void run_returns_the_result_and_shows_its_events(void **state)
{
    struct peer *p = *state;
    struct hearth_generate g;
    struct hearth_generate_result *r = NULL;
    int n = 0;

    hearth_generate_init(&g, sizeof g);
    g.session = "s";
    g.request = "q";
    g.text = hearth_text("");
    greet(p, 1);
    struct wire_model_progress progress = {.model = "m", .done = 1, .total = 2};
    tell(p, WIRE_MODEL_PROGRESS, &progress);
    begin(p, 1, "q");
    tokens(p, 1, 0, "x");
    tokens(p, 1, 1, "y");
    finish(p, 2, 1, "xy", "length");
    assert_int_equal(hearth_run(p->h, &g, count_tokens, &n, NULL, &r, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(r->text.data, "xy");
    hearth_free(r);

    refuse(p, 3, HEARTH_ESESSIONBUSY, "busy");
    assert_int_equal(hearth_run(p->h, &g, NULL, NULL, NULL, &r, &err), HEARTH_ESESSIONBUSY);
    assert_string_equal(err.msg, "busy");

    /* a callback that says stop: a cancel goes out, the result still comes */
    n = 99;
    begin(p, 2, "q");
    tokens(p, 2, 0, "x");
    tokens(p, 2, 1, "y");
    finish(p, 4, 2, "xy", "cancelled");
    assert_int_equal(hearth_run(p->h, &g, count_tokens, &n, NULL, &r, &err), 0);
    hearth_free(r);
    expect(p, WIRE_HELLO);
    for (int i = 0; i < 3; i++)
        expect(p, WIRE_GENERATE);
    struct wire_cancel *c = expect(p, WIRE_CANCEL);
    assert_int_equal(c->stream, 2);
    expect_silence(p); /* once */
}

static void timeouts_leave_the_connection_usable(void **state)
{
    struct peer *p = *state;
    struct hearth_status_result *status = NULL;
    struct hearth_event ev;
    struct timespec none = {0, 0};

    assert_int_equal(hearth_status(p->h, &status, &none, &err), HEARTH_ETIMEOUT);
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    expect(p, WIRE_STATUS);
    struct wire_status_result r = {.pid = 1};
    answer(p, p->frame.id, WIRE_STATUS, &r);
    assert_int_equal(next(p, &ev), 0); /* the late answer is nobody's */

    struct hearth_generate g;
    struct hearth_generate_result *result = NULL;
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.tokens = (struct hearth_ids){(int32_t[]){1, 2}, 2};
    assert_int_equal(hearth_run(p->h, &g, NULL, NULL, &none, &result, &err), HEARTH_ETIMEOUT);
    expect(p, WIRE_GENERATE);
    expect(p, WIRE_CANCEL);
    assert_int_equal(hearth_wait(p->h, -1, &none, &err), HEARTH_WAIT_TIMEOUT);
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(write(fd[1], "x", 1), 1);
    assert_int_equal(hearth_wait(p->h, fd[0], NULL, &err), HEARTH_WAIT_FD);
    close(fd[0]);
    close(fd[1]);
}

static void hello_is_answered_once_and_told_often(void **state)
{
    struct peer *p = *state;
    struct hearth_hello_result *r = NULL;
    greet(p, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hearth_hello(p->h, &r, NULL, &err), 0);
        assert_string_equal(r->server, "hearth test");
        assert_int_equal(r->limits.frame_bytes, 123);
        hearth_free(r);
    }
    expect(p, WIRE_HELLO);
    expect_silence(p);
}

static void a_refused_hello_ends_the_connection(void **state)
{
    struct peer *p = *state;
    struct hearth_status_result *status = NULL;
    refuse(p, 1, HEARTH_EVERSION, "this daemon speaks 2 to 3");
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
    uint32_t a = submit(p, "a");
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    expect(p, WIRE_GENERATE);
    finish(p, p->frame.id, 1, "x", "stop");
    shutdown(p->fd, SHUT_RDWR);
    submit(p, "lost"); /* no SIGPIPE, no error yet */
    assert_int_equal(hearth_io(p->h, HEARTH_WRITE, &err), 0);
    assert_int_equal(next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == a);
    assert_int_equal(next(p, &ev), HEARTH_ECONNECT);
    assert_string_equal(err.msg, "the daemon closed the connection");
    assert_int_equal(hearth_next(p->h, &ev, &err), HEARTH_ECONNECT);
    assert_int_equal(hearth_wait(p->h, -1, NULL, &err), HEARTH_ECONNECT);
    struct hearth_status_result *status;
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), HEARTH_ECONNECT);
}

/* The daemon cannot name the request where it could not read the frame, or lets nobody in: it answers id 0 and hangs
 * up. */
static void an_error_of_no_request_ends_the_connection(void **state)
{
    struct peer *p = *state;
    struct hearth_status_result *status = NULL;
    refuse(p, 0, HEARTH_ELIMIT, "64 connections are open, the limit");
    shutdown(p->fd, SHUT_RDWR);
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), HEARTH_ELIMIT);
    assert_string_equal(err.msg, "64 connections are open, the limit");
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
        setup(&each);
        struct peer *p = each;
        struct hearth_event ev;
        assert_int_equal(send(p->fd, rows[i].bytes, rows[i].len, 0), rows[i].len);
        assert_int_equal(next(p, &ev), HEARTH_EPROTOCOL);
        assert_string_equal(err.msg, rows[i].msg);
        assert_int_equal(next(p, &ev), HEARTH_EPROTOCOL);
        teardown(&each);
    }
}

/* The daemon's frames one byte at a time, and a frame larger than the read size. */
static void frames_come_in_any_pieces(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    struct wire_buf b = {0};
    char *big = malloc(300000);
    memset(big, 'b', 299999);
    big[299999] = 0;

    submit(p, "a");
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    expect(p, WIRE_GENERATE);
    begin(p, 1, "a");
    assert_int_equal(next(p, &ev), 1);
    struct wire_stream_tokens t = {.stream = 1, .count = 1, .text = hearth_text("piece")};
    assert_int_equal(wire_pack_event(&b, &wire_methods[WIRE_STREAM_TOKENS], &t, NULL, NULL, &err), 0);
    for (size_t i = 0; i < b.len; i++) {
        assert_int_equal(next(p, &ev), 0);
        assert_int_equal(send(p->fd, b.data + i, 1, 0), 1);
    }
    assert_int_equal(next(p, &ev), 1);
    assert_string_equal(ev.body.tokens->text.data, "piece");

    b.len = 0;
    t.text = hearth_text(big);
    assert_int_equal(wire_pack_event(&b, &wire_methods[WIRE_STREAM_TOKENS], &t, NULL, NULL, &err), 0);
    for (size_t at = 0; at < b.len;) {
        ssize_t n = send(p->fd, b.data + at, b.len - at < 50000 ? b.len - at : 50000, 0);
        assert_true(n > 0);
        at += (size_t)n;
        if (at < b.len)
            assert_int_equal(next(p, &ev), 0);
    }
    assert_int_equal(next(p, &ev), 1);
    assert_int_equal(ev.body.tokens->text.len, 299999);
    assert_memory_equal(ev.body.tokens->text.data, big, 299999);
    wire_buf_fini(&b);
    free(big);
}

/* While a whole frame waits, nothing more is read: the bound of the input buffer. */
static void an_event_not_taken_stops_the_reading(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    submit(p, "a");
    expect(p, WIRE_HELLO);
    greet(p, p->frame.id);
    expect(p, WIRE_GENERATE);
    assert_int_equal(next(p, &ev), 0);
    begin(p, 1, "a");
    assert_int_equal(hearth_events(p->h), HEARTH_READ);
    assert_int_equal(hearth_io(p->h, HEARTH_READ, &err), 0);
    assert_int_equal(hearth_events(p->h), 0);
    tokens(p, 1, 0, "x");
    assert_int_equal(hearth_io(p->h, HEARTH_READ, &err), 0);
    char byte;
    assert_int_equal(recv(hearth_fd(p->h), &byte, 1, MSG_PEEK), 1); /* still in the socket */
    assert_int_equal(hearth_next(p->h, &ev, &err), 1);
    assert_int_equal(hearth_next(p->h, &ev, &err), 0);
    assert_int_equal(hearth_events(p->h), HEARTH_READ);
}

static void bad_parameters_never_leave(void **state)
{
    struct peer *p = *state;
    struct hearth_generate g;
    uint32_t id;

    memset(&g, 0, sizeof g);
    assert_int_equal(hearth_submit(p->h, &g, &id, &err), HEARTH_EPARAMS);
    assert_string_equal(err.msg, "generate: hearth_generate_init() was not called");
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.sampling.temperature = 0.0 / 0.0;
    assert_int_equal(hearth_submit(p->h, &g, &id, &err), HEARTH_EPARAMS);
    g.sampling.temperature = 1;
    g.text.len = WIRE_FRAME_MAX;
    char *big = calloc(1, g.text.len);
    g.text.data = big;
    assert_int_equal(hearth_submit(p->h, &g, &id, &err), HEARTH_ETOOBIG);
    assert_string_equal(err.msg, "the message is over 8388608 bytes");
    free(big);
    expect(p, WIRE_HELLO);
    expect_silence(p);
}

/* A program built against a hearth.h that ends after `model`, or that has fields of tomorrow. */
static void parameter_structs_of_other_ages_work(void **state)
{
    struct peer *p = *state;
    struct {
        size_t size;
        const char *model;
    } old;
    hearth_generate_init((struct hearth_generate *)(void *)&old, sizeof old);
    assert_int_equal(old.size, sizeof old);
    assert_null(old.model);

    struct {
        struct hearth_generate g;
        int64_t tomorrow;
    } newer;
    uint32_t id;
    hearth_generate_init(&newer.g, sizeof newer);
    assert_int_equal(newer.tomorrow, 0);
    newer.g.model = "m";
    newer.g.text = hearth_text("t");
    assert_int_equal(hearth_submit(p->h, &newer.g, &id, &err), 0);
    newer.tomorrow = 1;
    assert_int_equal(hearth_submit(p->h, &newer.g, &id, &err), HEARTH_EUNSUPPORTED);
}

/* --- where the daemon is -------------------------------------------------------------------------------- */

static void the_socket_path_follows_the_environment(void **state)
{
    (void)state;
    char path[108], small[8], long_dir[200];
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    setenv("HEARTH_SOCKET", "/x/y.sock", 1);
    assert_int_equal(hearth_socket_path(path, sizeof path, &err), 0);
    assert_string_equal(path, "/x/y.sock");
    assert_int_equal(hearth_socket_path(small, sizeof small, &err), HEARTH_EINVALID);
    setenv("HEARTH_SOCKET", "", 1);
    assert_int_equal(hearth_socket_path(path, sizeof path, &err), 0);
    assert_string_equal(path, "/run/user/7/hearth/hearth.sock");
    memset(long_dir, 'd', sizeof long_dir - 1);
    long_dir[0] = '/';
    long_dir[sizeof long_dir - 1] = 0;
    setenv("XDG_RUNTIME_DIR", long_dir, 1);
    assert_int_equal(hearth_socket_path(path, sizeof path, &err), HEARTH_EINVALID);
    assert_int_equal(hearth_socket_path(long_dir, sizeof long_dir, &err), HEARTH_EINVALID); /* sun_path is the limit */
    unsetenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0) {
        assert_int_equal(hearth_socket_path(path, sizeof path, &err), 0);
        assert_string_equal(path, "/run/hearth/hearth.sock");
    }
    unsetenv("HEARTH_SOCKET");
}

/* Without XDG_RUNTIME_DIR an ordinary user's socket lies in /tmp, where anybody may have been first. Only root can
 * become a user that nobody is; the child says by its exit status which step was wrong. */
static int as_a_stranger(uid_t uid)
{
    char dir[64], path[108], want[108];
    if (setuid(uid))
        return 77;
    unsetenv("HEARTH_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    umask(0);
    snprintf(dir, sizeof dir, "/tmp/hearth-%u", (unsigned)uid);
    snprintf(want, sizeof want, "%s/hearth.sock", dir);
    int bad = hearth_socket_path(path, sizeof path, &err) || strcmp(path, want) ? 1 : 0; /* not there: fine */
    if (!bad && (mkdir(dir, 0755) || hearth_socket_path(path, sizeof path, &err) != HEARTH_EDENIED))
        bad = 2;
    if (!bad && (chmod(dir, 0700) || hearth_socket_path(path, sizeof path, &err)))
        bad = 3;
    rmdir(dir);
    if (!bad && (symlink("/root", dir) || hearth_socket_path(path, sizeof path, &err) != HEARTH_EDENIED))
        bad = 4;
    unlink(dir);
    return bad;
}

static void a_directory_in_tmp_is_checked(void **state)
{
    (void)state;
    int status;
    if (geteuid() != 0)
        skip();
    uid_t uid = 1000000 + (uid_t)getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(as_a_stranger(uid));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);

    /* and one that is somebody else's, though closed */
    char dir[64];
    snprintf(dir, sizeof dir, "/tmp/hearth-%u", (unsigned)uid);
    assert_int_equal(mkdir(dir, 0700), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char path[108];
        unsetenv("HEARTH_SOCKET");
        unsetenv("XDG_RUNTIME_DIR");
        _exit(setuid(uid) || hearth_socket_path(path, sizeof path, &err) != HEARTH_EDENIED);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(dir);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void no_daemon_is_told_so(void **state)
{
    (void)state;
    struct hearth *h;
    char dir[] = "/tmp/hearth-test-XXXXXX", path[64], long_path[200];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/none.sock", dir);
    assert_int_equal(hearth_open(&h, path, &err), HEARTH_ECONNECT);
    assert_non_null(strstr(err.msg, path));
    memset(long_path, 'p', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(hearth_open(&h, long_path, &err), HEARTH_EINVALID);
    assert_int_equal(hearth_adopt(&h, -1, &err), HEARTH_ECONNECT);
    rmdir(dir);
}

#define WITH_PEER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PEER(hello_travels_with_the_first_request),
        WITH_PEER(two_streams_on_one_connection_are_told_apart),
        WITH_PEER(a_refusal_is_an_event_and_the_connection_lives),
        WITH_PEER(cancel_goes_by_request_before_the_stream_has_a_number),
        WITH_PEER(attach_goes_on_with_a_stream),
        WITH_PEER(blocking_calls_keep_other_streams_events),
        WITH_PEER(run_returns_the_result_and_shows_its_events),
        WITH_PEER(timeouts_leave_the_connection_usable),
        WITH_PEER(hello_is_answered_once_and_told_often),
        WITH_PEER(a_refused_hello_ends_the_connection),
        WITH_PEER(the_end_of_the_connection_comes_after_its_last_frame),
        WITH_PEER(an_error_of_no_request_ends_the_connection),
        cmocka_unit_test(what_is_not_the_protocol_ends_the_connection),
        WITH_PEER(frames_come_in_any_pieces),
        WITH_PEER(an_event_not_taken_stops_the_reading),
        WITH_PEER(bad_parameters_never_leave),
        WITH_PEER(parameter_structs_of_other_ages_work),
        cmocka_unit_test(the_socket_path_follows_the_environment),
        cmocka_unit_test(a_directory_in_tmp_is_checked),
        cmocka_unit_test(no_daemon_is_told_so),
    };
    return cmocka_run_group_tests_name("conn", tests, NULL, NULL);
}
