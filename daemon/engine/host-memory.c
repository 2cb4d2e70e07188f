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

uint64_t host_memory_left(uint64_t total, uint64_t available, uint64_t allowed)
{
    static const uint64_t least = UINT64_C(1) << 30;
    uint64_t others = total / 16 > least ? total / 16 : least;
    uint64_t left = available > others ? available - others : 0;
    return allowed < left ? allowed : left;
}

uint64_t host_memory_part(uint64_t room, uint64_t own, uint32_t sharers)
{
    uint64_t part = (own < UINT64_MAX - room ? own + room : UINT64_MAX) / (sharers ? sharers : 1);
    part = part > own ? part - own : 0;
    return part < room ? part : room;
}

bool host_memory_group(FILE *cgroups, const char *controller, char *out, size_t size)
{
    char line[PATH_MAX];
    size_t n = strlen(controller);
    rewind(cgroups);
    while (fgets(line, sizeof line, cgroups)) { /* "4:memory:/path"; of the unified hierarchy "0::/path" */
        const char *at = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        if (at && !strncmp(at + 1, controller, n) && !strncmp(at + 1 + n, ":/", 2))
            return (size_t)snprintf(out, size, "%s", at + n + 2) < size;
    }
    return false;
}

/* The number at the beginning of a file of a group, or after `name`; `none` if there is none, as in "max". */
static uint64_t group_number(const char *group, const char *file, const char *name, uint64_t none)
{
    char path[2 * PATH_MAX + 32], line[256];
    uint64_t v = none;
    size_t n = name ? strlen(name) : 0;
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", group, file);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = (!n || (!strncmp(line, name, n) && line[n] == ' ')) && sscanf(line + n, "%" SCNu64, &v) == 1;
    if (f)
        fclose(f);
    return v;
}

/* Where a version of control groups tells its limits, the use, and of that the files. Version 1 has no `high`: its soft
 * limit only says where memory is reclaimed first. Its `cache` and `shmem` are a group's own, `total_*` include the
 * groups below, as the use does. */
static const struct version {
    const char *controller, *root, *max, *high, *current, *file, *shmem;
} versions[] = {
    [HOST_MEMORY_V1] = {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", NULL, "memory.usage_in_bytes",
                        "total_cache", "total_shmem"},
    [HOST_MEMORY_V2] = {"", "/sys/fs/cgroup", "memory.max", "memory.high", "memory.current", "file", "shmem"},
};

/* What one group may still use. Above `max` its processes are killed. Above `high` they sleep until memory is
 * reclaimed, which pinned memory cannot be: they would hardly run any more. */
static uint64_t group_allowed(const struct version *v, const char *group)
{
    uint64_t max = group_number(group, v->max, NULL, UINT64_MAX),
             high = v->high ? group_number(group, v->high, NULL, UINT64_MAX) : UINT64_MAX,
             limit = max < high ? max : high;
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    uint64_t all = group_number(group, v->current, NULL, 0), files = group_number(group, "memory.stat", v->file, 0),
             shared = group_number(group, "memory.stat", v->shmem, 0); /* counted in `file`, but cannot be dropped */
    uint64_t cache = files > shared ? files - shared : 0, charged = all > cache ? all - cache : 0;
    return limit > charged ? limit - charged : 0;
}

uint64_t host_memory_allowed(enum host_memory_version version, const char *root, const char *group)
{
    char path[2 * PATH_MAX];
    size_t top = strlen(root);
    uint64_t least = UINT64_MAX;
    if ((size_t)snprintf(path, sizeof path, "%s%s", root, group) >= sizeof path)
        return least;
    for (char *end = path + strlen(path); end; end = strrchr(path + top, '/')) {
        *end = 0;
        uint64_t allowed = group_allowed(&versions[version], path);
        least = allowed < least ? allowed : least;
    }
    return least;
}

uint64_t host_memory_granted(void)
{
    char group[PATH_MAX];
    uint64_t least = UINT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    for (int v = HOST_MEMORY_V1; f && v <= HOST_MEMORY_V2; v++) { /* a machine may have both */
        bool is_in = host_memory_group(f, versions[v].controller, group, sizeof group);
        uint64_t allowed = is_in ? host_memory_allowed(v, versions[v].root, group) : UINT64_MAX;
        least = allowed < least ? allowed : least;
    }
    if (f)
        fclose(f);
    return least;
}

uint64_t host_memory_room(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f)
        return 0;
    uint64_t total = host_memory_line(f, "MemTotal"), available = host_memory_line(f, "MemAvailable");
    fclose(f);
    return host_memory_left(total, available, host_memory_granted());
}
