/* place.c - which matrices are placed in host memory, and the error if neither memory has room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/place.h"

static uint64_t rng_state = 11;
static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static const struct model_room no_end = {UINT64_MAX, UINT64_MAX};

/* An embedding, two layers of experts with a dense matrix each, and a router. */
static const struct place_item mixture[] = {
    {.bytes = 500, .read = 1, .passing = 100},   {.bytes = 100, .read = 100, .passing = 30},
    {.bytes = 10, .read = 10, .fixed = true},    {.bytes = 1000, .read = 60, .passing = 100},
    {.bytes = 1000, .read = 60, .passing = 100}, {.bytes = 90, .read = 90, .passing = 27},
};
enum { N = sizeof mixture / sizeof *mixture };

static void test_least_read_go_first(void **state)
{
    (void)state;
    static const struct {
        uint64_t own;
        bool host[N];
    } rows[] = {
        {2700, {0}},
        {2699, {1}},
        {2300, {1}},             /* 2200 stay, and 100 for what passes through while it is read */
        {2299, {0, 0, 0, 0, 1}}, /* the last of two equal ones is moved, and the embedding has room again */
        {1800, {0, 0, 0, 0, 1}},
        {1799, {1, 0, 0, 0, 1}},
        {1300, {1, 0, 0, 0, 1}},
        {799, {1, 0, 0, 1, 1}},
        {300, {1, 0, 0, 1, 1}},
        {299, {1, 1, 0, 1, 1}}, /* then the largest of those that are read entirely */
        {199, {1, 1, 0, 1, 1, 1}},
        {110, {1, 1, 0, 1, 1, 1}},
    };
    struct hearth_err e;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct place_item v[N];
        struct model_place p;
        struct model_room room = {rows[r].own, UINT64_MAX};
        memcpy(v, mixture, sizeof v);
        assert_int_equal(place_choose(v, N, &room, &p, &e), 0);
        uint64_t own = 0, host = 0;
        for (size_t i = 0; i < N; i++) {
            if (v[i].host != rows[r].host[i])
                fail_msg("room of %d: item %zu", (int)rows[r].own, i);
            *(v[i].host ? &host : &own) += v[i].bytes;
        }
        assert_int_equal(p.own, own);
        assert_int_equal(p.host, host);
        assert_true(p.own + p.passing <= rows[r].own);
        assert_int_equal(p.host_read + p.own_read, 321);
    }
    struct place_item v[N];
    struct model_place p;
    memcpy(v, mixture, sizeof v);
    assert_int_equal(place_choose(v, N, &(struct model_room){109, UINT64_MAX}, &p, &e), HEARTH_ENOMEM);
}

static void test_sizes_are_named(void **state)
{
    (void)state;
    struct place_item v[] = {{.bytes = 6000000000, .read = 6000000000, .passing = 200000000},
                             {.bytes = 2000000000, .read = 2000000000, .fixed = true}};
    struct model_place p;
    struct hearth_err e;
    struct model_room room = {1000000000, 64000000000};
    assert_int_equal(place_choose(v, 2, &room, &p, &e), HEARTH_ENOMEM);
    assert_string_equal(e.msg, "of weights of 8.0 GB at least 2.2 GB have to be in the GPU's memory, which has 1.0 GB "
                               "for them");
    room = (struct model_room){4000000000, 5000000000};
    assert_int_equal(place_choose(v, 2, &room, &p, &e), HEARTH_ENOMEM);
    assert_string_equal(e.msg, "weights of 8.0 GB: the GPU's memory has 4.0 GB for them, and the host's 5.0 GB of the "
                               "6.0 GB that are left");
    room.host = 6000000000;
    assert_int_equal(place_choose(v, 2, &room, &p, &e), 0);
    assert_int_equal(place_choose(v, 0, &(struct model_room){0}, &p, &e), 0);
}

static void test_hostile_sizes(void **state)
{
    (void)state;
    struct place_item v[] = {{.bytes = UINT64_MAX, .read = UINT64_MAX, .passing = UINT64_MAX},
                             {.bytes = UINT64_MAX - 5, .read = 1, .passing = UINT64_MAX},
                             {.bytes = 0, .read = 0, .passing = 1},
                             {.bytes = UINT64_MAX, .read = UINT64_MAX, .fixed = true}};
    struct model_place p;
    struct hearth_err e;
    assert_int_equal(place_choose(v, 4, &(struct model_room){1 << 30, 1 << 30}, &p, &e), HEARTH_ENOMEM);
    assert_int_equal(place_choose(v, 3, &(struct model_room){1 << 30, UINT64_MAX}, &p, &e), HEARTH_ENOMEM);
    assert_int_equal(place_choose(v, 1, &no_end, &p, &e), 0);
    assert_false(v[0].host);
}

/* With any sizes: what has to stay stays, the rest fits into the room, nothing is in host memory that could have
 * stayed, and nothing was moved there for the sake of a matrix that is read less. */
static void test_any_sizes(void **state)
{
    (void)state;
    enum { MOST = 40 };
    struct hearth_err e;
    uint32_t left = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        struct place_item v[MOST];
        struct model_place p;
        size_t n = 1 + rnd(MOST);
        uint64_t all = 0, fixed = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t bytes = 1 + rnd(1000);
            v[i] = (struct place_item){.bytes = bytes, .read = 1 + rnd((uint32_t)bytes), .fixed = !rnd(6)};
            v[i].passing = v[i].fixed ? 0 : 7; /* the same for all */
            all += bytes;
            fixed += v[i].fixed ? bytes : 0;
        }
        struct model_room room = {rnd((uint32_t)all + 50), UINT64_MAX};
        if (place_choose(v, n, &room, &p, &e)) {
            assert_true(fixed + (fixed < all ? 7 : 0) > room.own);
            refused++;
            continue;
        }
        assert_int_equal(p.own + p.host, all);
        assert_true(p.own + p.passing <= room.own);
        assert_true(all > room.own || !p.host);
        double most = 0;
        for (size_t i = 0; i < n; i++) {
            assert_false(v[i].fixed && v[i].host);
            left += v[i].host;
            if (v[i].host && v[i].bytes <= room.own - p.own - p.passing)
                fail_msg("round %d: item %zu could have stayed", round, i);
            double share = (double)v[i].read / (double)v[i].bytes;
            most = v[i].host && share > most ? share : most;
        }
        /* A matrix that is read less stayed only if it is smaller than each one that was moved after it. */
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < n && !v[i].host && !v[i].fixed; k++)
                if (v[k].host && v[k].bytes <= v[i].bytes)
                    assert_true((double)v[k].read / (double)v[k].bytes <= (double)v[i].read / (double)v[i].bytes);
    }
    assert_true(left > 1000 && refused > 100);
}

static void test_speed(void **state)
{
    (void)state;
    struct model_place p = {.own_read = 1000, .host_read = 500};
    assert_float_equal(place_speed(&p, 1e6, 1e5), 1 / (1e-3 + 5e-3), 1e-9);
    assert_float_equal(place_speed(&p, 1e6, 0), 0, 0);
    assert_float_equal(place_speed(&p, 0, 1e5), 0, 0);
    p.host_read = 0;
    assert_float_equal(place_speed(&p, 1e6, 0), 1000, 1e-9);
    assert_float_equal(place_speed(&(struct model_place){0}, 1e6, 1e6), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_read_go_first),
        cmocka_unit_test(test_sizes_are_named),
        cmocka_unit_test(test_hostile_sizes),
        cmocka_unit_test(test_any_sizes),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
