/* slice.c - see slice.h. Thread: the device's. */
#include "config.h"

#include "daemon/engine/selfcheck/slice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void slice_free(struct slice *c)
{
    if (c->w.n_part)
        c->r->be->weight_free(c->r->d, &c->w);
    for (uint32_t i = 0; i < c->n_vec; i++)
        c->r->be->vec_free(c->r->d, c->vec[i]);
    for (uint32_t i = 0; i < c->n_host; i++)
        free(c->host[i]);
    for (int i = 0; i < 3; i++) {
        free(c->bytes[i]);
        free(c->scale[i]);
    }
    free(c->row);
}

int slice_part(struct slice *c, const struct weight *from, uint32_t part, const uint32_t *col, uint32_t n,
               struct hearth_err *e)
{
    const struct weight_part *p = &from->part[part];
    uint64_t row_bytes = dtype_bytes((int)p->type, from->n_in);
    uint8_t *to = aligned_alloc(64, (row_bytes * n + 63) / 64 * 64);
    if (!to)
        return err_set(e, HEARTH_ENOMEM, "no memory for %u rows of weights", n);
    c->bytes[c->w.n_part] = to;
    for (uint32_t i = 0; i < n; i++)
        memcpy(to + i * row_bytes, (const uint8_t *)p->data + col[i] * row_bytes, row_bytes);
    c->w.part[c->w.n_part++] = (struct weight_part){.type = p->type, .n_out = n, .data = to, .scale = p->scale};
    c->w.n_out += n;
    return 0;
}

void slice_whole(struct slice *c, const struct weight *from, uint32_t part)
{
    c->w.part[c->w.n_part++] = from->part[part];
    c->w.n_out += from->part[part].n_out;
}

int slice_load(struct slice *c, const struct weight *from, struct hearth_err *e)
{
    c->w.role = from->role;
    c->w.n_in = from->n_in;
    if (!(c->row = malloc(from->n_in * sizeof *c->row)))
        return err_set(e, HEARTH_ENOMEM, "no memory for a row of %u weights", from->n_in);
    return c->r->be->weight_load(c->r->d, &c->w, e);
}

int slice_vector(struct slice *c, const float *host, uint32_t n, const float **out, struct hearth_err *e)
{
    *out = NULL;
    if (!host)
        return 0;
    int rc = c->r->be->vec_load(c->r->d, host, n, &c->vec[c->n_vec], e);
    if (!rc)
        *out = c->vec[c->n_vec++];
    return rc;
}

int slice_norm(struct slice *c, const struct norm *from, uint32_t n, struct norm *to, struct hearth_err *e)
{
    *to = *from;
    int rc = slice_vector(c, model_vector(c->r->m, from->w), n, &to->w, e);
    return rc ? rc : slice_vector(c, model_vector(c->r->m, from->b), n, &to->b, e);
}

int slice_bias(struct slice *c, const float *bias, const uint32_t *const col[3], const uint32_t *first, uint32_t n,
               const float **out, struct hearth_err *e)
{
    const float *host = model_vector(c->r->m, bias);
    *out = NULL;
    if (!host)
        return 0;
    float *v = malloc((size_t)c->w.n_part * n * sizeof *v);
    if (!v)
        return err_set(e, HEARTH_ENOMEM, "no memory for a bias");
    c->host[c->n_host++] = v;
    for (uint32_t p = 0; p < c->w.n_part; p++)
        for (uint32_t i = 0; i < n; i++)
            v[p * n + i] = host[first[p] + col[p][i]];
    return slice_vector(c, v, c->w.n_part * n, out, e);
}

float slice_row_size(struct slice *c, uint32_t part, uint32_t i, const float *gain)
{
    const struct weight_part *p = &c->w.part[part];
    uint32_t n = c->w.n_in;
    float sum[8] = {0}; /* eight partial sums, which vectorise: this loop is a good part of the check's time */
    dtype_get((int)p->type)->to_f32((const uint8_t *)p->data + i * dtype_bytes((int)p->type, n), c->row, n);
    for (uint32_t k = 0; gain && k < n; k++)
        c->row[k] *= gain[k];
    for (uint32_t k = 0; k < n / 8 * 8; k += 8)
        for (uint32_t j = 0; j < 8; j++)
            sum[j] += c->row[k + j] * c->row[k + j];
    for (uint32_t k = n / 8 * 8; k < n; k++)
        sum[0] += c->row[k] * c->row[k];
    for (uint32_t j = 1; j < 8; j++)
        sum[0] += sum[j];
    return sqrtf(sum[0]) * (p->expert_scale ? p->expert_scale[i / p->n_out] : weight_part_scale(p));
}

float slice_rms(struct slice *c, uint32_t part, const float *gain)
{
    uint32_t n = c->w.part[part].n_out;
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        float size = slice_row_size(c, part, i, gain);
        sum += size * size;
    }
    return sqrtf(sum / (float)n);
}
