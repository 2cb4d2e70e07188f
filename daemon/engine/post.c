/* post.c - boxes between two threads; see post.h. */
#include "config.h"

#include "daemon/engine/post.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/log.h"

void *post_alloc(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) {
        log_error("out of memory");
        _exit(1);
    }
    return p;
}

void post_list_init(struct post_list *l)
{
    l->first = NULL;
    l->last = &l->first;
}

void post_list_push(struct post_list *l, struct post_item *item)
{
    item->next = NULL;
    *l->last = item;
    l->last = &item->next;
}

struct post_item *post_list_pop(struct post_list *l)
{
    struct post_item *item = l->first;
    if (item && !(l->first = item->next))
        l->last = &l->first;
    return item;
}

/* Moves all of `from` to the end of `to`. */
static void splice(struct post_list *to, struct post_list *from)
{
    if (!from->first)
        return;
    *to->last = from->first;
    to->last = from->last;
    post_list_init(from);
}

int post_init(struct post *p, struct hearth_err *e)
{
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->fd < 0)
        return err_set(e, HEARTH_EIO, "eventfd: %s", strerror(errno));
    pthread_mutex_init(&p->lock, NULL);
    post_list_init(&p->box);
    return 0;
}

void post_fini(struct post *p)
{
    assert(!p->box.first);
    pthread_mutex_destroy(&p->lock);
    close(p->fd);
}

void post_send(struct post *p, struct post_list *l)
{
    if (!l->first)
        return;
    pthread_mutex_lock(&p->lock);
    bool was_empty = !p->box.first;
    splice(&p->box, l);
    pthread_mutex_unlock(&p->lock);
    uint64_t one = 1;
    if (was_empty && write(p->fd, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* the counter is full: the receiver is awake already */
}

void post_take(struct post *p, struct post_list *l)
{
    /* First the eventfd, then the box: an item that arrives in between leaves the eventfd readable. */
    uint64_t count;
    if (read(p->fd, &count, sizeof count) < 0)
        assert(errno == EAGAIN);
    pthread_mutex_lock(&p->lock);
    splice(l, &p->box);
    pthread_mutex_unlock(&p->lock);
}

void post_wait(struct post *p)
{
    struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
    while (poll(&pfd, 1, -1) < 0 && errno == EINTR) {
    }
}
