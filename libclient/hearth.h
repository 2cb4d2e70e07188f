/* hearth.h - libhearth, the client library. (The essay and the API follow; this is the error table.) */
#ifndef HEARTH_H
#define HEARTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEARTH_ERR_MSG 200
struct hearth_err {
    int code; /* 0 or a negative HEARTH_E* */
    char msg[HEARTH_ERR_MSG];
};

/*
 * Every error there is: constant, number, the symbol on the wire, and whose fault it is (1: the request's,
 * 0: the server's). Numbers and symbols never change their meaning.
 */
#define HEARTH_ERRORS(X)                                  \
    X(EINVALID, -1, "INVALID_REQUEST", 1)   /* not a well-formed RPC message */ \
    X(EPARAMS, -2, "INVALID_PARAMS", 1)     /* a field has the wrong type or a value out of range */ \
    X(EMETHOD, -3, "UNKNOWN_METHOD", 1)                   \
    X(EUNSUPPORTED, -4, "UNSUPPORTED", 1)   /* known, but not in this version, build or model */ \
    X(EVERSION, -5, "VERSION", 1)           /* no protocol version in common */ \
    X(ETOOBIG, -6, "TOO_LARGE", 1)          /* over a limit that hello states */ \
    X(ELIMIT, -7, "LIMIT", 1)               /* too much at once: connections, streams, sessions */ \
    X(EDENIED, -8, "PERMISSION", 1)                       \
    X(ENOMODEL, -10, "MODEL_NOT_FOUND", 1)                \
    X(EBADMODEL, -11, "MODEL_INVALID", 1)   /* the file is damaged or not a model */ \
    X(EMODELMISMATCH, -12, "MODEL_MISMATCH", 1) /* the session is bound to another model */ \
    X(ENOSESSION, -13, "SESSION_NOT_FOUND", 1)            \
    X(ESESSIONEXISTS, -14, "SESSION_EXISTS", 1)           \
    X(ESESSIONBUSY, -15, "SESSION_BUSY", 1) /* a generation is running in it */ \
    X(ENOSTREAM, -16, "STREAM_NOT_FOUND", 1)              \
    X(ENOTEMPLATE, -17, "NO_TEMPLATE", 1)   /* the model's chat template is absent or not one we render */ \
    X(ECONTEXT, -18, "CONTEXT_FULL", 1)     /* the prompt alone does not fit */ \
    X(ECONFLICT, -19, "CONFLICT", 1)        /* the request id was used for something else */ \
    X(ECANCELLED, -20, "CANCELLED", 1)                    \
    X(EINTERNAL, -30, "INTERNAL", 0)                      \
    X(EENGINE, -31, "ENGINE_FAILED", 0)     /* the engine died or would not start */ \
    X(ENOMEM, -32, "OUT_OF_MEMORY", 0)                    \
    X(ESTORE, -33, "STORE", 0)              /* the session database cannot be read or written */ \
    X(EDEVICE, -34, "DEVICE", 0)            /* the GPU failed or is missing */ \
    X(ESHUTDOWN, -35, "SHUTTING_DOWN", 0)                 \
    X(EIO, -36, "IO", 0)                    /* a file could not be read or written */ \
    X(ECONNECT, -40, "CONNECT", 0)          /* client side: no daemon, or the connection broke */ \
    X(EPROTOCOL, -41, "PROTOCOL", 0)        /* client side: the peer sent something that is not the protocol */

enum hearth_errno {
    HEARTH_OK = 0,
#define X(name, number, symbol, request) HEARTH_##name = number,
    HEARTH_ERRORS(X)
#undef X
};

#ifdef __cplusplus
}
#endif
#endif
