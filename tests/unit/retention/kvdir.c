/* kvdir.c - files that are saved while others are still being removed to make room: those are evicted only once. */
#include "tests/unit/store/store-box.h"

#include <event2/event.h>
#include <fcntl.h>
#include <unistd.h>

#include "daemon/retention/kvdir.h"

enum { BYTES = 1000, FILES = 1100, MOST = 900, LEFT = MOST * 31 / 32 };

/* The engine has written file number i. */
static void save(struct kvdir *d, int i)
{
    char path[128];
    struct kv_manifest_row row = {
        .fingerprint = "0123456789abcdef", .uid = 1000, .bytes = BYTES, .tokens = 16, .pos = 2 * FILES - i};
    snprintf(row.name, sizeof row.name, "0123456789abcdef-%032x.kv", (unsigned)i);
    snprintf(path, sizeof path, "%s/%s", kvdir_path(d), row.name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    close(fd);
    kvdir_saved(d, &row, INT64_MAX);
}

static int64_t files(const struct kvdir *d)
{
    size_t n;
    const struct kvdir_usage *u = kvdir_usage(d, &n);
    assert_int_equal(n, 1);
    assert_int_equal(u->bytes, u->files * BYTES);
    return u->files;
}

static void test_what_is_being_removed_does_not_count(void **state)
{
    enum { MORE = MOST - LEFT };
    struct box *b = *state;
    struct conf conf = {.state_dir = b->dir, .kv_disk = (int64_t)FILES * BYTES, .kv_disk_per_uid = CONF_IS_AUTO};
    struct server s = {.conf = &conf, .store = b->st, .base = event_base_new()};
    struct kvdir *d;
    struct hearth_err e;
    assert_non_null(s.base);
    assert_int_equal(kvdir_open(&d, &s, &e), 0);
    for (int i = 0; i < FILES; i++)
        save(d, i);
    assert_int_equal(files(d), FILES);
    conf.kv_disk = (int64_t)MOST * BYTES;
    save(d, FILES); /* many are evicted, which leaves some room */
    assert_true(files(d) > MOST);
    for (int i = 1; i <= MORE; i++)
        save(d, FILES + i);
    assert_true(files(d) > MOST); /* they are still being removed */
    event_base_dispatch(s.base);
    assert_int_equal(files(d), MOST);
    save(d, FILES + MORE + 1); /* one is added, and one is evicted */
    event_base_dispatch(s.base);
    assert_int_equal(files(d), MOST);
    kvdir_close(d);
    event_base_free(s.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_being_removed_does_not_count, setup, teardown),
    };
    return cmocka_run_group_tests_name("kvdir", tests, NULL, NULL);
}
