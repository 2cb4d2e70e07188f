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

/* Bytes that may be pinned: the available memory, less what is left to others (a sixteenth of the machine's memory, at
 * least 1 GiB), and no more than the control groups allow. 0 if that is not known. */
uint64_t host_memory_room(void);

/* Bytes that the process's control groups still allow, of whichever version; UINT64_MAX: no limit. */
uint64_t host_memory_granted(void);

/* host_memory_room(), computed from these values, all in bytes. `allowed` is what the control groups allow; UINT64_MAX:
 * no limit. */
uint64_t host_memory_left(uint64_t total, uint64_t available, uint64_t allowed);

/* Versions of control groups: the memory controller's own hierarchy, and the unified one. */
enum host_memory_version { HOST_MEMORY_V1, HOST_MEMORY_V2 };

/* Bytes that may still be charged to a control group: the least that its own limits and those of all groups above it
 * leave. `root` is where the hierarchy is mounted, `group` a path in it that begins with a slash. UINT64_MAX: no limit;
 * where version 1 has none, a number of that order. */
uint64_t host_memory_allowed(enum host_memory_version version, const char *root, const char *group);

/* Reads from /proc/self/cgroup the path of the process's group in the hierarchy of that controller, "" for the unified
 * one; false if it is in none. */
bool host_memory_group(FILE *cgroups, const char *controller, char *out, size_t size);

/* How much of `room` free bytes one of `sharers` processes may pin, having pinned `own`. Each gets an equal part of the
 * total that it sees, so that together they pin no more than there is, in whatever order they start. */
uint64_t host_memory_part(uint64_t room, uint64_t own, uint32_t sharers);

#endif
