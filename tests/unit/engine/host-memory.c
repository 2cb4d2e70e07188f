/* host-memory.c - what may be pinned of the host's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/host-memory.h"

static const uint64_t gib = UINT64_C(1) << 30;

static void test_what_is_left(void **state)
{
    (void)state;
    assert_true(host_memory_left(64 * gib, 40 * gib, 0, 0) == 36 * gib); /* a sixteenth stays for others ... */
    assert_true(host_memory_left(8 * gib, 4 * gib, 0, 0) == 3 * gib);    /* ... and 1 GiB at least */
    assert_true(host_memory_left(8 * gib, gib, 0, 0) == 0);
    assert_true(host_memory_left(8 * gib, 0, 0, 0) == 0);
    assert_true(host_memory_left(64 * gib, 40 * gib, 10 * gib, 4 * gib) == 6 * gib); /* the group's limit */
    assert_true(host_memory_left(64 * gib, 40 * gib, 10 * gib, 11 * gib) == 0);
    assert_true(host_memory_left(64 * gib, 40 * gib, 100 * gib, 0) == 36 * gib);
    assert_true(host_memory_left(UINT64_MAX, UINT64_MAX, UINT64_MAX, 0) == UINT64_MAX - UINT64_MAX / 16);
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
        cmocka_unit_test(test_what_is_shared),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests_name("host-memory", tests, NULL, NULL);
}
