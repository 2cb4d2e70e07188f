/* kv-go.c - eviction of KV files: to make room, because of their age, with their session; and the notification of the
 * engine. */
#include "config.h"

#include "tests/daemon/kv-files.h"

/* --- to make room, and because of their age ----------------------------------------------------------------------- */

/* Lets a minute pass for the files, and for the next hearthd, without waiting. */
static void a_minute_later(struct box *b)
{
    assert_int_equal(box_stop(b, SIGTERM), 0);
    sql_run(b->db, "UPDATE kv_clock SET wall = wall - 60");
    box_start(b);
}

static void test_limit(void **state)
{
    struct box *b = *state;
    box_configure(b, "kv_disk = 1000\n");
    box_start(b);
    char script[60];
    int64_t one = save(b, "save=1 kvsize=400", NULL);
    a_minute_later(b);
    int64_t two = save(b, "save=1 kvsize=400", NULL);
    a_minute_later(b);
    snprintf(script, sizeof script, "kvused=%lld", (long long)one);
    save(b, script, NULL);
    a_minute_later(b);
    int64_t three = save(b, "save=1 kvsize=400", NULL);
    assert_true(has_file(b, one, 0) && has_file(b, three, 0));
    assert_false(has_file(b, two, 0));
    assert_int_equal(rows(b), 2);
    int64_t four = save(b, "save=1 kvsize=1001", NULL); /* larger than the limit for all files */
    assert_false(has_file(b, four, 0));
    assert_true(has_file(b, one, 0) && has_file(b, three, 0));
    assert_int_equal(rows(b), 2);

    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_configure(b, "kv_disk = 500\n"); /* a smaller limit applies from the start */
    box_start(b);
    assert_true(usage(b).shares[0].bytes <= 500);

    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_configure(b, "kv_disk = 0\n");
    box_start(b);
    assert_int_equal(n_files(b), 0);
    save(b, "save=1", NULL); /* the engine has no folder */
    assert_int_equal(n_files(b), 0);
    assert_int_equal(usage(b).limit, 0);
    box_works(b);
}

/* If each file that is written causes evictions, the log has a line only for many of them. */
static void test_log(void **state)
{
    struct box *b = *state;
    box_configure(b, "kv_disk = 1000\n");
    box_start(b);
    for (int i = 0; i < 4; i++)
        save(b, "save=1 kvsize=600", NULL);
    assert_int_equal(n_files(b), 1);
    assert_int_equal(box_log_count(b, "bytes that there may be"), 1);
    assert_true(box_log_has(b, "1 KV files (600 bytes) give way: 1 are left, of 1000 bytes that there may be"));
}

static void test_quota(void **state)
{
    struct box *b = *state;
    box_configure(b, "kv_disk_per_uid = 1000\n");
    box_start(b);
    int64_t one = save(b, "save=2 kvsize=400", NULL);
    a_minute_later(b);
    int64_t two = save(b, "save=1 kvsize=400", NULL);
    assert_false(has_file(b, one, 1)); /* the end of the older one */
    assert_true(has_file(b, one, 0) && has_file(b, two, 0));
    assert_int_equal(usage(b).limit_per_uid, 1000);
}

/* Files so large that their blocks are freed outside of the event loop. */
static void test_large(void **state)
{
    struct box *b = *state;
    box_configure(b, "kv_disk = 50000000\n");
    box_start(b);
    int64_t one = save(b, "save=2 kvsize=20000000", NULL);
    a_minute_later(b);
    int64_t two = save(b, "save=2 kvsize=20000000", NULL);
    assert_false(has_file(b, one, 0) || has_file(b, one, 1));
    assert_true(has_file(b, two, 0) && has_file(b, two, 1));
    assert_int_equal(usage(b).shares[0].bytes, 40000000);
    box_works(b);
}

/* The beginning of a session does not count as older than its end, but files that its turns no longer use do. */
static void test_session_together(void **state)
{
    struct box *b = *state;
    char script[60];
    for (int replaced = 0; replaced < 2; replaced++) {
        box_configure(b, "kv_disk = 1000\n");
        box_start(b);
        int64_t old = save(b, "save=1 kvsize=300", "mine");
        a_minute_later(b);
        int64_t other = save(b, "save=1 kvsize=300", "other");
        a_minute_later(b);
        snprintf(script, sizeof script, "save=2 kvsize=200 kvused=%lld", (long long)(replaced ? -1 : old));
        int64_t young = save(b, script, "mine");
        assert_true(has_file(b, young, 0) && has_file(b, young, 1));
        a_minute_later(b);
        int64_t more = save(b, "save=1 kvsize=300", NULL);
        assert_int_equal(has_file(b, replaced ? other : old, 0),
                         1); /* `other` is younger than `old`, but has not been used since */
        assert_int_equal(has_file(b, replaced ? old : other, 0), 0);
        assert_true(has_file(b, young, 0) && has_file(b, young, 1) && has_file(b, more, 0));
        assert_int_equal(box_stop(b, SIGTERM), 0);
        box_configure(b, "kv_disk = 0\n"); /* leaves nothing for the next round */
        box_start(b);
        assert_int_equal(box_stop(b, SIGTERM), 0);
    }
}

/* The engine is told which files are gone, so that it does not count on them; and for a file that was just written also
 * that it should not write it again at once. */
static void test_told(void **state)
{
    struct box *b = *state;
    char line[128];
    box_configure(b, "kv_disk = 1000\n");
    box_start(b);
    int64_t old = save(b, "save=1 kvsize=400", "a");
    assert_int_equal(box_stop(b, SIGTERM), 0);
    sql_run(b->db, "UPDATE kv_file SET created = created - 4000, used = used - 4000");
    box_start(b);
    int64_t two = save(b, "save=1 kvsize=601", "b"), three = save(b, "save=1 kvsize=1001", "b");
    usage(b); /* the engine's status comes after what it was told before */
    assert_true(has_file(b, two, 0));
    assert_false(has_file(b, old, 0) || has_file(b, three, 0));
    snprintf(line, sizeof line, "fake-engine: %s is gone\n", name_of(old, 0));
    assert_true(box_log_has(b, line));
    snprintf(line, sizeof line, "fake-engine: %s is gone for now\n", name_of(three, 0));
    assert_true(box_log_has(b, line));

    struct peer *p = peer_open(b); /* a removed session's files are removed with it, however young they are */
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &(struct wire_session_ref){.session = "b"}));
    wire_free(peer_call(p, WIRE_STATUS, NULL));
    peer_close(p);
    snprintf(line, sizeof line, "fake-engine: %s is gone\n", name_of(two, 0));
    assert_true(box_log_has(b, line));
}

/* The wall clock may be wrong for any length of time. */
static void test_clock(void **state)
{
    struct box *b = *state;
    int64_t one = save(b, "save=1", "s");
    static const char *const jumps[] = {
        "UPDATE kv_clock SET wall = wall - 10 * 365 * 86400.0", /* ten years ahead since the last hearthd */
        "UPDATE kv_clock SET wall = wall + 50 * 365 * 86400.0", /* back to the seventies */
        "UPDATE kv_clock SET wall = 1",
        "UPDATE kv_clock SET wall = 9e999, seen = -9e999",
        "UPDATE kv_clock SET wall = 'noon', seen = x'00'",
        "DELETE FROM kv_clock",
        "UPDATE kv_file SET used = 1e15, created = 1e15",
    };
    for (size_t i = 0; i < sizeof jumps / sizeof jumps[0]; i++) {
        assert_int_equal(box_stop(b, SIGTERM), 0);
        sql_run(b->db, jumps[i]);
        box_start(b);
        assert_true(has_file(b, one, 0));
        save(b, "save=1", "s");
    }
    /* Time that has really passed counts: a month of starts, a week apart. */
    for (int i = 0; i < 5; i++) {
        assert_int_equal(box_stop(b, SIGTERM), 0);
        sql_run(b->db, "UPDATE kv_clock SET wall = wall - 8 * 86400.0");
        box_start(b);
    }
    assert_int_equal(n_files(b), 0);
    assert_int_equal(rows(b), 0);
    box_works(b);
}

/* Files that belong to no session are not kept for long. */
static void test_no_session(void **state)
{
    struct box *b = *state;
    int64_t alone = save(b, "save=1", NULL), named = save(b, "save=1", "s");
    assert_int_equal(box_stop(b, SIGTERM), 0);
    sql_run(b->db, "UPDATE kv_clock SET wall = wall - 25 * 3600");
    box_start(b);
    assert_false(has_file(b, alone, 0));
    assert_true(has_file(b, named, 0));
}

/* Shares by user: a user sees the own share, root sees everybody's; and the user with the most is evicted from. */
static void test_other_uid(void **state)
{
    struct box *b = *state;
    if (geteuid() != 0)
        skip();
    box_configure(b, "kv_disk = 1000\n");
    box_start(b);
    box_open_to_all(b);
    int64_t mine = save(b, "save=1 kvsize=300", NULL);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(9);
        if (usage(b).n_shares != 0)
            _exit(1);
        save(b, "save=3 kvsize=200", NULL);
        struct wire_kv_files k = usage(b);
        save(b, "save=1 kvsize=200", NULL);
        _exit(k.n_shares == 1 && k.shares[0].uid == 65534 && k.shares[0].files == 3 && k.shares[0].bytes == 600 ? 0
                                                                                                                : 2);
    }
    assert_int_equal(wait_exit(child), 0);
    assert_true(has_file(b, mine, 0)); /* it is the oldest, but belongs to the other user */
    assert_int_equal(usage(b).n_shares, 2);
    assert_int_equal(sql_run(b->db, "SELECT sum(bytes) FROM kv_file WHERE uid = 65534"), 600);
}

/* --- with their session ------------------------------------------------------------------------------------------- */

/* Whether the word is in the database's log, which also has what was written lately and removed since. */
static bool was_written(const struct box *b, const char *word)
{
    char path[200];
    static char all[8 << 20];
    snprintf(path, sizeof path, "%s-wal", b->db);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, all, sizeof all);
    close(fd);
    assert_true(n > 0 && (size_t)n < sizeof all);
    return memmem(all, (size_t)n, word, strlen(word)) != NULL;
}

static void test_removed_session(void **state)
{
    struct box *b = *state;
    int64_t a1 = save(b, "save=1", "a"), a2 = save(b, "save=2", "a"), other = save(b, "save=1", "b");
    int64_t none = save(b, "save=1", NULL);
    struct peer *p = peer_open(b);
    char script[40];
    int64_t damaged = save(b, "save=1", NULL);
    snprintf(script, sizeof script, "kvbad=%lld", (long long)damaged);
    save(b, script, NULL);
    assert_true(has(b, bad_of(damaged))); /* its owner is unknown */
    assert_int_equal(rename(in_kv(b, name_of(a1, 0)), in_kv(b, bad_of(a1))),
                     0); /* by an engine that died before it could report it */
    struct wire_attach at = {.stream = a2}, at_other = {.stream = other};
    wire_free(peer_call(p, WIRE_STREAM_ATTACH, &at));
    struct wire_session_ref ref = {.session = "a"};
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
    assert_false(has_file(b, a1, 0) || has_file(b, a2, 0) || has_file(b, a2, 1));
    assert_true(has_file(b, other, 0) && has_file(b, none, 0));
    assert_int_equal(rows(b), 2);
    assert_int_equal(n_files(b), 2);
    peer_refused(p, WIRE_STREAM_ATTACH, &at, HEARTH_ENOSTREAM, ""); /* its text is not available that way either */
    wire_free(peer_call(p, WIRE_STREAM_ATTACH, &at_other));

    /* A file that was still being written when its session was removed is removed too, and never had a row, which a
     * crash would leave behind. */
    int64_t late = save(b, "save=2 kvorphan", "b");
    assert_false(has_file(b, late, 0) || has_file(b, late, 1));
    assert_int_equal(rows(b), 2);
    int64_t kept = save(b, "save=1", "b");
    assert_true(has_file(b, kept, 0) && was_written(b, name_of(kept, 0)));
    assert_false(was_written(b, name_of(late, 0)) || was_written(b, name_of(late, 1)));
    peer_close(p);
}

/* Many files are removed in slices, between which hearthd serves clients; those that a crash leaves are removed at the
 * next start. */
static void test_many(void **state)
{
    struct box *b = *state;
    int64_t other = save(b, "save=2", "other");
    for (int round = 0; round < 2; round++) {
        save(b, "save=150 n=150", "many");
        assert_int_equal(rows(b), 152);
        struct peer *p = peer_open(b);
        struct wire_session_ref ref = {.session = "many"};
        wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
        if (round == 0) {
            struct wire_models_list_result *l;
            for (; n_files(b) > 2; wire_free(l))
                l = peer_call(p, WIRE_MODELS_LIST, &(struct wire_empty){0});
            peer_close(p);
        } else {
            peer_close(p);
            assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
            box_start(b);
        }
        assert_int_equal(n_files(b), 2);
        assert_int_equal(rows(b), 2);
        assert_true(has_file(b, other, 0) && has_file(b, other, 1));
    }
}

#define RUNS(f)  cmocka_unit_test_setup_teardown(f, box_setup, box_teardown)
#define ALONE(f) cmocka_unit_test_setup_teardown(f, box_setup_idle, box_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(test_limit), ALONE(test_log),  ALONE(test_quota),     ALONE(test_large),     ALONE(test_session_together),
        ALONE(test_told),  RUNS(test_clock), RUNS(test_no_session), ALONE(test_other_uid), RUNS(test_removed_session),
        RUNS(test_many),
    };
    return cmocka_run_group_tests_name("daemon/kv-go", tests, NULL, NULL);
}
