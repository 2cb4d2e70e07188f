/* rig.c - see rig.h. */
#include "tests/ops/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUANT_HEADERS
#include "kernels/quant/list.h"

static void (*const scale_to[DT_COUNT])(void *block, float std) = {
#define X(t, T, number) [DT_##T] = t##_scale_to,
    QUANTS(X)
#undef X
};

static uint64_t mix(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void random_floats(uint64_t seed, float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (float)((int64_t)mix(&seed) >> 40) / 8388608.0f;
}

static float *random_vec(uint64_t seed, size_t n, float mean, float range)
{
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    random_floats(seed, v, n);
    for (size_t i = 0; i < n; i++)
        v[i] = mean + range * v[i];
    return v;
}

uint8_t *random_matrix(uint64_t seed, enum dtype type, uint32_t n_in, uint32_t n_out)
{
    size_t n = (size_t)n_in * n_out, bytes = dtype_bytes(type, n);
    const struct dtype_info *t = dtype_get(type);
    uint8_t *m = malloc(bytes);
    assert_non_null(m);
    float std = 1.0f / sqrtf((float)n_in);
    if (t->from_f32) {
        float *v = random_vec(seed, n, 0.0f, 2.0f * std);
        t->from_f32(v, m, n);
        free(v);
        return m;
    }
    for (size_t i = 0; i < bytes; i++)
        m[i] = (uint8_t)(mix(&seed) >> 32);
    for (size_t b = 0; b < bytes; b += t->block_bytes)
        scale_to[type](m + b, std * (0.5f + (float)(mix(&seed) % 1024) / 1024.0f));
    return m;
}

/* Gives the blocks of a matrix scales of either sign that differ by up to 2^12. */
static void widen_scales(uint64_t seed, enum dtype type, uint32_t n_in, uint32_t n_out, uint8_t *m)
{
    size_t bytes = dtype_bytes(type, (uint64_t)n_in * n_out);
    float std = 1.0f / sqrtf((float)n_in);
    for (size_t b = 0; b < bytes; b += dtype_get(type)->block_bytes) {
        uint64_t v = mix(&seed);
        scale_to[type](m + b, ldexpf(v & 1 ? std : -std, (int)(v >> 8 & 0xff) % 13 - 6));
    }
}

bool nan_block(enum dtype type, uint8_t *block)
{
    const struct dtype_info *t = dtype_get(type);
    uint8_t was[512];
    float v[BLOCK_LEN_MAX];
    assert_true(t->block_bytes <= sizeof was);
    memcpy(was, block, t->block_bytes);
    memset(block, 0xff, t->block_bytes);
    t->to_f32(block, v, t->block_len);
    if (isnan(v[0]))
        return true;
    memcpy(block, was, t->block_bytes);
    return false;
}

void numbers_init(struct numbers *n, const struct op_case *c)
{
    memset(n, 0, sizeof *n);
    n->c = c;
    uint32_t d_q = c->n_head * c->d_head, d_kv = c->n_kv * c->d_head;
    const uint32_t shape[PARTS][2] = {{c->d_model, d_q},    {c->d_model, d_kv},    {c->d_model, d_kv},
                                      {d_q, c->d_model},    {c->d_model, c->d_ff}, {c->d_model, c->d_ff},
                                      {c->d_ff, c->d_model}};
    for (int i = 0; i < PARTS; i++) {
        n->n_in[i] = shape[i][0];
        n->n_out[i] = shape[i][1];
        enum dtype type = c->mix[i] ? c->mix[i] : c->type;
        n->type[i] = shape[i][0] % dtype_get(type)->block_len ? DT_F16 : type;
        n->packed[i] = random_matrix(100 + (uint64_t)i, n->type[i], shape[i][0], shape[i][1]);
        if (c->wide_scales && i != P_Q && i != P_K) /* not the scores, of which only the greatest would count */
            widen_scales(150 + (uint64_t)i, n->type[i], shape[i][0], shape[i][1], n->packed[i]);
    }
    n->head_type = c->d_model % dtype_get(c->type)->block_len ? DT_F16 : c->type;
    n->head = random_matrix(200, n->head_type, c->d_model, c->n_vocab);
    n->norm_w = random_vec(300, c->d_model, 1.0f, 0.2f);
    n->norm_b = random_vec(301, c->d_model, 0.0f, 0.2f);
    n->post_w = random_vec(302, c->d_model, 1.0f, 0.2f);
    n->q_norm = random_vec(303, d_q, 1.0f, 0.2f);
    n->k_norm = random_vec(304, d_kv, 1.0f, 0.2f);
    n->bias_qkv = random_vec(305, d_q + 2 * d_kv, 0.0f, 0.5f);
    n->bias_o = random_vec(306, c->d_model, 0.0f, 0.5f);
    n->bias_ffn = random_vec(307, 2 * (size_t)c->d_ff, 0.0f, 0.5f);
    n->bias_down = random_vec(308, c->d_model, 0.0f, 0.5f);
    n->bias_head = random_vec(309, c->n_vocab, 0.0f, 0.5f);
    n->row_gate = random_vec(310, c->d_model, 0.0f, 4.0f / sqrtf((float)c->d_model));
    n->sinks = random_vec(311, c->n_head, 1.0f, 4.0f);
    uint32_t half = c->n_rot / 2, n_freq = half * (c->n_set ? c->n_set : 1);
    n->inv_freq = malloc((n_freq + 1) * sizeof(float));
    assert_non_null(n->inv_freq);
    for (uint32_t i = 0; i < n_freq; i++)
        n->inv_freq[i] = (float)(pow(10000.0, -2.0 * (i % half) / c->n_rot) / (1 + 0.3 * (i / half)));
}

void numbers_fini(struct numbers *n)
{
    for (int i = 0; i < PARTS; i++)
        free(n->packed[i]);
    float *vec[] = {n->norm_w,   n->norm_b,    n->post_w,    n->q_norm,   n->k_norm,   n->bias_qkv, n->bias_o,
                    n->bias_ffn, n->bias_down, n->bias_head, n->inv_freq, n->row_gate, n->sinks};
    for (size_t i = 0; i < sizeof vec / sizeof *vec; i++)
        free(vec[i]);
    free(n->head);
}

enum dtype rig_kv_type;
bool rig_host;

struct device *rig_device(const struct backend *be, const char *variant, uint32_t threads)
{
    struct device *d;
    struct hearth_err e;
    struct device_params p = {.threads = threads, .variant = variant, .kv_type = rig_kv_type};
    if (be->open(&d, &p, &e) == 0)
        return d;
    print_message("# %s, %s: %s\n", be->name, variant, e.msg);
    return NULL;
}

const struct backend *rig_backend(const char *name, const char *variant, struct device_info *info)
{
    const struct backend *be = backend_find(name);
    struct device *d = be ? rig_device(be, variant, 1) : NULL;
    if (!d) {
        printf("1..0 # SKIP no %s device, or not in this build\n", name);
        return NULL;
    }
    if (info)
        be->info(d, info);
    be->close(d);
    return be;
}

bool rig_case(const struct device_info *info, struct op_case *c)
{
    if (info->gpu || rig_kv_type == DT_Q8_0)
        c->kv_type = info->kv_type; /* a GPU keeps KV in a single type */
    if (c->d_head % dtype_get(c->kv_type)->block_len)
        return false;
    return !info->gpu || (c->d_head >= 32 && (c->d_head <= 256 || c->kv_type == DT_F16)); /* large heads only in F16 */
}

static void ok(int rc, const struct hearth_err *e)
{
    if (rc)
        fail_msg("%s", e->msg);
}

static struct weight loaded(struct rig *r, enum weight_role role, int first, int n_part)
{
    const struct numbers *n = r->n;
    struct hearth_err e;
    struct weight w = {.role = role, .n_in = n->n_in[first], .n_part = (uint32_t)n_part, .model = r, .host = rig_host};
    for (int i = 0; i < n_part; i++) {
        w.part[i] = (struct weight_part){.type = n->type[first + i],
                                         .n_out = n->n_out[first + i],
                                         .data = n->packed[first + i],
                                         .scale = n->c->factor};
        w.n_out += n->n_out[first + i];
    }
    ok(r->be->weight_load(r->d, &w, &e), &e);
    return w;
}

static float *vec(struct rig *r, int i, const float *v, size_t n)
{
    struct hearth_err e;
    ok(r->be->vec_load(r->d, v, n, &r->vec[i], &e), &e);
    return r->vec[i];
}

uint32_t case_rows(const struct op_case *c, uint32_t *n_seq)
{
    uint32_t n = 0, s = 0;
    for (; s < SEQS_MAX && c->seq[s].n_row; s++)
        n += c->seq[s].n_row;
    *n_seq = s;
    return n;
}

static void build(struct rig *r);

void rig_init(struct rig *r, const struct numbers *n, const struct backend *be, struct device *d)
{
    const struct op_case *c = n->c;
    struct hearth_err e;
    uint32_t n_seq, n_row = case_rows(c, &n_seq), d_q = c->n_head * c->d_head, d_kv = c->n_kv * c->d_head;
    memset(r, 0, sizeof *r);
    r->n = n, r->be = be, r->d = d, r->how = INVARIANT_DECODE;
    struct workspace_dims dims = {c->d_model, d_q, d_kv, c->d_ff, c->n_vocab, n_row, n_row};
    dims.n_prompt = n_row;
    ok(be->reserve(d, &dims, &e), &e);
    struct device_info info;
    be->info(d, &info);
    r->desc = (struct kv_desc){LAYERS, c->n_kv, c->d_head, c->d_head, c->window, c->kv_type, RIG_PAGES, 0};
    r->apart = info.kv_apart && c->kv_type == DT_Q8_0;
    ok(be->kv_new(d, &r->desc, &r->kv, &e), &e);
    ok(be->host_alloc(d, kv_page_bytes(&r->desc), &r->host, &e), &e);
    r->qkv = loaded(r, WEIGHT_QKV, P_Q, 3);
    r->o = loaded(r, WEIGHT_PROJ, P_O, 1);
    r->ffn = glu_gated(c->glu) ? loaded(r, WEIGHT_GATE_UP, P_GATE, 2) : loaded(r, WEIGHT_GATE_UP, P_UP, 1);
    r->down = loaded(r, WEIGHT_PROJ, P_DOWN, 1);
    r->head = (struct weight){
        .role = WEIGHT_HEAD, .n_in = c->d_model, .n_out = c->n_vocab, .n_part = 1, .model = r, .host = rig_host};
    r->head.part[0] =
        (struct weight_part){.type = n->head_type, .n_out = c->n_vocab, .data = n->head, .scale = c->factor};
    ok(be->weight_load(d, &r->head, &e), &e);
    r->embed = r->head;
    r->embed.role = WEIGHT_EMBED, r->embed.dev = NULL;
    ok(be->weight_load(d, &r->embed, &e), &e);
    r->norm = (struct norm){c->norm, 1e-5f, c->norm == NORM_NONE ? NULL : vec(r, 0, n->norm_w, c->d_model),
                            c->norm == NORM_LAYER ? vec(r, 1, n->norm_b, c->d_model) : NULL};
    r->post = (struct norm){NORM_RMS, 1e-6f, vec(r, 2, n->post_w, c->d_model), NULL};
    r->q_norm = (struct norm){NORM_RMS, 1e-6f, vec(r, 3, n->q_norm, d_q), NULL};
    r->k_norm = (struct norm){NORM_RMS, 1e-6f, vec(r, 4, n->k_norm, d_kv), NULL};
    r->bias_qkv = vec(r, 5, n->bias_qkv, d_q + 2 * d_kv);
    r->bias_o = vec(r, 6, n->bias_o, c->d_model);
    r->bias_ffn = vec(r, 7, n->bias_ffn, 2 * (size_t)c->d_ff);
    r->bias_down = vec(r, 8, n->bias_down, c->d_model);
    r->bias_head = vec(r, 10, n->bias_head, c->n_vocab);
    r->row_gate = vec(r, 11, n->row_gate, c->d_model);
    r->sinks = vec(r, 12, n->sinks, c->n_head);
    r->rope = (struct rope){c->rope, c->n_rot,    vec(r, 9, n->inv_freq, c->n_rot / 2 * (c->n_set ? c->n_set : 1)),
                            1.0f,    c->hadamard, c->n_set};
    for (uint32_t s = 0; s < SEQS_MAX; s++)
        for (uint32_t i = 0; i < RIG_PAGES; i++)
            r->pages[s][i] = i % SEQ_PAGES * SEQS_MAX + (s + i + i / SEQ_PAGES) % SEQS_MAX;
    build(r);
}

void rig_fini(struct rig *r)
{
    struct weight *w[] = {&r->embed, &r->qkv, &r->o, &r->ffn, &r->down, &r->head};
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        r->be->weight_free(r->d, w[i]);
    for (size_t i = 0; i < sizeof r->vec / sizeof *r->vec; i++)
        r->be->vec_free(r->d, r->vec[i]);
    r->be->host_free(r->d, r->host);
    r->be->kv_free(r->d, r->kv);
    program_free(&r->program);
}

int32_t rig_token(const struct op_case *c, uint32_t seq, uint32_t pos)
{
    return (int32_t)((seq * 31 + pos * 7 + 3) % c->n_vocab);
}

uint32_t rig_freq_set(const struct op_case *c, uint32_t seq)
{
    return c->n_set ? seq % c->n_set : 0;
}

void rig_batch(struct rig *r, const struct seq_shape *seq, uint32_t first_seq, uint32_t n_seq)
{
    uint32_t row = 0;
    for (uint32_t s = 0; s < n_seq; s++) {
        r->seq[s] = (struct batch_seq){
            row, seq[s].n_row, seq[s].pos0, {r->pages[first_seq + s]}, rig_freq_set(r->n->c, first_seq + s)};
        for (uint32_t i = 0; i < seq[s].n_row; i++, row++) {
            r->token[row] = rig_token(r->n->c, first_seq + s, seq[s].pos0 + i);
            r->out_row[row] = row;
        }
    }
    r->batch = (struct batch){.n_row = row,
                              .n_seq = n_seq,
                              .n_out = row,
                              .token = r->token,
                              .seq = r->seq,
                              .out_row = r->out_row,
                              .kv = {r->kv},
                              .n_group = 1,
                              .invariant = r->how};
}

int rig_try(struct rig *r, const struct program *p, struct hearth_err *e)
{
    return r->be->step_wait(r->d, r->be->step_run(r->d, &r->batch, p), NULL, 0, e);
}

void rig_op(struct rig *r, const struct op *op)
{
    struct hearth_err e;
    struct program p = program_of(r, op, 1);
    r->batch.once = true;
    ok(rig_try(r, &p, &e), &e);
    r->batch.once = false;
}

void rig_forward(struct rig *r)
{
    struct hearth_err e;
    ok(rig_try(r, &r->program, &e), &e);
}

size_t rig_page_bytes(const struct rig *r)
{
    const struct op_case *c = r->n->c;
    return dtype_bytes(c->kv_type, (size_t)LAYERS * 2 * c->n_kv * KV_PAGE * c->d_head);
}

void rig_page_read(struct rig *r, uint32_t page, void *out)
{
    struct hearth_err e;
    ok(r->be->kv_transfer_wait(r->d, r->be->kv_save(r->d, r->kv, &page, &r->host, 1), &e), &e);
    if (r->apart)
        kv_page_blocks(&r->desc, r->host, out);
    else
        memcpy(out, r->host, rig_page_bytes(r));
}

void rig_page_write(struct rig *r, uint32_t page, const void *in)
{
    struct hearth_err e;
    const void *host = r->host;
    if (r->apart)
        kv_page_apart(&r->desc, in, r->host);
    else
        memcpy(r->host, in, rig_page_bytes(r));
    ok(r->be->kv_transfer_wait(r->d, r->be->kv_load(r->d, r->kv, &page, &host, 1), &e), &e);
}

static void fill_page(struct rig *r, uint32_t p)
{
    const struct op_case *c = r->n->c;
    size_t n = (size_t)LAYERS * 2 * c->n_kv * KV_PAGE * c->d_head;
    float *v = malloc(n * sizeof *v);
    void *page = malloc(rig_page_bytes(r));
    assert_true(v && page);
    random_floats(1000 + p, v, n);
    dtype_get(c->kv_type)->from_f32(v, page, n);
    rig_page_write(r, p, page);
    free(v);
    free(page);
}

void rig_fill_kv(struct rig *r)
{
    for (uint32_t p = 0; p < RIG_PAGES; p++)
        fill_page(r, p);
}

void rig_fill_written(struct rig *r)
{
    for (uint32_t s = 0; s < r->batch.n_seq; s++) {
        const struct batch_seq *q = &r->seq[s];
        for (uint32_t i = q->pos0 / KV_PAGE; i <= (q->pos0 + q->n_row - 1) / KV_PAGE; i++)
            fill_page(r, q->pages[0][i]);
    }
}

struct op op_embed(const struct rig *r)
{
    return (struct op){.kind = OP_EMBED, .embed = {&r->embed, r->n->c->embed_scale}};
}

struct op op_qkv(const struct rig *r, uint32_t layer)
{
    const struct op_case *c = r->n->c;
    return (struct op){.kind = OP_QKV,
                       .qkv = {.layer = layer,
                               .n_head = c->n_head,
                               .n_kv = c->n_kv,
                               .d_head = c->d_head,
                               .norm = r->norm,
                               .w = &r->qkv,
                               .bias = c->bias ? r->bias_qkv : NULL,
                               .q_norm = c->head_norms ? &r->q_norm : NULL,
                               .k_norm = c->head_norms ? &r->k_norm : NULL,
                               .v_norm = c->v_norm ? &r->k_norm : NULL,
                               .whole_norms = c->whole_norms,
                               .temperature = {c->temperature, TEMPERATURE_LENGTH},
                               .rope = &r->rope}};
}

struct op op_attend(const struct rig *r, uint32_t layer)
{
    const struct op_case *c = r->n->c;
    return (struct op){.kind = OP_ATTEND,
                       .attend = {layer, 0, c->n_head, c->n_kv, c->d_head, c->window, 1.0f / sqrtf((float)c->d_head),
                                  c->att_softcap, c->sinks ? r->sinks : NULL}};
}

struct op op_o(const struct rig *r)
{
    const struct op_case *c = r->n->c;
    return (struct op){.kind = OP_PROJ,
                       .proj = {ACT_ATT, &r->o, c->bias ? r->bias_o : NULL, c->post_norm ? &r->post : NULL,
                                c->residual_scale, c->x_scale}};
}

struct op op_ffn(const struct rig *r)
{
    const struct op_case *c = r->n->c;
    return (struct op){
        .kind = OP_FFN_UP,
        .ffn_up = {r->norm, &r->ffn, c->bias ? r->bias_ffn : NULL, c->glu, c->row_gate ? r->row_gate : NULL}};
}

struct op op_down(const struct rig *r)
{
    const struct op_case *c = r->n->c;
    return (struct op){.kind = OP_PROJ,
                       .proj = {ACT_FF, &r->down, c->bias ? r->bias_down : NULL, c->post_norm ? &r->post : NULL,
                                c->residual_scale, c->x_scale}};
}

struct op op_head(const struct rig *r)
{
    const struct op_case *c = r->n->c;
    return (struct op){.kind = OP_HEAD, .head = {r->norm, &r->head, 0.5f, c->softcap, c->bias ? r->bias_head : NULL}};
}

static void build(struct rig *r)
{
    r->program = (struct program){.model = r};
    struct op embed = op_embed(r), head = op_head(r);
    program_add(&r->program, &embed);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const struct op ops[] = {op_qkv(r, layer), op_attend(r, layer), op_o(r), op_ffn(r), op_down(r)};
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
            program_add(&r->program, &ops[i]);
    }
    program_add(&r->program, &head);
    assert_false(r->program.failed);
}

void rig_read(struct rig *r, enum act a, uint32_t row0, uint32_t n_row, float *out)
{
    struct hearth_err e;
    ok(r->be->act_read(r->d, a, row0, n_row, out, &e), &e);
}

void rig_write(struct rig *r, enum act a, uint32_t n_row, uint32_t n_col, const float *in)
{
    struct hearth_err e;
    ok(r->be->act_write(r->d, a, 0, n_row, n_col, in, &e), &e);
}
