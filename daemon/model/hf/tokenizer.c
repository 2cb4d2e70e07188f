/*
 * tokenizer.c - tokenizer.json (the format of the Rust library `tokenizers`) and its companions, translated into GGUF's
 * keys.
 *
 * Byte-level BPE becomes the kind "gpt2", BPE over characters with byte fallback "gemma4", Unigram "t5", WordPiece
 * "bert". Settings for
 * which GGUF has no key get keys under "hearth.tokenizer.": the pre-tokenizer's own patterns, normalisation, whether
 * special tokens strip white space beside them, the ids that end a generation. A part that is not implemented is
 * refused by name, since a tokenizer that is nearly right gives ids that the model never saw.
 */
#include "daemon/model/hf/hf-internal.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TOKENIZER_MAX = 128 << 20, /* the largest vocabularies today have 34 MB */
    SMALL_MAX = 4 << 20,
    TOKENS_MAX = 1 << 22,
};

/* --- pre-tokenizers ------------------------------------------------------------------------------------ */

static int add_pattern(const struct hf *h, struct hf_words *w, const char *s, size_t n)
{
    if (w->n == HF_PATTERNS_MAX)
        return hf_damaged(h, "too many pre-tokenizers in a row");
    w->v[w->n++] = (struct gguf_str){s, n};
    return 0;
}

#define GPT2 "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static int add_split(const struct hf *h, struct hf_words *w, const json_t *p)
{
    const json_t *pattern = json_object_get(p, "pattern"), *regex = json_object_get(pattern, "Regex");
    if (json_is_true(json_object_get(p, "invert")) && !hf_is(p, "behavior", "Removed"))
        return hf_refuse(h, "an inverted Split with behavior", hf_text_of(p, "behavior"));
    if (regex && (hf_is(p, "behavior", "Isolated") || hf_is(p, "behavior", "Removed")) && json_is_string(regex)) {
        if (hf_is(p, "behavior", "Removed") && !json_is_true(json_object_get(p, "invert")))
            return hf_refuse(h, "Split with behavior", "Removed");
        return add_pattern(h, w, json_string_value(regex), json_string_length(regex));
    }
    /* Gemma splits after spaces, but its normaliser has replaced all of them. */
    if (hf_is(pattern, "String", " ") && hf_is(p, "behavior", "MergedWithPrevious"))
        return 0;
    return hf_refuse(h, "Split with behavior", hf_text_of(p, "behavior"));
}

static int add_pre(const struct hf *h, struct hf_words *w, const json_t *p)
{
    const char *type = hf_text_of(p, "type");
    const json_t *list = json_object_get(p, "pretokenizers"), *v;
    size_t i;
    int ret = 0;
    if (!type)
        return hf_damaged(h, "a pre-tokenizer without a type");
    if (!strcmp(type, "Sequence")) {
        json_array_foreach(list, i, v)
        {
            if (!ret && hf_is(v, "type", "Sequence"))
                ret = hf_refuse(h, "a pre-tokenizer in a", "Sequence of sequences");
            if (!ret)
                ret = add_pre(h, w, v);
        }
        return ret;
    }
    if (!strcmp(type, "Split"))
        return add_split(h, w, p);
    if (!strcmp(type, "Digits")) {
        static const char one[] = "\\p{N}", many[] = "\\p{N}+";
        return json_is_true(json_object_get(p, "individual_digits")) ? add_pattern(h, w, one, sizeof one - 1)
                                                                     : add_pattern(h, w, many, sizeof many - 1);
    }
    if (!strcmp(type, "Punctuation") && (!json_object_get(p, "behavior") || hf_is(p, "behavior", "Isolated"))) {
        static const char punct[] = "[\\p{P}$+<=>^`|~]";
        return add_pattern(h, w, punct, sizeof punct - 1);
    }
    if (!strcmp(type, "ByteLevel")) {
        const json_t *regex = json_object_get(p, "use_regex");
        w->byte_level = true;
        w->prefix = json_is_true(json_object_get(p, "add_prefix_space")) ? "unless there is one" : "never";
        return regex && !json_is_true(regex) ? 0 : add_pattern(h, w, GPT2, sizeof GPT2 - 1);
    }
    if (!strcmp(type, "Metaspace")) {
        static const char words[] = " [^ ]*|[^ ]+"; /* each space begins a word */
        bool never = hf_is(p, "prepend_scheme", "never") || json_is_false(json_object_get(p, "add_prefix_space"));
        w->prefix = never ? "never" : hf_is(p, "prepend_scheme", "first") ? "first" : "unless there is one";
        return json_is_false(json_object_get(p, "split")) ? 0 : add_pattern(h, w, words, sizeof words - 1);
    }
    if (!strcmp(type, "BertPreTokenizer") && w->bert)
        return 0;
    return hf_refuse(h, "pre-tokenizer", type);
}

/* --- tokens -------------------------------------------------------------------------------------------- */

struct token_table {
    struct gguf_str *text;
    int32_t *type, *strip; /* strip: 1 the token takes the white space before it, 2 that after it */
    size_t n;
};

static int token_set(const struct hf *h, struct token_table *t, json_int_t id, const char *s, size_t n, int32_t type)
{
    if (id < 0 || (size_t)id >= t->n)
        return hf_damaged(h, "a token's id lies outside of the vocabulary");
    t->text[id] = (struct gguf_str){s, n};
    t->type[id] = type;
    return 0;
}

/* <0x0A> is a byte's token where the model has byte fallback. */
static bool is_byte(const char *s, size_t n)
{
    unsigned b;
    int used = 0;
    return n == 6 && sscanf(s, "<0x%2X>%n", &b, &used) == 1 && used == 6;
}

/* GGUF marks the tokens that begin a word, by U+2581 in front; BERT those that do not, by "##". */
static int wordpiece_text(const struct hf *h, struct gguf_str *s)
{
    if (s->n >= 2 && !memcmp(s->s, "##", 2)) {
        *s = (struct gguf_str){s->s + 2, s->n - 2};
        return 0;
    }
    char *text = gguf_make_alloc(h->m, s->n + 3);
    if (!text)
        return err_set(h->e, HEARTH_ENOMEM, "no memory for a token of %zu bytes", s->n);
    memcpy(text, "\xe2\x96\x81", 3);
    memcpy(text + 3, s->s, s->n);
    *s = (struct gguf_str){text, s->n + 3};
    return 0;
}

static int read_vocab(const struct hf *h, const json_t *model, struct token_table *t)
{
    json_t *vocab = json_object_get(model, "vocab"), *v;
    bool bytes = json_is_true(json_object_get(model, "byte_fallback"));
    const char *key;
    size_t len, i;
    int ret = 0;
    if (json_is_array(vocab)) { /* Unigram: pairs of a text and its score */
        json_array_foreach(vocab, i, v)
        {
            const json_t *s = json_array_get(v, 0);
            if (!ret && !json_is_string(s))
                ret = hf_damaged(h, "an entry of the vocabulary is no pair of text and score");
            if (!ret)
                ret = token_set(h, t, (json_int_t)i, json_string_value(s), json_string_length(s),
                                bytes && is_byte(json_string_value(s), json_string_length(s)) ? 6 : 1);
        }
        return ret;
    }
    json_object_keylen_foreach(vocab, key, len, v)
    {
        struct gguf_str s = {key, len};
        if (!ret && !json_is_integer(v))
            ret = hf_damaged(h, "a token's id is no number");
        if (!ret && hf_is(model, "type", "WordPiece"))
            ret = wordpiece_text(h, &s);
        if (!ret)
            ret = token_set(h, t, json_integer_value(v), s.s, s.n, bytes && is_byte(key, len) ? 6 : 1);
    }
    return ret;
}

static int read_added(const struct hf *h, const json_t *root, struct token_table *t)
{
    const json_t *list = json_object_get(root, "added_tokens"), *v;
    size_t i;
    int ret = 0;
    json_array_foreach(list, i, v)
    {
        const json_t *s = json_object_get(v, "content"), *id = json_object_get(v, "id");
        if (!ret && (!json_is_string(s) || !json_is_integer(id)))
            ret = hf_damaged(h, "an added token without content or id");
        if (!ret && json_is_true(json_object_get(v, "single_word")))
            ret = hf_refuse(h, "an added token with", "single_word");
        /* A byte's token may be listed here as well and keeps its type. */
        bool byte = !ret && json_integer_value(id) >= 0 && (size_t)json_integer_value(id) < t->n &&
                    t->type[json_integer_value(id)] == 6;
        if (!ret)
            ret = token_set(h, t, json_integer_value(id), json_string_value(s), json_string_length(s),
                            byte                                          ? 6
                            : json_is_true(json_object_get(v, "special")) ? 3
                                                                          : 4);
        if (!ret)
            t->strip[json_integer_value(id)] =
                json_is_true(json_object_get(v, "lstrip")) + 2 * json_is_true(json_object_get(v, "rstrip"));
    }
    return ret;
}

/* Ids go up to the embedding's last row; those that the tokenizer does not name have no text. */
static int put_tokens(struct hf *h, const json_t *root, const json_t *model)
{
    json_int_t n = json_integer_value(json_object_get(h->config, "vocab_size"));
    struct token_table t = {.n = n > 0 && n <= TOKENS_MAX ? (size_t)n : 0};
    if (!t.n)
        return err_set(h->e, HEARTH_EBADMODEL, "config.json: vocab_size is not from 1 to %d", TOKENS_MAX);
    t.text = calloc(t.n, sizeof *t.text);
    t.type = calloc(t.n, sizeof *t.type);
    t.strip = calloc(t.n, sizeof *t.strip);
    int ret = t.text && t.type && t.strip ? 0 : err_set(h->e, HEARTH_ENOMEM, "no memory for %zu tokens", t.n);
    for (size_t i = 0; i < t.n && !ret; i++) {
        t.text[i] = (struct gguf_str){"", 0};
        t.type[i] = 5; /* "unused" (5) until a name is found */
    }
    if (!ret)
        ret = read_vocab(h, model, &t);
    if (!ret)
        ret = read_added(h, root, &t);
    bool strips = false;
    for (size_t i = 0; i < t.n && !ret; i++)
        strips |= t.strip[i] != 0;
    if (!ret) {
        gguf_make_strs(h->m, "tokenizer.ggml.tokens", t.text, t.n);
        gguf_make_i32s(h->m, "tokenizer.ggml.token_type", t.type, t.n);
    }
    if (!ret && strips)
        gguf_make_i32s(h->m, "hearth.tokenizer.strip", t.strip, t.n);
    free(t.text);
    free(t.type);
    free(t.strip);
    return ret;
}

/* Merges are "left right", or ["left", "right"] since a part may hold a space. */
static int put_merges(struct hf *h, const json_t *model)
{
    const json_t *list = json_object_get(model, "merges"), *v;
    size_t n = json_array_size(list), i;
    struct gguf_str *lines = calloc(n + 1, sizeof *lines);
    int ret = lines ? 0 : err_set(h->e, HEARTH_ENOMEM, "no memory for %zu merges", n);
    json_array_foreach(list, i, v)
    {
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
        if (ret)
            break;
        if (json_is_string(v)) {
            lines[i] = (struct gguf_str){json_string_value(v), json_string_length(v)};
        } else if (json_array_size(v) == 2 && json_is_string(a) && json_is_string(b)) {
            size_t la = json_string_length(a), lb = json_string_length(b);
            char *line = gguf_make_alloc(h->m, la + lb + 1);
            if (!line) {
                ret = err_set(h->e, HEARTH_ENOMEM, "no memory for %zu merges", n);
                break;
            }
            memcpy(line, json_string_value(a), la);
            line[la] = ' ';
            memcpy(line + la + 1, json_string_value(b), lb);
            lines[i] = (struct gguf_str){line, la + lb + 1};
        } else {
            ret = hf_damaged(h, "a merge is not two parts");
        }
    }
    if (!ret)
        gguf_make_strs(h->m, "tokenizer.ggml.merges", lines, n);
    free(lines);
    return ret;
}

static void put_words(struct hf *h, const struct hf_words *w)
{
    const char *prefix = w->prefix ? w->prefix : "never";
    gguf_make_strs(h->m, "hearth.tokenizer.patterns", w->v, w->n);
    gguf_make_str(h->m, "hearth.tokenizer.prefix", prefix, strlen(prefix));
    if (w->spaces)
        gguf_make_u32(h->m, "hearth.tokenizer.spaces", w->spaces);
}

/* Reads tokens with their log-probabilities; ids without one cost more than any token. */
static int put_unigram(struct hf *h, const json_t *root, const json_t *model, struct hf_words *w)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer"), *v, *unk = json_object_get(model, "unk_id");
    const json_t *vocab = json_object_get(model, "vocab");
    json_int_t n = json_integer_value(json_object_get(h->config, "vocab_size"));
    double *scores = n > 0 && n <= TOKENS_MAX ? calloc((size_t)n, sizeof *scores) : NULL;
    size_t i;
    int ret = scores ? 0 : err_set(h->e, HEARTH_EBADMODEL, "config.json: vocab_size is not from 1 to %d", TOKENS_MAX);
    if (!ret && pre && !json_is_null(pre))
        ret = add_pre(h, w, pre);
    if (!ret && !json_is_array(vocab))
        ret = hf_damaged(h, "a Unigram vocabulary is an array of pairs");
    json_array_foreach(vocab, i, v)
    {
        if (!ret && (i >= (size_t)n || !json_is_number(json_array_get(v, 1))))
            ret = hf_damaged(h, "an entry of the vocabulary is no pair of text and score");
        if (!ret)
            scores[i] = json_number_value(json_array_get(v, 1));
    }
    if (!ret) {
        gguf_make_str(h->m, "tokenizer.ggml.model", "t5", 2);
        gguf_make_f64s(h->m, "hearth.tokenizer.scores", scores, (size_t)n);
        put_words(h, w);
    }
    if (!ret && json_is_integer(unk) && json_integer_value(unk) >= 0 && json_integer_value(unk) < n)
        gguf_make_u32(h->m, "hearth.tokenizer.unknown_id", (uint32_t)json_integer_value(unk));
    free(scores);
    return ret;
}

/* Only BERT's own arrangement is WordPiece here: its normaliser, its words, "##" before what goes on. */
static int put_wordpiece(struct hf *h, const json_t *root, const json_t *model, struct hf_words *w)
{
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    const char *unk = hf_text_of(model, "unk_token");
    const json_t *id = unk ? json_object_get(json_object_get(model, "vocab"), unk) : NULL;
    if (!w->bert || !hf_is(json_object_get(root, "pre_tokenizer"), "type", "BertPreTokenizer"))
        return hf_refuse(h, "WordPiece without", "BertNormalizer and BertPreTokenizer");
    if (!hf_is(model, "continuing_subword_prefix", "##"))
        return hf_refuse(h, "WordPiece with continuing_subword_prefix", hf_text_of(model, "continuing_subword_prefix"));
    if (most && json_integer_value(most) != 100)
        return hf_refuse(h, "WordPiece with", "max_input_chars_per_word other than 100");
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= TOKENS_MAX)
        return hf_damaged(h, "WordPiece's unknown token is not in the vocabulary");
    gguf_make_str(h->m, "tokenizer.ggml.model", "bert", 4);
    gguf_make_u32(h->m, "hearth.tokenizer.unknown_id", (uint32_t)json_integer_value(id));
    return 0;
}

static int put_bpe(struct hf *h, const json_t *root, const json_t *model, struct hf_words *w)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    int ret = pre && !json_is_null(pre) ? add_pre(h, w, pre) : 0;
    const char *suffix = hf_text_of(model, "continuing_subword_prefix"), *end = hf_text_of(model, "end_of_word_suffix");
    if (!ret && ((suffix && *suffix) || (end && *end)))
        ret = hf_refuse(h, "BPE with", suffix && *suffix ? "continuing_subword_prefix" : "end_of_word_suffix");
    if (!ret && json_is_number(json_object_get(model, "dropout")) &&
        json_number_value(json_object_get(model, "dropout")) != 0)
        ret = hf_refuse(h, "BPE with", "dropout");
    if (ret)
        return ret;
    const char *kind = w->byte_level ? "gpt2" : "gemma4";
    gguf_make_str(h->m, "tokenizer.ggml.model", kind, strlen(kind));
    gguf_make_bool(h->m, "hearth.tokenizer.ignore_merges", json_is_true(json_object_get(model, "ignore_merges")));
    put_words(h, w);
    return put_merges(h, model);
}

/* --- companions of tokenizer.json ---------------------------------------------------------------------- */

/* Returns the id of a token that a config names, as text or as an object with content. */
static int token_id(const json_t *root, const json_t *named, uint32_t *id)
{
    const char *s = json_is_object(named) ? hf_text_of(named, "content") : json_string_value(named);
    const json_t *v;
    size_t i;
    json_array_foreach(json_object_get(root, "added_tokens"), i, v)
    {
        if (s && hf_is(v, "content", s)) {
            *id = (uint32_t)json_integer_value(json_object_get(v, "id"));
            return 1;
        }
    }
    v = s ? json_object_get(json_object_get(json_object_get(root, "model"), "vocab"), s) : NULL;
    if (!json_is_integer(v))
        return 0;
    *id = (uint32_t)json_integer_value(v);
    return 1;
}

/* Returns whether the post-processor prepends the token of that id to a single text. */
static bool puts_first(const json_t *post, const char *bos)
{
    const json_t *v, *one = post;
    size_t i;
    json_array_foreach(json_object_get(post, "processors"), i, v)
    {
        if (hf_is(v, "type", "TemplateProcessing"))
            one = v;
    }
    const json_t *first = json_array_get(json_object_get(one, "single"), 0);
    return bos && hf_is(one, "type", "TemplateProcessing") && hf_is(json_object_get(first, "SpecialToken"), "id", bos);
}

static int put_bos(struct hf *h, const json_t *root, const json_t *cfg)
{
    static const struct {
        const char *hf, *gguf;
    } named[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                 {"eos_token", "tokenizer.ggml.eos_token_id"},
                 {"pad_token", "tokenizer.ggml.padding_token_id"},
                 {"unk_token", "tokenizer.ggml.unknown_token_id"}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        uint32_t id;
        if (token_id(root, json_object_get(cfg, named[i].hf), &id))
            gguf_make_u32(h->m, named[i].gguf, id);
    }
    const json_t *bos = json_object_get(cfg, "bos_token"), *add = json_object_get(cfg, "add_bos_token");
    const char *text = json_is_object(bos) ? hf_text_of(bos, "content") : json_string_value(bos);
    bool first = json_is_boolean(add) ? json_is_true(add) : puts_first(json_object_get(root, "post_processor"), text);
    gguf_make_bool(h->m, "tokenizer.ggml.add_bos_token", first);
    return 0;
}

/* eos_token_id is a number or a list, in generation_config.json and in config.json: all of them end a generation. */
static int put_ends(struct hf *h, const json_t *generation)
{
    const json_t *from[] = {json_object_get(generation, "eos_token_id"), json_object_get(h->config, "eos_token_id")};
    int32_t ids[64];
    size_t n = 0;
    for (size_t k = 0; k < 2; k++) {
        size_t many = json_is_array(from[k]) ? json_array_size(from[k]) : json_is_integer(from[k]) ? 1 : 0;
        for (size_t i = 0; i < many && n < sizeof ids / sizeof *ids; i++) {
            const json_t *v = json_is_array(from[k]) ? json_array_get(from[k], i) : from[k];
            if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= TOKENS_MAX)
                return err_set(h->e, HEARTH_EBADMODEL, "eos_token_id is no id of a token");
            ids[n++] = (int32_t)json_integer_value(v);
        }
    }
    if (n)
        gguf_make_i32s(h->m, "hearth.tokenizer.end_ids", ids, n);
    return 0;
}

static int put_sampling(struct hf *h, const json_t *generation)
{
    static const struct {
        const char *hf, *gguf;
    } keys[] = {{"temperature", "general.sampling.temp"},
                {"top_p", "general.sampling.top_p"},
                {"min_p", "general.sampling.min_p"},
                {"repetition_penalty", "general.sampling.penalty_repeat"}};
    const json_t *k = json_object_get(generation, "top_k");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(generation, keys[i].hf);
        if (json_is_number(v))
            gguf_make_f32(h->m, keys[i].gguf, (float)json_number_value(v));
    }
    if (json_is_integer(k) && json_integer_value(k) >= 0 && json_integer_value(k) < INT32_MAX)
        gguf_make_u32(h->m, "general.sampling.top_k", (uint32_t)json_integer_value(k));
    return 0;
}

static int put_companions(struct hf *h, const json_t *root)
{
    json_t *cfg = NULL, *generation = NULL;
    int ret = hf_json(h, "tokenizer_config.json", SMALL_MAX, &cfg);
    if (ret >= 0)
        ret = hf_json(h, "generation_config.json", SMALL_MAX, &generation);
    if (ret >= 0)
        ret = put_bos(h, root, cfg);
    if (!ret)
        ret = put_ends(h, generation);
    if (!ret)
        ret = put_sampling(h, generation);
    if (!ret)
        ret = hf_templates(h, cfg);
    json_decref(cfg);
    json_decref(generation);
    return ret;
}

int hf_tokenizer(struct hf *h)
{
    json_t *root;
    struct hf_words w = {0};
    int ret = hf_json(h, "tokenizer.json", TOKENIZER_MAX, &root);
    if (ret > 0)
        return err_set(h->e, HEARTH_EUNSUPPORTED,
                       "the folder has no tokenizer.json; other forms of tokenizers are not read");
    if (ret)
        return ret;
    const json_t *model = json_object_get(root, "model");
    const char *type = hf_text_of(model, "type");
    if (!json_is_object(model))
        ret = hf_damaged(h, "there is no model");
    if (!ret)
        ret = hf_normalizer(h, json_object_get(root, "normalizer"), &w);
    if (!ret && ((type && !strcmp(type, "BPE")) || (!type && json_object_get(model, "merges"))))
        ret = put_bpe(h, root, model, &w);
    else if (!ret && type && !strcmp(type, "Unigram"))
        ret = put_unigram(h, root, model, &w);
    else if (!ret && type && !strcmp(type, "WordPiece"))
        ret = put_wordpiece(h, root, model, &w);
    else if (!ret)
        ret = hf_refuse(h, "model", type);
    if (!ret)
        ret = put_tokens(h, root, model);
    if (!ret)
        ret = put_companions(h, root);
    json_decref(root);
    return ret;
}
