/* post.c - the queue between two threads loses nothing, keeps the order and wakes its reader rarely. Also run under the
 * thread sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <poll.h>
#include <cmocka.h>

#include "daemon/engine/post.h"

struct number {
    struct post_item item;
    uint32_t value;
};

enum { N_STEP = 20000, PER_STEP = 8 };
static struct post to_other, to_here;

/* Sends back what it receives, until it receives 0. */
static void *echo(void *arg)
{
    (void)arg;
    struct post_list in, out;
    post_list_init(&in);
    post_list_init(&out);
    for (bool more = true; more;) {
        post_wait(&to_other);
        post_take(&to_other, &in);
        struct post_item *item;
        while ((item = post_list_pop(&in))) {
            if (!((struct number *)item)->value)
                more = false;
            post_list_push(&out, item);
        }
        post_send(&to_here, &out);
    }
    return NULL;
}

static void nothing_lost_and_in_order(void **state)
{
    (void)state;
    pthread_t th;
    struct post_list l;
    struct post_item *item;
    uint32_t sent = 0, seen = 0;
    bool end = false;
    post_list_init(&l);
    assert_int_equal(pthread_create(&th, NULL, echo, NULL), 0);
    while (!end) {
        for (int i = 0; i < PER_STEP && sent <= N_STEP * PER_STEP; i++) {
            struct number *n = malloc(sizeof *n);
            n->value = sent == N_STEP * PER_STEP ? 0 : sent + 1;
            sent++;
            post_list_push(&l, &n->item);
        }
        post_send(&to_other, &l);
        assert_null(l.first);
        if (sent > N_STEP * PER_STEP)
            post_wait(&to_here);
        post_take(&to_here, &l);
        while ((item = post_list_pop(&l))) {
            uint32_t v = ((struct number *)item)->value;
            end = v == 0;
            assert_true(end || v == ++seen);
            free(item);
        }
    }
    assert_int_equal(seen, N_STEP * PER_STEP);
    pthread_join(th, NULL);
}

static bool readable(struct post *p)
{
    struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
    return poll(&pfd, 1, 0) == 1;
}

static void one_wake_for_many(void **state)
{
    (void)state;
    struct number n[3] = {{.value = 1}, {.value = 2}, {.value = 3}};
    struct post_list l;
    post_list_init(&l);
    post_send(&to_here, &l); /* an empty list: no wake */
    assert_false(readable(&to_here));
    for (int i = 0; i < 3; i++) {
        post_list_push(&l, &n[i].item);
        post_send(&to_here, &l);
    }
    assert_true(readable(&to_here));
    post_take(&to_here, &l);
    assert_false(readable(&to_here));
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(post_list_pop(&l), &n[i].item);
    assert_null(post_list_pop(&l));
}

static int setup(void **state)
{
    (void)state;
    struct hearth_err e;
    return post_init(&to_other, &e) || post_init(&to_here, &e);
}

static int teardown(void **state)
{
    (void)state;
    post_fini(&to_other);
    post_fini(&to_here);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_lost_and_in_order),
        cmocka_unit_test(one_wake_for_many),
    };
    return cmocka_run_group_tests_name("post", tests, setup, teardown);
}
