/* share.c - accounts of fair sharing; see share.h. Pure. Thread: the device thread's. */
#include "daemon/engine/sched/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE_MAX = 256 }; /* idle accounts kept in each list */

void shares_init(struct shares *s)
{
    memset(s, 0, sizeof *s);
    TAILQ_INIT(&s->users);
    TAILQ_INIT(&s->clients);
    s->nobody[1].user = &s->nobody[0];
}

static void free_all(struct share_list *l)
{
    struct share *a;
    while ((a = TAILQ_FIRST(l))) {
        TAILQ_REMOVE(l, a, link);
        free(a);
    }
}

void shares_fini(struct shares *s)
{
    free_all(&s->clients);
    free_all(&s->users);
}

/* The work at which a new account starts, among the users (user is NULL) or among one user's clients. INFINITY when
 * none of them has a sequence. */
static double beginning(const struct share_list *l, const struct share *user)
{
    const struct share *a;
    double least = INFINITY;
    TAILQ_FOREACH (a, l, link)
        if (a->user == user && a->n_seq && a->work < least)
            least = a->work;
    return user ? least : least - SHARE_CREDIT;
}

static void drop(struct share_list *l, struct share *a)
{
    if (a->user)
        a->user->n_client--;
    TAILQ_REMOVE(l, a, link);
    free(a);
}

/* Drops idle accounts that need not be remembered, because a new account would start at the same work or higher. Where
 * too many remain, the one with the least work is dropped. */
static void forget_idle(struct share_list *l)
{
    struct share *a, *next, *least = NULL;
    uint32_t n = 0;
    for (a = TAILQ_FIRST(l); a; a = next) {
        next = TAILQ_NEXT(a, link);
        if (a->n_seq || a->n_client)
            continue;
        if (a->work <= beginning(l, a->user)) {
            drop(l, a);
        } else {
            n++;
            least = least && least->work <= a->work ? least : a;
        }
    }
    if (n > IDLE_MAX)
        drop(l, least);
}

/* Returns the account of that id under the user, creating it if there is none; NULL without memory. */
static struct share *find(struct share_list *l, struct share *user, int64_t id)
{
    struct share *a;
    TAILQ_FOREACH (a, l, link)
        if (a->id == id && a->user == user)
            return a;
    if (!(a = calloc(1, sizeof *a)))
        return NULL;
    a->id = id;
    a->user = user;
    if (user)
        user->n_client++;
    TAILQ_INSERT_TAIL(l, a, link);
    return a;
}

static void begin(struct share_list *l, struct share *a)
{
    double from = a->n_seq ? -INFINITY : beginning(l, a->user);
    if (from < INFINITY && a->work < from)
        a->work = from;
    a->n_seq++;
}

struct share *share_join(struct shares *s, int64_t uid, int64_t client)
{
    struct share *u = find(&s->users, NULL, uid), *c = u ? find(&s->clients, u, client) : NULL;
    if (!c)
        c = &s->nobody[1];
    begin(&s->users, c->user);
    begin(&s->clients, c);
    return c;
}

void share_catch_up(const struct shares *s, struct share *a, double least)
{
    const struct share *other;
    double most = -INFINITY;
    TAILQ_FOREACH (other, a->user ? &s->clients : &s->users, link)
        if (other != a && other->user == a->user && other->work > most)
            most = other->work;
    least = (least < INFINITY ? least : most) - (a->user ? 0 : SHARE_CREDIT);
    if (a->work < least)
        a->work = least;
}

void share_leave(struct shares *s, struct share *c)
{
    c->n_seq--;
    c->user->n_seq--;
    if (c->n_seq)
        return;
    forget_idle(&s->clients);
    forget_idle(&s->users);
}

bool shares_among(const struct shares *s)
{
    const struct share *a;
    uint32_t n = s->nobody[0].n_seq > 0;
    TAILQ_FOREACH (a, &s->users, link)
        n += a->n_seq > 0;
    return n > 1;
}
