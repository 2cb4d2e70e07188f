/*
 * toy.h - the device thread with a toy model on a toy backend, for tests that come through its door (engine.h).
 *
 * The toy computes, instead of attention, a hash over the prefix out of the pages that the engine names, and samples a
 * function of it. So every token shows whether pages, positions, slots, tokens in flight and transferred pages were
 * right, for any number of steps in flight. The test takes the loop thread's part.
 */
#ifndef HEARTH_TEST_TOY_H
#define HEARTH_TEST_TOY_H

#include <time.h>

#include "daemon/engine/engine.h"

enum { VOCAB = 12, END_TOKEN = 0, MAX_IN_FLIGHT = 4, MAX_LEN = 400, TOY_PAGE_BYTES = 2 * KV_PAGE * 2 * 4 };

extern uint64_t toy_fail_at;       /* the step_wait that fails; 0 = none */
extern uint64_t toy_load_steps;    /* loading goes on until others have done so many */
extern uint64_t toy_no_slot;       /* parameters with this seed find no room; 0 = none */
extern uint32_t toy_max_in_flight; /* steps, of its device_info */
extern bool toy_no_load, toy_gpu, toy_distrusted;
extern const char *toy_id;  /* of the device; "": none */
extern int toy_refuses;     /* what loading on the toy says, where the toy's CPU takes the model */
extern bool toy_moves_late; /* kv_transfer_done says no at first */
extern uint32_t toy_checks; /* self-checks asked for */
extern uint32_t toy_loads;  /* of models, begun */
/* Matrices of a model that is loaded within a room, and what they take; what the toy reads in a second. */
extern uint32_t toy_matrices;
enum { TOY_MATRICES_MAX = 20, TOY_MATRIX = 100 << 20 };
#define TOY_RATE      1e12
#define TOY_HOST_RATE 1e10
extern uint32_t toy_pages;            /* of the pool: up to 160; 0 = as the engine chooses */
extern uint32_t toy_layers;           /* whose KV is in a page of TOY_PAGE_BYTES each, as far as its size goes */
extern uint64_t toy_granule;          /* pools may grow in multiples of so many bytes; 0: they are whole */
extern _Atomic uint32_t toy_extents;  /* that there is memory for */
extern _Atomic uint32_t toy_mapped;   /* that have it */
extern _Atomic uint32_t toy_refusals; /* where there was none */
extern _Atomic uint64_t toy_free;     /* bytes */
extern uint32_t toy_pools;            /* there is memory for; 0 = any number */
/* > 0: its device_info.decode_rows, and a row's hash also tells how it was computed: rows of INVARIANT_PROMPT add
 * TOY_PROMPT to their ids, those whose bits may depend on their step also the step's number of rows. */
extern uint32_t toy_decode_rows;
extern bool toy_prompt_quick; /* rows of INVARIANT_PROMPT are quick there */
enum { TOY_PROMPT = 1000 };
extern _Atomic uint64_t toy_mem_cached; /* bytes that it keeps in copies */
/* A clock that goes on with the steps: by so much each, and for each of their rows; and where host memory is pinned. */
extern _Atomic double toy_now, toy_step_s, toy_row_s, toy_slab_s;
/* toy-clock.c: toy_now is the time; and what the time is. */
extern _Atomic bool toy_clock_on;
int __real_clock_gettime(clockid_t clock, struct timespec *t);
extern _Atomic uint32_t toy_chunks;  /* steps of more than two rows that were under way at once, at most */
extern _Atomic uint32_t toy_endless; /* a step of more rows goes on until it is stopped; 0 = none */
extern _Atomic uint32_t toy_stopped; /* steps that were */
extern _Atomic uint64_t toy_hold_at; /* the step after so many waits until this is 0; 0: none */
extern _Atomic bool toy_held;        /* it does */
extern _Atomic bool toy_in_endless;  /* one goes on */
extern _Atomic bool toy_info_waits;  /* the device is not described until this is false */
extern _Atomic bool toy_in_info;     /* somebody waits for that */
uint64_t extend(uint64_t prefix, int32_t id);
uint32_t toy_next(uint64_t prefix); /* the token after that */

/* A request and what was heard of it. */
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
    struct model_entry m;
    uint64_t last_id;
    uint32_t live, n_progress, n_idle, n_parked[2]; /* went on, waits */
    uint64_t freed, free;                           /* of EV_YIELDED */
    bool answered, finished;
    uint64_t told_host; /* of the model's weights, with EV_PROGRESS last */
    uint32_t n_kv[3];   /* EV_KV, by kind */
    struct hearth_err answer, fatal;
};

void world_open(struct world *w, uint32_t max_in_flight);
void world_open_on(struct world *w, uint32_t max_in_flight, bool gpu);
/* With the given parameters of the tiers. */
void world_open_with(struct world *w, const struct engine_params *more, uint32_t max_in_flight, bool gpu);
/* The engine ends in 30 s, and what it left with the world's model is freed; of another model entry_fini() does that.
 */
void world_close(struct world *w);
void entry_fini(struct model_entry *m);

struct seq *make(struct world *w, struct heard *h, const int32_t *prompt, uint32_t n, uint32_t max);
void hear(struct world *w, struct engine_event *ev);
void hear_one(struct world *w);
void hear_all(struct world *w);
void ask(struct world *w, void (*what)(struct engine *, struct model_entry *, void *));
uint64_t prefix_of(const int32_t *id, uint32_t n);
/* The tokens are the prompt's own continuation, and the ending is the right one. */
void check_heard(const struct heard *h);

extern uint32_t rng; /* the seed of rnd() */
uint32_t rnd(uint32_t n);

#endif
