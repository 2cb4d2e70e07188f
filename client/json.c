/* json.c - results as JSON, for --json. Keys are those of PROTOCOL.md; a value that is absent is null. */
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

/* Texts of the daemon are valid UTF-8. Names and paths of files are any bytes, and jansson refuses what is not UTF-8:
 * then every byte that is not ASCII becomes U+FFFD, which keeps the value readable and the document valid. */
json_t *json_text(const char *data, size_t len)
{
    if (!data)
        return json_null();
    json_t *s = json_stringn(data, len);
    if (s)
        return s;
    char *out = malloc(3 * len + 1);
    if (!out)
        abort();
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)data[i] < 0x80) {
            out[n++] = data[i];
        } else {
            memcpy(out + n, "\xef\xbf\xbd", 3);
            n += 3;
        }
    }
    s = json_stringn(out, n);
    free(out);
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

static json_t *json_usage(const struct hearth_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "prompt_tokens", (json_int_t)u->prompt_tokens, "reused_tokens",
                     (json_int_t)u->reused_tokens, "restored_tokens", (json_int_t)u->restored_tokens, "computed_tokens",
                     (json_int_t)u->computed_tokens, "completion_tokens", (json_int_t)u->completion_tokens);
}

static json_t *json_timings(const struct hearth_timings *t)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "queue_ms", t->queue_ms, "load_ms", t->load_ms,
                     "restore_ms", t->restore_ms, "prefill_ms", t->prefill_ms, "decode_ms", t->decode_ms, "total_ms",
                     t->total_ms, "tokens_per_second", t->tokens_per_second);
}

static json_t *json_logprobs(const struct hearth_generate_result *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->n_logprobs; i++) {
        const struct hearth_token_logprobs *t = &r->logprobs[i];
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

json_t *json_result(const struct hearth_generate_result *r)
{
    json_t *o = json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o}", "text",
                          r->text.data ? json_text(r->text.data, r->text.len) : json_str(""), "session",
                          json_str(r->session), "request", json_str(r->request), "stream", (json_int_t)r->stream,
                          "usage", json_usage(&r->usage), "timings", json_timings(&r->timings), "finish_reason",
                          json_str(r->finish_reason), "tokens", json_ids(r->tokens));
    /* A seed has 64 bits and JSON's integers here have 63: the rest is a string, as JavaScript would need anyway. */
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)r->seed);
    json_object_set_new(o, "seed", r->seed <= INT64_MAX ? json_integer((json_int_t)r->seed) : json_string(seed));
    if (r->n_logprobs)
        json_object_set_new(o, "logprobs", json_logprobs(r));
    if (r->error)
        json_object_set_new(o, "error", json_str(r->error));
    return o;
}

json_t *json_session(const struct hearth_session *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:f, s:f, s:b}", "id", json_str(s->id), "name", json_str(s->name),
                     "model", json_str(s->model), "path", json_str(s->path), "tokens", (json_int_t)s->tokens, "turns",
                     (json_int_t)s->turns, "created", s->created, "used", s->used, "busy", s->busy);
}

json_t *json_model(const struct hearth_model *m, bool details)
{
    json_t *o = json_pack("{s:o, s:o, s:I, s:f, s:b}", "name", json_str(m->name), "path", json_str(m->path), "bytes",
                          (json_int_t)m->bytes, "modified", m->modified, "loaded", m->loaded);
    if (!details)
        return o;
    json_t *more = json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "arch",
                             json_str(m->arch), "type", json_str(m->type), "tokenizer", json_str(m->tokenizer), "chat",
                             json_str(m->chat), "parameters", (json_int_t)m->parameters, "context",
                             (json_int_t)m->context, "layers", (json_int_t)m->layers, "d_model", (json_int_t)m->d_model,
                             "heads", (json_int_t)m->heads, "kv_heads", (json_int_t)m->kv_heads, "d_head",
                             (json_int_t)m->d_head, "d_ff", (json_int_t)m->d_ff, "vocab", (json_int_t)m->vocab);
    json_object_update(o, more);
    json_decref(more);
    return o;
}

json_t *json_loaded_models(const struct hearth_engine_status *e)
{
    json_t *a = json_array();
    for (size_t i = 0; i < e->n_models; i++) {
        const struct hearth_loaded_model *m = &e->models[i];
        json_array_append_new(
            a, json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "name", json_str(m->name),
                         "path", json_str(m->path), "where", json_str(m->where), "bytes", (json_int_t)m->bytes,
                         "context", (json_int_t)m->context, "context_used", (json_int_t)m->context_used, "sequences",
                         (json_int_t)m->sequences, "pages_used", (json_int_t)m->pages_used, "pages_total",
                         (json_int_t)m->pages_total, "page_bytes", (json_int_t)m->page_bytes, "vocab_only",
                         m->vocab_only, "self_check", json_str(m->self_check)));
    }
    return a;
}

int print_json(json_t *value)
{
    /* Twelve digits: nine bring every float32 back exactly, times since the epoch need twelve for 10 ms. */
    int rc = value ? json_dumpf(value, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12)) : -1;
    json_decref(value);
    if (rc) {
        fputs("hearth: the result could not be written as JSON\n", stderr);
        return STATUS_ERROR;
    }
    putchar('\n');
    return STATUS_OK;
}
