/*
 * slots.cu - sampling slots: a sequence's parameters, penalties, biases and history in device memory, and its last
 * token, which the next step's embedding reads.
 */
#include "kernels/cuda/sample.cuh"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { BIASES = 256 };

__global__ void slot_init(slot_dev *to, slot_dev v, int32_t *last, int32_t token)
{
    *to = v;
    *last = token;
}

/* Counts the history's tokens, and stores them in the ring where there is a window. */
__global__ void slot_count(uint32_t *count, int32_t *ring, const int32_t *history, uint32_t n, uint32_t n_vocab)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int32_t id = history[i];
    if (ring)
        ring[i] = id;
    if ((uint32_t)id < n_vocab)
        atomicAdd(&count[id], 1);
}

/* Adds up the list's biases in its order, since an id may occur more than once. One block. */
__global__ void slot_bias(float *bias, const struct logit_bias *list, uint32_t n)
{
    __shared__ struct logit_bias some[BIASES];
    for (uint32_t at = 0; at < n; at += BIASES) {
        uint32_t have = n - at < BIASES ? n - at : BIASES;
        for (uint32_t i = threadIdx.x; i < have; i += blockDim.x)
            some[i] = list[at + i];
        __syncthreads();
        for (uint32_t i = 0; i < have && !threadIdx.x; i++)
            bias[some[i].id] += some[i].bias;
        __syncthreads();
    }
}

/* --- host ----------------------------------------------------------------------------------------------------- */

void sample_init(struct device *d)
{
    struct sampler *s = (struct sampler *)calloc(1, sizeof(*s));
    if (!s) {
        cuda_refuse(d, HEARTH_ENOMEM, "no memory for sampling slots");
        return;
    }
    d->sampler = s;
    if (!cuda_ok(d, cudaMalloc((void **)&s->slot, SLOTS_MAX * sizeof(slot_dev))) ||
        !cuda_ok(d, cudaMalloc((void **)&s->last, SLOTS_MAX * 4)) ||
        !cuda_ok(d, cudaMalloc((void **)&s->row, SAMPLE_ROWS * sizeof(row_dev))) ||
        !cuda_ok(d, cudaMalloc((void **)&s->rows_done, 4)))
        return;
    cuda_ok(d, cudaMemsetAsync(s->slot, 0, SLOTS_MAX * sizeof(slot_dev), d->stream));
    cuda_ok(d, cudaMemsetAsync(s->last, 0, SLOTS_MAX * 4, d->stream));
    cuda_ok(d, cudaMemsetAsync(s->row, 0, SAMPLE_ROWS * sizeof(row_dev), d->stream));
    cuda_ok(d, cudaMemsetAsync(s->rows_done, 0, 4, d->stream));
}

void sample_fini(struct device *d)
{
    struct sampler *s = d->sampler;
    if (!s)
        return;
    for (int i = 0; i < SLOTS_MAX; i++) {
        cudaFree(s->mem[i].bias);
        cudaFree(s->mem[i].count);
        cudaFree(s->mem[i].ring);
        host_free(d, s->mem[i].list);
    }
    cudaFree(s->slot);
    cudaFree(s->last);
    cudaFree(s->row);
    cudaFree(s->rows_done);
    cudaFree(s->mask);
    free(s);
    d->sampler = NULL;
}

bool sample_check(struct device *d, const struct batch_sample *op, uint32_t n_vocab)
{
    uint8_t seen[SLOTS_MAX] = {};
    for (uint32_t i = 0; i < op->n; i++) {
        uint32_t slot = op->slot[i];
        if (slot >= SLOTS_MAX || !d->sampler->mem[slot].n_vocab || seen[slot]) {
            cuda_refuse(d, HEARTH_EPARAMS, "sample row %u names slot %u, which is not set or named twice", i, slot);
            return false;
        }
        seen[slot] = 1;
        if (d->sampler->mem[slot].n_vocab != n_vocab) {
            cuda_refuse(d, HEARTH_EPARAMS, "slot %u was set for a vocabulary of %u, the logits have %u", slot,
                        d->sampler->mem[slot].n_vocab, n_vocab);
            return false;
        }
    }
    return true;
}

const int32_t *slot_tokens(const struct device *d)
{
    return d->sampler->last;
}

uint32_t *mask_room(struct device *d, uint32_t n, uint32_t words)
{
    struct sampler *s = d->sampler;
    uint64_t want = (uint64_t)n * words;
    if (want > s->mask_words) {
        struct hearth_err e = {};
        cuda_wait(d);
        step_drop_graphs(d);
        cuda_free(d, s->mask);
        s->mask_words = 0;
        want = (uint64_t)BATCH_SEQS_MAX * words > want ? (uint64_t)BATCH_SEQS_MAX * words : want;
        s->mask = (uint32_t *)cuda_alloc(d, want * 4, "token masks", &e);
        if (!s->mask) {
            cuda_refuse(d, e.code, "%s", e.msg);
            return NULL;
        }
        s->mask_words = want;
    }
    return s->mask;
}

/* Grows a slot's buffer to n elements of 4 bytes; its contents are lost. */
static int room(struct device *d, void **p, uint32_t *have, uint32_t n, struct hearth_err *e)
{
    if (n <= *have)
        return 0;
    if (*p)
        cuda_wait(d);
    cuda_free(d, *p);
    *have = 0;
    *p = cuda_alloc(d, n * 4ull, "a sampling slot", e);
    if (!*p)
        return d->err.code ? d->err.code : HEARTH_ENOMEM;
    *have = n;
    return 0;
}

/* Makes a slot's list at least that many bytes long, once earlier kernels are done reading it. */
static int list_room(struct device *d, struct slot_mem *m, uint64_t bytes, struct hearth_err *e)
{
    if (m->list_read > step_completed(d))
        cuda_wait(d);
    if (bytes <= m->list_bytes)
        return 0;
    uint64_t have = m->list_bytes ? m->list_bytes : 16 << 10;
    while (have < bytes)
        have *= 2;
    host_free(d, m->list);
    m->list = NULL, m->list_bytes = 0;
    int rc = host_alloc(d, have, &m->list, e);
    if (!rc)
        m->list_bytes = have;
    return rc;
}

static int params_check(const struct sample_params *p, uint32_t n_vocab, struct hearth_err *e)
{
    const struct {
        const char *name;
        float value, least, most;
    } ranges[] = {
        {"temperature", p->temp, 0.f, FLT_MAX},
        {"top_p", p->top_p, 0.f, FLT_MAX},
        {"min_p", p->min_p, 0.f, 1.f},
        {"repetition penalty", p->rep_penalty, FLT_MIN, FLT_MAX},
        {"presence penalty", p->presence_penalty, -FLT_MAX, FLT_MAX},
        {"frequency penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most)) /* NaN fails too */
            return err_set(e, HEARTH_EPARAMS, "%s %g is not between %g and %g", ranges[i].name, (double)ranges[i].value,
                           (double)ranges[i].least, (double)ranges[i].most);
    if (p->n_logprobs > LOGPROBS_MAX)
        return err_set(e, HEARTH_EPARAMS, "%u logprobs wanted, limit %d", p->n_logprobs, LOGPROBS_MAX);
    for (uint32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= n_vocab || !(p->bias[i].bias <= FLT_MAX))
            return err_set(e, HEARTH_EPARAMS, "logit bias %g of token %u: vocabulary of %u, bias below infinity",
                           (double)p->bias[i].bias, p->bias[i].id, n_vocab);
    return 0;
}

int slot_set(struct device *d, uint32_t slot, const struct sample_params *p, const int32_t *history, uint32_t n_history,
             uint32_t n_vocab, struct hearth_err *e)
{
    struct sampler *s = d->sampler;
    if (slot >= SLOTS_MAX)
        return err_set(e, HEARTH_EPARAMS, "sampling slot %u of %d", slot, SLOTS_MAX);
    int rc = params_check(p, n_vocab, e);
    for (uint32_t i = 0; !rc && i < n_history; i++)
        if (history[i] < 0 || (uint32_t)history[i] >= n_vocab)
            rc = err_set(e, HEARTH_EPARAMS, "token %d of the history is outside the vocabulary of %u", history[i],
                         n_vocab);
    if (rc || (rc = cuda_failure(d, e)))
        return rc;
    struct slot_mem *m = &s->mem[slot];
    slot_dev v = {};
    v.p = *p, v.p.bias = NULL, v.n_vocab = n_vocab;
    bool counted = p->rep_penalty != 1.f || p->presence_penalty != 0.f || p->frequency_penalty != 0.f;
    uint32_t window = p->penalty_last, n = !counted ? 0 : window && n_history > window ? window : n_history;
    if ((p->n_bias || n) && (rc = list_room(d, m, p->n_bias * sizeof(*p->bias) + n * 4ull, e)))
        return rc;
    m->list_read = step_next(d);
    struct logit_bias *list = (struct logit_bias *)m->list;
    int32_t *recent = (int32_t *)(list + p->n_bias);
    if (p->n_bias) {
        if ((rc = room(d, (void **)&m->bias, &m->n_bias, n_vocab, e)))
            return rc;
        memcpy(list, p->bias, p->n_bias * sizeof(*list));
        cuda_ok(d, cudaMemsetAsync(m->bias, 0, n_vocab * 4ull, d->stream));
        d->pdl_chain = false;
        cuda_launch(d, slot_bias, dim3(1), 256, 0, LAUNCH_PLAIN, m->bias, list, p->n_bias);
        v.bias = m->bias;
    }
    if (counted) {
        if ((rc = room(d, (void **)&m->count, &m->n_count, n_vocab, e)) ||
            (rc = room(d, (void **)&m->ring, &m->n_ring, window, e)))
            return rc;
        v.count = m->count;
        v.ring = window ? m->ring : NULL;
        v.ring_used = n, v.ring_at = window ? n % window : 0;
        cuda_ok(d, cudaMemsetAsync(m->count, 0, n_vocab * 4ull, d->stream));
        if (n) {
            memcpy(recent, history + (n_history - n), n * 4ull);
            d->pdl_chain = false;
            cuda_launch(d, slot_count, dim3((n + 255) / 256), 256, 0, LAUNCH_PLAIN, m->count, v.ring, recent, n,
                        n_vocab);
        }
    }
    d->pdl_chain = false;
    m->n_vocab = n_vocab;
    cuda_launch(d, slot_init, dim3(1), 1, 0, LAUNCH_PLAIN, s->slot + slot, v, s->last + slot,
                n_history ? history[n_history - 1] : 0);
    return cuda_failure(d, e);
}
