/* full.c - the disk is full: the client still gets its text, and the turn is committed once there is room.
 */
#include "config.h"

#include "tests/daemon/kv-files.h"

enum { LITTLE = 160 << 10 }; /* the database fits in, and not with 300,000 bytes more */

static struct wire_generate a_long_one(const char *session, const char *id)
{
    struct wire_generate g = request("n=3000 size=100", session);
    g.request = id;
    return g;
}

static struct wire_generate_result *generate(struct box *b, const struct wire_generate *g)
{
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, g);
    assert_int_equal(r->text.len, 300000);
    assert_int_equal(p->n_text, 300000); /* and in events before it */
    assert_int_equal(r->tokens.n, 3000);
    peer_close(p);
    return r;
}

/* It fails, and says where room is to be made. */
static int64_t no_room(struct box *b, const struct wire_generate *g)
{
    struct wire_generate_result *r = generate(b, g);
    assert_string_equal(r->finish_reason, "error");
    assert_int_equal(strncmp(r->error, "STORE: ", 7), 0);
    assert_non_null(strstr(r->error, "disk"));
    assert_non_null(strstr(r->error, b->db));
    int64_t stream = r->stream;
    wire_free(r);
    return stream;
}

static void assert_tokens(struct peer *p, const char *session, int64_t n)
{
    struct wire_session_show_result *s = peer_show(p, session);
    assert_int_equal(s->session.tokens, n);
    assert_int_equal(s->tokens.n, n);
    assert_false(s->session.busy);
    wire_free(s);
}

static int64_t peer_tokens(struct peer *p, const char *session)
{
    struct wire_session_show_result *s = peer_show(p, session);
    int64_t n = s->session.tokens;
    wire_free(s);
    return n;
}

static int setup_full(void **state)
{
    box_setup(state);
    struct peer *p = peer_open(*state);
    wire_free(run(p, "n=2", "s"));
    peer_close(p);
    box_limit_files(*state, LITTLE);
    return 0;
}

/* What was kept before is there, and what is small still fits: then the session has gone on without the long one. */
static void test_goes_on(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = a_long_one("s", NULL);
    no_room(b, &g);
    assert_tokens(p, "s", 3 + 2);
    struct wire_generate_result *r = run(p, "n=1", "s");
    assert_string_equal(r->finish_reason, "stop");
    assert_int_equal(r->usage.prompt_tokens, 5 + 3);
    wire_free(r);
    box_limit_files(b, 0);
    assert_tokens(p, "s", 5 + 3 + 1);
    assert_true(box_log_has(b, "the session has 9 tokens, and had 5 when the stream began"));
    peer_close(p);
    box_works(b);
}

/* The same request once more: the same text as long as the disk is full, and then a turn of the session. */
static void test_same_again(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = a_long_one("s", "mine");
    int64_t stream = no_room(b, &g);
    assert_int_equal(no_room(b, &g), stream);
    struct wire_generate other = g;
    other.max_tokens = 5;
    peer_refused(p, WIRE_GENERATE, &other, HEARTH_ECONFLICT, "mine");
    box_limit_files(b, 0);
    for (int i = 0; i < 2; i++) { /* and it is not generated again, though there is no journal of it */
        struct wire_generate_result *r = generate(b, &g);
        assert_int_equal(r->stream, stream);
        assert_string_equal(r->finish_reason, "stop");
        assert_null(r->error);
        wire_free(r);
        assert_tokens(p, "s", 5 + 15 + 3000);
    }
    peer_close(p);
}

/* Whoever comes for the session finds the turn in it: one that was to be a new session's, too. */
static void test_written_later(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate old = a_long_one("s", NULL), new = a_long_one("new", NULL);
    struct wire_session_ref ref = {.session = "new"};
    no_room(b, &old);
    no_room(b, &new);
    no_room(b, &new); /* of these two the last one */
    peer_refused(p, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION, "new");
    box_limit_files(b, 0);
    struct wire_generate_result *r = run(p, "n=1", "s");
    assert_int_equal(r->usage.prompt_tokens, 5 + 15 + 3000 + 3);
    wire_free(r);
    assert_tokens(p, "new", 15 + 3000);
    assert_int_equal(peer_sessions(p), 2);
    peer_close(p);
}

/* A session that is removed takes along what was to be written to it: the request made again is a new one. */
static void test_removed(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = a_long_one("s", "mine");
    struct wire_session_ref ref = {.session = "s"};
    int64_t stream = no_room(b, &g);
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
    box_limit_files(b, 0);
    peer_refused(p, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION, "s");
    struct wire_generate_result *r = generate(b, &g);
    assert_true(r->stream > stream);
    assert_string_equal(r->finish_reason, "stop");
    wire_free(r);
    assert_tokens(p, "s", 15 + 3000);
    peer_close(p);
}

/* An engine that died over it is the reason that is told, and the tokens that it made are written all the same. */
static void test_two_reasons(void **state)
{
    struct box *b = *state;
    struct wire_generate g = request("n=3000 size=100 die!=2990", "s");
    g.request = "mine";
    for (int room = 0; room < 2; room++) {
        struct peer *p = peer_open(b);
        if (room)
            box_limit_files(b, 0);
        struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, &g);
        assert_string_equal(r->finish_reason, "error");
        assert_int_equal(strncmp(r->error, "ENGINE_FAILED: ", 15), 0);
        assert_int_equal(r->tokens.n, 2990);
        wire_free(r);
        assert_tokens(p, "s", room ? 5 + 25 + 2990 : 5);
        peer_close(p);
    }
}

/* While a generation runs in the session nothing comes before it. */
static void test_not_between(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_generate g = a_long_one("s", NULL), running = request("gate n=2", "s");
    no_room(b, &g);
    uint32_t id = peer_ask(q, WIRE_GENERATE, &running);
    peer_await_begin(q, 1);
    box_limit_files(b, 0);
    wire_free(peer_show(p, "s"));
    for (int i = 0; i < 3; i++) /* two tokens and the end */
        peer_tick(p);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(q, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "stop");
    wire_free(r);
    assert_tokens(p, "s", 5 + 8 + 2);
    peer_close(p);
    peer_close(q);
}

/* Nobody comes: then at the end, if there is room by then. */
static void test_end(void **state)
{
    struct box *b = *state;
    struct wire_generate g = a_long_one("s", NULL);
    for (int room = 0; room < 2; room++) {
        no_room(b, &g);
        if (room)
            box_limit_files(b, 0);
        assert_int_equal(box_stop(b, SIGTERM), 0);
        assert_true(box_log_has(b, room ? "is written to session" : "given up"));
        box_start(b);
        struct peer *p = peer_open(b);
        assert_tokens(p, "s", room ? 5 + 15 + 3000 : 5);
        peer_close(p);
        box_limit_files(b, LITTLE);
    }
}

/* Cached KV takes the room: it gives way, and what `file` is, the turn or the stream's journal, is written. */
static void caches_give_way(struct box *b, const char *file)
{
    char preload[4096], gate[128];
    snprintf(preload, sizeof preload, "%s/tests/daemon/.libs/disk.so",
             getenv("top_builddir") ? getenv("top_builddir") : ".");
    assert_int_equal(access(preload, R_OK), 0);
    snprintf(gate, sizeof gate, "%s/gate", b->dir);
    setenv("LD_PRELOAD", preload, 1);
    setenv("FULL_GATE", gate, 1);
    setenv("FULL_OF", in_kv(b, "."), 1);
    setenv("FULL_FOR", file, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    box_start(b);
    unsetenv("LD_PRELOAD");
    int64_t one = save(b, "save=3 kvsize=1000", "s"), two = save(b, "save=1 kvsize=1000", NULL);
    assert_true(has_file(b, one, 2) && has_file(b, two, 0));
    struct peer *p = peer_open(b);
    int64_t before = peer_tokens(p, "s");
    close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    struct wire_generate_result *r = run(p, "n=1", "s");
    assert_string_equal(r->finish_reason, "stop");
    assert_null(r->error);
    assert_tokens(p, "s", before + 3 + 1);
    wire_free(r);
    assert_int_equal(n_files(b), 0);
    assert_int_equal(p->n_notices, 0);
    assert_true(box_log_has(b, "the disk is full: all of 4000 bytes of cached KV give way"));
    peer_close(p);
    assert_int_equal(unlink(gate), 0);
    again(b);
    p = peer_open(b);
    assert_tokens(p, "s", before + 3 + 1);
    peer_close(p);
}

static void test_caches_give_way(void **state)
{
    caches_give_way(*state, "/sessions.db");
}

static void test_caches_give_way_to_a_journal(void **state)
{
    caches_give_way(*state, "/journal/");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_goes_on, setup_full, box_teardown),
        cmocka_unit_test_setup_teardown(test_same_again, setup_full, box_teardown),
        cmocka_unit_test_setup_teardown(test_written_later, setup_full, box_teardown),
        cmocka_unit_test_setup_teardown(test_removed, setup_full, box_teardown),
        cmocka_unit_test_setup_teardown(test_two_reasons, setup_full, box_teardown),
        cmocka_unit_test_setup_teardown(test_not_between, setup_full, box_teardown),
        cmocka_unit_test_setup_teardown(test_end, setup_full, box_teardown),
        cmocka_unit_test_setup_teardown(test_caches_give_way, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_caches_give_way_to_a_journal, box_setup_idle, box_teardown),
    };
    return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
