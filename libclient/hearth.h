/*
 * hearth.h - libhearth, the client library of hearthd.
 *
 * hearthd keeps language models and their KV caches warm and shares them among all programs of the machine. A client is
 * one connected Unix socket; requests and answers are MessagePack-RPC frames (libclient/PROTOCOL.md). This header is
 * the whole interface of the library.
 *
 * Mechanism
 *
 *   A `struct hearth` is one connection: a socket and two buffers. The library does nothing in the background: it has
 *   no thread, no signal handler, no timer and no global state. Bytes move only inside hearth_io() and the blocking
 *   calls. One connection carries any number of generations at once; their tokens arrive interleaved, and each event
 *   carries the number that hearth_submit() returned.
 *
 * Which layer to use
 *
 *   run     hearth_run(), hearth_status(), hearth_sessions_list() ... send a request and wait for its answer. For
 *           programs that do one thing at a time. Most programs need nothing else:
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
 *   stream  hearth_submit(), hearth_next(), hearth_cancel(): for several generations at once, or for tokens mixed with
 *           other work. Programs without an event loop call hearth_wait() to block between events.
 *
 *   io      hearth_fd(), hearth_events(), hearth_io(): for an event loop. Watch the descriptor for the events that
 *           hearth_events() returns, pass those that occurred to hearth_io(), then call hearth_next() until it returns
 *           0. hearth-libevent.h does exactly this for libevent, in a page of code.
 *
 *   The layers mix freely on one connection: a blocking call that is made while streams run queues their events for
 *   hearth_next(). Only hearth_wait(), hearth_open_or_start() and the run layer wait for the daemon; hearth_open() may
 *   sleep for a moment, see there.
 *
 * Back-pressure
 *
 *   While a complete frame has arrived that hearth_next() has not taken, the library reads no further, and the daemon
 *   throttles the streams of this connection: it keeps their tokens and sends them later. A slow reader does not slow
 *   down other clients.
 *
 * Threads
 *
 *   A connection may be used by one thread at a time: give each thread its own, or protect it with a lock. Different
 *   connections are independent. hearth_socket_path() and hearth_open() read the environment.
 *
 * Ownership
 *
 *   Strings and arrays in a parameter struct are borrowed for the duration of the call. A result (`T **out`) belongs to
 *   the caller: it is one block that contains everything it points to, freed by one hearth_free(). An event's body
 *   belongs to the connection until the next hearth_next(), unless hearth_take() transfers it to the caller. Outputs
 *   are written on success only.
 *
 * Errors
 *
 *   Fallible functions return 0 (or a count) or a negative HEARTH_E*, and fill `err` with the code and a sentence that
 *   says what is wrong; `err` may be NULL. An error of a request leaves the connection usable. A broken connection
 *   (HEARTH_ECONNECT, HEARTH_EPROTOCOL, the error that the daemon sent before it hung up, or HEARTH_ENOMEM where this
 *   process has no memory for what the daemon sent) stays broken: every later call fails with the same error, as does
 *   hearth_next() once it has returned the events that blocking calls queued; only hearth_close() is left to call. The
 *   library never prints, never exits and raises no SIGPIPE.
 *
 * Text
 *
 *   Prompts may hold any bytes, including NULs, so they are a pointer and a length. Returned texts end in a NUL that
 *   their length does not count, and are valid UTF-8, except for what a client has put into a session (hearth_turn).
 *   Names are C strings in UTF-8.
 *
 * Compatibility
 *
 *   A program that was built against an older header keeps working with a newer library. Parameter structs are set up
 *   by their init function, which is given the caller's sizeof; zero-initialise ("= {0}") the structs inside them and
 *   all others that you fill in yourself. Results keep their size, and their members keep their offsets: new members
 *   take the reserved space at the end of a struct (HEARTH_ROOM). Only the small structs that will never grow have no
 *   reserved space: hearth_err, _bytes, _ids, _strs, _bias, _logprob, _token_logprobs, _trace_field, _bucket, _logit,
 *   _top, _path_rows, _yield_result.
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

/* The version of this header. hearth_version() returns the version of the library that runs, a constant string. */
#define HEARTH_VERSION_MAJOR 0
#define HEARTH_VERSION_MINOR 1
#define HEARTH_VERSION_PATCH 0
#define HEARTH_VERSION       "0.1.0"
HEARTH_API const char *hearth_version(void);

struct timespec; /* for a strictly conforming C99 <time.h>, which does not declare it */

/* --- errors -------------------------------------------------------------------------------------------- */

#define HEARTH_ERR_MSG 200
struct hearth_err {
    int code; /* 0 or a negative HEARTH_E* */
    char msg[HEARTH_ERR_MSG];
};

/*
 * All errors: constant, number, the symbol on the wire, and who is at fault (1: the request, 0: the server). The
 * meaning of a number or a symbol never changes.
 */
#define HEARTH_ERRORS(X)                                                                                 \
    X(EINVALID, -1, "INVALID_REQUEST", 1) /* not a well-formed RPC message */                            \
    X(EPARAMS, -2, "INVALID_PARAMS", 1)   /* a field has the wrong type or a value out of range */       \
    X(EMETHOD, -3, "UNKNOWN_METHOD", 1)                                                                  \
    X(EUNSUPPORTED, -4, "UNSUPPORTED", 1) /* known, but not in this version, build or model */           \
    X(EVERSION, -5, "VERSION", 1)         /* no protocol version in common */                            \
    X(ETOOBIG, -6, "TOO_LARGE", 1)        /* over a limit that hello states */                           \
    X(ELIMIT, -7, "LIMIT", 1)             /* too many at once: connections, streams, sessions */         \
    X(EDENIED, -8, "PERMISSION", 1)                                                                      \
    X(ENOMODEL, -10, "MODEL_NOT_FOUND", 1)                                                               \
    X(EBADMODEL, -11, "MODEL_INVALID", 1)       /* the file is damaged or not a model */                 \
    X(EMODELMISMATCH, -12, "MODEL_MISMATCH", 1) /* the session is bound to another model */              \
    X(ENOSESSION, -13, "SESSION_NOT_FOUND", 1)                                                           \
    X(ESESSIONEXISTS, -14, "SESSION_EXISTS", 1)                                                          \
    X(ESESSIONBUSY, -15, "SESSION_BUSY", 1) /* a generation is running in it, or creates it */           \
    X(ENOSTREAM, -16, "STREAM_NOT_FOUND", 1)                                                             \
    X(ENOTEMPLATE, -17, "NO_TEMPLATE", 1) /* the model has no chat template, or none of that name */     \
    X(ECONTEXT, -18, "CONTEXT_FULL", 1)   /* the prompt alone does not fit */                            \
    X(ECONFLICT, -19, "CONFLICT", 1)      /* the request id is taken, or what is named has changed */    \
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
    X(ETIMEOUT, -42, "TIMEOUT", 0)   /* client side: the timeout of a blocking call has expired */

enum hearth_errno {
    HEARTH_OK = 0,
#define HEARTH_ERRNO_(name, number, symbol, request) HEARTH_##name = number,
    HEARTH_ERRORS(HEARTH_ERRNO_)
#undef HEARTH_ERRNO_
};

/* Returns the symbol of a code ("MODEL_NOT_FOUND"), with which an error starts on the wire; "INTERNAL" for an unknown
 * code. The string is a constant. */
HEARTH_API const char *hearth_error_name(int code);

/* Returns true where the request is at fault, false where the server failed or could not be reached. */
HEARTH_API bool hearth_error_is_request(int code);

/* --- pieces of messages -------------------------------------------------------------------------------- */

/* Reserved space for the members of later versions; zeros until then. */
#define HEARTH_ROOM(n) long long reserved_[n]

/* Any bytes, including NULs. In results data[len] is a NUL that len does not count. */
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

/* Returns the bytes of a C string, without its NUL, borrowed; absent where s is NULL. */
static inline struct hearth_bytes hearth_text(const char *s)
{
    struct hearth_bytes b;
    b.data = s;
    b.len = s ? strlen(s) : 0;
    return b;
}

/* A chat message. Its content is a string or an array of typed parts; "text" is the only type that is supported. A
 * message with further keys (tool_calls, tool_call_id, name, reasoning_content ...) or a content of null is given as
 * JSON as a whole, and the other members are ignored. */
struct hearth_part {
    const char *type;
    struct hearth_bytes text;
    HEARTH_ROOM(4);
};
struct hearth_message {
    const char *role;            /* "system", "user", "assistant", "tool", or another role that the template knows */
    struct hearth_bytes content; /* a string ... */
    struct hearth_part *parts;   /* ... or parts; not both */
    size_t n_parts;
    const char *json; /* NULL, or the whole message as a JSON object, including role and content */
    HEARTH_ROOM(4);
};

struct hearth_bias {
    int64_t id;
    double bias; /* added to the token's logit, -100..100 */
};

/* How tokens are sampled. hearth_generate_init() sets HEARTH_UNSET, and 0 for the presence and frequency penalties. A
 * parameter that is HEARTH_UNSET has the value that the model's file recommends, else the default given here. */
enum { HEARTH_UNSET = -1 };
struct hearth_sampling {
    double temperature;        /* default 0.8; 0 = greedy: always the most likely token */
    int64_t top_k;             /* default 40; 0 = off */
    double top_p;              /* default 0.95; 1 = off */
    double min_p;              /* default 0.05; 0 = off */
    double repetition_penalty; /* default 1 = off */
    double presence_penalty;   /* 0 = off */
    double frequency_penalty;  /* 0 = off */
    int64_t penalty_last;      /* how many tokens of history count for penalties; default 64; 0 = all */
    bool has_seed;             /* false: the daemon draws a seed and reports it */
    uint64_t seed;             /* the same seed gives the same text, on a GPU as far as `invariant` covers it */
    struct hearth_bias *logit_bias;
    size_t n_logit_bias;
    HEARTH_ROOM(8);
};

/* Where a prompt's KV came from: prompt_tokens = reused_tokens + computed_tokens, including the session's history. */
struct hearth_usage {
    int64_t prompt_tokens;
    int64_t reused_tokens;     /* KV that this request did not have to compute ... */
    int64_t restored_tokens;   /* ... and, of these, tokens whose KV was restored from host memory or disk for it */
    int64_t computed_tokens;   /* at least one */
    int64_t completion_tokens; /* without the end token */
    int64_t reasoning_tokens;  /* of completion_tokens, the reasoning and its markers */
    HEARTH_ROOM(3);
};
struct hearth_timings {       /* milliseconds */
    double queue_ms;          /* from the request to its admission, without load_ms and restore_ms; any wait for other
                                 streams to end, or for an engine to start, is part of it */
    double load_ms;           /* waiting for the model to load */
    double restore_ms;        /* waiting for KV to be restored from host memory or disk; not in queue_ms either */
    double prefill_ms;        /* from admission to the first token */
    double decode_ms;         /* from the first token to the last */
    double total_ms;          /* from the request to its end */
    double tokens_per_second; /* of decode; 0 for fewer than two tokens */
    HEARTH_ROOM(4);
};

/* hearth_logprob is one of the most likely tokens; hearth_token_logprobs is a token with those at its place, best
 * first. logprob is the natural logarithm of the probability before any sampling parameter. */
struct hearth_logprob {
    int64_t id;
    double logprob;
    struct hearth_bytes text; /* the token's bytes, which may be an incomplete UTF-8 sequence */
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
 * Writes the path at which the daemon listens: $HEARTH_SOCKET, else $XDG_RUNTIME_DIR/hearth/hearth.sock, else (where
 * that variable is not set) /run/hearth/hearth.sock for root and /tmp/hearth-UID/hearth.sock for other users. Where
 * that directory in /tmp exists, it must be a real directory, owned by the user and of mode 0700, because any user
 * could have created it; otherwise the error is HEARTH_EDENIED. The path is NUL-terminated; a `size` of 108 bytes is
 * always enough, because sun_path has no more. HEARTH_EINVALID where it does not fit.
 */
HEARTH_API int hearth_socket_path(char *buf, size_t size, struct hearth_err *err);

/* Connects to the daemon at `path`; where `path` is NULL, at hearth_socket_path(), and where no daemon answers there
 * and $HEARTH_SOCKET is not set, to the machine's daemon at /run/hearth/hearth.sock. Does not wait for the daemon,
 * except that it retries for up to a second per socket while the daemon's queue of new connections is full. Returns
 * HEARTH_ECONNECT where no daemon answers: start one and try again, as the `hearth` command does. Returns
 * HEARTH_EDENIED where the listening process belongs neither to this user nor to root, unless the socket file belongs
 * to that process's user and was named by `path` or $HEARTH_SOCKET or lies in /run/hearth. Sends nothing yet: the
 * greeting (`hello`) travels with the first request. The connection is the caller's, until hearth_close(). */
HEARTH_API int hearth_open(struct hearth **out, const char *path, struct hearth_err *err);

/*
 * Does the same as hearth_open() with a NULL path; where no daemon answers, starts `hearthd` (where that is NULL, the
 * installed hearthd, else the one in PATH) and connects to it. Blocks until the daemon listens, typically for some 50
 * ms. The daemon belongs to the user, not to this process, and outlives it. A daemon that cannot start prints the
 * reason on stderr itself. Several programs may do this at the same time. Returns hearth_open()'s errors.
 */
HEARTH_API int hearth_open_or_start(struct hearth **out, const char *hearthd, struct hearth_err *err);

/* Makes a connection of a connected stream socket. On success the connection owns the descriptor, sets it non-blocking
 * and close-on-exec, and closes it in hearth_close(); on failure it stays the caller's. */
HEARTH_API int hearth_adopt(struct hearth **out, int fd, struct hearth_err *err);

/* Closes the socket and frees the connection with all events that were not taken. Its generations go on for some
 * seconds, so that hearth_attach() can take them up, and are then cancelled; to end one at once, call hearth_cancel()
 * and wait for its DONE. Sessions keep every token that was generated. h may be NULL. */
HEARTH_API void hearth_close(struct hearth *h);

/* Sets the client's name for the daemon's log, such as "my-editor 1.2"; takes effect if called before the first
 * request. The name is copied and truncated to at most 63 bytes, between two characters, and before bytes that are not
 * UTF-8. */
HEARTH_API void hearth_set_client(struct hearth *h, const char *name);

enum { HEARTH_READ = 1, HEARTH_WRITE = 2 };

/* hearth_fd() returns the descriptor to watch; hearth_events() returns what to watch it for, a set of HEARTH_READ and
 * HEARTH_WRITE, which may change with every call on this connection. */
HEARTH_API int hearth_fd(const struct hearth *h);
HEARTH_API int hearth_events(const struct hearth *h);

/* Moves bytes without blocking. Where `ready` has HEARTH_READ it reads once, and not at all while a complete frame
 * waits for hearth_next(), so a busy daemon cannot keep the caller here; where it has HEARTH_WRITE it sends pending
 * output until the socket accepts no more. Then call hearth_next() until it returns 0. Returns 0 or the connection's
 * error. */
HEARTH_API int hearth_io(struct hearth *h, int ready, struct hearth_err *err);

/*
 * Blocks until something has happened; for programs without an event loop. Returns HEARTH_WAIT_IO after I/O on the
 * connection or where hearth_next() may have an event at once; HEARTH_WAIT_FD where `fd` has become readable (a
 * descriptor of the caller: stdin, or a self-pipe that a signal handler writes to; -1 for none); HEARTH_WAIT_TIMEOUT;
 * or a negative code. Signals do not interrupt it: use a self-pipe, which is free of races. With a NULL timeout it
 * waits without limit.
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
 * A generation. It continues a session (a timeline of tokens that the daemon keeps) or stands alone. Exactly one kind
 * of prompt is given: messages (rendered with the model's chat template), text (appended raw), token ids, or prefix and
 * suffix.
 */
struct hearth_generate {
    size_t size;         /* sizeof this struct as the caller was compiled; hearth_generate_init() sets it */
    const char *model;   /* a name or an absolute path; may be NULL where `session` names an existing session */
    const char *session; /* a name or an id; a session that does not exist is created; NULL = no session is kept */
    /* The caller's id for this request, unique among those of its uid. Repeating a request with the same id within 24
     * hours is idempotent: it gets the output of the first one and follows that one while it runs; nothing is generated
     * twice. The same id with other content is HEARTH_ECONFLICT. NULL = the library makes one up. */
    const char *request;
    /* exactly one of messages, text, tokens, and prefix with suffix: */
    struct hearth_message *messages; /* with a session, the new messages only; else the whole conversation */
    size_t n_messages;
    struct hearth_bytes text;
    struct hearth_ids tokens;
    int64_t max_tokens;      /* of the completion; -1 = until the context is full; 0 = compute the prompt only, to warm
                                its KV */
    struct hearth_strs stop; /* at most 16 strings of 1 to 1024 bytes that end the text and are not part of it */
    struct hearth_sampling sampling;
    int64_t logprobs; /* most likely tokens reported for each, 0..20; 0 = its own logprob only; -1 = no logprobs */
    bool stream;      /* true: BEGIN and TOKENS events before DONE; false: DONE alone */
    bool special;     /* for `text`: whether "<|im_start|>" and the like are control tokens (true) or plain text
                         (false) */
    /* Fill in the middle, instead of messages, text and tokens, and without a session: the completion is what belongs
     * between prefix and suffix, either of which may be absent. Keep the files of `extra` in a stable order, the most
     * often changed ones last: KV is reused up to the first token that differs. */
    struct hearth_bytes prefix, suffix;
    struct hearth_file *extra; /* other files of the same project, or parts of them */
    size_t n_extra;
    const char *file, *repo; /* names of the file and of its project, for models whose prompt format has them; NULL:
                                "untitled" and "project" */
    /* With messages: further inputs of the chat template, as JSON text. NULL: none. */
    const char *tools, *documents; /* arrays */
    const char *kwargs;            /* an object; its members are variables of the template and override all others */
    /* With messages: a template instead of the model's default one, by its source or by the name of one of the model's
     * own; at most one of the two. */
    const char *chat_template, *template_name;
    /* The scheduling class: "interactive" where a person waits for each word, "background" where nobody waits; NULL or
     * "normal": in between. The daemon's configuration may lower it. */
    const char *service_class;
    int64_t deadline_ms; /* milliseconds to the first token; without one by then the generation ends with
                            HEARTH_ECANCELLED; 0 = none */
    bool dry;            /* set by hearth_measure() only; hearth_submit() refuses it */
    bool ignore_eos;     /* end tokens are ordinary tokens that do not end the completion; for benchmarks */
    /* With messages: "on" or "off" asks the chat template to have the model think before it answers, or not to. A
     * notice THINK_UNKNOWN reports a template that does not support it. NULL: the template's default. */
    const char *think;
    /* The number of completions of the prompt, 1..16; the prompt is computed once. Not with a session. The result then
     * has `choices`, and events say which choice they belong to. 0 = one completion, without `choices`. */
    int64_t n;
};

/* Sets every member to its default; `size` is sizeof *g. */
HEARTH_API void hearth_generate_init(struct hearth_generate *g, size_t size);

/* Bodies of events, see enum hearth_event_type. */
struct hearth_stream_begin {
    int64_t stream;      /* the daemon's number of the stream, also used in its log */
    const char *session; /* id; NULL where no session is kept */
    const char *request;
    const char *model; /* the name of the model that answers */
    int64_t choice;    /* index of this completion among the `n` requested; -1: the request did not set `n` */
    HEARTH_ROOM(3);
};
struct hearth_stream_tokens {
    int64_t stream;
    int64_t index;            /* number of completion tokens before these */
    int64_t count;            /* number of tokens in this event, which may be several */
    struct hearth_bytes text; /* may be empty: a token's text is held back until it is complete UTF-8, and while it may
                                 begin a stop string or a marker */
    struct hearth_ids tokens;
    struct hearth_token_logprobs *logprobs; /* one per token where logprobs were requested */
    size_t n_logprobs;
    struct hearth_bytes reasoning; /* the model's reasoning, which precedes the text of this event; absent where there
                                      is none */
    int64_t choice;                /* as in BEGIN */
    HEARTH_ROOM(1);
};
struct hearth_stream_progress {
    int64_t stream;
    int64_t done, total; /* tokens of the prompt; reused tokens count as done from the start */
    HEARTH_ROOM(4);
};
struct hearth_stream_queued { /* sent before BEGIN while the request waits for other streams to end */
    const char *request;      /* the request's id */
    int64_t position;         /* position in its user's queue; 1: the next */
    double seconds;           /* estimated seconds until it begins: the position times the mean interval at which its
                                 user's requests leave the queue; 0: unknown */
    HEARTH_ROOM(4);
};
struct hearth_model_progress {
    const char *model;
    int64_t done, total; /* bytes */
    int64_t host_bytes;  /* bytes of its weights that stay in host memory because the GPU's memory has no room for them;
                            0: none */
    double speed;        /* upper estimate of the tokens per second in that case; 0: unknown, or no weights are in host
                            memory */
    HEARTH_ROOM(2);
};
struct hearth_notice {
    const char *name;    /* a symbol. RECOVERING: an engine died, and the stream continues in the next one.
                            NOT_JOURNALED: the stream would not survive a crash of the daemon. HISTORY_KEPT: the chat
                            template would now render earlier messages differently than the session has them; the
                            session keeps them as they are. THINK_UNKNOWN: the template does not support what `think`
                            asks for. PARKED, WAITING: the stream waits for memory that was yielded to other programs,
                            or that the models of other requests hold. RESUMED: it continues after either */
    const char *message; /* text for people */
    int64_t stream;      /* the stream that the notice is about; -1: none */
    HEARTH_ROOM(4);
};
/* One completion of a request with `n`. */
struct hearth_choice {
    int64_t index;  /* 0 .. n - 1 */
    int64_t stream; /* every choice is a stream with its own number */
    struct hearth_bytes text, reasoning;
    struct hearth_ids tokens;
    const char *finish_reason;
    uint64_t seed; /* the first choice's seed plus the index (modulo 2^64): a single request with this seed gives the
                      same text */
    struct hearth_token_logprobs *logprobs;
    size_t n_logprobs;
    const char *error;
    HEARTH_ROOM(8);
};
/* Where `n` was given, the members are those of the first choice, except usage.completion_tokens and
 * usage.reasoning_tokens, which are sums over all choices. */
struct hearth_generate_result {
    const char *session; /* id; NULL where no session is kept */
    const char *request;
    int64_t stream;
    struct hearth_bytes text; /* the whole completion: the concatenated texts of its TOKENS events */
    struct hearth_ids tokens;
    const char *finish_reason; /* stop, length, context_full, cancelled, error */
    struct hearth_usage usage;
    struct hearth_timings timings;
    uint64_t seed; /* as given by the request, or as the daemon drew it */
    struct hearth_token_logprobs *logprobs;
    size_t n_logprobs;
    const char *error;             /* "NAME: message" where finish_reason is error; the text so far is valid */
    struct hearth_bytes reasoning; /* of the whole completion, separate from its text; absent where there is none */
    struct hearth_choice *choices; /* present where `n` was given */
    size_t n_choices;
    HEARTH_ROOM(4);
};

/* Later versions may add types: a program must ignore those that it does not know. */
enum hearth_event_type {
    HEARTH_EVENT_BEGIN = 1, /* body.begin: the generation was admitted */
    HEARTH_EVENT_TOKENS,    /* body.tokens */
    HEARTH_EVENT_PROGRESS,  /* body.progress: a model is loading that a request of this connection waits for; request is
                               0 */
    HEARTH_EVENT_NOTICE,    /* body.notice; request is 0 where it is not about a stream of this connection */
    HEARTH_EVENT_DONE,      /* body.result (body.any for other calls): the last event of a generation ... */
    HEARTH_EVENT_ERROR,     /* ... or this one: refused or failed, the reason is in `err`; no body */
    HEARTH_EVENT_PROMPT,    /* body.prompt: a long prompt is being prefilled, between BEGIN and the first TOKENS */
    HEARTH_EVENT_QUEUED,    /* body.queued: the request waits for other streams to end, before BEGIN */
};
struct hearth_event {
    enum hearth_event_type type;
    uint32_t request; /* the number from hearth_submit(), hearth_attach() or hearth_defer() */
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

/* Queues a generation and stores its number (never 0) in *request. It only packs the request: hearth_io(),
 * hearth_wait() or a blocking call sends it. */
HEARTH_API int hearth_submit(struct hearth *h, const struct hearth_generate *g, uint32_t *request,
                             struct hearth_err *err);

/*
 * Subscribes to a generation that was started elsewhere: by another connection, by a process that has died, or before a
 * crash of the daemon. `stream` is the number that its BEGIN carried; where `request` is not NULL, that request id
 * identifies it instead. `from` is the number of completion tokens that the caller already has. BEGIN is delivered
 * again, then every token from `from` on, then DONE; a finished generation can be attached to for 24 hours. Text that
 * was held back until the end of the stream belongs to no token and is delivered again. A uid can attach to its own
 * generations only. *number receives the number that the events carry. Where there is no such generation,
 * HEARTH_ENOSTREAM arrives as the HEARTH_EVENT_ERROR of that number.
 */
HEARTH_API int hearth_attach(struct hearth *h, int64_t stream, const char *request, int64_t from, uint32_t *number,
                             struct hearth_err *err);

/* Takes the next event: returns 1 with *ev set, 0 when there is none yet, or the connection's error. Never blocks and
 * does no I/O. Each generation ends with exactly one DONE or ERROR, unless the connection breaks. */
HEARTH_API int hearth_next(struct hearth *h, struct hearth_event *ev, struct hearth_err *err);

/* Transfers the body of the last event to the caller, who frees it with hearth_free(); NULL where the event has no body
 * or it was taken already. */
HEARTH_API void *hearth_take(struct hearth *h);

/* Asks the daemon to stop a generation (one that was submitted or attached to). Its DONE still arrives, with
 * finish_reason "cancelled", or another one where the generation ended first; or, where it was still QUEUED, an ERROR
 * with HEARTH_ECANCELLED. May be called at any time after hearth_submit(). Returns HEARTH_ENOSTREAM where no generation
 * of that number is pending. */
HEARTH_API int hearth_cancel(struct hearth *h, uint32_t request, struct hearth_err *err);

/* --- run: blocking calls --------------------------------------------------------------------------------- */

/*
 * Each of these calls sends one request and waits for its answer. `timeout` limits the whole call; NULL waits without
 * limit. After HEARTH_ETIMEOUT the connection remains usable, and the late answer is discarded.
 */

/*
 * Makes the next blocking call asynchronous: after hearth_defer() the next call of this layer on this connection queues
 * its request, stores its number in *request and returns at once. It ignores its timeout and its on_event, and does not
 * write its `out`. The request ends with an event of that number: HEARTH_EVENT_DONE, whose body.any is what `out` would
 * have been, or HEARTH_EVENT_ERROR. A call that fails has queued nothing, and the call after it waits again. `request`
 * must stay valid until that call returns. hearth_run() (use hearth_submit() instead), hearth_measure(),
 * hearth_models_pass() and hearth_hello() always wait; hearth_defer() then still applies to the call after them.
 *
 *     hearth_defer(h, &loading);
 *     if (hearth_models_load(h, "tale", NULL, NULL, NULL, NULL, &err))
 *         return fail(err.msg);
 *     ... // the event loop: PROGRESS, then DONE with a struct hearth_model_load_result
 */
HEARTH_API void hearth_defer(struct hearth *h, uint32_t *request);

/* Frees a result, or a body from hearth_take(), of any type. May be given NULL. */
HEARTH_API void hearth_free(void *result);

/* A callback that receives the events of the running call, and the notices and load progress that belong to no request.
 * Bodies are borrowed until it returns. A non-zero return value cancels the generation that runs; the call then returns
 * its result, with finish_reason "cancelled", or HEARTH_ECANCELLED where it was still QUEUED. It may make blocking
 * calls on the same connection, and receives the events that arrive during them afterwards; it may not call
 * hearth_next(), which would take them. A call without a callback queues those notices and that progress for
 * hearth_next() while another request waits for its answer, and discards them otherwise. */
typedef int hearth_on_event(void *arg, const struct hearth_event *ev);

/* Runs a generation to its end; on_event may be NULL. An expired timeout cancels the generation. */
HEARTH_API int hearth_run(struct hearth *h, const struct hearth_generate *g, hearth_on_event *on_event, void *arg,
                          const struct timespec *timeout, struct hearth_generate_result **out, struct hearth_err *err);

/* hearth_measure() returns what a generation would cost without running it: nothing is computed, and no session is
 * created. */
struct hearth_measured {
    int64_t prompt_tokens; /* including the session's history */
    int64_t reused_tokens; /* of these, tokens in full pages of KV that are on the model's device */
    bool fits;             /* whether the prompt, plus max_tokens where it is given, fits into the model's context */
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_measure(struct hearth *h, const struct hearth_generate *g, struct hearth_measured **out,
                              const struct timespec *timeout, struct hearth_err *err);

/* What hearth_hello() reports: the daemon's version, its features and its limits. */
struct hearth_limits {
    int64_t frame_bytes;  /* largest request frame */
    int64_t depth;        /* nesting of arrays and maps */
    int64_t tokens;       /* token ids in one message */
    int64_t streams;      /* running at once, per uid */
    int64_t connections;  /* per uid */
    int64_t stop_strings; /* per request, like the next two */
    int64_t logit_bias;
    int64_t logprobs;
    HEARTH_ROOM(4);
};
struct hearth_hello_result {
    int64_t version;    /* the protocol version in use */
    const char *server; /* "hearth 0.1.0" */
    struct hearth_strs features;
    struct hearth_limits limits;
    HEARTH_ROOM(4);
};
/* Returns the daemon's answer to the greeting, and sends the greeting where no request was sent before. */
HEARTH_API int hearth_hello(struct hearth *h, struct hearth_hello_result **out, const struct timespec *timeout,
                            struct hearth_err *err);

/* Sessions. A uid sees its own sessions only. `session` parameters are a name or an id. */
struct hearth_session {
    const char *id;    /* 16 hex digits */
    const char *name;  /* NULL: unnamed */
    const char *model; /* the name under which the model was requested when the session was created */
    const char *path;  /* of the model file */
    int64_t tokens;    /* length of the timeline */
    int64_t turns;
    double created, used; /* seconds since the epoch */
    bool busy;            /* a generation is running in it */
    int64_t bytes;        /* of stored texts and tokens, without those shared with the parent */
    int64_t kv_bytes;     /* size of the KV files that were written during its turns */
    bool pinned;          /* never removed because of its age or to make room */
    double expires;       /* when it is removed unless it is used before, in seconds since the epoch; 0: never */
    bool damaged;         /* its database row is damaged: it can only be removed, and only `id` is reliable */
    const char *parent;   /* id of the session that it was forked from; NULL: not a fork, or the parent was removed */
    int64_t shared;       /* number of leading tokens that it shares with the parent by reference; `bytes` does not
                             count them */
    bool ephemeral;       /* removed after a day without use */
    HEARTH_ROOM(8);
};
struct hearth_sessions_list_result {
    struct hearth_session *sessions; /* most recently used first */
    size_t n_sessions;
    const char *next; /* pass as `from` to get the next page; NULL: this was the last page */
    HEARTH_ROOM(4);
};
/* Generation metadata: how a turn was generated. */
struct hearth_generation_info {
    const char *finish_reason;
    struct hearth_usage usage;
    struct hearth_timings timings;
    struct hearth_sampling sampling; /* including the seed that was used */
    HEARTH_ROOM(4);
};
/* A turn of a session, as people read it. The authoritative content of a session is the tokens of its timeline. */
struct hearth_turn {
    const char *role; /* system, user, assistant, text (raw), completion (the continuation of raw text) */
    struct hearth_bytes text;
    int64_t n_tokens;
    double created;
    bool has_generation; /* only assistant and completion turns were generated */
    struct hearth_generation_info generation;
    struct hearth_ids tokens; /* export and import only */
    bool continues;           /* export and import only: the rest of the preceding turn, which did not fit in one
                                 page */
    const char *message;      /* the message as it was given, as JSON, where it was more than a role and a text; else
                                 NULL */
    struct hearth_bytes reasoning; /* of an answer, separate from its text; absent where there is none */
    HEARTH_ROOM(2);
};
struct hearth_session_show_result {
    struct hearth_session session;
    struct hearth_turn *turns;
    size_t n_turns;
    struct hearth_ids tokens; /* the timeline, where it was requested */
    HEARTH_ROOM(4);
};
/* hearth_streams_list() returns the caller's own generations, newest first: those that run and, with `ended`, also
 * those that have ended and can still be attached to (the last 256). */
struct hearth_stream_info {
    int64_t stream;      /* the number that hearth_attach() takes */
    const char *state;   /* queued, running, recovering, cancelling, delivering, ended */
    const char *request; /* the request's id; NULL: it was given none */
    const char *session; /* its id; NULL where no session is kept */
    const char *name;    /* of the session */
    const char *model;   /* the name under which the model was requested when the session was created */
    int64_t tokens;      /* completion tokens so far */
    int64_t attached;    /* number of requests that wait for its end; 0: its client has disconnected */
    double began, ended; /* seconds since the epoch; `ended` is 0 while it runs, `began` is 0 afterwards */
    int64_t choice;      /* index among the completions of the request; -1: it is the only one */
    HEARTH_ROOM(3);
};
struct hearth_streams_list_result {
    struct hearth_stream_info *streams;
    size_t n_streams;
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_streams_list(struct hearth *h, bool ended, struct hearth_streams_list_result **out,
                                   const struct timespec *timeout, struct hearth_err *err);

/* hearth_streams_trace() returns the stages that a stream has passed in the daemon and in its engines; the stream is
 * running, or one of those that ended recently. A uid sees its own streams; root and the daemon's own user see all.
 * HEARTH_ENOSTREAM where nothing is known of the stream. */
struct hearth_trace_field {
    const char *name, *value; /* such as "reused", "64": the numbers and at most one word of a stage */
};
struct hearth_trace_event {
    double at;         /* seconds since the epoch */
    const char *where; /* "hearthd", "engine" */
    int64_t engine;    /* the engine's process id; 0 for hearthd */
    const char *stage; /* such as "admitted" */
    struct hearth_trace_field *fields;
    size_t n_fields;
    HEARTH_ROOM(4);
};
struct hearth_trace_result {
    int64_t stream;
    struct hearth_trace_event *events; /* in the order of time */
    size_t n_events;
    int64_t lost; /* number of events in the middle that were not kept */
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_streams_trace(struct hearth *h, int64_t stream, struct hearth_trace_result **out,
                                    const struct timespec *timeout, struct hearth_err *err);

/* The caller's sessions, one page of at most 256 at a time. `from` is NULL for the first page, then the `next` of the
 * preceding page. A session that is used between two pages moves to the front, and later pages do not list it.
 * Ephemeral sessions are left out; hearth_sessions_list_all() includes them. */
HEARTH_API int hearth_sessions_list(struct hearth *h, const char *from, struct hearth_sessions_list_result **out,
                                    const struct timespec *timeout, struct hearth_err *err);
/* Returns a session with its turns and, with `tokens`, the token ids of its timeline. HEARTH_ENOSESSION where there is
 * no such session; this holds for all calls that take a session. */
HEARTH_API int hearth_sessions_show(struct hearth *h, const char *session, bool tokens,
                                    struct hearth_session_show_result **out, const struct timespec *timeout,
                                    struct hearth_err *err);
/* Names or renames a session. HEARTH_ESESSIONEXISTS where another session has that name. A name has 1 to 256 bytes and
 * no control characters, and is not 16 hex digits in lower case, which would be an id. */
HEARTH_API int hearth_sessions_rename(struct hearth *h, const char *session, const char *name,
                                      const struct timespec *timeout, struct hearth_err *err);
/* Removes a session, the KV files that were written during its turns, and what its ended streams left for
 * hearth_attach(). HEARTH_ESESSIONBUSY while a generation runs in it. */
HEARTH_API int hearth_sessions_remove(struct hearth *h, const char *session, const struct timespec *timeout,
                                      struct hearth_err *err);
/* Pins a session, which then is never removed because of its age or to make room; with `pinned` false, unpins it. */
HEARTH_API int hearth_sessions_pin(struct hearth *h, const char *session, bool pinned, const struct timespec *timeout,
                                   struct hearth_err *err);
/* As hearth_sessions_list(), including ephemeral sessions. */
HEARTH_API int hearth_sessions_list_all(struct hearth *h, const char *from, struct hearth_sessions_list_result **out,
                                        const struct timespec *timeout, struct hearth_err *err);

/*
 * Forks a session: each new session starts with its first `at` tokens, sharing them and their KV without a copy, and
 * then continues independently. A session in which a generation is running is forked with what has been generated so
 * far. hearth_session_fork_init() sets `size` and the defaults.
 */
struct hearth_session_fork {
    size_t size;
    const char *session;      /* a name or an id */
    int64_t at;               /* tokens; -1 = all */
    int64_t count;            /* 1..64 */
    struct hearth_strs names; /* absent: the daemon chooses names; else `count` of them */
    bool ephemeral;           /* removed after a day without use, and listed by hearth_sessions_list_all() only */
};
struct hearth_forked {
    struct hearth_session *sessions;
    size_t n_sessions;
    HEARTH_ROOM(4);
};
HEARTH_API void hearth_session_fork_init(struct hearth_session_fork *f, size_t size);
HEARTH_API int hearth_sessions_fork(struct hearth *h, const struct hearth_session_fork *f, struct hearth_forked **out,
                                    const struct timespec *timeout, struct hearth_err *err);

/* Moves what a fork has of its own into its parent, which keeps its name and id, and removes the fork. Where the parent
 * has continued after the point of the fork this is HEARTH_ECONFLICT, unless `replace` is set: then what the parent has
 * after that point is dropped. Returns the parent. */
struct hearth_adopted {
    struct hearth_session session; /* the parent after the call */
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_sessions_adopt(struct hearth *h, const char *session, bool replace, struct hearth_adopted **out,
                                     const struct timespec *timeout, struct hearth_err *err);

/*
 * Exports a session page by page. `from` is 0 for the first page, then the `next` of the preceding page. Turns that are
 * appended meanwhile are included; `session` and `turn_open` of the last page describe all pages together. From the
 * second page on, name the session by the id that the first page returned, so that all pages belong to one session.
 */
struct hearth_session_page {
    int64_t version; /* format version of the page: HEARTH_EXPORT_VERSION */
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
 * Imports a session page by page, over one connection, one import at a time. The session exists once the last page has
 * been answered; nothing is stored before that, or if the last page never arrives. All token ids must be in the model's
 * vocabulary. hearth_session_import_init() sets `size`, and every other member to its default.
 */
struct hearth_session_import {
    size_t size;
    int64_t page;              /* 0, 1, 2 ... */
    bool more;                 /* another page follows */
    struct hearth_turn *turns; /* in the order of the timeline */
    size_t n_turns;            /* keep a page's texts and ids to about 1 MiB, because it must fit into a frame */
    int64_t version;           /* HEARTH_EXPORT_VERSION; this and the following members are read in page 0 only */
    const char *name;          /* name of the new session; required */
    const char *model;         /* a name or a path on the daemon's machine; required */
    /* What hearth_models_show() reports where the session was exported; those that are set must match the model here,
     * else HEARTH_EMODELMISMATCH. */
    const char *tokenizer, *tokenizer_digest;
    int64_t vocab;
    double created; /* seconds since the epoch */
    bool turn_open, pinned;
    bool replace; /* an existing session of that name is removed in the same transaction */
};
HEARTH_API void hearth_session_import_init(struct hearth_session_import *page, size_t size);
struct hearth_imported {
    bool has_session; /* true in the answer to the last page */
    struct hearth_session session;
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_sessions_import(struct hearth *h, const struct hearth_session_import *page,
                                      struct hearth_imported **out, const struct timespec *timeout,
                                      struct hearth_err *err);

/* Models. hearth_models_list() looks at file names only; hearth_models_show() asks the engine, which reads the file.
 * `model` parameters are a name or a path. */
struct hearth_op {    /* an op of a model's program, which is the list of fused ops that make up its forward pass */
    const char *op;   /* "qkv" */
    const char *text; /* for people: "qkv (Q4_K, Q4_K, Q6_K; 4096 to 6144)", the types of its matrices and the columns
                         in and out */
    /* The kernel path that it takes in a step of 1 row, of 16 rows, of 512 rows, and of 1 row in the invariant mode:
     * "cpu"; on a GPU "gemv", "skinny", "wgmma", "cublaslt" or "ref" for products, "few", "grouped" or "wgmma" for
     * mixtures of experts, or "one" for ops with a single path; "gemv+epilogue", "skinny+epilogue" where the epilogue
     * is a kernel of its own, "one+plan" where one row takes the attention kernels for many rows. NULL: the model is
     * not in memory, or the device cannot run it. */
    const char *one, *few, *many, *invariant;
    HEARTH_ROOM(4);
};
struct hearth_special_token {
    const char *role; /* bos eos eot eom fim_pre fim_suf fim_mid fim_pad fim_rep fim_sep */
    int64_t id;
    struct hearth_bytes text;
    HEARTH_ROOM(4);
};
struct hearth_default { /* a default of a sampling parameter, under its name in struct hearth_sampling */
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
    const char *digest;    /* 32 hex digits, of its metadata and of samples of every tensor; identifies the model */
    const char *tokenizer; /* "gpt2/llama-bpe" */
    const char *tokenizer_digest; /* models with the same digest give the same ids for the same text */
    const char *chat;       /* names of its chat templates, "default tool_use"; NULL = none that can be rendered */
    const char *chat_error; /* why its default template cannot be rendered; NULL = it can, or there is none */
    int64_t parameters, context, layers, d_model, heads, kv_heads, d_head, d_ff, vocab;
    struct hearth_op *ops; /* hearth_models_ops() only: in execution order */
    size_t n_ops;
    /* hearth_models_show(); also hearth_models_details(), which sets arch, type and parameters too, for the models
     * whose header has been read: */
    bool read;           /* its header has been read */
    const char *kind;    /* "language", "embedding", "adapter", "projector", "vocabulary", "other" */
    const char *refusal; /* why the model cannot run; NULL: it can */
    /* hearth_models_show() only: */
    struct hearth_strs capabilities; /* what it was made for: "chat", "fim", "tools", "embed"; hearth may refuse some of
                                        these all the same */
    struct hearth_special_token *special;
    size_t n_special;
    struct hearth_default *sampling; /* recommended by the file; a request takes them where it leaves a parameter at
                                        HEARTH_UNSET */
    size_t n_sampling;
    HEARTH_ROOM(12);
};
struct hearth_models_list_result {
    struct hearth_model *models;
    size_t n_models;
    const char *default_model;  /* a name or a path: the model to use where a person names none */
    struct hearth_strs folders; /* the searched directories, in search order */
    HEARTH_ROOM(4);
};
struct hearth_model_load_result {
    const char *model, *path;
    double load_ms;
    bool was_loaded;         /* it was loaded before */
    const char *where;       /* "cpu", "cuda:0"; NULL only for a model that was unpinned and is not in memory */
    const char *no_gpu;      /* NULL, or why the CPU runs the model although the engine could use a GPU */
    struct hearth_strs slow; /* this and the following members as in struct hearth_loaded_model */
    int64_t bytes, host_bytes;
    double speed;
    HEARTH_ROOM(1);
};
HEARTH_API int hearth_models_list(struct hearth *h, struct hearth_models_list_result **out,
                                  const struct timespec *timeout, struct hearth_err *err);
/* As hearth_models_list(), with what the files' headers say. The headers are read in the background: those that have
 * not been read yet are missing (`read` is false), so call again. Starts an engine. */
HEARTH_API int hearth_models_details(struct hearth *h, struct hearth_models_list_result **out,
                                     const struct timespec *timeout, struct hearth_err *err);
HEARTH_API int hearth_models_show(struct hearth *h, const char *model, struct hearth_model **out,
                                  const struct timespec *timeout, struct hearth_err *err);
/* As hearth_models_show(), with the model's program. The model need not be loaded; for a model that cannot run this
 * returns the error that loading it would. */
HEARTH_API int hearth_models_ops(struct hearth *h, const char *model, struct hearth_model **out,
                                 const struct timespec *timeout, struct hearth_err *err);
/* Loads a model. on_event (may be NULL) receives HEARTH_EVENT_PROGRESS. */
HEARTH_API int hearth_models_load(struct hearth *h, const char *model, hearth_on_event *on_event, void *arg,
                                  const struct timespec *timeout, struct hearth_model_load_result **out,
                                  struct hearth_err *err);
/* Unloads and unpins a model; succeeds also where it is not loaded. HEARTH_ELIMIT while it is generating. Only for root
 * and the daemon's own user. */
HEARTH_API int hearth_models_unload(struct hearth *h, const char *model, const struct timespec *timeout,
                                    struct hearth_err *err);

/*
 * Passes a model's files to the daemon as open descriptors: a GGUF file, all parts of a split one, or a Hugging Face
 * folder. A daemon that runs as another user may have no right to read the caller's files, so calls that name a model
 * by a path do this by themselves. This function is for a session of such a model, because a request in a session need
 * not name the model: when it is answered with HEARTH_ENOTPASSED, the daemon was restarted, or closed files that were
 * unused, and needs them again; hearth_sessions_show() returns the path. `timeout` is for all of its files.
 */
HEARTH_API int hearth_models_pass(struct hearth *h, const char *path, const struct timespec *timeout,
                                  struct hearth_err *err);

/* Pins a model or, with `pinned` false, unpins it. A pinned model is loaded and stays loaded: it is neither unloaded
 * when idle nor evicted to make room, until it is unpinned or unloaded. While the daemon runs, a new engine loads it
 * again. Only for root and the daemon's own user. */
HEARTH_API int hearth_models_pin(struct hearth *h, const char *model, bool pinned, hearth_on_event *on_event, void *arg,
                                 const struct timespec *timeout, struct hearth_model_load_result **out,
                                 struct hearth_err *err);

/* hearth_status() reports the daemon, its engines and the models in memory. */
struct hearth_loaded_model {
    const char *name, *path;
    const char *where;                              /* "cpu", "cuda:0"; NULL where `vocab_only` */
    int64_t bytes;                                  /* bytes of its weights in memory */
    int64_t context;                                /* the model's context limit, in tokens */
    int64_t context_used;                           /* tokens of the longest sequence, running or cached */
    int64_t sequences;                              /* running sequences */
    int64_t pages_used, pages_total, page_bytes;    /* KV pages of 16 tokens */
    int64_t states_used, states_total, state_bytes; /* recurrent states, included in the pages' bytes; 0: none */
    bool vocab_only;                                /* only its tokenizer is loaded */
    double expires;                                 /* seconds since the epoch: when it is unloaded unless it is used
                                                       before; 0: it is in use, or stays loaded */
    bool pinned;                                    /* it stays loaded until it is unpinned or unloaded */
    const char *self_check;  /* self-check of the device with this model: NULL where none is needed; "passed"; "passed
                                before", as recorded in the cache; else why the CPU runs the model: what was wrong, or
                                what the device lacks (room, kernels) */
    struct hearth_strs slow; /* ops that are not on the GPU's fast paths, and why; at most 8, none on the CPU */
    int64_t host_bytes;      /* bytes of its weights (counted in `bytes`) that are in host memory because the GPU's has
                                no room for them; 0: none */
    double speed;            /* upper estimate of the tokens per second in that case; 0: unknown, or no weights are in
                                host memory */
    HEARTH_ROOM(6);
};
/* The KV tiers below the models' pages on the device: host memory, and files. Counters count from the engine's start;
 * rates are recent means, 0 before the first measurement. */
struct hearth_kv_tiers {
    int64_t host_pages, host_bytes, host_limit; /* KV in host memory; the limit is in bytes */
    int64_t disk_pages, disk_bytes;             /* KV in files, of models loaded since the engine's start */
    int64_t pages_saved, pages_restored;        /* device to host; host to device */
    int64_t pages_dropped;                      /* evicted from host memory and in no file, so lost */
    int64_t bytes_saved, bytes_restored;        /* over the device's link */
    int64_t bytes_written, bytes_read;          /* bytes of KV files written and read */
    int64_t files_written, files_bad;           /* files_bad: damaged files, which were renamed */
    int64_t moving;                             /* saves and restores in flight */
    double prefill_rate;                        /* tokens/s of computing KV instead of restoring it */
    double device_rate;                         /* bytes/s, host memory to device */
    double read_rate, write_rate;               /* bytes/s, of the disk */
    HEARTH_ROOM(4);
};
/* Who holds the device's memory, as of the last moment when the device was idle, or of 10 s ago. */
struct hearth_program {
    int64_t pid, bytes;
    const char *name; /* NULL: not visible to the daemon */
    HEARTH_ROOM(4);
};
struct hearth_memory {
    int64_t limit;                         /* what hearth may use (gpu_memory); 0: no limit */
    int64_t weights, kv, workspace, cache; /* bytes in use by hearth; the cache is given back when memory is needed */
    int64_t context;                       /* what the driver and the runtime hold for the engine; 0: unknown */
    int64_t pinned;                        /* pinned host memory */
    int64_t others;                        /* of other programs; includes the context where that is unknown */
    const char *others_unknown;            /* NULL, or why `others` is unknown */
    struct hearth_program *programs;       /* the other programs with the most memory, at most 8 */
    size_t n_programs;
    HEARTH_ROOM(4);
};
/* A kernel path, and the number of rows that took it, summed over the matrix products of all forward passes. */
struct hearth_path_rows {
    const char *path; /* as in struct hearth_op */
    int64_t rows;
};
struct hearth_engine_status {
    int64_t pid;         /* 0: none */
    const char *state;   /* "absent", "restarting", "starting", "running", "leaving", "stopping", "not answering" */
    const char *backend; /* "cpu", "cuda"; NULL, like `device`, while there is no engine */
    const char *device;
    const char *no_gpu; /* NULL, or why the CPU is used although the engine could use a GPU */
    int64_t steps, rows, rows_max, tokens_computed; /* since the engine started; rows / steps is the mean batch */
    int64_t queued, running;                        /* generations that wait in the engine, and that run */
    int64_t restarts;                               /* restarts of the engine since the daemon started */
    int64_t mem_total, mem_free; /* bytes of the device's memory, as of the last moment when it was idle, or of 10 s
                                    ago */
    int64_t mem_cached;          /* part of mem_free: the dequantised weight cache, which is evicted when memory is
                                    needed */
    struct hearth_memory memory;
    struct hearth_kv_tiers kv;
    struct hearth_loaded_model *models;
    size_t n_models;
    int64_t replays; /* steps that replayed a captured graph; like paths, as of the time of mem_total */
    struct hearth_path_rows *paths;
    size_t n_paths;      /* 0 on a CPU */
    const char *failure; /* NULL, or how the last engine failed, if none has been ready since */
    HEARTH_ROOM(8);
};
/* KV files on the disk: the caller's own; root and the daemon's own user see those of all users. */
struct hearth_kv_share {
    int64_t uid, files, bytes;
    HEARTH_ROOM(4);
};
struct hearth_kv_files {
    int64_t limit, limit_per_uid; /* bytes, as in force: a full disk lowers them. 0: KV is kept in no files */
    struct hearth_kv_share *shares;
    size_t n_shares;
    HEARTH_ROOM(4);
};
/* Totals over the generations that ended since the daemon started, of all users. */
struct hearth_bucket {
    double le;     /* seconds */
    int64_t count; /* generations that took at most `le` */
};
struct hearth_histogram {
    double sum; /* seconds */
    int64_t count;
    struct hearth_bucket *buckets; /* in ascending order of `le`; generations beyond the last bound are in
                                      hearth_histogram.count only */
    size_t n_buckets;
    HEARTH_ROOM(4);
};
struct hearth_served {
    int64_t stop, length, context_full, cancelled, error;                     /* generations by finish_reason */
    int64_t prompt_tokens, reused_tokens, restored_tokens, completion_tokens; /* sums of struct hearth_usage */
    struct hearth_histogram first_token;                                      /* from the request to the first token */
    struct hearth_histogram per_token; /* between two tokens, averaged over each generation */
    struct hearth_histogram total;     /* from the request to its end */
    struct hearth_histogram queue;     /* from the request to its admission */
    HEARTH_ROOM(4);
};
/* The maxima over single iterations of the daemon's event loop, during which all other clients wait. */
struct hearth_loop {
    int64_t bytes; /* bytes of messages, both ways, and of database pages */
    int64_t rows;  /* rows of the database, read and written */
    double cpu;    /* seconds of CPU time */
    HEARTH_ROOM(4);
};
struct hearth_status_result {
    int64_t pid;
    const char *version, *socket;
    double uptime; /* seconds */
    int64_t connections, streams, sessions;
    int64_t rss_bytes; /* resident memory of the daemon */
    struct hearth_kv_files kv_files;
    const char *config;      /* the configuration file that was read; NULL: none */
    const char *no_sessions; /* NULL, or why named sessions are unavailable */
    struct hearth_served served;
    struct hearth_loop longest;
    struct hearth_engine_status engine;   /* the first device's, with all devices' models and sums */
    struct hearth_engine_status *engines; /* one per device; absent where there is only one device */
    size_t n_engines;
    int64_t games;        /* games registered with GameMode, to which memory is yielded */
    const char *no_games; /* NULL, or why games cannot be detected */
    double yielded;       /* seconds for which memory remains yielded (hearth_yield()); 0: none is yielded */
    int64_t waiting;      /* generations that are queued because their user, or all users together, run as many streams
                             as allowed */
    HEARTH_ROOM(6);
};
HEARTH_API int hearth_status(struct hearth *h, struct hearth_status_result **out, const struct timespec *timeout,
                             struct hearth_err *err);

/*
 * Gives the device's memory to other programs: until `bytes` of it are free or, with `all`, everything that may be
 * given back. Exactly one of the two is needed. For `seconds` (0 to 86400) hearth takes none of it back; with 0 this
 * ends an earlier yield instead, and neither of the two is needed. Streams that are in the way are parked, and continue
 * later where they stopped. HEARTH_ELIMIT where less than that is free after everything was given back, which lasts for
 * `seconds` all the same, or another yield is being carried out. Only for root and the daemon's own user.
 */
struct hearth_yield_result {
    int64_t freed; /* bytes that hearth gave back */
    int64_t free;  /* bytes that are free afterwards; 0 without an engine, which then holds nothing; the least of
                      several devices */
};
HEARTH_API int hearth_yield(struct hearth *h, int64_t bytes, bool all, double seconds, const struct timespec *timeout,
                            struct hearth_yield_result **out, struct hearth_err *err);

/* Shuts the daemon down; only for root and its own user. With `now` running streams are interrupted; without it they
 * get some seconds to end. Sessions keep their tokens in both cases. The answer arrives first, then the connection
 * ends. */
HEARTH_API int hearth_shutdown(struct hearth *h, bool now, const struct timespec *timeout, struct hearth_err *err);

/* Writes a consistent copy of the session database into one file of mode 0600, whatever is running. `path` is absolute
 * and on the daemon's machine. Only for root and the daemon's own user. With `replace` an existing file is replaced
 * atomically; without it, an existing file is an error. */
struct hearth_backup_result {
    int64_t bytes;
    HEARTH_ROOM(4);
};
HEARTH_API int hearth_backup(struct hearth *h, const char *path, bool replace, struct hearth_backup_result **out,
                             const struct timespec *timeout, struct hearth_err *err);

/* Tokenises a text, and turns tokens back into text. Of the model's file the engine reads the vocabulary only. */
enum { HEARTH_BOS_AUTO = -1, HEARTH_BOS_NO = 0, HEARTH_BOS_YES = 1 };
struct hearth_tokenize_result {
    struct hearth_ids ids;
    HEARTH_ROOM(4);
};
struct hearth_detokenize_result {
    struct hearth_bytes bytes; /* exactly the bytes that the tokens stand for */
    struct hearth_bytes text;  /* the same as UTF-8, with U+FFFD for each invalid byte */
    HEARTH_ROOM(4);
};
/* special: control tokens in the text are parsed as such. bos: one of HEARTH_BOS_*. */
HEARTH_API int hearth_tokenize(struct hearth *h, const char *model, struct hearth_bytes text, bool special, int bos,
                               struct hearth_tokenize_result **out, const struct timespec *timeout,
                               struct hearth_err *err);
HEARTH_API int hearth_detokenize(struct hearth *h, const char *model, struct hearth_ids tokens,
                                 struct hearth_detokenize_result **out, const struct timespec *timeout,
                                 struct hearth_err *err);

/*
 * Renders a conversation with a model's chat template, as a generation would, and tokenises the text. Members that may
 * hold any structure are JSON text. hearth_render_init() sets every member to its default; `size` is sizeof *r.
 */
struct hearth_render {
    size_t size;
    const char *model;                 /* a name or a path */
    const char *messages;              /* JSON array of objects; NULL: the template's variable is undefined */
    const char *tools, *documents;     /* JSON arrays; NULL: none */
    const char *kwargs;                /* JSON object: variables of the template, which override all others */
    const char *bos_token, *eos_token; /* NULL: the model's own */
    const char *chat_template;         /* the source of a template; NULL: one of the model's own, ... */
    const char *template_name;         /* ... which this names; NULL: the one that Hugging Face's transformers would
                                          choose */
    const char *now;                   /* "2026-11-22T10:00": the local time that the template sees; NULL: the current
                                          time */
    bool add_generation_prompt;        /* false: the text ends with the last message */
};
struct hearth_render_result {
    struct hearth_bytes text; /* UTF-8 */
    struct hearth_ids ids;    /* control tokens only where the template itself wrote them; at most one BOS */
    HEARTH_ROOM(4);
};
HEARTH_API void hearth_render_init(struct hearth_render *r, size_t size);
/* Returns HEARTH_ETEMPLATE, with the template's own message, where the template fails or refuses the conversation;
 * HEARTH_ENOTEMPLATE where the model has no such template. */
HEARTH_API int hearth_render(struct hearth *h, const struct hearth_render *r, struct hearth_render_result **out,
                             const struct timespec *timeout, struct hearth_err *err);

/* Runs token ids through a model and reports the largest logits at each position; then continues greedily from the
 * last. */
struct hearth_logit {
    int64_t id;
    double logit;
};
struct hearth_top { /* the logits of one position, best first */
    struct hearth_logit *v;
    size_t n;
};
struct hearth_eval_result {
    struct hearth_top *top; /* one per position; none if no logits were asked for */
    size_t n_top;
    struct hearth_ids greedy; /* tokens that follow the last position; an end token is included and ends them */
    HEARTH_ROOM(4);
};
/* top: number of logits per position, 0..1000; greedy: number of tokens to generate greedily. */
HEARTH_API int hearth_eval(struct hearth *h, const char *model, struct hearth_ids tokens, int64_t top, int64_t greedy,
                           struct hearth_eval_result **out, const struct timespec *timeout, struct hearth_err *err);

#ifdef __cplusplus
}
#endif
#endif
