/* models.c - which entry a path refers to when its file was replaced while the weights of the old file are in
 * memory; the memory that a file's weights are expected to take. */
#include "config.h" /* memfd_create */

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/sched/models.h"
#include "daemon/model/map.h"
#include "tests/unit/model/odd-model.h"

struct bed {
    char dir[64], path[80];
    struct models models;
};

static int bed_open(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    strcpy(b->dir, "/tmp/hearth-models-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->path, sizeof b->path, "%s/model", b->dir);
    models_init(&b->models);
    *state = b;
    return 0;
}

static int bed_close(void **state)
{
    struct bed *b = *state;
    struct model_entry *m;
    TAILQ_FOREACH (m, &b->models.list, link) {
        atomic_store(&m->loaded, false);
        m->reading = NULL;
    }
    models_fini(&b->models);
    unlink(b->path);
    assert_int_equal(rmdir(b->dir), 0);
    free(b);
    return 0;
}

/* Replaces the file by one of that size and returns its entry, which is being read and has one user. */
static struct model_entry *put_file(struct bed *b, off_t size)
{
    struct model_entry *m;
    struct hearth_err e;
    FILE *f = fopen(b->path, "we");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(b->path, size), 0);
    assert_int_equal(models_get(&b->models, b->path, &m, &e), 0);
    m->reading = m;
    return m;
}

static struct model_entry *find(struct bed *b)
{
    struct model_entry *m = models_find(&b->models, b->path);
    if (m)
        models_put(&b->models, m);
    return m;
}

static void test_one_file(void **state)
{
    struct bed *b = *state;
    assert_null(find(b));
    struct model_entry *m = put_file(b, 1);
    assert_ptr_equal(find(b), m);
    m->reading = NULL;
    assert_null(find(b)); /* it could not be read */
    atomic_store(&m->loaded, true);
    models_put(&b->models, m);
    assert_ptr_equal(find(b), m);
}

static void test_a_file_that_was_replaced(void **state)
{
    struct bed *b = *state;
    struct model_entry *old = put_file(b, 1);
    atomic_store(&old->loaded, true);
    struct model_entry *new = put_file(b, 2);
    assert_ptr_not_equal(old, new);
    assert_true(old->replaced && !new->replaced);
    assert_ptr_equal(find(b), new); /* the new entry may be about to be loaded */
    models_put(&b->models, new);
    assert_ptr_equal(find(b), old); /* the only entry whose weights are in memory */
    atomic_store(&new->loaded, true);
    assert_ptr_equal(find(b), new);
    atomic_store(&old->loaded, false);
    assert_ptr_equal(find(b), new);
    atomic_store(&new->loaded, false);
    assert_ptr_equal(find(b), new);
    models_put(&b->models, old);
}

/* A deleted file that is in use while somebody looks for such files is unmapped with its last user. */
static void test_a_file_that_is_deleted_in_use(void **state)
{
    struct bed *b = *state;
    struct model_entry *m = put_file(b, 1);
    atomic_store(&m->loaded, true);
    assert_int_equal(unlink(b->path), 0);
    atomic_store(&m->loaded, false);
    models_drop_gone(&b->models);
    assert_int_equal(b->models.n, 1);
    m->reading = NULL;
    models_put(&b->models, m);
    assert_int_equal(b->models.n, 0);
}

/* An output that is the embedding again is not loaded, so no memory is planned for it. */
static void test_bytes_of_a_file(void **state)
{
    (void)state;
    static const struct odd odds[] = {{0}, {.no_tensor = "output.weight"}, {.twice = "output.weight"}};
    uint64_t bytes[3];
    for (size_t i = 0; i < 3; i++) {
        struct build b = model_file(&odds[i]);
        struct model_file f;
        struct hearth_err e = {0};
        char path[64];
        int fd = build_file(&b, path);
        assert_int_equal(model_file_read(path, &f, &e), 0);
        bytes[i] = f.hp.weight_bytes;
        gguf_close(f.gguf);
        close(fd);
        free(b.p);
    }
    assert_true(bytes[0] > bytes[1]);
    assert_true(bytes[1] == bytes[2]);
}

/* A model may have hundreds of files: what is merely cached keeps no others from being mapped. */
static void test_many_files(void **state)
{
    enum { FILES = 300 };
    static struct map map[FILES];
    struct bed *b = *state;
    struct hearth_err e;
    struct model_entry *m = put_file(b, 1);
    m->reading = NULL;
    for (int i = 0; i < FILES; i++)
        assert_int_equal(map_open(&map[i], b->path, &e), 0);
    assert_int_equal(b->models.n, 1);
    models_put(&b->models, m);
    assert_int_equal(b->models.n, 0);
    for (int i = 0; i < FILES; i++)
        map_close(&map[i]);
    assert_int_equal(map_used(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_file, bed_open, bed_close),
        cmocka_unit_test_setup_teardown(test_a_file_that_was_replaced, bed_open, bed_close),
        cmocka_unit_test_setup_teardown(test_a_file_that_is_deleted_in_use, bed_open, bed_close),
        cmocka_unit_test_setup_teardown(test_many_files, bed_open, bed_close),
        cmocka_unit_test(test_bytes_of_a_file),
    };
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
