/*
 * acts.cu - activations for tests and eval: read as f32, and written before the next step. Thread: the engine's device
 * thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/step.cuh"

static uint32_t act_rows(const struct device *d, enum act a)
{
    return a == ACT_LOGITS ? d->ws.out_rows : d->ws.rows;
}

/* The rows of an activation that is stored as plain f32; NULL for the fp16 ones. */
static float *act_f32(struct device *d, enum act a, uint32_t *ld)
{
    const struct workspace *w = &d->ws;
    const uint32_t *width = d->rec->width;
    const uint32_t lds[ACT_COUNT] = {
        w->ldx, 0, 0, 0, w->ldl, width[ACT_ROUTE], width[ACT_EXPERTS], w->ldmix, w->ldx, width[ACT_INPUTS]};
    float *const at[ACT_COUNT] = {
        w->x,   NULL,           NULL,           NULL, w->logits, w->experts.route, w->experts.hidden,
        w->mix, d->apart.aside, d->apart.inputs};
    *ld = lds[a];
    return at[a];
}

static act_buf act_f16(struct device *d, enum act a)
{
    return a == ACT_Q        ? act_row_major(d->ws.q, d->ws.ldq)
           : a == ACT_ATT    ? d->ws.att
           : a == ACT_LATENT ? d->apart.latent
                             : d->ws.ff;
}

static int act_check(struct device *d, enum act a, uint32_t row0, uint32_t n_row, struct hearth_err *e)
{
    if (a < 0 || a >= ACT_COUNT || row0 > act_rows(d, a) || n_row > act_rows(d, a) - row0)
        return err_set(e, HEARTH_EPARAMS, "activation %d has no rows %u+%u", (int)a, row0, n_row);
    return 0;
}

int act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    uint32_t ld, w = d->rec->width[a];
    int rc = act_check(d, a, row0, n_row, e);
    if (rc)
        return rc;
    const float *src = act_f32(d, a, &ld);
    if (src)
        src += (uint64_t)row0 * ld;
    else {
        act_buf b = act_f16(d, a);
        src = d->ws.tmp, ld = w;
        act_to_f32(d, &b, w, d->ws.tmp, row0, n_row);
    }
    cuda_ok(d, cudaMemcpy2DAsync(out, w * 4ull, src, ld * 4ull, w * 4ull, n_row, cudaMemcpyDeviceToHost, d->stream));
    cuda_ok(d, cudaStreamSynchronize(d->stream));
    return cuda_failure(d, e);
}

int act_write(struct device *d, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
              struct hearth_err *e)
{
    return staged_add(&d->rec->staged, a, row0, n_row, n_col, in, e);
}

static void apply(struct device *d, const struct staged *s)
{
    struct hearth_err e;
    uint32_t ld, w = s->n_col,
                 most[ACT_COUNT] = {d->ws.ldx,          d->ws.ldq,           d->ws.dims.d_q,       d->ws.dims.d_ff,
                                    d->ws.ldl,          d->ws.dims.d_route,  d->ws.dims.d_experts, d->ws.dims.d_mix,
                                    d->ws.dims.d_aside, d->ws.dims.d_inputs, d->ws.dims.d_latent};
    if (w > most[s->act] || act_check(d, s->act, s->row0, s->n_row, &e)) {
        cuda_refuse(d, HEARTH_EPARAMS, "rows %u+%u of %u columns of activation %d: the workspace has not so many",
                    s->row0, s->n_row, w, (int)s->act);
        return;
    }
    if (s->act == ACT_MIX)
        d->mix_cols = w;
    float *f32 = act_f32(d, s->act, &ld), *dst = f32 ? f32 + (uint64_t)s->row0 * ld : d->ws.tmp;
    if (!f32)
        ld = w;
    cuda_ok(d,
            cudaMemcpy2DAsync(dst, ld * 4ull, s->v, w * 4ull, w * 4ull, s->n_row, cudaMemcpyHostToDevice, d->stream));
    if (!f32) {
        act_buf b = act_f16(d, s->act);
        act_from_f32(d, d->ws.tmp, w, &b, s->row0, s->n_row);
    }
    cuda_ok(d, cudaStreamSynchronize(d->stream));
}

void act_apply(struct device *d)
{
    struct step_rec *r = d->rec;
    for (const struct staged *s = r->staged; s && !d->err.code; s = s->next)
        apply(d, s);
}
