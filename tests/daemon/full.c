/* full.c - the disk is full: the client still gets its text, and the turn is committed once there is room. */
#include "config.h"

#include <poll.h>

#include "tests/daemon/kv-files.h"

enum { LITTLE = 160 << 10 }; /* the database fits, but not with 300,000 bytes more */

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
    assert_int_equal(p->n_text, 300000); /* and in events before the result */
    assert_int_equal(r->tokens.n, 3000);
    peer_close(p);
    return r;
}

/* The generation fails, with an error that says where to make room. Returns its stream. */
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

/* What was stored before is still there, and a small turn still fits: then the session has continued without the long
 * one. */
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
    assert_true(box_log_has(b, "the session has gone on without it"));
    peer_close(p);
    box_works(b);
}

/* The same request again gives the same text while the disk is full, and then becomes a turn of the session. */
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
    for (int i = 0; i < 2; i++) { /* it is not generated again, although it has no journal */
        struct wire_generate_result *r = generate(b, &g);
        assert_int_equal(r->stream, stream);
        assert_string_equal(r->finish_reason, "stop");
        assert_null(r->error);
        wire_free(r);
        assert_tokens(p, "s", 5 + 15 + 3000);
    }
    peer_close(p);
}

/* The next client that uses the session finds the turn in it, also if the turn is to create a session. */
static void test_written_later(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate old = a_long_one("s", NULL), new = a_long_one("new", NULL);
    struct wire_session_ref ref = {.session = "new"};
    no_room(b, &old);
    no_room(b, &new);
    no_room(b, &new); /* the last one of these two counts */
    peer_refused(p, WIRE_SESSIONS_SHOW, &ref, HEARTH_ENOSESSION, "new");
    box_limit_files(b, 0);
    struct wire_generate_result *r = run(p, "n=1", "s");
    assert_int_equal(r->usage.prompt_tokens, 5 + 15 + 3000 + 3);
    wire_free(r);
    assert_tokens(p, "new", 15 + 3000);
    assert_int_equal(peer_sessions(p), 2);
    peer_close(p);
}

/* When a session is removed, so is what was to be written to it: the same request is then a new one. */
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

/* If the engine died at the same time, that is the reported reason, and the generated tokens are written all the
 * same. */
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

/* While a generation runs in the session, nothing is written before it. */
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

/* If no client uses the session, the turn is written when hearthd ends, if there is room by then. */
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

/* While the file `gate` exists, and the folder `of` has a file with `with` in its name, the disk is full for files with
 * `file` in their path. */
static void start_on_disk(struct box *b, const char *of, const char *with, const char *file, char gate[static 128])
{
    char preload[4096];
    snprintf(preload, sizeof preload, "%s/tests/daemon/.libs/disk.so",
             getenv("top_builddir") ? getenv("top_builddir") : ".");
    assert_int_equal(access(preload, R_OK), 0);
    snprintf(gate, 128, "%s/gate", b->dir);
    setenv("LD_PRELOAD", preload, 1);
    setenv("FULL_GATE", gate, 1);
    setenv("FULL_OF", of, 1);
    setenv("FULL_WITH", with, 1);
    setenv("FULL_FOR", file, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    box_start(b);
    unsetenv("LD_PRELOAD");
}

static void fill_disk(const char *gate)
{
    close(open(gate, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

/* Cached KV fills the disk: it is evicted, so that `file`, the turn or the stream's journal, can be written. */
static void caches_give_way(struct box *b, const char *file)
{
    char gate[128];
    start_on_disk(b, in_kv(b, "."), ".kv", file, gate);
    int64_t one = save(b, "save=3 kvsize=1000", "s"), two = save(b, "save=1 kvsize=1000", NULL);
    assert_true(has_file(b, one, 2) && has_file(b, two, 0));
    struct peer *p = peer_open(b);
    int64_t before = peer_tokens(p, "s");
    fill_disk(gate);
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

/* --- removing ------------------------------------------------------------------------------------------- */

static bool is_attachable(struct peer *p, int64_t stream)
{
    struct wire_attach a = {.stream = stream};
    struct hearth_err e;
    uint32_t id = peer_ask(p, WIRE_STREAM_ATTACH, &a);
    struct wire_generate_result *r = peer_answer(p, id, WIRE_STREAM_ATTACH, &e);
    if (!r)
        assert_int_equal(e.code, HEARTH_ENOSTREAM);
    wire_free(r);
    return r != NULL;
}

static bool has_reserve(const struct box *b)
{
    char path[128];
    struct stat sb;
    snprintf(path, sizeof path, "%s/reserve", b->state);
    return stat(path, &sb) == 0 && sb.st_size >= 256 << 10 && sb.st_blocks * 512 >= 256 << 10;
}

/* Nothing fits except the reserve: a session can be removed all the same, and then each of the others. */
static void test_removes_on_a_full_disk(void **state)
{
    struct box *b = *state;
    char gate[128];
    start_on_disk(b, b->state, "reserve", "/sessions.db", gate);
    struct peer *p = peer_open(b);
    for (int i = 0; i < 2; i++) {
        char name[] = "s0";
        name[1] += (char)i;
        wire_free(run(p, "n=2", name));
        int64_t stream = p->stream;
        assert_true(has_reserve(b));
        fill_disk(gate);
        struct wire_session_ref ref = {.session = name};
        wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
        assert_int_equal(peer_sessions(p), 0);
        assert_false(is_attachable(p, stream));
        assert_int_equal(box_log_count(b, "the disk is full: the reserve gives way"), i + 1);
        assert_int_equal(unlink(gate), 0);
    }
    assert_true(has_reserve(b));
    peer_close(p);
}

/* What cannot be removed remains as it was, with its streams, until there is room. */
static void test_refused_removal_loses_nothing(void **state)
{
    struct box *b = *state;
    char gate[128];
    start_on_disk(b, b->state, "sessions.db", "/sessions.db", gate);
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=2", "s"));
    int64_t stream = p->stream;
    struct wire_session_ref ref = {.session = "s"};
    fill_disk(gate);
    peer_refused(p, WIRE_SESSIONS_REMOVE, &ref, HEARTH_ESTORE, b->db);
    assert_int_equal(peer_sessions(p), 1);
    assert_tokens(p, "s", 3 + 2);
    assert_true(is_attachable(p, stream));
    assert_int_equal(unlink(gate), 0);
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
    assert_false(is_attachable(p, stream));
    peer_close(p);
}

/* Asks for the status until the state directory can be used. */
static void await_state(struct peer *p)
{
    for (bool none = true; none;) {
        struct wire_status_result *status = peer_status(p);
        none = status->no_sessions != NULL;
        wire_free(status);
    }
}

/* Kills hearthd in the midst of session s's second turn, a request that may be asked again; returns the first turn's
 * stream. The second one's has the next number. */
static int64_t kill_in_second_turn(struct box *b, const struct wire_generate *g)
{
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=2", "s"));
    int64_t first = p->stream;
    peer_ask(p, WIRE_GENERATE, g);
    peer_await_begin(p, 2);
    peer_tick(p);
    peer_await_tokens(p, 1);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    return first;
}

/* Asks for that turn again, which goes on in its stream to its fifth token. */
static struct wire_generate_result *end_second_turn(struct peer *p, const struct wire_generate *g, int64_t first)
{
    struct hearth_err e;
    uint32_t id = peer_ask(p, WIRE_GENERATE, g);
    for (int i = 0; i < 5; i++) /* four tokens and the end */
        peer_tick(p);
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_non_null(r);
    assert_int_equal(r->stream, first + 1);
    assert_int_equal(r->tokens.n, 5);
    return r;
}

/* A start on a full disk: sessions are refused with the reason and what to do, until there is room; then the old ones
 * are there, and the stream that ran when the disk became full goes on. */
static void test_full_at_the_start(void **state)
{
    struct box *b = *state;
    char gate[128];
    struct wire_generate g = request("gate n=5", "s");
    g.request = "mine";
    int64_t first = kill_in_second_turn(b, &g);
    assert_int_equal(chmod(b->state, 0770), 0); /* a warning, once */
    snprintf(gate, sizeof gate, "%s/gate", b->dir);
    fill_disk(gate);
    start_on_disk(b, b->state, "sessions.db", "/sessions.db", gate);
    struct peer *p = peer_open(b);
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ESTORE, b->db);
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ESTORE, "when that is mended, ask again");
    wire_free(run(p, "n=2", NULL));
    assert_int_equal(unlink(gate), 0);
    await_state(p);
    assert_int_equal(box_log_count(b, "named sessions are not available"), 1);
    assert_int_equal(box_log_count(b, "can be written by others"), 1);
    assert_true(is_attachable(p, first));
    struct wire_generate_result *r = end_second_turn(p, &g, first);
    assert_tokens(p, "s", 3 + 2 + r->usage.prompt_tokens - 5 + 5);
    wire_free(r);
    wire_free(run(p, "n=1", "new"));
    assert_int_equal(peer_sessions(p), 2);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(peer_sessions(p), 2);
    peer_close(p);
}

/* The bytes of a stream's journal. */
static int64_t journal_size(const struct box *b, int64_t stream)
{
    char path[160];
    struct stat sb;
    snprintf(path, sizeof path, "%s/journal/%lld", b->state, (long long)stream);
    assert_int_equal(stat(path, &sb), 0);
    return sb.st_size;
}

/* The same, and nobody asks for anything any more: the stream goes on all the same, in an engine that runs already. */
static void test_goes_on_unasked(void **state)
{
    enum { MOMENT = 10, PATIENCE = 10000 }; /* ms */
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char gate[128];
    struct wire_generate g = request("n=5", "s");
    struct wire_streams_list all = {0};
    wire_free(run(p, "n=2", "s"));
    int64_t stream = p->stream + 1;
    struct wire_status_result *status = peer_status(p);
    assert_int_equal(kill((pid_t)status->engine.pid, SIGSTOP), 0);
    wire_free(status);
    peer_ask(p, WIRE_GENERATE, &g);
    wire_free(peer_call(p, WIRE_STREAMS_LIST, &all)); /* answered after the request, without the engine */
    int64_t begun = journal_size(b, stream);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    snprintf(gate, sizeof gate, "%s/gate", b->dir);
    fill_disk(gate);
    start_on_disk(b, b->state, "sessions.db", "/sessions.db", gate);
    p = peer_open(b);
    wire_free(run(p, "n=2", NULL));
    assert_int_equal(unlink(gate), 0);
    while (!box_log_has(b, "can be used now")) {
        wire_free(peer_call(p, WIRE_STREAMS_LIST, &all));
        poll(NULL, 0, 10 * MOMENT); /* so that no further request wakes it */
    }
    for (int ms = 0; journal_size(b, stream) == begun && ms < PATIENCE; ms += MOMENT)
        poll(NULL, 0, MOMENT);
    assert_true(journal_size(b, stream) > begun);
    peer_close(p);
}

static void kill_engine(struct peer *p)
{
    struct wire_status_result *status = peer_status(p);
    assert_int_equal(kill((pid_t)status->engine.pid, SIGKILL), 0);
    wire_free(status);
}

/* After a start on a full disk, and once there is room, the engine that runs keeps KV on the disk, and so does the
 * next. */
static void test_kv_after_a_full_start(void **state)
{
    struct box *b = *state;
    char gate[128];
    snprintf(gate, sizeof gate, "%s/gate", b->dir);
    fill_disk(gate);
    start_on_disk(b, b->state, "sessions.db", "/sessions.db", gate);
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=2", NULL));
    assert_int_equal(unlink(gate), 0);
    await_state(p);
    assert_true(has_file(b, save(b, "save=1", "s"), 0));
    kill_engine(p);
    assert_true(has_file(b, save(b, "save=1", "s"), 0));
    peer_close(p);
}

static void await_log(const struct box *b, struct peer *p, const char *text)
{
    while (!box_log_has(b, text))
        wire_free(peer_status(p));
}

/* Only a folder in the state directory cannot be used: it is opened once it can be, and each reason is logged once. No
 * stream gets the number of one in the journals that cannot be read yet. */
static void test_folders_come_later(void **state)
{
    struct box *b = *state;
    char journal[128], aside[128], kv[128];
    struct wire_generate g = request("gate n=5", "s");
    g.request = "mine";
    snprintf(journal, sizeof journal, "%s/journal", b->state);
    snprintf(aside, sizeof aside, "%s/aside", b->state);
    snprintf(kv, sizeof kv, "%s/kv", b->state);
    int64_t first = kill_in_second_turn(b, &g);
    assert_int_equal(rename(journal, aside), 0);
    assert_int_equal(rmdir(kv), 0);
    fill_disk(journal); /* files in their place */
    fill_disk(kv);
    box_start(b);
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=2", "other"));
    assert_true(p->stream > first + 1);
    assert_false(is_attachable(p, first));

    assert_int_equal(unlink(kv), 0);
    await_log(b, p, "/kv can be used now");
    assert_true(has_file(b, save(b, "save=1", "other"), 0));
    assert_int_equal(box_log_count(b, "streams have no journal"), 1);
    assert_int_equal(box_log_count(b, "KV is not kept on the disk"), 1);

    assert_int_equal(unlink(journal), 0);
    assert_int_equal(rename(aside, journal), 0);
    await_log(b, p, "/journal can be used now");
    assert_true(is_attachable(p, first));
    wire_free(end_second_turn(p, &g, first));
    peer_close(p);
}

/* Plants what hearthd leaves on the disk while it removes a session. */
static void plant_removal(const struct box *b, struct peer *p, const char *session, char path[static 160])
{
    struct wire_session_show_result *s = peer_show(p, session);
    snprintf(path, 160, "%s/journal/removing-%u-%s", b->state, (unsigned)geteuid(), s->session.id);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    wire_free(s);
}

/* Killed after a session was removed and before its streams were, and before either: the next start completes the
 * removal. */
static void test_killed_in_a_removal(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char path[2][160];
    wire_free(run(p, "n=2", "s"));
    int64_t removed = p->stream;
    wire_free(run(p, "n=2", "kept"));
    wire_free(run(p, "n=2", "lost")); /* its row is gone for another reason */
    plant_removal(b, p, "s", path[0]);
    plant_removal(b, p, "kept", path[1]);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    sql_run(b->db, "DELETE FROM sessions WHERE name IN ('s', 'lost')");
    box_start(b);
    p = peer_open(b);
    assert_false(is_attachable(p, removed));
    assert_true(is_attachable(p, removed + 1) && is_attachable(p, removed + 2));
    for (int i = 0; i < 2; i++)
        assert_int_equal(access(path[i], F_OK), -1);
    peer_close(p);
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
        cmocka_unit_test_setup_teardown(test_full_at_the_start, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_goes_on_unasked, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_kv_after_a_full_start, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_folders_come_later, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_caches_give_way, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_caches_give_way_to_a_journal, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_removes_on_a_full_disk, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_refused_removal_loses_nothing, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_killed_in_a_removal, box_setup, box_teardown),
    };
    return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
