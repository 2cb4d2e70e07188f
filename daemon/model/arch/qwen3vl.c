/* qwen3vl.c - the language model of Qwen 3-VL: Qwen 3 with M-RoPE, whose three kinds of position are equal in text. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen3vl = {"qwen3vl", ROPE_NEOX, .reads = mrope_reads, .bind_layer = qwen3_bind_layer,
                                  .build = llama_build};
