/*
 * step.cu - a step: capture and replay of a program's launches, and its results. Its metadata is made in metadata.cu.
 *
 * step_run uploads the metadata and then runs the program's ops. A decode step (one row per sequence) is captured as a
 * graph the first time that a program runs in a shape, and later replayed by one call. Ops need no code for replays,
 * and no op runs before its metadata is uploaded.
 *
 * Results come back through pinned memory that the last kernel writes, `ticket` last: step_wait polls it, without a
 * call into the runtime or an event. Up to MAX_IN_FLIGHT steps are in flight, each with its own metadata and result in
 * a ring. Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/nvtx.cuh"
#include "kernels/cuda/plan.cuh"
#include "kernels/cuda/step.cuh"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { SPINS = 1000 }; /* about 40 us of polling before step_wait sleeps between polls */

void step_init(struct device *d)
{
    struct step_rec *r = (struct step_rec *)calloc(1, sizeof(*r));
    if (!r) {
        cuda_refuse(d, HEARTH_ENOMEM, "no memory for steps");
        return;
    }
    d->rec = r;
    prctl(PR_SET_TIMERSLACK, 1000); /* 1 us, for the short sleeps of step_wait; the default is 50 us */
    if (!cuda_ok(d, cudaHostAlloc((void **)&r->ring, RING * sizeof(struct result), cudaHostAllocMapped)))
        return;
    memset(r->ring, 0, RING * sizeof(struct result));
    metadata_init(d);
}

void step_fini(struct device *d)
{
    struct step_rec *r = d->rec;
    if (!r)
        return;
    step_drop_graphs(d);
    metadata_fini(d);
    cudaFreeHost(r->ring);
    staged_free(&r->staged);
    free(r);
    d->rec = NULL;
}

void step_drop_graphs(struct device *d)
{
    struct step_rec *r = d->rec;
    for (int i = 0; r && i < GRAPHS_MAX; i++)
        if (r->shape[i].used) {
            if (r->shape[i].exec) {
                cuda_wait(d);
                cuda_ok(d, cudaGraphExecDestroy(r->shape[i].exec));
            }
            r->shape[i].exec = NULL; /* else shape_of() would destroy it again */
            r->shape[i].used = 0;
        }
}

/* --- counters ----------------------------------------------------------------------------------------------- */

void step_count(struct device *d, const char *path, uint32_t rows)
{
    struct step_rec *r = d->rec;
    uint32_t i = 0;
    while (i < r->n_path && strcmp(r->path[i].path, path))
        i++;
    if (i == r->n_path) {
        if (i == DEVICE_PATHS)
            return;
        r->path[r->n_path++].path = path;
    }
    r->rows[i] += rows;
}

void step_counts(const struct device *d, struct device_info *out)
{
    const struct step_rec *r = d->rec;
    if (!r)
        return;
    memcpy(out->path, r->path, sizeof(out->path));
    out->n_path = r->n_path, out->replays = r->replays;
}

/* --- running them --------------------------------------------------------------------------------------------- */

static void run(struct device *d)
{
    struct step_rec *r = d->rec;
    d->pdl_chain = false; /* the first kernel starts after all of the metadata is uploaded */
    memset(r->rows, 0, sizeof(r->rows));
    plan_run(d, r->program);
    if (r->sample)
        sample_run(d, d->out_bucket, r->width[ACT_LOGITS], r->ring);
    else
        done_run(d, r->ring);
}

/* The entry of this step's shape; a new shape replaces the least recently used entry. */
static struct shape *shape_of(struct device *d)
{
    struct step_rec *r = d->rec;
    uint32_t mode = (d->decode ? 1 : 0) | (r->sample ? 2 : 0) | (uint32_t)d->invariant << 2 | (uint32_t)d->path << 4 |
                    (attend_shares(d) ? 1u << 16 : 0) | d->team << 17;
    struct shape *old = &r->shape[0];
    for (int i = 0; i < GRAPHS_MAX; i++) {
        struct shape *s = &r->shape[i];
        if (s->used && s->program == r->program->id && !memcmp(s->kv, d->kv, sizeof(s->kv)) && s->bucket == d->bucket &&
            s->out_bucket == d->out_bucket && s->n_split == d->n_split && s->mode == mode)
            return s;
        if (s->used < old->used)
            old = s;
    }
    if (old->exec)
        cuda_ok(d, cudaGraphExecDestroy(old->exec)); /* deferred by the runtime until its launches are done */
    *old = (struct shape){r->program->id, {}, d->bucket, d->out_bucket, d->n_split, mode, NULL, {}, 0};
    memcpy(old->kv, d->kv, sizeof(old->kv));
    return old;
}

/* Checks a call for a graph, which takes memory of the device. Where there is none, that is no failure: the step's ops
 * are launched one by one. */
static bool graph_ok(struct device *d, cudaError_t rc)
{
    if (rc != cudaErrorMemoryAllocation)
        return cuda_ok(d, rc);
    cudaGetLastError(); /* not sticky: the device goes on */
    return false;
}

/* Captures the step's ops as a graph. Returns NULL on failure, which is recorded in the device, and where there is no
 * memory for a graph. */
static cudaGraphExec_t capture(struct device *d)
{
    NVTX_RANGE("graph capture");
    cudaGraph_t g = NULL;
    cudaGraphExec_t exec = NULL;
    d->hot_graphs++;
    if (!cuda_ok(d, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal)))
        return NULL;
    d->capturing = true;
    run(d);
    d->capturing = false;
    if (!cuda_ok(d, cudaStreamEndCapture(d->stream, &g)))
        return NULL;
    if (!d->err.code && !graph_ok(d, cudaGraphInstantiate(&exec, g, 0)))
        exec = NULL;
    cudaGraphDestroy(g);
    return exec;
}

/* Launches the shape's graph; false: there is none, or no memory to launch it. */
static bool replay(struct device *d, struct shape *s)
{
    struct step_rec *r = d->rec;
    if (!s || !s->exec)
        return false;
    if (graph_ok(d, cudaGraphLaunch(s->exec, d->stream))) {
        memcpy(r->rows, s->rows, sizeof(s->rows));
        r->replays++;
        return true;
    }
    cuda_ok(d, cudaGraphExecDestroy(s->exec));
    s->exec = NULL;
    return false;
}

uint64_t step_run(struct device *d, const struct batch *b, const struct program *p)
{
    NVTX_RANGE("step submit");
    struct step_rec *r = d->rec;
    uint64_t ticket = r->ticket + 1;
    metadata_begin(d, b, p);
    metadata_begin_sample(d, &b->sample);
    act_apply(d);
    staged_free(&r->staged);
    if (d->err.code == HEARTH_ENOMEM) { /* of metadata_begin(): nothing has been launched */
        r->refused = d->err;
        d->err.code = 0;
        r->program = NULL;
        return 0;
    }
    if (!d->err.code) {
        /* Only decode steps have an entry: those of prompts, of many shapes, would replace their graphs. */
        struct shape *s = !r->eager && d->decode ? shape_of(d) : NULL;
        if (s)
            s->used = ticket;
        if (s && !s->exec) {
            s->exec = capture(d);
            memcpy(s->rows, r->rows, sizeof(s->rows));
        }
        metadata_upload(d);
        if (!replay(d, s) && !d->err.code)
            run(d);
        for (uint32_t i = 0; i < r->n_path; i++)
            r->path[i].rows += r->rows[i];
    }
    struct hearth_err *mine = &r->failed[ticket % RING];
    mine->code = 0;
    if (d->err.code && d->err.code != HEARTH_EDEVICE) {
        *mine = d->err;
        d->err.code = 0;
    }
    r->program = NULL;
    r->ticket = ticket;
    return ticket;
}

uint64_t step_next(const struct device *d)
{
    return d->rec->ticket + 1;
}

uint64_t step_completed(const struct device *d)
{
    return d->rec->completed;
}

/* Returns and clears the error of the step with that ticket; 0: of the last one that was refused. */
static int failed(struct device *d, uint64_t ticket, struct hearth_err *e)
{
    struct hearth_err *mine = ticket ? &d->rec->failed[ticket % RING] : &d->rec->refused;
    int rc = mine->code;
    if (rc && e)
        *e = *mine;
    mine->code = 0;
    return rc;
}

int step_failed(struct device *d, struct hearth_err *e)
{
    return failed(d, d->rec->ticket, e);
}

int step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    struct result *res = &d->rec->ring[ticket % RING];
    struct timespec pause = {0, 10000};
    int rc = failed(d, ticket, e);
    if (rc)
        return rc;
    for (uint64_t spin = 0; !d->err.code && __atomic_load_n(&res->ticket, __ATOMIC_ACQUIRE) < ticket; spin++) {
        if (spin < SPINS) {
#ifdef __x86_64__
            __builtin_ia32_pause();
#endif
            continue;
        }
        /* After a kernel has failed the ticket is never written: query the stream now and then. */
        if (spin % 256 == 0) {
            cudaError_t now = cudaStreamQuery(d->stream);
            if (now == cudaSuccess && __atomic_load_n(&res->ticket, __ATOMIC_ACQUIRE) < ticket)
                cuda_refuse(d, HEARTH_EDEVICE, "GPU %d (%s): step %llu ended without a result", d->index, d->name,
                            (unsigned long long)ticket);
            else if (now != cudaSuccess && now != cudaErrorNotReady)
                cuda_ok(d, now);
        }
        nanosleep(&pause, NULL);
    }
    if ((rc = cuda_failure(d, e)))
        return rc;
    if (ticket > d->rec->completed)
        d->rec->completed = ticket;
    if (n)
        memcpy(out, (const void *)res->out, n * sizeof(*out));
    return 0;
}
