/* conf.c - the configuration: every key accepts its range and refuses everything else with a reason. */
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/conf.h"

static int load(struct conf *c, const char *text, size_t len, struct hearth_err *e)
{
    char path[] = "/tmp/hearth-conf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
    close(fd);
    conf_init(c);
    int rc = conf_load(c, path, e);
    unlink(path);
    return rc;
}

static void test_nearest_key(void **state)
{
    (void)state;
    struct conf c;
    struct hearth_err e;
    conf_init(&c);
    assert_int_equal(conf_set(&c, "model_dirs", "/a", &e), HEARTH_EPARAMS);
    assert_non_null(strstr(e.msg, "is model_dir meant?"));
    assert_int_equal(conf_set(&c, "colour", "blue", &e), HEARTH_EPARAMS);
    assert_null(strstr(e.msg, "meant"));
    conf_fini(&c);
}

/* The mark is ignored only where editors write it. */
static void test_byte_order_mark(void **state)
{
    (void)state;
    static const char key[] = "\xef\xbb\xbfstreams = 7\r\n", comment[] = "\xef\xbb\xbf# a comment\nstreams = 7\n",
                      alone[] = "\xef\xbb\xbf", second[] = "\n\xef\xbb\xbfstreams = 7\n";
    struct conf c;
    struct hearth_err e;
    assert_int_equal(load(&c, key, sizeof key - 1, &e), 0);
    assert_int_equal(c.streams, 7);
    conf_fini(&c);
    assert_int_equal(load(&c, comment, sizeof comment - 1, &e), 0);
    assert_int_equal(c.streams, 7);
    conf_fini(&c);
    assert_int_equal(load(&c, alone, sizeof alone - 1, &e), 0);
    conf_fini(&c);
    assert_int_equal(load(&c, second, sizeof second - 1, &e), HEARTH_EPARAMS);
    assert_non_null(strstr(e.msg, ":2:"));
    conf_fini(&c);
}

static void test_file(void **state)
{
    (void)state;
    static const char text[] = "# a comment\n"
                               "\n"
                               "  socket =  /run/x y/hearth.sock  \r\n"
                               "log_level=debug\n"
                               "model_dir = /a#1\n"
                               "model_dir = ~/b\n"
                               "unsent_bytes = 2MiB # of an answer\n"
                               "backend = cuda\n"
                               "gpu_memory = 80%\n"
                               "gpus = 2,0,15\n"
                               "kv_disk = 3GB\t# a comment, with = in it\n"
                               "kv_ram = 1M\n"
                               "kv_ram = auto\n"
                               "idle_unload = 90\n"
                               "streams=7";
    setenv("HOME", "/home/someone", 1);
    struct conf c;
    struct hearth_err e;
    if (load(&c, text, sizeof text - 1, &e) != 0)
        fail_msg("%s", e.msg);
    assert_string_equal(c.socket, "/run/x y/hearth.sock");
    assert_int_equal(c.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(c.n_model_dirs, 2);
    assert_string_equal(c.model_dirs[0], "/a#1");
    assert_string_equal(c.model_dirs[1], "/home/someone/b");
    assert_int_equal(c.unsent_bytes, 2 << 20);
    assert_string_equal(c.backend, "cuda");
    assert_int_equal(c.kv_disk, 3LL << 30);
    assert_int_equal(c.gpu_memory, -80);
    assert_string_equal(c.gpus, "2,0,15");
    assert_int_equal(conf_set(&c, "gpu_memory", "24G", &e), 0);
    assert_int_equal(c.gpu_memory, 24LL << 30);
    assert_int_equal(c.kv_ram, CONF_IS_AUTO);
    assert_int_equal(c.kv_disk_per_uid, CONF_IS_AUTO);
    assert_int_equal(c.streams, 7);
    assert_int_equal(c.idle_unload, 90);
    assert_int_equal(c.streams_per_uid, 64); /* the default, as hearth.conf(5) states it */
    conf_fini(&c);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } bad[] = {
        {"nonsense = 1\n", "\"nonsense\""},
        {"streams\n", "key = value"},
        {"streams = \n", "streams"},
        {"\nstreams = 0\n", ":2: streams: 0"},
        {"streams = 4097\n", "1 and 4096"},
        {"streams = -1\n", "-1"},
        {"streams = 12x\n", "12x"},
        {"streams = 99999999999999999999\n", "streams"},
        {"unsent_bytes = 9T\n", "9T"},
        {"unsent_bytes = 9223372036854775807G\n", "unsent_bytes"},
        {"unsent_bytes = 1\n", "unsent_bytes"},
        {"unsent_bytes = 2047K\n", "unsent_bytes: 2047K is not between 2097152 and 1073741824"},
        {"socket = hearth.sock\n", "absolute"},
        {"log_level = loud\n", "loud"},
        {"= 1\n", "key"},
        {"kv_disk = -1\n", "kv_disk: -1"},
        {"kv_disk = automatic\n", "or auto"},
        {"gpu_memory = 0%\n", "or a share from 1% to 100%"},
        {"gpu_memory = 101%\n", "or a share"},
        {"gpu_memory = 80 %\n", "or a share"},
        {"gpu_memory = -5\n", "gpu_memory: -5"},
        {"kv_age = auto\n", "kv_age"},
        {"idle_unload = 525601\n", "between 0 and 525600"},
        {"backend = rocm\n", "none of auto cpu cuda"},
        {"backend = cp\n", "none of auto cpu cuda"},
        {"backend = cpu cuda\n", "none of auto cpu cuda"},
        {"gpus = some\n", "neither all nor numbers from 0 to 15"},
        {"gpus = 0,0\n", "each once"},
        {"gpus = 0,\n", "gpus"},
        {"gpus = 0, 1\n", "gpus"},
        {"gpus = 16\n", "gpus"},
        {"gpus = -1\n", "gpus"},
        {"threads = 257\n", "between 0 and 256"}, /* the engine's CPU backend has no more threads */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct conf c;
        struct hearth_err e = {0};
        int rc = load(&c, bad[i].text, strlen(bad[i].text), &e);
        if (rc != HEARTH_EPARAMS || !strstr(e.msg, bad[i].names))
            fail_msg("%s -> %d \"%s\", want \"%s\" named", bad[i].text, rc, e.msg, bad[i].names);
        conf_fini(&c);
    }
    struct conf c;
    struct hearth_err e;
    assert_int_equal(load(&c, "streams = 1\0 2\n", 15, &e), HEARTH_EPARAMS);
    conf_fini(&c);
    conf_init(&c);
    assert_int_equal(conf_load(&c, "/nonexistent/hearth.conf", &e), HEARTH_EIO);
    conf_fini(&c);
}

/* Opening a FIFO that has no writer would block the reader for ever; the alarm then ends the test. */
static void test_irregular(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-conf-XXXXXX", fifo[64], says[128];
    assert_non_null(mkdtemp(dir));
    snprintf(fifo, sizeof fifo, "%s/hearth.conf", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const paths[] = {fifo, dir};
    alarm(60);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct conf c;
        struct hearth_err e;
        conf_init(&c);
        assert_int_equal(conf_load(&c, paths[i], &e), HEARTH_EIO);
        snprintf(says, sizeof says, "%s is not a regular file", paths[i]);
        assert_string_equal(e.msg, says);
        conf_fini(&c);
    }
    alarm(0);
    struct conf empty;
    struct hearth_err none;
    conf_init(&empty);
    assert_int_equal(conf_load(&empty, "/dev/null", &none), 0);
    conf_fini(&empty);
    unlink(fifo);
    rmdir(dir);
}

static void test_environment(void **state)
{
    (void)state;
    struct conf c;
    struct hearth_err e;
    setenv("HOME", "/home/someone", 1);
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    setenv("XDG_STATE_HOME", "relative: not to be used", 1);
    setenv("XDG_DATA_HOME", "/data", 1);
    setenv("HF_HOME", "/hf", 1);
    unsetenv("HF_HUB_CACHE");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("LMSTUDIO_HOME");
    conf_init(&c);
    assert_int_equal(conf_set(&c, "model_dir", "/first", &e), 0);
    assert_int_equal(conf_finish(&c, "/built-in", &e), 0);
    assert_string_equal(c.socket, "/run/user/7/hearth/hearth.sock");
    assert_string_equal(c.state_dir, "/home/someone/.local/state/hearth");
    static const char *const want[] = {"/first",
                                       "/built-in",
                                       "/data/hearth/models",
                                       "/hf/hub",
                                       "/home/someone/.lmstudio/models",
                                       "/home/someone/.cache/lm-studio/models"};
    assert_int_equal(c.n_model_dirs, sizeof want / sizeof want[0]);
    for (size_t i = 0; i < c.n_model_dirs; i++)
        assert_string_equal(c.model_dirs[i], want[i]);
    conf_fini(&c);

    /* Both caches follow XDG_CACHE_HOME. */
    unsetenv("HF_HOME");
    for (int set = 0; set < 2; set++) {
        conf_init(&c);
        assert_int_equal(conf_finish(&c, NULL, &e), 0);
        assert_int_equal(c.n_model_dirs, 4);
        assert_string_equal(c.model_dirs[1], set ? "/cache/huggingface/hub" : "/home/someone/.cache/huggingface/hub");
        assert_string_equal(c.model_dirs[3], set ? "/cache/lm-studio/models" : "/home/someone/.cache/lm-studio/models");
        conf_fini(&c);
        setenv("XDG_CACHE_HOME", "/cache", 1);
    }
    unsetenv("XDG_CACHE_HOME");
}

/* Without HOME, the home directory comes from the password database; a daemon of root uses the system directory. */
static void test_no_home(void **state)
{
    (void)state;
    struct conf c;
    struct hearth_err e;
    char want[4096];
    const struct passwd *user = getpwuid(geteuid());
    if (geteuid() != 0 && (!user || user->pw_dir[0] != '/'))
        skip();
    snprintf(want, sizeof want, "%s", "/var/lib/hearth");
    if (geteuid() != 0)
        snprintf(want, sizeof want, "%s/.local/state/hearth", user->pw_dir);
    unsetenv("HOME");
    unsetenv("XDG_STATE_HOME");
    conf_init(&c);
    assert_int_equal(conf_finish(&c, NULL, &e), 0);
    assert_string_equal(c.state_dir, want);
    conf_fini(&c);
}

static void test_socket_length(void **state)
{
    (void)state;
    struct conf c;
    struct hearth_err e;
    char path[109];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[108] = '\0';
    conf_init(&c);
    assert_int_equal(conf_set(&c, "socket", path, &e), 0);
    assert_int_equal(conf_finish(&c, NULL, &e), HEARTH_EPARAMS);
    assert_non_null(strstr(e.msg, "108 bytes"));
    assert_non_null(strstr(e.msg, "limit is 107"));
    conf_fini(&c);
    path[107] = '\0';
    conf_init(&c);
    path[50] = '\xff';
    assert_int_equal(conf_set(&c, "socket", path, &e), 0);
    assert_int_equal(conf_finish(&c, NULL, &e), HEARTH_EPARAMS);
    assert_non_null(strstr(e.msg, "not valid UTF-8"));
    conf_fini(&c);
    conf_init(&c);
    assert_int_equal(conf_set(&c, "model_dir", path, &e), HEARTH_EPARAMS); /* no client could be told of it */
    assert_non_null(strstr(e.msg, "model_dir: the path is not valid UTF-8"));
    conf_fini(&c);
    path[50] = 'a';
    conf_init(&c);
    assert_int_equal(conf_set(&c, "socket", path, &e), 0);
    assert_int_equal(conf_finish(&c, NULL, &e), 0);
    conf_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_key), cmocka_unit_test(test_byte_order_mark), cmocka_unit_test(test_file),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_irregular),       cmocka_unit_test(test_environment),
        cmocka_unit_test(test_no_home),     cmocka_unit_test(test_socket_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
