/*
 * bind-experts.c - binds the matrices of a mixture's experts, which files store as one three-dimensional tensor or as
 * one tensor per expert, and its router, whose weights must be finite.
 */
#include "daemon/model/model-internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Finds the matrices of one part by the stem of their names: "ffn_gate_exps.weight", or "ffn_gate.0.weight" and so on
 * in old files and in folders. */
static int find_experts(struct binder *b, const char *stem, uint32_t n_in, uint32_t n_out, uint32_t n,
                        const void **list, enum dtype *type, uint64_t *bytes)
{
    const struct gguf_tensor *t;
    char name[96];
    snprintf(name, sizeof name, "%s_exps.weight", stem);
    bool one = bind_has(b, name);
    int ret = one ? bind_find(b, name, n_in, n_out, n, &t) : 0;
    for (uint32_t e = 0; e < n && !ret; e++) {
        if (!one) {
            snprintf(name, sizeof name, "%s.%u.weight", stem, e);
            if ((ret = bind_find(b, name, n_in, n_out, 0, &t)))
                break;
        }
        if (e && (enum dtype)t->type != *type)
            ret = err_set(b->e, HEARTH_EUNSUPPORTED, "tensor %s is of another type than those of the experts before",
                          gguf_label(t->name).s);
        *type = (enum dtype)t->type;
        *bytes += one && e ? 0 : t->bytes;
        list[e] = (const char *)t->data + (one ? e * dtype_bytes(*type, (uint64_t)n_in * n_out) : 0);
    }
    return ret;
}

/* The scale factors of a part's experts, where the file has them: STEM_exps.scale, one number per expert (NVFP4). As
 * for matrices, input_scale is ignored. *out lives as long as the model, as `list` does. */
static int find_scales(struct binder *b, const char *stem, enum weight_role role, uint32_t n, const float **out)
{
    const struct gguf_tensor *t;
    char name[96];
    *out = NULL;
    snprintf(name, sizeof name, "%s_exps.input_scale", stem);
    bind_ignore(b, name);
    snprintf(name, sizeof name, "%s_exps.scale", stem);
    if (!bind_has(b, name) || (role == WEIGHT_EXPERTS_DOWN && b->m->arch->experts.scaled_weights))
        return 0;
    int ret = bind_find(b, name, n, 0, 0, &t);
    float *scale = ret ? NULL : bind_own(b, n * sizeof *scale);
    if (ret || !scale)
        return ret ? ret : err_set(b->e, HEARTH_ENOMEM, "no memory for %u experts", n);
    if (t->type != DT_F32)
        return err_set(b->e, HEARTH_EUNSUPPORTED, "%s of type %s; F32 is possible", gguf_label(t->name).s,
                       dtype_get((int)t->type)->name);
    dtype_get(DT_F32)->to_f32(t->data, scale, n);
    for (uint32_t i = 0; i < n; i++)
        if (!(scale[i] > 0 && scale[i] <= SCALE_MAX))
            return err_set(b->e, HEARTH_EBADMODEL, "%s is %g for expert %u; a positive number is possible",
                           gguf_label(t->name).s, (double)scale[i], i);
    *out = scale;
    return 0;
}

int bind_experts(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, uint32_t n_expert,
                 const struct bind_part *parts, uint32_t n_part)
{
    struct weight made = {.role = role, .n_in = n_in, .n_part = n_part, .model = b->m, .n_expert = n_expert};
    uint64_t bytes = 0;
    const void **list = bind_own(b, (size_t)n_part * n_expert * sizeof *list);
    if (!list)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %u experts", n_expert);
    for (uint32_t i = 0; i < n_part; i++, list += n_expert) {
        enum dtype type = DT_F32;
        int ret = find_experts(b, parts[i].name, n_in, parts[i].n_out, n_expert, list, &type, &bytes);
        if (ret)
            return ret;
        made.part[i] = (struct weight_part){.type = type, .n_out = parts[i].n_out, .expert = list};
        if ((ret = find_scales(b, parts[i].name, role, n_expert, &made.part[i].expert_scale)))
            return ret;
        made.n_out += parts[i].n_out;
    }
    return bind_load(b, w, &made, bytes);
}

int bind_experts_fused(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, uint32_t n_expert,
                       const char *stem, uint32_t n_out)
{
    struct weight made = {
        .role = role, .n_in = n_in, .n_out = 2 * n_out, .n_part = 2, .model = b->m, .n_expert = n_expert};
    const struct gguf_tensor *t;
    const float *scale;
    char name[96];
    snprintf(name, sizeof name, "%s_exps.weight", stem);
    const void **list = bind_own(b, 2 * (size_t)n_expert * sizeof *list);
    if (!list)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %u experts", n_expert);
    int ret = bind_find(b, name, n_in, 2 * n_out, n_expert, &t);
    if (!ret)
        ret = find_scales(b, stem, role, n_expert, &scale);
    if (ret)
        return ret;
    uint64_t half = dtype_bytes((enum dtype)t->type, (uint64_t)n_in * n_out);
    for (uint32_t i = 0; i < 2; i++, list += n_expert) {
        for (uint32_t e = 0; e < n_expert; e++)
            list[e] = (const char *)t->data + (2 * e + i) * half;
        made.part[i] =
            (struct weight_part){.type = (enum dtype)t->type, .n_out = n_out, .expert = list, .expert_scale = scale};
    }
    return bind_load(b, w, &made, t->bytes);
}

int bind_per_head(struct binder *b, struct weight *w, const char *name, uint32_t n_in, uint32_t n_out, uint32_t n_head)
{
    struct weight made = {
        .role = WEIGHT_HEADS, .n_in = n_in, .n_out = n_out, .n_part = 1, .model = b->m, .n_expert = n_head};
    const struct gguf_tensor *t;
    const void **list = bind_own(b, n_head * sizeof *list);
    if (!list)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %u heads", n_head);
    int ret = bind_find(b, name, n_in, n_out, n_head, &t);
    if (ret)
        return ret;
    for (uint32_t h = 0; h < n_head; h++)
        list[h] = (const char *)t->data + h * dtype_bytes((enum dtype)t->type, (uint64_t)n_in * n_out);
    made.part[0] = (struct weight_part){.type = (enum dtype)t->type, .n_out = n_out, .expert = list};
    return bind_load(b, w, &made, t->bytes);
}

/* A NaN in the router would silently send every token to the first experts. */
static int must_be_finite(struct binder *b, const char *name, uint32_t n_in, uint32_t n_out)
{
    const struct gguf_tensor *t;
    int ret = bind_find(b, name, n_in, n_out, 0, &t);
    if (ret || b->load)
        return ret;
    uint64_t n = (uint64_t)n_in * n_out;
    float *v = malloc(n * sizeof *v);
    if (!v)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %" PRIu64 " weights of a router", n);
    dtype_get((int)t->type)->to_f32(t->data, v, n);
    for (uint64_t i = 0; i < n && !ret; i++)
        if (!isfinite(v[i]))
            ret = err_set(b->e, HEARTH_EBADMODEL, "tensor %s: weight %" PRIu64 " of the router is %g",
                          gguf_label(t->name).s, i, (double)v[i]);
    free(v);
    return ret;
}

int bind_router(struct binder *b, struct weight *w, const float **bias, const float **select_bias)
{
    uint32_t n = b->m->hp.experts.n, d = b->m->hp.d_model;
    const struct bind_part part = {"ffn_gate_inp.weight", n}, added = {"ffn_gate_inp.bias", n},
                           choice = {"exp_probs_b.bias", n};
    int ret = bind_matrix(b, w, WEIGHT_ROUTER, d, &part, 1);
    if (!ret)
        ret = must_be_finite(b, part.name, d, n);
    if (!ret && bind_has(b, added.name))
        ret = bind_vector(b, bias, &added, 1);
    return ret || !bind_has(b, choice.name) ? ret : bind_vector(b, select_bias, &choice, 1);
}
