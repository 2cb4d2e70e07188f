/* takeover.c - session takeover: a user can continue at once in a session whose client has disconnected, and no token
 * is lost. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/daemon/harness.h"

/* Starts a generation that makes two tokens and waits, then disconnects its client. Returns the stream's number. */
static int64_t leave(struct box *b, const char *script, const char *session)
{
    struct peer *p = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request(script, session);
    g.request = "left";
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(clock);
    peer_tick(clock);
    peer_await_tokens(p, 2);
    int64_t stream = p->stream;
    peer_close(p);
    wire_free(peer_call(clock, WIRE_STATUS, NULL));
    peer_close(clock);
    return stream;
}

static int64_t tokens_of(struct peer *p, const char *session)
{
    struct wire_session_ref ref = {.session = session};
    struct wire_session_show_result *r = peer_call(p, WIRE_SESSIONS_SHOW, &ref);
    int64_t n = r->session.tokens;
    wire_free(r);
    return n;
}

static void test_generate(void **state)
{
    struct box *b = *state;
    int64_t left = leave(b, "gate n=9", "s"); /* 8 + 2 */
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = run(p, "n=1", "s"); /* 3 + 1 */
    assert_string_equal(r->finish_reason, "stop");
    assert_int_equal(r->usage.prompt_tokens, 8 + 2 + 3);
    wire_free(r);
    assert_int_equal(tokens_of(p, "s"), 8 + 2 + 3 + 1);

    /* The interrupted stream can still be attached to, as far as it got. */
    struct wire_attach a = {.stream = left, .from = 1};
    p->first = 1;
    r = peer_call(p, WIRE_STREAM_ATTACH, &a);
    assert_string_equal(r->finish_reason, "cancelled");
    assert_string_equal(r->text.data, "t0 t1 ");
    assert_string_equal(p->text, "t1 ");
    wire_free(r);
    peer_close(p);
    assert_true(box_log_has(b, "nobody reads it, and its session is wanted"));
}

/* By the session's name, also if it has been renamed since, and by no other session's name. */
static void test_renamed(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *busy = peer_open(b);
    wire_free(run(p, "n=1", "s")); /* 3 + 1 */
    leave(b, "gate n=9", "s");     /* 8 + 2 */
    struct wire_session_rename rename = {"s", "renamed"};
    wire_free(peer_call(p, WIRE_SESSIONS_RENAME, &rename));
    struct wire_generate g = request("hang", "s");
    peer_ask(busy, WIRE_GENERATE, &g);
    peer_await_begin(busy, 1);
    g = request("n=1", "s");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ESESSIONBUSY, "creating session \"s\"");
    assert_false(box_log_has(b, "its session is wanted"));
    wire_free(run(p, "n=1", "renamed")); /* 3 + 1 */
    assert_int_equal(tokens_of(p, "renamed"), 4 + 10 + 4);
    peer_close(busy);
    peer_close(p);
}

/* Checks the classes that the engine was told for the stream, in order. */
static void assert_classes(struct peer *p, int64_t stream, const char *want)
{
    char all[256] = "";
    struct wire_trace_result *r = peer_call(p, WIRE_STREAMS_TRACE, &(struct wire_streams_trace){.stream = stream});
    for (size_t i = 0; i < r->n_events; i++)
        if (!strcmp(r->events[i].stage, "class"))
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s ", r->events[i].fields[1].value);
    assert_string_equal(all, want);
    wire_free(r);
}

/* A stream whose client has disconnected is in the background class until another client attaches. */
static void test_class(void **state)
{
    struct box *b = *state;
    int64_t left = leave(b, "gate n=3", NULL);
    struct peer *p = peer_open(b), *clock = peer_open(b);
    wire_free(peer_status(clock)); /* the engine's answer comes after what it was told before */
    assert_classes(clock, left, "background ");
    struct wire_attach a = {.stream = left, .from = 2};
    p->first = 2;
    uint32_t id = peer_ask(p, WIRE_STREAM_ATTACH, &a);
    peer_await_begin(p, 1);
    peer_tick(clock);
    peer_tick(clock);
    struct hearth_err e;
    wire_free(peer_answer(p, id, WIRE_STREAM_ATTACH, &e));
    wire_free(peer_status(clock));
    assert_classes(clock, left, "background normal ");
    peer_close(p);
    peer_close(clock);
}

/* The requested class is capped by the configuration; unknown words are refused. */
static void test_class_is_capped(void **state)
{
    struct box *b = *state;
    static const char *const asked[] = {"interactive", "normal", "background", NULL};
    static const char *const got[][4] = {{"interactive ", "", "background ", ""},
                                         {"", "", "background ", ""},
                                         {"background ", "background ", "background ", "background "}};
    for (int most = 0; most < 3; most++) {
        char conf[40];
        snprintf(conf, sizeof conf, "class = %s\n", asked[most]);
        if (most)
            assert_int_equal(box_stop(b, SIGTERM), 0);
        box_configure(b, conf);
        box_start(b);
        struct peer *p = peer_open(b);
        for (int i = 0; i < 4; i++) {
            struct wire_generate g = request("n=1", NULL);
            g.service_class = asked[i];
            struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, &g);
            assert_classes(p, r->stream, got[most][i]);
            wire_free(r);
        }
        struct wire_generate g = request("n=1", NULL);
        g.service_class = "urgent";
        peer_refused(p, WIRE_GENERATE, &g, HEARTH_EUNSUPPORTED, "generate.class");
        peer_close(p);
    }
}

/* Streams that nobody reads do not count against their user's limit when it is reached; those that are read do. */
static void test_limit_of_streams(void **state)
{
    struct box *b = *state;
    box_configure(b, "streams_per_uid = 3\n");
    box_start(b);
    struct peer *stays = peer_open(b), *p = peer_open(b);
    struct wire_generate hang = request("hang", NULL);
    peer_ask(stays, WIRE_GENERATE, &hang);
    peer_await_begin(stays, 1);
    int64_t left[] = {leave(b, "gate n=9", NULL), 0};
    struct peer *gone = peer_open(b);
    peer_ask(gone, WIRE_GENERATE, &hang);
    peer_await_begin(gone, 1);
    left[1] = gone->stream;
    peer_close(gone);
    for (int i = 0; i < 4; i++) /* the third one finds no more streams to cancel, but those before it have ended */
        wire_free(run(p, "n=1", NULL));
    struct wire_attach a = {.stream = left[0]};
    struct wire_generate_result *r = peer_call(p, WIRE_STREAM_ATTACH, &a);
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    assert_true(box_log_has(b, "nobody reads it, and another one has no room"));
    peer_close(p);
    peer_close(stays);
}

/* So do those whose clients leave while the request waits already, and no more of them than it needs. */
static void test_left_while_it_waits(void **state)
{
    struct box *b = *state;
    box_configure(b, "streams_per_uid = 2\nattach_grace = 600\n");
    box_start(b);
    struct peer *gone[] = {peer_open(b), peer_open(b)}, *p = peer_open(b);
    struct wire_generate hang = request("hang", NULL), g = request("n=1", NULL);
    struct hearth_err e;
    for (int i = 0; i < 2; i++) {
        peer_ask(gone[i], WIRE_GENERATE, &hang);
        peer_await_begin(gone[i], 1);
    }
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    wire_free(peer_status(p));
    assert_string_equal(p->queued, ":1");
    peer_close(gone[0]);
    peer_close(gone[1]);
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_string_equal(r->finish_reason, "stop");
    wire_free(r);
    struct wire_status_result *st = peer_status(p);
    assert_int_equal(st->streams, 1);
    wire_free(st);
    peer_close(p);
}

/* A client that is attached keeps its stream running. */
static void test_attached(void **state)
{
    struct box *b = *state;
    int64_t left = leave(b, "gate n=3", "s");
    struct peer *p = peer_open(b), *q = peer_open(b), *clock = peer_open(b);
    struct wire_attach a = {.stream = left, .from = 2};
    p->first = 2;
    uint32_t id = peer_ask(p, WIRE_STREAM_ATTACH, &a);
    peer_await_begin(p, 1);
    struct wire_generate g = request("n=1", "s");
    struct wire_session_ref ref = {.session = "s"};
    peer_refused(q, WIRE_GENERATE, &g, HEARTH_ESESSIONBUSY, "session \"s\"");
    peer_refused(q, WIRE_SESSIONS_REMOVE, &ref, HEARTH_ESESSIONBUSY, "creating");
    peer_tick(clock);
    peer_tick(clock); /* the end takes a tick, too */
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_STREAM_ATTACH, &e);
    assert_non_null(r);
    assert_string_equal(r->text.data, "t0 t1 t2 ");
    assert_string_equal(r->finish_reason, "stop");
    wire_free(r);

    /* The same request again is not another one: it attaches. */
    g = request("gate n=3", "s");
    g.request = "left";
    r = peer_call(q, WIRE_GENERATE, &g);
    assert_int_equal(r->stream, left);
    wire_free(r);
    peer_close(p);
    peer_close(q);
    peer_close(clock);
}

/* A connection that is being sent one choice is not attached to all of them: its events would come twice. */
static void test_attached_to_one(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b), *other = peer_open(b);
    struct wire_generate g = request("hang", NULL);
    g.request = "all";
    g.n = 3;
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 3);
    struct wire_attach all = {.stream = -1, .request = "all"}, one = {.stream = p->stream};
    uint32_t its = peer_ask(q, WIRE_STREAM_ATTACH, &one), id;
    peer_await_begin(q, 1);
    peer_refused(q, WIRE_STREAM_ATTACH, &all, HEARTH_ECONFLICT, "is being sent stream");
    peer_refused(q, WIRE_GENERATE, &g, HEARTH_ECONFLICT, "is being sent stream");
    assert_int_equal(q->n_begin, 1);
    g.stream = false; /* without events there is nothing to confuse */
    struct hearth_err e;
    id = peer_ask(q, WIRE_GENERATE, &g);
    wire_free(peer_status(q));
    wire_free(peer_call(other, WIRE_CANCEL, &(struct wire_cancel){.stream = -1, .request = "all"}));
    wire_free(peer_answer(q, its, WIRE_STREAM_ATTACH, &e));
    struct wire_generate_result *r = peer_answer(q, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_int_equal(r->n_choices, 3);
    wire_free(r);
    peer_close(other);
    peer_close(q);
    peer_close(p);
}

static void test_remove(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=1", "s"));
    leave(b, "gate n=9", "s");
    struct wire_session_ref ref = {.session = "s"};
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
    peer_refused(p, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION, "\"s\"");
    wire_free(run(p, "n=1", "s"));
    assert_int_equal(tokens_of(p, "s"), 4);
    peer_close(p);
}

/* Several requests wait for the same end, and one of their clients disconnects. */
static void test_waiting(void **state)
{
    struct box *b = *state;
    leave(b, "gate deaf n=9", "s"); /* 13 + 2 */
    struct peer *first = peer_open(b), *gone = peer_open(b), *last = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("n=1", "s");
    struct hearth_err e;
    uint32_t id = peer_ask(first, WIRE_GENERATE, &g);
    wire_free(peer_call(clock, WIRE_STATUS, NULL));
    peer_ask(gone, WIRE_GENERATE, &g);
    wire_free(peer_call(clock, WIRE_STATUS, NULL));
    peer_close(gone);
    g = request("n=2", "s");
    uint32_t id_last = peer_ask(last, WIRE_GENERATE, &g);
    wire_free(peer_call(clock, WIRE_STATUS, NULL));
    peer_tick(clock);
    struct wire_generate_result *r = peer_answer(first, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    wire_free(r);
    assert_null(peer_answer(last, id_last, WIRE_GENERATE, &e)); /* the first one's stream is being read */
    assert_int_equal(e.code, HEARTH_ESESSIONBUSY);
    assert_int_equal(tokens_of(clock, "s"), 13 + 2 + 3 + 1);
    peer_close(first);
    peer_close(last);
    peer_close(clock);
    assert_int_equal(box_stop(b, SIGTERM), 0);
}

/* Cancelling by request id works from the moment that the request was sent, and so does refusing another request with
 * that id. */
static void test_cancel(void **state)
{
    struct box *b = *state;
    leave(b, "gate deaf n=9", "s");
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_generate g = request("gate n=5", "s");
    struct wire_cancel cancel = {.stream = -1, .request = "later"};
    g.request = "later";
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    wire_free(peer_call(q, WIRE_STATUS, NULL));
    g = request("n=1", NULL); /* has its id, too */
    g.request = "later";
    peer_refused(q, WIRE_GENERATE, &g, HEARTH_ECONFLICT, "\"later\" waits already");
    struct wire_cancel_result *c = peer_call(q, WIRE_CANCEL, &cancel);
    assert_true(c->cancelled);
    wire_free(c);
    peer_tick(q);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    peer_close(p);
    peer_close(q);
    box_works(b);
}

static void test_shutdown(void **state)
{
    struct box *b = *state;
    leave(b, "gate deaf n=9", "s");
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_generate g = request("n=1", "s");
    struct hearth_err e;
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    wire_free(peer_call(q, WIRE_STATUS, NULL));
    peer_close(q);
    kill(b->pid, SIGTERM);
    assert_null(peer_answer(p, id, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_ESHUTDOWN);
    peer_close(p);
    assert_int_equal(box_stop(b, 0), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, box_setup, box_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_generate),
        TEST(test_renamed),
        TEST(test_attached),
        TEST(test_attached_to_one),
        TEST(test_remove),
        TEST(test_waiting),
        TEST(test_cancel),
        TEST(test_shutdown),
        TEST(test_class),
        cmocka_unit_test_setup_teardown(test_class_is_capped, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_limit_of_streams, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_left_while_it_waits, box_setup_idle, box_teardown),
    };
    return cmocka_run_group_tests_name("daemon/takeover", tests, NULL, NULL);
}
