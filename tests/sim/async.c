/*
 * async.c - asynchronous operations: copies into shared memory, and the barriers there on which they complete.
 *
 * A copy is carried out when it is issued or, with HEARTH_SIM_LATE, as late as PTX allows: when somebody waits for it
 * and finds it incomplete. So what a kernel reads without having waited is not there yet.
 */
#include "tests/sim/machine.h"

#include <stdlib.h>
#include <string.h>

/* --- barriers in shared memory ---------------------------------------------------------------------------------- */

/*
 * The layout of a barrier's 8 bytes here (PTX leaves it open): arrivals that the phase still waits for, arrivals per
 * phase, bytes that are still to arrive, and the phase.
 */
struct mbarrier {
    uint32_t pending : 16, expected : 16;
    int32_t bytes : 31;
    uint32_t phase : 1;
};
_Static_assert(sizeof(struct mbarrier) == 8, "of 8 bytes");

static struct mbarrier *mbarrier_at(struct warp *w, const struct ins *i, int lane, uint64_t a)
{
    struct mbarrier *b = sim_place(w, i, lane, SPACE_CLUSTER, a, 8);
    if (!b->expected || b->expected == 0xffff)
        sim_fault(w, i, lane, "a barrier that nobody initialised");
    return b;
}
static void mbarrier_look(struct mbarrier *b)
{
    if (!b->pending && !b->bytes)
        b->phase ^= 1, b->pending = b->expected;
}
static void mbarrier_arrive(struct warp *w, const struct ins *i, int lane, struct mbarrier *b)
{
    if (!b->pending)
        sim_fault(w, i, lane, "more arrivals at a barrier than its phase has");
    b->pending--;
    mbarrier_look(b);
}
static void mbarrier_got(struct mbarrier *b, uint32_t bytes)
{
    b->bytes -= (int32_t)bytes;
    mbarrier_look(b);
}

/* --- copies in flight ------------------------------------------------------------------------------------------- */

/* A copy of n bytes, with zeros up to `size`, after which `size` bytes count as having arrived at the barrier, if it
 * has one; or an arrival at the barrier after a thread's earlier copies. */
struct late {
    struct warp *w;
    const struct ins *i;
    int lane;
    uint8_t *to;
    const uint8_t *from; /* NULL: `data` */
    uint8_t data[16];
    uint32_t n, size, group; /* group: that of cp.async */
    bool arrives, done;
    struct mbarrier *bar;
};

static bool late;

bool sim_late(void)
{
    return late;
}
void sim_late_begin(void)
{
    late = getenv("HEARTH_SIM_LATE") != NULL;
}
static void finish(struct late *c)
{
    c->done = true;
    if (c->arrives) {
        mbarrier_arrive(c->w, c->i, c->lane, c->bar);
        return;
    }
    memset(c->to, 0, c->size);
    memcpy(c->to, c->from ? c->from : c->data, c->n);
    if (c->bar)
        mbarrier_got(c->bar, c->size);
}
static void begin(struct late *c)
{
    struct cluster *k = c->w->block->cluster;
    if (!sim_late()) {
        finish(c);
        return;
    }
    if (k->n_late == k->late_room) {
        k->late_room = k->late_room ? 2 * k->late_room : 64;
        k->late = realloc(k->late, k->late_room * sizeof *k->late);
        if (!k->late)
            abort();
    }
    k->late[k->n_late++] = *c;
}
static void forget_done(struct cluster *k)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < k->n_late; j++)
        if (!k->late[j].done)
            k->late[n++] = k->late[j];
    k->n_late = n;
}
/* Finishes a warp's cp.async copies in groups before `group`, in order, of those before the place `end` in the
 * queue. */
static void finish_groups(struct warp *w, uint32_t group, uint32_t end)
{
    struct cluster *k = w->block->cluster;
    for (uint32_t j = 0; j < end; j++)
        if (!k->late[j].done && k->late[j].w == w && !k->late[j].bar && k->late[j].group < group)
            finish(k->late + j);
}
/* Finishes everything that a barrier waits for. */
static void finish_for(struct cluster *k, const struct mbarrier *b)
{
    for (uint32_t j = 0; j < k->n_late; j++) {
        if (k->late[j].done || k->late[j].bar != b)
            continue;
        if (k->late[j].arrives)
            finish_groups(k->late[j].w, UINT32_MAX, j);
        finish(k->late + j);
    }
    forget_done(k);
}
void sim_late_end(struct cluster *k)
{
    for (uint32_t j = 0; j < k->n_late; j++)
        if (k->late[j].bar && !k->late[j].arrives)
            sim_fault(k->late[j].w, k->late[j].i, k->late[j].lane, "a copy that nobody has waited for at the end");
    k->n_late = 0;
}

/* --- instructions ----------------------------------------------------------------------------------------------- */

/* mbarrier.init [a], b */
void sim_mbar_init_op(struct warp *w, const struct ins *i)
{
    EACH_LANE(l)
    {
        struct mbarrier *b = sim_place(w, i, (int)l, SPACE_SHARED, sim_address(w, i, (int)l), 8);
        uint32_t n = value32(w, i->b, l);
        if (!n || n >= 0xffff)
            sim_fault(w, i, (int)l, "a barrier of %u arrivals", n);
        *b = (struct mbarrier){.pending = n & 0xffff, .expected = n & 0xffff};
    }
}
/* mbarrier.arrive[.expect_tx] _, [a] [, b]; kind 1: with bytes */
void sim_mbar_arrive_op(struct warp *w, const struct ins *i)
{
    EACH_LANE(l)
    {
        struct mbarrier *b = mbarrier_at(w, i, (int)l, sim_address(w, i, (int)l));
        if (i->kind)
            b->bytes += (int32_t)value32(w, i->b, l);
        mbarrier_arrive(w, i, (int)l, b);
    }
}
/* cp.async.mbarrier.arrive.noinc [a]: arrives once the thread's copies so far are done */
void sim_mbar_noinc_op(struct warp *w, const struct ins *i)
{
    EACH_LANE(l)
    {
        struct mbarrier *b = mbarrier_at(w, i, (int)l, sim_address(w, i, (int)l));
        begin(&(struct late){.w = w, .i = i, .lane = (int)l, .arrives = true, .bar = b});
    }
}
/* mbarrier.try_wait.parity d, [a], b */
void sim_mbar_test_op(struct warp *w, const struct ins *i)
{
    uint32_t r = 0;
    EACH_LANE(l)
    {
        const struct mbarrier *b = mbarrier_at(w, i, (int)l, sim_address(w, i, (int)l));
        bool there = b->phase != (value32(w, i->b, l) & 1);
        if (!there && w->block->cluster->n_late)
            finish_for(w->block->cluster, b);
        r |= (uint32_t)there << l;
    }
    put_pred(w, i->d, r);
    w->spins |= (r & w->exec) != w->exec;
}
/* cp.async [a], [b], size [, e]: n is the size, and e the number of bytes that are read; the others are 0. */
void sim_cp_async_op(struct warp *w, const struct ins *i)
{
    EACH_LANE(l)
    {
        uint8_t *to = sim_place(w, i, (int)l, SPACE_SHARED, sim_address(w, i, (int)l), i->n);
        uint64_t from = value64(w, i->b, l);
        uint32_t n = i->e == NONE ? i->n : value32(w, i->e, l);
        if (n > i->n)
            sim_fault(w, i, (int)l, "a copy of %u bytes that reads %u", i->n, n);
        if (from % i->n)
            sim_fault(w, i, (int)l, "a copy of %u bytes from 0x%llx", i->n, (unsigned long long)from);
        const uint8_t *p = n ? sim_bytes(w, i, (int)l, SPACE_GLOBAL, from, n) : to;
        begin(&(struct late){
            .w = w, .i = i, .lane = (int)l, .to = to, .from = p, .n = n, .size = i->n, .group = w->copy_group});
    }
}
/* cp.async.commit_group */
void sim_copy_commit_op(struct warp *w, const struct ins *i)
{
    (void)i;
    w->copy_group++;
}
/* cp.async.wait_group, wait_all: at most the `kind` youngest groups may remain in flight; wait_all includes uncommitted
 * copies. */
void sim_copy_wait_op(struct warp *w, const struct ins *i)
{
    struct cluster *k = w->block->cluster;
    uint32_t all = i->kind == UINT32_MAX, before = w->copy_group > i->kind ? w->copy_group - i->kind : 0;
    finish_groups(w, all ? UINT32_MAX : before, k->n_late);
    forget_done(k);
}
/* cp.async.bulk.shared::cluster.global [a], [b], c, [e] */
void sim_bulk_op(struct warp *w, const struct ins *i)
{
    EACH_LANE(l)
    {
        uint32_t n = value32(w, i->c, l);
        uint64_t to = sim_address(w, i, (int)l), from = value64(w, i->b, l);
        if (n % 16 || to % 16 || from % 16)
            sim_fault(w, i, (int)l, "a bulk copy of %u bytes from 0x%llx to 0x%llx, not all multiples of 16", n,
                      (unsigned long long)from, (unsigned long long)to);
        struct mbarrier *b = mbarrier_at(w, i, (int)l, value32(w, i->e, l));
        if (!n)
            continue;
        uint8_t *p = sim_bytes(w, i, (int)l, SPACE_CLUSTER, to, n);
        const uint8_t *q = sim_bytes(w, i, (int)l, SPACE_GLOBAL, from, n);
        begin(&(struct late){.w = w, .i = i, .lane = (int)l, .to = p, .from = q, .n = n, .size = n, .bar = b});
    }
}
/* st.async.shared::cluster.mbarrier::complete_tx::bytes [a], v, [e] */
void sim_st_async_op(struct warp *w, const struct ins *i)
{
    EACH_LANE(l)
    {
        struct late c = {.w = w, .i = i, .lane = (int)l, .n = i->size * i->n, .size = i->size * i->n};
        c.to = sim_place(w, i, (int)l, SPACE_CLUSTER, sim_address(w, i, (int)l), c.n);
        c.bar = mbarrier_at(w, i, (int)l, value32(w, i->e, l));
        for (uint32_t e = 0; e < i->n; e++) {
            uint64_t v = i->wide_value ? value64(w, i->v[e], l) : value32(w, i->v[e], l);
            memcpy(c.data + e * i->size, &v, i->size);
        }
        begin(&c);
    }
}
