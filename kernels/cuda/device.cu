/*
 * device.cu - opening a GPU, its workspace, small vectors, and the backend's function table.
 *
 * The first failure of the runtime sticks in the device (cuda_fail). Running out of memory does not: it is an ordinary
 * refusal. Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/experts/told.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cuda_fail(struct device *d, cudaError_t rc, const char *what, const char *file, int line)
{
    if (rc == cudaSuccess)
        return true;
    if (!d->err.code) {
        const char *base = strrchr(file, '/');
        err_set(&d->err, HEARTH_EDEVICE, "GPU %d (%s): %s at %s:%d: %.80s", d->index, d->name, cudaGetErrorString(rc),
                base ? base + 1 : file, line, what);
    }
    return false;
}

void cuda_refuse(struct device *d, int code, const char *fmt, ...)
{
    if (d->err.code)
        return;
    va_list ap;
    va_start(ap, fmt);
    d->err.code = code;
    vsnprintf(d->err.msg, sizeof(d->err.msg), fmt, ap);
    va_end(ap);
}

int cuda_failure(const struct device *d, struct hearth_err *e)
{
    if (d->err.code && e)
        *e = d->err;
    return d->err.code;
}

void cuda_wait(struct device *d)
{
    d->hot_waits++;
    cuda_ok(d, cudaStreamSynchronize(d->stream));
}

/* --- open, close --------------------------------------------------------------------------------------------- */

static void dev_close(struct device *d)
{
    if (!d)
        return;
    cudaDeviceSynchronize();
    gemm_fini(d);
    prefill_fini(d);
    sample_fini(d);
    step_fini(d);
    upload_fini(d);
    spill_fini(d);
    kv_transfer_fini(d);
    pinned_fini();
    cudaFree(d->ws.block);
    cudaFree(d->ws.part);
    free(d->mem.v);
    if (d->stream)
        cudaStreamDestroy(d->stream);
    if (d->copy)
        cudaStreamDestroy(d->copy);
    if (d->uploaded)
        cudaEventDestroy(d->uploaded);
    free(d);
}

/* A variant, and the architecture that it is restricted to: Ampere and Ada have no bulk copies, clusters, wgmma or
 * dependent launches, and less shared memory than Hopper. */
struct way {
    const char *name;
    enum variant v;
    int cc; /* 0: the card's own */
    uint64_t smem;
};

static int way_of(const char *s, struct way *out, struct hearth_err *e)
{
    static const struct way ways[] = {{"auto", VARIANT_GRAPH},
                                      {"graph", VARIANT_GRAPH},
                                      {"eager", VARIANT_EAGER},
                                      {"reference", VARIANT_REFERENCE},
                                      {"ampere", VARIANT_GRAPH, 80, 163 << 10},
                                      {"ada", VARIANT_GRAPH, 89, SMEM_LEAST}};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (!s || !strcmp(s, ways[i].name)) {
            *out = ways[i];
            return 0;
        }
    return err_set(e, HEARTH_EPARAMS,
                   "the CUDA backend has no variant \"%.40s\": auto, graph, eager, reference, ampere or ada", s);
}

/* Makes device_info.id: the chip's UUID, its architecture and the driver, i.e. the CUDA version it supports, from the
 * runtime, and its own version, from the kernel module. */
static void dev_id(struct device *d, const cudaDeviceProp *prop)
{
    char module[80] = "";
    int api = 0;
    cuda_ok(d, cudaDriverGetVersion(&api));
    FILE *f = fopen("/sys/module/nvidia/version", "re");
    if (f && !fgets(module, sizeof(module), f))
        module[0] = 0;
    if (f)
        fclose(f);
    module[strcspn(module, "\n")] = 0;
    for (int i = 0; i < 16; i++)
        snprintf(d->id + 2 * i, sizeof(d->id) - 2 * i, "%02x", (unsigned char)prop->uuid.bytes[i]);
    snprintf(d->id + 32, sizeof(d->id) - 32, " sm_%d %d %s", d->cc, api, module);
}

/* The reason why the runtime finds no GPU. It reports the same error for no driver as for one that is too old. */
static int no_gpu(cudaError_t why, struct hearth_err *e)
{
    int driver = 0, runtime = 0;
    if (why != cudaErrorInsufficientDriver || cudaDriverGetVersion(&driver) || cudaRuntimeGetVersion(&runtime))
        return err_set(e, HEARTH_EDEVICE, "no usable GPU: %s", cudaGetErrorString(why));
    if (!driver)
        return err_set(e, HEARTH_EDEVICE, "no usable GPU: there is no driver (libcuda.so.1)");
    return err_set(e, HEARTH_EDEVICE, "no usable GPU: the driver is too old, for CUDA %d.%d; this engine needs %d.%d",
                   driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

static int dev_open(struct device **out, const struct device_params *p, struct hearth_err *e)
{
    struct way way = {};
    int n = 0, rc = way_of(p->variant, &way, e);
    if (rc)
        return rc;
    if (p->kv_type != DT_F32 && p->kv_type != DT_F16 && p->kv_type != DT_Q8_0)
        return err_set(e, HEARTH_EPARAMS, "the CUDA backend keeps KV in F16 or Q8_0");
    cudaError_t ce = cudaGetDeviceCount(&n);
    if (ce != cudaSuccess)
        return no_gpu(ce, e);
    if (p->index < 0 || p->index >= n)
        return err_set(e, HEARTH_EDEVICE, "GPU %d does not exist: this machine has %d", p->index, n);
    struct device *d = (struct device *)calloc(1, sizeof(*d));
    if (!d)
        return err_set(e, HEARTH_ENOMEM, "no memory for a device");
    pinned_init();
    d->index = p->index;
    d->variant = way.v;
    d->wcache_limit = UINT64_MAX;
    d->reference = way.v == VARIANT_REFERENCE;
    d->kv_type = p->kv_type == DT_Q8_0 ? DT_Q8_0 : DT_F16;
    cudaDeviceProp prop;
    int code = 0;
    if (!cuda_ok(d, cudaGetDeviceProperties(&prop, p->index)))
        goto fail;
    snprintf(d->name, sizeof(d->name), "%.95s", prop.name);
    d->cc = prop.major * 10 + prop.minor;
    d->sms = prop.multiProcessorCount;
    d->smem_card = d->smem_max = prop.sharedMemPerBlockOptin;
    if (d->cc < 75) {
        cuda_refuse(d, HEARTH_EDEVICE, "GPU %d (%s) has compute capability %d.%d: 7.5 is the oldest that runs",
                    d->index, d->name, prop.major, prop.minor);
        goto fail;
    }
    if (!cuda_ok(d, cudaSetDevice(p->index)))
        goto fail;
    if (!(code = embed_code())) {
        cuda_refuse(d, HEARTH_EDEVICE, "GPU %d (%s): this engine was built without code for sm_%d", d->index, d->name,
                    d->cc);
        goto fail;
    }
    if (way.cc && d->cc > way.cc) {
        d->cc = way.cc;
        d->smem_max = d->smem_max < way.smem ? d->smem_max : way.smem;
    }
    d->cc = d->cc < code ? d->cc : code; /* code compiled from PTX of an older architecture lacks newer features */
    d->pdl = d->cc >= 90 && way.v == VARIANT_GRAPH;
    dev_id(d, &prop);
    if (!cuda_ok(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking)) ||
        !cuda_ok(d, cudaStreamCreateWithFlags(&d->copy, cudaStreamNonBlocking)) ||
        !cuda_ok(d, cudaEventCreateWithFlags(&d->uploaded, cudaEventDisableTiming)))
        goto fail;
    d->kv_granule = kv_granule(d);
    upload_init(d);
    kv_transfer_init(d);
    step_init(d);
    sample_init(d);
    attend_init(d);
    gemm_init(d);
    if (way.v != VARIANT_REFERENCE)
        prefill_init(d);
    if (d->err.code)
        goto fail;
    *out = d;
    return 0;
fail:
    rc = cuda_failure(d, e);
    dev_close(d);
    cudaDeviceReset(); /* this process goes on with the CPU backend: an unused context would keep about 400 MB */
    return rc;
}

static void dev_info(struct device *d, struct device_info *out)
{
    size_t avail = 0, total = 0;
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", d->name);
    snprintf(out->id, sizeof(out->id), "%s", d->id);
    int devices = 0;
    out->gpu = true;
    out->devices = cuda_ok(d, cudaGetDeviceCount(&devices)) ? (uint32_t)devices : 1;
    out->kv_type = d->kv_type;
    out->kv_apart = true;
    out->max_in_flight = MAX_IN_FLIGHT;
    out->kv_granule = d->kv_granule;
    out->decode_rows = GEMV_ROWS;
    cuda_ok(d, cudaMemGetInfo(&avail, &total));
    out->mem_total = total;
    out->mem_free = avail + d->wcache_bytes;
    memcpy(out->held, d->held, sizeof(out->held));
    out->held[MEM_CACHE] = d->wcache_bytes;
    out->mem_sums = d->ws.part_bytes;
    out->mem_pinned = d->pinned;
    out->hot_allocs = d->hot_allocs;
    out->hot_graphs = d->hot_graphs;
    out->hot_waits = d->hot_waits;
    step_counts(d, out);
}

/* --- workspace ----------------------------------------------------------------------------------------------- */

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Takes the next `bytes` of a block; with base NULL it only counts. */
static void *cut(uint8_t *base, uint64_t *used, uint64_t bytes)
{
    void *p = base ? base + *used : NULL;
    *used += (bytes + 1023) & ~1023ull;
    return p;
}

/* Lays out the workspace at `base`, and returns its size in bytes; with base NULL it only counts. */
static uint64_t lay(const struct device *d, struct workspace *w, struct workspace_apart *apart, uint8_t *base)
{
    const struct workspace_dims *s = &w->dims;
    uint64_t used = 0, r = w->rows;
    w->ldx = pad256(s->d_model);
    w->ldq = pad256(s->d_q);
    w->ldtmp = pad256(max_u32(s->d_model, max_u32(max_u32(s->d_q, s->d_mix) + 2 * s->d_kv, 2 * s->d_ff)));
    if (s->d_latent) /* results of latent attention before and after the heads' matrices */
        w->ldtmp = pad256(max_u32(w->ldtmp, max_u32(2 * s->d_q, s->d_latent + s->d_kv)));
    w->ldmix = pad256(s->d_mix);
    w->ldl = pad256(s->n_vocab);
    w->x = (float *)cut(base, &used, r * w->ldx * 4);
    w->xn = act_prepared((__half *)cut(base, &used, xfrag_halves(s->d_model, r) * 2), s->d_model);
    w->q = (__half *)cut(base, &used, r * w->ldq * 2);
    w->att.p = (__half *)cut(base, &used, xfrag_halves(s->d_q, r) * 2); /* choose_path() sets the layout */
    w->ff.p = (__half *)cut(base, &used, xfrag_halves(s->d_ff, r) * 2);
    w->tmp = (float *)cut(base, &used, r * w->ldtmp * 4);
    w->mix = (float *)cut(base, &used, r * w->ldmix * 4);
    w->made = (float *)cut(base, &used, r * w->ldmix * 4);
    w->logits = (float *)cut(base, &used, (uint64_t)w->out_rows * w->ldl * 4);
    w->semaphore = (uint32_t *)cut(base, &used, SEMAPHORES * 4);
    w->split_k = (float *)cut(base, &used, SPLIT_K_FLOATS * 4ull);
    w->wg_partials = (float *)cut(base, &used, wg_partials_bytes(d, s));
    w->wg_left = (float4 *)cut(base, &used, wg_left_bytes(d));
    for (int i = 0; i < 2; i++)
        w->wg_x[i] = (__half *)cut(base, &used, wg_x_bytes(d, s));
    w->wg_ff = (__half *)cut(base, &used, wg_x_bytes(d, s));
    uint64_t pairs = r * (s->d_route / 2);
    w->experts.route = (float *)cut(base, &used, r * s->d_route * 4);
    w->experts.hidden = (float *)cut(base, &used, r * s->d_experts * 4);
    w->experts.logits = (float *)cut(base, &used, s->d_route ? r * EXPERTS_MAX * 4 : 0);
    w->experts.said = (struct route_said *)cut(base, &used, s->d_route ? said_bytes(d->sms, s->d_experts) : 0);
    w->experts.row_gate = (float *)cut(base, &used, r * 4);
    /* each expert's hidden row begins a new record */
    uint64_t records = s->d_route ? r * (s->d_experts / 256 + 1 + s->d_route / 2) : 0;
    w->experts.x = (__half *)cut(base, &used, records * XFRAG_KBLK * 2);
    w->experts.y = (float *)cut(base, &used, pairs * w->ldx * 4);
    w->experts.order = (uint32_t *)cut(base, &used, pairs * 4);
    w->experts.jobs = (struct experts_job *)cut(base, &used, (pairs + EXPERTS_MAX) * sizeof(struct experts_job));
    w->experts.n_job = (uint32_t *)cut(base, &used, 4);
    apart->aside = (float *)cut(base, &used, s->d_aside ? r * w->ldx * 4 : 0);
    apart->inputs = (float *)cut(base, &used, r * s->d_inputs * 4);
    apart->latent = act_prepared((__half *)cut(base, &used, xfrag_halves(s->d_latent, r) * 2), s->d_latent);
    w->wscratch_bytes = s->n_row > LT_ABOVE_ROWS_CACHED ? 32ull << 20 : 0; /* wcache copies may be evicted in a step */
    w->wscratch = (__half *)cut(base, &used, w->wscratch_bytes);
    return used;
}

static int dev_reserve(struct device *d, const struct workspace_dims *want, struct hearth_err *e)
{
    struct workspace w = d->ws;
    struct workspace_apart apart;
    struct workspace_dims *s = &w.dims;
    s->d_model = max_u32(s->d_model, want->d_model);
    s->d_q = max_u32(s->d_q, want->d_q);
    s->d_kv = max_u32(s->d_kv, want->d_kv);
    s->d_ff = max_u32(s->d_ff, want->d_ff);
    s->n_vocab = max_u32(s->n_vocab, want->n_vocab);
    s->n_row = max_u32(s->n_row, want->n_row);
    s->n_out = max_u32(s->n_out, want->n_out);
    s->n_prompt = max_u32(s->n_prompt, want->n_prompt);
    s->d_route = max_u32(s->d_route, want->d_route);
    s->d_experts = max_u32(s->d_experts, want->d_experts);
    s->d_mix = max_u32(s->d_mix, want->d_mix);
    s->d_aside = max_u32(s->d_aside, want->d_aside);
    s->d_inputs = max_u32(s->d_inputs, want->d_inputs);
    s->d_latent = max_u32(s->d_latent, want->d_latent);
    if (s->n_row > BATCH_ROWS_MAX || s->n_out > s->n_row || s->n_prompt > s->n_row)
        return err_set(e, HEARTH_EPARAMS,
                       "workspace of %u rows, %u out rows and %u of prompts: at most %d rows, and no more of others",
                       s->n_row, s->n_out, s->n_prompt, BATCH_ROWS_MAX);
    if (d->ws.block && !memcmp(s, &d->ws.dims, sizeof(*s)))
        return 0;
    w.rows = (s->n_row + GEMM_ROWS - 1) / GEMM_ROWS * GEMM_ROWS;
    w.out_rows = (s->n_out + GEMM_ROWS - 1) / GEMM_ROWS * GEMM_ROWS; /* the head's rows come in buckets, too */
    w.bytes = lay(d, &w, &apart, NULL);
    uint8_t *block = (uint8_t *)cuda_alloc(d, w.bytes, "the workspace", e);
    if (!block)
        return d->err.code ? d->err.code : HEARTH_ENOMEM;
    lay(d, &w, &apart, block);
    /* Padding that is never written must be finite, as it is multiplied by zero weights. Padding that another op may
     * have written is replaced by zeros by its readers. */
    cuda_ok(d, cudaMemsetAsync(block, 0, w.bytes, d->stream));
    cuda_wait(d);
    step_drop_graphs(d); /* captured graphs hold the old addresses */
    cuda_free(d, d->ws.block);
    w.block = block;
    w.part = d->ws.part, w.part_bytes = d->ws.part_bytes;
    d->ws = w, d->apart = apart;
    return cuda_failure(d, e);
}

/* --- vectors -------------------------------------------------------------------------------------------------- */

static int vec_load(struct device *d, const float *src, size_t n, float **out, struct hearth_err *e)
{
    float *v = (float *)cuda_alloc_for(d, MEM_WEIGHTS, n * 4, "a vector", e);
    if (!v)
        return d->err.code ? d->err.code : HEARTH_ENOMEM;
    if (!cuda_ok(d, cudaMemcpy(v, src, n * 4, cudaMemcpyHostToDevice)))
        return cuda_failure(d, e);
    *out = v;
    return 0;
}

static void vec_free(struct device *d, float *v)
{
    if (!v)
        return;
    step_drop_graphs(d);
    cuda_free(d, v);
}

static int dev_sync(struct device *d, struct hearth_err *e)
{
    if (!d->err.code && cuda_ok(d, cudaStreamSynchronize(d->stream)))
        kv_transfer_drain(d);
    int rc = cuda_failure(d, e);
    if (rc != HEARTH_EDEVICE)
        d->err.code = 0; /* the refusal of a call, not a failure of the device */
    return rc ? rc : step_failed(d, e);
}

/* --- the table ------------------------------------------------------------------------------------------------ */

extern "C" {
extern const struct backend backend_cuda;
const struct backend backend_cuda = {
    "cuda",      dev_open,  dev_close, dev_info,  dev_reserve,      weight_load,      weight_bytes,
    weight_free, vec_load,  vec_free,  kv_new,    kv_free,          kv_map,           kv_unmap,
    kv_copy,     kv_clear,  kv_save,   kv_load,   kv_transfer_done, kv_transfer_wait, cache_limit,
    host_alloc,  host_free, step_run,  op_path,   prompt_is_quick,  step_wait,        slot_set,
    act_read,    act_write, dev_sync,  read_rate, attend_bytes,
};
}
