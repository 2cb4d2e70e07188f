/* session.c - sessions through the socket: created, continued, listed, renamed, removed, and present after a
 * restart. */
#include "config.h"

#include "tests/daemon/harness.h"
#include "tests/sql.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_turn(const struct wire_session_show_result *s, size_t i, const char *role, const char *text,
                        int64_t n_tokens)
{
    assert_true(i < s->n_turns);
    assert_string_equal(s->turns[i].role, role);
    assert_int_equal(s->turns[i].text.len, strlen(text));
    assert_memory_equal(s->turns[i].text.data, text, strlen(text));
    assert_int_equal(s->turns[i].n_tokens, n_tokens);
}

static void test_timeline(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = run(p, "ab n=2", "notes");
    char id[20];
    snprintf(id, sizeof id, "%s", r->session);
    assert_int_equal(strlen(id), 16);
    assert_string_equal(p->session, id);
    wire_free(r);
    struct wire_generate g = request("c n=1", id); /* by its id, and without naming the model again */
    g.model = NULL;
    r = peer_call(p, WIRE_GENERATE, &g);
    assert_string_equal(r->session, id);
    assert_int_equal(r->usage.prompt_tokens, 6 + 2 + 5);
    wire_free(r);

    static const int32_t want[] = {'a', 'b', ' ', 'n', '=', '2', 1000, 1001, 'c', ' ', 'n', '=', '1', 1000};
    for (int i = 0; i < 2; i++) {
        struct wire_session_show_result *s = peer_show(p, "notes");
        assert_int_equal(s->tokens.n, sizeof want / sizeof want[0]);
        assert_memory_equal(s->tokens.v, want, sizeof want);
        assert_int_equal(s->n_turns, 4);
        assert_turn(s, 0, "text", "ab n=2", 6);
        assert_turn(s, 1, "completion", "t0 t1 ", 2);
        assert_turn(s, 3, "completion", "t0 ", 1);
        assert_string_equal(s->session.id, id);
        assert_string_equal(s->session.name, "notes");
        assert_string_equal(s->session.model, "fake");
        assert_int_equal(s->session.tokens, 14);
        assert_true(s->session.used >= s->session.created && s->session.created > 1e9);
        wire_free(s);
        peer_close(p);
        assert_int_equal(box_stop(b, i == 0 ? SIGTERM : SIGKILL), i == 0 ? 0 : 128 + SIGKILL);
        box_start(b); /* everything is there again, after a shutdown and after a kill */
        p = peer_open(b);
    }
    r = run(p, "n=1", "notes");
    assert_int_equal(r->usage.prompt_tokens, 14 + 3);
    wire_free(r);
    peer_close(p);
}

static void test_chat(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_message m[] = {{.role = "system", .content = {"be", 2}}, {.role = "user", .content = {"n=1", 3}}};
    struct wire_generate g = request(NULL, "talk");
    g.messages = m;
    g.n_messages = 2;
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    g.messages = m + 1;
    g.n_messages = 1;
    struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, &g);
    /* the fake engine closes an open turn with one more ">" */
    int64_t first = (int64_t)strlen("<system:be<user:n=1") + 1, second = (int64_t)strlen("><user:n=1");
    assert_int_equal(r->usage.prompt_tokens, first + second);
    wire_free(r);
    struct wire_session_ref ref = {.session = "talk"};
    struct wire_session_show_result *s = peer_call(p, WIRE_SESSIONS_SHOW, &ref);
    assert_int_equal(s->n_turns, 5);
    assert_turn(s, 0, "system", "be", 0);
    assert_turn(s, 1, "user", "n=1", first - 1);
    assert_turn(s, 2, "assistant", "t0 ", 1);
    assert_turn(s, 3, "user", "n=1", second);
    assert_null(s->tokens.v);
    wire_free(s);
    peer_close(p);
}

static void test_tokens(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    static const int32_t ids[] = {'n', '=', '1'};
    struct wire_generate g = request(NULL, "t");
    g.tokens = (struct wire_ids){ids, 3};
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    struct wire_session_show_result *s = peer_show(p, "t");
    assert_memory_equal(s->tokens.v, ids, sizeof ids);
    wire_free(s);
    peer_close(p);
}

static void test_names(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("n=1", "a\nb");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EPARAMS, "control character");
    g.session = "a\xc2\x9b"
                "b"; /* U+009B begins an escape sequence */
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EPARAMS, "control character 0x9b");
    g.session = "0123456789abcdef"; /* an id that does not exist cannot be the name of a new session */
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ENOSESSION, "0123456789abcdef");
    g.session = "new";
    g.model = NULL;
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ENOSESSION, "no model");
    g.model = "nonesuch";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ENOMODEL, "nonesuch");
    g.model = "../fake";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EPARAMS, "absolute path");
    g.model = "/nonexistent.gguf";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ENOMODEL, "No such file");
    g.model = b->models;
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ENOMODEL, "regular file");

    wire_free(run(p, "n=1", "one"));
    wire_free(run(p, "n=1", "\xc3\xa4\xc3\xb6"));
    struct wire_session_rename rn = {.session = "one", .name = "\xc3\xa4\xc3\xb6"};
    peer_refused(p, WIRE_SESSIONS_RENAME, &rn, HEARTH_ESESSIONEXISTS, "");
    rn.name = "0123456789abcdef";
    peer_refused(p, WIRE_SESSIONS_RENAME, &rn, HEARTH_EPARAMS, "an id");
    rn.name = "two";
    wire_free(peer_call(p, WIRE_SESSIONS_RENAME, &rn));
    struct wire_session_ref ref = {.session = "one"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION, "one");
    wire_free(peer_show(p, "two"));
    ref.session = "two";
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
    peer_refused(p, WIRE_SESSIONS_REMOVE, &ref, HEARTH_ENOSESSION, "two");
    struct wire_sessions_list all = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &all);
    assert_int_equal(l->n_sessions, 1);
    assert_string_equal(l->sessions[0].name, "\xc3\xa4\xc3\xb6");
    wire_free(l);
    peer_close(p);
}

/* A long list is returned in pages. */
static void test_pages(void **state)
{
    enum { N = 300 };
    struct box *b = *state;
    struct peer *p = peer_open(b);
    run_many(p, N);
    struct wire_sessions_list page = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &page), *m;
    assert_int_equal(l->n_sessions, 256);
    assert_string_equal(l->sessions[0].name, "s299");
    assert_non_null(l->next);
    page.from = l->next;
    wire_free(run(p, "n=1", "s250")); /* moves to the front, and is not listed again */
    m = peer_call(p, WIRE_SESSIONS_LIST, &page);
    assert_int_equal(m->n_sessions, N - 256);
    assert_string_equal(m->sessions[0].name, "s43");
    assert_int_equal(m->sessions[0].turns, 2);
    assert_null(m->next);
    wire_free(m);
    wire_free(l);
    static const char *const wrong[] = {"s43", "0123456789abcdef0123456789abcdeg", "0123456789abcdef0123456789abcdef0",
                                        "-123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        page.from = wrong[i];
        peer_refused(p, WIRE_SESSIONS_LIST, &page, HEARTH_EPARAMS, "sessions.list.from");
    }
    page.from = "ffffffffffffffff0123456789abcdef"; /* a NaN as the time of use, which no session comes after */
    l = peer_call(p, WIRE_SESSIONS_LIST, &page);
    assert_int_equal(l->n_sessions, 0);
    wire_free(l);
    peer_close(p);
}

static void test_bound_to_a_model(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char *path = box_model(b, "fake");
    wire_free(run(p, "n=1", "s"));
    struct wire_generate g = request("n=1", "s");
    g.model = "other";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EMODELMISMATCH, "other");
    g.model = path; /* the same file by another name */
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    g.model = "fake.gguf";
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    free(path);
    peer_close(p);
}

/* A model's program is returned on request. */
static void test_model_ops(void **state)
{
    struct peer *p = peer_open(*state);
    struct wire_model_show ask = {.model = "fake"};
    struct wire_model *m = peer_call(p, WIRE_MODELS_SHOW, &ask);
    assert_string_equal(m->arch, "fake");
    assert_int_equal(m->n_ops, 0);
    wire_free(m);
    ask.ops = true;
    m = peer_call(p, WIRE_MODELS_SHOW, &ask);
    assert_int_equal(m->n_ops, 1);
    assert_string_equal(m->ops[0].text, "embed (F32; 8 to 2000)");
    wire_free(m);
    ask.model = "nonesuch";
    peer_refused(p, WIRE_MODELS_SHOW, &ask, HEARTH_ENOMODEL, "nonesuch");
    peer_close(p);
}

static void test_model_names(void **state)
{
    struct box *b = *state;
    free(box_model(b, "Tiny-1B-Q4_K_M"));
    free(box_model(b, "Tiny-1B-f16"));
    free(box_model(b, "solo-UD-IQ3_XS"));
    free(box_model(b, "qwen-q8-chat"));
    free(box_model(b, "big-00001-of-00002"));
    free(box_model(b, "big-00002-of-00002"));
    free(box_model(b, "nobody-can-name-\xff")); /* is skipped, and the others are listed */
    struct peer *p = peer_open(b);
    struct wire_model_ref m = {.model = "tiny-1b"};
    peer_refused(p, WIRE_MODELS_LOAD, &m, HEARTH_ENOMODEL, "Tiny-1B-Q4_K_M, Tiny-1B-f16");
    static const char *const good[] = {"Tiny-1B-f16", "tiny-1b-F16.gguf", "solo", "qwen-q8-chat"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        m.model = good[i];
        wire_free(peer_call(p, WIRE_MODELS_LOAD, &m));
    }
    static const char *const bad[] = {"qwen", "tiny", "sol", "Tiny-1B-Q4", ""};
    for (size_t i = 0; i < 4; i++) {
        m.model = bad[i];
        peer_refused(p, WIRE_MODELS_LOAD, &m, HEARTH_ENOMODEL, bad[i]);
    }
    struct wire_empty none = {0};
    struct wire_models_list_result *l = peer_call(p, WIRE_MODELS_LIST, &none);
    bool later = false, first = false;
    for (size_t i = 0; i < l->n_models; i++) {
        first |= strcmp(l->models[i].name, "big-00001-of-00002") == 0;
        later |= strcmp(l->models[i].name, "big-00002-of-00002") == 0;
    }
    assert_true(first && !later);
    wire_free(l);
    struct wire_model *show_model = peer_call(p, WIRE_MODELS_SHOW, &(struct wire_model_show){.model = "solo"});
    assert_string_equal(show_model->name, "solo-UD-IQ3_XS");
    assert_string_equal(show_model->arch, "fake");
    wire_free(show_model);
    peer_close(p);
}

static void test_busy(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_generate g = request("hang", "s");
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_refused(q, WIRE_GENERATE, &g, HEARTH_ESESSIONBUSY, "creating");
    struct wire_session_ref new = {.session = "s"};
    struct wire_session_rename other = {.session = "s", .name = "other"};
    struct wire_session_pin pin = {.session = "s", .pinned = true};
    struct wire_session_adopt adopt = {.session = "s"};
    peer_refused(q, WIRE_SESSIONS_REMOVE, &new, HEARTH_ESESSIONBUSY, "creating");
    peer_refused(q, WIRE_SESSIONS_ADOPT, &adopt, HEARTH_ESESSIONBUSY, "creating");
    peer_refused(q, WIRE_SESSIONS_RENAME, &other, HEARTH_ESESSIONBUSY, "creating");
    peer_refused(q, WIRE_SESSIONS_PIN, &pin, HEARTH_ESESSIONBUSY, "creating");
    peer_refused(q, WIRE_SESSIONS_SHOW, &new, HEARTH_ESESSIONBUSY, "creating");
    struct wire_cancel c = {.stream = p->stream};
    wire_free(peer_call(q, WIRE_CANCEL, &c));
    struct hearth_err e;
    wire_free(peer_answer(p, id, WIRE_GENERATE, &e));
    struct wire_session_ref ref = {.session = "s"};
    peer_refused(q, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION,
                 "s"); /* cancelled before its first token: no session is left behind */

    wire_free(run(p, "n=1", "s"));
    id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 3);
    peer_refused(q, WIRE_GENERATE, &g, HEARTH_ESESSIONBUSY, "running");
    peer_refused(q, WIRE_SESSIONS_REMOVE, &ref, HEARTH_ESESSIONBUSY, "running");
    struct wire_session_rename rn = {.session = "s",
                                     .name = "renamed"}; /* while it runs: its turn still goes to that session */
    wire_free(peer_call(q, WIRE_SESSIONS_RENAME, &rn));
    struct wire_session_show_result *s = peer_show(q, "renamed");
    assert_true(s->session.busy);
    wire_free(s);
    c.stream = p->stream;
    wire_free(peer_call(q, WIRE_CANCEL, &c));
    wire_free(peer_answer(p, id, WIRE_GENERATE, &e));
    struct wire_generate_result *r = run(p, "n=1", "renamed");
    assert_int_equal(r->usage.prompt_tokens, 4 + 3);
    wire_free(r);
    peer_close(p);
    peer_close(q);
}

static void test_limit(void **state)
{
    struct box *b = *state;
    box_configure(b, "sessions_per_uid = 2\nstreams_per_uid = 3\nqueue_per_uid = 0\n");
    box_start(b);
    struct peer *p = peer_open(b);
    struct hearth_err e;
    struct wire_generate g = request("n=1", "c"), h = request("hang", NULL), b_hangs = request("hang", "b");
    wire_free(run(p, "n=1", "a"));
    uint32_t id = peer_ask(p, WIRE_GENERATE, &b_hangs);
    peer_await_begin(p, 2);
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "2 sessions"); /* a session that is being created counts */
    struct wire_cancel c = {.stream = p->stream};
    wire_free(peer_call(p, WIRE_CANCEL, &c));
    wire_free(peer_answer(p, id, WIRE_GENERATE, &e));
    wire_free(run(p, "n=1", "b"));
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "2 sessions");
    wire_free(run(p, "n=1", "a"));
    for (int i = 0; i < 3; i++)
        peer_ask(p, WIRE_GENERATE, &h);
    peer_await_begin(p, 7);
    peer_refused(p, WIRE_GENERATE, &h, HEARTH_ELIMIT, "3 streams");
    peer_close(p);
    /* A limit that was lowered may be exceeded by what exists. */
    box_stop(b, SIGKILL);
    box_configure(b, "sessions_per_uid = 1\n");
    box_start(b);
    p = peer_open(b);
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "2 sessions, and 1 is the limit: sessions_per_uid");
    peer_refused(p, WIRE_SESSIONS_FORK, &(struct wire_session_fork){.session = "a", .at = -1, .count = 1},
                 HEARTH_ELIMIT, "2 sessions, and 1 is the limit: sessions_per_uid");
    peer_close(p);
}

/* Without a usable state directory named sessions are refused with the reason, and everything else works. */
static void without_store(struct box *b, const char *reason)
{
    box_start(b);
    struct peer *p = peer_open(b);
    struct wire_generate g = request("n=1", "s");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ESTORE, reason);
    struct wire_empty none = {0};
    struct wire_status_result *st = peer_status(p);
    assert_non_null(st->no_sessions);
    assert_non_null(strstr(st->no_sessions, reason));
    wire_free(st);
    peer_refused(p, WIRE_SESSIONS_LIST, &(struct wire_sessions_list){0}, HEARTH_ESTORE, reason);
    wire_free(peer_call(p, WIRE_STATUS, &none));
    peer_close(p);
    box_works(b);
    assert_int_equal(box_stop(b, SIGTERM), 0);
}

static void test_no_store(void **state)
{
    struct box *b = *state;
    box_start(b);
    box_stop(b, SIGTERM);
    char cmd[192];
    sql_run(b->db, "PRAGMA user_version = 1000");
    without_store(b, "version 1000");
    snprintf(cmd, sizeof cmd, "head -c 5000 /dev/zero | tr '\\0' 'x' > '%s'", b->db);
    assert_int_equal(system(cmd), 0);
    without_store(b, "damaged");
    snprintf(b->state, sizeof b->state, "/proc/nowhere"); /* where not even root can write */
    without_store(b, "/proc/nowhere");
}

/* Another uid on the same socket: it sees only its own sessions, and may not name files by path. */
static int as_another_user(struct box *b, pid_t *child)
{
    *child = fork();
    if (*child != 0)
        return 0;
    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(9);
    struct peer *p = peer_open(b);
    struct wire_sessions_list all = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &all);
    if (l->n_sessions != 0)
        _exit(1);
    struct wire_session_ref ref = {.session = "mine"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION, "mine");
    peer_refused(p, WIRE_SESSIONS_REMOVE, &ref, HEARTH_ENOSESSION, "mine");
    struct wire_cancel c = {.stream = 2};
    struct wire_cancel_result *r = peer_call(p, WIRE_CANCEL, &c);
    if (r->cancelled)
        _exit(2);
    for (int64_t i = 1; i <= 2; i++) { /* one that has ended, and one that runs */
        struct wire_attach a = {.stream = i};
        peer_refused(p, WIRE_STREAM_ATTACH, &a, HEARTH_ENOSTREAM, "there is no stream");
    }
    struct wire_generate g = request("n=1", "mine"); /* the name is free for this uid */
    g.model = "/etc/passwd";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EDENIED, "another user");
    g.model = "/nonexistent"; /* nor is it told whether there is such a file */
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_EDENIED, "another user");
    g.model = "fake";
    struct wire_generate_result *made = peer_call(p, WIRE_GENERATE, &g);
    if (made->usage.prompt_tokens != 3)
        _exit(3);
    struct wire_model_ref m = {.model = "fake"};
    peer_refused(p, WIRE_MODELS_UNLOAD, &m, HEARTH_EDENIED, "models.unload");
    struct wire_shutdown s = {.now = true};
    peer_refused(p, WIRE_SHUTDOWN, &s, HEARTH_EDENIED, "shutdown");
    _exit(0);
}

static void test_other_uid(void **state)
{
    struct box *b = *state;
    if (geteuid() != 0)
        skip();
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=1", "mine"));
    struct wire_generate g = request("hang", NULL);
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 2);
    assert_int_equal(p->stream, 2);
    box_open_to_all(b);
    pid_t child;
    as_another_user(b, &child);
    assert_int_equal(wait_exit(child), 0);
    struct wire_session_show_result *s = peer_show(p, "mine");
    assert_int_equal(s->session.tokens, 4);
    wire_free(s);
    peer_close(p);
}

/* The bytes that Neovim's client receives: [2, METHOD, [CODE, [event, body]]]. */
static void test_notify_as(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    const char *as[] = {"nvim_exec_lua", "on(...)"};
    struct wire_hello h = {.version_min = 1, .version_max = 1, .notify_as = {as, 2}};
    struct wire_generate g = request("n=1", NULL);
    peer_ask(p, WIRE_HELLO, &h); /* pipelined */
    peer_ask(p, WIRE_GENERATE, &g);
    static const char begin[] =
        "\x93\x02\xadnvim_exec_lua\x92\xa7on(...)\x92\xacstream.begin\x82\xa6stream\x01\xa5model";
    static const char tokens[] = "\x93\x02\xadnvim_exec_lua\x92\xa7on(...)\x92\xadstream.tokens\x85\xa6stream\x01"
                                 "\xa5index\x00\xa5"
                                 "count\x01\xa4text\xa3t0 \xa6tokens\x91\xcd\x03\xe8";
    char got[8192];
    size_t len = 0;
    void *at_begin = NULL, *at_tokens = NULL;
    while (!at_tokens) {
        ssize_t n = read(p->fd, got + len, sizeof got - len);
        assert_true(n > 0);
        len += (size_t)n;
        at_begin = memmem(got, len, begin, sizeof begin - 1);
        at_tokens = memmem(got, len, tokens, sizeof tokens - 1);
    }
    assert_non_null(at_begin);
    assert_true(at_begin < at_tokens);
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_timeline, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_chat, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_tokens, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_names, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_pages, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_bound_to_a_model, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_model_names, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_model_ops, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_busy, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_limit, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_no_store, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_other_uid, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_notify_as, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
