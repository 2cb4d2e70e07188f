/*
 * upload.cu - weights from the mapped file to the GPU: helper threads copy a slice into one of four pinned buffers, a
 * copy engine copies it to the device, and a kernel packs it into T16 tiles (pack.cu). weight_load returns when the
 * last slice has been read from the file, not when it is packed: the step stream waits for that by an event.
 *
 * A type that the GPU has no kernels for, or a matrix with a scale of its own, is converted to F16 on the way: the
 * helpers expand its blocks into the pinned buffer instead of copying them, and from there on it is a matrix of F16.
 *
 * A matrix that is to stay in host memory (weight.host) is packed on the GPU all the same, in device memory that is
 * freed afterwards, so that its tiles are bit-identical.
 *
 * One thread's memcpy from the page cache is slower than the bus (about 10 of 55 GB/s), hence the helpers. Thread: the
 * engine's device thread; helpers touch nothing but the bytes they copy.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/nvtx.cuh"
#include "kernels/cuda/quant/quant.cuh"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PINS = 4, HELPERS_MAX = 11, PIECE = 512 << 10 };
static const uint64_t PIN_BYTES = 16ull << 20;
/* Limits of a matrix: 16 rows must fit a pinned buffer, 128 expanded rows the cuBLASLt path's scratch, and tiles of 8
 * rows a grid dimension. No known model is near them; only embedding and head, which take other paths, have more
 * rows. */
enum { COLS_MAX = 128 << 10, ROWS_MAX = 65535 * 8 };

struct uploader {
    uint8_t *pin[PINS]; /* pinned host memory */
    uint8_t *dev[PINS]; /* its twin on the GPU */
    cudaEvent_t free[PINS];
    uint32_t next;
    /* the current copy, shared with the helpers */
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    pthread_t helper[HELPERS_MAX];
    uint32_t n_helper, busy;
    uint64_t generation; /* number of the copy: a helper takes part at most once in each */
    bool stop;
    uint8_t *dst;
    const uint8_t *src;
    uint64_t bytes, taken;           /* total, and already taken by a thread; counted at dst */
    const struct dtype_info *expand; /* the type of src, where dst is its expansion to F16; NULL: a plain copy */
    float scale;                     /* factor of the expansion */
};

/* Clamps to the range of F16; NaN stays NaN. */
static float saturated(float v)
{
    return v > 65504.f ? 65504.f : v < -65504.f ? -65504.f : v;
}

/* Expands n weights of a type, times `scale`, to F16, saturated. */
static void expand(const struct dtype_info *from, float scale, const uint8_t *src, uint8_t *dst, uint64_t n)
{
    float v[BLOCK_LEN_MAX];
    const uint32_t len = from->block_len;
    for (uint64_t k = 0; k < n; k += len, src += from->block_bytes) {
        from->to_f32(src, v, len);
        for (uint32_t i = 0; i < len; i++)
            v[i] = saturated(v[i] * scale);
        dtype_get(DT_F16)->from_f32(v, dst + 2 * k, len);
    }
}

static void copy_piece(const struct uploader *u, uint64_t at, uint64_t n)
{
    if (u->expand)
        expand(u->expand, u->scale, u->src + at / 2 / u->expand->block_len * u->expand->block_bytes, u->dst + at,
               n / 2);
    else
        memcpy(u->dst + at, u->src + at, n);
}

/* Copies pieces of the slice until none is left. Called with the lock held. */
static void copy_pieces(struct uploader *u)
{
    while (u->taken < u->bytes) {
        uint64_t at = u->taken, n = u->bytes - at < PIECE ? u->bytes - at : PIECE;
        u->taken += n;
        pthread_mutex_unlock(&u->lock);
        copy_piece(u, at, n);
        pthread_mutex_lock(&u->lock);
    }
}

static void *helper_main(void *arg)
{
    struct uploader *u = (struct uploader *)arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&u->lock);
    for (;;) {
        while (!u->stop && u->generation == seen)
            pthread_cond_wait(&u->work, &u->lock);
        if (u->stop)
            break;
        seen = u->generation;
        u->busy++;
        copy_pieces(u);
        if (!--u->busy)
            pthread_cond_signal(&u->idle);
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

static void copy_parallel(struct uploader *u, uint8_t *dst, const uint8_t *src, uint64_t n,
                          const struct dtype_info *from, float scale)
{
    pthread_mutex_lock(&u->lock);
    u->scale = scale;
    u->dst = dst, u->src = src, u->bytes = n, u->taken = 0, u->expand = from;
    if (n > 2 * PIECE) {
        u->generation++;
        pthread_cond_broadcast(&u->work);
    }
    copy_pieces(u);
    while (u->busy)
        pthread_cond_wait(&u->idle, &u->lock);
    pthread_mutex_unlock(&u->lock);
}

void upload_init(struct device *d)
{
    struct uploader *u = (struct uploader *)calloc(1, sizeof(*u));
    if (!u) {
        cuda_refuse(d, HEARTH_ENOMEM, "no memory for uploads");
        return;
    }
    d->up = u;
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->work, NULL);
    pthread_cond_init(&u->idle, NULL);
    for (int i = 0; i < PINS; i++) {
        if (!cuda_ok(d, cudaHostAlloc((void **)&u->pin[i], PIN_BYTES, cudaHostAllocDefault)) ||
            !cuda_ok(d, cudaMalloc((void **)&u->dev[i], PIN_BYTES)) ||
            !cuda_ok(d, cudaEventCreateWithFlags(&u->free[i], cudaEventDisableTiming)))
            return;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t want = cores < 2 ? 0 : cores - 1 > HELPERS_MAX ? HELPERS_MAX : (uint32_t)cores - 1;
    while (u->n_helper < want && !pthread_create(&u->helper[u->n_helper], NULL, helper_main, u))
        u->n_helper++; /* fewer helpers only take longer */
}

void upload_fini(struct device *d)
{
    struct uploader *u = d->up;
    if (!u)
        return;
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_broadcast(&u->work);
    pthread_mutex_unlock(&u->lock);
    for (uint32_t i = 0; i < u->n_helper; i++)
        pthread_join(u->helper[i], NULL);
    for (int i = 0; i < PINS; i++) {
        cudaFreeHost(u->pin[i]);
        cudaFree(u->dev[i]);
        if (u->free[i])
            cudaEventDestroy(u->free[i]);
    }
    pthread_mutex_destroy(&u->lock);
    pthread_cond_destroy(&u->work);
    pthread_cond_destroy(&u->idle);
    free(u);
    d->up = NULL;
}

/* Uploads n_out rows of part i from `data`, in slices of whole tiles; `packed`: packs them, else keeps the file's form.
 */
static void upload_rows(struct device *d, struct wdev *w, uint32_t i, const struct weight_part *src,
                        const uint8_t *data, uint32_t n_out, bool packed)
{
    struct uploader *u = d->up;
    struct wpart *p = &w->part[i];
    float scale = weight_part_scale(src);
    const struct dtype_info *from = p->type == src->type && scale == 1 ? NULL : dtype_get(src->type);
    uint64_t fit = PIN_BYTES / p->raw_row_bytes, file_row = dtype_bytes(src->type, w->n_in);
    uint32_t step = fit < ROWS_MAX ? (uint32_t)fit & ~15u : ROWS_MAX & ~15u;
    for (uint32_t row = 0; row < n_out && !d->err.code; row += step) {
        uint32_t n = n_out - row < step ? n_out - row : step, b = u->next++ % PINS;
        uint64_t bytes = n * p->raw_row_bytes, at = row * p->raw_row_bytes;
        cuda_ok(d, cudaEventSynchronize(u->free[b]));
        copy_parallel(u, u->pin[b], data + row * file_row, bytes, from, scale);
        cuda_ok(d,
                cudaMemcpyAsync(packed ? u->dev[b] : p->raw + at, u->pin[b], bytes, cudaMemcpyHostToDevice, d->copy));
        if (packed)
            pack_rows(d, w, i, row, n, u->dev[b], d->copy);
        cuda_ok(d, cudaEventRecord(u->free[b], d->copy));
    }
}

/* Uploads the matrices of all experts. If they are contiguous in the file and consist of whole tiles, they are uploaded
 * as one tall matrix, so that a slice holds many small ones. */
static void upload_experts(struct device *d, struct wdev *w, uint32_t i, const struct weight_part *src)
{
    uint32_t n = w->n_expert, n_out = w->part[i].n_out;
    uint64_t bytes = dtype_bytes(src->type, w->n_in) * n_out;
    const uint8_t *first = (const uint8_t *)src->expert[0];
    bool tall = n_out % (w->interleaved ? 8 : 16) == 0 && (uint64_t)n * n_out <= UINT32_MAX && !src->expert_scale;
    for (uint32_t e = 1; e < n && tall; e++)
        tall = src->expert[e] == first + e * bytes;
    if (tall) {
        upload_rows(d, w, i, src, first, n * n_out, true);
        return;
    }
    struct wdev one = *w;
    for (uint32_t e = 0; e < n && !d->err.code; e++, one.packed += w->expert_bytes) {
        struct weight_part of = weight_part_of(src, e);
        upload_rows(d, &one, i, &of, (const uint8_t *)of.data, n_out, true);
    }
}

/*
 * A router is kept as F32 rows, whatever its type in the file, because its decisions depend on the last bits. So is a
 * layer's mixer that is F32 in the file, like the gates of delta nets: these are small, and the decay of the state
 * depends on them.
 */
static bool kept_plain(const struct weight *w)
{
    bool plain = w->role == WEIGHT_MIXER;
    for (uint32_t i = 0; i < w->n_part; i++)
        plain = plain && w->part[i].type == DT_F32;
    return plain || w->role == WEIGHT_ROUTER;
}

static int upload_plain(struct device *d, struct wdev *v, const struct weight_part *src, struct hearth_err *e)
{
    uint64_t n = (uint64_t)v->n_in * v->n_out, at = 0;
    struct wpart *p = &v->part[0];
    float *f = (float *)malloc(n * sizeof(float));
    p->type = DT_F32;
    p->raw_row_bytes = v->n_in * sizeof(float);
    if (!f || !(p->raw = (uint8_t *)cuda_alloc_for(d, MEM_WEIGHTS, n * sizeof(float), "rows of F32", e))) {
        free(f);
        return f ? HEARTH_ENOMEM
                 : err_set(e, HEARTH_ENOMEM, "no memory for a matrix of %u x %u in F32", v->n_in, v->n_out);
    }
    for (uint32_t i = 0; i < v->n_part; i++) {
        float scale = weight_part_scale(&src[i]);
        uint64_t end = at + (uint64_t)v->n_in * src[i].n_out;
        dtype_get(src[i].type)->to_f32(src[i].data, f + at, end - at);
        for (; at < end; at++)
            f[at] *= scale;
    }
    cuda_ok(d, cudaMemcpy(p->raw, f, n * sizeof(float), cudaMemcpyHostToDevice));
    free(f);
    return 0;
}

/* Row stride of heads' matrices, kept as fp16 rows of a multiple of eight columns (attend/latent.cu). */
static uint32_t heads_ld(uint32_t n_in)
{
    return (n_in + 7) & ~7u;
}

static int upload_heads(struct device *d, struct wdev *v, const struct weight_part *src, struct hearth_err *e)
{
    struct wpart *p = &v->part[0];
    const struct dtype_info *from = dtype_get(src->type);
    uint32_t n_in = v->n_in, ld = heads_ld(n_in);
    uint64_t rows = (uint64_t)v->n_expert * v->n_out, bytes = rows * ld * sizeof(__half);
    float *f = (float *)calloc(ld, sizeof(float)), scale = weight_part_scale(src);
    __half *h = (__half *)malloc(bytes);
    p->type = DT_F16, p->raw_row_bytes = ld * sizeof(__half);
    if (f && h)
        p->raw = (uint8_t *)cuda_alloc_for(d, MEM_WEIGHTS, bytes, "the matrices of heads", e);
    else
        err_set(e, HEARTH_ENOMEM, "no memory for the matrices of %u heads", v->n_expert);
    for (uint64_t r = 0; p->raw && r < rows; r++) {
        const uint8_t *head = (const uint8_t *)src->expert[r / v->n_out];
        from->to_f32(head + r % v->n_out * dtype_bytes(src->type, n_in), f, n_in);
        for (uint32_t i = 0; i < n_in; i++)
            f[i] = saturated(f[i] * scale);
        dtype_get(DT_F16)->from_f32(f, h + r * ld, ld);
    }
    if (p->raw)
        cuda_ok(d, cudaMemcpy(p->raw, h, bytes, cudaMemcpyHostToDevice));
    free(f);
    free(h);
    return p->raw ? 0 : HEARTH_ENOMEM;
}

static void wdev_free(struct device *d, struct wdev *w)
{
    for (uint32_t i = 0; i < w->n_part; i++)
        cuda_free(d, w->part[i].raw);
    wcache_free(d, w);
    if (w->host) {
        spill_remove(d, w);
        host_free(d, w->host); /* with the rows' scales */
    } else {
        cuda_free(d, w->packed);
        cuda_free(d, w->row_scale);
    }
    free(w);
}

/* Whether the matrix is kept as plain rows instead of tiles. */
static bool by_rows(const struct wdev *v)
{
    return v->plain || v->role == WEIGHT_HEADS;
}

/* Plans the form and types in which the matrix will be kept; allocates nothing. *expanded as in struct weight. */
static int wdev_plan(const struct device *d, const struct weight *w, struct wdev *v, bool *raw, uint32_t *expanded,
                     struct hearth_err *e)
{
    bool mixed = false;
    memset(v, 0, sizeof(*v));
    *expanded = 0;
    v->role = w->role, v->model = w->model, v->n_in = w->n_in, v->n_out = w->n_out, v->n_part = w->n_part;
    v->n_kblk = (w->n_in + 255) / 256, v->n_expert = w->n_expert, v->plain = kept_plain(w);
    *raw = d->reference && !w->n_expert && !v->plain;
    for (uint32_t i = 1; i < w->n_part; i++) /* gate and up of an expert share tiles */
        mixed = mixed || (w->n_expert && w->part[i].type != w->part[0].type);
    for (uint32_t i = 0, row = 0; i < w->n_part; i++) {
        struct wpart *p = &v->part[i];
        const struct dtype_info *t = dtype_get(w->part[i].type);
        bool tall = w->role != WEIGHT_EMBED && w->role != WEIGHT_HEAD && w->part[i].n_out > ROWS_MAX;
        if (!t || !t->name || w->n_in % t->block_len || w->n_in > COLS_MAX || tall)
            return err_set(e, HEARTH_EUNSUPPORTED, "a matrix of type %s, %u x %u: the GPU cannot multiply by it",
                           t && t->name ? t->name : "?", w->n_in, w->part[i].n_out);
        bool scaled = w->part[i].expert_scale || weight_part_scale(&w->part[i]) != 1;
        bool own = quant_has_kernels(w->part[i].type) && !scaled && !mixed;
        p->type = own || v->plain ? w->part[i].type : DT_F16;
        if (p->type != w->part[i].type)
            *expanded |= 1u << i;
        p->n_out = w->part[i].n_out;
        p->row0 = row;
        row += p->n_out;
        p->raw_row_bytes = dtype_bytes(p->type, w->n_in);
    }
    return by_rows(v) || *raw ? 0 : pack_plan(v, e);
}

uint64_t weight_bytes(struct device *d, const struct weight *w, uint64_t *passing)
{
    struct wdev v;
    uint32_t expanded;
    bool raw;
    uint64_t bytes = 0;
    *passing = 0;
    if (wdev_plan(d, w, &v, &raw, &expanded, NULL))
        return 0;
    if (v.plain)
        return (uint64_t)v.n_in * v.n_out * sizeof(float);
    if (v.role == WEIGHT_HEADS)
        return (uint64_t)v.n_expert * v.n_out * heads_ld(v.n_in) * sizeof(__half);
    for (uint32_t i = 0; i < v.n_part && raw; i++)
        bytes += v.part[i].raw_row_bytes * v.part[i].n_out;
    if (w->host && !raw)
        *passing = v.packed_bytes + row_scales_bytes(d, &v) + spill_bytes(&v);
    return raw ? bytes : v.packed_bytes + row_scales_bytes(d, &v);
}

/* Moves a matrix that was packed in device memory, and the scales of its rows, to host memory. */
static int to_host(struct device *d, struct wdev *v, struct hearth_err *e)
{
    void *host = NULL;
    uint8_t *packed = v->packed;
    uint32_t *scales = v->row_scale;
    uint64_t bytes = scales ? row_scales_bytes(d, v) : 0;
    int rc = d->err.code ? d->err.code : host_alloc(d, v->packed_bytes + bytes, &host, e);
    if (rc)
        return rc;
    uint8_t *after = (uint8_t *)host + v->packed_bytes;
    cuda_ok(d, cudaMemcpyAsync(host, packed, v->packed_bytes, cudaMemcpyDeviceToHost, d->copy));
    if (scales)
        cuda_ok(d, cudaMemcpyAsync(after, scales, bytes, cudaMemcpyDeviceToHost, d->copy));
    cuda_ok(d, cudaStreamSynchronize(d->copy));
    cuda_free(d, packed);
    cuda_free(d, scales);
    v->packed = v->host = (uint8_t *)host;
    v->row_scale = scales ? (uint32_t *)after : NULL;
    return d->err.code ? d->err.code : spill_add(d, v, e);
}

int weight_load(struct device *d, struct weight *w, struct hearth_err *e)
{
    NVTX_RANGE("weight upload");
    bool raw;
    int rc = HEARTH_ENOMEM;
    struct wdev *v = (struct wdev *)malloc(sizeof(*v));
    if (!v)
        return err_set(e, HEARTH_ENOMEM, "no memory for a weight");
    if ((rc = wdev_plan(d, w, v, &raw, &w->expanded, e)))
        goto fail;
    rc = HEARTH_ENOMEM;
    if (by_rows(v)) {
        if ((rc = v->plain ? upload_plain(d, v, w->part, e) : upload_heads(d, v, &w->part[0], e)))
            goto fail;
    } else if (raw) {
        for (uint32_t i = 0; i < v->n_part; i++)
            if (!(v->part[i].raw = (uint8_t *)cuda_alloc_for(
                      d, MEM_WEIGHTS, v->part[i].raw_row_bytes * v->part[i].n_out, "weights", e)))
                goto fail;
    } else {
        enum mem_kind kind = w->host ? MEM_WORKSPACE : MEM_WEIGHTS;
        uint64_t bytes = row_scales_bytes(d, v);
        if (!(v->packed = (uint8_t *)cuda_alloc_for(d, kind, v->packed_bytes,
                                                    w->n_expert ? "the weights of a layer's experts" : "weights", e)))
            goto fail;
        if (bytes && !(v->row_scale = (uint32_t *)cuda_alloc_for(d, kind, bytes, "the scales of rows", e)))
            goto fail;
        /* padding rows of the last tile and columns past n_in must be zero */
        cuda_ok(d, cudaMemsetAsync(v->packed, 0, v->packed_bytes, d->copy));
        if (bytes) /* of rows past the last tile, too, which kernels read */
            cuda_ok(d, cudaMemsetAsync(v->row_scale, 0, bytes, d->copy));
    }
    for (uint32_t i = 0; i < v->n_part && !by_rows(v); i++)
        if (w->n_expert)
            upload_experts(d, v, i, &w->part[i]);
        else
            upload_rows(d, v, i, &w->part[i], (const uint8_t *)w->part[i].data, v->part[i].n_out, !raw);
    if (v->row_scale)
        pack_row_scales(d, v, d->copy);
    if (w->host && v->packed && (rc = to_host(d, v, e)))
        goto fail;
    cuda_ok(d, cudaEventRecord(d->uploaded, d->copy));
    cuda_ok(d, cudaStreamWaitEvent(d->stream, d->uploaded, 0));
    if ((rc = cuda_failure(d, e)))
        goto fail;
    v->next = d->weights;
    d->weights = v;
    w->dev = v;
    return 0;
fail:
    wdev_free(d, v);
    return d->err.code ? d->err.code : rc;
}

void weight_free(struct device *d, struct weight *w)
{
    struct wdev *v = (struct wdev *)w->dev;
    if (!v)
        return;
    step_drop_graphs(d);
    for (struct wdev **at = &d->weights; *at; at = &(*at)->next)
        if (*at == v) {
            *at = v->next;
            break;
        }
    wdev_free(d, v);
    w->dev = NULL;
}
