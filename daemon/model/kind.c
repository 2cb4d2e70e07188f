/* kind.c - see kind.h. Keys: ggml's docs/gguf.md (general.type), llama.cpp's constants.py (pooling_type). */
#include "daemon/model/kind.h"

#include <stdio.h>

static struct gguf_str text_of(const struct gguf *g, const char *key)
{
    struct gguf_str s = {"", 0};
    struct hearth_err ignored;
    gguf_str(g, key, &s, &ignored);
    return s;
}

/* Encoders, which have no output head for tokens. */
static bool is_encoder(struct gguf_str arch)
{
    static const char *const encoders[] = {"bert",         "nomic-bert",     "nomic-bert-moe", "jina-bert-v2",
                                           "jina-bert-v3", "modern-bert",    "neo-bert",       "eurobert",
                                           "t5encoder",    "gemma-embedding"};
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
        if (gguf_str_is(arch, encoders[i]))
            return true;
    return false;
}

/* Whether hidden states are to be pooled into one vector: 0 is "none". */
static bool is_pooled(const struct gguf *g, struct gguf_str arch)
{
    char key[128];
    uint32_t pooling = 0;
    struct hearth_err ignored;
    snprintf(key, sizeof key, "%s.pooling_type", gguf_label(arch).s);
    return gguf_u32(g, key, &pooling, &ignored) == 0 && pooling != 0;
}

enum model_kind model_kind(const struct gguf *g)
{
    struct gguf_str type = text_of(g, "general.type"), arch = text_of(g, "general.architecture");
    if (gguf_str_is(type, "adapter") || gguf_has(g, "adapter.type"))
        return KIND_ADAPTER;
    if (gguf_str_is(type, "mmproj") || gguf_str_is(type, "clip-vision") || gguf_str_is(arch, "clip"))
        return KIND_PROJECTOR;
    if (type.n && !gguf_str_is(type, "model"))
        return KIND_OTHER;
    if (is_encoder(arch) || is_pooled(g, arch))
        return KIND_EMBEDDING;
    return gguf_n_tensor(g) ? KIND_LANGUAGE : KIND_VOCABULARY;
}

const char *model_kind_name(enum model_kind kind)
{
    static const char *const names[] = {
        [KIND_LANGUAGE] = "language",   [KIND_EMBEDDING] = "embedding",   [KIND_ADAPTER] = "adapter",
        [KIND_PROJECTOR] = "projector", [KIND_VOCABULARY] = "vocabulary", [KIND_OTHER] = "other"};
    return names[kind];
}

int model_kind_check(const struct gguf *g, bool runs, struct hearth_err *e)
{
    struct gguf_label arch = gguf_label(text_of(g, "general.architecture"));
    struct gguf_label type = gguf_label(text_of(g, "general.type"));
    switch (model_kind(g)) {
    case KIND_ADAPTER:
        return err_set(e, HEARTH_EUNSUPPORTED,
                       "this is an adapter (LoRA) for a %.30s model, not a language model; adapters are not supported: "
                       "merge it into its model, or run that without it",
                       arch.s);
    case KIND_PROJECTOR:
        return err_set(
            e, HEARTH_EUNSUPPORTED,
            "this is a projector (mmproj), the part of a model that reads images or sounds; run the language "
            "model that it belongs to");
    case KIND_OTHER:
        return err_set(e, HEARTH_EUNSUPPORTED, "this is no language model but, as general.type says, \"%.40s\"",
                       type.s);
    case KIND_EMBEDDING:
        if (!runs)
            return err_set(e, HEARTH_EUNSUPPORTED,
                           "this is an embedding model (%.30s): it makes vectors of texts and generates none", arch.s);
        return 0;
    default:
        return 0;
    }
}
