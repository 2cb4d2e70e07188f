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

/* Writes sliding_window, and which layers have it: by layer_types, else by a period, else all of them. Qwen's files
 * contain a window that is used only where use_sliding_window is true. */
int hf_put_window(struct hf *h)
{
    const json_t *w = hf_get(h, "sliding_window"), *types = hf_get(h, "layer_types"),
                 *use = hf_get(h, "use_sliding_window"), *v;
    bool is_qwen = !strncmp(h->arch->model_type, "qwen", 4), any = false;
    bool late = is_qwen || !strcmp(h->arch->model_type, "dots1");
    bool must_say = is_qwen || !strcmp(h->arch->model_type, "smollm3");
    const json_t *from = hf_get(h, "max_window_layers"); /* the first layer with a window, in Qwen and dots.llm1 */
    size_t first = !late ? 0 : from ? hf_whole(h, "max_window_layers") : is_qwen ? 28 : 62;
    uint32_t period = window_period(h);
    int32_t slides[LAYERS_MAX];
    size_t i;
    if (!w || json_is_false(use) || (must_say && !use) || !h->n_layer || h->n_layer > LAYERS_MAX ||
        never_slides(h->arch->model_type))
        return put_no_window(h);
    if (types && json_array_size(types) != h->n_layer)
        return hf_wrong(h, "layer_types", "an array with an entry for each layer (num_hidden_layers)");
    for (i = 0; i < h->n_layer; i++)
        slides[i] = i >= first && (!period || (i + 1) % period != 0);
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
static void put_no_rope_exaone(struct hf *h)
{
    const json_t *types = hf_get(h, "layer_types");
    int32_t turns[LAYERS_MAX];
    for (size_t i = 0; i < h->n_layer; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        turns[i] = !hf_get(h, "sliding_window") || (type ? !strcmp(type, "sliding_attention") : (i + 1) % 4 != 0);
    }
    gguf_make_i32s(h->m, "hearth.rope.layers", turns, h->n_layer);
}

/* Layers without RoPE: those with 0 in no_rope_layers, or else every no_rope_layer_interval-th. */
int hf_put_no_rope(struct hf *h)
{
    const json_t *list = hf_get(h, "no_rope_layers"), *v;
    uint32_t interval = hf_whole(h, "no_rope_layer_interval");
    int32_t turns[LAYERS_MAX];
    size_t i;
    if (!strcmp(h->arch->model_type, "exaone4") && h->n_layer && h->n_layer <= LAYERS_MAX)
        put_no_rope_exaone(h);
    if (strcmp(h->arch->model_type, "smollm3") || !h->n_layer || h->n_layer > LAYERS_MAX)
        return 0;
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
    gguf_make_i32s(h->m, "hearth.rope.layers", turns, h->n_layer);
    return 0;
}
