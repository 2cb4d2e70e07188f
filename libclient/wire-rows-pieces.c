/*
 * wire-rows-pieces.c - the field tables of parts that several messages have in common.
 */
#include "libclient/wire-rows.h"

static const struct wire_field empty_fields[] = {{0}};
TYPE(empty, "params");

static const char *const part_types[] = {"text", NULL};
static const struct wire_field part_fields[] = {
    WORD(wire_part, type, REQUIRED, .one_of = part_types),
    BYTES(wire_part, text, REQUIRED),
    {0},
};
TYPE(part, "part");

static const struct wire_field message_fields[] = {
    WORD(wire_message, role, REQUIRED),
    {.name = "content",
     .type = WIRE_CONTENT,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct wire_message, content),
     .beside = offsetof(struct wire_message, parts),
     .i = {.hi = WIRE_PARTS_MAX},
     .sub = &wire_part_type},
    {0},
};
TYPE(message, "message", .whole = AT(wire_message, json, const char *));

static const struct wire_field sampling_fields[] = {
    FLOAT(wire_sampling, temperature, 0, 100, HEARTH_UNSET, SPARSE),
    INT(wire_sampling, top_k, 0, 1000000, HEARTH_UNSET, SPARSE),
    FLOAT(wire_sampling, top_p, 0, 1, HEARTH_UNSET, SPARSE),
    FLOAT(wire_sampling, min_p, 0, 1, HEARTH_UNSET, SPARSE),
    FLOAT(wire_sampling, repetition_penalty, 0.01, 100, HEARTH_UNSET, SPARSE),
    FLOAT(wire_sampling, presence_penalty, -100, 100, 0),
    FLOAT(wire_sampling, frequency_penalty, -100, 100, 0),
    INT(wire_sampling, penalty_last, 0, WIRE_TOKENS_MAX, HEARTH_UNSET, SPARSE),
    UINT_IF(wire_sampling, seed, has_seed),
    PAIRS(wire_sampling, logit_bias, WIRE_BIAS_MAX),
    {0},
};
TYPE(sampling, "sampling");

static const struct wire_field usage_fields[] = {
    COUNTER(wire_usage, prompt_tokens),
    COUNTER(wire_usage, reused_tokens),
    COUNTER(wire_usage, restored_tokens),
    COUNTER(wire_usage, computed_tokens),
    COUNTER(wire_usage, completion_tokens),
    COUNTER(wire_usage, reasoning_tokens, SPARSE),
    {0},
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
