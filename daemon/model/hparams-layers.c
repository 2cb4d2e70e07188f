/*
 * hparams-layers.c - hyperparameters that may differ from layer to layer: the number of heads, the size of the
 * feed-forward network. A file gives one value for all layers, or an array with an entry for each.
 */
#include "daemon/model/hparams-internal.h"

#include <stdio.h>

#include "daemon/model/arch/arch.h"

/* Reads an array with an entry for each layer; entries of the layers that are left out may follow. Returns false where
 * the key is no array. */
static bool read_array(struct hparams_reader *r, const struct hparams *hp, const char *name, uint32_t min, uint32_t max,
                       uint32_t out[LAYERS_MAX])
{
    char key[128];
    struct gguf_nums list;
    snprintf(key, sizeof key, "%s.%s", r->arch, name);
    if (r->ret || !gguf_is_array(r->g, key))
        return false;
    if ((r->ret = gguf_i32s(r->g, key, &list, r->e)))
        return true;
    if (list.n != hp->n_layer && list.n != hp->n_layer + hp->n_nextn)
        hparams_refuse(r, HEARTH_EBADMODEL, "key %s has %zu entries for %u layers", key, list.n, hp->n_layer);
    for (uint32_t i = 0; i < hp->n_layer && !r->ret; i++) {
        out[i] = (uint32_t)gguf_i32_at(&list, i);
        if (out[i] < min || out[i] > max)
            hparams_refuse(r, HEARTH_EBADMODEL, "key %s is %d for layer %u; %u to %u is possible", key,
                           gguf_i32_at(&list, i), i, min, max);
    }
    return true;
}

/* Reads the value of each layer. `absent` is the default as in hparams_number(); if `others` is given, it has each
 * layer's default instead. Returns the maximum. */
static uint32_t read_each(struct hparams_reader *r, const struct hparams *hp, const char *name, uint32_t max,
                          int64_t absent, const uint32_t *others, uint32_t min, uint32_t out[LAYERS_MAX])
{
    uint32_t most = 0;
    bool own = others && !hparams_has(r, name);
    if (!own && !read_array(r, hp, name, min, max, out)) {
        uint32_t one = hparams_number(r, name, min, max, absent);
        for (uint32_t i = 0; i < hp->n_layer; i++)
            out[i] = one;
    }
    for (uint32_t i = 0; i < hp->n_layer && !r->ret; i++) {
        if (own)
            out[i] = others[i];
        most = out[i] > most ? out[i] : most;
    }
    return most;
}

/* What kind of layer it is, judged by its dimensions: a layer without KV heads has a recurrent state, except that in an
 * architecture of single-purpose layers (`single`) one with a feed-forward network has neither. */
static enum layer_kind kind_of(const struct arch *row, uint32_t n_kv, uint32_t d_ff)
{
    if (row->state == STATE_NONE || n_kv)
        return LAYER_ATTENDS;
    return row->single && d_ff ? LAYER_NEITHER : LAYER_RECURS;
}

void hparams_read_shapes(struct hparams_reader *r, struct hparams *hp, const struct arch *row)
{
    uint32_t least_kv = row->state == STATE_NONE || row->interval, least = row->single ? 0 : 1;
    uint32_t heads[LAYERS_MAX] = {0}, kv[LAYERS_MAX] = {0}, ff[LAYERS_MAX] = {0};
    int64_t of_expert = REQUIRED; /* a model that has nothing but experts may leave out feed_forward_length */
    if (row->experts.may && hparams_has(r, "expert_feed_forward_length"))
        of_expert = hparams_number(r, "expert_feed_forward_length", 8, 1 << 20, REQUIRED);
    hp->d_ff = read_each(r, hp, "feed_forward_length", 1 << 20, of_expert, NULL, row->single ? 0 : 8, ff);
    hp->n_head = read_each(r, hp, "attention.head_count", 1024, REQUIRED, NULL, least, heads);
    hp->n_kv = read_each(r, hp, "attention.head_count_kv", 1024, REQUIRED, heads, least_kv, kv);
    for (uint32_t i = 0; i < hp->n_layer && !r->ret; i++) {
        hp->shape[i] = (struct layer_shape){.n_head = (uint16_t)heads[i], .n_kv = (uint16_t)kv[i], .d_ff = ff[i]};
        hp->kind[i] = (uint8_t)kind_of(row, kv[i], ff[i]);
        if (row->single && kv[i] && ff[i])
            hparams_refuse(r, HEARTH_EBADMODEL,
                           "layer %u has KV heads (attention.head_count_kv) and a feed-forward network "
                           "(feed_forward_length); one is possible",
                           i);
        if (kv[i] && (!heads[i] || heads[i] % kv[i]))
            hparams_refuse(r, HEARTH_EBADMODEL, "%u heads cannot share %u KV heads (key %s.attention.head_count_kv)",
                           heads[i], kv[i], r->arch);
    }
}
