/*
 * experts.c - maps the tensors of mixtures of experts to GGUF's names. Most folders have a tensor for each matrix of
 * each expert, which stays where it is. gpt-oss has one tensor for all experts, transposed and with the columns of gate
 * and up interleaved, and Qwen 3-VL one that may be transposed; gguf_fill() copies these into GGUF's form.
 */
#include "daemon/model/hf/hf-internal.h"

#include <stdio.h>

#include "daemon/model/pace.h"

/* "mlp.experts.7.up_proj.weight" is "ffn_up.7.weight". */
bool hf_expert_name(const char *s, char *out, size_t size)
{
    static const char *const before[] = {"mlp.experts.", "block_sparse_moe.experts.", "feed_forward.experts.",
                                         "mixer.experts."};
    static const char *const parts[][2] = {{"gate_proj.weight", "ffn_gate"}, {"up_proj.weight", "ffn_up"},
                                           {"down_proj.weight", "ffn_down"}, {"w1.weight", "ffn_gate"},
                                           {"w3.weight", "ffn_up"},          {"w2.weight", "ffn_down"}};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        unsigned expert;
        int used = 0;
        const char *rest = s + strlen(before[i]);
        if (strncmp(s, before[i], strlen(before[i])) || sscanf(rest, "%5u.%n", &expert, &used) != 1 || !used)
            continue;
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (!strcmp(rest + used, parts[k][0])) {
                snprintf(out, size, "%s.%u.weight", parts[k][1], expert);
                return true;
            }
    }
    return false;
}

struct copy {
    struct hf_form form;
    const char *from;
    char *to;
    uint32_t bytes; /* of an element */
};

static int fill_copy(const void *arg, struct hearth_err *e)
{
    const struct copy *c = arg;
    const struct hf_form *f = &c->form;
    uint32_t bytes = c->bytes;
    char *to = c->to;
    for (uint64_t i = 0; i < f->n_expert; i++)
        for (uint64_t o = 0; o < f->n_out; o++) {
            int ret = pace(f->n_in * bytes, e);
            if (ret)
                return ret;
            const char *at = c->from + (i * f->size + f->first + o * f->by_out) * bytes;
            for (uint64_t k = 0; k < f->n_in; k++, to += bytes, at += f->by_in * bytes)
                if (bytes == 2)
                    memcpy(to, at, 2);
                else
                    memcpy(to, at, 4);
        }
    return 0;
}

int hf_add_copy(const struct hf *h, const struct gguf_tensor *from, const struct hf_form *f, const char *name,
                bool vectors)
{
    uint32_t bytes = from->type == DT_F32 ? 4 : 2;
    struct gguf_tensor t = {.n_dim = vectors ? 2 : 3,
                            .dim = {f->n_in, vectors ? f->n_expert : f->n_out, vectors ? 1 : f->n_expert, 1},
                            .type = from->type,
                            .bytes = f->n_expert * f->n_out * f->n_in * bytes};
    struct copy *c = gguf_make_alloc(h->m, sizeof *c);
    char *to = gguf_make_alloc(h->m, t.bytes);
    if (!c || !to)
        return err_set(h->e, HEARTH_ENOMEM, "no memory for tensor %s", name);
    *c = (struct copy){*f, from->data, to, bytes};
    t.name = gguf_make_name(h->m, name);
    t.data = to;
    gguf_make_tensor(h->m, &t);
    if (vectors)
        return fill_copy(c, h->e);
    gguf_make_later(h->m, fill_copy, c);
    return 0;
}

/* Adds a transposed tensor of Qwen 3-VL's experts. Which way a tensor is shows in its shape. Returns 1 for one that has
 * GGUF's, in which gate's rows are followed by up's. */
static int add_turned(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t)
{
    bool down = !strcmp(s, "mlp.experts.down_proj"), up = !strcmp(s, "mlp.experts.gate_up_proj");
    uint64_t d = hf_whole(h, "hidden_size"), ff = hf_whole(h, "moe_intermediate_size");
    uint64_t n_in = down ? ff : d, n_out = down ? d : 2 * ff;
    char name[64];
    if ((!down && !up) || t->n_dim != 3 || (t->dim[0] == n_in && t->dim[1] == n_out))
        return 1;
    if (t->dim[0] != n_out || t->dim[1] != n_in)
        return err_set(h->e, HEARTH_EBADMODEL, "tensor %s of layer %u has not the shape of a %s's experts", s, layer,
                       h->arch->model_type);
    struct hf_form f = {
        .n_expert = t->dim[2], .size = n_in * n_out, .n_in = n_in, .n_out = n_out, .by_in = n_out, .by_out = 1};
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", layer, down ? "down" : "gate_up");
    return hf_add_copy(h, t, &f, name, false);
}

int hf_fused_experts(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t)
{
    static const char *const names[] = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj",
                                        "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"};
    size_t k = 0, n = sizeof names / sizeof *names;
    char name[64];
    if (h->arch->rules & HF_EITHER_WAY)
        return add_turned(h, layer, s, t);
    while (k < n && strcmp(names[k], s))
        k++;
    if (k == n || !(h->arch->rules & HF_TRANSPOSED))
        return 1;
    bool bias = k >= 2, down = k % 2;
    if (t->n_dim != (bias ? 2u : 3u) || (!down && t->dim[0] % 2))
        return err_set(h->e, HEARTH_EBADMODEL, "tensor %s of layer %u has not the shape of a %s's experts", s, layer,
                       h->arch->model_type);
    /* [expert][in][out], where the columns of gate and up alternate in `out`; a bias is one such row */
    uint64_t columns = t->dim[0], rows = bias ? 1 : t->dim[1], step = down ? 1 : 2;
    int ret = 0;
    for (uint64_t i = 0; i < step && !ret; i++) {
        struct hf_form f = {.n_expert = bias ? t->dim[1] : t->dim[2], .size = columns * rows, .first = i};
        snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.%s", layer,
                 down ? "down"
                 : i  ? "up"
                      : "gate",
                 bias ? "bias" : "weight");
        f.n_in = bias ? columns / step : rows, f.by_in = bias ? step : columns;
        f.n_out = bias ? 1 : columns / step, f.by_out = step;
        ret = hf_add_copy(h, t, &f, name, bias);
    }
    return ret;
}
