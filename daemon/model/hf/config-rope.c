/*
 * config-rope.c - RoPE in config.json: its base, which may differ for layers with a sliding window, the share of a head
 * that is rotated, and the scaling of frequencies for long texts.
 */
#include "daemon/model/hf/hf-internal.h"

/* transformers 5 writes rope_parameters, by kind of layer where these differ; earlier versions wrote rope_scaling. */
json_t *hf_rope(const struct hf *h)
{
    json_t *r = json_object_get(h->config, "rope_parameters"), *full;
    if (!json_is_object(r))
        r = json_object_get(h->config, "rope_scaling");
    full = json_object_get(r, "full_attention");
    r = json_is_object(full) ? full : r;
    return json_is_object(r) ? r : NULL;
}

static const char *rope_type(const json_t *r)
{
    const char *type = json_string_value(json_object_get(r, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(r, "type"));
    if (type && !strcmp(type, "mrope")) /* its several kinds of position are equal in text */
        return "default";
    return type ? type : "default";
}

/* As in transformers, a length beside RoPE's description precedes the one in it, unless that describes kinds of layers,
 * and without either it is the whole context. */
const json_t *hf_rope_original(const struct hf *h)
{
    static const char key[] = "original_max_position_embeddings";
    const json_t *r = hf_rope(h), *own = json_object_get(r, key), *beside = hf_get(h, key);
    bool by_kind =
        r && r != json_object_get(h->config, "rope_parameters") && r != json_object_get(h->config, "rope_scaling");
    if (beside && !by_kind)
        return beside;
    return own && !json_is_null(own) ? own : hf_get(h, "max_position_embeddings");
}

static bool same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

/* People who extend a context add rope_scaling, even where transformers 5 wrote rope_parameters. transformers then
 * forgets all of the latter, the base included, so a folder with both runs only where both say the same. */
static int check_both(const struct hf *h)
{
    const json_t *old = hf_get(h, "rope_scaling"), *r = hf_rope(h), *v;
    const char *key;
    if (!json_object_size(old) || !hf_get(h, "rope_parameters"))
        return 0;
    bool differ = strcmp(rope_type(old), rope_type(r)) != 0, plain = !strcmp(rope_type(r), "default");
    json_object_foreach((json_t *)old, key, v)
    {
        const json_t *other = json_object_get(r, key);
        if (strcmp(key, "type") != 0 && strcmp(key, "rope_type") != 0)
            differ |= other ? !same(v, other) : !plain;
    }
    return !differ ? 0
                   : err_set(h->e, HEARTH_EUNSUPPORTED,
                             "config.json: rope_scaling and rope_parameters differ; only one of them can count");
}

int hf_put_rope_number(struct hf *h, const json_t *r, const char *hf, const char *gguf)
{
    const json_t *v = json_object_get(r, hf);
    return !v || json_is_null(v) ? 0 : hf_put_f32(h, hf, gguf, v);
}

static int put_scaling(struct hf *h, const json_t *r)
{
    static const char *const yarn[][2] = {{"attention_factor", "rope.scaling.attention_factor"},
                                          {"beta_fast", "rope.scaling.yarn_beta_fast"},
                                          {"beta_slow", "rope.scaling.yarn_beta_slow"}};
    const char *type = rope_type(r);
    char key[128];
    bool phi3 = !strcmp(h->arch->model_type, "phi3"); /* its first folders use these names */
    if (phi3 && (!strcmp(type, "su") || !strcmp(type, "yarn")))
        type = "longrope";
    bool is_yarn = !strcmp(type, "yarn"), is_long = !strcmp(type, "longrope");
    if (!strcmp(type, "default") || !strcmp(type, "llama3") || !strcmp(type, "proportional"))
        /* the latter two become a tensor of factors: tensors.c */
        return 0;
    if (!strcmp(type, "dynamic")) /* is the default up to max_position_embeddings, and no text here is longer */
        return 0;
    if (strcmp(type, "linear") && !is_yarn && !is_long)
        return err_set(h->e, HEARTH_EUNSUPPORTED,
                       "RoPE scaling \"%.40s\" (rope_type in config.json); default, linear, dynamic, yarn, llama3 and "
                       "longrope are known",
                       gguf_label((struct gguf_str){type, strlen(type)}).s);
    if (!strcmp(type, "linear") && !json_is_number(json_object_get(r, "factor")))
        return err_set(h->e, HEARTH_EBADMODEL, "config.json: RoPE scaling linear without a factor");
    gguf_make_str(h->m, hf_key(h, "rope.scaling.type", key), type, strlen(type));
    int ret = hf_put_rope_number(h, r, "factor", "rope.scaling.factor");
    const json_t *original = hf_rope_original(h);
    if (!ret && original && (is_yarn || is_long))
        ret = hf_put_u32(h, "original_max_position_embeddings", "rope.scaling.original_context_length", original);
    for (size_t i = 0; i < sizeof yarn / sizeof *yarn && is_yarn && !ret; i++)
        ret = hf_put_rope_number(h, r, yarn[i][0], yarn[i][1]);
    double mscale = json_number_value(json_object_get(r, "mscale"));
    double all = json_number_value(json_object_get(r, "mscale_all_dim"));
    bool latent = h->arch->rules & HF_LATENT;
    /* Either alone has no effect on RoPE, but mscale_all_dim alone scales latent attention's scores. */
    if (!ret && is_yarn && all != 0 && (mscale != 0 || latent)) {
        gguf_make_f32(h->m, "hearth.rope.mscale", (float)mscale);
        /* with latent attention, GGUF files store a tenth of it */
        gguf_make_f32(h->m, hf_key(h, "rope.scaling.yarn_log_multiplier", key), (float)(latent ? 0.1 * all : all));
    }
    if (!ret && is_yarn)
        gguf_make_bool(h->m, "hearth.rope.yarn_exact_bounds", json_is_false(json_object_get(r, "truncate")));
    if (!ret && is_long)
        ret = hf_put_rope_number(h, r, "attention_factor", "rope.scaling.attn_factor");
    return ret;
}

int hf_put_rope(struct hf *h)
{
    const json_t *r = hf_rope(h), *theta = json_object_get(r, "rope_theta"), *partial, *swa;
    char key[128];
    double share = h->arch->partial_rot;
    int ret = check_both(h);
    if (!ret)
        ret = put_scaling(h, r);
    if (!theta)
        theta = hf_get(h, "rope_theta");
    if (!ret && theta)
        ret = hf_put_f32(h, "rope_theta", "rope.freq_base", theta);
    const json_t *sliding = json_object_get(json_object_get(h->config, "rope_parameters"), "sliding_attention");
    if (!ret && strcmp(rope_type(sliding), "default"))
        return err_set(h->e, HEARTH_EUNSUPPORTED,
                       "RoPE scaling \"%.40s\" of layers with a sliding window (rope_type in config.json)",
                       gguf_label((struct gguf_str){rope_type(sliding), strlen(rope_type(sliding))}).s);
    swa = json_object_get(sliding, "rope_theta");
    if (!swa)
        swa = hf_get(h, "rope_local_base_freq");
    if (!ret && swa)
        ret = hf_put_f32(h, "rope_theta", "rope.freq_base_swa", swa);
    partial = json_object_get(r, "partial_rotary_factor");
    if (!partial)
        partial = hf_get(h, "partial_rotary_factor");
    if (!partial)
        partial = hf_get(h, "rotary_pct");
    if (partial && !json_is_number(partial))
        return hf_wrong(h, "partial_rotary_factor", "a number");
    if (partial && strcmp(rope_type(r), "proportional"))
        share = json_number_value(partial);
    if (!(share > 0 && share <= 1))
        return hf_wrong(h, "partial_rotary_factor", "above 0 and at most 1");
    uint32_t own = hf_whole(h, "qk_rope_head_dim");
    h->n_rot = own ? own : (uint32_t)(hf_head_dim(h) * share);
    gguf_make_u32(h->m, hf_key(h, "rope.dimension_count", key), h->n_rot);
    if (h->arch->rules & HF_PAIRS)
        gguf_make_bool(h->m, "hearth.rope.neox", true);
    return ret;
}
