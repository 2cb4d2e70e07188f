/*
 * wire-rows-models.c - the field tables of models.* and of the requests to a model that start no stream.
 */
#include "libclient/wire-rows.h"

static const struct wire_field op_fields[] = {
    WORD(wire_op, op, REQUIRED),
    WORD(wire_op, text, REQUIRED),
    WORD(wire_op, one),
    WORD(wire_op, few),
    WORD(wire_op, many),
    WORD(wire_op, invariant),
    {0},
};
TYPE(op, "op");

static const struct wire_field special_token_fields[] = {
    WORD(wire_special_token, role, REQUIRED),
    COUNTER(wire_special_token, id, REQUIRED),
    BYTES(wire_special_token, text),
    {0},
};
static TYPE(special_token, "special token");

static const struct wire_field default_fields[] = {
    WORD(wire_default, name, REQUIRED),
    AMOUNT(wire_default, value),
    {0},
};
static TYPE(default, "default");

static const struct wire_field models_list_fields[] = {BOOL(wire_models_list, details, false), {0}};
TYPE(models_list, "models.list");

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
    STR(wire_model, chat, 1, WIRE_PATH_MAX),
    STR(wire_model, chat_error, 1, HEARTH_ERR_MSG),
    COUNTER(wire_model, parameters, SPARSE),
    COUNTER(wire_model, context, SPARSE),
    COUNTER(wire_model, layers, SPARSE),
    COUNTER(wire_model, d_model, SPARSE),
    COUNTER(wire_model, heads, SPARSE),
    COUNTER(wire_model, kv_heads, SPARSE),
    COUNTER(wire_model, d_head, SPARSE),
    COUNTER(wire_model, d_ff, SPARSE),
    COUNTER(wire_model, vocab, SPARSE),
    ARRAY(wire_model, ops, op, WIRE_OPS_MAX),
    BOOL(wire_model, read, false, SPARSE),
    WORD(wire_model, kind),
    STR(wire_model, refusal, 1, HEARTH_ERR_MSG),
    STRS(wire_model, capabilities, 16),
    ARRAY(wire_model, special, special_token, 64),
    ARRAY(wire_model, sampling, default, 64),
    {0},
};
TYPE(model, "model");

static const struct wire_field models_list_result_fields[] = {
    ARRAY(wire_models_list_result, models, model, INT32_MAX, REQUIRED),
    PATH(wire_models_list_result, default_model),
    STRS(wire_models_list_result, folders, 4096),
    {0},
};
TYPE(models_list_result, "models.list result");

static const struct wire_field model_ref_fields[] = {PATH(wire_model_ref, model, REQUIRED), {0}};
TYPE(model_ref, "params");

static const struct wire_field model_pin_fields[] = {
    PATH(wire_model_pin, model, REQUIRED),
    BOOL(wire_model_pin, pinned, true),
    {0},
};
TYPE(model_pin, "models.pin");

static const struct wire_field model_pass_fields[] = {PATH(wire_model_pass, path, REQUIRED), {0}};
TYPE(model_pass, "models.pass");

static const struct wire_field engine_pass_fields[] = {
    PATH(wire_engine_pass, path, REQUIRED),
    BOOL(wire_engine_pass, gone, false, SPARSE),
    {0},
};
TYPE(engine_pass, "engine.pass");

static const struct wire_field engine_pin_fields[] = {
    PATH(wire_engine_pin, path, REQUIRED),
    COUNTER(wire_engine_pin, client, SPARSE),
    BOOL(wire_engine_pin, pinned, true),
    {0},
};
TYPE(engine_pin, "engine.pin");

static const struct wire_field model_show_fields[] = {
    PATH(wire_model_show, model, REQUIRED),
    BOOL(wire_model_show, ops, false),
    {0},
};
TYPE(model_show, "models.show");

static const struct wire_field model_load_result_fields[] = {
    PATH(wire_model_load_result, model),
    PATH(wire_model_load_result, path),
    AMOUNT(wire_model_load_result, load_ms),
    BOOL(wire_model_load_result, was_loaded, false),
    WORD(wire_model_load_result, where),
    STR(wire_model_load_result, no_gpu, 1, HEARTH_ERR_MSG),
    STRS(wire_model_load_result, slow, 16),
    COUNTER(wire_model_load_result, bytes),
    COUNTER(wire_model_load_result, host_bytes, SPARSE),
    AMOUNT(wire_model_load_result, speed),
    {0},
};
TYPE(model_load_result, "models.load result");

static const struct wire_field model_progress_fields[] = {
    PATH(wire_model_progress, model, REQUIRED), COUNTER(wire_model_progress, done),
    COUNTER(wire_model_progress, total),        COUNTER(wire_model_progress, host_bytes, SPARSE),
    AMOUNT(wire_model_progress, speed),         {0},
};
TYPE(model_progress, "model.progress");

/* --- tokenize, detokenize, eval ----------------------------------------------------------------------------------- */

/* On the engine link each of these has more fields (client, generated), which the same struct contains. */
#define wire_engine_tokenize   wire_tokenize
#define wire_engine_detokenize wire_detokenize
#define wire_engine_eval       wire_eval

#define TOKENIZE                                                                                                     \
    PATH(wire_tokenize, model, REQUIRED), BYTES(wire_tokenize, text, REQUIRED), BOOL(wire_tokenize, special, false), \
        INT(wire_tokenize, bos, -1, 1, -1)
static const struct wire_field tokenize_fields[] = {TOKENIZE, {0}};
TYPE(tokenize, "tokenize");
static const struct wire_field engine_tokenize_fields[] = {TOKENIZE, COUNTER(wire_tokenize, client, SPARSE), {0}};
TYPE(engine_tokenize, "engine.tokenize");

static const struct wire_field tokenize_result_fields[] = {
    {.name = "ids",
     .type = WIRE_IDS,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct wire_tokenize_result, ids),
     .i = {.hi = WIRE_LINK_FRAME_MAX}}, /* a frame of text may become more tokens than a message may contain */
    {0},
};
TYPE(tokenize_result, "tokenize result");

#define DETOKENIZE PATH(wire_detokenize, model, REQUIRED), IDS(wire_detokenize, tokens, 0, REQUIRED)
static const struct wire_field detokenize_fields[] = {DETOKENIZE, {0}};
TYPE(detokenize, "detokenize");
static const struct wire_field engine_detokenize_fields[] = {DETOKENIZE,
                                                             BOOL(wire_detokenize, generated, false, SPARSE),
                                                             BYTES(wire_detokenize, text, SPARSE),
                                                             BYTES(wire_detokenize, reasoning, SPARSE),
                                                             COUNTER(wire_detokenize, reasoning_tokens, SPARSE),
                                                             COUNTER(wire_detokenize, first, SPARSE),
                                                             COUNTER(wire_detokenize, client, SPARSE),
                                                             WORD(wire_detokenize, hash, SPARSE),
                                                             IDS(wire_detokenize, history, 0, .flags = FIELD_BIN),
                                                             {0}};
TYPE(engine_detokenize, "engine.detokenize");

#define DETOKENIZE_RESULT                                                      \
    BYTES(wire_detokenize_result, bytes, .flags = FIELD_REQUIRED | FIELD_BIN), \
        BYTES(wire_detokenize_result, text, REQUIRED)
static const struct wire_field detokenize_result_fields[] = {DETOKENIZE_RESULT, {0}};
TYPE(detokenize_result, "detokenize result");

_Static_assert(offsetof(struct wire_engine_detokenize_result, told) == 0, "a client gets its beginning");
static const struct wire_field engine_detokenize_result_fields[] = {
    DETOKENIZE_RESULT,
    BYTES(wire_engine_detokenize_result, reasoning, SPARSE),
    COUNTER(wire_engine_detokenize_result, reasoning_tokens, SPARSE),
    {0},
};
TYPE(engine_detokenize_result, "engine.detokenize result");

static int render_check(const void *msg, struct hearth_err *e)
{
    const struct wire_render *m = msg;
    return m->chat_template && m->template_name
               ? err_set(e, HEARTH_EPARAMS, "render: only one of chat_template, template_name is possible")
               : 0;
}

static const struct wire_field render_fields[] = {
    PATH(wire_render, model, REQUIRED),
    JSON(wire_render, messages, WIRE_JSON_LIST),
    JSON(wire_render, tools, WIRE_JSON_LIST),
    JSON(wire_render, documents, WIRE_JSON_LIST),
    JSON(wire_render, kwargs, WIRE_JSON_MAP),
    STR(wire_render, bos_token, 0, WIRE_PATH_MAX),
    STR(wire_render, eos_token, 0, WIRE_PATH_MAX),
    STR(wire_render, chat_template, 0, WIRE_TEMPLATE_MAX),
    WORD(wire_render, template_name),
    WORD(wire_render, now),
    BOOL(wire_render, add_generation_prompt, false),
    {0},
};
TYPE(render, "render", .check = render_check, .strict = true);
static const struct wire_field render_result_fields[] = {
    BYTES(wire_render_result, text, REQUIRED),
    {.name = "ids",
     .type = WIRE_IDS,
     .flags = FIELD_REQUIRED,
     .offset = AT(wire_render_result, ids, struct wire_ids),
     .i = {.hi = WIRE_LINK_FRAME_MAX}},
    {0},
};
TYPE(render_result, "render result");

#define EVAL                                                                                                \
    PATH(wire_eval, model, REQUIRED), IDS(wire_eval, tokens, 1, REQUIRED), INT(wire_eval, top, 0, 1000, 0), \
        INT(wire_eval, greedy, 0, WIRE_TOKENS_MAX, 0)
static const struct wire_field eval_fields[] = {EVAL, {0}};
TYPE(eval, "eval");
static const struct wire_field engine_eval_fields[] = {EVAL, COUNTER(wire_eval, client, SPARSE), {0}};
TYPE(engine_eval, "engine.eval");

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
