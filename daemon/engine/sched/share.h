/*
 * share.h - the accounts of weighted fair sharing: how much of the engine each user and client has consumed.
 *
 * A virtual token counter (Sheng et al., "Fairness in Serving Large Language Models", arXiv 2401.00588) in two levels:
 * users are equal, whatever the number of their clients, and the clients of a user are equal, whatever the number of
 * their sequences. What is counted is seconds of measured work (cost.h), so that a prompt token and a decoded one weigh
 * what they cost. The account with the least work is next. An account that becomes active starts at the least work of
 * the active ones; a user starts SHARE_CREDIT below that, because a client that sends its next request on receiving an
 * answer misses the steps that were planned before the request arrived. Idle time earns no more credit than that; and
 * work beyond that level is remembered, so that leaving and returning earns none either.
 *
 * An active account may want less than its share: a user who only has a stream decode, or whose requests are of a class
 * that waits for others. Its work falls behind, without bound, and it is owed none of that: otherwise its next prompts,
 * and those of everybody who starts at its work, would go before those of all others until they have caught up. So an
 * account without prompts to be read catches up, when it gets one, with those that have some (share_catch_up).
 *
 * Pure. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_SHARE_H
#define HEARTH_ENGINE_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define SHARE_CREDIT 0.2 /* seconds of work: two of the longest steps that are not stopped for a new request */

/* The account of a client, with `user` pointing to its user's account; or the account of a user, where `user` is
 * NULL. */
struct share {
    TAILQ_ENTRY(share) link;
    struct share *user;
    int64_t id;  /* the uid or the client's number */
    double work; /* seconds */
    /* Sequences charged to it; for a user, those of its clients. */
    uint32_t n_seq;
    uint32_t n_client;
    /* The last step that was not brief and read any of a user's prompts left out others of his, which are long. */
    bool left_out;
};
TAILQ_HEAD(share_list, share);

struct shares {
    struct share_list users, clients;
    struct share nobody[2]; /* shared by all that there was no memory for: a user, and its client */
};

void shares_init(struct shares *s);
void shares_fini(struct shares *s);

/* Returns the client's account for one more sequence; share_leave() undoes that. */
struct share *share_join(struct shares *s, int64_t uid, int64_t client);
void share_leave(struct shares *s, struct share *c);

/* Raises the account's work to `least`, that of the accounts it now competes with, less SHARE_CREDIT for a user's;
 * INFINITY: there are none, and the most work of any other account that is remembered counts. */
void share_catch_up(const struct shares *s, struct share *a, double least);

/* Whether more than one user has sequences. */
bool shares_among(const struct shares *s);

/* Charges work; negative where it turned out not to be done. */
static inline void share_charge(struct share *c, double seconds)
{
    c->work += seconds;
    c->user->work += seconds;
}

/* Whether `a` goes before `b`: its user has consumed less or, where both have the same user, the client has. */
static inline bool share_before(const struct share *a, const struct share *b)
{
    return a->user != b->user ? a->user->work < b->user->work : a->work < b->work;
}

#endif
