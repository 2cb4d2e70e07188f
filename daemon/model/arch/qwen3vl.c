/* qwen3vl.c - the language model of Qwen 3-VL: Qwen 3, whose RoPE has positions of three kinds, which in text are one.
 */
#include "daemon/model/arch/arch.h"

const struct arch arch_qwen3vl = {"qwen3vl", ROPE_NEOX, .reads = qwen35_reads, .bind_layer = qwen3_bind_layer,
                                  .build = llama_build};
