/* nvml.c - the GPU memory that other programs hold, as a stand-in for NVIDIA's library reports it; and what happens
 * without the library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/neighbours.h"
#include "tests/unit/engine/fake-nvml.h"

static const char uuid[] = "0123456789abcdef0123456789abcdef sm_90 13000 580";
static char library[4096];
static struct fake_nvml *fake;

static int open_fake(void **state)
{
    (void)state;
    snprintf(library, sizeof library, "%s/tests/unit/engine/.libs/fake-nvml.so", getenv("top_builddir"));
    void *lib = dlopen(library, RTLD_NOW);
    fake = lib ? dlsym(lib, "fake_nvml") : NULL;
    if (!fake)
        fprintf(stderr, "%s\n", dlerror());
    return fake ? 0 : -1;
}

static int well(void **state)
{
    (void)state;
    *fake = (struct fake_nvml){.total = 80000, .free = 30000, .used = 50000};
    return 0;
}

static void memory_and_processes(void **state)
{
    (void)state;
    struct nvml *n;
    struct nvml_memory m;
    struct hearth_err e;
    fake->display = 1;
    fake->compute = (struct fake_list){.n = 2, .v = {{7, 100}, {8, 300}}};
    fake->graphics = (struct fake_list){.n = 3, .v = {{9, ~0ull}, {7, 100}, {10, 200}}};
    assert_int_equal(nvml_open(&n, library, uuid, &e), 0);
    assert_string_equal(fake->uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef");
    assert_int_equal(nvml_read(n, &m, &e), 0);
    assert_true(m.total == 80000 && m.free == 30000 && m.used == 50000 && m.display);
    assert_int_equal(m.n, 4); /* 7 was in both lists */
    assert_true(m.process[0].pid == 8 && m.process[1].pid == 10 && m.process[2].pid == 7 && m.process[3].pid == 9);
    assert_true(m.process[0].bytes == 300 && m.process[3].bytes == 0); /* of the last one the size is not reported */

    fake->compute = (struct fake_list){.n = 200}; /* more than fit: those with the most memory are kept */
    for (unsigned i = 0; i < 200; i++)
        fake->compute.v[i].pid = 1000 + i, fake->compute.v[i].bytes = 10 + i * 37 % 200;
    fake->graphics.n = 0;
    assert_int_equal(nvml_read(n, &m, &e), 0);
    assert_int_equal(m.n, NVML_PROCESSES_MAX);
    for (uint32_t i = 0; i < m.n; i++)
        assert_int_equal(m.process[i].bytes, 209 - i);
    fake->compute.n = FAKE_PROCESSES; /* more than the array holds: the library reports none of them */
    assert_int_equal(nvml_read(n, &m, &e), 0);
    assert_int_equal(m.n, 0);

    fake->read = 15;
    assert_int_equal(nvml_read(n, &m, &e), HEARTH_EDEVICE);
    assert_non_null(strstr(e.msg, "error 15"));
    nvml_close(n);
    assert_int_equal(fake->begun, 0);
}

static void what_is_absent_is_told(void **state)
{
    (void)state;
    struct nvml *n;
    struct hearth_err e;
    assert_int_equal(nvml_open(&n, "libnothing-of-that-name.so.1", uuid, &e), HEARTH_EDEVICE);
    assert_non_null(strstr(e.msg, "libnothing-of-that-name.so.1"));
    assert_int_equal(nvml_open(&n, "libc.so.6", uuid, &e), HEARTH_EDEVICE);
    assert_non_null(strstr(e.msg, "libc.so.6 has no nvmlInit_v2"));
    assert_int_equal(nvml_open(&n, library, "toy", &e), HEARTH_EDEVICE);
    assert_non_null(strstr(e.msg, "no UUID"));
    fake->init = 9;
    assert_int_equal(nvml_open(&n, library, uuid, &e), HEARTH_EDEVICE);
    assert_non_null(strstr(e.msg, "error 9"));
    fake->init = 0;
    fake->handle = 6; /* an unknown GPU */
    assert_int_equal(nvml_open(&n, library, uuid, &e), HEARTH_EDEVICE);
    assert_non_null(strstr(e.msg, "does not know GPU-01234567-"));
    assert_int_equal(fake->begun, 0);
}

/* --- the watching thread ---------------------------------------------------------------------------------- */

static struct watcher {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int n;
    unsigned long long then; /* what others hold after the first notification */
} watcher = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

/* Called on the watching thread, which also reads the stand-in's numbers while it runs. */
static void on_changed(void *arg)
{
    struct watcher *w = arg;
    pthread_mutex_lock(&w->lock);
    w->n++;
    fake->used += w->n == 1 ? w->then : 0;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static void wait_for(int n)
{
    pthread_mutex_lock(&watcher.lock);
    while (watcher.n < n)
        pthread_cond_wait(&watcher.cond, &watcher.lock);
    pthread_mutex_unlock(&watcher.lock);
}

static void neighbours_are_named(void **state)
{
    (void)state;
    struct neighbours *n;
    struct neighbours_seen seen;
    struct hearth_err e;
    watcher.n = 0;
    watcher.then = 2500;
    fake->compute = (struct fake_list){.n = 2, .v = {{(unsigned)getpid(), 20000}, {(unsigned)getppid(), 700}}};
    assert_int_equal(neighbours_open(&n, library, uuid, 0.001, on_changed, &watcher, &e), 0);
    wait_for(2); /* at first, and when others held more */
    neighbours_get(n, &seen);
    assert_true(seen.known && seen.used == 52500 && seen.own == 20000 && !seen.display);
    assert_int_equal(seen.n, 1);
    assert_true(seen.v[0].pid == getppid() && seen.v[0].bytes == 700 && seen.v[0].name[0]);
    neighbours_close(n);
    assert_int_equal(watcher.n, 2); /* nothing for looks at unchanged numbers */
}

static void nobody_to_ask(void **state)
{
    (void)state;
    struct neighbours *n;
    struct neighbours_seen seen;
    struct hearth_err e;
    watcher.n = 0;
    assert_int_equal(neighbours_open(&n, "libnothing.so", uuid, 3600, on_changed, &watcher, &e), 0);
    wait_for(1);
    neighbours_get(n, &seen);
    assert_false(seen.known);
    assert_non_null(strstr(seen.why, "libnothing.so"));
    neighbours_close(n);
    neighbours_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(memory_and_processes, well),
        cmocka_unit_test_setup(what_is_absent_is_told, well),
        cmocka_unit_test_setup(neighbours_are_named, well),
        cmocka_unit_test_setup(nobody_to_ask, well),
    };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
