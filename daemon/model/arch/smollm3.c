/* smollm3.c - SmolLM 3: a Llama in which every fourth layer has no RoPE. */
#include "daemon/model/arch/arch.h"

const struct arch arch_smollm3 = {"smollm3", ROPE_NORM, .still = 4, .bind_layer = llama_bind_layer,
                                  .build = llama_build};
