/* text-calls.c - engine.model, tokenize, detokenize, render: their answers are made and packed by a worker, or on the
 * loop thread if they are short. Thread: any, except for the steps' `begin`. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/front/answer.h"
#include "daemon/engine/front/chat.h"
#include "daemon/engine/front/program.h"
#include "daemon/engine/front/rpc.h"
#include "daemon/engine/front/traits.h"
#include "daemon/engine/kvtier/fingerprint.h"

static int pack(struct request *r, const void *result, struct hearth_err *e)
{
    return wire_pack_result(&r->answer, r->rpc_id, r->method, result, e);
}

static int need_vocab(const struct request *r, struct hearth_err *e)
{
    if (r->model->vocab)
        return 0;
    *e = r->model->vocab_err;
    return e->code;
}

/* --- engine.model ------------------------------------------------------------------------------------------ */

static size_t show_cost(const struct request *r)
{
    (void)r;
    return WORK_LOOP + 1; /* samples of all tensors are hashed, which may have to be read from a disk */
}

static int show_work(struct request *r, struct hearth_err *e)
{
    const struct wire_engine_model *ask = r->params;
    const struct model_entry *model = r->model;
    struct hearth_err ignored, unusable;
    const char *chat;
    struct program_rows ops = {0};
    struct gguf_str arch = {"", 0};
    char arch_name[64], weights[KV_DIGEST], tokenizer[KV_DIGEST];
    int rc = kv_fingerprint_digests(model->gguf, weights, tokenizer, e);
    if (rc || (ask->ops && (rc = program_rows(&ops, model, e))))
        return rc;
    chat_templates_of(r->model, &chat, &unusable);
    const struct hparams *hp = &model->hp;
    gguf_str(model->gguf, "general.architecture", &arch, &ignored);
    snprintf(arch_name, sizeof arch_name, "%.60s",
             gguf_label(arch).s); /* it may contain any bytes, but the wire requires UTF-8 */
    struct wire_model res = {
        .name = model->path,
        .path = model->path,
        .bytes = model->id.size,
        .modified = (double)model->id.mtime.tv_sec + 1e-9 * (double)model->id.mtime.tv_nsec,
        .loaded = atomic_load(&model->loaded),
        .arch = *arch_name ? arch_name : NULL,
        .digest = weights,
        .tokenizer = model->vocab ? vocab_kind(model->vocab) : NULL,
        .tokenizer_digest = tokenizer,
        .chat = chat,
        .chat_error = unusable.code ? unusable.msg : NULL,
        .vocab = model->vocab ? vocab_size(model->vocab) : 0,
        .ops = ops.row,
        .n_ops = ops.n,
    };
    if (!model->hp_err.code) {
        res.type = *hp->type ? hp->type : NULL;
        res.parameters = (int64_t)hp->n_param;
        res.context = hp->n_ctx;
        res.layers = hp->n_layer;
        res.d_model = hp->d_model;
        res.heads = hp->n_head;
        res.kv_heads = hp->n_kv;
        res.d_head = hp->d_head;
        res.d_ff = hp->d_ff;
        res.vocab = hp->n_vocab;
    }
    struct traits traits;
    traits_fill(&res, &traits, model);
    rc = pack(r, &res, e);
    program_rows_free(&ops);
    return rc;
}

const struct request_steps model_steps = {.vocab = true, .cost = show_cost, .work = show_work, .begin = request_answer};

/* --- tokenize ------------------------------------------------------------------------------------------------ */

static size_t tokenize_cost(const struct request *r)
{
    return ((const struct wire_tokenize *)r->params)->text.len;
}

static int tokenize_work(struct request *r, struct hearth_err *e)
{
    const struct wire_tokenize *t = r->params;
    const struct vocab *v = r->model->vocab;
    struct ids ids = {0};
    int rc = need_vocab(r, e);
    if (rc)
        return rc;
    bool bos = t->bos < 0 ? vocab_add_bos(v) : t->bos > 0;
    int flags = (bos ? TOK_BOS : 0) | (t->special ? TOK_SPECIAL : 0);
    if (!(rc = tok_encode(v, t->text.data ? t->text.data : "", t->text.len, flags, &ids, e)))
        rc = pack(r, &(struct wire_tokenize_result){{ids.v, ids.n}}, e);
    ids_fini(&ids);
    return rc;
}

const struct request_steps tokenize_steps = {
    .vocab = true, .cost = tokenize_cost, .work = tokenize_work, .begin = request_answer};

/* --- detokenize ---------------------------------------------------------------------------------------------- */

/* The text of the ids on their own, without the BOS and SentencePiece's leading space, which encoding adds. */
static int detokenize(const struct vocab *v, struct wire_ids ids, char **out, size_t *n, struct hearth_err *e)
{
    size_t first = ids.n && vocab_add_bos(v) && ids.v[0] == vocab_bos(v), need = 0, at = 0;
    for (size_t i = first; i < ids.n; i++)
        need += tok_piece(v, ids.v[i], true, NULL, 0);
    char *s = malloc(need + 1);
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of text", need);
    for (size_t i = first; i < ids.n; i++)
        at += tok_piece(v, ids.v[i], true, s + at, need - at);
    if (at && s[0] == ' ' && tok_adds_space(v))
        memmove(s, s + 1, --at);
    *out = s;
    *n = at;
    return 0;
}

static size_t detokenize_cost(const struct request *r)
{
    enum {
        PIECE = 8 /* average bytes per token; a file may have longer ones, which the answer's limit bounds */
    };
    const struct wire_detokenize *d = r->params;
    return (d->tokens.n + d->history.n) * PIECE;
}

/* A session's ids belong to the model with which it was made, as in generate.c. */
static int check_same(const struct wire_detokenize *d, const struct vocab *v, struct hearth_err *e)
{
    char hash[TOK_HASH];
    int rc = d->hash ? tok_hash(v, d->history.v, d->history.n, hash, e) : 0;
    if (!rc && d->hash && strcmp(d->hash, hash) != 0)
        rc = err_set(e, HEARTH_EMODELMISMATCH,
                     "the session's tokens are other texts in this vocabulary: it was made with another model, which "
                     "was in this one's place");
    return rc;
}

/* The first tokens of an answer. */
static int answer_work(struct request *r, struct hearth_err *e)
{
    const struct wire_detokenize *d = r->params;
    struct answered whole = {d->tokens.v, d->tokens.n,      d->text.data,       d->reasoning.data,
                             d->text.len, d->reasoning.len, d->reasoning_tokens};
    struct answer a;
    size_t n = (size_t)d->first < d->tokens.n ? (size_t)d->first : d->tokens.n;
    int rc = answer_begin(r->model->vocab, &whole, n, &a, e);
    if (!rc) {
        struct wire_bytes text = {a.n_text ? a.text : "", a.n_text};
        struct wire_engine_detokenize_result res = {
            {text, text}, {a.n_thought ? a.thought : NULL, a.n_thought}, a.n_reasoning};
        rc = pack(r, &res, e);
    }
    answer_fini(&a);
    return rc;
}

static int detokenize_work(struct request *r, struct hearth_err *e)
{
    const struct wire_detokenize *d = r->params;
    const struct vocab *v = r->model->vocab;
    struct text text = {0};
    char *bytes = NULL, *all = NULL;
    const char *part;
    size_t n = 0, n_part, n_all = 0;
    int rc = need_vocab(r, e);
    if (rc)
        return rc;
    if ((rc = check_same(d, v, e)) ||
        (rc = prompt_check_ids("detokenize.tokens", d->tokens.v, d->tokens.n, vocab_size(v), e)))
        return rc;
    if (d->generated)
        return answer_work(r, e);
    if ((rc = detokenize(v, d->tokens, &bytes, &n, e)) || (rc = text_push_bytes(&text, bytes, n, &part, &n_part, e)))
        goto out;
    if (!(all = malloc(n_part + 4))) { /* with room for a U+FFFD if the last character is unfinished */
        rc = err_set(e, HEARTH_ENOMEM, "no memory for %zu bytes of text", n_part);
        goto out;
    }
    memcpy(all, part, n_all = n_part);
    if ((rc = text_held(&text, e)))
        goto out;
    if (text.n_held)
        memcpy(all + n_all, text.held, text.n_held);
    n_all += text.n_held;
    rc = pack(r, &(struct wire_engine_detokenize_result){.told = {{bytes, n}, {all, n_all}}}, e);
out:
    free(all);
    free(bytes);
    text_fini(&text);
    return rc;
}

const struct request_steps detokenize_steps = {
    .vocab = true, .cost = detokenize_cost, .work = detokenize_work, .begin = request_answer};

/* --- render -------------------------------------------------------------------------------------------------- */

static size_t length(const char *s)
{
    return s ? strlen(s) : 0;
}

/* A template may take any number of steps, whatever its input. */
static size_t render_cost(const struct request *r)
{
    const struct wire_render *p = &((const struct wire_engine_render *)r->params)->req;
    return WORK_LOOP + 1 + length(p->messages) + length(p->tools) + length(p->documents) + length(p->kwargs);
}

static int render_work(struct request *r, struct hearth_err *e)
{
    const struct wire_render *p = &((const struct wire_engine_render *)r->params)->req;
    struct jinja_text text = {0};
    struct ids ids = {0};
    struct chat chat = {
        .messages = p->messages,
        .tools = p->tools,
        .documents = p->documents,
        .kwargs = p->kwargs,
        .bos_token = p->bos_token,
        .eos_token = p->eos_token,
        .source = p->chat_template,
        .template_name = p->template_name,
        .now = p->now,
        .open = p->add_generation_prompt,
    };
    int rc = need_vocab(r, e);
    if (rc)
        return rc;
    if (!(rc = chat_render(r->model, &chat, &text, e)) && !(rc = chat_encode(r->model->vocab, &text, 0, 0, &ids, e)))
        rc = pack(r, &(struct wire_render_result){{text.data, text.n}, {ids.v, ids.n}}, e);
    ids_fini(&ids);
    jinja_text_fini(&text);
    return rc;
}

const struct request_steps render_steps = {
    .vocab = true, .cost = render_cost, .work = render_work, .begin = request_answer};
