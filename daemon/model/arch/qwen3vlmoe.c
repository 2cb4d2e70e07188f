/* qwen3vlmoe.c - the language model of Qwen 3-VL with experts: for text, the same as Qwen 3 with experts. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen3vlmoe = {"qwen3vlmoe",
                                     ROPE_NEOX,
                                     .reads = mrope_reads,
                                     .experts = {true, ROUTE_SOFTMAX, true, .share_ff = true},
                                     .bind_layer = qwen3_bind_layer,
                                     .build = llama_build};
