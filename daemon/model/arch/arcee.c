/* arcee.c - Arcee's AFM: a Llama whose FFN has no gate and the activation max(x, 0)^2. */
#include "daemon/model/arch/arch.h"

static void build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_RELU2);
}

/* The layers are bound like StarCoder 2's, whose LayerNorms become RMS norms by this architecture's kind of norm. */
const struct arch arch_arcee = {"arcee", ROPE_NORM, .bind_layer = starcoder2_bind_layer, .build = build};
