/* log.c - the log: levels, time and program, lines that a client's words cannot forge, lines from several threads. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/log.h"

enum { TEXT = 1 << 20, THREADS = 4, LINES = 500 };

/* Standard error is a file while a test logs. */
struct capture {
    FILE *file;
    int saved;
    char text[TEXT];
};

static int setup(void **state)
{
    struct capture *c = calloc(1, sizeof *c);
    *state = c;
    c->file = tmpfile();
    c->saved = dup(STDERR_FILENO);
    dup2(fileno(c->file), STDERR_FILENO);
    unsetenv("JOURNAL_STREAM");
    log_open(LOG_LEVEL_INFO);
    return 0;
}

static int teardown(void **state)
{
    struct capture *c = *state;
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    fclose(c->file);
    free(c);
    return 0;
}

static const char *text(struct capture *c)
{
    ssize_t n = pread(fileno(c->file), c->text, sizeof c->text - 1, 0);
    assert_true(n >= 0);
    c->text[n] = 0;
    return c->text;
}

static void test_prefix(void **state)
{
    log_warn("the %s", "words");
    const char *line = text(*state);
    int year, ms, pid;
    char program[33], level[8], rest[32];
    assert_int_equal(sscanf(line, "%d-%*d-%*d %*d:%*d:%*d.%3d %32[^[][%d] %7[a-z]: %31[^\n]", &year, &ms, program, &pid,
                            level, rest),
                     6);
    assert_true(year >= 2024);
    assert_string_equal(program, program_invocation_short_name);
    assert_int_equal(pid, getpid());
    assert_string_equal(level, "warn");
    assert_string_equal(rest, "the words");
    assert_int_equal(line[strlen(line) - 1], '\n');
}

static int n_evaluated;

static int evaluated(void)
{
    return ++n_evaluated;
}

static void test_level(void **state)
{
    log_debug("%d", evaluated());
    assert_int_equal(n_evaluated, 0);
    assert_string_equal(text(*state), "");
    log_open(LOG_LEVEL_DEBUG);
    log_debug("%d", evaluated());
    assert_int_equal(n_evaluated, 1);
    log_open(LOG_LEVEL_ERROR);
    log_warn("%d", evaluated());
    assert_int_equal(n_evaluated, 1);
    assert_non_null(strstr(text(*state), " debug: 1\n"));
    assert_null(strstr(text(*state), "warn"));
    for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++)
        assert_int_equal(log_level_find(log_level_name((enum log_level)i)), i);
    assert_int_equal(log_level_find("loud"), -1);
}

/* A name with a newline, an escape sequence, a tab, DEL and a C1 control; "é" and "…" are kept. */
static void test_injection(void **state)
{
    log_info("\"%s\"", "a\n2026-01-01 hearthd[1] error: forged\x1b[2J\t\x7f\xc2\x9b \xc3\xa9 \xe2\x80\xa6");
    const char *line = text(*state);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    assert_non_null(strstr(line, "\"a?2026-01-01 hearthd[1] error: forged?[2J???? \xc3\xa9 \xe2\x80\xa6\"\n"));
}

static size_t count_of(const char *in, const char *what)
{
    size_t n = 0;
    for (; (in = strstr(in, what)); in++)
        n++;
    return n;
}

/* A message that a peer can cause at will takes only a limited number of lines per second, and the dropped ones are
 * counted. */
static void test_often(void **state)
{
    enum { TIMES = 10000 };
    struct log_limit limit = {0};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < TIMES; i++)
        log_limited(&limit, LOG_LEVEL_WARN, "refused");
    clock_gettime(CLOCK_MONOTONIC, &to);
    size_t seconds = (size_t)(to.tv_sec - from.tv_sec) + 1, n = count_of(text(*state), "refused");
    assert_true(n >= LOG_OFTEN && n <= LOG_OFTEN * seconds);
    limit = (struct log_limit){.second = to.tv_sec - 1, .n = 120, .dropped = 100}; /* as if in another second */
    log_limited(&limit, LOG_LEVEL_WARN, "and again");
    assert_non_null(strstr(text(*state), "warn: 100 more lines like the next one are left out\n"));
    assert_int_equal(limit.dropped, 0);
    assert_int_equal(limit.n, 1);
}

/* The file stays within its bound, and one full file is kept. */
static void test_bound(void **state)
{
    enum { MOST = 64 << 10, LINE = 100, SLACK = 64 * 1024 };
    (void)state;
    char path[] = "/tmp/hearth-log-XXXXXX", old[40];
    struct stat sb;
    int fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(old, sizeof old, "%s.1", path);
    dup2(fd, STDERR_FILENO);
    log_keep_within(path, MOST);
    off_t most = 0;
    for (int i = 0; i < 40 * MOST / LINE; i++) {
        log_info("%0*d", LINE, i);
        assert_int_equal(fstat(fd, &sb), 0);
        most = sb.st_size > most ? sb.st_size : most;
    }
    assert_true(most > MOST && most < MOST + SLACK);
    assert_int_equal(stat(old, &sb), 0);
    assert_true(sb.st_size > MOST && sb.st_size < MOST + SLACK);
    assert_int_equal(sb.st_mode & 0777, 0600);
    assert_int_equal(rename(path, old), 0); /* moved away: it is somebody's now, and loses nothing */
    for (int i = 0; i < 4 * MOST / LINE; i++)
        log_info("%0*d", LINE, i);
    assert_int_equal(fstat(fd, &sb), 0);
    assert_true(sb.st_size > 3 * MOST);
    log_keep_within(NULL, 0);
    close(fd);
    unlink(path);
    unlink(old);
}

static void test_long(void **state)
{
    char *words = malloc(5000);
    memset(words, 'x', 4999);
    words[4999] = 0;
    log_info("%s", words);
    log_info("next");
    const char *line = text(*state), *end = strchr(line, '\n');
    assert_true(end - line < 1024);
    assert_memory_equal(end - 4, "x...", 4);
    assert_non_null(strstr(end, " info: next\n"));
    free(words);
}

/* JOURNAL_STREAM alone is not enough: standard error must be the stream that it names. */
static void test_journal(void **state)
{
    struct capture *c = *state;
    char stream[64];
    struct stat sb;
    setenv("JOURNAL_STREAM", "1:2", 1);
    log_open(LOG_LEVEL_INFO);
    log_info("stamped");
    assert_int_equal(*text(c), '2');
    assert_int_equal(fstat(STDERR_FILENO, &sb), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)sb.st_dev, (unsigned long long)sb.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(LOG_LEVEL_INFO);
    log_error("bad");
    log_info("fine");
    assert_non_null(strstr(text(c), " info: stamped\n<3>bad\n<6>fine\n"));
    unsetenv("JOURNAL_STREAM");
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < LINES; i++)
        log_info("thread=%d line=%d.", *(int *)arg, i);
    return NULL;
}

/* Each line is whole, and the lines of each thread are in order. The threads are POSIX's: gcc's thread sanitizer does
 * not know of thrd_create(), and crashes. */
static void test_threads(void **state)
{
    pthread_t t[THREADS];
    int id[THREADS], next[THREADS] = {0}, n = 0;
    for (int i = 0; i < THREADS; i++) {
        id[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, write_lines, &id[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    text(*state);
    for (char *s = ((struct capture *)*state)->text, *end; (end = strchr(s, '\n')); s = end + 1, n++) {
        int thread = -1, line = -1;
        char dot = 0;
        const char *at = strstr(s, "thread=");
        assert_true(at && at < end);
        assert_int_equal(sscanf(at, "thread=%d line=%d%c\n", &thread, &line, &dot), 3);
        assert_true(thread >= 0 && thread < THREADS && dot == '.');
        assert_int_equal(line, next[thread]++);
    }
    assert_int_equal(n, THREADS * LINES);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_prefix), CASE(test_level), CASE(test_injection), CASE(test_often),
        CASE(test_bound),  CASE(test_long),  CASE(test_journal),   CASE(test_threads),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
