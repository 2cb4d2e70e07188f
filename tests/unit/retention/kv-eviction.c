/* kv-eviction.c - which KV files are evicted, and by which clock: limits, shares, ages, and clocks that jump. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/retention/kv-eviction.h"

static const double day = 86400, year = 365 * 86400.0;

/* --- the clock ------------------------------------------------------------------------------------------ */

static void test_clock(void **state)
{
    (void)state;
    const double wall = 1.8e9;
    assert_true(kv_eviction_clock(0, 0, wall) == 0); /* the very first start */
    assert_true(kv_eviction_clock(100, wall, wall + 50) == 150);
    assert_true(kv_eviction_clock(100, wall, wall) == 100);
    assert_true(kv_eviction_clock(100, wall, wall + 10 * year) == 100 + 7 * day);
    assert_true(kv_eviction_clock(100, wall, 0) == 100);           /* back to 1970 */
    assert_true(kv_eviction_clock(100, 3, wall) == 100 + 7 * day); /* and from there to the present */
    assert_true(kv_eviction_clock(100, NAN, wall) == 100);
    assert_true(kv_eviction_clock(100, wall, INFINITY) == 100 + 7 * day);
    assert_true(kv_eviction_clock(NAN, wall, wall + 1) == 1);
    assert_true(kv_eviction_clock(-5, wall, wall + 1) == 1);
    assert_true(kv_eviction_clock(1e300, wall, wall + 1) == 1);
}

/* --- what is evicted ------------------------------------------------------------------------------------ */

/* A file: its user, size, position and time of last use. `name` is one character. */
static struct kv_manifest_row file(char name, uid_t uid, int64_t bytes, int64_t pos, double used)
{
    struct kv_manifest_row f = {.uid = uid, .bytes = bytes, .tokens = 16, .pos = pos, .used = used};
    memset(f.name, name, KV_MANIFEST_NAME);
    return f;
}

/* The evicted files, as the letters of their names in order. */
static const char *picked(const struct kv_eviction_policy *r, struct kv_manifest_row *files, size_t n, double now)
{
    static char letters[64];
    struct kv_manifest_row *v[64];
    bool gone[64];
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        v[i] = &files[n - 1 - i];
    ptrdiff_t count = kv_eviction_pick(r, v, n, now, gone);
    for (size_t i = 0; i < n; i++)
        if (gone[i])
            letters[k++] = v[i]->name[0];
    letters[k] = '\0';
    assert_int_equal(count, k);
    return letters;
}

static void test_oldest_first(void **state)
{
    (void)state;
    struct kv_manifest_row v[] = {file('a', 1, 10, 0, 5), file('b', 1, 10, 0, 3), file('c', 1, 10, 0, 9),
                                  file('d', 1, 10, 0, 1)};
    struct kv_eviction_policy r = {.bytes = 40, .bytes_per_uid = 40, .files = 100};
    assert_string_equal(picked(&r, v, 4, 10), "");
    r.bytes = r.bytes_per_uid = 39;
    assert_string_equal(picked(&r, v, 4, 10), "d");
    r.bytes = r.bytes_per_uid = 15;
    assert_string_equal(picked(&r, v, 4, 10), "dba");
    r.bytes = r.bytes_per_uid = 9; /* not even the newest file fits */
    assert_string_equal(picked(&r, v, 4, 10), "dbac");
    struct kv_manifest_row large[] = {file('a', 1, 10, 0, 5), file('b', 1, 41, 0, 9)};
    r.bytes = r.bytes_per_uid = 40;
    assert_string_equal(picked(&r, large, 2, 10), "b"); /* and the other files are not evicted for it */
    r = (struct kv_eviction_policy){.bytes = 40, .bytes_per_uid = 40, .files = 2};
    assert_string_equal(picked(&r, v, 4, 10), "db");
    assert_string_equal(picked(&r, v, 0, 10), "");
}

/* The end of a timeline is evicted before its beginning, without which the end would be useless. */
static void test_ends_first(void **state)
{
    (void)state;
    struct kv_manifest_row v[] = {file('a', 1, 10, 0, 5), file('b', 1, 10, 64, 5), file('c', 1, 10, 128, 5)};
    struct kv_eviction_policy r = {.bytes = 25, .bytes_per_uid = 25, .files = 100};
    assert_string_equal(picked(&r, v, 3, 10), "c");
    r.bytes = r.bytes_per_uid = 10;
    assert_string_equal(picked(&r, v, 3, 10), "cb");
}

static void test_age(void **state)
{
    (void)state;
    struct kv_manifest_row v[] = {file('a', 1, 10, 0, 0), file('b', 2, 10, 0, 2 * day), file('c', 1, 10, 0, 29 * day)};
    struct kv_eviction_policy r = {.bytes = 1000, .bytes_per_uid = 1000, .files = 100, .age = 30 * day};
    assert_string_equal(picked(&r, v, 3, 30 * day), "");
    assert_string_equal(picked(&r, v, 3, 31 * day), "a");
    assert_string_equal(picked(&r, v, 3, 33 * day), "ab");
    r.age = 0;
    assert_string_equal(picked(&r, v, 3, 100 * year), "");

    r.age_unowned = day; /* for files that belong to no session */
    memcpy(v[0].session, "0123456789abcdef", 17);
    assert_string_equal(picked(&r, v, 3, 29.5 * day), "b");
    memset(v[0].session, 0, 17);
    r.age_unowned = 0;

    /* A jump of ten years between two runs of hearthd counts as a week, and files that were used lately stay. It does
     * not change the order of eviction either. */
    r.age = 30 * day;
    assert_string_equal(picked(&r, v, 3, kv_eviction_clock(30 * day, 1.8e9, 1.8e9 + 10 * year)), "ab");
    assert_string_equal(picked(&r, v, 3, kv_eviction_clock(30 * day, 1.8e9, 0)), "");
}

/* One user's files do not displace another's. */
static void test_shares(void **state)
{
    (void)state;
    struct kv_manifest_row v[] = {file('a', 1, 10, 0, 1), file('b', 2, 10, 0, 2), file('c', 2, 10, 0, 3),
                                  file('d', 2, 10, 0, 4), file('e', 2, 10, 0, 5)};
    struct kv_eviction_policy r = {.bytes = 1000, .bytes_per_uid = 25, .files = 100};
    assert_string_equal(picked(&r, v, 5, 10), "bc"); /* the user's own oldest files */
    r = (struct kv_eviction_policy){.bytes = 30, .bytes_per_uid = 1000, .files = 100};
    assert_string_equal(picked(&r, v, 5, 10), "bc"); /* the user with the most is evicted from */
    r.bytes = 10;
    const char *gone = picked(&r, v, 5, 10);
    assert_int_equal(strlen(gone), 4);
    r = (struct kv_eviction_policy){.bytes = 1000, .bytes_per_uid = 1000, .files = 3};
    assert_string_equal(picked(&r, v, 5, 10), "bc");
}

/* Any limits and any files: nothing overflows, the remaining files are within the limits, and no more are evicted than
 * necessary. */
static void test_random(void **state)
{
    (void)state;
    srand(20261121);
    for (int round = 0; round < 2000; round++) {
        struct kv_manifest_row files[40], *v[40];
        bool gone[40];
        size_t n = (size_t)(rand() % 41);
        int users = round % 2 == 0 ? 4 : 1;
        for (size_t i = 0; i < n; i++) {
            int64_t bytes = rand() % 8 == 0 ? KV_MANIFEST_BYTES_MAX : 1 + rand() % 1000;
            files[i] = file((char)('0' + i), (uid_t)(rand() % users), bytes, rand() % 5, rand() % 20);
            v[i] = &files[i];
        }
        struct kv_eviction_policy r = {.bytes = rand() % 8 == 0 ? INT64_MAX : rand() % 20000,
                                       .bytes_per_uid = rand() % 10000,
                                       .files = (size_t)(rand() % 50),
                                       .age = rand() % 30};
        assert_true(kv_eviction_pick(&r, v, n, 20, gone) >= 0);
        int64_t total = 0, of[4] = {0};
        size_t left = 0;
        for (size_t i = 0; i < n; i++)
            if (!gone[i]) {
                left++;
                total += v[i]->bytes;
                of[v[i]->uid] += v[i]->bytes;
                assert_true(r.age == 0 || 20 - v[i]->used <= r.age);
            }
        assert_true(total <= r.bytes && left <= r.files);
        for (int u = 0; u < 4; u++)
            assert_true(of[u] <= r.bytes_per_uid);
        /* With a single user, adding back the last evicted file would exceed a limit. */
        size_t last = n;
        for (size_t i = 0; i < n; i++)
            if (gone[i] && (r.age == 0 || 20 - v[i]->used <= r.age) && v[i]->bytes <= r.bytes_per_uid)
                last = i;
        if (users == 1 && last < n) {
            int64_t with = total + v[last]->bytes;
            assert_true(with > r.bytes_per_uid || with > r.bytes || left + 1 > r.files);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock), cmocka_unit_test(test_oldest_first), cmocka_unit_test(test_ends_first),
        cmocka_unit_test(test_age),   cmocka_unit_test(test_shares),       cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
