/*
 * wire-rows-daemon.c - the field tables of the requests to the daemon as a whole: hello, status, yield, shutdown,
 * backup.
 */
#include "libclient/wire-rows.h"

/* --- hello -------------------------------------------------------------------------------------------------------- */

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

/* --- status ------------------------------------------------------------------------------------------------------- */

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
    COUNTER(wire_loaded_model, states_used),
    COUNTER(wire_loaded_model, states_total),
    COUNTER(wire_loaded_model, state_bytes),
    BOOL(wire_loaded_model, vocab_only, false),
    AMOUNT(wire_loaded_model, expires),
    BOOL(wire_loaded_model, pinned, false),
    STR(wire_loaded_model, self_check, 1, HEARTH_ERR_MSG),
    STRS(wire_loaded_model, slow, 16),
    COUNTER(wire_loaded_model, host_bytes, SPARSE),
    AMOUNT(wire_loaded_model, speed),
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

static const struct wire_field program_fields[] = {
    COUNTER(wire_program, pid),
    COUNTER(wire_program, bytes),
    WORD(wire_program, name),
    {0},
};
static TYPE(program, "program");

static const struct wire_field memory_fields[] = {
    COUNTER(wire_memory, limit),
    COUNTER(wire_memory, weights),
    COUNTER(wire_memory, kv),
    COUNTER(wire_memory, workspace),
    COUNTER(wire_memory, cache),
    COUNTER(wire_memory, context),
    COUNTER(wire_memory, pinned),
    COUNTER(wire_memory, others),
    STR(wire_memory, others_unknown, 1, HEARTH_ERR_MSG),
    ARRAY(wire_memory, programs, program, 64),
    {0},
};
static TYPE(memory, "memory");

static const struct wire_field path_rows_fields[] = {
    WORD(wire_path_rows, path, REQUIRED),
    COUNTER(wire_path_rows, rows),
    {0},
};
static TYPE(path_rows, "path rows");

static const struct wire_field engine_status_fields[] = {
    COUNTER(wire_engine_status, pid),
    WORD(wire_engine_status, state),
    WORD(wire_engine_status, backend),
    WORD(wire_engine_status, device),
    STR(wire_engine_status, no_gpu, 1, HEARTH_ERR_MSG),
    COUNTER(wire_engine_status, steps),
    COUNTER(wire_engine_status, rows),
    COUNTER(wire_engine_status, rows_max),
    COUNTER(wire_engine_status, tokens_computed),
    COUNTER(wire_engine_status, queued),
    COUNTER(wire_engine_status, running),
    COUNTER(wire_engine_status, restarts),
    COUNTER(wire_engine_status, mem_total),
    COUNTER(wire_engine_status, mem_free),
    COUNTER(wire_engine_status, mem_cached),
    STRUCT(wire_engine_status, memory, memory),
    STRUCT(wire_engine_status, kv, kv_tiers),
    ARRAY(wire_engine_status, models, loaded_model, INT32_MAX, REQUIRED),
    COUNTER(wire_engine_status, replays),
    ARRAY(wire_engine_status, paths, path_rows, INT32_MAX),
    STR(wire_engine_status, failure, 1, HEARTH_ERR_MSG),
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

static const struct wire_field bucket_fields[] = {
    AMOUNT(wire_bucket, le),
    COUNTER(wire_bucket, count, REQUIRED),
    {0},
};
TYPE(bucket, "bucket");

static const struct wire_field histogram_fields[] = {
    AMOUNT(wire_histogram, sum),
    COUNTER(wire_histogram, count),
    ARRAY(wire_histogram, buckets, bucket, 256),
    {0},
};
TYPE(histogram, "histogram");

static const struct wire_field served_fields[] = {
    COUNTER(wire_served, stop),
    COUNTER(wire_served, length),
    COUNTER(wire_served, context_full),
    COUNTER(wire_served, cancelled),
    COUNTER(wire_served, error),
    COUNTER(wire_served, prompt_tokens),
    COUNTER(wire_served, reused_tokens),
    COUNTER(wire_served, restored_tokens),
    COUNTER(wire_served, completion_tokens),
    STRUCT(wire_served, first_token, histogram),
    STRUCT(wire_served, per_token, histogram),
    STRUCT(wire_served, total, histogram),
    STRUCT(wire_served, queue, histogram),
    {0},
};
TYPE(served, "served");

static const struct wire_field loop_fields[] = {
    COUNTER(wire_loop, bytes),
    COUNTER(wire_loop, rows),
    AMOUNT(wire_loop, cpu),
    {0},
};
TYPE(loop, "loop");

static const struct wire_field status_result_fields[] = {
    COUNTER(wire_status_result, pid, REQUIRED),
    WORD(wire_status_result, version),
    PATH(wire_status_result, socket),
    AMOUNT(wire_status_result, uptime),
    COUNTER(wire_status_result, connections),
    COUNTER(wire_status_result, streams),
    COUNTER(wire_status_result, waiting),
    COUNTER(wire_status_result, sessions),
    COUNTER(wire_status_result, rss_bytes),
    STRUCT(wire_status_result, kv_files, kv_files),
    PATH(wire_status_result, config),
    STR(wire_status_result, no_sessions, 1, HEARTH_ERR_MSG),
    COUNTER(wire_status_result, games),
    STR(wire_status_result, no_games, 1, HEARTH_ERR_MSG),
    FLOAT(wire_status_result, yielded, 0, 86400, 0),
    STRUCT(wire_status_result, served, served),
    STRUCT(wire_status_result, longest, loop),
    STRUCT(wire_status_result, engine, engine_status, REQUIRED),
    ARRAY(wire_status_result, engines, engine_status, 64),
    {0},
};
TYPE(status_result, "status result");

static int yield_check(const void *msg, struct hearth_err *e)
{
    const struct wire_yield *m = msg;
    if (m->seconds > 0 && m->all == (m->bytes > 0))
        return err_set(e, HEARTH_EPARAMS, "yield: exactly one of bytes, all is needed");
    return 0;
}

static const struct wire_field yield_fields[] = {
    COUNTER(wire_yield, bytes),
    BOOL(wire_yield, all, false),
    FLOAT(wire_yield, seconds, 0, 86400, 60),
    {0},
};
TYPE(yield, "yield", .check = yield_check);

static const struct wire_field yield_result_fields[] = {
    COUNTER(wire_yield_result, freed),
    COUNTER(wire_yield_result, free),
    {0},
};
TYPE(yield_result, "yield result");

static const struct wire_field shutdown_fields[] = {BOOL(wire_shutdown, now, false), {0}};
TYPE(shutdown, "shutdown");

/* --- backup ------------------------------------------------------------------------------------------------------- */

static const struct wire_field backup_fields[] = {
    PATH(wire_backup, path, REQUIRED),
    BOOL(wire_backup, replace, false),
    {0},
};
TYPE(backup, "backup");

static const struct wire_field backup_result_fields[] = {COUNTER(wire_backup_result, bytes), {0}};
TYPE(backup_result, "backup result");
