/* rounded.c - see rounded.h. */
#include "tests/golden/rounded.h"

#include <math.h>
#include <string.h>

#define QUANT_HEADERS
#include "kernels/quant/list.h"

void rounded_open(struct rounded *r, const char *path, const struct run *like, uint32_t n_row)
{
    const struct program *p = &like->m->program;
    run_open_kv(&r->r, path, backend_find("cpu"), NULL, 0, 0, n_row, like->info.kv_type);
    r->gpu = like->info.gpu;
    r->integers = calloc(p->n_op, sizeof *r->integers);
    assert_non_null(r->integers);
    assert_int_equal(p->n_op, r->r.m->program.n_op);
    for (uint32_t i = 0; i < p->n_op; i++) {
        const char *way = like->be->op_path(like->dev, p, i, n_row, true);
        r->integers[i] = way && !strncmp(way, "gemv", 4);
    }
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

/* A row of n as records of integers. */
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

/* What a product takes of rows of n. */
static void to_input(float *v, uint32_t rows, uint32_t n, bool integers)
{
    if (!integers)
        to_half(v, (size_t)rows * n);
    for (uint32_t r = 0; r < rows && integers; r++)
        to_integers(v + (size_t)r * n, n);
}

/* norm(x) of each row, summed in double. */
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

/* The norm that an op begins with, whose result is an input of a product; NULL: none. */
static struct norm *norm_of(struct op *o)
{
    return o->kind == OP_QKV      ? &o->qkv.norm
           : o->kind == OP_FFN_UP ? &o->ffn_up.norm
           : o->kind == OP_HEAD   ? &o->head.norm
                                  : NULL;
}

/* The widest of the activations that ops write, but for logits. */
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
    uint32_t width = r->m->hp.d_model, most = widest(p);
    float *x = malloc((size_t)n * width * sizeof *x), *y = malloc((size_t)n * most * sizeof *y);
    assert_true(x && y);
    for (uint32_t i = 0; i < p->n_op; i++) {
        struct op o = p->op[i];
        enum act out = op_writes(&o);
        struct norm *norm = norm_of(&o);
        assert_true(o.kind == OP_EMBED || o.kind == OP_ATTEND || o.kind == OP_PROJ || norm); /* a dense model's */
        if (norm && rounded->gpu) {
            normed(norm, x, n, width, y);
            to_input(y, n, width, rounded->integers[i]);
            MUST(r->be->act_write(r->dev, ACT_X, 0, n, width, y, &e));
            *norm = (struct norm){NORM_NONE, 0, NULL, NULL};
        } else if (o.kind == OP_PROJ && rounded->integers[i]) { /* of halves: y is what the op before wrote */
            to_input(y, n, o.proj.w->n_in, true);
            MUST(r->be->act_write(r->dev, o.proj.in, 0, n, o.proj.w->n_in, y, &e));
        }
        struct program one = program_of(r->m, &o, 1);
        r->program = &one;
        run_step(r, &piece, 1, INVARIANT_DECODE, out == ACT_LOGITS ? logits : NULL);
        if (out == ACT_LOGITS)
            continue;
        uint32_t columns = op_columns(&o, out);
        MUST(r->be->act_read(r->dev, out, 0, n, out == ACT_X ? x : y, &e));
        if (out != ACT_X && rounded->gpu) {
            to_half(y, (size_t)n * columns);
            MUST(r->be->act_write(r->dev, out, 0, n, columns, y, &e));
        }
        if (norm && rounded->gpu) /* what its result took the place of */
            MUST(r->be->act_write(r->dev, ACT_X, 0, n, width, x, &e));
    }
    r->program = NULL;
    free(x), free(y);
}
