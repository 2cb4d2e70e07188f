/*
 * spill.cu - weights that stay in host memory because the GPU has no room for them. Their tiles are in pinned memory,
 * which kernels read over the link as they read device memory. A step of few rows, which reads a matrix once, and of a
 * mixture only the experts that its tokens go to, needs nothing else, not even a captured step.
 *
 * A prompt's products read a matrix several times. For these a separate stream copies each dense matrix that is in host
 * memory to one of two buffers on the device, in the order of the program's ops, while the ops before it run:
 *
 *     copies    | A -> 0 | C -> 1 | E -> 0   | ...        an op waits until its buffer is full,
 *     ops                | A, B   | C, D     | E ...      a copy until the op that used its buffer before has ended
 *
 * Such steps are not captured. A kernel's bits do not depend on where its matrix is.
 *
 * Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"

#include <stdlib.h>

enum {
    BUFFERS = 2,
    ROWS_MIN = GEMM_ROWS + 1, /* rows in a step that copies; steps of fewer rows read each matrix once */
};
static const uint64_t PIECE = 4ull << 20; /* bytes per copy, so that loads of KV pages get their turn: transfer.cu */

struct spill {
    cudaStream_t stream;
    struct {
        uint8_t *p;
        cudaEvent_t full, empty; /* its copy is done; the op that read it is done */
    } buf[BUFFERS];
    uint64_t bytes;                /* size of each buffer */
    uint32_t n;                    /* matrices in host memory */
    const struct program *program; /* of the current step; NULL: the step copies nothing */
    uint32_t next;                 /* where to look for the next op whose matrix is to be copied */
    uint32_t copied, used;         /* matrices of the step copied, and used, so far; modulo BUFFERS: the next buffer */
    struct wdev *in;               /* the matrix that the current op reads from a buffer, or NULL */
};

/* The op's matrix, if it is one that steps copy. Buffers are as long as the longest such, unless memory was short. */
static struct wdev *copied_matrix(const struct spill *s, const struct op *o)
{
    const struct weight *w = op_weight(o);
    struct wdev *v = w && o->kind != OP_EMBED ? (struct wdev *)w->dev : NULL;
    return v && v->host && wdev_dense(v) && v->packed_bytes <= s->bytes ? v : NULL;
}

uint64_t spill_bytes(const wdev *w)
{
    return wdev_dense(w) ? BUFFERS * w->packed_bytes : 0;
}

static bool begin(struct device *d)
{
    if (d->spill)
        return true;
    struct spill *s = (struct spill *)calloc(1, sizeof(*s));
    if (!s)
        return false;
    d->spill = s;
    cuda_ok(d, cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    for (int i = 0; i < BUFFERS; i++) {
        cuda_ok(d, cudaEventCreateWithFlags(&s->buf[i].full, cudaEventDisableTiming));
        cuda_ok(d, cudaEventCreateWithFlags(&s->buf[i].empty, cudaEventDisableTiming));
    }
    return true;
}

static void free_buffers(struct device *d)
{
    cuda_wait(d); /* what reads them */
    for (int i = 0; i < BUFFERS; i++) {
        cuda_free(d, d->spill->buf[i].p);
        d->spill->buf[i].p = NULL;
    }
    d->spill->bytes = 0;
}

int spill_add(struct device *d, const wdev *w, struct hearth_err *e)
{
    if (!begin(d))
        return err_set(e, HEARTH_ENOMEM, "no memory for weights outside the GPU");
    struct spill *s = d->spill;
    s->n++;
    if (!wdev_dense(w) || w->packed_bytes <= s->bytes)
        return d->err.code;
    free_buffers(d);
    for (int i = 0; i < BUFFERS; i++)
        if (!(s->buf[i].p = (uint8_t *)cuda_alloc(d, w->packed_bytes, "weights that pass through", e)))
            return d->err.code ? d->err.code : HEARTH_ENOMEM;
    s->bytes = w->packed_bytes;
    return d->err.code;
}

void spill_remove(struct device *d, const wdev *)
{
    struct spill *s = d->spill;
    if (!s)
        return;
    cuda_ok(d, cudaStreamSynchronize(s->stream));
    if (s->n && !--s->n)
        free_buffers(d);
}

void spill_fini(struct device *d)
{
    struct spill *s = d->spill;
    if (!s)
        return;
    for (int i = 0; i < BUFFERS; i++) {
        cudaFree(s->buf[i].p);
        if (s->buf[i].full)
            cudaEventDestroy(s->buf[i].full);
        if (s->buf[i].empty)
            cudaEventDestroy(s->buf[i].empty);
    }
    if (s->stream)
        cudaStreamDestroy(s->stream);
    free(s);
    d->spill = NULL;
}

/* Enqueues the copy of the program's next matrix, to start once its buffer may be overwritten. */
static void copy_next(struct device *d)
{
    struct spill *s = d->spill;
    const struct wdev *w = NULL;
    while (s->next < s->program->n_op && !w)
        w = copied_matrix(s, &s->program->op[s->next++]);
    if (!w)
        return;
    auto *to = &s->buf[s->copied++ % BUFFERS];
    cuda_ok(d, cudaStreamWaitEvent(s->stream, to->empty, 0));
    for (uint64_t at = 0, n; at < w->packed_bytes && !d->err.code; at += n) {
        n = w->packed_bytes - at < PIECE ? w->packed_bytes - at : PIECE;
        cuda_ok(d, cudaMemcpyAsync(to->p + at, w->host + at, n, cudaMemcpyHostToDevice, s->stream));
    }
    cuda_ok(d, cudaEventRecord(to->full, s->stream));
}

void spill_begin(struct device *d, const struct program *p)
{
    struct spill *s = d->spill;
    if (!s)
        return;
    s->program = s->bytes && d->bucket >= ROWS_MIN && !d->capturing ? p : NULL;
    s->next = s->copied = s->used = 0;
    for (int i = 0; i < BUFFERS && s->program; i++)
        copy_next(d);
}

void spill_op(struct device *d, const struct op *o)
{
    struct spill *s = d->spill;
    struct wdev *w = s && s->program ? copied_matrix(s, o) : NULL;
    if (!w)
        return;
    auto *from = &s->buf[s->used % BUFFERS];
    cuda_ok(d, cudaStreamWaitEvent(d->stream, from->full, 0));
    d->pdl_chain = false; /* with PDL a kernel would fetch weights before its grid-dependency wait */
    w->packed = from->p;
    s->in = w;
}

void spill_op_end(struct device *d)
{
    struct spill *s = d->spill;
    if (!s || !s->in)
        return;
    s->in->packed = s->in->host;
    s->in = NULL;
    cuda_ok(d, cudaEventRecord(s->buf[s->used++ % BUFFERS].empty, d->stream));
    d->pdl_chain = false;
    copy_next(d);
}
