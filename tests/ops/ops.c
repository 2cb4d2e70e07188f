/*
 * ops.c - every op of a backend against an independent computation in double precision, over the case table.
 *
 *     tests/ops/ops [BACKEND [VARIANT [HOW [q8_0] [host] [only PATTERN]]]]
 *
 * BACKEND: "cpu" by default; exit status 77 if the machine has no such device. HOW: fast, steps outside the invariant
 * mode; prompt, invariant steps of prompts; decode, invariant steps of decoding rows, which is the default; batch,
 * those of any number of rows. q8_0: KV of that type for all heads that are whole blocks. host: a GPU's weights are in
 * host memory. only: the cases whose names match.
 *
 * Each op is a step of its own with its own random input, written and read through act_write and act_read, so that an
 * error is seen where it is made. The tolerance is relative to the greatest magnitude in the row of results. On the CPU
 * everything is f32, with at most some hundred roundings of 6e-8 in a chain of partial sums, so 4e-6; a GPU rounds
 * activations to f16 (5e-4 each), which averages out over a row: 2e-3.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/rig.h"

static const struct backend *backend;
static const char *variant = "auto";
static enum invariance how = INVARIANT_DECODE;
static double tolerance;

enum { HEAD_MAX = 512 /* the largest head size of the table */ };

/* --- the independent computation ------------------------------------------------------------------------- */

/* The case's matrix, times the factor that all of its matrices have. */
static double *matrix(const struct op_case *c, const uint8_t *packed, enum dtype type, uint32_t n_in, uint32_t n_out)
{
    size_t n = (size_t)n_in * n_out;
    float *f = malloc(n * sizeof *f);
    double *m = malloc(n * sizeof *m);
    assert_true(f && m);
    dtype_get(type)->to_f32(packed, f, n);
    for (size_t i = 0; i < n; i++)
        m[i] = (double)f[i] * (c->factor != 0 ? (double)c->factor : 1);
    free(f);
    return m;
}

static void norm(enum norm_kind kind, double eps, const float *w, const float *b, const double *x, uint32_t n,
                 double *y)
{
    double mean = 0, var = 0;
    if (kind == NORM_NONE) {
        memmove(y, x, n * sizeof *y);
        return;
    }
    for (uint32_t i = 0; kind == NORM_LAYER && i < n; i++)
        mean += x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / n;
    for (uint32_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(var + eps) * (double)w[i] + (b ? (double)b[i] : 0.0);
}

static void multiply(const double *m, const double *x, uint32_t n_in, uint32_t n_out, double *y)
{
    for (uint32_t o = 0; o < n_out; o++) {
        y[o] = 0;
        for (uint32_t k = 0; k < n_in; k++)
            y[o] += m[(size_t)o * n_in + k] * x[k];
    }
}

static void rotate(const struct op_case *c, uint32_t pos, const float *inv_freq, double *v)
{
    uint32_t half = c->n_rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        double *a = c->rope == ROPE_NORM ? v + 2 * i : v + i, *b = c->rope == ROPE_NORM ? a + 1 : a + half;
        double t = pos * (double)inv_freq[i], x = *a, y = *b;
        *a = x * cos(t) - y * sin(t);
        *b = x * sin(t) + y * cos(t);
    }
}

/* Multiplies eight pairs at a time by the Hadamard matrix of size sixteen: the sign at (i, k) is the parity of i &
 * k. */
static void hadamard(const struct op_case *c, double *v)
{
    uint32_t half = c->n_rot / 2;
    for (uint32_t g = 0; c->hadamard && g < half; g += 8) {
        double in[16], *at[16];
        for (uint32_t i = 0; i < 16; i++) { /* pair i / 2, member i % 2 */
            uint32_t pair = g + i / 2;
            at[i] = c->rope == ROPE_NORM ? &v[2 * pair + i % 2] : &v[pair + i % 2 * half];
            in[i] = *at[i];
        }
        for (uint32_t i = 0; i < 16; i++) {
            *at[i] = 0;
            for (uint32_t k = 0; k < 16; k++)
                *at[i] += in[k] * (__builtin_popcount(i & k) % 2 ? -0.25 : 0.25);
        }
    }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void to_double(const float *f, double *d, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = (double)f[i];
}

static void compare(const char *what, const struct op_case *c, uint32_t row, const float *got, const double *want,
                    uint32_t n, double tol)
{
    double scale = 1e-6;
    for (uint32_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(want[i]));
    for (uint32_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tol * scale))
            fail_msg("%s, case '%s', row %u, column %u: %.9g, exactly %.9g (greatest of the row %.3g)", what, c->name,
                     (unsigned)row, (unsigned)i, (double)got[i], want[i], scale);
}

/* --- the case under test --------------------------------------------------------------------------------- */

struct fixture {
    const struct op_case *c;
    struct numbers n;
    struct rig r;
    uint32_t n_row, n_seq, d_q, d_kv, widest;
    uint32_t pos[BATCH_ROWS_MAX], seq[BATCH_ROWS_MAX];
    float *in, *got;   /* [n_row, widest] */
    double *x, *y, *z; /* [widest] */
    uint32_t held;     /* the page that page_vector() last read; RIG_PAGES: none since the last op */
};

static void check_embed(struct fixture *f)
{
    const struct op_case *c = f->c;
    double *m = matrix(c, f->n.head, f->n.head_type, c->d_model, c->n_vocab);
    struct op op = op_embed(&f->r);
    rig_op(&f->r, &op);
    rig_read(&f->r, ACT_X, 0, f->n_row, f->got);
    for (uint32_t r = 0; r < f->n_row; r++) {
        const double *row = m + (size_t)rig_token(c, f->seq[r], f->pos[r]) * c->d_model;
        for (uint32_t i = 0; i < c->d_model; i++)
            f->x[i] = row[i] * (double)c->embed_scale;
        compare("embed", c, r, f->got + (size_t)r * c->d_model, f->x, c->d_model, tolerance);
    }
    free(m);
}

/* Reads the vector of (K or V, KV head, position) of a sequence from the pages. */
static void page_vector(struct fixture *f, uint32_t seq, uint32_t layer, int v, uint32_t head, uint32_t pos, float *out)
{
    const struct op_case *c = f->c;
    size_t n = (size_t)LAYERS * 2 * c->n_kv * KV_PAGE * c->d_head;
    static uint8_t page[4 << 20];
    assert_true(dtype_bytes(c->kv_type, n) <= sizeof page);
    if (f->held != f->r.pages[seq][pos / KV_PAGE])
        rig_page_read(&f->r, f->held = f->r.pages[seq][pos / KV_PAGE], page);
    size_t at = ((((size_t)layer * 2 + (size_t)v) * c->n_kv + head) * KV_PAGE + pos % KV_PAGE) * c->d_head;
    dtype_get(c->kv_type)->to_f32(page + dtype_bytes(c->kv_type, at), out, c->d_head);
}

static void check_qkv(struct fixture *f)
{
    const struct op_case *c = f->c;
    const struct numbers *n = &f->n;
    double *m[3];
    for (int i = 0; i < 3; i++)
        m[i] = matrix(c, n->packed[i], n->type[i], c->d_model, n->n_out[i]);
    random_floats(1, f->in, (size_t)f->n_row * c->d_model);
    rig_write(&f->r, ACT_X, f->n_row, c->d_model, f->in);
    struct op op = op_qkv(&f->r, 1);
    rig_op(&f->r, &op);
    f->held = RIG_PAGES;
    rig_read(&f->r, ACT_Q, 0, f->n_row, f->got);
    for (uint32_t r = 0; r < f->n_row; r++)
        for (int part = 0; part < 3; part++) {
            uint32_t width = n->n_out[part], heads = width / c->d_head;
            const float *bias = n->bias_qkv + (part == 0 ? 0 : f->d_q + (uint32_t)(part - 1) * f->d_kv);
            to_double(f->in + (size_t)r * c->d_model, f->x, c->d_model);
            norm(c->norm, 1e-5, n->norm_w, c->norm == NORM_LAYER ? n->norm_b : NULL, f->x, c->d_model, f->y);
            multiply(m[part], f->y, c->d_model, width, f->z);
            for (uint32_t i = 0; c->bias && i < width; i++)
                f->z[i] += (double)bias[i];
            if (part < 2 && c->head_norms && c->whole_norms)
                norm(NORM_RMS, 1e-6, part ? n->k_norm : n->q_norm, NULL, f->z, width, f->z);
            for (uint32_t h = 0; h < heads; h++) {
                double *v = f->z + h * c->d_head;
                if (part < 2 ? c->head_norms && !c->whole_norms : c->v_norm)
                    norm(NORM_RMS, 1e-6, part ? n->k_norm : n->q_norm, NULL, v, c->d_head, v);
                if (part < 2)
                    rotate(c, f->pos[r], n->inv_freq + rig_freq_set(c, f->seq[r]) * (c->n_rot / 2), v);
                if (part < 2)
                    hadamard(c, v);
                for (uint32_t i = 0; part == 0 && i < c->d_head; i++)
                    v[i] *= 1 + (double)c->temperature * log1p(floor((double)f->pos[r] / TEMPERATURE_LENGTH));
                if (part > 0) { /* F16 KV rounds once more, by half a unit of 2^-11 at most; Q8_0 by half of a 127th of
                                   its block's greatest number, and that number as F16 does */
                    float kv[HEAD_MAX];
                    page_vector(f, f->seq[r], 1, part == 2, h, f->pos[r], kv);
                    compare(part == 1 ? "qkv (k)" : "qkv (v)", c, r, kv, v, c->d_head,
                            16 * tolerance + (c->kv_type == DT_F16    ? 5e-4
                                              : c->kv_type == DT_Q8_0 ? 4.5e-3
                                                                      : 0));
                }
            }
            if (part == 0)
                compare("qkv (q)", c, r, f->got + (size_t)r * f->d_q, f->z, f->d_q, tolerance);
        }
    for (int i = 0; i < 3; i++)
        free(m[i]);
}

static void check_attend(struct fixture *f)
{
    const struct op_case *c = f->c;
    random_floats(2, f->in, (size_t)f->n_row * f->d_q);
    for (size_t i = 0; i < (size_t)f->n_row * f->d_q; i++)
        f->in[i] *= 4.0f; /* for peaks in the softmax */
    rig_write(&f->r, ACT_Q, f->n_row, f->d_q, f->in);
    struct op op = op_attend(&f->r, 1);
    rig_op(&f->r, &op);
    f->held = RIG_PAGES;
    rig_read(&f->r, ACT_ATT, 0, f->n_row, f->got);
    for (uint32_t r = 0; r < f->n_row; r++)
        for (uint32_t h = 0; h < c->n_head; h++) {
            uint32_t t1 = f->pos[r] + 1, t0 = c->window && c->window < t1 ? t1 - c->window : 0;
            const float *q = f->in + (size_t)r * f->d_q + h * c->d_head;
            double sum = c->sinks ? exp((double)f->n.sinks[h]) : 0, out[HEAD_MAX] = {0};
            for (uint32_t t = t0; t < t1; t++) { /* scores are at most about 20: no need to subtract the greatest */
                float k[HEAD_MAX], v[HEAD_MAX];
                double s = 0;
                page_vector(f, f->seq[r], 1, 0, h / (c->n_head / c->n_kv), t, k);
                page_vector(f, f->seq[r], 1, 1, h / (c->n_head / c->n_kv), t, v);
                for (uint32_t i = 0; i < c->d_head; i++)
                    s += (double)q[i] * (double)k[i];
                s /= sqrt((double)c->d_head);
                s = c->att_softcap > 0 ? (double)c->att_softcap * tanh(s / (double)c->att_softcap) : s;
                double weight = exp(s);
                sum += weight;
                for (uint32_t i = 0; i < c->d_head; i++)
                    out[i] += weight * (double)v[i];
            }
            for (uint32_t i = 0; i < c->d_head; i++)
                out[i] /= sum;
            /* an error of 1e-7 in a score of 20 means 2e-6 in its weight */
            compare("attend", c, r, f->got + (size_t)r * f->d_q + h * c->d_head, out, c->d_head, 8 * tolerance);
        }
}

static void check_proj(struct fixture *f, enum part part)
{
    const struct op_case *c = f->c;
    const struct numbers *n = &f->n;
    uint32_t n_in = n->n_in[part];
    double *m = matrix(c, n->packed[part], n->type[part], n_in, c->d_model);
    float *x = malloc((size_t)f->n_row * c->d_model * sizeof *x);
    assert_non_null(x);
    random_floats(3, x, (size_t)f->n_row * c->d_model);
    random_floats(4, f->in, (size_t)f->n_row * n_in);
    rig_write(&f->r, ACT_X, f->n_row, c->d_model, x);
    rig_write(&f->r, part == P_O ? ACT_ATT : ACT_FF, f->n_row, n_in, f->in);
    struct op op = part == P_O ? op_o(&f->r) : op_down(&f->r);
    rig_op(&f->r, &op);
    rig_read(&f->r, ACT_X, 0, f->n_row, f->got);
    const float *bias = part == P_O ? n->bias_o : n->bias_down;
    for (uint32_t r = 0; r < f->n_row; r++) {
        to_double(f->in + (size_t)r * n_in, f->x, n_in);
        multiply(m, f->x, n_in, c->d_model, f->y);
        for (uint32_t i = 0; c->bias && i < c->d_model; i++)
            f->y[i] += (double)bias[i];
        if (c->post_norm)
            norm(NORM_RMS, 1e-6, n->post_w, NULL, f->y, c->d_model, f->y);
        for (uint32_t i = 0; i < c->d_model; i++)
            f->y[i] = (f->y[i] * (c->residual_scale != 0 ? (double)c->residual_scale : 1) +
                       (double)x[(size_t)r * c->d_model + i]) *
                      (c->x_scale != 0 ? (double)c->x_scale : 1);
        compare("proj", c, r, f->got + (size_t)r * c->d_model, f->y, c->d_model, tolerance);
    }
    free(m);
    free(x);
}

/* Runs an op whose input is norm(x), after the same op with other numbers, of which nothing may remain. */
static void run_on_x(struct fixture *f, const struct op *op, uint64_t seed)
{
    const struct op_case *c = f->c;
    const uint64_t seeds[] = {50 + seed, seed};
    for (int i = 0; i < 2; i++) {
        random_floats(seeds[i], f->in, (size_t)f->n_row * c->d_model);
        rig_write(&f->r, ACT_X, f->n_row, c->d_model, f->in);
        rig_op(&f->r, op);
    }
}

static void check_ffn(struct fixture *f)
{
    const struct op_case *c = f->c;
    const struct numbers *n = &f->n;
    double *gate = matrix(c, n->packed[P_GATE], n->type[P_GATE], c->d_model, c->d_ff);
    double *up = matrix(c, n->packed[P_UP], n->type[P_UP], c->d_model, c->d_ff);
    double *g = malloc(c->d_ff * sizeof *g);
    assert_non_null(g);
    struct op op = op_ffn(&f->r);
    run_on_x(f, &op, 5);
    rig_read(&f->r, ACT_FF, 0, f->n_row, f->got);
    for (uint32_t r = 0; r < f->n_row; r++) {
        to_double(f->in + (size_t)r * c->d_model, f->x, c->d_model);
        norm(c->norm, 1e-5, n->norm_w, c->norm == NORM_LAYER ? n->norm_b : NULL, f->x, c->d_model, f->y);
        multiply(gate, f->y, c->d_model, c->d_ff, g);
        multiply(up, f->y, c->d_model, c->d_ff, f->z);
        double row = 0;
        for (uint32_t i = 0; i < c->d_model; i++)
            row += f->y[i] * (double)n->row_gate[i];
        row = 1 / (1 + exp(-row));
        for (uint32_t i = 0; i < c->d_ff; i++) {
            double bg = c->bias ? (double)n->bias_ffn[i] : 0, bu = c->bias ? (double)n->bias_ffn[c->d_ff + i] : 0;
            if (c->glu == GLU_GELU)
                f->z[i] = gelu(f->z[i] + bg); /* with one part the bias is added first */
            else if (c->glu == GLU_RELU2)
                f->z[i] = pow(fmax(f->z[i] + bg, 0), 2);
            else if (c->glu == GLU_GEGLU)
                f->z[i] = gelu(g[i] + bg) * (f->z[i] + bu);
            else if (c->glu == GLU_OAI) {
                double gc = fmin(g[i] + bg, 7), uc = fmax(fmin(f->z[i] + bu, 7), -7);
                f->z[i] = gc / (1 + exp(-1.702 * gc)) * (uc + 1);
            } else
                f->z[i] = (g[i] + bg) / (1 + exp(-g[i] - bg)) * (f->z[i] + bu);
            if (c->row_gate)
                f->z[i] *= row;
        }
        compare("ffn_up", c, r, f->got + (size_t)r * c->d_ff, f->z, c->d_ff, tolerance);
    }
    free(gate);
    free(up);
    free(g);
}

static void check_head(struct fixture *f)
{
    const struct op_case *c = f->c;
    double *m = matrix(c, f->n.head, f->n.head_type, c->d_model, c->n_vocab);
    struct op op = op_head(&f->r);
    run_on_x(f, &op, 6);
    rig_read(&f->r, ACT_LOGITS, 0, f->n_row, f->got);
    for (uint32_t r = 0; r < f->n_row; r++) {
        to_double(f->in + (size_t)r * c->d_model, f->x, c->d_model);
        norm(c->norm, 1e-5, f->n.norm_w, c->norm == NORM_LAYER ? f->n.norm_b : NULL, f->x, c->d_model, f->y);
        multiply(m, f->y, c->d_model, c->n_vocab, f->z);
        for (uint32_t i = 0; i < c->n_vocab; i++) {
            f->z[i] = (f->z[i] + (op.head.bias ? (double)f->n.bias_head[i] : 0)) * 0.5;
            if (c->softcap > 0)
                f->z[i] = (double)c->softcap * tanh(f->z[i] / (double)c->softcap);
        }
        compare("head", c, r, f->got + (size_t)r * c->n_vocab, f->z, c->n_vocab, 4 * tolerance);
    }
    free(m);
}

static void test_case(void **state)
{
    struct fixture f = {.c = *state};
    const struct op_case *c = f.c;
    struct device *d = rig_device(backend, variant, 2);
    assert_non_null(d);
    numbers_init(&f.n, c);
    rig_init(&f.r, &f.n, backend, d);
    f.n_row = case_rows(c, &f.n_seq);
    f.d_q = c->n_head * c->d_head;
    f.d_kv = c->n_kv * c->d_head;
    const uint32_t widths[] = {c->d_model, f.d_q, f.d_kv, c->d_ff, c->n_vocab};
    for (size_t i = 0; i < 5; i++)
        f.widest = widths[i] > f.widest ? widths[i] : f.widest;
    uint32_t row = 0;
    for (uint32_t s = 0; s < f.n_seq; s++)
        for (uint32_t i = 0; i < c->seq[s].n_row; i++, row++) {
            f.pos[row] = c->seq[s].pos0 + i;
            f.seq[row] = s;
        }
    f.in = malloc((size_t)f.n_row * f.widest * sizeof *f.in);
    f.got = malloc((size_t)f.n_row * f.widest * sizeof *f.got);
    f.x = malloc(f.widest * sizeof *f.x);
    f.y = malloc(f.widest * sizeof *f.y);
    f.z = malloc(f.widest * sizeof *f.z);
    assert_true(f.in && f.got && f.x && f.y && f.z);
    f.r.how = how;
    rig_fill_kv(&f.r);
    rig_batch(&f.r, c->seq, 0, f.n_seq);
    check_embed(&f);
    check_qkv(&f);
    check_attend(&f);
    check_proj(&f, P_O);
    check_ffn(&f);
    check_proj(&f, P_DOWN);
    check_head(&f);
    rig_fini(&f.r);
    numbers_fini(&f.n);
    backend->close(d);
    free(f.in), free(f.got), free(f.x), free(f.y), free(f.z);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    if (argc > 2)
        variant = argv[2];
    if (argc > 3)
        how = !strcmp(argv[3], "fast")     ? INVARIANT_OFF
              : !strcmp(argv[3], "prompt") ? INVARIANT_PROMPT
              : !strcmp(argv[3], "batch")  ? INVARIANT_BATCH
                                           : how;
    for (int i = 4; i < argc; i++)
        if (!strcmp(argv[i], "q8_0"))
            rig_kv_type = DT_Q8_0;
        else if (!strcmp(argv[i], "host"))
            rig_host = true;
        else if (!strcmp(argv[i], "only") && i + 1 < argc)
            cmocka_set_test_filter(argv[++i]);
    struct device_info info;
    if (!(backend = rig_backend(name, variant, &info)))
        return 77;
    tolerance = strcmp(name, "cpu") ? 2e-3 : 4e-6;
    struct CMUnitTest *tests = calloc(n_op_cases, sizeof *tests);
    struct op_case *cases = calloc(n_op_cases, sizeof *cases);
    if (!tests || !cases)
        return 1;
    size_t n = 0;
    for (size_t i = 0; i < n_op_cases; i++) {
        cases[i] = op_cases[i];
        if (rig_case(&info, &cases[i]))
            tests[n++] = (struct CMUnitTest){op_cases[i].name, test_case, NULL, NULL, &cases[i]};
    }
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    free(tests);
    free(cases);
    return failed;
}
