/*
 * gguf.h - a bounded reader of GGUF v2 and v3 files (format: ggml's docs/gguf.md).
 *
 * Opening maps the file read-only and checks everything before use: offsets and sizes in checked 64-bit arithmetic
 * against the file's size, caps on counts, types of keys, tensor sizes against their types. Values are found by key in
 * O(1). Strings are not NUL-terminated and point into the map; numbers in arrays may be unaligned there, hence the
 * accessors. Lengths are stored outside the map: a file that is overwritten while it is open gives wrong values, never
 * a wrong address.
 *
 * A file that is truncated while it is open would raise SIGBUS on the next access. gguf_open installs a handler that
 * maps a page of zeros in place of a lost page of such a map and marks the map; gguf_check reports that. Faults
 * elsewhere go to the handler that was installed before. Loading and steps therefore end in an error instead of a
 * crashed engine: call gguf_check after loading and after each step, and discard the step's results where it fails.
 *
 * A struct gguf is immutable after opening, but for gguf_fill(); any thread may read it.
 */
#ifndef HEARTH_GGUF_H
#define HEARTH_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/dtype.h"
#include "libclient/err.h"

struct gguf;

struct gguf_str {
    const char *s; /* not NUL-terminated, any bytes */
    size_t n;
};
struct gguf_tensor {
    struct gguf_str name;
    uint32_t n_dim;   /* 1..4 */
    uint64_t dim[4];  /* dim[0] varies fastest; unused ones are 1 */
    uint32_t type;    /* ggml number; dtype_get(type) may be NULL for types hearth does not know */
    const void *data; /* into the map, aligned; NULL where the type is unknown */
    uint64_t bytes;   /* 0 where the type is unknown */
};

int gguf_open(struct gguf **out, const char *path, struct hearth_err *e);
void gguf_close(struct gguf *g);

/* Returns 0, or HEARTH_EBADMODEL where the file was truncated or written to since it was opened, or where a page of it
 * was lost. It is cheap: one or two fstat calls per mapped file. */
int gguf_check(const struct gguf *g, struct hearth_err *e);

/*
 * Writes the data of those tensors that a folder stores in another form. They can be gigabytes, and only the weights'
 * users need them: after opening, such a tensor has its type, shape and address, but no data. A call that pace() ended
 * with HEARTH_ECANCELLED is to be repeated; after success a call does nothing. Thread: any, while nobody reads data of
 * tensors. gguf_is_filled(): whether all data is there.
 */
typedef int gguf_fill_fn(const void *arg, struct hearth_err *e); /* one part of it: gguf-make.h */
int gguf_fill(struct gguf *g, struct hearth_err *e);
bool gguf_is_filled(const struct gguf *g);

uint64_t gguf_file_bytes(const struct gguf *g);
size_t gguf_n_tensor(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* NULL where absent */

/* Returns key i, in the file's order, for digests: *raw is the value as it is stored, preceded by its type (and
 * count). */
size_t gguf_n_key(const struct gguf *g);
struct gguf_str gguf_key_at(const struct gguf *g, size_t i, struct gguf_str *raw);

/* Values. Each call returns 0; HEARTH_EBADMODEL naming key and expected type where the value has another type or is out
 * of range; and 1 where the key is absent (*out untouched). Integers of any width are accepted where they fit. */
int gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct hearth_err *e);
int gguf_i64(const struct gguf *g, const char *key, int64_t *out, struct hearth_err *e); /* larger values give
                                                                                            INT64_MAX */
int gguf_f32(const struct gguf *g, const char *key, float *out, struct hearth_err *e);
int gguf_bool(const struct gguf *g, const char *key, bool *out, struct hearth_err *e);
int gguf_str(const struct gguf *g, const char *key, struct gguf_str *out, struct hearth_err *e);

/* Arrays. */
struct gguf_nums {
    const unsigned char *p; /* n numbers of four bytes (f64s: of eight), unaligned */
    size_t n;
};
int gguf_f32s(const struct gguf *g, const char *key, struct gguf_nums *out, struct hearth_err *e);
int gguf_i32s(const struct gguf *g, const char *key, struct gguf_nums *out, struct hearth_err *e); /* or u32 */
/* The bytes of an array of u8 or i8, borrowed. */
int gguf_bytes(const struct gguf *g, const char *key, struct gguf_str *out, struct hearth_err *e);
int gguf_f64s(const struct gguf *g, const char *key, struct gguf_nums *out, struct hearth_err *e);
static inline double gguf_f64_at(const struct gguf_nums *a, size_t i)
{
    double v;
    memcpy(&v, a->p + 8 * i, 8);
    return v;
}
/* Reads n flags from an array of bool, i32 or u32, where any value but 0 is true. HEARTH_EBADMODEL where the array's
 * length is not n. */
int gguf_flags(const struct gguf *g, const char *key, uint8_t *out, size_t n, struct hearth_err *e);
bool gguf_has(const struct gguf *g, const char *key);
bool gguf_is_array(const struct gguf *g, const char *key); /* false where the key is absent, too */
static inline float gguf_f32_at(const struct gguf_nums *a, size_t i)
{
    float v;
    memcpy(&v, a->p + 4 * i, 4);
    return v;
}
static inline int32_t gguf_i32_at(const struct gguf_nums *a, size_t i)
{
    int32_t v;
    memcpy(&v, a->p + 4 * i, 4);
    return v;
}

struct gguf_strs { /* an iterator over an array of strings */
    const unsigned char *p, *end;
    size_t n; /* strings left */
};
int gguf_strs(const struct gguf *g, const char *key, struct gguf_strs *out, struct hearth_err *e);
bool gguf_strs_next(struct gguf_strs *w, struct gguf_str *out); /* false at the end */

/* Returns a string of the file in a form that is safe in messages: truncated, with '?' for every byte that is not
 * printable ASCII. Error messages go over the wire, where text is UTF-8. */
struct gguf_label {
    char s[96];
};
struct gguf_label gguf_label(struct gguf_str s);

static inline bool gguf_str_is(struct gguf_str a, const char *b)
{
    return a.n == strlen(b) && !memcmp(a.s, b, a.n);
}

#endif
