/*
 * backup.c - the method backup. Reading and syncing a database of gigabytes takes long, and no stream may wait for it.
 * So a thread makes the copy with database connections of its own (store_copy), one copy at a time, and wakes the loop
 * through an eventfd.
 */
#include "config.h"

#include "daemon/rpc/backup.h"

#include <errno.h>
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
    struct timer *purge; /* purges removed text before the copy, one slice in each turn of the loop */
    int slices;
    bool copying; /* the thread was started */
    pthread_t thread;
    struct watch *done;
    int fd; /* an eventfd, written when the thread ends */
    atomic_bool stop;
    const char *from;
    char *to;
    bool replace;
    /* Owned by the thread until fd is readable. */
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
    timer_free(b->purge);
    if (b->fd >= 0)
        close(b->fd);
    free(b->to);
    free(b);
}

/* Answers the call, after joining the thread if it was started. */
static void finish(struct backup *b)
{
    if (b->copying)
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
    if (!b->copying)
        b->rc = err_set(&b->err, HEARTH_ESHUTDOWN, "hearthd is shutting down");
    finish(b);
}

static int begin_copy(struct backup *b, struct hearth_err *e)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are handled by the loop thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    b->copying = pthread_create(&b->thread, NULL, backup_main, b) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return b->copying ? 0 : err_set(e, HEARTH_EINTERNAL, "no thread for the backup");
}

/* Purges removed text, which must not be in the copy, and then starts the copy. */
static void on_purge(void *arg)
{
    struct backup *b = arg;
    bool more = false;
    struct hearth_err e;
    int rc = store_purge_some(b->server->store, &more, &e);
    b->slices += more;
    if (!rc && more) {
        timer_set(b->purge, 0);
        return;
    }
    if (b->slices)
        log_debug("the backup waited for %d slices of what was removed", b->slices);
    if (!rc)
        rc = begin_copy(b, &e); /* from here on b->rc and b->err belong to the thread */
    if (rc) {
        b->rc = rc;
        b->err = e;
        finish(b);
    }
}

static int start(struct server *s, struct call *call, struct hearth_err *e)
{
    const struct wire_backup *p = call->params;
    if (!s->store)
        return err_set(e, HEARTH_ESTORE, "%s", s->store_err.msg);
    if (s->backup)
        return err_set(e, HEARTH_ELIMIT, "a backup is under way");
    if (store_is_own_place(s->store, p->path))
        return err_set(e, HEARTH_EPARAMS, "backup.path: %.120s is in the folder of the database itself: choose another",
                       p->path);
    size_t n = strlen(s->conf->socket); /* this prefix covers its lock file as well */
    if (strncmp(p->path, s->conf->socket, n) == 0)
        return err_set(e, HEARTH_EPARAMS, "backup.path: %.120s is a name of hearthd's socket: choose another", p->path);
    struct backup *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *b = (struct backup){.server = s, .call = call, .from = store_path(s->store), .replace = p->replace};
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b->fd < 0) {
        int rc = err_set(e, HEARTH_ELIMIT, "no descriptor for the backup: %s", strerror(errno));
        backup_free(b);
        return rc;
    }
    b->to = strdup(p->path);
    b->done = watch_new(s->base, b->fd, on_done, b);
    b->purge = timer_new(s->base, on_purge, b);
    if (!b->to || !b->done || !b->purge || timer_set(b->purge, 0)) {
        backup_free(b);
        return err_set(e, HEARTH_ENOMEM, "out of memory");
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
