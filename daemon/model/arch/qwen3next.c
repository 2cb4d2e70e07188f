/* qwen3next.c - Qwen 3-Next and Qwen 3-Coder-Next: like Qwen 3.5 with experts, except for the order of the value heads,
 * which are grouped by key head. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen3next = {"qwen3next",
                                    ROPE_NEOX,
                                    .skips_ahead = true,
                                    .experts = {true, ROUTE_SOFTMAX, true, .share_ff = true},
                                    .layer_bytes = sizeof(struct recurrent_layer),
                                    .state = STATE_DELTA,
                                    .interval = 4,
                                    .bind_layer = qwen35_bind_layer,
                                    .build = qwen35_build};
