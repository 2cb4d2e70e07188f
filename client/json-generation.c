/* json-generation.c - converts a turn's generation metadata to JSON and back: both directions use the same tables of
 * members, so that they agree. */
#include <inttypes.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

struct member {
    const char *key;
    bool real; /* a double, else an int64_t */
    size_t at;
};
#define INT(T, m)                        \
    {                                    \
#m, false, offsetof(struct T, m) \
    }
#define REAL(T, m)                      \
    {                                   \
#m, true, offsetof(struct T, m) \
    }

static const struct member usage_members[] = {
    INT(hearth_usage, prompt_tokens),
    INT(hearth_usage, reused_tokens),
    INT(hearth_usage, restored_tokens),
    INT(hearth_usage, computed_tokens),
    INT(hearth_usage, completion_tokens),
    INT(hearth_usage, reasoning_tokens),
    {0},
};
static const struct member timings_members[] = {
    REAL(hearth_timings, queue_ms),          REAL(hearth_timings, load_ms),
    REAL(hearth_timings, restore_ms),        REAL(hearth_timings, prefill_ms),
    REAL(hearth_timings, decode_ms),         REAL(hearth_timings, total_ms),
    REAL(hearth_timings, tokens_per_second), {0},
};
static const struct member sampling_members[] = {
    REAL(hearth_sampling, temperature),
    REAL(hearth_sampling, top_p),
    REAL(hearth_sampling, min_p),
    REAL(hearth_sampling, repetition_penalty),
    REAL(hearth_sampling, presence_penalty),
    REAL(hearth_sampling, frequency_penalty),
    INT(hearth_sampling, top_k),
    INT(hearth_sampling, penalty_last),
    {0},
};

static json_t *members(const struct member *table, const void *from)
{
    json_t *o = json_object();
    for (const struct member *m = table; m->key; m++) {
        const char *p = (const char *)from + m->at;
        json_object_set_new(o, m->key,
                            m->real ? json_real(*(const double *)(const void *)p)
                                    : json_integer(*(const int64_t *)(const void *)p));
    }
    return o;
}

/* Absent members leave their fields unchanged, because documents of older versions have fewer. */
static bool members_parse(const struct member *table, const json_t *o, void *to)
{
    for (const struct member *m = table; m->key; m++) {
        char *p = (char *)to + m->at;
        const json_t *v = json_object_get(o, m->key);
        if (!v)
            continue;
        if (m->real ? !json_is_number(v) : !json_is_integer(v))
            return false;
        if (m->real)
            *(double *)(void *)p = json_number_value(v);
        else
            *(int64_t *)(void *)p = json_integer_value(v);
    }
    return !o || json_is_object(o);
}

json_t *json_usage(const struct hearth_usage *u)
{
    return members(usage_members, u);
}

json_t *json_timings(const struct hearth_timings *t)
{
    return members(timings_members, t);
}

/* A seed has 64 bits and jansson's integers have 63: larger seeds are written as a string, which JavaScript needs
 * anyway. */
json_t *json_seed(uint64_t seed)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, seed);
    return seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_string(text);
}

/* Removes the parameters that the request left open and whose values are unknown. */
static void drop_unset(json_t *sampling)
{
    static const char *const may_be[] = {"temperature",        "top_p", "min_p",
                                         "repetition_penalty", "top_k", "penalty_last"};
    for (size_t i = 0; i < sizeof may_be / sizeof *may_be; i++)
        if (json_number_value(json_object_get(sampling, may_be[i])) < 0)
            json_object_del(sampling, may_be[i]);
}

json_t *json_generation_info(const struct hearth_generation_info *info)
{
    const struct hearth_sampling *s = &info->sampling;
    json_t *sampling = members(sampling_members, s);
    drop_unset(sampling);
    if (s->has_seed)
        json_object_set_new(sampling, "seed", json_seed(s->seed));
    if (s->n_logit_bias) {
        json_t *bias = json_array();
        for (size_t i = 0; i < s->n_logit_bias; i++)
            json_array_append_new(bias, json_pack("[I, f]", (json_int_t)s->logit_bias[i].id, s->logit_bias[i].bias));
        json_object_set_new(sampling, "logit_bias", bias);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "finish_reason", json_str(info->finish_reason), "usage",
                     json_usage(&info->usage), "timings", json_timings(&info->timings), "sampling", sampling);
}

static bool seed_parse(const json_t *v, struct hearth_sampling *s)
{
    if (!v)
        return true;
    char *end = NULL;
    errno = 0;
    if (json_is_integer(v))
        s->seed = (uint64_t)json_integer_value(v);
    else if (json_is_string(v))
        s->seed = strtoull(json_string_value(v), &end, 10);
    s->has_seed = true;
    return end ? end != json_string_value(v) && !*end && !errno && *json_string_value(v) != '-'
               : json_is_integer(v) && json_integer_value(v) >= 0;
}

static bool bias_parse(const json_t *v, struct hearth_sampling *s)
{
    size_t n = json_array_size(v);
    if (!v)
        return true;
    if (!json_is_array(v) || !(s->logit_bias = calloc(n + 1, sizeof *s->logit_bias)))
        return false;
    s->n_logit_bias = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(v, i), *id = json_array_get(pair, 0), *bias = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(id) || !json_is_number(bias))
            return false;
        s->logit_bias[i] = (struct hearth_bias){json_integer_value(id), json_number_value(bias)};
    }
    return true;
}

bool generation_info_parse(const json_t *o, struct hearth_generation_info *out)
{
    struct hearth_generate defaults;
    hearth_generate_init(&defaults, sizeof defaults);
    *out = (struct hearth_generation_info){.finish_reason = json_string_value(json_object_get(o, "finish_reason")),
                                           .sampling = defaults.sampling};
    const json_t *sampling = json_object_get(o, "sampling");
    return out->finish_reason && members_parse(usage_members, json_object_get(o, "usage"), &out->usage) &&
           members_parse(timings_members, json_object_get(o, "timings"), &out->timings) &&
           members_parse(sampling_members, sampling, &out->sampling) &&
           seed_parse(json_object_get(sampling, "seed"), &out->sampling) &&
           bias_parse(json_object_get(sampling, "logit_bias"), &out->sampling);
}
