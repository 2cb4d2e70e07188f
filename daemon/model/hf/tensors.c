/*
 * tensors.c - maps the folder's tensors to GGUF's names. Matrices stay in the mapped files; vectors are copied where
 * GGUF stores them in another form.
 */
#include "daemon/model/hf/hf-internal.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/model/hf/safetensors.h"
#include "daemon/model/pace.h"

enum {
    INDEX_MAX = 64 << 20,
    FILES_MAX = 256,
    NAME_MAX_BYTES = 200,
    NORM_MAX = 1 << 20, /* numbers in a norm: more than any architecture's */
};

struct rename {
    const char *hf, *gguf;
};

static const struct rename top[] = {{"embed_tokens", "token_embd"},
                                    {"norm", "output_norm"},
                                    {"lm_head", "output"},
                                    {"embedding_norm", "token_embd_norm"},
                                    {"embeddings", "token_embd"},
                                    {"norm_f", "output_norm"},
                                    {"embed_tokens_per_layer", "per_layer_token_embd"},
                                    {"per_layer_model_projection", "per_layer_model_proj"},
                                    {"per_layer_projection_norm", "per_layer_proj_norm"}};

static const struct rename layer[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"}, /* gate's rows, then up's */
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"router.proj", "ffn_gate_inp"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"operator_norm", "attn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"self_attn.out_proj", "attn_output"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w3", "ffn_up"},
    {"feed_forward.w2", "ffn_down"},
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"feed_forward.gate", "ffn_gate_inp"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.in_proj_qkvz", "ssm_in"}, /* as in the first GGUF files */
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.out_proj", "ssm_out"},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"norm", "attn_norm"},
    {"mixer.in_proj", "ssm_in"},
    {"mixer.conv1d", "ssm_conv1d"},
    {"mixer.out_proj", "ssm_out"},
    {"mixer.q_proj", "attn_q"},
    {"mixer.k_proj", "attn_k"},
    {"mixer.v_proj", "attn_v"},
    {"mixer.o_proj", "attn_output"},
    {"mixer.up_proj", "ffn_up"},
    {"mixer.down_proj", "ffn_down"},
    {"mixer.gate", "ffn_gate_inp"},
    {"mixer.fc1_latent_proj", "ffn_latent_down"},
    {"mixer.fc2_latent_proj", "ffn_latent_up"},
    {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
    {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
};

/* Whole names of tensors in a layer, most of which do not end in ".weight" or ".bias". */
static const struct rename entire[] = {{"feed_forward.expert_bias", "exp_probs_b.bias"},
                                       {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                       {"linear_attn.dt_bias", "ssm_dt.bias"},
                                       {"mamba.dt_bias", "ssm_dt.bias"},
                                       {"mixer.dt_bias", "ssm_dt.bias"},
                                       {"block_sparse_moe.input_linear.weight", "ffn_gate_up_exps.weight"},
                                       {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"},
                                       {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                       {"self_attn.sinks", "attn_sinks.weight"},
                                       {"layer_scalar", "layer_output_scale.weight"},
                                       {"router.scale", "ffn_gate_inp.scale"},
                                       {"router.per_expert_scale", "ffn_down_exps.scale"},
                                       {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
                                       {"experts.down_proj", "ffn_down_exps.weight"},
                                       {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
                                       {"mlp.experts.down_proj", "ffn_down_exps.weight"}};

static const struct rename pre_norm[] = {{"post_attention_layernorm", "ffn_norm"}};
static const struct rename sandwich[] = {{"post_attention_layernorm", "post_attention_norm"},
                                         {"pre_feedforward_layernorm", "ffn_norm"},
                                         {"post_feedforward_layernorm", "post_ffw_norm"}};
static const struct rename post[] = {{"post_attention_layernorm", "post_attention_norm"}};
static const struct rename glm[] = {{"post_attention_layernorm", "ffn_norm"},
                                    {"post_self_attn_layernorm", "post_attention_norm"},
                                    {"post_mlp_layernorm", "post_ffw_norm"}};

/* Prefixes of tensors that belong to a multimodal model's other parts, not to the text model. */
static const char *const not_text[] = {"vision_",
                                       "model.vision_",
                                       "image_tower.",
                                       "video_tower.",
                                       "audio_tower.",
                                       "model.audio_tower.",
                                       "model.embed_vision.",
                                       "model.embed_audio.",
                                       "multi_modal_projector.",
                                       "model.multi_modal_projector.",
                                       "model.connector.",
                                       "image_newline",
                                       "model.image_newline",
                                       "model.aligner.",
                                       "model.high_res_vision_",
                                       "model.vqmodel.",
                                       "model.generation_",
                                       "encoder.",
                                       "projector.",
                                       "model.projector.",
                                       "model.layerwise_projectors.",
                                       "model.spatial_projectors.",
                                       "model.visual",
                                       "visual.",
                                       "mtp."};

/* Tensors of the other parts may be of forms that hearth does not read: with five dimensions or none, or integers. */
static bool is_text(const char *name)
{
    for (size_t i = 0; i < sizeof not_text / sizeof *not_text; i++)
        if (!strncmp(name, not_text[i], strlen(not_text[i])))
            return false;
    return true;
}

static const char *find_name(const struct rename *rules, size_t n, const char *stem, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(rules[i].hf) == len && !memcmp(rules[i].hf, stem, len))
            return rules[i].gguf;
    return NULL;
}
#define FIND(rules, stem, len) find_name(rules, sizeof(rules) / sizeof *(rules), stem, len)

static const char *layer_name(const struct hf *h, const char *stem, size_t len)
{
    const char *name = h->arch->rules & HF_SANDWICH ? FIND(sandwich, stem, len)
                       : h->arch->rules & HF_GLM    ? FIND(glm, stem, len)
                       : h->arch->rules & HF_POST   ? FIND(post, stem, len)
                                                    : FIND(pre_norm, stem, len);
    return name ? name : FIND(layer, stem, len);
}

/* Advances *s past `prefix` if it begins with it; returns whether it did. */
static bool skip(const char **s, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(*s, prefix, n))
        return false;
    *s += n;
    return true;
}

/* Returns a tensor's name within its layer, with the layer in *number, or the name of a tensor outside the layers. */
static const char *strip(const char *s, bool *in_layer, unsigned *number)
{
    int used = 0;
    if (!skip(&s, "model.language_model.") && !skip(&s, "language_model.") && !skip(&s, "model.text_model."))
        skip(&s, "model.");
    if (!skip(&s, "model."))
        skip(&s, "backbone.");
    *in_layer = sscanf(s, "layers.%5u.%n", number, &used) == 1 && used > 0;
    return *in_layer ? s + used : s;
}

/* Translates a tensor's name: "model.layers.3.self_attn.q_proj.weight" is "blk.3.attn_q.weight". Returns 1 for a tensor
 * that the text model does not use. */
static int gguf_name(const struct hf *h, const char *hf, char out[NAME_MAX_BYTES])
{
    const char *end, *name;
    char expert[64];
    unsigned i = 0;
    bool in_layer;
    const char *s = strip(hf, &in_layer, &i);
    if (!strcmp(s, "feed_forward.expert_bias") && json_is_false(hf_get(h, "use_expert_bias")))
        return 1;
    name = !in_layer ? NULL : hf_expert_name(s, expert, sizeof expert) ? expert : FIND(entire, s, strlen(s));
    if (name) {
        snprintf(out, NAME_MAX_BYTES, "blk.%u.%s", i, name);
        return 0;
    }
    end = strrchr(s, '.');
    size_t len = end ? (size_t)(end - s) : 0;
    name = !end ? NULL : in_layer ? layer_name(h, s, len) : FIND(top, s, len);
    if (len == strlen("self_attn.rotary_emb") && !memcmp(s, "self_attn.rotary_emb", len))
        return 1; /* inv_freq in old files is redundant: it follows from RoPE's base */
    if (!name || strlen(end) > 16)
        return err_set(h->e, HEARTH_EUNSUPPORTED, "tensor %s has no place in a %s as hearth runs it",
                       gguf_label((struct gguf_str){hf, strlen(hf)}).s, h->arch->model_type);
    if (in_layer)
        snprintf(out, NAME_MAX_BYTES, "blk.%u.%s%s", i, name, end);
    else
        snprintf(out, NAME_MAX_BYTES, "%s%s", name, end);
    return 0;
}

static bool is_norm_weight(const char *name)
{
    size_t n = strlen(name), m = strlen("norm.weight"), of_state = strlen("ssm_norm.weight");
    if (n >= of_state && !strcmp(name + n - of_state, "ssm_norm.weight"))
        return false; /* a delta net's norm is stored as it is */
    return n >= m && !strcmp(name + n - m, "norm.weight");
}

/* Adds one to a norm's weights, which the folder stores minus one; GGUF has the full weights, in F32. */
static int plus_one(const struct hf *h, struct gguf_tensor *t)
{
    uint64_t n = t->dim[0];
    if (t->n_dim != 1 || n > NORM_MAX)
        return err_set(h->e, HEARTH_EBADMODEL, "tensor %s: a norm is one row", gguf_label(t->name).s);
    float *v = gguf_make_alloc(h->m, n * sizeof *v);
    if (!v)
        return err_set(h->e, HEARTH_ENOMEM, "no memory for tensor %s", gguf_label(t->name).s);
    dtype_get((int)t->type)->to_f32(t->data, v, n);
    for (uint64_t i = 0; i < n; i++)
        v[i] += 1;
    t->type = DT_F32;
    t->data = v;
    t->bytes = n * sizeof *v;
    return 0;
}

/* Copies unaligned data, because the kernels use aligned loads. Files written since 2023 have none. */
static int align(const struct hf *h, struct gguf_tensor *t)
{
    if ((uintptr_t)t->data % 8 == 0)
        return 0;
    enum { STEP = 64 << 10 };
    char *copy = gguf_make_alloc(h->m, t->bytes);
    if (!copy)
        return err_set(h->e, HEARTH_ENOMEM, "no memory for tensor %s", gguf_label(t->name).s);
    for (uint64_t at = 0; at < t->bytes; at += STEP) {
        uint64_t n = t->bytes - at < STEP ? t->bytes - at : STEP;
        int ret = pace(n, h->e);
        if (ret)
            return ret;
        memcpy(copy + at, (const char *)t->data + at, n);
    }
    t->data = copy;
    return 0;
}

/* Layers for multi-token prediction follow the others and are left out. Any other layer beyond num_hidden_layers means
 * that this number covers only a part of the model, which would then run as a different model. */
static int leave_out(struct hf *h, const char *name, unsigned number, const char *rest, struct hearth_err *e)
{
    unsigned i = number - h->n_layer;
    if (!h->n_layer) /* refused later, by its key */
        return 0;
    if (i >= h->n_nextn)
        return err_set(e, HEARTH_EUNSUPPORTED, "tensor %s has no place in a %s of %u layers (num_hidden_layers)",
                       gguf_label((struct gguf_str){name, strlen(name)}).s, h->arch->model_type, h->n_layer);
    h->nextn_seen |= UINT64_C(1) << i;
    if (!strcmp(rest, "eh_proj.weight"))
        h->nextn_joins |= UINT64_C(1) << i;
    return 0;
}

/* A layer that predicts further ahead is recognised by eh_proj, the matrix that joins its two inputs. */
static int check_ahead(const struct hf *h)
{
    uint64_t own = h->nextn_seen & ~h->nextn_joins;
    return !own ? 0
                : err_set(h->e, HEARTH_EUNSUPPORTED,
                          "tensors of layer %u have no place in a %s of %u layers (num_hidden_layers): without eh_proj "
                          "it is none for multi-token prediction",
                          h->n_layer + (unsigned)__builtin_ctzll(own), h->arch->model_type, h->n_layer);
}

static int on_tensor(void *arg, const struct safetensor *s, struct hearth_err *e)
{
    struct hf *h = arg;
    char name[NAME_MAX_BYTES];
    unsigned number = 0;
    bool in_layer;
    const char *rest = strip(s->name, &in_layer, &number);
    if (in_layer && number >= h->n_layer)
        return leave_out(h, s->name, number, rest, e);
    struct hearth_err *was = h->e;
    h->e = e;
    struct gguf_tensor t = s->t;
    bool bytes = t.type == SAFETENSOR_U8;
    t.name = (struct gguf_str){s->name, strlen(s->name)};
    int ret = in_layer && !bytes ? align(h, &t) : 0;
    if (!ret)
        ret = !in_layer ? 1 : bytes ? hf_mxfp4_tensor(h, number, rest, &t) : hf_fused_experts(h, number, rest, &t);
    if (ret > 0 && in_layer && !bytes)
        ret = hf_recurrent_tensor(h, number, rest, &t);
    if (ret > 0 && in_layer && !bytes)
        ret = hf_latent_tensor(h, number, rest, &t);
    if (ret > 0 && bytes)
        ret = err_set(e, HEARTH_EUNSUPPORTED, "tensor %s is of type U8; BF16, F16 and F32 are read",
                      gguf_label((struct gguf_str){s->name, strlen(s->name)}).s);
    if (ret <= 0) { /* added in another form, or an error */
        h->e = was;
        return ret;
    }
    ret = gguf_name(h, s->name, name);
    if (!ret) {
        t.name = gguf_make_name(h->m, name);
        ret = align(h, &t);
        if (t.n_dim == 3 && t.dim[1] == 1) { /* a convolution's: [channels, 1, taps] */
            t.dim[1] = t.dim[2];
            t.dim[2] = 1;
            t.n_dim = 2;
        }
    }
    if (!ret && (h->arch->rules & HF_PLUS_ONE) && is_norm_weight(name))
        ret = plus_one(h, &t);
    if (!ret)
        gguf_make_tensor(h->m, &t);
    if (!ret && !strcmp(name, "output.weight"))
        h->has_head = true;
    if (!ret && t.n_dim > 1)
        h->type = t.type;
    h->e = was;
    return ret > 0 ? 0 : ret;
}

/* --- the files ----------------------------------------------------------------------------------------- */

static int read_file(struct hf *h, const char *name)
{
    char path[PATH_MAX];
    struct map map;
    if (snprintf(path, sizeof path, "%s/%s", h->folder, name) >= (int)sizeof path)
        return err_set(h->e, HEARTH_EBADMODEL, "\"%s\" in the folder has too long a path",
                       gguf_label((struct gguf_str){name, strlen(name)}).s);
    int ret = safetensors_open(&map, path, is_text, on_tensor, h, h->e);
    if (!ret)
        gguf_make_map(h->m, &map);
    return ret;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The file that the index gives for the tensor `of`. It must be a plain file name within this folder, since the index
 * must not cause files elsewhere to be read. NULL with an error. */
static const char *file_of(const struct hf *h, const char *of, const json_t *v)
{
    const char *file = json_string_value(v);
    bool good = file && strlen(file) == json_string_length(v) && *file && !strchr(file, '/') &&
                strcmp(file, ".") != 0 && strcmp(file, "..") != 0;
    struct gguf_label name = gguf_label((struct gguf_str){of, strlen(of)});
    if (!file)
        err_set(h->e, HEARTH_EBADMODEL, "model.safetensors.index.json: the file of %.60s is no string", name.s);
    else if (!good)
        err_set(h->e, HEARTH_EBADMODEL,
                "model.safetensors.index.json: \"%.60s\", where %.60s is, is no file of the folder",
                gguf_label((struct gguf_str){file, json_string_length(v)}).s, name.s);
    return good ? file : NULL;
}

/* Reads the files that the index names, each once and sorted by name. */
static int read_indexed(struct hf *h, const json_t *index)
{
    const json_t *map = json_object_get(index, "weight_map"), *v;
    const char *files[FILES_MAX], *key;
    size_t n = 0;
    if (!json_is_object(map))
        return err_set(h->e, HEARTH_EBADMODEL, "model.safetensors.index.json has no weight_map");
    json_object_foreach((json_t *)map, key, v)
    {
        const char *file = file_of(h, key, v);
        size_t i = 0;
        while (file && i < n && strcmp(files[i], file))
            i++;
        if (!file)
            return HEARTH_EBADMODEL;
        if (i == n && n == FILES_MAX)
            return err_set(h->e, HEARTH_EBADMODEL, "model.safetensors.index.json: too many files");
        if (i == n)
            files[n++] = file;
    }
    qsort(files, n, sizeof *files, by_name);
    int ret = 0;
    for (size_t i = 0; i < n && !ret; i++)
        ret = read_file(h, files[i]);
    return ret;
}

/* --- derived tensors ----------------------------------------------------------------------------------- */

static double real_of(const json_t *r, const char *key, double absent)
{
    const json_t *v = json_object_get(r, key);
    return json_is_number(v) ? json_number_value(v) : absent;
}

static int put_vector(struct hf *h, const char *name, float *v, size_t n)
{
    struct gguf_tensor t = {.n_dim = 1, .dim = {n, 1, 1, 1}, .type = DT_F32, .data = v, .bytes = n * sizeof *v};
    t.name = gguf_make_name(h->m, name);
    gguf_make_tensor(h->m, &t);
    return 0;
}

/* Computes Llama 3's scaling as factors that divide the frequencies: 1 for wavelengths below a band, `factor` above it,
 * smooth in between (transformers, modeling_rope_utils.py). */
static int put_llama3(struct hf *h, const json_t *r)
{
    uint32_t n = h->n_rot / 2;
    double theta = real_of(r, "rope_theta", real_of(h->config, "rope_theta", 10000));
    const json_t *original = hf_rope_original(h);
    double ctx = json_is_number(original) ? json_number_value(original) : 0;
    double low = real_of(r, "low_freq_factor", NAN), high = real_of(r, "high_freq_factor", NAN);
    double factor = real_of(r, "factor", 0);
    float *v = n ? gguf_make_alloc(h->m, n * sizeof *v) : NULL;
    if (!v || !(theta > 0) || !(ctx > 0) || !(high > low) || !(factor > 0))
        return err_set(
            h->e, HEARTH_EBADMODEL,
            "config.json: RoPE scaling llama3 with values that cannot be (rope_theta, factor, low_freq_factor, "
            "high_freq_factor, original_max_position_embeddings)");
    for (uint32_t i = 0; i < n; i++) {
        double wave = 2 * M_PI * pow(theta, (double)i / n), smooth = (ctx / wave - low) / (high - low);
        double f = wave < ctx / high ? 1 : wave > ctx / low ? factor : 1 / ((1 - smooth) / factor + smooth);
        v[i] = (float)f;
    }
    return put_vector(h, "rope_freqs.weight", v, n);
}

static int put_proportional(struct hf *h, const json_t *r)
{
    float *v;
    size_t n;
    int ret = hf_rope_proportional(h, real_of(r, "partial_rotary_factor", 1), real_of(r, "factor", 1), &v, &n);
    return ret ? ret : put_vector(h, "rope_freqs.weight", v, n);
}

static int put_factors(struct hf *h, const json_t *r, const char *key, const char *name)
{
    const json_t *list = json_object_get(r, key), *v;
    size_t n = json_array_size(list), i;
    if (!list)
        return 0;
    float *f = n ? gguf_make_alloc(h->m, n * sizeof *f) : NULL;
    if (!f)
        return err_set(h->e, HEARTH_EBADMODEL, "config.json: %s is not an array of numbers", key);
    json_array_foreach(list, i, v)
    {
        if (!json_is_number(v))
            return err_set(h->e, HEARTH_EBADMODEL, "config.json: %s, entry %zu is not a number", key, i);
        f[i] = (float)json_number_value(v);
    }
    return put_vector(h, name, f, n);
}

static int put_rope_tensors(struct hf *h)
{
    const json_t *r = hf_rope(h);
    const char *type = json_string_value(json_object_get(r, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(r, "type"));
    int ret = type && !strcmp(type, "llama3") ? put_llama3(h, r) : 0;
    if (type && !strcmp(type, "proportional"))
        ret = put_proportional(h, r);
    if (!ret)
        ret = put_factors(h, r, "long_factor", "rope_factors_long.weight");
    return ret ? ret : put_factors(h, r, "short_factor", "rope_factors_short.weight");
}

/* As in transformers, model.safetensors counts even beside an index: an index may be left from what was saved to the
 * folder before, since transformers then removes the parts but not their index. */
static int read_files(struct hf *h)
{
    json_t *index;
    int ret = read_file(h, "model.safetensors");
    if (ret != HEARTH_ENOMODEL)
        return ret;
    ret = hf_json(h, "model.safetensors.index.json", INDEX_MAX, &index);
    if (ret > 0)
        return err_set(h->e, HEARTH_EBADMODEL,
                       "the folder has neither model.safetensors nor model.safetensors.index.json");
    if (!ret) {
        ret = read_indexed(h, index);
        json_decref(index);
    }
    return ret;
}

int hf_tensors(struct hf *h)
{
    int ret = read_files(h);
    bool mxfp4 = h->mxfp4 != NULL;
    ret = hf_mxfp4_end(h, ret);
    if (!ret)
        ret = check_ahead(h);
    if (!ret && h->untied && !h->has_head) /* otherwise the embedding would be used in its place */
        ret = err_set(h->e, HEARTH_EBADMODEL, "tensor lm_head.weight is missing, and tie_word_embeddings is false");
    if (!ret) /* general.file_type, in llama.cpp's numbering */
        gguf_make_u32(h->m, "general.file_type", mxfp4 ? 38 : h->type == DT_BF16 ? 32 : h->type == DT_F16 ? 1 : 0);
    return ret ? ret : put_rope_tensors(h);
}
