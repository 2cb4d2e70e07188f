/* prompt.c - converts text, messages or ids to the ids that a request appends to its timeline. Any thread. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/front/chat.h"
#include "daemon/engine/front/rpc.h"

int prompt_check_ids(const char *what, const int32_t *id, size_t n, uint32_t n_vocab, struct hearth_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (id[i] < 0 || (uint32_t)id[i] >= n_vocab)
            return err_set(e, HEARTH_EPARAMS, "%s[%zu]: %d is not in the vocabulary of %u tokens", what, i, id[i],
                           n_vocab);
    return 0;
}

static int append(struct ids *out, const int32_t *id, size_t n, struct hearth_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids_push(out, id[i]))
            return err_set(e, HEARTH_ENOMEM, "no memory for %zu tokens", n);
    return 0;
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

/* Tokenising megabytes takes a good part of a second. So a text that cannot fit, however it is tokenised, is refused by
 * its length. */
static int may_fit(const struct wire_generate *req, const struct model_entry *m, struct hearth_err *e)
{
    size_t n = prompt_bytes(req), reach = m->vocab ? vocab_reach(m->vocab) : SIZE_MAX;
    if (n / reach <= m->hp.n_ctx)
        return 0;
    return err_set(e, HEARTH_ECONTEXT,
                   "the prompt has %zu bytes, which are more than %zu tokens; the context of the model is %u", n,
                   n / reach, m->hp.n_ctx);
}

int prompt_make(const struct wire_engine_generate *g, struct model_entry *m, struct ids *out, struct prompt_told *told,
                struct hearth_err *e)
{
    int rc = 0;
    bool first = g->history.n == 0;
    *told = (struct prompt_told){.family = reasoning_family_named(g->markers), .open = g->thinking};
    if (g->resumed) /* the prompt of a resumed stream is already in its history */
        return 0;
    if ((rc = may_fit(&g->req, m, e)))
        return rc;
    if (fills_in(&g->req)) {
        rc = fill_in(&g->req, m->vocab, out, e);
    } else if (g->req.n_messages) {
        rc = chat_append(g, m, out, told, e);
    } else if (g->req.text.data) {
        int flags = (!first ? TOK_GOES_ON : vocab_add_bos(m->vocab) ? TOK_BOS : 0) | (g->req.special ? TOK_SPECIAL : 0);
        rc = tok_encode(m->vocab, g->req.text.data, g->req.text.len, flags, out, e);
    } else if (g->req.tokens.n) { /* ids are used unchanged: their sender decides about BOS as well */
        if (!(rc = prompt_check_ids("generate.tokens", g->req.tokens.v, g->req.tokens.n, m->hp.n_vocab, e)))
            rc = append(out, g->req.tokens.v, g->req.tokens.n, e);
    }
    if (!rc && first && !out->n)
        return err_set(e, HEARTH_EPARAMS, "the prompt is empty, and so is the session: nothing to go on from");
    return rc;
}
