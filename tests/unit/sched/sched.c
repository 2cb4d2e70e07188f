/*
 * sched.c - the scheduler under random workloads, against a model of the device.
 *
 * The model runs a plan in stream order, as a backend would: it keeps what each row of each page was computed from,
 * feeds tokens that the host does not know yet from the slot that sampled them, and "samples" a function of the whole
 * prefix. So a wrong page, position, slot or token anywhere (after sharing, preemption, with steps in flight) shows as
 * a sequence that ends with other tokens than it must.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/sched/sched.h"

enum { MAX_PAGES = 256, MAX_REQ = 200, MAX_LEN = 300, IN_FLIGHT_MAX = 4 };

static uint64_t rng_state;
static uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static uint64_t extend(uint64_t h, int32_t id)
{
    return ((h ^ (uint64_t)(uint32_t)id) * 0xff51afd7ed558ccdu + 0x632be59bd9b4e019u) | 1;
}
static uint64_t root(int64_t uid)
{
    return 0x9e3779b97f4a7c15u * (uint64_t)(uid + 3);
}
static int32_t next_token(uint64_t prefix)
{
    return (int32_t)(prefix >> 20) & 3;
}

struct device {
    uint64_t memory[MAX_PAGES][KV_PAGE];
    int32_t slot[BATCH_SEQS_MAX];
};

struct pool {
    struct sched_group group;
    struct device dev;
};

struct request {
    struct seq *seq;
    uint64_t id;
    int64_t uid;
    int32_t prompt[MAX_LEN];
    uint32_t n_prompt, n_limit;
    int32_t got[MAX_LEN];
    uint32_t n_got, reused, computed;
    bool live, began;
};

struct world {
    struct sched s;
    struct pool pool[2];
    uint32_t n_pool;
    struct request req[MAX_REQ];
    uint32_t n_req, n_done;
    struct {
        struct plan plan;
        int32_t token[BATCH_SEQS_MAX];
    } in_flight[IN_FLIGHT_MAX];
    uint32_t first, n_in_flight;
    uint64_t steps, rows, computed, computed_of_ended;
    double now;
};
static struct world w;

static void world_init(uint64_t seed, uint32_t n_pool, uint32_t n_page, uint32_t rows_max, uint32_t rows_first)
{
    struct hearth_err e;
    memset(&w, 0, sizeof w);
    w.now = 1;
    rng_state = seed * 1234567 + 99;
    sched_init(&w.s, rows_max, BATCH_SEQS_MAX);
    w.n_pool = n_pool;
    for (uint32_t i = 0; i < n_pool; i++) {
        assert_int_equal(kv_cache_new(&w.pool[i].group.kv, &(struct kv_shape){n_page, 0}, 1, &e), 0);
        w.pool[i].group.pace = (struct sched_pace){rows_first, .gap = 1};
        sched_group_add(&w.s, &w.pool[i].group);
    }
}

static void world_fini(void)
{
    assert_int_equal(w.s.slots, 0);
    for (int i = 0; i < SEQ_STATES; i++)
        assert_int_equal(w.s.count[i], 0);
    assert_true(w.computed == w.computed_of_ended); /* tokens_computed is what the usages say */
    for (uint32_t i = 0; i < w.n_pool; i++) {
        struct kv_counts c;
        kv_count(w.pool[i].group.kv, 0, &c);
        assert_int_equal(c.held, 0);
        assert_true(kv_check(w.pool[i].group.kv));
        sched_group_remove(&w.s, &w.pool[i].group);
        kv_cache_free(w.pool[i].group.kv);
    }
}

static struct request *submit(struct pool *pool, int64_t uid, const int32_t *prompt, uint32_t n, uint32_t max)
{
    assert_true(w.n_req < MAX_REQ && n + max <= MAX_LEN);
    struct request *r = &w.req[w.n_req++];
    r->id = w.n_req;
    r->uid = uid;
    memcpy(r->prompt, prompt, n * sizeof *prompt);
    r->n_prompt = n;
    r->n_limit = n + max;
    r->live = true;
    r->seq = seq_new(prompt, n, n + max);
    r->seq->id = r->id;
    r->seq->owner = r;
    r->seq->uid = uid;
    r->seq->n_prompt = n;
    r->seq->n_limit = r->n_limit;
    sched_push(&w.s, &pool->group, r->seq, w.now);
    return r;
}

static void end(struct request *r)
{
    struct seq *q = r->seq;
    r->reused = q->n_reused;
    r->computed = q->n_accounted - q->n_reused;
    w.computed_of_ended += r->computed;
    r->live = false;
    w.n_done++;
    sched_end(&w.s, q, q->n_tokens);
}

/* The device runs the plan. */
static void run_plan(const struct plan *p, int32_t *sampled)
{
    struct pool *pool = (struct pool *)p->group;
    struct device *d = &pool->dev;
    struct kv_action a;
    while (kv_next_action(pool->group.kv, &a)) {
        if (a.kind == KV_COPY)
            memcpy(d->memory[a.page], d->memory[a.from], sizeof d->memory[0]);
        else
            memset(d->memory[a.page], 0, sizeof d->memory[0]);
    }
    uint32_t row = 0, n_sample = 0, n_out = 0;
    bool others = false;
    for (uint32_t i = 0; i < p->n_seq; i++) {
        const struct plan_seq *ps = &p->seq[i];
        const struct seq *q = ps->seq;
        assert_int_equal(ps->row0, row);
        assert_true(ps->n_row > 0);
        assert_true((ps->pos0 + ps->n_row + KV_PAGE - 1) / KV_PAGE <= q->kv.n);
        row += ps->n_row;
        n_out += ps->n_out;
        uint64_t h = root(q->uid);
        for (uint32_t pos = 0; pos < ps->pos0 + ps->n_row; pos++) {
            uint64_t *cell = &d->memory[q->kv.page[0][pos / KV_PAGE]][pos % KV_PAGE];
            if (pos < q->n_tokens)
                h = extend(h, q->token[pos]);
            else if (pos < ps->pos0) /* fed by a step in flight: compared when its token is known */
                h = *cell;
            else
                h = extend(h, d->slot[q->slot]);
            if (pos < ps->pos0)
                assert_true(*cell == h);
            else
                *cell = h;
        }
        if (ps->sample) {
            assert_false(others); /* those that sample come first */
            assert_int_equal(ps->n_out, 1);
            assert_int_equal(ps->index, ps->pos0 + ps->n_row - q->n_prompt);
            sampled[n_sample++] = d->slot[q->slot] = next_token(h);
        } else {
            others = true;
        }
    }
    assert_int_equal(row, p->n_row);
    assert_int_equal(n_sample, p->n_sample);
    assert_int_equal(n_out, p->n_out);
    assert_true(p->n_row <= w.s.rows_max && p->n_out <= w.s.out_max);
}

static void finish_step(void)
{
    struct plan *p = &w.in_flight[w.first].plan;
    const int32_t *token = w.in_flight[w.first].token;
    for (uint32_t i = 0; i < p->n_seq; i++) {
        struct plan_seq *ps = &p->seq[i];
        struct request *r = ps->seq->owner;
        if (ps->sample && r->live) {
            seq_push_token(ps->seq, token[i]);
            r->got[r->n_got++] = token[i];
        }
        sched_done(&w.s, ps);
        if (r->live && r->seq->n_computed >= r->seq->n_prompt && r->seq->n_tokens >= r->seq->n_limit &&
            r->seq->n_pending == 0)
            end(r);
    }
    w.first = (w.first + 1) % IN_FLIGHT_MAX;
    w.n_in_flight--;
}

/* One turn of the engine's loop; false when there is nothing left to do. */
static bool turn(uint32_t max_in_flight)
{
    struct plan p;
    if (w.n_in_flight < max_in_flight && sched_next(&w.s, &p, w.now)) {
        uint32_t at = (w.first + w.n_in_flight++) % IN_FLIGHT_MAX;
        w.in_flight[at].plan = p;
        run_plan(&p, w.in_flight[at].token);
        w.steps++;
        w.rows += p.n_row;
        w.computed += p.n_accounted;
        return true;
    }
    if (!w.n_in_flight)
        return false;
    finish_step();
    return true;
}

static void check_tokens(const struct request *r)
{
    uint64_t h = root(r->uid);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        h = extend(h, r->prompt[i]);
    for (uint32_t i = 0; i < r->n_got; i++) {
        assert_int_equal(r->got[i], next_token(h));
        h = extend(h, r->got[i]);
    }
}

static void random_workloads(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint32_t max_in_flight = 1 + (uint32_t)(seed % IN_FLIGHT_MAX);
        world_init(seed, 1 + (uint32_t)(seed / 3 % 2), 22 + rnd(seed % 5 ? 200 : 10), 64 + rnd(100), 8 + rnd(50));
        for (int t = 0; t < 4000; t++) {
            if (w.n_req < 100 && rnd(6) == 0) {
                int32_t prompt[200];
                uint32_t n = 1 + rnd(rnd(3) ? 40 : 190), max = rnd(4) ? rnd(100) : rnd(2);
                const struct request *old = w.n_req ? &w.req[rnd(w.n_req)] : NULL;
                uint32_t k = 0;
                if (old && rnd(3)) /* goes on from an earlier one, sometimes from its completion */
                    for (; k < n && k < old->n_prompt + old->n_got; k++)
                        prompt[k] = k < old->n_prompt ? old->prompt[k] : old->got[k - old->n_prompt];
                for (; k < n; k++)
                    prompt[k] = (int32_t)rnd(4);
                submit(&w.pool[rnd(w.n_pool)], (int64_t)rnd(2), prompt, n, max);
            }
            if (rnd(40) == 0 && w.n_req) { /* cancelled, in whatever state */
                struct request *r = &w.req[rnd(w.n_req)];
                if (r->live)
                    end(r);
            }
            turn(max_in_flight);
            for (uint32_t i = 0; i < w.n_pool; i++)
                assert_true(kv_check(w.pool[i].group.kv));
        }
        while (turn(max_in_flight)) {
        }
        assert_int_equal(w.n_done, w.n_req); /* everybody ends */
        for (uint32_t i = 0; i < w.n_req; i++)
            check_tokens(&w.req[i]);
        world_fini();
    }
}

static void clients_share_steps(void **state)
{
    (void)state;
    world_init(1, 1, 256, 256, 64);
    for (int32_t i = 0; i < 16; i++) {
        int32_t prompt[20];
        for (int32_t k = 0; k < 20; k++)
            prompt[k] = i + k;
        submit(&w.pool[0], 0, prompt, 20, 64);
    }
    while (turn(1)) {
    }
    assert_true(w.rows > 12 * w.steps);
    world_fini();
}

/* Of a turn's timeline all but the last token is reused by the next; somebody else reuses none of it. */
static void reuse_is_capped_and_private(void **state)
{
    (void)state;
    world_init(2, 1, 64, 64, 64);
    int32_t prompt[40] = {1, 2, 3};
    struct request *a = submit(&w.pool[0], 7, prompt, 40, 5);
    while (turn(1)) {
    }
    assert_int_equal(a->reused, 0);
    assert_int_equal(a->computed, 40);
    struct request *same = submit(&w.pool[0], 7, prompt, 40, 5);
    while (turn(1)) {
    }
    assert_int_equal(same->reused, 39);
    assert_int_equal(same->computed, 1);
    int32_t more[45];
    memcpy(more, prompt, sizeof prompt);
    memcpy(more + 40, a->got, sizeof *more * 5);
    struct request *next = submit(&w.pool[0], 7, more, 45, 5);
    while (turn(1)) {
    }
    assert_int_equal(next->reused, 44); /* the last sampled token was never fed */
    struct request *stranger = submit(&w.pool[0], 8, prompt, 40, 5);
    while (turn(1)) {
    }
    assert_int_equal(stranger->reused, 0);
    world_fini();
}

/* Two that fit alone but not together: the younger waits its turn and still ends right. */
static void youngest_gives_way(void **state)
{
    (void)state;
    world_init(3, 1, 8, 64, 64);
    int32_t pa[40] = {1}, pb[40] = {2};
    struct request *a = submit(&w.pool[0], 0, pa, 40, 80), *b = submit(&w.pool[0], 0, pb, 40, 80);
    bool gave_way = false;
    while (turn(1)) {
        if (a->live && b->live && b->n_got && b->seq->state == SEQ_WAIT)
            gave_way = true;
        assert_true(b->live || !a->live); /* the older ends first */
    }
    assert_true(gave_way);
    assert_int_equal(a->n_got, 80);
    assert_int_equal(b->n_got, 80);
    assert_int_equal(b->computed + b->reused, 40); /* computing again is not counted again */
    check_tokens(a);
    check_tokens(b);
    world_fini();
}

/* A long prompt does not stop those who decode: they have a row in every step. */
static void prompts_come_in_pieces(void **state)
{
    (void)state;
    world_init(4, 1, 64, 128, 16);
    int32_t shrt[4] = {3, 2, 1, 0}, lng[200] = {9};
    struct request *a = submit(&w.pool[0], 0, shrt, 4, 40);
    turn(1);
    turn(1);
    submit(&w.pool[0], 0, lng, 200, 1);
    uint32_t before = a->n_got;
    for (int i = 0; i < 10; i++) {
        turn(1);
        assert_true(w.in_flight[w.first].plan.n_row <= 17);
        turn(1);
    }
    assert_int_equal(a->n_got, before + 10);
    while (turn(1)) {
    }
    world_fini();
}

/* A short prompt does not wait for the long one before it, and takes no more than half from it. */
static void short_prompts_pass_long_ones(void **state)
{
    (void)state;
    world_init(6, 1, 64, 64, 64);
    int32_t lng[200] = {9}, shrt[10] = {3};
    struct request *a = submit(&w.pool[0], 0, lng, 200, 1), *b[8];
    for (int i = 0; i < 8; i++) {
        shrt[1] = i;
        b[i] = submit(&w.pool[0], 0, shrt, 10, 1);
    }
    turn(1);
    turn(1);
    assert_int_equal(a->seq->n_computed, 32);
    assert_false(b[0]->live || b[1]->live); /* done in the first step */
    while (turn(1)) {
    }
    world_fini();
}

/* A machine whose steps take time: what a step costs is what the model of costs learns from. */
static const double c_step = 0.05, c_decode = 5e-3, c_prompt = 12e-3, c_key = 2e-6;
static double seconds_of(const struct cost_work *k)
{
    return c_step + c_decode * k->decode + c_prompt * k->prompt + c_key * k->keys;
}
/* A turn on that machine, one step at a time. */
static double timed_turn(void)
{
    if (!turn(1))
        return 0;
    struct plan *p = &w.in_flight[w.first].plan;
    double seconds = seconds_of(&p->work);
    w.now += seconds;
    cost_learn(&p->group->cost, &p->work, seconds);
    finish_step();
    return seconds;
}

/* However long the context, the steps beside somebody who decodes keep the promise, and hardly less: they are as large
 * as they may be. Alone, a prompt's steps are as long as allowed. */
static void steps_keep_their_time(void **state)
{
    (void)state;
    world_init(7, 1, 256, 512, 32);
    w.pool[0].group.pace.gap = 0.4;
    w.pool[0].group.pace.alone = 1;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[290] = {9};
    submit(&w.pool[0], 0, lng, 290, 1);
    double longest = 0;
    for (int i = 0; i < 3; i++) { /* nobody beside it: the first is cut by guess, the others by time */
        double t = timed_turn();
        longest = t > longest ? t : longest;
    }
    assert_true(longest > 0.8 && longest < 1.1);
    while (timed_turn() > 0) {
    }
    struct request *a = submit(&w.pool[0], 0, shrt, 4, 200);
    timed_turn();
    timed_turn();
    lng[0] = 8;
    struct request *b = submit(&w.pool[0], 0, lng, 290, 1);
    uint32_t before = a->n_got, steps = 0;
    while (b->live) {
        double t = timed_turn();
        steps++;
        assert_true(t < 0.44);
        assert_true(!b->live || t > 0.3);
    }
    assert_int_equal(a->n_got, before + steps); /* it had a token in each of them */
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* Where decoding alone takes the whole gap, a prompt still goes on, and a step takes twice the time at most. */
static void a_slow_machine_still_reads_prompts(void **state)
{
    (void)state;
    world_init(8, 1, 256, 512, 8);
    w.pool[0].group.pace.gap = 0.01;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[200] = {9};
    struct request *a = submit(&w.pool[0], 0, shrt, 4, 200);
    for (int i = 0; i < 20; i++)
        timed_turn();
    struct request *b = submit(&w.pool[0], 0, lng, 100, 1);
    timed_turn();
    timed_turn();
    for (uint32_t at = b->seq->n_computed; b->live; at = b->seq->n_computed) {
        double t = timed_turn();
        assert_true(t < 2.6 * (c_step + c_decode));
        assert_true(!b->live || b->seq->n_computed > at);
    }
    assert_true(a->live);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* After an arrival the chunks of a prompt that is alone again grow with the quiet since. */
static void quiet_makes_chunks_longer(void **state)
{
    (void)state;
    world_init(9, 1, 256, 512, 32);
    w.pool[0].group.pace.gap = 0.1;
    w.pool[0].group.pace.alone = 1;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[290] = {9};
    submit(&w.pool[0], 0, lng, 290, 1);
    timed_turn();
    struct request *b = submit(&w.pool[0], 0, shrt, 4, 2);
    double arrived = w.now;
    while (b->live)
        timed_turn();
    for (double t, quiet = w.now - arrived; (t = timed_turn()) > 0; quiet = w.now - arrived)
        assert_true(t < 1.1 * (quiet > 0.1 ? quiet : 0.1));
    world_fini();
}

/* A step beside another model's sequences is as short as one beside its own. */
static void models_wait_no_longer_than_the_gap(void **state)
{
    (void)state;
    world_init(10, 2, 256, 512, 16);
    w.pool[0].group.pace.gap = 0.4;
    int32_t shrt[4] = {3, 2, 1, 0}, lng[290] = {9};
    struct request *a = submit(&w.pool[0], 0, lng, 290, 1), *b = submit(&w.pool[1], 0, shrt, 4, 40);
    while (a->live)
        assert_true(timed_turn() < 0.44);
    assert_true(b->live);
    while (timed_turn() > 0) {
    }
    world_fini();
}

/* eval: all its rows have logits, within the budget, and it samples nothing. */
static void eval_wants_every_row(void **state)
{
    (void)state;
    world_init(5, 1, 64, 128, 128);
    int32_t p1[100] = {1}, p2[10] = {2};
    struct request *ev = submit(&w.pool[0], -2, p1, 100, 0), *gen = submit(&w.pool[0], 0, p2, 10, 30);
    ev->seq->eval = eval_new(100, 3, 4, 0);
    uint32_t rows = 0;
    struct plan p;
    while (ev->live) {
        if (!w.n_in_flight && sched_next(&w.s, &p, w.now)) {
            w.in_flight[w.first].plan = p;
            w.n_in_flight = 1;
            run_plan(&p, w.in_flight[w.first].token);
            for (uint32_t i = 0; i < p.n_seq; i++)
                if (p.seq[i].seq->eval) {
                    assert_int_equal(p.seq[i].n_out, p.seq[i].n_row);
                    rows += p.seq[i].n_row;
                }
        }
        w.computed += p.n_accounted;
        finish_step();
    }
    assert_int_equal(rows, 100);
    w.computed_of_ended -= ev->computed; /* has no usage */
    while (turn(1)) {
    }
    assert_int_equal(gen->n_got, 30);
    world_fini();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_workloads),
        cmocka_unit_test(clients_share_steps),
        cmocka_unit_test(reuse_is_capped_and_private),
        cmocka_unit_test(youngest_gives_way),
        cmocka_unit_test(prompts_come_in_pieces),
        cmocka_unit_test(steps_keep_their_time),
        cmocka_unit_test(a_slow_machine_still_reads_prompts),
        cmocka_unit_test(quiet_makes_chunks_longer),
        cmocka_unit_test(models_wait_no_longer_than_the_gap),
        cmocka_unit_test(eval_wants_every_row),
        cmocka_unit_test(short_prompts_pass_long_ones),
    };
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
