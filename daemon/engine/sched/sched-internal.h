/* sched-internal.h - declarations shared by the scheduler's files; no other file includes it. Pure. */
#ifndef HEARTH_ENGINE_SCHED_INTERNAL_H
#define HEARTH_ENGINE_SCHED_INTERNAL_H

#include "daemon/engine/sched/sched.h"

/* Seconds without a row, for each class by which a sequence is raised above its own. */
#define AGE_SECONDS 2.0
/* Seconds of waiting, and of holding a seat, before sequences of a user that has consumed more are preempted. */
#define QUANTUM_SECONDS 2.0
/* Seconds of progress for which a sequence admitted because of its age keeps its seat from those of a higher class, at
 * least: see has_had() in room.c. */
#define AGED_SECONDS 0.5

/* --- sched.c */

/* The most rows in a step of the group. */
static inline uint32_t sched_rows_max(const struct sched *s, const struct sched_group *g)
{
    return g->rows_max && g->rows_max < s->rows_max ? g->rows_max : s->rows_max;
}

/* The only function that moves sequences between lists; each state is a list. */
void sched_set_state(struct sched *s, struct seq *q, enum seq_state state);

/* The class that the sequence counts as, given how long it has waited. */
enum seq_class sched_class_by_age(const struct seq *q, double now);

/* --- ahead.c */

/* Whether the waiting sequence should wait for pages that a running sequence's prompt is about to fill. */
bool sched_waits_for_pages(const struct sched *s, struct seq *q);

/* Shortens a chunk of n rows of a running sequence's prompt to end with the pages that another sequence waits for, and
 * returns its rows; n where little of the chunk lies after those pages. */
uint32_t sched_cut_for_others(const struct sched *s, const struct seq *r, uint32_t n);

/* --- room.c */

/* Gives the waiting sequence pages and a seat; false where there is no room, or none before a step has ended. */
bool sched_admit(struct sched *s, struct seq *q, double now);

/* Allocates pages for the whole timeline of the running sequence. False: it was itself preempted, or it waits for pages
 * that are being saved or that its steps in flight hold. */
bool sched_grow(struct sched *s, struct seq *q);

/* Returns a running sequence to the waiting ones where its timeline has outgrown its frequency set
 * (sched_group.long_from); false: it has not. */
bool sched_outgrew(struct sched *s, struct seq *q);
/* Releases pages and slot. The computed KV of the first n_keep tokens stays in the prefix cache until its pages are
 * evicted. */
void sched_release(struct sched *s, struct seq *q, uint32_t n_keep);

#endif
