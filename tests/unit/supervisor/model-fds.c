/*
 * model-fds.c - the table of files that peers have passed: their owners, their holders, how many there may be, and that
 * no descriptor stays open.
 */
#include "config.h"

#include "daemon/supervisor/model-fds.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

enum { LIMIT = 256 };

struct world {
    struct model_fds *t;
    int n_open;
};

static int count_open(void)
{
    int n = 0;
    for (int fd = 0; fd < LIMIT; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int set_up(void **state)
{
    static const struct rlimit limit = {LIMIT, LIMIT};
    struct world *w = calloc(1, sizeof *w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    w->t = model_fds_new();
    assert_non_null(w->t);
    w->n_open = count_open();
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    model_fds_free(w->t);
    assert_int_equal(count_open(), w->n_open);
    free(w);
    return 0;
}

static int put(struct world *w, uid_t uid, const char *label, struct model_hold *hold)
{
    struct hearth_err e;
    struct stat sb;
    int fd = memfd_create("model", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &sb), 0);
    return model_fds_put(w->t, uid, label, fd, &sb, hold, &e);
}

static void finds(struct world *w, uid_t uid, const char *label, const char *want)
{
    char *path = model_fds_find(w->t, uid, label);
    if (want)
        assert_string_equal(path, want);
    else
        assert_null(path);
    free(path);
}

static bool nothing_is_used(void *arg, const char *path)
{
    (void)arg, (void)path;
    return false;
}

static bool is_used(void *model, const char *path)
{
    return model_fds_is_of(path, model);
}

static void a_file_is_its_users_alone(void **state)
{
    struct world *w = *state;
    struct model_hold hold = {0};
    uid_t uid = 1;
    assert_int_equal(put(w, 1000, "/home/a/m.gguf", &hold), 0);
    assert_int_equal(put(w, 1000, "/home/a/folder/config.json", &hold), 0);
    finds(w, 1000, "/home/a/m.gguf", "//1000/home/a/m.gguf");
    finds(w, 1000, "/home/a/folder/", "//1000/home/a/folder");
    finds(w, 1000, "/home/a/fold", NULL);
    finds(w, 100, "/home/a/m.gguf", NULL);
    finds(w, 0, "/home/a/m.gguf", NULL);
    assert_string_equal(model_fds_label("//1000/home/a"), "/home/a");
    assert_string_equal(model_fds_label("/home/a"), "/home/a");
    assert_true(model_fds_owner("//1000/home/a", &uid) && uid == 1000);
    assert_false(model_fds_owner("/1000/home/a", &uid));
    static const char *const wrong[] = {"m.gguf", "//1000/m.gguf", "/", "/m/", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(put(w, 1000, wrong[i], &hold), HEARTH_EPARAMS);
    model_fds_release(&hold);
}

static void parts_are_of_their_model(void **state)
{
    (void)state;
    assert_true(model_fds_is_of("//1/m.gguf", "//1/m.gguf"));
    assert_true(model_fds_is_of("//1/m/config.json", "//1/m"));
    assert_true(model_fds_is_of("//1/m-00002-of-00003.gguf", "//1/m-00001-of-00003.gguf"));
    assert_false(model_fds_is_of("//1/n-00002-of-00003.gguf", "//1/m-00001-of-00003.gguf"));
    assert_false(model_fds_is_of("//1/mm/config.json", "//1/m"));
    assert_false(model_fds_is_of("//2/m.gguf", "//1/m.gguf"));
}

/* Two connections hold a file, and one of them passes a new version of it. */
static void what_nobody_holds_or_uses_is_closed(void **state)
{
    struct world *w = *state;
    struct model_hold a = {0}, b = {0};
    assert_int_equal(put(w, 1, "/m.gguf", &a), 0);
    assert_int_equal(put(w, 1, "/m.gguf", &b), 0);
    assert_int_equal(put(w, 1, "/used/config.json", &a), 0);
    assert_int_equal(count_open(), w->n_open + 2); /* the first version of m.gguf is closed */
    model_fds_release(&a);
    assert_int_equal(model_fds_idle(w->t), 1);
    assert_int_equal(model_fds_sweep(w->t, NULL, is_used, (void *)"//1/used"), 1);
    finds(w, 1, "/used", "//1/used");
    model_fds_release(&b);
    assert_int_equal(model_fds_sweep(w->t, NULL, nothing_is_used, NULL), 0);
    assert_int_equal(count_open(), w->n_open);
    finds(w, 1, "/m.gguf", NULL);
}

/* The limit is a quarter of the descriptors that the process may have open, and half of that for one user. */
static void there_is_a_limit_for_each_and_for_all(void **state)
{
    struct world *w = *state;
    struct model_hold hold = {0};
    char label[32];
    for (int i = 0; i < LIMIT / 8 * 3; i++) {
        snprintf(label, sizeof label, "/%d", i);
        bool fits = i < LIMIT / 8;
        assert_int_equal(put(w, 1, label, &hold), fits ? 0 : HEARTH_ELIMIT);
        assert_int_equal(put(w, 2, label, &hold), fits ? 0 : HEARTH_ELIMIT);
    }
    assert_int_equal(put(w, 3, "/m", &hold), HEARTH_ELIMIT);
    assert_int_equal(put(w, 1, "/0", &hold), 0); /* replaces an existing entry */
    assert_int_equal(count_open(), w->n_open + LIMIT / 4);
    model_fds_release(&hold);
}

int main(void)
{
#define CASE(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_file_is_its_users_alone),
        CASE(parts_are_of_their_model),
        CASE(what_nobody_holds_or_uses_is_closed),
        CASE(there_is_a_limit_for_each_and_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
