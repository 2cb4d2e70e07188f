/*
 * lacks.cu - what ops ask for that no launcher here computes. The step that has such an op is refused by its name, and
 * the engine runs the model on the CPU; a field of op.h that is not read here would be left out of the result in
 * silence.
 */
#include "kernels/cuda/local.cuh"

static const char *norm_lacks(const struct norm *n)
{
    return n->kind == NORM_NONE ? "a matrix over activations that are not normalised" : NULL;
}

static const char *qkv_lacks(const struct op_qkv *o)
{
    if (o->whole_norms && (o->q_norm || o->k_norm))
        return "q and k norms over all heads at once";
    if (o->temperature.beta != 0)
        return "an attention temperature";
    return norm_lacks(&o->norm);
}

const char *cuda_lacks(const struct op *o)
{
    switch (o->kind) {
    case OP_QKV:
        return qkv_lacks(&o->qkv);
    case OP_ATTEND:
        return o->attend.sinks ? "attention sinks" : NULL;
    case OP_PROJ:
        return o->proj.residual_scale != 0 && o->proj.residual_scale != 1 ? "a residual scale" : NULL;
    case OP_FFN_UP:
        return o->ffn_up.glu == GLU_RELU2 ? "the activation relu^2"
               : o->ffn_up.glu == GLU_OAI ? "the activation of gpt-oss"
               : o->ffn_up.row_gate       ? "a gate for whole rows"
                                          : norm_lacks(&o->ffn_up.norm);
    case OP_HEAD:
        return o->head.bias ? "a bias of the logits" : norm_lacks(&o->head.norm);
    default:
        return NULL;
    }
}
