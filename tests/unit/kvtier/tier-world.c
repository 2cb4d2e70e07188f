/* tier-world.c - the fixture of the tiers' tests; see tier-world.h. */
#include "config.h"

#include "tests/unit/kvtier/tier-world.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_tell(void *arg, const struct tier_event *ev)
{
    struct world *w = arg;
    w->saved += ev->kind == TIER_SAVED;
    w->used += ev->kind == TIER_USED;
    if (ev->kind == TIER_SAVED)
        snprintf(w->last_file, sizeof w->last_file, "%s", ev->file);
    if (ev->kind == TIER_BAD) {
        w->bad++;
        snprintf(w->bad_file, sizeof w->bad_file, "%s", ev->file);
    }
}

static const struct kv_desc desc = {.n_layer = 2, .n_kv = 2, .d_k = 16, .d_v = 16, .type = DT_F32, .n_page = POOL};

void world_fresh_pool(struct world *w)
{
    struct hearth_err e;
    if (w->m.group.kv) {
        assert_true(kv_check(w->m.group.kv));
        kv_cache_free(w->m.group.kv);
        w->be->kv_free(w->dev, w->m.pool[0]);
    }
    assert_int_equal(w->be->kv_new(w->dev, &desc, &w->m.pool[0], &e), 0);
    assert_int_equal(kv_cache_new(&w->m.group.kv, &(struct kv_shape){POOL, 0}, 1, &e), 0);
}

void world_open(struct world *w, bool files, uint64_t ram)
{
    struct hearth_err e = {0};
    struct tier_params p = {
        .be = w->be,
        .dev = w->dev,
        .dir = files ? w->dir : NULL,
        .ram = ram,
        .counters = &w->counters,
        .notify = on_tell,
        .arg = w,
    };
    assert_int_equal(tier_open(&w->tier, &p, &e), 0);
    tier_attach(w->tier, &w->m, &w->fingerprint);
}

void world_restart(struct world *w, bool files, uint64_t ram)
{
    tier_close(w->tier);
    world_fresh_pool(w);
    world_open(w, files, ram);
}

void world_empty_folder(const struct world *w)
{
    DIR *d = opendir(w->dir);
    for (struct dirent *en; (en = readdir(d));)
        unlinkat(dirfd(d), en->d_name, 0);
    closedir(d);
}

int world_setup(void **state)
{
    struct hearth_err e;
    struct world *w = calloc(1, sizeof *w);
    strcpy(w->dir, "/tmp/hearth-tier.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->be = backend_find("cpu");
    assert_int_equal(w->be->open(&w->dev, &(struct device_params){.threads = 1, .variant = "auto"}, &e), 0);
    w->model.be = w->be;
    w->model.dev = w->dev;
    assert_int_equal(kv_page_bytes(&desc), BYTES);
    w->m.model = &w->model;
    w->m.kv[0] = desc;
    w->m.n_group = 1;
    w->fingerprint =
        (struct kv_fingerprint){.model = {1, 2}, .page_bytes = kv_page_bytes(&desc), .page_tokens = KV_PAGE};
    strcpy(w->fingerprint.backend, "cpu");
    world_fresh_pool(w);
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    struct world *w = *state;
    tier_close(w->tier);
    assert_true(kv_check(w->m.group.kv));
    struct kv_counts c;
    kv_count(w->m.group.kv, 0, &c);
    assert_int_equal(c.held, 0); /* no job has kept a page */
    assert_int_equal(w->m.group.n_seq, 0);
    kv_cache_free(w->m.group.kv);
    w->be->kv_free(w->dev, w->m.pool[0]);
    w->be->close(w->dev);
    world_empty_folder(w);
    rmdir(w->dir);
    free(w);
    return 0;
}

struct seq *world_seq(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed)
{
    static uint64_t ids;
    struct seq *q = seq_new(NULL, 0, n * KV_PAGE + 1);
    for (uint32_t i = 0; i < n * KV_PAGE + 1; i++)
        seq_push_token(q, (int32_t)(i % 7) + (i / KV_PAGE >= fork ? 1000 * seed : 0));
    q->id = ++ids;
    q->uid = q->kv.uid = uid;
    q->model = &w->m;
    q->n_prompt = q->n_tokens;
    return q;
}

/* What the page of that place has to hold. */
static void fill(const struct seq *q, uint32_t i, uint8_t *page)
{
    struct kv_hash *h = tier_chain(q->uid, q->token, i + 1);
    for (uint64_t k = 0; k < BYTES; k++)
        page[k] = (uint8_t)(h[i].lo >> (k % 8 * 8)) ^ (uint8_t)k;
    free(h);
}

void world_take_turn(struct world *w, struct seq *q)
{
    uint32_t n = q->n_tokens / KV_PAGE;
    uint8_t page[BYTES];
    const void *host[] = {page};
    uint32_t had = kv_match_nodes(w->m.group.kv, &q->kv, q->token, n * KV_PAGE);
    assert_true(kv_grow(w->m.group.kv, &q->kv, 0, n * KV_PAGE, 0));
    models_run_kv_actions(&w->m);
    for (uint32_t i = had; i < n; i++) {
        fill(q, i, page);
        assert_true(w->be->kv_load(w->dev, w->m.pool[0], &q->kv.page[0][i], host, 1) > 0);
    }
    q->state = SEQ_RUN;
    q->n_computed = n * KV_PAGE;
    tier_save(w->tier, q, engine_now());
    kv_release(w->m.group.kv, &q->kv, q->token, n * KV_PAGE);
    q->state = SEQ_NEW;
    seq_free(q);
}

void world_turn(struct world *w)
{
    struct hearth_err e;
    int rc = tier_poll(w->tier, engine_now(), &e);
    assert_true(rc >= 0);
    if (!rc && tier_fd(w->tier) >= 0)
        poll(&(struct pollfd){tier_fd(w->tier), POLLIN, 0}, 1, 10);
}

void world_settle(struct world *w)
{
    while (tier_saving(w->tier) || w->tier->io_jobs)
        world_turn(w);
}

uint32_t world_pages_back(struct world *w, struct seq *q)
{
    uint8_t page[BYTES], want[BYTES];
    void *host[] = {page};
    if (tier_submit(w->tier, q, engine_now()))
        for (const struct seq *back = NULL; back != q;) {
            back = tier_ready(w->tier);
            if (!back)
                world_turn(w);
        }
    uint32_t n = kv_match_nodes(w->m.group.kv, &q->kv, q->token, q->n_tokens - 1);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(w->be->kv_save(w->dev, w->m.pool[0], &q->kv.page[0][i], host, 1) > 0);
        fill(q, i, want);
        assert_memory_equal(page, want, sizeof page);
    }
    kv_release(w->m.group.kv, &q->kv, NULL, 0);
    return n;
}

uint32_t world_back(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed)
{
    struct seq *q = world_seq(w, uid, n, fork, seed);
    uint32_t got = world_pages_back(w, q);
    assert_true(q->restored_to - q->restored_from <= got * KV_PAGE);
    seq_free(q);
    return got;
}
