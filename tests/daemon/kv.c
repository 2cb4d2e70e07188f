/* kv.c - hearthd's folder of KV files: its manifest and totals, damaged files, and files that are not its own. */
#include "config.h"

#include "tests/daemon/kv-files.h"

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

/* A crash between writing the file and its row, and between removing the row and the file. */
static void test_reconciled(void **state)
{
    struct box *b = *state;
    int64_t one = save(b, "save=3", NULL);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    char text[200];
    snprintf(text, sizeof text, "DELETE FROM kv_file WHERE name = '%s'", name_of(one, 0));
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

/* Anything that is not a KV file of hearthd is logged, and neither followed nor removed; a file of a wrong size is set
 * aside. */
static void test_foreign(void **state)
{
    struct box *b = *state;
    char other[128];
    snprintf(other, sizeof other, "%s/other", b->dir);
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
    snprintf(bad, sizeof bad, "%s.bad", name_of(one, 2));
    assert_true(has(b, bad));
    assert_false(has_file(b, one, 2));
    assert_true(box_log_has(b, "is not followed: a symbolic link"));
    assert_true(box_log_has(b, "is not followed: not a plain file"));
    assert_true(box_log_has(b, "99 bytes, and 100 were written"));
    assert_true(box_log_has(b, "notes.txt is not hearth's"));
    box_works(b);
}

/* Files that an engine has set aside count and are removed, whatever they are: another user's may be large. */
static void test_foreign_bad(void **state)
{
    struct box *b = *state;
    assert_int_equal(box_stop(b, SIGTERM), 0);
    for (int i = 0; i < 12; i++) {
        const char *bad = in_kv(b, bad_of(i));
        if (i % 3 == 0)
            assert_int_equal(symlink(b->db, bad), 0);
        else if (i % 3 == 1)
            assert_int_equal(mkfifo(bad, 0600), 0);
        else
            put_file(b, bad_of(i), 100);
        if (geteuid() == 0)
            assert_int_equal(lchown(bad, 65534, 65534), 0);
    }
    assert_int_equal(symlink(b->db, in_kv(b, "notes.bad")), 0); /* not a name that hearthd uses */
    assert_int_equal(mkdir(in_kv(b, bad_of(77)), 0700), 0);
    box_start(b);
    assert_int_equal(n_files(b), 8 + 2);
    assert_true(has(b, "notes.bad") && has(b, bad_of(77)));
    /* An engine reports a bad file while it runs; if the file has been renamed by then, only its name is known. */
    int64_t one = save(b, "save=1", "s");
    assert_int_equal(unlink(in_kv(b, name_of(one, 0))), 0);
    assert_int_equal(symlink(b->db, in_kv(b, name_of(one, 0))), 0);
    char script[40];
    snprintf(script, sizeof script, "kvbad=%lld", (long long)one);
    save(b, script, NULL);
    assert_true(has(b, bad_of(one)));
    assert_int_equal(n_files(b), 8 + 2);
    struct peer *p = peer_open(b);
    struct wire_session_ref r = {.session = "s"};
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    peer_close(p);
    assert_int_equal(n_files(b), 2); /* their owners are unknown */
    assert_int_equal(access(b->db, F_OK), 0);
}

/* Wrong announcements of an engine are not believed. */
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
        snprintf(script, sizeof script, "kvbad=%lld", (long long)last);
        save(b, script, NULL);
    }
    assert_int_equal(rows(b), 0);
    assert_int_equal(n_files(b), 8); /* the last ones are kept for inspection */
    assert_true(has(b, bad_of(last)));
    assert_false(has(b, bad_of(first)));
    assert_true(box_log_has(b, "as the prompt said"));
    again(b);
    assert_int_equal(n_files(b), 8);

    /* Refused, and not renamed: hearthd renames a file if it is its own, and reports what it has done. */
    last = save(b, "save=1", NULL);
    snprintf(script, sizeof script, "kvstay kvbad=%lld", (long long)last);
    save(b, script, NULL);
    assert_int_equal(rows(b), 0);
    assert_false(has_file(b, last, 0));
    assert_true(has(b, bad_of(last)));
    assert_int_equal(n_files(b), 8);
    last = save(b, "save=1", NULL);
    assert_int_equal(unlink(in_kv(b, name_of(last, 0))), 0);
    assert_int_equal(symlink("/etc/passwd", in_kv(b, name_of(last, 0))), 0);
    snprintf(script, sizeof script, "kvstay kvbad=%lld", (long long)last);
    save(b, script, NULL);
    assert_int_equal(rows(b), 0);
    assert_true(has_file(b, last, 0));
    assert_true(box_log_has(b, "is refused and left as it is"));
}

/* --- folders that cannot be used ---------------------------------------------------------------------------------- */

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
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", b->dir);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    assert_int_equal(mkdir(b->state, 0700), 0);
    snprintf(cmd, sizeof cmd, "%s/%s.kv", elsewhere, "000000000000fa4e-00000000000000000000000000000001");
    close(open(cmd, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(symlink(elsewhere, in_kv(b, "") /* ends with a slash */), -1);
    snprintf(cmd, sizeof cmd, "ln -s '%s' '%s/kv'", elsewhere, b->state);
    assert_int_equal(system(cmd), 0);
    without_kv(b, "state/kv: ");
    snprintf(cmd, sizeof cmd, "test -e '%s'/000*.kv && rm '%s/kv' && echo x > '%s/kv'", elsewhere, b->state, b->state);
    assert_int_equal(system(cmd), 0);
    without_kv(b, "state/kv: Not a directory");
    snprintf(cmd, sizeof cmd, "rm '%s/kv' && mkdir -m 0755 '%s/kv'", b->state, b->state);
    assert_int_equal(system(cmd), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(in_kv(b, "."), 12345, 12345), 0);
        without_kv(b, "state/kv belongs to user 12345");
        assert_int_equal(chown(in_kv(b, "."), 0, 0), 0);
    }
    box_start(b); /* a folder that others could read is closed to them */
    struct stat sb;
    assert_int_equal(stat(in_kv(b, "."), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0700);
    save(b, "save=1", NULL);
    assert_int_equal(rows(b), 1);
}

/* With a full disk, files without a row are not kept, and no text is affected. */
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

/* Data that a newer hearthd has written are left alone. */
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
    snprintf(text, sizeof text, "PRAGMA user_version = %lld", (long long)version);
    sql_run(b->db, text);
    box_start(b);
    assert_true(has_file(b, one, 0));
    assert_int_equal(rows(b), 1);
}

/* The folder is removed while the daemon runs: KV is lost, and nothing else. */
static void test_folder_gone(void **state)
{
    struct box *b = *state;
    char cmd[300];
    save(b, "n=1", NULL);
    snprintf(cmd, sizeof cmd, "mv '%s/kv' '%s/kv.away' && echo x > '%s/kv'", b->state, b->state, b->state);
    assert_int_equal(system(cmd), 0);
    box_works(b);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    without_kv(b, "Not a directory");
}

/* Rows are outside input: an impossible one is dropped, and its file with it. */
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
    for (size_t i = 0; i < sizeof harm / sizeof harm[0]; i++) {
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

/* A turn is dropped before its KV is on the disk: what the session has lost does not stay there, even if its next turn
 * runs by then. */
static void test_late_kv_of_a_dropped_turn(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=3", "s"));
    wire_free(peer_call(p, WIRE_SESSIONS_FORK, &(struct wire_session_fork){.session = "s", .at = -1, .count = 1}));
    struct wire_generate_result *r = run(p, "n=3 save=8 kvlate", "s"); /* of one token each: six were there before */
    int64_t late = r->stream;
    wire_free(r);
    wire_free(peer_call(p, WIRE_SESSIONS_ADOPT, &(struct wire_session_adopt){.session = "s.1", .replace = true}));
    assert_int_equal(n_files(b), 0);
    struct wire_generate hang = request("hang", "s");
    peer_ask(p, WIRE_GENERATE, &hang);
    peer_await_begin(p, 3);
    for (int i = 0; i < 2; i++)
        wire_free(peer_call(p, WIRE_STATUS, NULL));
    assert_true(has_file(b, late, 5));
    assert_false(has_file(b, late, 6) || has_file(b, late, 7));
    peer_close(p);
}

#define RUNS(f)  cmocka_unit_test_setup_teardown(f, box_setup, box_teardown)
#define ALONE(f) cmocka_unit_test_setup_teardown(f, box_setup_idle, box_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUNS(test_manifest), RUNS(test_reconciled),  RUNS(test_foreign),      RUNS(test_foreign_bad),
        RUNS(test_lie),      RUNS(test_bad),         ALONE(test_folder),      RUNS(test_full_disk),
        RUNS(test_newer),    RUNS(test_folder_gone), RUNS(test_damaged_rows), RUNS(test_late_kv_of_a_dropped_turn),
    };
    return cmocka_run_group_tests_name("daemon/kv", tests, NULL, NULL);
}
