/* releaser.c - descriptors of removed files are all closed, soon or at the end, and counted until then. */
#include "config.h" /* memfd_create */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/retention/releaser.h"

enum { BYTES = 1 << 20, MANY = 200 };

/* A descriptor of a file without a name. */
static int removed(void)
{
    int fd = memfd_create("removed", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0 || errno != EBADF;
}

static void test_waits(void **state)
{
    (void)state;
    struct hearth_err e;
    struct releaser *r = NULL;
    int fd = removed();
    assert_int_equal(releaser_start(&r, &e), 0);
    releaser_close(r, fd, BYTES);
    releaser_wait(r);
    assert_int_equal(releaser_bytes(r), 0);
    assert_false(is_open(fd));
    releaser_stop(r);
}

static void test_many(void **state)
{
    (void)state;
    struct hearth_err e;
    struct releaser *r = NULL;
    int fd[MANY];
    for (int i = 0; i < MANY; i++)
        fd[i] = removed();
    assert_int_equal(releaser_start(&r, &e), 0);
    for (int i = 0; i < MANY; i++) {
        releaser_close(r, fd[i], BYTES);
        assert_in_range(releaser_bytes(r), 0, (int64_t)(i + 1) * BYTES);
    }
    releaser_stop(r); /* returns after all have been closed */
    for (int i = 0; i < MANY; i++)
        assert_false(is_open(fd[i]));
}

static void test_without(void **state)
{
    (void)state;
    int fd = removed();
    releaser_close(NULL, fd, BYTES);
    assert_false(is_open(fd));
    assert_int_equal(releaser_bytes(NULL), 0);
    releaser_wait(NULL);
    releaser_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_without),
    };
    return cmocka_run_group_tests_name("releaser", tests, NULL, NULL);
}
