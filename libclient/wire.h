/*
 * wire.h - every message that crosses a socket of ours, as a struct; PROTOCOL.md says what the fields mean.
 *
 * The codec is one walk over tables: a struct per message, a table of its fields, a row per method in
 * wire_methods[] (wire-tables.c). The client protocol and the engine link (methods "engine.*") share frames and codec,
 * so the engine can be driven alone in a test. The codec does no I/O.
 *
 * Ownership: a packed frame is bytes in a struct wire_buf, the caller's. An unpacked message is one block that contains
 * all memory it points to; wire_free() frees it. Pointers in a struct that is to be packed are borrowed for the call.
 * All strings are NUL-terminated; `len` counts without the NUL. Text that need not be UTF-8 or may hold NULs is a
 * wire_bytes.
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
    WIRE_DEPTH_MAX = 80,            /* nesting of arrays and maps */
    WIRE_JSON_DEPTH = 72,           /* of these, those of a value of any shape */
    WIRE_VALUE_BYTES = 4, /* a frame limit of N bytes allows N / 4 values, which bounds the memory of unpacking */
    WIRE_NAME_MAX = 256,  /* bytes in a session name, request id, method */
    WIRE_PATH_MAX = 4096,
    WIRE_TOKENS_MAX = 1 << 20,     /* token ids in one message */
    WIRE_MESSAGES_MAX = 4096,      /* in one request */
    WIRE_PAGE_BYTES = 1 << 20,     /* of texts and ids in one page of an export, approximately */
    WIRE_EXPORT_VERSION = 1,       /* of the documents of sessions.export and sessions.import */
    WIRE_PARTS_MAX = 1024,         /* in one message */
    WIRE_TEMPLATE_MAX = 256 << 10, /* bytes of a chat template */
    WIRE_HEADS_MAX = 4096,         /* files whose headers one request is about */
    WIRE_OPS_MAX = 1 << 14,        /* ops of a model's program; a model has at most 1,024 layers */
    WIRE_TRACE_MAX = 1024,         /* events in a stream's trace, and in one of them: */
    WIRE_TRACE_FIELDS_MAX = 16,
    WIRE_FILES_MAX = 1024, /* of `extra` */
    WIRE_FORKS_MAX = 64,   /* of one sessions.fork */
    WIRE_CHOICES_MAX = 16, /* of one generate */
    WIRE_STOPS_MAX = 16,
    WIRE_BIAS_MAX = 1024,  /* logit_bias entries ... */
    WIRE_BIAS_LIMIT = 100, /* ... and the largest magnitude of each */
    WIRE_LOGPROBS_MAX = 20,
    WIRE_LINE_MAX = HEARTH_ERR_MSG + 64, /* "NAME: text" of an error */
};

/* --- the library's structs ------------------------------------------------------------------------------ */

/*
 * What an application sees of a message is the message: these structs are defined (and explained) once, in hearth.h,
 * and `struct wire_x` is another spelling of `struct hearth_x`, for code that has both sides of the wire in view.
 * On the way out of a struct, wire_bytes is str where it is valid UTF-8, else bin; on the way in either.
 * hearth_generate.size is the library's alone and not on the wire.
 */
#define wire_bytes                hearth_bytes
#define wire_ids                  hearth_ids
#define wire_strs                 hearth_strs
#define wire_part                 hearth_part
#define wire_message              hearth_message
#define wire_bias                 hearth_bias
#define wire_sampling             hearth_sampling
#define wire_usage                hearth_usage
#define wire_timings              hearth_timings
#define wire_logprob              hearth_logprob
#define wire_token_logprobs       hearth_token_logprobs
#define wire_limits               hearth_limits
#define wire_hello_result         hearth_hello_result
#define wire_file                 hearth_file
#define wire_generate             hearth_generate
#define wire_choice               hearth_choice
#define wire_generate_result      hearth_generate_result
#define wire_measured             hearth_measured
#define wire_stream_begin         hearth_stream_begin
#define wire_stream_tokens        hearth_stream_tokens
#define wire_stream_info          hearth_stream_info
#define wire_streams_list_result  hearth_streams_list_result
#define wire_stream_progress      hearth_stream_progress
#define wire_stream_queued        hearth_stream_queued
#define wire_trace_field          hearth_trace_field
#define wire_trace_event          hearth_trace_event
#define wire_trace_result         hearth_trace_result
#define wire_session              hearth_session
#define wire_sessions_list_result hearth_sessions_list_result
#define wire_generation_info      hearth_generation_info
#define wire_turn                 hearth_turn
#define wire_session_show_result  hearth_session_show_result
#define wire_session_page         hearth_session_page
#define wire_session_import       hearth_session_import
#define wire_imported             hearth_imported
#define wire_session_fork         hearth_session_fork
#define wire_forked               hearth_forked
#define wire_adopted              hearth_adopted
#define wire_backup_result        hearth_backup_result
#define wire_op                   hearth_op
#define wire_special_token        hearth_special_token
#define wire_default              hearth_default
#define wire_model                hearth_model
#define wire_models_list_result   hearth_models_list_result
#define wire_model_load_result    hearth_model_load_result
#define wire_model_progress       hearth_model_progress
#define wire_notice               hearth_notice
#define wire_loaded_model         hearth_loaded_model
#define wire_kv_tiers             hearth_kv_tiers
#define wire_kv_share             hearth_kv_share
#define wire_path_rows            hearth_path_rows
#define wire_kv_files             hearth_kv_files
#define wire_program              hearth_program
#define wire_memory               hearth_memory
#define wire_engine_status        hearth_engine_status
#define wire_yield_result         hearth_yield_result
#define wire_bucket               hearth_bucket
#define wire_histogram            hearth_histogram
#define wire_served               hearth_served
#define wire_loop                 hearth_loop
#define wire_status_result        hearth_status_result
#define wire_tokenize_result      hearth_tokenize_result
#define wire_detokenize_result    hearth_detokenize_result
#define wire_render               hearth_render
#define wire_render_result        hearth_render_result
#define wire_logit                hearth_logit
#define wire_top                  hearth_top
#define wire_eval_result          hearth_eval_result

/* --- client protocol: requests and their results -------------------------------------------------------- */

struct wire_hello {
    int64_t version_min, version_max;
    const char *client;         /* "nvim-hearth 0.3", free text */
    struct wire_strs features;  /* the features the client knows */
    struct wire_strs notify_as; /* absent, or [METHOD, CODE]: events come as [2, METHOD, [CODE, [event, body]]] */
};

/* generate takes wire_generate. The reserved keys adapter and grammar are refused with UNSUPPORTED. */

struct wire_cancel { /* one of the two */
    int64_t stream;  /* -1 = absent */
    const char *request;
};
struct wire_cancel_result {
    bool cancelled; /* false: nothing of that id was running */
};

struct wire_attach { /* stream.attach: one of the two */
    int64_t stream;  /* -1 = absent */
    const char *request;
    int64_t from; /* number of completion tokens that the client has received */
};

struct wire_streams_list {
    bool ended; /* with those that have ended and can still be attached to */
};

struct wire_streams_trace {
    int64_t stream;
};

/* An error as it is on the wire: [1, "NAME: text"] where the request is at fault, [0, ...] where the server failed. */
struct wire_fault {
    bool is_request;
    const char *line;
};

/* Events stream.end (of wire_generate_result) and stream.error answer a generate that came as a notification. */
struct wire_stream_error {
    const char *request;
    struct wire_fault error;
};

/* What a notification is answered by, read alone where the rest of it is refused. */
struct wire_request_id {
    const char *request;
};

struct wire_empty {
    char unused; /* C has no empty structs */
};

struct wire_session_ref { /* sessions.show, sessions.remove */
    const char *session;  /* id or name */
    bool tokens;          /* show: with the timeline's ids */
};
struct wire_session_rename {
    const char *session;
    const char *name;
};

struct wire_sessions_list {
    const char *from; /* the `next` of the page before, or NULL */
    bool ephemeral;   /* with ephemeral ones */
};
struct wire_session_adopt {
    const char *session; /* a fork */
    bool replace;        /* what its parent has after the cut is dropped */
};
struct wire_session_export {
    const char *session;
    int64_t from; /* the `next` of the page before, or 0 */
};
struct wire_session_pin {
    const char *session;
    bool pinned;
};

struct wire_backup {
    const char *path; /* absolute: hearthd writes it */
    bool replace;
};

struct wire_models_list {
    bool details; /* with what the files' headers say, as far as they have been read */
};
struct wire_model_ref { /* models.load, models.unload */
    const char *model;
};
struct wire_model_pin {
    const char *model;
    bool pinned;
};
struct wire_model_show {
    const char *model;
    bool ops; /* with the model's program */
};
struct wire_model_pass { /* models.pass: with the file's descriptor beside it */
    const char *path;    /* absolute: what the peer calls the file */
};

struct wire_yield { /* of the device's memory: exactly one of bytes and all, or seconds = 0 */
    int64_t bytes;
    bool all;
    double seconds; /* 0: it is taken again */
};

struct wire_shutdown { /* of hearthd: for root and the user that it runs as */
    bool now; /* false: running streams get some seconds to end; true: they are interrupted and stored as they are */
};

struct wire_tokenize {
    const char *model;
    struct wire_bytes text;
    bool special; /* parse special tokens */
    int64_t bos;  /* -1 as the model's file says, 0 no, 1 yes */
    int64_t client;
};
struct wire_detokenize {
    const char *model;
    struct wire_ids tokens;
    int64_t client;
};

struct wire_eval {
    const char *model;
    struct wire_ids tokens;
    int64_t top;    /* best logits per position, 0..1000 */
    int64_t greedy; /* tokens to continue from the last position; includes an end token and stops there */
    int64_t client;
};

/* --- engine link ---------------------------------------------------------------------------------------- */

/* engine.hello: the first request on the link. hearthd asks, the engine answers; the engine never asks. */
struct wire_engine_hello {
    int64_t version;
};
struct wire_engine_hello_result {
    int64_t version, pid;
    const char *backend, *device;
    int64_t devices; /* that the backend could use; 0: it does not count them */
};

/* A message of a session, and what was thought before it. */
struct wire_past_message {
    struct wire_message message;
    struct wire_bytes reasoning;
};

/* engine.generate: the request as the client sent it, resolved. Result: wire_engine_result. */
struct wire_engine_generate {
    int64_t stream;                 /* hearthd's number; engine.begin and engine.tokens carry it */
    int64_t uid;                    /* the user whose KV may be reused */
    const char *path;               /* of the model file */
    struct wire_ids history;        /* the session's timeline */
    bool turn_open;                 /* the timeline ends inside an assistant turn */
    struct wire_past_message *past; /* with req.messages: those that the timeline was made of, its answers included */
    size_t n_past;
    int64_t past_at;     /* ids of history that came before them */
    int64_t resumed;     /* the last `resumed` ids of history are this stream's own completion so far: they are
                            not streamed again, and index and random counters go on from there */
    int64_t client;      /* hearthd's number of the connection: whose turn it is where work is long; 0: nobody's */
    const char *label;   /* hearthd's; returned with the files that the turn's KV is written to */
    const char *markers; /* of a stream that has begun: as its engine.begin had it, and so the next */
    bool thinking;
    struct wire_generate req;
};
struct wire_engine_begin { /* event engine.begin: admitted */
    int64_t stream;
    struct wire_ids appended; /* ids of the request's text, messages or tokens, BOS included */
    bool history_kept;        /* the template would have the timeline begin otherwise than it does */
    bool think_unknown;       /* `think` makes no difference to the template */
    const char *markers;      /* the family of markers by which reasoning is told from text; NULL: all is text */
    bool thinking;            /* what comes first is reasoning */
    bool has_sampling;
    struct wire_sampling sampling; /* as it is done: what the request left open, and no logit_bias */
};
struct wire_engine_tokens { /* event engine.tokens */
    int64_t stream, index;
    struct wire_ids tokens;
    struct wire_bytes text;      /* valid UTF-8: the text that these tokens completed */
    struct wire_bytes reasoning; /* the same, and before it */
    int64_t reasoning_tokens;    /* of the stream so far */
    struct wire_token_logprobs *logprobs;
    size_t n_logprobs;
};
struct wire_engine_result {
    const char *finish_reason;
    struct wire_bytes tail; /* text withheld to the end (an unfinished UTF-8 sequence, a stop string's false start) */
    struct wire_bytes reasoning_tail; /* reasoning that was, before it */
    struct wire_usage usage;
    struct wire_timings timings;
    uint64_t seed;
    bool turn_open; /* for the next append */
};
struct wire_engine_cancel {
    int64_t stream;
};
struct wire_engine_class { /* engine.class: of a stream that has begun or will */
    int64_t stream;
    const char *class;
};
struct wire_engine_kv_saved { /* event engine.kv_saved: a file of KV is durable; hearthd enters it last */
    const char *file;         /* its name in the folder of --kv-dir */
    const char *fingerprint;  /* 16 hex digits: of the model and all else that KV depends on */
    int64_t uid;
    int64_t bytes;       /* the file's length */
    int64_t tokens, pos; /* it holds KV of [pos, pos + tokens) of a timeline */
    const char *label;   /* of the engine.generate in whose turn it was written; NULL for none */
};
struct wire_engine_kv_used { /* event engine.kv_used: KV was restored from this file */
    const char *file;
};
struct wire_engine_kv_bad { /* event engine.kv_bad: refused; a damaged file is now FILE.bad */
    const char *file;
    const char *why;
};
struct wire_engine_kv_gone { /* engine.kv_gone: hearthd has removed the file */
    const char *file;
    bool again; /* its pages may be written again at once */
};
struct wire_engine_forget { /* engine.forget: nobody waits for that request's answer any more, but for hearthd */
    int64_t id;             /* of the request's frame */
};
struct wire_engine_render { /* engine.render */
    int64_t client;
    struct wire_render req; /* the client's, `model` a path */
};
struct wire_engine_path { /* engine.load (events model.progress meanwhile), engine.unload */
    const char *path;
    int64_t client;
    bool here; /* of engine.load: no other device has more room */
};
struct wire_engine_pin { /* engine.pin -> as engine.load */
    const char *path;
    int64_t client;
    bool pinned;
};
/* A model that was passed by a descriptor: this, the uid and a path of that user's. No other path begins so. */
#define WIRE_PASSED "//"
struct wire_engine_pass { /* engine.pass: with the file's descriptor beside it */
    const char *path;     /* "//UID/PATH" */
    bool gone;            /* there is no descriptor, and the one that was passed is closed */
};
struct wire_engine_yield { /* engine.yield */
    int64_t bytes;         /* as of yield, all three */
    bool all;
    double seconds;
    int64_t most; /* it goes on with an earlier engine's, and holds so many bytes at most; -1: this is a new one */
};
struct wire_engine_yield_result {
    int64_t freed, free; /* as of yield */
    int64_t held;        /* bytes that it holds and may hold until the time is over */
    const char *why;     /* why less is free than was wanted; NULL: it is not */
};
struct wire_engine_parked { /* event engine.parked: the stream waits for memory; or it goes on */
    int64_t stream;
    bool parked;
    bool yielded; /* the memory; else models that are at work hold it */
};
struct wire_engine_file { /* a model's file as hearthd has it: another size or time is another file */
    const char *path;
    int64_t bytes;
    double modified;
};
struct wire_engine_heads { /* engine.heads -> its result: wire_model of each that was read */
    struct wire_engine_file *files;
    size_t n_files;
};
struct wire_engine_heads_result {
    struct wire_model *heads;
    size_t n_heads;
};
struct wire_engine_model {
    const char *path;
    bool ops;
    int64_t client;
};
struct wire_engine_trace { /* event engine.trace: a stream has passed a stage in the engine (daemon/trace.h) */
    int64_t stream, seq, pid;
    double at; /* seconds since the machine was started */
    const char *stage, *word;
    int64_t n1, n2, n3, n4, n5; /* what they are is the stage's */
};
/* engine.status -> wire_engine_status; engine.model -> wire_model; engine.tokenize/detokenize/eval take the
 * client's structs with `model` a path and `client` set, which clients cannot, and give the client's results.
 * engine.shutdown: finish nothing, exit 0. */

/* --- the journal (daemon/stream/journal.h): records of a stream, packed as events ----------------------- */

/* journal.head: all that recovery needs. engine.begin, engine.tokens and journal.end follow. */
struct wire_journal_head {
    int64_t stream, uid;
    uint64_t hash;            /* of the request's content: distinguishes a retry from another request of the same id */
    const char *session;      /* id */
    const char *name;         /* NULL: unnamed, not stored */
    const char *model;        /* as the client named it */
    const char *path;         /* of the model file */
    bool is_new;              /* this stream creates the session */
    double created;           /* of the session */
    int64_t history;          /* tokens in the session's timeline before this stream ... */
    bool turn_open;           /* ... and whether it ends inside an assistant turn */
    int64_t choice;           /* of several of the request; -1: it is the only one */
    struct wire_generate req; /* the client's request, with the seed that was drawn */
};
struct wire_journal_end {
    double time;                      /* seconds since the epoch, for retention only */
    const char *error;                /* "NAME: message" where finish_reason is error */
    struct wire_engine_result result; /* its tail is in the last engine.tokens already */
};

/* turn.generation: a completion's generation metadata, as the store has it beside the turn, packed as an event, so that
 * the content of a damaged database is checked like a peer's message. */
struct wire_turn_generation {
    struct wire_generation_info info;
    struct wire_bytes reasoning; /* the turn's */
};

/* --- the table ------------------------------------------------------------------------------------------ */

struct wire_type; /* a struct's field table: wire-table.h, for the codec and its tests only */

enum wire_kind { WIRE_REQUEST, WIRE_EVENT };
struct wire_method {
    const char *name;
    enum wire_kind kind;
    bool link;                      /* engine link only: refused from a client */
    const struct wire_type *params; /* of the request, or the event's body */
    const struct wire_type *result; /* NULL for an event */
};
/* Indices of wire_methods[]: &wire_methods[WIRE_GENERATE]. */
enum {
    WIRE_HELLO,
    WIRE_GENERATE,
    WIRE_CANCEL,
    WIRE_STREAM_ATTACH,
    WIRE_STREAMS_LIST,
    WIRE_STREAMS_TRACE,
    WIRE_SESSIONS_LIST,
    WIRE_SESSIONS_SHOW,
    WIRE_SESSIONS_RENAME,
    WIRE_SESSIONS_REMOVE,
    WIRE_SESSIONS_PIN,
    WIRE_SESSIONS_EXPORT,
    WIRE_SESSIONS_IMPORT,
    WIRE_SESSIONS_FORK,
    WIRE_SESSIONS_ADOPT,
    WIRE_BACKUP,
    WIRE_MODELS_LIST,
    WIRE_MODELS_SHOW,
    WIRE_MODELS_LOAD,
    WIRE_MODELS_UNLOAD,
    WIRE_MODELS_PIN,
    WIRE_MODELS_PASS,
    WIRE_STATUS,
    WIRE_YIELD,
    WIRE_SHUTDOWN,
    WIRE_TOKENIZE,
    WIRE_DETOKENIZE,
    WIRE_RENDER,
    WIRE_EVAL,
    WIRE_STREAM_BEGIN,
    WIRE_STREAM_TOKENS,
    WIRE_STREAM_PROGRESS,
    WIRE_STREAM_QUEUED,
    WIRE_STREAM_END,
    WIRE_STREAM_ERROR,
    WIRE_MODEL_PROGRESS,
    WIRE_NOTICE,
    WIRE_ENGINE_HELLO,
    WIRE_ENGINE_GENERATE,
    WIRE_ENGINE_MEASURE,
    WIRE_ENGINE_CANCEL,
    WIRE_ENGINE_CLASS,
    WIRE_ENGINE_LOAD,
    WIRE_ENGINE_UNLOAD,
    WIRE_ENGINE_PIN,
    WIRE_ENGINE_PASS,
    WIRE_ENGINE_YIELD,
    WIRE_ENGINE_HEADS,
    WIRE_ENGINE_MODEL,
    WIRE_ENGINE_STATUS,
    WIRE_ENGINE_TOKENIZE,
    WIRE_ENGINE_DETOKENIZE,
    WIRE_ENGINE_RENDER,
    WIRE_ENGINE_EVAL,
    WIRE_ENGINE_FORGET,
    WIRE_ENGINE_KV_GONE,
    WIRE_ENGINE_SHUTDOWN,
    WIRE_ENGINE_BEGIN,
    WIRE_ENGINE_TOKENS,
    WIRE_ENGINE_PROGRESS,
    WIRE_ENGINE_KV_SAVED,
    WIRE_ENGINE_KV_USED,
    WIRE_ENGINE_KV_BAD,
    WIRE_ENGINE_TRACE,
    WIRE_ENGINE_PARKED,
    WIRE_ENGINE_IDLE,
    WIRE_JOURNAL_HEAD,
    WIRE_JOURNAL_END,
    WIRE_TURN_GENERATION,
    WIRE_METHODS, /* their number */
};
extern const struct wire_method wire_methods[];                           /* ends with name NULL */
const struct wire_method *wire_method_find(const char *name, size_t len); /* NULL: unknown */

/* Does the same, and reports why not: HEARTH_EMETHOD, or HEARTH_EUNSUPPORTED for a name reserved for later (embed). */
const struct wire_method *wire_method_get(const char *name, size_t len, struct hearth_err *e);

/* A growing byte buffer; zero-initialise, wire_buf_fini frees. */
struct wire_buf {
    uint8_t *data;
    size_t len, cap;
};
void wire_buf_fini(struct wire_buf *b);
/* Appends bytes to a buffer that may become `end` long: 0, HEARTH_ETOOBIG, HEARTH_ENOMEM. */
int wire_buf_add(struct wire_buf *b, const void *data, size_t n, size_t end);

/* Each appends one whole frame to b; HEARTH_ENOMEM or HEARTH_ETOOBIG leave b as it was. `id` is the RPC message id. */
int wire_pack_request(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *params,
                      struct hearth_err *e);
int wire_pack_result(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *result,
                     struct hearth_err *e);
/* The result as it is packed, which is one value. */
int wire_pack_result_packed(struct wire_buf *b, uint32_t id, const struct wire_bytes *result, struct hearth_err *e);
int wire_pack_error(struct wire_buf *b, uint32_t id, int code, const char *msg, struct hearth_err *e);
/* as_method/as_code: NULL, or hello's notify_as. */
int wire_pack_event(struct wire_buf *b, const struct wire_method *m, const void *body, const char *as_method,
                    const char *as_code, struct hearth_err *e);

/* The line of an error, "NAME: msg" in UTF-8 and cut to its room; returns its length. */
size_t wire_error_line(char line[static WIRE_LINE_MAX], int code, const char *msg);

/* A received frame: its kind and its packed body, before the body's struct is known. */
enum wire_frame_kind { WIRE_FRAME_REQUEST = 0, WIRE_FRAME_RESPONSE = 1, WIRE_FRAME_EVENT = 2 };
struct wire_frame {
    enum wire_frame_kind kind;
    uint32_t id;        /* requests and responses */
    const char *method; /* not NUL-terminated; requests and events */
    size_t method_len;
    const uint8_t *body; /* the params map, result value or event body, still packed; borrowed */
    size_t body_len;
    bool is_error; /* response: err is set and body is not */
    struct hearth_err err;
};

/*
 * Scans the structure of data[0..len), allocation-free, for one whole well-formed message. Returns its length, 0 where
 * more bytes are needed, or a negative code: HEARTH_ETOOBIG for more than `max` bytes or max / WIRE_VALUE_BYTES values
 * (detected as soon as a count claims it), HEARTH_EINVALID for bytes that are not msgpack or nesting over
 * WIRE_DEPTH_MAX. It is linear for any division of the bytes: `state` has the position between calls with a growing
 * len. The caller zeroes it at first and after each frame.
 */
struct wire_scan {
    size_t pos;
    uint64_t values, owed;
    uint32_t depth;
    uint32_t left[WIRE_DEPTH_MAX + 1];
};
ptrdiff_t wire_scan(struct wire_scan *state, const uint8_t *data, size_t len, size_t max, struct hearth_err *e);

/* Splits a scanned frame. HEARTH_EINVALID where it is not a MessagePack-RPC message; where the id could be read,
 * f->id is set and f->kind is WIRE_FRAME_REQUEST, so that the error can be answered. */
int wire_frame_open(struct wire_frame *f, const uint8_t *data, size_t len, struct hearth_err *e);

/* Unpacks a body of that type: *out is one block, the struct first; wire_free. HEARTH_EPARAMS names the field. */
int wire_unpack(const struct wire_type *t, const uint8_t *body, size_t len, void **out, struct hearth_err *e);
void wire_free(void *msg);

/* Of struct wire_request_id: ignores all else that a generate has. */
extern const struct wire_type wire_request_id_type;

/* Sets a struct to its fields' defaults (what unpacking an empty map gives, required fields left zero). */
void wire_defaults(const struct wire_type *t, void *msg);

#endif
