/*
 * loop.h - what most modules need of the event loop: timers that call a function once, and watches that call one when a
 * descriptor is readable. Modules that own sockets use libevent directly. Loop thread.
 */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event_base;

struct timer;

/* Creates a timer that is not set; NULL when out of memory. */
struct timer *timer_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* Frees the timer; its function is not called any more. NULL is allowed. */
void timer_free(struct timer *t);

/* Sets the timer: its function is called once, `ms` milliseconds from now; 0 means after the events that are already
 * active. A timer that is set already is reset. 0, or HEARTH_ENOMEM. */
int timer_set(struct timer *t, int64_t ms);
void timer_clear(struct timer *t);
bool timer_is_set(const struct timer *t);

struct watch;

/* Calls the function each time the descriptor is readable, from now on; NULL when out of memory. The caller keeps the
 * ownership of the descriptor. */
struct watch *watch_new(struct event_base *base, int fd, void (*fn)(void *arg), void *arg);
void watch_free(struct watch *w);

#endif
