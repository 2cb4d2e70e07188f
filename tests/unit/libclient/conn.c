/*
 * conn.c - requests of libhearth: streams, blocking calls, timeouts, parameters.
 */
#include "config.h"

#include "tests/unit/libclient/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hello_travels_with_the_first_request(void **state)
{
    struct peer *p = *state;
    peer_expect_silence(p);
    hearth_set_client(p->h, "test 1");
    peer_submit(p, "r1");
    struct wire_hello *hello = peer_expect(p, WIRE_HELLO);
    assert_string_equal(hello->client, "test 1");
    assert_int_equal(hello->version_min, 1);
    assert_null(hello->notify_as.v);
    struct wire_generate *g = peer_expect(p, WIRE_GENERATE);
    assert_string_equal(g->model, "m");
    assert_string_equal(g->request, "r1");
    assert_true(g->sampling.temperature == HEARTH_UNSET);
    peer_submit(p, NULL);
    g = peer_expect(p, WIRE_GENERATE); /* no second hello, and a request id that the library generated */
    assert_true(strlen(g->request) > 16);
    peer_expect_silence(p);
}

static void a_long_name_ends_between_two_characters(void **state)
{
    struct peer *p = *state;
    hearth_set_client(p->h, "ääääääääääääääääääääääääääääääääääääääää"); /* 40 characters of two bytes each */
    peer_submit(p, "r1");
    struct wire_hello *hello = peer_expect(p, WIRE_HELLO);
    assert_string_equal(hello->client, "äääääääääääääääääääääääääääääää");
}

/* A name cannot be refused, and one that the hello cannot hold would make every request fail. */
static void a_name_ends_before_bytes_that_are_no_text(void **state)
{
    struct peer *p = *state;
    hearth_set_client(p->h, "caf\xe9 1.0");
    peer_submit(p, "r1");
    struct wire_hello *hello = peer_expect(p, WIRE_HELLO);
    assert_string_equal(hello->client, "caf");
}

/* Any call may be made without waiting: its answer is an event, and the next call waits again. */
static void calls_are_deferred(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    struct hearth_status_result *untouched = NULL;
    uint32_t loading = 0, status = 0;
    hearth_defer(p->h, &loading);
    assert_int_equal(hearth_models_load(p->h, "m", NULL, NULL, NULL, NULL, &err), 0);
    hearth_defer(p->h, &status);
    assert_int_equal(hearth_status(p->h, &untouched, NULL, &err), 0);
    assert_true(loading && status && loading != status && !untouched);
    peer_greet(p, (peer_expect(p, WIRE_HELLO), p->frame.id));
    assert_string_equal(((struct wire_model_ref *)peer_expect(p, WIRE_MODELS_LOAD))->model, "m");
    uint32_t load_id = p->frame.id;
    peer_expect(p, WIRE_STATUS);
    uint32_t status_id = p->frame.id;
    assert_int_equal(peer_next(p, &ev), 0);
    peer_tell(p, WIRE_MODEL_PROGRESS, &(struct wire_model_progress){"m", 1, 2});
    peer_answer(p, status_id, WIRE_STATUS, &(struct wire_status_result){.pid = 77});
    peer_refuse(p, load_id, HEARTH_ENOMODEL, "no such model");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_PROGRESS && ev.request == 0);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == status);
    assert_int_equal(((const struct hearth_status_result *)ev.body.any)->pid, 77);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_ERROR && ev.request == loading && ev.err.code == HEARTH_ENOMODEL);

    /* A call that fails at once cancels the deferral. */
    struct hearth_session_import page;
    struct timespec soon = {.tv_nsec = 1000000};
    memset(&page, 0, sizeof page);
    hearth_defer(p->h, &status);
    assert_int_equal(hearth_sessions_import(p->h, &page, NULL, NULL, &err), HEARTH_EPARAMS);
    assert_int_equal(hearth_status(p->h, &untouched, &soon, &err), HEARTH_ETIMEOUT);
    hearth_session_import_init(&page, sizeof page);
    assert_int_equal(page.size, sizeof page);
    assert_string_equal(hearth_version(), HEARTH_VERSION);
    assert_string_equal(HEARTH_VERSION, PACKAGE_VERSION);
}

static void two_streams_on_one_connection_are_told_apart(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a = peer_submit(p, "a"), b = peer_submit(p, NULL);
    char request_b[64];

    uint32_t hello = (peer_expect(p, WIRE_HELLO), p->frame.id);
    uint32_t id_a = (peer_expect(p, WIRE_GENERATE), p->frame.id);
    struct wire_generate *g = peer_expect(p, WIRE_GENERATE);
    uint32_t id_b = p->frame.id;
    snprintf(request_b, sizeof request_b, "%s", g->request);

    assert_int_equal(peer_next(p, &ev), 0);
    peer_greet(p, hello);
    peer_begin(p, 71, request_b); /* the second request's stream begins first */
    peer_begin(p, 70, "a");
    peer_tokens(p, 70, 0, "A0");
    peer_tokens(p, 71, 0, "B0");
    peer_finish(p, id_b, 71, "B0", "stop");
    peer_tokens(p, 70, 1, "A1");
    peer_tokens(p, 99, 0, "of nobody");
    peer_finish(p, id_a, 70, "A0A1", "length");

    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_BEGIN && ev.request == b && ev.body.begin->stream == 71);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_BEGIN && ev.request == a);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == a);
    assert_string_equal(ev.body.tokens->text.data, "A0");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == b);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == b);
    struct hearth_generate_result *kept = hearth_take(p->h);
    assert_ptr_equal(kept, ev.body.result);
    assert_null(hearth_take(p->h));
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == a && ev.body.tokens->index == 1);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == a);
    assert_string_equal(ev.body.result->text.data, "A0A1");
    assert_string_equal(kept->text.data, "B0");
    hearth_free(kept);
    assert_int_equal(peer_next(p, &ev), 0);
}

static void a_refusal_is_an_event_and_the_connection_lives(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a = peer_submit(p, NULL);
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_GENERATE);
    peer_refuse(p, p->frame.id, HEARTH_ENOMODEL, "no model m");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_ERROR);
    assert_int_equal(ev.request, a);
    assert_int_equal(ev.err.code, HEARTH_ENOMODEL);
    assert_string_equal(ev.err.msg, "no model m");
    assert_int_equal(hearth_cancel(p->h, a, &err), HEARTH_ENOSTREAM);
    peer_submit(p, NULL);
    peer_expect(p, WIRE_GENERATE);
}

static void cancel_goes_by_request_before_the_stream_has_a_number(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a = peer_submit(p, "mine");
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_GENERATE);
    uint32_t id = p->frame.id;

    assert_int_equal(hearth_cancel(p->h, a, &err), 0);
    struct wire_cancel *c = peer_expect(p, WIRE_CANCEL);
    assert_string_equal(c->request, "mine");
    assert_int_equal(c->stream, -1);
    peer_begin(p, 5, "mine");
    struct wire_cancel_result yes = {.cancelled = true};
    peer_answer(p, p->frame.id, WIRE_CANCEL, &yes);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_BEGIN);
    assert_int_equal(peer_next(p, &ev), 0); /* the answer to cancel is not an event */

    assert_int_equal(hearth_cancel(p->h, a, &err), 0);
    c = peer_expect(p, WIRE_CANCEL);
    assert_null(c->request);
    assert_int_equal(c->stream, 5);
    peer_finish(p, id, 5, "", "cancelled");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_DONE);
    assert_string_equal(ev.body.result->finish_reason, "cancelled");
}

/* A request with several choices has one id in the library, whichever stream an event belongs to; cancelling it ends
 * all of them. */
static void several_streams_are_one_request(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t other = peer_submit(p, "other"), a = peer_submit(p, "mine");
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_GENERATE);
    peer_expect(p, WIRE_GENERATE);
    uint32_t id = p->frame.id;
    static const int64_t streams[] = {7, 5, 9};
    for (int i = 0; i < 3; i++)
        peer_begin_choice(p, streams[i], "mine", i);
    peer_begin(p, 6, "other");
    for (int i = 2; i >= 0; i--)
        peer_tokens(p, streams[i], 0, "x");
    for (int i = 0; i < 7; i++) {
        assert_int_equal(peer_next(p, &ev), 1);
        assert_int_equal(ev.type, i < 4 ? HEARTH_EVENT_BEGIN : HEARTH_EVENT_TOKENS);
        assert_int_equal(ev.request, i == 3 ? other : a);
        if (i < 4)
            assert_int_equal(ev.body.begin->choice, i == 3 ? -1 : i);
    }
    peer_tokens(p, 8, 0, "x"); /* a stream of no request here */
    assert_int_equal(peer_next(p, &ev), 0);
    assert_int_equal(hearth_cancel(p->h, a, &err), 0);
    struct wire_cancel *c = peer_expect(p, WIRE_CANCEL);
    assert_string_equal(c->request, "mine");
    peer_finish(p, id, 7, "", "cancelled");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_DONE);
    assert_int_equal(ev.request, a);
}

/* Attaching by stream number identifies the events at once, attaching by request id only from stream.begin on. Either
 * can be cancelled. */
static void attach_goes_on_with_a_stream(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t a, b;
    assert_int_equal(hearth_attach(p->h, 12, NULL, 3, &a, &err), 0);
    assert_int_equal(hearth_attach(p->h, 0, "theirs", 0, &b, &err), 0);
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    struct wire_attach *w = peer_expect(p, WIRE_STREAM_ATTACH);
    uint32_t id_a = p->frame.id;
    assert_true(w->stream == 12 && !w->request && w->from == 3);
    w = peer_expect(p, WIRE_STREAM_ATTACH);
    assert_true(w->stream == -1 && w->from == 0);
    assert_string_equal(w->request, "theirs");

    peer_begin(p, 13, "theirs");
    peer_begin(p, 12, "of who began it");
    peer_tokens(p, 12, 3, "D");
    peer_tokens(p, 13, 0, "X");
    peer_finish(p, id_a, 12, "ABCD", "length");
    const struct {
        int type;
        uint32_t request;
    } want[] = {{HEARTH_EVENT_BEGIN, b},
                {HEARTH_EVENT_BEGIN, a},
                {HEARTH_EVENT_TOKENS, a},
                {HEARTH_EVENT_TOKENS, b},
                {HEARTH_EVENT_DONE, a}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(peer_next(p, &ev), 1);
        assert_int_equal(ev.type, want[i].type);
        assert_int_equal(ev.request, want[i].request);
    }
    assert_string_equal(ev.body.result->text.data, "ABCD");
    assert_int_equal(hearth_cancel(p->h, b, &err), 0);
    struct wire_cancel *c = peer_expect(p, WIRE_CANCEL);
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

/* The request that has had a stream's events keeps them until its answer, also where the stream is attached to again.
 */
static void a_second_attach_takes_no_events(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t first, second;
    assert_int_equal(hearth_attach(p->h, 12, NULL, 0, &first, &err), 0);
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_STREAM_ATTACH);
    peer_begin(p, 12, "theirs");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(hearth_attach(p->h, 12, NULL, 0, &second, &err), 0);
    peer_expect(p, WIRE_STREAM_ATTACH);
    peer_tokens(p, 12, 0, "a");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.request, first);
    peer_finish(p, first, 12, "a", "stop");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == first);
    peer_tokens(p, 12, 0, "a");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.request, second);
}

/* A blocking call whose answer has already arrived must not lose the events of the other stream. */
static void blocking_calls_keep_other_streams_events(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    struct hearth_status_result *status = NULL;
    struct hearth_tokenize_result *ids = NULL;
    uint32_t a = peer_submit(p, "a");
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_GENERATE);
    uint32_t id = p->frame.id;

    peer_begin(p, 1, "a");
    peer_tokens(p, 1, 0, "x");
    struct wire_notice notice = {.name = "N", .message = "m", .stream = 1};
    peer_tell(p, WIRE_NOTICE, &notice);
    struct wire_status_result r = {.pid = 4711, .version = "0"};
    peer_answer(p, id + 1, WIRE_STATUS, &r);
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), 0);
    assert_int_equal(status->pid, 4711);
    hearth_free(status);
    peer_finish(p, id, 1, "x", "stop");
    int32_t v[] = {4, 5};
    struct wire_tokenize_result t = {.ids = {v, 2}};
    peer_answer(p, id + 2, WIRE_TOKENIZE, &t);
    assert_int_equal(hearth_tokenize(p->h, "m", hearth_text("t"), true, HEARTH_BOS_YES, &ids, NULL, &err), 0);
    assert_int_equal(ids->ids.n, 2);
    hearth_free(ids);

    assert_int_equal(hearth_wait(p->h, -1, NULL, &err), HEARTH_WAIT_IO);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_BEGIN && ev.request == a);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_TOKENS && ev.request == a);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_NOTICE && ev.request == a);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_true(ev.type == HEARTH_EVENT_DONE && ev.request == a);

    peer_expect(p, WIRE_STATUS);
    struct wire_tokenize *asked = peer_expect(p, WIRE_TOKENIZE);
    assert_true(asked->special && asked->bos == 1);
}

/* A program that makes only blocking calls never takes events from the queue, so nothing may be queued for it. While a
 * stream runs, the program is told of the models that load. */
static void blocking_calls_alone_queue_nothing(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    struct hearth_status_result *status = NULL;
    struct wire_status_result r = {.pid = 1};
    struct wire_model_progress progress = {.model = "m", .done = 1, .total = 2};
    struct wire_notice notice = {.name = "N", .message = "m", .stream = -1};
    peer_greet(p, 1);
    peer_tell(p, WIRE_MODEL_PROGRESS, &progress);
    peer_tell(p, WIRE_NOTICE, &notice);
    peer_answer(p, 2, WIRE_STATUS, &r);
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), 0);
    hearth_free(status);
    assert_int_equal(peer_next(p, &ev), 0);

    peer_submit(p, "a");
    peer_tell(p, WIRE_MODEL_PROGRESS, &progress);
    peer_answer(p, 4, WIRE_STATUS, &r);
    assert_int_equal(hearth_status(p->h, &status, NULL, &err), 0);
    hearth_free(status);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_PROGRESS);
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
    peer_greet(p, 1);
    struct wire_model_progress progress = {.model = "m", .done = 1, .total = 2};
    peer_tell(p, WIRE_MODEL_PROGRESS, &progress);
    peer_begin(p, 1, "q");
    peer_tokens(p, 1, 0, "x");
    peer_tokens(p, 1, 1, "y");
    peer_finish(p, 2, 1, "xy", "length");
    assert_int_equal(hearth_run(p->h, &g, count_tokens, &n, NULL, &r, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(r->text.data, "xy");
    hearth_free(r);

    peer_refuse(p, 3, HEARTH_ESESSIONBUSY, "busy");
    assert_int_equal(hearth_run(p->h, &g, NULL, NULL, NULL, &r, &err), HEARTH_ESESSIONBUSY);
    assert_string_equal(err.msg, "busy");

    /* a callback that returns "stop": a cancel is sent, and the result still arrives */
    n = 99;
    peer_begin(p, 2, "q");
    peer_tokens(p, 2, 0, "x");
    peer_tokens(p, 2, 1, "y");
    peer_finish(p, 4, 2, "xy", "cancelled");
    assert_int_equal(hearth_run(p->h, &g, count_tokens, &n, NULL, &r, &err), 0);
    hearth_free(r);
    peer_expect(p, WIRE_HELLO);
    for (int i = 0; i < 3; i++)
        peer_expect(p, WIRE_GENERATE);
    struct wire_cancel *c = peer_expect(p, WIRE_CANCEL);
    assert_int_equal(c->stream, 2);
    peer_expect_silence(p); /* only once */
}

/* On which events on_event calls hearth_status(), how often it did, and the text of the tokens that it received. */
struct asked {
    struct peer *p;
    enum hearth_event_type at;
    int n;
    char text[8];
};

static int ask_for_status(void *arg, const struct hearth_event *ev)
{
    struct asked *a = arg;
    struct hearth_status_result *status;
    if (ev->type == HEARTH_EVENT_TOKENS)
        strcat(a->text, ev->body.tokens->text.data);
    if (ev->type != a->at)
        return 0;
    a->n++;
    assert_int_equal(hearth_status(a->p->h, &status, NULL, &err), 0);
    hearth_free(status);
    return 0;
}

/* The events of the outer call arrive while the inner one waits: all are delivered, in their order. */
static void on_event_makes_blocking_calls(void **state)
{
    struct peer *p = *state;
    struct hearth_generate g;
    struct hearth_generate_result *r = NULL;
    struct hearth_event ev;
    struct wire_status_result status = {.pid = 1};
    struct asked a = {.p = p, .at = HEARTH_EVENT_TOKENS};
    const struct timespec never = {.tv_sec = 10};

    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.text = hearth_text("");
    g.request = "q";
    peer_greet(p, 1);
    peer_begin(p, 1, "q");
    peer_tokens(p, 1, 0, "a");
    peer_tokens(p, 1, 1, "b");
    peer_tokens(p, 1, 2, "c");
    peer_finish(p, 2, 1, "abc", "stop");
    for (uint32_t id = 3; id < 6; id++)
        peer_answer(p, id, WIRE_STATUS, &status);
    assert_int_equal(hearth_run(p->h, &g, ask_for_status, &a, &never, &r, &err), 0);
    assert_string_equal(r->text.data, "abc");
    hearth_free(r);
    assert_int_equal(a.n, 3);
    assert_string_equal(a.text, "abc");
    assert_int_equal(peer_next(p, &ev), 0);
}

static int ask_at_progress(void *arg, const struct hearth_event *ev)
{
    struct asked *a = arg;
    struct hearth_status_result *status;
    assert_int_equal(ev->type, HEARTH_EVENT_PROGRESS);
    if (a->n++)
        return 0;
    assert_int_equal(hearth_status(a->p->h, &status, NULL, &err), 0);
    hearth_free(status);
    return 0;
}

/* So are those that belong to no request. */
static void on_event_misses_no_progress(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    struct asked a = {.p = p};
    const struct timespec never = {.tv_sec = 10};
    struct wire_status_result status = {.pid = 1};
    struct wire_model_progress at = {.model = "m", .total = 3};
    peer_greet(p, 1);
    for (at.done = 1; at.done <= 3; at.done++)
        peer_tell(p, WIRE_MODEL_PROGRESS, &at);
    peer_answer(p, 3, WIRE_STATUS, &status);
    peer_answer(p, 2, WIRE_MODELS_LOAD, &(struct wire_model_load_result){.model = "m", .path = "/m"});
    assert_int_equal(hearth_models_load(p->h, "m", ask_at_progress, &a, &never, NULL, &err), 0);
    assert_int_equal(a.n, 3);
    assert_int_equal(peer_next(p, &ev), 0);
}

static void a_prompt_that_is_read_is_told(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t id = peer_submit(p, "q");
    struct wire_stream_progress s = {.stream = 4, .done = 256, .total = 1000};
    peer_tell(p, WIRE_STREAM_PROGRESS, &s); /* not yet the stream of a request */
    peer_begin(p, 4, "q");
    peer_tell(p, WIRE_STREAM_PROGRESS, &s);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_BEGIN);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_PROMPT);
    assert_int_equal(ev.request, id);
    assert_int_equal(ev.body.prompt->done, 256);
    assert_int_equal(ev.body.prompt->total, 1000);
    assert_int_equal(peer_next(p, &ev), 0);
}

static void who_waits_is_told_where(void **state)
{
    struct peer *p = *state;
    struct hearth_event ev;
    uint32_t id = peer_submit(p, "q");
    struct wire_stream_queued q = {.request = "another's", .position = 1};
    peer_tell(p, WIRE_STREAM_QUEUED, &q);
    q = (struct wire_stream_queued){.request = "q", .position = 3, .seconds = 1.5};
    peer_tell(p, WIRE_STREAM_QUEUED, &q);
    peer_begin(p, 4, "q");
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_QUEUED);
    assert_int_equal(ev.request, id);
    assert_int_equal(ev.body.queued->position, 3);
    assert_true(ev.body.queued->seconds == 1.5);
    assert_int_equal(peer_next(p, &ev), 1);
    assert_int_equal(ev.type, HEARTH_EVENT_BEGIN);
    assert_int_equal(peer_next(p, &ev), 0);
}

static void what_it_would_cost_is_asked(void **state)
{
    struct peer *p = *state;
    struct hearth_generate g;
    struct hearth_measured *m = NULL;
    uint32_t id;
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.text = hearth_text("x");
    peer_greet(p, 1);
    struct wire_measured r = {.prompt_tokens = 9, .reused_tokens = 4, .fits = true};
    peer_answer(p, 2, WIRE_ENGINE_MEASURE, &r);
    assert_int_equal(hearth_measure(p->h, &g, &m, NULL, &err), 0);
    assert_int_equal(m->prompt_tokens, 9);
    assert_int_equal(m->reused_tokens, 4);
    assert_true(m->fits);
    hearth_free(m);
    peer_expect(p, WIRE_HELLO);
    struct wire_generate *sent = peer_expect(p, WIRE_GENERATE);
    assert_true(sent->dry);
    assert_null(sent->request);
    g.dry = true;
    assert_int_equal(hearth_submit(p->h, &g, &id, &err), HEARTH_EPARAMS);
}

static void timeouts_leave_the_connection_usable(void **state)
{
    struct peer *p = *state;
    struct hearth_status_result *status = NULL;
    struct hearth_event ev;
    struct timespec none = {0, 0};

    assert_int_equal(hearth_status(p->h, &status, &none, &err), HEARTH_ETIMEOUT);
    peer_expect(p, WIRE_HELLO);
    peer_greet(p, p->frame.id);
    peer_expect(p, WIRE_STATUS);
    struct wire_status_result r = {.pid = 1};
    peer_answer(p, p->frame.id, WIRE_STATUS, &r);
    assert_int_equal(peer_next(p, &ev), 0); /* the late answer is dropped */

    struct hearth_generate g;
    struct hearth_generate_result *result = NULL;
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.tokens = (struct hearth_ids){(int32_t[]){1, 2}, 2};
    assert_int_equal(hearth_run(p->h, &g, NULL, NULL, &none, &result, &err), HEARTH_ETIMEOUT);
    assert_false(hearth_events(p->h) & HEARTH_WRITE); /* the cancel is sent already: no other call may follow */
    peer_expect(p, WIRE_GENERATE);
    peer_expect(p, WIRE_CANCEL);
    assert_int_equal(hearth_wait(p->h, -1, &none, &err), HEARTH_WAIT_TIMEOUT);
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(write(fd[1], "x", 1), 1);
    assert_int_equal(hearth_wait(p->h, fd[0], NULL, &err), HEARTH_WAIT_FD);
    close(fd[0]);
    close(fd[1]);
}

/* A daemon that sends the next token as soon as the last one was taken, and ends after TOKENS_MAX. */
struct endless {
    struct peer *p;
    int64_t n;
};
enum { TOKENS_MAX = 100000 };

static int send_another(void *arg, const struct hearth_event *ev)
{
    struct endless *d = arg;
    if (ev->type != HEARTH_EVENT_BEGIN && ev->type != HEARTH_EVENT_TOKENS)
        return 0;
    if (d->n < TOKENS_MAX)
        peer_tokens(d->p, 1, d->n++, "x");
    else
        peer_finish(d->p, 2, 1, "", "length");
    return 0;
}

static void a_timeout_ends_a_call_while_its_events_keep_coming(void **state)
{
    struct peer *p = *state;
    struct endless d = {.p = p};
    struct hearth_generate g;
    struct hearth_generate_result *r = NULL;
    struct hearth_event ev;
    const struct timespec soon = {.tv_nsec = 1000000};
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.text = hearth_text("");
    g.request = "q";
    peer_greet(p, 1);
    peer_begin(p, 1, "q");
    assert_int_equal(hearth_run(p->h, &g, send_another, &d, &soon, &r, &err), HEARTH_ETIMEOUT);
    peer_expect(p, WIRE_HELLO);
    peer_expect(p, WIRE_GENERATE);
    assert_int_equal(((struct wire_cancel *)peer_expect(p, WIRE_CANCEL))->stream, 1);
    assert_int_equal(peer_next(p, &ev), 0);
}

/* The events that a call on_event made has queued are those of a request that is abandoned. */
static void events_queued_before_a_timeout_are_discarded(void **state)
{
    struct peer *p = *state;
    struct hearth_generate g;
    struct hearth_generate_result *r = NULL;
    struct hearth_event ev;
    struct asked a = {.p = p, .at = HEARTH_EVENT_BEGIN};
    const struct timespec none = {0, 0};
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    g.text = hearth_text("");
    g.request = "q";
    peer_greet(p, 1);
    peer_begin(p, 1, "q");
    assert_int_equal(hearth_io(p->h, HEARTH_READ, &err), 0);
    peer_tokens(p, 1, 0, "a");
    peer_answer(p, 3, WIRE_STATUS, &(struct wire_status_result){.pid = 1});
    assert_int_equal(hearth_run(p->h, &g, ask_for_status, &a, &none, &r, &err), HEARTH_ETIMEOUT);
    assert_int_equal(a.n, 1);
    assert_int_equal(peer_next(p, &ev), 0);
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
    peer_expect(p, WIRE_HELLO);
    peer_expect_silence(p);
}

/* A program built against a hearth.h that ends after `model`, or that has newer fields. */
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

#define WITH_PEER(f) cmocka_unit_test_setup_teardown(f, peer_setup, peer_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PEER(hello_travels_with_the_first_request),
        WITH_PEER(a_long_name_ends_between_two_characters),
        WITH_PEER(a_name_ends_before_bytes_that_are_no_text),
        WITH_PEER(calls_are_deferred),
        WITH_PEER(two_streams_on_one_connection_are_told_apart),
        WITH_PEER(a_refusal_is_an_event_and_the_connection_lives),
        WITH_PEER(cancel_goes_by_request_before_the_stream_has_a_number),
        WITH_PEER(several_streams_are_one_request),
        WITH_PEER(attach_goes_on_with_a_stream),
        WITH_PEER(a_second_attach_takes_no_events),
        WITH_PEER(blocking_calls_keep_other_streams_events),
        WITH_PEER(blocking_calls_alone_queue_nothing),
        WITH_PEER(run_returns_the_result_and_shows_its_events),
        WITH_PEER(on_event_makes_blocking_calls),
        WITH_PEER(on_event_misses_no_progress),
        WITH_PEER(a_prompt_that_is_read_is_told),
        WITH_PEER(who_waits_is_told_where),
        WITH_PEER(what_it_would_cost_is_asked),
        WITH_PEER(timeouts_leave_the_connection_usable),
        WITH_PEER(a_timeout_ends_a_call_while_its_events_keep_coming),
        WITH_PEER(events_queued_before_a_timeout_are_discarded),
        WITH_PEER(bad_parameters_never_leave),
        WITH_PEER(parameter_structs_of_other_ages_work),
    };
    return cmocka_run_group_tests_name("conn", tests, NULL, NULL);
}
