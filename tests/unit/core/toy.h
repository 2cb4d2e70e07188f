/*
 * toy.h - the device thread with a toy model on a toy backend, for tests that use the engine's interface (engine.h).
 *
 * Instead of attention the toy computes a hash over the prefix, read from the pages that the engine names, and samples
 * a function of it. So every token shows whether pages, positions, slots, tokens in flight and transferred pages were
 * right, for any number of steps in flight. The test takes the part of the loop thread.
 */
#ifndef HEARTH_TEST_TOY_H
#define HEARTH_TEST_TOY_H

#include <time.h>

#include "daemon/engine/engine.h"

enum { VOCAB = 12, END_TOKEN = 0, MAX_IN_FLIGHT = 4, MAX_LEN = 400, TOY_PAGE_BYTES = 2 * KV_PAGE * 2 * 4 };

extern uint64_t toy_fail_at;    /* the number of the step that computes nothing and fails; 0 = none */
extern uint32_t toy_fail_pos;   /* that step is the first one with a row at this position or later; 0 = by number */
extern uint32_t toy_fail_read;  /* the number, counted from now on, of the act_read() that fails; 0 = none */
extern int toy_fails;           /* the error with which it does */
extern uint64_t toy_load_steps; /* a load continues until the other models have done so many steps */
/* Set to LOAD_BREAKS, the next load stops at LOAD_HELD; set to LOAD_FAILS then, it takes what has arrived, and fails.
 */
extern _Atomic enum toy_load { LOAD_WORKS, LOAD_BREAKS, LOAD_HELD, LOAD_FAILS } toy_load;
extern uint64_t toy_no_slot; /* setting the parameters of a slot with this seed fails for lack of memory; 0 = none */
extern _Atomic uint64_t toy_slot_room; /* ... unless the toy holds less than this otherwise, as counted for toy_sums */
/* Bytes for the sums of a step's rows, a byte for each position that a row sees, and for what the toy holds otherwise
 * (cached copies, and 1,000 bytes for each mapped extent): a step that needs more is refused. And how many were. */
extern _Atomic uint64_t toy_sums;
extern _Atomic uint32_t toy_refused_steps;
extern uint32_t toy_sums_each;     /* bytes that it says its steps need for each token of a context */
extern uint32_t toy_max_in_flight; /* max_in_flight of its device_info */
extern bool toy_no_load, toy_gpu, toy_distrusted;
extern const char *toy_id; /* the device's id; "": none */
extern int toy_refuses; /* the error with which the toy refuses to load a model that the toy's CPU accepts; 0 = none */
extern bool toy_moves_late;          /* kv_transfer_done() is false at first */
extern _Atomic bool toy_moves_never; /* ... and with toy_moves_late for as long as this is set: waits end early */
extern uint32_t toy_checks;          /* self-checks that were requested */
extern uint32_t toy_loads;           /* loads of models that were begun */
/* The number of matrices of a model that is loaded into limited room, and the size of one; the bytes per second that
 * the toy reads. */
extern uint32_t toy_matrices;
enum { TOY_MATRICES_MAX = 20, TOY_MATRIX = 100 << 20 };
#define TOY_RATE      1e12
#define TOY_HOST_RATE 1e10
extern uint32_t toy_pages;   /* pages of the pool: up to 160; 0 = the engine chooses */
extern uint32_t toy_layers;  /* layers whose KV is in a page, of TOY_PAGE_BYTES each; counts only for the size */
extern uint64_t toy_granule; /* the granule, in bytes, in which pools may grow; 0: they are allocated whole */
extern _Atomic uint32_t toy_extents;  /* extents for which there is memory */
extern _Atomic uint32_t toy_mapped;   /* extents that are mapped */
extern _Atomic uint32_t toy_refusals; /* attempts to map an extent that failed */
extern _Atomic uint64_t toy_free;     /* bytes of free memory */
extern uint32_t toy_pools;            /* the number of pools for which there is memory; 0 = any */
/* > 0: decode_rows of its device_info, and a row's hash also depends on how it was computed: rows of INVARIANT_PROMPT
 * add TOY_PROMPT to their ids, those of INVARIANT_BATCH TOY_BATCH, and rows whose bits may depend on their step also
 * the step's number of rows. */
extern uint32_t toy_decode_rows;
extern bool toy_prompt_quick; /* INVARIANT_PROMPT is quick for its models */
enum { TOY_PROMPT = 1000, TOY_BATCH = 500 };
extern _Atomic uint64_t toy_mem_cached; /* bytes that it holds in its weight cache */
extern _Atomic uint64_t toy_cache_most; /* bytes that it may hold there */
/* The toy's clock, and by how much it advances with each step, with each row of a step, and when a slab of host memory
 * is pinned. */
extern _Atomic double toy_now, toy_step_s, toy_row_s, toy_slab_s;
/* toy-clock.c: whether toy_now is the engine's clock. */
extern _Atomic bool toy_clock_on;
int __real_clock_gettime(clockid_t clock, struct timespec *t);
extern _Atomic uint32_t toy_chunks;  /* the most steps of more than two rows that were in flight at once */
extern _Atomic uint32_t toy_endless; /* a step of more rows than this runs until it is stopped; 0 = none */
extern _Atomic uint32_t toy_stopped; /* steps that were stopped */
extern _Atomic uint64_t toy_hold_at; /* the step after so many waits is held until this is 0; 0: none */
extern _Atomic bool toy_held;        /* a step is held */
extern _Atomic bool toy_in_endless;  /* an endless step is running */
extern _Atomic bool toy_info_waits;  /* device_info() blocks until this is false */
extern _Atomic bool toy_in_info;     /* a call of device_info() is blocked */
uint64_t extend(uint64_t prefix, int32_t id);
uint32_t toy_next(uint64_t prefix); /* the token that follows this prefix */

/* A request and what was received for it. */
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
    uint32_t live, n_progress, n_idle, n_relieved, n_yielded, n_parked[2]; /* parked: went on, waits */
    uint64_t freed, free;                                                  /* of EV_YIELDED */
    bool answered, finished;
    uint64_t told_host; /* bytes of the model's weights in host memory, from the last EV_PROGRESS */
    uint32_t n_kv[3];   /* EV_KV, by kind */
    struct hearth_err answer, fatal;
};

void world_open(struct world *w, uint32_t max_in_flight);
void world_open_on(struct world *w, uint32_t max_in_flight, bool gpu);
/* Opens a world with the given parameters of the tiers. */
void world_open_with(struct world *w, const struct engine_params *more, uint32_t max_in_flight, bool gpu);
/* Gives the engine 30 s to end and frees what it left with the world's model; for another model call entry_fini(). */
void world_close(struct world *w);
void entry_fini(struct model_entry *m);

struct seq *make(struct world *w, struct heard *h, const int32_t *prompt, uint32_t n, uint32_t max);
void hear(struct world *w, struct engine_event *ev);
void hear_one(struct world *w);
void hear_all(struct world *w);
void ask(struct world *w, void (*what)(struct engine *, struct model_entry *, void *));
uint64_t prefix_of(const int32_t *id, uint32_t n);
/* Checks that the tokens are the continuation of the request's own prompt, and that it ended for the right reason. */
void check_heard(const struct heard *h);

extern uint32_t rng; /* the seed of rnd() */
uint32_t rnd(uint32_t n);

#endif
