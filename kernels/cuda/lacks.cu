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
        return o->qkv.v_norm                        ? "a norm of values"
               : o->qkv.gated && o->qkv.whole_norms ? "gated attention with norms over all heads"
               : o->qkv.w->n_part != 3              ? "queries without keys and values of their own"
                                                    : NULL;
    case OP_PROJ:
        return o->proj.aside          ? "a result beside the residual stream"
               : o->proj.x_scale != 0 ? "a scale of the residual stream"
                                      : NULL;
    case OP_ROUTE:
        return o->route.expert_scale ? "scales of experts" : NULL;
    case OP_EXPERTS_DOWN:
        return o->experts_down.post_norm      ? "a norm of the experts' result"
               : o->experts_down.x_scale != 0 ? "a scale of the residual stream"
                                              : NULL;
    case OP_ATTEND:
        return o->attend.d_latent ? "latent attention" : NULL;
    case OP_DELTA:
        return o->delta.d_k > 256 ? "a delta net's heads of more than 256" : NULL;
    case OP_MAMBA2:
        return o->mamba2.d_state > 256 ? "states of more than 256 a head" : NULL;
    default:
        return NULL;
    }
}
