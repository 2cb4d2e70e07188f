/*
 * map.c - file mappings that do not kill the process when the file is truncated.
 *
 * Weights are read straight from the page cache, by kernels that cannot check each load. A page beyond the end of a
 * truncated file raises SIGBUS. The handler here puts a page of zeros in its place, marks the mapping as damaged and
 * returns, so that the read continues; the mapping's user checks map_damaged() before it uses the results. Rejected:
 * reading the file into memory (twice the memory, a slow start) and siglongjmp out of kernels (leaks their locks and
 * stops only one of many threads).
 *
 * The handler is installed when a file is mapped, unless it is installed already. A fault at any other address goes to
 * the handler that was installed before.
 *
 * Any thread may open and close; a mapping belongs to the caller that opened it.
 */
#include "daemon/model/map.h"

#include "daemon/model/passed.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A signal handler cannot lock, so the table does not grow. */
static struct {
    atomic_bool used;      /* a map_open has claimed the slot */
    atomic_uintptr_t base; /* 0: the slot has no mapping; written last on opening, first on closing */
    atomic_size_t size;
    atomic_bool damaged;
} maps[MAPS_MAX];

static struct sigaction before;
static size_t page_size;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the handler's installation */

/* Only async-signal-safe calls here; mmap is a bare system call on Linux. */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    int saved = errno;
    for (size_t i = 0; i < MAPS_MAX; i++) {
        uintptr_t base = atomic_load(&maps[i].base);
        if (!base || at < base || at - base >= atomic_load(&maps[i].size))
            continue;
        atomic_store(&maps[i].damaged, true);
        void *page = (void *)(at & ~(uintptr_t)(page_size - 1));
        if (mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
            errno = saved;
            return;
        }
    }
    if ((before.sa_flags & SA_SIGINFO) && before.sa_sigaction)
        before.sa_sigaction(sig, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(sig);
    else
        signal(sig, SIG_DFL); /* returning repeats the access, which then ends the process as it would have anyway */
    errno = saved;
}

static void install(void)
{
    struct sigaction now, ours = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&lock);
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_sigbus) {
        before = now;
        sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&lock);
}

int map_open(struct map *m, const char *path, struct hearth_err *e)
{
    int ret;
    install();

    int fd = passed_open(path);
    path = passed_label(path);
    if (fd < 0) {
        int code = errno == ENOENT || errno == ENOTDIR ? HEARTH_ENOMODEL
                   : errno == EACCES                   ? HEARTH_EDENIED
                                                       : HEARTH_EIO;
        return err_set(e, code, "%s: %s", path, strerror(errno));
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        ret = err_set(e, HEARTH_EIO, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        ret = err_set(e, HEARTH_EBADMODEL, "%s is not a regular file", path);
        goto fail;
    }
    if (st.st_size <= 0 || (uint64_t)st.st_size > SIZE_MAX / 2) {
        ret = err_set(e, HEARTH_EBADMODEL, "%s: a size of %lld bytes", path, (long long)st.st_size);
        goto fail;
    }

    int slot = 0;
    while (slot < MAPS_MAX && atomic_exchange(&maps[slot].used, true))
        slot++;
    if (slot == MAPS_MAX) {
        ret = err_set(e, HEARTH_ELIMIT, "%s: %d files are mapped already", path, MAPS_MAX);
        goto fail;
    }
    size_t size = (size_t)st.st_size;
    void *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) {
        ret = err_set(e, HEARTH_ENOMEM, "mapping %s: %s", path, strerror(errno));
        atomic_store(&maps[slot].used, false);
        goto fail;
    }
    atomic_store(&maps[slot].damaged, false);
    atomic_store(&maps[slot].size, size);
    atomic_store(&maps[slot].base, (uintptr_t)base);
    *m = (struct map){.base = base, .size = size, .fd = fd, .slot = slot, .mtime = st.st_mtim};
    return 0;

fail:
    close(fd);
    return ret;
}

void map_close(struct map *m)
{
    atomic_store(&maps[m->slot].base, 0);
    munmap((void *)m->base, m->size);
    close(m->fd);
    atomic_store(&maps[m->slot].used, false);
}

bool map_damaged(const struct map *m)
{
    struct stat st;
    return atomic_load(&maps[m->slot].damaged) || fstat(m->fd, &st) < 0 || (uint64_t)st.st_size < m->size;
}

bool map_changed(const struct map *m)
{
    struct stat st;
    return map_damaged(m) || fstat(m->fd, &st) < 0 || (uint64_t)st.st_size != m->size ||
           st.st_mtim.tv_sec != m->mtime.tv_sec || st.st_mtim.tv_nsec != m->mtime.tv_nsec;
}

size_t map_used(void)
{
    size_t n = 0;
    for (size_t i = 0; i < MAPS_MAX; i++)
        n += atomic_load(&maps[i].used);
    return n;
}
