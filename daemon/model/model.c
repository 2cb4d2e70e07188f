/*
 * model.c - binds the tensors of a file to an architecture and loads them onto a device. Thread: the device's.
 *
 * Two passes over the same bind functions: the first finds every tensor and checks type and shape, the second loads.
 * So a file with one wrong shape costs no upload, and an error never depends on the device's free memory.
 */
#include "daemon/model/model-internal.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loaded {
    struct loaded *next;
    struct weight *w;
};

struct vec {
    struct vec *next;
    float *v;     /* device memory */
    float host[]; /* the same numbers */
};

struct owned {
    struct owned *next;
    max_align_t bytes[];
};

const struct hparams *bind_hparams(const struct binder *b)
{
    return &b->m->hp;
}

static struct layer *layer_at(const struct model *m, uint32_t i)
{
    size_t bytes = m->arch->layer_bytes ? m->arch->layer_bytes : sizeof(struct layer);
    return (struct layer *)((char *)m->layers + i * bytes);
}

const struct layer *model_layer(const struct model *m, uint32_t i)
{
    return layer_at(m, i);
}

void bind_name(const struct binder *b, const char *name, char out[160])
{
    if (b->layer < 0)
        snprintf(out, 160, "%s", name);
    else
        snprintf(out, 160, "blk.%d.%s", b->layer, name);
}

bool bind_has(const struct binder *b, const char *name)
{
    char full[160];
    bind_name(b, name, full);
    return gguf_tensor_find(b->m->gguf, full) != NULL;
}

int bind_required(const struct binder *b, const char *name)
{
    char full[160];
    bind_name(b, name, full);
    return bind_has(b, name) ? 0 : err_set(b->e, HEARTH_EBADMODEL, "tensor %s is missing", full);
}

int bind_find(struct binder *b, const char *name, uint32_t n_in, uint32_t n_out, uint32_t n_expert,
              const struct gguf_tensor **out)
{
    char full[160];
    bind_name(b, name, full);
    const struct gguf_tensor *t = gguf_tensor_find(b->m->gguf, full);
    if (!t)
        return err_set(b->e, HEARTH_EBADMODEL, "tensor %s is missing", full);
    b->used[t - gguf_tensor_at(b->m->gguf, 0)] = true;
    if (!t->data) {
        const char *type = t->type <= INT_MAX ? dtype_name((int)t->type) : NULL;
        return type ? err_set(b->e, HEARTH_EUNSUPPORTED,
                              "tensor %.80s is of type %s, which hearth does not run; the Q4_K_M or Q8_0 of the same "
                              "model does",
                              full, type)
                    : err_set(b->e, HEARTH_EUNSUPPORTED, "tensor %s is of ggml type %u, which hearth does not know",
                              full, t->type);
    }
    uint64_t rows = n_out ? n_out : 1, experts = n_expert ? n_expert : 1;
    if (t->dim[0] != n_in || t->dim[1] != rows || t->dim[2] != experts || t->dim[3] != 1)
        return err_set(b->e, HEARTH_EBADMODEL,
                       "tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64 "; %u x %" PRIu64 " x %" PRIu64
                       " is expected",
                       full, t->dim[0], t->dim[1], t->dim[2], n_in, rows, experts);
    *out = t;
    return 0;
}

/*
 * What a matrix's own factor is, where it has one: NAME.scale beside NAME.weight, one number (NVFP4's).
 * NAME.input_scale is for those who round activations to four bits, which hearth does not.
 */
static int find_scale(struct binder *b, const char *name, enum weight_role role, float *scale)
{
    static const char weight[] = ".weight";
    size_t n = strlen(name), stem = n > sizeof weight - 1 ? n - (sizeof weight - 1) : 0;
    char scale_name[128], full[160];
    *scale = 0;
    if (role == WEIGHT_ROUTER) /* never of four bits; what Gemma calls so is a vector */
        return 0;
    if (!stem || strcmp(name + stem, weight) || stem + sizeof ".input_scale" > sizeof scale_name)
        return 0;
    snprintf(scale_name, sizeof scale_name, "%.*s.input_scale", (int)stem, name);
    bind_name(b, scale_name, full);
    const struct gguf_tensor *t = gguf_tensor_find(b->m->gguf, full);
    if (t)
        b->used[t - gguf_tensor_at(b->m->gguf, 0)] = true;
    snprintf(scale_name, sizeof scale_name, "%.*s.scale", (int)stem, name);
    if (!bind_has(b, scale_name))
        return 0;
    int ret = bind_find(b, scale_name, 1, 0, 0, &t);
    if (ret)
        return ret;
    bind_name(b, scale_name, full);
    if (t->type != DT_F32)
        return err_set(b->e, HEARTH_EUNSUPPORTED, "%s of type %s; F32 is possible", full,
                       dtype_get((int)t->type)->name);
    dtype_get(DT_F32)->to_f32(t->data, scale, 1);
    if (!(*scale > 0 && *scale <= SCALE_MAX))
        return err_set(b->e, HEARTH_EBADMODEL, "%s is %g; a positive number is possible", full, (double)*scale);
    return 0;
}

static int progress(struct binder *b, uint64_t bytes)
{
    b->done += bytes;
    if (b->cb && !b->cb(b->arg, b->done, b->total))
        return err_set(b->e, HEARTH_ECANCELLED, "loading was cancelled");
    return 0;
}

/* Of a matrix's bytes, what a step of one token reads. */
static uint64_t read_by_one(const struct model *m, const struct weight *w, bool head, uint64_t bytes)
{
    if (w->role == WEIGHT_EMBED && !head)
        return bytes / w->n_out;
    if (w->role == WEIGHT_EXPERTS_UP || w->role == WEIGHT_EXPERTS_DOWN)
        return bytes / w->n_expert * m->hp.experts.n_used;
    return bytes;
}

/* Notes the matrix, which place_choose() then finds a place for. */
static int add_item(struct binder *b, const struct weight *made, bool head)
{
    struct weight w = *made;
    struct place_item i = {0};
    w.host = true;
    i.bytes = b->m->be->weight_bytes(b->m->dev, &w, &i.passing);
    i.fixed = !i.passing;
    i.read = read_by_one(b->m, &w, head, i.bytes);
    if ((b->n_item & (b->n_item - 1)) == 0) { /* as many as there is room for */
        struct place_item *v = reallocarray(b->item, b->n_item ? 2 * b->n_item : 1, sizeof *v);
        if (!v)
            return err_set(b->e, HEARTH_ENOMEM, "no memory for %zu matrices", b->n_item);
        b->item = v;
    }
    b->item[b->n_item++] = i;
    return 0;
}

int bind_load(struct binder *b, struct weight *w, const struct weight *made, uint64_t bytes)
{
    struct model *m = b->m;
    if (!b->load) {
        b->total += bytes;
        if (!m->be) /* nothing will be loaded: types and shapes are all that the program's ops will name */
            *w = *made;
        return b->room ? add_item(b, made, m->tied && w == &m->tok_embd) : 0;
    }
    struct loaded *l = malloc(sizeof *l);
    if (!l)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a matrix");
    *w = *made;
    w->host = b->item && b->item[b->next++].host;
    int ret = m->be->weight_load(m->dev, w, b->e);
    if (ret) {
        free(l);
        return ret;
    }
    *l = (struct loaded){m->loaded, w};
    m->loaded = l;
    return progress(b, bytes);
}

int bind_matrix(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const struct bind_part *parts,
                uint32_t n_part)
{
    struct weight made = {.role = role, .n_in = n_in, .n_part = n_part, .model = b->m};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_part; i++) {
        const struct gguf_tensor *t;
        float scale;
        int ret = bind_find(b, parts[i].name, n_in, parts[i].n_out, 0, &t);
        if (!ret)
            ret = find_scale(b, parts[i].name, role, &scale);
        if (ret)
            return ret;
        made.part[i] =
            (struct weight_part){.type = (enum dtype)t->type, .n_out = parts[i].n_out, .data = t->data, .scale = scale};
        made.n_out += parts[i].n_out;
        bytes += t->bytes;
    }
    return bind_load(b, w, &made, bytes);
}

int bind_fused(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const char *name,
               const uint32_t *n_out, uint32_t n_part)
{
    struct weight made = {.role = role, .n_in = n_in, .n_part = n_part, .model = b->m};
    const struct gguf_tensor *t;
    for (uint32_t i = 0; i < n_part; i++)
        made.n_out += n_out[i];
    float scale;
    int ret = bind_find(b, name, n_in, made.n_out, 0, &t);
    if (!ret)
        ret = find_scale(b, name, role, &scale);
    if (ret)
        return ret;
    const char *at = t->data;
    for (uint32_t i = 0; i < n_part; i++) {
        made.part[i] = (struct weight_part){.type = (enum dtype)t->type, .n_out = n_out[i], .data = at, .scale = scale};
        at += dtype_bytes((enum dtype)t->type, (uint64_t)n_in * n_out[i]);
    }
    return bind_load(b, w, &made, t->bytes);
}

void *bind_own(struct binder *b, size_t bytes)
{
    struct owned *k = calloc(1, sizeof *k + bytes);
    if (!k)
        return NULL;
    k->next = b->m->owned;
    b->m->owned = k;
    return k->bytes;
}

/* Allocates device memory that the model owns; model_free frees it. */
static int keep_vector(struct binder *b, const float *src, size_t n, const float **out)
{
    struct model *m = b->m;
    struct vec *v = malloc(sizeof *v + n * sizeof *src);
    if (!v)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a vector of %zu", n);
    memcpy(v->host, src, n * sizeof *src);
    int ret = m->be->vec_load(m->dev, src, n, &v->v, b->e);
    if (ret) {
        free(v);
        return ret;
    }
    v->next = m->vecs;
    m->vecs = v;
    *out = v->v;
    return 0;
}

/* Vectors are few numbers, and each weighs on every token: one that is none is named before anything is loaded. */
static int read_vector(struct binder *b, const struct gguf_tensor *t, float *out, uint64_t n)
{
    if (t->type != DT_F32 && t->type != DT_F16 && t->type != DT_BF16)
        return err_set(b->e, HEARTH_EUNSUPPORTED, "tensor %s of type %s; F32, F16 and BF16 are possible",
                       gguf_label(t->name).s, dtype_get((int)t->type)->name);
    dtype_get((int)t->type)->to_f32(t->data, out, n);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return err_set(b->e, HEARTH_EBADMODEL, "tensor %s: number %" PRIu64 " is %g", gguf_label(t->name).s, i,
                           (double)out[i]);
    return 0;
}

static int rows_times(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part,
                      uint32_t n_row, float factor)
{
    uint64_t n = 0, at = 0, bytes = 0;
    for (uint32_t i = 0; i < n_part; i++)
        n += (uint64_t)parts[i].n_out * n_row;
    float *host = malloc(n * sizeof *host);
    if (!host)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a vector of %" PRIu64, n);
    int ret = 0;
    for (uint32_t i = 0; i < n_part && !ret; at += (uint64_t)parts[i++].n_out * n_row) {
        const struct gguf_tensor *t;
        ret = bind_find(b, parts[i].name, parts[i].n_out, n_row, 0, &t);
        if (!ret)
            ret = read_vector(b, t, host + at, (uint64_t)parts[i].n_out * n_row);
        bytes += ret ? 0 : t->bytes;
    }
    for (uint64_t i = 0; factor != 1 && !ret && i < n; i++)
        host[i] *= factor;
    if (!ret && !b->load)
        b->total += bytes;
    else if (!ret && !(ret = keep_vector(b, host, n, out)))
        ret = progress(b, bytes);
    free(host);
    return ret;
}

int bind_rows(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part, uint32_t n_row)
{
    return rows_times(b, out, parts, n_part, n_row, 1);
}

int bind_vector_times(struct binder *b, const float **out, const char *name, uint32_t n, float factor)
{
    return rows_times(b, out, &(struct bind_part){name, n}, 1, 1, factor);
}

int bind_number(struct binder *b, const char *name, float *out)
{
    const struct gguf_tensor *t;
    int ret = bind_find(b, name, 1, 0, 0, &t);
    if (!ret)
        ret = read_vector(b, t, out, 1);
    if (!ret && *out == 0)
        ret = err_set(b->e, HEARTH_EBADMODEL, "tensor %s is 0; another number is possible", gguf_label(t->name).s);
    return ret;
}

void bind_ignore(struct binder *b, const char *name)
{
    char full[160];
    bind_name(b, name, full);
    const struct gguf_tensor *t = gguf_tensor_find(b->m->gguf, full);
    if (t)
        b->used[t - gguf_tensor_at(b->m->gguf, 0)] = true;
}

int bind_vector(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part)
{
    return bind_rows(b, out, parts, n_part, 1);
}

static int bind_any_norm(struct binder *b, struct norm *norm, enum norm_kind kind, const char *name, uint32_t n)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    *norm = (struct norm){.kind = kind, .eps = b->m->hp.norm_eps};
    int ret = bind_vector(b, &norm->w, &(struct bind_part){weight, n}, 1);
    return ret || kind != NORM_LAYER || !bind_has(b, bias) ? ret
                                                           : bind_vector(b, &norm->b, &(struct bind_part){bias, n}, 1);
}

int bind_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n)
{
    return bind_any_norm(b, norm, b->m->arch->norm, name, n);
}

int bind_plain_norm(struct binder *b, struct norm *norm, uint32_t n)
{
    *norm = (struct norm){.kind = NORM_RMS, .eps = b->m->hp.norm_eps};
    if (!b->load)
        return 0;
    float *ones = malloc(n * sizeof *ones);
    if (!ones)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a vector of %u", n);
    for (uint32_t i = 0; i < n; i++)
        ones[i] = 1;
    int ret = keep_vector(b, ones, n, &norm->w);
    free(ones);
    return ret;
}

int bind_rms_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n)
{
    return bind_any_norm(b, norm, NORM_RMS, name, n);
}

/* What a tensor divides the frequencies by, [n]: Llama 3.1's, or longrope's for one length of contexts. */
static int rope_factors(struct binder *b, const char *name, uint32_t n, float *out)
{
    const struct gguf_tensor *t;
    int ret = bind_find(b, name, n, 0, 0, &t);
    if (!ret && t->type != DT_F32)
        ret = err_set(b->e, HEARTH_EUNSUPPORTED, "%s of type %s; F32 is possible", name, dtype_get((int)t->type)->name);
    if (!ret)
        dtype_get(DT_F32)->to_f32(t->data, out, n);
    for (uint32_t i = 0; i < n && !ret; i++)
        if (!(out[i] >= 1e-3f && out[i] <= 1e30f)) /* 1e30: of a pair that does not turn */
            ret = err_set(b->e, HEARTH_EBADMODEL, "tensor %s: entry %u is %g; 0.001 to 1e30 is possible", name, i,
                          (double)out[i]);
    return ret;
}

static enum layer_rope rope_of(const struct hparams *hp, uint32_t layer)
{
    return hp->slides[layer] && hp->rope[ROPE_SLIDING].apart ? ROPE_SLIDING : ROPE_FULL;
}

/* Whether all of a head turns, in whole sixteens, in every layer that turns so. */
static bool turns_whole(const struct hparams *hp, enum layer_rope which)
{
    bool whole = hp->n_rot[which] % 16 == 0;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        whole = whole && (rope_of(hp, i) != which || hp->shape[i].d_head == hp->n_rot[which]);
    return whole;
}

/* Frequencies of layers of full attention or of sliding ones; `divide`, [n_set][n] or NULL. */
static int bind_rope_of(struct binder *b, enum layer_rope which, const float *divide)
{
    struct model *m = b->m;
    const struct rope_params *p = &m->hp.rope[which];
    uint32_t n_rot = m->hp.n_rot[which], n = n_rot / 2, n_set = m->hp.long_from && !p->apart ? 2 : 1;
    struct rope *rope = &m->rope[which];
    bool neox = false; /* a folder's q and k lie for halves of a head, whatever GGUF files of the architecture have */
    int ret = gguf_bool(m->gguf, "hearth.rope.neox", &neox, b->e);
    if (ret < 0)
        return ret;
    *rope = (struct rope){.kind = neox ? ROPE_NEOX : m->arch->rope, .n_rot = n_rot, .scale = p->scale, .n_set = n_set};
    rope->hadamard = turns_whole(&m->hp, which);
    if (!b->load)
        return 0;
    float *freq = malloc(n_set * n * sizeof *freq);
    if (!freq)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %u frequencies", n_set * n);
    for (uint32_t set = 0; set < n_set; set++)
        rope_frequencies(p, n_rot, divide ? divide + set * n : NULL, freq + set * n);
    ret = keep_vector(b, freq, n_set * n, &rope->inv_freq);
    free(freq);
    return ret;
}

static int bind_rope(struct binder *b)
{
    struct model *m = b->m;
    uint32_t n = m->hp.n_rot[ROPE_FULL] / 2;
    bool is_long = m->hp.rope[ROPE_FULL].scaling == ROPE_SCALING_LONG, any = is_long;
    float *factor = malloc(2 * n * sizeof *factor);
    int ret = factor ? 0 : err_set(b->e, HEARTH_ENOMEM, "no memory for %u factors", n);
    if (!ret && is_long) {
        ret = rope_factors(b, "rope_factors_short.weight", n, factor);
        if (!ret)
            ret = rope_factors(b, "rope_factors_long.weight", n, factor + n);
    } else if (!ret && gguf_tensor_find(m->gguf, "rope_freqs.weight")) {
        any = true;
        ret = rope_factors(b, "rope_freqs.weight", n, factor);
    }
    if (!ret)
        ret = bind_rope_of(b, ROPE_FULL, any ? factor : NULL);
    if (!ret && m->hp.rope[ROPE_SLIDING].apart)
        ret = bind_rope_of(b, ROPE_SLIDING, NULL);
    else
        m->rope[ROPE_SLIDING] = m->rope[ROPE_FULL];
    free(factor);
    return ret;
}

/* What model.c knows of a layer before its architecture binds it. */
static struct layer *begin_layer(const struct model *m, uint32_t i)
{
    const struct hparams *hp = &m->hp;
    struct layer *l = layer_at(m, i);
    l->number = i;
    l->group = hp->group_of[i];
    l->index = hp->index_of[i];
    l->window = hp->slides[i] ? hp->window : 0;
    l->shares_kv = i >= hp->n_layer - hp->n_shared_kv;
    l->n_head = hp->shape[i].n_head;
    l->n_kv = hp->shape[i].n_kv;
    l->d_head = hp->shape[i].d_head;
    l->d_ff = hp->shape[i].d_ff;
    l->rope = hp->turns[i] ? &m->rope[rope_of(hp, i)] : NULL;
    return l;
}

static int bind_all(struct binder *b)
{
    struct model *m = b->m;
    const struct hparams *hp = &m->hp;
    m->tied = !gguf_tensor_find(m->gguf, "output.weight");
    b->layer = -1;
    int ret = bind_matrix(b, &m->tok_embd, WEIGHT_EMBED, hp->d_model,
                          &(struct bind_part){"token_embd.weight", hp->n_vocab}, 1);
    if (!ret)
        ret = bind_rope(b);
    for (uint32_t i = 0; i < hp->n_layer && !ret; i++) {
        b->layer = (int32_t)i;
        ret = m->arch->bind_layer(b, begin_layer(m, i));
    }
    b->layer = -1;
    if (!ret && m->arch->bind_own)
        ret = m->arch->bind_own(b, m->own);
    if (!ret)
        ret = bind_norm(b, &m->out_norm, m->arch->out_norm ? m->arch->out_norm : "output_norm", hp->d_model);
    if (!ret && m->tied)
        m->out = m->tok_embd;
    else if (!ret)
        ret = bind_matrix(b, &m->out, WEIGHT_HEAD, hp->d_model, &(struct bind_part){"output.weight", hp->n_vocab}, 1);
    if (!ret && gguf_tensor_find(m->gguf, "output.bias"))
        ret = bind_vector(b, &m->out_bias, &(struct bind_part){"output.bias", hp->n_vocab}, 1);
    return ret;
}

/* Whether the tensor is one of the layers that are left out. */
static bool is_ahead(const struct hparams *hp, struct gguf_str name)
{
    char prefix[32];
    for (uint32_t i = hp->n_layer; i < hp->n_layer + hp->n_nextn; i++) {
        size_t n = (size_t)snprintf(prefix, sizeof prefix, "blk.%u.", i);
        if (name.n > n && !memcmp(name.s, prefix, n))
            return true;
    }
    return false;
}

/* A tensor that was not bound belongs to a model that computes something else; ignoring it would give wrong results
 * silently. */
static int all_used(const struct binder *b)
{
    for (size_t i = 0; i < gguf_n_tensor(b->m->gguf); i++)
        if (!b->used[i] && !is_ahead(&b->m->hp, gguf_tensor_at(b->m->gguf, i)->name))
            return err_set(b->e, HEARTH_EUNSUPPORTED, "tensor %s has no place in a %s as hearth runs it",
                           gguf_label(gguf_tensor_at(b->m->gguf, i)->name).s, b->m->hp.arch);
    return 0;
}

static int build(struct model *m, struct hearth_err *e)
{
    m->program = (struct program){.model = m};
    m->arch->build(m, &m->program);
    return m->program.failed ? err_set(e, HEARTH_ENOMEM, "no memory for a program of %u layers", m->hp.n_layer) : 0;
}

/* A model of nothing but its hyperparameters. `b` gets what binding needs; its `used` is the caller's to free. */
static int begin(struct binder *b, struct gguf *g, const struct backend *be, struct device *dev)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a model");
    b->m = m;
    m->be = be;
    m->dev = dev;
    m->gguf = g;
    int ret = model_hparams(&m->hp, g, b->e);
    if (ret)
        return ret;
    m->arch = arch_find(m->hp.arch, strlen(m->hp.arch));
    m->layers = calloc(m->hp.n_layer, m->arch->layer_bytes ? m->arch->layer_bytes : sizeof(struct layer));
    if (!m->layers)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %u layers", m->hp.n_layer);
    if (m->arch->own_bytes && !(m->own = calloc(1, m->arch->own_bytes)))
        return err_set(b->e, HEARTH_ENOMEM, "no memory for a model");
    if (!(b->used = calloc(gguf_n_tensor(g) + 1, sizeof *b->used)))
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %zu tensors", gguf_n_tensor(g));
    return 0;
}

/* The first pass: every tensor is there, has the right shape, and has a place; the matrices, too, in a room. */
static int check(struct binder *b)
{
    int ret = bind_all(b);
    if (!ret)
        ret = all_used(b);
    return ret || !b->room ? ret : place_choose(b->item, b->n_item, b->room, &b->m->place, b->e);
}

static int load(struct binder *b)
{
    b->load = true;
    int ret = bind_all(b);
    return ret ? ret : gguf_check(b->m->gguf, b->e);
}

static int end(struct binder *b, struct model **out, int ret)
{
    if (!ret)
        ret = build(b->m, b->e);
    free(b->used);
    free(b->item);
    if (ret)
        model_free(b->m);
    else
        *out = b->m;
    return ret;
}

int model_load(struct model **out, struct gguf *g, const struct backend *be, struct device *dev, model_progress *cb,
               void *arg, struct hearth_err *e)
{
    return model_load_within(out, g, be, dev, NULL, cb, arg, e);
}

int model_load_within(struct model **out, struct gguf *g, const struct backend *be, struct device *dev,
                      const struct model_room *room, model_progress *cb, void *arg, struct hearth_err *e)
{
    struct binder b = {.room = be->weight_bytes ? room : NULL, .cb = cb, .arg = arg, .e = e};
    int ret = begin(&b, g, be, dev);
    if (!ret)
        ret = check(&b);
    if (!ret)
        ret = load(&b);
    return end(&b, out, ret);
}

int model_find_places(struct gguf *g, const struct backend *be, struct device *dev, const struct model_room *room,
                      struct model_place *out, struct hearth_err *e)
{
    struct binder b = {.room = be->weight_bytes ? room : NULL, .e = e};
    struct model *m = NULL;
    int ret = begin(&b, g, be, dev);
    if (!ret)
        ret = check(&b);
    ret = end(&b, &m, ret);
    if (!ret)
        *out = m->place;
    model_free(m);
    return ret;
}

int model_outline(struct model **out, struct gguf *g, struct hearth_err *e)
{
    struct binder b = {.e = e};
    int ret = begin(&b, g, NULL, NULL);
    if (!ret)
        ret = check(&b);
    return end(&b, out, ret);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (struct loaded *l; (l = m->loaded);) {
        m->loaded = l->next;
        m->be->weight_free(m->dev, l->w);
        free(l);
    }
    for (struct vec *v; (v = m->vecs);) {
        m->vecs = v->next;
        m->be->vec_free(m->dev, v->v);
        free(v);
    }
    for (struct owned *k; (k = m->owned);) {
        m->owned = k->next;
        free(k);
    }
    program_free(&m->program);
    free(m->own);
    free(m->layers);
    free(m);
}

const float *model_vector(const struct model *m, const float *v)
{
    for (const struct vec *at = m->vecs; at; at = at->next)
        if (at->v == v)
            return at->host;
    return NULL;
}

uint32_t model_kv_descs(const struct model *m, enum dtype type, struct kv_desc out[KV_GROUPS_MAX])
{
    for (uint32_t i = 0; i < m->hp.n_group; i++) {
        const struct kv_group *g = &m->hp.kv[i];
        out[i] = (struct kv_desc){
            .n_layer = g->n_layer, .n_kv = g->n_kv, .d_k = g->d_k, .d_v = g->d_v, .window = g->window, .type = type};
        if (g->d_state) {
            out[i].type = DT_F32;
            out[i].d_state = g->d_state;
        }
    }
    return m->hp.n_group;
}

static void at_least(uint32_t *v, uint32_t n)
{
    if (*v < n)
        *v = n;
}

/* Columns of ACT_LATENT. */
static uint32_t latent_width(const struct hparams *hp)
{
    const struct hparams_latent *l = &hp->latent;
    return l->d_q ? l->d_q : hp->n_head * (l->d_nope + hp->n_rot[ROPE_FULL]);
}

void model_workspace(const struct model *m, struct workspace_dims *dims)
{
    at_least(&dims->d_model, m->hp.d_model);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer_shape *l = &m->hp.shape[i];
        at_least(&dims->d_q, (uint32_t)l->n_head * l->d_head);
        at_least(&dims->d_kv, (uint32_t)l->n_kv * l->d_head);
    }
    at_least(&dims->d_q, m->program.most[ACT_ATT]);
    at_least(&dims->d_mix, m->program.most[ACT_MIX]);
    at_least(&dims->d_ff, m->hp.d_ff);
    at_least(&dims->d_ff, m->hp.experts.d_shared);
    at_least(&dims->d_ff, m->hp.d_input);
    if (m->hp.latent.d_c)
        at_least(&dims->d_latent, latent_width(&m->hp));
    at_least(&dims->d_inputs, m->hp.n_layer * m->hp.d_input);
    if (m->hp.experts.beside)
        at_least(&dims->d_aside, m->hp.d_model);
    at_least(&dims->d_route, 2 * m->hp.experts.n_used);
    at_least(&dims->d_experts, m->hp.experts.n_used * m->hp.experts.d_expert);
    at_least(&dims->n_vocab, m->hp.n_vocab);
}
