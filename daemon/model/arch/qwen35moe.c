/* qwen35moe.c - Qwen 3.5 and 3.6 with experts, such as 35B-A3B: the best of a softmax over all experts, their weights
 * normalised to 1, and a shared expert with a gate. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen35moe = {"qwen35moe",
                                    ROPE_NEOX,
                                    .skips_ahead = true,
                                    .reads = mrope_reads,
                                    .experts = {true, ROUTE_SOFTMAX, true},
                                    .layer_bytes = sizeof(struct recurrent_layer),
                                    .state = STATE_DELTA,
                                    .interval = 4,
                                    .tiled = true,
                                    .bind_layer = qwen35_bind_layer,
                                    .build = qwen35_build};
