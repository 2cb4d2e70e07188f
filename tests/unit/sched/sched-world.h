/*
 * sched-world.h - the scheduler with a model of the device, for its tests.
 *
 * The model runs a plan in stream order, as a backend would: it records from what each row of each page was computed,
 * feeds tokens that the host does not know yet from the slot that sampled them, and "samples" a function of the whole
 * prefix. So a wrong page, position, slot or token anywhere (after sharing, after preemption, with steps in flight)
 * shows as a sequence with wrong tokens.
 */
#ifndef HEARTH_TEST_SCHED_WORLD_H
#define HEARTH_TEST_SCHED_WORLD_H

#include "daemon/engine/sched/sched.h"

enum { MAX_PAGES = 256, MAX_REQ = 2000, MAX_LEN = 700, IN_FLIGHT_MAX = 4 };

struct device {
    uint64_t memory[2][MAX_PAGES][KV_PAGE]; /* by layer group */
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
    bool live;
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
extern struct world w;
/* For the next worlds: the window of a second layer group, whose pool is just large enough, or 0: there is no such
 * group; and the groups' long_from, beyond which "computed" values differ. */
extern uint32_t world_window, world_long_from;
extern bool world_short; /* a device whose memory is short: short steps, some of which are refused */
/* Instead of a window: the second group has recurrent states, and a step that is alone in flight may be stopped. */
extern enum world_states { NO_STATES, STATES_AT_ENDS, STATES_WITHIN } world_states;
extern uint32_t world_state_pages; /* pages of the pool of states; 0: a few */

uint32_t rnd(uint32_t n);
void world_init(uint64_t seed, uint32_t n_pool, uint32_t n_page, uint32_t rows_max, uint32_t rows_first);
void world_fini(void); /* checks that nothing is left in the world */

struct request *submit(struct pool *pool, int64_t uid, const int32_t *prompt, uint32_t n, uint32_t max);
/* The same for one of the uid's clients, in a class. */
struct request *submit_as(struct pool *pool, int64_t uid, int64_t client, enum seq_class class, const int32_t *prompt,
                          uint32_t n, uint32_t max);
void end(struct request *r);

/* Runs the plan on the device; the oldest step in flight ends. */
void run_plan(const struct plan *p, int32_t *sampled);
void finish_step(void);
/* One iteration of the engine's loop. False when there is nothing left to do. */
bool turn(uint32_t max_in_flight);
void check_tokens(const struct request *r);

/* An iteration on a machine whose steps take time by these constants, one step at a time; the cost model learns from
 * it. Returns the step's seconds, 0 if there was no step. */
extern const double c_step, c_decode, c_prompt, c_key;
double timed_turn(void);
/* The same with two steps in flight: one is planned before the result of the previous one is known. */
double timed_turn_ahead(void);

#endif
