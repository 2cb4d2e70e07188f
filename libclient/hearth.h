/*
 * hearth.h - libhearth, the client library of hearthd.
 *
 * hearthd keeps language models and their KV caches warm and shares them among everything on the machine. A client
 * is one connected Unix socket; requests and answers are MessagePack-RPC frames (libclient/PROTOCOL.md). This
 * header is all of the library.
 *
 * Mechanism
 *
 *   A `struct hearth` is one connection: a socket and two buffers. Nothing happens behind your back: no thread, no
 *   signal handler, no timer, no global state. Bytes move only inside hearth_io() and the blocking calls. One
 *   connection carries any number of generations at once; their tokens arrive interleaved, each event marked with
 *   the number that hearth_submit() gave.
 *
 * Which layer to use
 *
 *   run     hearth_run(), hearth_status(), hearth_sessions_list() ... wait for the answer. For programs that do one
 *           thing at a time. Most need nothing else:
 *
 *               struct hearth *h;
 *               struct hearth_err err;
 *               struct hearth_generate g;
 *               struct hearth_generate_result *r;
 *
 *               if (hearth_open(&h, NULL, &err))
 *                   return fail(err.msg);
 *               hearth_generate_init(&g, sizeof g);
 *               g.model = "tale";
 *               g.text = hearth_text("Once upon a time");
 *               if (hearth_run(h, &g, NULL, NULL, NULL, &r, &err))
 *                   return fail(err.msg);
 *               fwrite(r->text.data, 1, r->text.len, stdout);
 *               hearth_free(r);
 *               hearth_close(h);
 *
 *   stream  hearth_submit(), hearth_next(), hearth_cancel(): several generations at once, or tokens mixed with other
 *           work. hearth_wait() blocks between them where you have no event loop.
 *
 *   io      hearth_fd(), hearth_events(), hearth_io(): for an event loop. Watch the descriptor for what
 *           hearth_events() asks, hand what happened to hearth_io(), then call hearth_next() until it returns 0.
 *           hearth-libevent.h does exactly this for libevent, in a page.
 *
 *   The layers mix freely on one connection: a blocking call made while streams run keeps their events for the next
 *   hearth_next(). Only hearth_wait() and the run layer ever block.
 *
 * Back-pressure
 *
 *   While a whole frame waits that hearth_next() has not taken, the library reads no further, and the daemon throttles
 *   your streams: it keeps their tokens and sends them later. A slow reader costs nobody else anything.
 *
 * Threads
 *
 *   A connection belongs to one thread at a time; use one per thread, or your own lock. Different connections need
 *   no care. hearth_socket_path() reads the environment.
 *
 * Ownership
 *
 *   Strings and arrays in a parameter struct are borrowed for the call. A result (`T **out`) is yours: one block with
 *   everything it points to inside, freed by one hearth_free(). An event's body belongs to the connection until the
 *   next hearth_next(), unless hearth_take() makes it yours. Outputs are written on success only.
 *
 * Errors
 *
 *   Fallible functions return 0 (or a count) or a negative HEARTH_E*, and fill `err` with the code and a sentence
 *   that names what is wrong; `err` may be NULL. An error of a request leaves the connection usable. A broken
 *   connection (HEARTH_ECONNECT, HEARTH_EPROTOCOL, or what the daemon said before it hung up) stays broken: every
 *   later call fails in the same way, hearth_next() included, and hearth_close() is all that is left to do. The library
 *   never prints, never exits and raises no SIGPIPE.
 *
 * Text
 *
 *   Prompts may hold any bytes, NULs too, so they are a pointer and a length. Texts that come back are valid UTF-8, and
 *   end in a NUL that their length does not count. Names are C strings in UTF-8.
 *
 * Growing
 *
 *   A program built against an older header goes on working with a newer library. Parameter structs are set up by their
 *   init function, which is given sizeof; what they contain, and what you set up yourself, begins as zeros ("= {0}").
 *   Results keep their size, and each member its place: new ones take the room that is at their ends (HEARTH_ROOM).
 *   Only pairs and triples that will never have more are without it: hearth_err, _bytes, _ids, _strs, _bias, _logprob,
 *   _token_logprobs, _trace_field, _bucket, _logit, _top, _path_rows.
 */
#ifndef HEARTH_H
#define HEARTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; hearth_version() is the library's that runs. */
#define HEARTH_VERSION_MAJOR 0
#define HEARTH_VERSION_MINOR 1
#define HEARTH_VERSION_PATCH 0
#define HEARTH_VERSION       "0.1.0"
HEARTH_API const char *hearth_version(void);

struct timespec; /* for a strictly C99 <time.h>, which has none */

/* --- errors -------------------------------------------------------------------------------------------- */

#define HEARTH_ERR_MSG 200
struct hearth_err {
    int code; /* 0 or a negative HEARTH_E* */
    char msg[HEARTH_ERR_MSG];
};

/*
 * Every error there is: constant, number, the symbol on the wire, and whose fault it is (1: the request's,
 * 0: the server's). Numbers and symbols never change their meaning.
 */
#define HEARTH_ERRORS(X)                                                                                 \
    X(EINVALID, -1, "INVALID_REQUEST", 1) /* not a well-formed RPC message */                            \
    X(EPARAMS, -2, "INVALID_PARAMS", 1)   /* a field has the wrong type or a value out of range */       \
    X(EMETHOD, -3, "UNKNOWN_METHOD", 1)                                                                  \
    X(EUNSUPPORTED, -4, "UNSUPPORTED", 1) /* known, but not in this version, build or model */           \
    X(EVERSION, -5, "VERSION", 1)         /* no protocol version in common */                            \
    X(ETOOBIG, -6, "TOO_LARGE", 1)        /* over a limit that hello states */                           \
    X(ELIMIT, -7, "LIMIT", 1)             /* too much at once: connections, streams, sessions */         \
    X(EDENIED, -8, "PERMISSION", 1)                                                                      \
    X(ENOMODEL, -10, "MODEL_NOT_FOUND", 1)                                                               \
    X(EBADMODEL, -11, "MODEL_INVALID", 1)       /* the file is damaged or not a model */                 \
    X(EMODELMISMATCH, -12, "MODEL_MISMATCH", 1) /* the session is bound to another model */              \
    X(ENOSESSION, -13, "SESSION_NOT_FOUND", 1)                                                           \
    X(ESESSIONEXISTS, -14, "SESSION_EXISTS", 1)                                                          \
    X(ESESSIONBUSY, -15, "SESSION_BUSY", 1) /* a generation is running in it */                          \
    X(ENOSTREAM, -16, "STREAM_NOT_FOUND", 1)                                                             \
    X(ENOTEMPLATE, -17, "NO_TEMPLATE", 1) /* the model has no chat template, or none of that name */     \
    X(ECONTEXT, -18, "CONTEXT_FULL", 1)   /* the prompt alone does not fit */                            \
    X(ECONFLICT, -19, "CONFLICT", 1)      /* the request id was used for something else */               \
    X(ECANCELLED, -20, "CANCELLED", 1)                                                                   \
    X(ENOTPASSED, -22, "MODEL_NOT_PASSED", 1)                                                            \
    X(ETEMPLATE, -21, "TEMPLATE", 1) /* the chat template failed, or refused the conversation */         \
    X(EINTERNAL, -30, "INTERNAL", 0)                                                                     \
    X(EENGINE, -31, "ENGINE_FAILED", 0) /* the engine died or would not start */                         \
    X(ENOMEM, -32, "OUT_OF_MEMORY", 0)                                                                   \
    X(ESTORE, -33, "STORE", 0)   /* the session database cannot be read or written */                    \
    X(EDEVICE, -34, "DEVICE", 0) /* the GPU failed or is missing */                                      \
    X(ESHUTDOWN, -35, "SHUTTING_DOWN", 0)                                                                \
    X(EELSEWHERE, -37, "ELSEWHERE", 0)                                                                   \
    X(EIO, -36, "IO", 0)             /* a file could not be read or written */                           \
    X(ECONNECT, -40, "CONNECT", 0)   /* client side: no daemon, or the connection broke */               \
    X(EPROTOCOL, -41, "PROTOCOL", 0) /* client side: the peer sent something that is not the protocol */ \
    X(ETIMEOUT, -42, "TIMEOUT", 0)   /* client side: the time given to a blocking call is over */

enum hearth_errno {
    HEARTH_OK = 0,
#define X(name, number, symbol, request) HEARTH_##name = number,
    HEARTH_ERRORS(X)
#undef X
};

/* The symbol of a code ("MODEL_NOT_FOUND"), the one that starts an error on the wire; "INTERNAL" for unknown codes. */
HEARTH_API const char *hearth_error_name(int code);

/* True where the request is at fault, false where the server (or the way to it) failed. */
HEARTH_API bool hearth_error_is_request(int code);

/* --- pieces of messages -------------------------------------------------------------------------------- */

/* Where members of a later version will be; zeros until then. */
#define HEARTH_ROOM(n) long long reserved_[n]

/* Any bytes, NULs included. In results data[len] is a NUL that len does not count. */
struct hearth_bytes {
    const char *data; /* NULL: absent */
    size_t len;
};
struct hearth_ids {
    const int32_t *v; /* token ids; NULL: absent */
    size_t n;
};
struct hearth_strs {
    const char **v;
    size_t n;
};

/* The bytes of a C string, borrowed. */
static inline struct hearth_bytes hearth_text(const char *s)
{
    struct hearth_bytes b;
    b.data = s;
    b.len = s ? strlen(s) : 0;
    return b;
}

/* A message of a chat. Its content is a string or an array of typed parts; "text" is the only type today. A message
 * with further keys (tool_calls, tool_call_id, name, reasoning_content ...) or a content of null is given as a whole,
 * as JSON, and the other members are not looked at. */
struct hearth_part {
    const char *type;
    struct hearth_bytes text;
    HEARTH_ROOM(4);
};
struct hearth_message {
    const char *role;            /* "system", "user", "assistant", "tool", or what the template knows */
    struct hearth_bytes content; /* a string ... */
    struct hearth_part *parts;   /* ... or parts; not both */
    size_t n_parts;
    const char *json; /* NULL, or the message as a JSON object, with role and content */
    HEARTH_ROOM(4);
};

struct hearth_bias {
    int64_t id;
    double bias; /* added to the token's logit, -100..100 */
};

/* How tokens are sampled. hearth_generate_init() sets HEARTH_UNSET, and 0 for penalties by occurrence: what is not set
 * is as the model's file recommends, and else as given here. */
enum { HEARTH_UNSET = -1 };
struct hearth_sampling {
    double temperature;        /* 0.8; 0 = greedy: always the best token */
    int64_t top_k;             /* 40; 0 = off */
    double top_p;              /* 0.95; 1 = off */
    double min_p;              /* 0.05; 0 = off */
    double repetition_penalty; /* 1, which is off */
    double presence_penalty;   /* 0 = off */
    double frequency_penalty;  /* 0 = off */
    int64_t penalty_last;      /* 64 tokens of history count for penalties; 0 = all of it */
    bool has_seed;             /* false: the daemon draws a seed and reports it */
    uint64_t seed;             /* the same seed gives the same text, whatever else is running */
    struct hearth_bias *logit_bias;
    size_t n_logit_bias;
    HEARTH_ROOM(8);
};

/* Where a prompt's KV came from: prompt_tokens = reused_tokens + computed_tokens, the session's history included. */
struct hearth_usage {
    int64_t prompt_tokens;
    int64_t reused_tokens;     /* KV that this request did not have to compute ... */
    int64_t restored_tokens;   /* ... and, of these, tokens whose KV was restored from host memory or disk for it */
    int64_t computed_tokens;   /* at least one */
    int64_t completion_tokens; /* an end token is not counted */
    int64_t reasoning_tokens;  /* of these, the reasoning and its markers */
    HEARTH_ROOM(3);
};
struct hearth_timings {       /* milliseconds */
    double queue_ms;          /* from the request to its admission, load and restore left out */
    double load_ms;           /* waiting for the model to load */
    double restore_ms;        /* waiting for KV to be restored from host memory or disk; not in queue_ms either */
    double prefill_ms;        /* from admission to the first token */
    double decode_ms;         /* from the first token to the last */
    double total_ms;          /* from the request to its end */
    double tokens_per_second; /* of decode; 0 where fewer than two tokens came */
    HEARTH_ROOM(4);
};

/* An alternative for a token, and a token with its alternatives, best first. */
struct hearth_logprob {
    int64_t id;
    double logprob;
    struct hearth_bytes text; /* the token's bytes, not always whole UTF-8 */
};
struct hearth_token_logprobs {
    int64_t id;
    double logprob;
    struct hearth_logprob *top;
    size_t n_top;
};

/* --- io: the connection -------------------------------------------------------------------------------- */

struct hearth;

/*
 * Where the daemon listens: $HEARTH_SOCKET, else $XDG_RUNTIME_DIR/hearth/hearth.sock, else (no such variable)
 * /run/hearth/hearth.sock for root and /tmp/hearth-UID/hearth.sock for others. Where that directory in /tmp exists, it
 * must be a real directory, owned by the user and closed to others, for anybody could have created it; else the error
 * is HEARTH_EDENIED. Writes a NUL-terminated path; 108 bytes are always enough, as sun_path has no more.
 */
HEARTH_API int hearth_socket_path(char *buf, size_t size, struct hearth_err *err);

/* Connects to the daemon at `path`, or where that is NULL at hearth_socket_path(); where none answers there, and
 * $HEARTH_SOCKET is not set, to the machine's at /run/hearth/hearth.sock. Never blocks. Returns HEARTH_ECONNECT where
 * nothing answers: start a daemon and try again, as the `hearth` command does; HEARTH_EDENIED where another user than
 * this one or root has put a socket into a default place, or listens at one that is not its own. Sends nothing yet: the
 * greeting (`hello`) travels with the first request. The connection is the caller's, until hearth_close(). */
HEARTH_API int hearth_open(struct hearth **out, const char *path, struct hearth_err *err);

/*
 * Does the same as hearth_open() with NULL, and where nothing answers starts `hearthd`, or where that is NULL the
 * installed one, else the one in PATH. Blocks until it listens, mostly some 50 ms; the daemon is the user's then, not
 * this process's, and stays. It says on stderr why it cannot start. Several programs may do this at the same time.
 */
HEARTH_API int hearth_open_or_start(struct hearth **out, const char *hearthd, struct hearth_err *err);

/* Does the same over a connected stream socket. On success the connection owns the descriptor, sets it non-blocking
 * and close-on-exec, and closes it in hearth_close(). */
HEARTH_API int hearth_adopt(struct hearth **out, int fd, struct hearth_err *err);

/* Closes the socket and frees the connection with all events not yet taken. Its generations go on for some seconds, for
 * hearth_attach(), and are cancelled then; to end one at once, call hearth_cancel() and wait for its DONE. Sessions
 * keep every token that was generated. NULL is fine. */
HEARTH_API void hearth_close(struct hearth *h);

/* Sets the client's name for the daemon's log, such as "my-editor 1.2", before the first request. The name is copied
 * and cut at 63 bytes. */
HEARTH_API void hearth_set_client(struct hearth *h, const char *name);

enum { HEARTH_READ = 1, HEARTH_WRITE = 2 };

/* The descriptor to watch, and for what: a set of HEARTH_READ and HEARTH_WRITE, to be asked again after every call
 * on this connection. */
HEARTH_API int hearth_fd(const struct hearth *h);
HEARTH_API int hearth_events(const struct hearth *h);

/* Moves bytes: reads where `ready` has HEARTH_READ, writes where it has HEARTH_WRITE. One read and one write at most,
 * so a busy daemon cannot keep a caller here. Then call hearth_next() until it returns 0. */
HEARTH_API int hearth_io(struct hearth *h, int ready, struct hearth_err *err);

/*
 * Blocks until something happened, for programs without an event loop. Returns HEARTH_WAIT_IO after bytes moved or
 * where hearth_next() has something at once, HEARTH_WAIT_FD where `fd` (your own: stdin, a self-pipe written by a
 * signal handler; -1 for none) became readable, HEARTH_WAIT_TIMEOUT, or a negative code. Signals do not interrupt it:
 * use a self-pipe, which has no race. NULL waits for ever.
 */
enum { HEARTH_WAIT_TIMEOUT = 0, HEARTH_WAIT_IO = 1, HEARTH_WAIT_FD = 2 };
HEARTH_API int hearth_wait(struct hearth *h, int fd, const struct timespec *timeout, struct hearth_err *err);

/* --- stream: generations ------------------------------------------------------------------------------- */

struct hearth_file {
    const char *name;
    struct hearth_bytes text;
    HEARTH_ROOM(4);
};

/*
 * A generation. It goes on from a session (a timeline of tokens that the daemon keeps) or stands alone, and is given
 * one of: messages (rendered with the model's chat template), text (appended raw), or token ids.
 */
struct hearth_generate {
    size_t size;         /* of this struct, as the caller knows it; hearth_generate_init() sets it */
    const char *model;   /* a name or an absolute path; may be NULL where `session` exists already */
    const char *session; /* a name or an id; a session of a new name is created; NULL = none is kept */
    /* Your id for this request, among your uid's. Whoever sends the same request with the same id once more, within 24
     * hours, gets the output of the first one, and follows it where it is running: it never generates twice. Other
     * content under an id that was used is HEARTH_ECONFLICT. NULL = the library draws one. */
    const char *request;
    /* exactly one of the three: */
    struct hearth_message *messages; /* new messages where there is a session, else the whole conversation */
    size_t n_messages;
    struct hearth_bytes text;
    struct hearth_ids tokens;
    int64_t max_tokens;      /* of the completion; -1 = until the context is full; 0 = only compute the prompt, so
                                that its KV is warm */
    struct hearth_strs stop; /* at most 16 strings of 1 to 1024 bytes that end the text; not part of it */
    struct hearth_sampling sampling;
    int64_t logprobs; /* alternatives reported per token, 0..20; -1 = none and no logprobs at all */
    bool stream;      /* true: BEGIN and TOKENS events before DONE; false: DONE alone */
    bool special;     /* `text`: "<|im_start|>" and the like are control tokens (true) or plain text (false) */
    /* In place of messages, text and tokens, and without a session: fill in the middle. The completion is what stands
     * between prefix and suffix, of which one may be absent. Give the files of `extra` in an order that stays, those
     * that change most last: what comes before a change is not computed again. */
    struct hearth_bytes prefix, suffix;
    struct hearth_file *extra; /* other files, or parts of them, of the same work */
    size_t n_extra;
    const char *file, *repo; /* names of the file itself and of the work; NULL: the model is told of "untitled" and
                                "project" where it wants to know */
    /* With messages: what else the chat template is given, as JSON text. NULL: nothing. */
    const char *tools, *documents; /* arrays */
    const char *kwargs;            /* an object whose members are variables of the template, and count last */
    /* With messages: another template than the model's default one: its source, or the name of one of the model's. */
    const char *chat_template, *template_name;
    /* "interactive" where a person waits for each word, "background" where nobody does; NULL or "normal": between. Who
     * is served first; the daemon's configuration may lower it. */
    const char *service_class;
    int64_t deadline_ms; /* without a token by then it is worth nothing, and ends with HEARTH_ECANCELLED; 0 = never */
    bool dry;            /* hearth_measure() sets it */
    bool ignore_eos;     /* an end token is a token like others, and does not end the completion: for measuring */
    /* With messages: "on" or "off": the chat template is asked to have the model think before it answers, or not to; a
     * notice THINK_UNKNOWN says where it does not know how. NULL: as the template has it. */
    const char *think;
    /* So many completions of one prompt, 1..16, which is computed once; without a session. The result has `choices`,
     * events say of which one they are. 0 = one, and no choices. */
    int64_t n;
};

/* Sets every default; `size` is sizeof *g. */
HEARTH_API void hearth_generate_init(struct hearth_generate *g, size_t size);

/* Bodies of events, see enum hearth_event_type. */
struct hearth_stream_begin {
    int64_t stream;      /* the daemon's number, what its log calls it */
    const char *session; /* id; NULL where none is kept */
    const char *request;
    const char *model; /* the name of the model that answers */
    int64_t choice;    /* of several; -1: it is not one of `n` */
    HEARTH_ROOM(3);
};
struct hearth_stream_tokens {
    int64_t stream;
    int64_t index;            /* completion tokens before these */
    int64_t count;            /* tokens here; one frame may carry several */
    struct hearth_bytes text; /* may be empty: a token's text is held back until it is whole UTF-8 */
    struct hearth_ids tokens;
    struct hearth_token_logprobs *logprobs; /* one per token where they were asked for */
    size_t n_logprobs;
    struct hearth_bytes reasoning; /* what the model thought, which comes before text; absent where it is none */
    int64_t choice;                /* as in BEGIN */
    HEARTH_ROOM(1);
};
struct hearth_stream_progress {
    int64_t stream;
    int64_t done, total; /* tokens of the prompt; those that were reused are done from the start */
    HEARTH_ROOM(4);
};
struct hearth_stream_queued { /* before BEGIN, where too many streams are running */
    const char *request;      /* its id */
    int64_t position;         /* in its user's line; 1: the next */
    double seconds;           /* that it may take, by how long it took others; 0: not known */
    HEARTH_ROOM(4);
};
struct hearth_model_progress {
    const char *model;
    int64_t done, total; /* bytes */
    int64_t host_bytes;  /* of its weights, that stay in the host's memory because the GPU's has no room; 0: none */
    double speed;        /* tokens per second that are to be expected then, at most; 0: not known, or nothing is */
    HEARTH_ROOM(2);
};
struct hearth_notice {
    const char *name;    /* a symbol. RECOVERING: an engine died, and the stream goes on in the next one.
                            NOT_JOURNALED: the stream would not survive the daemon. HISTORY_KEPT: the chat template
                            renders earlier messages otherwise than the session has them, which stay as they are.
                            THINK_UNKNOWN: the template does not know how to ask for what `think` wants */
    const char *message; /* for a person */
    int64_t stream;      /* -1: not about one stream */
    HEARTH_ROOM(4);
};
/* One of several completions. */
struct hearth_choice {
    int64_t index;  /* 0 .. n - 1 */
    int64_t stream; /* each has a number of its own */
    struct hearth_bytes text, reasoning;
    struct hearth_ids tokens;
    const char *finish_reason;
    uint64_t seed; /* the first one's and the index added up: alone with it, the text is the same */
    struct hearth_token_logprobs *logprobs;
    size_t n_logprobs;
    const char *error;
    HEARTH_ROOM(8);
};
/* Of several completions the members are those of the first one, but for usage, whose completion_tokens and
 * reasoning_tokens are of all. */
struct hearth_generate_result {
    const char *session; /* id; NULL where none is kept */
    const char *request;
    int64_t stream;
    struct hearth_bytes text; /* the whole completion: the texts of its TOKENS in a row */
    struct hearth_ids tokens;
    const char *finish_reason; /* stop, length, context_full, cancelled, error */
    struct hearth_usage usage;
    struct hearth_timings timings;
    uint64_t seed; /* as given or drawn */
    struct hearth_token_logprobs *logprobs;
    size_t n_logprobs;
    const char *error;             /* "NAME: message" where finish_reason is error: the text so far stands */
    struct hearth_bytes reasoning; /* of the whole completion, apart from its text; absent where there is none */
    struct hearth_choice *choices; /* where `n` was given */
    size_t n_choices;
    HEARTH_ROOM(4);
};

/* A later version may have more: a program passes over a type that it does not know. */
enum hearth_event_type {
    HEARTH_EVENT_BEGIN = 1, /* body.begin: admitted */
    HEARTH_EVENT_TOKENS,    /* body.tokens */
    HEARTH_EVENT_PROGRESS,  /* body.progress: a model that this connection waits for is loading; request is 0 */
    HEARTH_EVENT_NOTICE,    /* body.notice: request is 0 where it is not about one stream */
    HEARTH_EVENT_DONE,      /* body.result: the last event of a generation (of another call: body.any) ... */
    HEARTH_EVENT_ERROR,     /* ... or this: refused or failed, `err` says why; no body */
    HEARTH_EVENT_PROMPT,    /* body.prompt: a long prompt is being read, between BEGIN and the first TOKENS */
    HEARTH_EVENT_QUEUED,    /* body.queued: it waits for other streams to end, before BEGIN */
};
struct hearth_event {
    enum hearth_event_type type;
    uint32_t request; /* hearth_submit()'s number */
    union {
        void *any;
        const struct hearth_stream_begin *begin;
        const struct hearth_stream_tokens *tokens;
        const struct hearth_model_progress *progress;
        const struct hearth_stream_progress *prompt;
        const struct hearth_stream_queued *queued;
        const struct hearth_notice *notice;
        const struct hearth_generate_result *result;
    } body;
    struct hearth_err err;
    HEARTH_ROOM(4);
};

/* Queues a generation and returns its number (never 0) in *request. Sends nothing by itself: hearth_io(), hearth_wait()
 * or a blocking call does. */
HEARTH_API int hearth_submit(struct hearth *h, const struct hearth_generate *g, uint32_t *request,
                             struct hearth_err *err);

/*
 * Subscribes to a generation that was begun elsewhere: by another connection, by a process that has died, before a
 * crash of the daemon. `stream` is the number that its BEGIN carried; where `request` is not NULL, that request id
 * names it instead. `from` is how many tokens you have already. BEGIN comes again, then every token from there on, then
 * DONE; a finished generation can be had for 24 hours. Text that was held back to the end of the stream has no token of
 * its own and comes again. A uid sees its own generations alone. Returns HEARTH_ENOSTREAM where there is none.
 */
HEARTH_API int hearth_attach(struct hearth *h, int64_t stream, const char *request, int64_t from, uint32_t *number,
                             struct hearth_err *err);

/* Takes the next event: 1 with *ev set, 0 when there is none yet, or the connection's error. Never blocks and does no
 * I/O. Each generation ends with exactly one DONE or ERROR, unless the connection breaks. */
HEARTH_API int hearth_next(struct hearth *h, struct hearth_event *ev, struct hearth_err *err);

/* Makes the body of the last event yours, to be freed with hearth_free(); NULL where it has none or was taken. */
HEARTH_API void *hearth_take(struct hearth *h);

/* Asks the daemon to stop a generation. Its DONE still comes, with finish_reason "cancelled" (or another, where it
 * ended first). Works from the moment of hearth_submit(). Returns HEARTH_ENOSTREAM where no generation of that number
 * is running. */
HEARTH_API int hearth_cancel(struct hearth *h, uint32_t request, struct hearth_err *err);

/* --- run: blocking calls --------------------------------------------------------------------------------- */

/*
 * Each sends one request and waits for its answer; `timeout` is for the whole call, NULL waits for ever. After
 * HEARTH_ETIMEOUT the connection goes on and the late answer is dropped.
 */

/*
 * Any of them without waiting: after hearth_defer() the next call on this connection (but for hearth_run(), which is
 * hearth_submit() then, and hearth_hello()) queues its request, leaves its number in *request and returns at once; it
 * uses neither its timeout nor its on_event, and leaves its `out` as it is. The request ends with an event of that
 * number: HEARTH_EVENT_DONE, whose body.any is what `out` would have been, or HEARTH_EVENT_ERROR. A call that fails has
 * queued nothing, and the one after it waits again. `request` is the caller's until that call returns.
 *
 *     hearth_defer(h, &loading);
 *     if (hearth_models_load(h, "tale", NULL, NULL, NULL, NULL, &err))
 *         return fail(err.msg);
 *     ... // the event loop: PROGRESS, then DONE with a struct hearth_model_load_result
 */
HEARTH_API void hearth_defer(struct hearth *h, uint32_t *request);

/* Frees a result of any kind. NULL is fine. */
HEARTH_API void hearth_free(void *result);

/* Is called with the events of the running call, and with notices and progress. Bodies are borrowed. A return value
 * other than 0 for a generation's event cancels it; the call then returns its result, finish_reason "cancelled". */
typedef int hearth_on_event(void *arg, const struct hearth_event *ev);

/* Runs a generation to its end; on_event may be NULL. A timeout cancels it. */
HEARTH_API int hearth_run(struct hearth *h, const struct hearth_generate *g, hearth_on_event *on_event, void *arg,
                          const struct timespec *timeout, struct hearth_generate_result **out, struct hearth_err *err);

/* What a generation would cost, without making it: nothing is computed and no session made. */
struct hearth_measured {
    int64_t prompt_tokens; /* the session's history included */
    int64_t reused_tokens; /* of these, the tokens in full pages of KV that the model has on its device */
    bool fits;             /* the prompt, and max_tokens where that is given, are within the model's context */
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_measure(struct hearth *h, const struct hearth_generate *g, struct hearth_measured **out,
                              const struct timespec *timeout, struct hearth_err *err);

/* What the daemon is and allows. */
struct hearth_limits {
    int64_t frame_bytes;  /* one request */
    int64_t depth;        /* nesting */
    int64_t tokens;       /* ids in one message */
    int64_t streams;      /* running at once, per uid */
    int64_t connections;  /* per uid */
    int64_t stop_strings; /* per request, as the next two */
    int64_t logit_bias;
    int64_t logprobs;
    HEARTH_ROOM(4);
};
struct hearth_hello_result {
    int64_t version;    /* of the protocol, the one in use */
    const char *server; /* "hearth 0.1.0" */
    struct hearth_strs features;
    struct hearth_limits limits;
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_hello(struct hearth *h, struct hearth_hello_result **out, const struct timespec *timeout,
                            struct hearth_err *err);

/* Sessions: only one's own are seen. `session` is a name or an id. */
struct hearth_session {
    const char *id;    /* 16 hex digits */
    const char *name;  /* NULL: unnamed */
    const char *model; /* as it was named when the session began */
    const char *path;  /* of the model file */
    int64_t tokens;    /* length of the timeline */
    int64_t turns;
    double created, used; /* seconds since the epoch */
    bool busy;            /* a generation is running in it */
    int64_t bytes;        /* of texts and tokens that are stored */
    int64_t kv_bytes;     /* of KV files that were written in its turns */
    bool pinned;          /* never removed for its age or for room */
    double expires;       /* when it is removed if nobody uses it; 0: never */
    bool damaged;         /* it can only be removed; of what else is here only the id is to be relied on */
    const char *parent;   /* id of the session that it is a fork of; NULL: it is none, or that one was removed */
    int64_t shared;       /* leading tokens that it has from there, by reference; bytes has its own alone */
    bool ephemeral;       /* it is removed when nobody has used it for a day */
    HEARTH_ROOM(8);
};
struct hearth_sessions_list_result {
    struct hearth_session *sessions; /* last used first */
    size_t n_sessions;
    const char *next; /* where the next page is from; NULL: this was the last one */
    HEARTH_ROOM(4);
};
/* Generation metadata: how a turn was generated. */
struct hearth_generation_info {
    const char *finish_reason;
    struct hearth_usage usage;
    struct hearth_timings timings;
    struct hearth_sampling sampling; /* with the seed that was used */
    HEARTH_ROOM(4);
};
/* A turn of a session, for people to read; the tokens of the timeline are the truth. */
struct hearth_turn {
    const char *role; /* system, user, assistant, text (raw), completion (what followed raw text) */
    struct hearth_bytes text;
    int64_t n_tokens;
    double created;
    bool has_generation; /* only turns of assistant and completion were generated */
    struct hearth_generation_info generation;
    struct hearth_ids tokens; /* export and import only */
    bool continues;           /* likewise: this is the rest of the turn before, which did not fit in one page */
    const char *message;      /* JSON: the message as it was given, where it was more than a role and a text; or NULL */
    struct hearth_bytes reasoning; /* of an answer, apart from its text; absent where there is none */
    HEARTH_ROOM(2);
};
struct hearth_session_show_result {
    struct hearth_session session;
    struct hearth_turn *turns;
    size_t n_turns;
    struct hearth_ids tokens; /* where asked for */
    HEARTH_ROOM(4);
};
/* One's own generations, the newest first: those that run, and with `ended` those that can still be attached to. */
struct hearth_stream_info {
    int64_t stream;      /* the number that hearth_attach() takes */
    const char *state;   /* queued, running, recovering, cancelling, delivering, ended */
    const char *request; /* the request's id */
    const char *session; /* its id; NULL where none is kept */
    const char *name;    /* of the session */
    const char *model;   /* as it was named when the session began */
    int64_t tokens;      /* of the completion, so far */
    int64_t attached;    /* requests that wait for its end: 0 where its client has gone */
    double began, ended; /* seconds since the epoch; one of them is 0: while it runs, or afterwards */
    int64_t choice;      /* of several of the request; -1: it is the only one */
    HEARTH_ROOM(3);
};
struct hearth_streams_list_result {
    struct hearth_stream_info *streams;
    size_t n_streams;
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_streams_list(struct hearth *h, bool ended, struct hearth_streams_list_result **out,
                                   const struct timespec *timeout, struct hearth_err *err);

/* The stages that a stream has passed, in the daemon and in its engines: running, or ended and one of the recent ones.
 * A uid sees its own streams, root and the daemon's own user everybody's. HEARTH_ENOSTREAM where nothing is known. */
struct hearth_trace_field {
    const char *name, *value; /* "reused", "64": a stage's numbers, and one word */
};
struct hearth_trace_event {
    double at;         /* seconds since the epoch */
    const char *where; /* "hearthd", "engine" */
    int64_t engine;    /* the engine's process; 0 in hearthd */
    const char *stage; /* "admitted" */
    struct hearth_trace_field *fields;
    size_t n_fields;
    HEARTH_ROOM(4);
};
struct hearth_trace_result {
    int64_t stream;
    struct hearth_trace_event *events; /* by time */
    size_t n_events;
    int64_t lost; /* events in the middle that are not remembered */
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_streams_trace(struct hearth *h, int64_t stream, struct hearth_trace_result **out,
                                    const struct timespec *timeout, struct hearth_err *err);

/* Gets a page of the list, some hundred sessions. `from` is NULL for the first page, then the `next` of the one before.
 * A session that is used meanwhile goes to the front, and later pages do not have it. */
HEARTH_API int hearth_sessions_list(struct hearth *h, const char *from, struct hearth_sessions_list_result **out,
                                    const struct timespec *timeout, struct hearth_err *err);
HEARTH_API int hearth_sessions_show(struct hearth *h, const char *session, bool tokens,
                                    struct hearth_session_show_result **out, const struct timespec *timeout,
                                    struct hearth_err *err);
HEARTH_API int hearth_sessions_rename(struct hearth *h, const char *session, const char *name,
                                      const struct timespec *timeout, struct hearth_err *err);
HEARTH_API int hearth_sessions_remove(struct hearth *h, const char *session, const struct timespec *timeout,
                                      struct hearth_err *err);
HEARTH_API int hearth_sessions_pin(struct hearth *h, const char *session, bool pinned, const struct timespec *timeout,
                                   struct hearth_err *err);
/* The same list with ephemeral sessions. */
HEARTH_API int hearth_sessions_list_all(struct hearth *h, const char *from, struct hearth_sessions_list_result **out,
                                        const struct timespec *timeout, struct hearth_err *err);

/*
 * Forks a session: each new one has its first `at` tokens, without a copy of them or of their KV, and goes on by
 * itself. Of a session in which a generation is running, what has been made so far counts. hearth_session_fork_init()
 * sets `size` and the defaults.
 */
struct hearth_session_fork {
    size_t size;
    const char *session;      /* a name or an id */
    int64_t at;               /* tokens; -1 = all */
    int64_t count;            /* 1..64 */
    struct hearth_strs names; /* none: the daemon names them; else `count` */
    bool ephemeral;           /* removed when nobody has used it for a day, and listed only where asked for */
};
struct hearth_forked {
    struct hearth_session *sessions;
    size_t n_sessions;
    HEARTH_ROOM(4);
};
HEARTH_API void hearth_session_fork_init(struct hearth_session_fork *f, size_t size);
HEARTH_API int hearth_sessions_fork(struct hearth *h, const struct hearth_session_fork *f, struct hearth_forked **out,
                                    const struct timespec *timeout, struct hearth_err *err);

/* What a fork has of its own becomes its parent's, and the fork is gone. Where the parent has gone on since that is
 * HEARTH_ECONFLICT, unless with `replace`: then what it has after the fork's cut is dropped. */
struct hearth_adopted {
    struct hearth_session session; /* the parent, as it is now */
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_sessions_adopt(struct hearth *h, const char *session, bool replace, struct hearth_adopted **out,
                                     const struct timespec *timeout, struct hearth_err *err);

/*
 * Exports a session page by page. `from` is 0 for the first page, then the `next` of the one before. Turns that are
 * appended meanwhile come along; `session` and `turn_open` of the last page describe all pages together. Name the
 * session by the id that the first page has, so that all pages are of one session.
 */
struct hearth_session_page {
    int64_t version; /* of what this page holds: HEARTH_EXPORT_VERSION */
    struct hearth_session session;
    bool turn_open; /* the timeline ends inside an assistant's turn */
    struct hearth_turn *turns;
    size_t n_turns;
    int64_t next; /* -1: this was the last page */
    HEARTH_ROOM(4);
};
enum { HEARTH_EXPORT_VERSION = 1 };
HEARTH_API int hearth_sessions_export(struct hearth *h, const char *session, int64_t from,
                                      struct hearth_session_page **out, const struct timespec *timeout,
                                      struct hearth_err *err);

/*
 * Imports a session page by page, on one connection, one import at a time. The session exists once the last page has
 * been answered; before that, and where no last page comes, nothing is stored. All ids must be of the model's
 * vocabulary. hearth_session_import_init() sets `size` and the rest to what an absent member is.
 */
struct hearth_session_import {
    size_t size;
    int64_t page;              /* 0, 1, 2 ... */
    bool more;                 /* another page follows */
    struct hearth_turn *turns; /* in order */
    size_t n_turns;            /* at most about 1 MiB of texts and ids in a page, or it may not fit in a frame */
    int64_t version;           /* of the document; the rest counts in page 0 only */
    const char *name;          /* of the new session */
    const char *model;         /* a name or a path on this machine */
    /* As models.show had them where the session comes from: those that are given must be the same here. */
    const char *tokenizer, *tokenizer_digest;
    int64_t vocab;
    double created; /* seconds since the epoch */
    bool turn_open, pinned;
    bool replace; /* a session of that name is removed, in the same transaction */
};
HEARTH_API void hearth_session_import_init(struct hearth_session_import *page, size_t size);
struct hearth_imported {
    bool has_session; /* after the last page */
    struct hearth_session session;
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_sessions_import(struct hearth *h, const struct hearth_session_import *page,
                                      struct hearth_imported **out, const struct timespec *timeout,
                                      struct hearth_err *err);

/* Models: list knows names and files only; show asks the engine, which reads the file. `model` is a name or a path. */
struct hearth_op {  /* of a model's program: the list of fused ops that its forward pass is */
    const char *op; /* "qkv" */
    const char
        *text; /* for people: "qkv (Q4_K, Q4_K, Q6_K; 4096 to 6144)": types of its matrices, columns in and out */
    /* The path that it takes in a step of one row, of 16, of 512, and of one in the invariant mode: "cpu"; on a GPU
     * "gemv", "skinny", "wgmma", "cublaslt", "ref", or "one" for ops that have a single path. NULL: the model is not in
     * memory, or the device cannot run it. */
    const char *one, *few, *many, *invariant;
    HEARTH_ROOM(4);
};
struct hearth_special_token {
    const char *role; /* bos eos eot eom fim_pre fim_suf fim_mid fim_pad fim_rep fim_sep */
    int64_t id;
    struct hearth_bytes text;
    HEARTH_ROOM(4);
};
struct hearth_default { /* a sampling parameter, by generate's name for it */
    const char *name;
    double value;
    HEARTH_ROOM(4);
};
struct hearth_model {
    const char *name, *path;
    int64_t bytes;
    double modified; /* seconds since the epoch */
    bool loaded;
    /* hearth_models_show() only: */
    const char *arch;      /* "llama" */
    const char *type;      /* "Q4_K_M" */
    const char *digest;    /* of its metadata and samples of every tensor: 32 hex digits that tell models apart */
    const char *tokenizer; /* "gpt2/llama-bpe" */
    const char *tokenizer_digest; /* the same digest: the same ids for the same text */
    const char *chat;       /* names of its chat templates, "default tool_use"; NULL = none that can be rendered */
    const char *chat_error; /* why its default template cannot be rendered; NULL = it can, or there is none */
    int64_t parameters, context, layers, d_model, heads, kv_heads, d_head, d_ff, vocab;
    struct hearth_op *ops; /* hearth_models_ops() only: in the order in which they run */
    size_t n_ops;
    /* hearth_models_show(), and hearth_models_details() with arch, type and parameters of those that were read: */
    bool read;           /* its header has been read */
    const char *kind;    /* "language", "embedding", "adapter", "projector", "vocabulary", "other" */
    const char *refusal; /* why it does not run; NULL: it does */
    /* hearth_models_show() only: */
    struct hearth_strs capabilities; /* what it was made for: "chat", "fim", "tools", "embed" */
    struct hearth_special_token *special;
    size_t n_special;
    struct hearth_default *sampling; /* what its makers put into the file; no request takes them by itself */
    size_t n_sampling;
    HEARTH_ROOM(12);
};
struct hearth_models_list_result {
    struct hearth_model *models;
    size_t n_models;
    const char *default_model;  /* a name or a path: what is meant where a person names none */
    struct hearth_strs folders; /* that were searched, in this order */
    HEARTH_ROOM(4);
};
struct hearth_model_load_result {
    const char *model, *path;
    double load_ms;
    bool was_loaded;         /* already there */
    const char *where;       /* "cpu", "cuda:0" */
    const char *no_gpu;      /* NULL, or why the CPU runs it although the engine could use a GPU */
    struct hearth_strs slow; /* this and the others as in struct hearth_loaded_model */
    int64_t bytes, host_bytes;
    double speed;
    HEARTH_ROOM(1);
};
HEARTH_API int hearth_models_list(struct hearth *h, struct hearth_models_list_result **out,
                                  const struct timespec *timeout, struct hearth_err *err);
/* The same with what the headers of the files say, as far as they have been read: those that have not are being read,
 * so ask again. An engine is started for it. */
HEARTH_API int hearth_models_details(struct hearth *h, struct hearth_models_list_result **out,
                                     const struct timespec *timeout, struct hearth_err *err);
HEARTH_API int hearth_models_show(struct hearth *h, const char *model, struct hearth_model **out,
                                  const struct timespec *timeout, struct hearth_err *err);
/* The same with the model's program. It need not be in memory for that; one that cannot run gives the error of a load.
 */
HEARTH_API int hearth_models_ops(struct hearth *h, const char *model, struct hearth_model **out,
                                 const struct timespec *timeout, struct hearth_err *err);
/* on_event (may be NULL) sees the progress. */
HEARTH_API int hearth_models_load(struct hearth *h, const char *model, hearth_on_event *on_event, void *arg,
                                  const struct timespec *timeout, struct hearth_model_load_result **out,
                                  struct hearth_err *err);
HEARTH_API int hearth_models_unload(struct hearth *h, const char *model, const struct timespec *timeout,
                                    struct hearth_err *err);

/*
 * A daemon that runs as another user may have no right to one's files. Calls that name a model by a path therefore pass
 * the files to it first, as open descriptors, by themselves: a GGUF file, the parts of a split one, a Hugging Face
 * folder. This does so alone. It is for a session of such a model, which names none: when it is answered with
 * HEARTH_ENOTPASSED the daemon has been restarted, or has closed what nobody used, and wants the files again;
 * sessions.show tells the path.
 */
HEARTH_API int hearth_models_pass(struct hearth *h, const char *path, const struct timespec *timeout,
                                  struct hearth_err *err);

/* A pinned model is loaded, and stays: it is unloaded neither because nobody uses it nor to make room, until it is
 * unpinned or unloaded. As long as the daemon lives its next engines load it, too. For root and the daemon's own user.
 */
HEARTH_API int hearth_models_pin(struct hearth *h, const char *model, bool pinned, hearth_on_event *on_event, void *arg,
                                 const struct timespec *timeout, struct hearth_model_load_result **out,
                                 struct hearth_err *err);

/* The daemon, its engine and the models in memory. */
struct hearth_loaded_model {
    const char *name, *path;
    const char *where;                              /* "cpu", "cuda:0" */
    int64_t bytes;                                  /* of weights held */
    int64_t context;                                /* the model's limit */
    int64_t context_used;                           /* the longest sequence, running or cached */
    int64_t sequences;                              /* running */
    int64_t pages_used, pages_total, page_bytes;    /* KV */
    int64_t states_used, states_total, state_bytes; /* recurrent states, counted in the pages' bytes; 0: none */
    bool vocab_only;                                /* only its tokenizer is held */
    double expires;                                 /* when it is unloaded if nobody uses it, seconds since the epoch;
                                                       0: it is in use, or stays */
    bool pinned;                                    /* it stays until somebody stops it */
    const char *self_check;  /* of its device: NULL where none is needed; "passed"; "passed before",
                                as the cache has it; else why the CPU runs the model: what
                                was wrong, or what the device lacks (room, kernels) */
    struct hearth_strs slow; /* ops that are off the GPU's fast paths, and why; at most 8, none on the CPU */
    int64_t host_bytes;      /* of `bytes`, in the host's memory, because the GPU's has no room for them; 0: none */
    double speed;            /* tokens per second that are to be expected then, at most; 0: not known, or nothing is */
    HEARTH_ROOM(6);
};
/* The tiers of KV below the models' pages on the device: host memory, and files. Counters start with the engine; rates
 * are recent means, 0 where nothing was measured yet. */
struct hearth_kv_tiers {
    int64_t host_pages, host_bytes, host_limit; /* held in host memory; limit in bytes */
    int64_t disk_pages, disk_bytes;             /* known to be in files, of the models loaded since the start */
    int64_t pages_saved, pages_restored;        /* device to host; host to device */
    int64_t pages_dropped;                      /* evicted from host memory, and in no file */
    int64_t bytes_saved, bytes_restored;        /* over the device's link */
    int64_t bytes_written, bytes_read;          /* of files */
    int64_t files_written, files_bad;           /* bad: damaged, and renamed */
    int64_t moving;                             /* saves and restores in flight */
    double prefill_rate;                        /* tokens/s that computing gives */
    double device_rate;                         /* bytes/s, host memory to device */
    double read_rate, write_rate;               /* bytes/s, of the disk */
    HEARTH_ROOM(4);
};
/* The device's memory: who has it. As of when the device last had nothing to do, or 10 s ago. */
struct hearth_program {
    int64_t pid, bytes;
    const char *name; /* NULL: it is not told */
    HEARTH_ROOM(4);
};
struct hearth_memory {
    int64_t limit;                         /* that hearth may have (gpu_memory); 0: any */
    int64_t weights, kv, workspace, cache; /* held; the cache is given back when memory is wanted */
    int64_t context;                       /* what the driver and the runtime have for the engine; 0: not known */
    int64_t pinned;                        /* of the host's memory */
    int64_t others;                        /* other programs'; with the context where that is not known */
    const char *others_unknown;            /* NULL, or why what others have is not known */
    struct hearth_program *programs;       /* some of them, those with the most */
    size_t n_programs;
    HEARTH_ROOM(4);
};
/* A path through the kernels, and the rows that it was taken for, summed over the products of a forward pass. */
struct hearth_path_rows {
    const char *path; /* as in hearth_op */
    int64_t rows;
};
struct hearth_engine_status {
    int64_t pid;         /* 0: none */
    const char *state;   /* "absent", "starting", "running", "not answering" */
    const char *backend; /* "cpu", "cuda" */
    const char *device;
    const char *no_gpu; /* NULL, or why the CPU serves although the engine could use a GPU */
    int64_t steps, rows, rows_max, tokens_computed; /* since the engine started; rows / steps is the mean batch */
    int64_t queued, running;                        /* generations */
    int64_t restarts;                               /* of the engine, since the daemon started */
    int64_t mem_total, mem_free; /* bytes of the device's memory, as of when it last had nothing to do, or 10 s ago */
    int64_t mem_cached;          /* of mem_free: bytes of the dequantised weight cache, evicted when memory is wanted */
    struct hearth_memory memory;
    struct hearth_kv_tiers kv;
    struct hearth_loaded_model *models;
    size_t n_models;
    int64_t replays; /* steps that were replays of a captured graph; this and paths as of then, too */
    struct hearth_path_rows *paths;
    size_t n_paths; /* 0 on a CPU */
    HEARTH_ROOM(9);
};
/* KV files on the disk: those of one's own user; root and the daemon's own user see everybody's. */
struct hearth_kv_share {
    int64_t uid, files, bytes;
    HEARTH_ROOM(4);
};
struct hearth_kv_files {
    int64_t limit, limit_per_uid; /* bytes, in force now: a full disk lowers them. 0: no files */
    struct hearth_kv_share *shares;
    size_t n_shares;
    HEARTH_ROOM(4);
};
/* What the generations that ended came to since the daemon started, of all users together. */
struct hearth_bucket {
    double le;     /* seconds */
    int64_t count; /* of those that took no longer */
};
struct hearth_histogram {
    double sum; /* seconds */
    int64_t count;
    struct hearth_bucket *buckets; /* rising; those beyond the last bound are in count alone */
    size_t n_buckets;
    HEARTH_ROOM(4);
};
struct hearth_served {
    int64_t stop, length, context_full, cancelled, error;                     /* generations by their finish_reason */
    int64_t prompt_tokens, reused_tokens, restored_tokens, completion_tokens; /* as in hearth_usage, summed up */
    struct hearth_histogram first_token;                                      /* from the request to the first token */
    struct hearth_histogram per_token; /* between two tokens, on average over a generation */
    struct hearth_histogram total;     /* from the request to its end */
    struct hearth_histogram queue;     /* from the request to its admission */
    HEARTH_ROOM(4);
};
/* The most that the daemon's loop has done in one turn, while everybody else waited. */
struct hearth_loop {
    int64_t bytes; /* of messages and of the database's pages */
    int64_t rows;  /* of the database */
    double cpu;    /* seconds of the processor */
    HEARTH_ROOM(4);
};
struct hearth_status_result {
    int64_t pid;
    const char *version, *socket;
    double uptime; /* seconds */
    int64_t connections, streams, sessions;
    int64_t rss_bytes; /* of the daemon */
    struct hearth_kv_files kv_files;
    const char *config;      /* the configuration file that was read; NULL: none */
    const char *no_sessions; /* NULL, or why named sessions are not available */
    struct hearth_served served;
    struct hearth_loop longest;
    struct hearth_engine_status engine;   /* of the first device, with the models and sums of all */
    struct hearth_engine_status *engines; /* one for each device, where there are several */
    size_t n_engines;
    int64_t games;        /* registered with GameMode, to which memory is yielded */
    const char *no_games; /* NULL, or why it is not known of any */
    double yielded;       /* seconds for which memory is yielded yet (hearth_yield); 0: it is not */
    int64_t waiting;      /* generations in the queue: their user, or all, have as many streams as they may */
    HEARTH_ROOM(6);
};
HEARTH_API int hearth_status(struct hearth *h, struct hearth_status_result **out, const struct timespec *timeout,
                             struct hearth_err *err);

/*
 * Gives memory of the device to other programs: until `bytes` of it are free, or with `all` all that may go; for so
 * many seconds, in which hearth takes none back, or 0: it takes it again at once. Streams that stand in the way are
 * parked and go on later where they stopped. HEARTH_ELIMIT where less than that is free when all was done. For root and
 * the daemon's own user.
 */
struct hearth_yield_result {
    int64_t freed; /* bytes that hearth gave back */
    int64_t free;  /* bytes that are free now; 0 where there is no engine, which holds nothing */
};
HEARTH_API int hearth_yield(struct hearth *h, int64_t bytes, bool all, double seconds, const struct timespec *timeout,
                            struct hearth_yield_result **out, struct hearth_err *err);

/* Ends the daemon, for its own user and root. `now` cuts running streams off; without it they get some seconds to end.
 * Sessions keep their tokens either way. The answer comes first, the end of the connection after it. */
HEARTH_API int hearth_shutdown(struct hearth *h, bool now, const struct timespec *timeout, struct hearth_err *err);

/* Copies the session database, whole and consistent whatever is running, into one file of mode 0600. `path` is absolute
 * and on the daemon's machine. For the daemon's own user and root. With `replace` an existing file is replaced in one
 * step, without it that is an error. */
struct hearth_backup_result {
    int64_t bytes;
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_backup(struct hearth *h, const char *path, bool replace, struct hearth_backup_result **out,
                             const struct timespec *timeout, struct hearth_err *err);

/* Tokenises a text, and back. The engine reads no more of the model than its vocabulary for it. */
enum { HEARTH_BOS_AUTO = -1, HEARTH_BOS_NO = 0, HEARTH_BOS_YES = 1 };
struct hearth_tokenize_result {
    struct hearth_ids ids;
    HEARTH_ROOM(4);
};
struct hearth_detokenize_result {
    struct hearth_bytes bytes; /* the tokens' bytes, exactly */
    struct hearth_bytes text;  /* the same as UTF-8, each bad byte as U+FFFD */
    HEARTH_ROOM(4);
};
/* special: parse control tokens in the text. bos: one of HEARTH_BOS_*. */
HEARTH_API int hearth_tokenize(struct hearth *h, const char *model, struct hearth_bytes text, bool special, int bos,
                               struct hearth_tokenize_result **out, const struct timespec *timeout,
                               struct hearth_err *err);
HEARTH_API int hearth_detokenize(struct hearth *h, const char *model, struct hearth_ids tokens,
                                 struct hearth_detokenize_result **out, const struct timespec *timeout,
                                 struct hearth_err *err);

/*
 * Renders a conversation with a model's chat template, as a generation would, and tokenises the text. The members of
 * any shape are JSON text. hearth_render_init() sets every default; `size` is sizeof *r.
 */
struct hearth_render {
    size_t size;
    const char *model;                 /* a name or a path */
    const char *messages;              /* JSON array of objects; NULL: not defined */
    const char *tools, *documents;     /* JSON arrays; NULL: none */
    const char *kwargs;                /* JSON object: further variables of the template; they count last */
    const char *bos_token, *eos_token; /* NULL: the model's own */
    const char *chat_template;         /* the source of another template; NULL: one of the model's, ... */
    const char *template_name;         /* ... which this names; NULL: as transformers chooses */
    const char *now;                   /* "2026-11-22T10:00": the local time for the template; NULL: it is asked for */
    bool add_generation_prompt;        /* false: the text ends with the last message */
};
struct hearth_render_result {
    struct hearth_bytes text; /* UTF-8 */
    struct hearth_ids ids;    /* control tokens only where the template wrote them; BOS once */
    HEARTH_ROOM(4);
};
HEARTH_API void hearth_render_init(struct hearth_render *r, size_t size);
/* HEARTH_ETEMPLATE with the template's own words where it refuses the conversation; HEARTH_ENOTEMPLATE. */
HEARTH_API int hearth_render(struct hearth *h, const struct hearth_render *r, struct hearth_render_result **out,
                             const struct timespec *timeout, struct hearth_err *err);

/* Runs token ids through a model and reports the best logits at each position; then goes on greedily. */
struct hearth_logit {
    int64_t id;
    double logit;
};
struct hearth_top { /* one position, best first */
    struct hearth_logit *v;
    size_t n;
};
struct hearth_eval_result {
    struct hearth_top *top; /* one per position */
    size_t n_top;
    struct hearth_ids greedy; /* what follows the last position; includes an end token and stops there */
    HEARTH_ROOM(4);
};
/* top: 0..1000 per position; greedy: how many tokens to go on. */
HEARTH_API int hearth_eval(struct hearth *h, const char *model, struct hearth_ids tokens, int64_t top, int64_t greedy,
                           struct hearth_eval_result **out, const struct timespec *timeout, struct hearth_err *err);

#ifdef __cplusplus
}
#endif
#endif
