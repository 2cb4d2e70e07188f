/* sched-internal.h - what the files of the scheduler share; nobody else includes it. Pure. */
#ifndef HEARTH_ENGINE_SCHED_INTERNAL_H
#define HEARTH_ENGINE_SCHED_INTERNAL_H

#include "daemon/engine/sched/sched.h"

#define AGE_SECONDS     2.0 /* without a row, for each class that a sequence is taken for above its own */
#define QUANTUM_SECONDS 2.0 /* of waiting, and of a seat, before those who have had more make way */
#define AGED_SECONDS    0.5 /* of a seat, that a sequence which came to it by its age has from those above it */

/* --- sched.c */

/* Rows in a step of the group at most. */
static inline uint32_t sched_rows_max(const struct sched *s, const struct sched_group *g)
{
    return g->rows_max && g->rows_max < s->rows_max ? g->rows_max : s->rows_max;
}

/* A state is a list, and this function alone moves sequences between lists. */
void sched_set_state(struct sched *s, struct seq *q, enum seq_state state);

/* The class that the sequence is taken for by now. */
enum seq_class sched_class_by_age(const struct seq *q, double now);

/* Whether `a` is next before `b`. */
bool sched_before(const struct seq *a, const struct seq *b, double now);

/* --- ahead.c */

/* Whether the waiting sequence had better wait for pages that a running one's prompt is about to fill. */
bool sched_waits_for_pages(const struct sched *s, struct seq *q);

/* Of n rows of a running sequence's prompt, those up to the end of the pages that somebody waits for; all where little
 * is left after these. */
uint32_t sched_cut_for_others(const struct sched *s, const struct seq *r, uint32_t n);

/* --- room.c */

/* Gives the waiting sequence pages and a seat; false where there is no room, or not before a step has ended. */
bool sched_admit(struct sched *s, struct seq *q, double now);

/* Allocates pages for the whole timeline of the running sequence. False: it had to make way itself, or it waits for
 * pages that are being saved. */
bool sched_grow(struct sched *s, struct seq *q);

/* Releases pages and slot. The computed KV of its first n_keep tokens stays in the prefix cache until its pages are
 * evicted. */
/* Takes a running sequence back to those that wait where its timeline has outgrown its set of frequencies
 * (sched_group.long_from); false: it has not. */
bool sched_outgrew(struct sched *s, struct seq *q);
void sched_release(struct sched *s, struct seq *q, uint32_t n_keep);

#endif
