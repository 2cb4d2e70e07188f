/* toy.c - the toy model and the toy backend; see toy.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/kvtier/fingerprint.h"
#include "daemon/engine/selfcheck/cache.h"
#include "tests/unit/core/toy.h"

enum { PAGES_MAX = 160 };

/* --- the toy --------------------------------------------------------------------------------------------- */

/* A KV pool; each model has its own pages. */
struct kv_pool {
    uint64_t memory[PAGES_MAX][KV_PAGE];
    uint32_t extent; /* pages in an extent, which are mapped together; 0: all have memory */
    bool mapped[PAGES_MAX];
};

struct device {
    uint32_t slot[SLOTS_MAX];
    uint64_t row[BATCH_ROWS_MAX]; /* prefix hash of each row of the step */
    uint32_t out_row[BATCH_ROWS_MAX];
    struct {
        struct sampled s[BATCH_SEQS_MAX];
        uint32_t n, n_row;
    } ring[MAX_IN_FLIGHT]; /* results of the steps in flight */
    uint64_t submitted, waited;
    bool stopped; /* the last step was stopped */
    uint32_t n_pool;
};
uint64_t toy_fail_at, toy_load_steps;
uint32_t toy_fail_pos, toy_fail_read;
int toy_fails = HEARTH_EDEVICE;
_Atomic enum toy_load toy_load;
bool toy_no_load, toy_gpu, toy_distrusted, toy_moves_late;
_Atomic bool toy_moves_never;
const char *toy_id = "";
int toy_refuses;
uint64_t toy_no_slot;
_Atomic uint64_t toy_sums = UINT64_MAX;
_Atomic uint32_t toy_refused_steps;
uint32_t toy_sums_each;
_Atomic uint64_t toy_slot_room;
_Atomic uint64_t toy_free = 1 << 30;
uint64_t toy_granule;
_Atomic uint32_t toy_extents = UINT32_MAX, toy_mapped, toy_refusals;
uint32_t toy_matrices;
uint32_t toy_checks, toy_loads, toy_layers = 1, toy_pages = 64, toy_pools, toy_decode_rows;
bool toy_prompt_quick;
_Atomic double toy_now, toy_step_s, toy_row_s, toy_slab_s;
_Atomic uint64_t toy_mem_cached, toy_cache_most = UINT64_MAX;
_Atomic uint32_t toy_endless, toy_stopped;
_Atomic bool toy_in_endless;
_Atomic bool toy_info_waits, toy_in_info;
_Atomic uint64_t toy_hold_at;
_Atomic uint32_t toy_chunks;
_Atomic bool toy_held;
uint32_t toy_max_in_flight;

uint64_t extend(uint64_t h, int32_t id)
{
    return ((h ^ (uint64_t)(uint32_t)id) * 0xff51afd7ed558ccdu + 0x632be59bd9b4e019u) | 1;
}
static const uint64_t root = 0x9e3779b97f4a7c15u;

uint64_t prefix_of(const int32_t *id, uint32_t n)
{
    uint64_t h = root;
    for (uint32_t i = 0; i < n; i++)
        h = extend(h, id[i]);
    return h;
}

static float toy_logit(uint64_t prefix, uint32_t id)
{
    return (float)(extend(prefix, (int32_t)id + 77) >> 44);
}
/* The best logit; the end token is rare. */
uint32_t toy_next(uint64_t prefix)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < VOCAB; i++)
        if (toy_logit(prefix, i) > toy_logit(prefix, best))
            best = i;
    return best;
}

/*
 * Moves. They are done as late as is allowed, and until then the toy checks what must not be touched: the pages of a
 * save and the host memory of a load. Nobody may read the pages of a load, which hold rubbish until then.
 */
struct move {
    uint64_t ticket;
    struct kv_pool *pool;
    uint32_t n, page[PAGES_MAX];
    void *host[PAGES_MAX];
    uint64_t was[PAGES_MAX][KV_PAGE];
};
enum { SAVE, LOAD, MOVES = 32 };
static struct moves {
    struct move q[MOVES];
    uint32_t first, n;
    uint64_t last; /* the last ticket that is done */
} moves[2];
static uint64_t last_ticket;
static uint32_t host_slabs, moves_rng = 1;

static int toy_host_alloc(struct device *d, uint64_t bytes, void **out, struct hearth_err *e)
{
    (void)d;
    if (!(*out = malloc(bytes)))
        return err_set(e, HEARTH_ENOMEM, "no memory");
    host_slabs++;
    toy_now = toy_now + toy_slab_s;
    return 0;
}
static void toy_host_free(struct device *d, void *p)
{
    (void)d;
    host_slabs--;
    free(p);
}
static void move_finish(int way)
{
    struct moves *q = &moves[way];
    struct move *m = &q->q[q->first];
    for (uint32_t i = 0; i < m->n; i++) {
        uint64_t *page = m->pool->memory[m->page[i]];
        assert_memory_equal(way == LOAD ? m->host[i] : page, m->was[i], sizeof m->was[i]);
        if (way == LOAD)
            memcpy(page, m->host[i], sizeof m->was[i]);
        else
            memcpy(memset(m->host[i], 0, TOY_PAGE_BYTES), page, sizeof m->was[i]);
    }
    q->last = m->ticket;
    q->first = (q->first + 1) % MOVES;
    q->n--;
}
/* Whether the page may be touched. */
static bool has_memory(const struct kv_pool *p, uint32_t page)
{
    return !p->extent || p->mapped[page];
}
static uint64_t move_begin(struct kv_pool *p, int way, const uint32_t *page, void *const *host, uint32_t n)
{
    struct moves *q = &moves[way];
    assert_true(q->n < MOVES && n > 0 && n <= PAGES_MAX);
    struct move *m = &q->q[(q->first + q->n++) % MOVES];
    m->ticket = 2 * ++last_ticket + (uint64_t)way;
    m->pool = p;
    m->n = n;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(has_memory(p, page[i]));
        m->page[i] = page[i];
        m->host[i] = host[i];
        memcpy(m->was[i], way == LOAD ? host[i] : p->memory[page[i]], sizeof m->was[i]);
        if (way == LOAD)
            memset(p->memory[page[i]], 0xee, sizeof p->memory[0]);
    }
    while (!toy_moves_late && q->n)
        move_finish(way);
    return m->ticket;
}
static uint64_t toy_kv_save(struct device *d, struct kv_pool *p, const uint32_t *page, void *const *host, uint32_t n)
{
    (void)d;
    return move_begin(p, SAVE, page, host, n);
}
static uint64_t toy_kv_load(struct device *d, struct kv_pool *p, const uint32_t *page, const void *const *host,
                            uint32_t n)
{
    (void)d;
    return move_begin(p, LOAD, page, (void *const *)host, n);
}
static int toy_kv_transfer_done(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    (void)d, (void)e;
    moves_rng = moves_rng * 1664525 + 1013904223; /* a generator of its own: another thread uses rnd() */
    for (int way = 0; way < 2; way++)
        if (moves[way].n && !toy_moves_never && (moves_rng >> 8) % 3 == 0)
            move_finish(way);
    return ticket <= moves[ticket % 2].last;
}
static int toy_kv_transfer_wait(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    (void)d, (void)e;
    while (ticket > moves[ticket % 2].last && !toy_moves_never)
        move_finish(ticket % 2);
    return 0;
}
static void toy_cache_limit(struct device *d, uint64_t bytes)
{
    (void)d;
    toy_cache_most = bytes;
    if (toy_mem_cached > bytes)
        toy_mem_cached = 0;
}
static int toy_sync(struct device *d, struct hearth_err *e)
{
    (void)d, (void)e;
    return 0;
}

static int toy_open(struct device **out, const struct device_params *p, struct hearth_err *e)
{
    (void)p, (void)e;
    *out = calloc(1, sizeof **out);
    memset(moves, 0, sizeof moves);
    return 0;
}
static void toy_close(struct device *d)
{
    assert_int_equal(d->n_pool + host_slabs, 0); /* everything was freed */
    free(d);
}
static void toy_info(struct device *d, struct device_info *out)
{
    (void)d;
    while (toy_info_waits) {
        toy_in_info = true;
        sched_yield();
    }
    toy_in_info = false;
    *out = (struct device_info){.name = "toy",
                                .gpu = toy_gpu,
                                .kv_type = DT_F32,
                                .max_in_flight = toy_max_in_flight,
                                .decode_rows = toy_decode_rows,
                                .mem_total = 1 << 30,
                                .mem_free = toy_free,
                                .kv_granule = toy_granule,
                                .held = {[MEM_CACHE] = toy_mem_cached, [MEM_KV] = toy_mapped * 1000},
                                .path = {{"gemv", toy_mem_cached}},
                                .n_path = 1};
    snprintf(out->id, sizeof out->id, "%s", toy_id);
}
/* The same toy as the CPU beside the GPU: it takes one step at a time. */
static void toy_cpu_info(struct device *d, struct device_info *out)
{
    (void)d;
    *out = (struct device_info){
        .name = "toy's CPU", .kv_type = DT_F32, .max_in_flight = 1, .mem_total = 4 * 64 * TOY_PAGE_BYTES};
}
static int toy_reserve(struct device *d, const struct workspace_dims *dims, struct hearth_err *e)
{
    (void)d, (void)dims, (void)e;
    return 0;
}
static int toy_kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e)
{
    assert_true(desc->n_page <= PAGES_MAX);
    if (toy_pools && d->n_pool == toy_pools)
        return err_set(e, HEARTH_ENOMEM, "the toy has room for %u pools", toy_pools);
    struct kv_pool *p = *out = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HEARTH_ENOMEM, "no memory");
    d->n_pool++;
    p->extent = desc->extent;
    return 0;
}
static int toy_kv_map(struct device *d, struct kv_pool *p, uint32_t extent, struct hearth_err *e)
{
    (void)d;
    if (toy_mapped >= toy_extents) {
        toy_refusals++;
        return err_set(e, HEARTH_ENOMEM, "the toy has memory for %u extents", toy_extents);
    }
    toy_mapped++;
    for (uint32_t i = extent * p->extent; i < (extent + 1) * p->extent && i < PAGES_MAX; i++) {
        assert_false(p->mapped[i]);
        p->mapped[i] = true;
        memset(p->memory[i], 0, sizeof p->memory[i]);
    }
    return 0;
}
static void toy_kv_unmap(struct device *d, struct kv_pool *p, uint32_t extent)
{
    assert_true(d->submitted == d->waited && !moves[SAVE].n && !moves[LOAD].n);
    toy_mapped--;
    for (uint32_t i = extent * p->extent; i < (extent + 1) * p->extent && i < PAGES_MAX; i++) {
        assert_true(p->mapped[i]);
        p->mapped[i] = false;
        memset(p->memory[i], 0xee, sizeof p->memory[i]);
    }
}
static void toy_kv_free(struct device *d, struct kv_pool *p)
{
    for (uint32_t i = 0; p->extent && i < PAGES_MAX; i += p->extent)
        toy_mapped -= p->mapped[i];
    free(p);
    d->n_pool--;
}
static void toy_kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src)
{
    (void)d;
    memcpy(p->memory[dst], p->memory[src], sizeof p->memory[0]);
}
static void toy_kv_clear(struct device *d, struct kv_pool *p, uint32_t page)
{
    (void)d;
    memset(p->memory[page], 0, sizeof p->memory[0]);
}
static void toy_sample(struct device *d, const struct batch_sample *op)
{
    for (uint32_t i = 0; i < op->n; i++) {
        uint32_t id = toy_next(d->row[d->out_row[i]]);
        d->slot[op->slot[i]] = id;
        d->ring[d->submitted % MAX_IN_FLIGHT].s[i] = (struct sampled){.slot = op->slot[i], .token = id};
    }
    d->ring[d->submitted % MAX_IN_FLIGHT].n = op->n;
}
static int32_t bits_of(const struct batch *b)
{
    if (!toy_decode_rows || b->invariant == INVARIANT_DECODE)
        return 0;
    if (b->invariant != INVARIANT_OFF)
        return b->invariant == INVARIANT_PROMPT ? TOY_PROMPT : TOY_BATCH;
    return b->n_row == b->n_seq && b->n_row <= toy_decode_rows ? 0 : TOY_PROMPT + (int32_t)b->n_row;
}
static void count_chunks(const struct device *d)
{
    uint32_t n = 0;
    for (uint64_t i = d->waited; i <= d->submitted; i++)
        n += d->ring[i % MAX_IN_FLIGHT].n_row > 2; /* not steps in which two sequences decode */
    if (n > toy_chunks)
        toy_chunks = n;
}
static bool toy_prompt_is_quick(struct device *d, const void *model, const struct kv_desc *kv, uint32_t n_group)
{
    (void)d, (void)model, (void)kv, (void)n_group;
    return toy_prompt_quick;
}

static bool has_sums(const struct batch *b)
{
    uint64_t need = toy_mem_cached + 1000ull * toy_mapped;
    for (uint32_t i = 0; i < b->n_seq; i++)
        need += (uint64_t)b->seq[i].n_row * (b->seq[i].pos0 + b->seq[i].n_row);
    return need <= toy_sums;
}

static uint64_t toy_step_run(struct device *d, const struct batch *b, const struct program *p)
{
    (void)p; /* what follows is the toy's forward pass */
    if (!has_sums(b)) {
        toy_refused_steps++;
        return 0;
    }
    assert_true(d->submitted - d->waited < toy_max_in_flight);
    while (toy_hold_at && d->submitted >= toy_hold_at) {
        toy_held = true;
        sched_yield();
    }
    toy_held = false;
    d->ring[d->submitted % MAX_IN_FLIGHT].n = 0;
    d->ring[d->submitted % MAX_IN_FLIGHT].n_row = b->n_row;
    count_chunks(d);
    for (uint32_t i = 0; i < b->n_seq && toy_fail_pos; i++)
        if (toy_fail_pos < b->seq[i].pos0 + b->seq[i].n_row)
            toy_fail_at = d->submitted + 1;
    if (d->submitted + 1 == toy_fail_at)
        return ++d->submitted;
    d->stopped = toy_endless && b->n_row > toy_endless;
    if (d->stopped) {
        toy_in_endless = true;
        while (!b->stop(b->stop_arg))
            sched_yield();
        toy_in_endless = false;
        toy_stopped++;
        return ++d->submitted;
    }
    for (uint32_t i = 0; i < b->n_seq; i++) {
        const struct batch_seq *s = &b->seq[i];
        struct kv_pool *pool = b->kv[0];
        uint64_t h = s->pos0 ? pool->memory[s->pages[0][(s->pos0 - 1) / KV_PAGE]][(s->pos0 - 1) % KV_PAGE] : root;
        for (uint32_t r = 0; r < s->n_row; r++) {
            uint32_t pos = s->pos0 + r;
            int32_t id = b->token[s->row0 + r];
            h = extend(h, (id < 0 ? (int32_t)d->slot[-1 - id] : id) + bits_of(b));
            assert_true(has_memory(pool, s->pages[0][pos / KV_PAGE]));
            pool->memory[s->pages[0][pos / KV_PAGE]][pos % KV_PAGE] = h;
            d->row[s->row0 + r] = h;
        }
    }
    memcpy(d->out_row, b->out_row, b->n_out * sizeof *b->out_row);
    toy_sample(d, &b->sample);
    return ++d->submitted;
}
static int toy_step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    if (!ticket)
        return err_set(e, HEARTH_ENOMEM, "the toy has no room for sums");
    assert_true(ticket == ++d->waited); /* in order, each ticket once */
    if (ticket == toy_fail_at)
        return err_set(e, toy_fails, "the toy broke");
    if (d->stopped)
        return err_set(e, HEARTH_ECANCELLED, "the toy was stopped");
    assert_int_equal(n, d->ring[(ticket - 1) % MAX_IN_FLIGHT].n);
    memcpy(out, d->ring[(ticket - 1) % MAX_IN_FLIGHT].s, n * sizeof *out);
    toy_now = toy_now + toy_step_s + toy_row_s * d->ring[(ticket - 1) % MAX_IN_FLIGHT].n_row;
    return 0;
}
static int toy_slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                        uint32_t n_history, uint32_t n_vocab, struct hearth_err *e)
{
    (void)d, (void)slot, (void)history, (void)n_history, (void)n_vocab;
    return toy_no_slot && p->seed == toy_no_slot && toy_mem_cached + 1000ull * toy_mapped >= toy_slot_room
               ? err_set(e, HEARTH_ENOMEM, "the toy has no room for a slot")
               : 0;
}
static int toy_act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    (void)a;
    assert_int_equal(n_row, 1);
    if (toy_fail_read && --toy_fail_read == 0)
        return err_set(e, HEARTH_EDEVICE, "the toy broke");
    assert_true(d->waited == d->submitted); /* logits live until the next step */
    for (uint32_t i = 0; i < VOCAB; i++)
        out[i] = toy_logit(d->row[d->out_row[row0]], i);
    return 0;
}

static uint64_t toy_weight_bytes(struct device *d, const struct weight *w, uint64_t *passing)
{
    (void)d, (void)w, (void)passing;
    fail(); /* the toy replaces model_find_places() */
    return 0;
}
static int toy_read_rate(struct device *d, bool host, uint64_t bytes, double *bytes_per_s, struct hearth_err *e)
{
    (void)d, (void)bytes, (void)e;
    *bytes_per_s = host ? TOY_HOST_RATE : TOY_RATE;
    return 0;
}

static uint64_t toy_step_bytes(struct device *d, const struct workspace_dims *dims, const struct kv_desc *kv,
                               uint32_t n_group, uint32_t n_token)
{
    (void)d, (void)dims, (void)kv, (void)n_group;
    return (uint64_t)toy_sums_each * n_token;
}

static const struct backend toy = {
    .name = "toy",
    .open = toy_open,
    .close = toy_close,
    .info = toy_info,
    .reserve = toy_reserve,
    .weight_bytes = toy_weight_bytes,
    .read_rate = toy_read_rate,
    .step_bytes = toy_step_bytes,
    .kv_new = toy_kv_new,
    .kv_free = toy_kv_free,
    .kv_map = toy_kv_map,
    .kv_unmap = toy_kv_unmap,
    .kv_copy = toy_kv_copy,
    .kv_clear = toy_kv_clear,
    .step_run = toy_step_run,
    .prompt_is_quick = toy_prompt_is_quick,
    .step_wait = toy_step_wait,
    .slot_set = toy_slot_set,
    .host_alloc = toy_host_alloc,
    .host_free = toy_host_free,
    .kv_save = toy_kv_save,
    .kv_load = toy_kv_load,
    .kv_transfer_done = toy_kv_transfer_done,
    .kv_transfer_wait = toy_kv_transfer_wait,
    .cache_limit = toy_cache_limit,
    .sync = toy_sync,
    .act_read = toy_act_read,
};
/* The CPU runs one step at a time. */
static uint64_t toy_cpu_step_run(struct device *d, const struct batch *b, const struct program *p)
{
    assert_int_equal(d->submitted, d->waited);
    return toy_step_run(d, b, p);
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
    .step_run = toy_cpu_step_run,
    .step_wait = toy_step_wait,
    .slot_set = toy_slot_set,
    .act_read = toy_act_read,
};
const struct backend *const backends[] = {&toy, &toy_cpu, NULL};

int selfcheck_verify(const struct model *m, const char *record, bool batches, struct selfcheck_verdict *out,
                     struct hearth_err *e)
{
    (void)e, (void)batches;
    toy_checks++;
    assert_string_equal(record, "/nowhere/checked");
    assert_ptr_equal(m->be, &toy); /* the CPU is never checked */
    *out = (struct selfcheck_verdict){.ok = !toy_distrusted};
    snprintf(out->why, sizeof out->why, "the toy cannot count");
    return 0;
}

int model_find_places(struct gguf *g, const struct backend *be, struct device *dev, const struct model_room *room,
                      struct model_place *out, struct hearth_err *e)
{
    struct place_item v[TOY_MATRICES_MAX];
    (void)g, (void)dev;
    assert_ptr_equal(be, &toy);
    for (uint32_t i = 0; i < toy_matrices; i++)
        v[i] = (struct place_item){.bytes = TOY_MATRIX, .read = TOY_MATRIX, .passing = 10 << 20};
    return place_choose(v, toy_matrices, room, out, e);
}
int model_outline(struct model **out, struct gguf *g, struct hearth_err *e)
{
    (void)g, (void)e;
    *out = calloc(1, sizeof **out);
    return 0;
}
int model_load_within(struct model **out, struct gguf *g, const struct backend *be, struct device *dev,
                      const struct model_room *room, model_progress *cb, void *arg, struct hearth_err *e)
{
    struct model_place place = {0};
    toy_loads++;
    assert_true(!room || !model_find_places(g, be, dev, room, &place, e));
    if (toy_no_load)
        return err_set(e, HEARTH_EBADMODEL, "the toy does not load");
    if (toy_refuses && be == &toy)
        return err_set(e, toy_refuses, "the toy is too small");
    for (uint64_t steps = dev->submitted, i = 1; i <= 20 || dev->submitted < steps + toy_load_steps; i++)
        if (!cb(arg, i < 20 ? i : 20, 20))
            return err_set(e, HEARTH_ECANCELLED, "the engine is closing");
        else if (toy_load) {
            for (toy_load = LOAD_HELD; toy_load == LOAD_HELD;)
                sched_yield();
            cb(arg, i, 20);
            return err_set(e, HEARTH_EBADMODEL, "the toy does not load to the end");
        }
    *out = calloc(1, sizeof **out);
    (*out)->be = be;
    (*out)->dev = dev;
    (*out)->gguf = g;
    (*out)->hp.n_ctx = MAX_LEN;
    (*out)->place = place;
    return 0;
}
int kv_fingerprint_make(struct kv_fingerprint out[KV_GROUPS_MAX], const struct model *m, const struct kv_desc *desc,
                        struct hearth_err *e)
{
    (void)m, (void)e;
    *out = (struct kv_fingerprint){.page_bytes = kv_page_bytes(desc),
                                   .n_layer = desc->n_layer,
                                   .n_kv = desc->n_kv,
                                   .d_head = desc->d_k,
                                   .page_tokens = KV_PAGE,
                                   .numerics = KV_NUMERICS,
                                   .backend = "toy"};
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
uint32_t model_kv_descs(const struct model *m, enum dtype type, struct kv_desc out[KV_GROUPS_MAX])
{
    (void)m;
    *out = (struct kv_desc){.n_layer = toy_layers, .n_kv = 1, .d_k = 2, .d_v = 2, .type = type};
    return 1;
}
void model_workspace(const struct model *m, struct workspace_dims *dims)
{
    (void)m;
    dims->n_vocab = VOCAB;
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
