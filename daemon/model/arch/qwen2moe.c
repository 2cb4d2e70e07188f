/* qwen2moe.c - Qwen 1.5 and 2 with experts, weighted by their scores in a softmax over all, which are not normalised,
 * and a shared expert with a gate. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen2moe = {"qwen2moe", ROPE_NEOX, .experts = {true, ROUTE_SOFTMAX, false, .share_ff = true},
                                   .bind_layer = qwen2_bind_layer, .build = llama_build};
