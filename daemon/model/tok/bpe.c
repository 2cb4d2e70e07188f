/*
 * bpe.c - byte-level BPE: text is split into words (pretok.c), a word into bytes, and neighbours are merged in the
 * order in which the merges were learned.
 */
#include "daemon/model/tok/tok-internal.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The byte alphabet of GPT-2: printable Latin-1 represents itself, U+0100 onwards the other 68 bytes. Returns the byte
 * that a code point represents, or -1. */
static int alphabet_byte(uint32_t cp)
{
    static const uint8_t odd[68] = {0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,
                                    14,  15,  16,  17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,
                                    28,  29,  30,  31,  32,  127, 128, 129, 130, 131, 132, 133, 134, 135,
                                    136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149,
                                    150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173};
    if (cp >= 0x100)
        return cp < 0x100 + sizeof odd ? odd[cp - 0x100] : -1;
    bool self = (cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp != 0xad);
    return self ? (int)cp : -1;
}

/* Decodes text from the byte alphabet: writes at most n bytes to out and returns their number, or -1 where text is not
 * written in it. */
static int alphabet_decode(const char *text, size_t n, char *out)
{
    int len = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i++];
        uint32_t cp = c;
        if (c >= 0x80) { /* every letter of the alphabet has one or two bytes in UTF-8 */
            if ((c & 0xe0) != 0xc0 || i == n || ((unsigned char)text[i] & 0xc0) != 0x80)
                return -1;
            cp = (uint32_t)(c & 0x1f) << 6 | ((unsigned char)text[i++] & 0x3f);
        }
        int byte = alphabet_byte(cp);
        if (byte < 0)
            return -1;
        out[len++] = (char)byte;
    }
    return len;
}

static size_t merge_place(const struct vocab *v, uint32_t left, uint32_t right)
{
    uint32_t key[2] = {left, right};
    return XXH3_64bits_withSeed(key, sizeof key, v->map.seed) & v->merge_mask;
}

static uint32_t *merge_slot(const struct vocab *v, uint32_t left, uint32_t right)
{
    for (size_t at = merge_place(v, left, right);; at = (at + 1) & v->merge_mask) {
        uint32_t *slot = &v->merge_slot[at];
        if (!*slot || (v->merges[*slot - 1].left == left && v->merges[*slot - 1].right == right))
            return slot;
    }
}

/* Parses "left right", both of which `decode` decodes; the separator is the first space after the first byte. Until its
 * parts are looked up, a merge holds their lengths and their offset in `text`, of which *n bytes are written. */
static int parse_merge(struct vocab *v, struct gguf_str line, piece_decode *decode, char *text, size_t *n,
                       struct hearth_err *e)
{
    const char *space = line.n > 1 ? memchr(line.s + 1, ' ', line.n - 1) : NULL;
    if (!space)
        return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.merges: entry %u is not two parts", v->n_merge);
    int left = decode(line.s, (size_t)(space - line.s), text + *n), right = -1;
    if (left > 0)
        right = decode(space + 1, (size_t)(line.s + line.n - space - 1), text + *n + left);
    if (right <= 0)
        return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.merges: entry %u cannot be read", v->n_merge);
    v->merges[v->n_merge++] = (struct merge){(uint32_t)left, (uint32_t)right, (uint32_t)*n};
    *n += (size_t)(left + right);
    return 0;
}

static int look_up(struct vocab *v, struct merge *m, const char *text)
{
    struct merge packed = *m;
    const char *s = text + packed.id;
    return piece_intern(v, s, packed.left, &m->left) || piece_intern(v, s + packed.left, packed.right, &m->right) ||
           piece_intern(v, s, packed.left + packed.right, &m->id);
}

/* The lookups read 10 MB in random order, so that nearly all of their time is memory latency; the entries of lookups a
 * little ahead are therefore prefetched. */
static int look_up_all(struct vocab *v, const char *text, struct hearth_err *e)
{
    enum { LOOKAHEAD = 8 };
    int ret;
    for (uint32_t i = 0; i < v->n_merge; i++) {
        for (uint32_t far = 1; far <= PREFETCH_STAGES && i + far * LOOKAHEAD < v->n_merge; far++) {
            const struct merge *m = &v->merges[i + far * LOOKAHEAD];
            piece_prefetch(v, text + m->id, m->left, PREFETCH_STAGES - far);
            piece_prefetch(v, text + m->id + m->left, m->right, PREFETCH_STAGES - far);
            piece_prefetch(v, text + m->id, m->left + m->right, PREFETCH_STAGES - far);
        }
        if (look_up(v, &v->merges[i], text))
            return err_set(e, HEARTH_ENOMEM, "no memory for %u merges", v->n_merge);
        if ((ret = pace(3 * sizeof *v->merges, e)))
            return ret;
    }
    for (uint32_t i = 0; i < v->n_merge; i++) {
        if ((ret = pace(sizeof *v->merges, e)))
            return ret;
        const struct merge *m = &v->merges[i], *soon = &v->merges[i + LOOKAHEAD < v->n_merge ? i + LOOKAHEAD : i];
        __builtin_prefetch(&v->merge_slot[merge_place(v, soon->left, soon->right)]);
        uint32_t *slot = merge_slot(v, m->left, m->right);
        if (!*slot) /* of two equal merges, the first counts */
            *slot = i + 1;
    }
    return 0;
}

int bpe_load_merges(struct vocab *v, const struct gguf *g, piece_decode *decode, struct hearth_err *e)
{
    struct gguf_strs lines;
    struct gguf_str line;
    int ret = gguf_strs(g, "tokenizer.ggml.merges", &lines, e);
    if (ret)
        return ret < 0 ? ret : err_set(e, HEARTH_EBADMODEL, "key tokenizer.ggml.merges is missing");
    size_t cap = 16, n = 0, n_line = lines.n, bytes = (size_t)(lines.end - lines.p);
    if (bytes > INT32_MAX)
        return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.merges has %zu bytes", bytes);
    while (cap < 2 * n_line)
        cap *= 2;
    char *text = malloc(bytes + 1); /* a decoded line is never longer than the encoded one */
    v->merges = malloc((n_line + 1) * sizeof *v->merges);
    v->merge_slot = calloc(cap, sizeof *v->merge_slot);
    v->merge_mask = cap - 1;
    bool room = text && v->merges && v->merge_slot;
    ret = 0;
    while (room && !ret && gguf_strs_next(&lines, &line))
        if (!(ret = pace(8 + line.n, e)))
            ret = parse_merge(v, line, decode, text, &n, e);
    if (!room)
        ret = err_set(e, HEARTH_ENOMEM, "no memory for %zu merges", n_line);
    if (!ret)
        ret = look_up_all(v, text, e);
    free(text);
    return ret;
}

/* Opens the patterns that came with the model (hf/tokenizer.c). Returns 1 where there are none. */
static int load_patterns(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    struct pretok_pattern patterns[16];
    struct gguf_strs list;
    struct gguf_nums behaviors = {0};
    struct gguf_str s;
    size_t n = 0;
    int ret = gguf_strs(g, "hearth.tokenizer.patterns", &list, e);
    if (ret)
        return ret;
    ret = gguf_i32s(g, "hearth.tokenizer.behaviors", &behaviors, e);
    if (ret < 0)
        return ret;
    for (; n < sizeof patterns / sizeof *patterns && gguf_strs_next(&list, &s); n++)
        patterns[n] = (struct pretok_pattern){s.s, s.n, n < behaviors.n ? gguf_i32_at(&behaviors, n) : PRETOK_ISOLATED};
    ret = gguf_bool(g, "hearth.tokenizer.ignore_merges", &v->ignore_merges, e);
    return ret < 0 ? ret : pretok_open_patterns(&v->pre, patterns, n, e);
}

int bpe_load_pre(struct vocab *v, const struct gguf *g, const char *pre, const char *absent, struct hearth_err *e)
{
    struct gguf_str name = {absent, strlen(absent)};
    int ret = pre ? 1 : load_patterns(v, g, e);
    if (ret <= 0)
        return ret;
    ret = pre ? 0 : gguf_str(g, "tokenizer.ggml.pre", &name, e);
    if (ret < 0)
        return ret;
    if (pre)
        name = (struct gguf_str){pre, strlen(pre)};
    v->pre_kind = pretok_find(name.s, name.n);
    if (!v->pre_kind)
        return err_set(e, HEARTH_EUNSUPPORTED, "pre-tokenizer \"%s\" (tokenizer.ggml.pre) is not one hearth has",
                       gguf_label(name).s);
    v->ignore_merges = v->pre_kind->ignore_merges;
    return pretok_open(&v->pre, v->pre_kind, e);
}

int bpe_load(struct vocab *v, const struct gguf *g, const char *pre, struct hearth_err *e)
{
    int ret = bpe_load_pre(v, g, pre, "default", e);
    if (ret)
        return ret;

    for (uint32_t i = 0; i < v->n_tok; i++) {
        struct piece *p = &v->piece[i];
        char *out = v->arena + v->arena_len;
        /* A control token is not found in plain text, unless it is that of a byte, which a text cannot do without: some
         * makers pad with "!". */
        int len = alphabet_decode(p->s, p->n, out);
        if ((p->attr == TOK_CONTROL || p->attr == TOK_UNKNOWN) && len != 1)
            continue;
        /* A user-defined token is stored as plain text. Merging may produce it too, where its encoded form is the
         * same. */
        p->in_text = len > 0 && !p->apart && (p->attr != TOK_USER || ((size_t)len == p->n && !memcmp(out, p->s, p->n)));
        if (p->in_text) {
            p->s = out;
            p->n = (uint32_t)len;
            v->arena_len += (size_t)len;
        }
    }
    ret = piece_index(v, e);
    if (!ret)
        ret = bpe_load_merges(v, g, alphabet_decode, e);
    for (int b = 0; b < 256; b++)
        v->byte_id[b] = piece_find(v, &(char){(char)b}, 1);
    return ret;
}

bool bpe_pair(const struct vocab *v, const char *text, const struct sym *a, const struct sym *b, uint32_t *priority,
              int32_t *id)
{
    (void)text;
    if (a->id < 0 || b->id < 0)
        return false;
    uint32_t rank = *merge_slot(v, (uint32_t)a->id, (uint32_t)b->id);
    if (!rank)
        return false;
    *priority = rank - 1;
    *id = (int32_t)v->merges[rank - 1].id;
    return true;
}

/* Whether a symbol is a token. Others are results of merges for which a crafted or damaged vocabulary has no token. */
static bool is_token(const struct vocab *v, int32_t id)
{
    return id >= 0 && (uint32_t)id < v->n_tok;
}

/* A byte without a token becomes U+FFFD: some models lack the bytes that never occur in UTF-8. */
static int push_byte(const struct vocab *v, unsigned char byte, struct ids *out)
{
    if (is_token(v, v->byte_id[byte]))
        return ids_push(out, v->byte_id[byte]);
    static const unsigned char replacement[3] = {0xef, 0xbf, 0xbd};
    int ret = 0;
    for (int i = 0; i < 3 && !ret; i++)
        if (is_token(v, v->byte_id[replacement[i]]))
            ret = ids_push(out, v->byte_id[replacement[i]]);
    return ret;
}

static int encode_word(const struct vocab *v, const char *text, size_t from, size_t to, struct merger *m,
                       struct ids *out)
{
    /* A single byte needs no merging, nor does a word that is a token where the vocabulary sets ignore_merges; in other
     * vocabularies a token may exist that no chain of merges produces. */
    if (to - from == 1)
        return push_byte(v, (unsigned char)text[from], out);
    if (v->ignore_merges) {
        int32_t id = piece_find(v, text + from, to - from);
        if (is_token(v, id))
            return ids_push(out, id);
    }
    int ret = 0;
    m->n_sym = 0;
    for (size_t i = from; i < to && !ret; i++)
        ret = merger_push(m, (uint32_t)i, 1, v->byte_id[(unsigned char)text[i]]);
    if (!ret)
        ret = merger_run(m, v, text, bpe_pair);
    for (int32_t i = 0; i >= 0 && !ret; i = m->sym[i].next) {
        const struct sym *s = &m->sym[i];
        if (is_token(v, s->id))
            ret = ids_push(out, s->id);
        else
            for (uint32_t b = 0; b < s->len && !ret; b++)
                ret = push_byte(v, (unsigned char)text[s->start + b], out);
    }
    return ret;
}

static int encode_words(const struct vocab *v, const char *text, size_t n, struct ids *out, struct hearth_err *e)
{
    uint32_t *ends;
    size_t n_word;
    int ret = pretok_split(v->pre, text, n, &ends, &n_word, e);
    if (ret)
        return ret;
    struct merger m = {0};
    for (size_t w = 0, from, to; w < n_word && !ret; w++)
        if (pretok_word(ends, w, &from, &to) && !(ret = pace(to - from, NULL)))
            ret = encode_word(v, text, from, to, &m, out);
    merger_fini(&m);
    free(ends);
    return tok_failed(ret, n, e);
}

int bpe_encode(const struct vocab *v, const char *text, size_t n, struct ids *out, struct hearth_err *e)
{
    if (v->prefix != PREFIX_UNLESS_SPACE || text[0] == ' ')
        return encode_words(v, text, n, out, e);
    char *buf = malloc(n + 1);
    if (!buf)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", n);
    buf[0] = ' ';
    memcpy(buf + 1, text, n);
    int ret = encode_words(v, buf, n + 1, out, e);
    free(buf);
    return ret;
}
