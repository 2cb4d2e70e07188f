/*
 * migrate.c - a session database of any older version, opened by the present code: it is complete and sound, or
 * untouched. The oldest one is data/sessions-v1.sql. The test kills `migrate --open DIR` under kill-at.so.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/store/store-internal.h"
#include "tests/sql.h"

struct box {
    char dir[40], db[64], copy[80];
    char *v1; /* the SQL text */
};

static bool no_memory; /* opening a database fails */

int __real_sqlite3_open_v2(const char *path, sqlite3 **db, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *path, sqlite3 **db, int flags, const char *vfs);

int __wrap_sqlite3_open_v2(const char *path, sqlite3 **db, int flags, const char *vfs)
{
    if (!no_memory)
        return __real_sqlite3_open_v2(path, db, flags, vfs);
    *db = NULL;
    return SQLITE_NOMEM;
}

static char *text_of(const char *path)
{
    char full[4096];
    const char *top = getenv("top_srcdir");
    snprintf(full, sizeof full, "%s/%s", top != NULL ? top : ".", path);
    FILE *f = fopen(full, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 16);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 1000);
    fclose(f);
    return text;
}

static int setup(void **state)
{
    struct box *b = calloc(1, sizeof *b);
    strcpy(b->dir, "/tmp/hearth-migrate-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->db, sizeof b->db, "%s/sessions.db", b->dir);
    b->v1 = text_of("tests/unit/data/sessions-v1.sql");
    *state = b;
    return 0;
}

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
    char cmd[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    assert_int_equal(system(cmd), 0);
}

static int teardown(void **state)
{
    struct box *b = *state;
    run("rm -rf '%s'", b->dir);
    free(b->v1);
    free(b);
    return 0;
}

static void exec(sqlite3 *db, const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%.80s: %s", sql, why);
}

/* Makes a fresh database of that version, and the name of its copy. */
static void make(struct box *b, int version)
{
    sqlite3 *db;
    run("rm -f '%s'/*", b->dir);
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    exec(db, "PRAGMA journal_mode = WAL");
    assert_int_equal(store_define_checksum(&(struct store){.db = db}, NULL), 0);
    exec(db, b->v1);
    for (int v = 1; v < version; v++)
        exec(db, store_migrations[v]);
    if (version >= 2)
        exec(db, "INSERT INTO folded VALUES(1), (2), (7)");
    char set[64];
    snprintf(set, sizeof set, "PRAGMA user_version = %d", version);
    exec(db, set);
    sqlite3_close(db);
    snprintf(b->copy, sizeof b->copy, "%s.v%d", b->db, version);
}

static void assert_sound(const char *path)
{
    assert_int_equal(sql_run(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    assert_int_equal(sql_run(path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

/* Checks the contents of data/sessions-v1.sql, through the store. */
static void assert_all_but_fables_there(struct store *st)
{
    struct hearth_err e;
    struct store_session **v;
    size_t n;
    assert_int_equal(store_list(st, 1000, false, &(struct store_cursor){0}, 100, &v, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_string_equal(v[0]->name, "caf\u00e9 \u2615");
    assert_string_equal(v[0]->path, "/models/qwen2.5-7b-instruct-q4_k_m.gguf");
    assert_true(v[0]->turn_open && v[0]->created == 1763710000.0 && v[0]->used == 1763710042.75);
    assert_int_equal(v[0]->n_tok, 404);
    assert_int_equal(v[0]->n_turns, 3);
    assert_false(v[1]->turn_open || v[1]->pinned);
    struct store_turn *t;
    size_t n_turns;
    assert_int_equal(store_turns(st, v[0], &t, &n_turns, &e), 0);
    assert_int_equal(n_turns, 3);
    assert_string_equal(t[1].role, "user");
    assert_string_equal(t[1].text, "# heading\n```c\nint x;\n");
    assert_null(t[2].generation);
    store_turns_free(t, n_turns);
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(store_timeline(st, v[0], &ids, &n_ids, &e), 0);
    assert_int_equal(n_ids, 404);
    assert_int_equal(ids[3], INT32_MAX);
    assert_int_equal(ids[403], 1399);
    free(ids);
    assert_int_equal(store_turns(st, v[1], &t, &n_turns, &e), 0);
    assert_int_equal(t[2].len, 11);
    assert_memory_equal(t[2].text, " and then\xff\x00", 11);
    int64_t bytes = 0;
    for (size_t i = 0; i < n_turns; i++)
        bytes += (int64_t)(t[i].len + 4 * t[i].n_ids);
    assert_int_equal(v[1]->bytes, bytes); /* the migration counted them */
    store_turns_free(t, n_turns);
    for (size_t i = 0; i < n; i++)
        store_session_free(v[i]);
    free(v);
}

static void assert_all_there(struct store *st)
{
    struct hearth_err e;
    struct store_session *s;
    assert_all_but_fables_there(st);
    assert_int_equal(store_get(st, 1001, "fables", &s, &e), 0);
    assert_true(s->n_turns > 0);
    assert_string_equal(s->id, "8877665544332211");
    store_session_free(s);
}

/* Checks that it can be used further: a turn in an old session, and a stream's number after the old ones. */
static void assert_goes_on(struct store *st, int version)
{
    struct hearth_err e;
    struct store_session *s;
    int64_t last;
    assert_int_equal(store_last_stream(st, &last, &e), 0);
    assert_int_equal(last, version >= 2 ? 7 : 0);
    assert_int_equal(store_get(st, 1001, "fables", &s, &e), 0);
    static const int32_t ids[] = {1, 2, 3};
    struct store_turn t = {.role = "text", .text = "new", .len = 3, .ids = ids, .n_ids = 3};
    int64_t before = s->bytes;
    assert_int_equal(store_commit(st, s, false, &t, 1, last + 1, &e), 0);
    store_session_free(s);
    assert_int_equal(store_get(st, 1001, "fables", &s, &e), 0);
    assert_int_equal(s->n_tok, 4);
    assert_int_equal(s->bytes, before + 3 + 12);
    store_session_free(s);
}

static void assert_migrates(struct box *b, int version)
{
    struct store *st = NULL;
    struct hearth_err e;
    if (store_open(&st, b->dir, &e) != 0)
        fail_msg("from version %d: %s", version, e.msg);
    assert_all_there(st);
    assert_goes_on(st, version);
    store_close(st);
    assert_sound(b->db);
    assert_int_equal(sql_run(b->db, "PRAGMA user_version"), STORE_VERSION);
}

static void test_every_version(void **state)
{
    struct box *b = *state;
    struct stat sb;
    for (int v = 1; v < STORE_VERSION; v++) {
        make(b, v);
        assert_migrates(b, v);
        /* The copy is the old database: of its version, sound, not readable by others. */
        assert_int_equal(stat(b->copy, &sb), 0);
        assert_int_equal(sb.st_mode & 0777, 0600);
        assert_sound(b->copy);
        assert_int_equal(sql_run(b->copy, "PRAGMA user_version"), v);
        assert_int_equal(sql_run(b->copy, "SELECT count(*) FROM turns"), 8);
    }
    /* A database of the present version is not copied. */
    struct store *st;
    run("rm '%s'", b->copy);
    assert_int_equal(store_open(&st, b->dir, NULL), 0);
    store_close(st);
    assert_int_equal(access(b->copy, F_OK), -1);
}

/* A row that was damaged before does not become sound by the migration. */
static void test_damage_stays(void **state)
{
    struct box *b = *state;
    struct store *st;
    struct store_session *s;
    struct hearth_err e;
    for (int v = 5; v < STORE_VERSION; v++) { /* older versions had no checksums */
        make(b, v);
        sql_run(b->db, "UPDATE sessions SET path = path || '2' WHERE id = '8877665544332211'");
        assert_int_equal(store_open(&st, b->dir, NULL), 0);
        assert_int_equal(store_get(st, 1001, "fables", &s, &e), HEARTH_ESTORE);
        assert_non_null(strstr(e.msg, "not as it was written"));
        assert_all_but_fables_there(st);
        store_close(st);
    }
}

/* A size that was damaged before there were checksums has one by the migration, and is found by itself: it is in no
 * sum, where it would overflow. */
static void test_impossible_sizes(void **state)
{
    struct box *b = *state;
    static const char *const sizes[] = {"9223372036854775807", "-1", "9007199254740993", "0.5", "'75 apples'"};
    struct store *st;
    struct store_session *s;
    struct hearth_err e;
    int64_t bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        make(b, 3);
        sql_runf(b->db, "UPDATE sessions SET bytes = %s", sizes[i]);
        assert_int_equal(store_open(&st, b->dir, NULL), 0);
        assert_int_equal(store_get(st, 1001, "fables", &s, &e), HEARTH_ESTORE);
        assert_non_null(strstr(e.msg, "its size cannot be"));
        assert_int_equal(store_bytes(st, 1000, &bytes, NULL), 0);
        assert_int_equal(bytes, 0);
        store_close(st);
    }
}

/* A session that is removed is removed from the copy too, which is otherwise unchanged. A copy that cannot be written
 * to is removed as a whole. */
static void test_removed_from_the_copy(void **state)
{
    struct box *b = *state;
    struct store *st;
    struct store_session *s;
    for (int v = 1; v < STORE_VERSION; v++) {
        make(b, v);
        assert_int_equal(store_open(&st, b->dir, NULL), 0);
        store_close(st); /* a later store also knows of the copy */
        assert_int_equal(store_open(&st, b->dir, NULL), 0);
        run("grep -q hers '%s'", b->copy);
        assert_int_equal(store_get(st, 1001, "fables", &s, NULL), 0);
        assert_int_equal(store_remove(st, s, NULL), 0);
        store_session_free(s);
        assert_int_equal(store_scrub(st, NULL), 0);
        run("! grep -q hers '%s'/*", b->dir);
        assert_sound(b->copy);
        assert_int_equal(sql_run(b->copy, "PRAGMA user_version"), v);
        assert_int_equal(sql_run(b->copy, "SELECT count(*) FROM sessions"), 2);
        assert_int_equal(sql_run(b->copy, "SELECT count(*) FROM turns"), 7);
        run("test $(ls '%s' | grep -c '[.]db[.]') = 1", b->dir);

        sql_run(b->copy, "DROP TABLE sessions");
        assert_int_equal(store_get(st, 1000, "fables", &s, NULL), 0);
        assert_int_equal(store_remove(st, s, NULL), 0);
        store_session_free(s);
        assert_int_equal(access(b->copy, F_OK), -1);
        store_close(st);
    }
    /* An older copy is removed when there is a newer one. */
    make(b, 1);
    assert_int_equal(store_open(&st, b->dir, NULL), 0);
    store_close(st);
    run("touch '%s.v1.mine'", b->db);
    sql_run(b->db, "PRAGMA user_version = 4"); /* a wrong version: the steps fail, but the copy has been made */
    assert_int_equal(store_open(&st, b->dir, NULL), HEARTH_ESTORE);
    assert_int_equal(access(b->copy, F_OK), -1);
    run("test -e '%s.v4' && test -e '%s.v1.mine'", b->db, b->db);
}

/* A copy that cannot even be opened is removed as a whole, too. */
static void test_no_memory_for_the_copy(void **state)
{
    struct box *b = *state;
    struct store *st;
    struct store_session *s;
    make(b, 1);
    assert_int_equal(store_open(&st, b->dir, NULL), 0);
    assert_int_equal(access(b->copy, F_OK), 0);
    assert_int_equal(store_get(st, 1001, "fables", &s, NULL), 0);
    no_memory = true;
    int rc = store_remove(st, s, NULL);
    no_memory = false;
    assert_int_equal(rc, 0);
    store_session_free(s);
    store_close(st);
    assert_int_equal(access(b->copy, F_OK), -1);
}

/* Compares each row, value by value: the old columns in the new database with those of the copy. */
static void test_values(void **state)
{
    struct box *b = *state;
    make(b, 1);
    struct store *st;
    assert_int_equal(store_open(&st, b->dir, NULL), 0);
    store_close(st);
    sqlite3 *db;
    char attach[160];
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    snprintf(attach, sizeof attach, "ATTACH '%s' AS old", b->copy);
    exec(db, attach);
    static const char *const differ[] = {
        "SELECT count(*) FROM (SELECT id, uid, name, model, path, turn_open, created, used FROM sessions"
        " EXCEPT SELECT * FROM old.sessions)",
        "SELECT count(*) FROM (SELECT * FROM old.sessions"
        " EXCEPT SELECT id, uid, name, model, path, turn_open, created, used FROM sessions)",
        "SELECT count(*) FROM (SELECT session, seq, role, text, tokens, created FROM turns"
        " EXCEPT SELECT * FROM old.turns)",
        "SELECT count(*) FROM (SELECT * FROM old.turns"
        " EXCEPT SELECT session, seq, role, text, tokens, created FROM turns)",
    };
    for (size_t i = 0; i < 4; i++) {
        sqlite3_stmt *q;
        assert_int_equal(sqlite3_prepare_v2(db, differ[i], -1, &q, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(q), SQLITE_ROW);
        assert_int_equal(sqlite3_column_int(q, 0), 0);
        sqlite3_finalize(q);
    }
    sqlite3_close(db);
}

/* If the old file cannot be copied, it is not changed. */
static void test_no_room_for_a_copy(void **state)
{
    struct box *b = *state;
    make(b, 1);
    run("mkdir '%s' && touch '%s/x'", b->copy, b->copy); /* a directory in the place of the copy */
    struct store *st = NULL;
    struct hearth_err e;
    assert_int_equal(store_open(&st, b->dir, &e), HEARTH_ESTORE);
    assert_null(st);
    assert_non_null(strstr(e.msg, "stays as it is"));
    assert_int_equal(sql_run(b->db, "PRAGMA user_version"), 1);
    run("rm -r '%s'", b->copy);
    assert_migrates(b, 1);
}

/* If a step fails, the earlier steps of the same migration are undone too. */
static void test_all_steps_or_none(void **state)
{
    struct box *b = *state;
    make(b, 1);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    exec(db, "CREATE TABLE clock(somebody TEXT)"); /* which step 2 -> 3 would create */
    sqlite3_close(db);
    struct store *st = NULL;
    struct hearth_err e;
    assert_int_equal(store_open(&st, b->dir, &e), HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, "clock"));
    assert_int_equal(sql_run(b->db, "PRAGMA user_version"), 1);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM sqlite_master WHERE name = 'folded'"), 0);
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    exec(db, "DROP TABLE clock");
    sqlite3_close(db);
    assert_migrates(b, 1);
}

/* --- killed in every write ------------------------------------------------------------------------------------ */

/* Opens the store in a process that is killed in the middle of its nth write; false if there were fewer writes. */
static bool killed_at(struct box *b, const char *self, int n)
{
    const char *build = getenv("top_builddir");
    char preload[4096], at[64];
    snprintf(preload, sizeof preload, "%s/tests/daemon/.libs/kill-at.so", build != NULL ? build : ".");
    snprintf(at, sizeof at, "sessions.db %d /", n);
    assert_int_equal(access(preload, R_OK), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LD_PRELOAD", preload, 1);
        setenv("KILL_AT", at, 1);
        setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        execl("/proc/self/exe", self, "--open", b->dir, (char *)NULL);
        _exit(9);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

static void test_killed(void **state)
{
    struct box *b = *state;
    int n = 1, old = 0;
    for (;; n++) {
        make(b, 1);
        if (!killed_at(b, "migrate", n))
            break;
        assert_sound(b->db);
        int64_t version = sql_run(b->db, "PRAGMA user_version");
        assert_true(version == 1 || version == STORE_VERSION);
        old += version == 1;
        assert_migrates(b, 1);
        run("test $(ls '%s' | grep -c 'v1[.]......$') = 0", b->dir); /* partial copies are removed */
    }
    /* It was killed during the copy, during the migration and after it. */
    print_message("killed in each of %d writes; in %d of them it was still the old one\n", n - 1, old);
    assert_true(n > 20);
    assert_true(old > 10);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--open") == 0) {
        struct store *st;
        int rc = store_open(&st, argv[2], NULL);
        if (!rc)
            store_close(st);
        return rc != 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_impossible_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removed_from_the_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory_for_the_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room_for_a_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_steps_or_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
