/* life.c - whole sessions in the store: read in pages, imported, pinned, counted, copied while they change. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/store/store-box.h"
#include "tests/sql.h"

#define ID_A "00000000000000aa"
#define ID_B "00000000000000bb"

static struct store_session row(const char *id, uid_t uid, const char *name, double used)
{
    struct store_session s = {
        .uid = uid, .name = (char *)name, .model = "tale", .path = "/m/tale.gguf", .created = 1000, .used = used};
    snprintf(s.id, sizeof s.id, "%s", id);
    return s;
}

enum { N_TURNS = 5 };
static char texts[N_TURNS][300];
static int32_t ids[N_TURNS][200];
static struct store_turn turns[N_TURNS];

/* Turns that are empty, without text, without ids, and large. */
static void make_turns(void)
{
    static const size_t lens[N_TURNS] = {0, 300, 7, 0, 299}, n_ids[N_TURNS] = {0, 200, 0, 150, 1};
    static const char *const roles[N_TURNS] = {"system", "user", "assistant", "text", "completion"};
    for (int i = 0; i < N_TURNS; i++) {
        for (size_t j = 0; j < sizeof texts[i]; j++)
            texts[i][j] = (char)(i * 31 + (int)j); /* with NULs, and not UTF-8 */
        for (int j = 0; j < 200; j++)
            ids[i][j] = i * 1000000 + j;
        turns[i] = (struct store_turn){.role = roles[i],
                                       .text = texts[i],
                                       .len = lens[i],
                                       .ids = ids[i],
                                       .n_ids = n_ids[i],
                                       .created = i + 0.5,
                                       .generation = i == 4 ? "made" : NULL,
                                       .generation_len = i == 4 ? 4 : 0};
    }
}

/* Checks that the pages of any size, joined, are the turns. */
static void check_pages(struct box *b, const struct store_session *s, size_t bytes, size_t most)
{
    struct hearth_err e;
    int64_t at = 0;
    int turn = -1, pages = 0;
    size_t len = 0, n_ids = 0, whole = 0;
    while (at >= 0) {
        struct store_turn *v;
        size_t n;
        if (store_page(b->st, s, &at, bytes, most, &v, &n, &e) != 0)
            fail_msg("%s", e.msg);
        assert_true(n <= most && (n > 0 || at < 0));
        size_t page = 0;
        for (size_t i = 0; i < n; i++) {
            if (!v[i].continues) {
                if (turn >= 0)
                    whole += len == turns[turn].len && n_ids == turns[turn].n_ids;
                turn++;
                len = n_ids = 0;
                assert_true(turn < N_TURNS);
                assert_int_equal(v[i].generation_len, turns[turn].generation_len);
            } else {
                assert_int_equal(i, 0);
                assert_null(v[i].generation);
            }
            assert_string_equal(v[i].role, turns[turn].role);
            assert_true(v[i].created == turns[turn].created);
            assert_true(len + v[i].len <= turns[turn].len && n_ids + v[i].n_ids <= turns[turn].n_ids);
            assert_memory_equal(v[i].text, turns[turn].text + len, v[i].len);
            if (v[i].n_ids > 0)
                assert_memory_equal(v[i].ids, turns[turn].ids + n_ids, v[i].n_ids * 4);
            len += v[i].len;
            n_ids += v[i].n_ids;
            page += v[i].len + v[i].n_ids * 5;
        }
        assert_true(page <= bytes);
        store_turns_free(v, n);
        pages++;
        assert_true(pages < 10000);
    }
    whole += turn >= 0 && len == turns[turn].len && n_ids == turns[turn].n_ids;
    assert_int_equal(turn, N_TURNS - 1);
    assert_int_equal(whole, N_TURNS);
}

static void test_pages(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    make_turns();
    struct store_session s = row(ID_A, 1000, "a", 1000);
    assert_int_equal(store_import(b->st, &s, NULL, turns, N_TURNS, &e), 0);
    for (size_t bytes = 5; bytes < 400; bytes++)
        check_pages(b, &s, bytes, 4096);
    for (size_t most = 1; most <= N_TURNS + 1; most++) {
        check_pages(b, &s, 1 << 20, most);
        check_pages(b, &s, 64, most);
    }
    /* Positions past the end, or that no page returned, give an empty page. */
    static const int64_t odd[] = {INT64_MAX, INT64_MAX - 1, 963, 100000};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct store_turn *v;
        size_t n;
        int64_t at = odd[i];
        assert_int_equal(store_page(b->st, &s, &at, 1000, 10, &v, &n, &e), 0);
        assert_int_equal(at, -1);
        store_turns_free(v, n);
    }
}

static void test_import(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    make_turns();
    struct store_session s = row(ID_A, 1000, "a", 5), other = row(ID_B, 1000, "a", 6), *got;
    s.pinned = s.turn_open = true;
    assert_int_equal(store_import(b->st, &s, NULL, turns, N_TURNS, &e), 0);
    assert_int_equal(store_get(b->st, 1000, "a", &got, &e), 0);
    assert_true(got->pinned && got->turn_open);
    assert_int_equal(got->n_turns, N_TURNS);
    assert_int_equal(got->bytes, 300 + 7 + 299 + 4 * (200 + 150 + 1));
    store_session_free(got);
    /* If the name is taken, nothing happens. With a replacement, the old session is gone, with its turns. */
    assert_int_equal(store_import(b->st, &other, NULL, turns, 1, &e), HEARTH_ESESSIONEXISTS);
    assert_int_equal(store_import(b->st, &other, &s, turns, 2, &e), 0);
    assert_int_equal(store_get(b->st, 1000, ID_A, &got, &e), HEARTH_ENOSESSION);
    assert_int_equal(store_get(b->st, 1000, "a", &got, &e), 0);
    assert_string_equal(got->id, ID_B);
    assert_int_equal(got->n_turns, 2);
    store_session_free(got);
    struct store_turn *v;
    size_t n;
    assert_int_equal(store_turns(b->st, &s, &v, &n, &e), 0);
    assert_int_equal(n, 0);
    store_turns_free(v, n);
}

static void test_limits(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    make_turns();
    static const char *const id[] = {"0000000000000001", "0000000000000002", "0000000000000003", "0000000000000004"};
    for (int i = 0; i < 4; i++) {
        struct store_session s = row(id[i], i == 3 ? 7 : 1000, id[i] + 15, 100 - i);
        assert_int_equal(store_import(b->st, &s, NULL, &turns[1], 1, &e), 0);
    }
    int64_t bytes;
    assert_int_equal(store_bytes(b->st, 1000, &bytes, &e), 0);
    assert_int_equal(bytes, 3 * (300 + 800));
    assert_int_equal(store_bytes(b->st, 1, &bytes, &e), 0);
    assert_int_equal(bytes, 0);
    uid_t *uids;
    size_t n;
    assert_int_equal(store_uids(b->st, &uids, &n, &e), 0);
    assert_int_equal(n, 2);
    free(uids);
    struct store_session pinned = row(id[2], 1000, "3", 98), **v;
    assert_int_equal(store_pin(b->st, &pinned, true, &e), 0);
    assert_int_equal(store_list_old(b->st, 100, 0, &(struct store_cursor){0}, 100, &v, &n, &e),
                     0); /* of all uids, the oldest first, without the pinned one */
    assert_int_equal(n, 2);
    assert_string_equal(v[0]->id, id[3]);
    assert_string_equal(v[1]->id, id[1]);
    store_session_free(v[0]);
    store_session_free(v[1]);
    free(v);
    assert_int_equal(store_pin(b->st, &pinned, false, &e), 0);
    assert_int_equal(store_list_old(b->st, 100, 0, &(struct store_cursor){0}, 100, &v, &n, &e), 0);
    assert_int_equal(n, 3);
    while (n > 0)
        store_session_free(v[--n]);
    free(v);
    double wall, holdoff;
    assert_int_equal(store_get_clock(b->st, &wall, &holdoff, &e), 0);
    assert_true(wall == 0 && holdoff == 0);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(store_set_clock(b->st, i * 1e9, i, &e), 0);
        assert_int_equal(store_get_clock(b->st, &wall, &holdoff, &e), 0);
        assert_true(wall == i * 1e9 && holdoff == i);
    }
}

/* --- damage ---------------------------------------------------------------------------------------------- */

static int tried, refused;

/* With any contents of the file, each call works or reports what is damaged, and its results can be sent to a
 * client. */
static void use_all(struct box *b)
{
    struct hearth_err e;
    struct store_session **v = NULL, *s;
    size_t n = 0;
    tried++;
    if (store_open(&b->st, b->dir, &e) != 0) {
        b->st = NULL;
        refused++;
        assert_non_null(strstr(e.msg, "session"));
        return;
    }
    int bad = store_list(b->st, 1000, false, &(struct store_cursor){0}, 100, &v, &n, &e) != 0;
    for (size_t i = 0; i < n; i++) {
        s = v[i];
        if (s->damaged) { /* it can be removed, as far as the file can be written to at all */
            bad = 1;
            if (store_remove(b->st, s, &e) == 0)
                assert_int_equal(store_find(b->st, 1000, s->id, &s, &e), HEARTH_ENOSESSION);
            store_session_free(v[i]);
            continue;
        }
        assert_true(s->bytes >= 0 && s->n_tok >= 0 && s->used > -1e18 && s->used < 1e18 && s->created < 1e18);
        struct store_turn *t;
        int32_t *timeline;
        size_t m;
        int64_t at = 0;
        int rc = store_timeline(b->st, s, &timeline, &m, &e);
        for (size_t j = 0; !rc && j < m; j++)
            assert_true(timeline[j] >= 0);
        if (!rc)
            free(timeline);
        bad |= rc != 0;
        if ((rc = store_turns(b->st, s, &t, &m, &e)) == 0) {
            for (size_t j = 0; j < m; j++)
                assert_true(t[j].created > -1e18 && t[j].created < 1e18 && t[j].role[0] != '\0');
            store_turns_free(t, m);
        }
        bad |= rc != 0;
        for (int pages = 0; !rc && at >= 0; pages++) {
            assert_true(pages < 1000000);
            if ((rc = store_page(b->st, s, &at, 1000, 3, &t, &m, &e)) == 0)
                store_turns_free(t, m);
        }
        bad |= rc != 0;
        store_session_free(s);
    }
    free(v);
    refused += bad || n < 1;
    struct store_session mine = row("00000000000000cc", 2000, "other", 1); /* another session is not affected */
    if (!bad && store_commit(b->st, &mine, true, &turns[1], 1, 99, &e) == 0) {
        assert_int_equal(store_get(b->st, 2000, "other", &s, &e), 0);
        store_session_free(s);
    }
    double wall, holdoff;
    store_get_clock(b->st, &wall, &holdoff, &e);
    store_close(b->st);
    b->st = NULL;
}

static void test_damaged_rows(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    static const char *const columns[] = {
        "sessions SET id",    "sessions SET uid",       "sessions SET name",    "sessions SET model",
        "sessions SET path",  "sessions SET turn_open", "sessions SET created", "sessions SET used",
        "sessions SET bytes", "sessions SET pinned",    "sessions SET n_turns", "sessions SET n_tok",
        "sessions SET sum",   "turns SET seq",          "turns SET role",       "turns SET text",
        "turns SET tokens",   "turns SET created",      "turns SET made",       "clock SET wall",
        "clock SET doubt",
    };
    static const char *const values[] = {"-1",
                                         "''",
                                         "'x'",
                                         "1e300",
                                         "-9e999",
                                         "x''",
                                         "x'ff'",
                                         "9223372036854775807",
                                         "zeroblob(100003)",
                                         "cast(x'61006200' AS TEXT)",
                                         "'\xff\xc0'"};
    make_turns();
    char path[80];
    snprintf(path, sizeof path, "%s/sessions.db", b->dir);
    for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            struct store_session s = row(ID_A, 1000, "a", 5);
            if (!b->st)
                assert_int_equal(store_open(&b->st, b->dir, &e), 0);
            assert_int_equal(store_import(b->st, &s, NULL, turns, N_TURNS, &e), 0);
            assert_int_equal(store_set_clock(b->st, 1, 1, &e), 0);
            store_close(b->st);
            b->st = NULL;
            char sql[200];
            /* OR IGNORE: changes that the schema itself refuses need not be tested */
            snprintf(sql, sizeof sql, "UPDATE OR IGNORE %s = %s", columns[c], values[v]);
            sql_run(path, sql);
            use_all(b);
            sql_run(path, "DELETE FROM turns; DELETE FROM sessions; DELETE FROM folded");
        }
    print_message("%d rows damaged, %d of them noticed\n", tried, refused);
    assert_true(tried >= 198 && refused > 60);
}

static void test_damaged_files(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    char path[80], cmd[300];
    make_turns();
    struct store_session s = row(ID_A, 1000, "a", 5);
    assert_int_equal(store_import(b->st, &s, NULL, turns, N_TURNS, &e), 0);
    store_close(b->st);
    b->st = NULL;
    snprintf(path, sizeof path, "%s/sessions.db", b->dir);
    snprintf(cmd, sizeof cmd, "cp '%s' '%s.good'", path, path);
    assert_int_equal(system(cmd), 0);
    struct stat sb;
    assert_int_equal(stat(path, &sb), 0);
    tried = refused = 0;
    uint64_t seed = 1;
    for (int i = 0; i < 200; i++) {
        snprintf(cmd, sizeof cmd, "cd '%s' && rm -f sessions.db-wal sessions.db-shm && cp sessions.db.good sessions.db",
                 b->dir);
        assert_int_equal(system(cmd), 0);
        int fd = open(path, O_RDWR);
        if (i % 4 == 0) { /* truncated */
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            assert_int_equal(ftruncate(fd, (off_t)((seed >> 33) % (uint64_t)sb.st_size)), 0);
        }
        for (int k = 0; k < i % 7 && i % 4 != 0; k++) { /* some bytes changed */
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint8_t byte = (uint8_t)(seed >> 24);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)((seed >> 33) % (uint64_t)sb.st_size)), 1);
        }
        close(fd);
        use_all(b);
    }
    print_message("%d files damaged, %d of them noticed\n", tried, refused);
    assert_true(refused > 40);
}

/* --- copies ---------------------------------------------------------------------------------------------- */

struct copier {
    struct box *b;
    char to[80];
    int rc;
    struct hearth_err e;
};

static void *copy_main(void *arg)
{
    struct copier *c = arg;
    c->rc = store_copy(store_path(c->b->st), c->to, false, NULL, NULL, &c->e);
    return NULL;
}

/* Every copy that is made while turns are being committed is complete, and has all turns that were there when it
 * began. */
static void test_copy_meanwhile(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    make_turns();
    struct store_session s = row(ID_A, 1000, "a", 1000);
    assert_int_equal(store_import(b->st, &s, NULL, turns, N_TURNS, &e), 0);
    int64_t stream = 0;
    for (int i = 0; i < 10; i++) {
        struct copier c = {.b = b};
        pthread_t thread;
        int64_t before = N_TURNS + stream;
        snprintf(c.to, sizeof c.to, "%s/copy%d", b->dir, i);
        assert_int_equal(pthread_create(&thread, NULL, copy_main, &c), 0);
        for (int j = 0; j < 50; j++)
            if (store_commit(b->st, &s, false, &turns[1], 1, ++stream, &e) != 0)
                fail_msg("%s", e.msg); /* a copy blocks nobody */
        pthread_join(thread, NULL);
        if (c.rc != 0)
            fail_msg("%s", c.e.msg);
        int64_t has = sql_run(c.to, "SELECT count(*) FROM turns");
        assert_true(has >= before && has <= N_TURNS + stream);
        assert_int_equal(sql_run(c.to, "SELECT count(*) FROM folded") + N_TURNS, has); /* whole transactions */
        assert_int_equal(sql_run(c.to, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
        struct stat sb;
        assert_int_equal(stat(c.to, &sb), 0);
        assert_int_equal(sb.st_mode & 0777, 0600);
    }
}

static void test_copy_in_the_way(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    char to[80], cmd[128];
    snprintf(to, sizeof to, "%s/copy", b->dir);
    int fd = open(to, O_CREAT | O_WRONLY, 0644);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
    assert_int_equal(store_copy(store_path(b->st), to, false, NULL, NULL, &e), HEARTH_EIO);
    struct stat sb;
    assert_int_equal(stat(to, &sb), 0);
    assert_int_equal(sb.st_size, 4);
    int64_t bytes;
    assert_int_equal(store_copy(store_path(b->st), to, true, NULL, &bytes, &e), 0);
    assert_int_equal(stat(to, &sb), 0);
    assert_int_equal(sb.st_size, bytes);
    assert_int_equal(sb.st_mode & 0777, 0600);
    assert_int_equal(store_copy(store_path(b->st), "relative", false, NULL, NULL, &e), HEARTH_EPARAMS);
    assert_int_equal(store_copy(store_path(b->st), "/no/such/place", false, NULL, NULL, &e), HEARTH_EIO);
    assert_non_null(strstr(e.msg, "/no/such/place"));
    static const atomic_bool stop = true;
    snprintf(to, sizeof to, "%s/stopped", b->dir);
    assert_int_equal(store_copy(store_path(b->st), to, false, &stop, NULL, &e), HEARTH_ESHUTDOWN);
    snprintf(cmd, sizeof cmd, "test $(ls '%s' | grep -c -e stopped -e 'copy[.]') = 0", b->dir);
    assert_int_equal(system(cmd), 0); /* a failed copy leaves nothing behind */
}

/* With a full disk the copy fails, and nothing of it is left. */
static void test_copy_full_disk(void **state)
{
    struct box *b = *state;
    struct hearth_err e;
    make_turns();
    struct store_session s = row(ID_A, 1000, "a", 5);
    assert_int_equal(store_import(b->st, &s, NULL, turns, N_TURNS, &e), 0);
    char to[80], says[90], cmd[128];
    snprintf(to, sizeof to, "%s/copy", b->dir);
    snprintf(says, sizeof says, "%s: ", to); /* not the temporary name with which it begins */
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit small = {8192, 8192};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
        _exit(store_copy(store_path(b->st), to, false, NULL, NULL, &e) == HEARTH_EIO && strstr(e.msg, says) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    snprintf(cmd, sizeof cmd, "test $(ls '%s' | grep -c copy) = 0", b->dir);
    assert_int_equal(system(cmd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_import, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy_in_the_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy_full_disk, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
