/* arcee.c - Arcee's AFM: a Llama with an FFN without a gate, whose activation is max(x, 0)^2. */
#include "daemon/model/arch/arch.h"

static void build(const struct model *m, struct program *p)
{
    build_layers(m, p, GLU_RELU2);
}

/* Its norms are of the architecture's kind, which alone starcoder2's layers have otherwise. */
const struct arch arch_arcee = {"arcee", ROPE_NORM, .bind_layer = starcoder2_bind_layer, .build = build};
