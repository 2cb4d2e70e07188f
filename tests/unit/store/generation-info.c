/*
 * generation-info.c - the generation metadata of a stored turn: it is read back as written, rows with the name used
 * before 0.1.0 are still read, and invalid bytes are left out of the turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/store/generation-info.h"

/* The event as an older hearthd packed it, byte by byte: {finish_reason "stop", usage {prompt_tokens 4,
 * completion_tokens 2}, timings {total_ms 1.5}, sampling {seed 2^64 - 1, logit_bias [[7, -1.0]]}}. */
static const char of_old[] =
    "\x93\x02\xa9turn.made\x91\x84\xad"
    "finish_reason\xa4stop\xa5usage\x82\xadprompt_tokens\x04\xb1"
    "completion_tokens\x02\xa7timings\x81\xa8total_ms\xcb\x3f\xf8\0\0\0\0\0\0\xa8sampling\x82"
    "\xa4seed\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xaalogit_bias\x91\x92\x07\xcb\xbf\xf0\0\0\0\0\0"
    "\0";
enum { OF_OLD_LEN = sizeof of_old - 1, NAME_AT = 3 };

static struct generation_turns turn_with(const void *generation, size_t len)
{
    struct store_turn t = {.role = "completion", .text = "a tale", .len = 6, .generation = generation};
    struct generation_turns out;
    struct hearth_err e;
    t.generation_len = len;
    if (generation_turns(&t, 1, false, &out, &e) != 0)
        fail_msg("%s", e.msg);
    assert_int_equal(out.n, 1);
    assert_int_equal(out.v[0].text.len, 6);
    return out;
}

static void assert_as_of_old(const struct wire_turn *t)
{
    assert_true(t->has_generation);
    assert_string_equal(t->generation.finish_reason, "stop");
    assert_int_equal(t->generation.usage.prompt_tokens, 4);
    assert_int_equal(t->generation.usage.completion_tokens, 2);
    assert_true(t->generation.timings.total_ms == 1.5);
    assert_true(t->generation.sampling.has_seed && t->generation.sampling.seed == UINT64_MAX);
    assert_int_equal(t->generation.sampling.n_logit_bias, 1);
    assert_int_equal(t->generation.sampling.logit_bias[0].id, 7);
}

static void test_old_name(void **state)
{
    (void)state;
    struct generation_turns old = turn_with(of_old, OF_OLD_LEN);
    assert_as_of_old(&old.v[0]);

    /* Packed again it has the new name and the same contents. */
    struct wire_buf b = {0};
    struct hearth_err e;
    assert_int_equal(generation_info_pack(&(struct wire_turn_generation){.info = old.v[0].generation}, &b, &e), 0);
    assert_memory_equal((const char *)b.data + NAME_AT, "turn.generation", 15);
    struct generation_turns again = turn_with(b.data, b.len);
    assert_as_of_old(&again.v[0]);
    generation_turns_fini(&again);
    generation_turns_fini(&old);
    free(b.data);
}

static void assert_left_out(const void *data, size_t len)
{
    struct generation_turns t = turn_with(data, len);
    assert_false(t.v[0].has_generation);
    generation_turns_fini(&t);
}

static void test_what_is_neither(void **state)
{
    (void)state;
    char bad[OF_OLD_LEN];
    assert_left_out(NULL, 0);
    for (size_t len = 1; len < OF_OLD_LEN; len++)
        assert_left_out(of_old, len);
    for (size_t i = 0; i < 9; i++) { /* an unknown name of the same length */
        memcpy(bad, of_old, OF_OLD_LEN);
        bad[NAME_AT + i]++;
        assert_left_out(bad, OF_OLD_LEN);
    }
    memcpy(bad, of_old, OF_OLD_LEN); /* the old name, with fields of wrong types */
    memset(strstr(bad + NAME_AT, "prompt_tokens") + 13, 0xc3, 1);
    assert_left_out(bad, OF_OLD_LEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_name),
        cmocka_unit_test(test_what_is_neither),
    };
    return cmocka_run_group_tests_name("generation-info", tests, NULL, NULL);
}
