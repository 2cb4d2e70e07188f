/* traits.c - see traits.h. Any thread. */
#include "config.h"

#include "daemon/engine/front/traits.h"

#include <math.h>
#include <string.h>

#include "daemon/engine/front/sampling-params.h"
#include "daemon/model/kind.h"

/* A template that supports tools contains the word. */
static bool takes_tools(const struct gguf *g)
{
    struct gguf_str s = {"", 0};
    struct hearth_err ignored;
    gguf_str(g, "tokenizer.chat_template", &s, &ignored);
    return s.n && memmem(s.s, s.n, "tools", 5);
}

static void add_capabilities(struct wire_model *out, struct traits *t, const struct model_entry *m)
{
    enum model_kind kind = model_kind(m->gguf);
    bool generates = (kind == KIND_LANGUAGE || kind == KIND_VOCABULARY) && m->vocab;
    size_t n = 0;
    if (generates && out->chat)
        t->capability[n++] = "chat";
    if (generates && vocab_has_fim(m->vocab))
        t->capability[n++] = "fim";
    if (generates && out->chat && takes_tools(m->gguf))
        t->capability[n++] = "tools";
    if (kind == KIND_EMBEDDING)
        t->capability[n++] = "embed";
    out->capabilities = (struct wire_strs){t->capability, n};
}

static void add_special(struct wire_model *out, struct traits *t, const struct vocab *v)
{
    out->special = t->special;
    for (int r = 0; r < VOCAB_ROLES && v; r++) {
        int32_t id = vocab_role(v, (enum vocab_role)r);
        if (id < 0)
            continue;
        size_t i = out->n_special++, n = tok_piece(v, id, true, t->text[i], TRAITS_TEXT);
        t->special[i] = (struct wire_special_token){
            .role = vocab_role_name((enum vocab_role)r),
            .id = id,
            .text = {t->text[i], n < TRAITS_TEXT ? n : TRAITS_TEXT},
        };
    }
}

/* The keys of llama.cpp's converter, with generate's names for them. */
static void add_sampling(struct wire_model *out, struct traits *t, const struct gguf *g)
{
    static const struct {
        const char *key, *name;
    } keys[TRAITS_SAMPLING] = {
        {"general.sampling.temp", "temperature"},
        {"general.sampling.top_k", "top_k"},
        {"general.sampling.top_p", "top_p"},
        {"general.sampling.min_p", "min_p"},
        {"general.sampling.penalty_repeat", "repetition_penalty"},
        {"general.sampling.penalty_last_n", "penalty_last"},
    };
    struct hearth_err ignored;
    bool nothing = sample_params_no_penalty(g);
    out->sampling = t->sampling;
    for (int i = 0; i < TRAITS_SAMPLING; i++) {
        if (nothing && strstr(keys[i].key, ".penalty_"))
            continue; /* as sample_params_fill() leaves them out */
        float f;
        int64_t whole;
        double value = NAN;
        if (gguf_f32(g, keys[i].key, &f, &ignored) == 0)
            value = (double)f;
        else if (gguf_i64(g, keys[i].key, &whole, &ignored) == 0)
            value = (double)(whole < 0 ? 0 : whole); /* as sample_params_fill() takes it */
        if (isfinite(value))
            t->sampling[out->n_sampling++] = (struct wire_default){keys[i].name, value};
    }
}

void traits_fill(struct wire_model *out, struct traits *t, const struct model_entry *m)
{
    out->read = true;
    out->kind = model_kind_name(model_kind(m->gguf));
    out->refusal = m->hp_err.code ? m->hp_err.msg : m->vocab_err.code ? m->vocab_err.msg : NULL;
    add_capabilities(out, t, m);
    add_special(out, t, m->vocab);
    add_sampling(out, t, m->gguf);
}
