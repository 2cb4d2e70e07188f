/* releaser.c - see releaser.h. releaser_main() runs in a thread of its own, everything else in the loop's thread. */
#include "config.h"

#include "daemon/retention/releaser.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAITING_MAX = 64 }; /* descriptors; a process may have about a thousand */

struct removed {
    int fd;
    int64_t bytes;
};

struct releaser {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends;
    int64_t bytes; /* of the files in the queue and the one that is being closed */
    size_t n;
    struct removed waiting[WAITING_MAX]; /* the oldest first */
};

static void *releaser_main(void *arg)
{
    struct releaser *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->n || !r->ends) {
        if (!r->n) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        struct removed f = r->waiting[0];
        memmove(r->waiting, r->waiting + 1, --r->n * sizeof f);
        pthread_mutex_unlock(&r->lock);
        close(f.fd);
        pthread_mutex_lock(&r->lock);
        r->bytes -= f.bytes;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int releaser_start(struct releaser **out, struct hearth_err *e)
{
    struct releaser *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    sigset_t all, before;
    sigfillset(&all); /* only the loop thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&r->thread, NULL, releaser_main, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0) {
        free(r);
        return err_set(e, HEARTH_ESTORE, "a thread for removed files: %s", strerror(why));
    }
    *out = r;
    return 0;
}

void releaser_stop(struct releaser *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void releaser_close(struct releaser *r, int fd, int64_t bytes)
{
    bool taken = false;
    if (r) {
        pthread_mutex_lock(&r->lock);
        if ((taken = r->n < WAITING_MAX)) {
            r->waiting[r->n++] = (struct removed){fd, bytes};
            r->bytes += bytes;
            pthread_cond_broadcast(&r->changed);
        }
        pthread_mutex_unlock(&r->lock);
    }
    if (!taken)
        close(fd);
}

int64_t releaser_bytes(struct releaser *r)
{
    int64_t bytes = 0;
    if (r) {
        pthread_mutex_lock(&r->lock);
        bytes = r->bytes;
        pthread_mutex_unlock(&r->lock);
    }
    return bytes;
}

void releaser_wait(struct releaser *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    while (r->bytes)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}
