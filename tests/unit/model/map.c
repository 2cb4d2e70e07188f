/* map.c - the handler of SIGBUS among other handlers of that signal. */
#include "config.h" /* memfd_create */

#include "daemon/model/map.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { PAGE = 1 << 16, AGAIN = 3, FAILED = 4, ALIVE = 5 };

static struct sigaction inner;
static volatile sig_atomic_t n_foreign;

/* A handler that passes faults on to the previous handler. */
static void on_foreign(int sig, siginfo_t *info, void *context)
{
    if (n_foreign++)
        _exit(AGAIN);
    inner.sa_sigaction(sig, info, context);
}

static int open_one(void)
{
    static struct map m;
    struct hearth_err e;
    char path[64];
    int fd = memfd_create("model", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return ftruncate(fd, PAGE) ? -1 : map_open(&m, path, &e);
}

/* Reads beyond the end of a file that was not opened by map_open(). */
static void fault(void)
{
    const volatile char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, memfd_create("other", MFD_CLOEXEC), 0);
    (void)*p;
}

static _Noreturn void child(void)
{
    struct sigaction foreign = {.sa_sigaction = on_foreign, .sa_flags = SA_SIGINFO};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGBUS, SIG_DFL);
    if (open_one() || sigaction(SIGBUS, &foreign, &inner) || open_one())
        _exit(FAILED);
    fault();
    _exit(ALIVE);
}

/* A later handler replaces the one for model files and passes faults on to it; then another file is opened, so that
 * each of the two has the other as its predecessor. A fault elsewhere still ends the process, as if neither were
 * installed. */
static void test_foreign_handler(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        child();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGBUS)
        fail_msg("it ends with %s %d", WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_foreign_handler)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
