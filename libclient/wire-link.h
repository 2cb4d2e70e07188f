/*
 * wire-link.h - the messages between hearthd and an engine, and what hearthd writes into a stream's journal and stores
 * with a turn, as structs. wire.h has the rest.
 */
#ifndef HEARTH_WIRE_LINK_H
#define HEARTH_WIRE_LINK_H

#include "libclient/wire-messages.h"

/* --- engine link ---------------------------------------------------------------------------------------- */

/* engine.hello: the first request on the link. Only hearthd sends requests; the engine only answers. */
struct wire_engine_hello {
    int64_t version;
};
struct wire_engine_hello_result {
    int64_t version, pid;
    const char *backend, *device;
    int64_t devices; /* devices that the backend could use; 0: it does not count them */
};

/* A message of a session, with the reasoning that preceded it. */
struct wire_past_message {
    struct wire_message message;
    struct wire_bytes reasoning;
};

/* engine.generate: the client's request, with model and session resolved. Result: wire_engine_result. */
struct wire_engine_generate {
    int64_t stream;                 /* hearthd's number; engine.begin and engine.tokens carry it */
    int64_t uid;                    /* the user whose KV may be reused */
    const char *path;               /* of the model file */
    struct wire_ids history;        /* the session's timeline */
    bool turn_open;                 /* the timeline ends inside an assistant turn */
    struct wire_past_message *past; /* with req.messages: the messages that the timeline consists of, answers
                                       included */
    size_t n_past;
    int64_t past_at;     /* number of ids of history that precede those messages */
    int64_t resumed;     /* the last `resumed` ids of history are this stream's own completion so far: they are not
                            streamed again, and index and random counters continue from there */
    int64_t client;      /* hearthd's number of the connection, for sharing long work fairly between clients; 0: none */
    const char *label;   /* hearthd's label, returned with the files that the turn's KV is written to */
    const char *markers; /* of a stream that has begun: as its engine.begin had them, `markers` and `thinking` */
    bool thinking;
    const char *hash; /* hash of the texts that the first `hashed` ids of history stood for, from an earlier
                         engine.begin; NULL: unknown */
    int64_t hashed;
    struct wire_generate req;
};
struct wire_engine_begin { /* event engine.begin: admitted */
    int64_t stream;
    struct wire_ids appended; /* ids of the request's text, messages or tokens, BOS included */
    bool history_kept;        /* the template would render the timeline's earlier messages differently; the timeline
                                 stays as it is */
    bool think_unknown;       /* `think` makes no difference to the template */
    const char *markers;      /* the family of markers that separate reasoning from text; NULL: everything is text */
    bool thinking;            /* the completion starts inside reasoning */
    const char *hash; /* hash of the texts that the first `hashed` ids of the timeline stand for: all ids but the
                         stream's own completion; NULL: the model has no vocabulary */
    int64_t hashed;
    bool has_sampling;
    struct wire_sampling sampling; /* the sampling in effect: what the request left open is filled in; without
                                      logit_bias */
};
struct wire_engine_tokens { /* event engine.tokens */
    int64_t stream, index;
    struct wire_ids tokens;
    struct wire_bytes text;           /* the text that these tokens completed, valid UTF-8 */
    struct wire_bytes reasoning;      /* the reasoning that they completed, which precedes text */
    struct wire_bytes held;           /* withheld text: what would be delivered if the stream ended here */
    struct wire_bytes held_reasoning; /* withheld reasoning, which precedes held */
    int64_t reasoning_tokens;         /* of the stream so far */
    struct wire_token_logprobs *logprobs;
    size_t n_logprobs;
};
struct wire_engine_result {
    const char *finish_reason;
    struct wire_usage usage;
    struct wire_timings timings;
    uint64_t seed;
    bool turn_open; /* whether the timeline ends inside an assistant turn, for the next append */
};
struct wire_engine_cancel {
    int64_t stream;
};
struct wire_engine_class { /* engine.class: changes the scheduling class of a stream, running or queued */
    int64_t stream;
    const char *class;
};
struct wire_engine_kv_saved { /* event engine.kv_saved: a KV file is durable. Entering it in hearthd's index is the last
                                 step */
    const char *file;         /* its name in the --kv-dir directory */
    const char *fingerprint;  /* 16 hex digits that identify the model and everything else that KV depends on */
    int64_t uid;
    int64_t bytes;       /* the file's length */
    int64_t tokens, pos; /* it holds the KV of positions [pos, pos + tokens) of a timeline */
    const char *label;   /* label of the engine.generate in whose turn it was written; NULL: none */
    int64_t stream;      /* number of the stream whose turn that is; 0: none */
};
struct wire_engine_kv_used { /* event engine.kv_used: KV was restored from this file */
    const char *file;
};
struct wire_engine_kv_bad { /* event engine.kv_bad: a file was refused; a damaged one has been renamed to FILE.bad */
    const char *file;
    const char *why;
};
struct wire_engine_kv_dir { /* engine.kv_dir: the directory of KV files, for an engine that was started without one */
    const char *path;
};
struct wire_engine_kv_gone { /* engine.kv_gone: hearthd has removed the file */
    const char *file;
    bool again; /* its pages may be written to a new file at once */
};
struct wire_engine_forget { /* engine.forget: no client waits for that request's answer any more, only hearthd does */
    int64_t id;             /* id of the request's frame */
};
struct wire_engine_render { /* engine.render */
    int64_t client;
    struct wire_render req; /* the client's request, with `model` as a path */
};
struct wire_engine_path { /* engine.load (events model.progress meanwhile), engine.unload */
    const char *path;
    int64_t client;
    bool here; /* engine.load: load it here as well as possible, because no other device has room either */
};
struct wire_engine_pin { /* engine.pin -> as engine.load */
    const char *path;
    int64_t client;
    bool pinned;
};
/* The path of a model that was passed by a descriptor: this prefix, the uid, and that user's path. No other path starts
 * with it. */
#define WIRE_PASSED "//"
struct wire_engine_pass { /* engine.pass: the file's descriptor is sent with the frame */
    const char *path;     /* "//UID/PATH" */
    bool gone;            /* no descriptor comes with this; the one that was passed is closed */
};
struct wire_engine_yield { /* engine.yield */
    int64_t bytes;         /* as in yield, all three */
    bool all;
    double seconds;
    int64_t most; /* continues a yield that began with an earlier engine, and caps the engine's memory at this many
                     bytes; -1: a new yield */
};
struct wire_engine_yield_result {
    int64_t freed, free; /* as in yield */
    int64_t held;        /* bytes that the engine holds, and may hold at most until the time is over */
    const char *why;     /* why less is free than was requested; NULL: enough is free */
};
struct wire_engine_parked { /* event engine.parked: the stream waits for memory, or continues */
    int64_t stream;
    bool parked;
    bool yielded; /* the memory was yielded; false: models that are in use hold it */
};
struct wire_engine_file { /* a model's file as hearthd has seen it: with another size or time it is another file */
    const char *path;
    int64_t bytes;
    double modified;
};
struct wire_engine_heads { /* engine.heads; the result has a wire_model for each file whose header has been read */
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
    double at; /* seconds since the machine booted */
    const char *stage, *word;
    int64_t n1, n2, n3, n4, n5; /* their meaning depends on the stage */
};
/* engine.status -> wire_engine_status; engine.model -> wire_model; engine.tokenize/detokenize/eval take the client's
 * structs, with `model` as a path and `client` set (which clients cannot set), and return the client's results.
 * engine.shutdown: the engine finishes nothing and exits with status 0. */

/* --- the journal (daemon/stream/journal.h): records of a stream, packed as events ----------------------- */

/* journal.head: all that recovery needs. It is followed by engine.begin, engine.tokens and journal.end records. */
struct wire_journal_head {
    int64_t stream, uid;
    uint64_t hash;            /* hash of the request's content; tells a retry from a different request with the same
                                 id */
    const char *session;      /* id */
    const char *name;         /* NULL: unnamed, not stored */
    const char *model;        /* as the client named it */
    const char *path;         /* of the model file */
    bool is_new;              /* this stream creates the session */
    double created;           /* of the session */
    int64_t history;          /* tokens in the session's timeline before this stream ... */
    bool turn_open;           /* ... and whether it ends inside an assistant turn */
    int64_t choice;           /* index among the choices of the request; -1: it is the only one */
    struct wire_generate req; /* the client's request, with the seed that was drawn */
};
struct wire_journal_end {
    double time;       /* seconds since the epoch, for retention only */
    const char *error; /* "NAME: message" where finish_reason is error */
    struct wire_engine_result result;
};

/* turn.generation: a completion's generation metadata, as the store keeps it with the turn. It is packed as an event,
 * so that the content of a damaged database is validated like a peer's message. */
struct wire_turn_generation {
    struct wire_generation_info info;
    struct wire_bytes reasoning; /* the turn's reasoning */
    const char *hash;            /* hash and hashed as in wire_engine_begin */
    int64_t hashed;
};

#endif
