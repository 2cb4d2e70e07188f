/*
 * launch.c - the order in which the threads of a launch execute. The lanes of a warp proceed together; where they
 * diverge, those at the lowest address go first, so that they converge again. A warp executes a number of instructions,
 * then it is another warp's turn. Blocks begin when earlier blocks have ended or wait; with HEARTH_SIM_REVERSED the
 * last block begins first, so that a block that depends on an earlier one really has to wait, and sees what was left in
 * memory.
 */
#include "tests/sim/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURN = 4096, RUNNING_MAX = 512, IDLE_MAX = 200000 };

void sim_fault(struct warp *w, const struct ins *i, int lane, const char *format, ...)
{
    struct grid *g = w->block->cluster->grid;
    const struct sim_dims *b = &w->block->id;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "simulated GPU: %s, block (%u, %u, %u), ", g->fn->name, b->x, b->y, b->z);
    if (lane >= 0)
        fprintf(stderr, "thread %u", w->id * LANES + (uint32_t)lane);
    else
        fprintf(stderr, "warp %u", w->id);
    char line[200] = "";
    sim_source(g->fn, i, line, sizeof line);
    fprintf(stderr, ", %s: %s\n", line, text);
    longjmp(g->fault, 1);
}

/* --- lanes ------------------------------------------------------------------------------------------------------ */

static void note_next(struct warp *w)
{
    w->next_pc = UINT32_MAX;
    for (uint32_t k = 0; k < w->n_others; k++)
        if (!w->others[k].waits && w->others[k].pc < w->next_pc)
            w->next_pc = w->others[k].pc;
}
static void put_aside(struct warp *w, uint32_t pc, uint32_t mask, bool waits)
{
    w->others[w->n_others++] = (struct group){pc, mask, waits};
    if (!waits && pc < w->next_pc)
        w->next_pc = pc;
}
static void take(struct warp *w, uint32_t k)
{
    w->pc = w->others[k].pc, w->mask = w->others[k].mask;
    w->others[k] = w->others[--w->n_others];
}
/* Adds the lanes that are at the same place as the warp's current ones. */
static void gather(struct warp *w)
{
    for (uint32_t k = 0; k < w->n_others;)
        if (w->others[k].pc == w->pc) {
            w->mask |= w->others[k].mask;
            w->others[k] = w->others[--w->n_others];
        } else {
            k++;
        }
    note_next(w);
}
/* The lanes that an instruction needs before it is executed. */
static uint32_t wanted(const struct warp *w, const struct ins *i, uint32_t mask)
{
    if (i->e == NONE)
        return w->alive;
    return ((const uint32_t *)at(w, i->e))[__builtin_ctz(mask)] & w->alive;
}
/* Switches to other lanes, because the current ones wait or have ended. */
static void others_turn(struct warp *w, const struct ins *i)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < w->n_others; k++)
        if (!w->others[k].waits && (best == UINT32_MAX || w->others[k].pc < w->others[best].pc))
            best = k;
    if (best != UINT32_MAX) {
        take(w, best);
        gather(w);
        return;
    }
    /* All wait, some of them for lanes that have ended since. */
    const struct ins *code = w->block->cluster->grid->fn->code;
    for (uint32_t k = 0; k < w->n_others; k++) {
        uint32_t pc = w->others[k].pc, there = 0;
        for (uint32_t j = 0; j < w->n_others; j++)
            there |= w->others[j].pc == pc ? w->others[j].mask : 0;
        uint32_t want = wanted(w, code + pc, w->others[k].mask);
        if ((there & want) == want) {
            take(w, k);
            gather(w);
            return;
        }
    }
    sim_fault(w, i, -1, "threads of the warp wait for others, which never come");
}

/* --- barriers --------------------------------------------------------------------------------------------------- */

static void look_at_bar(struct block *b, uint32_t id)
{
    struct barrier *bar = b->bars + id;
    uint32_t expected = bar->expected ? bar->expected : b->live * LANES;
    if (!bar->arrived || bar->arrived < expected)
        return;
    bar->arrived = bar->expected = 0;
    for (uint32_t k = 0; k < b->cluster->grid->n_warps; k++)
        if (b->warps[k].at_bar && b->warps[k].bar == id)
            b->warps[k].at_bar = false;
}
static void arrive_at_bar(struct warp *w, const struct ins *i)
{
    struct block *b = w->block;
    uint32_t id = ((const uint32_t *)at(w, i->a))[leader(w)],
             n = i->b == NONE ? 0 : ((const uint32_t *)at(w, i->b))[leader(w)];
    if (id > 15)
        sim_fault(w, i, -1, "barrier %u of 16", id);
    struct barrier *bar = b->bars + id;
    if (bar->arrived && bar->expected != n)
        sim_fault(w, i, -1, "barrier %u is for %u threads here and for %u elsewhere", id, n, bar->expected);
    if (n % LANES || n > b->cluster->grid->n_warps * LANES)
        sim_fault(w, i, -1, "barrier %u of %u threads", id, n);
    bar->expected = n;
    bar->arrived += LANES;
    if (!i->kind)
        w->at_bar = true, w->bar = id;
    look_at_bar(b, id);
}
static void look_at_cluster(struct cluster *c)
{
    if (c->arrived < c->n_blocks * c->grid->n_threads)
        return;
    c->arrived = c->gone;
    c->phase++;
    for (uint32_t k = 0; k < c->n_blocks; k++)
        for (uint32_t j = 0; j < c->grid->n_warps; j++)
            c->blocks[k].warps[j].at_cluster = false;
}
static uint32_t arrived_at_cluster(struct warp *w)
{
    struct cluster *c = w->block->cluster;
    if (w->cluster_phase != c->phase)
        w->cluster_phase = c->phase, w->cluster_mask = 0;
    return w->cluster_mask;
}
static void arrive_at_cluster(struct warp *w, const struct ins *i)
{
    struct cluster *c = w->block->cluster;
    if (arrived_at_cluster(w) & w->exec)
        sim_fault(w, i, -1, "arrives twice at the cluster's barrier");
    w->cluster_mask |= w->exec;
    c->arrived += (uint32_t)__builtin_popcount(w->exec);
    look_at_cluster(c);
}
/* Lanes that have ended count as having arrived wherever others wait for them. */
static void end_lanes(struct warp *w, uint32_t mask)
{
    struct block *b = w->block;
    struct cluster *c = b->cluster;
    uint32_t n = (uint32_t)__builtin_popcount(mask), fresh = mask & ~arrived_at_cluster(w);
    w->alive &= ~mask, w->mask &= ~mask;
    c->gone += n;
    c->arrived += (uint32_t)__builtin_popcount(fresh);
    if (!w->alive) {
        w->done = true;
        free(w->products);
        w->products = NULL;
        if (!--b->live)
            c->live--;
        for (uint32_t id = 0; id < 16; id++)
            if (!b->bars[id].expected)
                look_at_bar(b, id);
    }
    look_at_cluster(c);
}

/* --- execution -------------------------------------------------------------------------------------------------- */

/* Runs a warp for a turn. Returns whether it made progress; it made none if it soon polled for something that has not
 * happened. */
static bool turn(struct warp *w)
{
    const struct ins *code = w->block->cluster->grid->fn->code;
    uint32_t left = TURN;
    w->block->cluster->grid->turns++;
    if (w->spins && w->n_others && w->next_pc != UINT32_MAX) {
        /* What these lanes poll for may have to come from other lanes of the warp. */
        struct group first = w->others[0];
        uint32_t k = 0;
        while (w->others[k].waits)
            k++;
        first = w->others[k];
        w->others[k] = (struct group){w->pc, w->mask, false};
        w->pc = first.pc, w->mask = first.mask;
        w->next_pc = UINT32_MAX;
    }
    w->spins = false;
    while (--left) {
        if (w->pc >= w->next_pc) {
            if (w->pc > w->next_pc) {
                put_aside(w, w->pc, w->mask, false);
                others_turn(w, code + w->pc);
            } else {
                gather(w);
            }
        }
        const struct ins *i = code + w->pc;
        uint32_t exec = w->mask;
        if (i->pred != NONE)
            exec &= i->pred_not ? ~pred_of(w, i->pred) : pred_of(w, i->pred);
        w->exec = exec;
        switch ((enum flow)i->flow) {
        case FLOW_NEXT:
            if (exec)
                i->fn(w, i);
            w->pc++;
            break;
        case FLOW_BRANCH:
            if (exec == w->mask) {
                w->pc = i->target;
            } else if (!exec) {
                w->pc++;
            } else {
                uint32_t on = w->pc + 1, rest = w->mask & ~exec;
                bool back = i->target < on;
                put_aside(w, back ? on : i->target, back ? rest : exec, false);
                w->pc = back ? i->target : on, w->mask = back ? exec : rest;
            }
            break;
        case FLOW_EXIT:
            if (exec)
                end_lanes(w, exec);
            if (w->done)
                return true;
            if (w->mask)
                w->pc++;
            else
                others_turn(w, i);
            break;
        case FLOW_CONVERGE:
        case FLOW_BARRIER: {
            uint32_t want = wanted(w, i, w->mask);
            if ((w->mask & want) != want) {
                put_aside(w, w->pc, w->mask, true);
                others_turn(w, i);
                break;
            }
            if (w->n_others)
                gather(w);
            w->pc++;
            if (!exec)
                break;
            if (i->flow == FLOW_CONVERGE) {
                i->fn(w, i);
                break;
            }
            arrive_at_bar(w, i);
            if (w->at_bar)
                return true;
            break;
        }
        case FLOW_CLUSTER_ARRIVE:
            if (exec)
                arrive_at_cluster(w, i);
            w->pc++;
            break;
        case FLOW_CLUSTER_WAIT:
            /* The phase in which it arrived has not ended. */
            w->pc++;
            if (exec && arrived_at_cluster(w) & exec) {
                w->at_cluster = true;
                return true;
            }
            break;
        case FLOW_POLL:
            if (exec)
                i->fn(w, i);
            w->pc++;
            if (w->spins)
                return TURN - left > 256;
            break;
        }
    }
    return true;
}

/* --- blocks ----------------------------------------------------------------------------------------------------- */

static void *room(size_t n)
{
    void *p = aligned_alloc(128, (n + 127) & ~(size_t)127);
    if (!p) {
        fprintf(stderr, "simulated GPU: no memory of %zu bytes\n", n);
        abort();
    }
    return p;
}
static void fill(uint8_t *regs, enum special s, uint32_t v)
{
    for (int l = 0; l < LANES; l++)
        ((uint32_t *)regs)[s * LANES + l] = v;
}
static void begin_warp(struct block *b, uint32_t id)
{
    struct grid *g = b->cluster->grid;
    const struct sim_launch *la = g->launch;
    struct warp *w = b->warps + id;
    uint32_t n = g->n_threads - id * LANES;
    uint8_t *regs = b->regs + (size_t)id * g->fn->regs_bytes;
    memset(w, 0, sizeof *w);
    w->base[0] = regs, w->base[1] = g->fn->consts;
    w->alive = w->mask = n >= LANES ? ~0u : (1u << n) - 1;
    w->next_pc = UINT32_MAX;
    w->block = b, w->id = id;
    w->local = b->local + (size_t)id * LANES * g->fn->info.local_bytes;
    for (int l = 0; l < LANES; l++) {
        uint32_t t = id * LANES + (uint32_t)l, *v = (uint32_t *)regs + l;
        v[SPECIAL_TID_X * LANES] = t % la->block.x;
        v[SPECIAL_TID_Y * LANES] = t / la->block.x % la->block.y;
        v[SPECIAL_TID_Z * LANES] = t / la->block.x / la->block.y;
        v[SPECIAL_LANEID * LANES] = (uint32_t)l;
    }
    fill(regs, SPECIAL_WARPID, id);
    fill(regs, SPECIAL_CTAID_X, b->id.x), fill(regs, SPECIAL_CTAID_Y, b->id.y), fill(regs, SPECIAL_CTAID_Z, b->id.z);
    fill(regs, SPECIAL_NTID_X, la->block.x), fill(regs, SPECIAL_NTID_Y, la->block.y);
    fill(regs, SPECIAL_NTID_Z, la->block.z), fill(regs, SPECIAL_NCTAID_X, la->grid.x);
    fill(regs, SPECIAL_NCTAID_Y, la->grid.y), fill(regs, SPECIAL_NCTAID_Z, la->grid.z);
    fill(regs, SPECIAL_CLUSTER_CTARANK, b->rank), fill(regs, SPECIAL_CLUSTER_NCTARANK, b->cluster->n_blocks);
}
/*
 * The memory of clusters is kept for later launches, by its sizes, up to a limit: the system takes longer to find new
 * pages than most launches take.
 */
static struct cluster *spare;
static size_t spare_bytes;
enum { SPARE_MAX = 1 << 30 };

static struct cluster *spare_cluster(const struct cluster_sizes *want)
{
    for (struct cluster **c = &spare; *c; c = &(*c)->next)
        if (!memcmp(&(*c)->sizes, want, sizeof *want)) {
            struct cluster *found = *c;
            *c = found->next;
            spare_bytes -= found->sizes.bytes;
            return found;
        }
    return NULL;
}
static void free_cluster(struct cluster *c)
{
    for (uint32_t k = 0; k < c->sizes.blocks; k++) {
        struct block *b = c->blocks + k;
        free(b->warps), free(b->regs), free(b->local), free(b->shared);
    }
    free(c->blocks), free(c->late);
    free(c);
}
static void release_cluster(struct cluster *c)
{
    c->next = spare, spare = c;
    spare_bytes += c->sizes.bytes;
    while (spare_bytes > SPARE_MAX) {
        struct cluster **last = &spare;
        while ((*last)->next)
            last = &(*last)->next;
        spare_bytes -= (*last)->sizes.bytes;
        free_cluster(*last);
        *last = NULL;
    }
}
/* Begins the nth cluster of the grid. Shared memory that is not written contains all ones. */
static struct cluster *begin_cluster(struct grid *g, uint64_t nth)
{
    const struct sim_launch *la = g->launch;
    const struct sim_dims *cd = &la->cluster;
    uint32_t n = cd->x * cd->y * cd->z;
    struct cluster_sizes sizes = {.blocks = n,
                                  .warps = g->n_warps,
                                  .regs = g->fn->regs_bytes,
                                  .local = g->fn->info.local_bytes,
                                  .shared = g->shared_bytes};
    sizes.bytes = (size_t)n * (g->n_warps * (sizes.regs + (size_t)LANES * sizes.local) + sizes.shared);
    struct cluster *c = spare_cluster(&sizes);
    if (!c) {
        c = room(sizeof *c);
        c->sizes = sizes, c->late = NULL, c->late_room = 0;
        c->blocks = room(n * sizeof *c->blocks);
        for (uint32_t k = 0; k < n; k++) {
            struct block *b = c->blocks + k;
            b->warps = room(g->n_warps * sizeof *b->warps);
            b->regs = room((size_t)g->n_warps * g->fn->regs_bytes);
            b->local = room((size_t)g->n_warps * LANES * g->fn->info.local_bytes + 128);
            b->shared = room(g->shared_bytes + 128);
        }
    }
    c->grid = g, c->n_blocks = c->live = n, c->phase = c->arrived = c->gone = 0, c->next = NULL, c->n_late = 0;
    /* The clusters of a grid in order, x first; likewise the blocks of a cluster. */
    uint32_t across = la->grid.x / cd->x, down = la->grid.y / cd->y;
    struct sim_dims first = {(uint32_t)(nth % across) * cd->x, (uint32_t)(nth / across % down) * cd->y,
                             (uint32_t)(nth / across / down) * cd->z};
    for (uint32_t k = 0; k < n; k++) {
        struct block *b = c->blocks + k;
        b->cluster = c, b->rank = k, b->live = g->n_warps;
        b->id = (struct sim_dims){first.x + k % cd->x, first.y + k / cd->x % cd->y, first.z + k / cd->x / cd->y};
        memset(b->bars, 0, sizeof b->bars);
        memset(b->shared, 0xff, g->shared_bytes);
        for (uint32_t id = 0; id < g->n_warps; id++)
            begin_warp(b, id);
    }
    return c;
}
/* Runs a cluster until it has ended or none of its warps makes progress. Returns whether any did. */
static bool go_on(struct cluster *c)
{
    bool ever = false, some;
    do {
        some = false;
        for (uint32_t k = 0; k < c->n_blocks; k++)
            for (uint32_t id = 0; id < c->grid->n_warps; id++) {
                struct warp *w = c->blocks[k].warps + id;
                if (!w->done && !w->at_bar && !w->at_cluster)
                    some |= turn(w);
            }
        ever |= some;
    } while (some && c->live);
    return ever;
}
static bool polls(const struct cluster *c)
{
    for (uint32_t k = 0; k < c->n_blocks; k++)
        for (uint32_t id = 0; id < c->grid->n_warps; id++) {
            const struct warp *w = c->blocks[k].warps + id;
            if (!w->done && !w->at_bar && !w->at_cluster)
                return true;
        }
    return false;
}

bool sim_run(struct sim_fn *fn, const struct sim_launch *la, const void *params)
{
    if (!fn->decoded && !sim_decode(fn))
        return false;
    struct grid g = {.fn = fn, .launch = la};
    sim_late_begin();
    const struct sim_dims *cd = &la->cluster;
    uint32_t per_cluster = cd->x * cd->y * cd->z, align = fn->dynamic_align;
    g.n_threads = la->block.x * la->block.y * la->block.z;
    g.n_warps = (g.n_threads + LANES - 1) / LANES;
    g.shared_bytes = ((fn->info.static_shared + align - 1) & ~(align - 1)) + la->dynamic_shared;
    g.params = room(fn->info.params_bytes + 16);
    memcpy(g.params, params, fn->info.params_bytes);
    uint64_t total = (uint64_t)la->grid.x * la->grid.y * la->grid.z / per_cluster, begun = 0;
    bool reversed = getenv("HEARTH_SIM_REVERSED");
    struct cluster *volatile ring = NULL; /* the last cluster of the ring; it is the turn of the one after it */
    volatile bool right = true;
    uint32_t n_running = 0, idle = 0;
    if (!setjmp(g.fault)) {
        while (ring || begun < total) {
            bool admit = begun < total && (!ring || (idle && n_running < RUNNING_MAX));
            if (admit) {
                struct cluster *c = begin_cluster(&g, reversed ? total - 1 - begun : begun);
                begun++;
                if (ring)
                    c->next = ring->next, ring->next = c;
                else
                    c->next = c, ring = c;
                n_running++;
            }
            struct cluster *c = ring->next;
            bool got_on = go_on(c);
            if (!c->live) {
                sim_late_end(c);
                if (c == ring)
                    ring = NULL;
                else
                    ring->next = c->next;
                release_cluster(c);
                n_running--;
                idle = 0;
                continue;
            }
            idle = got_on ? 1 : idle + 1;
            if (!got_on && !polls(c) && n_running == 1 && begun == total)
                sim_fault(c->blocks->warps, fn->code, -1, "every thread waits at a barrier for another");
            if (idle > IDLE_MAX)
                sim_fault(c->blocks->warps, fn->code + c->blocks->warps->pc, -1, "nobody gets on");
            ring = c; /* the turn of the next one */
        }
    } else {
        right = false;
    }
    while (ring) {
        struct cluster *c = ring->next;
        if (c == ring)
            ring = NULL;
        else
            ring->next = c->next;
        release_cluster(c);
    }
    free(g.params);
    if (getenv("HEARTH_SIM_TRACE"))
        fprintf(stderr, "simulated GPU: %s<<<(%u, %u, %u), %u>>>: %llu turns\n", fn->name, la->grid.x, la->grid.y,
                la->grid.z, g.n_threads, (unsigned long long)g.turns);
    return right;
}
