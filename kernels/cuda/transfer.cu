/*
 * transfer.cu - transfers of KV pages between a pool and pinned host memory, concurrent with the steps.
 *
 * Each direction has a stream of its own, so that a save, a load and a step use three engines of the GPU at once.
 * Ordering:
 *   - a transfer records the event `before` on the step stream, and its own stream waits for it. A stream wait uses the
 *     state of the event at the time of the call, so one event serves all transfers. The step stream waits for nothing.
 *   - a transfer ends with an event on its stream, which kv_transfer_done queries. What the host has seen completed is
 *     complete for anything that it submits later: a step needs no wait for loads that kv_transfer_done has reported.
 *   - captures are not affected: they begin and end within step_run (step.cu), and the streams do not synchronise with
 *     the legacy stream.
 * Nothing here is allocated after kv_transfer_init. Only the last EVENTS transfers of a direction have an event of
 * their own; for an older one the oldest event that is left is used, which may report it late, never early.
 *
 * Copies of one direction share a copy engine, whatever their streams, and queue there. A step's metadata is therefore
 * not copied (metadata.cu). What is copied to the device (such as the masks of a grammar) queues behind earlier loads.
 * So that it gets its turn between two copies of a load, a copy is at most PIECE long (80 us on PCIe 5), although a run
 * of adjacent pages may be longer. Batched copies of CUDA 12.8 would save some calls, but older toolkits lack them and
 * newer ones changed them.
 *
 * Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/nvtx.cuh"

#include <stdlib.h>

enum { SAVE, LOAD, CHANNELS, EVENTS = 64 };
static const uint64_t PIECE = 4ull << 20;

struct channel {
    cudaStream_t stream;
    cudaEvent_t end[EVENTS];  /* of transfer s at s % EVENTS, for the last EVENTS transfers */
    uint64_t submitted, done; /* number of transfers submitted; of those, the first `done` are known to be done */
};
struct kv_transfer {
    cudaEvent_t before; /* what a transfer waits for */
    struct channel channel[CHANNELS];
};

void kv_transfer_init(struct device *d)
{
    struct kv_transfer *m = (struct kv_transfer *)calloc(1, sizeof(*m));
    if (!m) {
        cuda_refuse(d, HEARTH_ENOMEM, "no memory for moves of KV pages");
        return;
    }
    d->kv_transfer = m;
    if (!cuda_ok(d, cudaEventCreateWithFlags(&m->before, cudaEventDisableTiming)))
        return;
    for (int i = 0; i < CHANNELS; i++) {
        if (!cuda_ok(d, cudaStreamCreateWithFlags(&m->channel[i].stream, cudaStreamNonBlocking)))
            return;
        for (int k = 0; k < EVENTS; k++)
            if (!cuda_ok(d, cudaEventCreateWithFlags(&m->channel[i].end[k], cudaEventDisableTiming)))
                return;
    }
}

void kv_transfer_fini(struct device *d)
{
    struct kv_transfer *m = d->kv_transfer;
    if (!m)
        return;
    for (int i = 0; i < CHANNELS; i++) {
        for (int k = 0; k < EVENTS; k++)
            if (m->channel[i].end[k])
                cudaEventDestroy(m->channel[i].end[k]);
        if (m->channel[i].stream)
            cudaStreamDestroy(m->channel[i].stream);
    }
    if (m->before)
        cudaEventDestroy(m->before);
    free(m);
    d->kv_transfer = NULL;
}

void kv_transfer_drain(struct device *d)
{
    for (int i = 0; i < CHANNELS && !d->err.code; i++)
        cuda_ok(d, cudaStreamSynchronize(d->kv_transfer->channel[i].stream));
}

/* --- transfers ------------------------------------------------------------------------------------------------ */

static uint64_t transfer(struct device *d, struct kv_pool *p, int dir, const uint32_t *pages, const void *const *host,
                         uint32_t n)
{
    NVTX_RANGE(dir == SAVE ? "KV save" : "KV load");
    struct channel *l = &d->kv_transfer->channel[dir];
    for (uint32_t i = 0; i < n; i++)
        if (!kv_page_ok(d, p, pages[i]))
            return 0;
    if (d->err.code || !cuda_ok(d, cudaEventRecord(d->kv_transfer->before, d->stream)) ||
        !cuda_ok(d, cudaStreamWaitEvent(l->stream, d->kv_transfer->before, 0)))
        return 0;
    for (uint32_t i = 0, run; i < n; i += run) {
        uint8_t *at = (uint8_t *)host[i], *page = p->base + pages[i] * p->page_bytes;
        run = 1; /* pages that are adjacent on both sides */
        while (i + run < n && (run + 1) * p->page_bytes <= PIECE && pages[i + run] == pages[i] + run &&
               host[i + run] == at + run * p->page_bytes)
            run++;
        uint64_t bytes = run * p->page_bytes, n_byte;
        for (uint64_t k = 0; k < bytes; k += n_byte) { /* a single page of states may be longer than PIECE */
            n_byte = bytes - k < PIECE ? bytes - k : PIECE;
            if (!cuda_ok(d, cudaMemcpyAsync((dir == SAVE ? at : page) + k, (dir == SAVE ? page : at) + k, n_byte,
                                            dir == SAVE ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, l->stream)))
                return 0;
        }
    }
    uint64_t s = l->submitted + 1;
    if (!cuda_ok(d, cudaEventRecord(l->end[s % EVENTS], l->stream)))
        return 0;
    l->submitted = s;
    return s * CHANNELS + (uint64_t)dir;
}

uint64_t kv_save(struct device *d, struct kv_pool *p, const uint32_t *pages, void *const *host, uint32_t n)
{
    return transfer(d, p, SAVE, pages, (const void *const *)host, n);
}

uint64_t kv_load(struct device *d, struct kv_pool *p, const uint32_t *pages, const void *const *host, uint32_t n)
{
    return transfer(d, p, LOAD, pages, host, n);
}

/* The event that tells whether the ticket's transfer is done; *at: the transfer that it ends. NULL: *rc is the answer.
 */
static cudaEvent_t done_event(struct device *d, uint64_t ticket, uint64_t *at, int *rc, struct hearth_err *e)
{
    struct channel *l = &d->kv_transfer->channel[ticket % CHANNELS];
    uint64_t s = ticket / CHANNELS;
    if (!s || s > l->submitted)
        *rc = err_set(e, HEARTH_EPARAMS, "no move of KV pages has ticket %llu", (unsigned long long)ticket);
    else if (s <= l->done)
        *rc = 1;
    else if (d->err.code == HEARTH_EDEVICE)
        *rc = err_set(e, d->err.code, "%s", d->err.msg);
    else {
        *at = l->submitted - s < EVENTS ? s : l->submitted - EVENTS + 1;
        return l->end[*at % EVENTS];
    }
    return NULL;
}

/* Evaluates the runtime's answer about the event that done_event() returned. */
static int done_status(struct device *d, uint64_t ticket, uint64_t at, cudaError_t said, struct hearth_err *e)
{
    if (said == cudaErrorNotReady)
        return 0;
    if (!cuda_ok(d, said))
        return err_set(e, HEARTH_EDEVICE, "%s", d->err.msg);
    d->kv_transfer->channel[ticket % CHANNELS].done = at;
    return 1;
}

int kv_transfer_done(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    uint64_t at = 0;
    int rc = 0;
    cudaEvent_t end = done_event(d, ticket, &at, &rc, e);
    return end ? done_status(d, ticket, at, cudaEventQuery(end), e) : rc;
}

int kv_transfer_wait(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    uint64_t at = 0;
    int rc = 0;
    cudaEvent_t end = done_event(d, ticket, &at, &rc, e);
    if (end)
        rc = done_status(d, ticket, at, cudaEventSynchronize(end), e);
    return rc < 0 ? rc : 0;
}
