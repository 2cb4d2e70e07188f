/* ernie4_5.c - ERNIE 4.5, the dense models: a Llama whose original checkpoints already pair RoPE's adjacent dimensions,
 * as GGUF files of Llama do. */
#include "daemon/model/arch/arch.h"

const struct arch arch_ernie4_5 = {"ernie4_5", ROPE_NORM, .bind_layer = llama_bind_layer, .build = llama_build};
