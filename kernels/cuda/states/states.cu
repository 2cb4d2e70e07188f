/* states.cu - see states.cuh: what the launchers of layers with a recurrent state begin and end with. */
#include "kernels/cuda/states/states.cuh"

bool state_begin(struct device *d, const char *what, uint32_t group, uint32_t layer, uint64_t n, uint32_t n_mix,
                 uint32_t n_att, state_view *out)
{
    uint32_t have = d->mix_cols;
    const struct kv_pool *p = group < d->n_group ? d->kv[group] : NULL;
    if (!p || p->desc.d_state != n || layer >= p->desc.n_layer || have != n_mix || n_att > d->ws.dims.d_q) {
        cuda_refuse(
            d, HEARTH_EPARAMS,
            "%s of %u columns to %u, layer %u of group %u, with a state of %llu: there are %u, room for %u, and "
            "%u layers of %u",
            what, n_mix, n_att, layer, group, (unsigned long long)n, have, d->ws.dims.d_q, p ? p->desc.n_layer : 0,
            p ? p->desc.d_state : 0);
        return false;
    }
    *out = {(float *)(p->base + layer * p->layer_bytes), p->page_bytes / sizeof(float), d->step, d->pages,
            d->step->group[group].pages0};
    return true;
}

act_buf state_result(struct device *d, struct op_call *p, uint32_t n_att)
{
    act_buf out = d->ws.att;
    wg_attended(d, p, n_att, &out);
    return out;
}
