/* host-memory.c - how much host memory may be pinned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "daemon/engine/host-memory.h"

static const uint64_t gib = UINT64_C(1) << 30;

static void test_what_is_left(void **state)
{
    (void)state;
    assert_true(host_memory_left(64 * gib, 40 * gib, UINT64_MAX) == 36 * gib); /* a sixteenth stays for others ... */
    assert_true(host_memory_left(8 * gib, 4 * gib, UINT64_MAX) == 3 * gib);    /* ... and 1 GiB at least */
    assert_true(host_memory_left(8 * gib, gib, UINT64_MAX) == 0);
    assert_true(host_memory_left(8 * gib, 0, UINT64_MAX) == 0);
    assert_true(host_memory_left(64 * gib, 40 * gib, 6 * gib) == 6 * gib); /* the group's limit */
    assert_true(host_memory_left(64 * gib, 40 * gib, 0) == 0);
    assert_true(host_memory_left(64 * gib, 40 * gib, 100 * gib) == 36 * gib);
    assert_true(host_memory_left(UINT64_MAX, UINT64_MAX, UINT64_MAX) == UINT64_MAX - UINT64_MAX / 16);
}

/* --- control groups, as folders of the test's own --------------------------------------------------------------- */

static char root[64];

static void put(const char *file, const char *text)
{
    char path[128];
    assert_true((size_t)snprintf(path, sizeof path, "%s/%s", root, file) < sizeof path);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void folder(const char *name)
{
    char path[128];
    assert_true((size_t)snprintf(path, sizeof path, "%s/%s", root, name) < sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int make_groups(void **state)
{
    (void)state;
    strcpy(root, "/tmp/hearth-groups-XXXXXX");
    assert_non_null(mkdtemp(root));
    folder("user.slice");
    folder("user.slice/hearth.service");
    return 0;
}

static int remove_groups(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

#define OWN "user.slice/hearth.service/"

static void test_a_groups_limit(void **state)
{
    (void)state;
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == UINT64_MAX);
    put(OWN "memory.max", "max\n");
    put(OWN "memory.high", "max\n");
    put(OWN "memory.current", "3000\n");
    put(OWN "memory.stat", "anon 1000\nfile_mapped 7\nfile 2000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == UINT64_MAX);
    put(OWN "memory.max", "10000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") ==
                9000); /* cached files can be dropped */
    put(OWN "memory.stat", "anon 500\nfile 2500\nshmem_thp 3\nshmem 500\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") ==
                9000); /* ... but not files in a tmpfs */
    put(OWN "memory.high", "6000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 5000);
    put(OWN "memory.high", "20000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 9000);
    put(OWN "memory.high", "0\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 0);
    put(OWN "memory.high", "max\n");
    put(OWN "memory.max", "900\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 0);
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/elsewhere") == UINT64_MAX);
}

static void test_limits_above(void **state)
{
    (void)state;
    put(OWN "memory.max", "10000\n");
    put(OWN "memory.current", "1000\n");
    put("user.slice/memory.max", "12000\n");
    put("user.slice/memory.current", "5000\n"); /* others are charged to it as well */
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 7000);
    put("user.slice/memory.max", "max\n");
    put("user.slice/memory.high", "6000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 1000);
    put("user.slice/memory.high", "60000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 9000);
    put("memory.max", "8000\n"); /* a container's own group is the root that it sees */
    put("memory.current", "2000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice/hearth.service") == 6000);
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/user.slice") == 6000);
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, "/") == 6000);
}

/* Version 1: other names for the same, and no limit is a number. */
static void test_version_1(void **state)
{
    (void)state;
    static const char own[] = "/user.slice/hearth.service";
    assert_true(host_memory_allowed(HOST_MEMORY_V1, root, own) == UINT64_MAX);
    put(OWN "memory.limit_in_bytes", "9223372036854771712\n");
    put(OWN "memory.soft_limit_in_bytes", "1\n"); /* nothing is refused for it */
    put(OWN "memory.usage_in_bytes", "3000\n");
    put(OWN "memory.stat", "cache 7\nrss 400\nshmem 7\ntotal_cache 2500\ntotal_rss 500\ntotal_shmem 500\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V1, root, own) > 1000 * 1000 * gib);
    put(OWN "memory.limit_in_bytes", "10000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V1, root, own) == 9000);
    put("user.slice/memory.limit_in_bytes", "6000\n");
    put("user.slice/memory.usage_in_bytes", "5000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V1, root, own) == 1000);
    put("memory.limit_in_bytes", "5500\n"); /* a container sees its own group as the root */
    put("memory.usage_in_bytes", "5000\n");
    assert_true(host_memory_allowed(HOST_MEMORY_V1, root, "/docker/0123") == 500);
    assert_true(host_memory_allowed(HOST_MEMORY_V2, root, own) == UINT64_MAX);
}

static void test_own_groups(void **state)
{
    (void)state;
    static const char both[] = "5:cpu,cpuacct:/c\n4:memory:/m/a:memory:/b\n1:name=memory:/n\n0::/\n",
                      v2[] = "0::/user.slice/hearth.service\n";
    char group[32];
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_false(host_memory_group(f, "", group, sizeof group));
    assert_true(fwrite(both, 1, sizeof both - 1, f) == sizeof both - 1);
    assert_true(host_memory_group(f, "memory", group, sizeof group));
    assert_string_equal(group, "/m/a:memory:/b");
    assert_true(host_memory_group(f, "", group, sizeof group));
    assert_string_equal(group, "/");
    fclose(f);
    assert_non_null(f = tmpfile());
    assert_true(fwrite(v2, 1, sizeof v2 - 1, f) == sizeof v2 - 1);
    assert_false(host_memory_group(f, "memory", group, sizeof group));
    assert_true(host_memory_group(f, "", group, sizeof group));
    assert_string_equal(group, "/user.slice/hearth.service");
    assert_false(host_memory_group(f, "", group, 5)); /* no room for it */
    fclose(f);
}

static void test_what_is_shared(void **state)
{
    (void)state;
    assert_true(host_memory_part(36 * gib, 0, 1) == 36 * gib);
    assert_true(host_memory_part(36 * gib, 20 * gib, 1) == 36 * gib);
    assert_true(host_memory_part(36 * gib, 0, 2) == 18 * gib);
    assert_true(host_memory_part(18 * gib, 18 * gib, 2) == 0); /* it has its part */
    assert_true(host_memory_part(6 * gib, 20 * gib, 2) == 0);  /* others came between */
    assert_true(host_memory_part(18 * gib, 6 * gib, 2) == 6 * gib);
    assert_true(host_memory_part(0, 0, 2) == 0);
    assert_true(host_memory_part(gib, UINT64_MAX, 2) == 0);
    /* In any order, and where all look before any takes. */
    for (uint32_t n = 1; n <= 16; n++) {
        uint64_t left = 100 * gib, own[16] = {0}, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += host_memory_part(left, 0, n);
        assert_true(sum <= left);
        sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += host_memory_part(left, i * gib, n);
        assert_true(sum <= left);
        for (uint32_t i = 0; i < 5 * n; i++) {
            uint64_t part = host_memory_part(left, own[i * 7 % n], n);
            assert_true(part <= left);
            own[i * 7 % n] += part;
            left -= part;
        }
    }
}

static void test_lines(void **state)
{
    (void)state;
    static const char text[] = "MemTotal:       131981020 kB\nMemAvail: 5 kB\nMemAvailable:   1000 kB\nHugePages: 7\n"
                               "Huge: 99999999999999999999 kB\nMany:  18446744073709551615 kB\nNone: kB\n";
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_true(fwrite(text, 1, sizeof text - 1, f) == sizeof text - 1);
    assert_true(host_memory_line(f, "MemAvailable") == 1000 << 10);
    assert_true(host_memory_line(f, "MemTotal") == UINT64_C(131981020) << 10);
    assert_true(host_memory_line(f, "Mem") == 0);
    assert_true(host_memory_line(f, "HugePages") == 0); /* not in kB */
    assert_true(host_memory_line(f, "Many") == UINT64_MAX);
    assert_true(host_memory_line(f, "None") == 0);
    fclose(f);
}

static void test_this_machine(void **state)
{
    (void)state;
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f)
        skip();
    uint64_t total = host_memory_line(f, "MemTotal");
    fclose(f);
    assert_true(total > 0 && host_memory_room() < total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left),
        cmocka_unit_test_setup_teardown(test_a_groups_limit, make_groups, remove_groups),
        cmocka_unit_test_setup_teardown(test_limits_above, make_groups, remove_groups),
        cmocka_unit_test_setup_teardown(test_version_1, make_groups, remove_groups),
        cmocka_unit_test(test_own_groups),
        cmocka_unit_test(test_what_is_shared),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests_name("host-memory", tests, NULL, NULL);
}
