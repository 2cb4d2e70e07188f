/*
 * devices.c - several GPUs in a machine: an engine for each, models are placed by free memory, and a failure of one
 * device affects only its own models. The fake engine plays a device; two real ones share the CPU.
 */
#include "config.h"

#include "tests/daemon/harness.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Makes a model's file of that many bytes. */
static void make_model(struct box *b, const char *name, off_t bytes)
{
    char *path = box_model(b, name);
    assert_int_equal(truncate(path, bytes), 0);
    free(path);
}

/* Starts a hearthd with three models; `others`: the memory that other programs hold on each device. */
static struct box *begin(void **state, const char *devices, const char *others, const char *engine, const char *lines)
{
    box_setup_idle(state);
    struct box *b = *state;
    make_model(b, "fake", 300000);
    make_model(b, "other", 200000);
    make_model(b, "third", 100000);
    box_configure(b, lines);
    setenv("FAKE_DEVICES", devices, 1);
    setenv("FAKE_OTHERS", others, 1);
    if (engine)
        setenv("FAKE_ENGINE", engine, 1);
    box_start(b);
    unsetenv("FAKE_DEVICES");
    unsetenv("FAKE_OTHERS");
    unsetenv("FAKE_ENGINE");
    return b;
}

static struct wire_model_load_result *load(struct peer *p, const char *model)
{
    struct wire_model_ref ref = {.model = model};
    return peer_call(p, WIRE_MODELS_LOAD, &ref);
}

static void unload(struct peer *p, const char *model)
{
    struct wire_model_ref ref = {.model = model};
    wire_free(peer_call(p, WIRE_MODELS_UNLOAD, &ref));
}

/* The device on which a model is loaded, from the status of all, which has it once, also where other engines keep its
 * vocabulary; -1: on none. */
static int64_t device_of(struct peer *p, const char *model)
{
    struct wire_status_result *st = peer_status(p);
    int64_t device = -1;
    for (size_t i = 0, n = 0; i < st->engine.n_models; i++)
        if (strcmp(st->engine.models[i].name, model) == 0) {
            assert_int_equal(n++, 0);
            if (!st->engine.models[i].vocab_only)
                assert_int_equal(sscanf(st->engine.models[i].where, "cuda:%" SCNd64, &device), 1);
        }
    wire_free(st);
    return device;
}

static pid_t engine_of(struct peer *p, size_t i)
{
    struct wire_status_result *st = peer_status(p);
    assert_true(i < st->n_engines);
    pid_t pid = (pid_t)st->engines[i].pid;
    wire_free(st);
    return pid;
}

static uint32_t generate(struct peer *p, const char *model, const char *script)
{
    struct wire_generate g = request(script, NULL);
    g.model = model;
    return peer_ask(p, WIRE_GENERATE, &g);
}

static void loaded_on(struct peer *p, const char *model, int64_t device)
{
    wire_free(load(p, model));
    assert_int_equal(device_of(p, model), device);
}

/* The first engine reports the number of devices. A model goes to the device with the most free memory, and stays
 * there. */
static void a_model_goes_where_most_is_free(void **state)
{
    struct box *b = begin(state, "2", "0,0", NULL, "");
    struct peer *p = peer_open(b);
    loaded_on(p, "fake", 0);
    loaded_on(p, "other", 1);
    loaded_on(p, "third", 1); /* 700,000 bytes are free on the first device, 800,000 on the second */
    loaded_on(p, "fake", 0);
    struct wire_status_result *st = peer_status(p);
    assert_int_equal(st->n_engines, 2);
    assert_int_not_equal(st->engines[0].pid, st->engines[1].pid);
    assert_int_equal(st->engines[0].n_models, 1);
    assert_int_equal(st->engines[1].n_models, 2);
    assert_int_equal(st->engines[1].mem_free, 700000);
    assert_int_equal(st->engine.n_models, 3);
    assert_int_equal(st->engine.pid, st->engines[0].pid);
    assert_int_equal(st->engine.mem_total, 2000000);
    assert_int_equal(st->engine.mem_free, 1400000);
    assert_int_equal(st->engines[0].kv.host_limit,
                     0); /* the fake reports its --sharers there: the first engine counts the devices itself */
    assert_int_equal(st->engines[1].kv.host_limit, 2);
    assert_int_equal(st->engine.kv.disk_pages, 3);
    assert_int_equal(st->engine.kv.disk_bytes, 201);
    wire_free(st);
    peer_close(p);
}

static void other_programs_count(void **state)
{
    struct box *b = begin(state, "2", "0,750000", NULL, "");
    struct peer *p = peer_open(b);
    loaded_on(p, "third", 0);
    loaded_on(p, "other", 1); /* the free memory of the second is unknown before its engine runs */
    unload(p, "other");
    assert_int_equal(device_of(p, "other"), -1);
    loaded_on(p, "other", 0);
    peer_close(p);
}

/* When an engine is killed, the streams of the other one are not affected, and its own continue. */
static void an_engines_end_is_its_models_alone(void **state)
{
    struct box *b = begin(state, "2", "0,0", NULL, "");
    struct peer *p = peer_open(b), *q = peer_open(b), *r = peer_open(b);
    loaded_on(r, "fake", 0);
    loaded_on(r, "other", 1);
    uint32_t a = generate(p, "fake", "n=5 gate"), c = generate(q, "other", "n=5 hang");
    peer_await_begin(p, 1);
    peer_await_begin(q, 1);
    peer_tick(r); /* a stream of the model "fake" */
    peer_await_tokens(p, 1);
    pid_t first = engine_of(r, 0), second = engine_of(r, 1);
    assert_int_equal(kill(second, SIGKILL), 0);
    while (q->n_notices == 0)
        wire_free(peer_status(q));
    assert_memory_equal(q->notice, "RECOVERING", 10);
    for (int i = 0; i < 5; i++)
        peer_tick(r);
    struct hearth_err e = {0};
    struct wire_generate_result *g = peer_answer(p, a, WIRE_GENERATE, &e);
    assert_non_null(g);
    assert_int_equal(g->tokens.n, 5);
    wire_free(g);
    assert_int_equal(p->n_notices, 0);
    struct wire_cancel cancel = {.stream = q->stream};
    wire_free(peer_call(q, WIRE_CANCEL, &cancel));
    g = peer_answer(q, c, WIRE_GENERATE, &e);
    assert_non_null(g);
    assert_string_equal(g->finish_reason, "cancelled");
    wire_free(g);
    struct wire_status_result *st = peer_status(r);
    assert_int_equal(st->engines[0].pid, first);
    assert_int_equal(st->engines[0].restarts, 0);
    assert_int_not_equal(st->engines[1].pid, second);
    assert_int_equal(st->engines[1].restarts, 1);
    wire_free(st);
    assert_int_equal(device_of(r, "other"), 1);
    peer_close(p);
    peer_close(q);
    peer_close(r);
}

/* A device whose engine does not start is skipped. */
static void a_device_that_fails_is_passed_by(void **state)
{
    struct box *b = begin(state, "2", "0,0", "exit1", "");
    struct peer *p = peer_open(b);
    struct hearth_err e = {0};
    loaded_on(p, "fake", 0);
    struct wire_generate_result *g = peer_answer(p, generate(p, "other", "n=3"), WIRE_GENERATE, &e);
    if (!g)
        fail_msg("%s", e.msg);
    assert_int_equal(g->tokens.n, 3);
    wire_free(g);
    assert_int_equal(device_of(p, "other"), 0);
    loaded_on(p, "third", 0);
    peer_close(p);
}

/* An engine reports that it holds nothing, and before hearthd has heard that, it is needed again: it stays, and so does
 * what hearthd knows of it. */
static void an_engine_needed_again_stays(void **state)
{
    struct box *b = begin(state, "2", "0,0", NULL, "");
    struct peer *p = peer_open(b), *r = peer_open(b);
    struct hearth_err e = {0};
    loaded_on(r, "fake", 0);
    pid_t first = engine_of(r, 0);
    uint32_t id = generate(p, "fake", "n=0 gate idle");
    peer_await_begin(p, 1);
    assert_int_equal(device_of(r, "fake"), 0);
    loaded_on(r, "fake", 0); /* now that something is known of the first device, and nothing of the other one */
    peer_tick(r);
    wire_free(peer_answer(p, id, WIRE_GENERATE, &e));
    id = generate(p, "fake", "n=0 idle"); /* its answer comes together with the report */
    wire_free(peer_answer(p, id, WIRE_GENERATE, &e));
    assert_int_equal(device_of(r, "fake"), 0);
    assert_int_equal(engine_of(r, 0), first);
    peer_close(p);
    peer_close(r);
}

static void all_devices_yield(void **state)
{
    struct box *b = begin(state, "2", "0,0", NULL, "");
    struct peer *p = peer_open(b);
    loaded_on(p, "fake", 0);
    loaded_on(p, "other", 1);
    struct wire_yield y = {.all = true};
    struct wire_yield_result *r = peer_call(p, WIRE_YIELD, &y);
    assert_int_equal(r->freed, 21);
    assert_int_equal(r->free, 1000);
    wire_free(r);
    peer_close(p);
}

/* What an engine was told about yields: -2: nothing; -1: to yield; otherwise the most that it may hold, told before any
 * other work. */
static int64_t heard(struct peer *p, size_t i, double *seconds)
{
    struct wire_status_result *st = peer_status(p);
    int64_t most = st->engines[i].kv.host_pages - 2;
    if (most >= 0)
        assert_int_equal(st->engines[i].kv.host_bytes, 0);
    *seconds = st->engines[i].kv.write_rate;
    wire_free(st);
    return most;
}

static void kill_and_load(struct peer *p, const char *model, size_t i)
{
    pid_t pid = engine_of(p, i);
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (engine_of(p, i) == pid)
        ;
    wire_free(load(p, model));
}

static double boot(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An engine that starts during a yield is told before anything else how much it may hold, and for how long. */
static void who_starts_later_yields_too(void **state)
{
    struct box *b = begin(state, "2", "0,0", NULL, "");
    struct peer *p = peer_open(b);
    double seconds;
    struct wire_yield y = {.all = true, .seconds = 3600};
    struct wire_yield_result *r = peer_call(p, WIRE_YIELD, &y);
    assert_int_equal(r->freed, 0); /* no engine is running */
    wire_free(r);
    loaded_on(p, "fake", 0);
    assert_int_equal(heard(p, 0, &seconds), 0);
    assert_true(seconds > 3000 && seconds < 3600);
    y = (struct wire_yield){.bytes = 5, .seconds = 1000};
    wire_free(peer_call(p, WIRE_YIELD, &y));
    assert_int_equal(heard(p, 0, &seconds), -1);
    assert_true(seconds == 1000);
    loaded_on(p, "other", 1);
    assert_int_equal(heard(p, 1, &seconds), 0); /* no engine ran on that device, so it held nothing */
    kill_and_load(p, "fake", 0);
    assert_int_equal(heard(p, 0, &seconds), 100); /* as much as the previous engine reported */
    assert_true(seconds > 900 && seconds < 1000);
    y = (struct wire_yield){.bytes = 7, .seconds = 2000};
    struct hearth_err e = {0};
    assert_null(peer_answer(p, peer_ask(p, WIRE_YIELD, &y), WIRE_YIELD, &e));
    assert_true(e.code == HEARTH_ELIMIT && !strcmp(e.msg, "the fake has not 7"));
    kill_and_load(p, "other", 1); /* it had freed all that it may, and may not take more */
    assert_int_equal(heard(p, 1, &seconds), 101);
    y = (struct wire_yield){0};
    wire_free(peer_call(p, WIRE_YIELD, &y));
    kill_and_load(p, "fake", 0);
    assert_int_equal(heard(p, 0, &seconds), -2);
    y = (struct wire_yield){.all = true, .seconds = 0.001};
    wire_free(peer_call(p, WIRE_YIELD, &y));
    for (double over = boot() + y.seconds; boot() <= over;)
        sched_yield();
    kill_and_load(p, "other", 1); /* after the yield has ended */
    assert_int_equal(heard(p, 1, &seconds), -2);
    peer_close(p);
}

/* The free memory of a device is unknown before its engine runs. If other programs hold it, that engine refuses the
 * model, whether it is loaded or used; if all engines have refused it, one of them serves it. */
static void a_full_device_is_passed_by(void **state)
{
    struct box *b = begin(state, "3", "950000,750000,250000", NULL, "");
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct hearth_err e = {0};
    uint32_t id[2] = {generate(p, "fake", "n=3"), generate(q, "fake", "n=2")}; /* the very first ones, both at once */
    for (int i = 0; i < 2; i++) {
        struct wire_generate_result *g = peer_answer(i ? q : p, id[i], WIRE_GENERATE, &e);
        if (!g)
            fail_msg("%s", e.msg);
        assert_int_equal(g->tokens.n, i ? 2 : 3);
        wire_free(g);
    }
    assert_int_equal(p->n_notices + q->n_notices, 0);
    assert_int_equal(device_of(p, "fake"), 2);
    loaded_on(p, "other", 2); /* 450,000 bytes are free there, 250,000 on the second */
    struct wire_model_pin pin = {.model = "third", .pinned = true};
    wire_free(peer_call(p, WIRE_MODELS_PIN, &pin));
    assert_int_equal(device_of(p, "third"), 1);
    kill_and_load(p, "third", 1);
    assert_int_equal(device_of(p, "third"), 1);
    peer_close(p);
    peer_close(q);
    assert_true(box_log_has(b, "has no room on device 0"));
}

/* A model is unpinned while it is being loaded to be pinned: the next engine does not pin it again. */
static void an_unpin_outlasts_the_pin_before_it(void **state)
{
    struct box *b = begin(state, "2", "0,0", NULL, "");
    struct peer *p = peer_open(b);
    struct hearth_err e;
    const struct wire_model_pin pin[] = {{.model = "third", .pinned = true}, {.model = "third", .pinned = false}};
    loaded_on(p, "fake", 0);
    loaded_on(p, "other", 1);
    uint32_t id[2];
    for (int i = 0; i < 2; i++)
        id[i] = peer_ask(p, WIRE_MODELS_PIN, &pin[i]);
    for (int i = 0; i < 2; i++)
        wire_free(peer_answer(p, id[i], WIRE_MODELS_PIN, &e));
    assert_int_equal(device_of(p, "third"), 1);
    kill_and_load(p, "other", 1);
    assert_int_equal(device_of(p, "third"), -1);
    peer_close(p);
}

/* The next engine refuses to pin a model, because other programs have the memory: it is asked again when they have
 * given it back. */
static void a_refused_pin_comes_back(void **state)
{
    struct box *b = begin(state, "2", "0,0", NULL, "");
    struct peer *p = peer_open(b);
    struct wire_model_pin pin = {.model = "third", .pinned = true};
    struct hearth_err e;
    char full[128];
    loaded_on(p, "fake", 0);
    loaded_on(p, "other", 1);
    wire_free(peer_call(p, WIRE_MODELS_PIN, &pin));
    assert_int_equal(device_of(p, "third"), 1);
    snprintf(full, sizeof full, "%s/third.gguf.full", b->models);
    int fd = open(full, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    kill_and_load(p, "other", 1);
    assert_int_equal(device_of(p, "third"), -1);
    assert_int_equal(unlink(full), 0);
    wire_free(peer_answer(p, generate(p, "fake", "n=1 relieved"), WIRE_GENERATE, &e));
    int64_t device = -1;
    for (double until = boot() + 20; device < 0 && boot() < until;)
        device = device_of(p, "third");
    assert_int_not_equal(device, -1);
    peer_close(p);
}

static void where_all_are_full_one_serves(void **state)
{
    struct box *b = begin(state, "2", "950000,850000", NULL, "");
    struct peer *p = peer_open(b);
    struct hearth_err e = {0};
    struct wire_generate_result *g = peer_answer(p, generate(p, "fake", "n=3"), WIRE_GENERATE, &e);
    if (!g)
        fail_msg("%s", e.msg);
    assert_int_equal(g->tokens.n, 3);
    wire_free(g);
    assert_int_not_equal(device_of(p, "fake"), -1);
    assert_true(box_log_has(b, "has no room on any device"));
    struct wire_model_pin pin = {.model = "other", .pinned = true};
    wire_free(peer_call(p, WIRE_MODELS_PIN, &pin));
    int64_t device = device_of(p, "other");
    assert_int_not_equal(device, -1);
    kill_and_load(p, "third", (size_t)device); /* the next engine is asked to load the pinned model, and refuses it */
    double until = boot() + 20;
    for (device = -1; device < 0 && boot() < until;)
        device = device_of(p, "other");
    assert_int_not_equal(device, -1);
    peer_close(p);
}

static void devices_can_be_named(void **state)
{
    struct box *b = begin(state, "4", "0,0", NULL, "gpus = 0\n");
    struct peer *p = peer_open(b);
    loaded_on(p, "fake", 0);
    loaded_on(p, "other", 0);
    struct wire_status_result *st = peer_status(p);
    assert_int_equal(st->n_engines, 0);
    wire_free(st);
    peer_close(p);
    box_stop(b, SIGTERM);
    box_configure(b, "gpus = 3,1\n");
    box_start(b);
    p = peer_open(b);
    struct wire_model_load_result *r = load(p, "fake");
    assert_string_equal(r->where, "cuda:3");
    wire_free(r);
    assert_int_equal(device_of(p, "fake"), 3);
    loaded_on(p, "other", 1);
    st = peer_status(p);
    assert_int_equal(st->engines[0].kv.host_limit, 2);
    assert_int_equal(st->engines[1].kv.host_limit, 2);
    wire_free(st);
    peer_close(p);
}

/* Real engines on a CPU: two models, one on each; one engine is killed, and both texts are the same as before. */
static void real_engines_serve_side_by_side(void **state)
{
    static char engine[4096];
    char path[4096], line[8192];
    box_setup_idle(state);
    struct box *b = *state;
    const char *top = getenv("top_srcdir"), *built = getenv("top_builddir");
    snprintf(engine, sizeof engine, "%s/hearth-engine", built ? built : ".");
    b->engine = engine;
    snprintf(path, sizeof path, "%s/contrib/models/tale-q4_k_m.gguf", top ? top : ".");
    snprintf(line, sizeof line, "cp '%s' '%s/copy.gguf'", path, b->models);
    assert_int_equal(system(line), 0);
    snprintf(line, sizeof line, "model_dir = %s/contrib/models\nbackend = cpu\nthreads = 1\ngpus = 0,1\n",
             top ? top : ".");
    box_configure(b, line);
    box_start(b);
    struct peer *r = peer_open(b);
    static const char *const models[] = {"tale", "copy"};
    struct peer *p[2] = {peer_open(b), peer_open(b)};
    struct wire_generate g[2];
    struct wire_generate_result *want[2], *got;
    uint32_t id[2];
    for (int i = 0; i < 2; i++) {
        g[i] = request("Once upon a time there was a king", NULL);
        g[i].model = models[i];
        g[i].max_tokens = 120;
        g[i].sampling.temperature = 0;
        want[i] = peer_call(p[i], WIRE_GENERATE, &g[i]);
        p[i]->n_tok = 0;
    }
    struct wire_status_result *st = peer_status(r);
    assert_int_equal(st->n_engines, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(st->engines[i].n_models, 1);
        assert_string_equal(st->engines[i].models[0].name, models[i]);
    }
    pid_t first = (pid_t)st->engines[0].pid, second = (pid_t)st->engines[1].pid;
    wire_free(st);
    for (int i = 0; i < 2; i++)
        id[i] = peer_ask(p[i], WIRE_GENERATE, &g[i]);
    for (int i = 0; i < 2; i++)
        peer_await_begin(p[i], 2), peer_await_tokens(p[i], 5);
    assert_int_equal(kill(second, SIGKILL), 0);
    for (int i = 0; i < 2; i++) {
        struct hearth_err e = {0};
        got = peer_answer(p[i], id[i], WIRE_GENERATE, &e);
        if (!got)
            fail_msg("%s: %s", models[i], e.msg);
        assert_int_equal(got->text.len, want[i]->text.len);
        assert_memory_equal(got->text.data, want[i]->text.data, got->text.len);
        wire_free(got);
        wire_free(want[i]);
    }
    assert_int_equal(p[0]->n_notices, 0);
    assert_true(p[1]->n_notices > 0);
    assert_int_equal(engine_of(r, 0), first);
    assert_int_not_equal(engine_of(r, 1), second);
    for (int i = 0; i < 2; i++)
        peer_close(p[i]);
    peer_close(r);
}

int main(void)
{
#define CASE(t) cmocka_unit_test_teardown(t, box_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_model_goes_where_most_is_free),
        CASE(other_programs_count),
        CASE(a_full_device_is_passed_by),
        CASE(an_unpin_outlasts_the_pin_before_it),
        CASE(a_refused_pin_comes_back),
        CASE(where_all_are_full_one_serves),
        CASE(an_engines_end_is_its_models_alone),
        CASE(a_device_that_fails_is_passed_by),
        CASE(all_devices_yield),
        CASE(who_starts_later_yields_too),
        CASE(devices_can_be_named),
        CASE(an_engine_needed_again_stays),
        CASE(real_engines_serve_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
