/*
 * shortconv.cu - LFM2's convolution between two gates: op_shortconv, op.h. A thread computes four channels of some
 * rows. The thread that has a sequence's first rows is the only one to read the sequence's state, and writes the new
 * one too.
 */
#include "kernels/cuda/states/states.cuh"

enum { THREADS = 64, ROWS = 8 /* of a block; at least the taps of a convolution */ };
static_assert((int)ROWS >= (int)STATE_TAPS_MAX, "only a sequence's first block reads its state");

struct shortconv_args {
    state_view state;
    struct state_conv conv;
    uint32_t n; /* channels */
    const float *mix;
    uint32_t ldmix;
    act_buf out;
};

/* b * x of four channels in a row of the step. */
__device__ static inline void gated(const shortconv_args &a, uint32_t row, uint32_t c, float v[4])
{
    const float *b = a.mix + (uint64_t)row * a.ldmix + c, *x = b + 2 * a.n;
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = c + i < a.n ? __fmul_rn(__ldcg(b + i), __ldcg(x + i)) : 0.f;
}

__global__ void __launch_bounds__(THREADS) shortconv_rows(const __grid_constant__ shortconv_args a)
{
    uint32_t c = (blockIdx.x * THREADS + threadIdx.x) * 4, seq = blockIdx.z, first = blockIdx.y * ROWS;
    const step_dev *s = a.state.s;
    bool live = seq < s->n_seq && first < s->n_rows[seq];
    uint32_t taps = a.conv.n_tap, before = taps - 1;
    pdl_trigger();
    pdl_wait();
    if (!live)
        return;
    uint32_t row0 = s->row0[seq], n_row = s->n_rows[seq], end = min(first + ROWS, n_row);
    const float *from = state_from(a.state, seq);
    /* input i of the sequence, counted from the oldest one in its state */
    auto input = [&](uint32_t i, float v[4]) {
        if (i >= before)
            gated(a, row0 + i - before, c, v);
        else
#pragma unroll
            for (int j = 0; j < 4; j++)
                v[j] = from && c + j < a.n ? from[(uint64_t)i * a.n + c + j] : 0.f;
    };
    for (uint32_t r = first; r < end; r++) {
        float y[4], x[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            y[j] = a.conv.bias && c + j < a.n ? a.conv.bias[c + j] : 0.f;
        for (uint32_t k = 0; k < taps; k++) {
            input(r + k, x);
#pragma unroll
            for (int j = 0; j < 4; j++)
                y[j] = c + j < a.n ? __fmaf_rn(a.conv.w[(uint64_t)(c + j) * taps + k], x[j], y[j]) : 0.f;
        }
        const float *gate = a.mix + (uint64_t)(row0 + r) * a.ldmix + a.n + c;
#pragma unroll
        for (int j = 0; j < 4; j++)
            y[j] = c + j < a.n ? __fmul_rn(__ldcg(gate + j), y[j]) : 0.f;
        store4(a.out, row0 + r, c, a.n, y);
    }
    if (first)
        return;
    float *to = state_to(a.state, seq);
    for (uint32_t k = 0; k < before;
         k++) { /* ascending: inputs that are read here lie after those overwritten so far */
        float x[4];
        input(n_row + k, x);
        for (int j = 0; j < 4 && c + j < a.n; j++)
            to[(uint64_t)k * a.n + c + j] = x[j];
    }
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

void shortconv_run(struct device *d, struct op_call *p, const struct op *o)
{
    const struct op_shortconv *op = &o->shortconv;
    shortconv_args a = {};
    uint64_t n = (uint64_t)(op->conv.n_tap - 1) * op->d_inner;
    if (op->conv.n_tap < 2 || op->conv.n_tap > STATE_TAPS_MAX) {
        cuda_refuse(d, HEARTH_EPARAMS, "shortconv with %u taps: 2 to %d are possible", op->conv.n_tap, STATE_TAPS_MAX);
        return;
    }
    if (!state_begin(d, "shortconv", op->group, op->layer, n, 3 * op->d_inner, op->d_inner, &a.state))
        return;
    a.conv = op->conv, a.n = op->d_inner, a.mix = d->ws.mix, a.ldmix = d->ws.ldmix;
    a.out = state_result(d, p, op->d_inner);
    uint32_t most = 1;
    for (uint32_t i = 0; i < d->n_seq && !d->decode; i++)
        most = d->host->n_rows[i] > most ? d->host->n_rows[i] : most;
    cuda_launch(d, shortconv_rows,
                dim3((op->d_inner + 4 * THREADS - 1) / (4 * THREADS), (most + ROWS - 1) / ROWS, state_seqs(d)), THREADS,
                0, LAUNCH_PDL, a);
}
