/* acl.h - who may do what, and how much of it at once. A peer is its uid, as the kernel gave it. Loop thread. */
#ifndef DAEMON_ACL_H
#define DAEMON_ACL_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "libclient/err.h"

enum acl_perm {
    PERM_ANY,   /* every peer that could connect */
    PERM_ADMIN, /* root and the uid that hearthd runs as */
};

/* What one uid has open; reference-counted by acl_get() and acl_put(). */
struct account {
    uid_t uid;
    int64_t connections, streams, imports;
    int64_t asides;            /* threads that look at descriptors of its, see rpc/aside.h */
    double left_queue;         /* when a request of its left the queue last, or came first; 0: none waits */
    double seconds_per_stream; /* between two that leave it; 0: not known. queue.c's, both */
    int64_t bytes;             /* that the buffers of its connections take */
    unsigned refs;
    LIST_ENTRY(account) entry;
};

LIST_HEAD(acl, account);

/* Returns the uid's account, a new one where there is none; NULL without memory. Each call needs one acl_put(). */
struct account *acl_get(struct acl *acl, uid_t uid);
void acl_put(struct account *a);

int acl_check(enum acl_perm perm, const char *what, uid_t uid, struct hearth_err *e);

/* Whether the peer may name a model file by any path: it could read every file itself that hearthd can read. */
int acl_trusts_paths(uid_t uid);

#endif
