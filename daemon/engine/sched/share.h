/*
 * share.h - who has had how much of the engine: the accounts of weighted fair sharing.
 *
 * A virtual token counter (Sheng et al., "Fairness in Serving Large Language Models", arXiv 2401.00588) in two levels:
 * users are equal, whatever the number of their clients, and the clients of a user are equal, whatever the number of
 * their sequences. What is counted is seconds of measured work (cost.h), so that a prompt token and a decoded one weigh
 * what they cost. Who has had least is next. Who comes begins where the least of those at work is, a user SHARE_CREDIT
 * before that: one who asks again when he has his answer misses the steps that were planned before it reached him. Idle
 * time is no more credit than that; and what he had beyond it is remembered, so that leaving is none either.
 *
 * Pure. Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_SHARE_H
#define HEARTH_ENGINE_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define SHARE_CREDIT 0.2 /* seconds of work: two of the longest steps that are not stopped for who comes */

/* The account of a client; `user` is its user's, which has none above it. */
struct share {
    TAILQ_ENTRY(share) link;
    struct share *user;
    int64_t id;     /* the uid, or the client's number */
    double work;    /* seconds */
    uint32_t n_seq; /* sequences that count on it, those of a user's clients included */
    uint32_t n_client;
};
TAILQ_HEAD(share_list, share);

struct shares {
    struct share_list users, clients;
    struct share nobody[2]; /* what all have that there is no memory for: a user, and its client */
};

void shares_init(struct shares *s);
void shares_fini(struct shares *s);

/* The account of one more sequence of that client; share_leave() takes it back. */
struct share *share_join(struct shares *s, int64_t uid, int64_t client);
void share_leave(struct shares *s, struct share *c);

/* Whether more than one user is at work. */
bool shares_among(const struct shares *s);

/* Counts work; negative where it was not done after all. */
static inline void share_charge(struct share *c, double seconds)
{
    c->work += seconds;
    c->user->work += seconds;
}

/* Whether `a` is before `b`: its user has had less, or, where they are one user's, the client has. */
static inline bool share_before(const struct share *a, const struct share *b)
{
    return a->user != b->user ? a->user->work < b->user->work : a->work < b->work;
}

#endif
