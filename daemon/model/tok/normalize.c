/* normalize.c - normalises a text before it is tokenised: by a Unicode form (utf8proc) or SentencePiece's table
 * (charsmap.c), then by the rules for spaces. See tok-internal.h. */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

int normalize_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    static const struct {
        const char *name;
        int options;
    } forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
                 {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
                 {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                 {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
    struct gguf_str name;
    bool squeeze = false;
    int ret = charsmap_load(v, g, e);
    if (!ret)
        ret = gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &squeeze, e);
    v->spaces = squeeze && v->model == VOCAB_UNIGRAM ? SPACE_RUNS | SPACE_START | SPACE_END : 0;
    if (ret >= 0)
        ret = gguf_u32(g, "hearth.tokenizer.spaces", &v->spaces, e);
    if (ret >= 0)
        ret = gguf_str(g, "hearth.tokenizer.normalizer", &name, e);
    if (ret)
        return ret < 0 ? ret : 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (gguf_str_is(name, forms[i].name)) {
            v->normalize = forms[i].options;
            return 0;
        }
    return err_set(e, HEARTH_EUNSUPPORTED, "normaliser \"%s\" is not one hearth has", gguf_label(name).s);
}

/* Returns the number of leading bytes of s that are well-formed UTF-8. */
static size_t valid_run(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        utf8proc_int32_t cp;
        utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &cp);
        if (k <= 0)
            break;
        at += (size_t)k;
    }
    return at;
}

/* Orders the marks of c[0..n) by their combining class, keeping the order within a class; `room` is for n more. */
static void order_marks(utf8proc_int32_t *c, size_t n, utf8proc_int32_t *room)
{
    size_t first[257] = {0};
    for (size_t i = 0; i < n; i++)
        first[utf8proc_get_property(c[i])->combining_class + 1]++;
    for (size_t k = 1; k < 257; k++)
        first[k] += first[k - 1];
    for (size_t i = 0; i < n; i++)
        room[first[utf8proc_get_property(c[i])->combining_class]++] = c[i];
    memcpy(c, room, n * sizeof *c);
}

/* utf8proc_map() orders the marks after a letter in quadratic time, and cannot be cancelled. */
int unicode_form(const char *s, size_t n, int options, char **out, size_t *n_out, struct hearth_err *e)
{
    enum { MOST = 18 + 1 }; /* code points of a decomposition: U+FDFA has 18 */
    size_t len = 0, cap = 0, marks = 0, most = 0;
    utf8proc_int32_t *c = NULL, *room = NULL;
    int ret = 0, class = 0;
    for (size_t at = 0; at < n && !ret;) {
        utf8proc_int32_t cp;
        if (cap - len < MOST) {
            cap = cap + cap / 2 + n - at + 2 * MOST;
            utf8proc_int32_t *more = reallocarray(c, cap, sizeof *c);
            if (!more) {
                ret = err_set(e, HEARTH_ENOMEM, "no memory to normalise %zu bytes", n);
                break;
            }
            c = more;
        }
        at += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &cp);
        utf8proc_ssize_t k = utf8proc_decompose_char(cp, c + len, MOST, options, &class);
        for (size_t end = len + (size_t)k; len < end; len++) {
            marks = utf8proc_get_property(c[len])->combining_class ? marks + 1 : 0;
            most = marks > most ? marks : most;
        }
        ret = pace(4, e);
    }
    if (!ret && most > 1 && !(room = reallocarray(NULL, most, sizeof *room)))
        ret = err_set(e, HEARTH_ENOMEM, "no memory to normalise %zu bytes", n);
    marks = 0;
    for (size_t i = 0; i <= len && !ret && most > 1; i++) {
        if (i < len && utf8proc_get_property(c[i])->combining_class) {
            marks++;
            continue;
        }
        if (marks > 1)
            order_marks(c + i - marks, marks, room);
        marks = 0;
    }
    free(room);
    if (ret) {
        free(c);
        return ret;
    }
    *n_out = len ? (size_t)utf8proc_reencode(c, (utf8proc_ssize_t)len, options) : 0;
    *out = (char *)c;
    return 0;
}

/* Bytes that are not UTF-8 stay as they are; the stretches between them are normalised separately. */
static int to_form(const struct vocab *v, const char *text, size_t n, char **out, size_t *n_out, struct hearth_err *e)
{
    size_t ascii = 0;
    while (ascii < n && (unsigned char)text[ascii] < 0x80)
        ascii++;
    if (!v->normalize || ascii == n)
        return 0;
    char *buf = NULL;
    size_t len = 0;
    for (size_t at = 0; at < n;) {
        size_t run = valid_run(text + at, n - at), bad = at + run < n, k = 0;
        char *part = NULL;
        int ret = pace(bad, e);
        if (!ret && run)
            ret = unicode_form(text + at, run, v->normalize, &part, &k, e);
        char *more = ret ? NULL : realloc(buf, len + k + bad + 1);
        if (!more) {
            free(part);
            free(buf);
            return ret ? ret : err_set(e, HEARTH_ENOMEM, "no memory to normalise %zu bytes", n);
        }
        buf = more;
        if (k)
            memcpy(buf + len, part, k);
        len += k;
        if (bad)
            buf[len++] = text[at + run];
        at += run + bad;
        free(part);
    }
    *out = buf;
    *n_out = len;
    return 0;
}

/* The length of the space that ends s[0..n), to SentencePiece: U+2581 is one here, but not at the start of a text. */
static size_t last_space(const char *s, size_t n)
{
    return n && s[n - 1] == ' ' ? 1 : n > 2 && !memcmp(s + n - 3, "\xe2\x96\x81", 3) ? 3 : 0;
}

/* Applies the vocabulary's rules for spaces to s[0..n), in place; returns the length. */
static size_t fold_spaces(char *s, size_t n, uint32_t rules)
{
    size_t at = 0, len = 0;
    bool any = rules & SPACE_ANY;
    size_t k;
    while ((rules & SPACE_START) && at < n && (k = any ? space_at(s + at, n - at, false) : s[at] == ' '))
        at += k;
    while ((rules & SPACE_END) && n > at && (k = any ? space_at(s + n, n - at, true) : last_space(s + at, n - at)))
        n -= k;
    for (; at < n; at++)
        if (s[at] != ' ' || !(rules & SPACE_RUNS) || !len || s[len - 1] != ' ')
            s[len++] = s[at];
    return len;
}

int normalize(const struct vocab *v, const char *text, size_t n, char **out, size_t *n_out, struct hearth_err *e)
{
    *out = NULL;
    int ret = v->charsmap.trie ? charsmap_normalize(v, text, n, out, n_out, e) : to_form(v, text, n, out, n_out, e);
    if (ret || !v->spaces)
        return ret;
    if (!*out) {
        *out = malloc(n + 1);
        if (!*out)
            return err_set(e, HEARTH_ENOMEM, "no memory to normalise %zu bytes", n);
        memcpy(*out, text, n);
        *n_out = n;
    }
    *n_out = fold_spaces(*out, *n_out, v->spaces);
    return 0;
}

void normal_text_fini(struct tok_text *t)
{
    free((char *)t->s);
    free((struct tok_span *)t->span);
}

int normal_text(const struct vocab *v, const struct tok_text *text, size_t from, size_t to, size_t *k, bool prefix,
                struct tok_text *out, struct hearth_err *e)
{
    size_t n_span = 0, n = 0;
    while (*k < text->n_span && text->span[*k].to <= from)
        ++*k;
    for (size_t i = *k; i < text->n_span && text->span[i].from < to; i++)
        n_span++;
    bool spaces = v->normal_spaces;
    char *s = malloc(1);
    struct tok_span *span = malloc((n_span + 1) * sizeof *span);
    *out = (struct tok_text){.flags = text->flags};
    int ret = s && span ? 0 : err_set(e, HEARTH_ENOMEM, "no memory to normalise %zu bytes", to - from);
    for (size_t at = from, end; at < to && !ret; at = end) {
        while (*k < text->n_span && text->span[*k].to <= at)
            ++*k;
        bool persons = *k < text->n_span && text->span[*k].from <= at;
        end = *k == text->n_span ? to : persons ? text->span[*k].to : text->span[*k].from;
        end = end < to ? end : to;
        char *part, *more = NULL;
        size_t len = end - at;
        if ((ret = normalize(v, text->s + at, len, &part, &len, e)))
            break;
        if (len)
            more = realloc(s, n + len + 2);
        if (len && !more)
            ret = err_set(e, HEARTH_ENOMEM, "no memory to normalise %zu bytes", to - from);
        if (more) {
            const char *its = part ? part : text->s + at;
            s = more;
            if (spaces && prefix && !n)
                s[n++] = ' ';
            if (spaces)
                len = (size_t)spm_decode(its, len, s + n);
            else
                memcpy(s + n, its, len);
            if (persons)
                span[out->n_span++] = (struct tok_span){(uint32_t)n, (uint32_t)(n + len)};
            n += len;
        }
        free(part);
    }
    if (ret) {
        free(s);
        free(span);
        return ret;
    }
    out->s = s, out->n = n, out->span = span;
    return 0;
}

bool word_at(const char *s, size_t n, bool back)
{
    size_t at = 0;
    utf8proc_int32_t c;
    for (size_t i = 1; back && i <= 4 && i <= n; i++) {
        at = n - i;
        if (((unsigned char)s[at] & 0xc0) != 0x80)
            break;
    }
    if (!n || utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &c) <= 0)
        return false;
    utf8proc_category_t k = utf8proc_category(c);
    bool circled = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
                   (c >= 0x1f170 && c <= 0x1f189);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC || circled ||
           c == 0x200c || c == 0x200d;
}
