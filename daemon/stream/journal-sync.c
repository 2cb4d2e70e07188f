/* journal-sync.c - see journal-sync.h. sync_main() runs on a thread of its own, everything else on the loop thread. */
#include "config.h"

#include "daemon/stream/journal-sync.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/stream/journal-read.h"
#include "daemon/log.h"

struct journal_sync {
    pthread_t thread;
    int dir_fd;
    int in, out; /* a pipe of stream numbers serves as a bounded queue to wait on, without a lock */
};

/* The queue holds numbers rather than descriptors, which would accumulate behind a slow disk. */
static void *sync_main(void *arg)
{
    const struct journal_sync *s = arg;
    int64_t number;
    while (read(s->out, &number, sizeof number) == sizeof number) {
        char name[32];
        journal_name(number, name);
        int fd = openat(s->dir_fd, number == JOURNAL_SYNC_DIR ? "." : name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            continue; /* the file was removed meanwhile */
        if (fdatasync(fd) != 0)
            log_error("journal of stream %s: %s", name, strerror(errno));
        close(fd);
    }
    return NULL;
}

int journal_sync_start(struct journal_sync **out, int dir_fd, struct hearth_err *e)
{
    struct journal_sync *s = calloc(1, sizeof *s);
    int fds[2], rc = 0;
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    if (pipe2(fds, O_CLOEXEC) != 0) {
        rc = err_set(e, HEARTH_ESTORE, "the journal's pipe: %s", strerror(errno));
        free(s);
        return rc;
    }
    *s = (struct journal_sync){.dir_fd = dir_fd, .out = fds[0], .in = fds[1]};
    fcntl(s->in, F_SETFL, O_NONBLOCK);
    sigset_t all, before;
    sigfillset(&all); /* signals are handled by the loop thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&s->thread, NULL, sync_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0) {
        rc = err_set(e, HEARTH_ESTORE, "the journal's thread: %s", strerror(why));
        close(s->in);
        close(s->out);
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void journal_sync_stop(struct journal_sync *s)
{
    if (!s)
        return;
    close(s->in);
    pthread_join(s->thread, NULL);
    close(s->out);
    free(s);
}

bool journal_sync_request(struct journal_sync *s, int64_t number)
{
    return write(s->in, &number, sizeof number) == sizeof number; /* atomic, since it is smaller than PIPE_BUF */
}
