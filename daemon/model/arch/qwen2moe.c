/* qwen2moe.c - Qwen 1.5 and 2 with experts: a softmax over all of them, whose shares are the weights as they are, and
 * an expert with a gate that every token goes to. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen2moe = {"qwen2moe", ROPE_NEOX, .experts = {true, ROUTE_SOFTMAX, false, .share_ff = true},
                                   .bind_layer = qwen2_bind_layer, .build = llama_build};
