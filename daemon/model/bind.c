/*
 * bind.c - implements the bind functions of arch.h: finds a model's tensors by name, checks their types and shapes, and
 * loads them onto the device. Thread: the device's.
 */
#include "daemon/model/model-internal.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct hparams *bind_hparams(const struct binder *b)
{
    return &b->m->hp;
}

/* Writes a tensor's full name: `name` within the current layer. */
static void bind_name(const struct binder *b, const char *name, char out[160])
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
                       "tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64 "; %u x %" PRIu64 " x %" PRIu64
                       " x 1 is expected",
                       full, t->dim[0], t->dim[1], t->dim[2], t->dim[3], n_in, rows, experts);
    *out = t;
    return 0;
}

/*
 * Finds a matrix's own scale factor, NAME.scale beside NAME.weight, a single number that NVFP4 files have; 0 where
 * there is none. NAME.input_scale serves implementations that round activations to four bits, which hearth does not, so
 * it is ignored.
 */
static int find_scale(struct binder *b, const char *name, enum weight_role role, float *scale)
{
    static const char weight[] = ".weight";
    size_t n = strlen(name), stem = n > sizeof weight - 1 ? n - (sizeof weight - 1) : 0;
    char scale_name[128], full[160];
    *scale = 0;
    if (role == WEIGHT_ROUTER) /* routers are never 4-bit, and in Gemma's files the tensor of this name is a vector */
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

/* The part of a matrix's bytes that a step of one token reads. */
static uint64_t read_by_one(const struct model *m, const struct weight *w, bool head, uint64_t bytes)
{
    if (w->role == WEIGHT_EMBED && !head)
        return bytes / w->n_out;
    if (w->role == WEIGHT_EXPERTS_UP || w->role == WEIGHT_EXPERTS_DOWN)
        return bytes / w->n_expert * m->hp.experts.n_used;
    return bytes;
}

/* Records the matrix as an item that place_choose() will place. */
static int add_item(struct binder *b, const struct weight *made, bool head)
{
    struct weight w = *made;
    struct place_item i = {0};
    w.host = true;
    i.bytes = b->m->be->weight_bytes(b->m->dev, &w, &i.passing);
    i.fixed = !i.passing;
    i.read = read_by_one(b->m, &w, head, i.bytes);
    if ((b->n_item & (b->n_item - 1)) == 0) { /* the array is full: its capacity is a power of two */
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
        if (!m->be) /* nothing will be loaded: the program's ops refer only to types and shapes */
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

/* Copies the rows, of `bytes` each, in the order that bind_regrouped() specifies. */
static void regroup(char *to, const char *from, size_t bytes, uint32_t n_group, const uint32_t *slice, uint32_t n_slice)
{
    size_t before = 0, of_group = 0;
    for (uint32_t s = 0; s < n_slice; s++)
        of_group += slice[s] * bytes;
    for (uint32_t s = 0; s < n_slice; before += slice[s++] * bytes)
        for (uint32_t g = 0; g < n_group; g++, to += slice[s] * bytes)
            memcpy(to, from + g * of_group + before, slice[s] * bytes);
}

int bind_regrouped(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const char *name,
                   uint32_t n_group, const uint32_t *slice, uint32_t n_slice)
{
    struct weight made = {.role = role, .n_in = n_in, .n_part = 2, .model = b->m};
    const struct gguf_tensor *t;
    float scale;
    uint32_t last = n_group * slice[n_slice - 1];
    for (uint32_t s = 0; s < n_slice; s++)
        made.n_out += n_group * slice[s];
    int ret = bind_find(b, name, n_in, made.n_out, 0, &t);
    if (!ret)
        ret = find_scale(b, name, role, &scale);
    if (ret)
        return ret;
    const char *rows = t->data;
    size_t bytes = t->bytes / made.n_out;
    if (b->load) {
        char *own = bind_own(b, t->bytes);
        if (!own)
            return err_set(b->e, HEARTH_ENOMEM, "no memory for tensor %s", gguf_label(t->name).s);
        regroup(own, rows, bytes, n_group, slice, n_slice);
        rows = own;
    }
    enum dtype type = (enum dtype)t->type;
    made.part[0] = (struct weight_part){.type = type, .n_out = made.n_out - last, .data = rows, .scale = scale};
    made.part[1] =
        (struct weight_part){.type = type, .n_out = last, .data = rows + (made.n_out - last) * bytes, .scale = scale};
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

int bind_keep_vector(struct binder *b, const float *src, size_t n, const float **out)
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

/* Vectors are small, and every number in them affects every token, so a NaN or infinity is reported before anything is
 * loaded. */
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
    else if (!ret && !(ret = bind_keep_vector(b, host, n, out)))
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
    int ret = bind_keep_vector(b, ones, n, &norm->w);
    free(ones);
    return ret;
}

int bind_rms_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n)
{
    return bind_any_norm(b, norm, NORM_RMS, name, n);
}
