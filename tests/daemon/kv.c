/* kv.c - the folder of KV files as hearthd keeps it: what counts, what goes, what is left alone, and who is told. The
 * fake engine writes the files, and nobody looks into them here. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/harness.h"
#include "tests/sql.h"

/* --- help ----------------------------------------------------------------------------------------------- */

static const char *in_kv(const struct box *b, const char *name)
{
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof(path[0]), "%s/kv/%s", b->state, name);
    return p;
}

/* The name of the Ith file of a stream. */
static const char *name_of(int64_t stream, int64_t i)
{
    static char name[4][64];
    static int next;
    char *p = name[next++ % 4];
    snprintf(p, sizeof(name[0]), "000000000000fa4e-%024llx%08llx.kv", (long long)stream, (long long)i);
    return p;
}

static bool has(const struct box *b, const char *name)
{
    struct stat sb;
    return lstat(in_kv(b, name), &sb) == 0;
}

static bool has_file(const struct box *b, int64_t stream, int64_t i)
{
    return has(b, name_of(stream, i));
}

static int n_files(const struct box *b)
{
    int n = 0;
    DIR *dir = opendir(in_kv(b, "."));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void put_file(const struct box *b, const char *name, off_t bytes)
{
    int fd = open(in_kv(b, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
}

static int64_t rows(const struct box *b)
{
    return sql_run(b->db, "SELECT count(*) FROM kv_file");
}

/* A generation whose KV is written; the stream's number. When a status is answered after it, so are its files. */
static int64_t save(const struct box *b, const char *script, const char *session)
{
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = run(p, script, session);
    int64_t stream = r->stream;
    wire_free(r);
    wire_free(peer_call(p, WIRE_STATUS, NULL));
    peer_close(p);
    return stream;
}

static void again(struct box *b)
{
    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_start(b);
}

static struct wire_kv_files usage(const struct box *b)
{
    struct peer *p = peer_open(b);
    struct wire_status_result *r = peer_call(p, WIRE_STATUS, NULL);
    struct wire_kv_files k = r->kv_files;
    static struct wire_kv_share share;
    share = k.n_shares > 0 ? k.shares[0] : (struct wire_kv_share){0};
    k.shares = &share;
    wire_free(r);
    peer_close(p);
    return k;
}

/* --- what counts ---------------------------------------------------------------------------------------- */

static void test_manifest(void **state)
{
    struct box *b = *state;
    struct stat sb;
    assert_int_equal(stat(in_kv(b, "."), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0700);
    int64_t one = save(b, "save=2 kvsize=1000", NULL), two = save(b, "save=1 kvsize=500", "tales");
    assert_int_equal(rows(b), 3);
    struct wire_kv_files k = usage(b);
    assert_int_equal(k.n_shares, 1);
    assert_int_equal(k.shares[0].uid, geteuid());
    assert_int_equal(k.shares[0].files, 3);
    assert_int_equal(k.shares[0].bytes, 2500);
    assert_true(k.limit > 0 && k.limit_per_uid == k.limit);
    again(b);
    assert_int_equal(rows(b), 3);
    assert_true(has_file(b, one, 0) && has_file(b, one, 1) && has_file(b, two, 0));
    assert_int_equal(usage(b).shares[0].bytes, 2500);
}

/* A crash between the file and its row, and between the row and the file. */
static void test_reconciled(void **state)
{
    struct box *b = *state;
    int64_t one = save(b, "save=3", NULL);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    char text[200];
    snprintf(text, sizeof(text), "DELETE FROM kv_file WHERE name = '%s'", name_of(one, 0));
    sql_run(b->db, text);
    assert_int_equal(unlink(in_kv(b, name_of(one, 1))), 0);
    put_file(b, name_of(77, 0), 10);
    put_file(b, "000000000000fa4e-ffffffffffffffffffffffffffffffff.kv.123.tmp", 10);
    box_start(b);
    assert_false(has_file(b, one, 0));
    assert_true(has_file(b, one, 2));
    assert_int_equal(n_files(b), 1);
    assert_int_equal(rows(b), 1);
    assert_true(box_log_has(b, "3 KV files without a row are removed"));
    box_works(b);
}

/* What is no file of ours is named, and neither followed nor removed; a file of another size is set aside. */
static void test_foreign(void **state)
{
    struct box *b = *state;
    char other[128];
    snprintf(other, sizeof(other), "%s/other", b->dir);
    int64_t one = save(b, "save=4", NULL);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    assert_int_equal(rename(in_kv(b, name_of(one, 0)), other), 0);
    assert_int_equal(symlink(other, in_kv(b, name_of(one, 0))), 0);
    assert_int_equal(unlink(in_kv(b, name_of(one, 1))), 0);
    assert_int_equal(mkdir(in_kv(b, name_of(one, 1)), 0700), 0);
    assert_int_equal(truncate(in_kv(b, name_of(one, 2)), 99), 0);
    assert_int_equal(symlink(other, in_kv(b, name_of(78, 0))), 0);
    put_file(b, "notes.txt", 5);
    box_start(b);
    assert_int_equal(rows(b), 1);
    assert_true(has_file(b, one, 0) && has_file(b, one, 1) && has_file(b, one, 3) && has_file(b, 78, 0));
    assert_true(has(b, "notes.txt"));
    assert_int_equal(access(other, F_OK), 0);
    char bad[80];
    snprintf(bad, sizeof(bad), "%s.bad", name_of(one, 2));
    assert_true(has(b, bad));
    assert_false(has_file(b, one, 2));
    assert_true(box_log_has(b, "is not followed: a symbolic link"));
    assert_true(box_log_has(b, "is not followed: not a plain file"));
    assert_true(box_log_has(b, "99 bytes, and 100 were written"));
    assert_true(box_log_has(b, "notes.txt is not hearth's"));
    box_works(b);
}

/* An engine that announces what is not so is not believed. */
static void test_lie(void **state)
{
    struct box *b = *state;
    int64_t one = save(b, "save=1 kvlie", NULL);
    assert_int_equal(rows(b), 0);
    assert_false(has_file(b, one, 0));
    assert_true(box_log_has(b, "the engine announced 101 bytes, and it has 100"));
    box_works(b);
}

static void test_bad(void **state)
{
    struct box *b = *state;
    char script[40];
    int64_t last = 0, first = 0;
    for (int i = 0; i < 10; i++) {
        last = save(b, "save=1", NULL);
        first = first != 0 ? first : last;
        snprintf(script, sizeof(script), "kvbad=%lld", (long long)last);
        save(b, script, NULL);
    }
    assert_int_equal(rows(b), 0);
    assert_int_equal(n_files(b), 8); /* the last ones stay, for people to look at */
    char bad[80];
    snprintf(bad, sizeof(bad), "%s.bad", name_of(last, 0));
    assert_true(has(b, bad));
    snprintf(bad, sizeof(bad), "%s.bad", name_of(first, 0));
    assert_false(has(b, bad));
    assert_true(box_log_has(b, "as the prompt said"));
    again(b);
    assert_int_equal(n_files(b), 8);

    /* Refused, and not renamed: hearthd does that where it is a file of ours, and says what it has done. */
    last = save(b, "save=1", NULL);
    snprintf(script, sizeof(script), "kvstay kvbad=%lld", (long long)last);
    save(b, script, NULL);
    assert_int_equal(rows(b), 0);
    assert_false(has_file(b, last, 0));
    snprintf(bad, sizeof(bad), "%s.bad", name_of(last, 0));
    assert_true(has(b, bad));
    assert_int_equal(n_files(b), 8);
    last = save(b, "save=1", NULL);
    assert_int_equal(unlink(in_kv(b, name_of(last, 0))), 0);
    assert_int_equal(symlink("/etc/passwd", in_kv(b, name_of(last, 0))), 0);
    snprintf(script, sizeof(script), "kvstay kvbad=%lld", (long long)last);
    save(b, script, NULL);
    assert_int_equal(rows(b), 0);
    assert_true(has_file(b, last, 0));
    assert_true(box_log_has(b, "is refused and left as it is"));
}

/* A minute passes for the files, and for the hearthd that comes after: no test waits for it. */
static void a_minute_later(struct box *b)
{
    assert_int_equal(box_stop(b, SIGTERM), 0);
    sql_run(b->db, "UPDATE kv_clock SET wall = wall - 60");
    box_start(b);
}

/* --- what goes ------------------------------------------------------------------------------------------ */

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
    snprintf(script, sizeof(script), "kvused=%lld", (long long)one);
    save(b, script, NULL);
    a_minute_later(b);
    int64_t three = save(b, "save=1 kvsize=400", NULL);
    assert_true(has_file(b, one, 0) && has_file(b, three, 0));
    assert_false(has_file(b, two, 0));
    assert_int_equal(rows(b), 2);
    int64_t four = save(b, "save=1 kvsize=1001", NULL); /* larger than all that there may be */
    assert_false(has_file(b, four, 0));
    assert_true(has_file(b, one, 0) && has_file(b, three, 0));
    assert_int_equal(rows(b), 2);

    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_configure(b, "kv_disk = 500\n"); /* a smaller limit counts from the start */
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

static void test_quota(void **state)
{
    struct box *b = *state;
    box_configure(b, "kv_disk_per_uid = 1000\n");
    box_start(b);
    int64_t one = save(b, "save=2 kvsize=400", NULL);
    a_minute_later(b);
    int64_t two = save(b, "save=1 kvsize=400", NULL);
    assert_false(has_file(b, one, 1)); /* the end of what is older */
    assert_true(has_file(b, one, 0) && has_file(b, two, 0));
    assert_int_equal(usage(b).limit_per_uid, 1000);
}

/* A session's beginning is not older than its end. */
static void test_session_together(void **state)
{
    struct box *b = *state;
    box_configure(b, "kv_disk = 1000\n");
    box_start(b);
    int64_t old = save(b, "save=1 kvsize=300", "mine");
    a_minute_later(b);
    int64_t other = save(b, "save=1 kvsize=300", "other");
    a_minute_later(b);
    int64_t young = save(b, "save=2 kvsize=200", "mine");
    assert_true(has_file(b, young, 0) && has_file(b, young, 1));
    a_minute_later(b);
    int64_t more = save(b, "save=1 kvsize=300", NULL);
    assert_false(has_file(b, other, 0)); /* younger than `old`, and not of use since */
    assert_true(has_file(b, old, 0) && has_file(b, more, 0));
}

/* The engine is told which files are gone; but not of one that was made just now, which it would write again. */
static void test_told(void **state)
{
    struct box *b = *state;
    char line[80];
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
    snprintf(line, sizeof(line), "fake-engine: %s is gone", name_of(old, 0));
    assert_true(box_log_has(b, line));
    snprintf(line, sizeof(line), "fake-engine: %s is gone", name_of(three, 0));
    assert_false(box_log_has(b, line));

    struct peer *p = peer_open(b); /* a session that goes takes its files along, however young */
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &(struct wire_session_ref){.session = "b"}));
    wire_free(peer_call(p, WIRE_STATUS, NULL));
    peer_close(p);
    snprintf(line, sizeof(line), "fake-engine: %s is gone", name_of(two, 0));
    assert_true(box_log_has(b, line));
}

/* The wall clock may be wrong for as long as it likes. */
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
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        assert_int_equal(box_stop(b, SIGTERM), 0);
        sql_run(b->db, jumps[i]);
        box_start(b);
        assert_true(has_file(b, one, 0));
        save(b, "save=1", "s");
    }
    /* Time that has really passed counts: a month of starts, each a week after the last. */
    for (int i = 0; i < 5; i++) {
        assert_int_equal(box_stop(b, SIGTERM), 0);
        sql_run(b->db, "UPDATE kv_clock SET wall = wall - 8 * 86400.0");
        box_start(b);
    }
    assert_int_equal(n_files(b), 0);
    assert_int_equal(rows(b), 0);
    box_works(b);
}

/* What belongs to no session is not kept for long. */
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

/* --- sessions ------------------------------------------------------------------------------------------- */

static void test_removed_session(void **state)
{
    struct box *b = *state;
    int64_t a1 = save(b, "save=1", "a"), a2 = save(b, "save=2", "a"), other = save(b, "save=1", "b");
    int64_t none = save(b, "save=1", NULL);
    struct peer *p = peer_open(b);
    char script[40], bad[80];
    int64_t damaged = save(b, "save=1", NULL);
    snprintf(script, sizeof(script), "kvbad=%lld", (long long)damaged);
    save(b, script, NULL);
    snprintf(bad, sizeof(bad), "%s.bad", name_of(damaged, 0));
    assert_true(has(b, bad)); /* whose it was nobody knows */
    snprintf(bad, sizeof(bad), "%s.bad", name_of(a1, 0));
    assert_int_equal(rename(in_kv(b, name_of(a1, 0)), in_kv(b, bad)),
                     0); /* by an engine that died before it could say so */
    struct wire_attach at = {.stream = a2}, at_other = {.stream = other};
    wire_free(peer_call(p, WIRE_STREAM_ATTACH, &at));
    struct wire_session_ref ref = {.session = "a"};
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
    assert_false(has_file(b, a1, 0) || has_file(b, a2, 0) || has_file(b, a2, 1));
    assert_true(has_file(b, other, 0) && has_file(b, none, 0));
    assert_int_equal(rows(b), 2);
    assert_int_equal(n_files(b), 2);
    peer_refused(p, WIRE_STREAM_ATTACH, &at, HEARTH_ENOSTREAM, ""); /* nor is its text to be had that way */
    wire_free(peer_call(p, WIRE_STREAM_ATTACH, &at_other));

    /* What was still being written when its session was removed does not stay either. */
    int64_t late = save(b, "save=2 kvorphan", "b");
    assert_false(has_file(b, late, 0) || has_file(b, late, 1));
    assert_int_equal(rows(b), 2);
    peer_close(p);
}

/* Many go in pieces, between which hearthd does what it is for; those that a crash leaves go at the next start. */
static void test_many(void **state)
{
    struct box *b = *state;
    int64_t other = save(b, "save=2", "other");
    for (int round = 0; round < 2; round++) {
        save(b, "save=150", "many");
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

/* --- a folder that cannot be ------------------------------------------------------------------------------ */

static void without_kv(struct box *b, const char *why)
{
    box_start(b);
    assert_true(box_log_has(b, why));
    assert_true(box_log_has(b, "KV is not kept on the disk"));
    save(b, "save=1", "s");
    assert_int_equal(usage(b).limit, 0);
    assert_int_equal(box_stop(b, SIGTERM), 0);
}

static void test_folder(void **state)
{
    struct box *b = *state;
    char elsewhere[128], cmd[400];
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", b->dir);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    assert_int_equal(mkdir(b->state, 0700), 0);
    snprintf(cmd, sizeof(cmd), "%s/%s.kv", elsewhere, "000000000000fa4e-00000000000000000000000000000001");
    close(open(cmd, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(symlink(elsewhere, in_kv(b, "") /* ends with a slash */), -1);
    snprintf(cmd, sizeof(cmd), "ln -s '%s' '%s/kv'", elsewhere, b->state);
    assert_int_equal(system(cmd), 0);
    without_kv(b, "state/kv: ");
    snprintf(cmd, sizeof(cmd), "test -e '%s'/000*.kv && rm '%s/kv' && echo x > '%s/kv'", elsewhere, b->state, b->state);
    assert_int_equal(system(cmd), 0);
    without_kv(b, "state/kv: Not a directory");
    snprintf(cmd, sizeof(cmd), "rm '%s/kv' && mkdir -m 0755 '%s/kv'", b->state, b->state);
    assert_int_equal(system(cmd), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(in_kv(b, "."), 12345, 12345), 0);
        without_kv(b, "state/kv belongs to user 12345");
        assert_int_equal(chown(in_kv(b, "."), 0, 0), 0);
    }
    box_start(b); /* and one that others could look into is closed to them */
    struct stat sb;
    assert_int_equal(stat(in_kv(b, "."), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0700);
    save(b, "save=1", NULL);
    assert_int_equal(rows(b), 1);
}

/* Who has how much: a user is told of himself, root of everybody; and the one who has the most gives. */
static void test_other_uid(void **state)
{
    struct box *b = *state;
    if (geteuid() != 0)
        skip();
    box_configure(b, "kv_disk = 1000\n");
    box_start(b);
    char run_dir[80];
    snprintf(run_dir, sizeof(run_dir), "%s/run", b->dir);
    chmod(b->dir, 0755);
    chmod(run_dir, 0755);
    chmod(b->socket, 0666);
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
    assert_true(has_file(b, mine, 0)); /* it is the oldest, but not his */
    assert_int_equal(usage(b).n_shares, 2);
    assert_int_equal(sql_run(b->db, "SELECT sum(bytes) FROM kv_file WHERE uid = 65534"), 600);
}

/* A disk that takes no more: what has no row is not kept, and nobody's text is the worse for it. */
static void test_full_disk(void **state)
{
    struct box *b = *state;
    int64_t one = save(b, "save=1", NULL);
    struct peer *p = peer_open(b);
    box_limit_files(b, 10);
    struct wire_generate_result *r = run(p, "save=2 n=4", NULL);
    assert_string_equal(r->text.data, "t0 t1 t2 t3 ");
    assert_string_equal(r->finish_reason, "stop");
    int64_t two = r->stream;
    wire_free(r);
    wire_free(peer_call(p, WIRE_STATUS, NULL));
    assert_false(has_file(b, two, 0) || has_file(b, two, 1));
    assert_true(has_file(b, one, 0));
    assert_int_equal(usage(b).shares[0].files, 1);
    box_limit_files(b, 0);
    int64_t three = save(b, "save=1", NULL);
    peer_close(p);
    again(b);
    assert_true(has_file(b, one, 0) && has_file(b, three, 0));
    assert_int_equal(rows(b), 2);
}

/* What a newer hearthd has written is its own. */
static void test_newer(void **state)
{
    struct box *b = *state;
    int64_t one = save(b, "save=1", NULL);
    int64_t version = sql_run(b->db, "PRAGMA user_version");
    char text[60];
    assert_int_equal(box_stop(b, SIGTERM), 0);
    sql_run(b->db, "PRAGMA user_version = 99");
    box_start(b);
    box_works(b);
    save(b, "save=1", NULL);
    assert_int_equal(n_files(b), 1);
    assert_int_equal(usage(b).limit, 0);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    snprintf(text, sizeof(text), "PRAGMA user_version = %lld", (long long)version);
    sql_run(b->db, text);
    box_start(b);
    assert_true(has_file(b, one, 0));
    assert_int_equal(rows(b), 1);
}

/* The folder is taken away under a running daemon: KV goes where nobody finds it, and that is all. */
static void test_folder_gone(void **state)
{
    struct box *b = *state;
    char cmd[300];
    save(b, "n=1", NULL);
    snprintf(cmd, sizeof(cmd), "mv '%s/kv' '%s/kv.away' && echo x > '%s/kv'", b->state, b->state, b->state);
    assert_int_equal(system(cmd), 0);
    box_works(b);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    without_kv(b, "Not a directory");
}

/* Rows are outside input: one that cannot be is dropped, and its file with it. */
static void test_damaged_rows(void **state)
{
    struct box *b = *state;
    static const char *const harm[] = {
        "UPDATE kv_file SET name = name || 'x'", "UPDATE kv_file SET name = '../../../etc/passwd'",
        "UPDATE kv_file SET name = x'0001'",     "UPDATE kv_file SET fingerprint = ''",
        "UPDATE kv_file SET session = 'nobody'", "UPDATE kv_file SET uid = -1",
        "UPDATE kv_file SET uid = 1e18",         "UPDATE kv_file SET bytes = 0",
        "UPDATE kv_file SET bytes = 9e18",       "UPDATE kv_file SET tokens = -16",
        "UPDATE kv_file SET pos = 1e12",         "UPDATE kv_file SET used = 9e999",
        "UPDATE kv_file SET bytes = 'many'",
    };
    for (size_t i = 0; i < sizeof(harm) / sizeof(harm[0]); i++) {
        int64_t one = save(b, "save=1", NULL);
        assert_int_equal(box_stop(b, SIGTERM), 0);
        sql_run(b->db, harm[i]);
        box_start(b);
        if (has_file(b, one, 0) || rows(b) != 0)
            fail_msg("%s: the file is still there", harm[i]);
        box_works(b);
    }
    assert_true(box_log_has(b, "is damaged: dropped"));
}

#define RUNS(f)  cmocka_unit_test_setup_teardown(f, box_setup, box_teardown)
#define ALONE(f) cmocka_unit_test_setup_teardown(f, box_setup_idle, box_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUNS(test_manifest),    RUNS(test_reconciled),
        RUNS(test_foreign),     RUNS(test_lie),
        RUNS(test_bad),         ALONE(test_limit),
        ALONE(test_quota),      ALONE(test_session_together),
        RUNS(test_clock),       RUNS(test_removed_session),
        ALONE(test_folder),     RUNS(test_damaged_rows),
        ALONE(test_other_uid),  RUNS(test_no_session),
        RUNS(test_full_disk),   RUNS(test_newer),
        RUNS(test_folder_gone), RUNS(test_many),
        ALONE(test_told),
    };
    return cmocka_run_group_tests_name("daemon/kv", tests, NULL, NULL);
}
