/*
 * recurrent.c - folders of models with recurrent states: the kind of each layer, sizes that config.json gives as
 * factors, and tensors that GGUF stores in another form. A delta net's value heads stay in their original order, which
 * the key hearth.ssm.grouped marks; vectors are copied only where they change.
 */
#include "daemon/model/hf/hf-internal.h"

#include <math.h>
#include <stdio.h>

enum { LAYERS_MAX = 1024 };

/* --- config.json ----------------------------------------------------------------------------------------- */

enum kind { KIND_ATTENDS, KIND_RECURS, KIND_MLP, KIND_MOE, KINDS };

/* The kind of a layer by its name in config.json, or by its letter in a pattern; KINDS: unknown. */
static enum kind kind_of(const char *name, char letter)
{
    static const struct {
        const char *name;
        char letter;
        enum kind kind;
    } known[] = {{"full_attention", '*', KIND_ATTENDS},
                 {"attention", '*', KIND_ATTENDS},
                 {"conv", 0, KIND_RECURS},
                 {"linear_attention", 0, KIND_RECURS},
                 {"mamba", 'M', KIND_RECURS},
                 {"mlp", '-', KIND_MLP},
                 {"moe", 'E', KIND_MOE}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (name ? !strcmp(name, known[i].name) : letter && letter == known[i].letter)
            return known[i].kind;
    return KINDS;
}

/* LFM 2's first folders list the indices of the layers with attention. */
static int read_attending(struct hf *h, const json_t *list, enum kind kind[LAYERS_MAX])
{
    size_t i;
    const json_t *v;
    if (!h->n_layer || h->n_layer > LAYERS_MAX)
        return hf_wrong(h, "num_hidden_layers", "a number of layers");
    for (uint32_t n = 0; n < h->n_layer; n++)
        kind[n] = KIND_RECURS;
    json_array_foreach(list, i, v)
    {
        json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
        if (n < 0 || n >= h->n_layer)
            return hf_wrong(h, "full_attn_idxs", "an array of layers' numbers (num_hidden_layers)");
        kind[n] = KIND_ATTENDS;
    }
    return 0;
}

/* The kinds of all layers, from a list of names, a string of letters, or a list of indices. */
static int read_kinds(struct hf *h, enum kind kind[LAYERS_MAX])
{
    const char *key = h->arch->rules & HF_SINGLE ? "layers_block_type" : "layer_types";
    const char *pattern = json_string_value(hf_get(h, "hybrid_override_pattern"));
    const json_t *list = hf_get(h, key), *attend = hf_get(h, "full_attn_idxs");
    if (!list && json_is_array(attend))
        return read_attending(h, attend, kind);
    size_t n = json_is_array(list) ? json_array_size(list) : pattern ? strlen(pattern) : 0;
    if (!json_is_array(list) && pattern)
        key = "hybrid_override_pattern";
    if (h->arch->rules & HF_SINGLE && !h->n_layer && n <= LAYERS_MAX) /* transformers leaves out num_hidden_layers */
        h->n_layer = (uint32_t)n;
    if (!n || n > LAYERS_MAX || n != h->n_layer)
        return hf_wrong(h, key, "an entry for each layer (num_hidden_layers)");
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        kind[i] = json_is_array(list) && !name ? KINDS : kind_of(name, name ? 0 : pattern[i]);
        if (kind[i] == KINDS || (kind[i] > KIND_RECURS && !(h->arch->rules & HF_SINGLE)))
            return err_set(h->e, HEARTH_EUNSUPPORTED, "config.json: layer %zu is of no kind that hearth knows (%s)", i,
                           key);
    }
    return 0;
}

static int put_kinds(struct hf *h)
{
    enum kind kind[LAYERS_MAX];
    int32_t heads[LAYERS_MAX], ff[LAYERS_MAX], recurs[LAYERS_MAX];
    uint32_t n_kv = hf_whole(h, "num_key_value_heads"), d_ff = hf_whole(h, "intermediate_size");
    uint32_t d_expert = hf_whole(h, "moe_intermediate_size");
    char key[128];
    int ret = read_kinds(h, kind);
    for (uint32_t i = 0; i < h->n_layer && !ret; i++) {
        heads[i] = kind[i] == KIND_ATTENDS ? (int32_t)n_kv : 0;
        ff[i] = (int32_t)(kind[i] == KIND_MLP ? d_ff : kind[i] == KIND_MOE ? d_expert : 0);
        recurs[i] = kind[i] == KIND_RECURS;
    }
    if (!ret && h->arch->rules & HF_DELTA)
        gguf_make_i32s(h->m, hf_key(h, "attention.recurrent_layers", key), recurs, h->n_layer);
    if (!ret && h->arch->rules & HF_KV_BY_LAYER)
        gguf_make_i32s(h->m, hf_key(h, "attention.head_count_kv", key), heads, h->n_layer);
    if (!ret && h->arch->rules & HF_SINGLE)
        gguf_make_i32s(h->m, hf_key(h, "feed_forward_length", key), ff, h->n_layer);
    return ret ? ret
           : json_object_set_new(h->config, "num_hidden_layers", json_integer(h->n_layer))
               ? err_set(h->e, HEARTH_ENOMEM, "no memory for config.json")
               : 0;
}

/* LFM 2's config.json may give the width of the feed-forward network only by its ingredients. The width is rounded up
 * only where there is a factor; null means none. */
static int lfm2_d_ff(const struct hf *h)
{
    const json_t *by = json_object_get(h->config, "block_ffn_dim_multiplier");
    uint32_t n = hf_whole(h, hf_whole(h, "block_ff_dim") ? "block_ff_dim" : "intermediate_size");
    const json_t *adjust = hf_get(h, "block_auto_adjust_ff_dim");
    if (!adjust || json_is_true(adjust)) {
        uint32_t of = hf_whole(h, "block_multiple_of") ? hf_whole(h, "block_multiple_of") : 256;
        double factor = json_is_number(by) ? json_number_value(by) : 1;
        if (!(factor > 0 && factor < 64))
            return hf_wrong(h, "block_ffn_dim_multiplier", "a number from 0 to 64");
        n = (uint32_t)((double)(2 * (n / 3) + 2 * (n % 3) / 3) * factor);
        if (!json_is_null(by))
            n = (n + of - 1) / of * of;
    }
    return json_object_set_new(h->config, "intermediate_size", json_integer(n))
               ? err_set(h->e, HEARTH_ENOMEM, "no memory for config.json")
               : 0;
}

/* One end of time_step_limit, which may be infinite: as Python writes it (hf.c turns that into a string) or as
 * transformers does. */
static double limit_of(const json_t *v, double none)
{
    const char *s = json_string_value(v), *t = json_string_value(json_object_get(v, "__float__"));
    if ((s && !strcmp(s, "inf")) || (t && !strcmp(t, "Infinity")))
        return INFINITY;
    if ((s && !strcmp(s, "-inf")) || (t && !strcmp(t, "-Infinity")))
        return -INFINITY;
    return json_is_null(v) ? none : json_is_number(v) ? json_number_value(v) : NAN;
}

/* Accepts only limits of the time step that have no effect: the step is a softplus, so always above 0. In Nemotron H,
 * an older name of the key precedes the other. */
static int check_limits(const struct hf *h)
{
    bool older = !strcmp(h->arch->model_type, "nemotron_h") && hf_get(h, "mamba_dt_limit");
    const char *key = older ? "mamba_dt_limit" : "time_step_limit";
    const json_t *limit = hf_get(h, key);
    double least = limit_of(json_array_get(limit, 0), 0), most = limit_of(json_array_get(limit, 1), INFINITY);
    if (!limit)
        return 0;
    if (json_array_size(limit) != 2 || isnan(least) || isnan(most))
        return hf_wrong(h, key, "an array of two numbers, each of which may be {\"__float__\": \"Infinity\"}");
    return least <= 0 && most == INFINITY
               ? 0
               : err_set(h->e, HEARTH_EUNSUPPORTED, "config.json asks for %s, which hearth does not compute", key);
}

/* Writes Mamba-2's sizes, and refuses settings that hearth does not compute. */
static int put_mamba(struct hf *h)
{
    const char *type = h->arch->model_type;
    bool granite = !strcmp(type, "granitemoehybrid"), plain = !strcmp(type, "mamba2");
    uint32_t expand = hf_whole(h, granite ? "mamba_expand" : "expand");
    uint32_t inner = plain || granite ? (expand ? expand : 2) * hf_whole(h, "hidden_size")
                                      : hf_whole(h, "mamba_num_heads") * hf_whole(h, "mamba_head_dim");
    const char *of_head = granite ? "mamba_d_head" : "head_dim";
    uint32_t d_head = hf_whole(h, of_head), n_head = hf_whole(h, granite ? "mamba_n_heads" : "num_heads");
    char key[128];
    if ((plain || granite) && d_head && n_head && (uint64_t)d_head * n_head != inner)
        return err_set(h->e, HEARTH_EBADMODEL, "config.json: %u heads of %u (%s) are not %u times hidden_size", n_head,
                       d_head, of_head, expand ? expand : 2);
    int ret = check_limits(h);
    if (ret)
        return ret;
    gguf_make_u32(h->m, hf_key(h, "ssm.inner_size", key), inner);
    if (plain || granite) /* as in transformers; Nemotron-H, and all GGUF files, have a norm per group */
        gguf_make_bool(h->m, "hearth.ssm.norm_whole", true);
    if (!hf_get(h, "max_position_embeddings"))
        gguf_make_u32(h->m, hf_key(h, "context_length", key), 1 << 20); /* nothing in such a model limits it */
    if (granite) {
        const char *position = json_string_value(hf_get(h, "position_embedding_type"));
        gguf_make_bool(h->m, hf_key(h, "rope.scaling.finetuned", key), position && !strcmp(position, "rope"));
    }
    if (granite && !hf_whole(h, "num_local_experts") && !hf_whole(h, "shared_intermediate_size"))
        return hf_wrong(h, "shared_intermediate_size", "a whole number above 0");
    if (granite && !hf_whole(h, "num_local_experts"))
        return json_object_set(h->config, "intermediate_size", json_object_get(h->config, "shared_intermediate_size"))
                   ? err_set(h->e, HEARTH_ENOMEM, "no memory for config.json")
                   : 0;
    if (!plain)
        return 0;
    static const char *const none[] = {"num_attention_heads", "num_key_value_heads", "intermediate_size"};
    static const char *const as[] = {"attention.head_count", "attention.head_count_kv", "feed_forward_length"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        json_object_del(h->config, none[i]);
        gguf_make_u32(h->m, hf_key(h, as[i], key), 0);
    }
    return 0;
}

int hf_recurrent_keys(struct hf *h)
{
    char key[128];
    int ret = 0;
    if (h->arch->rules & HF_KV_BY_LAYER || (h->arch->rules & HF_DELTA && hf_get(h, "layer_types")))
        ret = put_kinds(h);
    if (!ret && !strcmp(h->arch->model_type, "lfm2"))
        ret = lfm2_d_ff(h);
    if (!ret && h->arch->rules & HF_MAMBA)
        ret = put_mamba(h);
    if (h->arch->rules & HF_DELTA) {
        uint32_t heads = hf_whole(h, "linear_num_value_heads"), groups = hf_whole(h, "linear_num_key_heads");
        if (!ret && groups && heads % groups) /* one of them may be a default, and the other not */
            ret = err_set(h->e, HEARTH_EBADMODEL,
                          "linear_num_value_heads is %u, no multiple of linear_num_key_heads, which is %u", heads,
                          groups);
        gguf_make_bool(h->m, "hearth.ssm.grouped", true);
        gguf_make_u32(h->m, hf_key(h, "ssm.inner_size", key), heads * hf_whole(h, "linear_value_head_dim"));
    }
    return ret;
}

/* --- tensors --------------------------------------------------------------------------------------------- */

static void add(const struct hf *h, unsigned layer, const char *name, struct gguf_tensor t)
{
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    t.name = gguf_make_name(h->m, full);
    gguf_make_tensor(h->m, &t);
}

static int odd(const struct hf *h, unsigned layer, const char *s)
{
    return err_set(h->e, HEARTH_EBADMODEL, "tensor %s of layer %u has not the shape of a %s's", s, layer,
                   h->arch->model_type);
}

/* GGUF stores -exp(A_log) in F32, and for Mamba-2 as a column. */
static int add_decay(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t)
{
    enum { HEADS_MAX = 1024 };
    uint64_t n = t->dim[0];
    if (t->n_dim != 1 || n > HEADS_MAX)
        return odd(h, layer, s);
    float *v = gguf_make_alloc(h->m, n * sizeof *v);
    if (!v)
        return err_set(h->e, HEARTH_ENOMEM, "no memory for tensor %s", s);
    dtype_get((int)t->type)->to_f32(t->data, v, n);
    for (uint64_t i = 0; i < n; i++)
        v[i] = (float)-exp((double)v[i]);
    bool column = h->arch->rules & HF_MAMBA;
    add(h, layer, "ssm_a",
        (struct gguf_tensor){.n_dim = column ? 2 : 1,
                             .dim = {column ? 1 : n, column ? n : 1, 1, 1},
                             .type = DT_F32,
                             .data = v,
                             .bytes = n * sizeof *v});
    return 0;
}

/* Adds a vector as a matrix of that many rows. */
static int add_rows(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t, const char *name,
                    uint64_t rows)
{
    struct gguf_tensor as = *t;
    if (t->n_dim != 1 || !rows || t->dim[0] % rows)
        return odd(h, layer, s);
    as.n_dim = 2;
    as.dim[0] = t->dim[0] / rows;
    as.dim[1] = rows;
    add(h, layer, name, as);
    return 0;
}

/* Splits a matrix into its upper and lower half, which stay where they are. */
static int add_halves(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t,
                      const char *const name[2])
{
    if (t->n_dim != 2 || t->dim[1] % 2)
        return odd(h, layer, s);
    for (int i = 0; i < 2; i++) {
        struct gguf_tensor half = *t;
        half.dim[1] /= 2;
        half.bytes /= 2;
        half.data = (const char *)t->data + (i ? half.bytes : 0);
        add(h, layer, name[i], half);
    }
    return 0;
}

int hf_recurrent_tensor(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t)
{
    static const char *const dense[] = {"ffn_gate.weight", "ffn_up.weight"};
    static const char *const shared[] = {"ffn_gate_shexp.weight", "ffn_up_shexp.weight"};
    const char *dot = strchr(s, '.'), *what = dot ? dot + 1 : "";
    if (!(h->arch->rules & (HF_DELTA | HF_MAMBA)))
        return 1;
    if (!strcmp(what, "A_log"))
        return add_decay(h, layer, s, t);
    if (!(h->arch->rules & HF_MAMBA))
        return 1;
    if (!strcmp(what, "D"))
        return add_rows(h, layer, s, t, "ssm_d", t->dim[0]);
    if (!strcmp(s, "mamba.norm.weight") || !strcmp(s, "mixer.norm.weight"))
        return add_rows(h, layer, s, t, "ssm_norm.weight",
                        hf_whole(h, hf_get(h, "mamba_n_groups") ? "mamba_n_groups" : "n_groups"));
    bool experts = hf_whole(h, "num_local_experts") != 0;
    if (!strcmp(s, "shared_mlp.input_linear.weight"))
        return add_halves(h, layer, s, t, experts ? shared : dense);
    if (!strcmp(s, "shared_mlp.output_linear.weight")) {
        add(h, layer, experts ? "ffn_down_shexp.weight" : "ffn_down.weight", *t);
        return 0;
    }
    return 1;
}
