/* aside.c - see aside.h. */
#include "config.h"

#include "daemon/rpc/aside.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "daemon/loop.h"
#include "libclient/frames.h"

#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

struct aside {
    struct account *account;
    void (*done)(void *arg, const struct looked *l);
    void *arg;
    struct watch *watch;
    int ended; /* an eventfd, written when the thread ends */
    bool look;
    int fds[FRAMES_FDS_IN];
    size_t n;
    struct looked looked; /* owned by the thread until `ended` is readable */
};

/* --- the thread ------------------------------------------------------------------------------------------------ */

/* Checks that the descriptor is an acceptable model file. Files on FUSE are refused: a user's daemon serves them, and
 * could block every reader. */
static int check(int fd, struct stat *sb, struct hearth_err *e)
{
    struct statfs fs;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) != O_RDONLY)
        return err_set(e, HEARTH_EPARAMS, "models.pass: the descriptor is not open for reading alone (O_RDONLY)");
    if (fstat(fd, sb) || fstatfs(fd, &fs))
        return err_set(e, HEARTH_EIO, "models.pass: the descriptor: %s", strerror(errno));
    if (S_ISDIR(sb->st_mode))
        return err_set(e, HEARTH_EPARAMS, "models.pass: a folder's descriptor: pass the files in it one by one");
    if (!S_ISREG(sb->st_mode) || sb->st_size <= 0)
        return err_set(e, HEARTH_EPARAMS, "models.pass: the descriptor is of no regular file, or of an empty one");
    if (fs.f_type == FUSE_SUPER_MAGIC)
        return err_set(
            e, HEARTH_EUNSUPPORTED,
            "models.pass: the file lies on a FUSE file system, whose daemon could hold up everybody: copy it");
    return 0;
}

static void *aside_main(void *arg)
{
    struct aside *a = arg;
    struct looked *l = &a->looked;
    bool kept = a->look && check(a->fds[0], &l->sb, &l->err) == 0;
    l->fd = kept ? a->fds[0] : -1;
    for (size_t i = kept; i < a->n; i++)
        close(a->fds[i]);
    uint64_t one = 1;
    (void)!write(a->ended, &one, sizeof one); /* cannot fail: nothing else is written to it */
    return NULL;
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

static void aside_free(struct aside *a)
{
    watch_free(a->watch);
    if (a->ended >= 0)
        close(a->ended);
    acl_put(a->account);
    free(a);
}

static void on_ended(void *arg)
{
    struct aside *a = arg;
    a->account->asides--;
    if (a->done)
        a->done(a->arg, &a->looked);
    else if (a->looked.fd >= 0)
        close(a->looked.fd);
    aside_free(a);
}

static int start(struct aside *a)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr))
        return -1;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 128 << 10);
    sigfillset(&all); /* signals are handled by the loop thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attr, aside_main, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

struct aside *aside_begin(struct server *s, struct account *account, const int *fds, size_t n, bool look,
                          void (*done)(void *arg, const struct looked *l), void *arg)
{
    assert(n > 0 && n <= FRAMES_FDS_IN);
    struct aside *a = calloc(1, sizeof *a);
    if (a) {
        *a = (struct aside){.done = done, .arg = arg, .look = look, .n = n};
        memcpy(a->fds, fds, n * sizeof *fds);
        a->account = acl_get(&s->acl, account->uid);
        a->ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        a->watch = a->ended >= 0 ? watch_new(s->base, a->ended, on_ended, a) : NULL;
    }
    if (a && a->account && a->watch && start(a) == 0) {
        a->account->asides++;
        return a;
    }
    if (a)
        aside_free(a);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    return NULL;
}

void aside_forget(struct aside *a)
{
    a->done = NULL;
}
