/*
 * dtype.h - the tensor element types hearth knows: one row per type in quant/list.h.
 *
 * The numbers are GGUF's (ggml_type), so that a file's type field indexes the table directly.
 */
#ifndef HEARTH_DTYPE_H
#define HEARTH_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/quant/ints.h"
#include "kernels/quant/list.h"

enum dtype { /* DT_F32, DT_F16, DT_Q4_K, ... */
#define X(t, T, number) DT_##T = number,
             QUANTS(X)
#undef X
                 DT_COUNT /* one past the largest number we know; rows between are empty */
};

enum { BLOCK_LEN_MAX = 256 }; /* weights in a block of any type */

struct dtype_info {
    const char *name;     /* "Q4_K"; NULL in an empty row */
    uint32_t block_len;   /* elements per block; a row's length is a multiple of it */
    uint32_t block_bytes; /* bytes per block */
    /* Expands n elements (a multiple of block_len) at src into f32. This is the specification of the type. */
    void (*to_f32)(const void *src, float *dst, size_t n);
    /* Packs n floats into dst, rounding to nearest; NULL where hearth never writes the type. */
    void (*from_f32)(const float *src, void *dst, size_t n);
};

/* Unpacks a super-block of a type of QUANTS_INT into integers, exactly; NULL for other types. */
extern void (*const dtype_ints[DT_COUNT])(const void *block, struct quant_ints *out);

/* The table row of a type, or NULL where hearth does not know it. Any int is a valid argument. */
const struct dtype_info *dtype_get(int type);

/* GGUF's name of a type, also of types that hearth cannot read; NULL for an unknown number. */
const char *dtype_name(int type);

/* Bytes of n elements of a type; 0 for an unknown type, where n is not a multiple of the block, or on overflow. */
uint64_t dtype_bytes(int type, uint64_t n);

#endif
