/*
 * wire.h - every message that crosses a socket of ours, as a struct; PROTOCOL.md says what the fields mean.
 *
 * The codec is one walk over tables: a struct per message, a table of its fields (wire.c), a row per method in
 * wire_methods[]. The client protocol and the engine link (methods "engine.*") share frames and codec, so the
 * engine can be driven alone in a test. Nothing here does I/O.
 *
 * Ownership: a packed frame is bytes in a struct wire_buf, the caller's. An unpacked message is one block with
 * everything it points to inside; wire_free() frees it. Pointers in a struct that is to be packed are borrowed
 * for the call. All strings are NUL-terminated; `len` counts without the NUL. Text that need not be UTF-8 or
 * may hold NULs is a wire_bytes (msgpack str or bin on the way in; str on the way out where it is UTF-8, else bin).
 *
 * Threads: no globals but constant tables; any thread may use its own values.
 */
#ifndef HEARTH_WIRE_H
#define HEARTH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

enum {
    WIRE_VERSION = 1,               /* of the client protocol */
    WIRE_FRAME_MAX = 8 << 20,       /* bytes in one frame from a client */
    WIRE_LINK_FRAME_MAX = 64 << 20, /* bytes in one frame on the engine link */
    WIRE_DEPTH_MAX = 16,            /* nesting of arrays and maps */
    WIRE_NAME_MAX = 256,            /* bytes in a session name, request id, method */
    WIRE_TOKENS_MAX = 1 << 20,      /* token ids in one message */
    WIRE_STOPS_MAX = 16,
    WIRE_BIAS_MAX = 1024,
    WIRE_LOGPROBS_MAX = 20,
};

/* --- pieces -------------------------------------------------------------------------------------------- */

struct wire_bytes {
    const char *data; /* NULL: absent */
    size_t len;
};
struct wire_ids {
    const int32_t *v; /* NULL: absent */
    size_t n;
};
struct wire_strs {
    const char **v;
    size_t n;
};

/* One part of a message's typed content; `type` other than "text" is refused by name. */
struct wire_part {
    const char *type;
    struct wire_bytes text;
};
struct wire_message {
    const char *role;          /* system, user, assistant */
    struct wire_bytes content; /* a string ... */
    struct wire_part *parts;   /* ... or typed parts (key "content" too) */
    size_t n_parts;
};

struct wire_bias {
    int64_t id;
    double bias;
};

/* PROTOCOL.md "sampling" gives ranges and defaults; kernels/backend.h says how they are applied. */
struct wire_sampling {
    double temperature;       /* 0.8 */
    int64_t top_k;            /* 40; 0 = off */
    double top_p;             /* 0.95; 1 = off */
    double min_p;             /* 0.05; 0 = off */
    double repetition_penalty; /* 1 = off */
    double presence_penalty;  /* 0 = off */
    double frequency_penalty; /* 0 = off */
    int64_t penalty_last;     /* 64 tokens of history; 0 = whole timeline */
    bool has_seed;
    uint64_t seed;
    struct wire_bias *logit_bias; /* on the wire: array of [id, bias] */
    size_t n_logit_bias;
};

struct wire_usage {
    int64_t prompt_tokens;     /* the whole context before the first new token = reused + computed */
    int64_t reused_tokens;
    int64_t computed_tokens;
    int64_t completion_tokens; /* an end token is not counted */
};
struct wire_timings { /* milliseconds */
    double queue_ms;   /* from the request to its admission to a step, loading left out */
    double load_ms;    /* waiting for the model to load */
    double prefill_ms; /* from admission to the first token */
    double decode_ms;  /* from the first token to the last */
    double total_ms;
    double tokens_per_second; /* of decode; 0 where fewer than two tokens came */
};

struct wire_logprob {
    int64_t id;
    double logprob;
    struct wire_bytes text; /* the token's bytes */
};
/* One completion token with its alternatives. */
struct wire_token_logprobs {
    int64_t id;
    double logprob;
    struct wire_logprob *top;
    size_t n_top;
};

/* --- client protocol: requests and their results -------------------------------------------------------- */

struct wire_hello {
    int64_t version_min, version_max;
    const char *client;        /* "nvim-hearth 0.3", free text */
    struct wire_strs features; /* the features the client knows */
    struct wire_strs notify_as; /* absent, or [METHOD, CODE]: events come as [2, METHOD, [CODE, [event, body]]] */
};
struct wire_limits {
    int64_t frame_bytes, depth, tokens, streams, connections, stop_strings, logit_bias, logprobs;
};
struct wire_hello_result {
    int64_t version;
    const char *server; /* "hearth 0.1.0" */
    struct wire_strs features;
    struct wire_limits limits;
};

struct wire_generate {
    const char *model;   /* name or absolute path; may be absent where session names a session that exists */
    const char *session; /* name or id; NULL = a session neither listed nor kept */
    const char *request; /* the client's id for this request, unique per uid */
    /* exactly one of the three: */
    struct wire_message *messages;
    size_t n_messages;
    struct wire_bytes text;
    struct wire_ids tokens;
    int64_t max_tokens; /* -1 = until the context is full */
    struct wire_strs stop;
    struct wire_sampling sampling;
    int64_t logprobs;  /* alternatives per token; -1 = none, 0 = the token's own only */
    bool stream;       /* true: begin and tokens events; false: the result only */
    bool special;      /* parse special tokens in `text` (true) or take them as text */
};
/* Reserved keys adapter, grammar, tools, n, and methods embed, stream.attach, sessions.fork, are in tables of
 * wire.c and refused with UNSUPPORTED. */

struct wire_generate_result {
    const char *session; /* id of the session; absent where none is kept */
    const char *request;
    int64_t stream;
    struct wire_bytes text; /* valid UTF-8 */
    struct wire_ids tokens;
    const char *finish_reason; /* stop length context_full cancelled error */
    struct wire_usage usage;
    struct wire_timings timings;
    uint64_t seed;
    struct wire_token_logprobs *logprobs;
    size_t n_logprobs;
    const char *error; /* "NAME: message" where finish_reason is error */
};
struct wire_stream_begin { /* event stream.begin */
    int64_t stream;
    const char *session;
    const char *request;
};
struct wire_stream_tokens { /* event stream.tokens */
    int64_t stream;
    int64_t index; /* completion tokens before this frame */
    int64_t count;
    struct wire_bytes text;
    struct wire_ids tokens;
    struct wire_token_logprobs *logprobs;
    size_t n_logprobs;
};

struct wire_cancel { /* one of the two */
    int64_t stream; /* -1 = absent */
    const char *request;
};
struct wire_cancel_result {
    bool cancelled; /* false: nothing of that id was running */
};

struct wire_empty {
    char unused; /* C has no empty structs */
};

struct wire_session {
    const char *id;   /* 16 hex digits */
    const char *name; /* NULL: unnamed */
    const char *model; /* as the client named it */
    const char *path;
    int64_t tokens;   /* length of the timeline */
    int64_t turns;
    double created, used; /* seconds since the epoch */
    bool busy;
};
struct wire_sessions_list_result {
    struct wire_session *sessions;
    size_t n_sessions;
};
struct wire_session_ref { /* sessions.show, sessions.remove */
    const char *session;  /* id or name */
    bool tokens;          /* show: with the timeline's ids */
};
/* What was appended by a turn, in order: for people and exports. The tokens are the truth. */
struct wire_turn {
    const char *role; /* text (raw), system, user, assistant, completion (what followed raw text) */
    struct wire_bytes text;
    int64_t n_tokens;
    double created;
};
struct wire_session_show_result {
    struct wire_session session;
    struct wire_turn *turns;
    size_t n_turns;
    struct wire_ids tokens;
};
struct wire_session_rename {
    const char *session;
    const char *name;
};

struct wire_model { /* models.list: by name and stat only; models.show: engine's details as well */
    const char *name, *path;
    int64_t bytes;
    double modified;
    bool loaded;
    /* models.show only */
    const char *arch, *type; /* "llama", "Q4_K_M" */
    const char *tokenizer;   /* "gpt2/llama-bpe" */
    const char *chat;        /* "chatml", "llama-3", NULL = none we render */
    int64_t parameters, context, layers, d_model, heads, kv_heads, d_head, d_ff, vocab;
};
struct wire_models_list_result {
    struct wire_model *models;
    size_t n_models;
};
struct wire_model_ref { /* models.show, models.load, models.unload */
    const char *model;
};
struct wire_model_load_result {
    const char *model, *path;
    double load_ms;
    bool was_loaded;
};
struct wire_model_progress { /* event model.progress: loading, to connections that wait for the model */
    const char *model;
    int64_t done, total; /* bytes */
};

struct wire_loaded_model { /* a row of `ps` */
    const char *name, *path, *where; /* "cpu", "cuda:0" */
    int64_t bytes;        /* weights held */
    int64_t context;      /* the model's limit */
    int64_t context_used; /* longest running or cached sequence */
    int64_t sequences;    /* running now */
    int64_t pages_used, pages_total, page_bytes; /* KV */
    bool vocab_only;
};
struct wire_engine_status {
    int64_t pid;
    const char *state;   /* absent, starting, running */
    const char *backend; /* "cpu", "cuda" */
    const char *device;
    int64_t steps, rows, rows_max, tokens_computed; /* since the engine started */
    int64_t queued, running;
    int64_t restarts; /* of the engine since hearthd started */
    struct wire_loaded_model *models;
    size_t n_models;
};
struct wire_status_result {
    int64_t pid;
    const char *version, *socket;
    double uptime;
    int64_t connections, streams, sessions;
    int64_t rss_bytes; /* of hearthd */
    struct wire_engine_status engine;
};

struct wire_tokenize {
    const char *model;
    struct wire_bytes text;
    bool special; /* parse special tokens */
    int64_t bos;  /* -1 as the model asks, 0 no, 1 yes */
};
struct wire_tokenize_result {
    struct wire_ids ids;
};
struct wire_detokenize {
    const char *model;
    struct wire_ids tokens;
};
struct wire_detokenize_result {
    struct wire_bytes bytes; /* exactly (bin) */
    struct wire_bytes text;  /* as UTF-8, bad bytes as U+FFFD */
};

struct wire_eval {
    const char *model;
    struct wire_ids tokens;
    int64_t top;    /* best logits per position, 0..1000 */
    int64_t greedy; /* tokens to continue from the last position; includes an end token and stops there */
};
struct wire_logit {
    int64_t id;
    double logit;
};
struct wire_top { /* one position */
    struct wire_logit *v; /* on the wire: array of [id, logit] */
    size_t n;
};
struct wire_eval_result {
    struct wire_top *top; /* one per position */
    size_t n_top;
    struct wire_ids greedy;
};

struct wire_notice { /* event notice: something a person should read, e.g. that the engine restarted */
    const char *name;    /* symbol */
    const char *message;
    int64_t stream;      /* -1: not about one stream */
};

/* --- engine link ---------------------------------------------------------------------------------------- */

/* engine.hello, the engine's first request to hearthd's socket end is none: hearthd asks, the engine answers. */
struct wire_engine_hello {
    int64_t version;
};
struct wire_engine_hello_result {
    int64_t version, pid;
    const char *backend, *device;
};

/* engine.generate: the request as the client sent it, resolved. Result: wire_engine_result. */
struct wire_engine_generate {
    int64_t stream;         /* hearthd's number; engine.begin and engine.tokens carry it */
    int64_t uid;            /* whose KV may be reused */
    const char *path;       /* of the model file */
    struct wire_ids history; /* the session's timeline */
    bool turn_open;         /* the timeline ends inside an assistant turn */
    int64_t resumed;        /* the last `resumed` ids of history are this stream's own completion so far: they are
                               not streamed again, and index and random counters go on from there */
    struct wire_generate req;
};
struct wire_engine_begin { /* event engine.begin: admitted */
    int64_t stream;
    struct wire_ids appended; /* ids that the engine made of the request's text, messages or tokens, BOS included */
};
struct wire_engine_tokens { /* event engine.tokens */
    int64_t stream, index;
    struct wire_ids tokens;
    struct wire_bytes text; /* valid UTF-8; what could be told with these tokens */
    struct wire_token_logprobs *logprobs;
    size_t n_logprobs;
};
struct wire_engine_result {
    const char *finish_reason;
    struct wire_bytes tail; /* text held back to the end (an unfinished UTF-8 sequence, a stop string's false start) */
    struct wire_usage usage;
    struct wire_timings timings;
    uint64_t seed;
    bool turn_open; /* for the next append */
};
struct wire_engine_cancel {
    int64_t stream;
};
struct wire_engine_path { /* engine.load (events model.progress meanwhile), engine.unload, engine.model */
    const char *path;
};
/* engine.status -> wire_engine_status; engine.model -> wire_model; engine.tokenize/detokenize/eval take the client's
 * structs with `model` a path and give the client's results. engine.shutdown: finish nothing, exit 0. */

/* --- the table ------------------------------------------------------------------------------------------ */

struct wire_type; /* a struct's field table; opaque outside wire.c */

enum wire_kind { WIRE_REQUEST, WIRE_EVENT };
struct wire_method {
    const char *name;
    enum wire_kind kind;
    bool link;                       /* engine link only: refused from a client */
    const struct wire_type *params;  /* of the request, or the event's body */
    const struct wire_type *result;  /* NULL for an event */
};
extern const struct wire_method wire_methods[]; /* ends with name NULL */
const struct wire_method *wire_method_find(const char *name, size_t len); /* NULL: unknown */

/* A growing byte buffer; zero-initialise, wire_buf_fini frees. */
struct wire_buf {
    uint8_t *data;
    size_t len, cap;
};
void wire_buf_fini(struct wire_buf *b);

/* Each appends one whole frame to b; HEARTH_ENOMEM or HEARTH_ETOOBIG leave b as it was. `id` is the RPC message id. */
int wire_pack_request(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *params, struct hearth_err *e);
int wire_pack_result(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *result, struct hearth_err *e);
int wire_pack_error(struct wire_buf *b, uint32_t id, int code, const char *msg, struct hearth_err *e);
/* as_method/as_code: NULL, or hello's notify_as. */
int wire_pack_event(struct wire_buf *b, const struct wire_method *m, const void *body, const char *as_method,
                    const char *as_code, struct hearth_err *e);

/* A frame as it came: what kind it is and where its body lies, before the body's struct is known. */
enum wire_frame_kind { WIRE_FRAME_REQUEST = 0, WIRE_FRAME_RESPONSE = 1, WIRE_FRAME_EVENT = 2 };
struct wire_frame {
    enum wire_frame_kind kind;
    uint32_t id;        /* requests and responses */
    const char *method; /* not NUL-terminated; requests and events */
    size_t method_len;
    const uint8_t *body; /* the params map, result value or event body, still packed; borrowed */
    size_t body_len;
    bool is_error;      /* response: err is set and body is not */
    struct hearth_err err;
};

/*
 * Structural scan, allocation-free: is there one whole well-formed message at data[0..len)?
 * Returns its length, 0 where more bytes are needed, or a negative code: HEARTH_ETOOBIG for more than `max`
 * bytes (told as soon as the counts claim it), HEARTH_EINVALID for bytes that are not msgpack, counts beyond
 * what `max` could hold, or nesting over WIRE_DEPTH_MAX. Scanning is linear and restarts from 0: `state` (zero at
 * first, zeroed by the caller after each frame) keeps the place between calls.
 */
struct wire_scan {
    size_t pos;
    uint32_t depth;
    uint64_t left[WIRE_DEPTH_MAX + 1];
};
ptrdiff_t wire_scan(struct wire_scan *state, const uint8_t *data, size_t len, size_t max, struct hearth_err *e);

/* Splits a scanned frame. HEARTH_EINVALID where it is not a MessagePack-RPC message; where the id could be read,
 * f->id is set and f->kind is WIRE_FRAME_REQUEST, so that the error can be answered. */
int wire_frame_open(struct wire_frame *f, const uint8_t *data, size_t len, struct hearth_err *e);

/* Unpacks a body of that type: *out is one block, the struct first; wire_free. HEARTH_EPARAMS names the field. */
int wire_unpack(const struct wire_type *t, const uint8_t *body, size_t len, void **out, struct hearth_err *e);
void wire_free(void *msg);

/* Sets a struct to its fields' defaults (what unpacking an empty map gives, required fields left zero). */
void wire_defaults(const struct wire_type *t, void *msg);

#endif
