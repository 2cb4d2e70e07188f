/*
 * post.h - how the engine's two threads talk: owned items, in order, one box for each direction.
 *
 * A box is a list under a lock and an eventfd. The sender collects its messages (all tokens of a step) and posts the
 * whole list; the receiver takes all there is. The eventfd is written only when the box was empty, so there is one wake
 * per step, not per token, and none while the receiver is behind anyway.
 */
#ifndef HEARTH_ENGINE_POST_H
#define HEARTH_ENGINE_POST_H

#include <pthread.h>
#include <stdbool.h>

#include "libclient/err.h"

/* First member of everything that is posted. */
struct post_item {
    struct post_item *next;
};

/* Allocates an item, zeroed; free() it. Never NULL: where there is no memory even for an error's event, the process
 * ends, and hearthd starts another. */
void *post_alloc(size_t bytes);

/* A queue of items; a thread's own. `post_list_init` before use. */
struct post_list {
    struct post_item *first, **last;
};
void post_list_init(struct post_list *l);
void post_list_push(struct post_list *l, struct post_item *item);
struct post_item *post_list_pop(struct post_list *l); /* NULL: empty */

struct post {
    pthread_mutex_t lock;
    struct post_list box; /* under `lock` */
    int fd;               /* eventfd: readable while the box has items, or had some lately */
};
int post_init(struct post *p, struct hearth_err *e);
void post_fini(struct post *p); /* the box must be empty */

/* Gives all items of the list to the other thread and empties it. */
void post_send(struct post *p, struct post_list *l);
/* Appends all items that have come to the list; does not wait. */
void post_take(struct post *p, struct post_list *l);
/* Waits until something has come. */
void post_wait(struct post *p);

#endif
