/*
 * sample.c - samples a token from logits, as backend.h's sample_params specifies, without sorting the vocabulary.
 *
 * Every cut-off becomes one threshold on the logit: top-k's by radix select over a small buffer of candidates, top-p's
 * by a histogram of fixed-point weights (integers add up to the same sum in any order) and a sort of the one bucket it
 * falls into. A NaN logit never wins. Where there is no candidate (all are forbidden), the result is id 0.
 * There is one implementation for all variants; only exp comes from the variant.
 *
 * Thread: rows run on the pool, each touching its own row and slot; slots change on the device's thread.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/philox.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum {
    WEIGHT_BITS = 40, /* fraction bits of a fixed-point weight, at most e^0 = 1; 2^40 * 2^23 tokens fit 64 bits */
    BUCKETS = 2048,   /* of (max - logit) / temp, 64 per unit; beyond 28 units a weight is 0 */
    ROW_TMP = 6,      /* scratch per row, in multiples of n_vocab floats */
};

struct row_tmp {
    float *adjusted; /* [n] logits after penalties, bias, mask */
    float *logit;    /* [n] candidates in ascending id */
    uint32_t *id;    /* [n] */
    float *weight;   /* [n] exp((logit - max) / temp) */
    float *buf;      /* [2n] */
};

static uint32_t argmax(const float *l, uint32_t n)
{
    uint32_t best = 0;
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (l[i] > max) {
            max = l[i];
            best = i;
        }
    return best;
}

/* Returns a key whose unsigned order is the order of the floats; +0 and -0 have one key. */
static uint32_t float_key(float f)
{
    uint32_t u = f32_bits(f + 0.0f);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

/* Moves the k greatest of n floats to the front, in any order, and returns the least of them. Linear in n. */
static float select_top(float *v, uint32_t n, uint32_t k)
{
    uint32_t prefix = 0, rank = k; /* the k-th best agrees with prefix in the digits done so far */
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t count[256] = {0}, above = shift == 24 ? 0 : ~0u << (shift + 8);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t key = float_key(v[i]);
            if ((key & above) == prefix)
                count[key >> shift & 255]++;
        }
        uint32_t digit = 255;
        for (; count[digit] < rank; digit--)
            rank -= count[digit];
        prefix |= digit << shift;
    }
    uint32_t m = 0;
    float kth = -INFINITY;
    for (uint32_t i = 0; i < n; i++) /* those above the k-th best to the front; copies of it fill up to k below */
        if (float_key(v[i]) > prefix) {
            float t = v[i];
            v[i] = v[m];
            v[m++] = t;
        } else if (float_key(v[i]) == prefix) {
            kth = v[i];
        }
    while (m < k)
        v[m++] = kth;
    return kth;
}

/* Returns the k-th best of n logits, 0 < k < n; -INFINITY where fewer than k are above -INFINITY. buf: [2k]. */
static float kth_best(const float *l, uint32_t n, uint32_t k, float *buf)
{
    float bar = -INFINITY; /* candidates must exceed this: the buffer already has k at least as good */
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(l[i] > bar))
            continue;
        buf[m++] = l[i];
        if (m == 2 * k) {
            bar = select_top(buf, m, k);
            m = k;
        }
    }
    return m < k ? -INFINITY : m == k && bar > -INFINITY ? bar : select_top(buf, m, k);
}

struct pair {
    float logit, weight;
};

static int pair_order(const void *a, const void *b)
{
    float x = ((const struct pair *)a)->logit, y = ((const struct pair *)b)->logit;
    return x < y ? 1 : x > y ? -1 : 0;
}

static uint64_t fixed(float weight)
{
    return (uint64_t)(weight * (float)(1ull << WEIGHT_BITS));
}

static uint32_t bucket_of(float logit, float max, float temp)
{
    float x = (max - logit) / temp * 64.0f;
    return x < (float)(BUCKETS - 1) ? (uint32_t)x : BUCKETS - 1;
}

/* Returns the logit at which the weights of the candidates, added best first, reach the share p of their sum. */
static float top_p_threshold(const struct row_tmp *t, uint32_t n, float max, float temp, float p)
{
    uint64_t sum[BUCKETS] = {0}, total = 0, reached = 0;
    for (uint32_t i = 0; i < n; i++)
        sum[bucket_of(t->logit[i], max, temp)] += fixed(t->weight[i]);
    for (uint32_t b = 0; b < BUCKETS; b++)
        total += sum[b];
    double target = (double)p * (double)total;
    uint32_t b = 0;
    while (b < BUCKETS - 1 && (double)(reached + sum[b]) < target)
        reached += sum[b++];
    struct pair *in = (struct pair *)t->buf;
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (bucket_of(t->logit[i], max, temp) == b)
            in[m++] = (struct pair){t->logit[i], t->weight[i]};
    qsort(in, m, sizeof *in, pair_order);
    uint32_t i = 0;
    for (; i < m; i++) {
        reached += fixed(in[i].weight);
        if ((double)reached >= target)
            break;
    }
    return m ? in[i < m ? i : m - 1].logit : max;
}

/* Returns the id of the candidate at or above thr with the greatest logit / temp + noise (the Gumbel-max trick). best:
 * index of the candidate with the greatest logit. */
static uint32_t gumbel_max(const struct row_tmp *t, uint32_t n, uint32_t best, float thr, const struct sample_params *p,
                           uint32_t index)
{
    float top = t->logit[best] / p->temp + philox_token_gumbel(p->seed, index, t->id[best]);
    uint32_t winner = t->id[best], group = UINT32_MAX;
    struct philox words = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        if (!(t->logit[i] >= thr))
            continue;
        uint32_t id = t->id[i];
        float z = t->logit[i] / p->temp;
        if (id >> 2 != group) {
            group = id >> 2;
            words = philox_group(p->seed, index, group);
        }
        if (z + philox_gumbel_bound(words.v[id & 3]) < top) /* cannot win: skips two logarithms */
            continue;
        float v = z + philox_gumbel(words.v[id & 3]);
        if (v > top || (v == top && id < winner)) {
            top = v;
            winner = id;
        }
    }
    return winner;
}

static bool penalised(const struct sample_params *p)
{
    return p->rep_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

/* Returns the row's logits after penalties, bias and mask, in `out`; the raw row where none applies. */
static const float *adjust(const struct slot *s, const float *raw, const uint32_t *mask, uint32_t n, float *out)
{
    const struct sample_params *p = &s->p;
    if (!penalised(p) && !p->n_bias && !mask)
        return raw;
    memcpy(out, raw, n * sizeof *out);
    for (uint32_t i = 0; penalised(p) && i < n; i++)
        if (s->count[i]) {
            float l = out[i] > 0.0f ? out[i] / p->rep_penalty : out[i] * p->rep_penalty;
            out[i] = fmaf(-p->frequency_penalty, (float)s->count[i], l - p->presence_penalty);
        }
    for (uint32_t i = 0; i < p->n_bias; i++)
        out[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; mask && i < n; i++)
        if (!(mask[i / 32] >> i % 32 & 1))
            out[i] = -INFINITY;
    return out;
}

static uint32_t pick(struct device *d, const struct slot *s, const float *l, uint32_t n, uint32_t index,
                     const struct row_tmp *t)
{
    const struct sample_params *p = &s->p;
    uint32_t best = argmax(l, n), m = 0;
    float max = l[best];
    if (!philox_decides(max, p->temp)) /* also if the best is infinite, or there is none */
        return best;
    float thr = p->top_k && p->top_k < n ? kth_best(l, n, p->top_k, t->buf) : -INFINITY;
    if (thr == -INFINITY)
        thr = -FLT_MAX; /* forbidden tokens are no candidates */
    uint32_t best_at = 0;
    for (uint32_t i = 0; i < n; i++) {
        t->logit[m] = l[i];
        t->id[m] = i;
        best_at = i == best ? m : best_at;
        m += l[i] >= thr;
    }
    if (p->top_p < 1.0f) {
        d->k->exp(t->logit, max, p->temp, t->weight, m);
        float cut = top_p_threshold(t, m, max, p->temp, p->top_p);
        thr = cut > thr ? cut : thr;
    }
    if (p->min_p >= FLT_MIN) {
        float cut = fmaf(p->temp, fm_log(p->min_p), max);
        thr = cut > thr ? cut : thr;
    }
    return gumbel_max(t, m, best_at, thr, p, index);
}

/* Computes the log-softmax of the raw logits for the token and for the n_logprobs best, the lowest id first on a tie.
 * NaN logits are not among the best and not part of the sum. */
static void logprobs(struct device *d, const float *raw, uint32_t n, const struct sample_params *p, float *tmp,
                     struct sampled *out)
{
    float max = raw[argmax(raw, n)];
    double sum = 0.0;
    d->k->exp(raw, max, 1.0f, tmp, n);
    for (uint32_t i = 0; i < n; i++)
        sum += isnan(raw[i]) ? 0.0 : (double)tmp[i];
    double lse = (double)max + log(sum);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = out->n_top;
        if (isnan(raw[i]) || (at == p->n_logprobs && !(raw[i] > out->top[at - 1].logprob)))
            continue;
        at = at == p->n_logprobs ? at - 1 : out->n_top++;
        for (; at && raw[i] > out->top[at - 1].logprob; at--)
            out->top[at] = out->top[at - 1];
        out->top[at] = (struct logprob){i, raw[i]};
    }
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)((double)out->top[i].logprob - lse);
    out->logprob = (float)((double)raw[out->token] - lse);
}

struct sample_job {
    struct device *d;
    const struct batch_sample *op;
};

static void sample_item(void *arg, uint32_t row, uint32_t thread)
{
    const struct sample_job *j = arg;
    struct device *d = j->d;
    const struct slot *s = &d->slot[j->op->slot[row]];
    uint32_t n = d->n_logit;
    float *v = d->scratch[thread].v;
    struct row_tmp t = {.adjusted = v,
                        .logit = v + n,
                        .weight = v + 2 * (size_t)n,
                        .buf = v + 3 * (size_t)n,
                        .id = (uint32_t *)(v + 5 * (size_t)n)};
    const float *raw = d->logits + (size_t)row * n;
    const float *l = adjust(s, raw, j->op->mask ? j->op->mask[row] : NULL, n, t.adjusted);
    struct sampled *out = &d->sampled[row];
    out->slot = j->op->slot[row];
    out->token = pick(d, s, l, n, j->op->index[row], &t);
    out->logprob = raw[out->token];
    out->n_top = 0;
    if (s->p.n_logprobs)
        logprobs(d, raw, n, &s->p, t.weight, out);
}

/* Appends a token to the slot's history, and stops counting the token that leaves the window of penalty_last. */
static int slot_push(struct slot *s, int32_t token)
{
    if (!penalised(&s->p))
        return 0;
    if (s->n_history == s->room) {
        uint32_t room = s->room < 512 ? 1024 : s->room * 2;
        int32_t *h = realloc(s->history, room * sizeof *h);
        if (!h)
            return HEARTH_ENOMEM;
        s->history = h;
        s->room = room;
    }
    s->history[s->n_history++] = token;
    s->count[token]++;
    if (s->p.penalty_last && s->n_history > s->p.penalty_last)
        s->count[s->history[s->n_history - 1 - s->p.penalty_last]]--;
    return 0;
}

static bool sample_check(struct device *d, const struct batch_sample *op)
{
    uint8_t seen[SLOTS_MAX] = {0};
    if (op->n > d->batch.n_out || (op->n && !d->n_logit)) {
        cpu_fail(d, HEARTH_EPARAMS, "sample of %u rows, the step has logits of %u", (unsigned)op->n,
                 d->n_logit ? (unsigned)d->batch.n_out : 0);
        return false;
    }
    for (uint32_t i = 0; i < op->n; i++) {
        uint32_t slot = op->slot[i];
        if (slot >= SLOTS_MAX || !d->slot[slot].set || seen[slot]) {
            cpu_fail(d, HEARTH_EPARAMS, "sample row %u names slot %u, which is not set or named twice", (unsigned)i,
                     (unsigned)slot);
            return false;
        }
        seen[slot] = 1;
        if (d->slot[slot].n_vocab != d->n_logit) {
            cpu_fail(d, HEARTH_EPARAMS, "slot %u was set for a vocabulary of %u, the logits have %u", (unsigned)slot,
                     (unsigned)d->slot[slot].n_vocab, (unsigned)d->n_logit);
            return false;
        }
    }
    return true;
}

void cpu_sample(struct device *d, const struct batch_sample *op)
{
    if (d->err.code || !sample_check(d, op))
        return;
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (!cpu_scratch(d, &d->scratch[i], (size_t)ROW_TMP * d->n_logit))
            return;
    struct sample_job j = {d, op};
    pool_run(d->pool, op->n, sample_item, &j);
    for (uint32_t i = 0; i < op->n; i++) {
        struct slot *s = &d->slot[op->slot[i]];
        s->last = (int32_t)d->sampled[i].token;
        if (slot_push(s, s->last))
            cpu_fail(d, HEARTH_ENOMEM, "no memory for the token history of slot %u", (unsigned)op->slot[i]);
    }
    d->n_sampled = op->n;
}

void cpu_slot_fini(struct slot *s)
{
    free((void *)s->p.bias);
    free(s->history);
    free(s->count);
    memset(s, 0, sizeof *s);
    s->last = -1;
}

static int params_check(const struct sample_params *p, uint32_t n_vocab, struct hearth_err *e)
{
    const struct {
        const char *name;
        float value, min, max;
    } ranges[] = {
        {"temperature", p->temp, 0.0f, FLT_MAX},
        {"top_p", p->top_p, 0.0f, FLT_MAX},
        {"min_p", p->min_p, 0.0f, 1.0f},
        {"repetition penalty", p->rep_penalty, FLT_MIN, FLT_MAX},
        {"presence penalty", p->presence_penalty, -FLT_MAX, FLT_MAX},
        {"frequency penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max)) /* NaN fails too */
            return err_set(e, HEARTH_EPARAMS, "%s %g is not between %g and %g", ranges[i].name, (double)ranges[i].value,
                           (double)ranges[i].min, (double)ranges[i].max);
    if (p->n_logprobs > LOGPROBS_MAX)
        return err_set(e, HEARTH_EPARAMS, "%u logprobs wanted, limit %d", (unsigned)p->n_logprobs, LOGPROBS_MAX);
    for (uint32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= n_vocab || !(p->bias[i].bias <= FLT_MAX))
            return err_set(e, HEARTH_EPARAMS, "logit bias %g of token %u: vocabulary of %u, bias below infinity",
                           (double)p->bias[i].bias, (unsigned)p->bias[i].id, (unsigned)n_vocab);
    return 0;
}

int cpu_slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history,
                 uint32_t n_history, uint32_t n_vocab, struct hearth_err *e)
{
    if (slot >= SLOTS_MAX || !n_vocab)
        return err_set(e, HEARTH_EPARAMS, "slot %u of %d, vocabulary of %u", (unsigned)slot, SLOTS_MAX,
                       (unsigned)n_vocab);
    int rc = params_check(p, n_vocab, e);
    for (uint32_t i = 0; !rc && i < n_history; i++)
        if (history[i] < 0 || (uint32_t)history[i] >= n_vocab)
            rc = err_set(e, HEARTH_EPARAMS, "token %d of the history is outside the vocabulary of %u", (int)history[i],
                         (unsigned)n_vocab);
    if (rc)
        return rc;
    struct slot s = {.set = true, .p = *p, .n_vocab = n_vocab, .last = -1};
    s.p.bias = NULL;
    if (p->n_bias) {
        struct logit_bias *bias = malloc(p->n_bias * sizeof *bias);
        if (!bias)
            goto nomem;
        memcpy(bias, p->bias, p->n_bias * sizeof *bias);
        s.p.bias = bias;
    }
    if (penalised(p) && !(s.count = calloc(n_vocab, sizeof *s.count)))
        goto nomem;
    for (uint32_t i = 0; i < n_history; i++)
        if (slot_push(&s, history[i]))
            goto nomem;
    if (n_history)
        s.last = history[n_history - 1];
    cpu_slot_fini(&d->slot[slot]);
    d->slot[slot] = s;
    return 0;
nomem:
    cpu_slot_fini(&s);
    return err_set(e, HEARTH_ENOMEM, "no memory for slot %u", (unsigned)slot);
}
