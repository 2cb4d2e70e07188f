/*
 * tokenizer.c - translates tokenizer.json (the format of the Rust library `tokenizers`) and its companions into GGUF's
 * keys.
 *
 * Byte-level BPE becomes the kind "gpt2", BPE over characters with byte fallback "gemma4", Unigram "t5", WordPiece
 * "bert". Settings for which GGUF has no key get keys under "hearth.tokenizer.": the pre-tokenizer's own patterns,
 * normalisation, how added tokens are found in a text, the ids that end a generation. A part that is not implemented is
 * refused by name, since a tokenizer that is nearly right produces ids that the model has never seen.
 */
#include "daemon/model/hf/hf-internal.h"

#include <stdlib.h>

enum {
    TOKENIZER_MAX = 128 << 20, /* the largest vocabularies have 34 MB */
    SMALL_MAX = 4 << 20,
    TOKENS_MAX = 1 << 22,
};

/* --- tokens -------------------------------------------------------------------------------------------- */

struct token_table {
    struct gguf_str *text;
    int32_t *type, *added; /* hearth.tokenizer.added, bits: 1 the token takes in the white space before it, 2 that after
                              it, 4 it is looked for in the normalised text, 8 it is not in the model's vocabulary, 16
                              it is found only as a whole word, 32 it is the token of a byte */
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

/* <0x0A> is the token of a byte where the model has byte fallback; <0x0a> is a token like others. */
static bool is_byte(const char *s, size_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    return n == 6 && !memcmp(s, "<0x", 3) && memchr(digits, s[3], 16) && memchr(digits, s[4], 16) && s[5] == '>';
}

/* GGUF marks the tokens that begin a word, by a leading U+2581; BERT marks the others, by a leading "##". */
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
    if (json_is_array(vocab)) { /* Unigram: pairs of text and score */
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

/* Whether the embedding has no row for an added token, as for the image token of Gemma 3's models without images: it
 * can be neither read nor sampled, so that its text is one like any other. */
static bool has_no_row(const struct token_table *t, const json_t *added)
{
    json_int_t id = json_integer_value(json_object_get(added, "id"));
    return id > 0 && (size_t)id >= t->n;
}

/* The text of a token that is listed as an object, or only by its name. */
static const json_t *content_of(const json_t *added)
{
    const json_t *s = json_is_object(added) ? json_object_get(added, "content") : added;
    return json_is_string(s) ? s : NULL;
}

/* Makes a token one that is found in a text before anything is merged, as its flags say; a mere name has none. */
static int put_added(const struct hf *h, const struct hf_words *w, struct token_table *t, json_int_t id,
                     const json_t *v, bool special)
{
    const json_t *s = content_of(v);
    bool late = json_is_true(json_object_get(v, "normalized"));
    if (late && (w->bert || w->spaces))
        return hf_refuse(h,
                         w->bert ? "with BertNormalizer, an added token that is normalized"
                                 : "with a normaliser that removes spaces, an added token that is normalized",
                         json_string_value(s));
    /* The token of a byte may also be listed here; it keeps its type, and is found by its text, too. */
    bool inside = id >= 0 && (size_t)id < t->n, byte = inside && t->type[id] == 6,
         apart = inside && (!t->text[id].n || (t->added[id] & 8));
    int ret = token_set(h, t, id, json_string_value(s), json_string_length(s), byte ? 6 : special ? 3 : 4);
    if (!ret)
        t->added[id] = json_is_true(json_object_get(v, "lstrip")) + 2 * json_is_true(json_object_get(v, "rstrip")) +
                       4 * late + 8 * apart + 16 * json_is_true(json_object_get(v, "single_word")) + 32 * byte;
    return ret;
}

static int read_added(const struct hf *h, const json_t *root, const struct hf_words *w, struct token_table *t)
{
    const json_t *list = json_object_get(root, "added_tokens"), *v;
    size_t i;
    int ret = 0;
    json_array_foreach(list, i, v)
    {
        const json_t *id = json_object_get(v, "id");
        if (!ret && (!json_is_object(v) || !content_of(v) || !json_is_integer(id)))
            ret = hf_damaged(h, "an added token without content or id");
        if (!ret && !has_no_row(t, v))
            ret = put_added(h, w, t, json_integer_value(id), v, json_is_true(json_object_get(v, "special")));
    }
    return ret;
}

/* The id of a text in the model's vocabulary, or -1. */
static json_int_t vocab_id(const json_t *root, const json_t *s)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"),
                 *id = s ? json_object_getn(vocab, json_string_value(s), json_string_length(s)) : NULL;
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

/* Reads added_tokens_decoder of tokenizer_config.json, whose flags count where tokenizer.json has others. */
static int read_decoder(const struct hf *h, const json_t *root, const json_t *cfg, const struct hf_words *w,
                        struct token_table *t)
{
    const char *key;
    json_t *v;
    int ret = 0;
    json_object_foreach(json_object_get(cfg, "added_tokens_decoder"), key, v)
    {
        const json_t *s = content_of(v);
        unsigned long at = strtoul(key, NULL, 10);
        if (ret || !s || !json_string_length(s))
            continue;
        bool its = at < t->n && t->text[at].n == json_string_length(s) &&
                   !memcmp(t->text[at].s, json_string_value(s), json_string_length(s));
        json_int_t id = its ? (json_int_t)at : vocab_id(root, s);
        if (id >= 0) /* it was special, or is now */
            ret = put_added(h, w, t, id, v, t->type[id] == 3 || json_is_true(json_object_get(v, "special")));
    }
    return ret;
}

/* Adds special tokens that a config names in any form: one, a list, or an object by their roles. Those that are added
 * already stay as they are. */
static int read_named(const struct hf *h, const json_t *root, json_t *named, const struct hf_words *w,
                      struct token_table *t)
{
    const char *key;
    json_t *v;
    size_t i;
    int ret = 0;
    json_int_t id = vocab_id(root, content_of(named));
    if (id >= 0 && (t->type[id] == 1 || (t->type[id] == 6 && !(t->added[id] & 32))))
        return put_added(h, w, t, id, named, true);
    json_array_foreach(named, i, v)
    {
        if (!ret && content_of(v))
            ret = read_named(h, root, v, w, t);
    }
    if (!content_of(named))
        json_object_foreach(named, key, v)
        {
            if (!ret && content_of(v))
                ret = read_named(h, root, v, w, t);
        }
    return ret;
}

/* transformers also adds the special tokens that only the companions of tokenizer.json name. */
static int read_companions(const struct hf *h, const json_t *root, const json_t *cfg, const struct hf_words *w,
                           struct token_table *t)
{
    static const char *const keys[] = {"bos_token",           "eos_token", "unk_token",  "sep_token",
                                       "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
                                       "extra_special_tokens"};
    int ret = read_decoder(h, root, cfg, w, t);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !ret; i++)
        ret = read_named(h, root, json_object_get(cfg, keys[i]), w, t);
    return ret;
}

/* Ids extend to the embedding's last row; those that the tokenizer does not name have an empty text. */
static int put_tokens(struct hf *h, const json_t *root, const json_t *cfg, const struct hf_words *w)
{
    json_int_t n = json_integer_value(json_object_get(h->config, "vocab_size"));
    struct token_table t = {.n = n > 0 && n <= TOKENS_MAX ? (size_t)n : 0};
    if (!t.n)
        return err_set(h->e, HEARTH_EBADMODEL, "config.json: vocab_size is not from 1 to %d", TOKENS_MAX);
    t.text = calloc(t.n, sizeof *t.text);
    t.type = calloc(t.n, sizeof *t.type);
    t.added = calloc(t.n, sizeof *t.added);
    int ret = t.text && t.type && t.added ? 0 : err_set(h->e, HEARTH_ENOMEM, "no memory for %zu tokens", t.n);
    for (size_t i = 0; i < t.n && !ret; i++) {
        t.text[i] = (struct gguf_str){"", 0};
        t.type[i] = 5; /* "unused" (5) until a name is found */
    }
    if (!ret)
        ret = read_vocab(h, json_object_get(root, "model"), &t);
    if (!ret)
        ret = read_added(h, root, w, &t);
    if (!ret)
        ret = read_companions(h, root, cfg, w, &t);
    if (!ret) {
        gguf_make_strs(h->m, "tokenizer.ggml.tokens", t.text, t.n);
        gguf_make_i32s(h->m, "tokenizer.ggml.token_type", t.type, t.n);
        gguf_make_i32s(h->m, "hearth.tokenizer.added", t.added, t.n);
    }
    free(t.text);
    free(t.type);
    free(t.added);
    return ret;
}

/* Merges are "left right", or ["left", "right"] in newer files, since a part may contain a space. */
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
            if (la > 1 && memchr(json_string_value(a) + 1, ' ', la - 1)) {
                ret = hf_refuse(h, "a merge of tokens with spaces,", json_string_value(a));
                break;
            }
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
    gguf_make_i32s(h->m, "hearth.tokenizer.behaviors", w->behavior, w->n);
    gguf_make_str(h->m, "hearth.tokenizer.prefix", prefix, strlen(prefix));
    if (w->normal_low)
        gguf_make_bool(h->m, "hearth.tokenizer.normal_spaces", true);
    if (w->spaces)
        gguf_make_u32(h->m, "hearth.tokenizer.spaces", w->spaces);
}

/* Reads the tokens' log-probabilities. Ids that the vocabulary does not list get 0, but they have no text in it and so
 * are never found. */
static int put_unigram(struct hf *h, const json_t *root, const json_t *model, struct hf_words *w)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer"), *v, *unk = json_object_get(model, "unk_id");
    const json_t *vocab = json_object_get(model, "vocab");
    json_int_t n = json_integer_value(json_object_get(h->config, "vocab_size"));
    size_t i;
    if (n <= 0 || n > TOKENS_MAX)
        return err_set(h->e, HEARTH_EBADMODEL, "config.json: vocab_size is not from 1 to %d", TOKENS_MAX);
    double *scores = calloc((size_t)n, sizeof *scores);
    int ret = scores ? 0 : err_set(h->e, HEARTH_ENOMEM, "no memory for %lld tokens", (long long)n);
    if (!ret && pre && !json_is_null(pre))
        ret = hf_pre_tokenizer(h, w, pre);
    if (!ret && (w->byte_level || w->bert || !w->low))
        ret = hf_refuse(h, "Unigram without", "Metaspace or a normaliser that makes spaces U+2581");
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

/* WordPiece is accepted only in BERT's own form: its normaliser, its splitting into words, "##" before
 * continuations. */
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

/* The token for characters that have neither a token nor byte tokens. */
static int put_unknown(struct hf *h, const json_t *model)
{
    const char *unk = hf_text_of(model, "unk_token");
    const json_t *id = unk ? json_object_get(json_object_get(model, "vocab"), unk) : NULL;
    if (unk && (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= TOKENS_MAX))
        return hf_damaged(h, "the unknown token is not in the vocabulary");
    if (!unk && !json_is_true(json_object_get(model, "byte_fallback")))
        return hf_refuse(h, "BPE without", "byte_fallback and unk_token");
    if (unk)
        gguf_make_u32(h->m, "hearth.tokenizer.unknown_id", (uint32_t)json_integer_value(id));
    gguf_make_bool(h->m, "hearth.tokenizer.fuse_unknown", json_is_true(json_object_get(model, "fuse_unk")));
    return 0;
}

static int put_bpe(struct hf *h, const json_t *root, const json_t *model, struct hf_words *w)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    int ret = pre && !json_is_null(pre) ? hf_pre_tokenizer(h, w, pre) : 0;
    const char *suffix = hf_text_of(model, "continuing_subword_prefix"), *end = hf_text_of(model, "end_of_word_suffix");
    if (!ret && ((suffix && *suffix) || (end && *end)))
        ret = hf_refuse(h, "BPE with", suffix && *suffix ? "continuing_subword_prefix" : "end_of_word_suffix");
    if (!ret && !w->byte_level && (!w->low || w->bert))
        ret = hf_refuse(h, "BPE without", "ByteLevel, Metaspace or a normaliser that makes spaces U+2581");
    if (!ret && json_is_number(json_object_get(model, "dropout")) &&
        json_number_value(json_object_get(model, "dropout")) != 0)
        ret = hf_refuse(h, "BPE with", "dropout");
    if (ret)
        return ret;
    const char *kind = w->byte_level ? "gpt2" : "gemma4";
    gguf_make_str(h->m, "tokenizer.ggml.model", kind, strlen(kind));
    gguf_make_bool(h->m, "hearth.tokenizer.ignore_merges", json_is_true(json_object_get(model, "ignore_merges")));
    put_words(h, w);
    if (!w->byte_level)
        ret = put_unknown(h, model);
    return ret ? ret : put_merges(h, model);
}

/* --- companions of tokenizer.json ---------------------------------------------------------------------- */

/* Finds the id of a token that a config names, by its text or as an object with content. Returns 1, or 0 where there is
 * none. */
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

/* The name of the special token that the post-processor puts first, before a single text; NULL where there is none.
 * *alone: it is the only one before the text. */
static const json_t *put_first(const json_t *post, bool *alone)
{
    const json_t *v, *one = post;
    size_t i;
    json_array_foreach(json_object_get(post, "processors"), i, v)
    {
        if (hf_is(v, "type", "TemplateProcessing"))
            one = v;
    }
    if (!hf_is(one, "type", "TemplateProcessing"))
        return NULL;
    const json_t *single = json_object_get(one, "single");
    *alone = json_object_get(json_array_get(single, 1), "Sequence") != NULL;
    return json_object_get(json_object_get(json_array_get(single, 0), "SpecialToken"), "id");
}

static int put_bos(struct hf *h, const json_t *root, const json_t *cfg)
{
    static const struct {
        const char *hf, *gguf;
    } named[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                 {"eos_token", "tokenizer.ggml.eos_token_id"},
                 {"pad_token", "tokenizer.ggml.padding_token_id"},
                 {"unk_token", "tokenizer.ggml.unknown_token_id"}};
    bool alone = false;
    const json_t *first = put_first(json_object_get(root, "post_processor"), &alone);
    const json_t *bos = json_object_get(cfg, "bos_token"), *add = json_object_get(cfg, "add_bos_token");
    if (!bos && alone) /* nothing names it, and still the text begins with it */
        bos = first;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        uint32_t id;
        if (token_id(root, i ? json_object_get(cfg, named[i].hf) : bos, &id))
            gguf_make_u32(h->m, named[i].gguf, id);
    }
    const char *text = json_is_object(bos) ? hf_text_of(bos, "content") : json_string_value(bos);
    bool is_first = text && json_is_string(first) && !strcmp(json_string_value(first), text);
    gguf_make_bool(h->m, "tokenizer.ggml.add_bos_token", json_is_boolean(add) ? json_is_true(add) : is_first);
    return 0;
}

/* Puts the token ids of a field, a number or a list, under the key `to`: those of `first`, then those of `second`. */
static int put_ids(struct hf *h, const char *to, const char *key, const json_t *first, const json_t *second)
{
    const json_t *fields[] = {json_object_get(first, key), json_object_get(second, key)};
    size_t most = json_array_size(fields[0]) + json_array_size(fields[1]) + 2, n = 0;
    int32_t *ids = reallocarray(NULL, most, sizeof *ids);
    int ret = ids ? 0 : err_set(h->e, HEARTH_ENOMEM, "no memory for %zu token ids", most);
    for (int f = 0; f < 2; f++) {
        bool none = !fields[f] || json_is_null(fields[f]);
        size_t many = json_is_array(fields[f]) ? json_array_size(fields[f]) : none ? 0 : 1;
        for (size_t i = 0; !ret && i < many; i++) {
            const json_t *v = json_is_array(fields[f]) ? json_array_get(fields[f], i) : fields[f];
            if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= TOKENS_MAX)
                ret = err_set(h->e, HEARTH_EBADMODEL, "%s is no id of a token", key);
            else
                ids[n++] = (int32_t)json_integer_value(v);
        }
    }
    if (!ret && n)
        gguf_make_i32s(h->m, to, ids, n);
    free(ids);
    return ret;
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

/* Reads tokenizer_config.json. Where it has no added_tokens_decoder, transformers reads special_tokens_map.json, as
 * earlier versions wrote it, whose names come first. */
static int read_names(const struct hf *h, json_t **cfg)
{
    static const char more[] = "additional_special_tokens";
    json_t *map = NULL;
    int ret = hf_json(h, "tokenizer_config.json", SMALL_MAX, cfg);
    if (ret >= 0 && !json_object_get(*cfg, "added_tokens_decoder"))
        ret = hf_json(h, "special_tokens_map.json", SMALL_MAX, &map);
    json_array_extend(json_object_get(map, more), json_object_get(*cfg, more));
    if (map && *cfg && json_object_update(*cfg, map))
        ret = err_set(h->e, HEARTH_ENOMEM, "no memory for special_tokens_map.json");
    if (map && !*cfg)
        *cfg = json_incref(map);
    json_decref(map);
    return ret < 0 ? ret : 0;
}

static int put_companions(struct hf *h, const json_t *root, const json_t *cfg)
{
    json_t *generation = NULL;
    int ret = hf_json(h, "generation_config.json", SMALL_MAX, &generation);
    if (ret >= 0)
        ret = put_bos(h, root, cfg);
    if (!ret) /* each of them ends a generation */
        ret = put_ids(h, "hearth.tokenizer.end_ids", "eos_token_id", generation, h->config);
    if (!ret) /* never sampled; the key is that of llama.cpp's converter */
        ret = put_ids(h, "tokenizer.ggml.suppress_tokens", "suppress_tokens", generation, NULL);
    if (!ret)
        ret = put_sampling(h, generation);
    if (!ret)
        ret = hf_templates(h, cfg);
    json_decref(generation);
    return ret;
}

int hf_tokenizer(struct hf *h)
{
    json_t *root, *cfg = NULL;
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
        ret = read_names(h, &cfg);
    if (!ret)
        ret = put_tokens(h, root, cfg, &w);
    if (!ret)
        ret = put_companions(h, root, cfg);
    json_decref(cfg);
    json_decref(root);
    return ret;
}
