/*
 * ops.c - the fused stages of a transformer block, composed from a variant's kernels and spread over the pool.
 *
 * Every work item owns its rows or columns of the result, so that threads never add to the same number and no result
 * depends on the number of threads. Thread: the device's, and the pool's inside pool_run.
 */
#include "kernels/cpu/elem.h"
#include "kernels/cpu/ops.h"

#include <math.h>
#include <string.h>

/* --- embed ----------------------------------------------------------------------------------------------- */

bool cpu_token_ids(struct device *d, uint32_t n_vocab, uint32_t out[BATCH_ROWS_MAX])
{
    for (uint32_t r = 0; r < d->batch.n_row; r++) {
        int32_t id = d->token[r];
        if (id < 0) {
            uint32_t slot = (uint32_t)(-1 - id);
            if (slot >= SLOTS_MAX || d->slot[slot].last < 0) {
                cpu_fail(d, HEARTH_EPARAMS, "row %u takes the token of slot %u, which has sampled none", (unsigned)r,
                         (unsigned)slot);
                return false;
            }
            id = d->slot[slot].last;
        }
        if ((uint32_t)id >= n_vocab) {
            cpu_fail(d, HEARTH_EPARAMS, "row %u has token %d of a vocabulary of %u", (unsigned)r, (int)id,
                     (unsigned)n_vocab);
            return false;
        }
        out[r] = (uint32_t)id;
    }
    return true;
}

void cpu_embed(struct device *d, const struct op_embed *op)
{
    const struct weight *w = op->w;
    if (d->err.code || !cpu_fits(d, "d_model", w->n_in, d->dims.d_model))
        return;
    d->d_model = w->n_in;
    const struct dtype_info *t = dtype_get(w->part[0].type);
    uint64_t row_bytes = dtype_bytes(w->part[0].type, w->n_in);
    float scale = op->scale * weight_part_scale(&w->part[0]);
    uint32_t ids[BATCH_ROWS_MAX];
    if (!cpu_token_ids(d, w->n_out, ids))
        return;
    for (uint32_t r = 0; r < d->batch.n_row; r++) {
        uint32_t id = ids[r];
        float *x = d->x + (size_t)r * d->d_model;
        t->to_f32((const char *)w->part[0].data + (uint64_t)id * row_bytes, x, w->n_in);
        if (scale != 1.0f)
            for (uint32_t i = 0; i < w->n_in; i++)
                x[i] *= scale;
    }
}

/* --- qkv ------------------------------------------------------------------------------------------------- */

const float *cpu_rope_table(struct device *d, const struct rope *rope)
{
    for (uint32_t i = 0; i < d->n_rope; i++) {
        const struct rope *have = &d->rope[i].rope;
        if (have->inv_freq == rope->inv_freq && have->n_rot == rope->n_rot && have->scale == rope->scale)
            return d->rope[i].cs.v;
    }
    if (d->n_rope == ROPE_TABLES)
        d->n_rope = 0;
    struct rope_table *t = &d->rope[d->n_rope];
    if (!cpu_scratch(d, &t->cs, (size_t)d->batch.n_row * rope->n_rot))
        return NULL;
    float *cs = t->cs.v;
    for (uint32_t r = 0; r < d->batch.n_row; r++) {
        uint32_t set = rope->n_set > 1 ? d->seq[d->seq_of[r]].freq_set : 0;
        const float *freq = rope->inv_freq + set * (rope->n_rot / 2);
        for (uint32_t i = 0; i < rope->n_rot / 2; i++, cs += 2) {
            double angle = (double)d->pos[r] * (double)freq[i];
            cs[0] = (float)cos(angle) * rope->scale;
            cs[1] = (float)sin(angle) * rope->scale;
        }
    }
    t->rope = *rope;
    d->n_rope++;
    return t->cs.v;
}

static void qkv_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    const struct op_qkv *op = p->op;
    struct device *d = p->d;
    uint32_t o0, o1, part = cpu_matmul_rows(p, item, &o0, &o1);
    size_t d_kv = (size_t)op->n_kv * op->d_head;
    float *q = op->gated ? d->mix : d->q, *y = part == 0 ? q : d->kv + (part - 1) * d_kv;
    size_t ld_q = op->gated ? d->d_mix : d->d_q;
    cpu_matmul(d, &p->w->part[part], p->w->n_in, p->x, o0, o1, y + o0, part == 0 ? ld_q : 2 * d_kv,
               d->scratch[thread].v);
}

/* Normalises each head, or, where `whole`, all of them at once. */
static void head_norms(struct device *d, const struct norm *norm, bool whole, float *v, uint32_t n_head,
                       uint32_t d_head)
{
    if (norm && whole)
        d->k->norm(norm, v, n_head * d_head, v, KB);
    else
        for (uint32_t h = 0; norm && h < n_head; h++, v += d_head)
            d->k->norm(norm, v, d_head, v, KB);
}

/* Applies a Hadamard transform to eight pairs at a time; see struct rope. */
static void hadamard(const struct rope *rope, float *v, uint32_t n_head)
{
    uint32_t half = rope->n_rot / 2, step = rope->kind == ROPE_NEOX ? 1 : 2, other = rope->kind == ROPE_NEOX ? half : 1;
    for (uint32_t g = 0; g < n_head * half / 8; g++) {
        float *p = v + g * 8 / half * rope->n_rot + g * 8 % half * step, s[8], t[8];
        for (int i = 0; i < 8; i++) {
            float x = p[(uint32_t)i * step], y = p[(uint32_t)i * step + other];
            s[i] = (x + y) * 0.25f;
            t[i] = (x - y) * 0.25f;
        }
        for (int k = 1; k < 8; k *= 2)
            for (int i = 0; i < 8; i++)
                if (!(i & k)) {
                    float a = s[i], b = t[i];
                    s[i] = a + s[i | k];
                    s[i | k] = a - s[i | k];
                    t[i] = b + t[i | k];
                    t[i | k] = b - t[i | k];
                }
        for (int i = 0; i < 8; i++) {
            p[(uint32_t)i * step] = s[i];
            p[(uint32_t)i * step + other] = t[i];
        }
    }
}

void cpu_kv_append(struct device *d, enum dtype type, char *at, const float *v, uint32_t n_kv, uint32_t d_head,
                   uint32_t pos)
{
    for (uint32_t h = 0; h < n_kv; h++, v += d_head) {
        char *to = at + ((size_t)h * KV_PAGE + pos % KV_PAGE) * dtype_bytes(type, d_head);
        if (type == DT_F16)
            d->k->f16(v, (uint16_t *)to, d_head);
        else
            dtype_get(type)->from_f32(v, to, d_head);
    }
}

struct qkv_epilogue {
    struct device *d;
    const struct op_qkv *op;
    const float *cs; /* [n_row, n_rot] */
};

/* Finishes one row: bias, head norms, RoPE, temperature, and stores its K and V to the KV pages. */
static void qkv_epilogue_item(void *arg, uint32_t row, uint32_t thread)
{
    const struct qkv_epilogue *f = arg;
    const struct op_qkv *op = f->op;
    struct device *d = f->d;
    (void)thread;
    uint32_t d_q = d->d_q, d_kv = op->n_kv * op->d_head, pos = d->pos[row];
    float *q = d->q + (size_t)row * d_q, *k = d->kv + (size_t)row * 2 * d_kv, *v = k + d_kv;
    for (uint32_t h = 0; op->gated && h < op->n_head; h++)
        memcpy(q + (size_t)h * op->d_head, d->mix + (size_t)row * d->d_mix + 2 * (size_t)h * op->d_head,
               op->d_head * sizeof *q);
    if (op->bias) {
        for (uint32_t i = 0; i < d_q; i++)
            q[i] += op->bias[i];
        for (uint32_t i = 0; i < (op->w->n_part - 1) * d_kv; i++) /* k, then v */
            k[i] += op->bias[d_q + i];
    }
    bool has_kv = op->w->n_part > 1;
    if (op->w->n_part == 2)
        memcpy(v, k, d_kv * sizeof *v);
    head_norms(d, op->q_norm, op->whole_norms, q, op->n_head, op->d_head);
    if (has_kv) {
        head_norms(d, op->k_norm, op->whole_norms, k, op->n_kv, op->d_head);
        head_norms(d, op->v_norm, false, v, op->n_kv, op->d_head);
    }
    if (f->cs) {
        const float *cs = f->cs + (size_t)row * op->rope->n_rot;
        d->k->rope(op->rope->kind, cs, op->rope->n_rot, q, op->n_head, op->d_head);
        if (has_kv)
            d->k->rope(op->rope->kind, cs, op->rope->n_rot, k, op->n_kv, op->d_head);
        if (op->rope->hadamard)
            hadamard(op->rope, q, op->n_head);
        if (op->rope->hadamard && has_kv)
            hadamard(op->rope, k, op->n_kv);
    }
    if (op->temperature.beta != 0.0f) {
        float t = (float)(1 + (double)op->temperature.beta * log(1 + (double)(pos / op->temperature.length)));
        for (uint32_t i = 0; i < d_q; i++)
            q[i] *= t;
    }
    if (!has_kv)
        return;
    const struct kv_pool *pool = d->batch.kv[op->group];
    uint32_t page = d->seq[d->seq_of[row]].pages[op->group][pos / KV_PAGE];
    char *at = pool->base + page * pool->stride + op->layer * kv_layer_bytes(&pool->desc);
    cpu_kv_append(d, pool->desc.type, at, k, op->n_kv, op->d_head, pos);
    cpu_kv_append(d, pool->desc.type, at + kv_k_bytes(&pool->desc), v, op->n_kv, op->d_head, pos);
}

bool cpu_kv_fits(struct device *d, uint32_t layer, uint32_t group, uint32_t n_head, uint32_t n_kv, uint32_t d_head,
                 uint32_t d_v)
{
    if (group >= d->batch.n_group) {
        cpu_fail(d, HEARTH_EPARAMS, "layer group %u of a step that has %u", (unsigned)group,
                 (unsigned)d->batch.n_group);
        return false;
    }
    const struct kv_desc *desc = &d->batch.kv[group]->desc;
    if (layer < desc->n_layer && n_kv == desc->n_kv && d_head == desc->d_k && d_v == desc->d_v && n_head % n_kv == 0)
        return cpu_fits(d, "d_q", (uint64_t)n_head * d_head, d->dims.d_q);
    cpu_fail(d, HEARTH_EPARAMS, "layer %u of %u/%u heads of %u does not fit KV of %u layers, %u heads of %u",
             (unsigned)layer, (unsigned)n_head, (unsigned)n_kv, (unsigned)d_head, (unsigned)desc->n_layer,
             (unsigned)desc->n_kv, (unsigned)desc->d_k);
    return false;
}

void cpu_qkv(struct device *d, const struct op_qkv *op)
{
    const struct weight *w = op->w;
    if (d->err.code || !cpu_kv_fits(d, op->layer, op->group, op->n_head, op->n_kv, op->d_head, op->d_head) ||
        !cpu_fits(d, "d_kv", (uint64_t)op->n_kv * op->d_head, d->dims.d_kv))
        return;
    uint32_t d_kv = op->n_kv * op->d_head, d_first = op->n_head * op->d_head * (op->gated ? 2 : 1);
    if (op->gated && (op->bias || !cpu_fits(d, "d_mix", d_first, d->dims.d_mix))) {
        cpu_fail(d, HEARTH_EPARAMS, "gated attention with a bias");
        return;
    }
    bool fits = w->part[0].n_out == d_first;
    for (uint32_t i = 1; i < w->n_part; i++)
        fits = fits && w->part[i].n_out == d_kv;
    if (!fits) {
        cpu_fail(d, HEARTH_EPARAMS, "qkv weight of %u parts does not give %u/%u heads of %u", (unsigned)w->n_part,
                 (unsigned)op->n_head, (unsigned)op->n_kv, (unsigned)op->d_head);
        return;
    }
    if (op->temperature.beta != 0.0f && !cpu_fits(d, "temperature.length", op->temperature.length, UINT32_MAX))
        return;
    struct qkv_epilogue epilogue = {.d = d, .op = op};
    if (op->rope && op->rope->kind != ROPE_NONE) {
        if (op->rope->hadamard && (op->rope->n_rot != op->d_head || op->d_head % 16)) {
            cpu_fail(d, HEARTH_EPARAMS, "spread heads of %u dimensions, %u of them turned: all, and whole sixteens",
                     (unsigned)op->d_head, (unsigned)op->rope->n_rot);
            return;
        }
        if (!cpu_fits(d, "n_rot", op->rope->n_rot, op->d_head) || !(epilogue.cs = cpu_rope_table(d, op->rope)))
            return;
    }
    d->d_q = op->n_head * op->d_head;
    d->d_mix = op->gated ? d_first : d->d_mix;
    cpu_norm_rows(d, &op->norm, NULL, d->batch.n_row);
    if (!cpu_matmul_begin(d, "qkv", w, &d->normed))
        return;
    struct matmul_job p = cpu_matmul_job(d, w, &d->normed, op);
    pool_run(d->pool, p.n_item, qkv_item, &p);
    pool_run(d->pool, d->batch.n_row, qkv_epilogue_item, &epilogue);
}

/* --- attend ---------------------------------------------------------------------------------------------- */

struct attend {
    struct device *d;
    const struct op_attend *op;
    uint32_t heads;  /* query heads per item, all of one KV head */
    uint32_t n_tile; /* items per row */
};

/* Computes one item: some heads of one row that share keys. */
static void attend_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct attend *a = arg;
    const struct op_attend *op = a->op;
    struct device *d = a->d;
    const struct kv_pool *pool = d->batch.kv[op->group];
    uint32_t row = item / a->n_tile, group = op->n_head / op->n_kv, tiles = a->n_tile / op->n_kv;
    uint32_t kv = item % a->n_tile / tiles, first = item % tiles * a->heads;
    uint32_t n_head = group - first < a->heads ? group - first : a->heads, head = kv * group + first;
    size_t head_bytes = dtype_bytes(pool->desc.type, (uint64_t)KV_PAGE * op->d_head);
    uint32_t t1 = d->pos[row] + 1, d_v = op->d_latent ? op->d_latent : op->d_head;
    float *scratch = d->scratch[thread].v, *out = scratch, *tmp = out + (size_t)n_head * op->d_head;
    struct attend_args args = {
        .kv = {.type = pool->desc.type,
               .d_head = op->d_head,
               .d_v = d_v,
               .v_row = op->d_head,
               .base = pool->base + op->layer * kv_layer_bytes(&pool->desc) + kv * head_bytes,
               .page_stride = pool->stride,
               .v_offset = op->d_latent ? dtype_bytes(pool->desc.type, op->d_head - d_v) : kv_k_bytes(&pool->desc),
               .pages = d->seq[d->seq_of[row]].pages[op->group]},
        .t0 = op->window && op->window < t1 ? t1 - op->window : 0,
        .t1 = t1,
        .n_head = n_head,
        .q = d->q + (size_t)row * d->d_q + (size_t)head * op->d_head,
        .out = out,
        .scale = op->scale,
        .softcap = op->softcap,
        .sinks = op->sinks ? op->sinks + head : NULL,
        .tmp = tmp,
        .scores = tmp + ATTEND_TMP(op->d_head),
    };
    d->k->attend(&args);
    float *to = panel_row(&d->att, row);
    uint32_t col = head * d_v;
    for (uint32_t h = 0; op->gated && h < n_head; h++) {
        const float *gate = d->mix + (size_t)row * d->d_mix + (2 * (size_t)(head + h) + 1) * op->d_head;
        for (uint32_t i = 0; i < op->d_head; i++)
            out[h * op->d_head + i] *= elem_sigmoid(gate[i]);
    }
    for (uint32_t i = 0; i < n_head * d_v; i++, col++) /* a head may cross from one panel block into the next */
        to[col / KB * panel_stride(&d->att) + col % KB] = out[i];
}

void cpu_attend(struct device *d, const struct op_attend *op)
{
    uint32_t d_v = op->d_latent ? op->d_latent : op->d_head;
    if (d->err.code ||
        !cpu_kv_fits(d, op->layer, op->group, op->n_head, op->n_kv, op->d_head, op->d_latent ? 0 : op->d_head))
        return;
    if (d_v > op->d_head || (op->d_head - d_v) % dtype_get(d->batch.kv[op->group]->desc.type)->block_len) {
        cpu_fail(d, HEARTH_EPARAMS, "values of %u within keys of %u", (unsigned)d_v, (unsigned)op->d_head);
        return;
    }
    uint32_t group = op->n_head / op->n_kv, window = d->batch.kv[op->group]->desc.window;
    if (window && (!op->window || op->window > window)) {
        cpu_fail(d, HEARTH_EPARAMS, "attention over %u tokens (0: all) to KV that keeps %u", (unsigned)op->window,
                 (unsigned)window);
        return;
    }
    if (op->gated && d_v != op->d_head) {
        cpu_fail(d, HEARTH_EPARAMS, "gated attention with values in keys");
        return;
    }
    if (op->gated && d->d_mix != 2 * op->n_head * op->d_head) {
        cpu_fail(d, HEARTH_EPARAMS, "%u gates for attention: there are %u columns", (unsigned)(op->n_head * op->d_head),
                 (unsigned)d->d_mix);
        return;
    }
    struct attend a = {.d = d, .op = op, .heads = group < ATTEND_HEADS ? group : ATTEND_HEADS};
    if ((uint64_t)d->batch.n_row * op->n_kv < d->n_thread)
        a.heads = 1; /* few rows are divided into more and smaller items, so that every thread has one */
    a.n_tile = op->n_kv * ((group + a.heads - 1) / a.heads);
    size_t need = (size_t)a.heads * (op->d_head + (size_t)d->max_keys) + ATTEND_TMP(op->d_head);
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (!cpu_scratch(d, &d->scratch[i], need))
            return;
    d->att.n_row = d->batch.n_row;
    d->att.n_col = op->n_head * d_v;
    pool_run(d->pool, d->batch.n_row * a.n_tile, attend_item, &a);
}

/* --- proj ------------------------------------------------------------------------------------------------ */

static void proj_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    const struct op_proj *op = p->op;
    struct device *d = p->d;
    uint32_t o0, o1, cols = cpu_tmp_cols(p->x->n_row);
    cpu_matmul_rows(p, item, &o0, &o1);
    float *scratch = d->scratch[thread].v, *tmp = scratch + matmul_scratch(p->w->n_in);
    bool scaled_x = op->x_scale != 0.0f && !op->post_norm && !op->aside;
    bool scaled = op->residual_scale != 0.0f && !op->post_norm; /* with a post_norm, its result is scaled instead */
    for (uint32_t o = o0; o < o1; o += cols) {
        uint32_t n = o1 - o < cols ? o1 - o : cols;
        cpu_matmul(d, &p->w->part[0], p->w->n_in, p->x, o, o + n, tmp, n, scratch);
        for (uint32_t r = 0; r < p->x->n_row; r++) {
            float *from = tmp + (size_t)r * n;
            float *to = (op->post_norm ? d->y : op->aside ? d->aside : d->x) + (size_t)r * d->d_model + o;
            for (uint32_t i = 0; op->bias && i < n; i++)
                from[i] += op->bias[o + i];
            for (uint32_t i = 0; scaled && i < n; i++)
                from[i] *= op->residual_scale;
            for (uint32_t i = 0; i < n; i++)
                to[i] = op->post_norm || op->aside ? from[i] : to[i] + from[i];
            for (uint32_t i = 0; scaled_x && i < n; i++)
                to[i] *= op->x_scale;
        }
    }
}

struct post_norm {
    struct device *d;
    const struct op_proj *op;
};

static void post_norm_item(void *arg, uint32_t row, uint32_t thread)
{
    const struct post_norm *n = arg;
    struct device *d = n->d;
    (void)thread;
    float *y = d->y + (size_t)row * d->d_model, *x = d->x + (size_t)row * d->d_model, scale = n->op->residual_scale;
    d->k->norm(n->op->post_norm, y, d->d_model, y, KB);
    for (uint32_t i = 0; scale != 0.0f && i < d->d_model; i++)
        y[i] *= scale;
    if (n->op->aside) {
        memcpy(d->aside + (size_t)row * d->d_model, y, d->d_model * sizeof *y);
        return;
    }
    for (uint32_t i = 0; i < d->d_model; i++)
        x[i] += y[i];
    for (uint32_t i = 0; n->op->x_scale != 0.0f && i < d->d_model; i++)
        x[i] *= n->op->x_scale;
}

void cpu_proj(struct device *d, const struct op_proj *op)
{
    struct panel *x = op->in == ACT_ATT ? &d->att : &d->ff;
    if (d->err.code || !cpu_matmul_begin(d, "proj", op->w, x))
        return;
    if (op->w->n_out != d->d_model) {
        cpu_fail(d, HEARTH_EPARAMS, "proj gives %u columns, the residual stream has %u", (unsigned)op->w->n_out,
                 (unsigned)d->d_model);
        return;
    }
    if (op->aside) {
        if (!cpu_fits(d, "d_aside", op->w->n_out, d->dims.d_aside))
            return;
        d->d_aside = op->w->n_out;
    }
    struct matmul_job p = cpu_matmul_job(d, op->w, x, op);
    pool_run(d->pool, p.n_item, proj_item, &p);
    if (op->post_norm) {
        struct post_norm n = {d, op};
        pool_run(d->pool, d->batch.n_row, post_norm_item, &n);
    }
}

/* --- ffn_up ---------------------------------------------------------------------------------------------- */

/* An item computes gate and up of the same columns, so that the activation function needs no second pass over the
 * pool. */
static void ffn_up_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    const struct op_ffn_up *op = p->op;
    const float *row_gate = op->row_gate ? p->d->scores.v : NULL;
    const struct weight *w = p->w;
    struct device *d = p->d;
    uint32_t o0, o1, cols = cpu_tmp_cols(p->x->n_row);
    cpu_matmul_rows(p, item, &o0, &o1);
    float *scratch = d->scratch[thread].v, *gate = scratch + matmul_scratch(w->n_in), *up = gate + TMP_FLOATS;
    const struct weight_part *w_up = &w->part[w->n_part - 1];
    for (uint32_t o = o0; o < o1; o += cols) {
        uint32_t n = o1 - o < cols ? o1 - o : cols;
        if (w->n_part == 2)
            cpu_matmul(d, &w->part[0], w->n_in, p->x, o, o + n, gate, n, scratch);
        cpu_matmul(d, w_up, w->n_in, p->x, o, o + n, up, n, scratch);
        if (op->bias && w->n_part == 2)
            cpu_add_bias(gate, op->bias + o, p->x->n_row, n);
        if (op->bias)
            cpu_add_bias(up, op->bias + (w->n_part - 1) * w->part[0].n_out + o, p->x->n_row, n);
        for (uint32_t i = 0, m; i < n; i += m) { /* at most to the end of a panel block at a time */
            uint32_t col = o + i, room = KB - col % KB;
            m = n - i < room ? n - i : room;
            for (uint32_t r = 0; r < p->x->n_row; r++) {
                float *y = panel_row(&d->ff, r) + col / KB * panel_stride(&d->ff) + col % KB;
                d->k->glu(op->glu, gate + (size_t)r * n + i, up + (size_t)r * n + i, y, m);
                for (uint32_t k = 0; row_gate && k < m; k++)
                    y[k] *= row_gate[r];
            }
        }
    }
}

/* Computes each row's factor sigmoid(row_gate . norm(x)) into `scores`. */
static bool row_gates(struct device *d, const float *gate)
{
    const struct weight_part one = {.type = DT_F32, .n_out = 1, .data = gate};
    uint32_t n_row = d->batch.n_row;
    if (!cpu_scratch(d, &d->scores, n_row))
        return false;
    d->k->matmul(&one, d->normed.n_col, &d->normed, 0, 1, d->scores.v, 1, d->scratch[0].v);
    for (uint32_t r = 0; r < n_row; r++)
        d->scores.v[r] = elem_sigmoid(d->scores.v[r]);
    return true;
}

void cpu_ffn_up(struct device *d, const struct op_ffn_up *op)
{
    const struct weight *w = op->w;
    if (d->err.code || !cpu_fits(d, "d_ff", w->part[0].n_out, d->dims.d_ff))
        return;
    if (w->n_part != (glu_gated(op->glu) ? 2u : 1u) || w->part[w->n_part - 1].n_out != w->part[0].n_out) {
        cpu_fail(d, HEARTH_EPARAMS, "ffn_up weight of %u parts does not suit its activation", (unsigned)w->n_part);
        return;
    }
    cpu_norm_rows(d, &op->norm, NULL, d->batch.n_row);
    if (!cpu_matmul_begin(d, "ffn_up", w, &d->normed) || (op->row_gate && !row_gates(d, op->row_gate)))
        return;
    d->ff.n_row = d->batch.n_row;
    d->ff.n_col = w->part[0].n_out;
    struct matmul_job p = cpu_matmul_job(d, w, &d->normed, op);
    pool_run(d->pool, (w->part[0].n_out + p.chunk - 1) / p.chunk, ffn_up_item, &p); /* both parts in one item */
}

/* --- head ------------------------------------------------------------------------------------------------ */

static void head_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct matmul_job *p = arg;
    const struct op_head *op = p->op;
    struct device *d = p->d;
    uint32_t o0, o1;
    cpu_matmul_rows(p, item, &o0, &o1);
    float *y = d->logits + o0;
    cpu_matmul(d, &p->w->part[0], p->w->n_in, p->x, o0, o1, y, d->n_logit, d->scratch[thread].v);
    for (uint32_t r = 0; r < p->x->n_row; r++, y += d->n_logit) {
        for (uint32_t i = 0; op->bias && i < o1 - o0; i++)
            y[i] += op->bias[o0 + i];
        for (uint32_t i = 0; op->scale != 1.0f && i < o1 - o0; i++)
            y[i] *= op->scale;
        if (op->softcap > 0.0f)
            d->k->softcap(y, o1 - o0, op->softcap);
    }
}

void cpu_head(struct device *d, const struct op_head *op)
{
    if (d->err.code || !d->batch.n_out || !cpu_fits(d, "n_vocab", op->w->n_out, d->dims.n_vocab))
        return;
    cpu_norm_rows(d, &op->norm, d->out_row, d->batch.n_out);
    if (!cpu_matmul_begin(d, "head", op->w, &d->normed))
        return;
    d->n_logit = op->w->n_out;
    struct matmul_job p = cpu_matmul_job(d, op->w, &d->normed, op);
    pool_run(d->pool, p.n_item, head_item, &p);
}
