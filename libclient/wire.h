/*
 * wire.h - every message of hearth's protocols as a struct (wire-messages.h; wire-link.h has those of the engine link),
 * and the codec; PROTOCOL.md says what the fields mean.
 *
 * The codec walks tables: there is a struct per message, a table of its fields, and a row per method in wire_methods[]
 * (wire-tables.c). The client protocol and the engine link (methods "engine.*") share frames and codec, so a test can
 * drive the engine by itself. The codec does no I/O.
 *
 * Ownership: a packed frame is bytes in the caller's struct wire_buf. An unpacked message is one allocation that
 * contains everything it points to; wire_free() frees it. Pointers in a struct that is packed are borrowed for the
 * call. All strings are NUL-terminated; `len` does not count the NUL. Text that need not be UTF-8 or may hold NULs is a
 * wire_bytes.
 *
 * Threads: there are no globals but constant tables; any thread may use its own values.
 */
#ifndef HEARTH_WIRE_H
#define HEARTH_WIRE_H

#include "libclient/wire-link.h"
#include "libclient/wire-messages.h"

/* --- the table ------------------------------------------------------------------------------------------ */

struct wire_type; /* a struct's field table; defined in wire-table.h for the codec and its tests only */

enum wire_kind { WIRE_REQUEST, WIRE_EVENT };
struct wire_method {
    const char *name;
    enum wire_kind kind;
    bool link;                      /* engine link only. Only tests read it: hearthd refuses such a request of a client
                                       because it has no handler for it (daemon/rpc/dispatch.c) */
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
    WIRE_ENGINE_KV_DIR,
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
    WIRE_ENGINE_RELIEVED,
    WIRE_JOURNAL_HEAD,
    WIRE_JOURNAL_END,
    WIRE_TURN_GENERATION,
    WIRE_METHODS, /* their number */
};
extern const struct wire_method wire_methods[];                           /* ends with name NULL */
const struct wire_method *wire_method_find(const char *name, size_t len); /* NULL: unknown */

/* As wire_method_find(), with the reason where it returns NULL: HEARTH_EMETHOD, or HEARTH_EUNSUPPORTED for a name that
 * is reserved for a later version (embed). */
const struct wire_method *wire_method_get(const char *name, size_t len, struct hearth_err *e);

/* A growing byte buffer. Zero-initialise it; wire_buf_fini() frees it. */
struct wire_buf {
    uint8_t *data;
    size_t len, cap;
};
void wire_buf_fini(struct wire_buf *b);
/* Appends bytes to a buffer that may become at most `end` bytes long. Returns 0, HEARTH_ETOOBIG or HEARTH_ENOMEM. */
int wire_buf_add(struct wire_buf *b, const void *data, size_t n, size_t end);

/* Each appends one complete frame to b, or returns HEARTH_ENOMEM, HEARTH_ETOOBIG or HEARTH_EPARAMS (a value that cannot
 * be packed) and leaves b's content as it was. `id` is the RPC message id. */
int wire_pack_request(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *params,
                      struct hearth_err *e);
int wire_pack_result(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *result,
                     struct hearth_err *e);
/* As wire_pack_result(), with a result that is packed already, as one value. */
int wire_pack_result_packed(struct wire_buf *b, uint32_t id, const struct wire_bytes *result, struct hearth_err *e);
int wire_pack_error(struct wire_buf *b, uint32_t id, int code, const char *msg, struct hearth_err *e);
/* as_method/as_code: NULL, or hello's notify_as. */
int wire_pack_event(struct wire_buf *b, const struct wire_method *m, const void *body, const char *as_method,
                    const char *as_code, struct hearth_err *e);

/* Writes the line of an error, "NAME: msg" in UTF-8, truncated to WIRE_LINE_MAX; returns its length. */
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
    bool is_error; /* of a response: err is set instead of body */
    struct hearth_err err;
};

/*
 * Scans the structure of data[0..len) for one complete well-formed message, without allocating. Returns its length, 0
 * where more bytes are needed, or a negative code: HEARTH_ETOOBIG for more than `max` bytes or max / WIRE_VALUE_BYTES
 * values (detected as soon as a count claims them) or nesting deeper than WIRE_DEPTH_MAX, HEARTH_EINVALID for bytes
 * that are not msgpack. The cost is linear however the bytes arrive: `state` keeps the position between calls with a
 * growing len. The caller zeroes it at first and after each frame.
 */
struct wire_scan {
    size_t pos;
    uint64_t values, owed;
    uint32_t depth;
    uint32_t left[WIRE_DEPTH_MAX + 1];
};
ptrdiff_t wire_scan(struct wire_scan *state, const uint8_t *data, size_t len, size_t max, struct hearth_err *e);

/* Splits a scanned frame. Returns HEARTH_EINVALID where it is not a MessagePack-RPC message; where the id could be
 * read, f->id is set and f->kind is WIRE_FRAME_REQUEST, so that the error can be sent as an answer. */
int wire_frame_open(struct wire_frame *f, const uint8_t *data, size_t len, struct hearth_err *e);

/* Unpacks a body of the given type: *out is one allocation that starts with the struct; free it with wire_free().
 * HEARTH_EPARAMS names the field. */
int wire_unpack(const struct wire_type *t, const uint8_t *body, size_t len, void **out, struct hearth_err *e);
/* The same for a method's params, where values of any structure are bounded (WIRE_JSON_VALUES): several methods may share
 * a type, and an error names the method's field. */
int wire_unpack_params(const struct wire_method *m, const uint8_t *body, size_t len, void **out, struct hearth_err *e);
void wire_free(void *msg);

/* The type of struct wire_request_id, which ignores all other fields of a generate. */
extern const struct wire_type wire_request_id_type;

/* Sets a struct to its fields' defaults (as unpacking an empty map would, with required fields zeroed). */
void wire_defaults(const struct wire_type *t, void *msg);

#endif
