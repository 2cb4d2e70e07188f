/*
 * tmpl.c - the two chat templates that hearth renders itself, recognised by their markers.
 *
 * ChatML:   <|im_start|>ROLE\nTEXT<|im_end|>\n                          open: <|im_start|>assistant\n
 * Llama 3:  <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>   open: the same with assistant, no text
 *
 * Markers are put in as ids. What stands between two markers (a role's name, the line break and the message) is
 * tokenised as one text without special tokens: the same ids as tokenising the rendered string, and no message can
 * forge a turn. Llama 3 trims its messages, as its own template does, and begins with BOS; ChatML begins with BOS only
 * where the vocabulary asks for it. A default system prompt that a template brings along (Qwen 2.5's "You are Qwen
 * ...") is left out: hearth shows a model what its user wrote and nothing else.
 */
#include "config.h" /* memmem */

#include "daemon/model/tok/tok.h"

#include <stdlib.h>
#include <string.h>

static bool has(struct gguf_str text, const char *part)
{
    return memmem(text.s, text.n, part, strlen(part));
}

enum tmpl_kind tmpl_kind(const struct gguf *g)
{
    struct gguf_str t;
    if (gguf_str(g, "tokenizer.chat_template", &t, NULL))
        return TMPL_NONE;
    if (has(t, "<|start_header_id|>") && has(t, "<|end_header_id|>") && has(t, "<|eot_id|>"))
        return TMPL_LLAMA3;
    if (has(t, "<|im_start|>") && has(t, "<|im_end|>"))
        return TMPL_CHATML;
    return TMPL_NONE;
}

const char *tmpl_name(enum tmpl_kind k)
{
    return k == TMPL_CHATML ? "chatml" : k == TMPL_LLAMA3 ? "llama-3" : NULL;
}

/* A text between markers that grows by parts, and the ids so far. */
struct render {
    const struct vocab *v;
    struct ids *out;
    struct hearth_err *e;
    char *text;
    size_t n, cap;
};

static int text_add(struct render *r, const char *s, size_t n)
{
    if (n > r->cap - r->n) {
        size_t cap = r->n + n + 256;
        char *text = cap > n ? realloc(r->text, cap) : NULL;
        if (!text)
            return err_set(r->e, HEARTH_ENOMEM, "no memory to render a message of %zu bytes", n);
        r->text = text;
        r->cap = cap;
    }
    memcpy(r->text + r->n, s, n);
    r->n += n;
    return 0;
}

static int marker(struct render *r, const char *text)
{
    int ret = tok_encode(r->v, r->text ? r->text : "", r->n, TOK_MESSAGE, r->out, r->e);
    r->n = 0;
    if (ret)
        return ret;
    int32_t id = vocab_special(r->v, text);
    if (id < 0)
        return err_set(r->e, HEARTH_ENOTEMPLATE, "the chat template's %s is no token of this model's vocabulary", text);
    return ids_push(r->out, id) ? err_set(r->e, HEARTH_ENOMEM, "no memory to render messages") : 0;
}

static int header(struct render *r, enum tmpl_kind k, const char *role)
{
    int ret = marker(r, k == TMPL_LLAMA3 ? "<|start_header_id|>" : "<|im_start|>");
    if (!ret)
        ret = text_add(r, role, strlen(role));
    if (!ret && k == TMPL_LLAMA3)
        ret = marker(r, "<|end_header_id|>");
    return ret ? ret : text_add(r, "\n\n", k == TMPL_LLAMA3 ? 2 : 1);
}

static int footer(struct render *r, enum tmpl_kind k)
{
    int ret = marker(r, k == TMPL_LLAMA3 ? "<|eot_id|>" : "<|im_end|>");
    return ret || k == TMPL_LLAMA3 ? ret : text_add(r, "\n", 1);
}

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int message(struct render *r, enum tmpl_kind k, const struct tmpl_msg *m)
{
    const char *s = m->text;
    size_t n = m->n;
    bool tool = !strcmp(m->role, "tool");
    if (!tool && strcmp(m->role, "system") && strcmp(m->role, "user") && strcmp(m->role, "assistant"))
        return err_set(r->e, HEARTH_EPARAMS, "role \"%.40s\"; possible are system, user, assistant and tool", m->role);
    if (k == TMPL_LLAMA3) {
        for (; n && blank(*s); s++)
            n--;
        for (; n && blank(s[n - 1]);)
            n--;
    }
    int ret = header(r, k, tool && k == TMPL_LLAMA3 ? "ipython" : m->role); /* Llama 3's name for what a tool says */
    if (!ret)
        ret = text_add(r, s, n);
    return ret ? ret : footer(r, k);
}

int tmpl_render(const struct vocab *v, enum tmpl_kind k, const struct tmpl_msg *msgs, size_t n, bool first, bool close,
                struct ids *out, struct hearth_err *e)
{
    struct render r = {.v = v, .out = out, .e = e};
    size_t was = out->n;
    if (k == TMPL_NONE)
        return err_set(e, HEARTH_ENOTEMPLATE,
                       "the model's chat template is absent or not one hearth renders (ChatML, Llama 3)");
    int ret = 0;
    if (first && vocab_bos(v) >= 0 && (k == TMPL_LLAMA3 || vocab_add_bos(v)) && ids_push(out, vocab_bos(v)))
        ret = err_set(e, HEARTH_ENOMEM, "no memory to render messages");
    if (!ret && close)
        ret = footer(&r, k);
    for (size_t i = 0; i < n && !ret; i++)
        ret = message(&r, k, &msgs[i]);
    if (!ret)
        ret = header(&r, k, "assistant");
    if (!ret) /* the end of the header is text too */
        ret = tok_encode(v, r.text, r.n, TOK_MESSAGE, out, e);
    free(r.text);
    if (ret)
        out->n = was;
    return ret;
}
