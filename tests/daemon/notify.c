/* notify.c - requests as notifications: a generate without an id ends with an event that names its request, and a
 * cancel has no answer; so a client that cannot wait for answers, such as an editor, can stream and cancel. */
#include "tests/daemon/harness.h"

#include <stdio.h>

#define BYTES(s) (s), sizeof(s) - 1

static void test_end(void **state)
{
    struct peer *p = peer_open(*state);
    struct wire_generate g = request("n=4 tail", NULL);
    g.request = "first";
    peer_notify(p, WIRE_GENERATE, &g);
    peer_await_ends(p, 1);
    assert_int_equal(p->n_begin, 1);
    assert_string_equal(p->ended, "first");
    assert_string_equal(p->reason, "stop");
    assert_string_equal(p->end_text, "t0 t1 t2 t3 !");
    assert_string_equal(p->text, p->end_text); /* all of its tokens had come before */

    /* The same request again attaches to the same stream, as with an id. */
    peer_notify(p, WIRE_GENERATE, &g);
    peer_await_ends(p, 2);
    struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(r->stream, 1);
    wire_free(r);
    g.request = "quiet";
    g.stream = false;
    p->n_begin = 0;
    peer_notify(p, WIRE_GENERATE, &g);
    peer_await_ends(p, 3);
    assert_int_equal(p->n_begin, 0);
    assert_string_equal(p->ended, "quiet");
    peer_close(p);
}

/* A result that is too large for a frame is an error, of a notification as of a request, and no end of the connection:
 * the stream is there and can be attached to. */
static void test_large(void **state)
{
    struct peer *p = peer_open(*state);
    struct wire_generate g = request("n=1100 size=65000", NULL); /* 71 MB */
    g.request = "large";
    g.stream = false;
    peer_notify(p, WIRE_GENERATE, &g);
    peer_await_ends(p, 1);
    assert_string_equal(p->ended, "large");
    assert_non_null(strstr(p->reason, "1 TOO_LARGE: "));
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ETOOBIG, "");
    peer_close(p);
}

static void test_cancel(void **state)
{
    struct peer *p = peer_open(*state);
    struct wire_generate g = request("hang", NULL);
    g.request = "long";
    peer_notify(p, WIRE_GENERATE, &g);
    struct wire_cancel c = {.stream = -1, .request = "long"};
    peer_notify(p, WIRE_CANCEL, &c); /* before any event of it arrived */
    peer_await_ends(p, 1);
    assert_string_equal(p->ended, "long");
    assert_string_equal(p->reason, "cancelled");
    peer_notify(p, WIRE_CANCEL, &c); /* it has ended: nothing is reported */
    wire_free(peer_status(p));
    assert_int_equal(p->n_notices, 0);
    peer_close(p);
}

/* Requests with ids and notifications share the connection, and id 0 can be used like any other. */
static void test_beside_ids(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("gate n=1", NULL);
    g.request = "slow";
    peer_notify(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    p->last_id = UINT32_MAX;
    wire_free(peer_status(p));
    assert_int_equal(p->last_id, 0);
    assert_int_equal(p->n_ends, 0);
    peer_tick(clock);
    peer_tick(clock);
    peer_await_ends(p, 1);
    assert_string_equal(p->end_text, "t0 ");
    peer_close(p);
    peer_close(clock);
}

static void refused(struct peer *p, const struct wire_generate *g, const char *why)
{
    int n = p->n_ends;
    peer_notify(p, WIRE_GENERATE, g);
    peer_await_ends(p, n + 1);
    assert_string_equal(p->ended, g->request);
    if (strncmp(p->reason, why, strlen(why)) != 0)
        fail_msg("%s, not %s", p->reason, why);
}

static void test_errors(void **state)
{
    struct peer *p = peer_open(*state);
    struct wire_generate g = request("n=1", NULL);
    g.request = "r";
    g.model = "nonesuch";
    refused(p, &g, "1 MODEL_NOT_FOUND: there is no model \"nonesuch\"");
    g.model = "fake";
    g.max_tokens = -7; /* one of its fields is invalid, but its request id is readable */
    refused(p, &g, "1 INVALID_PARAMS: generate.max_tokens: -7 is under -1");
    g = request("fail=0 n=1", NULL);
    g.request = "r";
    refused(p, &g, "1 MODEL_INVALID: as the prompt said");
    g = request("n=1", NULL);
    g.request = "r";
    peer_notify(p, WIRE_GENERATE, &g); /* its request failed before, so the id may be used again */
    peer_await_ends(p, p->n_ends + 1);
    assert_string_equal(p->reason, "stop");
    g.text = hearth_text("n=2");
    refused(p, &g, "1 CONFLICT: ");

    /* An unknown key, which the codec's own tables cannot send. */
    peer_send(p, BYTES("\x93\x02\xa8generate\x91\x82\xa7request\xa1x\xa4temp\x00"));
    peer_await_ends(p, p->n_ends + 1);
    assert_string_equal(p->ended, "x");
    assert_non_null(strstr(p->reason, "\"temp\" is not known"));
    peer_close(p);
}

/* Errors that no event can answer are reported by a notice, and nothing is begun. */
static void test_notices(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *says;
    } bad[] = {
        {BYTES("\x93\x02\xa8generate\x91\x82\xa5model\xa4"
               "fake\xa4text\xa3n=1"),
         "INVALID_PARAMS: generate.request: is missing"},
        {BYTES("\x93\x02\xa8generate\x91\x81\xa7request\x07"), "INVALID_PARAMS: generate.request: must be a string"},
        {BYTES("\x93\x02\xa8generate\x91\x81\x07\x07"), "INVALID_PARAMS: generate: has a key that is not a string"},
        {BYTES("\x93\x02\xa6"
               "cancel\x91\x80"),
         "INVALID_PARAMS: cancel: exactly one of stream, request is needed"},
        {BYTES("\x93\x02\xa6status\x91\x80"), "INVALID_REQUEST: only generate and cancel may be notifications"},
        {BYTES("\x93\x02\xadstream.attach\x91\x81\xa6stream\x01"), "INVALID_REQUEST: only generate and cancel"},
        {BYTES("\x93\x02\xa8nonesuch\x91\x80"), "INVALID_REQUEST: only generate and cancel may be notifications"},
    };
    struct peer *p = peer_open(*state);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        peer_send(p, bad[i].bytes, bad[i].len);
        struct wire_status_result *r = peer_status(p);
        assert_int_equal(r->streams, 0);
        wire_free(r);
        assert_int_equal(p->n_notices, (int)i + 1);
        if (strncmp(p->notice, bad[i].says, strlen(bad[i].says)) != 0)
            fail_msg("case %zu: %s", i, p->notice);
    }
    assert_int_equal(p->n_ends, 0);
    peer_close(p);
}

/* Notifications count as requests that wait for an answer, and a lost connection loses only their events. */
static int setup_few(void **state)
{
    int rc = box_setup_idle(state);
    box_configure(*state, "requests_per_connection = 2\n");
    box_start(*state);
    return rc;
}

static void test_limit(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_generate g = request("hang", NULL);
    g.request = "one";
    peer_notify(p, WIRE_GENERATE, &g);
    g.request = "two";
    peer_notify(p, WIRE_GENERATE, &g);
    g.request = "three";
    peer_notify(p, WIRE_GENERATE, &g);
    peer_await_ends(p, 1);
    assert_string_equal(p->ended, "three");
    assert_non_null(strstr(p->reason, "1 LIMIT: "));
    peer_close(p);
    wire_free(peer_call(q, WIRE_CANCEL, &(struct wire_cancel){.stream = -1, .request = "one"}));
    struct wire_generate_result *r =
        peer_call(q, WIRE_STREAM_ATTACH, &(struct wire_attach){.stream = -1, .request = "one"});
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    peer_close(q);
    box_works(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_end, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_large, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_cancel, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_beside_ids, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_errors, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_notices, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup_few, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
