/* granitemoe.c - Granite 3 with experts, 1B-A400M and 3B-A800M: the weights of the chosen experts are normalised to
 * 1. */
#include "daemon/model/arch/arch.h"

const struct arch arch_granitemoe = {"granitemoe",
                                     ROPE_NORM,
                                     .experts = {true, ROUTE_SOFTMAX, true},
                                     .hparams = granite_hparams,
                                     .bind_layer = llama_bind_layer,
                                     .build = llama_build};
