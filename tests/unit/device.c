/*
 * device.c - the device thread through its door, with a toy model on a toy backend.
 *
 * The toy computes, instead of attention, a hash over the prefix out of the pages that the engine names, and samples a
 * function of it. So every token tells whether pages, positions, slots and tokens in flight were right, for any number
 * of steps in flight. Also run under the thread sanitizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/kvprint.h"
#include "daemon/engine/trust.h"

enum { VOCAB = 12, END_TOKEN = 0, PAGES = 64, AHEAD = 4, MAX_LEN = 400 };

/* --- the toy --------------------------------------------------------------------------------------------- */

struct device {
    uint64_t memory[PAGES][KV_PAGE];
    uint32_t slot[SLOTS_MAX];
    struct batch b;
    int32_t token[BATCH_ROWS_MAX];
    struct batch_seq seq[BATCH_SEQS_MAX];
    uint64_t row[BATCH_ROWS_MAX]; /* prefix hash of each row of the step */
    uint32_t out_row[BATCH_ROWS_MAX];
    struct {
        struct sampled s[BATCH_SEQS_MAX];
        uint32_t n;
    } ring[AHEAD]; /* results of the steps under way */
    uint64_t submitted, waited;
    uint32_t n_pool;
};
static uint32_t toy_ahead;
static uint64_t toy_fail_at; /* the step_wait that fails; 0 = none */
static bool toy_no_load, toy_gpu, toy_distrusted;
static uint32_t toy_checks;                /* self-checks asked for */
static _Atomic double toy_now, toy_step_s; /* a clock that goes on with the steps, and by how much */
static uint64_t toy_load_steps;            /* loading goes on until others have done so many */

static uint64_t extend(uint64_t h, int32_t id)
{
    return ((h ^ (uint64_t)(uint32_t)id) * 0xff51afd7ed558ccdu + 0x632be59bd9b4e019u) | 1;
}
static const uint64_t root = 0x9e3779b97f4a7c15u;

static float toy_logit(uint64_t prefix, uint32_t id)
{
    return (float)(extend(prefix, (int32_t)id + 77) >> 44);
}
/* The best logit; the end token is rare. */
static uint32_t toy_next(uint64_t prefix)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < VOCAB; i++)
        if (toy_logit(prefix, i) > toy_logit(prefix, best))
            best = i;
    return best;
}

static int toy_open(struct device **out, const struct device_params *p, struct hearth_err *e)
{
    (void)p, (void)e;
    *out = calloc(1, sizeof **out);
    return 0;
}
static void toy_close(struct device *d)
{
    assert_int_equal(d->n_pool, 0); /* everything was given back */
    free(d);
}
static void toy_info(struct device *d, struct device_info *out)
{
    (void)d;
    *out = (struct device_info){.name = "toy",
                                .gpu = toy_gpu,
                                .kv_type = DT_F32,
                                .ahead = toy_ahead,
                                .mem_total = 1 << 30,
                                .mem_free = 1 << 30};
}
/* The same toy, as the CPU beside it: no steps ahead. */
static void toy_cpu_info(struct device *d, struct device_info *out)
{
    (void)d;
    *out = (struct device_info){.name = "toy's CPU", .kv_type = DT_F32, .ahead = 1, .mem_total = 1 << 30};
}
static int toy_reserve(struct device *d, const struct workspace_dims *dims, struct hearth_err *e)
{
    (void)d, (void)dims, (void)e;
    return 0;
}
static int toy_kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e)
{
    (void)e;
    assert_true(desc->n_page <= PAGES);
    d->n_pool++;
    *out = (struct kv_pool *)d->memory;
    return 0;
}
static void toy_kv_free(struct device *d, struct kv_pool *p)
{
    (void)p;
    d->n_pool--;
}
static void toy_kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src)
{
    (void)p;
    memcpy(d->memory[dst], d->memory[src], sizeof d->memory[0]);
}
static void toy_kv_clear(struct device *d, struct kv_pool *p, uint32_t page)
{
    (void)p;
    memset(d->memory[page], 0, sizeof d->memory[0]);
}
static void toy_step_begin(struct device *d, const struct batch *b, uint64_t key)
{
    (void)key;
    assert_true(d->submitted - d->waited < toy_ahead);
    d->b = *b;
    d->ring[d->submitted % AHEAD].n = 0;
    for (uint32_t i = 0; i < b->n_seq; i++) {
        const struct batch_seq *s = &b->seq[i];
        uint64_t h = s->pos0 ? d->memory[s->pages[(s->pos0 - 1) / KV_PAGE]][(s->pos0 - 1) % KV_PAGE] : root;
        for (uint32_t r = 0; r < s->n_row; r++) {
            uint32_t pos = s->pos0 + r;
            int32_t id = b->token[s->row0 + r];
            h = extend(h, id < 0 ? (int32_t)d->slot[-1 - id] : id);
            d->memory[s->pages[pos / KV_PAGE]][pos % KV_PAGE] = h;
            d->row[s->row0 + r] = h;
        }
    }
    memcpy(d->out_row, b->out_row, b->n_out * sizeof *b->out_row);
}
static void toy_sample(struct device *d, const struct op_sample *op)
{
    for (uint32_t i = 0; i < op->n; i++) {
        uint32_t id = toy_next(d->row[d->out_row[i]]);
        d->slot[op->slot[i]] = id;
        d->ring[d->submitted % AHEAD].s[i] = (struct sampled){.slot = op->slot[i], .token = id};
    }
    d->ring[d->submitted % AHEAD].n = op->n;
}
static uint64_t toy_step_end(struct device *d)
{
    return ++d->submitted;
}
static int toy_step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    assert_true(ticket == ++d->waited); /* in order, each once */
    if (ticket == toy_fail_at)
        return err_set(e, HEARTH_EDEVICE, "the toy broke");
    assert_int_equal(n, d->ring[(ticket - 1) % AHEAD].n);
    memcpy(out, d->ring[(ticket - 1) % AHEAD].s, n * sizeof *out);
    toy_now = toy_now + toy_step_s;
    return 0;
}
static int toy_slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                        uint32_t n_history, uint32_t n_vocab, struct hearth_err *e)
{
    (void)d, (void)slot, (void)p, (void)history, (void)n_history, (void)n_vocab, (void)e;
    return 0;
}
static int toy_act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    (void)a, (void)e;
    assert_int_equal(n_row, 1);
    assert_true(d->waited == d->submitted); /* logits live until the next step */
    for (uint32_t i = 0; i < VOCAB; i++)
        out[i] = toy_logit(d->row[d->out_row[row0]], i);
    return 0;
}

static const struct backend toy = {
    .name = "toy",
    .open = toy_open,
    .close = toy_close,
    .info = toy_info,
    .reserve = toy_reserve,
    .kv_new = toy_kv_new,
    .kv_free = toy_kv_free,
    .kv_copy = toy_kv_copy,
    .kv_clear = toy_kv_clear,
    .step_begin = toy_step_begin,
    .sample = toy_sample,
    .step_end = toy_step_end,
    .step_wait = toy_step_wait,
    .slot_set = toy_slot_set,
    .act_read = toy_act_read,
};
/* One step at a time. */
static void toy_cpu_step_begin(struct device *d, const struct batch *b, uint64_t key)
{
    assert_int_equal(d->submitted, d->waited);
    toy_step_begin(d, b, key);
}
static const struct backend toy_cpu = {
    .name = "cpu",
    .open = toy_open,
    .close = toy_close,
    .info = toy_cpu_info,
    .reserve = toy_reserve,
    .kv_new = toy_kv_new,
    .kv_free = toy_kv_free,
    .kv_copy = toy_kv_copy,
    .kv_clear = toy_kv_clear,
    .step_begin = toy_cpu_step_begin,
    .sample = toy_sample,
    .step_end = toy_step_end,
    .step_wait = toy_step_wait,
    .slot_set = toy_slot_set,
    .act_read = toy_act_read,
};
const struct backend *const backends[] = {&toy, &toy_cpu, NULL};

int trust_model(const struct model *m, const char *record, struct trust *out, struct hearth_err *e)
{
    (void)e;
    toy_checks++;
    assert_string_equal(record, "/nowhere/checked");
    assert_ptr_equal(m->be, &toy); /* the CPU is not asked */
    *out = (struct trust){.ok = !toy_distrusted};
    snprintf(out->why, sizeof out->why, "the toy cannot count");
    return 0;
}

int kv_print_make(struct kv_print *out, const struct model *m, const struct kv_desc *desc, struct hearth_err *e)
{
    (void)m, (void)e;
    *out = (struct kv_print){.page_bytes = kv_page_bytes(desc)};
    return 0;
}

int model_load(struct model **out, struct gguf *g, const struct backend *be, struct device *dev, model_progress *cb,
               void *arg, struct hearth_err *e)
{
    if (toy_no_load)
        return err_set(e, HEARTH_EBADMODEL, "the toy does not load");
    for (uint64_t steps = dev->submitted, i = 1; i <= 20 || dev->submitted < steps + toy_load_steps; i++)
        if (!cb(arg, i < 20 ? i : 20, 20))
            return err_set(e, HEARTH_ECANCELLED, "the engine is closing");
    *out = calloc(1, sizeof **out);
    (*out)->be = be;
    (*out)->dev = dev;
    (*out)->gguf = g;
    return 0;
}
int gguf_check(const struct gguf *g, struct hearth_err *e)
{
    (void)g, (void)e;
    return 0;
}
void model_free(struct model *m)
{
    free(m);
}
void model_kv_desc(const struct model *m, enum dtype type, struct kv_desc *out)
{
    (void)m;
    *out = (struct kv_desc){.n_layer = 1, .n_kv = 1, .d_head = 2, .type = type};
}
void model_workspace(const struct model *m, struct workspace_dims *dims)
{
    (void)m;
    dims->n_vocab = VOCAB;
}
void model_forward(const struct model *m)
{
    (void)m;
}
const struct dtype_info *dtype_get(int type)
{
    (void)type;
    return NULL;
}

uint64_t dtype_bytes(int type, uint64_t n)
{
    (void)type;
    return 4 * n;
}
bool vocab_is_end(const struct vocab *v, int32_t id)
{
    return v && id == END_TOKEN;
}

/* --- the loop thread's side ------------------------------------------------------------------------------ */

struct heard {
    uint64_t id;
    int32_t prompt[MAX_LEN], got[MAX_LEN];
    uint32_t n_prompt, n_got, max;
    bool admitted, ended;
    struct event_end end;
    int32_t greedy[8];
    uint32_t n_greedy, best[MAX_LEN], n_best;
};

struct world {
    struct engine *eng;
    struct resident m;
    uint64_t last_id;
    uint32_t live, n_progress;
    bool answered;
    struct hearth_err answer, fatal;
};

static void world_open_on(struct world *w, uint32_t ahead, bool gpu)
{
    struct engine_params p = {.backend = "toy",
                              .variant = "auto",
                              .checked = "/nowhere/checked",
                              .kv_bytes = (uint64_t)PAGES * 2 * KV_PAGE * 2 * 4};
    struct hearth_err e;
    memset(w, 0, sizeof *w);
    toy_ahead = ahead;
    toy_fail_at = 0;
    toy_gpu = gpu;
    toy_no_load = toy_distrusted = false;
    toy_checks = 0;
    w->m.hp.n_vocab = VOCAB;
    w->m.hp.n_ctx = MAX_LEN;
    w->m.vocab = (struct vocab *)&toy; /* any pointer: only vocab_is_end above sees it */
    assert_int_equal(engine_open(&w->eng, &p, &e), 0);
}

static void world_open(struct world *w, uint32_t ahead)
{
    world_open_on(w, ahead, false);
}

static struct seq *make(struct world *w, struct heard *h, const int32_t *prompt, uint32_t n, uint32_t max)
{
    memset(h, 0, sizeof *h);
    memcpy(h->prompt, prompt, n * sizeof *prompt);
    h->n_prompt = n;
    h->max = max;
    struct seq *q = seq_new(prompt, n, n + max);
    q->id = h->id = ++w->last_id;
    q->owner = h;
    q->model = &w->m;
    q->n_prompt = n;
    q->n_limit = q->n_wanted = n + max;
    w->live++;
    return q;
}

static void hear(struct world *w, struct engine_event *ev)
{
    switch (ev->kind) {
    case EV_ADMIT: {
        struct heard *h = ((struct event_admit *)ev)->owner;
        assert_false(h->admitted);
        h->admitted = true;
        break;
    }
    case EV_STEP: {
        struct event_step *st = (struct event_step *)ev;
        for (uint32_t i = 0; i < st->n; i++) {
            struct heard *h = st->token[i].owner;
            assert_true(h->admitted && !h->ended);
            h->got[h->n_got++] = st->token[i].id;
        }
        break;
    }
    case EV_END: {
        struct event_end *end = (struct event_end *)ev;
        struct heard *h = end->owner;
        assert_false(h->ended);
        h->ended = true;
        h->end = *end;
        w->live--;
        if (end->eval) {
            const struct eval *e = end->eval;
            memcpy(h->greedy, e->greedy, e->n_greedy * sizeof *e->greedy);
            h->n_greedy = e->n_greedy;
            for (uint32_t i = 0; i < e->n_row; i++)
                h->best[h->n_best++] = e->best[(size_t)i * e->n_per_row].id;
        }
        break;
    }
    case EV_PROGRESS:
        w->n_progress++;
        break;
    case EV_LOADED:
    case EV_UNLOADED:
        w->answered = true;
        w->answer = ((struct event_model *)ev)->err;
        break;
    case EV_KV: /* without a folder and host memory there is nothing to tell */
    case EV_FINISHED:
        fail();
        break;
    case EV_FATAL:
        w->fatal = ((struct event_fatal *)ev)->err;
        break;
    }
    engine_event_free(ev);
}

static void hear_one(struct world *w)
{
    struct engine_event *ev;
    while (!(ev = engine_next(w->eng))) {
        struct pollfd pfd = {.fd = engine_fd(w->eng), .events = POLLIN};
        assert_int_equal(poll(&pfd, 1, 30000), 1);
        engine_take(w->eng);
    }
    hear(w, ev);
}

static void hear_all(struct world *w)
{
    while (w->live)
        hear_one(w);
}

static void ask(struct world *w, void (*what)(struct engine *, struct resident *, void *))
{
    w->answered = false;
    what(w->eng, &w->m, w);
    while (!w->answered)
        hear_one(w);
}

static uint64_t prefix_of(const int32_t *id, uint32_t n)
{
    uint64_t h = root;
    for (uint32_t i = 0; i < n; i++)
        h = extend(h, id[i]);
    return h;
}

/* The tokens are the prompt's own continuation, and the ending is the right one. */
static void check_heard(const struct heard *h)
{
    uint64_t p = prefix_of(h->prompt, h->n_prompt);
    for (uint32_t i = 0; i < h->n_got; i++) {
        assert_int_equal(h->got[i], toy_next(p));
        p = extend(p, h->got[i]);
    }
    if (h->end.reason == END_LENGTH)
        assert_int_equal(h->n_got, h->max);
    if (h->end.reason == END_STOP)
        assert_int_equal(toy_next(p), END_TOKEN);
}

static uint32_t rng = 1;
static uint32_t rnd(uint32_t n)
{
    rng = rng * 1664525 + 1013904223;
    return (rng >> 8) % n;
}

static void any_number_of_steps_in_flight(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= AHEAD; ahead++) {
        static struct heard h[120];
        struct world w;
        uint64_t computed = 0;
        uint32_t stops = 0;
        world_open(&w, ahead);
        for (int i = 0; i < 120; i++) {
            int32_t prompt[90];
            uint32_t n = 1 + rnd(90), k = 0;
            if (i && rnd(2)) /* another turn of an earlier one */
                for (; k < n && k < h[i / 2].n_prompt; k++)
                    prompt[k] = h[i / 2].prompt[k];
            for (; k < n; k++)
                prompt[k] = (int32_t)(1 + rnd(VOCAB - 1));
            engine_submit(w.eng, make(&w, &h[i], prompt, n, rnd(8) ? rnd(60) : 0));
            if (rnd(10) == 0)
                engine_cancel(w.eng, h[rnd((uint32_t)i + 1)].id);
            while (w.live > 20)
                hear_one(&w);
        }
        hear_all(&w);
        for (int i = 0; i < 120; i++) {
            check_heard(&h[i]);
            computed += h[i].end.n_computed;
            stops += h[i].end.reason == END_STOP;
            assert_true(h[i].end.reason == END_CANCELLED || h[i].end.n_computed >= 1);
            assert_true(h[i].end.reason == END_CANCELLED || h[i].end.n_reused + h[i].end.n_computed == h[i].n_prompt);
        }
        const struct engine_counters *c = engine_counters(w.eng);
        assert_true(atomic_load(&c->tokens_computed) == computed);
        assert_true(atomic_load(&c->rows) > atomic_load(&c->steps));
        assert_true(stops > 0);
        assert_true(w.n_progress > 0);
        assert_true(engine_close(w.eng, 30));
    }
}

static void cancelled_before_it_began(void **state)
{
    (void)state;
    static struct heard h[2];
    struct world w;
    world_open(&w, 2);
    engine_hold(w.eng, true);
    engine_submit(w.eng, make(&w, &h[0], (int32_t[]){1, 2, 3}, 3, 50));
    engine_submit(w.eng, make(&w, &h[1], (int32_t[]){3, 2, 1}, 3, 50));
    engine_cancel(w.eng, h[0].id);
    engine_cancel(w.eng, 12345); /* nobody */
    ask(&w, engine_load);        /* all of this has arrived */
    engine_hold(w.eng, false);
    hear_all(&w);
    assert_int_equal(h[0].end.reason, END_CANCELLED);
    assert_false(h[0].admitted);
    assert_int_equal(h[0].end.n_computed, 0);
    assert_int_not_equal(h[1].end.reason, END_CANCELLED);
    check_heard(&h[1]);
    assert_true(engine_close(w.eng, 30));
}

static void a_failed_device_ends_everything(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead <= AHEAD; ahead++) {
        static struct heard h[10];
        struct world w;
        world_open(&w, ahead);
        toy_fail_at = 20;
        w.m.vocab = NULL;         /* no end tokens: nobody ends before it */
        engine_hold(w.eng, true); /* until it has them all */
        for (int i = 0; i < 10; i++)
            engine_submit(w.eng, make(&w, &h[i], (int32_t[]){1, 2, 1 + i}, 3, 300));
        ask(&w, engine_load);
        engine_hold(w.eng, false);
        while (!w.fatal.code)
            hear_one(&w);
        assert_int_equal(w.live, 0); /* all had been told */
        uint32_t failed = 0;
        for (int i = 0; i < 10; i++) {
            check_heard(&h[i]);
            if (h[i].end.reason == END_ERROR) {
                assert_string_equal(h[i].end.err.msg, "the toy broke");
                failed++;
            }
        }
        assert_true(failed > 0);
        assert_int_equal(w.fatal.code, HEARTH_EDEVICE);
        assert_true(engine_close(w.eng, 30));
    }
}

static void a_model_that_does_not_load(void **state)
{
    (void)state;
    struct heard a, b;
    struct world w;
    world_open(&w, 1);
    toy_no_load = true;
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1}, 1, 5));
    hear_all(&w);
    assert_int_equal(a.end.reason, END_ERROR);
    assert_int_equal(a.end.err.code, HEARTH_EBADMODEL);
    toy_no_load = false; /* the next request tries again */
    engine_submit(w.eng, make(&w, &b, (int32_t[]){1}, 1, 5));
    hear_all(&w);
    assert_int_not_equal(b.end.reason, END_ERROR);
    check_heard(&b);
    assert_true(engine_close(w.eng, 30));
}

static void eval_is_what_generate_does(void **state)
{
    (void)state;
    static struct heard ev, gen[8];
    struct world w;
    int32_t id[150];
    world_open(&w, AHEAD);
    for (int i = 0; i < 150; i++)
        id[i] = (int32_t)(1 + rnd(VOCAB - 1));
    for (int i = 0; i < 8; i++)
        engine_submit(w.eng, make(&w, &gen[i], (int32_t[]){3, i}, 2, 100));
    struct seq *q = make(&w, &ev, id, 150, 8);
    q->uid = -2;
    q->eval = eval_new(150, 3, VOCAB, 8);
    engine_submit(w.eng, q);
    hear_all(&w);
    assert_int_equal(ev.n_best, 150);
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(ev.best[i], toy_next(prefix_of(id, i + 1)));
    uint64_t p = prefix_of(id, 150);
    for (uint32_t i = 0; i < ev.n_greedy; i++) {
        assert_int_equal(ev.greedy[i], toy_next(p));
        p = extend(p, ev.greedy[i]);
    }
    assert_true(ev.n_greedy == 8 || ev.greedy[ev.n_greedy - 1] == END_TOKEN);
    for (int i = 0; i < 8; i++)
        check_heard(&gen[i]);
    assert_true(engine_close(w.eng, 30));
}

static void a_busy_model_is_not_unloaded(void **state)
{
    (void)state;
    static struct heard h;
    struct world w;
    world_open(&w, 2);
    engine_hold(w.eng, true); /* it cannot end before it was asked */
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 50));
    ask(&w, engine_unload);
    assert_int_equal(w.answer.code, HEARTH_ELIMIT);
    assert_false(h.ended);
    assert_int_equal(h.n_got, 0); /* held: no step was begun */
    engine_hold(w.eng, false);
    hear_all(&w);
    check_heard(&h);
    ask(&w, engine_unload);
    assert_int_equal(w.answer.code, 0);
    assert_false(atomic_load(&w.m.loaded));
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_true(atomic_load(&w.m.loaded));
    assert_true(engine_close(w.eng, 30));
}

/* While a second model comes in, the first one's streams go on. */
static void a_load_does_not_stop_the_others(void **state)
{
    (void)state;
    static struct heard h;
    struct world w;
    world_open(&w, 2);
    w.m.vocab = NULL;
    struct resident second = {.hp = w.m.hp};
    engine_hold(w.eng, true);
    engine_submit(w.eng, make(&w, &h, (int32_t[]){1, 2, 3}, 3, 300));
    ask(&w, engine_load); /* the order before it was carried out: the stream has not begun */
    toy_load_steps = 100; /* would never end if the others had to wait for it */
    engine_load(w.eng, &second, &w);
    engine_hold(w.eng, false);
    w.answered = false;
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    hear_all(&w);
    check_heard(&h);
    assert_int_equal(h.n_got, 300);
    assert_true(engine_close(w.eng, 30));
    toy_load_steps = 0;
}

/* A pool smaller than the context: what cannot fit is refused with the numbers, what may outgrow it ends there. */
static void the_pool_is_a_limit(void **state)
{
    (void)state;
    static struct heard big, grows;
    struct world w;
    int32_t id[MAX_LEN];
    for (int i = 0; i < MAX_LEN; i++)
        id[i] = 1;
    world_open(&w, 2);
    assert_true(engine_close(w.eng, 30));
    struct engine_params p = {.backend = "auto", .variant = "auto", .kv_bytes = 4 * 2 * KV_PAGE * 2 * 4};
    struct hearth_err e;
    assert_int_equal(engine_open(&w.eng, &p, &e), 0);
    engine_submit(w.eng, make(&w, &big, id, 65, 10));
    w.m.vocab = NULL; /* no end tokens */
    engine_submit(w.eng, make(&w, &grows, id, 10, 200));
    hear_all(&w);
    assert_int_equal(big.end.reason, END_ERROR);
    assert_int_equal(big.end.err.code, HEARTH_ECONTEXT);
    assert_int_equal(grows.end.reason, END_CONTEXT);
    assert_int_equal(grows.n_got, 54);
    check_heard(&grows);
    assert_true(engine_close(w.eng, 30));
}

static void closing_with_work_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        static struct heard h[6];
        struct world w;
        world_open(&w, 1 + rnd(AHEAD));
        w.m.vocab = NULL;
        for (int k = 0; k < 6; k++)
            engine_submit(w.eng, make(&w, &h[k], (int32_t[]){1, 2, k}, 3, 300));
        for (uint32_t k = rnd(30); k; k--)
            hear_one(&w);
        assert_true(engine_close(w.eng, 30)); /* leaks would be told by the sanitizer */
    }
}

/* A GPU that fails with one model keeps the others; that one runs on the CPU, beside them, with the same results. */
static void a_distrusted_device(void **state)
{
    (void)state;
    static struct heard h[40];
    struct world w;
    struct resident other = {.path = (char[]){"other"}};
    world_open_on(&w, AHEAD, true);
    ask(&w, engine_load);
    assert_int_equal(w.answer.code, 0);
    assert_true(w.m.on_gpu);
    assert_string_equal(w.m.self_check, "passed");
    assert_int_equal(toy_checks, 1);

    toy_distrusted = true;
    other.hp = w.m.hp;
    other.vocab = w.m.vocab;
    w.answered = false;
    engine_load(w.eng, &other, &w);
    while (!w.answered)
        hear_one(&w);
    assert_int_equal(w.answer.code, 0);
    assert_false(other.on_gpu);
    assert_string_equal(other.self_check, "the toy cannot count");
    assert_int_equal(toy_checks, 2);
    for (int i = 0; i < 40; i++) {
        int32_t prompt[30];
        uint32_t n = 1 + rnd(30);
        for (uint32_t k = 0; k < n; k++)
            prompt[k] = (int32_t)(1 + rnd(VOCAB - 1));
        struct seq *q = make(&w, &h[i], prompt, n, rnd(60));
        if (i % 2)
            q->model = &other;
        engine_submit(w.eng, q);
    }
    hear_all(&w);
    for (int i = 0; i < 40; i++)
        check_heard(&h[i]);
    assert_true(engine_close(w.eng, 30));
    free(other.distrust);
}

/* --- when tokens are handed over ------------------------------------------------------------------------- */

/* The toy's clock for the engine's, and what each hand-over had in it: the linker puts these two functions in the place
 * of the real ones (tests/local.mk). */
static _Atomic bool told_on;
static struct {
    pthread_t loop;
    const struct heard *watched;
    uint32_t n, of[400], tokens[400]; /* hand-overs of the watched one's tokens: how many, and of all sequences */
    bool ends[400];
    double at[400];
    bool admitted, ended; /* alone: before its first token; while the other one runs */
} told;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!told_on || clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, t);
    t->tv_sec = (time_t)toy_now;
    t->tv_nsec = (long)((toy_now - (double)t->tv_sec) * 1e9);
    return 0;
}

void __real_post_send(struct post *p, struct post_list *l);
void __wrap_post_send(struct post *p, struct post_list *l);
void __wrap_post_send(struct post *p, struct post_list *l)
{
    uint32_t of = 0, tokens = 0;
    bool ends = false, its_end = false, admits = false;
    bool events = told_on && !pthread_equal(pthread_self(), told.loop); /* the loop thread sends orders */
    for (struct post_item *i = events ? l->first : NULL; i; i = i->next) {
        const struct event_step *st = (const struct event_step *)i;
        const void *owner = st->ev.kind == EV_ADMIT ? ((const struct event_admit *)i)->owner
                            : st->ev.kind == EV_END ? ((const struct event_end *)i)->owner
                                                    : NULL;
        admits |= st->ev.kind == EV_ADMIT && owner == told.watched;
        its_end |= st->ev.kind == EV_END && owner == told.watched;
        ends |= st->ev.kind == EV_END && owner != told.watched;
        for (uint32_t k = 0; st->ev.kind == EV_STEP && k < st->n; k++) {
            tokens++;
            of += st->token[k].owner == told.watched;
        }
    }
    told.admitted |= admits && told.n == 0 && of == 0;
    told.ended |= its_end && !ends;
    if (of && told.n < 400) {
        told.of[told.n] = of;
        told.tokens[told.n] = tokens;
        told.ends[told.n] = ends || its_end;
        told.at[told.n++] = toy_now;
    }
    __real_post_send(p, l);
}

/* One sequence of `max` tokens, in steps of that length; `beside` it, or `later`, one of a quarter of that
 * begins, and is watched. */
static void tell(uint32_t max, double step, bool beside, bool later)
{
    static struct heard a, b;
    struct world w;
    world_open(&w, 1);
    w.m.vocab = NULL; /* no end tokens */
    ask(&w, engine_load);
    memset(&told, 0, sizeof told);
    told.loop = pthread_self();
    told.watched = beside || later ? &b : &a;
    toy_now = 1000;
    toy_step_s = step;
    told_on = true;
    engine_hold(w.eng, beside);
    engine_submit(w.eng, make(&w, &a, (int32_t[]){1, 2, 3}, 3, max));
    if (later)
        hear_one(&w);
    if (beside || later)
        engine_submit(w.eng, make(&w, &b, (int32_t[]){4, 5, 6}, 3, max / 4));
    engine_hold(w.eng, false);
    hear_all(&w);
    check_heard(&a);
    assert_true(engine_close(w.eng, 30));
    told_on = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < told.n; i++)
        n += told.of[i];
    assert_int_equal(n, told.watched == &b ? max / 4 : max);
    assert_int_equal(told.of[0], 1); /* the first token comes at once, as do the admission before it and the end */
    assert_true(told.admitted && told.ended);
}

static void tokens_are_handed_over_together(void **state)
{
    (void)state;
    const double ms = 1.0 / 1024; /* sums of it are exact */

    /* No time passes: the first token goes alone and at once, the others wait for the end. */
    tell(40, 0, false, false);
    assert_int_equal(told.n, 2);
    assert_int_equal(told.of[1], 39);
    assert_true(told.ends[1]);

    /* Steps of half a millisecond: those of two go together, no more and no fewer. */
    tell(42, ms / 2, false, false);
    for (uint32_t i = 1; i < told.n; i++) {
        double waited = told.at[i] - told.at[i - 1];
        assert_true(told.ends[i] || told.of[i] > 1);
        assert_true(told.ends[i] || (waited >= 2e-3 && waited < 2e-3 + ms));
    }
    assert_in_range(told.n, 42 / 6, 42 / 4 + 2);

    /* Steps of three: nothing waits. */
    tell(20, 3 * ms, false, false);
    assert_int_equal(told.n, 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(told.of[i], 1);

    /* And of one that begins while another's tokens wait. */
    tell(100, 0, true, false);
    tell(300, 0, false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_steps_in_flight),
        cmocka_unit_test(cancelled_before_it_began),
        cmocka_unit_test(a_failed_device_ends_everything),
        cmocka_unit_test(a_distrusted_device),
        cmocka_unit_test(a_model_that_does_not_load),
        cmocka_unit_test(eval_is_what_generate_does),
        cmocka_unit_test(a_busy_model_is_not_unloaded),
        cmocka_unit_test(a_load_does_not_stop_the_others),
        cmocka_unit_test(the_pool_is_a_limit),
        cmocka_unit_test(closing_with_work_under_way),
        cmocka_unit_test(tokens_are_handed_over_together),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
