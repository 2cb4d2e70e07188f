/* state.c - the streams' state machine: the invariants of its table of transitions, and that each state has a list and
 * a count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stream/state.h"

static unsigned next_of(int from)
{
    unsigned next = 0;
    for (int to = 0; to < STREAM_STATES; to++)
        next |= stream_may_go(from, to) ? 1u << to : 0;
    return next;
}

/* All states that can be reached. */
static unsigned reached(int from)
{
    unsigned all = next_of(from), before;
    do {
        before = all;
        for (int at = 0; at < STREAM_STATES; at++)
            all |= (all >> at & 1) != 0 ? next_of(at) : 0;
    } while (all != before);
    return all;
}

/* What the states mean, which the table must respect. */
static void test_table(void **state)
{
    enum { ALL = (1 << STREAM_STATES) - 1, NEW = 1 << STREAM_NEW, GONE = 1 << STREAM_GONE };
    enum { ENDED = 1 << STREAM_DRAINING | STREAMS_RETRY };
    (void)state;
    assert_int_equal(reached(STREAM_NEW), ALL & ~NEW); /* each state is reachable, and none leads back to the start */
    assert_int_equal(next_of(STREAM_GONE), 0);
    assert_int_equal(STREAMS_LIVE | ENDED | NEW | GONE, ALL); /* each state is of exactly one kind */
    assert_int_equal(STREAMS_LIVE & ENDED, 0);
    for (int from = 0; from < STREAM_STATES; from++) {
        const char *name = stream_state_name(from);
        unsigned bit = 1u << from, next = next_of(from);
        if ((next & bit) != 0)
            fail_msg("%s leads to itself", name);
        if (bit != GONE && (reached(from) & GONE) == 0)
            fail_msg("%s is for ever", name);
        if ((bit & ENDED) != 0 && (next & STREAMS_LIVE) != 0)
            fail_msg("%s has ended, and would run again", name);
        if ((bit & STREAMS_LIVE) != 0 && (next & STREAMS_RETRY) != 0)
            fail_msg("%s would be kept without having been delivered", name);
        if ((bit & STREAMS_LIVE) != 0 && (next & 1 << STREAM_DRAINING) == 0)
            fail_msg("%s cannot end", name);
        if ((bit & STREAMS_CANCELLING) != 0 && (next & ~(unsigned)(1 << STREAM_CANCELLING | 1 << STREAM_DRAINING)) != 0)
            fail_msg("%s is cancelled, and its client would get no result", name);
        if (from != STREAM_ORPHANED && (next & 1 << STREAM_PROBING) != 0)
            fail_msg("%s would be probed, and no engine has died over it", name);
        if (from != STREAM_PROBING && (next & 1 << STREAM_CANCELLING_PROBE) != 0)
            fail_msg("%s is no probe", name);
    }
    assert_int_equal(
        next_of(STREAM_ORPHANED) & STREAMS_SUBMITTED,
        1 << STREAM_PROBING); /* an orphaned stream is submitted again only as a probe, not beside others */
}

/* Every state has a different name, which the log uses. */
static void test_names(void **state)
{
    (void)state;
    for (int a = 0; a < STREAM_STATES; a++) {
        assert_true(strlen(stream_state_name(a)) > 2);
        for (int b = 0; b < a; b++)
            assert_string_not_equal(stream_state_name(a), stream_state_name(b));
    }
}

/* A transition that is not in the table ends the process, because a stream in two lists would be worse. */
static void test_illegal(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    for (int from = 0; from < STREAM_STATES; from++) {
        enum stream_state to = STREAM_NEW; /* no transition leads there */
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            struct account account = {0};
            struct streams v;
            struct stream st = {.number = 1, .account = &account, .state = from};
            fclose(stderr);
            streams_init(&v);
            if (from != STREAM_NEW && from != STREAM_GONE)
                TAILQ_INSERT_TAIL(&v.list[from], &st, link);
            stream_set_state(&v, &st, to);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* --- lists ---------------------------------------------------------------------------------------------- */

enum { N = 12, USERS = 3 };

/* Checks the lists against what follows from the states alone. */
static void check(const struct streams *v, struct stream *st, const struct account *accounts, size_t n)
{
    int64_t open = 0, of[USERS] = {0};
    for (size_t i = 0; i < n; i++)
        if (stream_in(&st[i], STREAMS_OPEN)) {
            open++;
            of[st[i].account - accounts]++;
        }
    assert_int_equal(v->n_open, open);
    for (size_t u = 0; u < USERS; u++)
        assert_int_equal(accounts[u].streams, of[u]);
    for (unsigned states = 0; states < 1u << STREAM_STATES; states++) {
        size_t seen = 0, want = 0;
        const struct stream *at, *before = NULL;
        for (size_t i = 0; i < n; i++)
            want += stream_in(&st[i], states) && st[i].state != STREAM_NEW && st[i].state != STREAM_GONE;
        STREAMS_FOREACH (at, v, states) {
            assert_true(stream_in(at, states));
            if (before)
                assert_true(before->state < at->state || (before->state == at->state && before->number < at->number));
            before = at;
            seen++;
        }
        assert_int_equal(seen, want);
    }
}

/* Streams that take random transitions: each is in the list of its state and in no other, each list is ordered by
 * number, and the counts are those of the open streams. */
static void test_lists(void **state)
{
    (void)state;
    struct account accounts[USERS] = {0};
    struct streams v;
    struct stream st[N] = {0};
    int64_t number = 0;
    uint64_t x = 20261122;
    streams_init(&v);
    for (int turn = 0; turn < 2000; turn++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        struct stream *one = &st[x % N];
        enum stream_state to = (enum stream_state)(x / N % STREAM_STATES);
        if (number < N)
            one = &st[number];
        if (one->number == 0 || one->state == STREAM_GONE) {
            *one = (struct stream){.number = ++number, .account = &accounts[x >> 32 & 1 ? 0 : x % USERS]};
            to = STREAM_QUEUED;
        }
        if (!stream_may_go(one->state, to))
            continue;
        stream_set_state(&v, one, to);
        assert_int_equal(one->state, to);
        if (turn % 20 == 0)
            check(&v, st, accounts, N);
    }
    assert_true(number > 2 * N); /* many were created and removed */
}

/* A loop that moves its current stream to another list continues by asking for the first one again. */
static void test_drain(void **state)
{
    (void)state;
    struct account account = {0};
    struct streams v;
    struct stream st[N] = {0}, *one;
    streams_init(&v);
    for (int i = 0; i < N; i++) {
        st[i] = (struct stream){.number = N - i, .account = &account};
        stream_set_state(&v, &st[i], i % 2 ? STREAM_RUNNING : STREAM_QUEUED);
    }
    int64_t last = 0;
    for (int i = 0; i < N; i++) {
        one = stream_first(&v, STREAMS_LIVE & ~STREAMS_CANCELLING);
        assert_non_null(one);
        if (i == N / 2)
            last = 0; /* all queued ones have been seen */
        assert_true(one->number > last);
        last = one->number;
        stream_set_state(&v, one, STREAM_CANCELLING);
    }
    assert_null(stream_first(&v, STREAMS_LIVE & ~STREAMS_CANCELLING));
    assert_int_equal(account.streams, N);
    while ((one = stream_first(&v, STREAMS_OPEN)) != NULL)
        stream_set_state(&v, one, one->state == STREAM_DRAINING ? STREAM_GONE : STREAM_DRAINING);
    assert_int_equal(v.n_open, 0);
    assert_int_equal(account.streams, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_names), cmocka_unit_test(test_illegal),
        cmocka_unit_test(test_lists), cmocka_unit_test(test_drain),
    };
    return cmocka_run_group_tests_name("stream/state", tests, NULL, NULL);
}
