/* qwen2vl.c - the language model of Qwen 2-VL and 2.5-VL: Qwen 2 with M-RoPE, whose three kinds of position are equal
 * in text. */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen2vl = {"qwen2vl", ROPE_NEOX, .reads = mrope_reads, .bind_layer = qwen2_bind_layer,
                                  .build = llama_build};
