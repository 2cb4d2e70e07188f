/*
 * pressure.h - whether other programs want device memory that hearth holds: the fallback below `yield`, for programs
 * that do not request it. Pure.
 *
 * The only sign of such a program is that the memory held by others grows until nothing is free. So a headroom is kept
 * free while it grows. As a program that takes gigabytes at a time should not have to wait for each of them, the first
 * target is a sixteenth of the card, and the target doubles each time three quarters of it are used up. When the others
 * have given back most of what they took, hearth takes its memory again. What hearth itself takes is no pressure,
 * however little is free.
 */
#ifndef HEARTH_ENGINE_PRESSURE_H
#define HEARTH_ENGINE_PRESSURE_H

#include "daemon/engine/sched/ledger.h"

/* Zero-initialise except for the headroom; headroom 0: nothing counts as pressure. */
struct pressure {
    uint64_t headroom;
    bool seen, on;
    uint64_t calm; /* bytes held by others when the headroom was last free */
    uint64_t last; /* bytes held by others at the last look */
    uint64_t most; /* the most held by others since it is on */
    uint64_t want; /* bytes that are to be free */
};

enum pressure_act { PRESSURE_NONE, PRESSURE_GIVE, PRESSURE_TAKE };

/* Call after each ledger_count(); `free` is what can be had without giving anything back. GIVE: give memory back until
 * p->want bytes are free; TAKE: the pressure is over. */
enum pressure_act pressure_look(struct pressure *p, const struct ledger *l, uint64_t free);

/* Accepts what others hold at present as theirs, because it was requested explicitly. */
void pressure_accept(struct pressure *p, const struct ledger *l);

#endif
