/* nemotron.c - Nemotron 4 and Minitron: LayerNorms; an FFN without a gate and with the activation max(x, 0)^2. */
#include "daemon/model/arch/arch.h"

static void build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_RELU2);
}

const struct arch arch_nemotron = {"nemotron", ROPE_NEOX, NORM_LAYER, .bind_layer = starcoder2_bind_layer,
                                   .build = build};
