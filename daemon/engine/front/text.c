/* text.c - detokenising with hold-back; see text.h. Thread: the loop's. */
#include "config.h"

#include "daemon/engine/front/text.h"

#include <stdlib.h>
#include <string.h>

int text_init(struct text *t, const struct vocab *v, const char *const *stop, size_t n_stop, struct hearth_err *e)
{
    for (size_t i = 0; i < n_stop; i++) {
        size_t n = strlen(stop[i]);
        if (n == 0)
            return err_set(e, HEARTH_EPARAMS, "generate.stop[%zu]: is empty", i);
        if (n > TEXT_STOP_MAX)
            return err_set(e, HEARTH_EPARAMS, "generate.stop[%zu]: has %zu bytes; %d are allowed", i, n, TEXT_STOP_MAX);
    }
    *t = (struct text){.vocab = v, .stop = stop, .n_stop = n_stop};
    return 0;
}

void text_fini(struct text *t)
{
    free(t->pending);
    free(t->thought);
    free(t->held);
    free(t->held_thought);
    t->pending = t->thought = t->held = t->held_thought = NULL;
}

void text_divide(struct text *t, const struct reasoning_family *f, bool open)
{
    reasoning_begin(&t->reasoning, f, t->vocab, f && open);
}

static int grow(char **v, size_t *cap, size_t need, struct hearth_err *e)
{
    if (need <= *cap)
        return 0;
    char *grown = realloc(*v, 2 * need + 64);
    if (!grown)
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of text", 2 * need + 64);
    *v = grown;
    *cap = 2 * need + 64;
    return 0;
}

/* Discards the output of the last call, and makes room for `more` more bytes. */
static int prepare(struct text *t, size_t more, struct hearth_err *e)
{
    t->n_pending -= t->n_emitted;
    if (t->n_emitted)
        memmove(t->pending, t->pending + t->n_emitted, t->n_pending);
    t->n_emitted = t->n_thought = 0;
    more += reasoning_held(&t->reasoning);
    int rc = grow(&t->pending, &t->cap, t->n_pending + more, e);
    return rc || !t->reasoning.family ? rc : grow(&t->thought, &t->cap_thought, more, e);
}

/* The length of a well-formed character that begins with this byte, 0 if none does (Unicode, table 3-7). */
static size_t utf8_len(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

/* Whether c may follow part[0..n) in a well-formed character. The range of the second byte excludes overlong forms,
 * surrogates and code points beyond U+10FFFF. */
static bool utf8_follows(const unsigned char *part, size_t n, unsigned char c)
{
    unsigned char lo = 0x80, hi = 0xbf;
    if (n == 1) {
        lo = part[0] == 0xe0 ? 0xa0 : part[0] == 0xf0 ? 0x90 : 0x80;
        hi = part[0] == 0xed ? 0x9f : part[0] == 0xf4 ? 0x8f : 0xbf;
    }
    return lo <= c && c <= hi;
}

static void put_part(struct text *t, const char *s, size_t n, bool exact)
{
    struct reasoning_out out = {t->pending, t->thought, t->n_pending, t->n_thought};
    reasoning_feed(&t->reasoning, s, n, exact, &out);
    t->n_pending = out.n_text;
    t->n_thought = out.n_thought;
}

static void put(struct text *t, const void *s, size_t n)
{
    if (t->reasoning.family) {
        put_part(t, s, n, false);
        return;
    }
    memcpy(t->pending + t->n_pending, s, n);
    t->n_pending += n;
}

static const char bad[] = "\xef\xbf\xbd"; /* U+FFFD, which replaces invalid UTF-8 */

/* Appends bytes to the pending text. Each maximal subpart of an ill-formed sequence becomes one U+FFFD, as in browsers
 * (the Unicode standard's substitution of maximal subparts). */
static void put_bytes(struct text *t, const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (t->n_part && !utf8_follows(t->part, t->n_part, s[i])) {
            put(t, bad, sizeof bad - 1);
            t->n_part = 0;
            continue; /* the byte may begin another character */
        }
        if (!t->n_part && !utf8_len(s[i])) {
            put(t, bad, sizeof bad - 1);
            i++;
            continue;
        }
        t->part[t->n_part++] = s[i++];
        if (t->n_part == utf8_len(t->part[0])) {
            put(t, t->part, t->n_part);
            t->n_part = 0;
        }
    }
}

/* The beginning of the stop string that is completed first in s[0..len), or len if there is none. Of several that end
 * at the same place the longest counts. */
static size_t find_stop(const struct text *t, const char *s, size_t len)
{
    size_t begin = len, end = SIZE_MAX;
    for (size_t i = 0; i < t->n_stop; i++) {
        size_t n = strlen(t->stop[i]);
        const char *at = len >= n ? memmem(s, len, t->stop[i], n) : NULL;
        if (!at)
            continue;
        size_t b = (size_t)(at - s);
        if (b + n < end || (b + n == end && b < begin)) {
            begin = b;
            end = b + n;
        }
    }
    return begin;
}

/* The length of the longest suffix of the pending text that is a prefix of a stop string. */
static size_t possible_stop(const struct text *t)
{
    size_t most = 0;
    for (size_t i = 0; i < t->n_stop; i++) {
        size_t n = strlen(t->stop[i]) - 1;
        for (n = n < t->n_pending ? n : t->n_pending; n > most; n--)
            if (!memcmp(t->pending + t->n_pending - n, t->stop[i], n))
                most = n;
    }
    return most;
}

static void emit(struct text *t, size_t upto, const char **out, size_t *n)
{
    t->n_emitted = upto;
    *out = t->pending ? t->pending : "";
    *n = upto;
}

/* A special token terminates an unfinished character. */
static void put_token(struct text *t, const char *s)
{
    if (t->n_part)
        put(t, bad, sizeof bad - 1);
    t->n_part = 0;
    put_part(t, s, strlen(s), true);
}

static void end_at_stop(struct text *t)
{
    size_t stop = find_stop(t, t->pending, t->n_pending);
    if (stop == t->n_pending)
        return;
    t->stopped = true;
    t->n_part = 0;
    t->n_pending = stop;
}

static int push(struct text *t, const char *bytes, size_t len, bool exact, const char **out, size_t *n,
                struct hearth_err *e)
{
    int rc = prepare(t, 3 * (len + 1), e); /* every byte may become a U+FFFD, and so may an unfinished character */
    if (rc)
        return rc;
    if (!t->stopped && exact)
        put_token(t, bytes);
    else if (!t->stopped)
        put_bytes(t, (const unsigned char *)bytes, len);
    end_at_stop(t);
    emit(t, t->stopped ? t->n_pending : t->n_pending - possible_stop(t), out, n);
    return 0;
}

int text_push_bytes(struct text *t, const char *bytes, size_t len, const char **out, size_t *n, struct hearth_err *e)
{
    return push(t, bytes, len, false, out, n, e);
}

static int push_token(struct text *t, int32_t id, const char **out, size_t *n, struct hearth_err *e)
{
    const char *marker = reasoning_token(&t->reasoning, id);
    char piece[512], *big = NULL, *bytes = piece;
    if (marker)
        return push(t, marker, strlen(marker), true, out, n, e);
    size_t len = tok_piece(t->vocab, id, false, piece, sizeof piece);
    if (len > sizeof piece) {
        bytes = big = malloc(len);
        if (!big)
            return err_set(e, HEARTH_ENOMEM, "no memory for a token of %zu bytes", len);
        tok_piece(t->vocab, id, false, big, len);
    }
    int rc = push(t, bytes, len, false, out, n, e);
    free(big);
    return rc;
}

int text_push(struct text *t, int32_t id, const char **out, size_t *n, struct hearth_err *e)
{
    int rc = push_token(t, id, out, n, e);
    if (!rc && !t->stopped)
        reasoning_count(&t->reasoning);
    return rc;
}

int text_held(struct text *t, struct hearth_err *e)
{
    size_t kept = t->n_pending - t->n_emitted, marked = reasoning_held(&t->reasoning), most = kept + marked + 3;
    t->n_held = t->n_held_thought = 0;
    t->held_stops = false;
    if (t->stopped || !(kept + marked + t->n_part))
        return 0;
    int rc = grow(&t->held, &t->cap_held, most, e);
    if (!rc)
        rc = grow(&t->held_thought, &t->cap_held_thought, most, e);
    if (rc)
        return rc;
    struct reasoning rest = t->reasoning;
    struct reasoning_out out = {t->held, t->held_thought, kept, 0};
    if (kept)
        memcpy(t->held, t->pending + t->n_emitted, kept);
    if (t->n_part)
        reasoning_feed(&rest, bad, sizeof bad - 1, false, &out);
    reasoning_end(&rest, &out);
    t->n_held = find_stop(t, t->held, out.n_text);
    t->held_stops = t->n_held < out.n_text;
    t->n_held_thought = out.n_thought;
    return 0;
}
