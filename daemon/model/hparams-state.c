/* hparams-state.c - reads which layers have a recurrent state and its dimensions, and checks that they are
 * consistent. */
#include "daemon/model/hparams-internal.h"

#include <stdio.h>

#include "daemon/model/arch/arch.h"

/* Sets the layers' kinds: a list says which layers are recurrent, or the last of every `interval` layers has
 * attention. */
static void read_interval(struct hparams_reader *r, struct hparams *hp, const struct arch *row)
{
    char key[128];
    uint8_t recurs[LAYERS_MAX];
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", r->arch);
    if (r->ret || !row->interval)
        return;
    int ret = gguf_flags(r->g, key, recurs, hp->n_layer, r->e);
    if (ret < 0 && hp->n_nextn) /* the list may include the layers that are left out */
        ret = gguf_flags(r->g, key, recurs, hp->n_layer + hp->n_nextn, r->e);
    uint32_t interval = ret > 0 ? hparams_number(r, "full_attention_interval", 1, LAYERS_MAX, row->interval) : 0;
    r->ret = ret < 0 ? ret : r->ret;
    for (uint32_t i = 0; i < hp->n_layer && !r->ret; i++)
        hp->kind[i] = (interval ? (i + 1) % interval != 0 : recurs[i]) ? LAYER_RECURS : LAYER_ATTENDS;
}

/* Heads and groups of a delta net or of Mamba-2. Their product with other dimensions is checked by the code that uses
 * it. */
static void read_heads(struct hparams_reader *r, struct hparams_state *s, bool delta, bool tiled)
{
    bool grouped = false, whole = false; /* grouped: value heads are in the order of their key heads, as in folders */
    uint32_t inner = hparams_number(r, "ssm.inner_size", 1, 1 << 20, REQUIRED);
    s->n_tap = hparams_number(r, "ssm.conv_kernel", 2, STATE_TAPS_MAX, REQUIRED);
    s->d_state = hparams_number(r, "ssm.state_size", 1, STATE_D_MAX, REQUIRED);
    s->n_head = hparams_number(r, "ssm.time_step_rank", 1, 1024, REQUIRED);
    s->n_group = hparams_number(r, "ssm.group_count", 1, 1024, delta ? REQUIRED : 1);
    if (!r->ret && (gguf_bool(r->g, "hearth.ssm.grouped", &grouped, r->e) < 0 ||
                    gguf_bool(r->g, "hearth.ssm.norm_whole", &whole, r->e) < 0))
        r->ret = HEARTH_EBADMODEL;
    if (r->ret)
        return;
    s->tiled = tiled && !grouped, s->norm_whole = whole;
    s->d_head = inner / s->n_head;
    if (inner % s->n_head || s->n_head % s->n_group || s->d_head > (delta ? STATE_NORM_MAX : STATE_D_MAX))
        hparams_refuse(r, HEARTH_EBADMODEL,
                       "a recurrent state of %u (%s.ssm.inner_size) does not divide into %u heads (ssm.time_step_rank) "
                       "of at most %u, in %u groups (ssm.group_count)",
                       inner, r->arch, s->n_head, delta ? STATE_NORM_MAX : STATE_D_MAX, s->n_group);
    s->n_channel = inner + 2 * s->n_group * s->d_state;
}

void hparams_read_state(struct hparams_reader *r, struct hparams *hp, const struct arch *row)
{
    struct hparams_state *s = &hp->state;
    if (r->ret || row->state == STATE_NONE)
        return;
    bool any = false;
    read_interval(r, hp, row);
    for (uint32_t i = 0; i < hp->n_layer; i++)
        any |= hp->kind[i] == LAYER_RECURS;
    if (!any && row->single && !hp->n_kv)
        hparams_refuse(r, HEARTH_EBADMODEL,
                       "a %s of which no layer recurs or attends (attention.head_count_kv, feed_forward_length)",
                       r->arch);
    if (row->state == STATE_CONV) {
        s->n_tap = hparams_number(r, "shortconv.l_cache", 2, STATE_TAPS_MAX, REQUIRED);
        s->n_channel = hp->d_model;
    } else
        read_heads(r, s, row->state == STATE_DELTA, row->tiled);
    uint64_t n = (uint64_t)(s->n_tap - 1) * s->n_channel + (uint64_t)s->n_head * s->d_head * s->d_state;
    if (!r->ret && n > 1 << 28)
        hparams_refuse(r, HEARTH_EUNSUPPORTED, "a recurrent state of %llu numbers in a layer", (unsigned long long)n);
    s->n = (uint32_t)n;
}
