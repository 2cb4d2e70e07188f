/*
 * wire-rows-streams.c - the field tables of generate and of its streams.
 */
#include "libclient/wire-rows.h"

static int generate_check(const void *msg, struct hearth_err *e)
{
    const struct wire_generate *m = msg;
    bool fim = m->prefix.data || m->suffix.data;
    int given = !!m->messages + !!m->text.data + !!m->tokens.v + fim;
    if (given != 1)
        return err_set(e, HEARTH_EPARAMS, "generate: %s of messages, text, tokens, prefix (with suffix) is needed",
                       given ? "only one" : "one");
    if (!fim && (m->n_extra || m->file || m->repo))
        return err_set(e, HEARTH_EPARAMS, "generate.%s: is for prefix and suffix alone",
                       m->n_extra ? "extra"
                       : m->file  ? "file"
                                  : "repo");
    if (fim && m->session)
        return err_set(e, HEARTH_EPARAMS,
                       "generate.session: what fills in the middle is kept in no session; its KV is found without one");
    if (m->n > 1 && m->session)
        return err_set(e, HEARTH_EPARAMS,
                       "generate.n: several completions go without a session; sessions.fork makes several that go on");
    if (!m->model && !m->session)
        return err_set(e, HEARTH_EPARAMS, "generate.model: is missing (and no session is named)");
    bool chat = m->tools || m->documents || m->kwargs || m->chat_template || m->template_name || m->think;
    if (chat && !m->messages)
        return err_set(e, HEARTH_EPARAMS,
                       "generate: tools, documents, kwargs, think, chat_template and template_name go with messages");
    if (m->chat_template && m->template_name)
        return err_set(e, HEARTH_EPARAMS, "generate: only one of chat_template, template_name is possible");
    return 0;
}

static const struct wire_field file_fields[] = {
    PATH(wire_file, name, REQUIRED),
    BYTES(wire_file, text, REQUIRED),
    {0},
};
TYPE(file, "file");

static const char *const classes[] = {"interactive", "normal", "background", NULL};
static const char *const on_off[] = {"on", "off", NULL};
static const char *const generate_reserved[] = {"adapter", "grammar", NULL};
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
    BYTES(wire_generate, prefix),
    BYTES(wire_generate, suffix),
    ARRAY(wire_generate, extra, file, WIRE_FILES_MAX),
    PATH(wire_generate, file),
    PATH(wire_generate, repo),
    JSON(wire_generate, tools, WIRE_JSON_LIST),
    JSON(wire_generate, documents, WIRE_JSON_LIST),
    JSON(wire_generate, kwargs, WIRE_JSON_MAP),
    STR(wire_generate, chat_template, 0, WIRE_TEMPLATE_MAX),
    WORD(wire_generate, template_name),
    {.name = "class",
     .type = WIRE_STR,
     .offset = AT(wire_generate, service_class, const char *),
     .i = {.lo = 1, .hi = WIRE_NAME_MAX},
     .one_of = classes},
    INT(wire_generate, deadline_ms, 0, 86400000, 0, SPARSE),
    BOOL(wire_generate, dry, false, SPARSE),
    BOOL(wire_generate, ignore_eos, false, SPARSE),
    WORD(wire_generate, think, .one_of = on_off),
    INT(wire_generate, n, 1, WIRE_CHOICES_MAX, 0, SPARSE),
    {0},
};
TYPE(generate, "generate", .reserved = generate_reserved, .check = generate_check, .strict = true);

/* The client's request inside engine.generate. It has no check(): a stream that is resumed may have nothing left to
 * append, so messages, text and tokens may all be absent here. */
const struct wire_type wire_engine_generate_req_type = {
    .name = "req", .size = sizeof(struct wire_generate), .fields = generate_fields};

static const struct wire_field choice_fields[] = {
    COUNTER(wire_choice, index, REQUIRED),
    COUNTER(wire_choice, stream),
    BYTES(wire_choice, text, REQUIRED),
    BYTES(wire_choice, reasoning, SPARSE),
    IDS(wire_choice, tokens, 0, REQUIRED),
    WORD(wire_choice, finish_reason, REQUIRED),
    UINT(wire_choice, seed),
    ARRAY(wire_choice, logprobs, token_logprobs, WIRE_TOKENS_MAX),
    STR(wire_choice, error, 0, WIRE_PATH_MAX),
    {0},
};
static TYPE(choice, "choice");

static const struct wire_field generate_result_fields[] = {
    WORD(wire_generate_result, session),
    WORD(wire_generate_result, request),
    COUNTER(wire_generate_result, stream),
    BYTES(wire_generate_result, text, REQUIRED),
    BYTES(wire_generate_result, reasoning, SPARSE),
    IDS(wire_generate_result, tokens, 0, REQUIRED),
    WORD(wire_generate_result, finish_reason, REQUIRED),
    STRUCT(wire_generate_result, usage, usage, REQUIRED),
    STRUCT(wire_generate_result, timings, timings, REQUIRED),
    UINT(wire_generate_result, seed),
    ARRAY(wire_generate_result, logprobs, token_logprobs, WIRE_TOKENS_MAX),
    STR(wire_generate_result, error, 0, WIRE_PATH_MAX),
    ARRAY(wire_generate_result, choices, choice, WIRE_CHOICES_MAX, SPARSE),
    {0},
};
TYPE(generate_result, "generate result");

static const struct wire_field measured_fields[] = {
    COUNTER(wire_measured, prompt_tokens, REQUIRED),
    COUNTER(wire_measured, reused_tokens, REQUIRED),
    BOOL(wire_measured, fits, false),
    {0},
};
TYPE(measured, "generate result");

static const struct wire_field stream_begin_fields[] = {
    COUNTER(wire_stream_begin, stream, REQUIRED),
    WORD(wire_stream_begin, session),
    WORD(wire_stream_begin, request),
    PATH(wire_stream_begin, model),
    INT(wire_stream_begin, choice, -1, WIRE_CHOICES_MAX - 1, -1, SPARSE),
    {0},
};
TYPE(stream_begin, "stream.begin");

static const struct wire_field stream_tokens_fields[] = {
    COUNTER(wire_stream_tokens, stream, REQUIRED),
    COUNTER(wire_stream_tokens, index, REQUIRED),
    COUNTER(wire_stream_tokens, count, REQUIRED),
    BYTES(wire_stream_tokens, text, REQUIRED),
    BYTES(wire_stream_tokens, reasoning, SPARSE),
    INT(wire_stream_tokens, choice, -1, WIRE_CHOICES_MAX - 1, -1, SPARSE),
    IDS(wire_stream_tokens, tokens, 0),
    ARRAY(wire_stream_tokens, logprobs, token_logprobs, WIRE_TOKENS_MAX),
    {0},
};
TYPE(stream_tokens, "stream.tokens");

static const struct wire_field stream_progress_fields[] = {
    COUNTER(wire_stream_progress, stream, REQUIRED),
    COUNTER(wire_stream_progress, done, REQUIRED),
    COUNTER(wire_stream_progress, total, REQUIRED),
    {0},
};
TYPE(stream_progress, "stream.progress");

static const struct wire_field stream_queued_fields[] = {
    WORD(wire_stream_queued, request),
    COUNTER(wire_stream_queued, position, REQUIRED),
    AMOUNT(wire_stream_queued, seconds),
    {0},
};
TYPE(stream_queued, "stream.queued");

static const struct wire_field stream_error_fields[] = {
    WORD(wire_stream_error, request, REQUIRED),
    {.name = "error",
     .type = WIRE_FAULT,
     .flags = FIELD_REQUIRED,
     .offset = AT(wire_stream_error, error, struct wire_fault),
     .i = {.lo = 1, .hi = WIRE_LINE_MAX}},
    {0},
};
TYPE(stream_error, "stream.error");

static const struct wire_field request_id_fields[] = {WORD(wire_request_id, request), {0}};
TYPE(request_id, "generate");

static int cancel_check(const void *msg, struct hearth_err *e)
{
    const struct wire_cancel *m = msg;
    if ((m->stream >= 0) == !!m->request)
        return err_set(e, HEARTH_EPARAMS, "cancel: exactly one of stream, request is needed");
    return 0;
}

static const struct wire_field cancel_fields[] = {
    INT(wire_cancel, stream, 0, INT64_MAX, -1, SPARSE),
    WORD(wire_cancel, request),
    {0},
};
TYPE(cancel, "cancel", .check = cancel_check);

static int attach_check(const void *msg, struct hearth_err *e)
{
    const struct wire_attach *m = msg;
    if ((m->stream >= 0) == !!m->request)
        return err_set(e, HEARTH_EPARAMS, "stream.attach: exactly one of stream, request is needed");
    return 0;
}

static const struct wire_field attach_fields[] = {
    INT(wire_attach, stream, 0, INT64_MAX, -1, SPARSE),
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

/* --- streams.list ------------------------------------------------------------------------------------------------- */

static const struct wire_field streams_list_fields[] = {BOOL(wire_streams_list, ended, false), {0}};
TYPE(streams_list, "streams.list");

static const struct wire_field stream_info_fields[] = {
    COUNTER(wire_stream_info, stream, REQUIRED),
    WORD(wire_stream_info, state, REQUIRED),
    WORD(wire_stream_info, request),
    WORD(wire_stream_info, session),
    WORD(wire_stream_info, name),
    PATH(wire_stream_info, model),
    COUNTER(wire_stream_info, tokens),
    COUNTER(wire_stream_info, attached),
    AMOUNT(wire_stream_info, began),
    AMOUNT(wire_stream_info, ended),
    INT(wire_stream_info, choice, -1, WIRE_CHOICES_MAX - 1, -1, SPARSE),
    {0},
};
static TYPE(stream_info, "stream");

static const struct wire_field streams_list_result_fields[] = {
    ARRAY(wire_streams_list_result, streams, stream_info, INT32_MAX, REQUIRED),
    {0},
};
TYPE(streams_list_result, "streams.list result");

/* --- streams.trace ------------------------------------------------------------------------------------------------ */

static const struct wire_field streams_trace_fields[] = {COUNTER(wire_streams_trace, stream, REQUIRED), {0}};
TYPE(streams_trace, "streams.trace");

static const struct wire_field trace_field_fields[] = {
    WORD(wire_trace_field, name, REQUIRED),
    WORD(wire_trace_field, value, REQUIRED),
    {0},
};
static TYPE(trace_field, "trace field");

static const struct wire_field trace_event_fields[] = {
    AMOUNT(wire_trace_event, at),
    WORD(wire_trace_event, where, REQUIRED),
    COUNTER(wire_trace_event, engine, SPARSE),
    WORD(wire_trace_event, stage, REQUIRED),
    ARRAY(wire_trace_event, fields, trace_field, WIRE_TRACE_FIELDS_MAX),
    {0},
};
static TYPE(trace_event, "trace event");

static const struct wire_field trace_result_fields[] = {
    COUNTER(wire_trace_result, stream, REQUIRED),
    ARRAY(wire_trace_result, events, trace_event, WIRE_TRACE_MAX, REQUIRED),
    COUNTER(wire_trace_result, lost),
    {0},
};
TYPE(trace_result, "streams.trace result");
