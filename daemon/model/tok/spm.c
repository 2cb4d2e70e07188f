/*
 * spm.c - SentencePiece as the "llama" vocabularies use it: the neighbours that form the token with the best score are
 * merged first, and characters without a token fall back to byte tokens.
 *
 * SentencePiece writes a space as U+2581, so that character itself cannot be distinguished from a space once it is
 * tokenised. These vocabularies lose that information by design; hearth cannot restore it.
 */
#include "daemon/model/tok/tok-internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char low_line[] = "\xe2\x96\x81"; /* U+2581 */

/* Copies s with a space in place of each U+2581; returns the length. */
int spm_decode(const char *s, size_t n, char *out)
{
    int len = 0;
    for (size_t i = 0; i < n;) {
        if (n - i >= 3 && !memcmp(s + i, low_line, 3)) {
            out[len++] = ' ';
            i += 3;
        } else {
            out[len++] = s[i++];
        }
    }
    return len;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int spm_byte(const char *s)
{
    if (memcmp(s, "<0x", 3) || s[5] != '>' || hex(s[3]) < 0 || hex(s[4]) < 0)
        return -1;
    return hex(s[3]) << 4 | hex(s[4]);
}

int spm_load_pieces(struct vocab *v, struct hearth_err *e)
{
    memset(v->byte_id, 0xff, sizeof v->byte_id);
    for (uint32_t i = 0; i < v->n_tok; i++) {
        struct piece *p = &v->piece[i];
        char *out = v->arena + v->arena_len;
        if (p->attr == TOK_BYTE) {
            int byte = p->n == SPM_BYTE ? spm_byte(p->s) : -1;
            if (byte < 0)
                return err_set(e, HEARTH_EBADMODEL, "token %u is of type byte and its text is not <0xHH>", i);
            if (v->byte_id[byte] < 0)
                v->byte_id[byte] = (int32_t)i;
            out[0] = (char)byte;
            p->s = out;
            p->n = 1;
            v->arena_len++;
        } else if (p->attr == TOK_NORMAL || p->attr == TOK_UNUSED || (p->attr == TOK_USER && v->leftmost)) {
            p->n = (uint32_t)spm_decode(p->s, p->n, out);
            p->s = out;
            p->in_text = p->n > 0 && !p->apart;
            v->arena_len += p->n;
        } else if (p->attr == TOK_USER) {
            p->in_text = true; /* its text is not encoded in GGUF */
        }
    }
    return piece_index(v, e);
}

int spm_load(struct vocab *v, const struct gguf *g, struct hearth_err *e)
{
    int ret = gguf_f32s(g, "tokenizer.ggml.scores", &v->scores, e);
    if (ret)
        return ret < 0 ? ret : err_set(e, HEARTH_EBADMODEL, "key tokenizer.ggml.scores is missing");
    if (v->scores.n != v->n_tok)
        return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.scores has %zu entries for %u tokens", v->scores.n,
                       v->n_tok);
    for (uint32_t i = 0; i < v->n_tok; i++)
        if (isnan(gguf_f32_at(&v->scores, i)))
            return err_set(e, HEARTH_EBADMODEL, "tokenizer.ggml.scores: entry %u is not a number", i);
    return spm_load_pieces(v, e);
}

/* Maps floats to integers so that descending floats become ascending integers. */
static uint32_t priority_of(float score)
{
    uint32_t u;
    score += 0.0f; /* makes -0 and 0 the same score */
    memcpy(&u, &score, 4);
    return u & 0x80000000u ? u : ~u & 0x7fffffffu;
}

static bool spm_pair(const struct vocab *v, const char *text, const struct sym *a, const struct sym *b,
                     uint32_t *priority, int32_t *id)
{
    int32_t found = piece_find(v, text + a->start, (size_t)a->len + b->len);
    if (found < 0)
        return false;
    *priority = priority_of(gguf_f32_at(&v->scores, (size_t)found));
    *id = found;
    return true;
}

int spm_encode(const struct vocab *v, const char *text, size_t n, enum vocab_prefix prefix, struct ids *out,
               struct hearth_err *e)
{
    struct merger m = {0};
    char *buf = malloc(n + 1);
    int ret = buf ? 0 : HEARTH_ENOMEM;
    size_t len = 0;
    if (!ret) {
        if (prefix != PREFIX_NEVER)
            buf[len++] = ' ';
        len += (size_t)spm_decode(text, n, buf + len);
    }
    for (size_t i = 0; i < len && !ret;) {
        /* A symbol's length is that of its first byte's UTF-8 sequence; bytes that are not UTF-8 become byte tokens in
         * either case. */
        unsigned char c = (unsigned char)buf[i];
        size_t size = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (size > len - i)
            size = len - i;
        ret = merger_push(&m, (uint32_t)i, (uint32_t)size, piece_find(v, buf + i, size));
        i += size;
    }
    if (!ret)
        ret = merger_run(&m, v, buf, spm_pair);
    for (int32_t i = m.n_sym ? 0 : -1; i >= 0 && !ret; i = m.sym[i].next) {
        const struct sym *s = &m.sym[i];
        if (s->id >= 0)
            ret = ids_push(out, s->id);
        else
            for (uint32_t b = 0; b < s->len && !ret; b++) {
                int32_t id = v->byte_id[(unsigned char)buf[s->start + b]];
                if (id >= 0 || v->unk >= 0)
                    ret = ids_push(out, id >= 0 ? id : v->unk);
            }
    }
    merger_fini(&m);
    free(buf);
    return tok_failed(ret, n, e);
}
