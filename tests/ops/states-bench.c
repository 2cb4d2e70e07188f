/* states-bench.c - see states-bench.h. */
#include "tests/ops/states-bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct backend *states_backend;
const char *states_variant = "auto";
bool states_gpu;

/* --- in double precision --------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Takes one row through the convolution, whose earlier inputs are the first part of the state. */
static void convolve(const struct state_conv *conv, uint32_t n, const double *in, double *state, double *out)
{
    uint32_t before = conv->n_tap - 1;
    for (uint32_t c = 0; c < n; c++) {
        const float *w = conv->w + (size_t)c * conv->n_tap;
        out[c] = (conv->bias ? (double)conv->bias[c] : 0) + (double)w[before] * in[c];
        for (uint32_t k = 0; k < before; k++)
            out[c] += (double)w[k] * state[k * n + c];
    }
    memmove(state, state + n, (before - 1) * n * sizeof *state);
    memcpy(state + (before - 1) * n, in, n * sizeof *state);
}

static void shortconv_row(const struct subject *s, const float *in, double *state, double *out)
{
    const struct op_shortconv *o = &s->op.shortconv;
    double bx[COLS_MAX] = {0};
    for (uint32_t i = 0; i < o->d_inner; i++)
        bx[i] = (double)in[i] * (double)in[2 * o->d_inner + i];
    convolve(&o->conv, o->d_inner, bx, state, out);
    for (uint32_t i = 0; i < o->d_inner; i++)
        out[i] *= (double)in[o->d_inner + i];
}

/* The convolution and its activation function, for n numbers of the row. */
static void activated(const struct state_conv *conv, uint32_t n, const float *in, double *state, double *out)
{
    double x[COLS_MAX] = {0};
    for (uint32_t i = 0; i < n; i++)
        x[i] = (double)in[i];
    convolve(conv, n, x, state, out);
    for (uint32_t i = 0; i < n; i++)
        out[i] *= sigmoid(out[i]);
}

static void rms(const struct norm *norm, double *y, uint32_t n, uint32_t first)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += y[i] * y[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] *= (double)norm->w[first + i] / sqrt(sum / n + (double)norm->eps);
}

static void delta_row(const struct subject *s, const float *in, double *state, double *out)
{
    const struct op_delta *o = &s->op.delta;
    uint32_t n = delta_channels(o), d_k = o->d_k, d_v = o->d_v, each = o->n_v / o->n_k;
    double x[COLS_MAX], *S = state + (o->conv.n_tap - 1) * n;
    activated(&o->conv, n, in, state, x);
    const float *z = in + n, *ba = z + o->n_v * d_v;
    for (uint32_t h = 0; h < o->n_v; h++, S += d_k * d_v) {
        uint32_t of = o->tiled ? h % o->n_k : h / each;
        uint32_t at_b = o->paired ? h / each * 2 * each + h % each : h, at_a = at_b + (o->paired ? each : o->n_v);
        const double *q = x + of * d_k, *k = x + (o->n_k + of) * d_k, *v = x + 2 * o->n_k * d_k + h * d_v;
        double qq = 0, kk = 0, *y = out + h * d_v;
        for (uint32_t i = 0; i < d_k; i++)
            qq += q[i] * q[i], kk += k[i] * k[i];
        qq = sqrt(qq + 1e-6) * sqrt(d_k), kk = sqrt(kk + 1e-6);
        double keep = exp((double)o->decay[h] * log1p(exp((double)ba[at_a] + (double)o->dt_bias[h])));
        for (uint32_t j = 0; j < d_v; j++) {
            double seen = 0;
            for (uint32_t i = 0; i < d_k; i++) {
                S[i * d_v + j] *= keep;
                seen += S[i * d_v + j] * k[i] / kk;
            }
            y[j] = 0;
            for (uint32_t i = 0; i < d_k; i++) {
                S[i * d_v + j] += k[i] / kk * sigmoid((double)ba[at_b]) * (v[j] - seen);
                y[j] += S[i * d_v + j] * q[i] / qq;
            }
        }
        rms(&o->norm, y, d_v, 0);
        for (uint32_t j = 0; j < d_v; j++)
            y[j] *= (double)z[h * d_v + j] * sigmoid((double)z[h * d_v + j]);
    }
}

static void mamba2_row(const struct subject *s, const float *in, double *state, double *out)
{
    const struct op_mamba2 *o = &s->op.mamba2;
    uint32_t n = mamba2_channels(o), d_inner = o->n_head * o->d_head, N = o->d_state, P = o->d_head;
    double x[COLS_MAX], *S = state + (o->conv.n_tap - 1) * n;
    activated(&o->conv, n, in + d_inner, state, x);
    for (uint32_t h = 0; h < o->n_head; h++, S += N * P) {
        uint32_t of = h / (o->n_head / o->n_group);
        const double *b = x + d_inner + of * N, *c = b + o->n_group * N;
        double t = log1p(exp((double)in[d_inner + n + h] + (double)o->dt_bias[h])), keep = exp((double)o->decay[h] * t);
        for (uint32_t j = 0; j < P; j++) {
            double *y = &out[h * P + j], xj = x[h * P + j];
            *y = (double)o->skip[h] * xj;
            for (uint32_t i = 0; i < N; i++) {
                S[i * P + j] = keep * S[i * P + j] + t * b[i] * xj;
                *y += S[i * P + j] * c[i];
            }
            *y *= (double)in[h * P + j] * sigmoid((double)in[h * P + j]);
        }
    }
    uint32_t groups = o->norm_whole ? 1 : o->n_group, each = d_inner / groups;
    for (uint32_t g = 0; g < groups; g++)
        rms(&o->norm, out + g * each, each, g * each);
}

/* --- the subjects ---------------------------------------------------------------------------------------- */

float *numbers(uint64_t seed, size_t n, float low, float high)
{
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    random_floats(seed, v, n);
    for (size_t i = 0; i < n; i++)
        v[i] = low + (high - low) * (v[i] + 1) / 2;
    return v;
}

static struct state_conv conv_of(struct subject *s, uint32_t n, uint32_t taps, bool bias)
{
    s->w = numbers(1, (size_t)n * taps, -1, 1);
    s->bias = bias ? numbers(2, n, -0.5f, 0.5f) : NULL;
    return (struct state_conv){taps, s->w, s->bias};
}

/* Decays of heads that forget at once, and of heads that forget over 100,000 tokens. */
static float *decays(uint32_t n)
{
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (uint32_t i = 0; i < n; i++)
        v[i] = -4.0f / powf(30.0f, (float)(i % 4));
    return v;
}

struct subject make_shortconv(uint32_t d, uint32_t taps)
{
    struct subject s = {"shortconv", 3 * d, d, (taps - 1) * d, .row = shortconv_row};
    s.op.kind = OP_SHORTCONV;
    s.op.shortconv = (struct op_shortconv){.d_inner = d, .conv = conv_of(&s, d, taps, false)};
    return s;
}

struct subject make_delta(uint32_t n_k, uint32_t n_v, uint32_t d_k, uint32_t d_v, bool tiled, bool paired)
{
    uint32_t n = 2 * n_k * d_k + n_v * d_v;
    struct subject s = {"delta", n + n_v * d_v + 2 * n_v, n_v * d_v, (TAPS - 1) * n + n_v * d_k * d_v,
                        .row = delta_row};
    s.decay = decays(n_v);
    s.dt_bias = numbers(3, n_v, -1, 1);
    s.norm = numbers(4, d_v, 0.5f, 1.5f);
    s.op.kind = OP_DELTA;
    s.op.delta = (struct op_delta){.n_k = n_k, .n_v = n_v, .d_k = d_k, .d_v = d_v, .tiled = tiled, .paired = paired};
    s.op.delta.conv = conv_of(&s, n, TAPS, false);
    s.op.delta.decay = s.decay, s.op.delta.dt_bias = s.dt_bias;
    s.op.delta.norm = (struct norm){NORM_RMS, 1e-6f, s.norm, NULL};
    return s;
}

struct subject make_mamba2(uint32_t n_head, uint32_t d_head, uint32_t d_state, uint32_t n_group, bool norm_whole)
{
    uint32_t inner = n_head * d_head, n = inner + 2 * n_group * d_state;
    struct subject s = {"mamba2", inner + n + n_head, inner, (TAPS - 1) * n + inner * d_state, .row = mamba2_row};
    s.decay = decays(n_head);
    s.dt_bias = numbers(3, n_head, -1, 1);
    s.skip = numbers(5, n_head, -1, 1);
    s.norm = numbers(4, inner, 0.5f, 1.5f);
    s.op.kind = OP_MAMBA2;
    s.op.mamba2 = (struct op_mamba2){
        .n_head = n_head, .d_head = d_head, .d_state = d_state, .n_group = n_group, .norm_whole = norm_whole};
    s.op.mamba2.conv = conv_of(&s, n, TAPS, true);
    s.op.mamba2.decay = s.decay, s.op.mamba2.dt_bias = s.dt_bias, s.op.mamba2.skip = s.skip;
    s.op.mamba2.norm = (struct norm){NORM_RMS, 1e-5f, s.norm, NULL};
    return s;
}

void forget(struct subject *s)
{
    free(s->w), free(s->bias), free(s->decay), free(s->dt_bias), free(s->skip), free(s->norm);
}

/* --- the device ------------------------------------------------------------------------------------------ */

void ok(int rc, const struct hearth_err *e)
{
    if (rc)
        fail_msg("%s", e->msg);
}

/* The subject's op, with its vectors on the device. */
static struct op op_here(const struct bench *b, const struct subject *s)
{
    struct op o = s->op;
    if (o.kind == OP_SHORTCONV)
        o.shortconv.conv.w = b->vec[0], o.shortconv.conv.bias = b->vec[1];
    else if (o.kind == OP_DELTA)
        o.delta.conv.w = b->vec[0], o.delta.conv.bias = b->vec[1], o.delta.decay = b->vec[2],
        o.delta.dt_bias = b->vec[3], o.delta.norm.w = b->vec[5];
    else
        o.mamba2.conv.w = b->vec[0], o.mamba2.conv.bias = b->vec[1], o.mamba2.decay = b->vec[2],
        o.mamba2.dt_bias = b->vec[3], o.mamba2.skip = b->vec[4], o.mamba2.norm.w = b->vec[5];
    return o;
}

void bench_open(struct bench *b, const struct subject *s)
{
    const struct state_conv *conv = s->op.kind == OP_SHORTCONV ? &s->op.shortconv.conv
                                    : s->op.kind == OP_DELTA   ? &s->op.delta.conv
                                                               : &s->op.mamba2.conv;
    size_t channels = s->op.kind == OP_SHORTCONV ? s->op.shortconv.d_inner
                      : s->op.kind == OP_DELTA   ? delta_channels(&s->op.delta)
                                                 : mamba2_channels(&s->op.mamba2);
    size_t heads = s->op.kind == OP_DELTA ? s->op.delta.n_v : s->op.kind == OP_MAMBA2 ? s->op.mamba2.n_head : 0;
    const float *from[6] = {s->w, s->bias, s->decay, s->dt_bias, s->skip, s->norm};
    const size_t n[6] = {
        channels * conv->n_tap, channels, heads, heads, heads, s->op.kind == OP_DELTA ? s->op.delta.d_v : s->n_att};
    struct workspace_dims dims = {
        .d_model = 16, .d_q = s->n_att, .d_kv = 16, .d_ff = 16, .n_vocab = 16, .n_row = ROWS, .n_out = 1};
    struct hearth_err e;
    dims.d_mix = s->n_mix;
    assert_true(s->n_mix <= COLS_MAX && s->n_state <= STATE_MAX);
    *b = (struct bench){.be = states_backend, .how = INVARIANT_DECODE};
    for (uint32_t i = 0; i < SEQS; i++)
        b->page[i][0] = 2 * i, b->page[i][1] = 2 * i + 1, b->page[i][2] = 2 * SEQS;
    b->desc = (struct kv_desc){.n_layer = 1, .type = DT_F32, .n_page = 2 * SEQS + 1, .d_state = s->n_state};
    b->d = rig_device(b->be, states_variant, 2);
    assert_non_null(b->d);
    for (int i = 0; i < 6; i++)
        if (from[i])
            ok(b->be->vec_load(b->d, from[i], n[i], &b->vec[i], &e), &e);
    ok(b->be->reserve(b->d, &dims, &e), &e);
    ok(b->be->kv_new(b->d, &b->desc, &b->pool, &e), &e);
}

void bench_close(struct bench *b)
{
    for (int i = 0; i < 6; i++)
        if (b->vec[i])
            b->be->vec_free(b->d, b->vec[i]);
    b->be->kv_free(b->d, b->pool);
    b->be->close(b->d);
}

int run_all(struct bench *b, const struct subject *s, const struct piece *of, uint32_t n_seq, const float *in,
            float *out, struct hearth_err *e)
{
    static int32_t token[ROWS];
    static uint32_t none[1];
    struct batch_seq seq[SEQS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_seq; n += of[i++].n)
        seq[i] = (struct batch_seq){.row0 = n, .n_row = of[i].n, .pos0 = of[i].pos, .pages = {b->page[i]}};
    seq[0].n_within = b->n_within;
    struct batch batch = {.n_row = n,
                          .n_seq = n_seq,
                          .token = token,
                          .seq = seq,
                          .out_row = none,
                          .kv = {b->pool},
                          .n_group = 1,
                          .invariant = b->how,
                          .once = true};
    struct op op = op_here(b, s);
    struct program p = program_of(NULL, &op, 1);
    ok(b->be->act_write(b->d, ACT_MIX, 0, n, s->n_mix, in, e), e);
    int rc = b->be->step_wait(b->d, b->be->step_run(b->d, &batch, &p), NULL, 0, e);
    for (uint32_t i = 0; i < n_seq; i++) {
        uint32_t written = b->page[i][1];
        b->page[i][1] = b->page[i][0], b->page[i][0] = written;
    }
    return rc ? rc : b->be->act_read(b->d, ACT_ATT, 0, n, out, e);
}

int run(struct bench *b, const struct subject *s, uint32_t pos, uint32_t n, const float *in, float *out,
        struct hearth_err *e)
{
    return run_all(b, s, &(struct piece){pos, n}, 1, in, out, e);
}

void save_page(struct bench *b, uint32_t page, float *to)
{
    struct hearth_err e;
    uint64_t ticket = b->be->kv_save(b->d, b->pool, &page, (void *[]){to}, 1);
    assert_true(ticket > 0);
    ok(b->be->kv_transfer_wait(b->d, ticket, &e), &e);
}

void save_of(struct bench *b, uint32_t seq, float *to)
{
    save_page(b, b->page[seq][0], to);
}

/* The Euclidean distance of n numbers from the expected ones, relative to the norm of the latter. */
static double distance(const float *got, const double *want, size_t n)
{
    double d = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(d) / (sqrt(size) + 1e-30);
}

/* Measures so many tokens of random input: the worst group of rows, and the state at the end. Single rows are not
 * judged, since a row may be nearly 0 before its norm, and is undefined then. */
void measure_as(const struct subject *s, enum invariance how, shape_fn *shape, uint32_t n_token, double most)
{
    struct bench b;
    struct hearth_err e;
    float *in = malloc(ROWS * s->n_mix * sizeof *in), *out = malloc(ROWS * s->n_att * sizeof *out);
    float *state = malloc(s->n_state * sizeof *state);
    double *exact = calloc(s->n_state, sizeof *exact), *want = malloc(ROWS * s->n_att * sizeof *want), worst = 0;
    assert_true(in && out && state && exact && want);
    bench_open(&b, s);
    b.how = how;
    for (uint32_t pos = 0, n; pos < n_token; pos += n) {
        n = n_token - pos < ROWS ? n_token - pos : ROWS;
        n = n > 7 && pos % 3 ? n - 5 : n; /* not always the same number */
        random_floats(1000 + pos, in, (size_t)n * s->n_mix);
        for (size_t i = 0; i < (size_t)n * s->n_mix; i++)
            in[i] *= 2;
        for (uint32_t r = 0; r < n && shape; r++)
            shape(s, pos + r, in + (size_t)r * s->n_mix);
        ok(run(&b, s, pos, n, in, out, &e), &e);
        for (uint32_t r = 0; r < n; r++)
            s->row(s, in + (size_t)r * s->n_mix, exact, want + (size_t)r * s->n_att);
        double off = distance(out, want, (size_t)n * s->n_att);
        worst = off > worst || isnan(off) ? off : worst;
    }
    save_of(&b, 0, state);
    double left = distance(state, exact, s->n_state);
    print_message("# %s, %u tokens: rows are off by %.1e, the state by %.1e\n", s->name, n_token, worst, left);
    if (!(worst < (states_gpu ? most + 5e-4 : most) && left < most)) /* F16 has eleven bits of significand */
        fail_msg("%s after %u tokens: rows are off by %g, the state by %g", s->name, n_token, worst, left);
    bench_close(&b);
    free(in), free(out), free(state), free(exact), free(want);
}

int states_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t n)
{
    struct device_info info;
    states_variant = argc > 2 ? argv[2] : states_variant;
    if (!(states_backend = rig_backend(argc > 1 ? argv[1] : "cpu", states_variant, &info)))
        return 77;
    states_gpu = info.gpu;
    return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}
