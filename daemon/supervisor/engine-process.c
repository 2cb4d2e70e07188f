/* engine-process.c - fork, exec, SIGCHLD, back-off. Loop thread. */
#include "config.h"

#include "daemon/supervisor/engine-process.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "libclient/utf8.h"

enum {
    ENGINE_FD = 3,        /* the link's descriptor in the engine, after stdin, stdout, stderr */
    BACKOFF_MIN_MS = 100, /* after a crash; doubled by every crash without a token in between, up to ... */
    BACKOFF_MAX_MS = 3000,
    HELLO_TIMEOUT_S = 30,
    NOT_EXECUTED = 127,   /* exit status of a child whose exec failed */
    LEAVE_TIMEOUT_S = 10, /* for an engine to exit after its link was closed */
};

struct engine_process {
    const struct engine_process_calls *calls;
    void *arg; /* for the calls */
    char **argv;
    enum engine_state state;
    pid_t pid; /* 0 if there is none */
    struct event *sigchld;
    struct timer *timer; /* for the back-off, the deadline of the hello, or that of leaving */
    bool was_ready;
    int64_t backoff_ms, starts;
    char why[120];                /* what engine_process_fail() recorded; empty if nothing was */
    char failure[HEARTH_ERR_MSG]; /* how the last engine ended, until another one is ready; empty if it did not fail */
};

/* --- life cycle ----------------------------------------------------------------------------------------- */

static void free_argv(char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

static char **copy_argv(const char *const argv[])
{
    size_t n = 0;
    while (argv[n])
        n++;
    char **copy = calloc(n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = strdup(argv[i]))) {
            free_argv(copy);
            return NULL;
        }
    return copy;
}

static void on_sigchld(evutil_socket_t fd, short what, void *arg);
static void on_timer(void *arg);

int engine_process_new(struct engine_process **out, struct event_base *base, const char *const argv[],
                       const struct engine_process_calls *calls, void *arg, struct hearth_err *e)
{
    struct engine_process *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *p = (struct engine_process){.calls = calls, .arg = arg, .backoff_ms = BACKOFF_MIN_MS};
    p->argv = copy_argv(argv);
    p->sigchld = evsignal_new(base, SIGCHLD, on_sigchld, p);
    p->timer = timer_new(base, on_timer, p);
    if (!p->argv || !p->sigchld || !p->timer || event_add(p->sigchld, NULL)) {
        engine_process_free(p);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    }
    *out = p;
    return 0;
}

int engine_process_set_command(struct engine_process *p, const char *const argv[], struct hearth_err *e)
{
    char **copy = copy_argv(argv);
    if (!copy)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    free_argv(p->argv);
    p->argv = copy;
    return 0;
}

void engine_process_free(struct engine_process *p)
{
    if (!p)
        return;
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    if (p->sigchld)
        event_free(p->sigchld);
    timer_free(p->timer);
    free_argv(p->argv);
    free(p);
}

/* --- start ---------------------------------------------------------------------------------------------- */

/* Runs in the child, between fork and exec: only async-signal-safe functions are allowed here. */
static void exec_engine(char *const argv[], int fd, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    static const int handled[] = {SIGTERM, SIGINT, SIGCHLD, SIGPIPE, SIGHUP, SIGXFSZ};
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++)
        signal(handled[i], SIG_DFL);
    /* The engine exits when the link closes. This is for one that is too busy to notice it and would keep the GPU. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    if (fd == ENGINE_FD)
        fcntl(fd, F_SETFD, 0);
    else
        dup2(fd, ENGINE_FD);
    execv(argv[0], argv);
    static const char msg[] = "hearthd: the engine cannot be executed\n";
    (void)!write(STDERR_FILENO, msg, sizeof msg - 1);
    _exit(NOT_EXECUTED);
}

int engine_process_start(struct engine_process *p, int *fd, struct hearth_err *e)
{
    if (!p->argv[0])
        return err_set(e, HEARTH_EENGINE,
                       "hearth-engine was not found: it belongs beside hearthd, see \"engine\" in hearth.conf(5)");
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return err_set(e, HEARTH_EENGINE, "the engine cannot be started: %s", strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        exec_engine(p->argv, pair[1], parent);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return err_set(e, HEARTH_EENGINE, "the engine cannot be started: %s", strerror(errno));
    }
    p->pid = pid;
    p->state = ENGINE_STARTING;
    p->why[0] = '\0';
    p->was_ready = false;
    p->starts++;
    timer_set(p->timer, HELLO_TIMEOUT_S * 1000);
    log_info("engine %d started: %s", (int)pid, p->argv[0]);
    *fd = pair[0];
    return 0;
}

void engine_process_ready(struct engine_process *p)
{
    timer_clear(p->timer);
    p->state = ENGINE_RUNNING;
    p->was_ready = true;
    p->failure[0] = '\0';
}

void engine_process_productive(struct engine_process *p)
{
    p->backoff_ms = BACKOFF_MIN_MS;
}

/* --- end ------------------------------------------------------------------------------------------------ */

void engine_process_fail(struct engine_process *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->why, sizeof p->why, fmt, ap);
    va_end(ap);
}

bool engine_process_has_failed(const struct engine_process *p)
{
    return p->why[0] != '\0';
}

void engine_process_kill(struct engine_process *p)
{
    if (p->pid > 0 && p->state != ENGINE_STOPPING)
        kill(p->pid, SIGKILL);
}

void engine_process_stop(struct engine_process *p, bool exit_requested)
{
    if (p->pid == 0) {
        timer_clear(p->timer);
        p->state = ENGINE_ABSENT;
        return;
    }
    if (!exit_requested)
        kill(p->pid, SIGKILL);
    p->state = ENGINE_STOPPING;
}

void engine_process_leave(struct engine_process *p)
{
    p->state = ENGINE_LEAVING;
    timer_set(p->timer, LEAVE_TIMEOUT_S * 1000);
}

/* Fills in the error with which the calls of an engine fail that ended with this status. */
static void describe_exit(const struct engine_process *p, int status, struct hearth_err *e)
{
    char how[64];
    if (!p->was_ready && WIFEXITED(status) && WEXITSTATUS(status) == NOT_EXECUTED) {
        const char *why = access(p->argv[0], X_OK) ? strerror(errno) : "it is no program for this machine";
        err_set(e, HEARTH_EENGINE, "the engine cannot be started: %.200s: %s; see \"engine\" in hearth.conf(5)",
                p->argv[0], why);
        return;
    }
    if (engine_process_has_failed(p)) /* the status is that of our SIGKILL, or says less */
        snprintf(how, sizeof how, "failed");
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "exited with status %d", WEXITSTATUS(status));
    err_set(e, HEARTH_EENGINE, "the engine %s%s%s%s", how, p->was_ready ? "" : " before it was ready",
            engine_process_has_failed(p) ? ": " : "", p->why);
}

static void back_off(struct engine_process *p)
{
    p->state = ENGINE_BACKOFF;
    timer_set(p->timer, p->backoff_ms);
    p->backoff_ms = p->backoff_ms * 2 < BACKOFF_MAX_MS ? p->backoff_ms * 2 : BACKOFF_MAX_MS;
}

/* However it exited, nothing was lost with it. Its successor does not count as a restart. */
static void has_left(struct engine_process *p)
{
    log_info("engine %d has left: it held no model", (int)p->pid);
    p->pid = 0;
    p->starts--;
    p->state = ENGINE_ABSENT;
    timer_clear(p->timer);
    p->calls->restart(p->arg);
}

/* Called at the end of every engine that did not leave idle: its exit status is known and its last output has been
 * read. */
static void on_exit_status(struct engine_process *p, int status)
{
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0; /* an idle engine may exit by itself */
    bool wanted = p->state == ENGINE_STOPPING || (clean && !p->calls->is_needed(p->arg));
    struct hearth_err e;
    describe_exit(p, status, &e);
    if (wanted && clean)
        log_info("engine %d has exited", (int)p->pid);
    else
        log_error("engine %d: %s", (int)p->pid, e.msg);
    p->pid = 0;
    timer_clear(p->timer);
    if (wanted) {
        p->state = ENGINE_ABSENT;
    } else {
        snprintf(p->failure, sizeof p->failure, "%s", e.msg);
        p->failure[utf8_prefix(p->failure, strlen(p->failure))] = '\0'; /* a path in it may be anything */
        back_off(p);
    }
    p->calls->exited(p->arg, &e);
}

static void on_sigchld(evutil_socket_t fd, short what, void *arg)
{
    struct engine_process *p = arg;
    (void)fd, (void)what;
    int status;
    if (p->pid == 0 || waitpid(p->pid, &status, WNOHANG) != p->pid)
        return;
    if (p->state == ENGINE_LEAVING) {
        has_left(p);
        return;
    }
    p->calls->last_words(p->arg);
    on_exit_status(p, status);
}

static void on_timer(void *arg)
{
    struct engine_process *p = arg;
    if (p->state == ENGINE_STARTING) {
        engine_process_fail(p, "no hello within %d s", HELLO_TIMEOUT_S);
        engine_process_kill(p);
    } else if (p->state == ENGINE_LEAVING) {
        engine_process_kill(p);
    } else if (p->state == ENGINE_BACKOFF) {
        p->state = ENGINE_ABSENT;
        p->calls->restart(p->arg);
    }
}

/* --- queries ---------------------------------------------------------------------------------------------- */

enum engine_state engine_process_state(const struct engine_process *p)
{
    return p->state;
}

pid_t engine_process_pid(const struct engine_process *p)
{
    return p->pid;
}

bool engine_process_was_ready(const struct engine_process *p)
{
    return p->was_ready;
}

const char *engine_process_failure(const struct engine_process *p)
{
    return p->failure[0] != '\0' ? p->failure : NULL;
}

int64_t engine_process_restarts(const struct engine_process *p)
{
    return p->starts > 0 ? p->starts - 1 : 0;
}
