/* kv-groups.c - groups of pages that have a window or hold states: what is freed behind a sequence, and what is kept
 * for sequences that continue from it. */
#include "tests/unit/sched/kv-world.h"

/* A long prompt and its answer. Pages that the window has passed are free, but at the ends of the prompt and of the
 * turn the window is kept, so that sequences that continue from there, or from a few tokens before, compute nothing
 * twice. */
static void windows_are_freed_and_kept(void **state)
{
    (void)state;
    enum { N = 4000, WINDOW = 48, TURN = 300 };
    static int32_t id[N];
    for (int i = 0; i < N; i++)
        id[i] = i % 251;
    struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, WINDOW}, 2, 3);
    struct kv_table t = {.uid = 1, .keep = N - TURN};
    uint32_t done = 0, most = 0;
    while (done < N) {
        uint32_t step = done < N - TURN ? LOOKAHEAD : 1, upto = N - done < step ? N : done + step;
        assert_true(kv_grow(kv, &t, done, upto, LOOKAHEAD));
        kv_publish(kv, &t, id, done);
        done = upto;
        most = counted(kv, 1).held > most ? counted(kv, 1).held : most;
    }
    assert_int_equal(counted(kv, 0).held, N / KV_PAGE);
    assert_true(most <= kv_most(WINDOW, LOOKAHEAD));
    uint32_t ends = (WINDOW + KV_SLACK) / KV_PAGE + 2;
    assert_true(counted(kv, 1).cached <= ends); /* before the end of the prompt */
    kv_release(kv, &t, id, N);
    assert_int_equal(counted(kv, 1).held, 0);
    assert_true(counted(kv, 1).cached <= 2 * ends);
    assert_true(kv_check(kv));
    static const struct {
        uint32_t n, found;
    } asked[] = {{N, N},
                 {N - 1, N - 1},
                 {N - KV_SLACK, N - KV_SLACK},
                 {N - TURN, N - TURN},
                 {N - TURN - 5, N - TURN - 5},
                 {N - TURN - KV_SLACK, N - TURN - KV_SLACK},
                 {N - 150, N - TURN},
                 {N - TURN - 100, 0}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct kv_table again = {.uid = 1};
        uint32_t found = kv_match(kv, &again, id, asked[i].n);
        /* If more of the kept window's last page was computed, that part may be found too. */
        if (found < asked[i].found || found > asked[i].found + KV_PAGE ||
            (asked[i].n <= asked[i].found && found != asked[i].found))
            fail_msg("%u of %u tokens are found, not %u", found, asked[i].n, asked[i].found);
        kv_release(kv, &again, NULL, 0);
        assert_true(kv_check(kv));
    }
    kv_cache_free(kv);
}

/* A long prompt and its answer: a few of its states are kept, and a sequence that continues from the end of either
 * recomputes 512 tokens at most, also if its step was stopped. If a step gives states within it, there are fewer steps,
 * and the same states are kept. */
static void keep_states(bool within, uint32_t n_step)
{
    enum { N = 5000, TURN = 300 };
    static int32_t id[N];
    for (int i = 0; i < N; i++)
        id[i] = i % 251;
    states_within = within;
    struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, STATES}, 2, 3);
    struct kv_table t = {.uid = 1, .keep = N - TURN};
    uint32_t done = 0, most = 0, steps = 0;
    while (done < N) {
        bool reads = done < N - TURN;
        uint32_t left = reads ? N - TURN - done : 1, n = left < 300 ? left : 300;
        assert_true(kv_grow(kv, &t, done, done + n, 300));
        kv_publish(kv, &t, id, done);
        done += kv_cut(kv, &t, done, n);
        steps += reads;
        most = counted(kv, 1).held > most ? counted(kv, 1).held : most;
        assert_true(counted(kv, 1).held + counted(kv, 1).cached <= (within ? 7 : 6));
    }
    assert_int_equal(steps, n_step);
    assert_int_equal(most, within ? 4 : 3); /* the sequence's own, and the last one kept */
    kv_advance(kv, &t, N);
    kv_release(kv, &t, id, N);
    assert_int_equal(counted(kv, 1).held, 0);
    assert_int_equal(counted(kv, 1).cached, 4);
    assert_true(kv_check(kv));
    static const struct {
        uint32_t n, found;
    } asked[] = {{N - 1, N / STATE_SAID * STATE_SAID},
                 {N - 100, N - TURN - KV_SLACK - (N - TURN - KV_SLACK) % KV_PAGE},
                 {N - TURN, N - TURN - KV_SLACK - (N - TURN - KV_SLACK) % KV_PAGE},
                 {N - TURN - KV_SLACK, N - TURN - KV_SLACK - (N - TURN - KV_SLACK) % KV_PAGE},
                 {N - TURN - 200, STATE_SPARSE},
                 {STATE_SPARSE, STATE_SPARSE},
                 {STATE_SPARSE - 1, 0},
                 {N, N}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct kv_table again = {.uid = 1};
        assert_int_equal(kv_match(kv, &again, id, asked[i].n), asked[i].found);
        assert_int_equal(again.at, asked[i].found);
        kv_release(kv, &again, id, asked[i].found);
        assert_true(kv_check(kv));
    }
    kv_cache_free(kv);
}

static void states_are_kept(void **state)
{
    (void)state;
    keep_states(false, 17); /* six steps of 300 tokens and one of 248, twice, then 300, 260 and 44 */
    keep_states(true, 17);  /* 300 each; the last would pass two states, and is split in two */
}

/* A prompt whose step also gives the state before the prompt's end is one step if there is a third page, and two
 * otherwise. The state is found, even if the sequence ends with that step, but not if the step was stopped. */
static void a_prompt_is_one_step(void **state)
{
    (void)state;
    enum { N = 115, KEPT = 80 };
    static int32_t id[N];
    for (int i = 0; i < N; i++)
        id[i] = i;
    for (uint32_t n_page = 1; n_page <= 4; n_page++) {
        const struct kv_shape of[] = {{.n_page = 64}, {.n_page = n_page, .state = true, .within = true}};
        bool once = n_page > 1;
        struct kv *kv;
        struct hearth_err e;
        assert_int_equal(kv_cache_new(&kv, of, 2, &e), 0);
        for (int way = 0; way < 3; way++) {
            struct kv_table t = {.uid = way, .keep = N}, again = {.uid = way};
            assert_true(kv_grow(kv, &t, 0, N, 256));
            assert_int_equal(kv_cut(kv, &t, 0, N), once ? N : KEPT);
            assert_int_equal(t.within, once ? KEPT : 0);
            if (way == 0 && n_page > 2) { /* the sequence continues */
                assert_true(kv_grow(kv, &t, N, N + 1, 256));
                assert_int_equal(kv_cut(kv, &t, N, 1), 1);
                assert_true(kv_check(kv));
            }
            uint32_t done = way == 2 ? 0 : once ? N : KEPT;
            kv_advance(kv, &t, done);
            kv_release(kv, &t, id, done);
            assert_true(kv_check(kv));
            assert_int_equal(counted(kv, 1).held, 0);
            assert_int_equal(kv_match(kv, &again, id, N - 1), done ? KEPT : 0);
            kv_release(kv, &again, id, again.at);
        }
        struct kv_table t = {.uid = 3,
                             .keep = N}; /* the sequence ends with that step after all, and the third page is freed */
        assert_true(kv_grow(kv, &t, 0, N, 256));
        assert_int_equal(counted(kv, 1).held, once ? 2 : 1);
        assert_int_equal(kv_cut(kv, &t, 0, KEPT), KEPT);
        assert_int_equal(t.within, 0);
        assert_int_equal(kv_grow(kv, &t, KEPT, N, 256), once); /* the kept state, and the one that is written next */
        assert_int_equal(counted(kv, 1).held, once ? 2 : 1);
        kv_release(kv, &t, NULL, 0);
        kv_cache_free(kv);
    }
}

/* A document that is computed by itself, or a prompt with a short answer, leaves the state before its end to all that
 * continue from it, and not to the first of them alone. */
static void a_document_serves_many(void **state)
{
    (void)state;
    enum { DOCUMENT = 600, KEPT = (DOCUMENT - KV_SLACK) / KV_PAGE * KV_PAGE, N = DOCUMENT + 200, ANSWER = 10 };
    static int32_t id[N + ANSWER];
    for (int within = 0; within < 2; within++) {
        states_within = within;
        struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, STATES}, 2, 3);
        for (int32_t who = 0; who < 4; who++) {
            uint32_t prompt = who ? N : DOCUMENT;
            struct kv_table t = {.uid = 1, .keep = prompt};
            for (uint32_t i = 0; i < prompt + ANSWER; i++)
                id[i] = (int32_t)i % 251 + (i < DOCUMENT - 10 ? 0 : 1000 * who); /* its last tokens differ, too */
            uint32_t done = kv_match(kv, &t, id, prompt - 1);
            assert_int_equal(done, who ? KEPT : 0);
            while (done < prompt + ANSWER) {
                uint32_t n = done < prompt ? prompt - done : 1;
                assert_true(kv_grow(kv, &t, done, done + n, 256));
                done += kv_cut(kv, &t, done, n < 256 ? n : 256);
                kv_publish(kv, &t, id, done);
            }
            kv_advance(kv, &t, done);
            kv_release(kv, &t, id, done);
            assert_true(kv_check(kv));
        }
        kv_cache_free(kv);
    }
}

/* An end token is a surprise where several steps are in flight. They may have passed a place where a state is kept: the
 * timeline never gets there, and is continued from the state before. */
static void an_answer_ends_before_a_state(void **state)
{
    (void)state;
    enum { PROMPT = 600, SAID = 7 * STATE_SAID, N = SAID + 20, IN_FLIGHT = 4 };
    static int32_t id[N];
    for (int i = 0; i < N; i++)
        id[i] = i % 251;
    for (uint32_t n = SAID - IN_FLIGHT; n < SAID + IN_FLIGHT; n++) {
        struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, STATES}, 2, 3);
        struct kv_table t = {.uid = 1, .keep = PROMPT}, next = {.uid = 1};
        uint32_t done = 0;
        while (done < n + IN_FLIGHT) {
            uint32_t known = done < PROMPT + IN_FLIGHT ? 0 : done - IN_FLIGHT, left = done < PROMPT ? PROMPT - done : 1;
            kv_publish(kv, &t, id, known);
            assert_true(kv_grow(kv, &t, done, done + left, 256));
            done += kv_cut(kv, &t, done, left < 256 ? left : 256);
            assert_true(counted(kv, 1).held <= (done < PROMPT ? 3 : 4));
        }
        kv_advance(kv, &t, done);
        kv_release(kv, &t, id, n);
        assert_int_equal(kv_match(kv, &next, id, N), n < SAID ? SAID - STATE_SAID : SAID);
        kv_release(kv, &next, id, 0);
        assert_true(kv_check(kv));
        kv_cache_free(kv);
    }
}

/* Of several timelines with a common beginning, the second one finds where they part, and from the third on none of the
 * common part is computed again: with windows and with states, and also where all steps are still in flight, so that no
 * page can enter the cache, until the sequence ends. */
static void where_timelines_part_is_kept(void **state)
{
    (void)state;
    enum { COMMON = 1600, N = COMMON + 200, LITTLE = PART_LEAST - KV_PAGE };
    static int32_t id[N];
    static const struct {
        uint32_t window, common, found[4];
        bool within, in_flight;
    } rows[] = {{STATES, COMMON, {0, 0, COMMON, COMMON}, false, false},
                {STATES, COMMON, {0, 0, COMMON, COMMON}, true, false},
                {STATES, COMMON, {0, 0, COMMON, COMMON}, false, true},
                {STATES, COMMON, {0, 0, COMMON, COMMON}, true, true},
                {40, COMMON, {0, 0, COMMON, COMMON}, false, false},
                {40, COMMON, {0, 0, COMMON, COMMON}, false, true},
                {STATES, LITTLE, {0, 0, 0, 0}, true, false}, /* too short for a state */
                {40, LITTLE, {0, 0, 0, 0}, false, false}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        states_within = rows[k].within;
        struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, rows[k].window}, 2, 3);
        for (int32_t who = 0; who < 4; who++) {
            struct kv_table t = {.uid = 1, .keep = N};
            for (uint32_t i = 0; i < N; i++)
                id[i] = (int32_t)i % 251 + (i < rows[k].common ? 0 : 1000 * who);
            uint32_t done = kv_match(kv, &t, id, N - 1);
            assert_int_equal(done, rows[k].found[who]);
            while (done < N) {
                assert_true(kv_grow(kv, &t, done, N, 256));
                done += kv_cut(kv, &t, done, N - done < 256 ? N - done : 256);
                if (!rows[k].in_flight)
                    kv_publish(kv, &t, id, done);
            }
            kv_advance(kv, &t, N);
            kv_release(kv, &t, id, N);
            assert_true(kv_check(kv));
        }
        kv_cache_free(kv);
    }
}

/* Steps in flight go beyond an end token that the host has yet to see. The state that they left at a multiple of 128 is
 * none of the timeline that ends a token or two before it. */
static void a_state_beyond_the_end(void **state)
{
    (void)state;
    enum { PROMPT = 39, AT = 128, MOST = 200, CONTINUED = 150 };
    const struct kv_shape of[] = {{.n_page = 64}, {.n_page = 16, .state = true}};
    for (uint32_t end = AT - 3; end <= AT; end++) {
        struct kv_table t = {.uid = 1, .keep = PROMPT}, next = {.uid = 1, .keep = CONTINUED};
        struct kv_action a;
        struct hearth_err e;
        struct kv *kv;
        int32_t ids[MOST];
        uint32_t holds[16] = {0}; /* tokens of which each page holds the state */
        for (int32_t i = 0; i < MOST; i++)
            ids[i] = i % 7;
        assert_int_equal(kv_cache_new(&kv, of, 2, &e), 0);
        for (uint32_t done = 0; done < AT;) {
            uint32_t n = done < PROMPT ? PROMPT - done : 1;
            assert_true(kv_grow(kv, &t, done, done + n + 1, 64));
            while (kv_next_action(kv, &a))
                continue;
            done += n = kv_cut(kv, &t, done, n);
            holds[t.state[1].page[1]] = done;
        }
        assert_true(kv_grow(kv, &t, AT, AT + 2, 64));
        while (kv_next_action(kv, &a))
            continue;
        kv_advance(kv, &t, AT);
        kv_release(kv, &t, ids, end);
        uint32_t found = kv_match(kv, &next, ids, CONTINUED);
        assert_true(found <= end && (found == 0 || holds[next.state[1].page[0]] == found));
        assert_true(end < AT || found == AT);
        kv_release(kv, &next, ids, found);
        kv_cache_free(kv);
    }
}

/* The state from which a step began is freed when the step has given a later one that can be found instead. */
static void what_a_step_replaces_goes(void **state)
{
    (void)state;
    enum { N = STATE_READ + 100, KEPT = (N - KV_SLACK) / KV_PAGE * KV_PAGE };
    static int32_t id[N];
    states_within = true;
    struct kv *kv = fresh_groups(MAX_PAGES, (uint32_t[]){0, STATES}, 2, 3);
    struct kv_table t = {.uid = 1, .keep = N}, again = {.uid = 1};
    for (uint32_t done = 0; done < N;) {
        assert_true(kv_grow(kv, &t, done, N, STATE_READ));
        done += kv_cut(kv, &t, done, N - done < STATE_READ ? N - done : STATE_READ);
        kv_publish(kv, &t, id, done);
    }
    kv_advance(kv, &t, N);
    kv_release(kv, &t, id, N);
    assert_int_equal(counted(kv, 1).cached, 2); /* before the end of the prompt, and at it */
    assert_int_equal(kv_match(kv, &again, id, KEPT), KEPT);
    kv_release(kv, &again, id, KEPT);
    assert_true(kv_check(kv));
    kv_cache_free(kv);
}

/* A turn continues from the previous one, and a retry starts from the same prompt: each computes at least one token. */
static void windows_resume(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct kv *kv = fresh_groups(256, (uint32_t[]){0, 1 + (uint32_t)(seed * 7 % 50), 20}, 3, seed);
        struct timeline s = {.t.uid = 5};
        for (int i = 0; i < MAX_LEN; i++)
            s.id[i] = 1000 + i;
        uint32_t before = 0, prompt_before = 0;
        for (uint32_t n = 5; n + 10 < MAX_LEN; n += 5 + rnd(20)) {
            s.t.keep = n;
            uint32_t retry = prompt_before ? kv_match(kv, &s.t, s.id, prompt_before - 1) : 0;
            assert_int_equal(retry, prompt_before ? prompt_before - 1 : 0);
            carry_out(kv);
            s.done = retry;
            verify(&s);
            kv_release(kv, &s.t, s.id, retry);
            s.done = kv_match(kv, &s.t, s.id, n - 1);
            carry_out(kv);
            verify(&s);
            assert_int_equal(s.done, before < n - 1 ? before : n - 1);
            uint32_t end = n + 1 + rnd(8);
            feed(kv, &s, n);
            for (uint32_t at = n + 1; at <= end; at++)
                feed(kv, &s, at);
            kv_release(kv, &s.t, s.id, end);
            before = end > before ? end : before;
            prompt_before = n;
        }
        for (uint32_t g = 0; g < n_group; g++)
            assert_int_equal(counted(kv, g).held, 0);
        kv_cache_free(kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_beyond_the_end),
        cmocka_unit_test(windows_are_freed_and_kept),
        cmocka_unit_test(states_are_kept),
        cmocka_unit_test(a_prompt_is_one_step),
        cmocka_unit_test(what_a_step_replaces_goes),
        cmocka_unit_test(a_document_serves_many),
        cmocka_unit_test(an_answer_ends_before_a_state),
        cmocka_unit_test(where_timelines_part_is_kept),
        cmocka_unit_test(windows_resume),
    };
    return cmocka_run_group_tests_name("kv-groups", tests, NULL, NULL);
}
