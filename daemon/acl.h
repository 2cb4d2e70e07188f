/* acl.h - permissions and accounts of peers: who may call what, and how much each uid has open. A peer is identified by
 * the uid that the kernel reports. Loop thread. */
#ifndef DAEMON_ACL_H
#define DAEMON_ACL_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "libclient/err.h"

enum acl_perm {
    PERM_ANY,   /* every peer that can connect */
    PERM_ADMIN, /* root and the uid that hearthd runs as */
};

/* What one uid has open; reference-counted by acl_get() and acl_put(). */
struct account {
    uid_t uid;
    int64_t connections, streams, imports;
    bool looked_at;    /* queue.c: the present walk over the queue has met a call of it */
    int64_t late;      /* generations that have ended at their deadline, and that an engine still has */
    int64_t asides;    /* threads that inspect descriptors passed by this uid, see rpc/aside.h */
    double left_queue; /* queue.c: when a request of it last left the queue or the first entered; 0: none waits */
    double seconds_per_stream; /* queue.c: mean time between two requests leaving the queue; 0: unknown */
    int64_t bytes;             /* of the buffers of its connections */
    int64_t measuring;         /* bytes of sessions and requests that its dry runs have sent to the engines */
    int64_t journal_bytes, journal_files; /* of its streams, see stream/journal.h */
    unsigned refs;
    LIST_ENTRY(account) entry;
};

LIST_HEAD(acl, account);

/* Returns the uid's account, creating it where there is none; NULL when out of memory. Each call needs one
 * acl_put(). */
struct account *acl_get(struct acl *acl, uid_t uid);
void acl_put(struct account *a);

int acl_check(enum acl_perm perm, const char *what, uid_t uid, struct hearth_err *e);

/* Whether the peer may name a model file by any path. Such a peer could itself read every file that hearthd can
 * read. */
int acl_trusts_paths(uid_t uid);

#endif
