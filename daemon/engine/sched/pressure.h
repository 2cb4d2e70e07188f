/*
 * pressure.h - whether other programs want memory of the device that hearth has: the net below `yield`, for programs
 * that ask for nothing. Pure.
 *
 * All that is seen of such a program is that what others have grows, until nothing is free. So a headroom is kept free
 * while it grows; and as a program that takes gigabytes at a time is not to wait for each of them, the first time a
 * sixteenth of the card is to be free, and twice as much each time that three quarters of that are used up. When the
 * others have given back most of what they took, hearth takes it again.
 * What hearth itself takes is no pressure, however little is free.
 */
#ifndef HEARTH_ENGINE_PRESSURE_H
#define HEARTH_ENGINE_PRESSURE_H

#include "daemon/engine/sched/ledger.h"

/* Zero-initialise, with the headroom; 0: nothing is pressure. */
struct pressure {
    uint64_t headroom;
    bool seen, on;
    uint64_t calm; /* bytes that others had when the headroom was free */
    uint64_t last; /* at the last look */
    uint64_t most; /* the most, since it is on */
    uint64_t want; /* that are to be free */
};

enum pressure_act { PRESSURE_NONE, PRESSURE_GIVE, PRESSURE_TAKE };

/* After each count of the ledger; `free` is what can be had without giving anything back. GIVE: until p->want are free;
 * TAKE: it is over. */
enum pressure_act pressure_look(struct pressure *p, const struct ledger *l, uint64_t free);

/* What others have now is theirs: somebody has said so. */
void pressure_accept(struct pressure *p, const struct ledger *l);

#endif
