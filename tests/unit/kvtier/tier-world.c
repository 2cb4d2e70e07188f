/* tier-world.c - the fixture of the tiers' tests; see tier-world.h. */
#include "config.h"

#include "tests/unit/kvtier/tier-world.h"

#include <dirent.h>
#include <fcntl.h>
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
static const struct kv_desc window_desc = {
    .n_layer = 3, .n_kv = 1, .d_k = 16, .d_v = 16, .window = WINDOW, .type = DT_F16, .n_page = WINDOW_POOL};

static const struct kv_desc state_desc = {.n_layer = 3, .d_state = 600, .type = DT_F32, .n_page = WINDOW_POOL};

void world_fresh_pool(struct world *w)
{
    struct hearth_err e;
    if (w->m.group.kv) {
        assert_true(kv_check(w->m.group.kv));
        kv_cache_free(w->m.group.kv);
        for (uint32_t g = 0; g < w->m.n_group; g++)
            w->be->kv_free(w->dev, w->m.pool[g]);
    }
    struct kv_shape shape[KV_GROUPS_MAX];
    for (uint32_t g = 0; g < w->m.n_group; g++) {
        shape[g] =
            (struct kv_shape){w->m.kv[g].n_page, w->m.kv[g].window, w->m.kv[g].d_state != 0, .within = w->step > 0};
        assert_int_equal(w->be->kv_new(w->dev, &w->m.kv[g], &w->m.pool[g], &e), 0);
    }
    assert_int_equal(kv_cache_new(&w->m.group.kv, shape, w->m.n_group, &e), 0);
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
    struct kv_fingerprint both[] = {w->fingerprint, w->window_fingerprint};
    tier_attach(w->tier, &w->m, both);
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

static int setup(void **state, uint32_t n_group, const struct kv_desc *second)
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
    w->m.kv[1] = *second;
    w->m.n_group = n_group;
    w->fingerprint =
        (struct kv_fingerprint){.model = {1, 2}, .page_bytes = kv_page_bytes(&desc), .page_tokens = KV_PAGE};
    strcpy(w->fingerprint.backend, "cpu");
    w->window_fingerprint = w->fingerprint;
    w->window_fingerprint.page_bytes = kv_page_bytes(second);
    w->window_fingerprint.window = second->window;
    w->window_fingerprint.group = 1;
    world_fresh_pool(w);
    *state = w;
    return 0;
}

int world_setup(void **state)
{
    return setup(state, 1, &window_desc);
}

int world_setup_windows(void **state)
{
    return setup(state, 2, &window_desc);
}

int world_setup_states(void **state)
{
    return setup(state, 2, &state_desc);
}

int world_teardown(void **state)
{
    struct world *w = *state;
    tier_close(w->tier);
    assert_true(kv_check(w->m.group.kv));
    for (uint32_t g = 0; g < w->m.n_group; g++) {
        struct kv_counts c;
        kv_count(w->m.group.kv, g, &c);
        assert_int_equal(c.held, 0); /* no job holds a page */
    }
    assert_int_equal(w->m.group.n_seq, 0);
    kv_cache_free(w->m.group.kv);
    for (uint32_t g = 0; g < w->m.n_group; g++)
        w->be->kv_free(w->dev, w->m.pool[g]);
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

/* The expected contents of the group's page i. */
static void fill(const struct seq *q, uint32_t group, uint32_t i, uint8_t *page)
{
    struct kv_hash *h = tier_chain(q, i + 1);
    for (uint64_t k = 0; k < kv_page_bytes(&q->model->kv[group]); k++)
        page[k] = (uint8_t)(h[i].lo >> (k % 8 * 8)) ^ (uint8_t)(k + 77 * group);
    free(h);
}

void world_damage(const struct world *w, const struct kv_fingerprint *p, bool cut)
{
    DIR *d = opendir(w->dir);
    int n = 0;
    for (struct dirent *en; (en = readdir(d));) {
        if (!kvfile_is_name(en->d_name, p))
            continue;
        int fd = openat(dirfd(d), en->d_name, O_RDWR);
        off_t at = lseek(fd, 0, SEEK_END) - 3;
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(cut ? ftruncate(fd, at) : pwrite(fd, &byte, 1, at) - 1, 0);
        close(fd);
        n++;
    }
    closedir(d);
    assert_true(n > 0);
}

/* Writes the expected contents of a page to the device. */
static void load(struct world *w, const struct seq *q, uint32_t group, uint32_t i, const uint32_t *to)
{
    uint8_t page[BYTES];
    const void *host[] = {page};
    fill(q, group, i, page);
    assert_true(w->be->kv_load(w->dev, w->m.pool[group], to, host, 1) > 0);
}

void world_take_turn(struct world *w, struct seq *q)
{
    uint32_t n = q->n_tokens / KV_PAGE, end;
    struct kv *kv = w->m.group.kv;
    uint32_t had = kv_match(kv, &q->kv, q->token, n * KV_PAGE) / KV_PAGE;
    for (uint32_t at = had; at < n; at = end) { /* a page at a time, and the windows slide */
        uint32_t step = w->step ? w->step : 1;
        step = n - at < step ? n - at : step;
        assert_true(kv_grow(kv, &q->kv, at * KV_PAGE, n * KV_PAGE, step * KV_PAGE));
        models_run_kv_actions(&w->m);
        end = at + kv_cut(kv, &q->kv, at * KV_PAGE, step * KV_PAGE) / KV_PAGE;
        for (uint32_t g = 0; g < w->m.n_group; g++) {
            const uint32_t *own = q->kv.state[g].page;
            for (uint32_t i = at; i < end && !w->m.kv[g].d_state; i++)
                load(w, q, g, i, &q->kv.page[g][i]);
            if (w->m.kv[g].d_state)
                load(w, q, g, end - 1, &own[1]);
            if (w->m.kv[g].d_state && q->kv.within)
                load(w, q, g, q->kv.within / KV_PAGE - 1, &own[2]);
        }
        kv_publish(kv, &q->kv, q->token, end * KV_PAGE);
    }
    q->state = SEQ_RUN;
    q->n_computed = n * KV_PAGE;
    tier_save(w->tier, q, engine_now());
    kv_advance(w->m.group.kv, &q->kv, q->n_computed);
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
    uint32_t n = kv_match(w->m.group.kv, &q->kv, q->token, (q->n_tokens - 1) / KV_PAGE * KV_PAGE) / KV_PAGE;
    models_run_kv_actions(&w->m);
    for (uint32_t g = 0; g < w->m.n_group; g++) {
        uint32_t seen = kv_first_visible(n * KV_PAGE, w->m.kv[g].window) / KV_PAGE;
        for (uint32_t i = w->m.kv[g].d_state && n ? n - 1 : seen; i < n; i++) {
            assert_true(w->be->kv_save(w->dev, w->m.pool[g], &q->kv.page[g][i], host, 1) > 0);
            fill(q, g, i, want);
            assert_memory_equal(page, want, kv_page_bytes(&w->m.kv[g]));
        }
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
