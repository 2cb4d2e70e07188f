/* qwen3moe.c - Qwen 3 with experts, such as 30B-A3B: the best eight of a softmax over all, their weights normalised to
 * 1. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen3moe = {"qwen3moe", ROPE_NEOX, .experts = {true, ROUTE_SOFTMAX, true, .share_ff = true},
                                   .bind_layer = qwen3_bind_layer, .build = llama_build};
