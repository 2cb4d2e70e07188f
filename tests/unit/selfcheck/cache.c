/*
 * cache.c - the cache of passed self-checks: an entry that was added is found, a damaged or foreign file counts as
 * absent, and the key changes with everything that it covers.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/engine/selfcheck/cache.h"

struct bed {
    char dir[64], path[80];
};

static int bed_open(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    strcpy(b->dir, "/tmp/hearth-trust-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->path, sizeof b->path, "%s/checked", b->dir);
    *state = b;
    return 0;
}

static int bed_close(void **state)
{
    struct bed *b = *state;
    unlink(b->path);
    assert_int_equal(rmdir(b->dir), 0); /* fails if a temporary file was left */
    free(b);
    return 0;
}

static struct selfcheck_key key(uint64_t n)
{
    return (struct selfcheck_key){{n * 0x9e3779b97f4a7c15u, ~n}};
}

static void add(const struct bed *b, uint64_t n)
{
    struct hearth_err e = {0};
    if (selfcheck_cache_add(b->path, key(n), &e))
        fail_msg("%s", e.msg);
}

static size_t slurp(const char *path, char *buf, size_t room)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(buf, 1, room, f);
    fclose(f);
    return n;
}

static void spill(const char *path, const char *buf, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(buf, 1, n, f), n);
    fclose(f);
}

static void what_was_added_is_found(void **state)
{
    struct bed *b = *state;
    assert_false(selfcheck_cache_find(b->path, key(1)));
    for (uint64_t i = 0; i < 2 * SELFCHECK_CACHE_MAX; i++) {
        add(b, i);
        add(b, i); /* adding it twice has no further effect */
        assert_true(selfcheck_cache_find(b->path, key(i)));
        assert_true(i == 0 || selfcheck_cache_find(b->path, key(i - 1)));
        assert_false(selfcheck_cache_find(b->path, key(i + 1)));
    }
    assert_false(selfcheck_cache_find(b->path, key(SELFCHECK_CACHE_MAX - 1))); /* the oldest entry was dropped */
    assert_true(selfcheck_cache_find(b->path, key(SELFCHECK_CACHE_MAX)));
    struct stat st;
    assert_int_equal(stat(b->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* Every byte changed, every truncation, and trailing bytes. */
static void a_damaged_file_is_none(void **state)
{
    struct bed *b = *state;
    char good[4096], bad[8192];
    for (uint64_t i = 0; i < 3; i++)
        add(b, i);
    size_t n = slurp(b->path, good, sizeof good);
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, good, n);
            bad[i] = (char)(bad[i] ^ 1 << bit);
            spill(b->path, bad, n);
            assert_false(selfcheck_cache_find(b->path, key(0)) || selfcheck_cache_find(b->path, key(1)) ||
                         selfcheck_cache_find(b->path, key(2)));
        }
    for (size_t cut = 0; cut < n; cut++) {
        spill(b->path, good, cut);
        assert_false(selfcheck_cache_find(b->path, key(1)));
    }
    memset(bad, 'a', sizeof bad);
    memcpy(bad, good, n);
    for (size_t more = 1; more < sizeof bad - n; more += more < 40 ? 1 : 97) {
        spill(b->path, bad, n + more);
        assert_false(selfcheck_cache_find(b->path, key(1)));
    }
    add(b, 9); /* and the file is written anew */
    assert_true(selfcheck_cache_find(b->path, key(9)));
    assert_false(selfcheck_cache_find(b->path, key(1)));
}

static void what_is_no_file_of_ours_is_none(void **state)
{
    struct bed *b = *state;
    char other[96], text[96];
    struct hearth_err e = {0};
    add(b, 1);
    snprintf(other, sizeof other, "%s/other", b->dir);
    assert_int_equal(rename(b->path, other), 0);
    assert_int_equal(symlink(other, b->path), 0); /* a link is replaced, not followed */
    assert_false(selfcheck_cache_find(b->path, key(1)));
    add(b, 2);
    struct stat st;
    assert_int_equal(lstat(b->path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_true(selfcheck_cache_find(other, key(1)) && !selfcheck_cache_find(other, key(2)));
    assert_int_equal(unlink(other), 0);

    unlink(b->path);
    assert_int_equal(mkfifo(b->path, 0600), 0); /* without waiting for a writer */
    assert_false(selfcheck_cache_find(b->path, key(2)));
    unlink(b->path);
    assert_int_equal(mkdir(b->path, 0700), 0);
    assert_false(selfcheck_cache_find(b->path, key(2)));
    assert_int_equal(selfcheck_cache_add(b->path, key(2), &e), HEARTH_EIO);
    assert_non_null(strstr(e.msg, b->path));
    rmdir(b->path);

    snprintf(text, sizeof text, "%s/absent/checked", b->dir);
    assert_int_equal(selfcheck_cache_add(text, key(2), &e), HEARTH_EIO);
    snprintf(other, sizeof other, "%s.tmp", b->path); /* left by a process that died */
    spill(other, "x", 1);
    add(b, 3);
    assert_true(selfcheck_cache_find(b->path, key(3)));
}

static void the_key_is_what_it_stands_for(void **state)
{
    struct bed *b = *state;
    char path[4096];
    const char *dir = getenv("top_srcdir");
    const struct backend *be = backend_find("cpu");
    struct backend renamed = *be;
    struct hearth_err e = {0};
    struct device *d;
    struct model *m;
    struct gguf *g;
    struct device_info info = {.name = "chip", .id = "serial driver"}, other = info;
    struct selfcheck_key k, k2;
    (void)b;
    snprintf(path, sizeof path, "%s/contrib/models/tale-q4_k_m.gguf", dir ? dir : "..");
    assert_int_equal(be->open(&d, &(struct device_params){.threads = 1}, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(model_load(&m, g, be, d, NULL, NULL, &e), 0);
    assert_int_equal(selfcheck_key_make(m, &info, false, &k, &e), 0);
    assert_int_equal(selfcheck_key_make(m, &info, false, &k2, &e), 0);
    assert_memory_equal(&k, &k2, sizeof k);
    assert_int_equal(selfcheck_key_make(m, &info, true, &k2, &e), 0);
    assert_memory_not_equal(&k, &k2, sizeof k);
    strcpy(other.id, "serial driver2");
    assert_int_equal(selfcheck_key_make(m, &other, false, &k2, &e), 0);
    assert_memory_not_equal(&k, &k2, sizeof k);
    other = info;
    strcpy(other.name, "chips"); /* the boundary between two strings counts */
    strcpy(other.id, "erial driver");
    assert_int_equal(selfcheck_key_make(m, &other, false, &k2, &e), 0);
    assert_memory_not_equal(&k, &k2, sizeof k);
    struct model same = *m;
    renamed.name = "cuda";
    same.be = &renamed;
    assert_int_equal(selfcheck_key_make(&same, &info, false, &k2, &e), 0);
    assert_memory_not_equal(&k, &k2, sizeof k);
    struct gguf *g2;
    snprintf(path, sizeof path, "%s/tests/golden/data/tiny-llama-rope3.gguf", dir ? dir : "..");
    assert_int_equal(gguf_open(&g2, path, &e), 0);
    same = *m;
    same.gguf = g2;
    assert_int_equal(selfcheck_key_make(&same, &info, false, &k2, &e), 0);
    assert_memory_not_equal(&k, &k2, sizeof k);
    gguf_close(g2);
    model_free(m);
    gguf_close(g);
    be->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_added_is_found, bed_open, bed_close),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_none, bed_open, bed_close),
        cmocka_unit_test_setup_teardown(what_is_no_file_of_ours_is_none, bed_open, bed_close),
        cmocka_unit_test_setup_teardown(the_key_is_what_it_stands_for, bed_open, bed_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
