/*
 * disk.c - preloaded into hearthd and its engine, simulates a full or slow disk. While the file $FULL_GATE exists, and
 * the folder $FULL_OF has a file with $FULL_WITH in its name (such as a KV file), writes to files with $FULL_FOR in
 * their path (such as the database of sessions) fail for lack of space. In the engine a sync of data takes $SYNC_MS
 * milliseconds longer.
 */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_files(const char *path)
{
    bool found = false;
    const char *with = getenv("FULL_WITH");
    DIR *dir = path ? opendir(path) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));)
        found = found || (with && strstr(e->d_name, with));
    if (dir)
        closedir(dir);
    return found;
}

static bool fits(int fd)
{
    const char *gate = getenv("FULL_GATE"), *what = getenv("FULL_FOR");
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (!what || !strstr(path, what) || !gate || access(gate, F_OK) || !has_files(getenv("FULL_OF")))
        return true;
    errno = ENOSPC;
    return false;
}

#define VISIBLE    __attribute__((visibility("default")))
#define NEXT(type) ((type)dlsym(RTLD_NEXT, __func__))

VISIBLE ssize_t write(int fd, const void *data, size_t len)
{
    return fits(fd) ? NEXT(ssize_t(*)(int, const void *, size_t))(fd, data, len) : -1;
}

VISIBLE ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    return fits(fd) ? NEXT(ssize_t(*)(int, const void *, size_t, off_t))(fd, data, len, at) : -1;
}

VISIBLE ssize_t pwrite64(int fd, const void *data, size_t len, off_t at)
{
    return fits(fd) ? NEXT(ssize_t(*)(int, const void *, size_t, off_t))(fd, data, len, at) : -1;
}

VISIBLE int fdatasync(int fd)
{
    const char *ms = getenv("SYNC_MS");
    if (ms && strcmp(program_invocation_short_name, "hearth-engine") == 0)
        poll(NULL, 0, atoi(ms));
    return NEXT(int (*)(int))(fd);
}
