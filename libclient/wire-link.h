/*
 * wire-link.h - what hearthd and an engine say to each other, and what hearthd writes into a stream's journal and
 * beside a turn, as structs. wire.h has the rest.
 */
#ifndef HEARTH_WIRE_LINK_H
#define HEARTH_WIRE_LINK_H

#include "libclient/wire-messages.h"

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
    const char *hash; /* of what the first `hashed` ids of history stood for: engine.begin; NULL: nobody knows */
    int64_t hashed;
    struct wire_generate req;
};
struct wire_engine_begin { /* event engine.begin: admitted */
    int64_t stream;
    struct wire_ids appended; /* ids of the request's text, messages or tokens, BOS included */
    bool history_kept;        /* the template would have the timeline begin otherwise than it does */
    bool think_unknown;       /* `think` makes no difference to the template */
    const char *markers;      /* the family of markers by which reasoning is told from text; NULL: all is text */
    bool thinking;            /* what comes first is reasoning */
    const char *hash; /* of what the first `hashed` ids of the timeline stand for, which are all but the stream's
                         own; NULL: the model has no vocabulary */
    int64_t hashed;
    bool has_sampling;
    struct wire_sampling sampling; /* as it is done: what the request left open, and no logit_bias */
};
struct wire_engine_tokens { /* event engine.tokens */
    int64_t stream, index;
    struct wire_ids tokens;
    struct wire_bytes text;           /* valid UTF-8: the text that these tokens completed */
    struct wire_bytes reasoning;      /* the same, and before it */
    struct wire_bytes held;           /* text that is withheld: what would come if the stream ended here */
    struct wire_bytes held_reasoning; /* the same, and before it */
    int64_t reasoning_tokens;         /* of the stream so far */
    struct wire_token_logprobs *logprobs;
    size_t n_logprobs;
};
struct wire_engine_result {
    const char *finish_reason;
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
    double time;       /* seconds since the epoch, for retention only */
    const char *error; /* "NAME: message" where finish_reason is error */
    struct wire_engine_result result;
};

/* turn.generation: a completion's generation metadata, as the store has it beside the turn, packed as an event, so that
 * the content of a damaged database is checked like a peer's message. */
struct wire_turn_generation {
    struct wire_generation_info info;
    struct wire_bytes reasoning; /* the turn's */
    const char *hash;            /* as of wire_engine_begin, both */
    int64_t hashed;
};

#endif
