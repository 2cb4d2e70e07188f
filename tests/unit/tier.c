/* tier.c - pages that leave the device and come back: through the index, host memory and files, with the real I/O
 * thread and the CPU's pool. Nothing computes here: a page's content is made from its timeline, and looked at again. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/engine/device.h"
#include "daemon/engine/tier-inside.h"

enum { POOL = 64, N = 12 /* pages of a timeline */, UID = 7, BYTES = 2 * 2 * 2 * KV_PAGE * 16 * 4 /* of a page */ };

struct world {
    char dir[64];
    const struct backend *be;
    struct device *dev;
    struct resident m;
    struct model model;
    struct kv_print print;
    struct tier *tier;
    struct tier_counters counters;
    int saved, used, bad;
    char bad_file[KVFILE_NAME], last_file[KVFILE_NAME]; /* of those saved */
};

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

static const struct kv_desc desc = {.n_layer = 2, .n_kv = 2, .d_head = 16, .type = DT_F32, .n_page = POOL};

/* The device's pages go: what an unload or a new process leaves. */
static void fresh_pool(struct world *w)
{
    struct hearth_err e;
    if (w->m.group.kv) {
        assert_true(kv_check(w->m.group.kv));
        kv_free(w->m.group.kv);
        w->be->kv_free(w->dev, w->m.pool);
    }
    assert_int_equal(w->be->kv_new(w->dev, &desc, &w->m.pool, &e), 0);
    assert_int_equal(kv_new(&w->m.group.kv, POOL, &e), 0);
}

static void open_tier(struct world *w, bool files, uint64_t ram)
{
    struct hearth_err e = {0};
    struct tier_params p = {
        .be = w->be,
        .dev = w->dev,
        .dir = files ? w->dir : NULL,
        .ram = ram,
        .counters = &w->counters,
        .tell = on_tell,
        .arg = w,
    };
    assert_int_equal(tier_open(&w->tier, &p, &e), 0);
    tier_attach(w->tier, &w->m, &w->print);
}

/* A new process: nothing is known but the files. */
static void restart(struct world *w, bool files, uint64_t ram)
{
    tier_close(w->tier);
    fresh_pool(w);
    open_tier(w, files, ram);
}

/* A file's sync takes as long as we say: the linker puts this in the place of the real one (tests/local.mk). */
static sem_t synced;
static _Atomic bool syncs_slowly;
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    while (syncs_slowly && sem_wait(&synced) < 0) {
    }
    return __real_fdatasync(fd);
}

static void end_sync(void)
{
    syncs_slowly = false;
    sem_post(&synced);
}

static int setup(void **state)
{
    sem_init(&synced, 0, 0);
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
    w->print = (struct kv_print){.model = {1, 2}, .page_bytes = kv_page_bytes(&desc), .page_tokens = KV_PAGE};
    strcpy(w->print.backend, "cpu");
    fresh_pool(w);
    *state = w;
    return 0;
}

static void empty_folder(const struct world *w)
{
    DIR *d = opendir(w->dir);
    for (struct dirent *en; (en = readdir(d));)
        unlinkat(dirfd(d), en->d_name, 0);
    closedir(d);
}

static void remove_file(const struct world *w, const char *name)
{
    char path[64 + KVFILE_NAME + 1];
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    assert_int_equal(unlink(path), 0);
}

static int teardown(void **state)
{
    struct world *w = *state;
    end_sync(); /* where a test failed before it did */
    tier_close(w->tier);
    sem_destroy(&synced);
    assert_true(kv_check(w->m.group.kv));
    struct kv_counts c;
    kv_count(w->m.group.kv, &c);
    assert_int_equal(c.held, 0); /* no job has kept a page */
    assert_int_equal(w->m.group.n_seq, 0);
    kv_free(w->m.group.kv);
    w->be->kv_free(w->dev, w->m.pool);
    w->be->close(w->dev);
    empty_folder(w);
    rmdir(w->dir);
    free(w);
    return 0;
}

/* --- sequences ------------------------------------------------------------------------------------------ */

/* A timeline of n pages and a token; `seed` tells one from another, from page `fork` on. */
static struct seq *make_seq(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed)
{
    static uint64_t ids;
    struct seq *q = seq_new(NULL, 0, n * KV_PAGE + 1);
    for (uint32_t i = 0; i < n * KV_PAGE + 1; i++)
        seq_push_token(q, (int32_t)(i % 7) + (i / KV_PAGE >= fork ? 1000 * seed : 0));
    q->id = ++ids;
    q->uid = q->kv.uid = uid;
    q->model = &w->m;
    q->n_prompt = q->n_known;
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

/* Computes the sequence and ends its turn. */
static void take_turn(struct world *w, struct seq *q)
{
    uint32_t n = q->n_known / KV_PAGE;
    uint8_t page[BYTES];
    const void *host[] = {page};
    uint32_t had = kv_match_pages(w->m.group.kv, &q->kv, q->token, n * KV_PAGE);
    assert_true(kv_grow(w->m.group.kv, &q->kv, n * KV_PAGE));
    step_actions(&w->m);
    for (uint32_t i = had; i < n; i++) {
        fill(q, i, page);
        assert_true(w->be->kv_load(w->dev, w->m.pool, &q->kv.page[i], host, 1) > 0);
    }
    q->state = SEQ_RUN;
    q->n_fed = n * KV_PAGE;
    tier_save(w->tier, q, engine_now());
    kv_release(w->m.group.kv, &q->kv, q->token, n * KV_PAGE);
    q->state = SEQ_NEW;
    seq_free(q);
}

static void turn(struct world *w)
{
    struct hearth_err e;
    int rc = tier_turn(w->tier, engine_now(), &e);
    assert_true(rc >= 0);
    if (rc == 0 && tier_fd(w->tier) >= 0)
        poll(&(struct pollfd){tier_fd(w->tier), POLLIN, 0}, 1, 10);
}

static void settle(struct world *w)
{
    while (tier_saving(w->tier) || w->tier->io_jobs)
        turn(w);
}

/* The pages of the timeline that the device has, after the tiers had their say; their content must be right. */
static uint32_t pages_back(struct world *w, struct seq *q)
{
    uint8_t page[BYTES], want[BYTES];
    void *host[] = {page};
    if (tier_submit(w->tier, q, engine_now()))
        for (const struct seq *back = NULL; back != q;) {
            back = tier_ready(w->tier);
            if (!back)
                turn(w);
        }
    uint32_t n = kv_match_pages(w->m.group.kv, &q->kv, q->token, q->n_known - 1);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(w->be->kv_save(w->dev, w->m.pool, &q->kv.page[i], host, 1) > 0);
        fill(q, i, want);
        assert_memory_equal(page, want, sizeof page);
    }
    kv_release(w->m.group.kv, &q->kv, NULL, 0);
    return n;
}

static uint32_t back(struct world *w, int64_t uid, uint32_t n, uint32_t fork, int32_t seed)
{
    struct seq *q = make_seq(w, uid, n, fork, seed);
    uint32_t got = pages_back(w, q);
    assert_true(q->restored_to - q->restored_from <= got * KV_PAGE);
    seq_free(q);
    return got;
}

/* --- the index ------------------------------------------------------------------------------------------ */

static void index_goes_by_content(void **state)
{
    struct world *w = *state;
    struct host host;
    struct tier_index x;
    int32_t ids[2 * KV_PAGE] = {0}; /* two pages of the same ids */
    host_init(&host, w->be, w->dev, 1 << 20);
    index_init(&x, &host);
    struct tier_shelf *s = index_shelf(&x, &w->print);
    assert_ptr_equal(index_shelf(&x, &w->print), s);
    struct kv_print other = w->print;
    other.n_layer++;
    assert_ptr_not_equal(index_shelf(&x, &other), s);

    struct kv_hash root = {0, 0}, *h = tier_chain(UID, ids, 2), *foreign = tier_chain(UID + 1, ids, 2);
    assert_false(kv_hash_same(&h[0], &h[1]));
    assert_false(kv_hash_same(&h[0], &foreign[0]));
    struct tier_entry *a = index_add(&x, s, &h[0], &root, UID, 0, ids);
    struct tier_entry *b = index_add(&x, s, &h[1], &h[0], UID, KV_PAGE, ids + KV_PAGE);
    assert_ptr_equal(index_add(&x, s, &h[0], &root, UID, 0, ids), a);
    assert_ptr_equal(index_find(s, &h[1], &h[0], UID, ids), b);
    /* the hash alone is not believed */
    int32_t others[KV_PAGE] = {1};
    assert_null(index_find(s, &h[1], &root, UID, ids));
    assert_null(index_find(s, &h[1], &h[0], UID + 1, ids));
    assert_null(index_find(s, &h[1], &h[0], UID, others));
    assert_null(index_add(&x, s, &h[1], &h[0], UID, KV_PAGE, others));

    /* host memory: the least recently used goes first, and what a job uses does not */
    for (struct tier_entry *en = a; en; en = en == a ? b : NULL) {
        index_hold(&x, en);
        index_set_host(&x, en, host_take_new(&host, w->print.page_bytes));
        en->ready = true;
    }
    assert_false(index_drop_oldest(&x));
    index_let_go(&x, a);
    index_let_go(&x, b);
    index_touch(&x, a);
    assert_true(x.kept == 2 * w->print.page_bytes);
    assert_true(index_drop_oldest(&x));
    assert_null(index_known(s, &h[1])); /* nowhere any more */
    assert_ptr_equal(index_known(s, &h[0]), a);

    /* files: one that is forgotten takes along what was in it alone */
    struct kvfile_page page[2] = {{.hash = h[0]}, {.hash = h[1]}};
    struct kvfile_extent extent = {.uid = UID, .n = 2, .page = page};
    index_file(&x, s, "file", 100, &extent);
    assert_int_equal(x.file_pages, 2);
    assert_non_null(index_known(s, &h[1])->file);
    index_forget(&x, s, "file");
    assert_int_equal(x.file_pages + x.file_bytes, 0);
    assert_null(index_known(s, &h[1]));
    assert_null(index_known(s, &h[0])->file);
    free(h);
    free(foreign);
    index_fini(&x);
    host_fini(&host);
    open_tier(w, false, 0); /* for the teardown */
}

static void host_memory_is_bounded(void **state)
{
    struct world *w = *state;
    struct host h;
    struct host_page *p[8];
    host_init(&h, w->be, w->dev, 8 * 4096);
    assert_null(host_take(&h, 4096)); /* only what was taken from the system before */
    for (int i = 0; i < 8; i++)
        assert_non_null(p[i] = host_take_new(&h, 4096));
    assert_null(host_take_new(&h, 4096));
    assert_null(host_take_new(&h, 8192));
    host_give(&h, p[3]);
    assert_ptr_equal(host_take(&h, 4096), p[3]);
    for (int i = 0; i < 8; i++)
        host_give(&h, p[i]);
    assert_non_null(p[0] = host_take_new(&h, 8192)); /* another model's pages: the slab makes room */
    assert_true(h.bytes <= h.limit);
    host_give(&h, p[0]);
    host_fini(&h);
    open_tier(w, false, 0);
}

/* --- the way there and back ----------------------------------------------------------------------------- */

static void pages_come_back_from_files(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    assert_int_equal(w->saved, 1);
    assert_int_equal(atomic_load(&w->counters.host_pages), 0);
    take_turn(w, make_seq(w, UID, N, N, 0)); /* nothing of it is new */
    take_turn(w, make_seq(w, UID, N + 2, N, 1));
    settle(w);
    assert_int_equal(w->saved, 2);
    restart(w, true, 0);
    assert_int_equal(back(w, UID + 1, N, N, 0), 0); /* nobody else's */
    assert_int_equal(back(w, UID, N + 2, N, 1), N + 2);
    assert_int_equal(w->counters.pages_restored, N + 2);
    assert_int_equal(back(w, UID, N + 2, N, 2), N); /* the device has what they share */
    assert_int_equal(back(w, UID, N, 3, 3), 3);
    assert_int_equal(w->counters.pages_restored, N + 2);
    assert_true(w->used > 0);
    fresh_pool(w); /* an unload: the index is there still */
    assert_int_equal(back(w, UID, N, 5, 4), 5);
}

static void pages_come_back_from_host_memory(void **state)
{
    struct world *w = *state;
    open_tier(w, false, 4 * N * w->print.page_bytes);
    for (int i = 0; i < 4; i++)
        take_turn(w, make_seq(w, UID, N, 0, i));
    settle(w);
    fresh_pool(w);
    assert_int_equal(back(w, UID, N, 0, 1), N);
    take_turn(w, make_seq(w, UID, N, 0, 1)); /* used again ... */
    for (int i = 4; i < 7; i++) {
        fresh_pool(w);
        take_turn(w, make_seq(w, UID, N, 0, i));
        settle(w);
    }
    fresh_pool(w);
    assert_true(w->counters.host_pages <= 4 * N);
    assert_int_equal(back(w, UID, N, 0, 1), N); /* ... so others were dropped for the new ones */
    assert_int_equal(back(w, UID, N, 0, 0), 0);
    assert_true(w->counters.pages_dropped > 0);
    fresh_pool(w);
    assert_int_equal(back(w, UID, N, 0, 6), N);
}

/* One user's many pages do not cost another his few, though those are older. */
static void who_has_the_most_gives(void **state)
{
    struct world *w = *state;
    open_tier(w, false, 4 * N * w->print.page_bytes);
    for (int i = 0; i < 6; i++) {
        take_turn(w, make_seq(w, i == 0 ? UID + 1 : UID, N, 0, i));
        settle(w);
        fresh_pool(w);
    }
    assert_int_equal(w->counters.pages_dropped, 2 * N);
    assert_int_equal(back(w, UID + 1, N, 0, 0), N);
    assert_int_equal(back(w, UID, N, 0, 1) + back(w, UID, N, 0, 2), 0); /* his oldest */
    for (int i = 3; i < 6; i++)
        assert_int_equal(back(w, UID, N, 0, i), N);

    /* up to the same for both: the other one's next comes out of the many */
    for (int i = 6; i < 9; i++) {
        fresh_pool(w);
        take_turn(w, make_seq(w, UID + 1, N, 0, i));
        settle(w);
    }
    fresh_pool(w);
    assert_int_equal(back(w, UID, N, 0, 3), 0);
    assert_int_equal(back(w, UID, N, 0, 4) + back(w, UID, N, 0, 5), 2 * N);
    assert_int_equal(back(w, UID + 1, N, 0, 7) + back(w, UID + 1, N, 0, 8), 2 * N);
    assert_int_equal(w->counters.host_pages, 4 * N);
}

static void the_cheaper_way_is_taken(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    restart(w, true, 0);
    assert_int_equal(back(w, UID, N, N, 0), N); /* measures the rates of disk and link */
    assert_true(w->counters.read_rate > 0 && w->counters.device_rate > 0);
    fresh_pool(w);
    tier_computed(w->tier, &w->m, 1 << 20, 1e-9); /* computing takes no time */
    assert_int_equal(back(w, UID, N, N, 0), 0);
    for (int i = 0; i < 64; i++)
        tier_computed(w->tier, &w->m, 64, 100); /* it takes for ever */
    assert_int_equal(back(w, UID, N, N, 0), N);
}

/* The clock is ours: the disk is slow where we say so. */
static void a_restore_that_falls_behind_is_stopped(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    for (int late = 0; late < 2; late++) {
        restart(w, true, 0);
        settle(w);
        tier_computed(w->tier, &w->m, N * KV_PAGE, 10); /* computing would take ten seconds */
        struct seq *q = make_seq(w, UID, N, N, 0), *ready;
        assert_true(tier_submit(w->tier, q, 100));
        assert_true(tier_turn(w->tier, late ? 101.5 : 100.5, &e) >= 0); /* nothing can have come before this one */
        ready = tier_ready(w->tier);
        assert_ptr_equal(ready, late ? q : NULL);
        while (!ready && !(ready = tier_ready(w->tier))) {
            poll(&(struct pollfd){tier_fd(w->tier), POLLIN, 0}, 1, 10000);
            assert_true(tier_turn(w->tier, 100.9, &e) >= 0);
        }
        assert_int_equal(q->restored_to, late ? 0 : N * KV_PAGE);
        seq_free(q);
        settle(w);
        assert_int_equal(kv_available(w->m.group.kv), POOL);
    }
}

static void damage(const struct world *w, uint32_t page)
{
    DIR *d = opendir(w->dir);
    for (struct dirent *en; (en = readdir(d));)
        if (strstr(en->d_name, ".kv")) {
            int fd = openat(dirfd(d), en->d_name, O_RDWR);
            off_t at = lseek(fd, 0, SEEK_END) - (off_t)((N - page) * w->print.page_bytes) + 5;
            uint8_t b;
            assert_int_equal(pread(fd, &b, 1, at), 1);
            b ^= 1;
            assert_int_equal(pwrite(fd, &b, 1, at), 1);
            close(fd);
        }
    closedir(d);
}

static void what_came_before_the_damage_counts(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    restart(w, true, 0);
    settle(w); /* scanned: its head is well */
    damage(w, 8);
    struct seq *q = make_seq(w, UID, N, N, 0);
    uint32_t got = pages_back(w, q);
    assert_true(got > 0 && got < N);
    assert_int_equal(q->restored_to, got * KV_PAGE);
    seq_free(q);
    assert_int_equal(w->bad, 1);
    assert_int_equal(w->counters.files_bad, 1);
    take_turn(w, make_seq(w, UID, N, N, 0)); /* it is computed again, and saved again */
    settle(w);
    fresh_pool(w);
    assert_int_equal(back(w, UID, N, N, 0), N);
}

/* With a GPU host memory is pinned where there is nothing else to do, and who waits for a file's answer is something.
 */
static void pinning_delays_no_restore(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, 3, 0, 1));
    settle(w);
    restart(w, true, 128 << 20);
    w->tier->p.gpu = true;
    struct seq *q = make_seq(w, UID, 3, 0, 1);
    assert_true(tier_submit(w->tier, q, engine_now())); /* the folder is being looked through */
    while (!tier_ready(w->tier)) {
        assert_false(tier_idle(w->tier));
        turn(w);
    }
    assert_int_equal(q->restored_to, 3 * KV_PAGE);
    assert_true(tier_idle(w->tier));
    w->tier->p.gpu = false;
    seq_free(q);
}

static void a_file_that_was_evicted_is_a_quiet_miss(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    fresh_pool(w);
    empty_folder(w);
    assert_int_equal(back(w, UID, N, N, 0), 0);
    assert_int_equal(w->bad, 0);
    assert_int_equal(w->counters.file_pages, 0);
}

/* An unload right after a turn, and a resume before its file is there: the pages are nowhere else any more. */
static void a_file_on_its_way_is_waited_for(void **state)
{
    struct world *w = *state;
    struct hearth_err e;
    open_tier(w, true, 0);
    for (int late = 0; late < 2; late++) {
        settle(w);
        syncs_slowly = true;
        take_turn(w, make_seq(w, UID, N, 0, late));
        do
            turn(w);
        while (w->counters.host_pages || tier_busy(w->tier, &w->m));
        assert_true(tier_saving(w->tier));
        fresh_pool(w);
        tier_computed(w->tier, &w->m, N * KV_PAGE, 10); /* computing would take ten seconds */
        struct seq *q = make_seq(w, UID, N, 0, late), *ready = NULL;
        assert_true(tier_submit(w->tier, q, 100));
        assert_true(tier_turn(w->tier, 100.9, &e) >= 0);
        assert_null(tier_ready(w->tier));
        if (late) { /* a tenth of that has gone by */
            assert_true(tier_turn(w->tier, 101.5, &e) >= 0);
            assert_ptr_equal(ready = tier_ready(w->tier), q);
        }
        end_sync();
        while (!ready && !(ready = tier_ready(w->tier))) {
            poll(&(struct pollfd){tier_fd(w->tier), POLLIN, 0}, 1, 10);
            assert_true(tier_turn(w->tier, 100.9, &e) >= 0);
        }
        assert_int_equal(q->restored_to, late ? 0 : N * KV_PAGE);
        settle(w);
        assert_int_equal(pages_back(w, q), N); /* by now in any case */
        seq_free(q);
    }
}

/* A file that hearthd has removed: its pages are written again when a turn that has them ends. */
static void a_file_that_is_told_to_be_gone_is_written_again(void **state)
{
    struct world *w = *state;
    for (int ram = 0; ram < 2; ram++) {
        open_tier(w, true, ram ? 4 * N * w->print.page_bytes : 0);
        take_turn(w, make_seq(w, UID, N, N, 0));
        take_turn(w, make_seq(w, UID, N, 0, 1)); /* of another file */
        settle(w);
        assert_int_equal(w->saved, 2);
        remove_file(w, w->last_file);
        tier_gone(w->tier, w->last_file);
        tier_gone(w->tier, "0123456789abcdef-0123456789abcdef0123456789abcdef.kv"); /* of which nobody knew */
        turn(w);
        assert_int_equal(w->counters.file_pages, N);
        assert_int_equal(w->counters.host_pages, ram ? 2 * N : 0);
        take_turn(w, make_seq(w, UID, N, N, 0)); /* is there */
        take_turn(w, make_seq(w, UID, N, 0, 1));
        settle(w);
        turn(w);
        assert_int_equal(w->saved, 3);
        assert_int_equal(w->counters.file_pages, 2 * N);
        restart(w, true, 0);
        assert_int_equal(back(w, UID, N, 0, 1), N);
        assert_int_equal(back(w, UID, N, N, 0), N);
        tier_close(w->tier);
        fresh_pool(w);
        empty_folder(w);
        w->saved = 0;
    }
    open_tier(w, true, 0); /* for the teardown */
}

/* And one that is being read: what has come counts. */
static void a_file_may_go_while_it_is_read(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    restart(w, true, 0);
    settle(w);
    struct seq *q = make_seq(w, UID, N, N, 0);
    assert_true(tier_submit(w->tier, q, engine_now()));
    turn(w);
    tier_gone(w->tier, w->last_file);
    while (tier_ready(w->tier) != q)
        turn(w);
    settle(w);
    assert_int_equal(w->counters.file_pages, 0);
    seq_free(q);
}

static void a_cancelled_restore_leaves_nothing(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    for (int turns = 0; turns < 6; turns++) {
        fresh_pool(w);
        struct seq *q = make_seq(w, UID, N, N, 0);
        bool taken = tier_submit(w->tier, q, engine_now());
        assert_true(taken && w->m.group.n_seq == 1);
        assert_null(tier_cancel(w->tier, q->id + 1));
        for (int i = 0; i < turns; i++)
            turn(w);
        assert_ptr_equal(tier_cancel(w->tier, q->id), q);
        assert_null(tier_cancel(w->tier, q->id));
        assert_int_equal(w->m.group.n_seq, 0);
        seq_free(q);
        while (tier_busy(w->tier, &w->m) || w->tier->io_jobs)
            turn(w);
        assert_int_equal(kv_available(w->m.group.kv), POOL);
        assert_null(tier_ready(w->tier));
    }
    turn(w);
    assert_int_equal(w->counters.host_pages, 0);
    assert_int_equal(w->counters.moving, 0);
}

static void two_that_want_the_same_fetch_it_once(void **state)
{
    struct world *w = *state;
    struct seq *q[3];
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    restart(w, true, 0);
    for (int i = 0; i < 3; i++) {
        q[i] = make_seq(w, UID, N + 1, N, i);
        assert_true(tier_submit(w->tier, q[i], engine_now()));
    }
    for (int n = 0; n < 3;) {
        struct seq *r = tier_ready(w->tier);
        n += r != NULL;
        if (!r)
            turn(w);
    }
    assert_int_equal(w->counters.pages_restored, N);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pages_back(w, q[i]), N);
        seq_free(q[i]);
    }
}

static void a_full_pool_takes_what_fits(void **state)
{
    struct world *w = *state;
    struct kv_table other = {.uid = UID};
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    fresh_pool(w);
    assert_true(kv_grow(w->m.group.kv, &other, (POOL - 5) * KV_PAGE));
    uint32_t got = back(w, UID, N, N, 0);
    assert_true(got > 0 && got <= 5);
    kv_release(w->m.group.kv, &other, NULL, 0);
}

/* A model that goes before its pages are copied: what is on its way still arrives, and nothing hangs. */
static void a_model_may_go_at_any_time(void **state)
{
    struct world *w = *state;
    open_tier(w, true, 0);
    for (int turns = 0; turns < 4; turns++) {
        take_turn(w, make_seq(w, UID, N, 0, turns));
        for (int i = 0; i < turns; i++)
            turn(w);
        tier_detach(w->tier, &w->m);
        while (tier_busy(w->tier, &w->m))
            turn(w);
        fresh_pool(w);
    }
    settle(w);
    turn(w);
    assert_int_equal(w->counters.host_pages, 0);
}

static int no_host_memory(struct device *d, uint64_t bytes, void **out, struct hearth_err *e)
{
    (void)d, (void)out;
    return err_set(e, HEARTH_ENOMEM, "no %llu bytes", (unsigned long long)bytes);
}

/* A machine that gives no host memory at all: nobody waits for it, and no page of the pool is held for it. */
static void without_host_memory_there_are_no_tiers(void **state)
{
    enum { LONG = 100 /* turns */ };
    struct world *w = *state;
    struct backend poor = *w->be;
    const struct backend *be = w->be;
    struct kv_counts c;
    poor.host_alloc = no_host_memory;
    open_tier(w, true, 0);
    take_turn(w, make_seq(w, UID, N, N, 0));
    settle(w);
    tier_close(w->tier);
    fresh_pool(w);
    w->be = &poor;
    open_tier(w, true, 0);
    settle(w);
    struct seq *q = make_seq(w, UID, N, N, 0);
    bool taken = tier_submit(w->tier, q, engine_now());
    for (int i = 0; i < LONG && taken; i++) {
        turn(w);
        taken = tier_ready(w->tier) == NULL;
    }
    assert_false(taken);
    assert_int_equal(q->restored_to, 0);
    seq_free(q);
    take_turn(w, make_seq(w, UID, N, 0, 1));
    for (int i = 0; i < LONG && tier_saving(w->tier); i++)
        turn(w);
    assert_false(tier_saving(w->tier));
    kv_count(w->m.group.kv, &c);
    assert_int_equal(c.held, 0);
    tier_close(w->tier);
    w->be = be;
    open_tier(w, true, 0);
    settle(w);
}

int main(void)
{
#define RUNS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        RUNS(index_goes_by_content),
        RUNS(host_memory_is_bounded),
        RUNS(pages_come_back_from_files),
        RUNS(pages_come_back_from_host_memory),
        RUNS(who_has_the_most_gives),
        RUNS(the_cheaper_way_is_taken),
        RUNS(a_restore_that_falls_behind_is_stopped),
        RUNS(what_came_before_the_damage_counts),
        RUNS(pinning_delays_no_restore),
        RUNS(a_file_that_was_evicted_is_a_quiet_miss),
        RUNS(a_file_on_its_way_is_waited_for),
        RUNS(a_file_that_is_told_to_be_gone_is_written_again),
        RUNS(a_file_may_go_while_it_is_read),
        RUNS(a_cancelled_restore_leaves_nothing),
        RUNS(two_that_want_the_same_fetch_it_once),
        RUNS(a_full_pool_takes_what_fits),
        RUNS(a_model_may_go_at_any_time),
        RUNS(without_host_memory_there_are_no_tiers),
    };
    return cmocka_run_group_tests_name("tier", tests, NULL, NULL);
}
