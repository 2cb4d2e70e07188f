/* passed.c - see passed.h: a list of names and descriptors, and a lock. */
#include "config.h"

#include "daemon/model/passed.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

struct passed {
    TAILQ_ENTRY(passed) entry;
    int fd;
    char path[];
};

static TAILQ_HEAD(, passed) list = TAILQ_HEAD_INITIALIZER(list);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool passed_is(const char *path)
{
    return path[0] == '/' && path[1] == '/' && isdigit((unsigned char)path[2]);
}

const char *passed_label(const char *path)
{
    const char *slash = passed_is(path) ? strchr(path + 2, '/') : NULL;
    return slash ? slash : path;
}

static struct passed *find(const char *path)
{
    struct passed *p;
    TAILQ_FOREACH (p, &list, entry)
        if (!strcmp(p->path, path))
            break;
    return p;
}

static void drop(struct passed *p)
{
    if (!p)
        return;
    TAILQ_REMOVE(&list, p, entry);
    close(p->fd);
    free(p);
}

int passed_put(const char *path, int fd, struct hearth_err *e)
{
    size_t n = strlen(path) + 1;
    struct passed *p = passed_is(path) ? malloc(sizeof *p + n) : NULL;
    if (!p) {
        close(fd);
        return passed_is(path) ? err_set(e, HEARTH_ENOMEM, "no memory for a descriptor")
                               : err_set(e, HEARTH_EPARAMS, "\"%.120s\" names no file that was passed", path);
    }
    p->fd = fd;
    memcpy(p->path, path, n);
    pthread_mutex_lock(&lock);
    drop(find(path));
    TAILQ_INSERT_TAIL(&list, p, entry);
    pthread_mutex_unlock(&lock);
    return 0;
}

void passed_drop(const char *path)
{
    pthread_mutex_lock(&lock);
    drop(find(path));
    pthread_mutex_unlock(&lock);
}

int passed_open(const char *path)
{
    if (!passed_is(path))
        return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    pthread_mutex_lock(&lock);
    const struct passed *p = find(path);
    int fd = p ? fcntl(p->fd, F_DUPFD_CLOEXEC, 0) : -1, why = p ? errno : ENOENT;
    pthread_mutex_unlock(&lock);
    errno = why;
    return fd;
}

/* The part of a file's path behind the folder's path and a slash; NULL where the file is not below the folder. */
static const char *below(const char *path, const char *folder, size_t n)
{
    return !strncmp(path, folder, n) && path[n] == '/' ? path + n + 1 : NULL;
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static int stat_folder(const char *path, struct stat *st)
{
    const struct passed *p;
    struct stat one;
    size_t n = strlen(path);
    bool found = false;
    *st = (struct stat){.st_mode = S_IFDIR};
    TAILQ_FOREACH (p, &list, entry) {
        if (!below(p->path, path, n) || fstat(p->fd, &one))
            continue;
        if (!found) { /* the device and inode of any one file distinguish this folder from others */
            st->st_dev = one.st_dev;
            st->st_ino = one.st_ino;
        }
        found = true;
        st->st_size += one.st_size;
        if (is_later(&one.st_mtim, &st->st_mtim))
            st->st_mtim = one.st_mtim;
    }
    errno = ENOENT;
    return found ? 0 : -1;
}

int passed_stat(const char *path, struct stat *st)
{
    if (!passed_is(path))
        return stat(path, st);
    pthread_mutex_lock(&lock);
    const struct passed *p = find(path);
    int rc = p ? fstat(p->fd, st) : stat_folder(path, st), why = errno;
    pthread_mutex_unlock(&lock);
    errno = why;
    return rc;
}

bool passed_name(const char *folder, size_t i, char *name, size_t size)
{
    const struct passed *p;
    const char *found = NULL;
    size_t n = strlen(folder), k = 0;
    pthread_mutex_lock(&lock);
    TAILQ_FOREACH (p, &list, entry)
        if ((found = below(p->path, folder, n)) && k++ == i)
            break;
    if (p)
        strcpy(name, strlen(found) < size ? found : "");
    pthread_mutex_unlock(&lock);
    return p;
}
