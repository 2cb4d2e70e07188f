/*
 * gemm.cu - the laboratory of the decode GEMM: checks its numerics against double precision, then times whole decode
 * steps at real shapes over distinct random weights, through the backend's own function table (graph, PDL, attention
 * and sampling included).
 *
 *   nvcc -O3 -std=c++17 -I. -Ibuild -gencode arch=compute_90,code=sm_90 tests/bench/lab/gemm.cu
 *       build/kernels/libkernels.a ... -o lab
 *
 *   lab check [TYPE...]               every type x shapes x rows against double precision on the host, and the bits of
 *                                     a single row against those in all other batches
 *   lab ops                           q|k|v, gate|up and head against the plain kernels of gemm/ref.cu
 *   lab step SHAPE CONTEXT ROWS...    decode steps, SHAPE = 8b, 1b or 1.5b: of 160 from CONTEXT on, the median of 120
 *   lab invariant SHAPE CONTEXT ROWS... likewise in the invariant mode: the logits of row 0 are the same for all ROWS
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/plan.cuh"
#include "tests/bench/lab/lab.cuh"

#include <strings.h>

/* Computes rows [row0, row0 + n) of an op with this launcher, on the path that a step would take. */
static void call(op_run *run, const struct op *op, uint32_t row0, uint32_t n)
{
    struct op_call c = {};
    bool gemv = paths_for_rows(n, dev->invariant) & PATH_BIT(PATH_GEMV) && gemv_takes(dev, op);
    c.row0 = row0, c.bucket = n, c.path = gemv ? PATH_GEMV : PATH_SKINNY;
    run(dev, &c, op);
}

/* --- check ------------------------------------------------------------------------------------------------------ */

static const uint32_t caps[] = {1, 2, 4, 8, 16, 24, 32, 48, 64};

static void check_one(enum dtype t, uint32_t n_out, uint32_t n_in)
{
    uint64_t n = (uint64_t)n_out * n_in;
    uint8_t *raw = (uint8_t *)malloc(dtype_bytes(t, n) + 4);
    random_blocks(t, raw, n);
    const uint8_t *data[1] = {raw};
    struct weight w = make(WEIGHT_PROJ, n_in, 1, &t, &n_out, data);
    float *x = (float *)malloc(64ull * n_in * 4), *dx, *row = (float *)malloc(n_in * 4),
          *y = (float *)malloc(64ull * n_out * 4), *y1 = (float *)malloc(64ull * n_out * 4);
    for (uint64_t i = 0; i < 64ull * n_in; i++)
        x[i] = __half2float(__float2half(uniform() * 2));
    cudaMalloc((void **)&dx, 64ull * n_in * 4);
    cudaMemcpy(dx, x, 64ull * n_in * 4, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize(); /* a pageable copy may still be in progress, and the device's stream does not wait for it
                              */
    need(n_out, n_in, 64, n_in, 64, 64);
    act_buf &in = dev->ws.att;
    in = act_prepared(in.p, n_in);
    cudaMemsetAsync(in.p, 0, xfrag_halves(n_in, 64) * 2, dev->stream);
    act_from_f32(dev, dx, n_in, &in, 0, 64);
    struct op op = {OP_PROJ};
    op.proj = {ACT_ATT, &w, NULL, NULL};
    /* the invariant mode: one body for any number of rows; then the results of each body, in y1 and y */
    uint32_t differ = 0;
    for (int body = 0; body < 2; body++)
        for (uint32_t i = body ? 3 : 0; i < sizeof(caps) / 4; i++) {
            dev->invariant = body ? INVARIANT_OFF : INVARIANT_DECODE;
            cudaMemsetAsync(dev->ws.x, 0, 64ull * dev->ws.ldx * 4, dev->stream);
            if (caps[i] == 1)
                for (uint32_t r = 0; r < 64; r++) {
                    dev->pdl_chain = false;
                    call(gemm_proj, &op, r, 1);
                }
            else
                call(gemm_proj, &op, 0, caps[i]);
            sync_or_die("gemm_proj");
            cudaMemcpy2D(caps[i] == 1 ? y1 : y, n_out * 4ull, dev->ws.x, dev->ws.ldx * 4ull, n_out * 4ull, 64,
                         cudaMemcpyDeviceToHost);
            for (uint32_t r = 0; !body && caps[i] > 1 && r < caps[i]; r++)
                differ += memcmp(y + (uint64_t)r * n_out, y1 + (uint64_t)r * n_out, n_out * 4ull) != 0;
        }
    dev->invariant = INVARIANT_OFF;
    double num[2] = {0, 0}, den = 0, worst[2] = {0, 0};
    for (uint32_t k = 0; k < 97; k++) {
        uint32_t o = k < 32 ? k % n_out : k < 48 ? n_out - 1 - (k - 32) % n_out : rnd() % n_out;
        dtype_get(t)->to_f32(raw + o * dtype_bytes(t, n_in), row, n_in);
        for (uint32_t r = 0; r < 64; r += 7) {
            double s = 0, m = 0;
            for (uint32_t i = 0; i < n_in; i++)
                s += (double)row[i] * x[(uint64_t)r * n_in + i], m += fabs((double)row[i] * x[(uint64_t)r * n_in + i]);
            den += s * s;
            for (int body = 0; body < 2; body++) {
                double e = fabs((body ? y : y1)[(uint64_t)r * n_out + o] - s);
                num[body] += e * e;
                if (!(e / m < worst[body]))
                    worst[body] = isnan(e) ? 1e9 : e / m;
            }
        }
    }
    double rel = sqrt(num[0] / den), rel_wide = sqrt(num[1] / den);
    /* 16-bit integers: uniform elements are rounded by 2^-15 / sqrt(12) of the greatest */
    bool few = t != DT_F16 && t != DT_BF16 && t != DT_F32;
    bool ok = rel < (few ? 3e-5 : 3e-6) && worst[0] < 1e-5 && rel_wide < 3e-6 && worst[1] < 1e-5 && !differ;
    /* fp16 rows, read back from the tiles: the file's value rounded once */
    __half *back;
    uint32_t ld = (n_in + 7) & ~7u, wrong = 0, rows = n_out < 4096 ? n_out : 4096;
    cudaMalloc((void **)&back, (uint64_t)rows * ld * 2);
    unpack_f16(dev, wdev_of(&w), n_out - rows, rows, back, ld);
    sync_or_die("unpack");
    __half *hb = (__half *)malloc((uint64_t)rows * ld * 2);
    cudaMemcpy(hb, back, (uint64_t)rows * ld * 2, cudaMemcpyDeviceToHost);
    for (uint32_t o = 0; o<rows; o += rows> 500 ? 7 : 1) {
        dtype_get(t)->to_f32(raw + (n_out - rows + o) * dtype_bytes(t, n_in), row, n_in);
        for (uint32_t i = 0; i < n_in; i++)
            wrong += half_bits(row[i]) != half_bits(__half2float(hb[(uint64_t)o * ld + i]));
    }
    ok = ok && !wrong;
    printf("%-5s %6u x %-6u relative error %.1e and %.1e, worst %.1e and %.1e of sum |w x|; rows that differ by batch "
           "%u; unpacked wrong %u%s\n",
           dtype_get(t)->name, n_out, n_in, rel, rel_wide, worst[0], worst[1], differ, wrong, ok ? "" : "   FAILED");
    fflush(stdout);
    bad += !ok;
    bk->weight_free(dev, &w);
    cudaFree(dx), cudaFree(back);
    free(raw), free(x), free(row), free(y), free(y1), free(hb);
}

static void check(int n_name, char **names)
{
    static const enum dtype types[] = {DT_Q4_K, DT_Q6_K, DT_Q5_K, DT_Q8_0, DT_Q4_0, DT_F16, DT_BF16, DT_F32};
    static const uint32_t shapes[][2] = {{4096, 4096}, {4096, 14336}, {2048, 8192}, {1536, 8960}, {1536, 1536},
                                         {896, 896},   {512, 256},    {100, 768},   {16, 2048},   {1001, 5632}};
    for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (uint32_t j = 0; j < sizeof(shapes) / 8; j++)
            if (shapes[j][1] % dtype_get(types[i])->block_len == 0 && (i < 2 || j != 1)) {
                bool wanted = !n_name;
                for (int k = 0; k < n_name; k++)
                    wanted = wanted || !strcasecmp(names[k], dtype_get(types[i])->name);
                if (wanted)
                    check_one(types[i], shapes[j][0], shapes[j][1]);
            }
}

/* --- ops -------------------------------------------------------------------------------------------------------- */

static double distance(const float *a, const float *b, uint64_t n)
{
    double num = 0, den = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (isnan(a[i]) || isnan(b[i]))
            return 1e9;
        num += ((double)a[i] - b[i]) * ((double)a[i] - b[i]), den += (double)b[i] * b[i];
    }
    return sqrt(num / (den + 1e-30));
}

static float *vec(uint32_t n, float scale, float at)
{
    float *h = (float *)malloc(n * 4ull), *d;
    for (uint32_t i = 0; i < n; i++)
        h[i] = at + uniform() * scale;
    MUST(bk->vec_load(dev, h, n, &d, &err));
    free(h);
    return d;
}

static void put_x(uint32_t d_model)
{
    float *h = (float *)malloc(64ull * d_model * 4), *dst = dev->ws.x;
    seed = 4711;
    for (uint64_t i = 0; i < 64ull * d_model; i++)
        h[i] = uniform() * 3;
    cudaMemcpy2D(dst, dev->ws.ldx * 4ull, h, d_model * 4ull, d_model * 4ull, 64, cudaMemcpyHostToDevice);
    free(h);
}

static float *halves(const __half *d, uint64_t n)
{
    __half *h = (__half *)malloc(n * 2);
    float *f = (float *)malloc(n * 4);
    cudaMemcpy(h, d, n * 2, cudaMemcpyDeviceToHost);
    for (uint64_t i = 0; i < n; i++)
        f[i] = __half2float(h[i]);
    free(h);
    return f;
}

/* Runs one op both ways with several batches, and compares its outputs: q then KV; ff; logits. */
static void ops_one(const char *name, uint32_t d_model, uint32_t n_head, uint32_t n_kv, uint32_t d_head,
                    enum rope_kind rope, bool qk_norm, enum dtype t, enum dtype tv, enum norm_kind nk,
                    enum glu_kind glu, uint32_t d_ff)
{
    uint32_t d_q = n_head * d_head, d_kv = n_kv * d_head, outs[3] = {d_q, d_kv, d_kv}, ffs[2] = {d_ff, d_ff},
             vocab = 1000;
    enum dtype types[3] = {t, t, tv};
    uint8_t *raw[6];
    uint32_t rows[6] = {d_q, d_kv, d_kv, d_ff, d_ff, vocab};
    for (int i = 0; i < 6; i++) {
        enum dtype ti = i == 2 ? tv : t;
        raw[i] = (uint8_t *)malloc(dtype_bytes(ti, (uint64_t)rows[i] * d_model) + 4);
        random_blocks(ti, raw[i], (uint64_t)rows[i] * d_model);
    }
    struct weight w[2][3];
    for (int ref = 0; ref < 2; ref++) {
        dev->reference = ref;
        w[ref][0] = make(WEIGHT_QKV, d_model, 3, types, outs, (const uint8_t *const *)raw);
        w[ref][1] = make(WEIGHT_GATE_UP, d_model, glu == GLU_GELU ? 1 : 2, types, ffs, (const uint8_t *const *)raw + 3);
        w[ref][2] = make(WEIGHT_HEAD, d_model, 1, types, &vocab, (const uint8_t *const *)raw + 5);
    }
    dev->reference = false;
    need(d_model, d_q, d_kv, d_ff, vocab, 64);
    dev->ws.ff = act_prepared(dev->ws.ff.p, d_ff);
    struct kv_desc kd = {1, n_kv, d_head, d_head, 0, DT_F16, 8};
    struct kv_pool *kv;
    MUST(bk->kv_new(dev, &kd, &kv, &err));
    dev->kv[0] = kv, dev->n_group = 1;
    step_dev *m = (step_dev *)calloc(1, sizeof(*m));
    for (uint32_t i = 0; i < 64; i++)
        m->pos[i] = i * 37 + 5, m->group[0].kv_slot[i] = i, m->out_row[i] = i;
    cudaMemcpy(dev->step, m, sizeof(*m), cudaMemcpyHostToDevice);
    struct norm n = {nk, 1e-5f, vec(d_model, 0.2f, 1), nk == NORM_LAYER ? vec(d_model, 0.1f, 0) : NULL};
    struct norm qn = {NORM_RMS, 1e-6f, vec(d_head, 0.2f, 1), NULL};
    struct rope rp = {rope, d_head, vec(d_head / 2, 0.3f, 0.35f), 1};
    struct op_qkv oq = {0,
                        0,
                        n_head,
                        n_kv,
                        d_head,
                        n,
                        NULL,
                        vec(d_q + 2 * d_kv, 0.3f, 0),
                        qk_norm ? &qn : NULL,
                        qk_norm ? &qn : NULL,
                        NULL,
                        false,
                        false,
                        &rp};
    struct op_ffn_up of = {n, NULL, vec(2 * d_ff, 0.3f, 0), glu};
    struct op_head oh = {n, NULL, 1, 30};
    uint64_t nq = 64ull * dev->ws.ldq, nkv = kv_page_bytes(&kd) / 2 * 4, nff = xfrag_halves(d_ff, 64),
             nl = 64ull * dev->ws.ldl;
    float *first[4] = {0};
    printf("%-34s", name);
    bool ok = true;
    dev->invariant = INVARIANT_DECODE;
    for (int pass = 0; pass < 5; pass++) { /* the reference, then 64, 1, 8, 24 rows per launch */
        uint32_t bucket = pass == 0 || pass == 1 ? 64 : pass == 2 ? 1 : pass == 3 ? 8 : 24, ref = pass == 0;
        put_x(d_model);
        cudaMemset(dev->ws.q, 0, nq * 2), cudaMemset(kv->base, 0, nkv * 2), cudaMemset(dev->ws.ff.p, 0, nff * 2),
            cudaMemset(dev->ws.logits, 0, nl * 4);
        cudaDeviceSynchronize(); /* the device's stream does not wait for these copies */
        oq.w = &w[ref][0], of.w = &w[ref][1], oh.w = &w[ref][2];
        for (uint32_t r = 0; r < 64; r += bucket) {
            uint32_t c = 64 - r < bucket ? 16 : bucket;
            dev->pdl_chain = false;
            struct op q = {OP_QKV}, f = {OP_FFN_UP}, h = {OP_HEAD};
            q.qkv = oq, f.ffn_up = of, h.head = oh;
            call(ref ? ref_qkv : gemm_qkv, &q, r, c), call(ref ? ref_ffn_up : gemm_ffn_up, &f, r, c),
                call(ref ? ref_head : gemm_head, &h, r, c);
        }
        sync_or_die(name);
        float *now[4] = {halves(dev->ws.q, nq), halves((__half *)kv->base, nkv), halves(dev->ws.ff.p, nff),
                         (float *)malloc(nl * 4)};
        cudaMemcpy(now[3], dev->ws.logits, nl * 4, cudaMemcpyDeviceToHost);
        for (uint64_t i = 0; i < nff; i++) /* the path for few rows leaves the sums out */
            if (i % XFRAG_KBLK >= XFRAG_SUM)
                now[2][i] = 0;
        for (int i = 0; i < 4; i++) {
            uint64_t len = i == 0 ? nq : i == 1 ? nkv : i == 2 ? nff : nl;
            if (pass == 0 || pass == 1) {
                if (pass == 1) {
                    double e = distance(now[i], first[i], len);
                    printf(" %.1e", e);
                    ok = ok && e < 2e-3;
                    free(first[i]);
                }
                first[i] = now[i];
            } else {
                if (memcmp(now[i], first[i], len * 4)) {
                    uint64_t at = 0;
                    while (!memcmp(now[i] + at, first[i] + at, 4))
                        at++;
                    printf(" [%d: batch %u differs at %llu: %g, %g]", i, bucket, (unsigned long long)at, now[i][at],
                           first[i][at]);
                    ok = false;
                }
                free(now[i]);
            }
        }
    }
    dev->invariant = INVARIANT_OFF;
    printf("%s\n", ok ? "" : "   FAILED");
    fflush(stdout);
    bad += !ok;
    for (int i = 0; i < 4; i++)
        free(first[i]);
    for (int ref = 0; ref < 2; ref++)
        for (int i = 0; i < 3; i++)
            bk->weight_free(dev, &w[ref][i]);
    for (int i = 0; i < 6; i++)
        free(raw[i]);
    dev->kv[0] = NULL;
    bk->kv_free(dev, kv);
    free(m);
}

static void ops(void)
{
    ops_one("8B layer, Q4_K + Q6_K v", 4096, 32, 8, 128, ROPE_NORM, false, DT_Q4_K, DT_Q6_K, NORM_RMS, GLU_SWIGLU,
            14336);
    ops_one("1B layer, Q4_K", 2048, 32, 8, 64, ROPE_NORM, false, DT_Q4_K, DT_Q4_K, NORM_RMS, GLU_SWIGLU, 8192);
    ops_one("1.5B layer, NEOX", 1536, 12, 2, 128, ROPE_NEOX, false, DT_Q4_K, DT_Q6_K, NORM_RMS, GLU_SWIGLU, 8960);
    ops_one("0.5B layer, NEOX, Q8_0", 896, 14, 2, 64, ROPE_NEOX, false, DT_Q8_0, DT_Q8_0, NORM_RMS, GLU_SWIGLU, 4864);
    ops_one("q/k norm, GeGLU, Q5_K + Q6_K", 1024, 8, 4, 128, ROPE_NEOX, true, DT_Q5_K, DT_Q6_K, NORM_RMS, GLU_GEGLU,
            3072);
    ops_one("LayerNorm, GELU, F16", 384, 6, 2, 64, ROPE_NEOX, false, DT_F16, DT_F16, NORM_LAYER, GLU_GELU, 1536);
    ops_one("heads of 80, Q4_0 + Q8_0", 640, 8, 8, 80, ROPE_NORM, false, DT_Q4_0, DT_Q8_0, NORM_RMS, GLU_SWIGLU, 1728);
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

static void step(const struct shape *s, enum invariance how, uint32_t context, int n_rows, char **rows)
{
    uint32_t d_q = s->n_head * s->d_head, d_kv = s->n_kv * s->d_head, L = s->n_layer;
    need(s->d_model, d_q, d_kv, s->d_ff, s->vocab, 64);
    uint64_t most = (uint64_t)s->vocab * s->d_model;
    uint8_t *q4 = (uint8_t *)malloc(dtype_bytes(DT_Q4_K, (uint64_t)s->d_ff * s->d_model)),
            *q6 = (uint8_t *)malloc(dtype_bytes(DT_Q6_K, most));
    random_blocks(DT_Q4_K, q4, (uint64_t)s->d_ff * s->d_model);
    random_blocks(DT_Q6_K, q6, most);
    uint8_t *emb = (uint8_t *)malloc(dtype_bytes(DT_Q6_K, 256ull * s->d_model));
    memcpy(emb, q6, dtype_bytes(DT_Q6_K, 256ull * s->d_model));
    struct weight *w = (struct weight *)calloc(4 * L + 2, sizeof(*w));
    const uint8_t *data[3] = {q4, q4, q4};
    double t0 = now(), bytes = 0;
    for (uint32_t l = 0; l < L; l++) {
        bool more = l < L / 8 || l >= 7 * L / 8 || (l - L / 8) % 3 == 2;
        enum dtype t[3] = {DT_Q4_K, DT_Q4_K, more ? DT_Q6_K : DT_Q4_K};
        uint32_t qkv[3] = {d_q, d_kv, d_kv}, ff[2] = {s->d_ff, s->d_ff};
        data[2] = more ? q6 : q4;
        w[4 * l] = make(WEIGHT_QKV, s->d_model, 3, t, qkv, data);
        w[4 * l + 1] = make(WEIGHT_PROJ, d_q, 1, t, &s->d_model, data);
        w[4 * l + 2] = make(WEIGHT_GATE_UP, s->d_model, 2, t, ff, data);
        w[4 * l + 3] = make(WEIGHT_PROJ, s->d_ff, 1, t + 2, &s->d_model, data + 2);
        for (int i = 0; i < 4; i++)
            bytes += wdev_of(&w[4 * l + i])->packed_bytes;
    }
    enum dtype t6 = DT_Q6_K;
    uint32_t few = 256;
    data[0] = q6;
    w[4 * L] = make(WEIGHT_HEAD, s->d_model, 1, &t6, &s->vocab, data);
    bytes += wdev_of(&w[4 * L])->packed_bytes;
    data[0] = emb;
    w[4 * L + 1] = make(WEIGHT_EMBED, s->d_model, 1, &t6, &few, data);
    sync_or_die("load");
    printf("%s: %.3f GB a step, %.0f ms to load; roofline at 3.12 TB/s %.0f steps/s\n", s->name, bytes / 1e9,
           (now() - t0) * 1e3, 3.12e12 / bytes);
    struct norm n = {NORM_RMS, 1e-5f, vec(s->d_model, 0.1f, 1), NULL};
    struct rope rp = {s->rope, s->d_head, vec(s->d_head / 2, 0.3f, 0.35f), 1};
    float *bias = s->rope == ROPE_NEOX ? vec(d_q + 2 * d_kv, 0.1f, 0) : NULL;
    uint32_t most_rows = 1;
    for (int i = 0; i < n_rows; i++)
        most_rows = (uint32_t)atoi(rows[i]) > most_rows ? (uint32_t)atoi(rows[i]) : most_rows;
    uint32_t per_seq = (context + 1200) / KV_PAGE;
    struct kv_desc kd = {L, s->n_kv, s->d_head, s->d_head, 0, DT_F16, per_seq * most_rows};
    struct kv_pool *kv;
    MUST(bk->kv_new(dev, &kd, &kv, &err));
    uint32_t *pages = (uint32_t *)malloc(per_seq * most_rows * 4ull);
    for (uint32_t i = 0; i < per_seq * most_rows; i++)
        pages[i] = i;
    struct program prog = {};
    struct op_embed oe = {&w[4 * L + 1], 1};
    program_embed(&prog, oe);
    for (uint32_t l = 0; l < L; l++) {
        struct op_qkv oq = {l,    0,    s->n_head, s->n_kv, s->d_head, n,     &w[4 * l],
                            bias, NULL, NULL,      NULL,    false,     false, &rp};
        struct op_attend oa = {l, 0, s->n_head, s->n_kv, s->d_head, 0, 1 / sqrtf((float)s->d_head), 0};
        struct op_proj oo = {ACT_ATT, &w[4 * l + 1], NULL, NULL}, od = {ACT_FF, &w[4 * l + 3], NULL, NULL};
        struct op_ffn_up of = {n, &w[4 * l + 2], NULL, GLU_SWIGLU};
        program_qkv(&prog, oq), program_attend(&prog, oa), program_proj(&prog, oo), program_ffn_up(&prog, of),
            program_proj(&prog, od);
    }
    struct op_head oh = {n, &w[4 * L], 1, 0};
    program_head(&prog, oh);
    for (int k = 0; k < n_rows; k++) {
        uint32_t R = (uint32_t)atoi(rows[k]), slot[64], index[64], out_row[64];
        int32_t token[64];
        struct batch_seq seq[64];
        struct sample_params sp = {};
        sp.top_p = 1, sp.rep_penalty = 1;
        for (uint32_t r = 0; r < R; r++) {
            int32_t h = 1;
            slot[r] = out_row[r] = r, token[r] = 7 + r, index[r] = 0;
            MUST(bk->slot_set(dev, r, &sp, &h, 1, s->vocab, &err));
        }
        enum { STEPS = 160 };
        double ms[STEPS];
        uint64_t ticket[STEPS];
        struct sampled out[64];
        double last = 0;
        uint32_t hash = 0;
        for (int i = 0; i < STEPS; i++) {
            for (uint32_t r = 0; r < R; r++)
                seq[r] = {r, 1, context + i, {pages + r * per_seq}};
            struct batch b = {R, R, R, token, seq, out_row, {kv}, 1, how};
            b.sample = {R, slot, index, NULL};
            ticket[i] = bk->step_run(dev, &b, &prog);
            if (i >= 2) {
                MUST(bk->step_wait(dev, ticket[i - 2], out, R, &err));
                double t = now();
                ms[i] = (t - last) * 1e3, last = t;
                hash = hash * 31 + out[0].token;
            }
            for (uint32_t r = 0; r < R; r++)
                index[r]++, token[r] = 7 + (i * 5 + r) % 200;
        }
        MUST(bk->step_wait(dev, ticket[STEPS - 2], out, R, &err));
        MUST(bk->step_wait(dev, ticket[STEPS - 1], out, R, &err));
        qsort(ms + 40, STEPS - 40, sizeof(double), by_size);
        double m = ms[40 + (STEPS - 40) / 2];
        /* the last step's logits depend on every earlier step through KV: a change that must not affect the bits keeps
         * these */
        float *logits = (float *)malloc(s->vocab * 4ull);
        MUST(bk->act_read(dev, ACT_LOGITS, 0, 1, logits, &err));
        uint64_t bits = 1469598103934665603ull;
        uint32_t nans = 0;
        for (uint32_t i = 0; i < s->vocab; i++) {
            uint32_t word;
            memcpy(&word, logits + i, 4);
            bits = (bits ^ word) * 1099511628211ull, nans += logits[i] != logits[i];
        }
        free(logits);
        printf("  %s context %u rows %-2u  %.3f ms  %6.0f steps/s  %7.0f tok/s  %.1f %% of the weights' roofline  "
               "(hash %08x, logits %016llx%s)\n",
               s->name, context, R, m, 1e3 / m, R * 1e3 / m, 100 * bytes / 3.12e9 / m, hash, (unsigned long long)bits,
               nans ? ", NaN" : "");
        bad += nans != 0;
        fflush(stdout);
    }
    sync_or_die("steps");
    for (uint32_t i = 0; i < 4 * L + 2; i++)
        bk->weight_free(dev, &w[i]);
    bk->kv_free(dev, kv);
    free(w), free(q4), free(q6), free(emb), free(pages);
}

int main(int argc, char **argv)
{
    struct device_params p = {};
    p.variant = getenv("VARIANT");
    if (bk->open(&dev, &p, &err)) {
        printf("%s\n", err.msg);
        return 77;
    }
    const char *what = argc > 1 ? argv[1] : "check";
    if (!strcmp(what, "check"))
        check(argc - 2, argv + 2);
    else if (!strcmp(what, "ops"))
        ops();
    else if (argc > 4)
        for (uint32_t i = 0; i < 3; i++)
            if (!strcmp(shapes[i].name, argv[2]))
                step(&shapes[i], strcmp(what, "invariant") ? INVARIANT_OFF : INVARIANT_DECODE, (uint32_t)atoi(argv[3]),
                     argc - 4, argv + 4);
    bk->close(dev);
    if (bad)
        printf("%d FAILED\n", bad);
    return bad != 0;
}
