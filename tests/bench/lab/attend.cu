/*
 * attend.cu - the laboratory of attention: checks both kernels against double precision, over head sizes, groups,
 * windows and lengths around the boundaries of pages and chunks, and one row per sequence bit-exactly in a batch of its
 * own against a batch in the invariant mode; or times layers of attention in a graph over distinct random KV.
 *
 *   nvcc -O3 -std=c++17 -I. -Ibuild -gencode arch=compute_90,code=sm_90 tests/bench/lab/attend.cu
 *       build/kernels/libkernels.a ... -o lab
 *   lab check
 *   lab time N_HEAD N_KV D_HEAD CONTEXT ROWS...
 *   lab runs N_HEAD N_KV D_HEAD CONTEXT ROWS...    rows of one sequence, outside the invariant mode and in it
 *   lab times [1b | 1.5b]    the contexts and batches of NOTES.md's table, heads of 8B or these
 */
#include "tests/bench/lab/lab.cuh"

struct heads {
    const char *name;
    uint32_t n_head, n_kv, d, window;
    float softcap;
};
static const struct heads cases[] = {
    {"8B", 32, 8, 128, 0, 0},          {"1B", 32, 8, 64, 0, 0},
    {"1.5B", 12, 2, 128, 0, 0},        {"no groups", 4, 4, 64, 0, 0},
    {"group of 7", 14, 2, 128, 0, 0},  {"group of 16", 16, 1, 128, 0, 0},
    {"window 300", 8, 4, 128, 300, 0}, {"window 17, softcap", 8, 4, 64, 17, 30},
    {"heads of 80", 16, 2, 80, 0, 0},  {"heads of 96", 6, 2, 96, 0, 50},
    {"heads of 256", 4, 2, 256, 0, 0}, {"group of 3", 9, 3, 96, 512, 0},
};
static const uint32_t lengths[] = {1, 15, 16, 17, 255, 256, 257, 271, 512, 513, 1000, 2048, 4096, 4097, 5000};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* --- check ------------------------------------------------------------------------------------------------------ */

struct fix {
    const struct heads *c;
    struct kv_pool *kv;
    __half *host; /* the pool's one layer */
    uint32_t *table[LENGTHS];
    __half *q; /* [LENGTHS][n_head * d] */
};

/* Runs a step with only this op. */
static void run_once(struct batch *b, struct op_attend op)
{
    struct program p = {};
    program_attend(&p, op);
    b->once = true;
    MUST(bk->step_wait(dev, bk->step_run(dev, b, &p), NULL, 0, &err));
    program_free(&p);
}

/* Attention of rows [from, from + n) of the fixture in one step. */
static void run(const struct fix *f, uint32_t from, uint32_t n, bool invariant, float *out)
{
    const struct heads *c = f->c;
    uint32_t d_q = c->n_head * c->d, out_row[LENGTHS];
    const workspace *ws = &dev->ws;
    int32_t token[LENGTHS];
    struct batch_seq seq[LENGTHS];
    for (uint32_t i = 0; i < n; i++)
        seq[i] = {i, 1, lengths[from + i] - 1, {f->table[from + i]}}, token[i] = 0, out_row[i] = i;
    struct batch b = {n, n, n, token, seq, out_row, {f->kv}, 1, invariant ? INVARIANT_DECODE : INVARIANT_OFF};
    struct op_attend op = {0, 0, c->n_head, c->n_kv, c->d, c->window, 1 / sqrtf((float)c->d), c->softcap};
    cudaMemcpy2D(ws->q, ws->ldq * 2, f->q + (uint64_t)from * d_q, d_q * 2, d_q * 2, n, cudaMemcpyHostToDevice);
    cudaMemset(ws->att.p, 0xff, xfrag_halves(d_q, 64) * 2); /* NaN remains where nothing is written */
    cudaDeviceSynchronize();                                /* the backend's stream does not wait for the default one */
    run_once(&b, op);
    MUST(bk->act_read(dev, ACT_ATT, 0, n, out, &err));
}

/* The error of one head of the row with queries q that sees the first `len` tokens of table `row`. */
static double exact(const struct fix *f, uint32_t row, uint32_t len, const __half *q, uint32_t head, const float *got)
{
    const struct heads *c = f->c;
    uint32_t lo = c->window && len > c->window ? len - c->window : 0;
    double *s = (double *)malloc(len * 8), top = -1e300, sum = 0, e = 0, all = 0;
    uint64_t half = (uint64_t)c->n_kv * KV_PAGE * c->d, at = (uint64_t)(head / (c->n_head / c->n_kv)) * KV_PAGE * c->d;
    for (uint32_t t = lo; t < len; t++) {
        const __half *k = f->host + f->table[row][t / KV_PAGE] * 2 * half + at + t % KV_PAGE * c->d;
        s[t] = 0;
        for (uint32_t i = 0; i < c->d; i++)
            s[t] += (double)__half2float(q[i]) * __half2float(k[i]);
        s[t] /= sqrt((double)c->d);
        if (c->softcap != 0)
            s[t] = c->softcap * tanh(s[t] / c->softcap);
        top = s[t] > top ? s[t] : top;
    }
    for (uint32_t t = lo; t < len; t++)
        sum += s[t] = exp(s[t] - top);
    for (uint32_t i = 0; i < c->d; i++) {
        double y = 0;
        for (uint32_t t = lo; t < len; t++)
            y += s[t] *
                 __half2float(f->host[f->table[row][t / KV_PAGE] * 2 * half + half + at + t % KV_PAGE * c->d + i]);
        y /= sum;
        e += (y - got[i]) * (y - got[i]), all += y * y;
    }
    free(s);
    return sqrt(e / all);
}

/* Runs of rows, which use the other kernel, and end where a length does. */
static const struct {
    uint32_t length, rows; /* index into lengths */
} runs[] = {{10, 40}, {6, 130}, {14, 33}, {13, 17}};
enum { RUNS = 4, RUN_ROWS = 220 };

static double check_runs(const struct fix *f)
{
    const struct heads *c = f->c;
    const workspace *ws = &dev->ws;
    uint32_t d_q = c->n_head * c->d, row = 0, out_row[1] = {0};
    int32_t token[RUN_ROWS] = {};
    struct batch_seq seq[RUNS];
    __half *q = (__half *)malloc(RUN_ROWS * d_q * 2ull);
    float *out = (float *)malloc(RUN_ROWS * d_q * 4ull);
    for (uint64_t i = 0; i < RUN_ROWS * (uint64_t)d_q; i++)
        q[i] = __float2half(uniform() * 3);
    for (int i = 0; i < RUNS; i++) {
        uint32_t n = runs[i].rows, len = lengths[runs[i].length];
        seq[i] = {row, n, len - n, {f->table[runs[i].length]}}, row += n;
    }
    struct batch b = {row, RUNS, 0, token, seq, out_row, {f->kv}, 1, INVARIANT_OFF};
    struct op_attend op = {0, 0, c->n_head, c->n_kv, c->d, c->window, 1 / sqrtf((float)c->d), c->softcap};
    cudaMemcpy2D(ws->q, ws->ldq * 2, q, d_q * 2, d_q * 2, row, cudaMemcpyHostToDevice);
    cudaMemset(ws->att.p, 0xff, xfrag_halves(d_q, 64) * 2);
    cudaDeviceSynchronize();
    run_once(&b, op);
    MUST(bk->act_read(dev, ACT_ATT, 0, row, out, &err));
    double worst = 0;
    for (int i = 0; i < RUNS; i++)
        for (uint32_t r = 0; r < seq[i].n_row; r += r + 8 < seq[i].n_row ? 7 : 1)
            for (uint32_t h = r % c->n_head; h < c->n_head; h += 11) {
                uint64_t o = ((uint64_t)(seq[i].row0 + r) * c->n_head + h) * c->d;
                double e = exact(f, runs[i].length, seq[i].pos0 + r + 1, q + o, h, out + o);
                worst = !(e <= worst) ? e : worst;
            }
    free(q), free(out);
    return worst;
}

static void check_one(const struct heads *c)
{
    uint32_t n_page = 0, d_q = c->n_head * c->d, at = 0;
    for (int i = 0; i < LENGTHS; i++)
        n_page += (lengths[i] + KV_PAGE - 1) / KV_PAGE;
    n_page += 64; /* pages of no sequence, filled with NaN */
    struct fix f = {c};
    struct workspace_dims w = {256, d_q, c->n_kv * c->d, 256, 256, 256, 64};
    MUST(bk->reserve(dev, &w, &err));
    struct kv_desc kd = {1, c->n_kv, c->d, c->d, 0, DT_F16, n_page};
    MUST(bk->kv_new(dev, &kd, &f.kv, &err));
    uint64_t per_page = f.kv->page_bytes / 2, half = per_page / 2;
    f.host = (__half *)malloc(n_page * per_page * 2);
    uint32_t *order = (uint32_t *)malloc(n_page * 4);
    for (uint32_t i = 0; i < n_page; i++)
        order[i] = i;
    for (uint32_t i = n_page - 1; i; i--) {
        uint32_t k = rnd() % (i + 1), o = order[i];
        order[i] = order[k], order[k] = o;
    }
    for (uint64_t i = 0; i < n_page * per_page; i++)
        f.host[i] = __float2half(NAN);
    for (int i = 0; i < LENGTHS; i++) {
        uint32_t n = (lengths[i] + KV_PAGE - 1) / KV_PAGE;
        f.table[i] = order + at, at += n;
        for (uint32_t p = 0; p < n; p++)
            for (uint64_t k = 0; k < per_page; k++)
                f.host[f.table[i][p] * per_page + k] = __float2half(uniform() * (k < half ? 1.5f : 1.f));
    }
    cudaDeviceSynchronize();
    cudaMemcpy(f.kv->base, f.host, n_page * per_page * 2, cudaMemcpyHostToDevice);
    f.q = (__half *)malloc(LENGTHS * d_q * 2ull);
    for (uint64_t i = 0; i < LENGTHS * (uint64_t)d_q; i++)
        f.q[i] = __float2half(uniform() * 3);
    float *got[2];
    for (int i = 0; i < 2; i++)
        got[i] = (float *)malloc(LENGTHS * d_q * 4ull);
    printf("%-20s", c->name);
    double worst = 0;
    for (int invariant = 0; invariant < 2; invariant++) {
        run(&f, 0, LENGTHS, invariant, got[0]);
        for (uint32_t r = 0; r < LENGTHS; r++)
            for (uint32_t h = invariant; h < c->n_head; h += 3) {
                uint64_t o = ((uint64_t)r * c->n_head + h) * c->d;
                double e = exact(&f, r, lengths[r], f.q + o, h, got[0] + o);
                worst = !(e <= worst) ? e : worst; /* NaN is kept */
            }
    }
    double rows = check_runs(&f);
    bool ok = worst < 2e-3 && rows < 2e-3;
    uint32_t alone = 0;
    for (uint32_t r = 0; r < LENGTHS; r++) {
        uint64_t o = (uint64_t)r * d_q;
        for (int k = 0; k < 4; k++) { /* a race would give different results */
            run(&f, r, 1, false, got[1]);
            alone += memcmp(got[0] + o, got[1], d_q * 4) != 0;
        }
    }
    ok = ok && !alone;
    printf("  error %.1e, runs of rows %.1e, rows that differ alone: %u of %d%s\n", worst, rows, alone, 4 * LENGTHS,
           ok ? "" : "   FAILED");
    fflush(stdout);
    bad += !ok;
    for (int i = 0; i < 2; i++)
        free(got[i]);
    dev->kv[0] = NULL;
    bk->kv_free(dev, f.kv);
    free(f.host), free(f.q), free(order);
}

/* --- time ------------------------------------------------------------------------------------------------------- */

enum { MOST = 512 };

static void fill_random(void *p, uint64_t bytes)
{
    uint64_t n = 8 << 20;
    __half *h = (__half *)malloc(n);
    for (uint64_t i = 0; i < n / 2; i++)
        h[i] = __float2half(uniform());
    for (uint64_t at = 0; at < bytes; at += n)
        cudaMemcpy((char *)p + at, h, bytes - at < n ? bytes - at : n, cudaMemcpyHostToDevice);
    free(h);
}

/* Microseconds per layer, for steps that are only attention; run: rows of one sequence. */
static double time_steps(const struct heads *c, struct kv_pool *kv, uint32_t layers, uint32_t context, uint32_t rows,
                         uint32_t *pages, uint32_t per_seq, bool run, bool invariant)
{
    enum { STEPS = 24 };
    uint32_t out_row[MOST] = {}, n_seq = run ? 1 : rows;
    int32_t token[MOST] = {};
    struct batch_seq seq[MOST];
    double ms[STEPS], last = 0;
    for (uint32_t r = 0; r < n_seq; r++)
        seq[r] = {r, rows / n_seq, context, {pages + r * per_seq}}, out_row[r] = r;
    struct program p = {};
    for (uint32_t l = 0; l < layers; l++) {
        struct op_attend op = {l % kv->desc.n_layer, 0, c->n_head, c->n_kv, c->d, 0, 1 / sqrtf((float)c->d), 0};
        program_attend(&p, op);
    }
    for (int i = 0; i < STEPS; i++) {
        struct batch b = {
            rows, n_seq, n_seq, token, seq, out_row, {kv}, 1, invariant ? INVARIANT_DECODE : INVARIANT_OFF};
        MUST(bk->step_wait(dev, bk->step_run(dev, &b, &p), NULL, 0, &err));
        double n = now();
        ms[i] = (n - last) * 1e3, last = n;
    }
    program_free(&p);
    qsort(ms + 4, STEPS - 4, sizeof(double), by_size);
    return ms[4 + (STEPS - 4) / 2];
}

static void time_one(const struct heads *c, uint32_t context, int n, char **list, bool run)
{
    uint32_t most = 1, layers = 32;
    for (int i = 0; i < n; i++)
        most = (uint32_t)atoi(list[i]) > most ? (uint32_t)atoi(list[i]) : most;
    uint32_t seqs = run ? 1 : most, per_seq = (context + (run ? most : 1) + KV_PAGE - 1) / KV_PAGE;
    uint32_t in_pool = seqs * (uint64_t)context > 100000 ? 4 : layers; /* a few GB at most, and more than L2 */
    struct workspace_dims w = {256, c->n_head * c->d, c->n_kv * c->d, 256, 256, MOST, 64};
    MUST(bk->reserve(dev, &w, &err));
    struct kv_desc kd = {in_pool, c->n_kv, c->d, c->d, 0, DT_F16, per_seq * seqs};
    struct kv_pool *kv;
    MUST(bk->kv_new(dev, &kd, &kv, &err));
    cudaDeviceSynchronize();
    fill_random(kv->base, kv->page_bytes * kd.n_page);
    uint32_t *pages = (uint32_t *)malloc(kd.n_page * 4);
    for (uint32_t i = 0; i < kd.n_page; i++)
        pages[i] = i;
    for (int i = 0; i < n; i++) {
        uint32_t rows = (uint32_t)atoi(list[i]);
        double us[2], floor_us = 4.0 * (run ? 1 : rows) * (context + 1) * c->n_kv * c->d / 3.12e6;
        for (int inv = 0; inv < (run ? 2 : 1); inv++)
            us[inv] = (time_steps(c, kv, layers, context, rows, pages, per_seq, run, inv) -
                       time_steps(c, kv, 0, context, rows, pages, per_seq, run, inv)) *
                      1e3 / layers;
        if (run) {
            printf("attend %u/%u of %u, context %u, run of %u: %.1f us a layer, invariant %.1f\n", c->n_head, c->n_kv,
                   c->d, context, rows, us[0], us[1]);
            continue;
        }
        printf("attend %u/%u of %u, context %u, rows %u: %.1f us a layer; bytes alone %.1f at 3.12 TB/s\n", c->n_head,
               c->n_kv, c->d, context, rows, us[0], floor_us);
        fflush(stdout);
    }
    dev->kv[0] = NULL;
    bk->kv_free(dev, kv);
    free(pages);
}

int main(int argc, char **argv)
{
    struct device_params p = {};
    p.variant = getenv("VARIANT");
    if (bk->open(&dev, &p, &err)) {
        printf("%s\n", err.msg);
        return 77;
    }
    if (argc > 6 && (!strcmp(argv[1], "time") || !strcmp(argv[1], "runs"))) {
        struct heads c = {"", (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]), 0, 0};
        time_one(&c, (uint32_t)atoi(argv[5]), argc - 6, argv + 6, argv[1][0] == 'r');
    } else if (argc > 1 && !strcmp(argv[1], "times")) {
        const struct heads *c = &cases[argc < 3 ? 0 : !strcmp(argv[2], "1b") ? 1 : 2];
        static const struct {
            uint32_t context;
            int n;
            const char *rows[2];
        } table[] = {{528, 2, {"8", "16"}}, {528, 2, {"32", "64"}}, {10, 2, {"1", "8"}}, {256, 1, {"1"}},
                     {1000, 1, {"1"}},      {4096, 2, {"1", "8"}},  {4096, 1, {"64"}},   {12288, 1, {"1"}}};
        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
            time_one(c, table[i].context, table[i].n, (char **)table[i].rows, false);
    } else
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            check_one(&cases[i]);
    bk->close(dev);
    if (bad)
        printf("%d FAILED\n", bad);
    return bad != 0;
}
