/*
 * kill-at.c - preloaded into hearthd and its engine, kills one of them in the middle of a write: $KILL_AT, and for the
 * engine $KILL_ENGINE_AT, is "NAME N GATE". The process is killed by the Nth write to a file with NAME in its path,
 * counted since the file GATE exists, of which only the first half of the bytes is written. A removal by unlinkat()
 * counts as a write, and is not carried out. Kills at random moments from outside would almost never hit such a write.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long left; /* writes until then; 0: not in this process */
static char name[32], gate[256];

__attribute__((constructor)) static void init(void)
{
    bool engine = strcmp(program_invocation_short_name, "hearth-engine") == 0;
    const char *at = getenv(engine ? "KILL_ENGINE_AT" : "KILL_AT");
    if (!at || sscanf(at, "%31s %ld %255s", name, &left, gate) != 3)
        left = 0;
}

/* Whether this write to the file, or to the entry of that name in the folder, kills the process. */
static int is_last(int fd, const char *file)
{
    char link[32], path[4096];
    if (left == 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return 0;
    snprintf(path + n, sizeof path - (size_t)n, "%s%s", file ? "/" : "", file ? file : "");
    return strstr(path, name) != NULL && access(gate, F_OK) == 0 && --left == 0;
}

#define VISIBLE    __attribute__((visibility("default")))
#define NEXT(type) ((type)dlsym(RTLD_NEXT, __func__))

VISIBLE ssize_t write(int fd, const void *data, size_t len)
{
    ssize_t (*next)(int, const void *, size_t) = NEXT(ssize_t(*)(int, const void *, size_t));
    if (!is_last(fd, NULL))
        return next(fd, data, len);
    (void)!next(fd, data, len / 2);
    kill(getpid(), SIGKILL);
    return -1;
}

static ssize_t pwrite_half(ssize_t (*next)(int, const void *, size_t, off_t), int fd, const void *data, size_t len,
                           off_t at)
{
    if (!is_last(fd, NULL))
        return next(fd, data, len, at);
    (void)!next(fd, data, len / 2, at);
    kill(getpid(), SIGKILL);
    return -1;
}

VISIBLE ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    return pwrite_half(NEXT(ssize_t(*)(int, const void *, size_t, off_t)), fd, data, len, at);
}

VISIBLE ssize_t pwrite64(int fd, const void *data, size_t len, off_t at)
{
    return pwrite_half(NEXT(ssize_t(*)(int, const void *, size_t, off_t)), fd, data, len, at);
}

VISIBLE int unlinkat(int fd, const char *file, int flags)
{
    if (is_last(fd, file))
        kill(getpid(), SIGKILL);
    return NEXT(int (*)(int, const char *, int))(fd, file, flags);
}
