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
        return o->qkv.gated ? "gated attention" : NULL;
    case OP_ATTEND:
        return o->attend.sinks ? "attention sinks" : o->attend.gated ? "gated attention" : NULL;
    case OP_FFN_UP:
        return o->ffn_up.glu == GLU_OAI ? "the activation of gpt-oss"
               : o->ffn_up.row_gate     ? "a gate for whole rows"
                                        : NULL;
    default:
        return NULL;
    }
}
