/* qwen3moe.c - Qwen 3 with experts, 30B-A3B and its like: all of them softmax, the best eight, their weights made one.
 */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen3moe = {"qwen3moe", ROPE_NEOX, .experts = {true, ROUTE_SOFTMAX, true, .share_ff = true},
                                   .bind_layer = qwen3_bind_layer, .build = llama_build};
