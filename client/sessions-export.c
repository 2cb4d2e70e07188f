/*
 * sessions-export.c - hearth sessions export: writes a session as one JSON document, or as Markdown.
 *
 * The document is written as the pages arrive, one turn per line, so a large session needs memory for its largest turn
 * only; members that are known only at the end are at the document's end. sessions-import.c reads the document, and
 * hearth(1) describes it.
 */
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

/* A turn that is being assembled: it began in `page`, and its texts and tokens are joined here. */
struct whole {
    struct hearth_session_page *page;
    struct hearth_turn turn;
    char *text;
    int32_t *ids;
    bool any;
};

struct export
{
    bool markdown;
    int64_t turns, tokens;
    struct whole whole;
    bool turn_open, pinned; /* as of the last page */
    double used;
};

static void *grown(void *p, size_t n)
{
    p = realloc(p, n ? n : 1);
    if (!p)
        abort();
    return p;
}

static void join(struct whole *w, const struct hearth_turn *t)
{
    size_t len = w->turn.text.len, n = w->turn.tokens.n;
    w->text = grown(w->text, len + t->text.len + 1);
    w->ids = grown(w->ids, (n + t->tokens.n) * sizeof *w->ids);
    if (t->text.len)
        memcpy(w->text + len, t->text.data, t->text.len);
    if (t->tokens.n)
        memcpy(w->ids + n, t->tokens.v, t->tokens.n * sizeof *w->ids);
    w->text[len + t->text.len] = '\0';
    w->turn.text = (struct hearth_bytes){w->text, len + t->text.len};
    w->turn.tokens = (struct hearth_ids){w->ids, n + t->tokens.n};
}

/* JSON cannot hold bytes that are not UTF-8: for such a text the document has the text with U+FFFD for people, and the
 * bytes in hexadecimal for the import. */
static json_t *json_whole(const struct hearth_turn *t)
{
    json_t *o = json_pack("{s:o, s:f, s:o}", "role", json_str(t->role), "created", t->created, "text",
                          json_text(t->text.data, t->text.len));
    if (!utf8_is(t->text.data, t->text.len)) {
        char *hex = grown(NULL, 2 * t->text.len + 1);
        for (size_t i = 0; i < t->text.len; i++)
            snprintf(hex + 2 * i, 3, "%02x", (unsigned char)t->text.data[i]);
        json_object_set_new(o, "text_hex", json_string(hex));
        free(hex);
    }
    if (t->reasoning.len)
        json_object_set_new(o, "reasoning", json_text(t->reasoning.data, t->reasoning.len));
    json_object_set_new(o, "tokens", json_ids(t->tokens));
    if (t->has_generation)
        json_object_set_new(o, "generation", json_generation_info(&t->generation));
    json_t *message = t->message ? json_loads(t->message, JSON_ALLOW_NUL, NULL) : NULL;
    if (message)
        json_object_set_new(o, "message", message);
    return o;
}

static bool put_json(json_t *value)
{
    bool ok = value && !json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_DIGITS);
    json_decref(value);
    return ok;
}

static bool put_whole(struct export *x)
{
    struct whole *w = &x->whole;
    bool ok = true;
    if (w->any && x->markdown) {
        markdown_turn(&w->turn);
    } else if (w->any) {
        fputs(x->turns ? ",\n" : "\n", stdout);
        ok = put_json(json_whole(&w->turn));
    }
    if (w->any) {
        x->turns++;
        x->tokens += (int64_t)w->turn.tokens.n;
    }
    w->any = false;
    return ok;
}

/* Writes a page and takes ownership of it. */
static bool put_turns(struct export *x, struct hearth_session_page *page)
{
    struct whole *w = &x->whole;
    bool ok = true, began = false;
    for (size_t i = 0; ok && i < page->n_turns; i++) {
        const struct hearth_turn *t = &page->turns[i];
        if (!t->continues || !w->any) {
            ok = put_whole(x);
            w->turn = *t; /* its strings belong to the page, which is freed once the next turn has begun */
            w->turn.text = (struct hearth_bytes){0};
            w->turn.tokens = (struct hearth_ids){0};
            w->any = began = true;
        }
        join(w, t);
    }
    x->turn_open = page->turn_open;
    x->pinned = page->session.pinned;
    x->used = page->session.used;
    hearth_free(began ? w->page : page);
    if (began)
        w->page = page;
    return ok;
}

/* Writes the members of the document that precede the turns, as `"key":value,`. The model is described as by
 * models.show, because an import needs the same tokenizer; where its file no longer exists, only its names are written.
 */
static bool put_head(struct hearth *h, const struct hearth_session_page *page)
{
    const struct hearth_session *s = &page->session;
    struct hearth_model *m;
    struct hearth_err err;
    json_t *model = json_pack("{s:o, s:o}", "named", json_str(s->model), "path", json_str(s->path));
    if (!hearth_models_show(h, s->path, &m, NULL, &err)) {
        json_t *more = json_model(m, true);
        json_object_del(more, "loaded");
        json_object_update(model, more);
        json_decref(more);
        hearth_free(m);
    }
    printf("{\"hearth_session\":%d,\n\"name\":", HEARTH_EXPORT_VERSION);
    bool ok = put_json(json_str(s->name)) && fputs(",\"id\":", stdout) >= 0 && put_json(json_str(s->id));
    printf(",\"created\":%.15g,\n\"model\":", s->created);
    ok = put_json(model) && ok;
    fputs(",\n\"turns\":[", stdout);
    return ok;
}

static void put_tail(const struct export *x)
{
    printf("\n],\n\"n_turns\":%lld,\"n_tokens\":%lld,\"turn_open\":%s,\"pinned\":%s,\"used\":%.15g}\n",
           (long long)x->turns, (long long)x->tokens, x->turn_open ? "true" : "false", x->pinned ? "true" : "false",
           x->used);
}

int sessions_export(struct hearth *h, const char *session, bool markdown)
{
    struct export x = {.markdown = markdown};
    char id[64] = "";
    int64_t from = 0;
    bool ok = true;
    int status = STATUS_OK;
    while (ok && from >= 0) {
        struct hearth_session_page *page;
        struct hearth_err err;
        if (hearth_sessions_export(h, from ? id : session, from, &page, NULL, &err)) {
            status = fail(&err);
            break;
        }
        if (!from && markdown)
            markdown_head(&page->session);
        else if (!from)
            ok = put_head(h, page);
        snprintf(id, sizeof id, "%s", page->session.id); /* the name may be given to another session meanwhile */
        from = page->next;
        ok = put_turns(&x, page) && ok;
    }
    ok = put_whole(&x) && ok;
    if (!ok) {
        fputs("hearth: the session could not be written as JSON\n", stderr);
        status = STATUS_ERROR;
    }
    if (status == STATUS_OK && !markdown)
        put_tail(&x);
    hearth_free(x.whole.page);
    free(x.whole.text);
    free(x.whole.ids);
    return status;
}
