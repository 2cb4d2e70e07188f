/* tuned-vec.h - the tuned norms, activations, recurrences and attention. Part of tuned.h; tile() is in tuned-dot.h. */

/* --- vectors ------------------------------------------------------------------------------------------------ */

/* min and max return their second operand where either is NaN, so that NaN stays NaN, as in elem_exp. */
VFN v16 v16_exp(v16 x)
{
    v16 magic = v16_set1(FM_MAGIC), one = v16_set1(1.0f);
    v16 c = v16_max(v16_set1(FM_EXP_LO), v16_min(v16_set1(FM_EXP_HI), x));
    v16 t = v16_fma(c, v16_set1(FM_LOG2E), magic);
    v16 n = v16_sub(t, magic);
    v16 r = v16_fma(n, v16_set1(-FM_LN2_LO), v16_fma(n, v16_set1(-FM_LN2_HI), c));
    v16 p = v16_fma(v16_set1(FM_EXP_C6), r, v16_set1(FM_EXP_C5));
    p = v16_fma(p, r, v16_set1(FM_EXP_C4));
    p = v16_fma(p, r, v16_set1(FM_EXP_C3));
    p = v16_fma(p, r, v16_set1(FM_EXP_C2));
    p = v16_fma(v16_fma(p, r, one), r, one);
    return v16_zero_below(x, v16_set1(FM_EXP_LO), v16_mul(p, v16_pow2(t)));
}

VFN v16 v16_sigmoid(v16 x)
{
    v16 one = v16_set1(1.0f);
    return v16_div(one, v16_add(one, v16_exp(v16_sub(v16_set1(0.0f), x))));
}

VFN v16 v16_gelu(v16 x)
{
    v16 c = v16_set1(1.5957691216f);
    v16 u = v16_mul(v16_fma(v16_mul(x, x), v16_set1(0.044715f * 1.5957691216f), c), x);
    return v16_mul(x, v16_sigmoid(u));
}

VFN v16 v16_softcap(v16 x, float cap)
{
    v16 one = v16_set1(1.0f), two = v16_set1(2.0f), c = v16_set1(cap), u = v16_div(x, c);
    return v16_mul(c, v16_sub(one, v16_div(two, v16_add(v16_exp(v16_add(u, u)), one))));
}

TARGET static void TUNED(norm)(const struct norm *p, const float *x, uint32_t n, float *y, size_t ystride)
{
    uint32_t whole = n / LANES * LANES;
    float s[LANES], mean = 0.0f;
    v16 acc = v16_set1(0.0f);
    if (p->kind == NORM_LAYER) {
        for (uint32_t i = 0; i < whole; i += LANES)
            acc = v16_add(acc, v16_load(x + i));
        v16_store(s, acc);
        for (uint32_t i = whole; i < n; i++)
            s[i % LANES] += x[i];
        mean = lanes_sum(s) / (float)n;
    }
    v16 vmean = v16_set1(mean);
    acc = v16_set1(0.0f);
    for (uint32_t i = 0; i < whole; i += LANES) {
        v16 c = v16_sub(v16_load(x + i), vmean);
        acc = v16_fma(c, c, acc);
    }
    v16_store(s, acc);
    for (uint32_t i = whole; i < n; i++)
        s[i % LANES] = fmaf(x[i] - mean, x[i] - mean, s[i % LANES]);
    float inv = 1.0f / sqrtf(lanes_sum(s) / (float)n + p->eps);
    v16 vinv = v16_set1(inv);
    for (uint32_t i = 0; i < whole; i += LANES) {
        v16 v = v16_mul(v16_mul(v16_sub(v16_load(x + i), vmean), vinv), v16_load(p->w + i));
        v16_store(y + i / KB * ystride + i % KB, p->b ? v16_add(v, v16_load(p->b + i)) : v);
    }
    for (uint32_t i = whole; i < n; i++) {
        float v = (x[i] - mean) * inv * p->w[i];
        y[i / KB * ystride + i % KB] = p->b ? v + p->b[i] : v;
    }
}

VFN v16 v16_oai(v16 gate, v16 up)
{
    v16 g = v16_min(v16_set1(7.0f), gate), u = v16_max(v16_set1(-7.0f), v16_min(v16_set1(7.0f), up));
    return v16_mul(v16_mul(g, v16_sigmoid(v16_mul(v16_set1(1.702f), g))), v16_add(u, v16_set1(1.0f)));
}

TARGET static void TUNED(glu)(enum glu_kind kind, const float *gate, const float *up, float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v16 u = v16_load(up + i), v;
        if (kind == GLU_GELU) {
            v = v16_gelu(u);
        } else if (kind == GLU_RELU2) {
            v = v16_max(v16_set1(0.0f), u);
            v = v16_mul(v, v);
        } else if (kind == GLU_OAI) {
            v = v16_oai(v16_load(gate + i), u);
        } else {
            v16 g = v16_load(gate + i);
            v = v16_mul(kind == GLU_SWIGLU ? v16_mul(g, v16_sigmoid(g)) : v16_gelu(g), u);
        }
        v16_store(y + i, v);
    }
    for (; i < n; i++)
        y[i] = elem_glu(kind, glu_gated(kind) ? gate[i] : 0.0f, up[i]);
}

TARGET static void TUNED(softcap)(float *x, uint32_t n, float cap)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v16_store(x + i, v16_softcap(v16_load(x + i), cap));
    for (; i < n; i++)
        x[i] = elem_softcap(x[i], cap);
}

TARGET static void TUNED(exp)(const float *x, float sub, float div, float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v16_store(y + i, v16_exp(v16_div(v16_sub(v16_load(x + i), v16_set1(sub)), v16_set1(div))));
    for (; i < n; i++)
        y[i] = elem_exp((x[i] - sub) / div);
}

TARGET static void TUNED(f16)(const float *x, uint16_t *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v16_store_f16(y + i, v16_load(x + i));
    for (; i < n; i++)
        y[i] = f16_of_f32(x[i]);
}

TARGET static void TUNED(rope)(enum rope_kind kind, const float *cs, uint32_t n_rot, float *v, uint32_t n_head,
                               uint32_t d_head)
{
    elem_rope(kind, cs, n_rot, v, n_head, d_head);
}

/* --- recurrences -------------------------------------------------------------------------------------------- */

/* Columns of a state that are computed together, in vectors: enough independent sums to hide an addition's latency. */
enum { STATE_VECS = NV == 1 ? 4 : 2 };

/* elem_delta on n vectors of columns. S * keep is computed twice instead of being stored in between. */
VFN void delta_cols(float *s, uint32_t d_k, uint32_t d_v, int n, const float *q, const float *k, const float *v,
                    float keep, float beta, float *y)
{
    v16 change[STATE_VECS], sum[STATE_VECS], stays = v16_set1(keep);
    float *row = s;
#pragma GCC unroll 4
    for (int e = 0; e < n; e++)
        change[e] = sum[e] = v16_set1(0.0f);
    for (uint32_t i = 0; i < d_k; i++, row += d_v) {
        v16 by = v16_set1(k[i]);
#pragma GCC unroll 4
        for (int e = 0; e < n; e++)
            change[e] = v16_add(change[e], v16_mul(v16_mul(v16_load(row + e * LANES), stays), by));
    }
#pragma GCC unroll 4
    for (int e = 0; e < n; e++)
        change[e] = v16_mul(v16_sub(v16_load(v + e * LANES), change[e]), v16_set1(beta));
    row = s;
    for (uint32_t i = 0; i < d_k; i++, row += d_v) {
        v16 by = v16_set1(k[i]), of = v16_set1(q[i]);
#pragma GCC unroll 4
        for (int e = 0; e < n; e++) {
            v16 now = v16_add(v16_mul(v16_load(row + e * LANES), stays), v16_mul(by, change[e]));
            v16_store(row + e * LANES, now);
            sum[e] = v16_add(sum[e], v16_mul(now, of));
        }
    }
#pragma GCC unroll 4
    for (int e = 0; e < n; e++)
        v16_store(y + e * LANES, sum[e]);
}

TARGET static void TUNED(delta)(float *s, uint32_t d_k, uint32_t d_v, const float *q, const float *k, const float *v,
                                float keep, float beta, float *y)
{
    uint32_t j = 0;
    for (; j + STATE_VECS * LANES <= d_v; j += STATE_VECS * LANES)
        delta_cols(s + j, d_k, d_v, STATE_VECS, q, k, v + j, keep, beta, y + j);
    for (; j + LANES <= d_v; j += LANES)
        delta_cols(s + j, d_k, d_v, 1, q, k, v + j, keep, beta, y + j);
    if (j < d_v)
        elem_delta(s, d_k, d_v, j, q, k, v, keep, beta, y);
}

/* elem_mamba2 on n vectors of columns. */
VFN void mamba2_cols(float *s, uint32_t d_state, uint32_t d_head, int n, const float *b, const float *c, float keep,
                     float length, float skip, float *x)
{
    v16 in[STATE_VECS], sum[STATE_VECS], stays = v16_set1(keep);
#pragma GCC unroll 4
    for (int e = 0; e < n; e++) {
        in[e] = v16_load(x + e * LANES);
        sum[e] = v16_set1(0.0f);
    }
    for (uint32_t i = 0; i < d_state; i++, s += d_head) {
        v16 by = v16_set1(length * b[i]), of = v16_set1(c[i]);
#pragma GCC unroll 4
        for (int e = 0; e < n; e++) {
            v16 now = v16_add(v16_mul(v16_load(s + e * LANES), stays), v16_mul(by, in[e]));
            v16_store(s + e * LANES, now);
            sum[e] = v16_add(sum[e], v16_mul(now, of));
        }
    }
#pragma GCC unroll 4
    for (int e = 0; e < n; e++)
        v16_store(x + e * LANES, v16_add(sum[e], v16_mul(v16_set1(skip), in[e])));
}

TARGET static void TUNED(mamba2)(float *s, uint32_t d_state, uint32_t d_head, const float *b, const float *c,
                                 float keep, float length, float skip, float *x)
{
    uint32_t j = 0;
    for (; j + STATE_VECS * LANES <= d_head; j += STATE_VECS * LANES)
        mamba2_cols(s + j, d_state, d_head, STATE_VECS, b, c, keep, length, skip, x + j);
    for (; j + LANES <= d_head; j += LANES)
        mamba2_cols(s + j, d_state, d_head, 1, b, c, keep, length, skip, x + j);
    if (j < d_head)
        elem_mamba2(s, d_state, d_head, j, b, c, keep, length, skip, x);
}

/* --- attention ---------------------------------------------------------------------------------------------- */

/* The keys or values of n positions from t on, all in one page, as f32: the first d elements of each position's row.
 * The rows, of `whole` elements, begin `offset` bytes after the page's keys. Returned rows are `*ld` floats apart,
 * padded with zeros to whole lanes, in tmp or, where no conversion is needed, in the page itself. */
VFN const float *kv_rows(const struct kv_view *kv, uint32_t t, uint32_t n, size_t offset, uint32_t whole, uint32_t d,
                         float *tmp, size_t *ld)
{
    size_t row = kv->type == DT_Q8_0 ? whole / Q8_0_LEN * Q8_0_BYTES : whole * (kv->type == DT_F16 ? 2u : 4u);
    const char *at = kv->base + kv->pages[t / KV_PAGE] * kv->page_stride + offset + t % KV_PAGE * row;
    if (kv->type == DT_F32 && d % LANES == 0 && d == whole) {
        *ld = d;
        return (const float *)at;
    }
    *ld = round_up(d, LANES);
    for (uint32_t i = 0; i < n && kv->type == DT_Q8_0; i++)
        q8_0_decode(at + i * row, tmp + i * *ld, d);
    for (uint32_t i = 0; i < n && kv->type != DT_Q8_0; i++) {
        float *to = tmp + i * *ld;
        uint32_t k = 0;
        for (; k + LANES <= d; k += LANES)
            v16_store(to + k, kv->type == DT_F16 ? v16_load_f16((const uint16_t *)at + i * whole + k)
                                                 : v16_load((const float *)at + i * whole + k));
        for (; k < *ld; k++)
            to[k] = k >= d               ? 0.0f
                    : kv->type == DT_F16 ? f16_to_f32(((const uint16_t *)at)[i * whole + k])
                                         : ((const float *)at)[i * whole + k];
    }
    return tmp;
}

/* Adds p[h] * v to acc[h] for n positions in order, one register's width of the head at a time. */
#define ATTEND_VALUES(heads)                                                                               \
    VFN void values_##heads(const float *v, size_t ld, uint32_t n, const float *p, size_t ldp, float *acc) \
    {                                                                                                      \
        for (size_t d = 0; d < ld; d += LANES) {                                                           \
            v16 a[heads];                                                                                  \
            _Pragma("GCC unroll 4") for (int h = 0; h < (heads); h++) a[h] = v16_load(acc + h * ld + d);   \
            for (uint32_t i = 0; i < n; i++) {                                                             \
                v16 x = v16_load(v + i * ld + d);                                                          \
                _Pragma("GCC unroll 4") for (int h = 0; h < (heads); h++) a[h] =                           \
                    v16_fma(v16_set1(p[h * ldp + i]), x, a[h]);                                            \
            }                                                                                              \
            _Pragma("GCC unroll 4") for (int h = 0; h < (heads); h++) v16_store(acc + h * ld + d, a[h]);   \
        }                                                                                                  \
    }
ATTEND_VALUES(1)
ATTEND_VALUES(2)
ATTEND_VALUES(3)
ATTEND_VALUES(4)

/* Computes the scores of one page's keys, four at a time; those past the end repeat the last key and are discarded. */
VFN void page_scores(const struct attend_args *a, const float *k, size_t ld, uint32_t n, const float *q, float *s,
                     size_t lds)
{
    for (uint32_t i = 0; i < n; i += 4) {
        const float *ws[4];
        for (uint32_t r = 0; r < 4; r++)
            ws[r] = k + (i + r < n ? i + r : n - 1) * ld;
        for (uint32_t h = 0; h < a->n_head; h += 3) {
            uint32_t m = a->n_head - h < 3 ? a->n_head - h : 3;
            float sums[12];
            tile(m, ws, q + h * ld, ld, (uint32_t)ld, sums);
            for (uint32_t t = 0; t < m; t++)
                memcpy(s + (h + t) * lds + i, sums + 4 * t, (n - i < 4 ? n - i : 4) * sizeof *s);
        }
    }
}

/* Turns the n scores of query head h into softmax weights: scale, soft cap, exp of the difference to the greatest;
 * returns 1 / their sum. s is padded to whole lanes. */
VFN float softmax(const struct attend_args *a, uint32_t h, float *s, uint32_t n)
{
    float lanes[LANES], max = -INFINITY;
    uint32_t pad = round_up(n, LANES);
    v16 vmax = v16_set1(-INFINITY), sum = v16_set1(0.0f);
    for (uint32_t i = n; i < pad; i++)
        s[i] = -INFINITY;
    for (uint32_t i = 0; i < pad; i += LANES) {
        v16 v = v16_mul(v16_load(s + i), v16_set1(a->scale));
        v16_store(s + i, a->softcap > 0.0f ? v16_softcap(v, a->softcap) : v);
    }
    for (uint32_t i = n; i < pad; i++) /* the soft cap made the padding finite */
        s[i] = -INFINITY;
    for (uint32_t i = 0; i < pad; i += LANES)
        vmax = v16_max(v16_load(s + i), vmax);
    v16_store(lanes, vmax);
    for (int l = 0; l < LANES; l++)
        max = lanes[l] > max ? lanes[l] : max;
    if (a->sinks)
        max = a->sinks[h] > max ? a->sinks[h] : max;
    for (uint32_t i = 0; i < pad; i += LANES) {
        v16 p = v16_exp(v16_sub(v16_load(s + i), v16_set1(max)));
        v16_store(s + i, p);
        sum = v16_add(sum, p);
    }
    return 1.0f / (v16_sum(sum) + (a->sinks ? elem_exp(a->sinks[h] - max) : 0.0f));
}

TARGET static void TUNED(attend)(const struct attend_args *a)
{
    uint32_t n = a->t1 - a->t0, d_head = a->kv.d_head, d_v = a->kv.d_v;
    size_t lds = round_up(n, LANES), ld = round_up(d_head, LANES);
    float *q = a->tmp + KV_PAGE * ld, *acc = q + ATTEND_HEADS * ld, inv[ATTEND_HEADS];
    for (uint32_t h = 0; h < a->n_head; h++) {
        memset(q + h * ld, 0, ld * sizeof *q);
        memcpy(q + h * ld, a->q + (size_t)h * d_head, d_head * sizeof *q);
        memset(acc + h * ld, 0, ld * sizeof *acc);
    }
    for (uint32_t t = a->t0, m; t < a->t1; t += m) {
        m = KV_PAGE - t % KV_PAGE < a->t1 - t ? KV_PAGE - t % KV_PAGE : a->t1 - t;
        const float *k = kv_rows(&a->kv, t, m, 0, d_head, d_head, a->tmp, &ld);
        page_scores(a, k, ld, m, q, a->scores + (t - a->t0), lds);
    }
    for (uint32_t h = 0; h < a->n_head; h++)
        inv[h] = softmax(a, h, a->scores + h * lds, n);
    for (uint32_t t = a->t0, m; t < a->t1; t += m) {
        m = KV_PAGE - t % KV_PAGE < a->t1 - t ? KV_PAGE - t % KV_PAGE : a->t1 - t;
        const float *v = kv_rows(&a->kv, t, m, a->kv.v_offset, a->kv.v_row, d_v, a->tmp, &ld);
        const float *p = a->scores + (t - a->t0);
        switch (a->n_head) {
        case 1:
            values_1(v, ld, m, p, lds, acc);
            break;
        case 2:
            values_2(v, ld, m, p, lds, acc);
            break;
        case 3:
            values_3(v, ld, m, p, lds, acc);
            break;
        default:
            values_4(v, ld, m, p, lds, acc);
            break;
        }
    }
    for (uint32_t h = 0; h < a->n_head; h++)
        for (uint32_t i = 0; i < d_v; i++)
            a->out[(size_t)h * d_v + i] = acc[h * ld + i] * inv[h];
}
