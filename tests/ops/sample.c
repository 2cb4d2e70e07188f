/*
 * sample.c - the sampling op against an implementation of backend.h's definition that sorts everything and sums in
 * double precision. Then its distribution, its independence of the batch, and its refusals.
 *
 *     tests/ops/sample [BACKEND [VARIANT] [only PATTERN]]   exit status 77 if the machine has no such device
 *
 * only: the cases whose names match.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/philox.h"
#include "tests/ops/rig.h"

enum { ROWS = 8 };

static const struct backend *be;
static const char *variant = "auto";

/* A device with room for logits only. */
struct fixture {
    struct device *d;
    struct kv_pool *kv;
    uint32_t n_vocab;
};

static const struct sample_params plain = {.temp = 1.0f, .top_p = 1.0f, .rep_penalty = 1.0f, .seed = 1};

static void fixture_init(struct fixture *b, uint32_t n_vocab)
{
    struct hearth_err e;
    struct workspace_dims dims = {64, 64, 64, 64, n_vocab, ROWS, ROWS};
    struct kv_desc desc = {1, 1, 64, 64, 0, DT_F32, 4};
    struct device_info info;
    b->n_vocab = n_vocab;
    b->d = rig_device(be, variant, 2);
    assert_non_null(b->d);
    be->info(b->d, &info);
    desc.type = info.kv_type;
    if (be->reserve(b->d, &dims, &e) || be->kv_new(b->d, &desc, &b->kv, &e))
        fail_msg("%s", e.msg);
}

static void fixture_fini(struct fixture *b)
{
    be->kv_free(b->d, b->kv);
    be->close(b->d);
}

static void slot_set(struct fixture *b, uint32_t slot, const struct sample_params *p, const int32_t *history,
                     uint32_t n)
{
    struct hearth_err e;
    if (be->slot_set(b->d, slot, p, history, n, b->n_vocab, &e))
        fail_msg("%s", e.msg);
}

static int try_sample(struct fixture *b, uint32_t n, const uint32_t *slot, const uint32_t *index, const float *logits,
                      const uint32_t *const *mask, struct sampled *out, struct hearth_err *e)
{
    static const uint32_t rows[ROWS] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const int32_t token[ROWS];
    static const uint32_t pages[1];
    struct batch_seq seq = {.n_row = n, .pages = {pages}};
    struct batch batch = {
        .n_row = n, .n_seq = 1, .n_out = n, .token = token, .seq = &seq, .out_row = rows, .kv = {b->kv}, .n_group = 1};
    batch.sample = (struct batch_sample){n, slot, index, mask};
    struct program nothing = program_of(NULL, NULL, 0);
    if (be->act_write(b->d, ACT_LOGITS, 0, n, b->n_vocab, logits, e))
        fail_msg("%s", e->msg);
    return be->step_wait(b->d, be->step_run(b->d, &batch, &nothing), out, n, e);
}

static struct sampled sample_one(struct fixture *b, uint32_t slot, uint32_t index, const float *logits,
                                 const uint32_t *mask)
{
    struct sampled out;
    struct hearth_err e;
    if (try_sample(b, 1, &slot, &index, logits, &mask, &out, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(out.slot, slot);
    return out;
}

/* --- the definition, implemented slowly ------------------------------------------------------------------ */

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The least logit with which a token is kept, provided that top_p is not close to a sum of weights. */
static float slow_threshold(const float *l, uint32_t n, const struct sample_params *p)
{
    float *s = malloc(n * sizeof *s), thr = -INFINITY;
    assert_non_null(s);
    memcpy(s, l, n * sizeof *s);
    qsort(s, n, sizeof *s, descending);
    if (p->top_k && p->top_k < n)
        thr = s[p->top_k - 1];
    double total = 0, sum = 0;
    uint32_t kept = 0;
    for (; kept < n && s[kept] >= thr && s[kept] > -INFINITY; kept++)
        total += exp(((double)s[kept] - (double)s[0]) / (double)p->temp);
    if (p->top_p < 1.0f)
        for (uint32_t i = 0; i < kept; i++) {
            sum += exp(((double)s[i] - (double)s[0]) / (double)p->temp);
            if (sum >= (double)p->top_p * total) {
                thr = s[i];
                break;
            }
        }
    if (p->min_p > 0.0f) {
        float cut = (float)((double)s[0] + (double)p->temp * log((double)p->min_p));
        thr = cut > thr ? cut : thr;
    }
    free(s);
    return thr;
}

static uint32_t slow_sample(const float *raw, uint32_t n, const struct sample_params *p, const int32_t *history,
                            uint32_t n_history, uint32_t index, const uint32_t *mask)
{
    float *l = malloc(n * sizeof *l);
    uint32_t *count = calloc(n, sizeof *count), best = 0;
    assert_true(l && count);
    for (uint32_t i = p->penalty_last && p->penalty_last < n_history ? n_history - p->penalty_last : 0; i < n_history;
         i++)
        count[history[i]]++;
    for (uint32_t i = 0; i < n; i++) {
        l[i] = raw[i];
        if (count[i]) {
            l[i] = l[i] > 0 ? l[i] / p->rep_penalty : l[i] * p->rep_penalty;
            l[i] = fmaf(-p->frequency_penalty, (float)count[i], l[i] - p->presence_penalty);
        }
    }
    for (uint32_t i = 0; i < p->n_bias; i++)
        l[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; mask && i < n; i++)
        if (!(mask[i / 32] >> i % 32 & 1))
            l[i] = -INFINITY;
    float thr = p->temp > 0 ? slow_threshold(l, n, p) : -INFINITY, top = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        float v = p->temp > 0 ? l[i] / p->temp + philox_token_gumbel(p->seed, index, i) : l[i];
        if (l[i] >= thr && l[i] > -INFINITY && v > top) {
            top = v;
            best = i;
        }
    }
    free(l);
    free(count);
    return best;
}

/* Every parameter by itself and combined with others, on logits with ties, with vocabularies of around the critical
 * sizes. */
static void test_slow(void **state)
{
    (void)state;
    static const uint32_t vocabs[] = {1, 2, 31, 33, 257, 4096};
    static const struct logit_bias bias[] = {{0, 3.0f}, {0, -1.0f}};
    struct sample_params p[] = {plain, plain, plain, plain, plain, plain, plain, plain, plain, plain, plain, plain};
    p[0].temp = 0.0f;
    p[1].temp = 0.7f;
    p[2].top_k = 1;
    p[3].top_k = 40;
    p[4].top_p = 0.9f;
    p[5].top_p = 0.3f, p[5].temp = 2.0f;
    p[6].min_p = 0.05f;
    p[7].top_k = 20, p[7].top_p = 0.8f, p[7].min_p = 0.02f, p[7].temp = 1.3f;
    p[8].rep_penalty = 1.3f, p[8].presence_penalty = 0.5f, p[8].frequency_penalty = 0.2f;
    p[9] = p[8], p[9].penalty_last = 5, p[9].temp = 0.0f;
    p[10].n_bias = 2, p[10].bias = bias;
    p[11] = p[7], p[11].rep_penalty = 0.8f, p[11].n_bias = 1, p[11].bias = bias;
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        struct fixture b;
        fixture_init(&b, vocabs[v]);
        uint32_t n = vocabs[v], mask[4096 / 32];
        float *l = malloc(n * sizeof *l);
        assert_non_null(l);
        for (size_t i = 0; i < sizeof mask / sizeof *mask; i++)
            mask[i] = 0x5a5a5a5b;
        for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
            int32_t history[64];
            uint32_t n_history = 9;
            for (uint32_t h = 0; h < n_history; h++)
                history[h] = (int32_t)(h * h % n);
            p[i].seed = 77 + i;
            slot_set(&b, 5, &p[i], history, n_history);
            for (uint32_t index = 0; index < 40; index++) {
                random_floats(index + 1000 * i, l, n);
                for (uint32_t k = 0; k < n; k++) /* a coarse grid, so that there are many ties */
                    l[k] = (float)(int)(l[k] * 40.0f) / 4.0f;
                const uint32_t *m = index % 2 ? mask : NULL;
                uint32_t want = slow_sample(l, n, &p[i], history, n_history, index, m);
                struct sampled got = sample_one(&b, 5, index, l, m);
                if (got.token != want)
                    fail_msg("vocabulary %u, parameters %zu, index %u: token %u, by the words %u", (unsigned)n, i,
                             (unsigned)index, (unsigned)got.token, (unsigned)want);
                history[n_history++] = (int32_t)got.token;
            }
        }
        free(l);
        fixture_fini(&b);
    }
}

/* Thresholds: exactly the tokens that top-k, top-p and min-p keep can be sampled, and all of them are. */
static void test_thresholds(void **state)
{
    (void)state;
    static const float l[8] = {2.0f, 1.0f, 1.0f, 0.0f, -1.0f, -INFINITY, NAN, 0.5f};
    static const struct {
        uint32_t top_k;
        float top_p, min_p;
        unsigned want; /* bitmap of ids */
    } cases[] = {
        {0, 1.0f, 0.0f, 0x9f}, {1, 1.0f, 0.0f, 0x01},  {2, 1.0f, 0.0f, 0x07}, /* tied tokens stay together */
        {3, 1.0f, 0.0f, 0x07}, {4, 1.0f, 0.0f, 0x87},  {0, 0.4f, 0.0f, 0x01},
        {0, 0.6f, 0.0f, 0x07}, {0, 0.85f, 0.0f, 0x87}, {0, 1.0f, 0.3f, 0x07},
        {0, 1.0f, 0.2f, 0x87}, {0, 0.0f, 0.0f, 0x01},  {4, 0.99f, 0.1f, 0x87},
    };
    struct fixture b;
    fixture_init(&b, 8);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct sample_params p = plain;
        unsigned seen = 0;
        p.top_k = cases[c].top_k, p.top_p = cases[c].top_p, p.min_p = cases[c].min_p;
        slot_set(&b, 0, &p, NULL, 0);
        for (uint32_t i = 0; i < 600; i++)
            seen |= 1u << sample_one(&b, 0, i, l, NULL).token;
        if (seen != cases[c].want)
            fail_msg("case %zu lets tokens %#x out, should be %#x", c, seen, cases[c].want);
    }
    fixture_fini(&b);
}

/* Chi-squared test over 20,000 draws, with 15 degrees of freedom, for which 99.99 % are below 44.3. The draws are a
 * pure function of the seed, so this always passes or always fails. */
static void test_distribution(void **state)
{
    (void)state;
    enum { N = 16, DRAWS = 20000 };
    float l[N];
    double want[N], sum = 0, chi = 0;
    uint32_t seen[N] = {0};
    struct fixture b;
    fixture_init(&b, N);
    struct sample_params p = plain;
    p.temp = 1.5f, p.seed = 12345;
    random_floats(3, l, N);
    for (int i = 0; i < N; i++) {
        l[i] *= 3.0f;
        want[i] = exp((double)l[i] / 1.5);
        sum += want[i];
    }
    slot_set(&b, 0, &p, NULL, 0);
    for (uint32_t i = 0; i < DRAWS; i++)
        seen[sample_one(&b, 0, i, l, NULL).token]++;
    for (int i = 0; i < N; i++) {
        double e = want[i] / sum * DRAWS;
        chi += (seen[i] - e) * (seen[i] - e) / e;
    }
    if (chi > 44.3)
        fail_msg("chi-squared %.1f", chi);
    fixture_fini(&b);
}

/* 128k tokens and every filter: the same results at a size for which the implementation takes its short cuts. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 128256 };
    struct fixture b;
    fixture_init(&b, N);
    float *l = malloc(N * sizeof *l);
    assert_non_null(l);
    for (uint32_t i = 0; i < 12; i++) {
        struct sample_params p = plain;
        p.seed = i;
        p.top_k = i % 3 == 0 ? 0 : i % 3 == 1 ? 40 : 5000;
        p.top_p = i % 2 ? 0.95f : 1.0f;
        random_floats(i, l, N);
        for (uint32_t k = 0; k < N; k++)
            l[k] = l[k] * l[k] * l[k] * 25.0f;
        slot_set(&b, 1, &p, NULL, 0);
        uint32_t got = sample_one(&b, 1, i, l, NULL).token;
        assert_int_equal(got, slow_sample(l, N, &p, NULL, 0, i, NULL));
    }
    free(l);
    fixture_fini(&b);
}

/* A row's token is the same in a batch of its own and batched with others, whatever their parameters are. */
static void test_batch(void **state)
{
    (void)state;
    enum { N = 500 };
    struct fixture b;
    struct hearth_err e;
    struct sampled together[ROWS], alone;
    float l[ROWS * N];
    uint32_t slot[ROWS], index[ROWS];
    fixture_init(&b, N);
    random_floats(9, l, ROWS * N);
    for (uint32_t r = 0; r < ROWS; r++) {
        struct sample_params p = plain;
        p.temp = r % 3 ? 0.3f * (float)r : 0.0f;
        p.top_k = r % 2 ? 10 : 0;
        p.top_p = r % 4 ? 1.0f : 0.7f;
        p.n_logprobs = r;
        p.seed = r / 2; /* pairs share a seed */
        slot[r] = 200 + r;
        index[r] = 10 * r;
        slot_set(&b, slot[r], &p, NULL, 0);
    }
    assert_int_equal(try_sample(&b, ROWS, slot, index, l, NULL, together, &e), 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        alone = sample_one(&b, slot[r], index[r], l + (size_t)r * N, NULL);
        assert_int_equal(alone.token, together[r].token);
        assert_int_equal(alone.n_top, together[r].n_top);
        assert_int_equal(alone.n_top, r);
        assert_memory_equal(&alone.logprob, &together[r].logprob, sizeof alone.logprob);
        assert_memory_equal(alone.top, together[r].top, alone.n_top * sizeof *alone.top);
    }
    fixture_fini(&b);
}

static void test_logprobs(void **state)
{
    (void)state;
    static const float l[5] = {1.0f, 3.0f, 2.0f, 3.0f, -INFINITY};
    double lse = log(exp(1) + 2 * exp(3) + exp(2));
    struct fixture b;
    fixture_init(&b, 5);
    struct sample_params p = plain;
    p.temp = 0.0f, p.n_logprobs = 3;
    slot_set(&b, 0, &p, NULL, 0);
    struct sampled s = sample_one(&b, 0, 0, l, NULL);
    assert_int_equal(s.token, 1); /* the lowest id of those tied */
    assert_int_equal(s.n_top, 3);
    static const uint32_t order[3] = {1, 3, 2};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s.top[i].id, order[i]);
        assert_true(fabs((double)s.top[i].logprob - ((double)l[order[i]] - lse)) < 1e-5);
    }
    assert_true(fabs((double)s.logprob - (3 - lse)) < 1e-5);
    p.n_logprobs = 20; /* more than there are tokens */
    slot_set(&b, 0, &p, NULL, 0);
    assert_int_equal(sample_one(&b, 0, 0, l, NULL).n_top, 5);

    /* NaN is not among them, and not part of their sum. */
    static const float some[5] = {NAN, 1.0f, -NAN, 3.0f, NAN}, of[2] = {3.0f, 1.0f};
    lse = log(exp(1) + exp(3));
    s = sample_one(&b, 0, 0, some, NULL);
    assert_int_equal(s.token, 3);
    assert_int_equal(s.n_top, 2);
    for (int i = 0; i < 2; i++)
        assert_true(fabs((double)s.top[i].logprob - ((double)of[i] - lse)) < 1e-5);
    assert_true(fabs((double)s.logprob - (3 - lse)) < 1e-5);

    /* Without log-probabilities the raw logit shows whether any token could win. */
    static const float none[5] = {NAN, NAN, NAN, NAN, NAN};
    for (p.n_logprobs = 0, p.temp = 0.0f; p.temp <= 1.0f; p.temp += 1.0f) {
        slot_set(&b, 0, &p, NULL, 0);
        s = sample_one(&b, 0, 0, l, NULL);
        assert_true(memcmp(&s.logprob, &l[s.token], sizeof s.logprob) == 0);
        assert_false(isfinite(sample_one(&b, 0, 0, none, NULL).logprob));
    }
    fixture_fini(&b);
}

/* Logits that no model should give: the result is some token of the vocabulary, never a crash. */
static void test_hostile_logits(void **state)
{
    (void)state;
    static const float rows[][4] = {
        {NAN, NAN, NAN, NAN},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
        {INFINITY, 1.0f, INFINITY, NAN},
        {NAN, 2.0f, NAN, 1.0f},
        {3e38f, -3e38f, 0.0f, 1e-45f},
    };
    struct fixture b;
    fixture_init(&b, 4);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int i = 0; i < 6; i++) {
            struct sample_params p = plain;
            p.temp = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 1e-30f : 1.0f;
            p.top_p = i < 3 ? 1.0f : 0.5f;
            p.top_k = i % 2 ? 2 : 0;
            p.n_logprobs = 4;
            p.rep_penalty = 1.1f;
            int32_t history[2] = {0, 1};
            slot_set(&b, 3, &p, history, 2);
            uint32_t got = sample_one(&b, 3, 0, rows[r], NULL).token;
            assert_true(got < 4);
            if (r == 3)
                assert_true(got == 1 || got == 3);
        }
    fixture_fini(&b);
}

/* As the temperature approaches 0 the choice is that of temperature 0, also where logit/temp overflows, where it is the
 * same for two logits, and where several are the best. */
static void test_cold(void **state)
{
    (void)state;
    static const float temps[] = {1e-10f, 1e-20f, 1e-37f, 1e-38f, FLT_MIN, 1e-40f, FLT_TRUE_MIN};
    static const float rows[][6] = {
        {1, 10, 12, 11, -INFINITY, NAN},
        {-3, -2, -1, -2, -40, -3},
        {1, 7, 7, 7, 1, 7},
        {-9, -7, -7, -7, -8, -7},
        {-1, 0, -0.0f, 0, -2, 0},
        {-1, -1e-30f, 1e-30f, 0, -1e30f, 1e-45f},
        {-3e38f, 2e38f, 3e38f, 0, 1, 2},
        {-3e38f, -3e38f, -2e38f, -3e38f, -3e38f, -3e38f},
        {1.9999998f, 1.9999999f, 1, 0, 0}, /* divided by 1e-10, both are the same float */
    };
    struct fixture b;
    fixture_init(&b, 6);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t t = 0; t < sizeof temps / sizeof *temps; t++)
            for (unsigned filters = 0; filters < 8; filters++) {
                struct sample_params p = plain;
                p.temp = 0.0f;
                slot_set(&b, 2, &p, NULL, 0);
                const uint32_t want = sample_one(&b, 2, 0, rows[r], NULL).token;
                p.temp = temps[t];
                p.top_k = filters & 1 ? 4 : 0;
                p.top_p = filters & 2 ? 0.9f : 1.0f;
                p.min_p = filters & 4 ? 0.1f : 0.0f;
                slot_set(&b, 2, &p, NULL, 0);
                for (uint32_t index = 0; index < 8; index++) {
                    uint32_t got = sample_one(&b, 2, index, rows[r], NULL).token;
                    if (got != want)
                        fail_msg("row %zu, temperature %g, filters %u, index %u: token %u, at temperature 0 %u", r,
                                 (double)temps[t], filters, (unsigned)index, (unsigned)got, (unsigned)want);
                }
            }
    /* A little higher, noise decides among equal logits. */
    unsigned seen = 0;
    struct sample_params p = plain;
    p.temp = 1e-6f;
    slot_set(&b, 2, &p, NULL, 0);
    for (uint32_t index = 0; index < 100; index++)
        seen |= 1u << sample_one(&b, 2, index, rows[2], NULL).token;
    assert_int_equal(seen, 0x2e);
    fixture_fini(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct fixture b;
    struct hearth_err e;
    struct sampled out[2];
    static const float l[20];
    const uint32_t unset[1] = {9}, twice[2] = {4, 4}, beyond[1] = {SLOTS_MAX}, index[2] = {0, 0}, good[1] = {4};
    fixture_init(&b, 10);
    int32_t history[1] = {10};
    assert_int_equal(be->slot_set(b.d, 4, &plain, history, 1, 10, &e), HEARTH_EPARAMS);
    history[0] = -1;
    assert_int_equal(be->slot_set(b.d, 4, &plain, history, 1, 10, &e), HEARTH_EPARAMS);
    assert_int_equal(be->slot_set(b.d, SLOTS_MAX, &plain, NULL, 0, 10, &e), HEARTH_EPARAMS);
    struct sample_params p = plain;
    p.temp = NAN;
    assert_int_equal(be->slot_set(b.d, 4, &p, NULL, 0, 10, &e), HEARTH_EPARAMS);
    assert_non_null(strstr(e.msg, "temperature"));
    p = plain, p.rep_penalty = 0.0f;
    assert_int_equal(be->slot_set(b.d, 4, &p, NULL, 0, 10, &e), HEARTH_EPARAMS);
    p = plain, p.n_logprobs = LOGPROBS_MAX + 1;
    assert_int_equal(be->slot_set(b.d, 4, &p, NULL, 0, 10, &e), HEARTH_EPARAMS);
    struct logit_bias bias = {10, 0.0f};
    p = plain, p.n_bias = 1, p.bias = &bias;
    assert_int_equal(be->slot_set(b.d, 4, &p, NULL, 0, 10, &e), HEARTH_EPARAMS);
    slot_set(&b, 4, &plain, NULL, 0);
    assert_int_equal(try_sample(&b, 1, unset, index, l, NULL, out, &e), HEARTH_EPARAMS);
    assert_int_equal(try_sample(&b, 1, beyond, index, l, NULL, out, &e), HEARTH_EPARAMS);
    assert_int_equal(try_sample(&b, 2, twice, index, l, NULL, out, &e), HEARTH_EPARAMS);
    /* A slot that was set for a vocabulary of another size than the logits have. */
    assert_int_equal(be->slot_set(b.d, 5, &plain, NULL, 0, 11, &e), 0);
    const uint32_t other[1] = {5};
    assert_int_equal(try_sample(&b, 1, other, index, l, NULL, out, &e), HEARTH_EPARAMS);
    /* After each refusal an ordinary step works. */
    assert_int_equal(try_sample(&b, 1, good, index, l, NULL, out, &e), 0);
    fixture_fini(&b);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    int i = 2;
    if (argc > i && strcmp(argv[i], "only") != 0)
        variant = argv[i++];
    if (argc > i + 1 && !strcmp(argv[i], "only"))
        cmocka_set_test_filter(argv[i + 1]);
    if (!(be = rig_backend(name, variant, NULL)))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow),           cmocka_unit_test(test_thresholds), cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_large),          cmocka_unit_test(test_batch),      cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_hostile_logits), cmocka_unit_test(test_cold),       cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
