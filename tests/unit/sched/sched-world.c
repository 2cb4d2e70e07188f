/* sched-world.c - see sched-world.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/sched/sched-world.h"

static uint64_t rng_state;
uint32_t rnd(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static uint64_t extend(uint64_t h, int32_t id)
{
    return ((h ^ (uint64_t)(uint32_t)id) * 0xff51afd7ed558ccdu + 0x632be59bd9b4e019u) | 1;
}
static uint64_t root(int64_t uid, uint32_t freq_set)
{
    return 0x9e3779b97f4a7c15u * (uint64_t)(uid + 3 + 1000 * freq_set);
}
static int32_t next_token(uint64_t prefix)
{
    return (int32_t)(prefix >> 20) & 3;
}

struct world w;
uint32_t world_window, world_long_from;
enum world_states world_states;
bool world_short;
uint32_t world_state_pages;

static uint32_t n_group(void)
{
    return world_window || world_states ? 2 : 1;
}

void world_init(uint64_t seed, uint32_t n_pool, uint32_t n_page, uint32_t rows_max, uint32_t rows_first)
{
    struct hearth_err e;
    memset(&w, 0, sizeof w);
    w.now = 1;
    rng_state = seed * 1234567 + 99;
    sched_init(&w.s, rows_max, BATCH_SEQS_MAX);
    w.n_pool = n_pool;
    for (uint32_t i = 0; i < n_pool; i++) {
        struct kv_shape shape[] = {{n_page, 0}, {kv_most(world_window, rows_max) + rnd(12), world_window}};
        if (world_states)
            shape[1] = (struct kv_shape){world_state_pages ? world_state_pages : 4 + rnd(20), .state = true,
                                         .within = world_states == STATES_WITHIN};
        assert_int_equal(kv_cache_new(&w.pool[i].group.kv, shape, n_group(), &e), 0);
        w.pool[i].group.pace = (struct sched_pace){rows_first, .gap = 1};
        w.pool[i].group.long_from = world_long_from;
        sched_group_add(&w.s, &w.pool[i].group);
    }
}

void world_fini(void)
{
    assert_int_equal(w.s.slots, 0);
    for (int i = 0; i < SEQ_STATES; i++)
        assert_int_equal(w.s.count[i], 0);
    assert_true(w.computed == w.computed_of_ended); /* tokens_computed equals the sum of the usages */
    for (uint32_t i = 0; i < w.n_pool; i++) {
        for (uint32_t g = 0; g < n_group(); g++) {
            struct kv_counts c;
            kv_count(w.pool[i].group.kv, g, &c);
            assert_int_equal(c.held, 0);
        }
        assert_true(kv_check(w.pool[i].group.kv));
        sched_group_remove(&w.s, &w.pool[i].group);
        kv_cache_free(w.pool[i].group.kv);
    }
    sched_fini(&w.s);
}

struct request *submit(struct pool *pool, int64_t uid, const int32_t *prompt, uint32_t n, uint32_t max)
{
    return submit_as(pool, uid, 0, CLASS_INTERACTIVE, prompt, n, max);
}

struct request *submit_as(struct pool *pool, int64_t uid, int64_t client, enum seq_class class, const int32_t *prompt,
                          uint32_t n, uint32_t max)
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
    r->seq->client = client;
    r->seq->class = class;
    r->seq->n_prompt = n;
    r->seq->n_limit = r->n_limit;
    sched_push(&w.s, &pool->group, r->seq, w.now);
    return r;
}

void end(struct request *r)
{
    struct seq *q = r->seq;
    r->reused = q->n_reused;
    r->computed = q->n_accounted - q->n_reused;
    w.computed_of_ended += r->computed;
    r->live = false;
    w.n_done++;
    sched_end(&w.s, q, q->n_tokens);
}

/* Checks the state after `at` tokens, whose hash is h: the step continues from it, or gives it. */
static void check_state(struct device *d, const struct plan_seq *ps, uint32_t at, uint64_t h)
{
    const struct kv_state *s = &ps->seq->kv.state[1];
    if (at == ps->pos0) {
        assert_true(s->has[0] && s->page[0] < MAX_PAGES);
        assert_true(d->memory[1][s->page[0]][0] == h);
    }
    if (at == ps->pos0 + ps->n_within && ps->n_within) {
        assert_true(s->has[2] && s->page[2] < MAX_PAGES && ps->n_within < ps->n_row);
        d->memory[1][s->page[2]][0] = h;
    }
    if (at == ps->pos0 + ps->n_row) {
        assert_true(s->has[1] && s->page[1] < MAX_PAGES);
        d->memory[1][s->page[1]][0] = h;
    }
}

/* Runs the plan as the device would. */
void run_plan(const struct plan *p, int32_t *sampled)
{
    struct pool *pool = (struct pool *)p->group;
    struct device *d = &pool->dev;
    struct kv_action a;
    while (kv_next_action(pool->group.kv, &a)) {
        if (a.kind == KV_COPY)
            memcpy(d->memory[a.group][a.page], d->memory[a.group][a.from], sizeof d->memory[0][0]);
        else
            memset(d->memory[a.group][a.page], 0, sizeof d->memory[0][0]);
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
        uint64_t h = root(q->uid, q->kv.freq_set);
        for (uint32_t pos = 0; pos < ps->pos0 + ps->n_row; pos++) {
            uint64_t *cell = &d->memory[0][q->kv.page[0][pos / KV_PAGE]][pos % KV_PAGE];
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
            if (world_states && pos + 1 >= ps->pos0)
                check_state(d, ps, pos + 1, h);
            if (!world_window || pos < kv_first_visible(ps->pos0, world_window))
                continue;
            uint32_t page = q->kv.page[1][pos / KV_PAGE];
            assert_true(page < MAX_PAGES);
            if (pos < ps->pos0)
                assert_true(d->memory[1][page][pos % KV_PAGE] == h);
            else
                d->memory[1][page][pos % KV_PAGE] = h;
        }
        if (ps->sample) {
            assert_false(others); /* sequences that sample come first */
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

void finish_step(void)
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

/* Takes back the step that was planned last. */
static void undo_step(const struct plan *p)
{
    for (uint32_t i = 0; i < p->n_seq; i++)
        sched_undo(&w.s, &p->seq[i]);
    w.n_in_flight--;
}

/* Plans a step and runs it. False if there is none, or if the maximum is in flight. */
static bool begin_step(uint32_t max_in_flight)
{
    struct plan p;
    if (w.n_in_flight == max_in_flight)
        return false;
    for (uint32_t i = 0; i < w.n_pool && world_short; i++)
        w.pool[i].group.rows_short = rnd(4);
    if (!sched_next(&w.s, &p, w.now))
        return false;
    uint32_t at = (w.first + w.n_in_flight++) % IN_FLIGHT_MAX;
    w.in_flight[at].plan = p;
    assert_true(!p.group->rows_short || p.n_row <= p.group->rows_short);
    if (world_short && !rnd(4)) { /* refused: it did nothing, and others may be in flight */
        undo_step(&p);
        return true;
    }
    if (world_states && max_in_flight == 1 && !rnd(8)) { /* stopped: what it has written is undefined */
        for (uint32_t i = 0; i < p.n_seq; i++) {
            const struct kv_state *s = &p.seq[i].seq->kv.state[1];
            struct pool *pool = (struct pool *)p.group;
            for (int k = 1; k <= 1 + (p.seq[i].n_within > 0); k++)
                pool->dev.memory[1][s->page[k]][0] = rnd(1000);
        }
        undo_step(&p);
        return true;
    }
    run_plan(&p, w.in_flight[at].token);
    w.steps++;
    w.rows += p.n_row;
    w.computed += p.n_accounted;
    return true;
}

/* One iteration of the engine's loop. False when there is nothing left to do. */
bool turn(uint32_t max_in_flight)
{
    if (begin_step(max_in_flight))
        return true;
    if (!w.n_in_flight)
        return false;
    finish_step();
    return true;
}

void check_tokens(const struct request *r)
{
    uint64_t h[] = {root(r->uid, 0), root(r->uid, 1)};
    for (uint32_t i = 0; i < r->n_prompt + r->n_got; i++) {
        int32_t id = i < r->n_prompt ? r->prompt[i] : r->got[i - r->n_prompt];
        if (i >= r->n_prompt)
            assert_int_equal(id, next_token(h[world_long_from && i > world_long_from]));
        for (int set = 0; set < 2; set++)
            h[set] = extend(h[set], id);
    }
}

/* A machine whose steps take time, from which the cost model learns. */
const double c_step = 0.05, c_decode = 5e-3, c_prompt = 12e-3, c_key = 2e-6;
static double seconds_of(const struct cost_work *k)
{
    return c_step + c_decode * k->decode + c_prompt * k->prompt + c_key * k->keys;
}
/* An iteration on that machine: plans as many steps as may be in flight, and finishes the first. */
static double timed(uint32_t max_in_flight)
{
    while (begin_step(max_in_flight)) {
    }
    if (!w.n_in_flight)
        return 0;
    struct plan *p = &w.in_flight[w.first].plan;
    double seconds = seconds_of(&p->work);
    w.now += seconds;
    cost_learn(&p->group->cost, &p->work, seconds);
    finish_step();
    return seconds;
}

double timed_turn(void)
{
    return timed(1);
}

double timed_turn_ahead(void)
{
    return timed(2);
}
