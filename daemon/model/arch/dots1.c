/* dots1.c - dots.llm1: Qwen 3's attention, then experts chosen by sigmoids and a bias, as in DeepSeek V3, and a shared
 * one; the first layers are dense. */
#include "daemon/model/arch/arch.h"

const struct arch arch_dots1 = {"dots1", ROPE_NEOX, .experts = {true, ROUTE_SIGMOID, false},
                                .bind_layer = qwen3_bind_layer, .build = llama_build};
