/*
 * lacks.cu - what ops of op.h can express but no launcher here implements. A step with such an op is refused, naming
 * the op, and the engine runs the model on the CPU. Without a check here, a field of op.h that no launcher reads would
 * be ignored silently.
 */
#include "kernels/cuda/local.cuh"

const char *cuda_lacks(const struct op *o)
{
    switch (o->kind) {
    case OP_QKV:
        return o->qkv.gated && (o->qkv.whole_norms || o->qkv.w->n_part != 3)
                   ? "gated attention with norms over all heads or without keys and values of its own"
                   : NULL;
    case OP_DELTA:
        return o->delta.d_k > 256 ? "a delta net's heads of more than 256" : NULL;
    case OP_MAMBA2:
        return o->mamba2.d_state > 256 ? "states of more than 256 a head" : NULL;
    default:
        return NULL;
    }
}
