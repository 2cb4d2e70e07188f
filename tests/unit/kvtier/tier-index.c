/*
 * tier-index.c - the tiers' index, which finds KV by content, and host memory.
 */
#include "config.h"

#include "tests/unit/kvtier/tier-world.h"

#include <stdlib.h>

static void index_goes_by_content(void **state)
{
    struct world *w = *state;
    struct host host;
    struct tier_index x;
    int32_t ids[2 * KV_PAGE] = {0}; /* two pages of the same ids */
    host_init(&host, w->be, w->dev, 1 << 20);
    index_init(&x, &host);
    struct kv_namespace *s = index_namespace(&x, &w->fingerprint);
    assert_ptr_equal(index_namespace(&x, &w->fingerprint), s);
    struct kv_fingerprint other = w->fingerprint;
    other.n_layer++;
    assert_ptr_not_equal(index_namespace(&x, &other), s);

    struct seq q = {.uid = UID, .token = ids}, of_other = {.uid = UID + 1, .token = ids};
    struct seq turned = {.uid = UID, .token = ids, .kv.freq_set = 1}; /* with RoPE's other frequencies */
    struct kv_hash root = {0, 0}, *h = tier_chain(&q, 2), *foreign = tier_chain(&of_other, 2);
    struct kv_hash *elsewhere = tier_chain(&turned, 2);
    assert_false(kv_hash_same(&h[0], &h[1]));
    assert_false(kv_hash_same(&h[0], &foreign[0]));
    assert_false(kv_hash_same(&h[0], &elsewhere[0]));
    assert_false(kv_hash_same(&h[1], &elsewhere[1]));
    struct tier_entry *a = index_add(&x, s, &h[0], &root, UID, 0, ids);
    struct tier_entry *b = index_add(&x, s, &h[1], &h[0], UID, KV_PAGE, ids + KV_PAGE);
    assert_ptr_equal(index_add(&x, s, &h[0], &root, UID, 0, ids), a);
    assert_ptr_equal(index_find(s, &h[1], &h[0], UID, ids), b);
    /* a hash alone is not trusted */
    int32_t others[KV_PAGE] = {1};
    assert_null(index_find(s, &h[1], &root, UID, ids));
    assert_null(index_find(s, &h[1], &h[0], UID + 1, ids));
    assert_null(index_find(s, &h[1], &h[0], UID, others));
    assert_null(index_add(&x, s, &h[1], &h[0], UID, KV_PAGE, others));

    /* host memory: the least recently used page goes first, but not one that a job uses */
    for (struct tier_entry *en = a; en; en = en == a ? b : NULL) {
        index_acquire(&x, en);
        index_set_host(&x, en, host_take_new(&host, w->fingerprint.page_bytes));
        en->ready = true;
    }
    assert_false(index_evict_oldest(&x));
    index_release(&x, a);
    index_release(&x, b);
    index_touch(&x, a);
    assert_true(x.lru_bytes == 2 * w->fingerprint.page_bytes);
    assert_true(index_evict_oldest(&x));
    assert_null(index_lookup(s, &h[1])); /* in no tier any more */
    assert_ptr_equal(index_lookup(s, &h[0]), a);

    /* files: when one is forgotten, so are the pages that only it had */
    struct kvfile_page page[2] = {{.hash = h[0]}, {.hash = h[1]}};
    struct kvfile_extent extent = {.uid = UID, .n = 2, .page = page};
    index_file(&x, s, "file", 100, &extent);
    assert_int_equal(x.file_pages, 2);
    assert_non_null(index_lookup(s, &h[1])->file);
    index_forget(&x, s, "file");
    assert_int_equal(x.file_pages + x.file_bytes, 0);
    assert_null(index_lookup(s, &h[1]));
    assert_null(index_lookup(s, &h[0])->file);

    /* a file that was evicted soon after it was written is not counted and cannot be read; its pages are written again
     * only later, unless another file has them meanwhile */
    struct kvfile_extent first = {.uid = UID, .n = 1, .page = page};
    index_file(&x, s, "file", 100, &extent);
    index_retire(&x, s, "file", 10);
    assert_int_equal(x.file_pages + x.file_bytes, 0);
    assert_non_null(index_lookup(s, &h[1])->file);
    assert_false(index_in_file(index_lookup(s, &h[1])));
    index_retire(&x, s, "file", 11); /* reported twice, counted once */
    index_forget_retired(&x, 10);
    assert_non_null(index_lookup(s, &h[1]));
    index_file(&x, s, "shorter", 60, &first);
    assert_true(index_in_file(index_lookup(s, &h[0])));
    assert_false(index_in_file(index_lookup(s, &h[1])));
    assert_int_equal(x.file_pages, 1);
    assert_int_equal(x.file_bytes, 60);
    index_forget_retired(&x, 10.5);
    assert_null(index_lookup(s, &h[1]));
    index_file(&x, s, "again", 100, &extent); /* the same file was written again */
    index_retire(&x, s, "again", 12);
    index_file(&x, s, "again", 110, &extent);
    assert_int_equal(x.file_pages, 2);
    assert_int_equal(x.file_bytes, 170);
    index_forget(&x, s, "again");
    index_forget(&x, s, "shorter");
    assert_int_equal(x.file_pages + x.file_bytes, 0);
    free(h);
    free(foreign);
    free(elsewhere);
    index_fini(&x);
    host_fini(&host);
    world_open(w, false, 0); /* for the teardown */
}

static void host_memory_is_bounded(void **state)
{
    struct world *w = *state;
    struct host h;
    struct host_page *p[8];
    host_init(&h, w->be, w->dev, 8 * 4096);
    assert_null(host_take(&h, 4096)); /* only memory that the host pool already has is used */
    for (int i = 0; i < 8; i++)
        assert_non_null(p[i] = host_take_new(&h, 4096));
    assert_null(host_take_new(&h, 4096));
    assert_null(host_take_new(&h, 8192));
    host_give(&h, p[3]);
    assert_ptr_equal(host_take(&h, 4096), p[3]);
    for (int i = 0; i < 8; i++)
        host_give(&h, p[i]);
    assert_non_null(p[0] = host_take_new(&h, 8192)); /* pages of another model: a slab is freed for them */
    assert_true(h.bytes <= h.limit);
    host_give(&h, p[0]);
    host_fini(&h);
    world_open(w, false, 0);
}

int main(void)
{
#define RUNS(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        RUNS(index_goes_by_content),
        RUNS(host_memory_is_bounded),
    };
    return cmocka_run_group_tests_name("tier-index", tests, NULL, NULL);
}
