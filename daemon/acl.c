/* acl.c - permissions and accounts, by uid. Loop thread. */
#include "daemon/acl.h"

#include <stdlib.h>
#include <unistd.h>

struct account *acl_get(struct acl *acl, uid_t uid)
{
    struct account *a;
    LIST_FOREACH (a, acl, entry)
        if (a->uid == uid)
            break;
    if (!a) {
        a = calloc(1, sizeof *a);
        if (!a)
            return NULL;
        a->uid = uid;
        LIST_INSERT_HEAD(acl, a, entry);
    }
    a->refs++;
    return a;
}

void acl_put(struct account *a)
{
    if (!a || --a->refs > 0)
        return;
    LIST_REMOVE(a, entry);
    free(a);
}

int acl_trusts_paths(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

int acl_check(enum acl_perm perm, const char *what, uid_t uid, struct hearth_err *e)
{
    if (perm == PERM_ANY || uid == 0 || uid == geteuid())
        return 0;
    return err_set(e, HEARTH_EDENIED, "%s is for root and the user that hearthd runs as", what);
}
