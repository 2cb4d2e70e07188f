/*
 * wire-rows-sessions.c - the field tables of sessions.*.
 */
#include "libclient/wire-rows.h"

static const struct wire_field session_fields[] = {
    WORD(wire_session, id, REQUIRED),
    WORD(wire_session, name),
    PATH(wire_session, model),
    PATH(wire_session, path),
    COUNTER(wire_session, tokens),
    COUNTER(wire_session, turns),
    AMOUNT(wire_session, created),
    AMOUNT(wire_session, used),
    BOOL(wire_session, busy, false),
    COUNTER(wire_session, bytes),
    COUNTER(wire_session, kv_bytes),
    BOOL(wire_session, pinned, false),
    AMOUNT(wire_session, expires),
    BOOL(wire_session, damaged, false),
    WORD(wire_session, parent),
    COUNTER(wire_session, shared, SPARSE),
    BOOL(wire_session, ephemeral, false, SPARSE),
    {0},
};
TYPE(session, "session");

static const struct wire_field sessions_list_fields[] = {
    WORD(wire_sessions_list, from),
    BOOL(wire_sessions_list, ephemeral, false, SPARSE),
    {0},
};
TYPE(sessions_list, "sessions.list");

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

#define GENERATION_INFO                                                                              \
    WORD(wire_generation_info, finish_reason, REQUIRED), STRUCT(wire_generation_info, usage, usage), \
        STRUCT(wire_generation_info, timings, timings), STRUCT(wire_generation_info, sampling, sampling)

static const struct wire_field generation_info_fields[] = {GENERATION_INFO, {0}};
TYPE(generation_info, "generation");

_Static_assert(offsetof(struct wire_turn_generation, info) == 0, "the rows of its beginning are those of the part");
static const struct wire_field turn_generation_fields[] = {
    GENERATION_INFO,
    BYTES(wire_turn_generation, reasoning, SPARSE),
    WORD(wire_turn_generation, hash, SPARSE),
    COUNTER(wire_turn_generation, hashed, SPARSE),
    {0},
};
TYPE(turn_generation, "turn.generation");

static const struct wire_field turn_fields[] = {
    WORD(wire_turn, role, REQUIRED),
    BYTES(wire_turn, text),
    BYTES(wire_turn, reasoning, SPARSE),
    COUNTER(wire_turn, n_tokens),
    FLOAT(wire_turn, created, -1e12, 1e12, 0),
    STRUCT_IF(wire_turn, generation, generation_info, has_generation),
    IDS(wire_turn, tokens, 0),
    BOOL(wire_turn, continues, false, SPARSE),
    JSON(wire_turn, message, WIRE_JSON_MAP),
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
TYPE(session_rename, "sessions.rename");

static const struct wire_field session_pin_fields[] = {
    WORD(wire_session_pin, session, REQUIRED),
    BOOL(wire_session_pin, pinned, true),
    {0},
};
TYPE(session_pin, "sessions.pin");

static int session_fork_check(const void *msg, struct hearth_err *e)
{
    const struct wire_session_fork *m = msg;
    if (m->names.n && (int64_t)m->names.n != m->count)
        return err_set(e, HEARTH_EPARAMS, "sessions.fork.names: there are %zu for %lld forks", m->names.n,
                       (long long)m->count);
    return 0;
}

static const struct wire_field session_fork_fields[] = {
    WORD(wire_session_fork, session, REQUIRED),          INT(wire_session_fork, at, 0, INT32_MAX, -1, SPARSE),
    INT(wire_session_fork, count, 1, WIRE_FORKS_MAX, 1), STRS(wire_session_fork, names, WIRE_FORKS_MAX),
    BOOL(wire_session_fork, ephemeral, false),           {0},
};
TYPE(session_fork, "sessions.fork", .check = session_fork_check);

static const struct wire_field forked_fields[] = {ARRAY(wire_forked, sessions, session, WIRE_FORKS_MAX, REQUIRED), {0}};
TYPE(forked, "sessions.fork result");

static const struct wire_field session_adopt_fields[] = {
    WORD(wire_session_adopt, session, REQUIRED),
    BOOL(wire_session_adopt, replace, false),
    {0},
};
TYPE(session_adopt, "sessions.adopt");

static const struct wire_field adopted_fields[] = {STRUCT(wire_adopted, session, session, REQUIRED), {0}};
TYPE(adopted, "sessions.adopt result");

static const struct wire_field session_export_fields[] = {
    WORD(wire_session_export, session, REQUIRED),
    COUNTER(wire_session_export, from),
    {0},
};
TYPE(session_export, "sessions.export");

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
