/* wire-messages.h - the messages between clients and hearthd, as structs, and their limits. wire.h has the rest. */
#ifndef HEARTH_WIRE_MESSAGES_H
#define HEARTH_WIRE_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

enum {
    WIRE_VERSION = 1,               /* of the client protocol */
    WIRE_FRAME_MAX = 8 << 20,       /* bytes in one frame from a client */
    WIRE_LINK_FRAME_MAX = 64 << 20, /* bytes in one frame on the engine link */
    WIRE_DEPTH_MAX = 80,            /* nesting of arrays and maps */
    WIRE_JSON_DEPTH = 72,           /* of which a value of any structure (wire-json.h) may have this many */
    WIRE_JSON_VALUES = 200000,      /* in all of these that a request has, nested ones counted */
    WIRE_VALUE_BYTES = 4, /* a frame limit of N bytes allows N / 4 values, which bounds the memory of unpacking */
    WIRE_NAME_MAX = 256,  /* bytes in a session name, request id, method */
    WIRE_PATH_MAX = 4096,
    WIRE_TOKENS_MAX = 1 << 20,     /* token ids in one message */
    WIRE_MESSAGES_MAX = 4096,      /* in one request */
    WIRE_PAGE_BYTES = 1 << 20,     /* of texts and ids in one page of an export, approximately */
    WIRE_EXPORT_VERSION = 1,       /* of the documents of sessions.export and sessions.import */
    WIRE_PARTS_MAX = 1024,         /* in one message */
    WIRE_TEMPLATE_MAX = 256 << 10, /* bytes of a chat template */
    WIRE_HEADS_MAX = 4096,         /* files in one request for headers */
    WIRE_OPS_MAX = 1 << 14,        /* ops of a model's program; a model has at most 1,024 layers */
    WIRE_TRACE_MAX = 1024,         /* events in a stream's trace; fields in one of them: */
    WIRE_TRACE_FIELDS_MAX = 16,
    WIRE_FILES_MAX = 1024, /* files in `extra` */
    WIRE_FORKS_MAX = 64,   /* sessions that one sessions.fork creates */
    WIRE_CHOICES_MAX = 16, /* choices of one generate */
    WIRE_STOPS_MAX = 16,
    WIRE_BIAS_MAX = 1024,  /* logit_bias entries ... */
    WIRE_BIAS_LIMIT = 100, /* ... and the largest magnitude of each */
    WIRE_LOGPROBS_MAX = 20,
    WIRE_LINE_MAX = HEARTH_ERR_MSG + 64, /* "NAME: text" of an error */
};

/* --- the library's structs ------------------------------------------------------------------------------ */

/*
 * For these messages the application's struct is the message itself: the structs are defined (and documented) once, in
 * hearth.h, and `struct wire_x` is another name for `struct hearth_x`, for code that handles both sides of the wire.
 * When packed, wire_bytes becomes str where it is valid UTF-8, else bin; either is accepted when unpacked.
 * hearth_generate.size is internal to the library and not on the wire.
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

/* generate takes wire_generate. The reserved keys adapter and grammar are refused with HEARTH_EUNSUPPORTED. */

struct wire_cancel { /* exactly one of the two */
    int64_t stream;  /* -1 = absent */
    const char *request;
};
struct wire_cancel_result {
    bool cancelled; /* false: nothing of that id was running */
};

struct wire_attach { /* stream.attach: exactly one of stream and request */
    int64_t stream;  /* -1 = absent */
    const char *request;
    int64_t from; /* number of completion tokens that the client has received */
};

struct wire_streams_list {
    bool ended; /* include those that have ended and can still be attached to */
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

/* The request id by which a notification is answered; it is unpacked alone where the rest of the notification is
 * refused. */
struct wire_request_id {
    const char *request;
};

struct wire_empty {
    char unused; /* C has no empty structs */
};

struct wire_session_ref { /* sessions.show, sessions.remove */
    const char *session;  /* id or name */
    bool tokens;          /* sessions.show: include the timeline's ids */
};
struct wire_session_rename {
    const char *session;
    const char *name;
};

struct wire_sessions_list {
    const char *from; /* the `next` of the page before, or NULL */
    bool ephemeral;   /* include ephemeral ones */
};
struct wire_session_adopt {
    const char *session; /* a fork */
    bool replace;        /* drop what its parent has after the point of the fork */
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
    bool details; /* include what the files' headers say, as far as they have been read */
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
    bool ops; /* include the model's program */
};
struct wire_model_pass { /* models.pass: the file's descriptor is sent with the frame */
    const char *path;    /* absolute: the name by which the peer refers to the file */
};

struct wire_yield { /* yields the device's memory: exactly one of bytes and all, or seconds = 0 */
    int64_t bytes;
    bool all;
    double seconds; /* 0: ends a yield */
};

struct wire_shutdown { /* shuts hearthd down: only for root and the user that it runs as */
    bool now; /* false: running streams get some seconds to end; true: they are interrupted and stored as they are */
};

struct wire_tokenize {
    const char *model;
    struct wire_bytes text;
    bool special; /* parse special tokens */
    int64_t bos;  /* -1: as the model's file says; 0: no; 1: yes */
    int64_t client;
};
struct wire_detokenize {
    const char *model;
    struct wire_ids tokens;
    int64_t client;
    /* The others are for the engine link. */
    bool generated; /* the tokens are an answer, which has this text and this reasoning, of so many tokens; those of its
                     * first tokens are requested */
    struct wire_bytes text, reasoning;
    int64_t reasoning_tokens, first;
    const char *hash; /* the hash of the texts of `history`, ids of the same session */
    struct wire_ids history;
};
struct wire_engine_detokenize_result {
    struct wire_detokenize_result told;
    struct wire_bytes reasoning; /* of an answer's first tokens */
    int64_t reasoning_tokens;
};

struct wire_eval {
    const char *model;
    struct wire_ids tokens;
    int64_t top;    /* best logits per position, 0..1000 */
    int64_t greedy; /* tokens to continue from the last position; includes an end token and stops there */
    int64_t client;
};

#endif
