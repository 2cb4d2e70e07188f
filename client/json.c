/* json.c - results as JSON, for --json. The keys are those of PROTOCOL.md; an absent value is null. */
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

/* The daemon's texts are valid UTF-8, but file names and paths may be any bytes, and so may a prompt. jansson refuses
 * anything but UTF-8, so bytes that are not become U+FFFD. */
json_t *json_text(const char *data, size_t len)
{
    if (!data)
        return json_null();
    json_t *s = json_stringn(data, len);
    if (s)
        return s;
    size_t n;
    char *mended = utf8_mend(data, len, &n);
    s = json_stringn(mended, n);
    free(mended);
    return s;
}

json_t *json_str(const char *s)
{
    return json_text(s, s ? strlen(s) : 0);
}

json_t *json_ids(struct hearth_ids ids)
{
    json_t *a = json_array();
    for (size_t i = 0; i < ids.n; i++)
        json_array_append_new(a, json_integer(ids.v[i]));
    return a;
}

static json_t *json_logprobs(const struct hearth_token_logprobs *logprobs, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct hearth_token_logprobs *t = &logprobs[i];
        json_t *top = json_array();
        for (size_t j = 0; j < t->n_top; j++)
            json_array_append_new(top, json_pack("{s:I, s:f, s:o}", "id", (json_int_t)t->top[j].id, "logprob",
                                                 t->top[j].logprob, "text",
                                                 json_text(t->top[j].text.data, t->top[j].text.len)));
        json_array_append_new(all,
                              json_pack("{s:I, s:f, s:o}", "id", (json_int_t)t->id, "logprob", t->logprob, "top", top));
    }
    return all;
}

static json_t *json_choices(const struct hearth_generate_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_choices; i++) {
        const struct hearth_choice *c = &r->choices[i];
        json_t *o =
            json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "index", (json_int_t)c->index, "stream", (json_int_t)c->stream,
                      "text", json_text(c->text.data, c->text.len), "tokens", json_ids(c->tokens), "finish_reason",
                      json_str(c->finish_reason), "seed", json_seed(c->seed));
        if (c->reasoning.len)
            json_object_set_new(o, "reasoning", json_text(c->reasoning.data, c->reasoning.len));
        if (c->n_logprobs)
            json_object_set_new(o, "logprobs", json_logprobs(c->logprobs, c->n_logprobs));
        if (c->error)
            json_object_set_new(o, "error", json_str(c->error));
        json_array_append_new(a, o);
    }
    return a;
}

json_t *json_result(const struct hearth_generate_result *r)
{
    json_t *o = json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o}", "text",
                          r->text.data ? json_text(r->text.data, r->text.len) : json_str(""), "session",
                          json_str(r->session), "request", json_str(r->request), "stream", (json_int_t)r->stream,
                          "usage", json_usage(&r->usage), "timings", json_timings(&r->timings), "finish_reason",
                          json_str(r->finish_reason), "tokens", json_ids(r->tokens));
    if (r->reasoning.len)
        json_object_set_new(o, "reasoning", json_text(r->reasoning.data, r->reasoning.len));
    json_object_set_new(o, "seed", json_seed(r->seed));
    if (r->n_logprobs)
        json_object_set_new(o, "logprobs", json_logprobs(r->logprobs, r->n_logprobs));
    if (r->n_choices)
        json_object_set_new(o, "choices", json_choices(r));
    if (r->error)
        json_object_set_new(o, "error", json_str(r->error));
    return o;
}

json_t *json_session(const struct hearth_session *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:f, s:f, s:b, s:I, s:I, s:b, s:f, s:b, s:o, s:I, s:b}", "id",
                     json_str(s->id), "name", json_str(s->name), "model", json_str(s->model), "path", json_str(s->path),
                     "tokens", (json_int_t)s->tokens, "turns", (json_int_t)s->turns, "created", s->created, "used",
                     s->used, "busy", s->busy, "bytes", (json_int_t)s->bytes, "kv_bytes", (json_int_t)s->kv_bytes,
                     "pinned", s->pinned, "expires", s->expires, "damaged", s->damaged, "parent", json_str(s->parent),
                     "shared", (json_int_t)s->shared, "ephemeral", s->ephemeral);
}

json_t *json_strs(struct hearth_strs s)
{
    json_t *a = json_array();
    for (size_t i = 0; i < s.n; i++)
        json_array_append_new(a, json_str(s.v[i]));
    return a;
}

static json_t *json_ops(const struct hearth_model *m)
{
    json_t *a = json_array();
    for (size_t i = 0; i < m->n_ops; i++)
        json_array_append_new(a, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "op", json_str(m->ops[i].op), "text",
                                           json_str(m->ops[i].text), "one", json_str(m->ops[i].one), "few",
                                           json_str(m->ops[i].few), "many", json_str(m->ops[i].many), "invariant",
                                           json_str(m->ops[i].invariant)));
    return a;
}

static json_t *json_special(const struct hearth_model *m)
{
    json_t *a = json_array();
    for (size_t i = 0; i < m->n_special; i++)
        json_array_append_new(a, json_pack("{s:o, s:I, s:o}", "role", json_str(m->special[i].role), "id",
                                           (json_int_t)m->special[i].id, "text",
                                           json_text(m->special[i].text.data, m->special[i].text.len)));
    return a;
}

static json_t *json_defaults(const struct hearth_model *m)
{
    json_t *a = json_array();
    for (size_t i = 0; i < m->n_sampling; i++)
        json_array_append_new(
            a, json_pack("{s:o, s:f}", "name", json_str(m->sampling[i].name), "value", m->sampling[i].value));
    return a;
}

json_t *json_model(const struct hearth_model *m, bool details)
{
    json_t *o = json_pack("{s:o, s:o, s:I, s:f, s:b}", "name", json_str(m->name), "path", json_str(m->path), "bytes",
                          (json_int_t)m->bytes, "modified", m->modified, "loaded", m->loaded);
    json_object_set_new(o, "read", json_boolean(m->read));
    if (m->read) {
        json_object_set_new(o, "kind", json_str(m->kind));
        json_object_set_new(o, "refusal", json_str(m->refusal));
    }
    if (m->read && !details) {
        json_object_set_new(o, "arch", json_str(m->arch));
        json_object_set_new(o, "type", json_str(m->type));
        json_object_set_new(o, "parameters", json_integer(m->parameters));
    }
    if (!details)
        return o;
    json_object_set_new(o, "capabilities", json_strs(m->capabilities));
    json_object_set_new(o, "special", json_special(m));
    json_object_set_new(o, "sampling", json_defaults(m));
    json_t *more =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "arch",
                  json_str(m->arch), "type", json_str(m->type), "digest", json_str(m->digest), "tokenizer",
                  json_str(m->tokenizer), "tokenizer_digest", json_str(m->tokenizer_digest), "chat", json_str(m->chat),
                  "chat_error", json_str(m->chat_error), "parameters", (json_int_t)m->parameters, "context",
                  (json_int_t)m->context, "layers", (json_int_t)m->layers, "d_model", (json_int_t)m->d_model, "heads",
                  (json_int_t)m->heads, "kv_heads", (json_int_t)m->kv_heads, "d_head", (json_int_t)m->d_head, "d_ff",
                  (json_int_t)m->d_ff, "vocab", (json_int_t)m->vocab);
    json_object_update(o, more);
    json_decref(more);
    if (m->n_ops)
        json_object_set_new(o, "ops", json_ops(m));
    return o;
}

json_t *json_loaded_models(const struct hearth_engine_status *e)
{
    json_t *a = json_array();
    for (size_t i = 0; i < e->n_models; i++) {
        const struct hearth_loaded_model *m = &e->models[i];
        json_array_append_new(
            a,
            json_pack(
                "{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:b, s:o, s:o, s:I, s:f}",
                "name", json_str(m->name), "path", json_str(m->path), "where", json_str(m->where), "bytes",
                (json_int_t)m->bytes, "context", (json_int_t)m->context, "context_used", (json_int_t)m->context_used,
                "sequences", (json_int_t)m->sequences, "pages_used", (json_int_t)m->pages_used, "pages_total",
                (json_int_t)m->pages_total, "page_bytes", (json_int_t)m->page_bytes, "states_used",
                (json_int_t)m->states_used, "states_total", (json_int_t)m->states_total, "state_bytes",
                (json_int_t)m->state_bytes, "vocab_only", m->vocab_only, "expires", m->expires, "pinned", m->pinned,
                "self_check", json_str(m->self_check), "slow", json_strs(m->slow), "host_bytes",
                (json_int_t)m->host_bytes, "speed", m->speed));
    }
    return a;
}

int print_json(json_t *value)
{
    int rc = value ? json_dumpf(value, stdout, JSON_COMPACT | JSON_DIGITS) : -1;
    json_decref(value);
    if (rc) {
        fputs("hearth: the result could not be written as JSON\n", stderr);
        return STATUS_ERROR;
    }
    putchar('\n');
    return STATUS_OK;
}
