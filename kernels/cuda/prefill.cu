#include "kernels/cuda/local.cuh"
void prefill_init(struct device *) {}
void prefill_fini(struct device *) {}
bool prefill_has(const struct device *) { return false; }
void prefill_qkv(struct device *, const struct op_qkv *) {}
void prefill_proj(struct device *, const struct op_proj *) {}
void prefill_ffn_up(struct device *, const struct op_ffn_up *) {}
