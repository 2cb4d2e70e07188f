/*
 * chat-append.c - what a generation's messages append to its session's timeline.
 *
 * A template renders whole conversations, but a timeline only grows. So the whole conversation is rendered, the
 * session's messages and the new ones, and what follows the session's part is appended: if the text begins with the
 * text of the timeline, the rest of it. But many templates render an answer differently once it is history (without its
 * reasoning, trimmed, without the tools), and some tokenizers do not reproduce a text exactly. In that case the
 * conversation is rendered a second time with a different last answer: the suffix that both texts have in common is
 * what follows the answer. The timeline stays as it is; that the template would have changed it is reported.
 */
#include "config.h" /* open_memstream */

#include "daemon/engine/front/chat.h"
#include "libclient/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- messages as JSON --------------------------------------------------------------------------------------------- */

struct talk {
    const struct wire_engine_generate *g;
    struct model_entry *m;
    bool parts;         /* the template reads content as a list of parts; otherwise their texts are joined */
    const char *answer; /* replaces the last past message's content; NULL: keep it */
    const char *key;    /* of an answer's reasoning; NULL: the content contains it, enclosed in the next two */
    const char *before, *after;
    const char *blank; /* stands for the content of past answers that have none; NULL: "" */
    const char *switches;
    char now[32]; /* so that both renderings use the same time */
};

static void put_content(FILE *f, const struct wire_message *msg, const struct wire_bytes *reasoning,
                        const struct talk *t, const char *answer)
{
    if (t->parts && msg->parts && !answer) {
        for (size_t k = 0; k < msg->n_parts; k++) {
            fputs(k ? ",{\"type\":\"text\",\"text\":" : "[{\"type\":\"text\",\"text\":", f);
            chat_put_string(f, msg->parts[k].text.data, msg->parts[k].text.len);
            putc('}', f);
        }
        fputs(msg->n_parts ? "]" : "[]", f);
        return;
    }
    putc('"', f);
    if (reasoning->len && t->before && !t->key) {
        chat_put_escaped(f, t->before, strlen(t->before));
        chat_put_escaped(f, reasoning->data, reasoning->len);
        chat_put_escaped(f, t->after, strlen(t->after));
    }
    if (answer)
        chat_put_escaped(f, answer, strlen(answer));
    else if (!msg->parts && (msg->content.len || !t->blank || strcmp(msg->role, "assistant") != 0))
        chat_put_escaped(f, msg->content.data, msg->content.len);
    else if (!msg->parts)
        chat_put_escaped(f, t->blank, strlen(t->blank));
    for (size_t k = 0; k < msg->n_parts && !answer; k++)
        chat_put_escaped(f, msg->parts[k].text.data, msg->parts[k].text.len);
    putc('"', f);
}

static bool is_text(const struct wire_message *msg)
{
    bool ok = utf8_prefix(msg->content.data, msg->content.len) == msg->content.len;
    for (size_t k = 0; k < msg->n_parts; k++)
        ok = ok && utf8_prefix(msg->parts[k].text.data, msg->parts[k].text.len) == msg->parts[k].text.len;
    return ok;
}

/* The end of the JSON string that begins at s: its closing quotation mark. */
static const char *string_end(const char *s)
{
    while (*++s != '"')
        s += *s == '\\';
    return s;
}

/* Whether the content of a message with additional keys is a list. The JSON was written by us, without whitespace. */
static bool has_list(const struct wire_message *msg)
{
    static const char key[] = "\"content\":";
    int depth = 0;
    for (const char *p = msg->json ? msg->json : ""; *p; p++) {
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        if (*p != '"')
            continue;
        if (depth == 1 && strncmp(p, key, sizeof key - 1) == 0)
            return p[sizeof key - 1] == '[';
        p = string_end(p);
    }
    return false;
}

static void put_message(FILE *f, const struct wire_message *msg, const struct wire_bytes *reasoning,
                        const struct talk *t, const char *answer)
{
    static const struct wire_bytes none;
    if (msg->json && !answer && (t->parts || !has_list(msg))) {
        fputs(msg->json, f);
        return;
    }
    if (msg->json && !answer) { /* if a key occurs twice the last one counts */
        fprintf(f, "%.*s,\"content\":", (int)strlen(msg->json) - 1, msg->json);
        put_content(f, msg, &none, t, NULL);
        putc('}', f);
        return;
    }
    fputs("{\"role\":", f);
    chat_put_string(f, msg->role, strlen(msg->role));
    fputs(",\"content\":", f);
    put_content(f, msg, reasoning, t, answer);
    if (reasoning->len && t->key) {
        fprintf(f, ",\"%s\":", t->key);
        chat_put_string(f, reasoning->data, reasoning->len);
    }
    putc('}', f);
}

static int messages_json(const struct talk *t, char **out, struct hearth_err *e)
{
    const struct wire_engine_generate *g = t->g;
    const struct wire_bytes none = {0};
    size_t n;
    for (size_t i = 0; i < g->req.n_messages; i++)
        if (!is_text(&g->req.messages[i]))
            return err_set(e, HEARTH_EPARAMS, "generate.messages[%zu].content: is not valid UTF-8", i);
    FILE *f = open_memstream(out, &n);
    if (!f)
        return err_set(e, HEARTH_ENOMEM, "no memory for a conversation");
    putc('[', f);
    for (size_t i = 0; i < g->n_past; i++) {
        if (i)
            putc(',', f);
        put_message(f, &g->past[i].message, &g->past[i].reasoning, t, i + 1 == g->n_past ? t->answer : NULL);
    }
    for (size_t i = 0; i < g->req.n_messages; i++) {
        if (i || g->n_past)
            putc(',', f);
        put_message(f, &g->req.messages[i], &none, t, NULL);
    }
    putc(']', f);
    bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(*out);
        return err_set(e, HEARTH_ENOMEM, "no memory for a conversation");
    }
    return 0;
}

/* --- rendering ---------------------------------------------------------------------------------------------------- */

static struct chat chat_of(const struct talk *t, const char *messages)
{
    const struct wire_generate *req = &t->g->req;
    return (struct chat){
        .messages = messages,
        .tools = req->tools,
        .documents = req->documents,
        .kwargs = req->kwargs,
        .source = req->chat_template,
        .template_name = req->template_name,
        .now = t->now,
        .switches = t->switches,
        .open = true,
    };
}

static int render(const struct talk *t, struct jinja_text *out, struct hearth_err *e)
{
    char *json;
    int rc = messages_json(t, &json, e);
    if (rc)
        return rc;
    struct chat chat = chat_of(t, json);
    rc = chat_render(t->m, &chat, out, e);
    free(json);
    return rc;
}

/* Whether the template handles a content that is a list of parts; one that just prints it would print Python's list
 * syntax. */
static bool reads_parts(const struct talk *t)
{
    struct chat chat = chat_of(t, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Q\"}]}]");
    struct jinja_text text;
    struct hearth_err ignored;
    if (chat_render(t->m, &chat, &text, &ignored))
        return false;
    bool reads = strchr(text.data, 'Q') && !strstr(text.data, "'text'");
    jinja_text_fini(&text);
    return reads;
}

static bool has_parts(const struct wire_engine_generate *g)
{
    bool any = false;
    for (size_t i = 0; i < g->n_past; i++)
        any |= has_list(&g->past[i].message);
    for (size_t i = 0; i < g->req.n_messages; i++)
        any |= g->req.messages[i].parts != NULL;
    return any;
}

/* --- finding the end of the session's part ------------------------------------------------------------------------ */

struct bytes {
    char *s;
    size_t n;
};

static int spell(const struct vocab *v, const int32_t *id, size_t n, struct bytes *out, struct hearth_err *e)
{
    size_t need = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        need += tok_piece(v, id[i], true, NULL, 0);
    if (!(out->s = malloc(need + 1)))
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of text", need);
    for (size_t i = 0; i < n; i++)
        at += tok_piece(v, id[i], true, out->s + at, need - at);
    out->n = at;
    return 0;
}

/* The length of the BOS that a text begins with; 0 if there is none. */
static size_t bos_at(const struct vocab *v, const char *s, size_t n)
{
    char bos[64];
    size_t len = vocab_bos(v) < 0 ? 0 : tok_piece(v, vocab_bos(v), true, bos, sizeof bos);
    return len && len <= sizeof bos && len <= n && !memcmp(s, bos, len) ? len : 0;
}

static bool equal(const char *a, size_t n_a, const char *b, size_t n_b)
{
    return n_a == n_b && !memcmp(a, b, n_b);
}

/* Finds the end of the last answer by rendering with a different one in its place. */
static int find_by_answer(const struct talk *t, const struct jinja_text *text, size_t *from, struct hearth_err *e)
{
    const struct wire_bytes *was = &t->g->past[t->g->n_past - 1].message.content;
    struct talk other = *t;
    struct jinja_text with;
    size_t end = was->len, same = 0;
    while (end && (unsigned char)was->data[end - 1] <= ' ')
        end--;
    other.answer = end && was->data[end - 1] == 'Q' ? "Z" : "Q"; /* must end differently than the answer */
    int rc = render(&other, &with, e);
    if (rc)
        return rc;
    while (same < text->n && same < with.n && text->data[text->n - 1 - same] == with.data[with.n - 1 - same])
        same++;
    bool found = same < text->n && same < with.n;
    jinja_text_fini(&with);
    if (!found)
        return err_set(e, HEARTH_ETEMPLATE, "the chat template leaves out the session's last answer");
    *from = text->n - same;
    return 0;
}

/* Sets *kept unless the text up to `end`, encoded and decoded again, equals the text of the timeline. */
static int compare(const struct talk *t, const struct jinja_text *text, size_t base, size_t end,
                   const struct bytes *spelt, bool *kept, struct hearth_err *e)
{
    const struct vocab *v = t->m->vocab;
    struct jinja_text part = *text;
    struct ids ids = {0};
    struct bytes back = {0};
    part.n = end;
    for (part.n_span = 0; part.n_span < text->n_span && text->span[part.n_span].to <= end;)
        part.n_span++;
    /* Encoded as it was then: from the start of the timeline, or after raw text and without the BOS. */
    bool first = t->g->past_at == 0;
    int rc = chat_encode(v, &part, first ? 0 : base, first ? 0 : TOK_GOES_ON, &ids, e);
    if (!rc)
        rc = spell(v, ids.v, ids.n, &back, e);
    if (!rc) {
        size_t skip = bos_at(v, back.s, back.n), own = bos_at(v, spelt->s, spelt->n);
        *kept = !equal(back.s + skip, back.n - skip, spelt->s + own, spelt->n - own);
    }
    free(back.s);
    ids_fini(&ids);
    return rc;
}

/* The end of the control tokens at text[from] with which the timeline ends: the model has written them itself, after
 * its answer's text. */
static int skip_written(const struct talk *t, const struct jinja_text *text, size_t *from, struct hearth_err *e)
{
    const struct wire_ids *h = &t->g->history;
    const struct vocab *v = t->m->vocab;
    size_t n = h->n;
    int rc = 0;
    while (n > (size_t)t->g->past_at && !tok_piece(v, h->v[n - 1], false, NULL, 0))
        n--;
    for (bool found = false; n < h->n && !rc && !found; n++) {
        struct bytes written = {0};
        rc = spell(v, h->v + n, h->n - n, &written, e);
        found = !rc && written.n && written.n <= text->n - *from && !memcmp(text->data + *from, written.s, written.n);
        *from += found ? written.n : 0;
        free(written.s);
    }
    return rc;
}

/* The marker that closes the reasoning in which an answer was cut is ours, where we put it into the content. */
static void own_marker(const struct talk *t, const struct jinja_text *text, size_t from)
{
    size_t n = t->key || !t->after ? 0 : strlen(t->after);
    if (!n || n > text->n - from || memcmp(text->data + from, t->after, n) != 0)
        return;
    for (size_t i = 0; i < text->n_span; i++) {
        struct jinja_span *s = &text->span[i];
        if (s->to > from && s->from < from + n)
            s->from = s->to < from + n ? s->to : (uint32_t)(from + n);
    }
}

static int find_end(const struct talk *t, const struct jinja_text *text, size_t *from, bool *kept, struct hearth_err *e)
{
    const struct wire_engine_generate *g = t->g;
    const struct vocab *v = t->m->vocab;
    struct bytes spelt;
    size_t base = bos_at(v, text->data, text->n), at = (size_t)g->past_at;
    *from = base; /* a session without messages continues with the whole text */
    if (!g->n_past)
        return 0;
    int rc = spell(v, g->history.v + at, g->history.n - at, &spelt, e);
    if (rc)
        return rc;
    size_t own = bos_at(v, spelt.s, spelt.n), n = spelt.n - own;
    bool blank = t->blank && !g->past[g->n_past - 1].message.content.len; /* the text has something in its place */
    if (!blank && text->n - base >= n && !memcmp(text->data + base, spelt.s + own, n)) {
        *from = base + n;
        own_marker(t, text, *from);
    } else {
        rc = find_by_answer(t, text, from, e);
        if (!rc && *from < base)
            *from = base;
        if (!rc)
            rc = skip_written(t, text, from, e);
        if (!rc)
            rc = compare(t, text, base, *from, &spelt, kept, e);
    }
    free(spelt.s);
    return rc;
}

/* --- reasoning ---------------------------------------------------------------------------------------------------- */

/* Determines from the template's source the family, how it is asked to make the model think, and where it reads an
 * answer's reasoning. */
static int take_family(struct talk *t, struct prompt_told *told, struct hearth_err *e)
{
    struct chat chat = chat_of(t, NULL);
    const char *source, *think = t->g->req.think;
    size_t n;
    int rc = chat_source(t->m, &chat, &source, &n, e);
    if (rc)
        return rc;
    told->family = reasoning_family_of(source, n, t->m->vocab);
    if (told->family)
        t->key = reasoning_key(told->family, source, n, &t->before, &t->after);
    if (think)
        t->switches = reasoning_switches(told->family, !strcmp(think, "on"));
    return 0;
}

/* Whether asking for the opposite would not change the template's output. Not reported if a model without reasoning is
 * asked not to think. */
static bool think_unknown(const struct talk *t, const struct jinja_text *text, const struct prompt_told *told)
{
    const char *think = t->g->req.think;
    struct talk other = *t;
    struct jinja_text with;
    struct hearth_err ignored;
    if (!think || (!told->family && strcmp(think, "on") != 0))
        return false;
    other.switches = reasoning_switches(told->family, strcmp(think, "on") != 0);
    if (render(&other, &with, &ignored))
        return false;
    bool same = equal(text->data, text->n, with.data, with.n);
    jinja_text_fini(&with);
    return same;
}

static bool has_blank(const struct wire_engine_generate *g)
{
    for (size_t i = 0; i < g->n_past; i++)
        if (!g->past[i].message.content.len && !strcmp(g->past[i].message.role, "assistant"))
            return true;
    return false;
}

int chat_append(const struct wire_engine_generate *g, struct model_entry *m, struct ids *out, struct prompt_told *told,
                struct hearth_err *e)
{
    struct talk t = {.g = g, .m = m};
    struct jinja_text text;
    struct tm now;
    size_t from = 0, reach = vocab_reach(m->vocab);
    if (g->past_at < 0 || (uint64_t)g->past_at > g->history.n)
        return err_set(e, HEARTH_EPARAMS, "past_at is %lld of %zu tokens", (long long)g->past_at, g->history.n);
    jinja_local_now(&now);
    strftime(t.now, sizeof t.now, "%Y-%m-%dT%H:%M:%S", &now);
    int rc = take_family(&t, told, e);
    if (rc)
        return rc;
    t.parts = has_parts(g) && reads_parts(&t);
    rc = render(&t, &text, e);
    if (rc == HEARTH_ETEMPLATE && has_blank(g)) { /* some templates refuse an answer without text */
        struct hearth_err ignored;
        t.blank = ".";
        rc = render(&t, &text, &ignored) ? rc : 0;
    }
    if (rc)
        return rc;
    told->think_unknown = think_unknown(&t, &text, told);
    told->open = told->family && reasoning_is_open(told->family, text.data, text.n);
    if (g->history.n)
        rc = find_end(&t, &text, &from, &told->history_kept, e);
    if (!rc && (text.n - from) / reach > m->hp.n_ctx)
        rc = err_set(e, HEARTH_ECONTEXT, "the messages become %zu bytes; the context of the model is %u tokens",
                     text.n - from, m->hp.n_ctx);
    if (!rc)
        rc = chat_encode(m->vocab, &text, from, g->history.n ? TOK_GOES_ON : 0, out, e);
    jinja_text_fini(&text);
    return rc;
}
