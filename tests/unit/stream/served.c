/* served.c - the totals of ended streams: counters by reason, and histograms with cumulative buckets. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <cmocka.h>

#include "daemon/stream/served.h"

static struct wire_engine_result result(const char *reason, int64_t n, double first_ms, double decode_ms)
{
    return (struct wire_engine_result){
        .finish_reason = reason,
        .usage = {.prompt_tokens = 10,
                  .reused_tokens = 6,
                  .restored_tokens = 2,
                  .computed_tokens = 4,
                  .completion_tokens = n},
        .timings = {.queue_ms = first_ms / 2,
                    .prefill_ms = first_ms / 2,
                    .decode_ms = decode_ms,
                    .total_ms = first_ms + decode_ms},
    };
}

static int64_t upto(const struct wire_histogram *h, double le)
{
    for (size_t i = 0; i < h->n_buckets; i++)
        if (h->buckets[i].le == le)
            return h->buckets[i].count;
    fail_msg("no bucket up to %g", le);
    return -1;
}

static void counts_and_buckets(void **state)
{
    (void)state;
    struct served s = {0};
    struct served_room room;
    struct wire_served w;
    struct wire_engine_result all[] = {
        result("stop", 11, 20, 1000),        /* 0.02 s, then 0.1 s per token: a bucket includes its bound */
        result("length", 1, 30, 0),          /* one token: no time between tokens */
        result("cancelled", 0, 40, 0),       /* no token at all */
        result("error", 3, 9e9, 2 * 500000), /* beyond all bounds */
        result("context_full", 2, -1, NAN),  /* invalid times, which are not counted */
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        served_add(&s, &all[i]);
    served_tell(&s, &room, &w);
    assert_true(w.stop == 1 && w.length == 1 && w.cancelled == 1 && w.error == 1 && w.context_full == 1);
    assert_int_equal(w.prompt_tokens, 50);
    assert_int_equal(w.reused_tokens, 30);
    assert_int_equal(w.restored_tokens, 10);
    assert_int_equal(w.completion_tokens, 17);
    assert_int_equal(w.first_token.count, 3);
    assert_int_equal(upto(&w.first_token, .01), 0);
    assert_int_equal(upto(&w.first_token, .02), 1);
    assert_int_equal(upto(&w.first_token, .04), 2);
    assert_int_equal(upto(&w.first_token, 2560), 2);
    assert_int_equal(w.per_token.count, 2);
    assert_int_equal(upto(&w.per_token, .075), 0);
    assert_int_equal(upto(&w.per_token, .1), 1);
    assert_int_equal(upto(&w.per_token, 80), 1);
    assert_true(fabs(w.per_token.sum - 500.1) < 1e-9);
    assert_int_equal(w.total.count, 4);
    assert_int_equal(w.queue.count, 4);

    /* Resumed from an earlier hearthd after its first token: decode_ms is that of the tokens since. */
    struct wire_engine_result resumed = result("stop", 11, 0, 200);
    resumed.timings.tokens_per_second = 20;
    served_add(&s, &resumed);
    served_tell(&s, &room, &w);
    assert_int_equal(w.first_token.count, 3);
    assert_true(fabs(w.per_token.sum - 500.15) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_and_buckets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
