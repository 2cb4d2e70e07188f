/* chat.c - see chat.h. */
#include "config.h" /* open_memstream */

#include "daemon/engine/front/chat.h"
#include "libclient/utf8.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the template's context as JSON ------------------------------------------------------------------------------- */

void chat_put_escaped(FILE *f, const char *s, size_t n)
{
    size_t whole = utf8_prefix(s, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (i == whole) { /* a session's raw text may contain any bytes */
            fputs("\\ufffd", f);
            whole = i + 1 + utf8_prefix(s + i + 1, n - i - 1);
        } else if (c < 0x20 || c == '"' || c == '\\')
            fprintf(f, "\\u%04x", c);
        else
            putc(c, f);
    }
}

void chat_put_string(FILE *f, const char *s, size_t n)
{
    putc('"', f);
    chat_put_escaped(f, s, n);
    putc('"', f);
}

/* Prints the text of a token; nothing if there is none, or if it is not UTF-8, which no template could print. */
static void put_token(FILE *f, const char *key, const char *given, const struct vocab *v, int32_t id)
{
    char piece[256];
    size_t n = given ? strlen(given) : tok_piece(v, id, true, piece, sizeof piece);
    const char *s = given ? given : piece;
    if ((!given && id < 0) || (!given && n > sizeof piece) || utf8_prefix(s, n) != n)
        return;
    fprintf(f, ",\"%s\":", key);
    chat_put_string(f, s, n);
}

static void put_part(FILE *f, const char *key, const char *json)
{
    if (json)
        fprintf(f, ",\"%s\":%s", key, json);
}

/* The client's members follow the switches, so that they take precedence: the JSON text of an object begins with a
 * brace, which is skipped. */
static void put_kwargs(FILE *f, const struct chat *c)
{
    const char *given = c->kwargs ? c->kwargs + 1 : "}";
    if (c->switches)
        fprintf(f, ",\"kwargs\":{%s%s%s", c->switches, *given == '}' ? "" : ",", given);
    else
        put_part(f, "kwargs", c->kwargs);
}

static int context(const struct vocab *v, const struct chat *c, char **out, size_t *n, struct hearth_err *e)
{
    FILE *f = open_memstream(out, n);
    if (!f)
        return err_set(e, HEARTH_ENOMEM, "no memory for a conversation");
    fprintf(f, "{\"add_generation_prompt\":%s", c->open ? "true" : "false");
    put_part(f, "messages", c->messages);
    put_part(f, "tools", c->tools);
    put_part(f, "documents", c->documents);
    put_token(f, "bos_token", c->bos_token, v, vocab_bos(v));
    put_token(f, "eos_token", c->eos_token, v, vocab_eos(v));
    put_kwargs(f, c);
    putc('}', f);
    bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(*out);
        return err_set(e, HEARTH_ENOMEM, "no memory for a conversation");
    }
    return 0;
}

/* --- rendering ---------------------------------------------------------------------------------------------------- */

static int render(const struct jinja *t, const struct vocab *v, const struct chat *c, struct jinja_text *out,
                  struct hearth_err *e)
{
    struct jinja_err why;
    struct tm now;
    char *json;
    size_t n;
    jinja_local_now(&now);
    if (c->now && !jinja_parse_now(c->now, &now))
        return err_set(e, HEARTH_EPARAMS, "render.now: \"%.40s\" is no local time as 2026-11-22T10:00", c->now);
    int rc = context(v, c, &json, &n, e);
    if (rc)
        return rc;
    if (jinja_render_chat(t, json, n, &now, out, &why))
        rc = template_failed(&why, e);
    free(json);
    return rc;
}

/* Templates are compiled when they are first needed; from then on they are constant. */
static pthread_mutex_t compiling = PTHREAD_MUTEX_INITIALIZER;

int chat_render(struct model_entry *m, const struct chat *c, struct jinja_text *out, struct hearth_err *e)
{
    const struct jinja *own;
    struct jinja *given;
    struct jinja_err why;
    if (c->source) {
        if (jinja_compile(&given, c->source, strlen(c->source), &why))
            return template_failed(&why, e);
        int rc = render(given, m->vocab, c, out, e);
        jinja_free(given);
        return rc;
    }
    struct templates *all;
    pthread_mutex_lock(&compiling);
    int rc = models_templates(m, &all, e);
    if (!rc)
        rc = templates_get(all, c->template_name, c->tools != NULL, &own, e);
    pthread_mutex_unlock(&compiling);
    return rc ? rc : render(own, m->vocab, c, out, e);
}

int chat_source(struct model_entry *m, const struct chat *c, const char **source, size_t *n, struct hearth_err *e)
{
    struct templates *all;
    if (c->source) {
        *source = c->source;
        *n = strlen(c->source);
        return 0;
    }
    pthread_mutex_lock(&compiling);
    int rc = models_templates(m, &all, e);
    if (!rc)
        rc = templates_source(all, c->template_name, c->tools != NULL, source, n, e);
    pthread_mutex_unlock(&compiling);
    return rc;
}

void chat_templates_of(struct model_entry *m, const char **names, struct hearth_err *why)
{
    struct templates *all;
    const struct jinja *t;
    *names = NULL;
    *why = (struct hearth_err){0};
    pthread_mutex_lock(&compiling);
    if (!models_templates(m, &all, why) && templates_names(all) &&
        (!templates_get(all, NULL, false, &t, why) || why->code == HEARTH_ENOTEMPLATE))
        *names = templates_names(all); /* a model without a default template still has named ones */
    pthread_mutex_unlock(&compiling);
}

int chat_encode(const struct vocab *v, const struct jinja_text *text, size_t from, int flags, struct ids *out,
                struct hearth_err *e)
{
    size_t was = out->n, n = 0;
    struct tok_span *span = malloc((text->n_span + 1) * sizeof *span);
    if (!span)
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", text->n);
    for (size_t i = 0; i < text->n_span; i++) {
        const struct jinja_span *s = &text->span[i];
        if (s->to > from)
            span[n++] = (struct tok_span){s->from > from ? s->from - (uint32_t)from : 0, s->to - (uint32_t)from};
    }
    int rc = tok_encode_spans(v, text->data + from, text->n - from, flags, span, n, out, e);
    free(span);
    if (rc || (flags & TOK_GOES_ON) || !vocab_add_bos(v) || (out->n > was && out->v[was] == vocab_bos(v)))
        return rc;
    if (ids_push(out, 0)) {
        out->n = was;
        return err_set(e, HEARTH_ENOMEM, "no memory to tokenize %zu bytes", text->n);
    }
    memmove(out->v + was + 1, out->v + was, (out->n - was - 1) * sizeof *out->v);
    out->v[was] = vocab_bos(v);
    return 0;
}
