/*
 * post.h - how the engine's two threads communicate: owned items, in order, through one box for each direction.
 *
 * A box is a list under a lock and an eventfd. The sender collects its messages (all tokens of a step) and posts the
 * whole list; the receiver takes all items at once. The eventfd is written only if the box was empty, so there is one
 * wake-up per step rather than per token, and none while the receiver is behind anyway.
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

/* Allocates a zeroed item; to be freed with free(). Never NULL: if there is no memory even for the event of an error,
 * the process exits, and hearthd starts another. */
void *post_alloc(size_t bytes);

/* A queue of items, used by one thread. post_list_init() before use. */
struct post_list {
    struct post_item *first, **last;
};
void post_list_init(struct post_list *l);
void post_list_push(struct post_list *l, struct post_item *item);
struct post_item *post_list_pop(struct post_list *l); /* NULL if empty */

struct post {
    pthread_mutex_t lock;
    struct post_list box; /* under `lock` */
    int fd;               /* eventfd: readable while the box has items, or had some recently */
};
int post_init(struct post *p, struct hearth_err *e);
void post_fini(struct post *p); /* the box must be empty */

/* Transfers all items of the list to the other thread and empties the list. */
void post_send(struct post *p, struct post_list *l);
/* Appends all items that have arrived to the list; does not wait. */
void post_take(struct post *p, struct post_list *l);
/* Waits until an item has arrived. */
void post_wait(struct post *p);

#endif
