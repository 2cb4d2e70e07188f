/*
 * reference.c - the plain loops that specify each kernel. The tuned variants are bit-identical; cpu.h specifies the
 * dot product. Thread: the pool's, each on its own items.
 */
#include "kernels/cpu/elem.h"

static bool ref_usable(void)
{
    return true;
}

static float dot(const float *w, const float *x, uint32_t n)
{
    float sum[LANES] = {0};
    for (uint32_t k = 0; k < n; k++)
        sum[k % LANES] = fmaf(w[k], x[k], sum[k % LANES]);
    return lanes_sum(sum);
}

/* The dot product with a row of a panel, in blocks of KB columns. */
static float dot_panel(const float *w, const struct panel *x, uint32_t row)
{
    float total = 0.0f;
    for (uint32_t k = 0; k < x->n_col; k += KB)
        total += dot(w + k, panel_row(x, row) + k / KB * panel_stride(x), x->n_col - k < KB ? x->n_col - k : KB);
    return total;
}

static void ref_kblock(const float *x, struct kblock *out, bool biased)
{
    float most = 0.0f, nan = 0.0f;
    for (int k = 0; k < KBLOCK_LEN; k++) {
        most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
        nan += x[k] - x[k]; /* NaN where one is infinite or NaN */
    }
    bool none = !(nan == 0.0f) || most < KBLOCK_LEAST;
    float to = none ? 0.0f : (float)KBLOCK_MAX / most;
    int32_t sum[KBLOCK_DIGITS][16] = {{0}}, total[8] = {0};
    out->scale = nan != 0.0f ? NAN : none ? 0.0f : most / (float)KBLOCK_MAX;
    for (int k = 0; k < KBLOCK_LEN; k++) {
        int32_t rest = none ? 0 : (int32_t)rintf(x[k] * to);
        total[k / 32] += rest;
        for (int i = KBLOCK_DIGITS - 1; i >= 0; i--) {
            int32_t digit = i ? ((rest + DIGIT_BIAS) & 127) - DIGIT_BIAS : rest;
            rest = (rest - digit) / 128;
            sum[i][k / 16] += digit;
            out->digit[i][k] = (int8_t)(biased ? digit + DIGIT_BIAS : digit);
        }
    }
    for (int i = 0; i < KBLOCK_DIGITS; i++)
        for (int j = 0; j < 16; j++)
            out->off[i][j] = (int16_t)(-32 * sum[i][j]);
    for (int j = 0; j < 8; j++)
        out->sum[j] = out->scale * (float)total[j];
}

/* Adds one super-block's part of a dot product to y: kblock.h. */
static float dot_ints(const struct quant_ints *w, const struct kblock *x, bool biased, float y)
{
    int bias = biased ? DIGIT_BIAS : 0;
    int64_t v = 0;
    for (int k = 0; k < INTS_LEN; k++) {
        int32_t n = 0;
        for (int i = 0; i < KBLOCK_DIGITS; i++)
            n = 128 * n + x->digit[i][k] - bias;
        v += (int64_t)w->sc[k / 16] * w->q[k] * n;
    }
    float low = (float)(v & 16383), f = fmaf((float)((v - (v & 16383)) / 16384), 16384.0f, low), e[4];
    y = fmaf(f, w->d * x->scale, y);
    for (int i = 0; i < 4; i++)
        e[i] = fmaf(w->m[i + 4], x->sum[i + 4], w->m[i] * x->sum[i]);
    return w->mins ? fmaf(-w->dmin, (e[0] + e[2]) + (e[1] + e[3]), y) : y;
}

static void ref_matmul_ints(const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0, uint32_t o1,
                            float *y, size_t ldy)
{
    size_t bytes = dtype_get(w->type)->block_bytes, row_bytes = n_in / KBLOCK_LEN * bytes;
    for (uint32_t o = o0; o < o1; o++, y++) {
        for (uint32_t r = 0; r < x->n_row; r++)
            y[r * ldy] = 0.0f;
        for (uint32_t b = 0; b < n_in / KBLOCK_LEN; b++) {
            struct quant_ints block;
            dtype_ints[w->type]((const char *)w->data + o * row_bytes + b * bytes, &block);
            for (uint32_t r = 0; r < x->n_row; r++)
                y[r * ldy] = dot_ints(&block, x->kb + (size_t)b * x->n_row + r, panel_many(x), y[r * ldy]);
        }
    }
}

static void ref_matmul(const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0, uint32_t o1,
                       float *y, size_t ldy, float *scratch)
{
    const struct dtype_info *t = dtype_get(w->type);
    size_t row_bytes = (size_t)n_in / t->block_len * t->block_bytes;
    if (x->kb && dtype_ints[w->type]) {
        ref_matmul_ints(w, n_in, x, o0, o1, y, ldy);
        return;
    }
    for (uint32_t o = o0; o < o1; o++) {
        t->to_f32((const char *)w->data + o * row_bytes, scratch, n_in);
        for (uint32_t r = 0; r < x->n_row; r++)
            y[r * ldy + o - o0] = dot_panel(scratch, x, r);
    }
}

static void ref_norm(const struct norm *p, const float *x, uint32_t n, float *y, size_t ystride)
{
    float mean = 0.0f, sq[LANES] = {0};
    if (p->kind == NORM_LAYER) {
        float sum[LANES] = {0};
        for (uint32_t i = 0; i < n; i++)
            sum[i % LANES] += x[i];
        mean = lanes_sum(sum) / (float)n;
    }
    for (uint32_t i = 0; i < n; i++) {
        float c = x[i] - mean;
        sq[i % LANES] = fmaf(c, c, sq[i % LANES]);
    }
    float inv = 1.0f / sqrtf(lanes_sum(sq) / (float)n + p->eps);
    for (uint32_t i = 0; i < n; i++) {
        float v = (x[i] - mean) * inv * p->w[i];
        y[i / KB * ystride + i % KB] = p->b ? v + p->b[i] : v;
    }
}

static void ref_glu(enum glu_kind kind, const float *gate, const float *up, float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = elem_glu(kind, glu_gated(kind) ? gate[i] : 0.0f, up[i]);
}

static void ref_softcap(float *x, uint32_t n, float cap)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = elem_softcap(x[i], cap);
}

static void ref_rope(enum rope_kind kind, const float *cs, uint32_t n_rot, float *v, uint32_t n_head, uint32_t d_head)
{
    elem_rope(kind, cs, n_rot, v, n_head, d_head);
}

static void ref_exp(const float *x, float sub, float div, float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = elem_exp((x[i] - sub) / div);
}

static void ref_f16(const float *x, uint16_t *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = f16_of_f32(x[i]);
}

/* Reads the first n elements of position t's row as f32; the rows, of `whole` elements, begin `offset` bytes after the
 * page's keys. */
static void kv_at(const struct kv_view *kv, uint32_t t, size_t offset, uint32_t whole, uint32_t n, float *out)
{
    const struct dtype_info *ty = dtype_get(kv->type);
    const char *page = kv->base + kv->pages[t / KV_PAGE] * kv->page_stride + offset;
    ty->to_f32(page + t % KV_PAGE * dtype_bytes(kv->type, whole), out, n);
}

static void ref_attend(const struct attend_args *a)
{
    uint32_t n = a->t1 - a->t0, d_head = a->kv.d_head, d_v = a->kv.d_v;
    for (uint32_t h = 0; h < a->n_head; h++) {
        const float *q = a->q + (size_t)h * d_head;
        float *out = a->out + (size_t)h * d_v, *s = a->scores, sum[LANES] = {0};
        float max = a->sinks ? a->sinks[h] : -INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            kv_at(&a->kv, a->t0 + i, 0, d_head, d_head, a->tmp);
            s[i] = dot(a->tmp, q, d_head) * a->scale;
            if (a->softcap > 0.0f)
                s[i] = elem_softcap(s[i], a->softcap);
            max = s[i] > max ? s[i] : max;
        }
        for (uint32_t i = 0; i < n; i++) {
            s[i] = elem_exp(s[i] - max);
            sum[i % LANES] += s[i];
        }
        float inv = 1.0f / (lanes_sum(sum) + (a->sinks ? elem_exp(a->sinks[h] - max) : 0.0f));
        for (uint32_t d = 0; d < d_v; d++)
            out[d] = 0.0f;
        for (uint32_t i = 0; i < n; i++) {
            kv_at(&a->kv, a->t0 + i, a->kv.v_offset, a->kv.v_row, d_v, a->tmp);
            for (uint32_t d = 0; d < d_v; d++)
                out[d] = fmaf(s[i], a->tmp[d], out[d]);
        }
        for (uint32_t d = 0; d < d_v; d++)
            out[d] *= inv;
    }
}

static void ref_delta(float *s, uint32_t d_k, uint32_t d_v, const float *q, const float *k, const float *v, float keep,
                      float beta, float *y)
{
    elem_delta(s, d_k, d_v, 0, q, k, v, keep, beta, y);
}

static void ref_mamba2(float *s, uint32_t d_state, uint32_t d_head, const float *b, const float *c, float keep,
                       float length, float skip, float *x)
{
    elem_mamba2(s, d_state, d_head, 0, b, c, keep, length, skip, x);
}

const struct cpu_kernels cpu_reference = {
    .name = "reference",
    .usable = ref_usable,
    .matmul = ref_matmul,
    .kblock = ref_kblock,
    .norm = ref_norm,
    .glu = ref_glu,
    .attend = ref_attend,
    .softcap = ref_softcap,
    .rope = ref_rope,
    .exp = ref_exp,
    .f16 = ref_f16,
    .delta = ref_delta,
    .mamba2 = ref_mamba2,
};
