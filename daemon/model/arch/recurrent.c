/* recurrent.c - what layers with a recurrent state share: a convolution, the projections before it and the output
 * projection. */
#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <stdio.h>

int bind_conv(struct binder *b, struct state_conv *conv, const char *name, uint32_t n_channel)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    conv->n_tap = bind_hparams(b)->state.n_tap;
    int ret = bind_rows(b, &conv->w, &(struct bind_part){weight, conv->n_tap}, 1, n_channel);
    return ret || !bind_has(b, bias) ? ret : bind_vector(b, &conv->bias, &(struct bind_part){bias, n_channel}, 1);
}

int bind_state_out(struct binder *b, struct layer *l, const char *name, uint32_t n_in)
{
    return bind_matrix(b, &l->attn_out, WEIGHT_PROJ, n_in, &(struct bind_part){name, bind_hparams(b)->d_model}, 1);
}

void build_project(struct program *p, const struct recurrent_layer *l)
{
    uint32_t n = l->in.n_out, width = n + l->gates.n_out;
    program_project(p, (struct op_project){.norm = l->layer.attn_norm, .w = &l->in, .width = width});
    if (l->gates.n_out)
        program_project(p, (struct op_project){.norm = l->layer.attn_norm, .w = &l->gates, .at = n, .width = width});
}
