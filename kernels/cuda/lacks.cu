/*
 * lacks.cu - what ops ask for that no launcher here computes. The step that has such an op is refused by its name, and
 * the engine runs the model on the CPU; a field of op.h that is not read here would be left out of the result in
 * silence.
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
