/*
 * gemm_none.cu - holds the place of the fused GEMM body: every matrix goes through gemm_ref.cu.
 */
#include "kernels/cuda/cuda.cuh"

void gemm_init(struct device *d) { d->reference = true; }
void gemm_qkv(struct device *d, const struct op_qkv *op, uint32_t row0, uint32_t cap) { ref_qkv(d, op, row0, cap); }
void gemm_proj(struct device *d, const struct op_proj *op, uint32_t row0, uint32_t cap) { ref_proj(d, op, row0, cap); }
void gemm_ffn_up(struct device *d, const struct op_ffn_up *op, uint32_t row0, uint32_t cap) { ref_ffn_up(d, op, row0, cap); }
void gemm_head(struct device *d, const struct op_head *op, uint32_t row0, uint32_t cap) { ref_head(d, op, row0, cap); }
int pack_plan(struct wdev *, struct hearth_err *e) { return err_set(e, HEARTH_EUNSUPPORTED, "no packed weights in this build"); }
void pack_rows(struct device *, struct wdev *, uint32_t, uint32_t, uint32_t, const uint8_t *, cudaStream_t) {}
void unpack_f16(struct device *, const struct wdev *, uint32_t, uint32_t, __half *, uint32_t) {}
