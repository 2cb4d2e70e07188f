/* store.c - sessions on disk: after any reopening everything that was committed is there, and nothing else. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "tests/unit/store/rows.h"

#include "tests/sql.h" /* wants cmocka.h */

/* A lock that another program holds is waited for once, not once per turn; and what was refused works afterwards. */
static void test_locked_by_another(void **state)
{
    enum { N = 40, NAPS_IN_5S = 50 };
    struct box *b = *state;
    struct timespec from, to;
    sqlite3 *other;
    char id[N][STORE_ID_LEN + 1], name[N][8];
    struct hearth_err e;
    assert_int_equal(sqlite3_open(b->db, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < N; i++) {
        snprintf(id[i], sizeof id[i], "%016x", i + 1);
        snprintf(name[i], sizeof name[i], "s%d", i);
        struct store_session s = row(id[i], 1000, name[i]);
        assert_int_equal(store_commit(b->st, &s, true, &one, 1, ++committed, &e), HEARTH_ESTORE);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_true(store_naps(b->st) > 0);
    assert_true(store_naps(b->st) <= NAPS_IN_5S * (1 + (to.tv_sec - from.tv_sec + 1) / 5));
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    for (int i = 0; i < N; i++) {
        struct store_session s = row(id[i], 1000, name[i]);
        commit_ok(b, &s, true, &one, 1);
    }
    int64_t n;
    assert_int_equal(store_count(b->st, 1000, &n, &e), 0);
    assert_int_equal(n, N);
}

/* A file that was deleted or replaced takes no writes, which would be lost with the process. */
static void test_deleted(void **state)
{
    struct box *b = *state;
    struct store_session s = row(ID_A, 1000, "notes"), t = row(ID_B, 1000, "more");
    struct hearth_err e;
    char away[80];
    commit_ok(b, &s, true, &one, 1);
    snprintf(away, sizeof away, "%s.away", b->db);
    assert_int_equal(rename(b->db, away), 0);
    for (int replaced = 0; replaced < 2; replaced++) {
        assert_int_equal(store_commit(b->st, &t, true, &one, 1, ++committed, &e), HEARTH_ESTORE);
        assert_non_null(strstr(e.msg, "was deleted or replaced"));
        assert_int_equal(store_pin(b->st, &s, true, &e), HEARTH_ESTORE);
        assert_int_equal(store_commit_nothing(b->st, ++committed, &e), HEARTH_ESTORE);
        int64_t n;
        assert_int_equal(store_count(b->st, 1000, &n, &e), 0); /* what it had can be read */
        assert_int_equal(n, 1);
        if (!replaced)
            close(open(b->db, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    assert_int_equal(rename(away, b->db), 0);
    commit_ok(b, &t, true, &one, 1);
}

static void test_round_trip(void **state)
{
    struct box *b = *state;
    struct store_session s = row(ID_A, 1000, "notes");
    struct store_turn t[] = {{"text", "once\0upon\xff", 10, ids_one, 4, 1000.5}, {"completion", "", 0, NULL, 0, 1001}};
    commit_ok(b, &s, true, t, 2);
    reopen(b);
    static const char message[] = "{\"role\":\"user\",\"content\":\"go on\",\"name\":\"Ann\"}";
    struct store_turn more = {"user", "go on", 5, ids_two, 2, 1002, .message = message};
    s.turn_open = true;
    s.used = 1002;
    commit_ok(b, &s, false, &more, 1);
    reopen(b);

    struct store_session *got;
    assert_int_equal(store_get(b->st, 1000, "notes", &got, NULL), 0);
    assert_string_equal(got->id, ID_A);
    assert_string_equal(got->model, "tale");
    assert_string_equal(got->path, "/models/tale.gguf");
    assert_true(got->turn_open);
    assert_true(got->created == 1000.5 && got->used == 1002);
    assert_int_equal(got->n_tok, 6);
    assert_int_equal(got->n_turns, 3);

    int32_t *ids;
    size_t n;
    assert_int_equal(store_timeline(b->st, got, &ids, &n, NULL), 0);
    static const int32_t want[] = {1, 258, 65536, INT32_MAX, 7, 0};
    assert_int_equal(n, 6);
    assert_memory_equal(ids, want, sizeof want);
    free(ids);

    struct store_turn *turns;
    assert_int_equal(store_turns(b->st, got, &turns, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_string_equal(turns[0].role, "text");
    assert_int_equal(turns[0].len, 10);
    assert_memory_equal(turns[0].text, "once\0upon\xff", 10);
    assert_int_equal(turns[0].n_ids, 4);
    assert_int_equal(turns[1].len, 0);
    assert_string_equal(turns[2].role, "user");
    assert_null(turns[0].message);
    assert_string_equal(turns[2].message, message);
    assert_int_equal(got->bytes, 10 + 4 * 4 + 5 + 2 * 4 + (int64_t)strlen(message));
    store_turns_free(turns, n);

    /* The message is covered by the turn's checksum, too. */
    sql_run(b->db, "UPDATE turns SET message = replace(message, 'Ann', 'Eve') WHERE seq = 2");
    assert_int_equal(store_timeline(b->st, got, &ids, &n, NULL), HEARTH_ESTORE);
    sql_run(b->db, "UPDATE turns SET message = NULL WHERE seq = 2");
    assert_int_equal(store_timeline(b->st, got, &ids, &n, NULL), HEARTH_ESTORE);
    store_session_free(got);

    struct stat sb;
    assert_int_equal(stat(b->db, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    assert_int_equal(stat(b->dir, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0700);
}

static void test_uids_apart(void **state)
{
    struct box *b = *state;
    struct store_session mine = row(ID_A, 1000, "notes"), theirs = row(ID_B, 1001, "notes");
    commit_ok(b, &mine, true, NULL, 0);
    commit_ok(b, &theirs, true, NULL, 0); /* the same name of another user is another session */
    struct store_session *got, **v;
    size_t n;
    assert_int_equal(store_get(b->st, 1001, "notes", &got, NULL), 0);
    assert_string_equal(got->id, ID_B);
    store_session_free(got);
    assert_int_equal(store_get(b->st, 1001, ID_A, &got, NULL), HEARTH_ENOSESSION);
    assert_int_equal(store_list(b->st, 1000, false, &(struct store_cursor){0}, 100, &v, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_string_equal(v[0]->id, ID_A);
    store_session_free(v[0]);
    free(v);
    int64_t count;
    assert_int_equal(store_count(b->st, 1002, &count, NULL), 0);
    assert_int_equal(count, 0);
}

/* Pages of any size list every session once, the last used first; candidates for removal are listed in the opposite
 * order. */
static void test_pages(void **state)
{
    enum { N = 10 };
    struct box *b = *state;
    char id[STORE_ID_LEN + 1], name[16];
    for (int i = 0; i < N; i++) {
        snprintf(id, sizeof id, "%016x", i);
        snprintf(name, sizeof name, "s%d", i);
        struct store_session s = row(id, 1000, name), other = row(id, 1001, name);
        s.used = other.used = i / 3; /* several have the same time */
        s.pinned = i == 5;
        other.id[0] = 'f';
        commit_ok(b, &s, true, &one, 1);
        commit_ok(b, &other, true, &one, 1);
    }
    struct store_session **v;
    size_t n;
    for (size_t most = 1; most <= N + 1; most++) {
        struct store_cursor at = {0};
        int next = N, unused = 0;
        do {
            assert_int_equal(store_list(b->st, 1000, false, &at, most, &v, &n, NULL), 0);
            assert_in_range(n, 0, most);
            for (size_t i = 0; i < n; i++) {
                snprintf(id, sizeof id, "%016x", --next);
                assert_string_equal(v[i]->id, id);
                assert_int_equal(v[i]->n_turns, 1);
                store_session_free(v[i]);
            }
            free(v);
        } while (at.id[0] != '\0');
        assert_int_equal(next, 0);
        do {
            assert_int_equal(store_list_unused(b->st, 1000, &at, most, &v, &n, NULL), 0);
            for (size_t i = 0; i < n; i++, unused++) {
                snprintf(id, sizeof id, "%016x", unused += unused == 5);
                assert_string_equal(v[i]->id, id);
                store_session_free(v[i]);
            }
            free(v);
        } while (at.id[0] != '\0');
        assert_int_equal(unused, N - 1); /* all but the last used one */
        size_t old = 0;
        do {
            assert_int_equal(store_list_old(b->st, 2, 0, &at, most, &v, &n, NULL), 0);
            for (size_t i = 0; i < n; i++)
                store_session_free(v[i]);
            free(v);
            old += n;
        } while (at.id[0] != '\0');
        assert_int_equal(old, 6 - 1 + 6); /* one of them is pinned */
    }
}

/* The bytes of a user's sessions are kept as a running sum, which equals the computed sum. */
static void test_bytes(void **state)
{
    struct box *b = *state;
    struct store_session a = row(ID_A, 1000, "a"), c = row(ID_B, 1000, "b"), *got;
    int64_t n;
    commit_ok(b, &a, true, &one, 1);
    assert_int_equal(store_bytes(b->st, 1000, &n, NULL), 0);
    assert_int_equal(n, 17);
    commit_ok(b, &a, false, &one, 1);
    commit_ok(b, &c, true, &one, 1);
    assert_int_equal(store_commit(b->st, &c, true, &one, 1, ++committed, NULL),
                     HEARTH_ESESSIONEXISTS); /* counts for nothing */
    assert_int_equal(store_bytes(b->st, 1000, &n, NULL), 0);
    assert_int_equal(n, 3 * 17);
    assert_int_equal(store_get(b->st, 1000, "a", &got, NULL), 0);
    struct store_session new = row(ID_C, 1000, "a");
    assert_int_equal(store_import(b->st, &new, got, &one, 1, NULL), 0);
    store_session_free(got);
    assert_int_equal(store_bytes(b->st, 1000, &n, NULL), 0);
    assert_int_equal(n, 2 * 17);
    assert_int_equal(store_get(b->st, 1000, "b", &got, NULL), 0);
    assert_int_equal(store_remove(b->st, got, NULL), 0);
    store_session_free(got);
    assert_int_equal(store_bytes(b->st, 1000, &n, NULL), 0);
    assert_int_equal(n, 17);
    reopen(b);
    assert_int_equal(store_bytes(b->st, 1000, &n, NULL), 0);
    assert_int_equal(n, 17);
}

/* A session that is imported in parts is invisible until it is complete; if it is dropped, or cut off by a kill,
 * nothing is left. */
static void test_parts(void **state)
{
    struct box *b = *state;
    struct store_session a = row(ID_A, 1000, "a"), c = row(ID_C, 1000, "c"), *got, **list;
    struct store_cursor at = {0};
    struct hearth_err e;
    bool more = true;
    size_t n_list, n_ids;
    int64_t n;
    int32_t *ids;
    commit_ok(b, &a, true, &one, 1);
    assert_int_equal(store_import_begin(b->st, &c, &e), 0);
    assert_int_equal(store_import_part(b->st, &c, &one, 1, &e), 0);
    assert_int_equal(store_import_part(b->st, &c, &one, 1, &e), 0);
    assert_int_equal(store_get(b->st, 1000, ID_C, &got, NULL), HEARTH_ENOSESSION);
    assert_int_equal(store_get(b->st, 1000, "c", &got, NULL), HEARTH_ENOSESSION);
    assert_int_equal(store_list(b->st, 1000, true, &at, 10, &list, &n_list, &e), 0);
    assert_int_equal(n_list, 1);
    store_session_free(list[0]);
    free(list);
    assert_int_equal(store_count(b->st, 1000, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(store_bytes(b->st, 1000, &n, NULL), 0);
    assert_int_equal(n, 17);
    while (more)
        assert_int_equal(store_purge_some(b->st, &more, &e), 0); /* it is not among the removed ones */
    c.name = (char *)"a";
    c.n_turns = 2;
    c.bytes = 2 * 17;
    c.n_tok = 2 * (int64_t)one.n_ids;
    assert_int_equal(store_import_end(b->st, &c, NULL, &e), HEARTH_ESESSIONEXISTS);
    assert_int_equal(store_get(b->st, 1000, "a", &got, NULL), 0);
    assert_int_equal(store_import_end(b->st, &c, got, &e), 0);
    store_session_free(got);
    assert_int_equal(store_get(b->st, 1000, "a", &got, &e), 0);
    assert_string_equal(got->id, ID_C);
    assert_int_equal(store_timeline(b->st, got, &ids, &n_ids, &e), 0);
    assert_int_equal(n_ids, 2 * one.n_ids);
    free(ids);
    store_session_free(got);
    assert_int_equal(store_bytes(b->st, 1000, &n, NULL), 0);
    assert_int_equal(n, 2 * 17);

    struct store_session dropped = row(ID_A, 1000, "d"), killed = row(ID_B, 1000, "e");
    assert_int_equal(store_import_begin(b->st, &dropped, &e), 0);
    assert_int_equal(store_import_part(b->st, &dropped, &one, 1, &e), 0);
    store_import_drop(b->st, &dropped);
    assert_int_equal(store_import_end(b->st, &dropped, NULL, &e), HEARTH_ESTORE);
    assert_int_equal(store_import_begin(b->st, &killed, &e), 0);
    assert_int_equal(store_import_part(b->st, &killed, &one, 1, &e), 0);
    reopen(b);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM sessions"), 1);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 2);
}

static void test_names(void **state)
{
    struct box *b = *state;
    struct store_session a = row(ID_A, 1000, "a"), c = row(ID_C, 1000, "a"), other = row(ID_B, 1000, "b");
    commit_ok(b, &a, true, &one, 1);
    struct hearth_err e;
    assert_int_equal(store_commit(b->st, &c, true, &one, 1, ++committed, &e), HEARTH_ESESSIONEXISTS);
    struct store_session *got;
    assert_int_equal(store_get(b->st, 1000, ID_C, &got, NULL), HEARTH_ENOSESSION); /* all or nothing */
    commit_ok(b, &other, true, NULL, 0);
    assert_int_equal(store_rename(b->st, &other, "a", &e), HEARTH_ESESSIONEXISTS);
    assert_int_equal(store_rename(b->st, &other, "c", &e), 0);
    assert_int_equal(store_get(b->st, 1000, "c", &got, NULL), 0);
    assert_string_equal(got->id, ID_B);
    store_session_free(got);

    assert_int_equal(store_remove(b->st, &a, &e), 0);
    assert_int_equal(store_get(b->st, 1000, "a", &got, NULL), HEARTH_ENOSESSION);
    assert_int_equal(store_commit(b->st, &a, false, &one, 1, ++committed, &e),
                     HEARTH_ENOSESSION); /* removed meanwhile */
    int32_t *ids;
    size_t n;
    assert_int_equal(store_timeline(b->st, &a, &ids, &n, NULL), 0); /* its turns were removed with it */
    assert_int_equal(n, 0);
}

static void test_one_owner(void **state)
{
    struct box *b = *state;
    struct store *other = NULL;
    struct hearth_err e = {0};
    assert_int_equal(store_open(&other, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "in use"));
    reopen(b);
}

/* What the timeline cache has of that session: the number of ids, or -1 if it has to be read from the database. */
static long recalled(struct box *b, const char *name, int32_t *last)
{
    struct store_session *s;
    int32_t *ids;
    size_t n;
    assert_int_equal(store_get(b->st, 1000, name, &s, NULL), 0);
    bool there = timeline_cache_get(b->st, s, &ids, &n);
    store_session_free(s);
    if (!there)
        return -1;
    if (n > 0)
        *last = ids[n - 1];
    free(ids);
    return (long)n;
}

static void test_recall(void **state)
{
    struct box *b = *state;
    struct store_session a = row(ID_A, 1000, "a"), c = row(ID_C, 1000, "c");
    const struct store_ids parts[] = {{ids_one, 4}, {NULL, 0}, {ids_two, 2}};
    struct store_turn two = {"text", "y", 1, ids_two, 2, 1};
    int32_t last = 0;
    commit_ok(b, &a, true, &one, 1);
    commit_ok(b, &c, true, NULL, 0);
    assert_int_equal(recalled(b, "a", &last), -1);
    timeline_cache_put(b->st, ID_A, 1, parts, 2);
    timeline_cache_put(b->st, ID_C, 0, NULL, 0);
    assert_int_equal(recalled(b, "a", &last), 4);
    assert_int_equal(last, INT32_MAX);
    assert_int_equal(recalled(b, "c", &last), 0);

    commit_ok(b, &a, false, &two, 1); /* it has grown since */
    assert_int_equal(recalled(b, "a", &last), -1);
    timeline_cache_put(b->st, ID_A, 2, parts, 3);
    assert_int_equal(recalled(b, "a", &last), 6);
    assert_int_equal(last, 0);
    assert_int_equal(store_rename(b->st, &a, "d", NULL), 0);
    assert_int_equal(recalled(b, "d", &last), 6);

    sql_run(b->db, "UPDATE turns SET tokens = x'01000000' WHERE session = '" ID_A "'"); /* another program */
    assert_int_equal(recalled(b, "d", &last), -1);
    assert_int_equal(recalled(b, "c", &last), -1);
}

/* With many long sessions the oldest are dropped from the cache, and those in use stay. */
static void test_recall_is_bounded(void **state)
{
    enum { LONG = 1 << 20, N = 6 };
    struct box *b = *state;
    int32_t *ids = calloc(LONG, sizeof *ids), *got;
    struct store_session s = row("0000000000000000", 1000, "");
    size_t n, there = 0;
    s.n_tok = LONG;
    for (int i = 0; i < N; i++) {
        s.id[STORE_ID_LEN - 1] = (char)('0' + i);
        timeline_cache_get(b->st, &s, &got, &n); /* looks at the database */
        timeline_cache_put(b->st, s.id, 0, &(struct store_ids){ids, LONG}, 1);
        s.id[STORE_ID_LEN - 1] = '0';
        assert_true(timeline_cache_get(b->st, &s, &got, &n));
        free(got);
    }
    for (int i = 0; i < N; i++) {
        s.id[STORE_ID_LEN - 1] = (char)('0' + i);
        if (!timeline_cache_get(b->st, &s, &got, &n))
            continue;
        there++;
        free(got);
    }
    assert_int_equal(there, 4);
    assert_true(timeline_cache_get(b->st, &s, &got, &n)); /* the last one is still cached */
    free(got);
    free(ids);
}

static void test_killed(void **state)
{
    struct box *b = *state;
    struct store_session s = row(ID_A, 1000, "a");
    commit_ok(b, &s, true, &one, 1);
    store_close(b->st);
    b->st = NULL;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) { /* exits without closing the store */
        struct store *st;
        if (store_open(&st, b->dir, NULL) == 0 && store_commit(st, &s, false, &one, 1, ++committed, NULL) == 0)
            (void)!write(ready[1], "x", 1);
        kill(getpid(), SIGKILL);
    }
    close(ready[1]);
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    struct store_session *got;
    assert_int_equal(store_get(b->st, 1000, "a", &got, NULL), 0);
    assert_int_equal(got->n_tok, 8);
    store_session_free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_locked_by_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deleted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uids_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_owner, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recall, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recall_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
