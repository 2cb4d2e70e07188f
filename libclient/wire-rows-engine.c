/*
 * wire-rows-engine.c - the field tables of the engine link and the journal, which no client sees.
 */
#include "libclient/wire-rows.h"

/* --- engine link -------------------------------------------------------------------------------------------------- */

static const struct wire_field engine_hello_fields[] = {INT(wire_engine_hello, version, 0, INT32_MAX, 0, REQUIRED),
                                                        {0}};
TYPE(engine_hello, "engine.hello");

static const struct wire_field engine_hello_result_fields[] = {
    INT(wire_engine_hello_result, version, 0, INT32_MAX, 0, REQUIRED),
    COUNTER(wire_engine_hello_result, pid),
    WORD(wire_engine_hello_result, backend),
    WORD(wire_engine_hello_result, device),
    COUNTER(wire_engine_hello_result, devices),
    {0},
};
TYPE(engine_hello_result, "engine.hello result");

static const struct wire_field past_message_fields[] = {
    STRUCT(wire_past_message, message, message, REQUIRED),
    BYTES(wire_past_message, reasoning, SPARSE),
    {0},
};
static TYPE(past_message, "past message");

static const struct wire_field engine_generate_fields[] = {
    COUNTER(wire_engine_generate, stream, REQUIRED),
    INT(wire_engine_generate, uid, 0, UINT32_MAX, 0, REQUIRED),
    PATH(wire_engine_generate, path, REQUIRED),
    IDS(wire_engine_generate, history, 0, .flags = FIELD_BIN), /* as bytes: it is long, and sent for every turn */
    BOOL(wire_engine_generate, turn_open, false),
    ARRAY(wire_engine_generate, past, past_message, INT32_MAX),
    COUNTER(wire_engine_generate, past_at),
    COUNTER(wire_engine_generate, resumed),
    COUNTER(wire_engine_generate, client, SPARSE),
    STR(wire_engine_generate, label, 1, 16),
    WORD(wire_engine_generate, markers),
    BOOL(wire_engine_generate, thinking, false, SPARSE),
    WORD(wire_engine_generate, hash, SPARSE),
    COUNTER(wire_engine_generate, hashed, SPARSE),
    {.name = "req",
     .type = WIRE_STRUCT,
     .flags = FIELD_REQUIRED,
     .offset = AT(wire_engine_generate, req, struct wire_generate),
     .sub = &wire_engine_generate_req_type},
    {0},
};
TYPE(engine_generate, "engine.generate");

static const struct wire_field engine_begin_fields[] = {
    COUNTER(wire_engine_begin, stream, REQUIRED),
    IDS(wire_engine_begin, appended, 0, REQUIRED),
    BOOL(wire_engine_begin, history_kept, false),
    BOOL(wire_engine_begin, think_unknown, false, SPARSE),
    WORD(wire_engine_begin, markers),
    BOOL(wire_engine_begin, thinking, false, SPARSE),
    WORD(wire_engine_begin, hash, SPARSE),
    COUNTER(wire_engine_begin, hashed, SPARSE),
    STRUCT_IF(wire_engine_begin, sampling, sampling, has_sampling),
    {0},
};
TYPE(engine_begin, "engine.begin");

static const struct wire_field engine_tokens_fields[] = {
    COUNTER(wire_engine_tokens, stream, REQUIRED),
    COUNTER(wire_engine_tokens, index, REQUIRED),
    IDS(wire_engine_tokens, tokens, 0, REQUIRED),
    BYTES(wire_engine_tokens, text, REQUIRED),
    BYTES(wire_engine_tokens, reasoning, SPARSE),
    BYTES(wire_engine_tokens, held, SPARSE),
    BYTES(wire_engine_tokens, held_reasoning, SPARSE),
    COUNTER(wire_engine_tokens, reasoning_tokens, SPARSE),
    ARRAY(wire_engine_tokens, logprobs, token_logprobs, WIRE_TOKENS_MAX),
    {0},
};
TYPE(engine_tokens, "engine.tokens");

static const struct wire_field engine_result_fields[] = {
    WORD(wire_engine_result, finish_reason, REQUIRED),
    STRUCT(wire_engine_result, usage, usage, REQUIRED),
    STRUCT(wire_engine_result, timings, timings, REQUIRED),
    UINT(wire_engine_result, seed),
    BOOL(wire_engine_result, turn_open, false),
    {0},
};
TYPE(engine_result, "engine.generate result");

static int engine_yield_check(const void *msg, struct hearth_err *e)
{
    const struct wire_engine_yield *m = msg;
    if (m->most < 0 && m->seconds > 0 && m->all == (m->bytes > 0))
        return err_set(e, HEARTH_EPARAMS, "engine.yield: exactly one of bytes, all is needed");
    return 0;
}

static const struct wire_field engine_yield_fields[] = {
    COUNTER(wire_engine_yield, bytes),
    BOOL(wire_engine_yield, all, false),
    FLOAT(wire_engine_yield, seconds, 0, 86400, 60),
    INT(wire_engine_yield, most, -1, INT64_MAX, -1),
    {0},
};
TYPE(engine_yield, "engine.yield", .check = engine_yield_check);

static const struct wire_field engine_yield_result_fields[] = {
    COUNTER(wire_engine_yield_result, freed),
    COUNTER(wire_engine_yield_result, free),
    COUNTER(wire_engine_yield_result, held),
    STR(wire_engine_yield_result, why, 0, HEARTH_ERR_MSG),
    {0},
};
TYPE(engine_yield_result, "engine.yield result");

static const struct wire_field engine_parked_fields[] = {
    COUNTER(wire_engine_parked, stream, REQUIRED),
    BOOL(wire_engine_parked, parked, false),
    BOOL(wire_engine_parked, yielded, false),
    {0},
};
TYPE(engine_parked, "engine.parked");

static const struct wire_field engine_cancel_fields[] = {COUNTER(wire_engine_cancel, stream, REQUIRED), {0}};
TYPE(engine_cancel, "engine.cancel");

static const struct wire_field engine_class_fields[] = {
    COUNTER(wire_engine_class, stream, REQUIRED),
    WORD(wire_engine_class, class, REQUIRED),
    {0},
};
TYPE(engine_class, "engine.class");

static const struct wire_field engine_kv_saved_fields[] = {
    WORD(wire_engine_kv_saved, file, REQUIRED),
    WORD(wire_engine_kv_saved, fingerprint, REQUIRED),
    INT(wire_engine_kv_saved, uid, 0, UINT32_MAX, 0, REQUIRED),
    COUNTER(wire_engine_kv_saved, bytes, REQUIRED),
    COUNTER(wire_engine_kv_saved, tokens, REQUIRED),
    COUNTER(wire_engine_kv_saved, pos, REQUIRED),
    STR(wire_engine_kv_saved, label, 1, 16),
    COUNTER(wire_engine_kv_saved, stream, 0),
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

static const struct wire_field engine_kv_dir_fields[] = {
    STR(wire_engine_kv_dir, path, 1, WIRE_PATH_MAX, REQUIRED),
    {0},
};
TYPE(engine_kv_dir, "engine.kv_dir");

static const struct wire_field engine_kv_gone_fields[] = {
    WORD(wire_engine_kv_gone, file, REQUIRED), BOOL(wire_engine_kv_gone, again, true), {0}};
TYPE(engine_kv_gone, "engine.kv_gone");

static const struct wire_field engine_trace_fields[] = {
    COUNTER(wire_engine_trace, stream, REQUIRED),
    COUNTER(wire_engine_trace, seq),
    INT(wire_engine_trace, pid, 1, INT32_MAX, 1, REQUIRED),
    AMOUNT(wire_engine_trace, at),
    WORD(wire_engine_trace, stage, REQUIRED),
    WORD(wire_engine_trace, word),
    COUNTER(wire_engine_trace, n1, SPARSE),
    COUNTER(wire_engine_trace, n2, SPARSE),
    COUNTER(wire_engine_trace, n3, SPARSE),
    COUNTER(wire_engine_trace, n4, SPARSE),
    COUNTER(wire_engine_trace, n5, SPARSE),
    {0},
};
TYPE(engine_trace, "engine.trace");

static const struct wire_field engine_forget_fields[] = {INT(wire_engine_forget, id, 0, UINT32_MAX, 0, REQUIRED), {0}};
TYPE(engine_forget, "engine.forget");

static const struct wire_field engine_render_fields[] = {
    COUNTER(wire_engine_render, client, SPARSE), STRUCT(wire_engine_render, req, render, REQUIRED), {0}};
TYPE(engine_render, "engine.render");

static const struct wire_field engine_path_fields[] = {PATH(wire_engine_path, path, REQUIRED),
                                                       COUNTER(wire_engine_path, client, SPARSE),
                                                       BOOL(wire_engine_path, here, false, SPARSE),
                                                       {0}};
TYPE(engine_path, "params");

static const struct wire_field engine_file_fields[] = {
    PATH(wire_engine_file, path, REQUIRED),
    COUNTER(wire_engine_file, bytes),
    AMOUNT(wire_engine_file, modified),
    {0},
};
static TYPE(engine_file, "file");

static const struct wire_field engine_heads_fields[] = {
    ARRAY(wire_engine_heads, files, engine_file, WIRE_HEADS_MAX, REQUIRED), {0}};
TYPE(engine_heads, "engine.heads");

static const struct wire_field engine_heads_result_fields[] = {
    ARRAY(wire_engine_heads_result, heads, model, WIRE_HEADS_MAX, REQUIRED), {0}};
TYPE(engine_heads_result, "engine.heads result");

static const struct wire_field engine_model_fields[] = {
    PATH(wire_engine_model, path, REQUIRED),
    BOOL(wire_engine_model, ops, false),
    COUNTER(wire_engine_model, client, SPARSE),
    {0},
};
TYPE(engine_model, "engine.model");

/* --- the journal -------------------------------------------------------------------------------------------------- */

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
    INT(wire_journal_head, choice, -1, WIRE_CHOICES_MAX - 1, -1, SPARSE),
    {.name = "req",
     .type = WIRE_STRUCT,
     .flags = FIELD_REQUIRED,
     .offset = AT(wire_journal_head, req, struct wire_generate),
     .sub = &wire_engine_generate_req_type},
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
