/* nemotron_h_moe.c - Nemotron 3 with experts, chosen by sigmoids and a bias, all without gates. The experts of Super
 * and Ultra work in a latent space, those of Nano do not. */
#include "daemon/model/arch/arch.h"

#include <stddef.h>

static const char *const reads[] = {"moe_latent_size", NULL};

const struct arch arch_nemotron_h_moe = {"nemotron_h_moe",
                                         ROPE_NORM,
                                         .experts = {true, ROUTE_SIGMOID, true, .ungated = true},
                                         .hparams = nemotron_h_hparams,
                                         .layer_bytes = sizeof(struct recurrent_layer),
                                         .reads = reads,
                                         .state = STATE_MAMBA2,
                                         .single = true,
                                         .skips_ahead = true,
                                         .bind_layer = nemotron_h_bind_layer,
                                         .build = nemotron_h_build};
