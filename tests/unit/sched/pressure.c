/*
 * pressure.c - when memory is given to programs that do not request it, on a GPU of 80 GB with hearth and one other
 * program.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "daemon/engine/neighbours.h"
#include "daemon/engine/sched/pressure.h"

static const uint64_t GB = 1000000000;

struct card {
    struct pressure p;
    uint64_t hearth, others; /* bytes */
};

static enum pressure_act look(struct card *c)
{
    struct ledger l = {
        .total = 80 * GB, .context = GB / 2, .others_known = true, .others_apart = true, .others = c->others};
    uint64_t used = c->hearth + c->others;
    l.free = used < l.total ? l.total - used : 0;
    return pressure_look(&c->p, &l, l.free);
}

/* Hearth fills the GPU. Neither that nor a program that was there before is pressure. */
static void what_hearth_takes_is_no_pressure(void **state)
{
    (void)state;
    struct card c = {.p.headroom = GB, .others = 3 * GB};
    for (c.hearth = 0; c.hearth <= 77 * GB; c.hearth += GB / 4)
        assert_int_equal(look(&c), PRESSURE_NONE);
    c.others += GB / 20; /* a small amount */
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others -= GB;
    assert_int_equal(look(&c), PRESSURE_NONE);
}

/* A program wants all but 2 GB, one piece after another, and retries every 20 ms when it is refused. Looks happen as
 * neighbours.h describes, and hearth frees what it is told to free, at 5 ms per GB. The clock is the test's, in ms. */
static void a_program_gets_all_that_it_wants(void **state)
{
    (void)state;
    static const uint64_t pieces[] = {GB / 4, GB, 2 * GB, 4 * GB};
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++)
        for (int phase = 0; phase < 250; phase += 10) {
            struct card c = {.p.headroom = k < 2 ? GB : pieces[k], .hearth = 60 * GB, .others = GB};
            uint64_t piece = pieces[k], most = 78 * GB, had = c.others, given = 0;
            double changed_at = -INFINITY, look_at = phase, try_at = 0, refused_at = -1, end = -1;
            int gives = 0, given_at = -1;
            assert_int_equal(look(&c), PRESSURE_NONE);
            for (int ms = 0; end < 0 && ms < 10000; ms++) {
                if (ms == given_at) {
                    c.hearth -= given;
                    given_at = -1;
                }
                if (ms >= try_at && c.hearth + c.others + piece <= 80 * GB) {
                    c.others += piece;
                    try_at = ms + 1;
                } else if (ms >= try_at) {
                    refused_at = refused_at < 0 ? ms : refused_at;
                    try_at = ms + 20;
                }
                end = c.others + piece > most ? ms : end;
                if (ms < look_at || given_at >= 0)
                    continue;
                if (c.others - had >= NEIGHBOURS_MUCH)
                    changed_at = ms;
                enum pressure_act act = c.others != had ? look(&c) : PRESSURE_NONE;
                had = c.others;
                look_at = ms + 1e3 * neighbours_pause(0.25, 1e-3 * (ms - changed_at));
                assert_int_not_equal(act, PRESSURE_TAKE);
                if (act != PRESSURE_GIVE)
                    continue;
                uint64_t free = 80 * GB - c.hearth - c.others, lacks = c.p.want > free ? c.p.want - free : 0;
                given = lacks < c.hearth ? lacks : c.hearth;
                given_at = ms + 1 + 5 * (int)(given / GB);
                gives += given > 0;
            }
            assert_true(end >= 0 && refused_at >= 0);
            assert_true(end - refused_at < 1000 && gives <= 5);
        }
}

/* A program that wants little gets the free part of the GPU, and nothing from hearth. */
static void a_little_is_a_little(void **state)
{
    (void)state;
    struct card c = {.p.headroom = GB, .hearth = 78 * GB, .others = GB};
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others += GB / 2;
    assert_int_equal(look(&c), PRESSURE_GIVE);
    assert_true(c.p.want == 5 * GB);
    c.hearth -= c.p.want - GB / 2;
    for (uint64_t i = 0; i < 3; i++) {
        c.others += GB;
        assert_int_equal(look(&c), PRESSURE_NONE);
    }
    c.others += GB;
    assert_int_equal(look(&c), PRESSURE_GIVE);
    assert_true(c.p.want == 10 * GB);
}

/* Hearth takes the memory back when the program ends, and not before. */
static void it_comes_back(void **state)
{
    (void)state;
    struct card c = {.p.headroom = GB, .hearth = 78 * GB, .others = GB};
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others += GB / 2;
    assert_int_equal(look(&c), PRESSURE_GIVE);
    c.hearth = GB;
    c.others = 77 * GB;
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others -= 40 * GB; /* much, but not most of it */
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others += 30 * GB; /* there is room for this */
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others = GB;
    assert_int_equal(look(&c), PRESSURE_TAKE);
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.hearth = 78 * GB;
    assert_int_equal(look(&c), PRESSURE_NONE);
}

static void it_is_known_or_off(void **state)
{
    (void)state;
    struct card c = {.hearth = 79 * GB};
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others = GB;
    assert_int_equal(look(&c), PRESSURE_NONE); /* no headroom is configured */
    struct pressure p = {.headroom = GB};
    struct ledger l = {.total = 80 * GB, .others_known = true, .others = GB, .others_apart = true};
    assert_int_equal(pressure_look(&p, &l, 2 * GB), PRESSURE_NONE);
    l.others = 3 * GB;
    l.others_apart = false; /* the memory of hearth is not reported separately, so that of others is not known either */
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_NONE);
    l.others_apart = true;
    l.others = GB;
    assert_int_equal(pressure_look(&p, &l, 2 * GB), PRESSURE_NONE);
    l.others = 3 * GB;
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_GIVE);
    pressure_accept(&p, &l); /* the present amount is accepted as that of others */
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_NONE);
    l.others = 4 * GB;
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_GIVE);
    l.others_known = l.others_apart = false;
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_TAKE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_hearth_takes_is_no_pressure),
        cmocka_unit_test(a_program_gets_all_that_it_wants),
        cmocka_unit_test(a_little_is_a_little),
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(it_is_known_or_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
