/* backup.c - a copy of the database that is made while it is in use is complete and consistent. */
#include "config.h"

#include "tests/daemon/harness.h"
#include "tests/sql.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_backup(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    char path[128], cmd[512];
    snprintf(path, sizeof path, "%s/copy.db", b->dir);
    /* Streams run meanwhile, and every turn that was answered before a backup is in it. */
    struct wire_generate g = request("gate n=1000", "running");
    peer_ask(q, WIRE_GENERATE, &g);
    peer_await_begin(q, 1);
    struct wire_tokenize tick = {.model = "fake", .text = {"tick", 4}, .bos = -1};
    for (int i = 1; i <= 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        wire_free(run(p, "n=3", name));
        wire_free(peer_call(p, WIRE_TOKENIZE, &tick));
        struct wire_backup bk = {.path = path, .replace = i > 1};
        struct wire_backup_result *r = peer_call(p, WIRE_BACKUP, &bk);
        struct stat sb;
        assert_int_equal(stat(path, &sb), 0);
        assert_int_equal(sb.st_size, r->bytes);
        assert_int_equal(sb.st_mode & 0777, 0600);
        wire_free(r);
        assert_int_equal(sql_run(path, "SELECT count(*) FROM sessions"), i);
        assert_int_equal(sql_run(path, "SELECT count(*) FROM turns"), 2 * i);
        assert_int_equal(sql_run(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    }
    peer_await_tokens(q, 10); /* the stream continued meanwhile */
    struct wire_backup bk = {.path = path};
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EIO, "exists");
    bk.path = "relative";
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EPARAMS, "backup.path: \"relative\" is no absolute path");
    bk.path = "/nonexistent/copy";
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EIO, "/nonexistent/copy");
    /* Not over anything but a regular file: a backup to /dev/null would otherwise replace /dev/null. */
    snprintf(cmd, sizeof cmd, "%s/pipe", b->dir);
    assert_int_equal(mkfifo(cmd, 0600), 0);
    bk = (struct wire_backup){.path = cmd, .replace = true};
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EPARAMS, "device, socket or pipe");
    struct stat fifo;
    assert_true(lstat(cmd, &fifo) == 0 && S_ISFIFO(fifo.st_mode));
    bk = (struct wire_backup){.path = b->dir};
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EPARAMS, "is a folder");
    /* Not over the database itself, or hearthd would continue in a deleted file. */
    static const char *const own[] = {
        "sessions.db", "sessions.db-wal", "sessions.db-shm", "sessions.db-journal", "engine.lock", "kv/x", "journal/77",
        "mine"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        snprintf(cmd, sizeof cmd, "%s/../%s/%s", b->state, strrchr(b->state, '/') + 1, own[i]);
        bk = (struct wire_backup){.path = cmd, .replace = true};
        peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EPARAMS, "folder of the database");
    }
    snprintf(cmd, sizeof cmd, "%s.lock", b->socket);
    bk = (struct wire_backup){.path = cmd, .replace = true};
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EPARAMS, "socket");
    peer_close(p);
    peer_close(q);

    /* Restored as hearthd(8) describes, the database is complete. */
    assert_int_equal(box_stop(b, SIGTERM), 0);
    snprintf(cmd, sizeof cmd,
             "cd '%s' && rm -rf sessions.db sessions.db-wal sessions.db-shm journal && cp '%s' sessions.db", b->state,
             path);
    assert_int_equal(system(cmd), 0);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(peer_sessions(p), 10);
    struct wire_generate_result *r = run(p, "n=1", "s10");
    assert_int_equal(r->usage.prompt_tokens, 6 + 3);
    wire_free(r);
    peer_close(p);
}

/* What was removed before a backup is not in it. It is deleted in slices, between which other clients are served. */
static void test_backup_after_removal(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char path[128];
    struct hearth_err e;
    for (int i = 0; i < 60; i++)
        wire_free(run(p, "n=1 size=60000", "big")); /* 3.6 MB: 14 slices */
    wire_free(run(p, "n=1", "kept"));
    snprintf(path, sizeof path, "%s/copy.db", b->dir);
    uint32_t removal = peer_ask(p, WIRE_SESSIONS_REMOVE, &(struct wire_session_ref){.session = "big"});
    uint32_t copy = peer_ask(p, WIRE_BACKUP, &(struct wire_backup){.path = path});
    wire_free(peer_answer(p, removal, WIRE_SESSIONS_REMOVE, &e));
    wire_free(peer_answer(p, copy, WIRE_BACKUP, &e));
    peer_close(p);
    assert_int_equal(sql_run(path, "SELECT count(*) FROM sessions"), 1);
    assert_int_equal(sql_run(path, "SELECT count(*) FROM turns"), 2);
    assert_true(box_log_has(b, "slices of what was removed"));
}

/* hearthd ends in the middle of a backup: it does not hang, and leaves no partial file. */
static void test_backup_and_end(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char path[128], cmd[160];
    wire_free(run(p, "n=200 size=60000", "big")); /* 12 MB */
    snprintf(path, sizeof path, "%s/copy.db", b->dir);
    struct wire_backup bk = {.path = path};
    peer_ask(p, WIRE_BACKUP, &bk);
    struct wire_shutdown now_please = {.now = true};
    peer_ask(p, WIRE_SHUTDOWN, &now_please);
    assert_int_equal(wait_exit(b->pid), 0);
    b->pid = 0;
    peer_close(p);
    if (access(path, F_OK) == 0)
        assert_int_equal(sql_run(path, "SELECT count(*) FROM turns"), 2);
    snprintf(cmd, sizeof cmd, "test $(ls '%s' | grep -c 'copy[.]db[.]') = 0", b->dir);
    assert_int_equal(system(cmd), 0);
}

/* If a step of it gets no descriptor, the error says so, whichever step it is; with enough descriptors the backup is
 * made. */
static void test_backup_without_descriptors(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char path[128];
    struct hearth_err e;
    struct rlimit few;
    struct wire_backup_result *r = NULL;
    int refused = 0;
    wire_free(run(p, "n=1", "kept"));
    snprintf(path, sizeof path, "%s/copy.db", b->dir);
    assert_int_equal(prlimit(b->pid, RLIMIT_NOFILE, NULL, &few), 0);
    for (few.rlim_cur = 3;; few.rlim_cur++, refused++) {
        assert_int_equal(prlimit(b->pid, RLIMIT_NOFILE, &few, NULL), 0);
        r = peer_answer(p, peer_ask(p, WIRE_BACKUP, &(struct wire_backup){.path = path}), WIRE_BACKUP, &e);
        if (r)
            break;
        if (e.code != HEARTH_ELIMIT || !strstr(e.msg, strerror(EMFILE)))
            fail_msg("refused %d times, then %s: %s", refused, err_name(e.code), e.msg);
    }
    wire_free(r);
    assert_true(refused >= 4); /* for waking the loop, for the copy's file, and for each database */
    peer_close(p);
    assert_int_equal(sql_run(path, "SELECT count(*) FROM sessions"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_backup, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_backup_after_removal, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_backup_without_descriptors, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_backup_and_end, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
