/*
 * loop.h - what most modules want of the event loop: a function that is called once after a time, or when a descriptor
 * is readable. Those that own sockets use libevent itself. Loop thread.
 */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event_base;

struct timer;

/* Makes a timer that is not set yet; NULL without memory. */
struct timer *timer_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* Frees the timer, whose function is not called any more. NULL is fine. */
void timer_free(struct timer *t);

/* Sets the timer: its function is called once, that many ms from now; 0 means after the events that are active now. A
 * timer that is set is set anew. 0, or HEARTH_ENOMEM. */
int timer_set(struct timer *t, int64_t ms);
void timer_clear(struct timer *t);
bool timer_is_set(const struct timer *t);

struct watch;

/* Calls the function each time the descriptor is readable, from now on; NULL without memory. The descriptor stays the
 * caller's. */
struct watch *watch_new(struct event_base *base, int fd, void (*fn)(void *arg), void *arg);
void watch_free(struct watch *w);

#endif
