/*
 * wire-tables.c - every method: its name, its direction and its field tables. PROTOCOL.md describes them in words;
 * daemon/engine/front/protocol.md and daemon/stream/journal.md describe the methods that clients never see.
 *
 * To add a method: its structs in wire-messages.h or wire-link.h (or hearth.h), its index in wire.h, its fields in its
 * service's wire-rows-*.c (and the type in wire-rows.h), its row here, its section in one of these documents.
 */
#include "libclient/wire-rows.h"

#include <string.h>

#define CALL(id, n, p, r)  [id] = {n, WIRE_REQUEST, false, &wire_##p##_type, &wire_##r##_type}
#define LINK(id, n, p, r)  [id] = {n, WIRE_REQUEST, true, &wire_##p##_type, &wire_##r##_type}
#define EVENT(id, n, l, p) [id] = {n, WIRE_EVENT, l, &wire_##p##_type, NULL}

const struct wire_method wire_methods[] = {
    CALL(WIRE_HELLO, "hello", hello, hello_result),
    CALL(WIRE_GENERATE, "generate", generate, generate_result),
    CALL(WIRE_CANCEL, "cancel", cancel, cancel_result),
    CALL(WIRE_STREAM_ATTACH, "stream.attach", attach, generate_result),
    CALL(WIRE_STREAMS_LIST, "streams.list", streams_list, streams_list_result),
    CALL(WIRE_STREAMS_TRACE, "streams.trace", streams_trace, trace_result),
    CALL(WIRE_SESSIONS_LIST, "sessions.list", sessions_list, sessions_list_result),
    CALL(WIRE_SESSIONS_SHOW, "sessions.show", session_ref, session_show_result),
    CALL(WIRE_SESSIONS_RENAME, "sessions.rename", session_rename, empty),
    CALL(WIRE_SESSIONS_REMOVE, "sessions.remove", session_ref, empty),
    CALL(WIRE_SESSIONS_PIN, "sessions.pin", session_pin, empty),
    CALL(WIRE_SESSIONS_EXPORT, "sessions.export", session_export, session_page),
    CALL(WIRE_SESSIONS_IMPORT, "sessions.import", session_import, imported),
    CALL(WIRE_SESSIONS_FORK, "sessions.fork", session_fork, forked),
    CALL(WIRE_SESSIONS_ADOPT, "sessions.adopt", session_adopt, adopted),
    CALL(WIRE_BACKUP, "backup", backup, backup_result),
    CALL(WIRE_MODELS_LIST, "models.list", models_list, models_list_result),
    CALL(WIRE_MODELS_SHOW, "models.show", model_show, model),
    CALL(WIRE_MODELS_LOAD, "models.load", model_ref, model_load_result),
    CALL(WIRE_MODELS_UNLOAD, "models.unload", model_ref, empty),
    CALL(WIRE_MODELS_PIN, "models.pin", model_pin, model_load_result),
    CALL(WIRE_MODELS_PASS, "models.pass", model_pass, empty),
    CALL(WIRE_STATUS, "status", empty, status_result),
    CALL(WIRE_YIELD, "yield", yield, yield_result),
    CALL(WIRE_SHUTDOWN, "shutdown", shutdown, empty),
    CALL(WIRE_TOKENIZE, "tokenize", tokenize, tokenize_result),
    CALL(WIRE_DETOKENIZE, "detokenize", detokenize, detokenize_result),
    CALL(WIRE_RENDER, "render", render, render_result),
    CALL(WIRE_EVAL, "eval", eval, eval_result),
    EVENT(WIRE_STREAM_BEGIN, "stream.begin", false, stream_begin),
    EVENT(WIRE_STREAM_TOKENS, "stream.tokens", false, stream_tokens),
    EVENT(WIRE_STREAM_PROGRESS, "stream.progress", false, stream_progress),
    EVENT(WIRE_STREAM_QUEUED, "stream.queued", false, stream_queued),
    EVENT(WIRE_STREAM_END, "stream.end", false, generate_result),
    EVENT(WIRE_STREAM_ERROR, "stream.error", false, stream_error),
    EVENT(WIRE_MODEL_PROGRESS, "model.progress", false, model_progress),
    EVENT(WIRE_NOTICE, "notice", false, notice),
    LINK(WIRE_ENGINE_HELLO, "engine.hello", engine_hello, engine_hello_result),
    LINK(WIRE_ENGINE_GENERATE, "engine.generate", engine_generate, engine_result),
    LINK(WIRE_ENGINE_MEASURE, "engine.measure", engine_generate, measured),
    LINK(WIRE_ENGINE_CANCEL, "engine.cancel", engine_cancel, empty),
    LINK(WIRE_ENGINE_CLASS, "engine.class", engine_class, empty),
    LINK(WIRE_ENGINE_LOAD, "engine.load", engine_path, model_load_result),
    LINK(WIRE_ENGINE_UNLOAD, "engine.unload", engine_path, empty),
    LINK(WIRE_ENGINE_PIN, "engine.pin", engine_pin, model_load_result),
    LINK(WIRE_ENGINE_PASS, "engine.pass", engine_pass, empty),
    LINK(WIRE_ENGINE_YIELD, "engine.yield", engine_yield, engine_yield_result),
    LINK(WIRE_ENGINE_HEADS, "engine.heads", engine_heads, engine_heads_result),
    LINK(WIRE_ENGINE_MODEL, "engine.model", engine_model, model),
    LINK(WIRE_ENGINE_STATUS, "engine.status", empty, engine_status),
    LINK(WIRE_ENGINE_TOKENIZE, "engine.tokenize", engine_tokenize, tokenize_result),
    LINK(WIRE_ENGINE_DETOKENIZE, "engine.detokenize", engine_detokenize, engine_detokenize_result),
    LINK(WIRE_ENGINE_RENDER, "engine.render", engine_render, render_result),
    LINK(WIRE_ENGINE_EVAL, "engine.eval", engine_eval, eval_result),
    LINK(WIRE_ENGINE_FORGET, "engine.forget", engine_forget, empty),
    LINK(WIRE_ENGINE_KV_DIR, "engine.kv_dir", engine_kv_dir, empty),
    LINK(WIRE_ENGINE_KV_GONE, "engine.kv_gone", engine_kv_gone, empty),
    LINK(WIRE_ENGINE_SHUTDOWN, "engine.shutdown", empty, empty),
    EVENT(WIRE_ENGINE_BEGIN, "engine.begin", true, engine_begin),
    EVENT(WIRE_ENGINE_TOKENS, "engine.tokens", true, engine_tokens),
    EVENT(WIRE_ENGINE_PROGRESS, "engine.progress", true, stream_progress),
    EVENT(WIRE_ENGINE_KV_SAVED, "engine.kv_saved", true, engine_kv_saved),
    EVENT(WIRE_ENGINE_KV_USED, "engine.kv_used", true, engine_kv_used),
    EVENT(WIRE_ENGINE_KV_BAD, "engine.kv_bad", true, engine_kv_bad),
    EVENT(WIRE_ENGINE_TRACE, "engine.trace", true, engine_trace),
    EVENT(WIRE_ENGINE_PARKED, "engine.parked", true, engine_parked),
    EVENT(WIRE_ENGINE_IDLE, "engine.idle", true, empty),
    EVENT(WIRE_ENGINE_RELIEVED, "engine.relieved", true, empty),
    EVENT(WIRE_JOURNAL_HEAD, "journal.head", true, journal_head),
    EVENT(WIRE_JOURNAL_END, "journal.end", true, journal_end),
    EVENT(WIRE_TURN_GENERATION, "turn.generation", true, turn_generation),
    {0},
};

static const char *const reserved_methods[] = {"embed", NULL};

static bool same(const char *name, const char *s, size_t len)
{
    return strlen(name) == len && !memcmp(name, s, len);
}

const struct wire_method *wire_method_find(const char *name, size_t len)
{
    for (const struct wire_method *m = wire_methods; m->name; m++)
        if (same(m->name, name, len))
            return m;
    return NULL;
}

const struct wire_method *wire_method_get(const char *name, size_t len, struct hearth_err *e)
{
    const struct wire_method *m = wire_method_find(name, len);
    if (m)
        return m;
    for (const char *const *r = reserved_methods; *r; r++)
        if (same(*r, name, len)) {
            err_set(e, HEARTH_EUNSUPPORTED, "method %s is reserved and not supported by this version", *r);
            return NULL;
        }
    char shown[64]; /* a name may have control characters, and end at none of its NULs */
    size_t n = len < sizeof shown ? len : sizeof shown;
    for (size_t i = 0; i < n; i++)
        shown[i] = (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
    err_set(e, HEARTH_EMETHOD, "method %.*s is not known", (int)n, shown);
    return NULL;
}
