/* host-memory.c - see host-memory.h. Any thread. */
#include "config.h"

#include "daemon/engine/host-memory.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

uint64_t host_memory_line(FILE *meminfo, const char *name)
{
    char line[256];
    size_t n = strlen(name);
    rewind(meminfo);
    while (fgets(line, sizeof line, meminfo)) {
        uint64_t kib;
        int end = 0; /* set if the unit matches as well */
        if (!strncmp(line, name, n) && line[n] == ':' && sscanf(line + n + 1, "%" SCNu64 " kB%n", &kib, &end) == 1 &&
            end)
            return kib > UINT64_MAX >> 10 ? UINT64_MAX : kib << 10;
    }
    return 0;
}

uint64_t host_memory_left(uint64_t total, uint64_t available, uint64_t limit, uint64_t charged)
{
    static const uint64_t least = UINT64_C(1) << 30;
    uint64_t others = total / 16 > least ? total / 16 : least;
    uint64_t left = available > others ? available - others : 0;
    if (limit) {
        uint64_t allowed = limit > charged ? limit - charged : 0;
        left = allowed < left ? allowed : left;
    }
    return left;
}

uint64_t host_memory_part(uint64_t room, uint64_t own, uint32_t sharers)
{
    uint64_t part = (own < UINT64_MAX - room ? own + room : UINT64_MAX) / (sharers ? sharers : 1);
    part = part > own ? part - own : 0;
    return part < room ? part : room;
}

/* The path of this process's group in the unified hierarchy, without a newline; false if it has none. */
static bool own_group(char *out, size_t size)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        if (!strncmp(line, "0::/", 4)) {
            line[strcspn(line, "\n")] = 0;
            found = (size_t)snprintf(out, size, "/sys/fs/cgroup%s", line + 3) < size;
        }
    if (f)
        fclose(f);
    return found;
}

/* The number at the beginning of a file of the group, or after `name`; 0 if there is none, as in "max". */
static uint64_t group_number(const char *group, const char *file, const char *name)
{
    char path[PATH_MAX + 32], line[256];
    uint64_t v = 0;
    size_t n = name ? strlen(name) : 0;
    snprintf(path, sizeof path, "%s/%s", group, file);
    FILE *f = fopen(path, "re");
    while (f && !v && fgets(line, sizeof line, f))
        if ((!n || (!strncmp(line, name, n) && line[n] == ' ')) && sscanf(line + n, "%" SCNu64, &v) != 1)
            v = 0;
    if (f)
        fclose(f);
    return v;
}

uint64_t host_memory_room(void)
{
    char group[PATH_MAX];
    uint64_t limit = 0, charged = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f)
        return 0;
    uint64_t total = host_memory_line(f, "MemTotal"), available = host_memory_line(f, "MemAvailable");
    fclose(f);
    if (own_group(group, sizeof group)) {
        limit = group_number(group, "memory.max", NULL);
        uint64_t all = group_number(group, "memory.current", NULL), files = group_number(group, "memory.stat", "file");
        charged = all > files ? all - files : 0;
    }
    return host_memory_left(total, available, limit, charged);
}
