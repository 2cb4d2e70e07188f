/* normalizer.c - the normalisers of a tokenizer.json, and what its readers share. */
#include "daemon/model/hf/hf-internal.h"

#include <string.h>

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

/* NFC and its relatives by name; U+2581 for a space and a space prepended are SentencePiece's normalisation. */
int hf_normalizer(struct hf *h, const json_t *p, struct hf_words *w)
{
    static const char low[] = "\xe2\x96\x81";
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
            if (!ret && hf_is(v, "type", "Sequence"))
                ret = hf_refuse(h, "a normaliser in a", "Sequence of sequences");
            if (!ret)
                ret = hf_normalizer(h, v, w);
        }
        return ret;
    }
    if (!strcmp(type, "NFC") || !strcmp(type, "NFKC") || !strcmp(type, "NFD") || !strcmp(type, "NFKD")) {
        gguf_make_str(h->m, "hearth.tokenizer.normalizer", type, strlen(type));
        return 0;
    }
    if (!strcmp(type, "Prepend") && hf_is(p, "prepend", low)) {
        w->prefix = "always";
        return 0;
    }
    if (!strcmp(type, "Replace") && hf_is(json_object_get(p, "pattern"), "String", " ") && hf_is(p, "content", low))
        return 0;
    return hf_refuse(h, "normaliser", type);
}
