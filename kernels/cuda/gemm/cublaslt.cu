/*
 * cublaslt.cu - long prompts: matrices as fp16, multiplied by cuBLASLt. Expanded copies are kept where there is room
 * (wcache.cu); elsewhere a matrix is expanded a slice at a time, which stays in L2.
 *
 * The library is opened at run time; without it, or where its header was missing at build time, every row goes through
 * gemv and skinny. Its algorithm is chosen by trial once per shape and kept: the heuristics' first choice can be far
 * off. A shape for which it has no algorithm goes through a plain kernel of this file. Rows are rounded up to 64, and
 * those beyond a multiple of LT_ROWS are a product of their own, so that there are few shapes. Results differ from
 * skinny's in the last bits (another order of summation, gate and up rounded to fp16), which is why `invariant` steps
 * never take this path.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/plan.cuh"
#include "kernels/cuda/quant/quant.cuh"
#include "kernels/cuda/local.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>

enum { LT_SHAPES = 256, LT_TRIES = 8, LT_ROWS = 512 };
static const uint64_t LT_WORKSPACE = 32ull << 20;

/* clang-format off */
#define LT_CALLS(X) \
    X(cublasLtCreate) \
    X(cublasLtDestroy) \
    X(cublasLtMatmulDescCreate) \
    X(cublasLtMatmulDescDestroy) \
    X(cublasLtMatmulDescSetAttribute) \
    X(cublasLtMatrixLayoutCreate) \
    X(cublasLtMatrixLayoutDestroy) \
    X(cublasLtMatmulPreferenceCreate) \
    X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic) \
    X(cublasLtMatmul)
/* clang-format on */

/* y[rows, n] (+)= x[rows, k] w[n, k]^T */
struct lt_shape {
    uint32_t rows, n, k, ldx, ldy, ldw;
    bool half_out, add;
    bool plain; /* the library has no algorithm */
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
};

struct lt {
    void *lib;
#define X(f) decltype(&f) f##_;
    LT_CALLS(X)
#undef X
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t pref;
    void *workspace;
    struct lt_shape shape[LT_SHAPES];
    uint32_t n_shape;
    bool warned; /* a warning was printed that it has no algorithm for some shape */
};

void prefill_init(struct device *d)
{
    char name[96];
    const char *const where[] = {"", "/usr/local/cuda/lib64/"};
    void *lib = NULL;
    for (int i = 0; i < 2 && !lib; i++) {
        snprintf(name, sizeof(name), "%slibcublasLt.so.%d", where[i], CUBLAS_VER_MAJOR);
        lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!lib)
        return;
    struct lt *lt = (struct lt *)calloc(1, sizeof(*lt));
    if (!lt) {
        dlclose(lib);
        return;
    }
    lt->lib = lib;
    d->lt = lt;
    bool all = true;
#define X(f) all = (lt->f##_ = (decltype(&f))dlsym(lib, #f)) && all;
    LT_CALLS(X)
#undef X
    cublasOperation_t t = CUBLAS_OP_T;
    if (!all || lt->cublasLtCreate_(&lt->handle) ||
        lt->cublasLtMatmulDescCreate_(&lt->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
        lt->cublasLtMatmulDescSetAttribute_(lt->desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)) ||
        lt->cublasLtMatmulPreferenceCreate_(&lt->pref) ||
        lt->cublasLtMatmulPreferenceSetAttribute_(lt->pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &LT_WORKSPACE,
                                                  sizeof(LT_WORKSPACE)) ||
        cudaMalloc(&lt->workspace, LT_WORKSPACE)) {
        cudaGetLastError(); /* the device works without it */
        prefill_fini(d);
    }
}

static void lt_shape_free(struct lt *lt, struct lt_shape *s)
{
    if (s->w)
        lt->cublasLtMatrixLayoutDestroy_(s->w);
    if (s->x)
        lt->cublasLtMatrixLayoutDestroy_(s->x);
    if (s->y)
        lt->cublasLtMatrixLayoutDestroy_(s->y);
    *s = (struct lt_shape){};
}

void prefill_fini(struct device *d)
{
    struct lt *lt = d->lt;
    if (!lt)
        return;
    for (uint32_t i = 0; i < LT_SHAPES; i++)
        lt_shape_free(lt, &lt->shape[i]);
    if (lt->pref)
        lt->cublasLtMatmulPreferenceDestroy_(lt->pref);
    if (lt->desc)
        lt->cublasLtMatmulDescDestroy_(lt->desc);
    if (lt->handle)
        lt->cublasLtDestroy_(lt->handle);
    cudaFree(lt->workspace);
    dlclose(lt->lib);
    free(lt);
    d->lt = NULL;
}

bool prefill_available(const struct device *d)
{
    return d->lt != NULL;
}

static cublasStatus_t lt_run(struct device *d, const struct lt_shape *s, const cublasLtMatmulAlgo_t *algo,
                             const __half *w, const __half *x, void *y, float beta)
{
    const float one = 1;
    return d->lt->cublasLtMatmul_(d->lt->handle, d->lt->desc, &one, w, s->w, x, s->x, &beta, y, s->y, y, s->y, algo,
                                  d->lt->workspace, LT_WORKSPACE, d->stream);
}

/* Tries the algorithms that the library proposes on the actual operands, and keeps the fastest; false where none runs.
 * y is overwritten repeatedly, so `add` shapes are tried with ws.tmp as y. */
static bool lt_tune(struct device *d, struct lt_shape *s, const __half *w, const __half *x, void *y)
{
    struct lt *lt = d->lt;
    cublasLtMatmulHeuristicResult_t got[LT_TRIES];
    int n = 0, best = -1;
    float best_ms = 0;
    if (lt->cublasLtMatrixLayoutCreate_(&s->w, CUDA_R_16F, s->k, s->n, s->ldw) ||
        lt->cublasLtMatrixLayoutCreate_(&s->x, CUDA_R_16F, s->k, s->rows, s->ldx) ||
        lt->cublasLtMatrixLayoutCreate_(&s->y, s->half_out ? CUDA_R_16F : CUDA_R_32F, s->n, s->rows, s->ldy) ||
        lt->cublasLtMatmulAlgoGetHeuristic_(lt->handle, lt->desc, s->w, s->x, s->y, s->y, lt->pref, LT_TRIES, got, &n))
        return false;
    cudaEvent_t from = NULL, to = NULL;
    cuda_ok(d, cudaEventCreate(&from));
    cuda_ok(d, cudaEventCreate(&to));
    for (int i = 0; i < n && !d->err.code; i++) {
        float ms = 0;
        if (got[i].state != CUBLAS_STATUS_SUCCESS || lt_run(d, s, &got[i].algo, w, x, y, 0))
            continue;
        cuda_ok(d, cudaEventRecord(from, d->stream));
        for (int k = 0; k < 3; k++)
            lt_run(d, s, &got[i].algo, w, x, y, 0);
        cuda_ok(d, cudaEventRecord(to, d->stream));
        d->hot_waits++;
        cuda_ok(d, cudaEventSynchronize(to));
        cuda_ok(d, cudaEventElapsedTime(&ms, from, to));
        if (best < 0 || ms < best_ms)
            best = i, best_ms = ms;
    }
    if (from)
        cudaEventDestroy(from);
    if (to)
        cudaEventDestroy(to);
    if (best >= 0)
        s->algo = got[best].algo;
    return best >= 0;
}

/* A product for which the library has no algorithm, for any shape: 32 x 32 outputs per block, four per thread. */
enum { PLAIN = 32, PLAIN_ROWS = 8 };
template <typename Y>
__global__ void plain_gemm(const __half *w, uint32_t ldw, const __half *x, uint32_t ldx, Y *y, uint32_t ldy, uint32_t n,
                           uint32_t k, bool add)
{
    __shared__ __half xs[PLAIN][PLAIN + 2], ws[PLAIN][PLAIN + 2];
    uint32_t o0 = blockIdx.x * PLAIN, row0 = blockIdx.y * PLAIN, col = threadIdx.x % PLAIN, first = threadIdx.x / PLAIN;
    float sum[PLAIN / PLAIN_ROWS] = {};
    for (uint32_t k0 = 0; k0 < k; k0 += PLAIN) {
        for (uint32_t i = first; i < PLAIN; i += PLAIN_ROWS) {
            bool in = k0 + col < k;
            xs[i][col] = in ? x[(uint64_t)(row0 + i) * ldx + k0 + col] : __half(0.f);
            ws[i][col] = in && o0 + i < n ? w[(uint64_t)(o0 + i) * ldw + k0 + col] : __half(0.f);
        }
        __syncthreads();
        for (uint32_t i = 0; i < PLAIN; i++)
#pragma unroll
            for (uint32_t r = 0; r < PLAIN / PLAIN_ROWS; r++)
                sum[r] = fmaf(__half2float(xs[first + r * PLAIN_ROWS][i]), __half2float(ws[col][i]), sum[r]);
        __syncthreads();
    }
    if (o0 + col >= n)
        return;
#pragma unroll
    for (uint32_t r = 0; r < PLAIN / PLAIN_ROWS; r++) {
        Y *to = y + (uint64_t)(row0 + first + r * PLAIN_ROWS) * ldy + o0 + col;
        if constexpr (sizeof(Y) == sizeof(__half))
            *to = half_sat(sum[r]);
        else
            *to = add ? *to + sum[r] : sum[r];
    }
}

static void plain_run(struct device *d, const struct lt_shape *s, const __half *w, const __half *x, void *y)
{
    dim3 grid((s->n + PLAIN - 1) / PLAIN, s->rows / PLAIN); /* rows come in whole 64s */
    if (s->half_out)
        cuda_launch(d, plain_gemm<__half>, grid, PLAIN * PLAIN_ROWS, 0, LAUNCH_PLAIN, w, s->ldw, x, s->ldx, (__half *)y,
                    s->ldy, s->n, s->k, false);
    else
        cuda_launch(d, plain_gemm<float>, grid, PLAIN * PLAIN_ROWS, 0, LAUNCH_PLAIN, w, s->ldw, x, s->ldx, (float *)y,
                    s->ldy, s->n, s->k, s->add);
}

/* A shape's entry in the table; a new shape is tuned first. */
static struct lt_shape *lt_shape_of(struct device *d, const struct lt_shape *want, const __half *w, const __half *x,
                                    void *y)
{
    struct lt *lt = d->lt;
    for (uint32_t i = 0; i < LT_SHAPES; i++) {
        struct lt_shape *o = &lt->shape[i];
        if (o->rows == want->rows && o->n == want->n && o->k == want->k && o->ldx == want->ldx && o->ldy == want->ldy &&
            o->ldw == want->ldw && o->half_out == want->half_out && o->add == want->add)
            return o;
    }
    d->hot_allocs++;
    struct lt_shape *s = &lt->shape[lt->n_shape++ % LT_SHAPES]; /* replaces the oldest once the table is full */
    lt_shape_free(lt, s);
    *s = *want;
    /* the residual must not be added to more than once: tuned elsewhere, with the same leading dimension */
    s->plain = !lt_tune(d, s, w, x, want->add ? d->ws.tmp : y);
    if (s->plain && !d->err.code && !lt->warned) {
        fprintf(stderr,
                "hearth-engine: GPU %d (%s): cuBLASLt has no algorithm for %u x %u x %u; what it does not do goes "
                "through a plain kernel, which is much slower\n",
                d->index, d->name, s->rows, s->n, s->k);
        lt->warned = true;
    }
    return s;
}

static void lt_gemm(struct device *d, struct lt_shape want, const __half *w, const __half *x, void *y)
{
    if (d->err.code)
        return;
    const struct lt_shape *s = lt_shape_of(d, &want, w, x, y);
    if (s->plain) {
        plain_run(d, s, w, x, y);
        return;
    }
    cublasStatus_t rc = lt_run(d, s, &s->algo, w, x, y, want.add ? 1.f : 0.f);
    if (rc != CUBLAS_STATUS_SUCCESS)
        cuda_refuse(d, HEARTH_EDEVICE, "GPU %d (%s): cublasLtMatmul failed with %d", d->index, d->name, (int)rc);
}

/* --- the ops --------------------------------------------------------------------------------------------------- */

static uint32_t rows_of(const struct device *d)
{
    return (d->n_row + 63) & ~63u;
}

/* Multiplies all rows of the step; y's rows are ldy apart, and their output begins at element o. */
static void lt_rows(struct device *d, struct lt_shape s, const __half *w, const __half *x, void *y, uint32_t o)
{
    uint32_t n = rows_of(d), whole = n / LT_ROWS * LT_ROWS;
    for (uint32_t row = 0; row < n; row += s.rows) {
        uint64_t at = (uint64_t)row * s.ldy + o;
        s.rows = row < whole ? whole : n - whole;
        lt_gemm(d, s, w, x + (uint64_t)row * s.ldx,
                s.half_out ? (void *)((__half *)y + at) : (void *)((float *)y + at));
    }
}

/* y[row][o] (+)= x[row] . w[o]: in one product from an expanded copy, or, where there is no room for one, in slices of
 * w's rows. */
static void matmul(struct device *d, wdev *w, const act_buf &x, void *y, uint32_t ldy, bool half_out, bool add)
{
    uint32_t ldw = wcache_ld(w);
    if (!w->cached && wcache_alloc(d, w))
        dequant(d, w, 0, w->n_out, w->cached, ldw);
    if (w->cached) {
        lt_rows(d, {0, w->n_out, w->n_in, x.ld, ldy, ldw, half_out, add}, w->cached, x.p, y, 0);
        d->pdl_chain = false; /* the next kernel follows a library kernel, without PDL */
        return;
    }
    uint32_t fit = (uint32_t)(d->ws.wscratch_bytes / 2 / ldw) & ~127u;
    uint32_t slices = (w->n_out + fit - 1) / fit, step = ((w->n_out + slices - 1) / slices + 127) & ~127u;
    for (uint32_t o = 0; o < w->n_out && !d->err.code; o += step) {
        uint32_t n = w->n_out - o < step ? w->n_out - o : step;
        dequant(d, w, o, n, d->ws.wscratch, ldw);
        lt_rows(d, {0, n, w->n_in, x.ld, ldy, ldw, half_out, add}, d->ws.wscratch, x.p, y, o);
    }
    d->pdl_chain = false; /* the next kernel follows a library kernel, without PDL */
}

static act_buf normed(struct device *d, const struct norm *n, uint32_t k)
{
    act_buf x = act_row_major(d->ws.xn.p, pad256(k));
    norm_rows(d, n, k, &x, false, 0, d->bucket);
    return x;
}

void prefill_qkv(struct device *d, struct op_call *, const struct op *o)
{
    const struct op_qkv *op = &o->qkv;
    wdev *w = (wdev *)op->w->dev;
    matmul(d, w, normed(d, &op->norm, w->n_in), d->ws.tmp, d->ws.ldtmp, false, false);
    qkv_epilogue_run(d, op, 0, d->bucket);
}

void prefill_proj(struct device *d, struct op_call *, const struct op *o)
{
    const struct op_proj *op = &o->proj;
    wdev *w = (wdev *)op->w->dev;
    const act_buf &x = op->in == ACT_ATT ? d->ws.att : d->ws.ff;
    if (!op->bias && !proj_apart(op) && residual_scale(op) == 1) {
        matmul(d, w, x, d->ws.x, d->ws.ldx, false, true);
        return;
    }
    matmul(d, w, x, d->ws.tmp, d->ws.ldtmp, false, false);
    proj_epilogue_run(d, op, w->n_out, 0, d->bucket);
}

void prefill_project(struct device *d, struct op_call *, const struct op *o)
{
    const struct op_project *op = &o->project;
    wdev *w = (wdev *)op->w->dev;
    if (!project_begin(d, op))
        return;
    act_buf x = normed(d, &op->norm, w->n_in);
    if (op->at % 64 == 0) { /* the library assumes an alignment of 256 bytes */
        matmul(d, w, x, d->ws.mix + op->at, d->ws.ldmix, false, false);
        return;
    }
    matmul(d, w, x, d->ws.tmp, d->ws.ldtmp, false, false);
    project_tmp(d, w->n_out, op->at, d->bucket);
}

/* glu_epilogue_run() for products in fp16: eight elements per thread, to the plain form. */
__global__ void glu_half(const __half *t, uint32_t ldt, uint32_t d_ff, const float *bias, enum glu_kind glu,
                         const float *row_gate, act_buf out)
{
    pdl_trigger();
    pdl_wait();
    uint32_t k = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (k >= d_ff)
        return;
    const __half *g = t + (uint64_t)blockIdx.y * ldt + k;
    union {
        uint4 v;
        __half h[8];
    } a, b, o;
    a.v = *(const uint4 *)g;
    float by = row_gate ? row_gate[blockIdx.y] : 1.f;
    if (has_gate(glu))
        b.v = *(const uint4 *)(g + d_ff);
    for (int i = 0; i < 8; i++) {
        float x = __half2float(a.h[i]) + (bias ? bias[k + i] : 0.f);
        float u = !has_gate(glu) ? 1.f : __half2float(b.h[i]) + (bias ? bias[d_ff + k + i] : 0.f);
        o.h[i] = half_sat(glu_of(glu, x, u) * by);
    }
    *(uint4 *)(out.p + (uint64_t)blockIdx.y * out.ld + k) = o.v;
}

void prefill_ffn_up(struct device *d, struct op_call *, const struct op *o)
{
    const struct op_ffn_up *op = &o->ffn_up;
    wdev *w = (wdev *)op->w->dev;
    uint32_t d_ff = d_ff_of(op);
    act_buf x = normed(d, &op->norm, w->n_in);
    if (d_ff % 8) {
        matmul(d, w, x, d->ws.tmp, d->ws.ldtmp, false, false);
        glu_epilogue_run(d, op, d_ff, false, 0, d->bucket);
        return;
    }
    matmul(d, w, x, d->ws.tmp, d->ws.ldtmp, true, false);
    const float *row_gate = row_gate_run(d, op, 0, d->bucket);
    cuda_launch(d, glu_half, dim3((d_ff / 8 + 127) / 128, d->bucket), 128, 0, LAUNCH_PDL, (const __half *)d->ws.tmp,
                d->ws.ldtmp, d_ff, op->bias, op->glu, row_gate, d->ws.ff);
}

#else /* built without cuBLASLt's header */

void prefill_init(struct device *)
{
}
void prefill_fini(struct device *)
{
}
bool prefill_available(const struct device *)
{
    return false;
}
void prefill_qkv(struct device *, struct op_call *, const struct op *)
{
}
void prefill_proj(struct device *, struct op_call *, const struct op *)
{
}
void prefill_ffn_up(struct device *, struct op_call *, const struct op *)
{
}
void prefill_project(struct device *, struct op_call *, const struct op *)
{
}

#endif
