/* pool.c - the CPU's worker threads where the system starts no more of them. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu/pool.h"

static int more; /* threads that may still be started */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return more-- > 0 ? __real_pthread_create(thread, attr, fn, arg) : EAGAIN;
}

/* A pool of so many threads is large enough that its memory is overwritten when it is freed. */
static void test_no_thread(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct hearth_err e;
    mallopt(M_PERTURB, 0x5a);
    more = 2;
    assert_int_equal(pool_new(&p, 256, &e), HEARTH_ENOMEM);
    assert_null(p);
    assert_string_equal(e.msg, "cannot start worker thread 3 of 255: Resource temporarily unavailable");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_thread)};
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
