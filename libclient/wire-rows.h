/*
 * wire-rows.h - how the rows are written: one macro per type of field, and the types that the rows make.
 *
 * A row checks itself: a member of another C type than the row's does not compile. One file per service
 * (wire-rows-*.c); wire-tables.c makes the methods of them.
 */
#ifndef HEARTH_WIRE_ROWS_H
#define HEARTH_WIRE_ROWS_H

#include "libclient/wire-json.h"
#include "libclient/wire-table.h"

/* clang-format off */
/* Offset of a member that must have type C, or this does not compile. */
#define AT(T, m, C) (offsetof(struct T, m) + 0 * sizeof(_Generic(((struct T *)0)->m, C : 1)))

#define BOOL(T, m, d, ...)        {.name = #m, .type = WIRE_BOOL, .offset = AT(T, m, bool), .i = {.def = d}, ##__VA_ARGS__}
#define INT(T, m, l, h, d, ...)   {.name = #m, .type = WIRE_INT, .offset = AT(T, m, int64_t), .i = {l, h, d}, ##__VA_ARGS__}
#define COUNTER(T, m, ...)        INT(T, m, 0, INT64_MAX, 0, ##__VA_ARGS__)
#define UINT(T, m)                {.name = #m, .type = WIRE_UINT, .offset = AT(T, m, uint64_t)}
#define UINT_IF(T, m, has)        {.name = #m, .type = WIRE_UINT, .flags = FIELD_HAS, .offset = AT(T, m, uint64_t), .beside = AT(T, has, bool)}
#define FLOAT(T, m, l, h, d, ...)  {.name = #m, .type = WIRE_FLOAT, .offset = AT(T, m, double), .f = {l, h, d}, ##__VA_ARGS__}
#define AMOUNT(T, m)              FLOAT(T, m, -1e18, 1e18, 0)
#define STR(T, m, l, h, ...)      {.name = #m, .type = WIRE_STR, .offset = AT(T, m, const char *), .i = {.lo = l, .hi = h}, ##__VA_ARGS__}
#define WORD(T, m, ...)           STR(T, m, 1, WIRE_NAME_MAX, ##__VA_ARGS__)
#define PATH(T, m, ...)           STR(T, m, 1, WIRE_PATH_MAX, ##__VA_ARGS__)
#define BYTES(T, m, ...)          {.name = #m, .type = WIRE_BYTES, .offset = AT(T, m, struct wire_bytes), .i = {.hi = WIRE_LINK_FRAME_MAX}, ##__VA_ARGS__}
#define IDS(T, m, l, ...)         {.name = #m, .type = WIRE_IDS, .offset = AT(T, m, struct wire_ids), .i = {.lo = l, .hi = WIRE_TOKENS_MAX}, ##__VA_ARGS__}
#define STRS(T, m, h, ...)        {.name = #m, .type = WIRE_STRS, .offset = AT(T, m, struct wire_strs), .i = {.hi = h}, ##__VA_ARGS__}
#define STRUCT(T, m, t, ...)      {.name = #m, .type = WIRE_STRUCT, .offset = AT(T, m, struct wire_##t), .sub = &wire_##t##_type, ##__VA_ARGS__}
#define STRUCT_IF(T, m, t, has)   {.name = #m, .type = WIRE_STRUCT, .flags = FIELD_HAS, .offset = AT(T, m, struct wire_##t), .beside = AT(T, has, bool), .sub = &wire_##t##_type}
#define ARRAY(T, m, t, h, ...)    {.name = #m, .type = WIRE_ARRAY, .offset = AT(T, m, struct wire_##t *), .beside = AT(T, n_##m, size_t), .i = {.hi = h}, .sub = &wire_##t##_type, ##__VA_ARGS__}
#define JSON(T, m, root, ...)     {.name = #m, .type = WIRE_JSON, .offset = AT(T, m, const char *), .i = {.lo = root}, ##__VA_ARGS__}
#define PAIRS(T, m, h)            {.name = #m, .type = WIRE_PAIRS, .offset = AT(T, m, struct wire_bias *), .beside = AT(T, n_##m, size_t), .i = {.hi = h}}
#define REQUIRED                  .flags = FIELD_REQUIRED
#define SPARSE                    .flags = FIELD_SPARSE
#define TYPE(t, label, ...)       const struct wire_type wire_##t##_type = {.name = label, .size = sizeof(struct wire_##t), .fields = t##_fields, ##__VA_ARGS__}
/* clang-format on */

/* wire-rows-pieces.c */
extern const struct wire_type wire_empty_type, wire_part_type, wire_message_type, wire_sampling_type, wire_usage_type,
    wire_timings_type, wire_logprob_type, wire_token_logprobs_type;
/* wire-rows-streams.c */
extern const struct wire_type wire_measured_type, wire_file_type, wire_generate_type, wire_generate_result_type,
    wire_stream_begin_type, wire_stream_tokens_type, wire_cancel_type, wire_attach_type, wire_streams_list_type,
    wire_stream_progress_type, wire_stream_queued_type, wire_streams_list_result_type, wire_streams_trace_type,
    wire_trace_result_type, wire_cancel_result_type, wire_stream_error_type, wire_notice_type,
    wire_engine_generate_req_type;
/* wire-rows-sessions.c */
extern const struct wire_type wire_session_type, wire_sessions_list_type, wire_sessions_list_result_type,
    wire_session_ref_type, wire_generation_info_type, wire_turn_generation_type, wire_turn_type,
    wire_session_show_result_type, wire_session_rename_type, wire_session_pin_type, wire_session_export_type,
    wire_session_page_type, wire_session_import_type, wire_imported_type, wire_session_fork_type, wire_forked_type,
    wire_session_adopt_type, wire_adopted_type;
/* wire-rows-models.c */
extern const struct wire_type wire_op_type, wire_models_list_type, wire_model_type, wire_model_show_type,
    wire_models_list_result_type, wire_model_ref_type, wire_model_pin_type, wire_engine_pin_type, wire_model_pass_type,
    wire_engine_pass_type, wire_model_load_result_type, wire_model_progress_type, wire_tokenize_type,
    wire_tokenize_result_type, wire_detokenize_type, wire_detokenize_result_type, wire_render_type,
    wire_render_result_type, wire_engine_render_type, wire_engine_tokenize_type, wire_engine_detokenize_type,
    wire_engine_detokenize_result_type, wire_engine_eval_type, wire_engine_forget_type, wire_eval_type,
    wire_eval_result_type;
/* wire-rows-daemon.c */
extern const struct wire_type wire_hello_type, wire_limits_type, wire_hello_result_type, wire_loaded_model_type,
    wire_kv_tiers_type, wire_engine_status_type, wire_kv_share_type, wire_kv_files_type, wire_status_result_type,
    wire_shutdown_type, wire_yield_type, wire_yield_result_type, wire_engine_yield_type, wire_engine_yield_result_type,
    wire_engine_parked_type, wire_backup_type, wire_backup_result_type;
/* wire-rows-engine.c */
extern const struct wire_type wire_engine_hello_type, wire_engine_hello_result_type, wire_engine_generate_type,
    wire_engine_begin_type, wire_engine_tokens_type, wire_engine_result_type, wire_engine_cancel_type,
    wire_engine_class_type, wire_engine_kv_saved_type, wire_engine_kv_used_type, wire_engine_kv_bad_type,
    wire_engine_trace_type, wire_engine_kv_dir_type, wire_engine_kv_gone_type, wire_engine_path_type,
    wire_engine_heads_type, wire_engine_heads_result_type, wire_engine_model_type, wire_journal_head_type,
    wire_journal_end_type;

#endif
