/*
 * host-memory.h - how much of the host's memory this process may still pin. Pinned memory cannot be reclaimed.
 */
#ifndef HEARTH_ENGINE_HOST_MEMORY_H
#define HEARTH_ENGINE_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The number of bytes in a line "NAME: 123 kB" of /proc/meminfo; 0 if there is no such line. */
uint64_t host_memory_line(FILE *meminfo, const char *name);

/* Bytes that may be pinned: the available memory, within the control group's limit, less what is left to others (a
 * sixteenth of the machine's memory, at least 1 GiB). 0 if that is not known. */
uint64_t host_memory_room(void);

/* Same, computed from these values, all in bytes. `limit` is 0 if there is none; `charged` is what the group uses and
 * cannot give back. */
uint64_t host_memory_left(uint64_t total, uint64_t available, uint64_t limit, uint64_t charged);

/* How much of `room` free bytes one of `sharers` processes may pin, having pinned `own`. Each gets an equal part of the
 * total that it sees, so that together they pin no more than there is, in whatever order they start. */
uint64_t host_memory_part(uint64_t room, uint64_t own, uint32_t sharers);

#endif
