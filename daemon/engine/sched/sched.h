/*
 * sched.h - plans the next step: continuous batching, chunked prefill, admission, preemption.
 *
 * Pure: no device, and time only as an argument. The engine gets a plan, carries it out, and reports the sampled tokens
 * to the sequences; a plan may be made while earlier ones are still under way.
 *
 * A step is of one model (a group: one KV pool). Every sequence that is decoding has its row in it; the rest goes to
 * prompts, in as few chunks as fit. The budget is time, not rows: what a step costs is learnt from those that were done
 * (cost.h), so one promise (`gap`) holds for every model, context and processor. While others decode, or another model
 * has work, a step takes no longer than the gap, or, where decoding alone takes most of that, twice as long as without
 * prompts. A prompt that nobody decodes beside has chunks as long as it has been quiet since the last arrival, up to
 * `alone`: should somebody come, he waits no longer than the quiet was before, or loses no more of a step that is
 * stopped for him. Where bits depend on how a prompt is cut (`rows_alone`) that is cut by rows, of which there are more
 * or less by halves. Models take turns, a step each.
 *
 * Who is next is a matter of class first, and of what users and clients have had in theirs (share.h); of a client's
 * sequences the oldest is. Where no prompt of a class has had rows for AGE_SECONDS, its are taken for ones of the class
 * above, so that nobody starves, and a sequence that decodes is when it has had none. In every other step the prompts
 * that are nearly read go before all that, the shortest of who has had least first, and leave the long ones out: an
 * answer of a moment does not wait for an hour's reading, nor cost it more than half. Those that take a small part of a
 * step have one of their own, which ends when they are read: what came beside them waits for that alone, every other
 * step at most.
 *
 * Admission is with pages for the whole prompt and a seat, and the first in line holds up those behind. Where there is
 * no room for it, running sequences make way (room.c): those of a lower class; those of a user, or of a client of the
 * same user, who holds more even without them than the newcomer will; and, in turns of QUANTUM_SECONDS or more, those
 * of a user who has had more. When a running sequence needs a page and there is none, the same order says who makes
 * way, itself included, down to the youngest. Who made way waits in line, to be computed again or found in the cache.
 *
 * Who brings what another one's prompt is about to compute does not compute it beside him, but waits for the pages and
 * is passed by those behind (ahead.c).
 *
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_SCHED_H
#define HEARTH_ENGINE_SCHED_H

#include "daemon/engine/sched/cost.h"
#include "daemon/engine/sched/seq.h"
#include "daemon/engine/sched/share.h"

/* How long the steps of a model may take, on the device that it is on. */
struct sched_pace {
    uint32_t rows_first; /* prompt rows of a step that somebody may wait for, before it is known what rows cost */
    double gap;          /* seconds that are promised between two tokens; 0: no promise */
    double alone;        /* seconds of a step that nobody decodes in, once it was quiet for so long; 0: any */
    double least;        /* seconds of such a step however short it was quiet; 0: `gap` */
    /* Rows that such a step has whatever they take; of more it has so many times a power of two. And the most that one
     * has beside others, or where users share. At least BATCH_SEQS_MAX; 0: as many as are no longer than that. */
    uint32_t rows_alone;
};

struct sched_group {
    struct kv *kv;
    struct cost cost; /* of its steps; as long as the model is known */
    struct sched_pace pace;
    uint32_t rows_max; /* rows in a step of it, and for which its pools have room ahead; 0: as sched's */
    uint32_t n_seq;    /* its sequences, in any list */
    /* A timeline of more tokens turns by RoPE's second set of frequencies (longrope): the whole of it, so that its KV
     * is what one reading gives. One that grows past this is read again. 0: there is one set. */
    uint32_t long_from;
    uint32_t leaving; /* pages that will be free soon: they are being saved. The engine counts them */
    double read_at[CLASS_BACKGROUND + 1]; /* when prompts of a class last had rows, or there were none before */
    uint64_t planned[2];                  /* sched.plans of the last two plans with rows, the later one first */
    bool left_out;                        /* the last step but brief ones was for prompts that were nearly read */
    bool was_brief;                       /* the last step was for prompts that take a moment */
    bool held;                            /* none of it is planned */
    bool line_stands;                     /* the first in line found no room, and those behind it wait */
    TAILQ_ENTRY(sched_group) link;
};

/* What becomes of the KV of those who make way; each may be NULL. */
struct sched_parking {
    /* The sequence, which still has its pages, is about to lose them. Returns how many of them stay in use until they
     * are saved. */
    uint32_t (*park)(void *arg, struct seq *q);
    /* There is room again for a sequence that was parked. True: it was taken out of the scheduler, and comes back by
     * sched_push() with KV to be found in the cache. */
    bool (*fetch)(void *arg, struct seq *q);
    void *arg;
};

struct sched {
    /* Limits; the engine may change them between steps. */
    uint32_t rows_max; /* rows in a step */
    uint32_t out_max;  /* rows with logits in a step */
    struct sched_parking parking;
    /* Private. */
    double last_arrival; /* of a sequence that found others */
    struct seq_list list[SEQ_STATES];
    uint32_t count[SEQ_STATES];
    TAILQ_HEAD(, sched_group) groups;
    uint64_t arrivals;
    uint64_t slots; /* bitmap of the slots in use */
    uint64_t plans; /* made, or tried to */
    uint64_t admissions;
    struct shares shares;
};

/* An entry of a plan: one sequence's rows in a step. */
struct plan_seq {
    struct seq *seq;
    uint32_t row0, n_row;
    uint32_t pos0;     /* position of the first row */
    uint32_t n_within; /* batch_seq.n_within */
    bool decodes;      /* it has one row */
    bool answers;      /* its rows are of what the sequence generated, not of its prompt, and of no eval */
    bool sample;       /* its last row gives the next token ... */
    uint32_t index;    /* ... which is completion token `index` */
    uint32_t n_out;    /* its last n_out rows have logits */
    uint32_t n_accounted;
    double charged; /* seconds, to its client */
};
struct plan {
    struct sched_group *group;
    uint32_t n_row, n_seq;
    uint32_t n_sample; /* the first n_sample sequences sample; their rows with logits come first */
    uint32_t n_out;
    uint32_t n_accounted; /* prompt rows that count as computed: usage's computed_tokens, summed */
    bool eval;
    bool users; /* more than one was at work: who has had least may ask again when the step before this is done */
    struct cost_work work;
    double expected; /* seconds; 0: not known */
    struct plan_seq seq[BATCH_SEQS_MAX];
};

void sched_init(struct sched *s, uint32_t rows_max, uint32_t out_max);
void sched_fini(struct sched *s); /* no sequence is left */
void sched_group_add(struct sched *s, struct sched_group *g);
void sched_group_remove(struct sched *s, struct sched_group *g);

/* Queues the sequence, which has arrived now, or comes back from where it was fetched to. */
void sched_push(struct sched *s, struct sched_group *g, struct seq *q, double now);

/* RoPE's set of frequencies for a timeline of n tokens: what a sequence's KV is found by before sched_push(), too. */
static inline uint32_t sched_freq_set(const struct sched_group *g, uint32_t n)
{
    return g->long_from && n > g->long_from;
}

/* Takes a waiting sequence out, for a while; sched_push() brings it back to its place. */
void sched_take_out(struct sched *s, struct seq *q);

/* Held: all running sequences of the group make way, and none is planned until it is held no more. Between two steps
 * of which none is in flight. */
void sched_hold(struct sched *s, struct sched_group *g, bool held);

void sched_set_class(struct seq *q, enum seq_class c);

/* Plans a step and accounts for it; false where there is no work, or none before a step in flight has ended. */
bool sched_next(struct sched *s, struct plan *p, double now);

/* The step of this entry is done; call once per entry of a plan, after its token was pushed. */
void sched_done(struct sched *s, const struct plan_seq *ps);

/* Takes an entry back instead, whose step was stopped and did nothing: of the last plan alone. */
void sched_undo(struct sched *s, const struct plan_seq *ps);

/* Ends a sequence: its pages and slot are free at once. The KV of its first n_keep tokens stays in the prefix cache. It
 * is freed as soon as no step under way names it. */
void sched_end(struct sched *s, struct seq *q, uint32_t n_keep);

#endif
