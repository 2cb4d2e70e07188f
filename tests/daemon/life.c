/* life.c - how sessions end: removed because of their age or to make room, found damaged, or removed without a
 * trace. */
#include "config.h"

#include "tests/daemon/harness.h"
#include "tests/sql.h"

#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- age ---------------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timeval tv;
    gettimeofday(&tv, NULL);
    return (double)tv.tv_sec;
}

static void pin(struct peer *p, const char *session, bool pinned)
{
    struct wire_session_pin s = {.session = session, .pinned = pinned};
    wire_free(peer_call(p, WIRE_SESSIONS_PIN, &s));
}

static void test_age(void **state)
{
    struct box *b = *state;
    enum { DAY = 24 * 3600 };
    box_configure(b, "session_age = 10\n");
    box_start(b);
    struct peer *p = peer_open(b);
    static const char *const names[] = {"old", "pinned", "young", "running"};
    for (int i = 0; i < 4; i++)
        wire_free(run(p, "n=1", names[i]));
    pin(p, "pinned", true);
    struct wire_session_show_result *s = peer_show(p, "young");
    assert_true(s->session.expires == s->session.used + 10 * DAY);
    wire_free(s);
    s = peer_show(p, "pinned");
    assert_true(s->session.pinned && s->session.expires == 0);
    wire_free(s);
    struct wire_generate g = request("gate n=2", "running");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 5);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL); /* so that it continues in the next hearthd */
    sql_runf(b->db, "UPDATE sessions SET used = %f WHERE name <> 'young'", now() - 11 * DAY);
    sql_runf(b->db, "UPDATE sessions SET used = %f WHERE name = 'young'", now() - 9 * DAY);

    /* The clock is a month ahead since the last run: nothing is removed. */
    sql_runf(b->db, "UPDATE clock SET wall = %f, doubt = 0", now() - 30 * DAY);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(peer_sessions(p), 4);
    assert_true(box_log_has(b, "it has jumped"));
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    /* The distrust is stored: a restart does not end it. */
    box_start(b);
    p = peer_open(b);
    assert_int_equal(peer_sessions(p), 4);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);

    /* The clock has run evenly: old sessions are removed, which the log names; not pinned, running or young ones. */
    sql_runf(b->db, "UPDATE clock SET wall = %f, doubt = 0", now() - DAY);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(peer_sessions(p), 3);
    struct wire_session_ref r = {.session = "old"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "old");
    assert_true(box_log_has(b, "session \"old\""));
    assert_true(box_log_has(b, "session_age"));
    peer_close(p);
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static void test_room(void **state)
{
    struct box *b = *state;
    /* A turn "n=1" has 3 bytes of text and 12 of ids, and its completion "t0 " and 4: 22 in all. */
    box_configure(b, "session_bytes_per_uid = 100\nsession_bytes = 60\n");
    box_start(b);
    struct peer *p = peer_open(b);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        wire_free(run(p, "n=1", names[i]));
    wire_free(run(p, "n=1", "a")); /* 110 bytes: b is the least recently used one */
    assert_int_equal(peer_sessions(p), 3);
    struct wire_session_ref r = {.session = "b"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "b");
    assert_true(box_log_has(b, "session \"b\""));
    wire_free(run(p, "n=1", "a")); /* c is removed too */
    r.session = "c";
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "c");
    struct wire_generate g = request("n=1", "a");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "session_bytes"); /* it has 66 bytes already */

    /* Everything that could be removed is pinned: no generation in a session is accepted, but others work. */
    pin(p, "a", true);
    pin(p, "d", true);
    wire_free(run(p, "n=1", "e")); /* 110 */
    pin(p, "e", true);
    g.session = "f";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "no more may be removed now");
    wire_free(run(p, "n=1", NULL));
    assert_int_equal(peer_sessions(p), 3);
    pin(p, "d", false);
    wire_free(run(p, "n=1", "f"));
    assert_int_equal(peer_sessions(p), 3);
    r.session = "d"; /* d was removed for it; with f the total is over the limit again, but f was used last */
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "d");
    peer_close(p);
}

/* Turns that a crash left in the journal make room only when all sessions with recovered streams are known to be in
 * use. */
static void test_room_at_start(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    static const char *const names[] = {"s", "b", "c"};
    for (int i = 0; i < 3; i++)
        wire_free(run(p, "n=1", names[i]));
    wire_free(run(p, "n=4", "late"));
    struct wire_generate g = request("gate n=2", "s");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 5);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    sql_runf(b->db, "DELETE FROM turns WHERE session = (SELECT id FROM sessions WHERE name = 'late');"
                    "DELETE FROM sessions WHERE name = 'late'; DELETE FROM folded WHERE stream = 4");
    box_configure(b, "session_bytes_per_uid = 100\n"); /* 109 bytes with what is in the journal */
    box_start(b);
    p = peer_open(b);
    wire_free(peer_show(p, "s"));
    wire_free(peer_show(p, "late"));
    assert_true(box_log_has(b, "stream 5 of an earlier hearthd goes on"));
    assert_int_equal(peer_sessions(p), 3); /* b was removed */
    peer_close(p);
}

/* Many sessions are removed in slices, between which hearthd serves clients. */
static void test_much_room(void **state)
{
    enum { N = 70 };
    struct box *b = *state;
    struct peer *p = peer_open(b);
    run_many(p, N);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_configure(b, "session_bytes_per_uid = 100\n"); /* the total is 1,540 */
    box_start(b);
    p = peer_open(b);
    while (peer_sessions(p) > 4)
        continue;
    assert_int_equal(peer_sessions(p), 4);
    struct wire_session_ref r = {.session = "s69"};
    wire_free(peer_call(p, WIRE_SESSIONS_SHOW, &r));
    peer_close(p);
}

/* A damaged size counts for nothing: no other session is removed because of it, and nothing is refused. */
static void test_room_and_damage(void **state)
{
    struct box *b = *state;
    box_configure(b, "session_bytes_per_uid = 1000\n");
    box_start(b);
    struct peer *p = peer_open(b);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        wire_free(run(p, "n=1", names[i]));
    for (int damaged = 0; damaged < 2; damaged++) { /* the sum of two exceeds a 64-bit number */
        sql_runf(b->db, "UPDATE sessions SET bytes = bytes + 9000000000000000000 WHERE name = '%s'", names[damaged]);
        wire_free(run(p, "n=1", "d"));
        assert_int_equal(peer_sessions(p), 3 - damaged);
    }
    peer_close(p);
}

/* --- removed ------------------------------------------------------------------------------------------------------ */

/* A damaged session is listed as such, refused, and removed when its owner requests it, with its KV and its journal. */
static void test_damaged_session(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char kv[128];
    wire_free(run(p, "n=1 save=1", "a"));
    wire_free(run(p, "n=1", "b"));
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM kv_file"), 1);
    sql_runf(b->db, "UPDATE sessions SET path = '/other' WHERE name = 'a'");
    sql_runf(b->db, "UPDATE sessions SET name = x'1b5b32004a' WHERE name = 'b'"); /* must not reach a terminal */
    struct wire_sessions_list all = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &all);
    assert_int_equal(l->n_sessions, 2);
    assert_true(l->sessions[0].damaged && l->sessions[1].damaged);
    assert_null(l->sessions[0].name);
    assert_string_equal(l->sessions[1].name, "a");
    struct wire_generate g = request("n=1", "a");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ESTORE, "it can only be removed");
    struct wire_attach at = {.stream = 1};
    struct wire_session_ref r = {.session = "a"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ESTORE, "it can only be removed");
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    peer_refused(p, WIRE_SESSIONS_REMOVE, &r, HEARTH_ENOSESSION, "");
    peer_refused(p, WIRE_STREAM_ATTACH, &at, HEARTH_ENOSTREAM, "");
    r.session = l->sessions[0].id;
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    wire_free(l);
    assert_int_equal(peer_sessions(p), 0);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 0);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM kv_file"), 0);
    snprintf(kv, sizeof kv, "test $(ls '%s/kv' | wc -l) = 0", b->state);
    assert_int_equal(system(kv), 0);
    wire_free(run(p, "n=1", "a"));
    peer_close(p);
}

/* Its id is not a valid one: it is listed all the same, and can be removed by the listed name. */
static void test_damaged_id(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    static const char *const names[] = {"a", "b", "sound"};
    for (int i = 0; i < 3; i++)
        wire_free(run(p, "n=1", names[i]));
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    sql_run(b->db, "UPDATE sessions SET id = 'nonsense' WHERE name = 'a'");
    sql_run(b->db, "UPDATE sessions SET id = x'00' WHERE name = 'b'");
    box_start(b);
    p = peer_open(b);
    assert_true(box_log_has(b, "2 sessions have lost their ids"));
    struct wire_sessions_list all = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &all);
    assert_int_equal(l->n_sessions, 3);
    for (size_t i = 0; i < 3; i++) {
        bool sound = strcmp(l->sessions[i].name, "sound") == 0;
        assert_int_equal(l->sessions[i].damaged, !sound);
        struct wire_session_ref r = {.session = l->sessions[i].id};
        if (!sound)
            wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    }
    wire_free(l);
    assert_int_equal(peer_sessions(p), 1);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 2);
    wire_free(peer_show(p, "sound"));
    peer_close(p);
}

/* Whether the words are in a file of the state directory. */
static bool is_somewhere(const struct box *b, const char *words)
{
    char cmd[256];
    snprintf(cmd, sizeof cmd, "grep -rqs '%s' '%s'", words, b->state);
    int rc = system(cmd);
    return WEXITSTATUS(rc) == 0;
}

/* The text of a removed session is nowhere left on the disk: soon, or after a kill at the next start. */
static void test_gone(void **state)
{
    struct box *b = *state;
    struct wire_session_ref r = {.session = "s"};
    char bad[128], cmd[300];
    for (int round = 0; round < 3; round++) {
        struct peer *p = peer_open(b);
        wire_free(run(p, "n=3 nobody else says this", "s"));
        wire_free(run(p, "n=3 nobody else says this", "s"));
        wire_free(run(p, "n=3", "other"));
        assert_true(is_somewhere(b, "nobody else says"));
        wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
        while (round == 0 && is_somewhere(b, "nobody else says"))
            assert_true(peer_sessions(p) == 1);
        peer_close(p);
        if (round == 1)
            assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
        if (round == 2)
            assert_int_equal(box_stop(b, SIGTERM), 0);
        if (round > 0)
            box_start(b);
        assert_false(is_somewhere(b, "nobody else says"));
    }
    /* The owner of a journal that was set aside is unknown. */
    assert_int_equal(box_stop(b, SIGTERM), 0);
    snprintf(bad, sizeof bad, "%s/journal/99.bad", b->state);
    snprintf(cmd, sizeof cmd, "echo nobody else says this > '%s'", bad);
    assert_int_equal(system(cmd), 0);
    box_start(b);
    struct peer *p = peer_open(b);
    assert_int_equal(access(bad, F_OK), 0);
    r.session = "other";
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    assert_int_equal(access(bad, F_OK), -1);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    box_start(b);
    p = peer_open(b);
    struct wire_generate g = request("n=1", "other");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    assert_int_equal(p->stream, 100); /* its number is not used again */
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_age, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_room, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_room_at_start, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_much_room, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_room_and_damage, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_session, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_id, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_gone, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
