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

/* Who goes first, whatever others have had. */
enum seq_class { CLASS_INTERACTIVE, CLASS_NORMAL, CLASS_BACKGROUND };

enum { SEQ_LABEL = 16 };

struct seq_times { /* seconds on the engine's clock; 0 = not yet */
    double submit, admit, first, last;
    double load, restore; /* durations: of waiting for the model's load, and for the restore of KV */
};

struct seq {
    /* The request: set by the loop thread, constant after submission. */
    uint64_t id;
    int64_t stream; /* hearthd's stream number, for traces; 0 for eval */
    uint64_t steps; /* that the device thread had done when it came */
    void *owner;    /* the loop's; returned in events, opaque here */
    struct model_entry *model;
    int64_t uid;
    int64_t client;       /* hearthd's number of the uid's client that it is for */
    enum seq_class class; /* sched_set_class() changes it later */
    double deadline;      /* of its first token, on the engine's clock; 0: none */
    uint32_t n_appended;  /* the last tokens of the prompt, which no earlier request had; 0: not known */
    uint32_t n_prompt;    /* tokens before the stream's first */
    uint32_t n_limit;     /* the timeline's length at which the sequence ends; the pool's size may lower it */
    uint32_t n_wanted;    /* as n_limit, but by the request alone: distinguishes `length` from `context_full` */
    bool measure;         /* it ends at once: n_reused says what it would reuse */
    bool ignore_eos;      /* end tokens do not end it */
    struct eval *eval;    /* not NULL for an eval, which samples nothing and reuses no KV. Owned */
    struct sample_params sampling;
    struct logit_bias *bias; /* owned; sampling.bias */
    /* hearthd's label for the files that its KV is written to; "" for none */
    char label[SEQ_LABEL + 1];

    /* The device thread's. */
    enum seq_state state;
    TAILQ_ENTRY(seq) link;
    struct sched_group *group;
    uint64_t arrival; /* of equals the older goes first */
    struct share *share;
    double served_at;   /* when it had rows last, or arrived; on the clock of sched_next() */
    double seated_at;   /* when it was admitted last */
    uint32_t n_high;    /* the most that was computed, before it made way too */
    double regained_at; /* when it had that again since it was admitted; < 0: not yet */
    bool parked;        /* it made way, and its KV may be in other tiers */
    struct {
        struct seq *of; /* a sequence that may have gone: its id tells */
        uint64_t id;
        uint32_t to;     /* tokens; 0: it waits for nobody's */
        uint64_t looked; /* sched.admissions when it looked for one last */
    } ahead;             /* whose prompt's pages it waits for, up to where */
    bool aged;           /* it was admitted before those of its class, because it had waited for long */
    uint64_t planned;    /* sched.plans at its last rows */
    int32_t *token;      /* [n_tokens], owned */
    uint32_t n_tokens, cap_token;
    uint32_t n_pending;
    uint32_t n_computed;
    uint32_t n_accounted;                /* prompt tokens [n_reused, n_accounted) were counted as computed */
    uint32_t n_reused;                   /* at first admission */
    uint32_t restored_from, restored_to; /* tokens whose KV was restored from host memory or a file */
    struct {
        double time;
        uint32_t from, to;
    } restored_before;          /* of what it was fetched for when it had made way: these were for the request */
    bool told_waits;            /* it waits for memory for its model, which was told */
    double tier_since;          /* since when the tiers have had it */
    uint32_t inflight;          /* entries in steps under way */
    uint32_t slot;              /* SEQ_RUN only */
    bool slot_set;              /* the device knows the slot's parameters */
    bool admit_notified;        /* the loop thread was notified of its admission */
    struct hearth_err slot_err; /* code 0, or why the device refused the parameters: it ends with its next token */
    struct kv_table kv;
    struct seq_times time;
    double told; /* when the progress of its prompt was told last; 0: never */
};
TAILQ_HEAD(seq_list, seq);

/* Makes a sequence with room for a timeline of n_token ids, of which token[0..n) are copied. NULL: no memory. */
struct seq *seq_new(const int32_t *token, uint32_t n, uint32_t n_token);
void seq_free(struct seq *q);

/* Appends the token that a step sampled; the room is there. */
void seq_push_token(struct seq *q, int32_t token);

/* It made way: what the tiers restore from here on is not for the request. */
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

/* Returns how many of the tokens found in the KV cache had been restored by the tiers. */
uint32_t seq_n_restored(const struct seq *q);

#endif
