/* queue.c - generations beyond the limit of streams wait in a bounded queue, and are told their position. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/harness.h"

static uint32_t ask(struct peer *p, const char *script, const char *id, const char *class)
{
    struct wire_generate g = request(script, NULL);
    g.request = id;
    g.service_class = class;
    return peer_ask(p, WIRE_GENERATE, &g);
}

/* A daemon that allows so many streams per user, all of which are occupied by hanging ones, and a queue of `queue`
 * more. */
static struct peer *full(struct box *b, int streams, int queue)
{
    char conf[100];
    snprintf(conf, sizeof conf, "streams_per_uid = %d\nqueue_per_uid = %d\n", streams, queue);
    box_configure(b, conf);
    box_start(b);
    struct peer *p = peer_open(b);
    for (int i = 0; i < streams; i++) {
        char id[16];
        snprintf(id, sizeof id, "hang%d", i);
        ask(p, "hang", id, NULL);
    }
    peer_await_begin(p, streams);
    return p;
}

static void cancel(struct peer *p, const char *request)
{
    struct wire_cancel c = {.stream = -1, .request = request};
    struct wire_cancel_result *r = peer_call(p, WIRE_CANCEL, &c);
    assert_true(r->cancelled);
    wire_free(r);
}

/* Lets the gated streams of one token end. */
static void finish(struct peer *clock)
{
    peer_tick(clock);
    peer_tick(clock); /* the end takes one, too */
}

/* They begin by class and then by age, as soon as there is room, and are told each time that they move forward. */
static void test_order(void **state)
{
    struct box *b = *state;
    static const char *const name[] = {"slow", "first", "second", "now"};
    static const char *const class[] = {"background", NULL, NULL, "interactive"};
    static const char *const at_first[] = {"slow:1 slow:2 slow:3 slow:4", "first:1 first:2", "second:2 second:3",
                                           "now:1"};
    struct peer *p = full(b, 2, 8), *clock = peer_open(b), *q[4];
    uint32_t id[4];
    for (int i = 0; i < 4; i++) {
        q[i] = peer_open(b);
        id[i] = ask(q[i], "gate n=1", name[i], class[i]);
        wire_free(peer_status(q[i]));
    }
    for (int i = 0; i < 4; i++) {
        wire_free(peer_status(q[i]));
        assert_string_equal(q[i]->queued, at_first[i]);
        assert_int_equal(q[i]->n_begin, 0);
    }
    cancel(clock, "hang0");
    peer_await_begin(q[3], 1);
    wire_free(peer_status(q[1]));
    assert_string_equal(q[1]->queued, "first:1 first:2 first:1");
    assert_true(q[1]->queue_seconds > 0); /* one has left the queue, so the time that this takes is known */
    finish(clock);
    peer_expect_text(q[3], id[3], "t0 ");
    peer_await_begin(q[1], 1);
    cancel(clock, "hang1");
    peer_await_begin(q[2], 1);
    wire_free(peer_status(q[0]));
    assert_string_equal(q[0]->queued, "slow:1 slow:2 slow:3 slow:4 slow:3 slow:2 slow:1");
    assert_int_equal(q[0]->n_begin, 0);
    finish(clock);
    peer_expect_text(q[1], id[1], "t0 ");
    peer_expect_text(q[2], id[2], "t0 ");
    peer_await_begin(q[0], 1);
    finish(clock);
    peer_expect_text(q[0], id[0], "t0 ");
    for (int i = 0; i < 4; i++)
        peer_close(q[i]);
    peer_close(clock);
    peer_close(p);
}

/* The configuration also lowers the class of queued requests. */
static void test_class_is_capped(void **state)
{
    struct box *b = *state;
    box_configure(b, "streams_per_uid = 1\nclass = normal\n");
    box_start(b);
    struct peer *p = peer_open(b), *first = peer_open(b), *second = peer_open(b);
    ask(p, "hang", "hang", NULL);
    peer_await_begin(p, 1);
    ask(first, "n=1", "first", NULL);
    wire_free(peer_status(first));
    ask(second, "n=1", "second", "interactive");
    wire_free(peer_status(second));
    assert_string_equal(second->queued, "second:2");
    wire_free(peer_status(first));
    assert_string_equal(first->queued, "first:1");
    peer_close(second);
    peer_close(first);
    peer_close(p);
}

/* Requests beyond the bound are refused, with both limits in the error; no request overtakes a waiting one. */
static void test_bound(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 1, 1), *q = peer_open(b), *clock = peer_open(b);
    uint32_t id = ask(q, "n=1", "waits", NULL);
    wire_free(peer_status(q));
    struct wire_generate g = request("n=1", NULL);
    struct wire_status_result *st = peer_status(clock);
    assert_int_equal(st->streams, 1);
    assert_int_equal(st->waiting, 1);
    wire_free(st);
    peer_refused(clock, WIRE_GENERATE, &g, HEARTH_ELIMIT,
                 "1 streams running, the limit, and 1 request is waiting already");
    cancel(clock, "hang0");
    peer_expect_text(q, id, "t0 ");
    wire_free(run(clock, "n=1", NULL)); /* there is room now */
    peer_close(clock);
    peer_close(p);
    peer_close(q);
}

/* Each of several choices counts. */
static void test_several(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 2, 3), *q = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("n=1", NULL);
    ask(q, "n=1", "lone", NULL);
    wire_free(peer_status(q));
    g.n = 2;
    g.request = "two";
    peer_ask(q, WIRE_GENERATE, &g);
    wire_free(peer_status(q));
    struct wire_status_result *st = peer_status(clock);
    assert_int_equal(st->waiting, 3);
    wire_free(st);
    g.n = 0;
    g.request = NULL;
    peer_refused(clock, WIRE_GENERATE, &g, HEARTH_ELIMIT, "3 requests are waiting already");
    peer_close(clock);
    peer_close(q);
    peer_close(p);
}

/* More choices than the limit of streams can never begin, and are refused with that reason, whether or not other
 * streams run. */
static void test_too_many(void **state)
{
    struct box *b = *state;
    box_configure(b, "streams = 5\nstreams_per_uid = 2\nqueue_per_uid = 0\n");
    box_start(b);
    struct peer *p = peer_open(b);
    struct wire_generate g = request("n=1", NULL);
    g.n = 3;
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT,
                 "generate.n: 3 streams are wanted, and 2 is the limit: streams_per_uid in hearth.conf");
    ask(p, "hang", "hang", NULL);
    peer_await_begin(p, 1);
    g.n = 6;
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "6 streams are wanted, and 2 is the limit");
    g.n = 2; /* within the limit, but not at present */
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "1 streams running, 2 more are wanted, and 2 is the limit");
    peer_close(p);
    box_stop(b, SIGKILL);
    box_configure(b, "streams = 2\nstreams_per_uid = 5\n");
    box_start(b);
    p = peer_open(b);
    g.n = 6;
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT,
                 "generate.n: 6 streams are wanted, and 2 is the limit: streams in hearth.conf");
    peer_close(p);
}

/* If no request may wait, or a single request has more bytes than all waiting ones may have, the error says so. */
static void test_no_line(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 1, 0), *clock = peer_open(b);
    struct wire_generate g = request("n=1", NULL);
    peer_refused(clock, WIRE_GENERATE, &g, HEARTH_ELIMIT, "1 streams running, the limit, and 0 may wait");
    peer_close(clock);
    peer_close(p);
}

static void test_line_of_bytes(void **state)
{
    struct box *b = *state;
    box_configure(b, "memory_per_uid = 16M\nstreams_per_uid = 1\n");
    box_start(b);
    struct peer *p = peer_open(b), *clock = peer_open(b), *q[2] = {peer_open(b), peer_open(b)};
    ask(p, "hang", "hang0", NULL);
    peer_await_begin(p, 1);
    struct wire_generate g = request("n=1", NULL);
    size_t n = 7 << 20;
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'x', n);
    text[n] = 0;
    g.text = (struct wire_bytes){text, n};
    for (int i = 0; i < 2; i++) {
        peer_ask(q[i], WIRE_GENERATE, &g);
        wire_free(peer_status(q[i]));
    }
    peer_refused(clock, WIRE_GENERATE, &g, HEARTH_ELIMIT, "waiting requests of its user would have");
    free(text);
    for (int i = 0; i < 2; i++)
        peer_close(q[i]);
    peer_close(clock);
    peer_close(p);
}

/* A request that is cancelled, or whose client disconnects, leaves the queue; the same request twice is one stream. */
static void test_leaving(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 1, 8), *gone = peer_open(b), *q = peer_open(b), *again = peer_open(b),
                *clock = peer_open(b);
    struct hearth_err e;
    uint32_t cancelled = ask(q, "n=1", "cancelled", NULL), too;
    wire_free(peer_status(q));
    too = ask(again, "n=1", "cancelled", NULL);
    wire_free(peer_status(again));
    ask(gone, "n=1", "gone", NULL);
    wire_free(peer_status(gone));
    uint32_t id = ask(q, "n=2", "waits", NULL), twice;
    wire_free(peer_status(q));
    twice = ask(again, "n=2", "waits", NULL);
    wire_free(peer_status(again));
    peer_close(gone);
    for (int64_t waiting = 5; waiting == 5;) { /* until its connection is known to be closed */
        struct wire_status_result *st = peer_status(clock);
        waiting = st->waiting;
        wire_free(st);
    }
    cancel(clock, "cancelled");
    assert_null(peer_answer(q, cancelled, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_ECANCELLED);
    assert_null(peer_answer(again, too, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_ECANCELLED);
    cancel(clock, "hang0");
    peer_expect_text(q, id, "t0 t1 ");
    assert_string_equal(q->queued, "cancelled:1 waits:4 waits:3 waits:1");
    int64_t stream = q->stream;
    peer_expect_text(again, twice, "t0 t1 ");
    assert_int_equal(again->stream, stream);
    assert_int_equal(q->n_begin, 1);
    peer_close(clock);
    peer_close(p);
    peer_close(q);
    peer_close(again);
}

/* Two that wait with the same id begin together, although there is room for one stream only; one with other content is
 * refused at once, also if it would begin before them. The stream has a reader when the first one's client leaves. */
static void test_twins(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 1, 8), *first = peer_open(b), *twin = peer_open(b), *other = peer_open(b),
                *clock = peer_open(b);
    struct wire_generate differs = request("n=1", NULL);
    ask(first, "gate n=2", "same", NULL);
    wire_free(peer_status(first));
    uint32_t id = ask(twin, "gate n=2", "same", NULL);
    wire_free(peer_status(twin));
    differs.request = "same";
    differs.service_class = "interactive";
    peer_refused(other, WIRE_GENERATE, &differs, HEARTH_ECONFLICT, "\"same\" waits already");
    differs.n = 2;
    peer_refused(other, WIRE_GENERATE, &differs, HEARTH_ECONFLICT, "\"same\" waits already");
    cancel(clock, "hang0");
    peer_await_begin(first, 1);
    peer_await_begin(twin, 1);
    assert_int_equal(twin->stream, first->stream);
    peer_close(first);
    uint32_t later = ask(other, "gate n=1", "later", NULL); /* would take the place of a stream that nobody reads */
    wire_free(peer_status(other));
    assert_int_equal(other->n_begin, 0);
    peer_tick(clock);
    finish(clock);
    peer_expect_text(twin, id, "t0 t1 ");
    peer_await_begin(other, 1);
    finish(clock);
    peer_expect_text(other, later, "t0 ");
    peer_close(clock);
    peer_close(p);
    peer_close(twin);
    peer_close(other);
}

/* A deadline also applies in the queue. */
static void test_late(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 1, 8), *q = peer_open(b), *clock = peer_open(b);
    struct hearth_err e;
    struct wire_generate g = request("n=1", NULL);
    g.deadline_ms = 50;
    uint32_t late = peer_ask(q, WIRE_GENERATE, &g), id;
    g.deadline_ms = 3600000;
    g.request = "waits";
    id = peer_ask(q, WIRE_GENERATE, &g);
    assert_null(peer_answer(q, late, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_ECANCELLED);
    assert_non_null(strstr(e.msg, "50 ms"));
    cancel(clock, "hang0");
    peer_expect_text(q, id, "t0 ");
    assert_string_equal(q->queued, ":1 waits:2 waits:1");
    int64_t stream = q->stream;
    peer_expect_text(q, peer_ask(q, WIRE_GENERATE, &g), "t0 "); /* although less of its time was left */
    assert_int_equal(q->stream, stream);
    peer_close(clock);
    peer_close(p);
    peer_close(q);
}

/* Others are held back for a request for several streams in its turn only, and begin when that ends, even if nothing
 * else happens then. */
static void test_turn_ends(void **state)
{
    struct box *b = *state;
    if (geteuid() != 0)
        skip(); /* it takes another user */
    box_configure(b, "streams = 2\n");
    box_start(b);
    box_open_to_all(b);
    struct peer *p = peer_open(b), *q = peer_open(b), *other;
    assert_int_equal(seteuid(65534), 0);
    other = peer_open(b);
    assert_int_equal(seteuid(0), 0);
    struct hearth_err e;
    struct wire_generate g = request("n=1", NULL);
    ask(p, "hang", "hang", NULL);
    peer_await_begin(p, 1);
    g.n = 2;
    peer_ask(q, WIRE_GENERATE, &g);
    g.deadline_ms = 500;
    do { /* ask at intervals until it is the turn of that request */
        assert_null(peer_answer(q, peer_ask(q, WIRE_GENERATE, &g), WIRE_GENERATE, &e));
        assert_int_equal(e.code, HEARTH_ECANCELLED);
        peer_expect_text(other, ask(other, "n=1", NULL, NULL), "t0 ");
    } while (!other->queued[0]);
    assert_string_equal(other->queued, ":1");
    peer_close(other);
    peer_close(q);
    peer_close(p);
}

/* Waiting requests are told at once when the daemon ends. */
static void test_shutdown(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 1, 8), *q = peer_open(b);
    struct hearth_err e;
    uint32_t id = ask(q, "n=1", "waits", NULL);
    wire_free(peer_status(q));
    assert_int_equal(kill(b->pid, SIGTERM), 0);
    assert_null(peer_answer(q, id, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_ESHUTDOWN);
    peer_close(p);
    peer_close(q);
    assert_int_equal(box_stop(b, SIGTERM), 0);
}

/* Also one that waits only to be delivered again what its stream has made. */
static void test_shutdown_before_delivery(void **state)
{
    struct box *b = *state;
    struct peer *p = full(b, 1, 8), *q = peer_open(b), *other = peer_open(b);
    struct hearth_err e;
    cancel(q, "hang0");
    peer_expect_text(q, ask(q, "n=1", "was", NULL), "t0 ");
    ask(other, "hang", "hang1", NULL);
    peer_await_begin(other, 1);
    size_t told = strlen(q->queued); /* it waited if hang0 had not ended yet */
    uint32_t id = ask(q, "n=1", "was", NULL);
    wire_free(peer_status(q));
    assert_true(strlen(q->queued) > told);
    assert_int_equal(kill(b->pid, SIGTERM), 0);
    assert_null(peer_answer(q, id, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_ESHUTDOWN);
    peer_close(p);
    peer_close(q);
    peer_close(other);
    assert_int_equal(box_stop(b, SIGTERM), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, box_setup_idle, box_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_order),
                                       TEST(test_class_is_capped),
                                       TEST(test_bound),
                                       TEST(test_several),
                                       TEST(test_too_many),
                                       TEST(test_no_line),
                                       TEST(test_line_of_bytes),
                                       TEST(test_leaving),
                                       TEST(test_twins),
                                       TEST(test_late),
                                       TEST(test_turn_ends),
                                       TEST(test_shutdown),
                                       TEST(test_shutdown_before_delivery)};
    return cmocka_run_group_tests_name("daemon/queue", tests, NULL, NULL);
}
