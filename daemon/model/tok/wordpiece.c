/*
 * wordpiece.c - WordPiece as BERT uses it (Devlin et al. 2018; Wu et al. 2016, "Google's Neural Machine Translation
 * System"). A text is cleaned, its case and accents are folded, and it is cut at white space and around punctuation.
 * Each word becomes the longest token that it starts with, then the longest one that continues from there, and so on; a
 * word that cannot be spelled in this way is one unknown token.
 *
 * GGUF marks a token that begins a word by a leading U+2581, and leaves out BERT's "##" of continuations.
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { WORD_CHARS_MAX = 100 }; /* as in BERT's own tokenizer: a longer word is unknown */

int wordpiece_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    v->lowercase = true;
    int ret = gguf_bool(g, "tokenizer.ggml.normalizer.lowercase", &v->lowercase, e);
    v->strip_accents = v->lowercase;
    if (ret >= 0)
        ret = gguf_bool(g, "tokenizer.ggml.normalizer.strip_accents", &v->strip_accents, e);
    for (uint32_t i = 0; i < v->n_tok && ret >= 0; i++) {
        const struct piece *p = &v->piece[i];
        if (v->bos < 0 && p->n == 5 && !memcmp(p->s, "[CLS]", 5))
            v->bos = (int32_t)i;
        if (v->unk < 0 && p->n == 5 && !memcmp(p->s, "[UNK]", 5))
            v->unk = (int32_t)i;
    }
    if (ret >= 0 && v->unk < 0)
        return err_set(e, HEARTH_EBADMODEL, "the WordPiece vocabulary has no unknown token");
    return ret < 0 ? ret : spm_load_pieces(v, e);
}

static bool is_space(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return c == '\t' || c == '\n' || c == '\r' || (k >= UTF8PROC_CATEGORY_ZS && k <= UTF8PROC_CATEGORY_ZP);
}

/* NUL, U+FFFD, and control, format and private-use characters are dropped; BERT keeps tabs and line ends, as spaces. */
static bool is_dropped(utf8proc_int32_t c)
{
    if (c == 0 || c == 0xfffd)
        return true;
    if (c == '\t' || c == '\n' || c == '\r')
        return false;
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

/* The blocks that BERT treats as Chinese: each of their characters is a word of its own. */
static bool is_ideograph(utf8proc_int32_t c)
{
    static const utf8proc_int32_t block[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                                {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                                {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (c >= block[i][0] && c <= block[i][1])
            return true;
    return false;
}

static bool is_punctuation(utf8proc_int32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

/* Text that is passed from one pass to the next. */
struct buffer {
    char *s;
    size_t n;
};

static void put(struct buffer *b, utf8proc_int32_t c)
{
    b->n += (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)b->s + b->n);
}

/* Drops characters that are not text and replaces every kind of white space by a space; surrounds ideographs by
 * spaces. */
static int clean(const char *text, size_t n, struct buffer *out, struct hearth_err *e)
{
    *out = (struct buffer){malloc(3 * n + 4), 0}; /* an ideograph has at least three bytes and gets two spaces */
    if (!out->s)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(n - i), &c);
        if (k <= 0)
            return err_set(e, HEARTH_EPARAMS, "the text is not UTF-8 at byte %zu, and the vocabulary has no bytes", i);
        i += (size_t)k;
        if (is_dropped(c))
            continue;
        bool alone = is_ideograph(c);
        if (alone)
            out->s[out->n++] = ' ';
        put(out, is_space(c) ? ' ' : c);
        if (alone)
            out->s[out->n++] = ' ';
    }
    return 0;
}

/* Replaces b by its canonical decomposition. */
static int decompose(struct buffer *b, struct hearth_err *e)
{
    char *out;
    size_t n;
    int ret = unicode_form(b->s, b->n, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &out, &n, e);
    if (ret)
        return ret;
    free(b->s);
    *b = (struct buffer){out, n};
    return 0;
}

/*
 * Folds case and accents as the vocabulary requires, and puts a space before each word: where white space was, and
 * around punctuation. Each word of the result is a space and the characters up to the next space.
 */
static int cut(const struct vocab *v, const struct buffer *from, struct buffer *out, struct hearth_err *e)
{
    *out = (struct buffer){malloc(4 * from->n + 8), 0};
    if (!out->s)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", from->n);
    bool inside = false; /* within a word */
    for (size_t i = 0; i < from->n;) {
        utf8proc_int32_t c;
        i += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)from->s + i, (utf8proc_ssize_t)(from->n - i), &c);
        if (v->strip_accents && utf8proc_category(c) == UTF8PROC_CATEGORY_MN)
            continue;
        if (is_space(c)) {
            inside = false;
            continue;
        }
        bool alone = is_punctuation(c);
        if (!inside || alone)
            out->s[out->n++] = ' ';
        if (v->lowercase && c == 0x130) { /* the only letter whose lower case is two characters: i, combining dot
                                             above */
            put(out, 'i');
            put(out, 0x307);
        } else {
            put(out, v->lowercase ? utf8proc_tolower(c) : c);
        }
        inside = !alone;
    }
    return 0;
}

/* Encodes one word, given with its leading space. */
static int encode_word(const struct vocab *v, const char *s, size_t n, struct ids *out, struct hearth_err *e)
{
    size_t was = out->n, chars = 0;
    for (size_t i = 1; i < n; i++)
        chars += ((unsigned char)s[i] & 0xc0) != 0x80;
    bool known = chars <= WORD_CHARS_MAX;
    for (size_t at = 0, len; at < n && known; at += len) {
        int32_t id = -1;
        for (len = n - at < v->max_len ? n - at : v->max_len; len > (at == 0); len--)
            if ((id = piece_find(v, s + at, len)) >= 0)
                break;
        known = id >= 0;
        if (known && tok_push(out, id, e))
            return HEARTH_ENOMEM;
    }
    if (known)
        return 0;
    out->n = was;
    return tok_push(out, v->unk, e);
}

int wordpiece_encode(const struct vocab *v, const char *text, size_t n, struct ids *out, struct hearth_err *e)
{
    struct buffer cleaned, words = {0};
    int ret = clean(text, n, &cleaned, e);
    if (!ret && v->strip_accents)
        ret = decompose(&cleaned, e);
    if (!ret)
        ret = cut(v, &cleaned, &words, e);
    for (size_t at = 0, end; at < words.n && !ret; at = end) {
        const char *space = memchr(words.s + at + 1, ' ', words.n - at - 1);
        end = space ? (size_t)(space - words.s) : words.n;
        ret = encode_word(v, words.s + at, end - at, out, e);
    }
    free(cleaned.s);
    free(words.s);
    return ret;
}
