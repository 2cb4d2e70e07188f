/*
 * wire-table.h - the data structures that describe a message: for the codec (wire-pack.c, wire-unpack.c), the rows
 * (wire-rows-*.c) and the tests that iterate over them. All other code uses wire.h.
 *
 * One row per field gives its key on the wire (the member's name), its type, its offset in the struct, its range and
 * its default if it is absent. pack, unpack, defaults, the round-trip test and the fuzzer all walk the same rows, so a
 * new field is one member and one row.
 */
#ifndef HEARTH_WIRE_TABLE_H
#define HEARTH_WIRE_TABLE_H

#include "libclient/wire.h"

enum wire_field_type {
    WIRE_BOOL,   /* bool */
    WIRE_INT,    /* int64_t */
    WIRE_UINT,   /* uint64_t, with a bool beside it where FIELD_HAS is set */
    WIRE_FLOAT,  /* double; integers are accepted too */
    WIRE_STR,    /* const char *: UTF-8 without NUL */
    WIRE_BYTES,  /* struct wire_bytes */
    WIRE_IDS,    /* struct wire_ids: each 0..INT32_MAX */
    WIRE_STRS,   /* struct wire_strs: none of them empty */
    WIRE_STRUCT, /* an embedded struct: a map; with a bool beside it where FIELD_HAS is set */
    WIRE_ARRAY,  /* T * and a count: an array of maps */
    WIRE_PAIRS,  /* struct wire_bias * or struct wire_logit * and a count: an array of [id, number] */
    WIRE_TOPS,   /* struct wire_top * and a count: an array of arrays of [id, logit] */
    WIRE_FAULT,  /* struct wire_fault: an error as [kind, line] */
    WIRE_JSON, /* const char *: JSON text, an array or (i.lo = WIRE_JSON_MAP) an object; the value itself on the wire */
    WIRE_CONTENT, /* the content of struct wire_message: a str (content) or an array of maps (parts) */
};

enum {
    FIELD_REQUIRED = 1, /* unpack refuses a message without it; pack writes it even where it is empty */
    FIELD_SPARSE = 2,   /* pack omits it where it has its default value */
    FIELD_BIN = 4,      /* always bin on the wire: WIRE_BYTES; WIRE_IDS, 4 bytes each, little endian */
    FIELD_HAS = 8,      /* WIRE_UINT, WIRE_STRUCT: absent where the bool at `beside` is false */
};

struct wire_field {
    const char *name;
    uint8_t type;
    uint8_t flags;
    uint16_t offset;
    uint16_t beside; /* offset of the count, of the bool, or of the parts, by type */
    union {
        struct {
            int64_t lo, hi, def; /* WIRE_INT: range and default of the value; strings, bytes, arrays: range of the
                                    length */
        } i;
        struct {
            double lo, hi, def;
        } f;
    };
    const struct wire_type *sub; /* WIRE_STRUCT, WIRE_ARRAY, WIRE_CONTENT */
    const char *const *one_of;   /* WIRE_STR: the supported values, NULL-terminated; NULL = any */
};

struct wire_type {
    const char *name; /* the name in error messages, such as "generate" */
    size_t size;
    const struct wire_field *fields;                     /* ends with name NULL; at most 64 */
    const char *const *reserved;                         /* keys refused as UNSUPPORTED, NULL-terminated; or NULL */
    int (*check)(const void *msg, struct hearth_err *e); /* checks several fields against each other; or NULL */
    uint16_t whole; /* offset of a const char *: the whole map as JSON text, set where it has unknown keys or a nil
                       value; when packed, it replaces the rows. 0: such keys are refused or ignored */
    bool strict;    /* unknown keys are refused instead of ignored, here and in all nested maps */
};

#endif
