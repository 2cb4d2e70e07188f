/*
 * crash.c - the real engine is killed while it generates with the embedded model; every text must equal that of an
 * undisturbed run, token for token.
 */
#include "config.h"

#include "tests/daemon/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { TOKENS = 120 };

static char engine_path[4096];

static const char *env_or(const char *name, const char *dflt)
{
    const char *v = getenv(name);
    return v != NULL ? v : dflt;
}

static int setup_idle(void **state)
{
    char line[4096];
    box_setup_idle(state);
    struct box *b = *state;
    snprintf(engine_path, sizeof engine_path, "%s/hearth-engine", env_or("top_builddir", "."));
    b->engine = engine_path;
    snprintf(line, sizeof line, "model_dir = %s/contrib/models\nthreads = 2\n", env_or("top_srcdir", "."));
    box_configure(b, line);
    return 0;
}

static int setup(void **state)
{
    setup_idle(state);
    box_start(*state);
    return 0;
}

static struct wire_generate tale(const char *text, const char *session, double temperature)
{
    struct wire_generate g = request(text, session);
    g.model = "tale";
    g.max_tokens = TOKENS;
    g.sampling.temperature = temperature;
    g.sampling.has_seed = true;
    g.sampling.seed = 20260613;
    return g;
}

static void kill_engine(struct peer *p)
{
    struct wire_empty none = {0};
    struct wire_status_result *st = peer_call(p, WIRE_STATUS, &none);
    assert_true(st->engine.pid > 0);
    assert_int_equal(kill((pid_t)st->engine.pid, SIGKILL), 0);
    wire_free(st);
}

static void assert_same(const struct wire_generate_result *a, const struct wire_generate_result *b)
{
    assert_string_equal(a->finish_reason, b->finish_reason);
    assert_int_equal(a->tokens.n, b->tokens.n);
    assert_memory_equal(a->tokens.v, b->tokens.v, a->tokens.n * sizeof *a->tokens.v);
    assert_int_equal(a->text.len, b->text.len);
    assert_memory_equal(a->text.data, b->text.data, a->text.len);
    assert_int_equal(a->usage.prompt_tokens, b->usage.prompt_tokens);
    assert_int_equal(b->usage.reused_tokens + b->usage.computed_tokens, b->usage.prompt_tokens);
}

static void killed_at(struct box *b, double temperature, int64_t at)
{
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_generate g = tale("Once upon a time there was a king", NULL, temperature);
    struct wire_generate_result *want = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(want->tokens.n, TOKENS);
    p->n_tok = 0;
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 2);
    peer_await_tokens(p, at);
    kill_engine(q);
    struct hearth_err e = {0};
    struct wire_generate_result *got = peer_answer(p, id, WIRE_GENERATE, &e);
    if (!got)
        fail_msg("%s", e.msg);
    assert_same(want, got);
    assert_int_equal(p->n_text, got->text.len); /* the streamed text is the same again */
    assert_memory_equal(p->text, got->text.data, p->n_text);
    wire_free(want);
    wire_free(got);
    peer_close(p);
    peer_close(q);
}

static void test_killed(void **state)
{
    static const int64_t at[] = {1, 17, 64};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        killed_at(*state, 0, at[i]);
        killed_at(*state, 0.8, at[i]);
    }
}

/* Several streams at once, each in a session; afterwards the sessions continue as if nothing had happened. */
static void test_many(void **state)
{
    enum { N = 6 };
    static const char *const prompts[N] = {"A fox", "The old woman",  "In the forest", "\"Who is there?\"",
                                           "Once",  "The prince said"};
    struct box *b = *state;
    struct peer *p[N], *q = peer_open(b);
    struct wire_generate_result *want[N], *got;
    uint32_t id[N];
    for (int i = 0; i < N; i++) {
        struct wire_generate g = tale(prompts[i], NULL, 0.8);
        p[i] = peer_open(b);
        want[i] = peer_call(p[i], WIRE_GENERATE, &g);
        p[i]->n_tok = 0;
    }
    char name[N][16];
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "s%d", i);
        struct wire_generate g = tale(prompts[i], name[i], 0.8);
        id[i] = peer_ask(p[i], WIRE_GENERATE, &g);
    }
    for (int i = 0; i < N; i++)
        peer_await_begin(p[i], 2);
    peer_await_tokens(p[0], 5);
    kill_engine(q);
    struct hearth_err e = {0};
    for (int i = 0; i < N; i++) {
        got = peer_answer(p[i], id[i], WIRE_GENERATE, &e);
        if (!got)
            fail_msg("%s: %s", prompts[i], e.msg);
        assert_same(want[i], got);
        struct wire_generate g = tale(" and", name[i], 0);
        struct wire_generate_result *more = peer_call(p[i], WIRE_GENERATE, &g);
        assert_true(more->usage.prompt_tokens > got->usage.prompt_tokens + (int64_t)got->tokens.n);
        wire_free(more);
        wire_free(got);
        wire_free(want[i]);
        peer_close(p[i]);
    }
    peer_close(q);
}

/* hearthd itself is killed, and with it the engine: the stream continues in the next hearthd, and the same request with
 * the same id attaches to it, from its first token on. */
static void test_daemon_killed(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = tale("Once upon a time", "s", 0.8), more = tale(" The", "control", 0.8);
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    g.session = "control";
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    struct wire_generate_result *want = peer_call(p, WIRE_GENERATE, &more);
    more.session = "s";
    more.request = "once";
    p->n_tok = 0;
    peer_ask(p, WIRE_GENERATE, &more);
    peer_await_begin(p, 4);
    peer_await_tokens(p, 3);
    box_stop(b, SIGKILL);
    peer_close(p);
    box_start(b);
    p = peer_open(b);
    struct wire_generate_result *got = peer_call(p, WIRE_GENERATE, &more);
    assert_same(want, got);
    assert_int_equal(p->n_tok, want->tokens.n);
    struct wire_session_ref ref = {.session = "s", .tokens = true};
    struct wire_session_show_result *s = peer_call(p, WIRE_SESSIONS_SHOW, &ref);
    ref.session = "control";
    struct wire_session_show_result *c = peer_call(p, WIRE_SESSIONS_SHOW, &ref);
    assert_int_equal(s->tokens.n, c->tokens.n); /* every token once */
    assert_memory_equal(s->tokens.v, c->tokens.v, c->tokens.n * sizeof *c->tokens.v);
    assert_int_equal(s->n_turns, c->n_turns);
    wire_free(s);
    wire_free(c);
    wire_free(want);
    wire_free(got);
    peer_close(p);
}

/* hearthd dies while it writes the turn: its only token, which came from the engine together with the end, has been
 * sent by then. */
static void test_sent_before_written(void **state)
{
    struct box *b = *state;
    char preload[4096], at[256], gate[128];
    snprintf(preload, sizeof preload, "%s/tests/daemon/.libs/kill-at.so", env_or("top_builddir", "."));
    assert_int_equal(access(preload, R_OK), 0);
    snprintf(gate, sizeof gate, "%s/gate", b->dir);
    snprintf(at, sizeof at, "sessions.db-wal 1 %s", gate);
    setenv("LD_PRELOAD", preload, 1);
    setenv("KILL_AT", at, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    box_start(b);
    unsetenv("LD_PRELOAD");
    unsetenv("KILL_AT");
    struct peer *p = peer_open(b);
    struct wire_generate g = tale("Once", "s", 0);
    g.max_tokens = 1;
    wire_free(peer_call(p, WIRE_GENERATE, &g)); /* afterwards the model is loaded, and nothing is in progress */
    close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    g.request = "once";
    p->n_tok = 0;
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_tokens(p, 1);
    assert_int_equal(box_stop(b, 0), 128 + SIGKILL);
    peer_close(p);
    box_start(b);
    p = peer_open(b);
    struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(r->tokens.n, 1);
    wire_free(r);
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_daemon_killed, setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_sent_before_written, setup_idle, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
