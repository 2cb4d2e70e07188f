/*
 * aside.h - inspects descriptors that a peer has sent, and closes unwanted ones, on a thread of its own. If a
 * descriptor refers to a file system or a socket that is served by another program, even fstat(2) and close(2) may
 * block for as long as that program likes. Everything but the thread itself runs on the loop thread.
 */
#ifndef DAEMON_RPC_ASIDE_H
#define DAEMON_RPC_ASIDE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "daemon/context.h"

enum { ASIDES_MAX = 16 }; /* threads for one user; beyond that no more descriptors are accepted from it */

struct aside;

/* The result; the receiver owns the descriptor. */
struct looked {
    int fd; /* -1: it was closed, for the reason in `err` */
    struct stat sb;
    struct hearth_err err;
};

/*
 * Takes over n descriptors sent by a peer of that account and closes them, but for the first one if `look` is set and
 * it is an acceptable file: a regular, non-empty one, opened read-only, not on FUSE. `done` is then called with `arg`
 * and the result (`err.code` 0: the file is kept), unless aside_forget() was called, after which a kept descriptor is
 * closed as well. Returns NULL if no thread can be started; all descriptors are closed then.
 */
struct aside *aside_begin(struct server *s, struct account *a, const int *fds, size_t n, bool look,
                          void (*done)(void *arg, const struct looked *l), void *arg);
void aside_forget(struct aside *a);

#endif
