/*
 * gone.c - what is removed from the database is nowhere left on the disk: not in its pages, nor in gaps within them,
 * nor in its log.
 */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/store/store-box.h"
#include "tests/sql.h"

static unsigned below(struct box *b, unsigned n)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(b->random >> 33) % n;
}

/* How often the bytes occur in the folder's files. */
static int found(const struct box *b, const void *what, size_t len)
{
    int n = 0;
    struct stat sb;
    DIR *dir = opendir(b->dir);
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        int fd = openat(dirfd(dir), d->d_name, O_RDONLY);
        if (fd >= 0 && fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_size > 0) {
            char *p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_PRIVATE, fd, 0), *at = p, *end = p + sb.st_size;
            assert_true(p != MAP_FAILED);
            while ((at = memmem(at, (size_t)(end - at), what, len)) != NULL)
                n++, at++;
            munmap(p, (size_t)sb.st_size);
        }
        close(fd);
    }
    closedir(dir);
    return n;
}

/* --- many sessions of all sizes, in all orders ------------------------------------------------------------------ */

enum { N = 300, ROUNDS = 16, PHASES = 3, LONGEST = 15000, IDS = 50 };

/* Adds a turn to session i; a third of the turns contain SECRET and the phase. */
static void add_turn(struct box *b, int phase, int i, bool create)
{
    static char text[LONGEST];
    static int32_t ids[IDS];
    static int64_t stream;
    char name[48], word[24];
    bool secret = i % 3 == 0;
    snprintf(word, sizeof word, secret ? "SECRET%d" : "public%d", phase);
    snprintf(name, sizeof name, "%s-%d", word, i);
    struct store_session s = {.uid = 7, .name = name, .model = "m", .path = "/m", .created = 1, .used = below(b, 1000)};
    snprintf(s.id, sizeof s.id, "%08x%07x%x", (unsigned)i * 2654435761u, (unsigned)i, (unsigned)phase);
    size_t len = below(b, 8) == 0 ? below(b, LONGEST) : below(b, 300), n = below(b, IDS);
    for (size_t k = 0; k < len; k++)
        text[k] = word[k % strlen(word)];
    for (size_t k = 0; k < n; k++)
        ids[k] = (secret ? 0x5ec0de00 : 0x0ab1c000) + phase;
    struct store_turn t = {.role = "user", .text = text, .len = len, .ids = ids, .n_ids = n, .created = 1};
    struct hearth_err e;
    if (store_commit(b->st, &s, create, &t, 1, ++stream, &e) != 0)
        fail_msg("%s", e.msg);
}

static void test_sessions(void **state)
{
    struct box *b = *state;
    struct store_session *s;
    char name[48];
    for (int phase = 0; phase < PHASES; phase++) {
        for (int round = 0; round < ROUNDS; round++)
            for (int i = 0; i < N; i++)
                if (round == 0 || below(b, 2))
                    add_turn(b, phase, i, round == 0);
        char word[24];
        int32_t id = 0x5ec0de00 + phase, ids[2] = {id, id};
        snprintf(word, sizeof word, "SECRET%d", phase);
        assert_true(found(b, word, strlen(word)) > 100);
        assert_true(found(b, ids, sizeof ids) > 100);
        for (int i = 0; i < N; i += 3) {
            snprintf(name, sizeof name, "%s-%d", word, i);
            assert_int_equal(store_get(b->st, 7, name, &s, NULL), 0);
            assert_int_equal(store_remove(b->st, s, NULL), 0);
            store_session_free(s);
        }
        assert_int_equal(store_scrub(b->st, NULL), 0);
        assert_int_equal(found(b, "SECRET", 6), 0);
        for (id = 0x5ec0de00; id <= 0x5ec0de00 + phase; id++)
            assert_int_equal(found(b, &id, sizeof id), 0);
        /* The other sessions are unchanged. */
        for (int i = 1; i < N; i += i % 3) {
            int32_t *all;
            size_t n;
            snprintf(name, sizeof name, "public%d-%d", phase, i);
            assert_int_equal(store_get(b->st, 7, name, &s, NULL), 0);
            assert_int_equal(store_timeline(b->st, s, &all, &n, NULL), 0);
            free(all);
            store_session_free(s);
        }
    }
    store_close(b->st);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    assert_int_equal(found(b, "SECRET", 6), 0);
}

/* What a killed hearthd did not finish, the next one does. */
static void test_left_in_the_log(void **state)
{
    struct box *b = *state;
    struct store_session *s;
    char cmd[256];
    add_turn(b, 0, 0, true);
    assert_int_equal(store_get(b->st, 7, "SECRET0-0", &s, NULL), 0);
    assert_int_equal(store_remove(b->st, s, NULL), 0);
    store_session_free(s);
    assert_true(found(b, "SECRET", 6) > 0);
    /* A copy of the files is what a kill would leave. */
    snprintf(cmd, sizeof cmd, "mkdir '%s/k' && cp '%s' '%s-wal' '%s/k/'", b->dir, b->db, b->db, b->dir);
    assert_int_equal(system(cmd), 0);
    store_close(b->st);
    snprintf(cmd, sizeof cmd, "mv '%s'/k/* '%s/'", b->dir, b->dir);
    assert_int_equal(system(cmd), 0);
    assert_true(found(b, "SECRET", 6) > 0);
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    assert_int_equal(found(b, "SECRET", 6), 0);
}

/* A large session is removed at once as far as clients can see; its turns are deleted in slices, and an interruption
 * between any two is harmless. */
static void test_slices(void **state)
{
    enum { TURNS = 2000 };
    struct box *b = *state;
    struct hearth_err e;
    static struct store_turn t[TURNS];
    struct store_session s = {.uid = 7, .name = "large", .model = "m", .path = "/m", .created = 1, .used = 1}, *got;
    struct store_cursor at;
    struct store_session **list;
    int64_t bytes;
    size_t n;
    uid_t *uids;
    bool more;
    for (int i = 0; i < TURNS; i++)
        t[i] = (struct store_turn){.role = "user", .text = "SECRET", .len = 6, .created = 1};
    for (int round = 0; round < 3; round++) {
        snprintf(s.id, sizeof s.id, "00000000000000%02x", (unsigned)round);
        if (store_import(b->st, &s, NULL, t, TURNS, &e) != 0) /* under its old name */
            fail_msg("%s", e.msg);
        assert_int_equal(store_get(b->st, 7, "large", &got, NULL), 0);
        assert_int_equal(store_remove(b->st, got, NULL), 0);
        store_session_free(got);
        assert_int_equal(store_get(b->st, 7, "large", &got, NULL), HEARTH_ENOSESSION);
        assert_int_equal(store_get(b->st, 7, s.id, &got, NULL), HEARTH_ENOSESSION);
        assert_int_equal(store_bytes(b->st, 7, &bytes, NULL), 0);
        assert_int_equal(bytes, 0);
        assert_int_equal(store_uids(b->st, &uids, &n, NULL), 0);
        assert_int_equal(n, 0);
        free(uids);
        at = (struct store_cursor){0};
        assert_int_equal(store_list_old(b->st, 1e9, 0, &at, 10, &list, &n, NULL), 0);
        assert_int_equal(n, 0);
        free(list);
        int slices = 0;
        do
            assert_int_equal(store_purge_some(b->st, &more, NULL), 0);
        while (more && (++slices < 3 || round == 0));
        assert_int_equal(more, round > 0);
        assert_true(round > 0 || slices > 5);
        assert_int_equal(found(b, "SECRET", 6) > 0, true);
        if (round == 1)
            assert_int_equal(store_purge_all(b->st, NULL), 0);
        if (round == 2) {
            store_close(b->st);
            assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
        } else {
            assert_int_equal(store_scrub(b->st, NULL), 0);
        }
        assert_int_equal(found(b, "SECRET", 6), 0);
        assert_int_equal(sql_run(b->db, "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM turns)"), 0);
    }
}

/* Killed between slices: the next start removes the rest before any client connects. */
static void test_slices_and_kill(void **state)
{
    struct box *b = *state;
    for (int i = 0; i < 3; i++)
        add_turn(b, 0, i, true);
    store_close(b->st);
    assert_int_equal(sql_run(b->db, "UPDATE sessions SET uid = -1, name = id WHERE name LIKE 'SECRET%'"), 0);
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    assert_int_equal(found(b, "SECRET", 6), 0);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM sessions"), 2);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 2);
}

/* On a full disk, here simulated by a limit on file sizes, sessions can still be removed. */
static void test_full_disk(void **state)
{
    struct box *b = *state;
    struct store_session *s;
    struct stat sb;
    char wal[80];
    struct rlimit limit;
    for (int i = 0; i < 9; i++)
        add_turn(b, 0, i, true);
    snprintf(wal, sizeof wal, "%s-wal", b->db);
    assert_int_equal(stat(wal, &sb), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit full = {(rlim_t)sb.st_size, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    struct hearth_err e = {0};
    struct store_session more = {.uid = 7, .name = "more", .model = "m", .path = "/m", .id = "00000000000000ff"};
    int rc = store_commit(b->st, &more, true, NULL, 0, 1000, &e), got = store_get(b->st, 7, "SECRET0-0", &s, NULL);
    int gone = got == 0 ? store_remove(b->st, s, &e) : got;
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(rc, HEARTH_ESTORE);
    if (gone != 0)
        fail_msg("%s", e.msg);
    store_session_free(s);
    assert_int_equal(store_get(b->st, 7, "SECRET0-0", &s, NULL), HEARTH_ENOSESSION);
    assert_int_equal(store_get(b->st, 7, "SECRET0-3", &s, NULL), 0);
    store_session_free(s);
}

/* --- pages ------------------------------------------------------------------------------------------------------ */

/* A page that is not that of a b-tree, or is a broken one, is written unchanged. */
static void test_other_pages(void **state)
{
    struct box *b = *state;
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(b->db, &db, SQLITE_OPEN_READWRITE, "hearth"), SQLITE_OK);
    sqlite3_file *f;
    assert_int_equal(sqlite3_file_control(db, NULL, SQLITE_FCNTL_FILE_POINTER, &f), SQLITE_OK);
    uint8_t page[4096], got[4096];
    static const struct {
        uint8_t head[12];
        bool blanked;
    } cases[] = {
        {{13, 0, 0, 0, 0, 0, 0}, false},              /* no cells, and content from 65536 on */
        {{13, 0, 0, 0, 0, 16, 0}, true},              /* no cells: everything from 8 to 4096 is a gap */
        {{10, 0, 0, 0, 1, 15, 0, 0, 15, 0}, true},    /* one cell at 3840 */
        {{13, 0, 0, 0, 1, 15, 0, 0, 14, 255}, false}, /* a cell before the content area */
        {{13, 0, 0, 0, 1, 15, 0, 0, 16, 0}, false},   /* a cell beyond the page */
        {{13, 0, 0, 255, 255, 16, 0}, false},         /* more cells than fit */
        {{5, 0, 0, 0, 0, 16, 1}, false},              /* content beyond the page */
        {{0, 0, 0, 0, 0, 16, 0}, false},              /* an overflow page */
        {{1, 0, 0, 0, 0, 16, 0}, false},
        {{2, 0, 0, 0, 0, 16, 0}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(page, 0xee, sizeof page);
        memcpy(page, cases[i].head, sizeof(cases[i].head));
        assert_int_equal(f->pMethods->xWrite(f, page, 4096, 4096 * 1000), SQLITE_OK);
        assert_int_equal(f->pMethods->xRead(f, got, 4096, 4096 * 1000), SQLITE_OK);
        assert_int_equal(memcmp(page, got, 4096) != 0, cases[i].blanked);
        assert_memory_equal(page, got, 8);
        assert_int_equal(got[2048] == 0, cases[i].blanked);
        assert_int_equal(f->pMethods->xWrite(f, page, 4000, 4096 * 1000), SQLITE_OK); /* not a page's size */
        assert_int_equal(f->pMethods->xRead(f, got, 4000, 4096 * 1000), SQLITE_OK);
        assert_memory_equal(page, got, 4000);
    }
    sqlite3_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sessions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_in_the_log, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slices_and_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_pages, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
