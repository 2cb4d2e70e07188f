/*
 * engine-long.c - long requests beside short ones, in a real hearth-engine over its link: short ones overtake, clients
 * take turns, requests that nobody waits for are ended, and the queue is bounded.
 *
 * The tests look at the order of answers, not at a clock: if the event loop itself worked on a long text or a
 * vocabulary, no answer could overtake it.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/daemon/drive.h"
#include "tests/unit/model/gguf-build.h"

enum { LONG = 6 << 20, MANY = 6, ORDER = 64 };

static struct drive d;
static char *long_text;

/* The answers so far, in order. */
static uint32_t order[ORDER];
static int codes[ORDER];
static size_t n_order;

static size_t place(uint32_t id)
{
    for (size_t i = 0; i < n_order; i++)
        if (order[i] == id)
            return i;
    assert_true(n_order < ORDER);
    while ((order[n_order] = drive_answer(&d, &codes[n_order])) != id)
        assert_true(++n_order < ORDER - 1);
    return n_order++;
}

static int code_of(uint32_t id)
{
    return codes[place(id)];
}

static uint32_t send_text(const char *model, const char *text, size_t n, int64_t client)
{
    struct wire_tokenize t = {.model = model, .text = {text, n}, .bos = -1, .client = client};
    return drive_send(&d, WIRE_ENGINE_TOKENIZE, &t);
}

static uint32_t send_long(int64_t client)
{
    return send_text(drive_tale(), long_text, LONG, client);
}

static uint32_t send_short(const char *model, int64_t client)
{
    return send_text(model, "short", 5, client);
}

static uint32_t send_status(void)
{
    return drive_send(&d, WIRE_ENGINE_STATUS, &(struct wire_empty){0});
}

static void short_ones_overtake(void **state)
{
    (void)state;
    uint32_t many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = send_long(1);
    struct wire_engine_generate g;
    drive_prompt(&g, "Once", 4);
    g.stream = 1000;
    uint32_t status = send_status(), text = send_short(drive_tale(), 2);
    uint32_t stream = drive_send(&d, WIRE_ENGINE_GENERATE, &g);
    uint32_t show = drive_send(&d, WIRE_ENGINE_MODEL, &(struct wire_engine_model){.path = drive_tale(), .client = 2});
    size_t last = place(many[MANY - 1]);
    assert_true(place(status) < last && place(text) < last && place(stream) < last && place(show) < last);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(code_of(many[i]), 0);
    assert_int_equal(code_of(stream), 0);
}

static void clients_take_turns(void **state)
{
    (void)state;
    uint32_t many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = send_long(1);
    uint32_t other = send_long(2);
    assert_true(place(other) < place(many[2])); /* the second may have begun before the other one arrived */
    place(many[MANY - 1]);
}

/* Writes a GGUF file with only a vocabulary: n tokens, and merges that produce none of them. */
static void make_vocabulary(const char *path, uint32_t n)
{
    struct build b = {0};
    char token[16];
    put_header(&b, 3, 0, 5);
    put_str(&b, "general.architecture"), put32(&b, T_STR), put_str(&b, "llama");
    put_str(&b, "tokenizer.ggml.model"), put32(&b, T_STR), put_str(&b, "gpt2");
    put_str(&b, "tokenizer.ggml.pre"), put32(&b, T_STR), put_str(&b, "llama-bpe");
    put_str(&b, "tokenizer.ggml.tokens"), put32(&b, T_ARR), put32(&b, T_STR), put64(&b, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(token, sizeof token, "%x", i);
        put_str(&b, token);
    }
    put_str(&b, "tokenizer.ggml.merges"), put32(&b, T_ARR), put32(&b, T_STR), put64(&b, 2 * n);
    for (uint32_t i = 0; i < 2 * n; i++) {
        snprintf(token, sizeof token, "%x %x", i / 2, i);
        put_str(&b, token);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
    assert_int_equal(fclose(f), 0);
    free(b.p);
}

/* Another client's vocabulary of a million tokens does not delay a request for another model. */
static void a_vocabulary_is_read_beside(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-long-XXXXXX", large[64], small[64], cmd[8300];
    assert_non_null(mkdtemp(dir));
    snprintf(large, sizeof large, "%s/large.gguf", dir);
    snprintf(small, sizeof small, "%s/small.gguf", dir);
    snprintf(cmd, sizeof cmd, "cp '%s' '%s'", drive_tale(), small);
    assert_int_equal(system(cmd), 0);
    make_vocabulary(large, 1 << 20);
    uint32_t vocabulary = send_short(large, 1), again = send_short(large, 3);
    uint32_t status = send_status(), text = send_short(small, 2);
    size_t last = place(vocabulary);
    assert_true(place(status) < last && place(text) < last);
    assert_int_equal(code_of(vocabulary), 0);
    assert_int_equal(code_of(again), 0); /* both waited for the same reading */
    assert_int_equal(code_of(text), 0);

    /* A vocabulary that nobody waits for any more is not read to its end; a later request reads it again. */
    assert_int_equal(truncate(large, 0), 0);
    make_vocabulary(large, (1 << 20) + 1);
    vocabulary = send_short(large, 1);
    status = send_status(); /* the header is being read by now */
    place(status);
    uint32_t forget = drive_send(&d, WIRE_ENGINE_FORGET, &(struct wire_engine_forget){vocabulary});
    again = send_short(large, 3);
    assert_int_equal(code_of(forget), 0);
    assert_int_equal(code_of(vocabulary), HEARTH_ECANCELLED);
    assert_int_equal(code_of(again), 0);
    unlink(large);
    unlink(small);
    rmdir(dir);
}

/* The first may have ended when the message arrived; those that wait for their turn have not begun. */
static void what_nobody_waits_for_ends(void **state)
{
    (void)state;
    uint32_t many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = send_long(1);
    for (int i = 0; i < MANY; i++)
        drive_send(&d, WIRE_ENGINE_FORGET, &(struct wire_engine_forget){many[i]});
    uint32_t other = send_long(2);
    assert_int_equal(code_of(other), 0);
    for (int i = 2; i < MANY; i++) {
        assert_int_equal(code_of(many[i]), HEARTH_ECANCELLED);
        assert_true(place(many[i]) < place(other));
    }
    drive_send(&d, WIRE_ENGINE_FORGET, &(struct wire_engine_forget){many[0]}); /* one that has ended */
    place(send_status());
}

/* The same for a generation, which is answered as cancelled, although the file would be refused. */
static void a_generation_that_is_cancelled(void **state)
{
    (void)state;
    char path[] = "/tmp/hearth-long-XXXXXX";
    uint32_t many[MANY];
    struct wire_engine_generate g;
    close(mkstemp(path));
    make_vocabulary(path, 1 << 18);
    drive_prompt(&g, "x", 4);
    g.path = path;
    g.stream = 1001;
    g.client = 1;
    for (int i = 0; i < MANY; i++)
        many[i] = send_long(1);
    uint32_t stream = drive_send(&d, WIRE_ENGINE_GENERATE, &g); /* its header waits behind the texts */
    uint32_t cancel = drive_send(&d, WIRE_ENGINE_CANCEL, &(struct wire_engine_cancel){g.stream});
    assert_int_equal(code_of(cancel), 0);
    assert_int_equal(code_of(stream), 0);
    assert_true(place(stream) < place(many[MANY - 1]));
    stream = drive_send(&d, WIRE_ENGINE_GENERATE, &g);
    assert_int_equal(code_of(stream), HEARTH_EBADMODEL);
    unlink(path);
}

/* The waiting requests of one client are bounded in memory; those of another client are still accepted. */
static void what_waits_is_bounded(void **state)
{
    (void)state;
    enum { SENT = 16 }; /* of 6 MiB each; 64 MiB may wait */
    uint32_t many[SENT], other;
    int refused = 0;
    for (int i = 0; i < SENT; i++)
        many[i] = send_long(7);
    other = send_long(8);
    assert_int_equal(code_of(other), 0);
    for (int i = 0; i < SENT; i++) {
        int code = code_of(many[i]);
        assert_true(code == 0 || code == HEARTH_ELIMIT);
        refused += code != 0;
    }
    assert_in_range(refused, 1, SENT - 10);
}

static int fresh(void **state)
{
    (void)state;
    n_order = 0;
    return 0;
}

static int setup(void **state)
{
    static const char words[] = "the quick brown fox jumps over a lazy dog and ";
    (void)state;
    long_text = malloc(LONG);
    assert_non_null(long_text);
    for (size_t i = 0; i < LONG; i++)
        long_text[i] = words[i % (sizeof words - 1)];
    drive_open(&d, (char *[]){"--backend", "cpu", NULL});
    place(send_short(drive_tale(), 1)); /* the vocabulary has been read */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(long_text);
    return drive_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(short_ones_overtake, fresh),
        cmocka_unit_test_setup(clients_take_turns, fresh),
        cmocka_unit_test_setup(a_vocabulary_is_read_beside, fresh),
        cmocka_unit_test_setup(what_nobody_waits_for_ends, fresh),
        cmocka_unit_test_setup(a_generation_that_is_cancelled, fresh),
        cmocka_unit_test_setup(what_waits_is_bounded, fresh),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
