/* matmul.c - matrix products divided into items, the checks before one, and norms; see ops.h. */
#include "kernels/cpu/ops.h"

#include <string.h>

enum { ITEM_WORK = 1 << 14 }; /* multiply-adds; a smaller item costs more to schedule than to compute */

uint32_t cpu_matmul_chunk(const struct device *d, uint32_t n_out, uint32_t n_in, uint32_t n_row)
{
    uint32_t share = n_out / (8 * d->n_thread);
    uint64_t least = ITEM_WORK / ((uint64_t)n_in * n_row) + 1;
    return round_up(share > least ? share : (uint32_t)least, MATMUL_ROWS);
}

struct matmul_job cpu_matmul_job(struct device *d, const struct weight *w, const struct panel *x, const void *op)
{
    struct matmul_job p = {.d = d, .w = w, .x = x, .op = op};
    p.chunk = cpu_matmul_chunk(d, w->n_out, w->n_in, x->n_row);
    for (uint32_t i = 0; i < w->n_part; i++)
        p.n_item += (w->part[i].n_out + p.chunk - 1) / p.chunk;
    return p;
}

uint32_t cpu_matmul_rows(const struct matmul_job *p, uint32_t item, uint32_t *o0, uint32_t *o1)
{
    uint32_t part = 0, n;
    for (; item >= (n = (p->w->part[part].n_out + p->chunk - 1) / p->chunk); part++)
        item -= n;
    uint32_t end = p->w->part[part].n_out;
    *o0 = item * p->chunk;
    *o1 = end - *o0 > p->chunk ? *o0 + p->chunk : end;
    return part;
}

void cpu_matmul(struct device *d, const struct weight_part *w, uint32_t n_in, const struct panel *x, uint32_t o0,
                uint32_t o1, float *y, size_t ldy, float *scratch)
{
    float scale = weight_part_scale(w);
    d->k->matmul(w, n_in, x, o0, o1, y, ldy, scratch);
    for (uint32_t r = 0; scale != 1.0f && r < x->n_row; r++)
        for (uint32_t i = 0; i < o1 - o0; i++)
            y[r * ldy + i] *= scale;
}

bool cpu_matmul_reserve(struct device *d, uint32_t n_in)
{
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (!cpu_scratch(d, &d->scratch[i], matmul_scratch(n_in) + 2 * TMP_FLOATS))
            return false;
    return true;
}

bool cpu_fits(struct device *d, const char *what, uint64_t n, uint64_t limit)
{
    if (n && n <= limit)
        return true;
    cpu_fail(d, HEARTH_EPARAMS, "%s %llu: 1 to %llu were reserved", what, (unsigned long long)n,
             (unsigned long long)limit);
    return false;
}

bool cpu_has_ints(const struct weight *w)
{
    for (uint32_t i = 0; i < w->n_part; i++)
        if (dtype_ints[w->part[i].type])
            return true;
    return false;
}

void cpu_kblocks_of_row(const struct device *d, const struct panel *x, uint32_t row)
{
    for (uint32_t k = 0; k < x->n_col; k += KBLOCK_LEN)
        d->k->kblock(panel_row(x, row) + k / KB * panel_stride(x) + k % KB,
                     x->kb + (size_t)(k / KBLOCK_LEN) * x->n_row + row, panel_many(x));
}

struct kblock *cpu_kblocks_room(struct device *d, size_t n_row, uint32_t n_col)
{
    size_t floats = n_row * (n_col / KBLOCK_LEN) * sizeof(struct kblock) / sizeof(float);
    return cpu_scratch(d, &d->kblocks, floats) ? (struct kblock *)(void *)d->kblocks.v : NULL;
}

struct kblocks {
    const struct device *d;
    const struct panel *x;
};

static void kblocks_item(void *arg, uint32_t row, uint32_t thread)
{
    const struct kblocks *r = arg;
    (void)thread;
    cpu_kblocks_of_row(r->d, r->x, row);
}

bool cpu_matmul_begin(struct device *d, const char *what, const struct weight *w, struct panel *x)
{
    if (w->n_in != x->n_col)
        cpu_fail(d, HEARTH_EPARAMS, "%s multiplies %u columns, the activation has %u", what, (unsigned)w->n_in,
                 (unsigned)x->n_col);
    if (w->model != d->model)
        cpu_fail(d, HEARTH_EPARAMS, "%s multiplies by a matrix of another model than the step's", what);
    if (d->err.code || !cpu_matmul_reserve(d, w->n_in))
        return false;
    uint32_t pad = round_up(x->n_col, LANES); /* zero padding to whole lanes: see cpu.h */
    for (uint32_t k = x->n_col; k < pad; k++)
        for (uint32_t r = 0; r < x->n_row; r++)
            panel_row(x, r)[k / KB * panel_stride(x) + k % KB] = 0.0f;
    x->kb = NULL;
    if (w->n_expert || !cpu_has_ints(w))
        return true;
    if (!(x->kb = cpu_kblocks_room(d, x->n_row, x->n_col)))
        return false;
    struct kblocks r = {d, x};
    pool_run(d->pool, x->n_row, kblocks_item, &r);
    return true;
}

/* --- norm ------------------------------------------------------------------------------------------------ */

struct norm_rows {
    struct device *d;
    const struct norm *norm;
    const uint32_t *rows; /* of x; NULL: item i is row i */
};

static void norm_item(void *arg, uint32_t item, uint32_t thread)
{
    const struct norm_rows *n = arg;
    struct device *d = n->d;
    (void)thread;
    uint32_t row = n->rows ? n->rows[item] : item;
    const float *x = d->x + (size_t)row * d->d_model;
    float *y = panel_row(&d->normed, item);
    if (n->norm->kind != NORM_NONE)
        d->k->norm(n->norm, x, d->d_model, y, panel_stride(&d->normed));
    else
        for (uint32_t i = 0, m; i < d->d_model; i += m) {
            m = d->d_model - i < KB ? d->d_model - i : KB;
            memcpy(y + i / KB * panel_stride(&d->normed), x + i, m * sizeof *x);
        }
}

void cpu_norm_rows(struct device *d, const struct norm *norm, const uint32_t *rows, uint32_t n_row)
{
    struct norm_rows n = {d, norm, rows};
    d->normed.n_row = n_row;
    d->normed.n_col = d->d_model;
    pool_run(d->pool, n_row, norm_item, &n);
}
