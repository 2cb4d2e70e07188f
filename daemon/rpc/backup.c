/*
 * backup.c - the method backup. Reading and syncing a database of gigabytes takes its time, and no stream may wait for
 * it. So a thread with connections of its own makes the copy (store_copy), one at a time, and wakes the loop by an
 * eventfd.
 */
#include "config.h"

#include "daemon/rpc/backup.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/store/store.h"

struct backup {
    struct server *server;
    struct call *call;
    pthread_t thread;
    struct watch *done;
    int fd; /* an eventfd, written at the thread's end */
    atomic_bool stop;
    const char *from;
    char *to;
    bool replace;
    /* These belong to the thread until fd is readable. */
    int rc;
    int64_t bytes;
    struct hearth_err err;
};

static void *backup_main(void *arg)
{
    struct backup *b = arg;
    b->rc = store_copy(b->from, b->to, b->replace, &b->stop, &b->bytes, &b->err);
    uint64_t one = 1;
    (void)!write(b->fd, &one, sizeof one); /* cannot fail: nothing else is written to it */
    return NULL;
}

static void backup_free(struct backup *b)
{
    watch_free(b->done);
    if (b->fd >= 0)
        close(b->fd);
    free(b->to);
    free(b);
}

/* Answers the call; the thread has ended, or ends now. */
static void finish(struct backup *b)
{
    pthread_join(b->thread, NULL);
    b->server->backup = NULL;
    struct wire_backup_result r = {.bytes = b->bytes};
    if (b->rc == 0)
        log_info("the session database was copied to %s, %lld bytes", b->to, (long long)b->bytes);
    if (b->rc == 0)
        call_reply(b->call, &r);
    else
        call_fail(b->call, &b->err);
    backup_free(b);
}

static void on_done(void *arg)
{
    finish(arg);
}

void backup_stop(struct backup *b)
{
    if (!b)
        return;
    atomic_store(&b->stop, true);
    finish(b);
}

static int start(struct server *s, struct call *call, struct hearth_err *e)
{
    const struct wire_backup *p = call->params;
    if (!s->store)
        return err_set(e, HEARTH_ESTORE, "%s", s->store_err.msg);
    if (s->backup)
        return err_set(e, HEARTH_ELIMIT, "a backup is under way");
    int rc = store_purge_all(s->store, e); /* removed text must not be in the copy */
    if (rc)
        return rc;
    struct backup *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *b = (struct backup){.server = s, .call = call, .from = store_path(s->store), .replace = p->replace};
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->to = strdup(p->path);
    b->done = b->fd >= 0 ? watch_new(s->base, b->fd, on_done, b) : NULL;
    if (!b->to || !b->done)
        rc = err_set(e, HEARTH_ENOMEM, "out of memory");
    sigset_t all, before;
    sigfillset(&all); /* the loop's thread takes the signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!rc && pthread_create(&b->thread, NULL, backup_main, b) != 0)
        rc = err_set(e, HEARTH_EINTERNAL, "no thread for the backup");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        backup_free(b);
        return rc;
    }
    s->backup = b;
    return 0;
}

void msg_backup(struct call *call)
{
    struct hearth_err e;
    int rc = server_check_open(call->server, &e);
    if (!rc)
        rc = start(call->server, call, &e);
    if (rc)
        call_fail(call, &e);
}
