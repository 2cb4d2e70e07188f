/*
 * engine-link.c - a real hearth-engine over its link: its answers, the models that it loads and unloads, and how it
 * exits.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/daemon/drive.h"

static struct drive d; /* the engine that most tests share */

static void hello(void **state)
{
    (void)state;
    struct hearth_err e;
    void *out;
    assert_int_equal(drive_call(&d, WIRE_ENGINE_HELLO, &(struct wire_engine_hello){WIRE_VERSION}, &out, &e), 0);
    const struct wire_engine_hello_result *r = out;
    assert_int_equal(r->pid, d.pid);
    assert_string_equal(r->backend, "cpu");
    wire_free(out);
    assert_int_equal(drive_call(&d, WIRE_ENGINE_HELLO, &(struct wire_engine_hello){99}, &out, &e), HEARTH_EVERSION);
}

static void bad_requests_are_answered(void **state)
{
    (void)state;
    struct wire_engine_generate g;
    struct hearth_err e;
    void *out;
    struct wire_engine_generate good;
    drive_prompt(&good, "Through all of this", 200);
    struct heard *bystander = drive_begin(&d, &good);

    drive_prompt(&g, "x", 4);
    g.path = "/nowhere/model.gguf";
    assert_int_equal(drive_generate(&d, &g)->err.code, HEARTH_ENOMODEL);
    g.path = "relative.gguf";
    assert_int_equal(drive_generate(&d, &g)->err.code, HEARTH_EPARAMS);
    g.path = "/dev/null";
    assert_int_equal(drive_generate(&d, &g)->err.code, HEARTH_ENOMODEL);

    drive_prompt(&g, "", 4);
    drive_generate(
        &d, &g); /* an empty prompt: a BOS if the model uses one, otherwise an error; it is answered in any case */

    drive_defaults(&g);
    g.req.tokens = (struct wire_ids){(int32_t[]){5, 1 << 30}, 2};
    struct heard *h = drive_generate(&d, &g);
    assert_int_equal(h->err.code, HEARTH_EPARAMS);
    assert_non_null(strstr(h->err.msg, "tokens[1]"));
    g.req.tokens.n = 1;
    g.history = (struct wire_ids){(int32_t[]){-4}, 1};
    h = drive_generate(&d, &g);
    assert_int_equal(h->err.code, HEARTH_EPARAMS);
    assert_non_null(strstr(h->err.msg, "history[0]"));
    g.history = (struct wire_ids){(int32_t[]){5, 1 << 30}, 2};
    h = drive_generate(&d, &g);
    assert_int_equal(h->err.code, HEARTH_EMODELMISMATCH);
    assert_non_null(strstr(h->err.msg, "history[1]"));
    g.history.n = 0;
    g.resumed = 5;
    assert_int_equal(drive_generate(&d, &g)->err.code, HEARTH_EPARAMS);

    drive_prompt(&g, "x", 4);
    struct wire_bias bias = {1 << 20, 1};
    g.req.sampling.logit_bias = &bias;
    g.req.sampling.n_logit_bias = 1;
    h = drive_generate(&d, &g);
    assert_int_equal(h->err.code, HEARTH_EPARAMS);
    assert_non_null(strstr(h->err.msg, "logit_bias[0]"));

    struct wire_part part = {.type = "image", .text = hearth_text("")};
    struct wire_message msg = {.role = "user", .parts = &part, .n_parts = 1};
    drive_defaults(&g);
    g.req.messages = &msg;
    g.req.n_messages = 1;
    h = drive_generate(&d, &g);
    assert_int_equal(h->err.code, HEARTH_EUNSUPPORTED);
    assert_non_null(strstr(h->err.msg, "image"));

    int32_t bad = 1 << 29;
    struct wire_eval ev = {.model = drive_tale(), .tokens = {&bad, 1}, .top = 1};
    assert_int_equal(drive_call(&d, WIRE_ENGINE_EVAL, &ev, &out, &e), HEARTH_EPARAMS);
    assert_int_equal(drive_call(&d, WIRE_STATUS, &(struct wire_empty){0}, &out, &e), HEARTH_EMETHOD);

    drive_wait(&d, bystander);
    assert_int_equal(bystander->err.code, 0);
    assert_true(bystander->n_token > 0);
}

/* Damaged files are refused with a name, and the engine keeps running. */
static void damaged_models(void **state)
{
    (void)state;
    char path[] = "/tmp/hearth-damaged-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static char part[100000];
    int from = open(drive_tale(), O_RDONLY);
    assert_true(from >= 0 && read(from, part, sizeof part) == sizeof part);
    close(from);
    size_t cuts[] = {0, 3, 24, 500, sizeof part};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct wire_engine_generate g;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, part, cuts[i], 0), cuts[i]);
        drive_prompt(&g, "x", 4);
        g.path = path;
        struct heard *h = drive_generate(&d, &g);
        assert_int_equal(h->err.code, HEARTH_EBADMODEL);
    }
    close(fd);
    unlink(path);
}

/* If a model file is truncated while it is in use, its streams end, and no others. */
static void a_file_that_shrinks(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* the handler replaces a page that another thread is reading: that is its purpose, and TSan reports it */
#endif
    char dir[] = "/tmp/hearth-shrinks-XXXXXX", path[64], cmd[8300];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    snprintf(cmd, sizeof cmd, "cp '%s' '%s'", drive_tale(), path);
    assert_int_equal(system(cmd), 0);
    struct wire_engine_generate g, other;
    drive_prompt(&g, "The ground gave way under", -1);
    g.path = path;
    struct heard *h = drive_begin(&d, &g);
    drive_prompt(&other, "Nothing happened to", 100);
    struct heard *o = drive_begin(&d, &other);
    drive_wait_tokens(&d, h, 3);
    assert_int_equal(truncate(path, 5000), 0);
    drive_wait(&d, h);
    assert_int_equal(h->err.code, HEARTH_EBADMODEL);
    drive_wait(&d, o);
    assert_int_equal(o->err.code, 0);
    assert_true(o->n_token > 0);
    assert_int_equal(drive_generate(&d, &g)->err.code, HEARTH_EBADMODEL);
    unlink(path);
    rmdir(dir);
}

/* Rewrites the file in place, with each byte of its last megabyte changed by `with`, and sets its modification time. */
static void overwrite(const char *path, unsigned char with, const struct timespec *mtime)
{
    enum { PART = 1 << 20 };
    unsigned char *part = malloc(PART);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    struct stat sb;
    int fd = open(path, O_RDWR);
    assert_true(part && fd >= 0 && !fstat(fd, &sb) && sb.st_size > PART);
    assert_int_equal(pread(fd, part, PART, sb.st_size - PART), PART);
    for (size_t i = 0; i < PART; i++)
        part[i] ^= with;
    assert_int_equal(pwrite(fd, part, PART, sb.st_size - PART), PART);
    if (mtime)
        times[1] = *mtime;
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    free(part);
}

/* If a model file is overwritten in place while it is in use, its streams end with an error that names it. Nothing that
 * was computed since then is trusted, even if the original bytes are restored with the old time. */
static void a_file_that_is_overwritten(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-overwritten-XXXXXX", path[64], cmd[8300];
    struct stat sb;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    snprintf(cmd, sizeof cmd, "cp '%s' '%s'", drive_tale(), path);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(stat(path, &sb), 0);
    struct wire_engine_generate g;
    drive_prompt(&g, "The ink had hardly dried when the clerk", 200);
    struct heard *want = drive_generate(&d, &g);
    g.path = path;
    g.uid = 4;
    g.req.max_tokens = -1;
    struct heard *h = drive_begin(&d, &g);
    drive_wait_tokens(&d, h, 3);
    overwrite(path, 0x55, NULL);
    drive_wait(&d, h);
    assert_int_equal(h->err.code, HEARTH_EBADMODEL);
    assert_non_null(strstr(h->err.msg, "was written to"));
    overwrite(path, 0x55, &sb.st_mtim);
    g.req.max_tokens = 200;
    struct heard *again = drive_generate(&d, &g);
    assert_int_equal(again->err.code, 0);
    assert_int_equal(again->result.usage.reused_tokens, 0);
    drive_same_tokens(again, want);
    unlink(path);
    rmdir(dir);
}

/* Another file of the same name is another model; the KV of the old one is not found for it. */
static void a_replaced_file_is_another_model(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-replaced-XXXXXX", path[64], fresh[64], cmd[8300];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    snprintf(fresh, sizeof fresh, "%s/n.gguf", dir);
    struct wire_engine_generate g;
    for (int i = 0; i < 2; i++) {
        snprintf(cmd, sizeof cmd, "cp '%s' '%s' && mv '%s' '%s'", drive_tale(), fresh, fresh, path);
        assert_int_equal(system(cmd), 0);
        drive_prompt(&g, "A prompt of some length, to have something to reuse", 4);
        g.path = path;
        struct heard *first = drive_generate(&d, &g), *again = drive_generate(&d, &g);
        assert_int_equal(first->err.code, 0);
        assert_int_equal(first->result.usage.reused_tokens, 0);
        assert_true(again->result.usage.reused_tokens > 0);
    }
    struct wire_engine_status *st = drive_status(&d);
    int rows = 0;
    for (size_t i = 0; i < st->n_models; i++)
        rows += !strcmp(st->models[i].path, path);
    assert_int_equal(rows, 1); /* the old model is gone */
    wire_free(st);
    unlink(path);
    rmdir(dir);
}

/* The path of an op is reported while the model is loaded; a CPU has only one, and nothing is slow there. */
static void paths_of_ops(void **state)
{
    (void)state;
    struct wire_engine_path path = {drive_tale()};
    struct wire_engine_model ask = {drive_tale(), true};
    struct hearth_err e;
    void *out;
    for (int loaded = 1; loaded >= 0; loaded--) {
        assert_int_equal(drive_call(&d, loaded ? WIRE_ENGINE_LOAD : WIRE_ENGINE_UNLOAD, &path, &out, &e), 0);
        wire_free(out);
        assert_int_equal(drive_call(&d, WIRE_ENGINE_MODEL, &ask, &out, &e), 0);
        const struct wire_model *m = out;
        assert_int_equal(m->n_ops, 42);
        for (size_t i = 0; i < m->n_ops; i++)
            for (int k = 0; k < 4; k++) {
                const struct wire_op *o = &m->ops[i];
                const char *at = (const char *[]){o->one, o->few, o->many, o->invariant}[k];
                assert_true(loaded ? at && !strcmp(at, "cpu") : !at);
            }
        wire_free(out);
    }
    assert_int_equal(drive_call(&d, WIRE_ENGINE_LOAD, &path, &out, &e), 0);
    assert_int_equal(((struct wire_model_load_result *)out)->slow.n, 0);
    wire_free(out);
}

static void load_and_unload(void **state)
{
    (void)state;
    struct hearth_err e;
    void *out;
    struct wire_engine_generate g;
    assert_int_equal(drive_call(&d, WIRE_ENGINE_LOAD, &(struct wire_engine_path){drive_tale()}, &out, &e), 0);
    wire_free(out);
    drive_prompt(&g, "Busy", 100);
    struct heard *h = drive_begin(&d, &g);
    drive_wait_tokens(&d, h, 1);
    assert_int_equal(drive_call(&d, WIRE_ENGINE_UNLOAD, &(struct wire_engine_path){drive_tale()}, &out, &e),
                     HEARTH_ELIMIT);
    drive_wait(&d, h);
    assert_int_equal(drive_call(&d, WIRE_ENGINE_UNLOAD, &(struct wire_engine_path){drive_tale()}, &out, &e), 0);
    wire_free(out);
    struct wire_engine_status *s = drive_status(&d);
    for (size_t i = 0; i < s->n_models; i++)
        assert_true(strcmp(s->models[i].path, drive_tale()) || s->models[i].vocab_only);
    wire_free(s);
    assert_int_equal(drive_call(&d, WIRE_ENGINE_LOAD, &(struct wire_engine_path){drive_tale()}, &out, &e), 0);
    const struct wire_model_load_result *r = out;
    assert_false(r->was_loaded);
    assert_string_equal(r->where, "cpu");
    assert_null(r->no_gpu); /* it was told not to use a GPU */
    wire_free(out);
    assert_int_equal(drive_call(&d, WIRE_ENGINE_LOAD, &(struct wire_engine_path){drive_tale()}, &out, &e), 0);
    assert_true(((struct wire_model_load_result *)out)->was_loaded);
    wire_free(out);
}

static const struct wire_loaded_model *row_of(const struct wire_engine_status *s, const char *path)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (!strcmp(s->models[i].path, path))
            return &s->models[i];
    return NULL;
}

/* Only the status is requested: the model is unloaded by the clock, and its KV is restored with it later. */
static void an_idle_model_is_unloaded(void **state)
{
    (void)state;
    struct drive idle, *shared = &d;
    struct wire_engine_generate g;
    char *args[] = {"--backend", "cpu", "--kv-ram", "100000000", "--idle-unload", "1", "--restore", "always", NULL};
    drive_open(&idle, args);
    drive_prompt(
        &g, "Once upon a time there was a king who had a daughter, and she was so proud that no man was good enough",
        8);
    const struct heard *want = drive_generate(shared, &g);
    for (int i = 0; i < 2; i++) {
        const struct heard *h = drive_generate(&idle, &g);
        drive_same_tokens(h, want);
        assert_true(h->result.timings.load_ms > 0);
        if (i)
            assert_true(h->result.usage.restored_tokens > 0);
        for (bool gone = false; !gone;) {
            struct hearth_err e;
            void *out;
            assert_int_equal(drive_call(&idle, WIRE_ENGINE_STATUS, &(struct wire_empty){0}, &out, &e), 0);
            const struct wire_loaded_model *m = row_of(out, drive_tale());
            gone = m->vocab_only;
            assert_true(gone ? m->expires == 0 : m->expires > 0);
            wire_free(out);
        }
    }
    assert_int_equal(drive_close(&idle), 0);
    struct wire_engine_status *s = drive_status(&d);
    assert_true(row_of(s, drive_tale())->expires == 0); /* no limit: it is not unloaded */
    wire_free(s);
}

/* The model is loaded on the device while its vocabulary is still being read, even for a request that is refused in the
 * end. */
static void a_model_is_loaded_beside_its_vocabulary(void **state)
{
    (void)state;
    struct drive fresh;
    struct wire_engine_generate g;
    struct hearth_err e;
    void *out;
    drive_open(&fresh, (char *[]){"--backend", "cpu", NULL});
    drive_prompt(&g, "x", 4);
    g.req.sampling.logit_bias = &(struct wire_bias){1 << 20, 1};
    g.req.sampling.n_logit_bias = 1;
    assert_int_equal(drive_generate(&fresh, &g)->err.code, HEARTH_EPARAMS);
    assert_int_equal(drive_call(&fresh, WIRE_ENGINE_LOAD, &(struct wire_engine_path){drive_tale()}, &out, &e), 0);
    assert_true(((struct wire_model_load_result *)out)->was_loaded);
    wire_free(out);
    assert_int_equal(drive_call(&fresh, WIRE_ENGINE_UNLOAD, &(struct wire_engine_path){drive_tale()}, &out, &e), 0);
    wire_free(out);
    drive_prompt(&g, "x", 4); /* the vocabulary has been read by now, and the arrival of the sequence loads the model */
    assert_true(drive_generate(&fresh, &g)->result.timings.load_ms > 0);
    assert_int_equal(drive_close(&fresh), 0);
}

/* An engine that was started without a directory for KV files, or is named one that it cannot use, keeps KV in the one
 * that it is named later. */
static void a_directory_is_named_later(void **state)
{
    (void)state;
    struct drive late;
    struct wire_engine_generate g;
    struct hearth_err e;
    struct stat sb;
    void *out;
    char dir[] = "/tmp/hearth-link.XXXXXX";
    assert_non_null(mkdtemp(dir));
    const char *const dirs[] = {NULL, "/nowhere", dir};
    drive_open(&late, (char *[]){"--backend", "cpu", NULL});
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        if (dirs[i]) {
            assert_int_equal(drive_call(&late, WIRE_ENGINE_KV_DIR, &(struct wire_engine_kv_dir){dirs[i]}, &out, &e), 0);
            wire_free(out);
        }
        drive_prompt(&g, "Once upon a time there was", 40);
        drive_generate(&late, &g);
    }
    assert_int_equal(drive_call(&late, WIRE_ENGINE_SHUTDOWN, &(struct wire_empty){0}, &out, &e), 0);
    wire_free(out);
    assert_int_equal(late.n_kv_saved, 1);
    drive_close(&late);
    int n = 0, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *files = fdopendir(fd);
    assert_non_null(files);
    for (struct dirent *en; (en = readdir(files));)
        if (fstatat(fd, en->d_name, &sb, 0) == 0 && S_ISREG(sb.st_mode)) {
            assert_non_null(strstr(en->d_name, ".kv"));
            n += unlinkat(fd, en->d_name, 0) == 0;
        }
    closedir(files);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(n, 1);
}

static void ends_with_the_link(void **state)
{
    (void)state;
    struct drive other;
    char *args[] = {"--backend", "cpu", NULL};
    struct wire_engine_generate g;
    struct hearth_err e;
    void *out;
    drive_open(&other, args);
    drive_prompt(&g, "In the middle of", -1);
    drive_wait_tokens(&other, drive_begin(&other, &g), 3);
    assert_int_equal(drive_close(&other), 0); /* exit status 0 */

    drive_open(&other, args);
    assert_int_equal(drive_call(&other, WIRE_ENGINE_SHUTDOWN, &(struct wire_empty){0}, &out, &e), 0);
    wire_free(out);
    int status;
    assert_int_equal(waitpid(other.pid, &status, 0), other.pid);
    assert_int_equal(status, 0);
    close(other.fd);
    wire_buf_fini(&other.in);
    wire_buf_fini(&other.out);
}

/* The second engine waits for the first one's lock. */
static void one_engine_at_a_time(void **state)
{
    (void)state;
    char lock[] = "/tmp/hearth-lock-XXXXXX";
    close(mkstemp(lock));
    char *args[] = {"--backend", "cpu", "--lock", lock, NULL};
    struct drive a, b;
    struct hearth_err e;
    void *out;
    struct wire_engine_hello hi = {WIRE_VERSION};
    drive_open(&a, args);
    assert_int_equal(drive_call(&a, WIRE_ENGINE_HELLO, &hi, &out, &e), 0);
    wire_free(out);
    drive_open(&b, args);
    assert_int_equal(drive_call(&a, WIRE_ENGINE_HELLO, &hi, &out, &e), 0);
    wire_free(out);
    assert_int_equal(drive_close(&a), 0);
    assert_int_equal(drive_call(&b, WIRE_ENGINE_HELLO, &hi, &out, &e), 0); /* answered once the lock is free */
    wire_free(out);
    assert_int_equal(drive_close(&b), 0);

    unlink(lock); /* a link in its place is not followed, and the client gets an error */
    assert_int_equal(symlink("/dev/null", lock), 0);
    drive_open(&a, args);
    assert_int_equal(drive_call(&a, WIRE_ENGINE_HELLO, &hi, &out, &e), HEARTH_EIO);
    assert_non_null(strstr(e.msg, lock));
    assert_int_not_equal(drive_close(&a), 0);
    unlink(lock);
}

static int setup(void **state)
{
    (void)state;
    drive_open(&d, (char *[]){"--backend", "cpu", NULL});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return drive_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello),
        cmocka_unit_test(bad_requests_are_answered),
        cmocka_unit_test(damaged_models),
        cmocka_unit_test(a_file_that_shrinks),
        cmocka_unit_test(a_file_that_is_overwritten),
        cmocka_unit_test(a_replaced_file_is_another_model),
        cmocka_unit_test(paths_of_ops),
        cmocka_unit_test(load_and_unload),
        cmocka_unit_test(an_idle_model_is_unloaded),
        cmocka_unit_test(a_model_is_loaded_beside_its_vocabulary),
        cmocka_unit_test(a_directory_is_named_later),
        cmocka_unit_test(ends_with_the_link),
        cmocka_unit_test(one_engine_at_a_time),
    };
    return cmocka_run_group_tests_name("engine-link", tests, setup, teardown);
}
