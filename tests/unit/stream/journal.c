/* journal.c - the journal's files as bytes: records are read back as written, and of a damaged file those before the
 * damage. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stream/journal-read.h"

enum { NUMBER = 42, TOKENS = 6, RECORDS = TOKENS + 4, MOST = 8192 };

struct file {
    char dir[40];
    int dir_fd;
    uint8_t bytes[MOST];
    size_t len;
    size_t end[RECORDS]; /* the end of each record */
};

static void append(struct file *f, size_t record, int method, const void *body)
{
    struct wire_buf b = {0};
    struct hearth_err e;
    if (journal_pack(&b, (int64_t)f->len, &wire_methods[method], body, &e) != 0)
        fail_msg("%s", e.msg);
    assert_true(f->len + b.len <= MOST);
    memcpy(f->bytes + f->len, b.data, b.len);
    f->len += b.len;
    f->end[record] = f->len;
    wire_buf_fini(&b);
}

/* A stream of six tokens with logprobs, a tail and an end. */
static int setup(void **state)
{
    struct file *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/hearth-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY);
    struct wire_journal_head h = {.stream = NUMBER,
                                  .uid = 1000,
                                  .hash = UINT64_MAX,
                                  .session = "00000000000000aa",
                                  .name = "s",
                                  .model = "tale",
                                  .path = "/m/tale.gguf",
                                  .is_new = true,
                                  .created = 1.5};
    wire_defaults(wire_methods[WIRE_GENERATE].params, &h.req);
    h.req.request = "r";
    h.req.model = "tale";
    h.req.text = (struct wire_bytes){"\xff\0x", 3};
    h.req.sampling.has_seed = true;
    h.req.sampling.seed = 7;
    append(f, 0, WIRE_JOURNAL_HEAD, &h);
    int32_t ids[3] = {1, 2, 3};
    struct wire_engine_begin b = {.stream = NUMBER, .appended = {ids, 3}};
    append(f, 1, WIRE_ENGINE_BEGIN, &b);
    for (int32_t i = 0; i < TOKENS; i++) {
        int32_t id = 100 + i;
        char text[16];
        snprintf(text, sizeof text, "<%d>", i);
        struct wire_logprob top = {.id = id, .logprob = -0.5, .text = {text, 3}};
        struct wire_token_logprobs lp = {.id = id, .logprob = -0.5, .top = &top, .n_top = 1};
        struct wire_engine_tokens t = {
            .stream = NUMBER, .index = i, .tokens = {&id, 1}, .text = {text, 3}, .logprobs = &lp, .n_logprobs = 1};
        append(f, 2 + (size_t)i, WIRE_ENGINE_TOKENS, &t);
    }
    struct wire_engine_tokens tail = {.stream = NUMBER, .index = TOKENS, .text = {"!", 1}};
    append(f, TOKENS + 2, WIRE_ENGINE_TOKENS, &tail);
    struct wire_journal_end end = {.time = 9, .result = {.finish_reason = "stop", .turn_open = true}};
    append(f, TOKENS + 3, WIRE_JOURNAL_END, &end);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct file *f = *state;
    unlinkat(f->dir_fd, "42", 0);
    close(f->dir_fd);
    rmdir(f->dir);
    free(f);
    return 0;
}

/* Reads these bytes as the stream's file. Returns the number of valid bytes, or a negative error. */
static int64_t read_back(struct file *f, const uint8_t *bytes, size_t len, struct journal_copy *c, struct hearth_err *e)
{
    int64_t good = -1;
    int fd = openat(f->dir_fd, "42", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
    fd = journal_read(f->dir_fd, "42", NUMBER, c, &good, e);
    if (fd < 0)
        return fd;
    close(fd);
    return good;
}

/* Checks that the copy has the contents of the first `records` records. */
static void is_prefix(const struct journal_copy *c, size_t records)
{
    size_t n = records < 2 ? 0 : records - 2 < TOKENS ? records - 2 : TOKENS;
    assert_non_null(c->head);
    assert_string_equal(c->head->req.request, "r");
    assert_memory_equal(c->head->req.text.data, "\xff\0x", 3);
    assert_true(c->head->hash == UINT64_MAX && c->head->req.sampling.seed == 7);
    assert_int_equal(c->begin != NULL, records > 1);
    assert_int_equal(c->output.n_ids, n);
    assert_int_equal(c->output.n_logprobs, n);
    assert_int_equal(c->output.n_text, 3 * n + (records > TOKENS + 2));
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(c->output.ids[i], 100 + i);
        assert_int_equal(c->output.text[3 * i + 1], '0' + (int)i);
        assert_int_equal(c->output.logprobs[i].top[0].id, 100 + i);
    }
    assert_int_equal(c->end != NULL, records == RECORDS);
    if (c->end)
        assert_string_equal(c->end->result.finish_reason, "stop");
}

/* The number of records that are complete within that many bytes. */
static size_t whole_below(const struct file *f, size_t len)
{
    size_t n = 0;
    while (n < RECORDS && f->end[n] <= len)
        n++;
    return n;
}

/* How many of the first n records are kept: the tail is not without the end, as the stream goes on then. */
static size_t kept(size_t n)
{
    return n == TOKENS + 3 ? n - 1 : n;
}

static void test_truncated(void **state)
{
    struct file *f = *state;
    for (size_t len = 0; len <= f->len; len++) {
        struct journal_copy c;
        struct hearth_err e = {0};
        size_t n = kept(whole_below(f, len));
        int64_t good = read_back(f, f->bytes, len, &c, &e);
        if (n == 0) {
            assert_int_equal(good, HEARTH_ESTORE);
            continue;
        }
        assert_int_equal(good, f->end[n - 1]);
        assert_int_equal(e.code != 0, len != f->end[n - 1]);
        is_prefix(&c, n);
        journal_copy_fini(&c);
    }
}

static void test_flipped(void **state)
{
    struct file *f = *state;
    for (size_t at = 0; at < f->len; at++) {
        uint8_t bytes[MOST];
        struct journal_copy c;
        struct hearth_err e = {0};
        memcpy(bytes, f->bytes, f->len);
        bytes[at] ^= (uint8_t)(1 << at % 8);
        size_t n = kept(whole_below(f, at));
        int64_t good = read_back(f, bytes, f->len, &c, &e);
        assert_true(e.code != 0); /* every flipped bit is noticed */
        if (n == 0) {
            assert_int_equal(good, HEARTH_ESTORE);
            continue;
        }
        assert_int_equal(good, f->end[n - 1]);
        is_prefix(&c, n);
        journal_copy_fini(&c);
    }
}

/* Whole records in places where they do not belong: moved, repeated, left out, of another stream. */
static void test_moved(void **state)
{
    struct file *f = *state;
    for (size_t i = 0; i < RECORDS; i++) {
        uint8_t bytes[2 * MOST];
        struct journal_copy c;
        struct hearth_err e = {0};
        size_t begin = i > 0 ? f->end[i - 1] : 16;
        memcpy(bytes, f->bytes, f->end[i]); /* repeated */
        memcpy(bytes + f->end[i], f->bytes + begin, f->end[i] - begin);
        int64_t good = read_back(f, bytes, 2 * f->end[i] - begin, &c, &e);
        assert_int_equal(good, f->end[kept(i + 1) - 1]);
        is_prefix(&c, kept(i + 1));
        journal_copy_fini(&c);
        memcpy(bytes, f->bytes, begin); /* left out */
        memcpy(bytes + begin, f->bytes + f->end[i], f->len - f->end[i]);
        good = read_back(f, bytes, f->len - (f->end[i] - begin), &c, &e);
        assert_int_equal(good, i > 0 ? (int64_t)f->end[kept(i) - 1] : HEARTH_ESTORE);
        if (good >= 0)
            journal_copy_fini(&c);
    }
    struct journal_copy c;
    struct hearth_err e;
    int64_t good;
    assert_int_equal(read_back(f, f->bytes, f->len, &c, &e), f->len);
    journal_copy_fini(&c);
    assert_int_equal(journal_read(f->dir_fd, "42", 43, &c, &good, &e), HEARTH_ESTORE);
}

/* A request's hash does not depend on its id and delivery, nor on whether a default is written out, and changes with
 * anything else. */
static void test_hash(void **state)
{
    (void)state;
    struct wire_generate g;
    wire_defaults(wire_methods[WIRE_GENERATE].params, &g);
    g.model = "m";
    g.text = (struct wire_bytes){"x", 1};
    uint64_t first, h;
    assert_int_equal(journal_hash(&g, &first, NULL), 0);
    g.request = "r";
    g.stream = false;
    g.service_class = "normal";
    g.stop.v = &g.model;
    g.sampling.logit_bias = &(struct wire_bias){0};
    g.extra = &(struct wire_file){0};
    assert_int_equal(journal_hash(&g, &h, NULL), 0);
    assert_true(h == first);
    g.service_class = "background";
    assert_int_equal(journal_hash(&g, &h, NULL), 0);
    assert_true(h != first);
    g.service_class = NULL;
    g.sampling.has_seed = true;
    assert_int_equal(journal_hash(&g, &h, NULL), 0);
    assert_true(h != first);
    g.sampling.has_seed = false;
    g.session = "s";
    assert_int_equal(journal_hash(&g, &h, NULL), 0);
    assert_true(h != first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moved, setup, teardown),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
