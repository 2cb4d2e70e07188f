/*
 * wire-tables.c - the rows: every field of every message, and every method. PROTOCOL.md says the same in words.
 * To add a method: its structs in wire.h (or hearth.h), its fields and its row here, its section in PROTOCOL.md.
 */
#include "libclient/wire-table.h"

#include <string.h>

/* clang-format off */
/* Offset of a member that must have type C, or this does not compile. */
#define AT(T, m, C) (offsetof(struct T, m) + 0 * sizeof(_Generic(((struct T *)0)->m, C : 1)))

#define BOOL(T, m, d, ...)        {.name = #m, .type = WIRE_BOOL, .offset = AT(T, m, bool), .i = {.def = d}, ##__VA_ARGS__}
#define INT(T, m, l, h, d, ...)   {.name = #m, .type = WIRE_INT, .offset = AT(T, m, int64_t), .i = {l, h, d}, ##__VA_ARGS__}
#define COUNTER(T, m, ...)        INT(T, m, 0, INT64_MAX, 0, ##__VA_ARGS__)
#define UINT(T, m)                {.name = #m, .type = WIRE_UINT, .offset = AT(T, m, uint64_t)}
#define UINT_IF(T, m, has)        {.name = #m, .type = WIRE_UINT, .flags = FIELD_HAS, .offset = AT(T, m, uint64_t), .beside = AT(T, has, bool)}
#define FLOAT(T, m, l, h, d)      {.name = #m, .type = WIRE_FLOAT, .offset = AT(T, m, double), .f = {l, h, d}}
#define AMOUNT(T, m)              FLOAT(T, m, -1e18, 1e18, 0)
#define STR(T, m, l, h, ...)      {.name = #m, .type = WIRE_STR, .offset = AT(T, m, const char *), .i = {.lo = l, .hi = h}, ##__VA_ARGS__}
#define WORD(T, m, ...)           STR(T, m, 1, WIRE_NAME_MAX, ##__VA_ARGS__)
#define PATH(T, m, ...)           STR(T, m, 1, WIRE_PATH_MAX, ##__VA_ARGS__)
#define BYTES(T, m, ...)          {.name = #m, .type = WIRE_BYTES, .offset = AT(T, m, struct wire_bytes), .i = {.hi = WIRE_LINK_FRAME_MAX}, ##__VA_ARGS__}
#define IDS(T, m, l, ...)         {.name = #m, .type = WIRE_IDS, .offset = AT(T, m, struct wire_ids), .i = {.lo = l, .hi = WIRE_TOKENS_MAX}, ##__VA_ARGS__}
#define STRS(T, m, h, ...)        {.name = #m, .type = WIRE_STRS, .offset = AT(T, m, struct wire_strs), .i = {.hi = h}, ##__VA_ARGS__}
#define STRUCT(T, m, t, ...)      {.name = #m, .type = WIRE_STRUCT, .offset = AT(T, m, struct wire_##t), .sub = &t##_type, ##__VA_ARGS__}
#define STRUCT_IF(T, m, t, has)   {.name = #m, .type = WIRE_STRUCT, .flags = FIELD_HAS, .offset = AT(T, m, struct wire_##t), .beside = AT(T, has, bool), .sub = &t##_type}
#define ARRAY(T, m, t, h, ...)    {.name = #m, .type = WIRE_ARRAY, .offset = AT(T, m, struct wire_##t *), .beside = AT(T, n_##m, size_t), .i = {.hi = h}, .sub = &t##_type, ##__VA_ARGS__}
#define PAIRS(T, m, h)            {.name = #m, .type = WIRE_PAIRS, .offset = AT(T, m, struct wire_bias *), .beside = AT(T, n_##m, size_t), .i = {.hi = h}}
#define REQUIRED                  .flags = FIELD_REQUIRED
#define SPARSE                    .flags = FIELD_SPARSE
#define TYPE(t, label, ...)       static const struct wire_type t##_type = {.name = label, .size = sizeof(struct wire_##t), .fields = t##_fields, ##__VA_ARGS__}
/* clang-format on */

static const struct wire_field empty_fields[] = {{0}};
TYPE(empty, "params");

/* --- pieces -------------------------------------------------------------------------------------------- */

static const char *const part_types[] = {"text", NULL};
static const struct wire_field part_fields[] = {
    WORD(wire_part, type, REQUIRED, .one_of = part_types),
    BYTES(wire_part, text, REQUIRED),
    {0},
};
TYPE(part, "part");

static const char *const roles[] = {"system", "user", "assistant", NULL};
static const struct wire_field message_fields[] = {
    WORD(wire_message, role, REQUIRED, .one_of = roles),
    {.name = "content",
     .type = WIRE_CONTENT,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct wire_message, content),
     .beside = offsetof(struct wire_message, parts),
     .i = {.hi = WIRE_PARTS_MAX},
     .sub = &part_type},
    {0},
};
TYPE(message, "message");

static const struct wire_field sampling_fields[] = {
    FLOAT(wire_sampling, temperature, 0, 100, 0.8),
    INT(wire_sampling, top_k, 0, 1000000, 40),
    FLOAT(wire_sampling, top_p, 0, 1, 0.95),
    FLOAT(wire_sampling, min_p, 0, 1, 0.05),
    FLOAT(wire_sampling, repetition_penalty, 0.01, 100, 1),
    FLOAT(wire_sampling, presence_penalty, -100, 100, 0),
    FLOAT(wire_sampling, frequency_penalty, -100, 100, 0),
    INT(wire_sampling, penalty_last, 0, WIRE_TOKENS_MAX, 64),
    UINT_IF(wire_sampling, seed, has_seed),
    PAIRS(wire_sampling, logit_bias, WIRE_BIAS_MAX),
    {0},
};
TYPE(sampling, "sampling");

static const struct wire_field usage_fields[] = {
    COUNTER(wire_usage, prompt_tokens),   COUNTER(wire_usage, reused_tokens),     COUNTER(wire_usage, restored_tokens),
    COUNTER(wire_usage, computed_tokens), COUNTER(wire_usage, completion_tokens), {0},
};
TYPE(usage, "usage");

static const struct wire_field timings_fields[] = {
    AMOUNT(wire_timings, queue_ms),          AMOUNT(wire_timings, load_ms),
    AMOUNT(wire_timings, restore_ms),        AMOUNT(wire_timings, prefill_ms),
    AMOUNT(wire_timings, decode_ms),         AMOUNT(wire_timings, total_ms),
    AMOUNT(wire_timings, tokens_per_second), {0},
};
TYPE(timings, "timings");

static const struct wire_field logprob_fields[] = {
    COUNTER(wire_logprob, id, REQUIRED),
    AMOUNT(wire_logprob, logprob),
    BYTES(wire_logprob, text),
    {0},
};
TYPE(logprob, "logprob");

static const struct wire_field token_logprobs_fields[] = {
    COUNTER(wire_token_logprobs, id, REQUIRED),
    AMOUNT(wire_token_logprobs, logprob),
    ARRAY(wire_token_logprobs, top, logprob, WIRE_LOGPROBS_MAX),
    {0},
};
TYPE(token_logprobs, "token_logprobs");

/* --- hello ---------------------------------------------------------------------------------------------- */

static int hello_check(const void *msg, struct hearth_err *e)
{
    const struct wire_hello *m = msg;
    if (m->version_min > m->version_max)
        return err_set(e, HEARTH_EPARAMS, "hello.version_min: %lld is over version_max %lld", (long long)m->version_min,
                       (long long)m->version_max);
    if (m->notify_as.v && m->notify_as.n != 2)
        return err_set(e, HEARTH_EPARAMS, "hello.notify_as: must be [METHOD, CODE]");
    return 0;
}

static const struct wire_field hello_fields[] = {
    INT(wire_hello, version_min, 0, INT32_MAX, WIRE_VERSION),
    INT(wire_hello, version_max, 0, INT32_MAX, WIRE_VERSION),
    STR(wire_hello, client, 0, WIRE_NAME_MAX),
    STRS(wire_hello, features, 64),
    STRS(wire_hello, notify_as, 2),
    {0},
};
TYPE(hello, "hello", .check = hello_check);

static const struct wire_field limits_fields[] = {
    COUNTER(wire_limits, frame_bytes), COUNTER(wire_limits, depth),       COUNTER(wire_limits, tokens),
    COUNTER(wire_limits, streams),     COUNTER(wire_limits, connections), COUNTER(wire_limits, stop_strings),
    COUNTER(wire_limits, logit_bias),  COUNTER(wire_limits, logprobs),    {0},
};
TYPE(limits, "limits");

static const struct wire_field hello_result_fields[] = {
    INT(wire_hello_result, version, 0, INT32_MAX, 0, REQUIRED),
    WORD(wire_hello_result, server, REQUIRED),
    STRS(wire_hello_result, features, 64, REQUIRED),
    STRUCT(wire_hello_result, limits, limits),
    {0},
};
TYPE(hello_result, "hello result");

/* --- generate ------------------------------------------------------------------------------------------- */

static int generate_check(const void *msg, struct hearth_err *e)
{
    const struct wire_generate *m = msg;
    int given = !!m->messages + !!m->text.data + !!m->tokens.v;
    if (given != 1)
        return err_set(e, HEARTH_EPARAMS, "generate: %s of messages, text, tokens is needed",
                       given ? "only one" : "one");
    if (!m->model && !m->session)
        return err_set(e, HEARTH_EPARAMS, "generate.model: is missing (and no session is named)");
    return 0;
}

static const char *const generate_reserved[] = {"adapter", "grammar", "tools", "n", NULL};
static const struct wire_field generate_fields[] = {
    PATH(wire_generate, model),
    WORD(wire_generate, session),
    WORD(wire_generate, request),
    ARRAY(wire_generate, messages, message, WIRE_MESSAGES_MAX),
    BYTES(wire_generate, text),
    IDS(wire_generate, tokens, 0),
    INT(wire_generate, max_tokens, -1, INT32_MAX, -1),
    STRS(wire_generate, stop, WIRE_STOPS_MAX),
    STRUCT(wire_generate, sampling, sampling),
    INT(wire_generate, logprobs, -1, WIRE_LOGPROBS_MAX, -1, SPARSE),
    BOOL(wire_generate, stream, true),
    BOOL(wire_generate, special, true),
    {0},
};
TYPE(generate, "generate", .reserved = generate_reserved, .check = generate_check);

static const struct wire_field generate_result_fields[] = {
    WORD(wire_generate_result, session),
    WORD(wire_generate_result, request),
    COUNTER(wire_generate_result, stream),
    BYTES(wire_generate_result, text, REQUIRED),
    IDS(wire_generate_result, tokens, 0, REQUIRED),
    WORD(wire_generate_result, finish_reason, REQUIRED),
    STRUCT(wire_generate_result, usage, usage, REQUIRED),
    STRUCT(wire_generate_result, timings, timings, REQUIRED),
    UINT(wire_generate_result, seed),
    ARRAY(wire_generate_result, logprobs, token_logprobs, WIRE_TOKENS_MAX),
    STR(wire_generate_result, error, 0, WIRE_PATH_MAX),
    {0},
};
TYPE(generate_result, "generate result");

static const struct wire_field stream_begin_fields[] = {
    COUNTER(wire_stream_begin, stream, REQUIRED),
    WORD(wire_stream_begin, session),
    WORD(wire_stream_begin, request),
    {0},
};
TYPE(stream_begin, "stream.begin");

static const struct wire_field stream_tokens_fields[] = {
    COUNTER(wire_stream_tokens, stream, REQUIRED),
    COUNTER(wire_stream_tokens, index, REQUIRED),
    COUNTER(wire_stream_tokens, count, REQUIRED),
    BYTES(wire_stream_tokens, text, REQUIRED),
    IDS(wire_stream_tokens, tokens, 0),
    ARRAY(wire_stream_tokens, logprobs, token_logprobs, WIRE_TOKENS_MAX),
    {0},
};
TYPE(stream_tokens, "stream.tokens");

static int cancel_check(const void *msg, struct hearth_err *e)
{
    const struct wire_cancel *m = msg;
    if ((m->stream >= 0) == !!m->request)
        return err_set(e, HEARTH_EPARAMS, "cancel: one of stream, request is needed");
    return 0;
}

static const struct wire_field cancel_fields[] = {
    INT(wire_cancel, stream, -1, INT64_MAX, -1, SPARSE),
    WORD(wire_cancel, request),
    {0},
};
TYPE(cancel, "cancel", .check = cancel_check);

static int attach_check(const void *msg, struct hearth_err *e)
{
    const struct wire_attach *m = msg;
    if ((m->stream >= 0) == !!m->request)
        return err_set(e, HEARTH_EPARAMS, "stream.attach: one of stream, request is needed");
    return 0;
}

static const struct wire_field attach_fields[] = {
    INT(wire_attach, stream, -1, INT64_MAX, -1, SPARSE),
    WORD(wire_attach, request),
    INT(wire_attach, from, 0, INT64_MAX, 0),
    {0},
};
TYPE(attach, "stream.attach", .check = attach_check);

static const struct wire_field cancel_result_fields[] = {BOOL(wire_cancel_result, cancelled, false), {0}};
TYPE(cancel_result, "cancel result");

static const struct wire_field notice_fields[] = {
    WORD(wire_notice, name, REQUIRED),
    STR(wire_notice, message, 0, WIRE_PATH_MAX, REQUIRED),
    INT(wire_notice, stream, -1, INT64_MAX, -1, SPARSE),
    {0},
};
TYPE(notice, "notice");

/* --- sessions ------------------------------------------------------------------------------------------- */

static const struct wire_field session_fields[] = {
    WORD(wire_session, id, REQUIRED), WORD(wire_session, name),           PATH(wire_session, model),
    PATH(wire_session, path),         COUNTER(wire_session, tokens),      COUNTER(wire_session, turns),
    AMOUNT(wire_session, created),    AMOUNT(wire_session, used),         BOOL(wire_session, busy, false),
    COUNTER(wire_session, bytes),     COUNTER(wire_session, kv_bytes),    BOOL(wire_session, pinned, false),
    AMOUNT(wire_session, expires),    BOOL(wire_session, damaged, false), {0},
};
TYPE(session, "session");

static const struct wire_field sessions_list_fields[] = {
    WORD(wire_sessions_list, from),
    {0},
};
TYPE(sessions_list, "params");

static const struct wire_field sessions_list_result_fields[] = {
    ARRAY(wire_sessions_list_result, sessions, session, INT32_MAX, REQUIRED),
    WORD(wire_sessions_list_result, next),
    {0},
};
TYPE(sessions_list_result, "sessions.list result");

static const struct wire_field session_ref_fields[] = {
    WORD(wire_session_ref, session, REQUIRED),
    BOOL(wire_session_ref, tokens, false),
    {0},
};
TYPE(session_ref, "params");

static const struct wire_field made_fields[] = {
    WORD(wire_made, finish_reason, REQUIRED),
    STRUCT(wire_made, usage, usage),
    STRUCT(wire_made, timings, timings),
    STRUCT(wire_made, sampling, sampling),
    {0},
};
TYPE(made, "made");

static const struct wire_field turn_fields[] = {
    WORD(wire_turn, role, REQUIRED),
    BYTES(wire_turn, text),
    COUNTER(wire_turn, n_tokens),
    FLOAT(wire_turn, created, -1e12, 1e12, 0),
    STRUCT_IF(wire_turn, made, made, has_made),
    IDS(wire_turn, tokens, 0),
    BOOL(wire_turn, continues, false, SPARSE),
    {0},
};
TYPE(turn, "turn");

static const struct wire_field session_show_result_fields[] = {
    STRUCT(wire_session_show_result, session, session, REQUIRED),
    ARRAY(wire_session_show_result, turns, turn, INT32_MAX, REQUIRED),
    IDS(wire_session_show_result, tokens, 0),
    {0},
};
TYPE(session_show_result, "sessions.show result");

static const struct wire_field session_rename_fields[] = {
    WORD(wire_session_rename, session, REQUIRED),
    WORD(wire_session_rename, name, REQUIRED),
    {0},
};
TYPE(session_rename, "params");

static const struct wire_field session_pin_fields[] = {
    WORD(wire_session_pin, session, REQUIRED),
    BOOL(wire_session_pin, pinned, true),
    {0},
};
TYPE(session_pin, "params");

static const struct wire_field session_export_fields[] = {
    WORD(wire_session_export, session, REQUIRED),
    COUNTER(wire_session_export, from),
    {0},
};
TYPE(session_export, "params");

static const struct wire_field session_page_fields[] = {
    COUNTER(wire_session_page, version, REQUIRED),
    STRUCT(wire_session_page, session, session, REQUIRED),
    BOOL(wire_session_page, turn_open, false),
    ARRAY(wire_session_page, turns, turn, INT32_MAX, REQUIRED),
    INT(wire_session_page, next, -1, INT64_MAX, -1, SPARSE),
    {0},
};
TYPE(session_page, "sessions.export result");

static int session_import_check(const void *msg, struct hearth_err *e)
{
    const struct wire_session_import *m = msg;
    if (m->page > 0)
        return 0;
    if (m->version != WIRE_EXPORT_VERSION)
        return err_set(e, HEARTH_EUNSUPPORTED, "sessions.import.version: %lld is not known, only %d",
                       (long long)m->version, WIRE_EXPORT_VERSION);
    if (!m->name)
        return err_set(e, HEARTH_EPARAMS, "sessions.import.name: is missing");
    if (!m->model)
        return err_set(e, HEARTH_EPARAMS, "sessions.import.model: is missing");
    return 0;
}

static const struct wire_field session_import_fields[] = {
    COUNTER(wire_session_import, page),
    BOOL(wire_session_import, more, false),
    ARRAY(wire_session_import, turns, turn, WIRE_MESSAGES_MAX),
    COUNTER(wire_session_import, version),
    WORD(wire_session_import, name),
    PATH(wire_session_import, model),
    WORD(wire_session_import, tokenizer),
    WORD(wire_session_import, tokenizer_digest),
    COUNTER(wire_session_import, vocab),
    FLOAT(wire_session_import, created, 0, 1e12, 0),
    BOOL(wire_session_import, turn_open, false),
    BOOL(wire_session_import, pinned, false),
    BOOL(wire_session_import, replace, false),
    {0},
};
TYPE(session_import, "sessions.import", .check = session_import_check);

static const struct wire_field imported_fields[] = {STRUCT_IF(wire_imported, session, session, has_session), {0}};
TYPE(imported, "sessions.import result");

static const struct wire_field backup_fields[] = {
    PATH(wire_backup, path, REQUIRED),
    BOOL(wire_backup, replace, false),
    {0},
};
TYPE(backup, "params");

static const struct wire_field backup_result_fields[] = {COUNTER(wire_backup_result, bytes), {0}};
TYPE(backup_result, "backup result");

/* --- models --------------------------------------------------------------------------------------------- */

static const struct wire_field model_fields[] = {
    PATH(wire_model, name, REQUIRED),
    PATH(wire_model, path, REQUIRED),
    COUNTER(wire_model, bytes),
    AMOUNT(wire_model, modified),
    BOOL(wire_model, loaded, false),
    WORD(wire_model, arch),
    WORD(wire_model, type),
    WORD(wire_model, digest),
    WORD(wire_model, tokenizer),
    WORD(wire_model, tokenizer_digest),
    WORD(wire_model, chat),
    COUNTER(wire_model, parameters, SPARSE),
    COUNTER(wire_model, context, SPARSE),
    COUNTER(wire_model, layers, SPARSE),
    COUNTER(wire_model, d_model, SPARSE),
    COUNTER(wire_model, heads, SPARSE),
    COUNTER(wire_model, kv_heads, SPARSE),
    COUNTER(wire_model, d_head, SPARSE),
    COUNTER(wire_model, d_ff, SPARSE),
    COUNTER(wire_model, vocab, SPARSE),
    {0},
};
TYPE(model, "model");

static const struct wire_field models_list_result_fields[] = {
    ARRAY(wire_models_list_result, models, model, INT32_MAX, REQUIRED),
    {0},
};
TYPE(models_list_result, "models.list result");

static const struct wire_field model_ref_fields[] = {PATH(wire_model_ref, model, REQUIRED), {0}};
TYPE(model_ref, "params");

static const struct wire_field model_load_result_fields[] = {
    PATH(wire_model_load_result, model),
    PATH(wire_model_load_result, path),
    AMOUNT(wire_model_load_result, load_ms),
    BOOL(wire_model_load_result, was_loaded, false),
    {0},
};
TYPE(model_load_result, "models.load result");

static const struct wire_field model_progress_fields[] = {
    PATH(wire_model_progress, model, REQUIRED),
    COUNTER(wire_model_progress, done),
    COUNTER(wire_model_progress, total),
    {0},
};
TYPE(model_progress, "model.progress");

/* --- status --------------------------------------------------------------------------------------------- */

static const struct wire_field loaded_model_fields[] = {
    PATH(wire_loaded_model, name),
    PATH(wire_loaded_model, path),
    WORD(wire_loaded_model, where),
    COUNTER(wire_loaded_model, bytes),
    COUNTER(wire_loaded_model, context),
    COUNTER(wire_loaded_model, context_used),
    COUNTER(wire_loaded_model, sequences),
    COUNTER(wire_loaded_model, pages_used),
    COUNTER(wire_loaded_model, pages_total),
    COUNTER(wire_loaded_model, page_bytes),
    BOOL(wire_loaded_model, vocab_only, false),
    AMOUNT(wire_loaded_model, expires),
    STR(wire_loaded_model, self_check, 1, HEARTH_ERR_MSG),
    {0},
};
TYPE(loaded_model, "loaded model");

static const struct wire_field kv_tiers_fields[] = {
    COUNTER(wire_kv_tiers, host_pages),     COUNTER(wire_kv_tiers, host_bytes),
    COUNTER(wire_kv_tiers, host_limit),     COUNTER(wire_kv_tiers, disk_pages),
    COUNTER(wire_kv_tiers, disk_bytes),     COUNTER(wire_kv_tiers, pages_saved),
    COUNTER(wire_kv_tiers, pages_restored), COUNTER(wire_kv_tiers, pages_dropped),
    COUNTER(wire_kv_tiers, bytes_saved),    COUNTER(wire_kv_tiers, bytes_restored),
    COUNTER(wire_kv_tiers, bytes_written),  COUNTER(wire_kv_tiers, bytes_read),
    COUNTER(wire_kv_tiers, files_written),  COUNTER(wire_kv_tiers, files_bad),
    COUNTER(wire_kv_tiers, moving),         AMOUNT(wire_kv_tiers, prefill_rate),
    AMOUNT(wire_kv_tiers, device_rate),     AMOUNT(wire_kv_tiers, read_rate),
    AMOUNT(wire_kv_tiers, write_rate),      {0},
};
TYPE(kv_tiers, "kv tiers");

static const struct wire_field engine_status_fields[] = {
    COUNTER(wire_engine_status, pid),
    WORD(wire_engine_status, state),
    WORD(wire_engine_status, backend),
    WORD(wire_engine_status, device),
    COUNTER(wire_engine_status, steps),
    COUNTER(wire_engine_status, rows),
    COUNTER(wire_engine_status, rows_max),
    COUNTER(wire_engine_status, tokens_computed),
    COUNTER(wire_engine_status, queued),
    COUNTER(wire_engine_status, running),
    COUNTER(wire_engine_status, restarts),
    COUNTER(wire_engine_status, mem_total),
    COUNTER(wire_engine_status, mem_free),
    COUNTER(wire_engine_status, mem_kept),
    STRUCT(wire_engine_status, kv, kv_tiers),
    ARRAY(wire_engine_status, models, loaded_model, INT32_MAX, REQUIRED),
    {0},
};
TYPE(engine_status, "engine status");

static const struct wire_field kv_share_fields[] = {
    COUNTER(wire_kv_share, uid, REQUIRED),
    COUNTER(wire_kv_share, files),
    COUNTER(wire_kv_share, bytes),
    {0},
};
TYPE(kv_share, "kv share");

static const struct wire_field kv_files_fields[] = {
    COUNTER(wire_kv_files, limit),
    COUNTER(wire_kv_files, limit_per_uid),
    ARRAY(wire_kv_files, shares, kv_share, INT32_MAX),
    {0},
};
TYPE(kv_files, "kv files");

static const struct wire_field status_result_fields[] = {
    COUNTER(wire_status_result, pid, REQUIRED),
    WORD(wire_status_result, version),
    PATH(wire_status_result, socket),
    AMOUNT(wire_status_result, uptime),
    COUNTER(wire_status_result, connections),
    COUNTER(wire_status_result, streams),
    COUNTER(wire_status_result, sessions),
    COUNTER(wire_status_result, rss_bytes),
    STRUCT(wire_status_result, kv_files, kv_files),
    STRUCT(wire_status_result, engine, engine_status, REQUIRED),
    {0},
};
TYPE(status_result, "status result");

static const struct wire_field shutdown_fields[] = {BOOL(wire_shutdown, now, false), {0}};
TYPE(shutdown, "shutdown");

/* --- tokenize, detokenize, eval ------------------------------------------------------------------------- */

static const struct wire_field tokenize_fields[] = {
    PATH(wire_tokenize, model, REQUIRED),
    BYTES(wire_tokenize, text, REQUIRED),
    BOOL(wire_tokenize, special, false),
    INT(wire_tokenize, bos, -1, 1, -1),
    {0},
};
TYPE(tokenize, "tokenize");

static const struct wire_field tokenize_result_fields[] = {
    {.name = "ids",
     .type = WIRE_IDS,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct wire_tokenize_result, ids),
     .i = {.hi = WIRE_LINK_FRAME_MAX}}, /* a frame of text has more tokens than a message may ask for */
    {0},
};
TYPE(tokenize_result, "tokenize result");

static const struct wire_field detokenize_fields[] = {
    PATH(wire_detokenize, model, REQUIRED),
    IDS(wire_detokenize, tokens, 0, REQUIRED),
    {0},
};
TYPE(detokenize, "detokenize");

static const struct wire_field detokenize_result_fields[] = {
    BYTES(wire_detokenize_result, bytes, .flags = FIELD_REQUIRED | FIELD_BIN),
    BYTES(wire_detokenize_result, text, REQUIRED),
    {0},
};
TYPE(detokenize_result, "detokenize result");

static const struct wire_field eval_fields[] = {
    PATH(wire_eval, model, REQUIRED),
    IDS(wire_eval, tokens, 1, REQUIRED),
    INT(wire_eval, top, 0, 1000, 0),
    INT(wire_eval, greedy, 0, WIRE_TOKENS_MAX, 0),
    {0},
};
TYPE(eval, "eval");

static const struct wire_field eval_result_fields[] = {
    {.name = "top",
     .type = WIRE_TOPS,
     .flags = FIELD_REQUIRED,
     .offset = AT(wire_eval_result, top, struct wire_top *),
     .beside = AT(wire_eval_result, n_top, size_t),
     .i = {.hi = WIRE_TOKENS_MAX}},
    IDS(wire_eval_result, greedy, 0, REQUIRED),
    {0},
};
TYPE(eval_result, "eval result");

/* --- engine link ---------------------------------------------------------------------------------------- */

static const struct wire_field engine_hello_fields[] = {INT(wire_engine_hello, version, 0, INT32_MAX, 0, REQUIRED),
                                                        {0}};
TYPE(engine_hello, "engine.hello");

static const struct wire_field engine_hello_result_fields[] = {
    INT(wire_engine_hello_result, version, 0, INT32_MAX, 0, REQUIRED),
    COUNTER(wire_engine_hello_result, pid),
    WORD(wire_engine_hello_result, backend),
    WORD(wire_engine_hello_result, device),
    {0},
};
TYPE(engine_hello_result, "engine.hello result");

/* The client's request inside engine.generate: a stream that is taken up again may have nothing left to append, so
 * none of messages, text, tokens is fine here. */
static const struct wire_type engine_generate_req_type = {
    .name = "req", .size = sizeof(struct wire_generate), .fields = generate_fields};

static const struct wire_field engine_generate_fields[] = {
    COUNTER(wire_engine_generate, stream, REQUIRED),
    INT(wire_engine_generate, uid, 0, UINT32_MAX, 0, REQUIRED),
    PATH(wire_engine_generate, path, REQUIRED),
    IDS(wire_engine_generate, history, 0),
    BOOL(wire_engine_generate, turn_open, false),
    COUNTER(wire_engine_generate, resumed),
    STR(wire_engine_generate, label, 1, 16),
    {.name = "req",
     .type = WIRE_STRUCT,
     .flags = FIELD_REQUIRED,
     .offset = AT(wire_engine_generate, req, struct wire_generate),
     .sub = &engine_generate_req_type},
    {0},
};
TYPE(engine_generate, "engine.generate");

static const struct wire_field engine_begin_fields[] = {
    COUNTER(wire_engine_begin, stream, REQUIRED),
    IDS(wire_engine_begin, appended, 0, REQUIRED),
    {0},
};
TYPE(engine_begin, "engine.begin");

static const struct wire_field engine_tokens_fields[] = {
    COUNTER(wire_engine_tokens, stream, REQUIRED),
    COUNTER(wire_engine_tokens, index, REQUIRED),
    IDS(wire_engine_tokens, tokens, 0, REQUIRED),
    BYTES(wire_engine_tokens, text, REQUIRED),
    ARRAY(wire_engine_tokens, logprobs, token_logprobs, WIRE_TOKENS_MAX),
    {0},
};
TYPE(engine_tokens, "engine.tokens");

static const struct wire_field engine_result_fields[] = {
    WORD(wire_engine_result, finish_reason, REQUIRED),
    BYTES(wire_engine_result, tail),
    STRUCT(wire_engine_result, usage, usage, REQUIRED),
    STRUCT(wire_engine_result, timings, timings, REQUIRED),
    UINT(wire_engine_result, seed),
    BOOL(wire_engine_result, turn_open, false),
    {0},
};
TYPE(engine_result, "engine.generate result");

static const struct wire_field engine_cancel_fields[] = {COUNTER(wire_engine_cancel, stream, REQUIRED), {0}};
TYPE(engine_cancel, "engine.cancel");

static const struct wire_field engine_kv_saved_fields[] = {
    WORD(wire_engine_kv_saved, file, REQUIRED),
    WORD(wire_engine_kv_saved, fingerprint, REQUIRED),
    INT(wire_engine_kv_saved, uid, 0, UINT32_MAX, 0, REQUIRED),
    COUNTER(wire_engine_kv_saved, bytes, REQUIRED),
    COUNTER(wire_engine_kv_saved, tokens, REQUIRED),
    COUNTER(wire_engine_kv_saved, pos, REQUIRED),
    STR(wire_engine_kv_saved, label, 1, 16),
    {0},
};
TYPE(engine_kv_saved, "engine.kv_saved");

static const struct wire_field engine_kv_used_fields[] = {WORD(wire_engine_kv_used, file, REQUIRED), {0}};
TYPE(engine_kv_used, "engine.kv_used");

static const struct wire_field engine_kv_bad_fields[] = {
    WORD(wire_engine_kv_bad, file, REQUIRED),
    STR(wire_engine_kv_bad, why, 0, WIRE_PATH_MAX, REQUIRED),
    {0},
};
TYPE(engine_kv_bad, "engine.kv_bad");

static const struct wire_field engine_kv_gone_fields[] = {WORD(wire_engine_kv_gone, file, REQUIRED), {0}};
TYPE(engine_kv_gone, "engine.kv_gone");

static const struct wire_field engine_path_fields[] = {PATH(wire_engine_path, path, REQUIRED), {0}};
TYPE(engine_path, "params");

/* --- the journal ---------------------------------------------------------------------------------------- */

static const struct wire_field journal_head_fields[] = {
    COUNTER(wire_journal_head, stream, REQUIRED),
    INT(wire_journal_head, uid, 0, UINT32_MAX, 0, REQUIRED),
    UINT(wire_journal_head, hash),
    WORD(wire_journal_head, session, REQUIRED),
    WORD(wire_journal_head, name),
    PATH(wire_journal_head, model, REQUIRED),
    PATH(wire_journal_head, path, REQUIRED),
    BOOL(wire_journal_head, is_new, false),
    AMOUNT(wire_journal_head, created),
    COUNTER(wire_journal_head, history),
    BOOL(wire_journal_head, turn_open, false),
    {.name = "req",
     .type = WIRE_STRUCT,
     .flags = FIELD_REQUIRED,
     .offset = AT(wire_journal_head, req, struct wire_generate),
     .sub = &engine_generate_req_type},
    {0},
};
TYPE(journal_head, "journal.head");

static const struct wire_field journal_end_fields[] = {
    AMOUNT(wire_journal_end, time),
    STR(wire_journal_end, error, 0, WIRE_PATH_MAX),
    STRUCT(wire_journal_end, result, engine_result, REQUIRED),
    {0},
};
TYPE(journal_end, "journal.end");

/* --- methods -------------------------------------------------------------------------------------------- */

#define CALL(id, n, p, r)  [id] = {n, WIRE_REQUEST, false, &p##_type, &r##_type}
#define LINK(id, n, p, r)  [id] = {n, WIRE_REQUEST, true, &p##_type, &r##_type}
#define EVENT(id, n, l, p) [id] = {n, WIRE_EVENT, l, &p##_type, NULL}

const struct wire_method wire_methods[] = {
    CALL(WIRE_HELLO, "hello", hello, hello_result),
    CALL(WIRE_GENERATE, "generate", generate, generate_result),
    CALL(WIRE_CANCEL, "cancel", cancel, cancel_result),
    CALL(WIRE_STREAM_ATTACH, "stream.attach", attach, generate_result),
    CALL(WIRE_SESSIONS_LIST, "sessions.list", sessions_list, sessions_list_result),
    CALL(WIRE_SESSIONS_SHOW, "sessions.show", session_ref, session_show_result),
    CALL(WIRE_SESSIONS_RENAME, "sessions.rename", session_rename, empty),
    CALL(WIRE_SESSIONS_REMOVE, "sessions.remove", session_ref, empty),
    CALL(WIRE_SESSIONS_PIN, "sessions.pin", session_pin, empty),
    CALL(WIRE_SESSIONS_EXPORT, "sessions.export", session_export, session_page),
    CALL(WIRE_SESSIONS_IMPORT, "sessions.import", session_import, imported),
    CALL(WIRE_BACKUP, "backup", backup, backup_result),
    CALL(WIRE_MODELS_LIST, "models.list", empty, models_list_result),
    CALL(WIRE_MODELS_SHOW, "models.show", model_ref, model),
    CALL(WIRE_MODELS_LOAD, "models.load", model_ref, model_load_result),
    CALL(WIRE_MODELS_UNLOAD, "models.unload", model_ref, empty),
    CALL(WIRE_STATUS, "status", empty, status_result),
    CALL(WIRE_SHUTDOWN, "shutdown", shutdown, empty),
    CALL(WIRE_TOKENIZE, "tokenize", tokenize, tokenize_result),
    CALL(WIRE_DETOKENIZE, "detokenize", detokenize, detokenize_result),
    CALL(WIRE_EVAL, "eval", eval, eval_result),
    EVENT(WIRE_STREAM_BEGIN, "stream.begin", false, stream_begin),
    EVENT(WIRE_STREAM_TOKENS, "stream.tokens", false, stream_tokens),
    EVENT(WIRE_MODEL_PROGRESS, "model.progress", false, model_progress),
    EVENT(WIRE_NOTICE, "notice", false, notice),
    LINK(WIRE_ENGINE_HELLO, "engine.hello", engine_hello, engine_hello_result),
    LINK(WIRE_ENGINE_GENERATE, "engine.generate", engine_generate, engine_result),
    LINK(WIRE_ENGINE_CANCEL, "engine.cancel", engine_cancel, empty),
    LINK(WIRE_ENGINE_LOAD, "engine.load", engine_path, model_load_result),
    LINK(WIRE_ENGINE_UNLOAD, "engine.unload", engine_path, empty),
    LINK(WIRE_ENGINE_MODEL, "engine.model", engine_path, model),
    LINK(WIRE_ENGINE_STATUS, "engine.status", empty, engine_status),
    LINK(WIRE_ENGINE_TOKENIZE, "engine.tokenize", tokenize, tokenize_result),
    LINK(WIRE_ENGINE_DETOKENIZE, "engine.detokenize", detokenize, detokenize_result),
    LINK(WIRE_ENGINE_EVAL, "engine.eval", eval, eval_result),
    LINK(WIRE_ENGINE_KV_GONE, "engine.kv_gone", engine_kv_gone, empty),
    LINK(WIRE_ENGINE_SHUTDOWN, "engine.shutdown", empty, empty),
    EVENT(WIRE_ENGINE_BEGIN, "engine.begin", true, engine_begin),
    EVENT(WIRE_ENGINE_TOKENS, "engine.tokens", true, engine_tokens),
    EVENT(WIRE_ENGINE_KV_SAVED, "engine.kv_saved", true, engine_kv_saved),
    EVENT(WIRE_ENGINE_KV_USED, "engine.kv_used", true, engine_kv_used),
    EVENT(WIRE_ENGINE_KV_BAD, "engine.kv_bad", true, engine_kv_bad),
    EVENT(WIRE_JOURNAL_HEAD, "journal.head", true, journal_head),
    EVENT(WIRE_JOURNAL_END, "journal.end", true, journal_end),
    EVENT(WIRE_TURN_MADE, "turn.made", true, made),
    {0},
};

static const char *const reserved_methods[] = {"embed", "sessions.fork", NULL};

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
    err_set(e, HEARTH_EMETHOD, "method %.*s is not known", (int)(len < 64 ? len : 64), name);
    return NULL;
}
