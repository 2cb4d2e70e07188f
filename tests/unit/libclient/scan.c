/* scan.c - the structural scan: what it accepts and refuses, and that it does not matter how the input is split. */
#include "libclient/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct hearth_err err;

static ptrdiff_t scan(const void *data, size_t len, size_t max)
{
    /* an exact copy, so that a sanitizer notices a read of one byte too many */
    uint8_t *copy = malloc(len ? len : 1);
    memcpy(copy, data, len);
    struct wire_scan s = {0};
    ptrdiff_t n = wire_scan(&s, copy, len, max, &err);
    free(copy);
    return n;
}

/* One value of every tag, with its length worked out by hand. */
static const struct {
    const char *bytes;
    size_t len;
} values[] = {
    {"\x00", 1},
    {"\x7f", 1},
    {"\xe0", 1},
    {"\xff", 1},
    {"\xc0", 1},
    {"\xc2", 1},
    {"\xc3", 1},
    {"\xc4\x02zz", 4},
    {"\xc5\x00\x02zz", 5},
    {"\xc6\x00\x00\x00\x02zz", 7},
    {"\xc7\x02tzz", 5},
    {"\xc8\x00\x02tzz", 6},
    {"\xc9\x00\x00\x00\x02tzz", 8},
    {"\xc7\x00t", 3},
    {"\xca....", 5},
    {"\xcb........", 9},
    {"\xcc.", 2},
    {"\xcd..", 3},
    {"\xce....", 5},
    {"\xcf........", 9},
    {"\xd0.", 2},
    {"\xd1..", 3},
    {"\xd2....", 5},
    {"\xd3........", 9},
    {"\xd4t1", 3},
    {"\xd5t12", 4},
    {"\xd6t1234", 6},
    {"\xd7t12345678", 10},
    {"\xd8t1234567890123456", 18},
    {"\xd9\x02zz", 4},
    {"\xda\x00\x02zz", 5},
    {"\xdb\x00\x00\x00\x02zz", 7},
    {"\xa0", 1},
    {"\xa2zz", 3},
    {"\x80", 1},
    {"\x90", 1},
    {"\x92\x01\x02", 3},
    {"\x82\x01\x02\x03\x04", 5},
    {"\xdc\x00\x02\x01\x02", 5},
    {"\xdd\x00\x00\x00\x02\x01\x02", 7},
    {"\xde\x00\x01\x01\x02", 5},
    {"\xdf\x00\x00\x00\x01\x01\x02", 7},
    {"\x92\x91\x90\x81\xa1k\x92\xc0\xc3", 9},
};

static void every_tag_has_its_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char more[32];
        assert_int_equal(scan(values[i].bytes, values[i].len, 100), values[i].len);
        for (size_t n = 0; n < values[i].len; n++)
            assert_int_equal(scan(values[i].bytes, n, 100), 0);
        /* bytes of the next message are not looked at */
        memcpy(more, values[i].bytes, values[i].len);
        memset(more + values[i].len, 0xc1, sizeof more - values[i].len);
        assert_int_equal(scan(more, sizeof more, 100), values[i].len);
    }
}

/* The whole list as one array, one byte at a time: every prefix gives "more", and the state carries over. */
static void bytes_may_come_one_at_a_time(void **state)
{
    (void)state;
    uint8_t all[1024] = {0xdc, 0, sizeof values / sizeof *values};
    size_t len = 3;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        memcpy(all + len, values[i].bytes, values[i].len);
        len += values[i].len;
    }
    struct wire_scan s = {0};
    for (size_t n = 0; n < len; n++)
        assert_int_equal(wire_scan(&s, all, n, sizeof all, &err), 0);
    assert_int_equal(wire_scan(&s, all, len, sizeof all, &err), len);
    /* linear: the scan never looks back, so scanned bytes may be overwritten */
    memset(&s, 0, sizeof s);
    assert_int_equal(wire_scan(&s, all, len - 1, sizeof all, &err), 0);
    memset(all, 0xc1, len - 10);
    assert_int_equal(wire_scan(&s, all, len, sizeof all, &err), len);
}

static void assert_stopped(const void *data, size_t len, size_t max, int code, const char *msg)
{
    assert_int_equal(scan(data, len, max), code);
    assert_string_equal(err.msg, msg);
}

static void claims_beyond_the_limit_are_stopped_at_once(void **state)
{
    (void)state;
    static const char too_big[] = "the message is over 8388608 bytes";
    assert_stopped("\xdd\x04\x00\x00\x00", 5, WIRE_FRAME_MAX, HEARTH_ETOOBIG, too_big); /* the five-byte bomb */
    assert_stopped("\xdd\xff\xff\xff\xff", 5, WIRE_FRAME_MAX, HEARTH_ETOOBIG, too_big);
    assert_stopped("\xdf\xff\xff\xff\xff", 5, WIRE_FRAME_MAX, HEARTH_ETOOBIG, too_big);
    assert_stopped("\xdb\xff\xff\xff\xff", 5, WIRE_FRAME_MAX, HEARTH_ETOOBIG, too_big);
    assert_stopped("\xc6\x00\x80\x00\x00", 5, WIRE_FRAME_MAX, HEARTH_ETOOBIG,
                   too_big); /* its head alone exceeds the limit */
    assert_stopped("\xc9\xff\xff\xff\xff", 5, WIRE_FRAME_MAX, HEARTH_ETOOBIG, too_big);
    /* claims that add up: after these 8388592 bytes the array needs 15 more values, and only 8 bytes are left */
    assert_stopped("\xdc\x00\x10\xc6\x00\x7f\xff\xf0", 8, WIRE_FRAME_MAX, HEARTH_ETOOBIG, too_big);
    /* more values than a frame may hold, though their bytes would fit */
    assert_stopped("\xdd\x00\x20\x00\x00", 5, WIRE_FRAME_MAX, HEARTH_ETOOBIG,
                   "the message has more than 2097152 values");
    assert_int_equal(scan("\xdd\x00\x1f\xff\xff", 5, WIRE_FRAME_MAX), 0);
    assert_int_equal(scan("\xc6\x00\x7f\xff\xfb", 5, WIRE_FRAME_MAX), 0);
}

static void depth_is_bounded(void **state)
{
    (void)state;
    enum { N = 80 };
    uint8_t deep[N + 2];
    memset(deep, 0x91, sizeof deep);
    deep[N - 1] = 0x90;
    assert_int_equal(scan(deep, N, 1000), N);
    deep[N - 1] = 0x91;
    deep[N] = 0x90;
    assert_stopped(deep, N + 1, 1000, HEARTH_ETOOBIG, "the message nests deeper than 80");
    deep[N] = 0x80;
    assert_stopped(deep, N + 1, 1000, HEARTH_ETOOBIG, "the message nests deeper than 80");
    deep[N] = 0x01;
    assert_int_equal(scan(deep, N + 1, 1000), N + 1);
}

static void the_byte_that_is_no_msgpack_is_named(void **state)
{
    (void)state;
    assert_stopped("\xc1", 1, 100, HEARTH_EINVALID, "byte 0 of the message is 0xc1, which is not msgpack");
    assert_stopped("\x93\x01\xa1z\xc1", 5, 100, HEARTH_EINVALID, "byte 4 of the message is 0xc1, which is not msgpack");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tag_has_its_length),
        cmocka_unit_test(bytes_may_come_one_at_a_time),
        cmocka_unit_test(claims_beyond_the_limit_are_stopped_at_once),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(the_byte_that_is_no_msgpack_is_named),
    };
    return cmocka_run_group_tests_name("scan", tests, NULL, NULL);
}
