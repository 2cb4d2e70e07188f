/* rounded.c - see rounded.h. */
#include "tests/golden/rounded.h"

#include <math.h>
#include <string.h>

#define QUANT_HEADERS
#include "kernels/quant/list.h"

static void open_as(struct rounded *r, const char *path, const struct run *like, uint32_t n_row, enum dtype kv_type)
{
    const struct program *p = &like->m->program;
    memset(r, 0, sizeof *r);
    run_open_kv(&r->r, path, backend_find("cpu"), NULL, 0, 0, n_row, kv_type);
    r->integers = calloc(p->n_op, sizeof *r->integers);
    assert_non_null(r->integers);
    assert_int_equal(p->n_op, r->r.m->program.n_op);
}

void rounded_open(struct rounded *r, const char *path, const struct run *like, uint32_t n_row)
{
    const struct program *p = &like->m->program;
    open_as(r, path, like, n_row, like->info.kv_type);
    r->gpu = like->info.gpu;
    for (uint32_t i = 0; i < p->n_op; i++) {
        const char *way = like->be->op_path(like->dev, p, i, n_row, INVARIANT_DECODE);
        r->integers[i] = way && (!strncmp(way, "gemv", 4) || !strncmp(way, "few", 3));
    }
}

void exact_open(struct rounded *r, const char *path, const struct run *like, uint32_t n_row)
{
    open_as(r, path, like, n_row, DT_F32);
}

void rounded_close(struct rounded *r)
{
    run_close(&r->r);
    free(r->integers);
}

static void to_half(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = f16_to_f32(f16_of_f32(v[i]));
}

/* Rounds a row of n numbers to super-blocks of integers. */
static void to_integers(float *v, uint32_t n)
{
    enum { RECORD = 256, MOST = 32639 };
    for (uint32_t k = 0; k < n; k += RECORD) {
        uint32_t end = k + RECORD < n ? k + RECORD : n;
        float most = 0;
        for (uint32_t i = k; i < end; i++)
            most = fmaxf(most, fabsf(v[i]));
        float unit = most / MOST;
        for (uint32_t i = k; i < end && unit > 0; i++)
            v[i] = rintf(v[i] / unit) * unit;
    }
}

/* Rounds rows of n numbers to the input of a product. */
static void to_input(float *v, uint32_t rows, uint32_t n, bool integers)
{
    if (!integers)
        to_half(v, (size_t)rows * n);
    for (uint32_t r = 0; r < rows && integers; r++)
        to_integers(v + (size_t)r * n, n);
}

/* Computes norm(x) of each row, with sums in double precision. */
static void normed(const struct norm *n, const float *x, uint32_t rows, uint32_t width, float *y)
{
    for (uint32_t r = 0; r < rows; r++, x += width, y += width) {
        double mean = 0, square = 0;
        for (uint32_t i = 0; n->kind == NORM_LAYER && i < width; i++)
            mean += (double)x[i] / width;
        for (uint32_t i = 0; i < width; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean) / width;
        double by = n->kind == NORM_NONE ? 1 : 1 / sqrt(square + (double)n->eps);
        for (uint32_t i = 0; i < width; i++)
            y[i] = (float)(((double)x[i] - mean) * by * (n->w ? (double)n->w[i] : 1) + (n->b ? (double)n->b[i] : 0));
    }
}

/* Whether the op's product of ACT_X takes rounded numbers: not that of a router, nor one of plain F32 rows. */
static bool takes_rounded(const struct op *o)
{
    const struct weight *w = op_weight(o);
    bool plain = o->kind == OP_PROJECT;
    for (uint32_t i = 0; w && i < w->n_part; i++)
        plain = plain && w->part[i].type == DT_F32;
    return !plain && o->kind != OP_ROUTE;
}

/* The norm at the start of an op, whose result is the input of a product; NULL if there is no such product. `none`:
 * returned for a product that takes ACT_X as it is. */
static struct norm *norm_of(struct op *o, struct norm *none)
{
    *none = (struct norm){NORM_NONE, 0, NULL, NULL};
    if (!takes_rounded(o))
        return NULL;
    switch (o->kind) {
    case OP_QKV:
        return &o->qkv.norm;
    case OP_FFN_UP:
        return &o->ffn_up.norm;
    case OP_HEAD:
        return &o->head.norm;
    case OP_EXPERTS_UP:
        return o->experts_up.latent ? NULL : &o->experts_up.norm;
    case OP_PROJECT:
        return &o->project.norm;
    case OP_LATENT:
        return &o->latent.norm;
    case OP_INPUTS:
    case OP_INPUT_GATE:
        return none;
    default:
        return NULL;
    }
}

/* Whether an activation is fp16 on a GPU. */
static bool is_half(enum act a)
{
    return a == ACT_Q || a == ACT_ATT || a == ACT_FF || a == ACT_LATENT;
}

/* Rounds the input of a product that takes another activation than ACT_X, which is fp16 already or is rounded here;
 * rows of the matrix's n_in columns, of which `a` has `each` times as many. */
static void take(struct rounded *rounded, const struct op *o, enum act a, uint32_t rows, uint32_t each, bool integers,
                 float *y)
{
    struct run *r = &rounded->r;
    uint32_t n = op_weight(o)->n_in;
    if (!integers && is_half(a))
        return;
    MUST(r->be->act_read(r->dev, a, 0, rows, y, &e));
    to_input(y, rows * each, n, integers);
    MUST(r->be->act_write(r->dev, a, 0, rows, n * each, y, &e));
}

/* The number of columns of the widest activation that ops write, logits excepted. */
static uint32_t widest(const struct program *p)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_op; i++) {
        enum act out = op_writes(&p->op[i]);
        uint32_t n = out == ACT_LOGITS ? 0 : op_columns(&p->op[i], out);
        most = n > most ? n : most;
    }
    return most;
}

void rounded_step(struct rounded *rounded, const int32_t *token, uint32_t n, uint32_t pos, float *logits)
{
    struct run *r = &rounded->r;
    const struct program *p = &r->m->program;
    const struct piece piece = {token, n, pos, n, r->pages};
    uint32_t width = r->m->hp.d_model, most = widest(p), router = 0;
    float *x = malloc((size_t)n * width * sizeof *x), *y = malloc((size_t)n * most * sizeof *y);
    assert_true(x && y);
    for (uint32_t i = 0; i < p->n_op; i++) {
        struct op o = p->op[i];
        enum act out = op_writes(&o);
        struct norm none, *norm = rounded->gpu ? norm_of(&o, &none) : NULL;
        if (norm) {
            normed(norm, x, n, width, y);
            to_input(y, n, width, rounded->integers[i]);
            MUST(r->be->act_write(r->dev, ACT_X, 0, n, width, y, &e));
            *norm = (struct norm){NORM_NONE, 0, NULL, NULL};
        } else if (rounded->gpu && o.kind == OP_PROJ)
            take(rounded, &o, o.proj.in, n, 1, rounded->integers[i], y);
        else if (rounded->gpu && o.kind == OP_EXPERTS_UP)
            take(rounded, &o, ACT_MIX, n, 1, rounded->integers[i], y);
        else if (rounded->gpu && o.kind == OP_EXPERTS_DOWN)
            take(rounded, &o, ACT_EXPERTS, n, o.experts_down.n_used, rounded->integers[i], y);
        else if (rounded->gpu && o.kind == OP_LATENT_Q && o.latent_q.w)
            take(rounded, &o, ACT_LATENT, n, 1, rounded->integers[i], y);
        struct program one = program_of(r->m, &o, 1);
        r->program = &one;
        run_step(r, &piece, 1, INVARIANT_DECODE, out == ACT_LOGITS ? logits : NULL);
        if (o.kind == OP_ROUTE && rounded->routes)
            routes_follow(rounded->routes, r, &o, router, pos, n, !rounded->gpu);
        router += o.kind == OP_ROUTE;
        if (out == ACT_LOGITS)
            continue;
        uint32_t columns = op_columns(&o, out);
        MUST(r->be->act_read(r->dev, out, 0, n, out == ACT_X ? x : y, &e));
        if (is_half(out) && rounded->gpu) {
            to_half(y, (size_t)n * columns);
            MUST(r->be->act_write(r->dev, out, 0, n, columns, y, &e));
        }
        if (norm) /* restores what the norm's result had replaced */
            MUST(r->be->act_write(r->dev, ACT_X, 0, n, width, x, &e));
    }
    r->program = NULL;
    free(x), free(y);
}
