/*
 * sched.h - plans the next step: continuous batching, chunked prefill, admission, preemption.
 *
 * Pure: no device, and time only as an argument. The engine gets a plan, carries it out, and reports the sampled tokens
 * to the sequences. A plan may be made while earlier ones are still under way.
 *
 * A step is of one model (a group: one set of KV pools). Every decoding sequence has its row in it; the rest of the
 * budget goes to prompts, in as few chunks as fit. The budget is time, not rows: the cost of a step is learnt from
 * earlier ones (cost.h), so one promise (`gap`) holds for every model, context length and device. While others decode,
 * or another model has work, a step takes no longer than the gap or, where decoding alone takes most of that, twice as
 * long as without prompts. When nothing decodes, a prompt's chunk may last as long as the time since the last arrival,
 * up to `alone`: a new request then waits no longer than the preceding quiet period, or costs a step that is stopped
 * for it no more than that. Where the bits of the result depend on how a prompt is cut (`rows_alone`), such a chunk is
 * sized in rows, by doubling. Models take turns, one step each.
 *
 * Sequences are ordered by class first, then by what their users and clients have consumed of their model's steps
 * (share.h); of one client's sequences the oldest is next. What a user consumes with another model does not count:
 * models take turns however many users each has, so that a user with much work for one of them would never be the
 * least-served of another one's users. Where no prompt of a class has had rows for AGE_SECONDS, its prompts count as of
 * the class above, so that none starves; a decoding sequence does when it has itself had no row for that long. In every
 * other step, prompts that are nearly read go before all that, the least-served user's first and the shortest first
 * within a user, and the long ones are left out of that step: a short answer does not wait for a very long prompt to be
 * read, and costs that prompt at most half of the steps, and at most half of those that read any of its user's prompts:
 * users' turns may coincide with these. Prompts that take only a small part of a step get a step of their own, every
 * other step at most, which ends when they are read: a request that arrives meanwhile waits only for that short step.
 *
 * A sequence is admitted when it gets a seat (one of the BATCH_SEQS_MAX slots) and pages for its whole prompt, and the
 * first in line blocks those behind it, except those of a higher class than its own where only its age made it the
 * first: sequences may make way for them that do not for it. Where there is no room, running sequences make way, that
 * is, they are preempted (room.c): those of a lower class; those of a user, or of another client of the same user, that
 * would still hold at least as much without the victim as the newcomer's will hold with the newcomer; and, in turns of
 * QUANTUM_SECONDS or more, those of a user that has consumed more. As few of them do as suffice, and none if all of
 * them do not: pages that they share with others stay in use. When a running sequence needs a page and there is none,
 * the same order chooses the victim, possibly the sequence itself, down to the youngest; but it does not give way to
 * itself while steps of it are in flight, whose end may release pages. A preempted sequence waits in line again; its KV
 * is then found in the cache or computed again.
 *
 * A sequence whose prompt begins with what another running prompt is about to compute does not compute the same beside
 * it. It waits for those pages, and others may overtake it meanwhile (ahead.c).
 *
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_SCHED_H
#define HEARTH_ENGINE_SCHED_H

#include "daemon/engine/sched/cost.h"
#include "daemon/engine/sched/seq.h"
#include "daemon/engine/sched/share.h"

/* How long the steps of a model may take on its device. */
struct sched_pace {
    /* Prompt rows of a step that others may wait for, before the cost of rows is known. */
    uint32_t rows_first;
    double gap; /* promised maximum in seconds between two tokens of a stream; 0: no promise */
    /* Longest step in seconds when nothing decodes, reached once no request has arrived for that long; 0: unbounded. */
    double alone;
    /* Seconds that such a step may take however recent the last arrival is; 0: `gap`. */
    double least;
    /* Prompt rows that such a step has whatever they cost; a larger step has this times a power of two. Also the most
     * prompt rows of a step beside decoding sequences or another model, or while several users have work. At least
     * BATCH_SEQS_MAX; 0: steps are bounded by time only. */
    uint32_t rows_alone;
};

struct sched_group {
    struct kv *kv;
    struct cost cost; /* of its steps; kept as long as the model's entry */
    struct sched_pace pace;
    struct shares shares; /* what users and clients have consumed of its steps */
    uint32_t rows_max; /* rows in one of its steps, and rows ahead that its pools have room for; 0: as sched.rows_max */
    /* Where the device has no memory for longer steps: the most rows of a step; 0: no such limit. `dry`: the last step
     * was refused memory although nothing was left to give back. The engine sets both. */
    uint32_t rows_short;
    bool dry;
    uint32_t n_seq; /* its sequences, in any list */
    /* A longer timeline uses RoPE's second frequency set (longrope), for all of its tokens, so that its KV equals that
     * of reading it once. A timeline that grows past this length is computed again. 0: there is one set. */
    uint32_t long_from;
    /* Pages that will be free soon, once they are saved. The engine counts them. */
    uint32_t leaving;
    /* When prompts of each class last had rows, or when it last had none. */
    double read_at[CLASS_BACKGROUND + 1];
    uint64_t planned[2]; /* sched.plans at the last two plans with rows, the later one first */
    bool left_out;       /* the last step that was not brief was for prompts that were nearly read */
    bool was_brief;      /* the last step was for very short prompts */
    bool has_read;       /* the last step had rows of prompts */
    bool held;           /* none of its sequences is planned */
    bool line_stands;    /* the first in line found no room, and those behind wait ... */
    enum seq_class line; /* ... that are of its class or a lower one */
    TAILQ_ENTRY(sched_group) link;
};

/* What to do with the KV of preempted sequences; each function may be NULL. */
struct sched_parking {
    /* The sequence, which still has its pages, is about to lose them. Returns how many of them stay in use until they
     * are saved. */
    uint32_t (*park)(void *arg, struct seq *q);
    /* There is room again for a sequence that was parked. True: it was taken out of the scheduler; sched_push() brings
     * it back once its KV can be found in the cache. */
    bool (*fetch)(void *arg, struct seq *q);
    void *arg;
};

struct sched {
    /* Limits; the engine may change them between steps. */
    uint32_t rows_max; /* rows in a step */
    uint32_t out_max;  /* rows with logits in a step */
    struct sched_parking parking;
    /* Private. */
    double last_arrival; /* of a request that arrived while sequences were queued or running */
    struct seq_list list[SEQ_STATES];
    uint32_t count[SEQ_STATES];
    TAILQ_HEAD(, sched_group) groups;
    uint64_t arrivals;
    uint64_t slots; /* bitmap of the slots in use */
    uint64_t plans; /* made or attempted */
    uint64_t admissions;
    struct shares shares;
};

/* An entry of a plan: one sequence's rows in a step. */
struct plan_seq {
    struct seq *seq;
    uint32_t row0, n_row;
    uint32_t pos0;     /* position of the first row */
    uint32_t n_within; /* batch_seq.n_within */
    bool decodes;      /* it has one row due */
    bool answers;      /* its rows are of generated tokens, not of the prompt, and not of an eval */
    bool sample;       /* its last row samples the next token ... */
    uint32_t index;    /* ... which is completion token `index` */
    uint32_t n_out;    /* its last n_out rows have logits */
    uint32_t n_accounted;
    double charged; /* seconds, charged to its client */
};
struct plan {
    struct sched_group *group;
    uint32_t n_row, n_seq;
    uint32_t n_sample; /* the first n_sample sequences sample; their rows with logits come first */
    uint32_t n_out;
    uint32_t n_accounted; /* prompt rows that count as computed: the sum of usage's computed_tokens */
    bool eval;
    /* More than one user has work: the least-served one may send its next request when the previous step is done. */
    bool users;
    struct cost_work work;
    double expected; /* seconds; 0: not known */
    struct plan_seq seq[BATCH_SEQS_MAX];
};

void sched_init(struct sched *s, uint32_t rows_max, uint32_t out_max);
void sched_fini(struct sched *s); /* no sequence may be left */
void sched_group_add(struct sched *s, struct sched_group *g);
void sched_group_remove(struct sched *s, struct sched_group *g);

/* Notes that a request has arrived, for the length of the steps that follow; sched_push() does, too. Call it also for a
 * request that is never queued: a step may have been stopped for it. */
static inline void sched_note_arrival(struct sched *s, double now)
{
    if (s->count[SEQ_WAIT] + s->count[SEQ_RUN])
        s->last_arrival = now;
}

/* Queues the sequence, which has just arrived, or comes back after it was taken out. */
void sched_push(struct sched *s, struct sched_group *g, struct seq *q, double now);

/* RoPE's frequency set for a timeline of n tokens. A sequence's KV is looked up under it, before sched_push() too. */
static inline uint32_t sched_freq_set(const struct sched_group *g, uint32_t n)
{
    return g->long_from && n > g->long_from;
}

/* The number of tokens in full pages that the sequence, which need not be queued, could take from the cache at
 * present. */
uint32_t sched_cached(const struct sched_group *g, const struct seq *q);

/* Takes a waiting sequence out for a while; sched_push() brings it back to its place in line. */
void sched_take_out(struct sched *s, struct seq *q);

/* While held, all running sequences of the group are preempted and none is planned. Call between two steps, with none
 * in flight. */
void sched_hold(struct sched *s, struct sched_group *g, bool held);

void sched_set_class(const struct sched *s, struct seq *q, enum seq_class c, double now);

/* Plans a step and accounts for it; false where there is no work, or none before a step in flight has ended. */
bool sched_next(struct sched *s, struct plan *p, double now);

/* Reports that the step of this entry is done; call once per entry of a plan, after its token was pushed. */
void sched_done(struct sched *s, const struct plan_seq *ps);

/* Called instead where the step was stopped and did nothing: takes the entry back. For entries of the last plan
 * only. */
void sched_undo(struct sched *s, const struct plan_seq *ps);

/* Ends a sequence: its pages and slot are free at once. The KV of its first n_keep tokens stays in the prefix cache.
 * The sequence is freed as soon as no step under way names it. */
void sched_end(struct sched *s, struct seq *q, uint32_t n_keep);

#endif
