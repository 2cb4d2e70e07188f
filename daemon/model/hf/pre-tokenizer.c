/*
 * pre-tokenizer.c - translates the pre-tokenizers of a tokenizer.json into patterns for ../tok/pretok.c, by which a
 * text is cut into words, and into a rule for when a space is prepended. In the original, a pre-tokenizer sees the
 * output of the normaliser and of the pre-tokenizers before it; here, patterns see spaces where U+2581 would be.
 * Combinations in which this matters are refused by name.
 */
#include "daemon/model/hf/hf-internal.h"

#include <string.h>

/* hearth.tokenizer.behaviors: what becomes of a pattern's matches, numbered as in ../tok/pretok.h. */
enum { ISOLATED, REMOVED, PREVIOUS, NEXT, CONTIGUOUS, INVERT = 8, LETTERS = 16 };

static int add_pattern(const struct hf *h, struct hf_words *w, const char *s, size_t n, int behavior)
{
    if (w->n == HF_PATTERNS_MAX)
        return hf_damaged(h, "too many pre-tokenizers in a row");
    w->behavior[w->n] = behavior | (w->byte_level ? LETTERS : 0); /* after ByteLevel */
    w->v[w->n++] = (struct gguf_str){s, n};
    return 0;
}

/* The behavior of that name, which is Isolated if there is none; -1 if it is not known. */
static int behavior_of(const json_t *p)
{
    static const char *const names[] = {[ISOLATED] = "Isolated",
                                        [REMOVED] = "Removed",
                                        [PREVIOUS] = "MergedWithPrevious",
                                        [NEXT] = "MergedWithNext",
                                        [CONTIGUOUS] = "Contiguous"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (hf_is(p, "behavior", names[i]))
            return i;
    return json_object_get(p, "behavior") ? -1 : ISOLATED;
}

#define GPT2 "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Adds a pattern that matches exactly this text. */
static int add_literal(const struct hf *h, struct hf_words *w, const char *s, size_t n, int behavior)
{
    char *quoted = gguf_make_alloc(h->m, 2 * n + 1), *to = quoted;
    if (!quoted)
        return err_set(h->e, HEARTH_ENOMEM, "no memory for a pattern of %zu bytes", n);
    for (size_t i = 0; i < n; i++) {
        if (strchr("\\^$.[]|()?*+{}-/#&", s[i]) && s[i])
            *to++ = '\\';
        *to++ = s[i];
    }
    return add_pattern(h, w, quoted, (size_t)(to - quoted), behavior);
}

static int add_split(const struct hf *h, struct hf_words *w, const json_t *p)
{
    const json_t *pattern = json_object_get(p, "pattern"), *regex = json_object_get(pattern, "Regex"),
                 *text = json_object_get(pattern, "String");
    bool invert = json_is_true(json_object_get(p, "invert"));
    int behavior = behavior_of(p);
    /* Gemma splits after spaces, but its normaliser has already replaced all of them. */
    if (hf_is(pattern, "String", " ") && behavior >= 0 && w->low && !invert)
        return 0;
    if (w->low) /* patterns see a space where U+2581 is */
        return hf_refuse(h, "after a treatment of spaces, the pre-tokenizer", "Split");
    if (behavior < 0)
        return hf_refuse(h, "Split with behavior", hf_text_of(p, "behavior"));
    behavior |= invert ? INVERT : 0;
    if (json_is_string(regex))
        return add_pattern(h, w, json_string_value(regex), json_string_length(regex), behavior);
    if (json_is_string(text) && json_string_length(text))
        return add_literal(h, w, json_string_value(text), json_string_length(text), behavior);
    return hf_refuse(h, "Split without", "a pattern");
}

/* ByteLevel maps bytes to an alphabet in which later pre-tokenizers are matched. The prefix space would be prepended to
 * each word, so it is accepted only without a pre-tokenizer before, where it goes before the text. */
static int add_byte_level(const struct hf *h, struct hf_words *w, const json_t *p)
{
    const json_t *regex = json_object_get(p, "use_regex");
    bool prefix = json_is_true(json_object_get(p, "add_prefix_space"));
    if (prefix && w->n)
        return hf_refuse(h, "after another pre-tokenizer, ByteLevel with", "add_prefix_space");
    if (w->prefix || w->low || w->spaces || w->bert)
        return hf_refuse(h, "with ByteLevel, a normaliser", w->bert ? "BertNormalizer" : "for spaces");
    int ret = regex && !json_is_true(regex) ? 0 : add_pattern(h, w, GPT2, sizeof GPT2 - 1, ISOLATED);
    w->byte_level = true;
    w->prefix = prefix ? "unless there is one" : "never";
    return ret;
}

static int add_metaspace(const struct hf *h, struct hf_words *w, const json_t *p)
{
    static const char words[] = " [^ ]*|[^ ]+"; /* each space begins a word */
    const char *scheme = hf_text_of(p, "prepend_scheme"), *low = hf_text_of(p, "replacement");
    bool never =
        hf_is(p, "prepend_scheme", "never") || (!scheme && json_is_false(json_object_get(p, "add_prefix_space")));
    if (w->prefix || w->n || (w->low && !w->normal_low)) /* a normaliser may have replaced the spaces already */
        return hf_refuse(h, "after another treatment of spaces, the pre-tokenizer", "Metaspace");
    if (low && strcmp(low, "\xe2\x96\x81"))
        return hf_refuse(h, "Metaspace with replacement", low);
    w->low = true;
    w->prefix = never ? "never" : hf_is(p, "prepend_scheme", "first") ? "first" : "unless there is one";
    return json_is_false(json_object_get(p, "split")) ? 0 : add_pattern(h, w, words, sizeof words - 1, ISOLATED);
}

static int add_one(const struct hf *h, struct hf_words *w, const json_t *p, const char *type)
{
    static const char number[] = "\\p{N}", punct[] = "[\\p{P}$+<=>\\^`|~]", space[] = "\\s";
    int behavior = behavior_of(p);
    if (w->byte_level && (!strcmp(type, "ByteLevel") || !strcmp(type, "Metaspace")))
        return hf_refuse(h, "after ByteLevel, the pre-tokenizer", type);
    if (!strcmp(type, "Split"))
        return add_split(h, w, p);
    if (!strcmp(type, "Digits"))
        return add_pattern(h, w, number, sizeof number - 1,
                           json_is_true(json_object_get(p, "individual_digits")) ? ISOLATED : CONTIGUOUS);
    if (!strcmp(type, "Punctuation"))
        return behavior >= 0 ? add_pattern(h, w, punct, sizeof punct - 1, behavior)
                             : hf_refuse(h, "Punctuation with behavior", hf_text_of(p, "behavior"));
    if (!strcmp(type, "WhitespaceSplit") && !w->low)
        return add_pattern(h, w, space, sizeof space - 1, REMOVED);
    if (!strcmp(type, "ByteLevel"))
        return add_byte_level(h, w, p);
    if (!strcmp(type, "Metaspace"))
        return add_metaspace(h, w, p);
    return hf_refuse(h, "pre-tokenizer", type);
}

int hf_pre_tokenizer(const struct hf *h, struct hf_words *w, const json_t *p)
{
    const char *type = hf_text_of(p, "type");
    const json_t *v;
    size_t i;
    int ret = 0;
    if (!type)
        return hf_damaged(h, "a pre-tokenizer without a type");
    if (strcmp(type, "Sequence"))
        return add_one(h, w, p, type);
    json_array_foreach(json_object_get(p, "pretokenizers"), i, v)
    {
        if (!ret)
            ret = hf_pre_tokenizer(h, w, v); /* sequences in it are as deep as the JSON parser lets them be */
    }
    return ret;
}
