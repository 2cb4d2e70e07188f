/*
 * metadata.cu - a step's metadata for its kernels (struct step_dev): the batch is checked, the step's paths are chosen,
 * and the metadata is filled in and uploaded to the device. Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/plan.cuh"
#include "kernels/cuda/step.cuh"

#include <string.h>

/*
 * The parts of the metadata that a step uploads, in words of 8 bytes: only the used elements of each array, so that a
 * step of few rows does not pay for the arrays' capacity. The arrays' offsets are constants, which kernels need not
 * look up.
 */
enum { PARTS_MAX = 8 + KV_GROUPS_MAX + 1 };
struct meta_parts {
    uint32_t n, n_word; /* number of parts, and of words in all of them */
    struct {
        uint32_t at, end; /* index of its first word in the metadata; words in this and all earlier parts */
    } part[PARTS_MAX];

    /* The index in the metadata of the i-th uploaded word. */
    __device__ uint32_t place(uint32_t i) const
    {
        uint32_t p = 0, before = 0;
        while (p + 1 < n && i >= part[p].end)
            before = part[p++].end;
        return part[p].at + i - before;
    }
};

/* Copies the words from pinned memory, which has the same address on the device as on the host. */
static __global__ void upload_pinned(uint2 *dst, const uint2 *src, const __grid_constant__ meta_parts parts)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= parts.n_word)
        return;
    uint32_t at = parts.place(i);
    dst[at] = src[at];
}
static_assert(sizeof(step_dev) % 8 == 0 && sizeof(step_group) % 8 == 0, "arrays are whole words");

/* Copies words that are kernel arguments: up to 24 KB, where toolkit and driver support more than 4 KB of arguments. */
enum { ARG_DRIVER = 12010 };
struct arg_words {
    uint2 w[CUDART_VERSION >= ARG_DRIVER ? 3072 : 1];
};
static __global__ void upload_by_arg(uint2 *dst, const __grid_constant__ arg_words src,
                                     const __grid_constant__ meta_parts parts)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < parts.n_word)
        dst[parts.place(i)] = src.w[i];
}

static step_dev *meta_of(struct device *d)
{
    return (step_dev *)d->rec->meta[(d->rec->ticket + 1) % RING];
}

/* Makes room for n words behind step_dev, on the host and on the device. Refuses the step where there is no memory;
 * what there was stays as it is. */
static int pages_room(struct device *d, uint32_t n)
{
    struct step_rec *r = d->rec;
    if (n <= d->pages_cap)
        return 0;
    uint32_t cap = d->pages_cap ? d->pages_cap : 1u << 16;
    while (cap < n)
        cap *= 2;
    d->hot_allocs++;
    cuda_wait(d);
    uint64_t bytes = sizeof(step_dev) + cap * 4ull;
    uint8_t *meta[RING] = {};
    void *dev = NULL;
    cudaError_t rc = cudaMalloc(&dev, bytes);
    if (rc == cudaErrorMemoryAllocation && wcache_evict(d)) {
        cudaGetLastError();
        rc = cudaMalloc(&dev, bytes);
    }
    for (int i = 0; i < RING && rc == cudaSuccess; i++)
        rc = cudaHostAlloc((void **)&meta[i], bytes, cudaHostAllocDefault);
    if (rc != cudaSuccess) {
        for (int i = 0; i < RING; i++)
            cudaFreeHost(meta[i]);
        cudaFree(dev);
        if (rc != cudaErrorMemoryAllocation)
            return cuda_ok(d, rc), d->err.code;
        cudaGetLastError(); /* not sticky: the device goes on */
        cuda_refuse(d, HEARTH_ENOMEM, "GPU %d (%s): no room for block tables of %u pages: %llu KiB wanted", d->index,
                    d->name, n, (unsigned long long)(bytes >> 10));
        return d->err.code;
    }
    step_drop_graphs(d);
    for (int i = 0; i < RING; i++) {
        if (r->meta[i])
            memcpy(meta[i], r->meta[i], sizeof(step_dev) + d->pages_cap * 4ull);
        else
            memset(meta[i], 0, sizeof(step_dev));
        cudaFreeHost(r->meta[i]);
        r->meta[i] = meta[i];
    }
    cuda_free(d, d->step);
    d->step = (step_dev *)dev;
    cuda_ok(d, cudaMemset(d->step, 0, bytes));
    d->pages_cap = cap;
    return d->err.code;
}

void metadata_init(struct device *d)
{
    int driver = 0;
    cuda_ok(d, cudaDriverGetVersion(&driver));
    d->rec->arg_words_max = driver >= ARG_DRIVER ? sizeof(arg_words) / sizeof(uint2) : 0;
    pages_room(d, 1);
}

void metadata_fini(struct device *d)
{
    for (int i = 0; i < RING; i++)
        cudaFreeHost(d->rec->meta[i]);
    cudaFree(d->step);
}

/* The bucket of n rows, which grids and template arguments depend on: whole GEMM launches, plus the smallest small
 * bucket for the rest. It never exceeds BATCH_ROWS_MAX. */
static_assert(BATCH_ROWS_MAX % GEMM_ROWS == 0, "a full batch is whole launches");
static uint32_t bucket_of(uint32_t n)
{
    static const uint32_t small[] = {1, 2, 4, 8, 16, 24, 32, 48, 64};
    uint32_t whole = n / GEMM_ROWS * GEMM_ROWS, rest = n - whole;
    if (!rest)
        return whole;
    int i = 0;
    while (small[i] < rest)
        i++;
    return whole + small[i];
}

/* Columns of the activations: as the program leaves them, else as a test wrote them, else as reserved. */
static void set_widths(struct device *d, const struct program *p)
{
    const struct workspace_dims *w = &d->ws.dims;
    const uint32_t width[ACT_COUNT] = {w->d_model,   w->d_q,   w->d_q,     w->d_ff,     w->n_vocab, w->d_route,
                                       w->d_experts, w->d_mix, w->d_aside, w->d_inputs, w->d_latent};
    struct step_rec *r = d->rec;
    memcpy(r->width, width, sizeof(width));
    for (const struct staged *s = r->staged; s; s = s->next)
        r->width[s->act] = s->n_col;
    for (int a = 0; a < ACT_COUNT; a++)
        if (p->width[a])
            r->width[a] = p->width[a];
}

/* The block tables in a step's metadata: behind its groups and attention's words. */
static uint32_t *tables_of(step_dev *m, uint32_t n_group)
{
    return (uint32_t *)(m->group + n_group) + attend_words();
}

/*
 * Fills in a group's metadata of sequence s: the KV slots of its rows, and its block table at word `at`; returns the
 * word after it. The table begins with the attention chunk in which the first row's window begins. Pages of that chunk
 * before the window are read but masked, so that any of the sequence's own pages may stand in for them.
 */
static uint32_t begin_table(struct device *d, step_dev *m, const struct batch *b, uint32_t s, uint32_t group,
                            uint32_t at)
{
    const struct batch_seq *q = &b->seq[s];
    const uint32_t *from = q->pages[group];
    struct step_group *sg = &m->group[group];
    const struct kv_pool *pool = d->kv[group];
    if (pool->desc.d_state) { /* the page that is read (at position 0 none is), and the page that is written */
        uint32_t *two = tables_of(m, b->n_group) + at;
        two[0] = q->pos0 ? from[0] : from[1], two[1] = from[1];
        if (kv_page_ok(d, pool, two[0]))
            kv_page_ok(d, pool, two[1]);
        sg->pages0[s] = at;
        return at + 2;
    }
    uint32_t *pages = tables_of(m, b->n_group), n = (q->pos0 + q->n_row + KV_PAGE - 1) / KV_PAGE;
    uint32_t seen = kv_first_visible(q->pos0, d->kv[group]->desc.window) / KV_PAGE;
    uint32_t first = seen - seen % (ATTEND_CHUNK / KV_PAGE);
    for (uint32_t i = first; i < n; i++)
        pages[at + i - first] = from[i < seen ? seen : i];
    for (uint32_t i = 0; i < q->n_row; i++)
        sg->kv_slot[q->row0 + i] = from[(q->pos0 + i) / KV_PAGE] * KV_PAGE + (q->pos0 + i) % KV_PAGE;
    sg->pages0[s] = at - first;
    return at + n - first;
}

/* Words of a step's metadata between the end of step_dev and the block tables. */
static uint32_t words_before_tables(uint32_t n_group)
{
    return (uint32_t)((n_group - 1) * sizeof(struct step_group) / 4) + attend_words();
}

/* Whether the workspace has room for the batch, and the metadata for its block tables; refuses the step if not. */
static bool has_room(struct device *d, const struct batch *b)
{
    if (!b->n_row || b->n_row > d->ws.dims.n_row || b->n_seq > BATCH_SEQS_MAX || b->n_out > d->ws.out_rows ||
        b->n_out > b->n_row) {
        cuda_refuse(d, HEARTH_EINTERNAL,
                    "step of %u rows, %u sequences, %u out rows: the workspace has room for %u, %d, %u", b->n_row,
                    b->n_seq, b->n_out, d->ws.dims.n_row, BATCH_SEQS_MAX, d->ws.out_rows);
        return false;
    }
    bool many = b->invariant == INVARIANT_PROMPT || b->invariant == INVARIANT_BATCH;
    if (many && b->n_row > PROMPT_ROWS && b->n_row > d->ws.dims.n_prompt) {
        cuda_refuse(d, HEARTH_EINTERNAL, "step of %u rows that are the same in any step; room is for %u", b->n_row,
                    d->ws.dims.n_prompt);
        return false;
    }
    if (!b->n_group || b->n_group > KV_GROUPS_MAX) {
        cuda_refuse(d, HEARTH_EINTERNAL, "step of %u layer groups, limit %d", b->n_group, KV_GROUPS_MAX);
        return false;
    }
    uint64_t n_page = 0;
    for (uint32_t s = 0; s < b->n_seq; s++)
        n_page += b->n_group * (((uint64_t)b->seq[s].pos0 + b->seq[s].n_row + KV_PAGE - 1) / KV_PAGE + 2);
    if (n_page > (1u << 26) || pages_room(d, words_before_tables(b->n_group) + (uint32_t)n_page)) {
        cuda_refuse(d, HEARTH_EINTERNAL, "block tables of %llu pages in one step", (unsigned long long)n_page);
        return false;
    }
    return true;
}

/* Fills in the sequences, their rows and block tables; sets d->decode and d->max_pos. */
static bool begin_seqs(struct device *d, step_dev *m, const struct batch *b)
{
    uint32_t at = 0;
    d->max_pos = 0;
    d->decode = true;
    for (uint32_t s = 0; s < b->n_seq; s++) {
        const struct batch_seq *q = &b->seq[s];
        if (q->row0 > b->n_row || q->n_row > b->n_row - q->row0) {
            cuda_refuse(d, HEARTH_EINTERNAL, "sequence %u has rows %u+%u of %u", s, q->row0, q->n_row, b->n_row);
            return false;
        }
        if (q->freq_set >= ROPE_SETS_MAX) {
            cuda_refuse(d, HEARTH_EPARAMS, "sequence %u turns by set %u of RoPE's frequencies", s, q->freq_set);
            return false;
        }
        m->row0[s] = q->row0, m->n_rows[s] = q->n_row, m->pos0[s] = q->pos0;
        m->freq_set[s] = q->freq_set;
        for (uint32_t i = 0; i < q->n_row; i++)
            m->pos[q->row0 + i] = q->pos0 + i, m->seq[q->row0 + i] = s;
        for (uint32_t g = 0; g < b->n_group; g++)
            at = begin_table(d, m, b, s, g, at);
        if (q->pos0 + q->n_row > d->max_pos)
            d->max_pos = q->pos0 + q->n_row;
        if (q->n_row != 1)
            d->decode = false;
    }
    d->rec->n_page = at;
    return true;
}

/* Chooses the path of the step's products, and with it the layout of its activations. */
static void choose_path(struct device *d, const struct batch *b, const struct program *p)
{
    d->invariant = b->invariant == INVARIANT_BATCH && !plan_is_dense(p) ? INVARIANT_DECODE : b->invariant;
    for (uint32_t g = 0; g < d->n_group && d->invariant == INVARIANT_PROMPT; g++)
        if (!attend_has_prompts(&d->kv[g]->desc))
            d->invariant = INVARIANT_DECODE;
    d->path = plan_step_path(d, p->model, b->n_row, d->decode, d->invariant);
    if (d->invariant == INVARIANT_PROMPT)
        d->decode = false; /* not captured: prompts have too many different row counts */
    bool many = d->invariant == INVARIANT_PROMPT || d->invariant == INVARIANT_BATCH;
    if (many && d->path == PATH_NONE)
        d->invariant = INVARIANT_DECODE; /* the path for many rows does not support this model's matrices */
    bool rows = d->path == PATH_CUBLASLT || d->path == PATH_CUBLASLT_CACHED; /* cuBLASLt reads row-major matrices */
    __half *att = d->ws.att.p, *ff = d->ws.ff.p;
    d->ws.att = rows ? act_row_major(att, pad256(d->ws.dims.d_q)) : act_prepared(att, d->ws.dims.d_q);
    d->ws.ff = rows ? act_row_major(ff, pad256(d->ws.dims.d_ff)) : act_prepared(ff, d->ws.dims.d_ff);
}

void metadata_begin(struct device *d, const struct batch *b, const struct program *p)
{
    struct step_rec *r = d->rec;
    r->eager = d->variant != VARIANT_GRAPH || b->once, r->sample = false;
    r->program = p;
    if (d->err.code || !has_room(d, b))
        return;
    memset(d->kv, 0, sizeof(d->kv));
    memcpy(d->kv, b->kv, b->n_group * sizeof(b->kv[0]));
    d->n_group = b->n_group;
    d->pages = tables_of(d->step, b->n_group);
    d->n_row = b->n_row, d->n_seq = b->n_seq, d->n_out = b->n_out;
    d->bucket = bucket_of(b->n_row), d->out_bucket = b->n_out ? bucket_of(b->n_out) : 0;
    step_dev *m = meta_of(d);
    d->host = m;
    m->n_row = b->n_row, m->n_seq = b->n_seq, m->n_out = b->n_out, m->n_sample = 0;
    if (!begin_seqs(d, m, b))
        return;
    choose_path(d, b, p);
    memcpy(m->token, b->token, b->n_row * 4ull);
    memcpy(m->out_row, b->out_row, b->n_out * 4ull);
    for (uint32_t i = b->n_row; i < d->bucket; i++) {
        m->token[i] = 0, m->pos[i] = 0, m->seq[i] = 0;
        for (uint32_t g = 0; g < b->n_group; g++)
            m->group[g].kv_slot[i] = NO_SLOT;
    }
    for (uint32_t i = b->n_out; i < d->out_bucket; i++)
        m->out_row[i] = 0;
    attend_cut(d, m);
    attend_reserve(d, m);
    set_widths(d, p);
}

void metadata_begin_sample(struct device *d, const struct batch_sample *op)
{
    struct step_rec *r = d->rec;
    if (d->err.code || !op->n)
        return;
    if (op->n > d->n_out) {
        cuda_refuse(d, HEARTH_EPARAMS, "%u rows to sample of %u out rows", op->n, d->n_out);
        return;
    }
    if (!sample_check(d, op, r->width[ACT_LOGITS]))
        return;
    step_dev *m = meta_of(d);
    uint32_t words = (r->width[ACT_LOGITS] + 31) / 32, n_mask = 0;
    for (uint32_t i = 0; op->mask && i < op->n; i++)
        n_mask += op->mask[i] != NULL;
    uint32_t *room = n_mask ? mask_room(d, op->n, words) : NULL;
    m->n_sample = op->n;
    for (uint32_t i = 0; i < op->n; i++) {
        m->slot[i] = op->slot[i], m->index[i] = op->index[i], m->mask[i] = NO_SLOT;
        if (room && op->mask[i]) {
            m->mask[i] = i;
            cuda_ok(d, cudaMemcpyAsync(room + (uint64_t)i * words, op->mask[i], words * 4ull, cudaMemcpyHostToDevice,
                                       d->stream));
        }
    }
    r->sample = true;
}

static void add_part(meta_parts *to, const step_dev *m, const void *array, uint32_t words)
{
    uint32_t i = to->n++;
    to->n_word += (words + 1) / 2;
    to->part[i] = {(uint32_t)(((const uint8_t *)array - (const uint8_t *)m) / 8), to->n_word};
}

static meta_parts parts_of(const struct device *d, const step_dev *m)
{
    meta_parts p = {};
    uint32_t tables = (uint32_t)(tables_of((step_dev *)m, d->n_group) - (const uint32_t *)&m->group[d->n_group]);
    add_part(&p, m, m, (uint32_t)(offsetof(step_dev, token) / 4));
    add_part(&p, m, m->token, d->bucket);
    add_part(&p, m, m->pos, d->bucket);
    add_part(&p, m, m->seq, d->bucket);
    if (d->out_bucket)
        add_part(&p, m, m->out_row, d->out_bucket);
    if (m->n_sample) {
        add_part(&p, m, m->slot, m->n_sample);
        add_part(&p, m, m->index, m->n_sample);
        add_part(&p, m, m->mask, m->n_sample);
    }
    for (uint32_t g = 0; g < d->n_group; g++)
        add_part(&p, m, &m->group[g], BATCH_SEQS_MAX + (d->kv[g]->desc.d_state ? 0 : d->bucket));
    add_part(&p, m, &m->group[d->n_group], tables + d->rec->n_page);
    return p;
}

/*
 * The metadata is passed as the arguments of a kernel, which the GPU fetches ahead of the kernel's start. Where it is
 * too long for that, a kernel reads it from pinned host memory, which takes 1.5 us more, or 9 us while KV pages are
 * being loaded. A copy engine would be worst: the copy would queue behind those pages (transfer.cu).
 */
void metadata_upload(struct device *d)
{
    struct step_rec *r = d->rec;
    step_dev *m = meta_of(d);
    m->ticket = r->ticket + 1;
    meta_parts parts = parts_of(d, m);
    dim3 grid((parts.n_word + 255) / 256);
    if (parts.n_word > r->arg_words_max) {
        cuda_launch(d, upload_pinned, grid, 256, 0, LAUNCH_PLAIN, (uint2 *)d->step, (const uint2 *)m, parts);
        return;
    }
    arg_words words;
    for (uint32_t i = 0, at = 0; i < parts.n; at = parts.part[i++].end)
        memcpy(words.w + at, (const uint2 *)m + parts.part[i].at, (parts.part[i].end - at) * sizeof(uint2));
    cuda_launch(d, upload_by_arg, grid, 256, 0, LAUNCH_PLAIN, (uint2 *)d->step, words, parts);
}
