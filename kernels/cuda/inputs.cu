/*
 * inputs.cu - per-layer inputs (Gemma): op_inputs, which computes them for all layers at once, and op_input_gate, which
 * gates a layer's own; op.h. Their products take the paths for few rows, in chunks.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"
#include "kernels/cuda/quant/quant.cuh"
#include "kernels/cuda/gemm/rows.cuh"

struct inputs_args {
    float *y; /* [rows][n]: the product, and the result */
    uint32_t n, d_input, row0;
    struct norm norm;
    float w_scale, embed_scale, scale;
    const step_dev *s;
    const int32_t *slots;
    wpart table;           /* the embedding table: raw rows in the variant `reference`, else ... */
    const uint8_t *packed; /* ... its tiles */
    uint32_t n_kblk;
};

/* Finishes one layer's columns of a row: one warp, eight columns per lane and iteration. */
__global__ void __launch_bounds__(32) inputs_end(inputs_args a)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = a.row0 + blockIdx.y, col0 = blockIdx.x * a.d_input, lane = threadIdx.x;
    float *y = a.y + (uint64_t)row * a.n + col0;
    int32_t id = a.s->token[row];
    if (id < 0)
        id = a.slots[-1 - id];
    uint32_t at = min((uint32_t)id, a.table.n_out - 1);
    __shared__ float shared[32];
    float2 st = norm_stats([&](uint32_t k) { return y[k] * a.w_scale; }, a.d_input, a.norm, shared);
    for (uint32_t k = lane * 8; k < a.d_input; k += 256) {
        float own[8];
        if (a.table.raw)
            for (uint32_t i = 0; i < 8; i++)
                own[i] = dq_at(a.table.type, a.table.raw + at * a.table.raw_row_bytes, col0 + k + i);
        else
            unpack_eight(a.table.type, a.packed + (uint64_t)(at / 16) * a.n_kblk * t16_kblk_bytes(a.table.type),
                         a.n_kblk, at / 8 & 1, at & 7, col0 + k, own);
        for (uint32_t i = 0; i < 8; i++) {
            float v = (y[k + i] * a.w_scale - st.x) * st.y * (a.norm.w ? a.norm.w[k + i] : 1.f) +
                      (a.norm.b ? a.norm.b[k + i] : 0.f);
            y[k + i] = (v + own[i] * a.embed_scale) * a.scale;
        }
    }
}

/* gelu(gate) times the layer's columns, four per thread. */
__global__ void __launch_bounds__(128) input_gate_end(const float *gate, uint32_t ldgate, const float *inputs,
                                                      uint32_t ldinputs, uint32_t n, act_buf out, uint32_t row0)
{
    pdl_trigger();
    pdl_wait();
    uint32_t row = row0 + blockIdx.y, k = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    float v[4];
    for (uint32_t i = 0; i < 4; i++)
        v[i] =
            k + i < n ? act_gelu(gate[(uint64_t)row * ldgate + k + i]) * inputs[(uint64_t)row * ldinputs + k + i] : 0;
    store4(out, row, k, n, v);
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

void inputs_run(struct device *d, struct op_call *p, const struct op *o)
{
    static const struct norm none = {NORM_NONE};
    const struct op_inputs *op = &o->inputs;
    const wdev *w = wdev_of(op->w), *table = wdev_of(op->embed);
    if (w->n_out > d->ws.dims.d_inputs || !op->d_input || op->d_input % 8 || w->n_out % op->d_input ||
        table->n_in != w->n_out || table->n_part != 1 || op->embed->model != op->w->model) {
        cuda_refuse(d, HEARTH_EPARAMS, "inputs of %u columns, %u a layer, beside a table of %u; there is room for %u",
                    w->n_out, op->d_input, table->n_in, d->ws.dims.d_inputs);
        return;
    }
    rows_product(d, p, o, w, &none, NULL, d->apart.inputs, w->n_out);
    inputs_args a = {};
    a.y = d->apart.inputs, a.n = w->n_out, a.d_input = op->d_input, a.row0 = p->row0, a.norm = op->norm;
    a.w_scale = op->w_scale, a.embed_scale = op->embed_scale, a.scale = op->scale;
    a.s = d->step, a.slots = slot_tokens(d);
    a.table = table->part[0], a.packed = table->packed + table->part[0].off, a.n_kblk = table->n_kblk;
    cuda_launch(d, inputs_end, dim3(w->n_out / op->d_input, p->bucket), 32, 0, LAUNCH_PDL, a);
}

void input_gate_run(struct device *d, struct op_call *p, const struct op *o)
{
    static const struct norm none = {NORM_NONE};
    const struct op_input_gate *op = &o->input_gate;
    const wdev *w = wdev_of(op->w);
    uint32_t n = w->n_out, all = n * op->n_layer;
    if (w->n_part != 1 || op->layer >= op->n_layer || all > d->ws.dims.d_inputs || n > d->ws.dims.d_ff) {
        cuda_refuse(d, HEARTH_EPARAMS, "input_gate takes %u columns of layer %u of %u; there is room for %u of all", n,
                    op->layer, op->n_layer, d->ws.dims.d_inputs);
        return;
    }
    rows_product(d, p, o, w, &none, NULL, d->ws.tmp, d->ws.ldtmp);
    cuda_launch(d, input_gate_end, dim3((pad256(n) + 511) / 512, p->bucket), 128, 0, LAUNCH_PDL,
                (const float *)d->ws.tmp, d->ws.ldtmp, (const float *)d->apart.inputs + op->layer * n, all, n, d->ws.ff,
                p->row0);
}
