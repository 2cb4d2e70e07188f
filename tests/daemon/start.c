/* start.c - how hearthd starts and stops: one daemon per socket, nothing left behind, socket activation and
 * notifications. */
#include "config.h"

#include "tests/daemon/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const foreground[] = {"--foreground", NULL};

static void stop_by_request(const struct box *b, bool now)
{
    struct peer *p = peer_open(b);
    struct wire_shutdown s = {.now = now};
    wire_free(peer_call(p, WIRE_SHUTDOWN, &s));
    peer_await_close(p);
    peer_close(p);
}

static pid_t daemon_pid(const struct box *b)
{
    struct peer *p = peer_open(b);
    struct wire_empty none = {0};
    struct wire_status_result *st = peer_call(p, WIRE_STATUS, &none);
    pid_t pid = (pid_t)st->pid;
    wire_free(st);
    peer_close(p);
    return pid;
}

static void test_modes(void **state)
{
    struct box *b = *state;
    struct stat sb;
    char dir[96];
    assert_int_equal(stat(b->socket, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    snprintf(dir, sizeof dir, "%s/run", b->dir);
    assert_int_equal(stat(dir, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0700);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    assert_int_equal(stat(b->socket, &sb), -1); /* the socket is removed */
}

/* Eight starts at once, detached, as eight clients would do it. */
static void test_starters(void **state)
{
    enum { N = 8 };
    struct box *b = *state;
    pid_t starters[N];
    int ready[N];
    for (int i = 0; i < N; i++)
        starters[i] = box_spawn(b, NULL, &ready[i]);
    pid_t pid = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(wait_exit(starters[i]), 0);
        pid_t answers = daemon_pid(b); /* when a starter has ended, there is a daemon, and it is the same for all */
        assert_true(pid == 0 || pid == answers);
        pid = answers;
        close(ready[i]);
    }
    box_works(b);
    stop_by_request(b, false);
}

static void test_detached_log(void **state)
{
    struct box *b = *state;
    int ready, open_by_chance[2];
    char byte;
    assert_int_equal(pipe(open_by_chance), 0);
    pid_t starter = box_spawn(b, NULL, &ready);
    close(open_by_chance[1]);
    assert_int_equal(wait_exit(starter), 0);
    assert_int_equal(read(open_by_chance[0], &byte, 1), 0);
    close(open_by_chance[0]);
    assert_int_equal(read(ready, &byte, 1), 1);
    assert_int_equal(read(ready, &byte, 1), 0); /* it has closed its starter's descriptors */
    close(ready);
    pid_t pid = daemon_pid(b);
    assert_true(pid != starter);
    assert_int_equal(getsid(pid), pid);
    stop_by_request(b, false);
    snprintf(b->log, sizeof b->log, "%s/hearthd.log", b->state);
    assert_true(box_log_has(b, "listens on"));
}

static void test_second_ends_quietly(void **state)
{
    struct box *b = *state;
    int ready;
    char byte;
    pid_t second = box_spawn(b, foreground, &ready);
    assert_int_equal(wait_exit(second), 0);
    assert_int_equal(read(ready, &byte, 1), 1); /* the socket exists, so its starter may continue */
    close(ready);
    box_works(b);
    assert_false(box_log_has(b, "error"));
}

static void test_stale_socket(void **state)
{
    struct box *b = *state;
    box_start(b);
    box_stop(b, SIGKILL);
    struct stat sb;
    assert_int_equal(stat(b->socket, &sb), 0); /* left behind by the kill */
    assert_null(peer_try(b));
    box_start(b);
    box_works(b);
}

/* While one daemon is ending, another one starts: it waits, then takes over. */
static void test_takes_over(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("hang", "s");
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    struct wire_shutdown s = {0};
    struct peer *q = peer_open(b);
    wire_free(peer_call(q, WIRE_SHUTDOWN, &s)); /* finishing: it no longer listens */
    assert_null(peer_try(b));
    int ready;
    char byte;
    pid_t old = b->pid, next = box_spawn(b, foreground, &ready);
    struct hearth_err e;
    kill(old, SIGTERM); /* ends at once */
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    assert_int_equal(wait_exit(old), 0);
    b->pid = next;
    assert_int_equal(read(ready, &byte, 1), 1);
    close(ready);
    box_works(b);
    peer_close(p);
    peer_close(q);
}

/* A second hearthd, started as a client would start it, finds the first one, and exits. */
static void finds_the_first(struct box *b)
{
    int ready;
    pid_t first = b->pid, second = box_spawn(b, foreground, &ready);
    struct pollfd end = {.fd = pidfd_open(second, 0), .events = POLLIN};
    assert_int_equal(poll(&end, 1, 120000), 1);
    close(end.fd);
    close(ready);
    assert_int_equal(wait_exit(second), 0);
    assert_int_equal(daemon_pid(b), first);
    box_works(b);
}

/* A socket that is deleted while its daemon runs is bound again; a client that waits for the daemon meanwhile finds
 * it. */
static void test_socket_deleted(void **state)
{
    struct box *b = *state;
    char cmd[160];
    struct peer *p = peer_open(b); /* existing connections are not affected */
    assert_int_equal(unlink(b->socket), 0);
    finds_the_first(b);
    assert_true(box_log_has(b, "had gone: bound again"));
    snprintf(cmd, sizeof cmd, "mv '%s/run' '%s/moved'", b->dir, b->dir);
    assert_int_equal(system(cmd), 0);
    finds_the_first(b);
    wire_free(peer_status(p));
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    assert_null(peer_try(b));
}

/* A client that waits for a daemon that does not answer says which one it waits for, and gives up. */
static void test_who_waits_says_so(void **state)
{
    struct box *b = *state;
    char says[96];
    int ready, out;
    box_configure(b, "shutdown_grace = 0\n");
    box_start(b);
    assert_int_equal(kill(b->pid, SIGSTOP), 0);
    assert_int_equal(unlink(b->socket), 0);
    pid_t second = box_spawn(b, foreground, &ready);
    assert_int_equal(read(ready, &out, 1), 0); /* closed without reporting readiness */
    close(ready);
    assert_int_equal(wait_exit(second), 1);
    snprintf(says, sizeof says, "waiting for process %d, which holds", (int)b->pid);
    assert_true(box_log_has(b, says));
    assert_true(box_log_has(b, "not waited for any longer"));
    assert_int_equal(kill(b->pid, SIGCONT), 0);
    finds_the_first(b);
}

static int try_with(struct box *b, const char *option, const char *value)
{
    const char *const extra[] = {"--foreground", option, value, NULL};
    int ready;
    pid_t pid = box_spawn(b, extra, &ready);
    close(ready);
    return wait_exit(pid);
}

/* A state folder that others may write to is still used, with a warning. */
static void test_open_state_folder(void **state)
{
    struct box *b = *state;
    assert_int_equal(mkdir(b->state, 0700), 0);
    box_start(b);
    assert_false(box_log_has(b, "can take the sessions away"));
    assert_int_equal(box_stop(b, SIGTERM), 0);
    assert_int_equal(chmod(b->state, 0777), 0);
    box_start(b);
    box_works(b);
    assert_true(box_log_has(b, "can be written by others, who can take the sessions away"));
}

/* A FIFO in the place of the log does not block hearthd: it says that there is no log or, if the log was configured to
 * be there, reports an error. */
static void test_log_is_a_fifo(void **state)
{
    struct box *b = *state;
    char path[128];
    int ready;
    assert_int_equal(mkdir(b->state, 0700), 0);
    snprintf(path, sizeof path, "%s/hearthd.log", b->state);
    assert_int_equal(mkfifo(path, 0600), 0);
    pid_t starter = box_spawn(b, NULL, &ready);
    struct pollfd end = {.fd = pidfd_open(starter, 0), .events = POLLIN};
    assert_int_equal(poll(&end, 1, 120000), 1);
    close(end.fd);
    close(ready);
    assert_int_equal(wait_exit(starter), 0);
    assert_true(box_log_has(b, "hearthd.log: No such device or address; there is no log"));
    box_works(b);
    stop_by_request(b, false);
    snprintf(path, sizeof path, "log_file = %s/hearthd.log\n", b->state);
    box_configure(b, path);
    assert_int_equal(try_with(b, NULL, NULL), 1);
    assert_true(box_log_has(b, "hearthd.log: "));
    starter = box_spawn(b, NULL, &ready);
    close(ready);
    assert_int_equal(wait_exit(starter), 1);
    assert_int_equal(access(b->socket, F_OK), -1); /* nothing is left where nobody listens */
}

/* No engine outlives its daemon, however the daemon ends. */
static void test_engine_goes_too(void **state)
{
    static const int signals[] = {SIGKILL, SIGTERM};
    struct box *b = *state;
    for (size_t i = 0; i < 2; i++) {
        box_start(b);
        struct peer *p = peer_open(b);
        struct wire_generate g = request("hang", NULL);
        peer_ask(p, WIRE_GENERATE, &g);
        peer_await_begin(p, 1);
        struct wire_empty none = {0};
        struct wire_status_result *st = peer_call(p, WIRE_STATUS, &none);
        struct pollfd engine = {.fd = pidfd_open((pid_t)st->engine.pid, 0), .events = POLLIN};
        assert_string_equal(st->engine.state, "running");
        wire_free(st);
        assert_true(engine.fd >= 0);
        peer_close(p);
        box_stop(b, signals[i]);
        assert_int_equal(poll(&engine, 1, 120000), 1);
        close(engine.fd);
    }
}

static void test_graceful(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_generate g = request("gate n=2", "s");
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    kill(b->pid, SIGTERM);
    while (true) { /* refused from the moment that the signal is handled */
        struct wire_generate more = request("n=1", NULL);
        struct hearth_err e = {0};
        void *r = peer_answer(q, peer_ask(q, WIRE_GENERATE, &more), WIRE_GENERATE, &e);
        wire_free(r);
        if (!r) {
            assert_int_equal(e.code, HEARTH_ESHUTDOWN);
            break;
        }
    }
    struct hearth_err e;
    kill(b->pid, SIGTERM); /* the second signal ends it at once; what was generated is kept */
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    assert_int_equal(box_stop(b, 0), 0);
    peer_close(p);
    peer_close(q);
}

/* On a busy machine 2 MB of text may take more than the usual 5 s. */
static int setup_long_grace(void **state)
{
    box_setup_idle(state);
    box_configure(*state, "shutdown_grace = 100\n");
    box_start(*state);
    return 0;
}

/* Streams that end within the grace period end normally. */
static void test_grace(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("n=20000 size=100", "s");
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    kill(b->pid, SIGTERM);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "stop");
    assert_int_equal(r->usage.completion_tokens, 20000);
    wire_free(r);
    peer_close(p);
    assert_int_equal(box_stop(b, 0), 0);
    box_start(b);
    p = peer_open(b);
    r = run(p, "n=1", "s");
    assert_int_equal(r->usage.prompt_tokens, 16 + 20000 + 3);
    wire_free(r);
    peer_close(p);
}

static void test_shutdown_now(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("hang", NULL);
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    stop_by_request(b, true);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "cancelled");
    wire_free(r);
    peer_close(p);
    assert_int_equal(box_stop(b, 0), 0);
}

/* A log in the state directory, which is created for it. */
static void test_log_in_new_state_folder(void **state)
{
    struct box *b = *state;
    char lines[256];
    snprintf(lines, sizeof lines, "log_file = %s/own.log\n", b->state);
    box_configure(b, lines);
    box_start(b);
    box_works(b);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    snprintf(b->log, sizeof b->log, "%s/own.log", b->state);
    assert_true(box_log_has(b, "hearthd ends"));
}

/* Runs hearthd --check: its output and its exit status. */
static int checked(const struct box *b, char *out, size_t size)
{
    char cmd[1200];
    const char *dir = getenv("top_builddir");
    const char *as = geteuid() == 0 ? "setpriv --bounding-set=-dac_override,-dac_read_search " : ""; /* as for others */
    snprintf(cmd, sizeof cmd, "%s'%s/hearthd' --check --config '%s' --state '%s' 2>&1", as, dir ? dir : ".", b->conf,
             b->state);
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    out[fread(out, 1, size - 1, f)] = 0;
    return WEXITSTATUS(pclose(f));
}

/* Checks that it refuses a path that is the wrong kind of thing, and names both. */
static void check_says(struct box *b, const char *key, const char *path, const char *why)
{
    char out[4096], lines[256];
    snprintf(lines, sizeof lines, "socket = /x/y.sock\n%s = %s\n", key, path);
    box_configure(b, lines);
    assert_int_equal(checked(b, out, sizeof out), 1);
    assert_non_null(strstr(out, why));
    assert_non_null(strstr(out, path));
}

static void test_check(void **state)
{
    struct box *b = *state;
    char out[4096], lines[256], made[128], line[160];
    snprintf(made, sizeof made, "%s/x/y.sock", b->dir);
    snprintf(lines, sizeof lines, "socket = %s\n", made);
    snprintf(line, sizeof line, "socket     %s\n", made);
    box_configure(b, lines);
    assert_int_equal(checked(b, out, sizeof out), 0);
    assert_non_null(strstr(out, line));
    assert_non_null(strstr(out, b->conf));
    assert_non_null(strstr(out, b->state));
    struct stat sb;
    assert_int_equal(stat(b->state, &sb), -1); /* nothing was created */
    assert_int_equal(chmod(b->dir, 0555), 0);  /* and nothing can be */
    assert_int_equal(checked(b, out, sizeof out), 1);
    snprintf(line, sizeof line, "socket     %s: Permission denied\n", made);
    assert_non_null(strstr(out, line));
    snprintf(line, sizeof line, "state      %s: Permission denied\n", b->dir);
    assert_non_null(strstr(out, line));
    assert_int_equal(chmod(b->dir, 0700), 0);
    box_configure(b, "socket = /x/y.sock\nengine = /nowhere/engine\n");
    assert_int_equal(checked(b, out, sizeof out), 1);
    assert_non_null(strstr(out, "/nowhere/engine: No such file"));
    check_says(b, "engine", b->dir, "Is a directory");
    check_says(b, "engine", b->conf, "Permission denied");
    check_says(b, "log_file", b->dir, "Is a directory");
    snprintf(made, sizeof made, "%s/nowhere/hearthd.log", b->dir);
    check_says(b, "log_file", made, "No such file");
    check_says(b, "socket", b->dir, "in the way and not a socket");
    check_says(b, "socket", b->conf, "in the way and not a socket");
    snprintf(made, sizeof made, "%s/nowhere/at/all/hearth.sock", b->dir);
    check_says(b, "socket", made, "No such file");
    check_says(b, "model_dir", b->conf, "Not a directory");
    snprintf(lines, sizeof lines, "socket = %s\nlog_file = %s/hearthd.log\n", b->socket, b->state);
    box_configure(b, lines);
    assert_int_equal(checked(b, out, sizeof out), 0);
    strcat(b->state, "//"); /* the same directory */
    assert_int_equal(checked(b, out, sizeof out), 0);
    assert_int_equal(stat(b->state, &sb), -1);
    box_configure(b, "sockets = /x\n");
    assert_int_equal(checked(b, out, sizeof out), 1);
    assert_non_null(strstr(out, ":2: \"sockets\" is not a configuration key; is socket meant?"));
}

static void test_refuses_to_start(void **state)
{
    struct box *b = *state;
    char path[256], longest[128];
    assert_int_equal(try_with(b, "--config", "/nonexistent"), 1);
    assert_true(box_log_has(b, "/nonexistent: No such file"));
    assert_int_equal(try_with(b, "--log-level", "loud"), 1);
    assert_true(box_log_has(b, "\"loud\" is none of"));
    assert_int_equal(try_with(b, "--ready-fd", "77"), 2);
    assert_int_equal(try_with(b, "--nonsense", "x"), 2);
    assert_int_equal(try_with(b, "-p", "x"), 2); /* its options have no letters */
    assert_true(box_log_has(b, "invalid option -- 'p'"));

    memset(longest, 'x', sizeof longest);
    snprintf(path, sizeof path, "%s/%.*s", b->dir, 110, longest);
    assert_int_equal(try_with(b, "--socket", path), 1);
    assert_true(box_log_has(b, "the system's limit is 107"));

    snprintf(path, sizeof path, "%s/open", b->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0);
    snprintf(path, sizeof path, "%s/open/s", b->dir);
    assert_int_equal(try_with(b, "--socket", path), 1);
    assert_true(box_log_has(b, "can be written by others"));

    snprintf(path, sizeof path, "%s/file", b->dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(try_with(b, "--socket", path), 1);
    assert_true(box_log_has(b, "in the way"));
    struct stat sb;
    assert_int_equal(stat(path, &sb), 0); /* a file that is not a socket is not removed */

    if (geteuid() == 0) {
        snprintf(path, sizeof path, "%s/theirs", b->dir);
        assert_int_equal(mkdir(path, 0755), 0);
        assert_int_equal(chown(path, 1234, 1234), 0);
        snprintf(path, sizeof path, "%s/theirs/s", b->dir);
        assert_int_equal(try_with(b, "--socket", path), 1);
        assert_true(box_log_has(b, "belongs to user 1234"));
    }
}

/* A socket from the supervisor is used and left in place, and the state is notified. */
static void test_systemd(void **state)
{
    struct box *b = *state;
    char notify[96], got[64], watchdog[32];
    snprintf(notify, sizeof notify, "%s/notify", b->dir);
    struct sockaddr_un to = {.sun_family = AF_UNIX}, at = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", notify);
    snprintf(b->socket, sizeof b->socket, "%s/activated", b->dir);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", b->socket);
    int told = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(told, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(bind(door, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(door, 8), 0);
    struct peer *early = peer_open(b); /* it waits in the backlog */
    struct wire_empty none = {0};
    uint32_t id = peer_ask(early, WIRE_STATUS, &none);

    b->pid = fork();
    if (b->pid == 0) {
        char pid[16], program[4096];
        snprintf(pid, sizeof pid, "%d", (int)getpid());
        dup2(door, 3);
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", "1", 1);
        setenv("NOTIFY_SOCKET", notify, 1);
        setenv("WATCHDOG_USEC", "100000", 1);
        snprintf(program, sizeof program, "%s/hearthd", getenv("top_builddir") ? getenv("top_builddir") : ".");
        setenv("HEARTH_SOCKET", "/nowhere/hearth.sock", 1);
        execl(program, "hearthd", "--foreground", "--config", b->conf, "--state", b->state, NULL);
        _exit(126);
    }
    ssize_t n = recv(told, got, sizeof got, 0);
    assert_int_equal(n, 7);
    assert_memory_equal(got, "READY=1", 7);
    struct hearth_err e;
    struct wire_status_result *status = peer_answer(early, id, WIRE_STATUS, &e);
    assert_non_null(status);
    assert_string_equal(status->socket, b->socket); /* not the one from the environment */
    wire_free(status);
    n = recv(told, watchdog, sizeof watchdog, 0);
    assert_int_equal(n, 10);
    assert_memory_equal(watchdog, "WATCHDOG=1", 10);
    kill(b->pid, SIGTERM);
    do
        n = recv(told, got, sizeof got, 0);
    while (n == 10 && memcmp(got, "WATCHDOG=1", 10) == 0);
    assert_int_equal(n, 10);
    assert_memory_equal(got, "STOPPING=1", 10);
    peer_close(early);
    assert_int_equal(box_stop(b, 0), 0);
    struct stat sb;
    assert_int_equal(stat(b->socket, &sb), 0);
    close(told);
    close(door);
}

static void test_memory(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_empty none = {0};
    struct wire_status_result *st = peer_call(p, WIRE_STATUS, &none);
    assert_true(st->rss_bytes > 0);
    print_message("# idle: %lld kB resident\n", (long long)st->rss_bytes / 1024);
#if !defined(__SANITIZE_ADDRESS__)
    assert_true(st->rss_bytes < 10 << 20);
#endif
    wire_free(st);
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_modes, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_starters, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_detached_log, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_second_ends_quietly, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_stale_socket, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_takes_over, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_open_state_folder, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_log_is_a_fifo, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_socket_deleted, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_who_waits_says_so, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_engine_goes_too, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_graceful, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_grace, setup_long_grace, box_teardown),
        cmocka_unit_test_setup_teardown(test_shutdown_now, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_log_in_new_state_folder, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_check, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_refuses_to_start, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_systemd, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_memory, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
