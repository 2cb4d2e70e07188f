/* config-layers.c - how layers differ according to config.json: which have a sliding window, and which no RoPE. */
#include "daemon/model/hf/hf-internal.h"

enum { LAYERS_MAX = 1024 };

/* Returns the period of full-attention layers, where config.json does not list them; 0: all have sliding windows. */
static uint32_t window_period(const struct hf *h)
{
    static const struct {
        const char *model_type;
        uint32_t period;
    } known[] = {{"gemma2", 2},  {"gpt_oss", 2}, {"gemma3_text", 6}, {"gemma4_text", 6},
                 {"cohere2", 4}, {"olmo3", 4},   {"exaone4", 4}};
    uint32_t n = hf_whole(h, "sliding_window_pattern");
    if (!n)
        n = hf_whole(h, "_sliding_window_pattern");
    for (size_t i = 0; i < sizeof known / sizeof *known && !n; i++)
        if (!strcmp(known[i].model_type, h->arch->model_type))
            n = known[i].period;
    return n;
}

/* Model types for which transformers ignores sliding_window. */
static bool never_slides(const char *type)
{
    static const char *const none[] = {"llama",
                                       "granite",
                                       "glm4",
                                       "glm4_moe",
                                       "deepseek_v2",
                                       "deepseek_v3",
                                       "nemotron",
                                       "olmo2",
                                       "lfm2",
                                       "lfm2_moe",
                                       "qwen3_next",
                                       "qwen3_5_text",
                                       "nemotron_h",
                                       "mamba2",
                                       "glm4_moe_lite",
                                       "qwen3_5_moe_text",
                                       "granitemoehybrid",
                                       "qwen3_vl_moe_text",
                                       "gemma",
                                       "ernie4_5",
                                       "seed_oss",
                                       "granitemoe",
                                       "olmoe",
                                       "arcee"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!strcmp(none[i], type))
            return true;
    return false;
}

/* Writes an explicit 0: without the key, the architecture's default window would apply. */
static int put_no_window(struct hf *h)
{
    char key[128];
    gguf_make_u32(h->m, hf_key(h, "attention.sliding_window", key), 0);
    return 0;
}

/* SmolLM 3's layers with RoPE: those with another number than 0 in no_rope_layers, or else all but every
 * no_rope_layer_interval-th. */
static int smollm3_turns(struct hf *h, int32_t turns[LAYERS_MAX])
{
    const json_t *list = hf_get(h, "no_rope_layers"), *v;
    uint32_t interval = hf_whole(h, "no_rope_layer_interval");
    size_t i;
    for (i = 0; i < h->n_layer; i++)
        turns[i] = (i + 1) % (interval ? interval : 4) != 0;
    if (list && json_array_size(list) != h->n_layer)
        return hf_wrong(h, "no_rope_layers", "an array with an entry for each layer (num_hidden_layers)");
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v))
            return hf_wrong(h, "no_rope_layers", "an array of whole numbers, 0 for a layer without RoPE");
        turns[i] = json_integer_value(v) != 0;
    }
    return 0;
}

/* Which layers have the window where config.json has no layer_types, as in the configuration classes of transformers
 * 5. */
static int slides_without_types(struct hf *h, int32_t slides[LAYERS_MAX])
{
    const char *type = h->arch->model_type;
    bool moe3 = !strcmp(type, "qwen3_moe"), moe2 = !strcmp(type, "qwen2_moe"), is_qwen = !strncmp(type, "qwen", 4);
    /* in Qwen and dots.llm1, the first layer with a window, except that Qwen 2 with experts has none from there on */
    bool late = (is_qwen && !moe3) || !strcmp(type, "dots1");
    size_t first = !late ? 0 : hf_get(h, "max_window_layers") ? hf_whole(h, "max_window_layers") : is_qwen ? 28 : 62;
    uint32_t period = window_period(h);
    bool by_rope = !strcmp(type, "smollm3"); /* layers with RoPE have none */
    int ret = by_rope ? smollm3_turns(h, slides) : 0;
    for (size_t i = 0; i < h->n_layer; i++)
        slides[i] = by_rope ? !slides[i]
                    : moe2  ? i < first && i % 2 == 0
                            : i >= first && (!period || (i + 1) % period != 0);
    return ret;
}

/* Writes sliding_window, and which layers have it. Qwen's files contain a window that is used only where
 * use_sliding_window is true. */
int hf_put_window(struct hf *h)
{
    const json_t *w = hf_get(h, "sliding_window"), *types = hf_get(h, "layer_types"),
                 *use = hf_get(h, "use_sliding_window"), *v;
    bool must_say = !strncmp(h->arch->model_type, "qwen", 4) || !strcmp(h->arch->model_type, "smollm3"), any = false;
    int32_t slides[LAYERS_MAX];
    size_t i;
    if (!w || json_is_false(use) || (must_say && !use) || !h->n_layer || h->n_layer > LAYERS_MAX ||
        never_slides(h->arch->model_type))
        return put_no_window(h);
    if (types && json_array_size(types) != h->n_layer)
        return hf_wrong(h, "layer_types", "an array with an entry for each layer (num_hidden_layers)");
    int ret = types ? 0 : slides_without_types(h, slides);
    if (ret)
        return ret;
    json_array_foreach(types, i, v)
    {
        const char *type = json_string_value(v);
        slides[i] = type && !strcmp(type, "sliding_attention");
        if (!slides[i] && (!type || strcmp(type, "full_attention")))
            return err_set(h->e, HEARTH_EUNSUPPORTED,
                           "config.json: layer_types: layer %zu is neither of full_attention nor of sliding_attention",
                           i);
    }
    for (i = 0; i < h->n_layer; i++)
        any |= slides[i] != 0;
    if (!any)
        return put_no_window(h);
    gguf_make_i32s(h->m, "hearth.attention.slides", slides, h->n_layer);
    return hf_put_u32(h, "sliding_window", "attention.sliding_window", w);
}

/* EXAONE 4 has RoPE in the sliding layers, and in all layers where it has no window. */
static void exaone4_turns(struct hf *h, int32_t turns[LAYERS_MAX])
{
    const json_t *types = hf_get(h, "layer_types");
    uint32_t period = window_period(h);
    for (size_t i = 0; i < h->n_layer; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        turns[i] = !hf_get(h, "sliding_window") || (type ? !strcmp(type, "sliding_attention") : (i + 1) % period != 0);
    }
}

/* Writes which layers have RoPE, in models that have layers without it. */
int hf_put_no_rope(struct hf *h)
{
    bool smollm3 = !strcmp(h->arch->model_type, "smollm3"), exaone4 = !strcmp(h->arch->model_type, "exaone4");
    int32_t turns[LAYERS_MAX];
    if (!(smollm3 || exaone4) || !h->n_layer || h->n_layer > LAYERS_MAX)
        return 0;
    int ret = 0;
    if (smollm3)
        ret = smollm3_turns(h, turns);
    else
        exaone4_turns(h, turns);
    if (!ret)
        gguf_make_i32s(h->m, "hearth.rope.layers", turns, h->n_layer);
    return ret;
}
