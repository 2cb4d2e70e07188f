/* lfm2moe.c - LFM 2 with experts, chosen by sigmoids and a bias, their weights normalised to 1; the first layers are
 * dense. */
#include "daemon/model/arch/arch.h"

const struct arch arch_lfm2moe = {"lfm2moe",
                                  ROPE_NEOX,
                                  .experts = {true, ROUTE_SIGMOID, true},
                                  .layer_bytes = sizeof(struct recurrent_layer),
                                  .out_norm = "token_embd_norm",
                                  .state = STATE_CONV,
                                  .bind_layer = lfm2_bind_layer,
                                  .build = lfm2_build};
