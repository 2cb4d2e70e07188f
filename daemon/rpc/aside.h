/*
 * aside.h - looks at descriptors that a peer has sent, and closes those that are not wanted, on a thread of its own: of
 * a file system or a socket that somebody else answers for, even fstat(2) and close(2) may block for as long as that
 * one likes. Loop thread, but for that thread itself.
 */
#ifndef DAEMON_RPC_ASIDE_H
#define DAEMON_RPC_ASIDE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "daemon/context.h"

enum { ASIDES_MAX = 16 }; /* threads for one user before no more descriptors are taken */

struct aside;

/* What was found; the descriptor is its taker's. */
struct looked {
    int fd; /* -1: it was closed, for the reason in err */
    struct stat sb;
    struct hearth_err err;
};

/*
 * Takes n descriptors of a peer of that account and closes them but for the first, which is kept where `look` asks for
 * it and it is a regular file that was opened for reading alone, on a file system of the machine's. `done` is called
 * with `arg` once that is known, unless aside_forget() was called; what it was told of is closed by itself then. NULL:
 * there is no thread for it, and they are closed. `err.code` 0: it is a file.
 */
struct aside *aside_begin(struct server *s, struct account *a, const int *fds, size_t n, bool look,
                          void (*done)(void *arg, const struct looked *l), void *arg);
void aside_forget(struct aside *a);

#endif
