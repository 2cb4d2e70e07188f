/* stream.c - generations through hearthd: order, cancel, slow readers, engines that die. */
#include "tests/daemon/harness.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

static void test_order(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("n=4 tail", NULL);
    g.request = "mine";
    struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(p->n_begin, 1);
    assert_string_equal(p->request, "mine");
    assert_string_equal(p->session, ""); /* no session is kept */
    assert_string_equal(p->text, "t0 t1 t2 t3 !");
    assert_string_equal(r->text.data, "t0 t1 t2 t3 !");
    assert_string_equal(r->request, "mine");
    assert_null(r->session);
    assert_int_equal(r->tokens.n, 4);
    assert_int_equal(r->tokens.v[3], 1003);
    assert_int_equal(r->usage.prompt_tokens, 8);
    assert_int_equal(r->usage.completion_tokens, 4);
    wire_free(r);

    g.request = NULL; /* a different request */
    g.stream = false; /* only the result */
    p->n_begin = 0;
    r = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(p->n_begin, 0);
    assert_string_equal(r->text.data, "t0 t1 t2 t3 !");
    assert_true(r->seed < (uint64_t)1 << 53); /* drawn, and reported */
    wire_free(r);

    g.sampling.has_seed = true;
    g.sampling.seed = UINT64_MAX;
    r = peer_call(p, WIRE_GENERATE, &g);
    assert_true(r->seed == UINT64_MAX);
    wire_free(r);
    peer_close(p);
}

static void test_out_of_order(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("hang", NULL);
    uint32_t slow = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    wire_free(peer_status(p)); /* answered before the generation */
    struct wire_cancel c = {.stream = p->stream};
    struct wire_cancel_result *cr = peer_call(p, WIRE_CANCEL, &c);
    assert_true(cr->cancelled);
    wire_free(cr);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, slow, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    cr = peer_call(p, WIRE_CANCEL, &c); /* no such stream is running any more */
    assert_false(cr->cancelled);
    wire_free(cr);
    peer_close(p);
}

static void test_cancel_by_request(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_generate g = request("gate n=9", "s");
    g.request = "r1";
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(other);
    peer_tick(other);
    peer_await_tokens(p, 2);
    struct wire_generate same_id = request("n=1", NULL);
    same_id.request = "r1";
    peer_refused(other, WIRE_GENERATE, &same_id, HEARTH_ECONFLICT, "r1");
    struct wire_cancel c = {.stream = -1, .request = "r1"};
    wire_free(peer_call(other, WIRE_CANCEL, &c));
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "cancelled");
    assert_string_equal(r->text.data, "t0 t1 ");
    wire_free(r);
    r = run(p, "n=1", "s"); /* what was generated until then was kept: 8 + 2 + 3 */
    assert_int_equal(r->usage.prompt_tokens, 13);
    wire_free(r);
    peer_close(p);
    peer_close(other);
}

static int setup_no_grace(void **state)
{
    box_setup_idle(state);
    box_configure(*state, "attach_grace = 0\n");
    box_start(*state);
    return 0;
}

static int setup_one_retry(void **state)
{
    box_setup_idle(state);
    box_configure(*state, "stream_retries = 1\n");
    box_start(*state);
    return 0;
}

static int setup_no_retries(void **state)
{
    box_setup_idle(state);
    box_configure(*state, "stream_retries = 0\n");
    box_start(*state);
    return 0;
}

static int setup_least_unsent(void **state)
{
    box_setup_idle(state);
    box_configure(*state, "unsent_bytes = 2M\n");
    box_start(*state);
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int setup_impatient(void **state)
{
    box_setup_idle(state);
    box_configure(*state, "engine_timeout = 3\n");
    box_start(*state);
    return 0;
}

/* An engine that hangs does not exit, so nothing would notice: requests that do not need it are answered, and it is
 * replaced. */
static void test_engine_that_hangs(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_empty none = {0};
    struct wire_generate g = request("gate n=3", NULL);
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    struct wire_status_result *st = peer_status(other);
    assert_string_equal(st->engine.state, "running");
    int64_t pid = st->engine.pid;
    wire_free(st);
    assert_int_equal(kill((pid_t)pid, SIGSTOP), 0);
    st = peer_status(other);
    assert_string_equal(st->engine.state, "not answering");
    assert_int_equal(st->engine.pid, pid);
    wire_free(st);
    struct wire_models_list_result *l = peer_call(other, WIRE_MODELS_LIST, &none);
    assert_true(l->n_models > 0);
    wire_free(l);
    do { /* until the next engine has the stream */
        st = peer_status(other);
        bool replaced = st->engine.pid != pid && strcmp(st->engine.state, "running") == 0;
        wire_free(st);
        if (replaced)
            break;
    } while (true);
    for (int i = 0; i < 4; i++)
        peer_tick(other);
    struct hearth_err e = {0};
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_string_equal(r->text.data, "t0 t1 t2 ");
    assert_int_equal(p->n_notices, 1);
    wire_free(r);
    assert_true(box_log_has(b, "it has not answered for 3 s"));
    peer_close(p);
    peer_close(other);
}

/* With a longer engine_timeout the status also waits longer for the engine, but not the 20 s of the 20 minutes that a
 * box has, and only once: until the engine sends something, further requests do not wait at all. */
static void test_status_waits_for_the_engine(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_empty none = {0};
    struct wire_models_list details = {.details = true};
    struct hearth_err e = {0};
    wire_free(run(p, "n=1", NULL));
    struct wire_status_result *st = peer_status(p);
    pid_t engine = (pid_t)st->engine.pid;
    wire_free(st);
    assert_int_equal(kill(engine, SIGSTOP), 0);
    uint32_t id = peer_ask(p, WIRE_STATUS, &none);
    struct pollfd answer = {p->fd, POLLIN, 0};
    int early = poll(&answer, 1, 700);
    assert_int_equal(kill(engine, SIGCONT), 0);
    assert_int_equal(early, 0);
    st = peer_answer(p, id, WIRE_STATUS, &e);
    assert_string_equal(st->engine.state, "running");
    wire_free(st);
    assert_int_equal(kill(engine, SIGSTOP), 0);
    double began = now();
    for (int i = 0; i < 20; i++) {
        st = peer_status(p);
        assert_string_equal(st->engine.state, "not answering");
        wire_free(st);
        assert_true(now() - began < 19);
    }
    struct wire_models_list_result *l = peer_call(p, WIRE_MODELS_LIST, &details);
    assert_true(l->n_models > 0);
    assert_false(l->models[0].read);
    wire_free(l);
    assert_int_equal(kill(engine, SIGCONT), 0);
    do { /* it is asked again once its late answer has been received */
        l = peer_call(p, WIRE_MODELS_LIST, &details);
        early = l->models[0].read;
        wire_free(l);
    } while (!early);
    peer_close(p);
}

/* If attaching is disabled, a disconnect cancels at once. (By default a stream continues for a while:
 * tests/daemon/journal.c.) */
static void test_disconnect_cancels(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_generate g = request("gate n=9", "s");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(other);
    peer_await_tokens(p, 1);
    peer_close(p);
    for (;;) { /* it ends as soon as the engine has answered */
        struct wire_status_result *st = peer_status(other);
        bool over = st->streams == 0;
        wire_free(st);
        if (over)
            break;
    }
    struct wire_generate_result *r = run(other, "n=1", "s");
    assert_int_equal(r->usage.prompt_tokens, 8 + 1 + 3);
    wire_free(r);
    peer_close(other);
}

/* 6 MB for a peer that does not read, while another one reads its own stream. */
static void test_slow_reader(void **state)
{
    struct box *b = *state;
    struct peer *slow = peer_open(b), *quick = peer_open(b);
    int small = 4096;
    setsockopt(slow->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    struct wire_generate g = request("n=30000 size=200", "slow");
    uint32_t id = peer_ask(slow, WIRE_GENERATE, &g);
    peer_await_begin(slow, 1);
    struct wire_generate_result *r = run(quick, "n=2000", NULL);
    assert_int_equal(r->usage.completion_tokens, 2000);
    wire_free(r);
    /* Its turn is complete and committed although nobody has read it. */
    struct wire_session_ref ref = {.session = "slow"};
    struct hearth_err e;
    struct wire_session_show_result *s = NULL;
    while (!s)
        s = peer_answer(quick, peer_ask(quick, WIRE_SESSIONS_SHOW, &ref), WIRE_SESSIONS_SHOW, &e);
    assert_int_equal(s->session.tokens, 30000 + 16);
    assert_false(s->session.busy);
    wire_free(s);
    struct wire_status_result *st = peer_status(quick);
    assert_int_equal(st->streams, 1); /* still being delivered */
    wire_free(st);
    r = peer_answer(slow, id, WIRE_GENERATE, &e); /* this checks every index */
    assert_non_null(r);
    assert_int_equal(slow->n_tok, 30000);
    assert_int_equal(slow->n_text, 30000 * 200);
    assert_int_equal(r->text.len, slow->n_text);
    assert_memory_equal(r->text.data, slow->text, slow->n_text);
    assert_true(slow->n_tokens_events < 30000); /* it was parked, and caught up with larger frames */
    wire_free(r);
    peer_close(slow);
    peer_close(quick);
}

static int64_t count_streams(struct peer *p)
{
    struct wire_status_result *st = peer_status(p);
    int64_t n = st->streams;
    wire_free(st);
    return n;
}

/* The least allowed unsent_bytes: a stream that the client does not read fast enough, with answers to earlier requests
 * behind it. */
static void test_least_unsent(void **state)
{
    struct box *b = *state;
    struct peer *slow = peer_open(b), *other = peer_open(b);
    enum { BEHIND = 2, TOKENS = 8, BYTES = 60000 };
    struct wire_generate g = request("gate n=8 size=60000", NULL);
    uint32_t id = peer_ask(slow, WIRE_GENERATE, &g), behind[BEHIND];
    peer_await_begin(slow, 1);
    g.stream = false;
    for (int i = 0; i < BEHIND; i++)
        behind[i] = peer_ask(slow, WIRE_GENERATE, &g);
    for (int64_t got = 0; got != 1 + BEHIND;)
        got = count_streams(other);
    for (int i = 0; i < TOKENS + 1; i++)
        peer_tick(other);
    while (count_streams(other) > 1)
        continue;
    struct hearth_err e;
    for (int i = 0; i < BEHIND; i++) {
        struct wire_generate_result *r = peer_answer(slow, behind[i], WIRE_GENERATE, &e);
        assert_non_null(r);
        assert_int_equal(r->text.len, TOKENS * BYTES);
        wire_free(r);
    }
    struct wire_generate_result *r = peer_answer(slow, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_int_equal(slow->n_text, TOKENS * BYTES);
    wire_free(r);
    peer_close(slow);
    peer_close(other);
}

static void test_engine_dies(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = run(p, "n=5 die=3 tail", "s");
    assert_string_equal(r->text.data, "t0 t1 t2 t3 t4 !");
    assert_string_equal(r->finish_reason, "stop");
    assert_int_equal(r->usage.prompt_tokens, 14);
    assert_int_equal(r->usage.reused_tokens + r->usage.computed_tokens, 14);
    assert_in_range(r->usage.restored_tokens, 1,
                    r->usage.reused_tokens); /* the engine also restored tokens that were made before */
    assert_int_equal(p->n_notices, 1);
    wire_free(r);
    struct wire_status_result *st = peer_status(p);
    assert_int_equal(st->engine.restarts, 1);
    wire_free(st);
    r = run(p, "n=1", "s"); /* the timeline is as if nothing had happened */
    assert_int_equal(r->usage.prompt_tokens, 14 + 5 + 3);
    wire_free(r);
    peer_close(p);
}

/* A lost device costs an engine, and no stream; it counts as one death, not two. */
static void test_device_lost(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = run(p, "n=5 fault=3", "s");
    assert_string_equal(r->text.data, "t0 t1 t2 t3 t4 ");
    assert_true(p->n_notices > 0);
    wire_free(r);
    peer_close(p);
}

/* A stream that is submitted again has no more time for its first token than was left. */
static void test_deadline_outlives_the_engine(void **state)
{
    enum { DEADLINE = 3600000 };
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_generate g = request("gate deadline n=1", NULL);
    g.deadline_ms = DEADLINE;
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    double began = now();
    struct wire_status_result *st;
    int64_t pid;
    do {
        st = peer_status(other);
        pid = st->engine.pid;
        wire_free(st);
    } while (now() - began < 0.02); /* 20 ms, which count */
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
    bool replaced = false;
    while (!replaced) { /* until the next engine has the stream */
        st = peer_status(other);
        replaced = st->engine.pid != pid && strcmp(st->engine.state, "running") == 0;
        wire_free(st);
    }
    peer_tick(other);
    peer_tick(other);
    struct hearth_err e = {0};
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_in_range(atoll(r->text.data), 1, DEADLINE - 20);
    wire_free(r);
    peer_close(p);
    peer_close(other);
}

/* A request that kills every engine fails; a stream beside it continues. */
static void test_engine_killer(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *victim = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("gate n=3", "v"), k = request("die!=0", NULL);
    uint32_t vid = peer_ask(victim, WIRE_GENERATE, &g);
    peer_await_begin(victim, 1);
    peer_tick(clock);
    peer_await_tokens(victim, 1);
    uint32_t kid = peer_ask(p, WIRE_GENERATE, &k);
    bool over = false;
    while (!over) { /* each tick gives the victim a token, when an engine has it */
        struct wire_tokenize t = {.model = "fake", .text = {"tick", 4}, .bos = -1};
        struct hearth_err e = {0};
        wire_free(peer_answer(clock, peer_ask(clock, WIRE_TOKENIZE, &t), WIRE_TOKENIZE, &e));
        assert_true(e.code == 0 || e.code == HEARTH_EENGINE); /* the engine may also die during the tick */
        struct wire_status_result *st = peer_status(clock);
        over = st->streams == 0;
        wire_free(st);
    }
    struct hearth_err e = {0};
    assert_null(peer_answer(p, kid, WIRE_GENERATE, &e));
    assert_int_equal(e.code, HEARTH_EENGINE);
    assert_non_null(strstr(e.msg, "killed by signal 9"));
    struct wire_generate_result *r = peer_answer(victim, vid, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_string_equal(r->text.data, "t0 t1 t2 ");
    assert_string_equal(victim->text, "t0 t1 t2 ");
    wire_free(r);
    peer_close(p);
    peer_close(victim);
    peer_close(clock);
    box_works(b);
}

/* Three streams in a row that no engine survives: the fourth is refused. Other models still work. */
static void test_model_refused(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("die!=0", NULL);
    for (int i = 0; i < 3; i++)
        peer_refused(p, WIRE_GENERATE, &g, HEARTH_EENGINE, "killed by signal 9");
    struct wire_status_result *st = peer_status(p);
    int64_t restarts = st->engine.restarts;
    wire_free(st);
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EENGINE, "no engine survived the last 3 generations with this model");
    g = request("n=1", NULL); /* nor is a harmless one tried, since it cannot be told apart */
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EENGINE, "refused for");
    st = peer_status(p);
    assert_int_equal(st->engine.restarts, restarts);
    wire_free(st);
    g.model = "other";
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    peer_close(p);
}

static void test_engine_talks_nonsense(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("garbage=1", "new"), h = request("skip=1 n=3", "new");
    struct hearth_err e = {0};
    struct wire_generate_result *r = peer_answer(p, peer_ask(p, WIRE_GENERATE, &g), WIRE_GENERATE, &e);
    assert_non_null(r); /* it has one token */
    assert_string_equal(r->finish_reason, "error");
    assert_non_null(strstr(r->error, "ENGINE_FAILED"));
    assert_string_equal(r->text.data, "t0 ");
    wire_free(r);
    r = peer_answer(p, peer_ask(p, WIRE_GENERATE, &h), WIRE_GENERATE, &e); /* a gap in the tokens */
    assert_non_null(r);
    assert_string_equal(r->text.data, "t0 ");
    wire_free(r);
    h = request("skip=2 n=3", "new"); /* and one at their end, after which nothing comes */
    r = peer_answer(p, peer_ask(p, WIRE_GENERATE, &h), WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_string_equal(r->finish_reason, "error");
    assert_non_null(strstr(r->error, "made 3 tokens, and 2 have come"));
    assert_string_equal(r->text.data, "t0 t1 ");
    wire_free(r);
    peer_close(p);
    box_works(b);
}

static void test_failures(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("fail=0", "new");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EBADMODEL, "as the prompt said");
    struct wire_session_ref ref = {.session = "new"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION, "new"); /* not left behind */
    wire_free(run(p, "n=1", "old"));
    g.session = "old";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EBADMODEL, "");
    ref.session = "old";
    struct wire_session_show_result *s = peer_call(p, WIRE_SESSIONS_SHOW, &ref);
    assert_int_equal(s->session.tokens, 4); /* unchanged */
    wire_free(s);
    g = request("fail=2", "old"); /* after two tokens, which are kept */
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, peer_ask(p, WIRE_GENERATE, &g), WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "error");
    assert_string_equal(r->error, "MODEL_INVALID: as the prompt said");
    wire_free(r);
    s = peer_call(p, WIRE_SESSIONS_SHOW, &ref);
    assert_int_equal(s->session.tokens, 4 + 6 + 2);
    wire_free(s);
    peer_close(p);
}

static void test_engine_will_not_start(void **state)
{
    static const char *const how[] = {"exit", "version"}, *const says[] = {"before it was ready", "version 99"};
    struct box *b = *state;
    for (size_t i = 0; i < 2; i++) {
        setenv("FAKE_ENGINE", how[i], 1);
        box_start(b);
        unsetenv("FAKE_ENGINE");
        struct peer *p = peer_open(b);
        struct wire_generate g = request("n=1", NULL);
        peer_refused(p, WIRE_GENERATE, &g, HEARTH_EENGINE, says[i]);
        wire_free(peer_status(p));
        peer_close(p);
        box_stop(b, SIGTERM);
    }
    b->engine = "/nonexistent/hearth-engine";
    box_start(b);
    struct peer *p = peer_open(b);
    struct wire_generate g = request("n=1", NULL);
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EENGINE, "/nonexistent/hearth-engine: No such file");
    peer_close(p);
    assert_true(box_log_has(b, "cannot be executed"));
}

static void test_progress(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_model_ref m = {.model = "fake"};
    struct wire_model_load_result *r = peer_call(p, WIRE_MODELS_LOAD, &m);
    assert_int_equal(p->n_progress, 2);
    assert_string_equal(r->model, "fake");
    assert_string_equal(r->where, "cpu");
    assert_string_equal(r->no_gpu, "no room");
    wire_free(r);
    wire_free(peer_status(other));
    assert_int_equal(other->n_progress, 0); /* it does not wait for that model */
    peer_close(p);
    peer_close(other);
}

static void test_prompt_progress(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_generate g = request("prompt=5 n=2", NULL);
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    assert_int_equal(p->n_prompt, 5);
    g.stream = false; /* only the result */
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    assert_int_equal(p->n_prompt, 5);
    wire_free(peer_status(other));
    assert_int_equal(other->n_prompt, 0);
    g = request("prompt=3 die=1 n=2", NULL); /* reading the prompt again after a token is not reported */
    p->n_prompt = 0;
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    assert_int_equal(p->n_prompt, 3);
    peer_close(p);
    peer_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_out_of_order, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_cancel_by_request, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_engine_that_hangs, setup_impatient, box_teardown),
        cmocka_unit_test_setup_teardown(test_status_waits_for_the_engine, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_disconnect_cancels, setup_no_grace, box_teardown),
        cmocka_unit_test_setup_teardown(test_slow_reader, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_least_unsent, setup_least_unsent, box_teardown),
        cmocka_unit_test_setup_teardown(test_engine_dies, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_device_lost, setup_one_retry, box_teardown),
        cmocka_unit_test_setup_teardown(test_deadline_outlives_the_engine, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_engine_killer, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_model_refused, setup_no_retries, box_teardown),
        cmocka_unit_test_setup_teardown(test_engine_talks_nonsense, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_failures, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_engine_will_not_start, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_progress, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_prompt_progress, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
