/* nemotron_h_moe.c - Nemotron 3 Nano with experts, 30B-A3B: sigmoids and a bias choose, none has a gate. */
#include "daemon/model/arch/arch.h"

const struct arch arch_nemotron_h_moe = {"nemotron_h_moe",
                                         ROPE_NORM,
                                         .experts = {true, ROUTE_SIGMOID, true, .ungated = true},
                                         .hparams = nemotron_h_hparams,
                                         .layer_bytes = sizeof(struct recurrent_layer),
                                         .state = STATE_MAMBA2,
                                         .single = true,
                                         .bind_layer = nemotron_h_bind_layer,
                                         .build = nemotron_h_build};
