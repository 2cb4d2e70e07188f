/* toy-world.c - the loop thread's side of the engine's interface; see toy.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/sched/op-table.h"
#include "tests/unit/core/toy.h"

void world_open_with(struct world *w, const struct engine_params *more, uint32_t max_in_flight, bool gpu)
{
    static char name[] = "toy.gguf";
    struct engine_params p = *more;
    struct hearth_err e;
    p.backend = "toy";
    p.variant = "auto";
    p.checked = "/nowhere/checked";
    p.kv_bytes = (uint64_t)toy_pages * toy_layers * TOY_PAGE_BYTES;
    memset(w, 0, sizeof *w);
    toy_max_in_flight = max_in_flight;
    toy_fail_at = toy_fail_pos = 0;
    toy_fails = HEARTH_EDEVICE;
    toy_gpu = gpu;
    toy_no_load = toy_distrusted = false;
    toy_refuses = 0;
    toy_no_slot = 0;
    toy_checks = toy_loads = toy_pools = 0;
    w->m.hp.n_vocab = VOCAB;
    w->m.hp.n_ctx = MAX_LEN;
    w->m.path = name;
    w->m.vocab = (struct vocab *)backends[0]; /* any pointer: only vocab_is_end of toy.c sees it */
    assert_int_equal(engine_open(&w->eng, &p, &e), 0);
}

void world_open_on(struct world *w, uint32_t max_in_flight, bool gpu)
{
    world_open_with(w, &(struct engine_params){0}, max_in_flight, gpu);
}

void world_open(struct world *w, uint32_t max_in_flight)
{
    world_open_on(w, max_in_flight, false);
}

void entry_fini(struct model_entry *m)
{
    for (struct reason *r; (r = m->reasons); free(r))
        m->reasons = r->next;
    for (struct op_table *o; (o = m->op_tables); free(o))
        m->op_tables = o->next;
}

void world_close(struct world *w)
{
    assert_true(engine_close(w->eng, 30));
    entry_fini(&w->m);
}

struct seq *make(struct world *w, struct heard *h, const int32_t *prompt, uint32_t n, uint32_t max)
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

void hear(struct world *w, struct engine_event *ev)
{
    switch (ev->kind) {
    case EV_ADMIT: {
        struct heard *h = ((struct event_admit *)ev)->owner;
        assert_false(h->admitted);
        h->admitted = true;
        break;
    }
    case EV_PROMPT: {
        struct event_prompt *ep = (struct event_prompt *)ev;
        struct heard *h = ep->owner;
        assert_true(h->admitted && !h->ended && !h->n_got && ep->done < ep->total);
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
        w->told_host = atomic_load(&((struct event_model *)ev)->model->host_bytes);
        break;
    case EV_LOADED:
    case EV_UNLOADED:
        w->answered = true;
        w->answer = ((struct event_model *)ev)->err;
        break;
    case EV_FREED:
        break;
    case EV_KV:
        w->n_kv[((struct event_kv *)ev)->what.kind]++;
        break;
    case EV_FINISHED:
        w->finished = true;
        break;
    case EV_IDLE:
        w->n_idle++;
        break;
    case EV_RELIEVED:
        w->n_relieved++;
        break;
    case EV_YIELDED:
        w->answered = true;
        w->n_yielded++;
        w->answer = ((struct event_yield *)ev)->err;
        w->freed = ((struct event_yield *)ev)->freed;
        w->free = ((struct event_yield *)ev)->free;
        break;
    case EV_PARKED:
        w->n_parked[((struct event_parked *)ev)->parked]++;
        break;
    case EV_FATAL:
        w->fatal = ((struct event_fatal *)ev)->err;
        break;
    }
    engine_event_free(ev);
}

void hear_one(struct world *w)
{
    struct engine_event *ev;
    while (!(ev = engine_next(w->eng))) {
        struct pollfd pfd = {.fd = engine_fd(w->eng), .events = POLLIN};
        assert_int_equal(poll(&pfd, 1, 30000), 1);
        engine_take(w->eng);
    }
    hear(w, ev);
}

void hear_all(struct world *w)
{
    while (w->live)
        hear_one(w);
}

void ask(struct world *w, void (*what)(struct engine *, struct model_entry *, void *))
{
    w->answered = false;
    what(w->eng, &w->m, w);
    while (!w->answered)
        hear_one(w);
}

/* The tokens are the prompt's own continuation, and the ending is the right one. */
void check_heard(const struct heard *h)
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

uint32_t rng = 1;
uint32_t rnd(uint32_t n)
{
    rng = rng * 1664525 + 1013904223;
    return (rng >> 8) % n;
}
