/* prompt.c - from text, messages or ids to the ids that a request appends to its timeline. Any thread. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/front/rpc.h"

int prompt_check_ids(const char *what, const int32_t *id, size_t n, uint32_t n_vocab, struct hearth_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (id[i] < 0 || (uint32_t)id[i] >= n_vocab)
            return err_set(e, HEARTH_EPARAMS, "%s[%zu] is %d, not in the vocabulary of %u", what, i, id[i], n_vocab);
    return 0;
}

static int append(struct ids *out, const int32_t *id, size_t n, struct hearth_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids_push(out, id[i]))
            return err_set(e, HEARTH_ENOMEM, "no memory for %zu tokens", n);
    return 0;
}

/* Converts a message for the chat template. Its text is one string; several parts are joined in *joined, the caller's
 * to free. */
static int message_text(const struct wire_message *msg, size_t i, struct tmpl_msg *out, char **joined,
                        struct hearth_err *e)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    size_t n = 0, role = 0;
    while (role < 3 && strcmp(msg->role ? msg->role : "", roles[role]))
        role++;
    if (role == 3)
        return err_set(e, HEARTH_EPARAMS, "messages[%zu].role is \"%.40s\", not one of system, user, assistant", i,
                       msg->role ? msg->role : "");
    *out = (struct tmpl_msg){roles[role], msg->content.data ? msg->content.data : "", msg->content.len};
    if (!msg->n_parts)
        return 0;
    for (size_t k = 0; k < msg->n_parts; k++) {
        if (strcmp(msg->parts[k].type ? msg->parts[k].type : "", "text"))
            return err_set(e, HEARTH_EUNSUPPORTED,
                           "messages[%zu].content[%zu]: parts of type \"%.40s\" are not supported", i, k,
                           msg->parts[k].type ? msg->parts[k].type : "");
        n += msg->parts[k].text.len;
    }
    char *s = *joined = malloc(n + 1);
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory for a message of %zu bytes", n);
    out->text = s;
    out->n = n;
    for (size_t k = 0; k < msg->n_parts; k++) {
        if (msg->parts[k].text.len)
            memcpy(s, msg->parts[k].text.data, msg->parts[k].text.len);
        s += msg->parts[k].text.len;
    }
    return 0;
}

static int render(const struct wire_engine_generate *g, const struct model_entry *m, struct ids *out,
                  struct hearth_err *e)
{
    size_t n = g->req.n_messages, done = 0;
    int rc = 0;
    struct tmpl_msg *msg = calloc(n, sizeof *msg);
    char **joined = calloc(n, sizeof *joined);
    if (!msg || !joined)
        rc = err_set(e, HEARTH_ENOMEM, "no memory for %zu messages", n);
    while (!rc && done < n) {
        rc = message_text(&g->req.messages[done], done, &msg[done], &joined[done], e);
        done++;
    }
    if (!rc)
        rc = tmpl_render(m->vocab, m->tmpl, msg, n, g->history.n == 0, g->turn_open, out, e);
    for (size_t i = 0; i < done; i++)
        free(joined[i]);
    free(joined);
    free(msg);
    return rc;
}

static int fill_in(const struct wire_generate *req, const struct vocab *v, struct ids *out, struct hearth_err *e)
{
    struct fim f = {
        .prefix = req->prefix.data ? req->prefix.data : "",
        .n_prefix = req->prefix.len,
        .suffix = req->suffix.data ? req->suffix.data : "",
        .n_suffix = req->suffix.len,
        .n_files = req->n_extra,
        .file = req->file ? req->file : "untitled",
        .repo = req->repo ? req->repo : "project",
    };
    struct fim_file *files = calloc(req->n_extra + 1, sizeof *files);
    if (!files)
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu files", req->n_extra);
    for (size_t i = 0; i < req->n_extra; i++)
        files[i] = (struct fim_file){req->extra[i].name, req->extra[i].text.data, req->extra[i].text.len};
    f.files = files;
    int rc = fim_encode(v, &f, out, e);
    free(files);
    return rc;
}

static bool fills_in(const struct wire_generate *req)
{
    return req->prefix.data || req->suffix.data;
}

bool prompt_needs_vocab(const struct wire_generate *req)
{
    return req->n_messages || req->text.data || fills_in(req);
}

size_t prompt_bytes(const struct wire_generate *req)
{
    size_t n = req->text.len + req->prefix.len + req->suffix.len;
    for (size_t i = 0; i < req->n_extra; i++)
        n += req->extra[i].text.len;
    for (size_t i = 0; i < req->n_messages; i++) {
        n += req->messages[i].content.len;
        for (size_t k = 0; k < req->messages[i].n_parts; k++)
            n += req->messages[i].parts[k].text.len;
    }
    return n;
}

/* Tokenising megabytes takes a good part of a second. So a text that cannot fit, however its bytes become tokens, is
 * refused by its length. */
static int may_fit(const struct wire_generate *req, const struct model_entry *m, struct hearth_err *e)
{
    size_t n = prompt_bytes(req), reach = m->vocab ? vocab_reach(m->vocab) : SIZE_MAX;
    if (n / reach <= m->hp.n_ctx)
        return 0;
    return err_set(e, HEARTH_ECONTEXT,
                   "the prompt has %zu bytes, which are more than %zu tokens; the context of the model is %u", n,
                   n / reach, m->hp.n_ctx);
}

int prompt_make(const struct wire_engine_generate *g, const struct model_entry *m, struct ids *out,
                struct hearth_err *e)
{
    int rc = 0;
    bool first = g->history.n == 0;
    if (g->resumed) /* the prompt of a resumed stream is in its history already */
        return 0;
    if ((rc = may_fit(&g->req, m, e)))
        return rc;
    if (fills_in(&g->req)) {
        rc = fill_in(&g->req, m->vocab, out, e);
    } else if (g->req.n_messages) {
        rc = render(g, m, out, e);
    } else if (g->req.text.data) {
        int flags = (first && vocab_add_bos(m->vocab) ? TOK_BOS : 0) | (g->req.special ? TOK_SPECIAL : 0);
        rc = tok_encode(m->vocab, g->req.text.data, g->req.text.len, flags, out, e);
    } else if (g->req.tokens.n) { /* ids are taken as they are: their sender decides about BOS as well */
        if (!(rc = prompt_check_ids("tokens", g->req.tokens.v, g->req.tokens.n, m->hp.n_vocab, e)))
            rc = append(out, g->req.tokens.v, g->req.tokens.n, e);
    }
    if (!rc && first && !out->n)
        return err_set(e, HEARTH_EPARAMS, "the prompt is empty, and so is the session: nothing to go on from");
    return rc;
}
