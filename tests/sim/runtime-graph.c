/*
 * runtime-graph.c - streams, events and graphs of the simulated runtime.
 *
 * A graph is the list of the work that was submitted during a capture, in that order, in which everything follows what
 * it waits for. So streams that events draw into a capture append to the same list.
 */
#include "config.h"
#include "tests/sim/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- work ----------------------------------------------------------------------------------------------------- */

struct CUgraph_st {
    struct rt_work *v;
    size_t n, cap;
    uint32_t holders; /* the graph, and the graphs instantiated from it */
};
struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

/* A capture in progress; all of its streams point to it. */
struct capture {
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    uint64_t id;
    cudaError_t failed;
};
struct CUstream_st {
    struct capture *capture;
    bool unjoined;  /* drawn in, and the origin has not waited for its last work */
    uint64_t asked; /* work submitted during captures */
    struct CUstream_st *next;
};
struct CUevent_st {
    bool timing, recorded;
    struct timespec at;
    uint64_t capture; /* the capture's id, if the event was recorded during one */
    struct CUstream_st *stream;
    uint64_t asked; /* that of the stream at the time */
};

static struct CUstream_st *streams;
static _Thread_local struct capture *capturing; /* the capture that this thread began */

static bool is_default(cudaStream_t s)
{
    return !s || s == cudaStreamLegacy || s == cudaStreamPerThread;
}

static struct capture *capture_of(cudaStream_t s)
{
    return is_default(s) ? NULL : s->capture;
}

static cudaError_t spoil(struct capture *c, cudaError_t rc)
{
    c->failed = c->failed ? c->failed : cudaErrorStreamCaptureInvalidated;
    return rc;
}

cudaError_t rt_unsafe(void)
{
    return capturing ? spoil(capturing, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

static cudaError_t run(const struct rt_work *w)
{
    switch (w->kind) {
    case RT_KERNEL:
        if (!sim_run(w->fn, &w->launch, w->data))
            rt_fail(cudaErrorIllegalAddress);
        break;
    case RT_COPY:
        for (size_t y = 0; y < w->height; y++)
            memmove(w->dst + y * w->dst_pitch, w->src + y * w->src_pitch, w->width);
        break;
    case RT_SET:
        rt_set(w->dst, w->value, w->width);
        break;
    case RT_CALL:
        w->call(w->data);
        break;
    }
    return cudaSuccess;
}

static void graph_free(struct CUgraph_st *g)
{
    if (!g || --g->holders)
        return;
    for (size_t i = 0; i < g->n; i++)
        free(g->v[i].data);
    free(g->v);
    free(g);
}

static cudaError_t add(struct CUgraph_st *g, const struct rt_work *w)
{
    if (g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 64;
        struct rt_work *v = realloc(g->v, cap * sizeof(*v));
        if (!v)
            return cudaErrorMemoryAllocation;
        g->v = v;
        g->cap = cap;
    }
    void *data = malloc(w->data_bytes ? w->data_bytes : 1);
    if (!data)
        return cudaErrorMemoryAllocation;
    if (w->data_bytes)
        memcpy(data, w->data, w->data_bytes);
    g->v[g->n] = *w;
    g->v[g->n++].data = data;
    return cudaSuccess;
}

cudaError_t rt_work(cudaStream_t s, const struct rt_work *w)
{
    struct capture *c = capture_of(s);
    if (!c)
        return run(w);
    if (c->failed)
        return c->failed;
    s->asked++;
    s->unjoined = s != c->origin;
    return add(c->graph, w);
}

/* --- streams -------------------------------------------------------------------------------------------------- */

RT_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    cudaError_t rc = rt_enter();
    struct CUstream_st *s = rc ? NULL : calloc(1, sizeof(*s));
    if (!s)
        return rt_leave(rc ? rc : cudaErrorMemoryAllocation);
    s->next = streams;
    streams = s;
    *out = s;
    return rt_leave(cudaSuccess);
}

RT_API cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, 0);
}

RT_API cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    cudaError_t rc = rt_enter();
    struct CUstream_st **at = &streams;
    while (*at && *at != s)
        at = &(*at)->next;
    if (!*at)
        return rt_leave(rc ? rc : cudaErrorInvalidResourceHandle);
    *at = s->next;
    if (s->capture)
        spoil(s->capture, cudaSuccess);
    free(s);
    return rt_leave(rc);
}

static cudaError_t asked(cudaStream_t s)
{
    cudaError_t rc = rt_enter();
    struct capture *c = capture_of(s);
    return rt_leave(rc ? rc : c ? spoil(c, cudaErrorStreamCaptureUnsupported) : cudaSuccess);
}

RT_API cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    return asked(s);
}

RT_API cudaError_t cudaStreamQuery(cudaStream_t s)
{
    return asked(s);
}

RT_API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    cudaError_t rc = rt_enter();
    struct capture *c = capture_of(s), *theirs = e ? capture_of(e->stream) : NULL;
    if (!e)
        rc = rc ? rc : cudaErrorInvalidResourceHandle;
    if (rc)
        return rt_leave(rc);
    if (theirs && theirs->id != e->capture)
        theirs = NULL;
    if (e->capture && !theirs) /* from a capture that has ended */
        return rt_leave(c ? spoil(c, cudaErrorStreamCaptureIsolation) : cudaErrorCapturedEvent);
    if (c && c != theirs)
        return rt_leave(e->recorded ? spoil(c, cudaErrorStreamCaptureIsolation) : cudaSuccess);
    if (!theirs)
        return rt_leave(cudaSuccess); /* all earlier work is done */
    if (is_default(s))
        return rt_leave(spoil(theirs, cudaErrorStreamCaptureUnsupported));
    if (!c) {
        s->capture = theirs;
        s->unjoined = true;
    }
    if (e->asked == e->stream->asked)
        e->stream->unjoined = false;
    return rt_leave(cudaSuccess);
}

/* --- events --------------------------------------------------------------------------------------------------- */

RT_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    cudaError_t rc = rt_enter();
    struct CUevent_st *e = rc ? NULL : calloc(1, sizeof(*e));
    if (!e)
        return rt_leave(rc ? rc : cudaErrorMemoryAllocation);
    e->timing = !(flags & cudaEventDisableTiming);
    *out = e;
    return rt_leave(cudaSuccess);
}

RT_API cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

RT_API cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    cudaError_t rc = rt_enter();
    free(e);
    return rt_leave(rc ? rc : e ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

RT_API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    cudaError_t rc = rt_enter();
    struct capture *c = capture_of(s);
    if (!e)
        rc = rc ? rc : cudaErrorInvalidResourceHandle;
    if (rc)
        return rt_leave(rc);
    e->recorded = true;
    e->capture = c ? c->id : 0;
    e->stream = c ? s : NULL;
    e->asked = c ? s->asked : 0;
    clock_gettime(CLOCK_MONOTONIC, &e->at);
    return rt_leave(cudaSuccess);
}

static cudaError_t event_asked(cudaEvent_t e)
{
    cudaError_t rc = rt_enter();
    return rt_leave(rc ? rc : !e ? cudaErrorInvalidResourceHandle : e->capture ? cudaErrorCapturedEvent : cudaSuccess);
}

RT_API cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return event_asked(e);
}

RT_API cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    return event_asked(e);
}

RT_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    cudaError_t rc = rt_enter();
    if (!rc && (!from || !to || !from->timing || !to->timing || !from->recorded || !to->recorded || from->capture ||
                to->capture))
        rc = cudaErrorInvalidResourceHandle;
    if (!rc)
        *ms = 1e3f * (float)(to->at.tv_sec - from->at.tv_sec) + 1e-6f * (float)(to->at.tv_nsec - from->at.tv_nsec);
    return rt_leave(rc);
}

/* --- captures and graphs -------------------------------------------------------------------------------------- */

RT_API cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    static uint64_t id;
    cudaError_t rc = rt_enter();
    (void)mode; /* every mode is treated as cudaStreamCaptureModeThreadLocal */
    if (!rc && (is_default(s) || s->capture))
        rc = is_default(s) ? cudaErrorStreamCaptureUnsupported : cudaErrorIllegalState;
    struct capture *c = rc ? NULL : calloc(1, sizeof(*c));
    struct CUgraph_st *g = rc ? NULL : calloc(1, sizeof(*g));
    if (!c || !g) {
        free(c);
        free(g);
        return rt_leave(rc ? rc : cudaErrorMemoryAllocation);
    }
    g->holders = 1;
    *c = (struct capture){g, s, ++id, cudaSuccess};
    s->capture = capturing = c;
    s->unjoined = false;
    return rt_leave(cudaSuccess);
}

RT_API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    cudaError_t rc = rt_enter();
    struct capture *c = capture_of(s);
    *out = NULL;
    if (!c || c->origin != s)
        return rt_leave(rc ? rc : c ? cudaErrorStreamCaptureUnmatched : cudaErrorIllegalState);
    rc = rc ? rc : c->failed;
    for (struct CUstream_st *o = streams; o; o = o->next)
        if (o->capture == c) {
            if (!rc && o->unjoined)
                rc = cudaErrorStreamCaptureUnjoined;
            o->capture = NULL;
        }
    if (rc)
        graph_free(c->graph);
    else
        *out = c->graph;
    if (capturing == c)
        capturing = NULL;
    free(c);
    return rt_leave(rc);
}

RT_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
    (void)flags;
    cudaError_t rc = rt_enter();
    if (!rc && !g)
        rc = cudaErrorInvalidValue;
    struct CUgraphExec_st *x = rc ? NULL : calloc(1, sizeof(*x));
    if (!x)
        return rt_leave(rc ? rc : cudaErrorMemoryAllocation);
    x->graph = g;
    g->holders++;
    *out = x;
    return rt_leave(cudaSuccess);
}

RT_API cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    cudaError_t rc = rt_enter();
    graph_free(g);
    return rt_leave(rc ? rc : g ? cudaSuccess : cudaErrorInvalidValue);
}

RT_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    cudaError_t rc = rt_enter();
    if (x)
        graph_free(x->graph);
    free(x);
    return rt_leave(rc ? rc : x ? cudaSuccess : cudaErrorInvalidValue);
}

RT_API cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    cudaError_t rc = rt_enter();
    if (!rc && !x)
        rc = cudaErrorInvalidValue;
    for (size_t i = 0; !rc && i < x->graph->n; i++)
        rc = rt_work(s, &x->graph->v[i]);
    return rt_leave(rc);
}
