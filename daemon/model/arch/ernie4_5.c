/* ernie4_5.c - ERNIE 4.5, the dense ones: a Llama, whose makers' pairs of RoPE lie side by side as GGUF has Llama's. */
#include "daemon/model/arch/arch.h"

const struct arch arch_ernie4_5 = {"ernie4_5", ROPE_NORM, .bind_layer = llama_bind_layer, .build = llama_build};
