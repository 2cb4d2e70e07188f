/* gguf-internal.h - the definition of struct gguf, shared by gguf*.c; everyone else includes gguf.h. */
#ifndef HEARTH_GGUF_INTERNAL_H
#define HEARTH_GGUF_INTERNAL_H

#include "daemon/model/gguf.h"
#include "daemon/model/map.h"

/* Value types of keys, numbered as in GGUF. */
enum { V_U8, V_I8, V_U16, V_I16, V_U32, V_I32, V_F32, V_BOOL, V_STR, V_ARR, V_U64, V_I64, V_F64, V_COUNT };

struct gguf_key {
    struct gguf_str name;
    uint32_t type, elem;          /* elem: the element type of an array */
    uint64_t n;                   /* number of elements of an array */
    const unsigned char *p, *end; /* the value, without its type and count */
};

/* A hash table from names to positions: open addressing, at most half full. The hash is randomly seeded so that a
 * crafted file cannot make its names collide. */
struct gguf_index {
    uint32_t *slot; /* position + 1; 0: free */
    size_t mask;
};

struct gguf_owned { /* memory of tensors that no file has in the required form */
    struct gguf_owned *next;
    max_align_t bytes[];
};

struct gguf_later { /* work that gguf_fill() does; in gguf_owned memory, as are `arg` and what it writes */
    struct gguf_later *next;
    gguf_fill_fn *fill;
    const void *arg;
};

struct gguf {
    struct map *maps; /* [n_map] */
    size_t n_map;
    unsigned char *header; /* assembled keys (gguf-make.c); NULL where the keys are in maps[0] */
    struct gguf_owned *owned;
    struct gguf_later *later;
    uint64_t seed;
    struct gguf_key *keys;
    size_t n_key;
    struct gguf_tensor *tensors;
    size_t n_tensor;
    struct gguf_index key_index, tensor_index;
};

struct gguf_reader {
    const unsigned char *base, *p, *end;
    struct hearth_err *e;
};

struct gguf *gguf_new(void); /* without keys or tensors; NULL where memory is out */

/* Reads n keys at r->p and indexes them. g's strings then point into the reader's bytes, which must outlive g. */
int gguf_read_keys(struct gguf *g, struct gguf_reader *r, size_t n);

/* Indexes g->tensors by name. HEARTH_EBADMODEL where two tensors have the same name. */
int gguf_index_tensors(struct gguf *g, struct hearth_err *e);

#endif
