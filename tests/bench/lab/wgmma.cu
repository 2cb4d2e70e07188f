/*
 * wgmma.cu - the laboratory of gemm/wgmma.cu: checks its products against double precision over types, shapes and
 * numbers of rows, then times whole steps at real shapes over random weights, and compares their logits with those of
 * the invariant mode.
 *
 *   nvcc -O3 -std=c++17 -I. -Ibuild -gencode arch=compute_90,code=sm_90 tests/bench/lab/wgmma.cu
 * build/kernels/libkernels.a ... -o lab
 *   lab check    lab whole SHAPE TYPE ROWS...      SHAPE = 8b, 1b or 1.5b; TYPE = Q4_K_M, or one for all matrices
 *   lab parts SHAPE TYPE ROWS...      by how much a step is shorter without one of its ops, in us per layer: a step of
 *                                     a prompt and, for up to 64 rows, one of so many sequences at position 512
 *   lab branches SHAPE TYPE DEPTH ROWS...   one token of each of so many sequences of DEPTH tokens: all the same except
 *                                     for the last page, each with pages of its own, and half of them one, half another
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/plan.cuh"
#include "tests/bench/lab/lab.cuh"

/* --- check ------------------------------------------------------------------------------------------------------ */

static void check_one(enum dtype t, uint32_t n_out, uint32_t n_in)
{
    uint64_t n = (uint64_t)n_out * n_in;
    uint8_t *raw = (uint8_t *)malloc(dtype_bytes(t, n) + 4);
    random_blocks(t, raw, n);
    const uint8_t *data[1] = {raw};
    struct weight w = make(WEIGHT_PROJ, n_in, 1, &t, &n_out, data);
    float *x = (float *)malloc(128ull * n_in * 4), *dx, *row = (float *)malloc(n_in * 4),
          *y = (float *)malloc(128ull * n_out * 4);
    for (uint64_t i = 0; i < 128ull * n_in; i++)
        x[i] = __half2float(__float2half(uniform() * 2));
    cudaMalloc((void **)&dx, 128ull * n_in * 4);
    cudaMemcpy(dx, x, 128ull * n_in * 4, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
    need(n_out, n_in, 64, n_in, 64, 128);
    act_buf &in = dev->ws.att;
    in = act_prepared(in.p, n_in);
    act_from_f32(dev, dx, n_in, &in, 0, 128);
    struct op op = {OP_PROJ};
    op.proj = {ACT_ATT, &w, NULL, NULL};
    static const uint32_t rows[] = {9, 17, 32, 33, 64, 96, 100, 128};
    double num = 0, den = 0, worst = 0;
    for (uint32_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        cudaMemsetAsync(dev->ws.x, 0, 128ull * dev->ws.ldx * 4, dev->stream);
        dev->bucket = rows[k], dev->pdl_chain = false;
        struct op_call c = {};
        c.path = PATH_WGMMA, c.bucket = rows[k];
        wg_proj(dev, &c, &op), plan_complete(dev, &c, ~0u);
        sync_or_die("wg_proj");
        cudaMemcpy2D(y, n_out * 4ull, dev->ws.x, dev->ws.ldx * 4ull, n_out * 4ull, 128, cudaMemcpyDeviceToHost);
        for (uint32_t i = 0; i < 40; i++) {
            uint32_t o = i < 20 ? i % n_out : i < 30 ? n_out - 1 - (i - 20) % n_out : rnd() % n_out;
            dtype_get(t)->to_f32(raw + o * dtype_bytes(t, n_in), row, n_in);
            for (uint32_t r = 0; r < rows[k]; r += r % 9 + 5) {
                double sum = 0, m = 0;
                for (uint32_t j = 0; j < n_in; j++)
                    sum += (double)row[j] * x[(uint64_t)r * n_in + j],
                        m += fabs((double)row[j] * x[(uint64_t)r * n_in + j]);
                double e = fabs(y[(uint64_t)r * n_out + o] - sum);
                num += e * e, den += sum * sum;
                if (!(e / m < worst))
                    worst = isnan(e) ? 1e9 : e / m;
            }
        }
    }
    double rel = sqrt(num / den);
    bool ok = rel < 5e-4;
    printf("%-5s %6u x %-6u relative error %.1e, worst %.1e of sum |w x|%s\n", dtype_get(t)->name, n_out, n_in, rel,
           worst, ok ? "" : "   FAILED");
    fflush(stdout);
    bad += !ok;
    bk->weight_free(dev, &w);
    cudaFree(dx);
    free(raw), free(x), free(row), free(y);
}

static void check(void)
{
    static const enum dtype types[] = {DT_Q4_K, DT_Q6_K, DT_Q5_K, DT_Q4_0, DT_Q8_0, DT_F16, DT_BF16};
    static const uint32_t shapes[][2] = {{512, 256},   {4096, 4096}, {4096, 14336}, {2048, 8192}, {1536, 8960},
                                         {1536, 1536}, {100, 768},   {28672, 4096}, {3072, 2048}};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (uint32_t j = 0; j < sizeof(shapes) / 8; j++)
            check_one(types[i], shapes[j][0], shapes[j][1]);
}

/* --- whole steps -------------------------------------------------------------------------------------------------- */

static float *vec(uint32_t n, float scale, float at)
{
    float *h = (float *)malloc(n * 4ull), *d;
    for (uint32_t i = 0; i < n; i++)
        h[i] = at + uniform() * scale;
    MUST(bk->vec_load(dev, h, n, &d, &err));
    free(h);
    return d;
}

struct model {
    const struct shape *s;
    struct weight *w;
    struct norm n;
    struct rope rp;
    float *bias;
    struct kv_pool *kv;
    uint32_t *pages, per_seq, pos0; /* pos0: of a step that decodes many sequences */
    uint32_t skip;                  /* a bit for each op of a layer that is left out */
    struct program program[16];     /* indexed by the ops that are left out; built at its first run */
};

static const struct program *program_for(struct model *m)
{
    const struct shape *s = m->s;
    struct program *p = &m->program[m->skip];
    if (p->n_op)
        return p;
    struct op_embed oe = {&m->w[4 * s->n_layer + 1], 1};
    program_embed(p, oe);
    for (uint32_t l = 0; l < s->n_layer; l++) {
        struct op_qkv oq = {l,       0,    s->n_head, s->n_kv, s->d_head, m->n,  &m->w[4 * l],
                            m->bias, NULL, NULL,      NULL,    false,     false, &m->rp};
        struct op_attend oa = {l, 0, s->n_head, s->n_kv, s->d_head, 0, 1 / sqrtf(s->d_head), 0};
        struct op_proj oo = {ACT_ATT, &m->w[4 * l + 1], NULL, NULL}, od = {ACT_FF, &m->w[4 * l + 3], NULL, NULL};
        struct op_ffn_up of = {m->n, &m->w[4 * l + 2], NULL, GLU_SWIGLU};
        if (!(m->skip & 1))
            program_qkv(p, oq);
        if (!(m->skip & 2))
            program_attend(p, oa);
        if (!(m->skip & 4))
            program_proj(p, oo);
        if (!(m->skip & 8))
            program_ffn_up(p, of), program_proj(p, od);
    }
    struct op_head oh = {m->n, &m->w[4 * s->n_layer], 1, 0};
    program_head(p, oh);
    return p;
}

/* Runs one step: n_seq sequences of `rows` rows each at pos0, with outputs for all rows or for each sequence's last.
 * Returns the ticket. */
static uint64_t step(struct model *m, uint32_t n_seq, uint32_t rows, uint32_t pos0, bool invariant)
{
    int32_t token[128];
    uint32_t out_row[128];
    struct batch_seq seq[128];
    for (uint32_t i = 0; i < n_seq * rows; i++)
        token[i] = (int32_t)(7 + (i * 31 + pos0 * 5) % 200);
    for (uint32_t i = 0; i < n_seq; i++) {
        seq[i] = {i * rows, rows, pos0, {m->pages + i * m->per_seq}};
        out_row[i] = (i + 1) * rows - 1;
    }
    struct batch b = {
        n_seq * rows, n_seq, n_seq, token, seq, out_row, {m->kv}, 1, invariant ? INVARIANT_DECODE : INVARIANT_OFF};
    return bk->step_run(dev, &b, program_for(m));
}

static double timed(struct model *m, uint32_t n_seq, uint32_t rows, bool invariant)
{
    enum { REPS = 24 };
    double ms[REPS];
    for (int i = 0; i < REPS; i++) {
        double t = now();
        uint64_t ticket = step(m, n_seq, rows, n_seq > 1 ? m->pos0 + i : 0, invariant);
        if (i == REPS - 1 && getenv("QUEUED"))
            printf("   queued in %.3f ms\n", (now() - t) * 1e3);
        MUST(bk->step_wait(dev, ticket, NULL, 0, &err));
        ms[i] = (now() - t) * 1e3;
    }
    qsort(ms + 4, REPS - 4, sizeof(double), by_size);
    return ms[4 + (REPS - 4) / 2];
}

/* How much is saved by leaving ops out; gate|up and down are left out together, as their kernels belong together. */
static void parts(struct model *m, uint32_t n_seq, uint32_t rows)
{
    static const char *const what[] = {"q|k|v", "attention", "O", "gate|up and down"};
    double all = timed(m, n_seq, rows, false);
    printf("%-4s %s %3u: %.3f ms", m->s->name, n_seq > 1 ? "decode of " : "prompt of ", n_seq * rows, all);
    for (int i = 0; i < 4; i++) {
        m->skip = 1u << i;
        printf(", %s %.1f", what[i], (all - timed(m, n_seq, rows, false)) * 1e3 / m->s->n_layer);
    }
    m->skip = 15;
    printf("; no layers %.3f ms\n", timed(m, n_seq, rows, false));
    fflush(stdout);
    m->skip = 0;
}

/* all: the type of every matrix; DT_COUNT is Q4_K_M's mix. n_page: pages of KV. */
static struct model model_of(const struct shape *s, enum dtype all, uint32_t n_page)
{
    enum dtype four = all == DT_COUNT ? DT_Q4_K : all, six = all == DT_COUNT ? DT_Q6_K : all;
    uint32_t d_q = s->n_head * s->d_head, d_kv = s->n_kv * s->d_head, L = s->n_layer;
    need(s->d_model, d_q, d_kv, s->d_ff, s->vocab, 128);
    uint64_t most = (uint64_t)s->vocab * s->d_model;
    uint8_t *q4 = (uint8_t *)malloc(dtype_bytes(four, (uint64_t)s->d_ff * s->d_model)),
            *q6 = (uint8_t *)malloc(dtype_bytes(six, most));
    random_blocks(four, q4, (uint64_t)s->d_ff * s->d_model);
    random_blocks(six, q6, most);
    struct model m = {s};
    m.w = (struct weight *)calloc(4 * L + 2, sizeof(*m.w));
    const uint8_t *data[3] = {q4, q4, q4};
    for (uint32_t l = 0; l < L; l++) {
        bool more = l < L / 8 || l >= 7 * L / 8 || (l - L / 8) % 3 == 2;
        enum dtype t[3] = {four, four, more ? six : four};
        uint32_t qkv[3] = {d_q, d_kv, d_kv}, ff[2] = {s->d_ff, s->d_ff};
        data[2] = more ? q6 : q4;
        m.w[4 * l] = make(WEIGHT_QKV, s->d_model, 3, t, qkv, data);
        m.w[4 * l + 1] = make(WEIGHT_PROJ, d_q, 1, t, &s->d_model, data);
        m.w[4 * l + 2] = make(WEIGHT_GATE_UP, s->d_model, 2, t, ff, data);
        m.w[4 * l + 3] = make(WEIGHT_PROJ, s->d_ff, 1, t + 2, &s->d_model, data + 2);
    }
    uint32_t few = 256;
    data[0] = q6;
    m.w[4 * L] = make(WEIGHT_HEAD, s->d_model, 1, &six, &s->vocab, data);
    m.w[4 * L + 1] = make(WEIGHT_EMBED, s->d_model, 1, &six, &few, data);
    sync_or_die("load");
    m.n = {NORM_RMS, 1e-5f, vec(s->d_model, 0.1f, 1), NULL};
    m.rp = {s->rope, s->d_head, vec(s->d_head / 2, 0.3f, 0.35f), 1};
    m.bias = s->rope == ROPE_NEOX ? vec(d_q + 2 * d_kv, 0.1f, 0) : NULL;
    struct kv_desc kd = {L, s->n_kv, s->d_head, s->d_head, 0, DT_F16, n_page};
    MUST(bk->kv_new(dev, &kd, &m.kv, &err));
    m.pages = (uint32_t *)malloc(n_page * 4ull);
    for (uint32_t i = 0; i < n_page; i++)
        m.pages[i] = i;
    free(q4), free(q6);
    return m;
}

static __global__ void noise(__half *to, uint64_t n)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = __float2half((float)((uint32_t)i * 2654435761u >> 20) / 2048 - 1);
}

/* Branches of a trunk, compared with as many sequences that have nothing in common. */
static void branches(const struct shape *s, enum dtype all, uint32_t depth, int n_rows, char **rows)
{
    enum { OWN = 4 /* pages after the trunk */ };
    uint32_t most = 0, trunk = depth / KV_PAGE;
    for (int k = 0; k < n_rows; k++)
        most = (uint32_t)atoi(rows[k]) > most ? (uint32_t)atoi(rows[k]) : most;
    struct model m = model_of(s, all, most * (trunk + OWN));
    noise<<<1024, 256>>>((__half *)m.kv->base, m.kv->page_bytes / 2 * m.kv->desc.n_page);
    sync_or_die("noise");
    m.per_seq = trunk + OWN, m.pos0 = trunk * KV_PAGE;
    static const char *const what[] = {"one trunk", "two trunks", "apart"};
    for (int k = 0; k < n_rows; k++) {
        uint32_t R = (uint32_t)atoi(rows[k]);
        for (uint32_t kind = 0; kind < 3; kind++) {
            for (uint32_t i = 0; i < R * m.per_seq; i++) {
                uint32_t seq = i / m.per_seq, of = kind == 0 ? 0 : kind == 1 ? seq % 2 : seq;
                m.pages[i] = (i % m.per_seq < trunk ? of : seq) * m.per_seq + i % m.per_seq;
            }
            double ms = timed(&m, R, 1, false);
            printf("%-4s %2u sequences at %u, %s: %.3f ms %6.0f tok/s\n", s->name, R, depth, what[kind], ms,
                   R * 1e3 / ms);
            fflush(stdout);
        }
    }
}

/* How far the logits of the last sequence in the fast mode are from those in the invariant mode, relative; *off: the
 * largest difference of a logit. */
static double apart(struct model *m, uint32_t n_seq, uint32_t rows, float *logits[2], double *off)
{
    double num = 0, den = 0;
    for (int inv = 0; inv < 2; inv++) {
        MUST(bk->step_wait(dev, step(m, n_seq, rows, n_seq > 1 ? m->pos0 : 0, inv), NULL, 0, &err));
        MUST(bk->act_read(dev, ACT_LOGITS, n_seq - 1, 1, logits[inv], &err));
    }
    *off = 0;
    for (uint32_t i = 0; i < m->s->vocab; i++) {
        double e = (double)logits[0][i] - logits[1][i];
        num += e * e, den += (double)logits[1][i] * logits[1][i], *off = fmax(*off, fabs(e));
    }
    return sqrt(num / den);
}

static void whole(const struct shape *s, enum dtype all, bool in_parts, int n_rows, char **rows)
{
    struct model m = model_of(s, all, 800 / KV_PAGE * 64);
    enum dtype four = all == DT_COUNT ? DT_Q4_K : all;
    m.per_seq = 800 / KV_PAGE, m.pos0 = 512;
    noise<<<1024, 256>>>((__half *)m.kv->base, m.kv->page_bytes / 2 * m.kv->desc.n_page);
    sync_or_die("noise");
    float *logits[2] = {(float *)malloc(s->vocab * 4ull), (float *)malloc(s->vocab * 4ull)};
    for (int k = 0; k < n_rows; k++) {
        uint32_t R = (uint32_t)atoi(rows[k]);
        if (in_parts) {
            parts(&m, 1, R);
            if (R > 1 && R <= 64)
                parts(&m, R, 1);
            continue;
        }
        double off, rel = apart(&m, 1, R, logits, &off);
        double a = timed(&m, 1, R, false), b = timed(&m, 1, R, true);
        printf("%-4s %s prompt of %3u: %.3f ms %6.0f tok/s, invariant %.3f ms; logits relative %.1e, most %.4f%s\n",
               s->name, dtype_get(four)->name, R, a, R * 1e3 / a, b, rel, off, rel < 5e-2 ? "" : "   FAILED");
        bad += !(rel < 5e-2);
        if (R <= 64) {
            rel = apart(&m, R, 1, logits, &off);
            a = timed(&m, R, 1, false), b = timed(&m, R, 1, true);
            printf(
                "%-4s %s decode of  %2u: %.3f ms %6.0f tok/s, invariant %.3f ms; logits relative %.1e, most %.4f%s\n",
                s->name, dtype_get(four)->name, R, a, R * 1e3 / a, b, rel, off, rel < 5e-2 ? "" : "   FAILED");
            bad += !(rel < 5e-2);
        }
        fflush(stdout);
    }
}

/* The type of that name, or DT_COUNT, for Q4_K_M, if the name is not a type's. */
static enum dtype type_of(const char *name)
{
    int t = 0;
    while (t < DT_COUNT && !(dtype_get(t) && dtype_get(t)->name && !strcmp(dtype_get(t)->name, name)))
        t++;
    return (enum dtype)t;
}

int main(int argc, char **argv)
{
    struct device_params p = {};
    p.variant = getenv("VARIANT");
    if (bk->open(&dev, &p, &err)) {
        printf("%s\n", err.msg);
        return 77;
    }
    if (argc > 4 && (!strcmp(argv[1], "whole") || !strcmp(argv[1], "parts"))) {
        for (uint32_t i = 0; i < 3; i++)
            if (!strcmp(shapes[i].name, argv[2]))
                whole(&shapes[i], type_of(argv[3]), argv[1][0] == 'p', argc - 4, argv + 4);
    } else if (argc > 5 && !strcmp(argv[1], "branches")) {
        for (uint32_t i = 0; i < 3; i++)
            if (!strcmp(shapes[i].name, argv[2]))
                branches(&shapes[i], type_of(argv[3]), (uint32_t)atoi(argv[4]), argc - 5, argv + 5);
    } else
        check();
    sync_or_die("end");
    bk->close(dev);
    if (bad)
        printf("%d FAILED\n", bad);
    return bad != 0;
}
