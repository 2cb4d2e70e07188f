/* fair.c - classes, users and clients: how much work each gets, how long requests wait, who is preempted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/sched/sched-world.h"

enum { ALICE = 1000, BOB = 1001 };

/* --- accounts -------------------------------------------------------------------------------------------- */

static void accounts(void **state)
{
    (void)state;
    struct shares s;
    shares_init(&s);
    struct share *a = share_join(&s, ALICE, 1), *b = share_join(&s, BOB, 1), *b2 = share_join(&s, BOB, 2);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(b->user, b2->user);
    share_charge(b, 3);
    share_charge(b2, 2);
    assert_true(share_before(a, b) && share_before(a, b2) && share_before(b2, b)); /* 0 against 5; 2 against 3 */
    share_charge(a, 4);
    assert_true(share_before(a, b));
    share_charge(a, 2);
    assert_true(share_before(b, a) && share_before(b2, a));

    /* Leaving neither clears an account's work nor saves up credit: a new account begins slightly below the least
     * work. */
    share_leave(&s, a);
    share_charge(b, 0.5);
    a = share_join(&s, ALICE, 1);
    assert_true(a->user->work == 6);
    struct share *c = share_join(&s, 1002, 1);
    assert_true(c->user->work == 5.5 - SHARE_CREDIT);
    share_charge(b, 10);
    share_leave(&s, a);
    share_charge(c, 20);
    a = share_join(&s, ALICE, 1);
    assert_true(a->user->work == 15.5 - SHARE_CREDIT); /* idle time gives no more credit than this */

    /* Nothing is remembered when all have left. */
    struct share *all[] = {a, b, b2, c};
    for (int i = 0; i < 4; i++)
        share_leave(&s, all[i]);
    assert_true(TAILQ_EMPTY(&s.users) && TAILQ_EMPTY(&s.clients));
    shares_fini(&s);
}

/* Clients that send one request each and leave are not remembered for ever. */
static void accounts_are_bounded(void **state)
{
    (void)state;
    struct shares s;
    shares_init(&s);
    struct share *stays = share_join(&s, ALICE, 0), *a;
    for (int64_t i = 1; i <= 2000; i++) {
        struct share *c = share_join(&s, i % 2 ? BOB : 2000 + i, i);
        share_charge(c, 1 + (double)(i % 7));
        share_leave(&s, c);
    }
    uint32_t n = 0;
    TAILQ_FOREACH (a, &s.users, link)
        n++;
    TAILQ_FOREACH (a, &s.clients, link)
        n++;
    assert_true(n < 1100);
    share_leave(&s, stays);
    assert_true(TAILQ_EMPTY(&s.users) && TAILQ_EMPTY(&s.clients));
    shares_fini(&s);
}

/* --- two users ------------------------------------------------------------------------------------------- */

/* A prompt that no other request has. */
static const int32_t *prompt_of(uint32_t n)
{
    static int32_t p[MAX_LEN], number;
    assert_true(n <= MAX_LEN);
    number++;
    for (uint32_t i = 0; i < n; i++)
        p[i] = i < 12 ? (number >> (2 * i)) & 3 : (int32_t)rnd(4);
    return p;
}

static struct request *ask(int64_t uid, int64_t client, enum seq_class class, uint32_t n, uint32_t max)
{
    return submit_as(&w.pool[0], uid, client, class, prompt_of(n), n, max);
}

/* Alice has one client, Bob fifteen; each sends its next request when it has its answer. Each user gets half of the
 * computed prompt tokens, and Alice's next prompt never waits for all of Bob's. */
static void prompts_are_shared_by_user(void **state)
{
    (void)state;
    world_init(21, 1, 256, 256, 32);
    w.pool[0].group.pace = (struct sched_pace){32, .gap = 0.4, .alone = 1};
    struct request *alice = NULL, *bob[15] = {NULL};
    double of_alice = 0, of_bob = 0, longest = 0, asked = 0;
    for (int i = 0; i < 600; i++) {
        if (!alice || !alice->live) {
            of_alice += alice ? alice->computed : 0;
            longest = alice && w.now - asked > longest ? w.now - asked : longest;
            alice = ask(ALICE, 0, CLASS_NORMAL, 200, 1);
            asked = w.now;
        }
        for (int k = 0; k < 15; k++)
            if (!bob[k] || !bob[k]->live) {
                of_bob += bob[k] ? bob[k]->computed : 0;
                bob[k] = ask(BOB, k, CLASS_NORMAL, 200, 1);
            }
        timed_turn();
    }
    assert_true(of_alice > 0.45 * (of_alice + of_bob) && of_alice < 0.55 * (of_alice + of_bob));
    assert_true(longest < 4 * (c_step + 200 * c_prompt));
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* The same when each step is planned before the result of the previous one is known, so that Alice's next prompt misses
 * a step. Her prompts have `n` tokens, those of Bob's clients `n_bob`, each from another client if `other_clients` is
 * set. Returns her share. */
static double share_of_alice(uint32_t n, uint32_t n_bob, bool other_clients)
{
    world_init(29, 1, 256, 256, 32);
    w.pool[0].group.pace = (struct sched_pace){32, .gap = 0.4, .alone = 0.4};
    struct request *alice = NULL, *bob[15] = {NULL};
    double of_alice = 0, of_bob = 0;
    int64_t number = 100;
    for (int i = 0; i < 600; i++) {
        if (!alice || !alice->live) {
            of_alice += alice ? alice->computed : 0;
            alice = ask(ALICE, 0, CLASS_NORMAL, n, 1);
        }
        for (int k = 0; k < 15; k++)
            if (!bob[k] || !bob[k]->live) {
                of_bob += bob[k] ? bob[k]->computed : 0;
                bob[k] = ask(BOB, other_clients ? number++ : k, CLASS_NORMAL, n_bob, 1);
            }
        timed_turn_ahead();
    }
    while (timed_turn_ahead() > 0) {
    }
    world_fini();
    return of_alice / (of_alice + of_bob);
}

static void who_asks_again_loses_no_turn(void **state)
{
    static const struct {
        uint32_t n, n_bob;
        double least;
    } of[] = {
        {28, 28, 0.41},  {28, 17, 0.41}, {28, 120, 0.41}, /* two steps have 60 rows, and some of the 28 are cached */
        {200, 28, 0.47}, {90, 90, 0.45},
    };
    (void)state;
    for (uint32_t i = 0; i < sizeof of / sizeof of[0]; i++)
        for (int other_clients = 0; other_clients < 2; other_clients++) {
            double share = share_of_alice(of[i].n, of[i].n_bob, other_clients);
            if (share < of[i].least || share > 0.53)
                fail_msg("prompts of %u and %u: %.3f", of[i].n, of[i].n_bob, share);
        }
}

/* Alice's clients keep one model busy, Bob's and Carol's another one. What Alice has of the first, which is more than
 * either of the two has of the second, does not keep her requests for the second waiting. */
static void another_model_is_another_line(void **state)
{
    enum { CAROL = 1002, CLIENTS = 6, ALICES = 3 * CLIENTS };
    (void)state;
    world_init(25, 2, 256, 256, 32);
    for (int i = 0; i < 2; i++)
        w.pool[i].group.pace = (struct sched_pace){32, .gap = 0.4, .alone = 1};
    struct request *r[ALICES + 1] = {NULL};
    double asked = 0, longest = 0;
    uint32_t answered = 0;
    for (int i = 0; i < 600; i++) {
        for (int k = 0; k < ALICES; k++)
            if (!r[k] || !r[k]->live)
                r[k] = submit_as(&w.pool[k >= CLIENTS],
                                 k < CLIENTS ? ALICE
                                 : k % 2     ? BOB
                                             : CAROL,
                                 k, CLASS_NORMAL, prompt_of(60), 60, 1);
        if (i > 100 && (!r[ALICES] || !r[ALICES]->live)) {
            answered += r[ALICES] != NULL;
            r[ALICES] = submit_as(&w.pool[1], ALICE, ALICES, CLASS_NORMAL, prompt_of(60), 60, 1);
            asked = w.now;
        }
        timed_turn();
        longest = asked > 0 && w.now - asked > longest ? w.now - asked : longest;
    }
    assert_true(answered > 10 && longest < 20 * (c_step + 60 * c_prompt));
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* Carol has two streams decode, or two prompts wait, in that class, while the first `n_asking` of Bob, Alice and Carol
 * ask for prompts from six clients each, until 100 requests have ended. Returns Bob's share of these users' tokens. */
static double share_of_bob(uint32_t n_asking, enum seq_class class, uint32_t n, uint32_t max)
{
    enum { CAROL = 1002, USERS = 3, CLIENTS = 6 };
    static const int64_t uid[USERS] = {BOB, ALICE, CAROL};
    static struct request *r[USERS][CLIENTS], *beside[2];
    double tokens = 0, of_bob = 0;
    if (!w.n_req) {
        memset(r, 0, sizeof r);
        memset(beside, 0, sizeof beside);
    }
    for (uint32_t ended = w.n_done; w.n_done - ended < 100;) {
        for (uint32_t k = 0; k < 2; k++)
            if (!beside[k] || !beside[k]->live)
                beside[k] = ask(CAROL, CLIENTS + k, class, n, max + k * max / 2);
        for (uint32_t i = 0; i < n_asking * CLIENTS; i++) {
            struct request **its = &r[i / CLIENTS][i % CLIENTS];
            if (*its && (*its)->live)
                continue;
            tokens += *its ? (*its)->computed : 0;
            of_bob += *its && i < CLIENTS ? (*its)->computed : 0;
            *its = ask(uid[i / CLIENTS], i % CLIENTS, CLASS_INTERACTIVE, 100, 1);
        }
        timed_turn();
    }
    return of_bob / tokens;
}

/* Carol has had less than Bob for long, because she wants less, or because what she wants waits for him. Alice, who
 * comes later, is not owed that difference, but she and Bob have equal shares at once. Nor is Carol when she asks for
 * more later on. */
static void who_wants_less_is_owed_nothing(void **state)
{
    static const struct {
        enum seq_class class;
        uint32_t n, max;
    } of[] = {{CLASS_INTERACTIVE, 8, 200}, {CLASS_BACKGROUND, 200, 1}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        world_init(33, 1, 256, 256, 32);
        w.pool[0].group.pace = (struct sched_pace){32, .gap = 0.4, .alone = 1};
        for (uint32_t n_asking = 1; n_asking <= 3; n_asking++) {
            double share = share_of_bob(n_asking, of[i].class, of[i].n, of[i].max);
            if (share < 0.9 / n_asking)
                fail_msg("%d: %.3f beside %u others", i, share, n_asking - 1);
        }
        while (timed_turn() > 0) {
        }
        world_fini();
    }
}

/* Nor is Carol when the class of what has waited for Bob is raised. */
static void who_is_raised_is_owed_nothing(void **state)
{
    (void)state;
    world_init(34, 1, 256, 256, 32);
    w.pool[0].group.pace = (struct sched_pace){32, .gap = 0.4, .alone = 1};
    const struct request *bob = ask(BOB, 0, CLASS_INTERACTIVE, 600, 1), *carol = ask(1002, 0, CLASS_BACKGROUND, 600, 1);
    while (bob->seq->n_computed < 300)
        timed_turn();
    assert_true(carol->seq->turn->user->work < bob->seq->turn->user->work - 1);
    sched_set_class(&w.s, carol->seq, CLASS_INTERACTIVE, w.now);
    assert_true(carol->seq->turn->user->work == bob->seq->turn->user->work - SHARE_CREDIT);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* Both users have prompts that are nearly read, and take turns. A user's longest prompts wait for the shorter ones in
 * every other of his own steps only, not in all of them because the steps between are the other's. */
static void turns_do_not_leave_long_prompts_out(void **state)
{
    enum { CLIENTS = 4 };
    const double all = 2 * CLIENTS * (c_step + 160 * c_prompt);
    (void)state;
    world_init(35, 1, 256, 256, 32);
    w.pool[0].group.pace = (struct sched_pace){32, .gap = 0.5, .alone = 1, .rows_alone = 64};
    w.pool[0].group.cost.many = 32;
    struct request *r[2 * CLIENTS] = {NULL};
    double asked = 0;
    while (w.n_req < 400) {
        for (int k = 0; k < 2 * CLIENTS; k++) {
            if (r[k] && r[k]->live)
                continue;
            asked = k == 0 ? w.now : asked;
            r[k] = ask(k < CLIENTS ? BOB : ALICE, k, CLASS_NORMAL, k == 0 ? 160 : k < CLIENTS ? 130 : 60, 1);
        }
        timed_turn();
        if (w.now - asked > 2 * all)
            fail_msg("the long prompt waits longer than twice the %.1f s that all would take", all);
    }
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* Every decoding sequence has a row in each step, whatever its user has. */
static void decoding_is_shared_by_step(void **state)
{
    (void)state;
    world_init(22, 1, 256, 256, 32);
    w.pool[0].group.pace = (struct sched_pace){32, .gap = 0.4, .alone = 1};
    struct request *bob[15];
    for (int k = 0; k < 15; k++)
        bob[k] = ask(BOB, k, CLASS_NORMAL, 20, 200);
    while (!bob[14]->n_got)
        timed_turn();
    struct request *alice = ask(ALICE, 0, CLASS_NORMAL, 20, 100);
    timed_turn();
    timed_turn();
    assert_true(alice->n_got >= 1); /* within two steps */
    uint32_t had = bob[0]->n_got, got = alice->n_got;
    while (alice->live)
        timed_turn();
    assert_true(alice->n_got - got >= 0.95 * (bob[0]->n_got - had));
    while (timed_turn() > 0) {
    }
    for (uint32_t i = 0; i < w.n_req; i++)
        check_tokens(&w.req[i]);
    world_fini();
}

/* Bob's streams hold all pages, or all seats, when Alice sends a request. Returns the steps until it is admitted. */
static uint32_t steps_to_admission(uint32_t n_page, uint32_t streams, uint32_t prompt, uint32_t max)
{
    world_init(23, 1, n_page, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    for (uint32_t k = 0; k < streams; k++)
        ask(BOB, k, CLASS_NORMAL, prompt, max);
    while (w.s.count[SEQ_WAIT] || w.s.count[SEQ_RUN] < streams) /* until all are admitted, or as many as possible */
        if (timed_turn() > 0 && w.s.count[SEQ_WAIT] && w.pool[0].group.line_stands)
            break;
    while (!w.s.count[SEQ_WAIT])
        timed_turn();
    for (double since = w.now;
         w.now < since + 3 && w.s.count[SEQ_WAIT];) /* it is Bob's own streams that keep these waiting */
        timed_turn();
    struct request *alice = ask(ALICE, 0, CLASS_NORMAL, 40, 4);
    uint32_t steps = 0, to_first = 0;
    for (; alice->seq->state != SEQ_RUN; steps++)
        timed_turn();
    for (; !alice->n_got; to_first++)
        timed_turn();
    assert_true(to_first < 8);
    while (timed_turn() > 0) {
    }
    assert_int_equal(w.n_done, w.n_req);
    assert_true(w.rows < 1.5 * streams * (prompt + max)); /* almost nothing was computed twice */
    for (uint32_t i = 0; i < w.n_req; i++)
        check_tokens(&w.req[i]); /* the preempted ones lost nothing */
    world_fini();
    return steps;
}

static void a_full_pool_is_not_one_users(void **state)
{
    (void)state;
    assert_in_range(steps_to_admission(256, 60, 60, 200), 1, 3);  /* pages */
    assert_in_range(steps_to_admission(256, 100, 20, 100), 1, 3); /* seats */
    assert_in_range(steps_to_admission(40, 60, 150, 100), 1, 3);  /* a pool for a few sequences */
}

/* One stream holds the whole pool: it is preempted after a while, and comes back. */
static void one_stream_does_not_keep_the_pool(void **state)
{
    (void)state;
    world_init(24, 1, 43, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    struct request *bob = ask(BOB, 0, CLASS_INTERACTIVE, 300, 380);
    while (bob->n_got < 150)
        timed_turn();
    struct request *alice = ask(ALICE, 0, CLASS_INTERACTIVE, 300, 10);
    double asked = w.now;
    while (alice->seq->state != SEQ_RUN)
        timed_turn();
    assert_true(bob->live && w.now - asked > 1.5 && w.now - asked < 3);
    while (timed_turn() > 0) {
    }
    check_tokens(alice);
    check_tokens(bob);
    assert_int_equal(bob->n_got, 380);
    world_fini();
}

/* --- shared pages ---------------------------------------------------------------------------------------- */

enum { DOCUMENT = 480, OF_DOCUMENT = DOCUMENT / KV_PAGE };

/* The prompt of a request about one document, which ends with n other tokens. */
static struct request *ask_about(int64_t uid, int64_t client, enum seq_class class, uint32_t n, uint32_t max)
{
    int32_t p[MAX_LEN] = {3};
    memcpy(p + DOCUMENT, prompt_of(n), n * sizeof *p);
    return submit_as(&w.pool[0], uid, client, class, p, DOCUMENT + n, max);
}

/* Fills the pool with `n` of Bob's streams about the document, each of which has few pages of its own. */
static void document_world(uint32_t n_page, struct request **bob, uint32_t n)
{
    world_init(32, 1, n_page, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    for (uint32_t k = 0; k < n; k++) {
        bob[k] = ask_about(BOB, k, CLASS_NORMAL, 20, 190);
        while (!bob[k]->n_got)
            timed_turn();
    }
}

static uint32_t n_running(struct request *const *r, uint32_t n)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < n; i++)
        running += r[i]->seq->state == SEQ_RUN;
    return running;
}

static void document_world_end(void)
{
    while (timed_turn() > 0) {
    }
    for (uint32_t i = 0; i < w.n_req; i++)
        check_tokens(&w.req[i]);
    world_fini();
}

/* None is preempted if that does not make room, because another sequence still needs the pages that they share. */
static void nobody_makes_way_in_vain(void **state)
{
    (void)state;
    struct request *bob[8], *alice;
    document_world(OF_DOCUMENT + 8 * 3 + 8, bob, 8);
    alice = ask(ALICE, 0, CLASS_NORMAL, 600, 4);
    for (double since = w.now; w.now < since + 1;) { /* less than a quantum */
        timed_turn();
        assert_int_equal(n_running(bob, 8), 8);
    }
    while (alice->seq->state != SEQ_RUN) /* then they all leave, and so does the document */
        timed_turn();
    assert_int_equal(n_running(bob, 8), 0);
    document_world_end();
}

/* Of Bob's streams the younger one makes way for Alice, although it is the larger one: the older would otherwise make
 * way each time that somebody comes, and never end. */
static void the_younger_makes_way(void **state)
{
    (void)state;
    world_init(36, 1, 18, 256, 64);
    const struct request *bob[2];
    for (uint32_t i = 0; i < 2; i++)
        bob[i] = ask(BOB, 0, CLASS_NORMAL, 80 + 40 * i, 8);
    while (!bob[1]->n_got)
        timed_turn();
    const struct request *alice = ask(ALICE, 0, CLASS_NORMAL, 60, 4);
    while (!alice->n_got)
        timed_turn();
    assert_int_equal(bob[0]->seq->state, SEQ_RUN);
    assert_int_equal(bob[1]->seq->state, SEQ_WAIT);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* Nor if the others that leave make enough room: one large stream of the background does, and the smaller ones, which
 * are the first to leave, stay. */
static void as_few_as_possible_make_way(void **state)
{
    (void)state;
    struct request *bob[1], *back[5];
    document_world(OF_DOCUMENT + 2 + 38 + 4 * 2 + 11, bob, 1);
    back[0] = ask(BOB, 9, CLASS_BACKGROUND, 600, 90);
    while (!back[0]->n_got)
        timed_turn();
    for (uint32_t k = 1; k < 5; k++)
        back[k] = ask_about(BOB, 9, CLASS_BACKGROUND, 20, 100);
    while (!back[4]->n_got)
        timed_turn();
    assert_int_equal(n_running(back, 5), 5);
    struct request *alice = ask(ALICE, 0, CLASS_NORMAL, 300, 4);
    for (uint32_t i = 0; i < 3 && alice->seq->state != SEQ_RUN; i++)
        timed_turn();
    assert_int_equal(alice->seq->state, SEQ_RUN);
    assert_int_equal(back[0]->seq->state, SEQ_WAIT);
    assert_int_equal(n_running(back + 1, 4), 4);
    document_world_end();
}

/* Pages that a running stream shares with the newcomer are not lacking: room is made for the others only. */
static void what_is_shared_is_not_lacking(void **state)
{
    (void)state;
    struct request *bob[1], *back[5];
    document_world(OF_DOCUMENT + 2 + 5 * 2 + 9, bob, 1);
    for (uint32_t k = 0; k < 5; k++)
        back[k] = ask(BOB, 9, CLASS_BACKGROUND, 20, 100);
    while (!back[4]->n_got)
        timed_turn();
    struct request *next = ask_about(BOB, 10, CLASS_NORMAL, 60, 4);
    for (uint32_t i = 0; i < 3 && next->seq->state != SEQ_RUN; i++)
        timed_turn();
    assert_int_equal(next->seq->state, SEQ_RUN);
    assert_int_equal(n_running(back, 5), 4);
    document_world_end();
}

/* --- classes --------------------------------------------------------------------------------------------- */

/* Background prompts progress slowly beside other prompts of the same user, and do not delay them. */
static void background_waits_but_goes_on(void **state)
{
    (void)state;
    world_init(25, 1, 256, 256, 32);
    w.pool[0].group.pace = (struct sched_pace){32, .gap = 0.4, .alone = 1};
    struct request *back = NULL, *front = NULL;
    uint32_t n_back = 0, n_front = 0;
    double of_back = 0, of_front = 0;
    for (int i = 0; i < 2000; i++) {
        if (!back || !back->live) {
            of_back += back ? back->computed : 0;
            back = ask(ALICE, 0, CLASS_BACKGROUND, 290, 1), n_back++;
        }
        if (!front || !front->live) {
            of_front += front ? front->computed : 0;
            front = ask(ALICE, 1, CLASS_NORMAL, 290, 1), n_front++;
        }
        timed_turn();
    }
    assert_true(of_back > 0.05 * (of_back + of_front));
    assert_true(of_back < 0.35 * (of_back + of_front));
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* Background streams that hold the pool are preempted at once, even for the same client, and what they had computed is
 * not lost. */
static void the_foreground_takes_the_pool(void **state)
{
    (void)state;
    world_init(26, 1, 40, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    struct request *back[3];
    for (int i = 0; i < 3; i++)
        back[i] = ask(ALICE, 0, CLASS_BACKGROUND, 150, 60);
    while (!back[1]->n_got)
        timed_turn();
    struct request *front = ask(ALICE, 0, CLASS_INTERACTIVE, 290, 10);
    uint32_t steps = 0;
    for (; !front->n_got; steps++)
        timed_turn();
    assert_true(steps < 14 && back[0]->live && back[1]->live && back[2]->live);
    while (timed_turn() > 0) {
    }
    for (uint32_t i = 0; i < w.n_req; i++)
        check_tokens(&w.req[i]);
    world_fini();
}

/* A prompt of Bob's that is the first in line by its age finds no room, as his own stream does not make way for it. It
 * does for Alice, who therefore does not wait behind that prompt, although she has had more. */
static void age_does_not_block_a_higher_class(void **state)
{
    (void)state;
    world_init(37, 1, 30, 256, 64);
    const struct request *bob[2] = {ask(BOB, 0, CLASS_NORMAL, 250, 200), NULL};
    while (!bob[0]->n_got)
        timed_turn();
    bob[1] = ask(BOB, 0, CLASS_NORMAL, 300, 1);
    for (double since = w.now; w.now < since + 3;)
        timed_turn();
    struct request *alice = ask(ALICE, 0, CLASS_INTERACTIVE, 250, 4);
    share_charge(alice->seq->turn, 1000);
    timed_turn();
    timed_turn();
    assert_int_equal(alice->seq->state, SEQ_RUN);
    assert_true(bob[0]->live && bob[1]->live);
    while (timed_turn() > 0) {
    }
    assert_int_equal(w.n_done, w.n_req);
    world_fini();
}

/* A background prompt comes to its end beside clients that always ask for more than the pool has, although it is
 * preempted and its KV is evicted each time: once it has its seat again, it keeps it until it has gone on. */
static void background_ends_in_a_full_pool(void **state)
{
    (void)state;
    enum { CLIENTS = 12 };
    world_init(33, 1, 48, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    struct request *front[CLIENTS] = {NULL}, *back = ask(ALICE, 0, CLASS_BACKGROUND, 640, 20);
    uint32_t turns = 0;
    for (; back->live && turns < 2000; turns++) {
        for (uint32_t i = 0; i < CLIENTS; i++)
            if (!front[i] || !front[i]->live)
                front[i] = ask(BOB, i, CLASS_INTERACTIVE, 150, 60);
        timed_turn();
    }
    assert_false(back->live);
    while (timed_turn() > 0) {
    }
    check_tokens(back);
    world_fini();
}

/* A stream whose client has disconnected is in the background class from then on. */
static void who_has_gone_makes_way(void **state)
{
    (void)state;
    world_init(27, 1, 40, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    struct request *gone = ask(ALICE, 0, CLASS_INTERACTIVE, 290, 10),
                   *stays = ask(ALICE, 1, CLASS_INTERACTIVE, 200, 90);
    while (!stays->n_got)
        timed_turn();
    sched_set_class(&w.s, gone->seq, CLASS_BACKGROUND, w.now);
    struct request *next = ask(ALICE, 2, CLASS_INTERACTIVE, 280, 4);
    timed_turn();
    timed_turn();
    assert_true(!gone->live || gone->seq->state == SEQ_WAIT);
    assert_int_equal(stays->seq->state, SEQ_RUN);
    assert_int_equal(next->seq->state, SEQ_RUN);
    while (timed_turn() > 0) {
    }
    check_tokens(gone);
    world_fini();
}

/* A prompt whose class is lowered has not waited in that class yet. */
static void who_has_gone_is_not_aged(void **state)
{
    (void)state;
    world_init(30, 1, 256, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    w.now = 100; /* there has been no background prompt for a long time */
    struct request *gone = ask(ALICE, 0, CLASS_NORMAL, 600, 1);
    timed_turn();
    timed_turn();
    sched_set_class(&w.s, gone->seq, CLASS_BACKGROUND, w.now);
    struct request *next = ask(ALICE, 1, CLASS_NORMAL, 600, 1);
    uint32_t had = gone->seq->n_computed;
    timed_turn();
    timed_turn();
    assert_true(gone->seq->n_computed < had + KV_PAGE); /* what the other one leaves of a step to end with a page */
    assert_true(next->seq->n_computed > 2 * KV_PAGE);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* Nor has a background stream waited when it has just been preempted, however long ago its prompt was read: there is no
 * room for it, and it does not hold up those who need little. */
static void who_made_way_is_not_aged(void **state)
{
    (void)state;
    world_init(31, 1, 14, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.4, .alone = 1};
    struct request *back = ask(ALICE, 0, CLASS_BACKGROUND, 100, 100);
    while (back->n_got < 60)
        timed_turn();
    struct request *front = ask(ALICE, 1, CLASS_INTERACTIVE, 100, 60);
    while (!front->n_got)
        timed_turn();
    assert_int_equal(back->seq->state, SEQ_WAIT);
    struct request *brief = ask(ALICE, 2, CLASS_INTERACTIVE, 20, 10);
    for (int i = 0; i < 3; i++)
        timed_turn();
    assert_int_equal(brief->seq->state, SEQ_RUN);
    assert_true(front->live);
    while (timed_turn() > 0) {
    }
    for (uint32_t i = 0; i < w.n_req; i++)
        check_tokens(&w.req[i]);
    world_fini();
}

/* If a step with all decoding sequences would take longer than the gap, the background pauses, not the foreground. */
static void decoding_keeps_the_gap(void **state)
{
    (void)state;
    world_init(28, 1, 256, 256, 64);
    w.pool[0].group.pace = (struct sched_pace){64, .gap = 0.1, .alone = 1};
    struct request *back[30], *front;
    for (int i = 0; i < 30; i++)
        back[i] = ask(ALICE, 0, CLASS_BACKGROUND, 10, 100);
    while (back[29]->n_got < 5)
        timed_turn();
    front = ask(ALICE, 1, CLASS_INTERACTIVE, 10, 100);
    while (front->n_got < 2)
        timed_turn();
    uint32_t had = back[29]->n_got, slow = 0, steps = 0;
    for (; front->live; steps++)
        slow += timed_turn() > 0.11;
    assert_true(slow < steps / 4);
    assert_true(back[29]->n_got > had);
    while (timed_turn() > 0) {
    }
    world_fini();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts),
        cmocka_unit_test(accounts_are_bounded),
        cmocka_unit_test(prompts_are_shared_by_user),
        cmocka_unit_test(who_asks_again_loses_no_turn),
        cmocka_unit_test(another_model_is_another_line),
        cmocka_unit_test(who_wants_less_is_owed_nothing),
        cmocka_unit_test(who_is_raised_is_owed_nothing),
        cmocka_unit_test(turns_do_not_leave_long_prompts_out),
        cmocka_unit_test(decoding_is_shared_by_step),
        cmocka_unit_test(a_full_pool_is_not_one_users),
        cmocka_unit_test(one_stream_does_not_keep_the_pool),
        cmocka_unit_test(nobody_makes_way_in_vain),
        cmocka_unit_test(as_few_as_possible_make_way),
        cmocka_unit_test(the_younger_makes_way),
        cmocka_unit_test(what_is_shared_is_not_lacking),
        cmocka_unit_test(background_waits_but_goes_on),
        cmocka_unit_test(the_foreground_takes_the_pool),
        cmocka_unit_test(age_does_not_block_a_higher_class),
        cmocka_unit_test(background_ends_in_a_full_pool),
        cmocka_unit_test(who_has_gone_makes_way),
        cmocka_unit_test(who_has_gone_is_not_aged),
        cmocka_unit_test(who_made_way_is_not_aged),
        cmocka_unit_test(decoding_keeps_the_gap),
    };
    return cmocka_run_group_tests_name("fair", tests, NULL, NULL);
}
