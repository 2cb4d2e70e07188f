/* damage.c - a store whose file is newer, damaged, another program's or not writable: it is refused, or read as far as
 * it is sound, and nothing in it gets worse. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "tests/unit/store/rows.h"

#include "tests/sql.h" /* wants cmocka.h */

/* Runs SQL on the file without the store's knowledge. */
static void tamper(struct box *b, const char *sql)
{
    store_close(b->st);
    b->st = NULL;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static char *slurp(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    struct stat sb;
    fstat(fd, &sb);
    char *p = malloc((size_t)sb.st_size + 1);
    *len = (size_t)read(fd, p, (size_t)sb.st_size);
    close(fd);
    return p;
}

static void test_newer_version(void **state)
{
    struct box *b = *state;
    tamper(b, "PRAGMA user_version = 99");
    size_t n, m;
    char *before = slurp(b->db, &n);
    struct hearth_err e = {0};
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_null(b->st);
    assert_non_null(strstr(e.msg, "version 99"));
    char *after = slurp(b->db, &m);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
}

static void test_not_a_database(void **state)
{
    struct box *b = *state;
    store_close(b->st);
    b->st = NULL;
    char junk[4096];
    memset(junk, 'x', sizeof junk);
    int fd = open(b->db, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, junk, sizeof junk), sizeof junk);
    close(fd);
    struct hearth_err e = {0};
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "sessions.db is damaged"));
    size_t n;
    char *after = slurp(b->db, &n);
    assert_int_equal(n, sizeof junk);
    assert_memory_equal(after, junk, n);
    free(after);
}

static void test_another_database(void **state)
{
    struct box *b = *state;
    struct hearth_err e = {0};
    sqlite3 *db;
    size_t n, n_after;
    store_close(b->st);
    b->st = NULL;
    assert_int_equal(unlink(b->db), 0);
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE bookmarks(url)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    char *before = slurp(b->db, &n);
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "another program"));
    char *after = slurp(b->db, &n_after);
    assert_int_equal(n_after, n);
    assert_memory_equal(after, before, n);
    free(before);
    free(after);
}

/* Rows that look like removed sessions with turns to be purged, but cannot be found by their ids, do not keep a start
 * busy for ever. */
static void test_odd_ids(void **state)
{
    static const char *const harm[] = {
        "UPDATE sessions SET id = 'aaaaaaaaaaaaaaaaaaaaaaaa', name = 'aaaaaaaaaaaaaaaaaaaaaaaa', n_turns = 0",
        "UPDATE sessions SET id = CAST(id AS BLOB), name = CAST(id AS BLOB), n_turns = 0",
        "UPDATE sessions SET id = id || char(0) || 'z', name = id || char(0) || 'z', uid = -1",
    };
    struct box *b = *state;
    for (size_t i = 0; i < sizeof harm / sizeof harm[0]; i++) {
        struct store_session a = row(ID_A, 1000, "a");
        commit_ok(b, &a, true, &one, 1);
        tamper(b, harm[i]);
        tamper(b, "UPDATE turns SET session = (SELECT id FROM sessions)");
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
        struct store_session gone = row(ID_B, 1000, "gone"); /* nor do they keep the turns of others */
        commit_ok(b, &gone, true, &one, 1);
        tamper(b, "UPDATE sessions SET uid = -1, name = id WHERE id = '" ID_B "'");
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
        store_close(b->st);
        b->st = NULL;
        sqlite3 *db;
        sqlite3_stmt *q;
        assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
        assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM turns WHERE session = '" ID_B "'", -1, &q, NULL),
                         SQLITE_OK);
        assert_int_equal(sqlite3_step(q), SQLITE_ROW);
        assert_int_equal(sqlite3_column_int(q, 0), 0);
        sqlite3_finalize(q);
        sqlite3_close(db);
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
        tamper(b, "DELETE FROM sessions; DELETE FROM turns");
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    }
}

static void test_damaged_rows(void **state)
{
    struct box *b = *state;
    struct store_session a = row(ID_A, 1000, "a"), good = row(ID_B, 1000, "b");
    commit_ok(b, &a, true, &one, 1);
    commit_ok(b, &good, true, &one, 1);
    static const char *const damage[] = {
        "UPDATE turns SET tokens = x'010203' WHERE session = '" ID_A "'",
        "UPDATE turns SET tokens = x'ffffffff' WHERE session = '" ID_A "'",
        "UPDATE turns SET tokens = 'text' WHERE session = '" ID_A "'",
        "UPDATE turns SET tokens = x'01000000' WHERE session = '" ID_A "'", /* valid ids, but not the original ones */
        "UPDATE turns SET text = x'41' WHERE session = '" ID_A "'",
        "UPDATE turns SET seq = 7 WHERE session = '" ID_A "'",
        "UPDATE turns SET session = session, role = 'user' WHERE session = '" ID_A "'",
        "DELETE FROM turns WHERE session = '" ID_A "'",
        /* an empty turn at the end, which changes no sum of bytes */
        "INSERT INTO turns(session, seq, role, text, tokens, created, sum)"
        " SELECT session, 1, role, x'', x'', created, sum FROM turns WHERE session = '" ID_A "'",
    };
    struct hearth_err e = {0};
    int32_t *ids;
    size_t n;
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        tamper(b, damage[i]);
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
        struct store_session *whole;
        assert_int_equal(store_get(b->st, 1000, "a", &whole, &e), 0);
        assert_int_equal(store_timeline(b->st, whole, &ids, &n, &e), HEARTH_ESTORE);
        assert_non_null(strstr(e.msg, ID_A));
        store_session_free(whole);
        assert_int_equal(store_get(b->st, 1000, "b", &whole, &e), 0);
        assert_int_equal(store_timeline(b->st, whole, &ids, &n, &e), 0);
        assert_int_equal(n, 4);
        free(ids);
        store_session_free(whole);
    }
    tamper(b, "UPDATE sessions SET path = 'relative' WHERE id = '" ID_A "'");
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    struct store_session *got, **v;
    assert_int_equal(store_get(b->st, 1000, "a", &got, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "it can only be removed"));
    assert_int_equal(store_list(b->st, 1000, false, &(struct store_cursor){0}, 100, &v, &n, &e), 0);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) { /* the sound session is still listed, and the other one is marked */
        assert_int_equal(v[i]->damaged, strcmp(v[i]->id, ID_A) == 0);
        store_session_free(v[i]);
    }
    free(v);
}

/* A row with any kind of damage can be removed, by one of its names, and leaves nothing behind. */
static void test_remove_damaged(void **state)
{
    struct box *b = *state;
    static const struct {
        const char *how, *ref;
    } damage[] = {
        {"UPDATE sessions SET path = 'relative' WHERE name = 'a'", "a"},
        {"UPDATE sessions SET bytes = -1 WHERE name = 'a'", ID_A},
        {"UPDATE sessions SET used = 9e999 WHERE name = 'a'", ID_A},
        {"UPDATE sessions SET created = 'then' WHERE name = 'a'", "a"},
        {"UPDATE sessions SET name = x'ff00ff' WHERE name = 'a'", ID_A},
        {"UPDATE sessions SET model = x'00' WHERE name = 'a'", "a"},
        {"UPDATE sessions SET n_tok = n_tok + 1 WHERE name = 'a'", "a"},
        {"UPDATE sessions SET sum = 0 WHERE name = 'a'", "a"},
        {"UPDATE sessions SET uid = 1000, name = 'b' WHERE id = '" ID_B "'", "b"}, /* claims to be another user's */
        {"PRAGMA foreign_keys = OFF; UPDATE sessions SET id = 'no id' WHERE name = 'a'", "a"},
        {"PRAGMA foreign_keys = OFF; UPDATE sessions SET id = x'00ff' WHERE name = 'a'", "a"},
        {"PRAGMA foreign_keys = OFF; UPDATE sessions SET id = '" ID_C "' WHERE name = 'a'", ID_C},
    };
    struct hearth_err e;
    struct store_session *s, **v;
    size_t n;
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        struct store_session a = row(ID_A, 1000, "a"), other = row(ID_B, 1001, "other");
        commit_ok(b, &a, true, &one, 1);
        commit_ok(b, &other, true, &one, 1);
        int64_t bytes;
        assert_int_equal(store_bytes(b->st, 1000, &bytes, NULL), 0);
        tamper(b, damage[i].how);
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
        if (store_get(b->st, 1000, damage[i].ref, &s, &e) != HEARTH_ESTORE)
            fail_msg("%s: it is not found to be damaged", damage[i].how);
        assert_int_equal(store_find(b->st, 1000, damage[i].ref, &s, &e), 0);
        assert_true(s->damaged);
        assert_int_equal(store_remove(b->st, s, &e), 0);
        store_session_free(s);
        assert_int_equal(store_find(b->st, 1000, damage[i].ref, &s, &e), HEARTH_ENOSESSION);
        if (strcmp(damage[i].ref, "b") == 0) {
            assert_int_equal(store_remove(b->st, &a, &e), 0);
        } else {
            assert_int_equal(store_get(b->st, 1001, "other", &s, &e), 0);
            assert_int_equal(store_remove(b->st, s, &e), 0);
            store_session_free(s);
        }
        assert_int_equal(store_list(b->st, 1000, false, &(struct store_cursor){0}, 100, &v, &n, &e), 0);
        assert_int_equal(n, 0);
        free(v);
        tamper(b, "CREATE TABLE t(none CHECK(none = 0)); INSERT INTO t SELECT count(*) FROM turns; DROP TABLE t");
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    }
}

/* The file must be a regular one that belongs to the user, or it is not used; the folder may be a link, for instance to
 * another disk. */
static void test_the_file(void **state)
{
    struct box *b = *state;
    struct hearth_err e = {0};
    struct stat sb;
    char other[128], link[96];
    struct store_session a = row(ID_A, 1000, "a"), *got;
    commit_ok(b, &a, true, &one, 1);
    store_close(b->st);
    b->st = NULL;
    assert_int_equal(chmod(b->db, 0666), 0);
    snprintf(link, sizeof link, "%s/link", b->base);
    assert_int_equal(symlink(b->dir, link), 0);
    if (store_open(&b->st, link, &e) != 0)
        fail_msg("%s", e.msg);
    assert_int_equal(store_get(b->st, 1000, "a", &got, NULL), 0);
    store_session_free(got);
    assert_int_equal(stat(b->db, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    store_close(b->st);
    b->st = NULL;
    if (geteuid() == 0) {
        assert_int_equal(chown(b->db, 65534, 65534), 0);
        assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
        assert_non_null(strstr(e.msg, "belongs to user 65534"));
        assert_int_equal(chown(b->db, 0, 0), 0);
    }
    snprintf(other, sizeof other, "%s/other", b->base);
    assert_int_equal(rename(b->db, other), 0);
    assert_int_equal(symlink(other, b->db), 0);
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "is a symbolic link"));
    assert_int_equal(unlink(b->db), 0);
    assert_int_equal(mkfifo(b->db, 0600), 0);
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "is not a plain file"));
    assert_int_equal(unlink(b->db), 0);
    assert_int_equal(rename(other, b->db), 0);
    assert_int_equal(store_open(&b->st, b->dir, &e), 0);
}

/* So must the files that SQLite keeps beside it. SQLite itself would wait for a writer of the first one, and would not
 * say that the others are at fault. */
static void test_files_beside_it(void **state)
{
    static const char *const ends[] = {"-journal", "-wal", "-shm"};
    struct box *b = *state;
    struct hearth_err e = {0};
    char path[96];
    store_close(b->st);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", b->db, ends[i]);
        for (int kind = 0; kind < 3; kind++) {
            b->st = NULL;
            assert_int_equal(kind == 0   ? mkfifo(path, 0600)
                             : kind == 1 ? symlink("/etc/passwd", path)
                                         : mkdir(path, 0700),
                             0);
            assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
            assert_non_null(strstr(e.msg, path));
            assert_non_null(strstr(e.msg, "is not a plain file"));
            assert_int_equal(remove(path), 0);
        }
        if (geteuid() == 0) {
            int fd = open(path, O_WRONLY | O_CREAT, 0600);
            assert_true(fd >= 0 && fchown(fd, 65534, 65534) == 0);
            close(fd);
            assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
            assert_non_null(strstr(e.msg, "belongs to user 65534"));
            assert_int_equal(unlink(path), 0);
        }
    }
    b->st = NULL;
    assert_int_equal(store_open(&b->st, b->dir, &e), 0);
    /* and those beside the copy from before a migration, which is opened later */
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/other", b->base);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE t(a)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    char fifo[112];
    snprintf(fifo, sizeof fifo, "%s-journal", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, "hearth"), SQLITE_OK);
    assert_int_not_equal(sqlite3_exec(db, "DELETE FROM t", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* A database that another program has locked is not called damaged, since whoever moved it away would lose it. */
static void test_locked(void **state)
{
    struct box *b = *state;
    struct hearth_err e = {0};
    sqlite3 *db;
    store_close(b->st);
    b->st = NULL;
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE t(a); DROP TABLE t", NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, b->db));
    assert_non_null(strstr(e.msg, "locked"));
    assert_null(strstr(e.msg, "damaged"));
    assert_null(strstr(e.msg, "move it away"));
    sqlite3_close(db);
    assert_int_equal(store_open(&b->st, b->dir, &e), 0);
}

/* A schema that was changed is refused with a name, or has no effect. */
static void test_the_schema(void **state)
{
    struct box *b = *state;
    struct hearth_err e = {0};
    struct store_session a = row(ID_A, 1000, "a"), *got;
    int64_t stream;
    tamper(b, "CREATE TRIGGER t AFTER INSERT ON turns BEGIN DELETE FROM sessions; END;"
              "INSERT INTO folded VALUES(5), (9223372036854775807)");
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    assert_int_equal(store_last_stream(b->st, &stream, NULL), 0);
    assert_int_equal(stream, 5); /* so that the next stream's number is not the least possible */
    committed = 5;
    commit_ok(b, &a, true, &one, 1);
    assert_int_equal(store_get(b->st, 1000, "a", &got, NULL), 0);
    store_session_free(got);
    tamper(b, "ALTER TABLE sessions RENAME TO s2; CREATE VIEW sessions AS SELECT * FROM s2");
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "move it away"));
    tamper(b, "DROP VIEW sessions; ALTER TABLE s2 RENAME TO sessions; DROP TRIGGER t");
    assert_int_equal(store_open(&b->st, b->dir, &e), 0);
    tamper(b, "PRAGMA user_version = 0");
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, b->db));
    assert_non_null(strstr(e.msg, "move it away"));
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d; DROP TABLE turns", STORE_VERSION);
    tamper(b, sql);
    assert_int_equal(store_open(&b->st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "move it away"));
}

/* Runs in a child as a uid that may not write to the file: for root another uid, for others the file's mode is
 * enough. */
static void test_read_only(void **state)
{
    struct box *b = *state;
    chmod(b->base, 0555);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(3);
        char dir[64];
        snprintf(dir, sizeof dir, "%s/mine", b->base);
        struct store *st = NULL;
        struct hearth_err e = {0};
        int rc = store_open(&st, dir, &e);
        _exit(rc == HEARTH_ESTORE && strstr(e.msg, dir) && strstr(e.msg, "ermission") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    chmod(b->base, 0755);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_newer_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_a_database, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_database, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_remove_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_beside_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_schema, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_only, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
