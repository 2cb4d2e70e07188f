/* streams-list.c - streams.list: which streams run, for whom, and which have ended. */
#include "tests/daemon/harness.h"

#include <stdio.h>
#include <unistd.h>

static struct wire_streams_list_result *list(struct peer *p, bool ended)
{
    struct wire_streams_list q = {.ended = ended};
    return peer_call(p, WIRE_STREAMS_LIST, &q);
}

static void test_running(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_streams_list_result *r = list(q, true);
    assert_int_equal(r->n_streams, 0);
    wire_free(r);

    struct wire_generate g = request("gate n=9", "tales");
    g.request = "mine";
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(q);
    peer_tick(q);
    peer_await_tokens(p, 2);
    g = request("hang", NULL);
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 2);

    r = list(q, false);
    assert_int_equal(r->n_streams, 2);
    const struct wire_stream_info *hang = &r->streams[0], *gate = &r->streams[1];
    assert_true(hang->stream > gate->stream); /* the newest first */
    assert_int_equal(gate->tokens, 2);
    assert_string_equal(gate->state, "running");
    assert_string_equal(gate->request, "mine");
    assert_string_equal(gate->name, "tales");
    assert_int_equal(strlen(gate->session), 16);
    assert_string_equal(gate->model, "fake");
    assert_int_equal(gate->attached, 1);
    assert_true(gate->began > 1.7e9 && gate->ended == 0);
    assert_null(hang->session);
    assert_null(hang->name);
    assert_int_equal(hang->tokens, 0);
    int64_t number = gate->stream;
    wire_free(r);

    peer_close(p); /* its client has disconnected: nobody waits for its end */
    do {
        r = list(q, false);
        assert_int_equal(r->n_streams, 2);
        bool gone = !r->streams[0].attached && !r->streams[1].attached;
        wire_free(r);
        if (gone)
            break;
    } while (true);
    wire_free(peer_call(q, WIRE_CANCEL, &(struct wire_cancel){.stream = number}));
    struct wire_attach a = {.stream = number};
    wire_free(peer_call(q, WIRE_STREAM_ATTACH, &a));
    r = list(q, false);
    assert_int_equal(r->n_streams, 1);
    wire_free(r);
    r = list(q, true);
    assert_int_equal(r->n_streams, 2);
    assert_string_equal(r->streams[1].state, "ended");
    assert_int_equal(r->streams[1].stream, number);
    assert_int_equal(r->streams[1].tokens, 2);
    assert_string_equal(r->streams[1].name, "tales");
    assert_true(r->streams[1].ended > 1.7e9 && r->streams[1].began == 0);
    wire_free(r);
    peer_close(q);
}

/* The next hearthd also knows the streams that have ended. */
static void test_restart(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=5", "kept"));
    peer_close(p);
    assert_int_equal(box_stop(b, 15), 0);
    box_start(b);
    p = peer_open(b);
    struct wire_streams_list_result *r = list(p, true);
    assert_int_equal(r->n_streams, 1);
    assert_int_equal(r->streams[0].tokens, 5);
    assert_string_equal(r->streams[0].name, "kept");
    assert_string_equal(r->streams[0].model, "fake");
    wire_free(r);
    peer_close(p);
}

static void test_bounded(void **state)
{
    struct peer *p = peer_open(*state);
    for (int i = 0; i < 260; i++)
        wire_free(run(p, "n=0", NULL));
    struct wire_streams_list_result *r = list(p, true);
    assert_int_equal(r->n_streams, 256);
    assert_int_equal(r->streams[0].stream, 260);
    assert_int_equal(r->streams[255].stream, 5);
    wire_free(r);
    peer_close(p);
}

static void test_other_uid(void **state)
{
    struct box *b = *state;
    if (geteuid() != 0)
        skip();
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=1", "secret"));
    box_open_to_all(b);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(1);
        struct wire_streams_list_result *r = list(peer_open(b), true);
        _exit(r->n_streams == 0 ? 0 : 1);
    }
    assert_int_equal(wait_exit(pid), 0);
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_running, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_restart, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_bounded, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_other_uid, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
