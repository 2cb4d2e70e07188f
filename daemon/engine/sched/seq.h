/*
 * seq.h - a sequence: one KV timeline and its state in the scheduler.
 *
 * The loop thread makes one for every request and passes ownership to the device thread (engine_submit), which frees
 * it. A state is a list of the scheduler, and one function in sched.c moves sequences between lists.
 *
 * The timeline is token[0..n_tokens), then n_pending tokens that steps in flight are sampling: the device knows those
 * already and feeds them to itself, the host does not yet. KV of [0, n_computed) is computed or in a submitted step.
 */
#ifndef HEARTH_ENGINE_SEQ_H
#define HEARTH_ENGINE_SEQ_H

#include <sys/queue.h>

#include "daemon/engine/sched/eval.h"
#include "daemon/engine/sched/kv.h"

struct sched_group;
struct share;

enum seq_state {
    SEQ_NEW,   /* in no list */
    SEQ_WAIT,  /* queued for admission, for the first time or after a preemption */
    SEQ_RUN,   /* has pages and a slot; in every step that has room for it */
    SEQ_DRAIN, /* ended; steps in flight still name it */
    SEQ_STATES
};

/* Which sequences go first, whatever they have consumed. */
enum seq_class { CLASS_INTERACTIVE, CLASS_NORMAL, CLASS_BACKGROUND };

enum { SEQ_LABEL = 16 };

struct seq_times { /* Seconds on the engine's clock; 0: not yet. */
    double submit, admit, first, last;
    double load, restore; /* durations: of the wait for the model's load, and of restoring KV */
};

struct seq {
    /* The request: set by the loop thread, constant after submission. */
    uint64_t id;
    int64_t stream; /* hearthd's stream number, for traces; 0 for eval */
    uint64_t steps; /* steps that the device thread had done when it arrived */
    void *owner;    /* the loop thread's; returned in events, opaque here */
    struct model_entry *model;
    int64_t uid;
    int64_t client;       /* hearthd's number of the client, among the uid's, that it is for */
    enum seq_class class; /* sched_set_class() changes it later */
    double deadline;      /* when its first token is due, on the engine's clock; 0: none */
    uint32_t n_appended;  /* how many of the prompt's last tokens no earlier request had; 0: not known */
    uint32_t n_prompt;    /* tokens before the first generated one */
    uint32_t n_limit;     /* the timeline's length at which the sequence ends; the pool's size may lower it */
    /* The same without regard to the pool's size: distinguishes `length` from `context_full`. */
    uint32_t n_wanted;
    bool measure;      /* it only measures: it ends at once, and n_reused is what it would reuse */
    bool ignore_eos;   /* end tokens do not end it */
    struct eval *eval; /* not NULL for an eval, which samples nothing and reuses no KV; owned */
    struct sample_params sampling;
    struct logit_bias *bias; /* owned; sampling.bias */
    /* hearthd's label for the files that its KV is written to; "" for none */
    char label[SEQ_LABEL + 1];

    /* Owned by the device thread. */
    enum seq_state state;
    TAILQ_ENTRY(seq) link;
    struct sched_group *group;
    uint64_t arrival;    /* among equals the older goes first */
    struct share *share; /* its client's account of all models, and that of its own model, which decides its turn */
    struct share *turn;
    double served_at;   /* when it last had rows, or arrived; on the clock of sched_next() */
    double seated_at;   /* when it was last admitted */
    uint32_t n_high;    /* the most tokens ever computed, before preemptions too */
    double regained_at; /* when it reached n_high again since it was admitted; < 0: not yet */
    bool parked;        /* it was preempted, and its KV may be in other tiers */
    struct {
        struct seq *of; /* a sequence that may no longer exist: check its id */
        uint64_t id;
        uint32_t to;     /* tokens; 0: it waits for none */
        uint64_t looked; /* sched.admissions when it last looked for one */
    } ahead;             /* the sequence whose prompt's pages it waits for, and up to where */
    bool aged;           /* it was admitted ahead of its class because of its waiting time */
    uint64_t planned;    /* sched.plans at its last rows */
    int32_t *token;      /* [n_tokens], owned */
    uint32_t n_tokens, cap_token;
    uint32_t n_pending;
    uint32_t n_computed;
    uint32_t n_accounted;                /* prompt tokens [n_reused, n_accounted) were counted as computed */
    uint32_t n_reused;                   /* prompt tokens found in the cache at first admission */
    uint32_t restored_from, restored_to; /* tokens whose KV was restored from host memory or a file */
    struct {
        double time;
        uint32_t from, to;
        /* The same values from before it was preempted: only they count for the request. */
    } restored_before;
    bool told_waits;     /* it waits for memory, and the client was notified */
    double tier_since;   /* when the tiers took it over */
    uint32_t inflight;   /* plan entries in steps under way */
    uint32_t slot;       /* SEQ_RUN only */
    bool slot_set;       /* the device knows the slot's parameters */
    bool admit_notified; /* the loop thread was notified of its admission */
    /* Code 0, or why the device refused the parameters; the sequence then ends with its next token. */
    struct hearth_err slot_err;
    struct kv_table kv;
    struct seq_times time;
    double told; /* when its prompt progress was last reported; 0: never */
};
TAILQ_HEAD(seq_list, seq);

/* Creates a sequence with room for a timeline of n_token ids, of which token[0..n) are copied. NULL: no memory. */
struct seq *seq_new(const int32_t *token, uint32_t n, uint32_t n_token);
void seq_free(struct seq *q);

/* Appends the token that a step sampled; the capacity must suffice. */
void seq_push_token(struct seq *q, int32_t token);

/* Call when the sequence comes back from a preemption: what the tiers restore from here on does not count for the
 * request. */
static inline void seq_remember_restored(struct seq *q)
{
    q->restored_before.time = q->time.restore;
    q->restored_before.from = q->restored_from;
    q->restored_before.to = q->restored_to;
}

/* Returns the timeline's length, tokens in flight included. */
static inline uint32_t seq_len(const struct seq *q)
{
    return q->n_tokens + q->n_pending;
}

/* Returns how many of the n_reused tokens had been restored by the tiers. */
uint32_t seq_n_restored(const struct seq *q);

#endif
