/*
 * gguf.h - a bounded reader of GGUF v2 and v3 files (format: ggml's docs/gguf.md).
 *
 * Opening maps the file read-only and checks everything before use: offsets and sizes in checked 64-bit arithmetic
 * against the file's size, caps on counts, types of keys, shapes against the type's block. After gguf_open nothing
 * here can fail for a reason that lies in the file. Values are found by key in O(1) or by a short scan; strings are
 * not NUL-terminated and point into the map.
 *
 * A file that shrinks under us would raise SIGBUS on the next touch; gguf_open installs a handler-guarded check
 * (see gguf.c) so that loading ends in HEARTH_EBADMODEL instead of a dead engine.
 *
 * Immutable after opening; any thread may read.
 */
#ifndef HEARTH_GGUF_H
#define HEARTH_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "libclient/err.h"

struct gguf;

struct gguf_str {
    const char *s; /* not NUL-terminated, any bytes */
    size_t n;
};
struct gguf_tensor {
    struct gguf_str name;
    uint32_t n_dim;    /* 1..4 */
    uint64_t dim[4];   /* dim[0] varies fastest; unused ones are 1 */
    int type;          /* ggml number; dtype_get(type) may be NULL for types hearth does not know */
    const void *data;  /* into the map; NULL where the type is unknown */
    uint64_t bytes;
};

int gguf_open(struct gguf **out, const char *path, struct hearth_err *e);
void gguf_close(struct gguf *g);

uint64_t gguf_file_bytes(const struct gguf *g);
size_t gguf_n_tensor(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

/* Values. Each returns 0; HEARTH_EBADMODEL naming key and expected type where it is there with another type or out
 * of range; and 1 where the key is absent (*out untouched). Integers of any width are accepted where they fit. */
int gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct hearth_err *e);
int gguf_f32(const struct gguf *g, const char *key, float *out, struct hearth_err *e);
int gguf_bool(const struct gguf *g, const char *key, bool *out, struct hearth_err *e);
int gguf_str(const struct gguf *g, const char *key, struct gguf_str *out, struct hearth_err *e);
/* Arrays: of strings (walked in order), of f32, of i32/u32. *n is the count; elements point into the map. */
int gguf_strs(const struct gguf *g, const char *key, const struct gguf_str **out, size_t *n, struct hearth_err *e);
int gguf_f32s(const struct gguf *g, const char *key, const float **out, size_t *n, struct hearth_err *e);
int gguf_i32s(const struct gguf *g, const char *key, const int32_t **out, size_t *n, struct hearth_err *e);

#endif
