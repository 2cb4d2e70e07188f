/* bind-rope.c - the RoPE frequencies of a model's layers, with the divisors that its tensors have for them. Thread: the
 * device's. */
#include "daemon/model/model-internal.h"

#include <stdlib.h>

/* Reads the n divisors of the frequencies from a tensor: Llama 3.1's, or those of longrope for one range of
 * contexts. */
static int rope_factors(struct binder *b, const char *name, uint32_t n, float *out)
{
    const struct gguf_tensor *t;
    int ret = bind_find(b, name, n, 0, 0, &t);
    if (!ret && t->type != DT_F32)
        ret = err_set(b->e, HEARTH_EUNSUPPORTED, "%s of type %s; F32 is possible", name, dtype_get((int)t->type)->name);
    if (!ret)
        dtype_get(DT_F32)->to_f32(t->data, out, n);
    for (uint32_t i = 0; i < n && !ret; i++)
        if (!(out[i] >= 1e-3f && out[i] <= 1e30f)) /* 1e30 stands for a pair that is not rotated */
            ret = err_set(b->e, HEARTH_EBADMODEL, "tensor %s: entry %u is %g; 0.001 to 1e30 is possible", name, i,
                          (double)out[i]);
    return ret;
}

enum layer_rope bind_rope_which(const struct hparams *hp, uint32_t layer)
{
    return hp->slides[layer] && hp->rope[ROPE_SLIDING].apart ? ROPE_SLIDING : ROPE_FULL;
}

/* Whether, in every layer of that kind, RoPE rotates all dimensions of a head, a multiple of 16. */
static bool turns_whole(const struct hparams *hp, enum layer_rope which)
{
    bool whole = hp->n_rot[which] % 16 == 0;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        whole = whole && (bind_rope_which(hp, i) != which || hp->shape[i].d_head == hp->n_rot[which]);
    return whole;
}

/* Computes the frequencies of the full-attention layers or of the sliding ones; `divide` is [n_set][n] or NULL. */
static int bind_rope_of(struct binder *b, enum layer_rope which, const float *divide)
{
    struct model *m = b->m;
    const struct rope_params *p = &m->hp.rope[which];
    uint32_t n_rot = m->hp.n_rot[which], n = n_rot / 2, n_set = m->hp.long_from && !p->apart ? 2 : 1;
    struct rope *rope = &m->rope[which];
    bool neox = m->hp.halves; /* folders pair the halves of a head, whatever the architecture's GGUF files do */
    int ret = gguf_bool(m->gguf, "hearth.rope.neox", &neox, b->e);
    if (ret < 0)
        return ret;
    *rope = (struct rope){.kind = neox ? ROPE_NEOX : m->arch->rope, .n_rot = n_rot, .scale = p->scale, .n_set = n_set};
    rope->hadamard = turns_whole(&m->hp, which);
    if (!b->load)
        return 0;
    float *freq = malloc(n_set * n * sizeof *freq);
    if (!freq)
        return err_set(b->e, HEARTH_ENOMEM, "no memory for %u frequencies", n_set * n);
    for (uint32_t set = 0; set < n_set; set++)
        rope_frequencies(p, n_rot, divide ? divide + set * n : NULL, freq + set * n);
    ret = bind_keep_vector(b, freq, n_set * n, &rope->inv_freq);
    free(freq);
    return ret;
}

int bind_rope(struct binder *b)
{
    struct model *m = b->m;
    uint32_t n = m->hp.n_rot[ROPE_FULL] / 2;
    bool is_long = m->hp.rope[ROPE_FULL].scaling == ROPE_SCALING_LONG, any = is_long;
    float *factor = malloc(2 * n * sizeof *factor);
    int ret = factor ? 0 : err_set(b->e, HEARTH_ENOMEM, "no memory for %u factors", n);
    if (!ret && is_long) {
        ret = rope_factors(b, "rope_factors_short.weight", n, factor);
        if (!ret)
            ret = rope_factors(b, "rope_factors_long.weight", n, factor + n);
    } else if (!ret && gguf_tensor_find(m->gguf, "rope_freqs.weight")) {
        any = true;
        ret = rope_factors(b, "rope_freqs.weight", n, factor);
    }
    if (!ret)
        ret = bind_rope_of(b, ROPE_FULL, any ? factor : NULL);
    if (!ret && m->hp.rope[ROPE_SLIDING].apart)
        ret = bind_rope_of(b, ROPE_SLIDING, NULL);
    else
        m->rope[ROPE_SLIDING] = m->rope[ROPE_FULL];
    free(factor);
    return ret;
}
