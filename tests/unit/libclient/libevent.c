/*
 * libevent.c - hearth-libevent.h in an event loop, at the end of the connection.
 */
#include "config.h"

#include "libclient/hearth-libevent.h" /* before `err` of script.h, which its functions' own would shadow */

#include "tests/unit/libclient/script.h"

#include <sys/socket.h>

static void on_event(void *arg, const struct hearth_event *ev)
{
    (void)arg;
    (void)ev;
    fail();
}

static void on_closed(void *arg, const struct hearth_err *why)
{
    int *closed = arg;
    assert_int_equal(why->code, HEARTH_ECONNECT);
    ++*closed;
}

/* Runs what is ready, and what becomes ready by it. */
static void turn(struct event_base *base)
{
    for (int i = 0; i < 4; i++)
        assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
}

/* The application may call hearth_libevent_update() after a call that failed because the connection has ended. */
static void the_end_is_told_once(void **state)
{
    struct peer *p = *state;
    struct hearth_generate g;
    uint32_t id;
    int closed = 0;
    struct event_base *base = event_base_new();
    struct hearth_libevent *le = hearth_libevent_new(base, p->h, on_event, on_closed, &closed);
    assert_non_null(le);
    shutdown(p->fd, SHUT_RDWR);
    turn(base);
    assert_int_equal(closed, 1);
    hearth_generate_init(&g, sizeof g);
    g.model = "m";
    assert_int_equal(hearth_submit(p->h, &g, &id, &err), HEARTH_ECONNECT);
    hearth_libevent_update(le);
    turn(base);
    assert_int_equal(closed, 1);
    hearth_libevent_free(le);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_end_is_told_once, peer_setup, peer_teardown),
    };
    return cmocka_run_group_tests_name("libevent", tests, NULL, NULL);
}
