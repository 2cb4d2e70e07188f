/*
 * pressure.c - when memory is given to programs that ask for none: a card of 80 GB, hearth and another program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "daemon/engine/sched/pressure.h"

static const uint64_t GB = 1000000000;

struct card {
    struct pressure p;
    uint64_t hearth, others; /* bytes */
};

static enum pressure_act look(struct card *c)
{
    struct ledger l = {.total = 80 * GB, .context = GB / 2, .others_known = true, .others = c->others};
    uint64_t used = c->hearth + c->others;
    l.free = used < l.total ? l.total - used : 0;
    return pressure_look(&c->p, &l, l.free);
}

/* Hearth fills the card; that is nobody's pressure, nor is a program that was there before. */
static void what_hearth_takes_is_no_pressure(void **state)
{
    (void)state;
    struct card c = {.p.headroom = GB, .others = 3 * GB};
    for (c.hearth = 0; c.hearth <= 77 * GB; c.hearth += GB / 4)
        assert_int_equal(look(&c), PRESSURE_NONE);
    c.others += GB / 20; /* little */
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others -= GB;
    assert_int_equal(look(&c), PRESSURE_NONE);
}

/* A program wants all but 2 GB, 1 GB at a time, and hearth gives what it is told to: it has it after few looks, and
 * hearth has it back when the program ends. Between two looks it takes what is free. */
static void a_program_gets_all_that_it_wants(void **state)
{
    (void)state;
    struct card c = {.p.headroom = GB, .hearth = 60 * GB};
    int looks = 0, gives = 0;
    assert_int_equal(look(&c), PRESSURE_NONE);
    while (c.others < 77 * GB && looks++ < 100) {
        uint64_t had = c.others;
        while (c.others < 77 * GB && c.hearth + c.others + GB <= 80 * GB)
            c.others += GB;
        enum pressure_act act = look(&c);
        assert_int_not_equal(act, PRESSURE_TAKE);
        assert_true(act == PRESSURE_GIVE || c.others > had);
        gives += act == PRESSURE_GIVE;
        if (act == PRESSURE_GIVE) {
            uint64_t free = 80 * GB - c.hearth - c.others;
            uint64_t lacks = c.p.want > free ? c.p.want - free : 0;
            c.hearth -= lacks < c.hearth ? lacks : c.hearth;
        }
    }
    assert_true(c.others >= 77 * GB);
    assert_true(gives <= 6 && looks <= 8);
    c.others -= 40 * GB; /* much, and not most */
    assert_int_equal(look(&c), PRESSURE_NONE);
    c.others += 30 * GB; /* there is room for that */
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
    assert_int_equal(look(&c), PRESSURE_NONE); /* there is no headroom */
    struct pressure p = {.headroom = GB};
    struct ledger l = {.total = 80 * GB, .others_known = true, .others = GB, .context = 1};
    assert_int_equal(pressure_look(&p, &l, 2 * GB), PRESSURE_NONE);
    l.others = 3 * GB;
    l.context = 0; /* which memory is hearth's is not told: others' is not either */
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_NONE);
    l.context = 1;
    l.others = GB;
    assert_int_equal(pressure_look(&p, &l, 2 * GB), PRESSURE_NONE);
    l.others = 3 * GB;
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_GIVE);
    pressure_accept(&p, &l); /* somebody says that it is theirs */
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_NONE);
    l.others = 4 * GB;
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_GIVE);
    l.others_known = false;
    assert_int_equal(pressure_look(&p, &l, 0), PRESSURE_TAKE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_hearth_takes_is_no_pressure),
        cmocka_unit_test(a_program_gets_all_that_it_wants),
        cmocka_unit_test(it_is_known_or_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
