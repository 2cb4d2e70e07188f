/* epilogue.cuh - what surrounds a product, as kernels of their own: for paths whose product kernel cannot do it. */
#ifndef HEARTH_CUDA_GEMM_EPILOGUE_CUH
#define HEARTH_CUDA_GEMM_EPILOGUE_CUH

#include "kernels/cuda/device.cuh"

static inline float residual_scale(const struct op_proj *op)
{
    return op->residual_scale != 0 ? op->residual_scale : 1;
}
/* Whether the product is not simply added to the residual stream. */
static inline bool proj_apart(const struct op_proj *op)
{
    return op->post_norm || op->aside || op->x_scale != 0;
}

/*
 * The epilogue of a product in ws.tmp (f32, [rows, ldtmp]). qkv_epilogue_run: bias, q/k norm, RoPE (both kinds), ACT_Q
 * and the KV append from merged rows q|k|v of ws.tmp. proj_epilogue_run: x += norm?(tmp + bias). glu_epilogue_run:
 * ws.ff = act(gate) * up from rows gate|up of ws.tmp, which share tiles where `interleaved`, in ws.ff's form.
 */
void qkv_epilogue_run(struct device *d, const struct op_qkv *op, uint32_t row0, uint32_t bucket);
void proj_epilogue_run(struct device *d, const struct op_proj *op, uint32_t n_out, uint32_t row0, uint32_t bucket);
void glu_epilogue_run(struct device *d, const struct op_ffn_up *op, uint32_t d_ff, bool interleaved, uint32_t row0,
                      uint32_t bucket);
/* gemm.cu: rows [row0, row0 + bucket) of a product, by p->path, REF, GEMV or SKINNY: norm(ws.x), or prepared rows x
 * where there is no norm, times w -> out [rows, ldout] f32. */
struct op_call;
void rows_product(struct device *d, struct op_call *p, const struct op *o, const wdev *w, const struct norm *norm,
                  const act_buf *x, float *out, uint32_t ldout);
/* The epilogue of a product in pieces (partial sums); glu_reduce_run takes the activation's output form. */
void qkv_reduce_run(struct device *d, const struct op_qkv *op, const partials *s, uint32_t bucket);
void glu_reduce_run(struct device *d, const struct op_ffn_up *op, const partials *s, uint32_t d_ff, const act_buf *out,
                    uint32_t bucket);

/* rows.cu. Adds a product in pieces to x; sums it into rows of ws.tmp. */
void reduce_to_x(struct device *d, const partials *s, const float *bias, uint32_t n, uint32_t bucket);
void reduce_to_tmp(struct device *d, const partials *s, uint32_t n, uint32_t bucket);
/* norm(ws.x rows) into out, and into a second form where `two` is given; a product (NULL: none) is added to x first.
 * gather: the step's rows that are taken, or NULL. */
void reduce_norm_rows(struct device *d, const struct norm *n, uint32_t k, const partials *add, const float *bias,
                      const act_buf *out, const act_buf *two, const uint32_t *gather, uint32_t row0, uint32_t bucket);
/* Converts `bucket` prepared rows to an order of wgmma's. */
void act_to_wg(struct device *d, const act_buf *in, uint32_t k, const act_buf *out, uint32_t bucket);
/* norm(ws.x rows) into out (row r of the step at out row r, or compact by out_row where `gather`). */
void norm_rows(struct device *d, const struct norm *n, uint32_t k, const act_buf *out, bool gather, uint32_t row0,
               uint32_t bucket);
/* The first `bucket` rows of f32 [bucket, ldx], k columns without a norm, into out. */
void rows_as_they_are(struct device *d, float *x, uint32_t ldx, uint32_t k, const act_buf *out, uint32_t bucket);
/* f32 [n, k] in device memory to rows row0.. of an activation buffer and back (act_write, act_read). */
void act_from_f32(struct device *d, const float *src, uint32_t k, const act_buf *out, uint32_t row0, uint32_t n);
void act_to_f32(struct device *d, const act_buf *in, uint32_t k, float *dst, uint32_t row0, uint32_t n);

/* experts/route.cu: ws.experts.row_gate[row] = sigmoid(row_gate . norm(x)) of op_ffn_up; NULL where the op has none. */
const float *row_gate_run(struct device *d, const struct op_ffn_up *op, uint32_t row0, uint32_t bucket);

#endif
