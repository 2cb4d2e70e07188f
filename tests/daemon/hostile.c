/*
 * hostile.c - hostile input at the socket. Each case must get a clear error; afterwards a normal request must work, and
 * the stream of another peer, which runs all the while, must end with exactly its text.
 */
#include "tests/daemon/harness.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

struct guarded {
    struct box *box;
    struct peer *bystander, *clock;
    uint32_t id;
};

static int begin(void **state, const char *lines)
{
    struct guarded *g = calloc(1, sizeof *g);
    void *b;
    box_setup_idle(&b);
    g->box = b;
    box_configure(g->box, lines);
    box_start(g->box);
    g->bystander = peer_open(g->box);
    g->clock = peer_open(g->box);
    struct wire_generate r = request("gate n=3", NULL);
    g->id = peer_ask(g->bystander, WIRE_GENERATE, &r);
    peer_await_begin(g->bystander, 1);
    *state = g;
    return 0;
}

static int setup(void **state)
{
    return begin(state, "frame_timeout = 600\nrequests_per_connection = 8\nunsent_bytes = 2M\n");
}

static int setup_little_memory(void **state)
{
    return begin(state, "frame_timeout = 600\nmemory_per_uid = 16M\n");
}

/* Only for cases that begin a frame and let it become late: any other peer that is delayed for a second would be late,
 * too. */
static int setup_short_frames(void **state)
{
    return begin(state, "frame_timeout = 1\n");
}

static int setup_little_patience(void **state)
{
    return begin(state, "memory_per_uid = 16M\nunread_timeout = 1\n");
}

static int teardown(void **state)
{
    struct guarded *g = *state;
    struct wire_tokenize t = {.model = "fake", .text = {"tick", 4}, .bos = -1};
    for (int i = 0; i < 4; i++)
        wire_free(peer_call(g->clock, WIRE_TOKENIZE, &t));
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(g->bystander, g->id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_string_equal(r->text.data, "t0 t1 t2 ");
    assert_string_equal(g->bystander->text, "t0 t1 t2 ");
    assert_int_equal(g->bystander->n_notices, 0); /* the engine is still the original one */
    wire_free(r);
    peer_close(g->bystander);
    peer_close(g->clock);
    box_works(g->box);
    void *b = g->box;
    free(g);
    return box_teardown(&b);
}

/* --- frames --------------------------------------------------------------------------------------------- */

#define BYTES(s) s, sizeof s - 1
#define NEST_9   "\x91\x91\x91\x91\x91\x91\x91\x91\x91"

/* Bytes that cannot be framed: an error with id 0, and the end of the connection. */
static void test_unframeable(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        int code;
    } bad[] = {
        {BYTES("\xc1"), HEARTH_EINVALID},                /* never used in msgpack */
        {BYTES("\xdd\x04\x00\x00\x00"), HEARTH_ETOOBIG}, /* the five-byte bomb: 64 M elements */
        {BYTES("\xdd\xff\xff\xff\xff"), HEARTH_ETOOBIG},
        {BYTES("\xdf\xff\xff\xff\xff"), HEARTH_ETOOBIG}, /* a map of 4 G */
        {BYTES("\xc6\xff\xff\xff\xff"), HEARTH_ETOOBIG}, /* bytes of 4 G */
        {BYTES("\xdb\x00\x80\x00\x01"), HEARTH_ETOOBIG}, /* a string of 8 MiB + 1 */
        {BYTES(NEST_9 NEST_9 NEST_9 NEST_9 NEST_9 NEST_9 NEST_9 NEST_9 NEST_9), HEARTH_ETOOBIG}, /* depth */
        {BYTES("GET / HTTP/1.1\r\n\xc1"), HEARTH_EINVALID},
    };
    struct guarded *g = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct peer *p = peer_open(g->box);
        peer_send(p, bad[i].bytes, bad[i].len);
        struct hearth_err e;
        uint32_t id;
        do
            peer_error(p, &id, &e);
        while (e.code != bad[i].code && i == 7); /* letters are numbers in msgpack: well-formed, but not messages */
        if (e.code != bad[i].code || id != 0 || e.msg[0] == '\0')
            fail_msg("case %zu: %s: %s", i, err_name(e.code), e.msg);
        peer_await_close(p);
        peer_close(p);
    }
}

/* Well-formed values that are not messages: an error, and the next request on the same connection works. */
static void test_not_a_message(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        int id; /* the id that the error must have */
    } bad[] = {
        {BYTES("\x05"), 0},
        {BYTES("\x90"), 0},
        {BYTES("\x94\x00\x07\x05\x91\x80"), 7},           /* a method that is a number */
        {BYTES("\x94\x00\x07\xa6status\xa1x"), 7},        /* params that are a string */
        {BYTES("\x94\x00\x07\xa6status\x92\x80\x80"), 7}, /* two params */
        {BYTES("\x93\x00\x07\xa6status"), 0},             /* no params */
        {BYTES("\x94\x09\x07\xa6status\x91\x80"), 0},     /* an unknown kind */
        {BYTES("\x94\x00\xa1x\xa6status\x91\x80"), 0},    /* an id that is a string */
        {BYTES("\x94\x00\x07\xa0\x91\x80"), 7},
        {BYTES("\x94\x00\x07\xac"
               "engine.hello\x91\x80"),
         7}, /* a method of the engine link, not for clients */
        {BYTES("\x94\x00\x07\xaf"
               "engine.shutdown\x91\x80"),
         7},
        {BYTES("\x94\x00\x07\xadstream.tokens\x91\x80"), 7},
    };
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    p->last_id = 100;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        peer_send(p, bad[i].bytes, bad[i].len);
        struct hearth_err e;
        uint32_t id;
        peer_error(p, &id, &e);
        if (!err_is_request(e.code) || e.msg[0] == '\0' || id != (uint32_t)bad[i].id)
            fail_msg("case %zu: id %u, %s: %s", i, id, err_name(e.code), e.msg);
        struct wire_empty none = {0};
        wire_free(peer_call(p, WIRE_STATUS, &none));
    }
    peer_send(p, BYTES("\x93\x02\xa6status\x91\x80")); /* a notification */
    peer_send(p, BYTES("\x94\x01\x07\xc0\x80"));       /* a response */
    struct wire_empty none = {0};
    wire_free(peer_call(p, WIRE_STATUS, &none));
    assert_int_equal(p->n_notices, 2);
    peer_close(p);
}

/* Numbers, strings and counts out of range, each refused with its name. */
static void test_params(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    static const struct {
        const char *bytes; /* the params map, after model and text */
        size_t len;
        const char *names;
    } bad[] = {
        {BYTES("\xaamax_tokens\xff"),
         NULL}, /* -1 is valid; it comes first, so that the others are not refused for another reason */
        {BYTES("\xaamax_tokens\xfe"), "max_tokens"},
        {BYTES("\xaamax_tokens\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), "max_tokens"},
        {BYTES("\xaamax_tokens\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"), "max_tokens"},
        {BYTES("\xa8sampling\x81\xabtemperature\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"), "temperature"}, /* NaN */
        {BYTES("\xa8sampling\x81\xabtemperature\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"), "temperature"}, /* Inf */
        {BYTES("\xa8sampling\x81\xabtemperature\xcb\xbf\xf0\x00\x00\x00\x00\x00\x00"), "temperature"}, /* -1 */
        {BYTES("\xa8sampling\x81\xa5top_p\xa1x"), "top_p"},
        {BYTES("\xa8sampling\x01"), "sampling"},
        {BYTES("\xa4stop\x91\xa0"), "stop"},
        {BYTES("\xa7session\xa0"), "session"},
        {BYTES("\xa7session\xa3x\x00y"), "session"},
        {BYTES("\xa7session\xa2\xc3\x28"), "session"}, /* not UTF-8 */
        {BYTES("\xa1n\x00"), "generate.n: 0 is under 1"},
        {BYTES("\xa1n\x11"), "generate.n: 17 is over 16"},
        {BYTES("\xa1n\xff"), "generate.n: -1 is under 1"},
        {BYTES("\xa1n\xa1x"), "generate.n"},
        {BYTES("\xa5tools\x90"), "tools"},
        {BYTES("\xa6stream\x01"), "stream"},
        {BYTES("\xa4what\xc0"), NULL}, /* nil is absent */
        {BYTES("\xa4what\x01"), "what"},
        {BYTES("\xa8sampling\x81\xa8mirostat\x02"), "mirostat"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char frame[256];
        static const char head[] = "\x94\x00\x07\xa8generate\x91\x83\xa5model\xa4"
                                   "fake\xa4text\xa3n=1";
        memcpy(frame, head, sizeof head - 1);
        memcpy(frame + sizeof head - 1, bad[i].bytes, bad[i].len);
        peer_send(p, frame, sizeof head - 1 + bad[i].len);
        struct hearth_err e = {0};
        void *r = peer_answer(p, 7, WIRE_GENERATE, &e);
        if ((r != NULL) != (!bad[i].names) || (!r && !strstr(e.msg, bad[i].names)))
            fail_msg("case %zu: %s %s; want \"%s\" named", i, err_name(e.code), e.msg,
                     bad[i].names != NULL ? bad[i].names : "nothing");
        wire_free(r);
    }
    peer_close(p);
}

static void test_duplicate_id(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    struct wire_generate r = request("gate n=9", NULL);
    uint32_t id = peer_ask(p, WIRE_GENERATE, &r);
    peer_await_begin(p, 1);
    struct wire_empty none = {0};
    p->last_id--;
    struct hearth_err e = {0};
    assert_null(peer_answer(p, peer_ask(p, WIRE_STATUS, &none), WIRE_STATUS, &e));
    assert_int_equal(e.code, HEARTH_EINVALID);
    struct wire_cancel c = {.stream = p->stream};
    p->last_id = 50;
    wire_free(peer_call(p, WIRE_CANCEL, &c)); /* the first one is still running, and ends normally */
    struct wire_generate_result *res = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(res);
    wire_free(res);
    peer_close(p);
}

static void test_too_many_requests(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    struct wire_generate r = request("hang", NULL);
    for (int i = 0; i < 8; i++)
        peer_ask(p, WIRE_GENERATE, &r);
    peer_await_begin(p, 8);
    struct wire_empty none = {0};
    struct hearth_err e = {0};
    assert_null(peer_answer(p, peer_ask(p, WIRE_STATUS, &none), WIRE_STATUS, &e));
    assert_int_equal(e.code, HEARTH_ELIMIT);
    peer_close(p);
}

static void test_hello(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    struct wire_hello h = {.version_min = 2, .version_max = 9};
    peer_refused(p, WIRE_HELLO, &h, HEARTH_EVERSION, "2 to 9");
    h = (struct wire_hello){.version_min = 1, .version_max = 9};
    peer_refused(p, WIRE_HELLO, &h, HEARTH_EINVALID, "first");
    peer_close(p);
    p = peer_open(g->box);
    const char *one[] = {"x"};
    h.notify_as = (struct wire_strs){one, 1};
    peer_refused(p, WIRE_HELLO, &h, HEARTH_EPARAMS, "notify_as");
    peer_close(p);
}

static const char status_frame[] = "\x94\x00\x07\xa6status\x91\x80";

/* A frame that arrives byte by byte is accepted ... */
static void test_slow_frame(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    for (size_t i = 0; i < sizeof status_frame - 1; i++)
        peer_send(p, status_frame + i, 1);
    struct hearth_err e = {0};
    wire_free(peer_answer(p, 7, WIRE_STATUS, &e));
    peer_close(p);
}

/* ... and one that stops half-way is dropped after frame_timeout. */
static void test_late_frame(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    struct hearth_err e = {0};
    peer_send(p, status_frame, 5);
    assert_int_equal(peer_error(p, NULL, &e), HEARTH_EINVALID);
    assert_non_null(strstr(e.msg, "within 1 s"));
    peer_await_close(p);
    peer_close(p);
}

/* Allows for the memory of a sanitizer, which is not hearthd's own. */
static void assert_growth(int64_t before, int64_t after, int64_t most)
{
#if defined(__SANITIZE_ADDRESS__)
    most += 1 << 30;
#endif
    if (after - before >= most)
        fail_msg("hearthd has grown by %lld bytes, want less than %lld", (long long)(after - before), (long long)most);
}

/* A claimed length costs nothing: 60 peers claim 8 MB each, and hearthd does not grow by that. */
static void test_claims_cost_nothing(void **state)
{
    struct guarded *g = *state;
    struct wire_empty none = {0};
    struct wire_status_result *st = peer_call(g->clock, WIRE_STATUS, &none);
    int64_t before = st->rss_bytes;
    wire_free(st);
    struct peer *p[50];
    for (int i = 0; i < 50; i++) {
        p[i] = peer_open(g->box);
        peer_send(p[i], BYTES("\xdb\x00\x7f\xff\x00")); /* a string of nearly 8 MiB */
    }
    st = peer_call(g->clock, WIRE_STATUS, &none);
    while (st->connections < 52) {
        wire_free(st);
        st = peer_call(g->clock, WIRE_STATUS, &none);
    }
    assert_growth(before, st->rss_bytes, 50 * 8192);
    wire_free(st);
    for (int i = 0; i < 50; i++)
        peer_close(p[i]);
}

/* The memory of a large request is given back when the request is over. */
static void test_memory_is_given_back(void **state)
{
    struct guarded *g = *state;
    struct wire_empty none = {0};
    struct wire_status_result *st = peer_call(g->clock, WIRE_STATUS, &none);
    int64_t before = st->rss_bytes;
    wire_free(st);
    enum { LEN = 6 << 20 };
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, 'x', LEN);
    memcpy(text, "n=1 ", 4);
    struct wire_generate r = request("", NULL);
    r.text = (struct wire_bytes){.data = text, .len = LEN};
    struct peer *p = peer_open(g->box);
    wire_free(peer_call(p, WIRE_GENERATE, &r));
    peer_close(p);
    free(text);
    st = peer_call(g->clock, WIRE_STATUS, &none);
    assert_growth(before, st->rss_bytes, 2 << 20);
    wire_free(st);
}

/* A peer that sends requests and never reads is not read from any more either, and its answers are bounded. */
static void test_never_reads(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    struct wire_empty none = {0};
    struct wire_status_result *st = peer_call(g->clock, WIRE_STATUS, &none);
    int64_t before = st->rss_bytes;
    wire_free(st);
    static const char list[] = "\x94\x00\x07\xabmodels.list\x91\x80";
    int sent = 0;
    for (; sent < 2000000; sent++)
        if (send(p->fd, list, sizeof list - 1, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof list - 1)
            break;
    assert_true(sent < 2000000); /* the pipe is full, because hearthd no longer reads */
    st = peer_call(g->clock, WIRE_STATUS, &none);
    assert_growth(before, st->rss_bytes, 4 << 20);
    assert_int_equal(st->connections, 3);
    wire_free(st);
    peer_close(p);
}

/* Random bytes, and random damage to valid requests; the seed is fixed, so that a failure can be reproduced. */
static void test_random(void **state)
{
    struct guarded *g = *state;
    uint64_t x = 88172645463325252u;
    static const char good[] = "\x94\x00\x07\xa8tokenize\x91\x82\xa5model\xa4"
                               "fake\xa4text\xa3"
                               "abc";
    for (int i = 0; i < 400; i++) {
        struct peer *p = peer_open(g->box);
        char bytes[sizeof good - 1];
        memcpy(bytes, good, sizeof bytes);
        for (int k = 0; k < (i % 2 == 0 ? 2 : (int)sizeof bytes); k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[x % sizeof bytes] = (char)(x >> 32);
        }
        peer_send(p, bytes, sizeof bytes);
        peer_close(p);
    }
    struct wire_empty none = {0};
    wire_free(peer_call(g->clock, WIRE_STATUS, &none));
}

/* A peer that writes more than a frame may have can write to its end, and then gets the reason. */
static void test_too_long_a_frame(void **state)
{
    enum { LEN = 9 << 20 };
    static const char head[] = "\x94\x00\x07\xa8generate\x91\x82\xa5model\xa4"
                               "fake\xa4text\xdb\x00\x90\x00\x00";
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    struct hearth_err e;
    char *text = calloc(1, LEN);
    assert_non_null(text);
    peer_send(p, head, sizeof head - 1);
    for (size_t at = 0; at < LEN;) {
        ssize_t n = send(p->fd, text + at, LEN - at, MSG_NOSIGNAL);
        assert_true(n > 0); /* no broken pipe */
        at += (size_t)n;
    }
    assert_int_equal(peer_error(p, NULL, &e), HEARTH_ETOOBIG);
    peer_await_close(p);
    peer_close(p);
    free(text);
}

/* Frames that are begun and not completed take as much of hearthd's memory as a user may have over all connections. */
static void test_memory_of_a_user(void **state)
{
    enum { N = 6, PART = 5 << 20, FIT = 3 };
    static const char head[] = "\x94\x00\x07\xa8generate\x91\x82\xa5model\xa4"
                               "fake\xa4text\xdb\x00\x70\x00\x00";
    struct guarded *g = *state;
    struct peer *p[N];
    struct hearth_err e;
    char *part = calloc(1, PART);
    assert_non_null(part);
    for (int i = 0; i < N; i++) {
        p[i] = peer_open(g->box);
        peer_send(p[i], head, sizeof head - 1);
        peer_send(p[i], part, PART);
        wire_free(peer_status(g->clock)); /* all of it has been read by now */
    }
    for (int i = FIT; i < N; i++) {
        assert_int_equal(peer_error(p[i], NULL, &e), HEARTH_ELIMIT);
        assert_non_null(strstr(e.msg, "bytes in memory"));
    }
    for (int i = 0; i < N; i++)
        peer_close(p[i]);
    free(part);
}

/* A peer that leaves much output unread is disconnected after unread_timeout. */
static void test_unread(void **state)
{
    struct guarded *g = *state;
    struct peer *p = peer_open(g->box);
    struct wire_generate r = request("n=400 size=6000", NULL);
    peer_ask(p, WIRE_GENERATE, &r);
    struct pollfd end = {.fd = p->fd};
    assert_int_equal(poll(&end, 1, 120000), 1);
    assert_true(end.revents & POLLHUP);
    assert_true(box_log_has(g->box, "has read nothing for 1 s"));
    peer_close(p);
}

/* The engine is told when nobody waits for a request any more; the fake one then answers the other client's request. */
static void test_gone_with_requests(void **state)
{
    const struct box *b = ((struct guarded *)*state)->box;
    struct peer *stays = peer_open(b), *goes = peer_open(b);
    struct wire_tokenize hold = {.model = "fake", .text = hearth_text("hold"), .bos = -1}, now = hold;
    struct hearth_err e;
    now.text = hearth_text("now");
    uint32_t id = peer_ask(stays, WIRE_TOKENIZE, &hold);
    wire_free(peer_call(stays, WIRE_TOKENIZE, &now)); /* ensures that the engine has received the previous request */
    peer_ask(goes, WIRE_TOKENIZE, &hold);
    wire_free(peer_call(goes, WIRE_TOKENIZE, &now));
    peer_close(goes);
    void *r = peer_answer(stays, id, WIRE_TOKENIZE, &e);
    assert_non_null(r);
    wire_free(r);
    peer_close(stays);
    box_works(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unframeable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_a_message, setup, teardown),
        cmocka_unit_test_setup_teardown(test_params, setup, teardown),
        cmocka_unit_test_setup_teardown(test_duplicate_id, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hello, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_frame, setup_short_frames, teardown),
        cmocka_unit_test_setup_teardown(test_claims_cost_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_long_a_frame, setup_little_memory, teardown),
        cmocka_unit_test_setup_teardown(test_memory_of_a_user, setup_little_memory, teardown),
        cmocka_unit_test_setup_teardown(test_unread, setup_little_patience, teardown),
        cmocka_unit_test_setup_teardown(test_gone_with_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
