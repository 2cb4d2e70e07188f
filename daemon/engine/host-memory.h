/*
 * host-memory.h - how much of the host's memory this process may still pin, which nobody can take back.
 */
#ifndef HEARTH_ENGINE_HOST_MEMORY_H
#define HEARTH_ENGINE_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The number of bytes that a line "NAME: 123 kB" of /proc/meminfo says; 0: there is none. */
uint64_t host_memory_line(FILE *meminfo, const char *name);

/* Bytes that may be pinned: what is available, as far as a limit of the control group leaves it, less what stays for
 * others, a sixteenth of the machine's memory and 1 GiB at least. 0 where that is not known. */
uint64_t host_memory_room(void);

/* The same of these: all in bytes, `limit` 0: there is none; `charged` counts what the group has and cannot give back.
 */
uint64_t host_memory_left(uint64_t total, uint64_t available, uint64_t limit, uint64_t charged);

/* What one of `sharers` processes may pin of `room` bytes, having pinned `own`: each has an equal part of what it sees,
 * so that together they take no more than there is, whoever comes first or at the same time. */
uint64_t host_memory_part(uint64_t room, uint64_t own, uint32_t sharers);

#endif
