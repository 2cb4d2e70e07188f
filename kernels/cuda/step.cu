/*
 * step.cu - a step: its metadata, capture and replay of a program's launches, and its results.
 *
 * step_run sends the metadata and then runs the program's ops; a decode step (one row a sequence) of a program and
 * shape seen before is a captured graph, replayed by one call. So replay needs no cooperation of the ops, and nothing
 * runs before its metadata is there.
 *
 * Results come back through pinned memory that the last kernel writes, `ticket` last: step_wait polls, no call into the
 * runtime and no event. Up to MAX_IN_FLIGHT steps are in flight, each with its own metadata and result of the ring.
 * Thread: the engine's device thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/nvtx.cuh"
#include "kernels/cuda/plan.cuh"
extern "C" {
#include "kernels/staged.h"
}

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { SPINS = 1000 }; /* about 40 us of looking before step_wait sleeps between looks */

/* A shape of step that was run before, with its graph where it is a decode step. The grids of a decode step's launches
 * follow this much of it and no row count; what else they need they read from the metadata. */
struct shape {
    uint64_t program; /* its id */
    const struct kv_pool *kv[KV_GROUPS_MAX];
    uint32_t bucket, out_bucket, n_split;
    uint32_t mode;        /* decode, sample: bits; what bits may depend on, and the path; whether there are trunks */
    cudaGraphExec_t exec; /* NULL = run eagerly */
    uint32_t rows[DEVICE_PATHS]; /* that its products take by path, in the order of step_rec.path */
    uint64_t used;               /* ticket of the last use; 0 = empty */
};

struct step_rec {
    struct shape shape[GRAPHS_MAX];
    uint8_t *meta[RING];           /* pinned: step_dev, more of its groups, attention's words, then the block tables */
    uint32_t n_word;               /* behind step_dev in this step's metadata */
    uint32_t arg_words_max;        /* words of metadata that a launch may carry */
    struct result *ring;           /* pinned, [RING] */
    uint64_t ticket;               /* of the last step */
    uint64_t completed;            /* the latest ticket whose step was seen to be done */
    const struct program *program; /* of the step that is being run */
    bool sample, eager;
    struct path_rows path[DEVICE_PATHS]; /* [n_path], in all steps; of the one being run: */
    uint32_t rows[DEVICE_PATHS], n_path;
    uint64_t replays;
    uint32_t width[ACT_COUNT]; /* columns of the activations as the last step left them */
    struct staged *staged;     /* what act_write keeps for the next step */
    struct hearth_err
        failed[RING]; /* what was wrong with the step of that ticket: not the device's failure, the caller's */
};

/* n words from pinned memory, which every device sees at the host's address. */
static __global__ void upload_pinned(uint2 *dst, const uint2 *src, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        dst[i] = src[i];
}
static_assert(sizeof(step_dev) % 8 == 0, "fetch takes whole words");

/* n words out of the launch itself: 24 KB, where toolkit and driver know launches of more than 4. */
enum { ARG_DRIVER = 12010 };
struct arg_words {
    uint2 w[CUDART_VERSION >= ARG_DRIVER ? 3072 : 1];
};
static __global__ void upload_by_arg(uint2 *dst, const __grid_constant__ arg_words src, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        dst[i] = src.w[i];
}

static step_dev *meta_of(struct device *d)
{
    return (step_dev *)d->rec->meta[(d->rec->ticket + 1) % RING];
}

/* Room for n words behind step_dev. */
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
    step_drop_graphs(d);
    for (int i = 0; i < RING; i++) {
        uint8_t *m = NULL;
        if (!cuda_ok(d, cudaHostAlloc((void **)&m, sizeof(step_dev) + cap * 4ull, cudaHostAllocDefault)))
            return d->err.code;
        if (r->meta[i]) {
            memcpy(m, r->meta[i], sizeof(step_dev) + d->pages_cap * 4ull);
            cudaFreeHost(r->meta[i]);
        } else
            memset(m, 0, sizeof(step_dev));
        r->meta[i] = m;
    }
    cuda_free(d, d->step);
    if (!cuda_ok(d, cudaMalloc((void **)&d->step, sizeof(step_dev) + cap * 4ull)))
        return d->err.code;
    cuda_ok(d, cudaMemset(d->step, 0, sizeof(step_dev) + cap * 4ull));
    d->pages_cap = cap;
    return d->err.code;
}

void step_init(struct device *d)
{
    struct step_rec *r = (struct step_rec *)calloc(1, sizeof(*r));
    if (!r) {
        cuda_refuse(d, HEARTH_ENOMEM, "no memory for steps");
        return;
    }
    d->rec = r;
    prctl(PR_SET_TIMERSLACK, 1000); /* this thread's sleeps in step_wait are meant: 50 us is the default */
    if (!cuda_ok(d, cudaHostAlloc((void **)&r->ring, RING * sizeof(struct result), cudaHostAllocMapped)))
        return;
    memset(r->ring, 0, RING * sizeof(struct result));
    int driver = 0;
    cuda_ok(d, cudaDriverGetVersion(&driver));
    r->arg_words_max = driver >= ARG_DRIVER ? sizeof(arg_words) / sizeof(uint2) : 0;
    pages_room(d, 1);
}

void step_fini(struct device *d)
{
    struct step_rec *r = d->rec;
    if (!r)
        return;
    step_drop_graphs(d);
    for (int i = 0; i < RING; i++)
        cudaFreeHost(r->meta[i]);
    cudaFreeHost(r->ring);
    cudaFree(d->step);
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
            r->shape[i].exec = NULL; /* the row is taken again by a step that destroys what is there */
            r->shape[i].used = 0;
        }
}

int step_reserve(struct device *d, struct hearth_err *e)
{
    if (d->err.code && e)
        *e = d->err;
    return d->err.code;
}

/* The bucket of n rows: what grids and templates follow. Whole GEMM launches, then the smallest that takes the rest. */
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

/* Columns of the activations: as an op of the program leaves them, else as a test wrote them, else as reserved. */
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

/* The block tables of a step's metadata: behind its groups and attention's words. */
static uint32_t *tables_of(step_dev *m, uint32_t n_group)
{
    return (uint32_t *)(m->group + n_group) + attend_words();
}

/*
 * The group's part of sequence s: where its rows go, and its block table from word `at` on; returns the next. A group's
 * table begins with the chunk of attention that the first row's window begins in. The pages of that chunk before the
 * window are read and come to nothing (they are masked), so that they may be any of the sequence's own.
 */
static uint32_t begin_table(struct device *d, step_dev *m, const struct batch *b, uint32_t s, uint32_t group,
                            uint32_t at)
{
    const struct batch_seq *q = &b->seq[s];
    const uint32_t *from = q->pages[group];
    struct step_group *sg = &m->group[group];
    const struct kv_pool *pool = d->kv[group];
    if (pool->desc.d_state) { /* the page that is read, where one is, and the one that is written */
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

/* Takes the batch: checks it, chooses how the step goes, and fills in the metadata. */
static void begin(struct device *d, const struct batch *b, const struct program *p)
{
    struct step_rec *r = d->rec;
    r->eager = d->variant != VARIANT_GRAPH || b->once, r->sample = false;
    r->program = p;
    d->decode = true;
    if (d->err.code)
        return;
    if (!b->n_row || b->n_row > d->ws.dims.n_row || b->n_seq > BATCH_SEQS_MAX || b->n_out > d->ws.out_rows ||
        b->n_out > b->n_row) {
        cuda_refuse(d, HEARTH_EINTERNAL,
                    "step of %u rows, %u sequences, %u out rows: the workspace has room for %u, %d, %u", b->n_row,
                    b->n_seq, b->n_out, d->ws.dims.n_row, BATCH_SEQS_MAX, d->ws.out_rows);
        return;
    }
    if (!b->n_group || b->n_group > KV_GROUPS_MAX) {
        cuda_refuse(d, HEARTH_EINTERNAL, "step of %u layer groups, limit %d", b->n_group, KV_GROUPS_MAX);
        return;
    }
    uint64_t n_page = attend_words(), groups = (b->n_group - 1) * sizeof(struct step_group) / 4;
    for (uint32_t s = 0; s < b->n_seq; s++)
        n_page += b->n_group * (((uint64_t)b->seq[s].pos0 + b->seq[s].n_row + KV_PAGE - 1) / KV_PAGE + 2);
    if (n_page > (1u << 26) || pages_room(d, (uint32_t)(groups + n_page))) {
        cuda_refuse(d, HEARTH_EINTERNAL, "block tables of %llu pages in one step", (unsigned long long)n_page);
        return;
    }
    memset(d->kv, 0, sizeof(d->kv));
    memcpy(d->kv, b->kv, b->n_group * sizeof(b->kv[0]));
    d->n_group = b->n_group;
    d->pages = tables_of(d->step, b->n_group);
    d->n_row = b->n_row, d->n_seq = b->n_seq, d->n_out = b->n_out;
    d->bucket = bucket_of(b->n_row), d->out_bucket = b->n_out ? bucket_of(b->n_out) : 0;
    d->max_pos = 0;
    d->invariant = b->invariant == INVARIANT_PROMPT && !attend_has_prompts(d) ? INVARIANT_DECODE : b->invariant;
    step_dev *m = meta_of(d);
    d->host = m;
    uint32_t at = 0;
    m->n_row = b->n_row, m->n_seq = b->n_seq, m->n_out = b->n_out, m->n_sample = 0;
    for (uint32_t s = 0; s < b->n_seq; s++) {
        const struct batch_seq *q = &b->seq[s];
        uint32_t len = q->pos0 + q->n_row;
        if (q->row0 > b->n_row || q->n_row > b->n_row - q->row0) {
            cuda_refuse(d, HEARTH_EINTERNAL, "sequence %u has rows %u+%u of %u", s, q->row0, q->n_row, b->n_row);
            return;
        }
        if (q->freq_set >= ROPE_SETS_MAX) {
            cuda_refuse(d, HEARTH_EPARAMS, "sequence %u turns by set %u of RoPE's frequencies", s, q->freq_set);
            return;
        }
        m->row0[s] = q->row0, m->n_rows[s] = q->n_row, m->pos0[s] = q->pos0;
        m->freq_set[s] = q->freq_set;
        for (uint32_t i = 0; i < q->n_row; i++)
            m->pos[q->row0 + i] = q->pos0 + i, m->seq[q->row0 + i] = s;
        for (uint32_t g = 0; g < b->n_group; g++)
            at = begin_table(d, m, b, s, g, at);
        if (len > d->max_pos)
            d->max_pos = len;
        if (q->n_row != 1)
            d->decode = false;
    }
    d->path = plan_step_path(d, p->model, b->n_row, d->decode, d->invariant);
    if (d->invariant == INVARIANT_PROMPT) {
        d->decode = false; /* no graph of it: a prompt's rows are of any number */
        if (d->path == PATH_NONE)
            d->invariant = INVARIANT_DECODE; /* the model's matrices have one way alone */
    }
    bool rows = d->path == PATH_CUBLASLT || d->path == PATH_CUBLASLT_CACHED; /* the library reads plain rows */
    d->ws.att.layout = d->ws.ff.layout = rows ? LAYOUT_ROW_MAJOR : 0;
    d->ws.att.ld = rows ? pad256(d->ws.dims.d_q) : XFRAG_KBLK;
    d->ws.ff.ld = rows ? pad256(d->ws.dims.d_ff) : XFRAG_KBLK;
    r->n_word = (uint32_t)groups + attend_words() + at;
    memcpy(m->token, b->token, b->n_row * 4ull);
    memcpy(m->out_row, b->out_row, b->n_out * 4ull);
    uint32_t bucket = d->bucket < BATCH_ROWS_MAX ? d->bucket : BATCH_ROWS_MAX;
    for (uint32_t i = b->n_row; i < bucket; i++)
        m->token[i] = 0, m->pos[i] = 0, m->seq[i] = 0;
    for (uint32_t g = 0; g < b->n_group; g++)
        for (uint32_t i = b->n_row; i < bucket; i++)
            m->group[g].kv_slot[i] = NO_SLOT;
    for (uint32_t i = b->n_out; i < d->out_bucket; i++)
        m->out_row[i] = 0;
    attend_cut(d, m);
    attend_reserve(d, m);
    set_widths(d, p);
}

/* The metadata of what the step samples. */
static void begin_sample(struct device *d, const struct batch_sample *op)
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

/* --- what they do, in numbers ------------------------------------------------------------------------------- */

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
    d->pdl_chain = false; /* the first kernel waits for all of the metadata */
    memset(r->rows, 0, sizeof(r->rows));
    plan_run(d, r->program);
    if (r->sample)
        sample_run(d, d->out_bucket, r->width[ACT_LOGITS], r->ring);
    else
        done_run(d, r->ring);
}

/*
 * The metadata comes with a launch, which the GPU has fetched before its turn comes; where it is too long for that, by
 * the hand of a kernel that reads the host's memory, 1.5 us later, or 9 us while KV pages are on their way to the
 * device. A copy engine's hand would be the worst: it would queue there behind those pages (transfer.cu).
 */
static void upload_meta(struct device *d)
{
    struct step_rec *r = d->rec;
    step_dev *m = meta_of(d);
    m->ticket = r->ticket + 1;
    uint32_t n = (uint32_t)((sizeof(*m) + r->n_word * 4ull) / 8 + r->n_word % 2);
    dim3 grid((n + 255) / 256);
    if (n > r->arg_words_max) {
        cuda_launch(d, upload_pinned, grid, 256, 0, LAUNCH_PLAIN, (uint2 *)d->step, (const uint2 *)m, n);
        return;
    }
    arg_words words;
    memcpy(words.w, m, n * sizeof(uint2));
    cuda_launch(d, upload_by_arg, grid, 256, 0, LAUNCH_PLAIN, (uint2 *)d->step, words, n);
}

/* The table's row of this step's shape, made in the place of the least recently used where there is none. */
static struct shape *shape_of(struct device *d)
{
    struct step_rec *r = d->rec;
    uint32_t mode = (d->decode ? 1 : 0) | (r->sample ? 2 : 0) | (uint32_t)d->invariant << 2 | (uint32_t)d->path << 4 |
                    (attend_shares(d) ? 1u << 16 : 0);
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

/* Captures the step's ops as a graph. NULL where that failed without harm: the step then runs eagerly. */
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
    if (!d->err.code)
        cuda_ok(d, cudaGraphInstantiate(&exec, g, 0));
    cudaGraphDestroy(g);
    return exec;
}

/* Writes what is staged into the activations, in the form that this step has them. */
static void act_apply(struct device *d);

uint64_t step_run(struct device *d, const struct batch *b, const struct program *p)
{
    NVTX_RANGE("step submit");
    struct step_rec *r = d->rec;
    uint64_t ticket = r->ticket + 1;
    begin(d, b, p);
    begin_sample(d, &b->sample);
    act_apply(d);
    staged_free(&r->staged);
    if (!d->err.code) {
        struct shape *s = shape_of(d);
        s->used = ticket;
        if (!r->eager && d->decode && !s->exec) {
            s->exec = capture(d);
            memcpy(s->rows, r->rows, sizeof(s->rows));
        }
        upload_meta(d);
        if (!r->eager && s->exec) {
            cuda_ok(d, cudaGraphLaunch(s->exec, d->stream));
            memcpy(r->rows, s->rows, sizeof(s->rows));
            r->replays++;
        } else
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

int step_failed(struct device *d, struct hearth_err *e)
{
    struct hearth_err *mine = &d->rec->failed[d->rec->ticket % RING];
    int rc = mine->code;
    if (rc && e)
        *e = *mine;
    mine->code = 0;
    return rc;
}

int step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    struct result *res = &d->rec->ring[ticket % RING];
    struct timespec pause = {0, 10000};
    struct hearth_err *mine = &d->rec->failed[ticket % RING];
    if (mine->code) {
        int rc = mine->code;
        if (e)
            *e = *mine;
        mine->code = 0;
        return rc;
    }
    for (uint64_t spin = 0; !d->err.code && __atomic_load_n(&res->ticket, __ATOMIC_ACQUIRE) < ticket; spin++) {
        if (spin < SPINS) {
#ifdef __x86_64__
            __builtin_ia32_pause();
#endif
            continue;
        }
        /* A kernel that failed never writes its ticket: ask now and then. */
        if (spin % 256 == 0) {
            cudaError_t rc = cudaStreamQuery(d->stream);
            if (rc == cudaSuccess && __atomic_load_n(&res->ticket, __ATOMIC_ACQUIRE) < ticket)
                cuda_refuse(d, HEARTH_EDEVICE, "GPU %d (%s): step %llu ended without a result", d->index, d->name,
                            (unsigned long long)ticket);
            else if (rc != cudaSuccess && rc != cudaErrorNotReady)
                cuda_ok(d, rc);
        }
        nanosleep(&pause, NULL);
    }
    if (d->err.code) {
        if (e)
            *e = d->err;
        return d->err.code;
    }
    if (ticket > d->rec->completed)
        d->rec->completed = ticket;
    if (n)
        memcpy(out, (const void *)res->out, n * sizeof(*out));
    return 0;
}

/* --- activations for tests and eval ---------------------------------------------------------------------------- */

static uint32_t act_rows(const struct device *d, enum act a)
{
    return a == ACT_LOGITS ? d->ws.out_rows : d->ws.rows;
}

/* f32 rows that lie in device memory as they are; NULL for the fp16 forms. */
static float *act_f32(struct device *d, enum act a, uint32_t *ld)
{
    const struct workspace *w = &d->ws;
    const uint32_t *width = d->rec->width;
    const uint32_t lds[ACT_COUNT] = {
        w->ldx, 0, 0, 0, w->ldl, width[ACT_ROUTE], width[ACT_EXPERTS], w->ldmix, w->ldx, width[ACT_INPUTS]};
    float *const at[ACT_COUNT] = {
        w->x,   NULL,           NULL,           NULL, w->logits, w->experts.route, w->experts.hidden,
        w->mix, d->apart.aside, d->apart.inputs};
    *ld = lds[a];
    return at[a];
}

static act_buf act_f16(struct device *d, enum act a)
{
    act_buf q = {d->ws.q, d->ws.ldq, 1};
    return a == ACT_Q ? q : a == ACT_ATT ? d->ws.att : a == ACT_LATENT ? d->apart.latent : d->ws.ff;
}

static int act_check(struct device *d, enum act a, uint32_t row0, uint32_t n_row, struct hearth_err *e)
{
    if (a < 0 || a >= ACT_COUNT || row0 > act_rows(d, a) || n_row > act_rows(d, a) - row0)
        return err_set(e, HEARTH_EPARAMS, "activation %d has no rows %u+%u", (int)a, row0, n_row);
    return 0;
}

int act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    uint32_t ld, w = d->rec->width[a];
    int rc = act_check(d, a, row0, n_row, e);
    if (rc)
        return rc;
    const float *src = act_f32(d, a, &ld);
    if (src)
        src += (uint64_t)row0 * ld;
    else {
        act_buf b = act_f16(d, a);
        src = d->ws.tmp, ld = w;
        act_to_f32(d, &b, w, d->ws.tmp, row0, n_row);
    }
    cuda_ok(d, cudaMemcpy2DAsync(out, w * 4ull, src, ld * 4ull, w * 4ull, n_row, cudaMemcpyDeviceToHost, d->stream));
    cuda_ok(d, cudaStreamSynchronize(d->stream));
    if (d->err.code && e)
        *e = d->err;
    return d->err.code;
}

int act_write(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
              struct hearth_err *e)
{
    return staged_add(&d->rec->staged, a, row0, n_row, n_col, in, e);
}

static void apply(struct device *d, const struct staged *s)
{
    struct hearth_err e;
    uint32_t ld, w = s->n_col,
                 most[ACT_COUNT] = {d->ws.ldx,          d->ws.ldq,           d->ws.dims.d_q,       d->ws.dims.d_ff,
                                    d->ws.ldl,          d->ws.dims.d_route,  d->ws.dims.d_experts, d->ws.dims.d_mix,
                                    d->ws.dims.d_aside, d->ws.dims.d_inputs, d->ws.dims.d_latent};
    if (w > most[s->act] || act_check(d, s->act, s->row0, s->n_row, &e)) {
        cuda_refuse(d, HEARTH_EPARAMS, "rows %u+%u of %u columns of activation %d: the workspace has not so many",
                    s->row0, s->n_row, w, (int)s->act);
        return;
    }
    if (s->act == ACT_MIX)
        d->mix_cols = w;
    float *f32 = act_f32(d, s->act, &ld), *dst = f32 ? f32 + (uint64_t)s->row0 * ld : d->ws.tmp;
    if (!f32)
        ld = w;
    cuda_ok(d,
            cudaMemcpy2DAsync(dst, ld * 4ull, s->v, w * 4ull, w * 4ull, s->n_row, cudaMemcpyHostToDevice, d->stream));
    if (!f32) {
        act_buf b = act_f16(d, s->act);
        act_from_f32(d, d->ws.tmp, w, &b, s->row0, s->n_row);
    }
    cuda_ok(d, cudaStreamSynchronize(d->stream));
}

static void act_apply(struct device *d)
{
    struct step_rec *r = d->rec;
    for (const struct staged *s = r->staged; s && !d->err.code; s = s->next)
        apply(d, s);
}
