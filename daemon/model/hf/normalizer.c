/* normalizer.c - translates the normalisers of a tokenizer.json; it also has the helpers that the readers of that file
 * share. */
#include "daemon/model/hf/hf-internal.h"

#include <stdlib.h>
#include <string.h>

static const char low[] = "\xe2\x96\x81"; /* U+2581 */

int hf_refuse(const struct hf *h, const char *part, const char *type)
{
    return err_set(h->e, HEARTH_EUNSUPPORTED, "tokenizer.json: %s \"%s\" is not one hearth has", part,
                   type ? gguf_label((struct gguf_str){type, strlen(type)}).s : "(none)");
}

int hf_damaged(const struct hf *h, const char *what)
{
    return err_set(h->e, HEARTH_EBADMODEL, "tokenizer.json: %s", what);
}

const char *hf_text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

bool hf_is(const json_t *o, const char *key, const char *value)
{
    const char *s = hf_text_of(o, key);
    return s && !strcmp(s, value);
}

static int digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decodes base64 (RFC 4648) of s[0..n) into out[0..3 * n / 4); returns the number of bytes, or -1. */
static long base64(const char *s, size_t n, unsigned char *out)
{
    uint32_t bits = 0;
    int held = 0;
    long len = 0;
    while (n && s[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        int d = digit(s[i]);
        if (d < 0)
            return -1;
        bits = bits << 6 | (uint32_t)d;
        held += 6;
        if (held >= 8)
            out[len++] = (unsigned char)(bits >> (held -= 8));
    }
    return len;
}

/* SentencePiece's table of replacements: see daemon/model/tok/charsmap.c. */
static int put_charsmap(struct hf *h, const json_t *p)
{
    const json_t *v = json_object_get(p, "precompiled_charsmap");
    size_t n = json_string_length(v);
    if (!v || json_is_null(v) || (json_is_string(v) && !n))
        return 0;
    unsigned char *table = json_is_string(v) ? malloc(n) : NULL;
    if (!table)
        return json_is_string(v) ? err_set(h->e, HEARTH_ENOMEM, "no memory for a table of %zu bytes", n)
                                 : hf_damaged(h, "precompiled_charsmap is no string");
    long len = base64(json_string_value(v), n, table);
    if (len >= 0) {
        gguf_make_bytes(h->m, "tokenizer.ggml.precompiled_charsmap", table, (size_t)len);
        gguf_make_bool(h->m, "hearth.tokenizer.graphemes", true);
    }
    free(table);
    return len >= 0 ? 0 : hf_damaged(h, "precompiled_charsmap is not base64");
}

static int put_bert(struct hf *h, const json_t *p, struct hf_words *w)
{
    const json_t *lower = json_object_get(p, "lowercase"), *strip = json_object_get(p, "strip_accents");
    if (json_is_false(json_object_get(p, "clean_text")) || json_is_false(json_object_get(p, "handle_chinese_chars")))
        return hf_refuse(h, "BertNormalizer without", "clean_text or handle_chinese_chars");
    bool lowercase = !json_is_false(lower);
    w->bert = true;
    gguf_make_bool(h->m, "tokenizer.ggml.normalizer.lowercase", lowercase);
    gguf_make_bool(h->m, "tokenizer.ggml.normalizer.strip_accents",
                   json_is_boolean(strip) ? json_is_true(strip) : lowercase);
    return 0;
}

/* The rules for spaces in converted SentencePiece vocabularies: runs of spaces become one, leading and trailing white
 * space is stripped. */
static bool spaces_rule(const json_t *p, struct hf_words *w)
{
    const json_t *pattern = json_object_get(p, "pattern");
    if (hf_is(p, "type", "Replace") && hf_is(pattern, "Regex", " {2,}") &&
        (hf_is(p, "content", " ") || hf_is(p, "content", low))) {
        w->spaces |= 1;
        w->low_runs |= hf_is(p, "content", low);
        return true;
    }
    if (hf_is(p, "type", "Strip") && !w->low_runs) { /* U+2581 is no white space */
        w->spaces |= 8 | (json_is_true(json_object_get(p, "strip_left")) ? 2u : 0) |
                     (json_is_true(json_object_get(p, "strip_right")) ? 4u : 0);
        return true;
    }
    return false;
}

/* Translates NFC and its relatives by name. Replacing a space by U+2581 and prepending one is SentencePiece's
 * normalisation. */
int hf_normalizer(struct hf *h, const json_t *p, struct hf_words *w)
{
    const char *type = hf_text_of(p, "type");
    const json_t *v;
    size_t i;
    int ret = 0;
    if (!p || json_is_null(p))
        return 0;
    if (!type)
        return hf_damaged(h, "a normaliser without a type");
    if (!strcmp(type, "Sequence")) {
        json_array_foreach(json_object_get(p, "normalizers"), i, v)
        {
            if (!ret)
                ret = hf_normalizer(h, v, w);
        }
        return ret;
    }
    if (!strcmp(type, "Prepend") && hf_is(p, "prepend", low) && !w->prefix) {
        w->prefix = "always";
        return 0;
    }
    if (!strcmp(type, "Replace") && hf_is(json_object_get(p, "pattern"), "String", " ") && hf_is(p, "content", low)) {
        w->low = w->normal_low = true;
        return 0;
    }
    if (w->low || w->prefix) /* those must come last, with the rules for spaces before them */
        return hf_refuse(h, "after a normaliser for spaces, the normaliser", type);
    if (spaces_rule(p, w))
        return 0;
    if (w->spaces || w->form)
        return hf_refuse(h, "after another normaliser, the normaliser", type);
    w->form = true;
    if (!strcmp(type, "Precompiled"))
        return put_charsmap(h, p);
    if (!strcmp(type, "BertNormalizer"))
        return put_bert(h, p, w);
    if (!strcmp(type, "NFC") || !strcmp(type, "NFKC") || !strcmp(type, "NFD") || !strcmp(type, "NFKD")) {
        gguf_make_str(h->m, "hearth.tokenizer.normalizer", type, strlen(type));
        return 0;
    }
    return hf_refuse(h, "normaliser", type);
}
